//! Members that this leader cannot bring up to date at present: those that copies do not reach, and those whose log is full.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_types::ReplicaId;
use tokio::time::Instant;

/// How long a failed copy counts after it was last tried.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// How long copies must have been failing to be worth a word: a member that restarts or is busy gets the next one.
const FAILING_FOR: Duration = Duration::from_secs(10);

/// How long a member counts as refusing after it last refused.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The first words of the refusal of a member whose log accepts no more entries of the group.
pub(crate) const LOG_FULL: &str = "the log is at its limit";

/// The first words of the refusal of a member that finds an entry of the leader damaged.
pub(crate) const DAMAGED_ENTRY: &str = "the leader's copy is damaged of entry";

/// Members of a group to which copies of it are not getting through.
#[derive(Default)]
pub(crate) struct FailingCopies {
    members: Mutex<BTreeMap<ReplicaId, CopyFailure>>,
}

struct CopyFailure {
    since: Instant,
    last: Instant,
    why: String,
}

impl FailingCopies {
    /// A copy to this member failed. True if that is news: the first time, and for another reason.
    pub(crate) fn failed(&self, replica: ReplicaId, why: &str) -> bool {
        let now = Instant::now();
        let mut members = self.members.lock();
        let before = members.get(&replica);
        let is_news = before.is_none_or(|failing| failing.why != why);
        let lasting = before.filter(|failing| failing.last.elapsed() < FAILED_FOR);
        let since = lasting.map_or(now, |failing| failing.since);
        members.insert(replica, CopyFailure { since, last: now, why: why.to_owned() });
        is_news
    }

    pub(crate) fn succeeded(&self, replica: ReplicaId) {
        self.members.lock().remove(&replica);
    }

    /// The members to which copies have been failing for a while, and why. One failure is none: the member may have got what it
    /// lacked from the log since.
    pub(crate) fn all(&self) -> Vec<(ReplicaId, String)> {
        let mut members = self.members.lock();
        members.retain(|_, failing| failing.last.elapsed() < FAILED_FOR);
        let lasting = members.iter().filter(|(_, failing)| failing.last.duration_since(failing.since) >= FAILING_FOR);
        lasting.map(|(replica, failing)| (*replica, failing.why.clone())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn copies_are_failing_only_while_they_are_tried() {
        let (failing, replica) = (FailingCopies::default(), ReplicaId(7));
        assert!(failing.failed(replica, "no reply"));
        tokio::time::advance(FAILING_FOR * 2).await;
        assert_eq!(failing.all(), []);
        assert!(!failing.failed(replica, "no reply"));
        assert_eq!(failing.all(), [(replica, "no reply".to_owned())]);
        tokio::time::advance(FAILED_FOR).await;
        failing.failed(replica, "no reply");
        assert_eq!(failing.all(), [], "what failed long ago has ended");
    }
}
