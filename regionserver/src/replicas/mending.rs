//! Damaged replicas: they do not lead if another member can, and ask to be replaced.
//!
//! The store files of a group's replicas differ, because each flushes and compacts on its own. So a damaged file cannot be
//! fetched from another replica by its name: the whole replica is replaced by a copy of the group. The master plans that as a
//! change of members (`terrane-master`, `fleet::planner`). If no other server can take the new replica, this server discards
//! the damaged one by order and takes the new one itself, as after the loss of a disk.
//!
//! A replica whose log is damaged is replaced in the same way: one that finds, when it applies an entry, that the entry is not
//! what the leader packed has stopped there, and a restart stops there again. So is one that differs from a majority of the
//! others ([`crate::replicas::comparing`]).
//!
//! Bounds: a server discards [`DISCARDS_MAX`] replicas within [`DISCARDS_WITHIN`] at most. One whose disk damages more says
//! so, leads nothing if others can, and keeps what it has until another server can take it.
//!
//! Invariant: only a replica that is known here to be damaged is discarded, and never one that leads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_raft::{Abstention, Weight};
use terrane_types::{Error, GroupId, Invalid, ReplicaId};
use tokio::time::Instant;

use crate::group::proposal::{Group, GroupHost};
use crate::metrics::Metrics;
use crate::replicas::Replicas;

/// Replicas that a server discards within [`DISCARDS_WITHIN`] at most: as many as one event damages, such as a loss of
/// power, but no disk that damages what it is given is filled again and again.
const DISCARDS_MAX: usize = 16;
/// See [`DISCARDS_MAX`].
const DISCARDS_WITHIN: Duration = Duration::from_secs(3_600);
/// When an order that is not possible yet should be tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The subject of this server's reason not to lead.
const SUBJECT: &str = "damaged files";

/// The damaged replicas that left a server, by order of discard or because another server has their replacement.
pub struct Mending {
    metrics: Arc<Metrics>,
    discarded: Mutex<VecDeque<Instant>>,
}

impl Mending {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, discarded: Mutex::default() }
    }

    /// Whether another replica can be discarded.
    pub fn may_discard(&self, now: Instant) -> bool {
        let mut discarded = self.discarded.lock();
        while discarded.front().is_some_and(|at| now.duration_since(*at) >= DISCARDS_WITHIN) {
            discarded.pop_front();
        }
        discarded.len() < DISCARDS_MAX
    }

    /// A damaged replica leaves this server.
    pub fn note(&self, group: GroupId, replica: ReplicaId, now: Instant) {
        tracing::warn!(%group, %replica, "a damaged replica leaves this server; another one takes its place");
        self.metrics.damaged_replicas.inc();
        let mut discarded = self.discarded.lock();
        discarded.push_back(now);
        if discarded.len() > DISCARDS_MAX {
            discarded.pop_front();
        }
    }

    /// Keeps damaged replicas from leading, and the server if it has discarded too many. Returns what is wrong with the
    /// server, for people.
    pub fn look(&self, host: &GroupHost, replicas: &Replicas) -> Option<String> {
        for group in host.groups() {
            let is_damaged = replicas.is_damaged(group.id());
            group.set_abstains(is_damaged.then(|| soft("its log or some of its data are damaged".to_owned())));
        }
        let worn = (!self.may_discard(Instant::now())).then(worn);
        host.set_abstains(SUBJECT, worn.clone().map(soft));
        worn
    }

    /// Refuses an order to discard a replica that is sound, or that cannot be spared now.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&self, group: &Group, replicas: &Replicas) -> Result<(), Error> {
        let (id, replica) = (group.id(), group.status().replica);
        if !replicas.is_damaged(id) {
            return Err(Error::Invalid(Invalid::new(format!(
                "replica {replica} of group {id} is not known to be damaged"
            ))));
        }
        if group.leads() {
            let message = format!("replica {replica} leads group {id}; it is discarded once another member leads");
            return Err(Error::Unavailable { message, retry_after: RETRY_AFTER });
        }
        let now = Instant::now();
        if !self.may_discard(now) {
            return Err(Error::Invalid(Invalid::new(worn())));
        }
        self.note(id, replica, now);
        Ok(())
    }
}

fn soft(reason: String) -> Abstention {
    Abstention { reason, weight: Weight::Soft }
}

fn worn() -> String {
    format!(
        "store files of {DISCARDS_MAX} replicas were damaged within an hour: the disk is failing; drain this server and \
         replace the disk"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_discards_so_many_replicas_an_hour() {
        let (mending, start) = (Mending::new(Metrics::registered().0), Instant::now());
        for _ in 0..DISCARDS_MAX {
            assert!(mending.may_discard(start));
            mending.note(GroupId(1), ReplicaId(1), start);
        }
        assert!(!mending.may_discard(start + DISCARDS_WITHIN / 2));
        assert!(mending.may_discard(start + DISCARDS_WITHIN));
    }
}
