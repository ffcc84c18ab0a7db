//! The handle to a group's local replica.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use terrane_types::{GroupId, ReplicaId};
use tokio::sync::oneshot;

use crate::log::Role;
use crate::replica::Replica;
use crate::submission::{OPERATION_BYTES_MAX, Reply, ReplyTo};
use crate::{Error, GroupSpec, GroupStatus, ProposeError, ReadPoint, StalePoint};

/// A handle to one group's local replica; cheap to clone.
#[derive(Clone)]
pub struct Group {
    replica: Arc<Replica>,
}

impl Group {
    pub(crate) fn new(replica: Arc<Replica>) -> Group {
        Group { replica }
    }

    /// The group's id.
    pub fn id(&self) -> GroupId {
        self.replica.spec.group
    }

    /// The group and its local replica, as it was made.
    pub fn spec(&self) -> GroupSpec {
        self.replica.spec.clone()
    }

    /// Proposes an operation and waits for its reply.
    ///
    /// # Errors
    /// Only [`ProposeError::Uncertain`] leaves open whether the operation takes effect; after any other it does not.
    pub async fn propose(&self, operation: Vec<u8>) -> Result<Bytes, ProposeError> {
        let (waiter, answer) = oneshot::channel();
        self.enqueue(operation, ReplyTo::Waiting(waiter));
        // A caller is always answered, but for a task that was torn down with its runtime.
        answer.await.unwrap_or(Err(ProposeError::Uncertain))
    }

    /// Proposes an operation; `reply` is called with the outcome, perhaps before this returns.
    pub fn submit(&self, operation: Vec<u8>, reply: Reply) {
        self.enqueue(operation, ReplyTo::Callback(reply));
    }

    fn enqueue(&self, operation: Vec<u8>, reply_to: ReplyTo) {
        if operation.len() > OPERATION_BYTES_MAX {
            return reply_to.answer(Err(ProposeError::TooLarge { limit: OPERATION_BYTES_MAX }));
        }
        if let Some(held_by) = self.replica.shared_log.lacks_space() {
            if self.replica.metrics.borrow_watched().state != ServerState::Leader {
                return reply_to.answer(Err(self.replica.not_leader()));
            }
            return reply_to.answer(Err(ProposeError::LogFull { held_by }));
        }
        if let Some(refusal) = self.replica.shared_log.refusal(self.id(), Role::Leader) {
            // A caller that hears of a full log comes back to the same server, so only the leader says so.
            if self.replica.metrics.borrow_watched().state != ServerState::Leader {
                return reply_to.answer(Err(self.replica.not_leader()));
            }
            return reply_to.answer(Err(ProposeError::LogFull { held_by: self.replica.log_holder(&refusal) }));
        }
        self.replica.queue.push(operation, reply_to);
    }

    /// A point at which a linearizable read may be answered; everything up to it is applied when this returns.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`] when another replica leads or nobody does; [`ProposeError::Busy`] when it takes too long.
    pub async fn read_barrier(&self) -> Result<ReadPoint, ProposeError> {
        self.replica.read_barrier().await
    }

    /// As [`Group::read_barrier`], by a quorum round whatever the lease says: for who does not want to lean on clocks.
    ///
    /// # Errors
    /// As [`Group::read_barrier`].
    pub async fn strict_read_barrier(&self) -> Result<ReadPoint, ProposeError> {
        self.replica.read_by_round().await
    }

    /// A point at which a read may be answered from what is applied here, whoever leads, and the time up to which that is
    /// complete. Waits for nobody.
    ///
    /// # Errors
    /// [`ProposeError::NotReady`] while nothing has been applied since the start.
    pub fn stale_point(&self) -> Result<StalePoint, ProposeError> {
        self.replica.stale_point()
    }

    /// Whether the local replica leads, its first entry applied or not.
    pub(crate) fn leads(&self) -> bool {
        self.replica.metrics.borrow_watched().state == ServerState::Leader
    }

    /// The time by which cells expire for a read here: the wall clock as far as the members' clocks bear it out, and not
    /// below `stamp`, the log time of what is read.
    pub fn time_ms(&self, stamp: u64) -> u64 {
        self.replica.time_ms().map_or(stamp, |time| time.max(stamp))
    }

    /// How the group stands, as seen from here.
    pub fn status(&self) -> GroupStatus {
        self.replica.status()
    }

    /// Waits until the status satisfies `condition`; `None` when `timeout` passed first.
    pub async fn wait_for(
        &self,
        condition: impl Fn(&GroupStatus) -> bool + Send,
        timeout: Duration,
    ) -> Option<GroupStatus> {
        let mut metrics = self.replica.metrics.clone();
        let satisfied = async {
            loop {
                metrics.borrow_and_update();
                let status = self.status();
                if condition(&status) {
                    return Some(status);
                }
                metrics.changed().await.ok()?;
            }
        };
        tokio::time::timeout(timeout, satisfied).await.ok().flatten()
    }

    /// Hands leadership to `to`, which must be another member; returns when the order is given, not when it is done. It is
    /// carried out when `to` has the whole log, and lapses when that does not come about.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `to` is no member or this replica does not lead.
    pub async fn transfer_leader(&self, to: ReplicaId) -> Result<(), Error> {
        let status = self.status();
        if !status.members.contains_key(&to) {
            return Err(Error::Invalid { what: format!("replica {to} is not a member of group {}", self.id()) });
        }
        if status.leader.is_none_or(|(leader, _)| leader != self.replica.spec.replica) {
            return Err(Error::Invalid { what: format!("group {} is led by another server", self.id()) });
        }
        self.replica.transfer(to).await
    }
}
