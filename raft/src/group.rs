//! A handle to one group's local replica.

use std::time::Duration;

use bytes::Bytes;
use terrane_types::{GroupId, ReplicaId};

use crate::{Error, GroupSpec, GroupStatus, ProposeError, ReadPoint};

/// Where the outcome of a submitted operation goes. Called once, from a task that must not be held up.
pub type Reply = Box<dyn FnOnce(Result<Bytes, ProposeError>) + Send>;

/// A handle to one group's local replica; cheap to clone.
#[derive(Clone)]
pub struct Group {
    spec: GroupSpec,
}

impl Group {
    /// The group's id.
    pub fn id(&self) -> GroupId {
        self.spec.group
    }

    /// The group and its local replica.
    pub fn spec(&self) -> GroupSpec {
        self.spec.clone()
    }

    /// Proposes an operation and waits for its reply.
    pub async fn propose(&self, operation: Vec<u8>) -> Result<Bytes, ProposeError> {
        drop(operation);
        Err(ProposeError::Stopped)
    }

    /// Proposes an operation; `reply` is called with the outcome.
    pub fn submit(&self, operation: Vec<u8>, reply: Reply) {
        drop(operation);
        reply(Err(ProposeError::Stopped));
    }

    /// A point at which a linearizable read may be answered; everything up to it is applied when this returns.
    pub async fn read_barrier(&self) -> Result<ReadPoint, ProposeError> {
        Err(ProposeError::Stopped)
    }

    /// How the group stands, as seen from here.
    pub fn status(&self) -> GroupStatus {
        GroupStatus {
            group: self.spec.group,
            replica: self.spec.replica,
            term: 0,
            leader: None,
            is_leader: false,
            last_index: 0,
            committed: 0,
            applied: 0,
            last_stamp: 0,
            members: self.spec.members.clone(),
            snapshot_wanted_by: Vec::new(),
        }
    }

    /// Waits until the status satisfies `condition`; `None` when `timeout` passed first.
    pub async fn wait_for(
        &self,
        condition: impl Fn(&GroupStatus) -> bool + Send,
        timeout: Duration,
    ) -> Option<GroupStatus> {
        let status = self.status();
        drop(timeout);
        condition(&status).then_some(status)
    }

    /// Hands leadership to `to`, which must be a member; returns when the order is given, not when it is done.
    pub async fn transfer_leader(&self, to: ReplicaId) -> Result<(), Error> {
        drop(to);
        Err(Error::Stopped)
    }
}
