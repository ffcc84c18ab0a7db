//! Members that this leader cannot bring up to date at present: those that need a snapshot, and those whose log is full.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_types::ReplicaId;
use tokio::time::Instant;

/// How long a member counts as waiting for a snapshot after openraft last tried to send it one.
const SNAPSHOT_WANTED_FOR: Duration = Duration::from_secs(10);

/// How long a member counts as refusing after it last refused.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The first words of the refusal of a member whose log accepts no more entries of the group.
pub(crate) const LOG_FULL: &str = "the log is at its limit";

/// Members of a group that need entries the log no longer holds.
#[derive(Default)]
pub(crate) struct SnapshotWanted {
    members: Mutex<BTreeMap<ReplicaId, Instant>>,
}

impl SnapshotWanted {
    pub(crate) fn note(&self, replica: ReplicaId) {
        let before = self.members.lock().insert(replica, Instant::now());
        if before.is_none() {
            tracing::info!(%replica, "a member lacks entries that the log no longer has, and needs a copy of the group");
        }
    }

    /// The members that needed one recently.
    pub(crate) fn by(&self) -> Vec<ReplicaId> {
        recent(&self.members, SNAPSHOT_WANTED_FOR)
    }
}

/// Members of a group whose log accepts no more of its entries.
#[derive(Default)]
pub(crate) struct Refused {
    members: Mutex<BTreeMap<ReplicaId, Instant>>,
}

impl Refused {
    pub(crate) fn note(&self, replica: ReplicaId, why: &str) {
        let before = self.members.lock().insert(replica, Instant::now());
        if before.is_none_or(|before| before.elapsed() > REFUSED_FOR) {
            tracing::warn!(%replica, why, "a member accepts no more entries");
        }
    }

    /// The members that refused recently.
    pub(crate) fn by(&self) -> Vec<ReplicaId> {
        recent(&self.members, REFUSED_FOR)
    }
}

fn recent(members: &Mutex<BTreeMap<ReplicaId, Instant>>, within: Duration) -> Vec<ReplicaId> {
    let mut members = members.lock();
    members.retain(|_, last| last.elapsed() < within);
    members.keys().copied().collect()
}
