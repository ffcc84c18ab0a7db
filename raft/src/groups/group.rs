//! The handle to a group's local replica.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use terrane_types::{GroupId, ReplicaId, ServerId};
use tokio::sync::oneshot;

use crate::groups::replica::Replica;
use crate::members::recovery::{Inspection, Recovery};
use crate::proposals::erased::submission;
use crate::{
    Abstention, GroupSpec, GroupStatus, MemberProgress, MembersError, Proposal, ProposeError, ReadPoint, StalePoint,
    Timing,
};

/// A handle to one group's local replica, which takes proposals `P` and answers them with `A`; cheap to clone.
pub struct Group<P, A> {
    replica: Arc<Replica>,
    types: PhantomData<fn(P) -> A>,
}

impl<P, A> Clone for Group<P, A> {
    fn clone(&self) -> Self {
        Group { replica: self.replica.clone(), types: PhantomData }
    }
}

impl<P: Proposal, A: Send + Sync + 'static> Group<P, A> {
    pub(crate) fn new(replica: Arc<Replica>) -> Group<P, A> {
        Group { replica, types: PhantomData }
    }

    /// The group's id.
    pub fn id(&self) -> GroupId {
        self.replica.view.group()
    }

    /// The group and its local replica, as created.
    pub fn spec(&self) -> GroupSpec {
        self.replica.view.spec().clone()
    }

    /// Proposes something and waits for its answer.
    ///
    /// # Errors
    /// Only [`ProposeError::Uncertain`] leaves open whether the proposal takes effect; after any other it does not.
    pub async fn propose(&self, proposal: P) -> Result<A, ProposeError> {
        let (sender, answer) = oneshot::channel();
        // The caller may have stopped waiting.
        self.submit(proposal, |outcome| drop(sender.send(outcome)));
        // Every submission is answered, except by a task that was torn down together with its runtime.
        answer.await.unwrap_or(Err(ProposeError::Uncertain))
    }

    /// Proposes something and passes the outcome to `reply`: once, possibly before this returns, from a task that must not be
    /// blocked.
    pub fn submit(&self, proposal: P, reply: impl FnOnce(Result<A, ProposeError>) + Send + 'static) {
        self.submit_timed(proposal, |outcome, _| reply(outcome));
    }

    /// As [`Group::submit`], with how long the parts of the way took; all 0 for a proposal that did not take effect.
    pub fn submit_timed(&self, proposal: P, reply: impl FnOnce(Result<A, ProposeError>, Timing) + Send + 'static) {
        let bytes = proposal.bytes();
        self.replica.submit(submission(proposal, reply), bytes);
    }

    /// A point at which a linearizable read may be answered. When this returns, everything up to it is applied.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`] if another replica leads or none does; [`ProposeError::Busy`] if it takes too long.
    pub async fn read_barrier(&self) -> Result<ReadPoint, ProposeError> {
        self.replica.reads.read_barrier().await
    }

    /// As [`Group::read_barrier`], but always by a quorum round: it does not rely on clocks.
    ///
    /// # Errors
    /// As [`Group::read_barrier`].
    pub async fn strict_read_barrier(&self) -> Result<ReadPoint, ProposeError> {
        self.replica.reads.read_by_round().await
    }

    /// A point at which a read may be answered from what is applied here, whichever replica leads, and the time up to which
    /// that is complete. Does not wait.
    ///
    /// # Errors
    /// [`ProposeError::NotReady`] until the replica knows a time since the start.
    pub fn stale_point(&self) -> Result<StalePoint, ProposeError> {
        self.replica.stale_reads.stale_point()
    }

    /// The time by which cells expire for a read here: the wall clock as far as the members' clocks confirm it, and at least
    /// `stamp`, the log time of what is read.
    pub fn time_ms(&self, stamp: u64) -> u64 {
        if terrane_env::planted!("a read expires by one clock") {
            return self.replica.time.wall_ms();
        }
        self.replica.time.now_ms().map_or(stamp, |time| time.max(stamp))
    }

    /// How the group stands, as seen from here.
    pub fn status(&self) -> GroupStatus {
        self.replica.status()
    }

    /// Whether this replica has applied what it had applied before its last restart. Until then its state machine may be ahead
    /// of the index that it applies: for example, a region that is about to leave the group has left the disk already.
    pub fn has_replayed(&self) -> bool {
        self.replica.applying.has_replayed()
    }

    /// Whether files of a copy that this replica has not installed may be in its [`StateMachine::incoming_dir`].
    ///
    /// [`StateMachine::incoming_dir`]: crate::StateMachine::incoming_dir
    pub fn may_receive_files(&self) -> bool {
        self.replica.incoming.may_have_files()
    }

    /// Whether this replica leads, also while its first entry is not applied yet.
    pub fn leads(&self) -> bool {
        self.replica.view.leads()
    }

    /// Waits until the status satisfies `condition`; `None` if `timeout` passes first.
    pub async fn wait_for(
        &self,
        condition: impl Fn(&GroupStatus) -> bool + Send,
        timeout: Duration,
    ) -> Option<GroupStatus> {
        self.replica.wait_for(condition, timeout).await
    }

    /// The first entry that the log here still has, or will have.
    pub fn first_index(&self) -> u64 {
        self.replica.view.log().purged().map_or(0, |mark| mark.log_id.index + 1)
    }

    /// The members and how far they have got, as this leader sees them; empty if this replica does not lead.
    pub fn members(&self) -> Vec<MemberProgress> {
        self.replica.members.progress()
    }

    /// Adds a member that does not vote. Idempotent. Leader only.
    ///
    /// # Errors
    /// [`MembersError`]; repeating the step is safe.
    pub async fn add_learner(&self, replica: ReplicaId, server: ServerId) -> Result<(), MembersError> {
        self.replica.members.add_learner(replica, server).await
    }

    /// Makes a learner a voter, once it has caught up, and removes a member, in one change. Idempotent. Leader only; the
    /// leader does not remove itself.
    ///
    /// # Errors
    /// [`MembersError`]; repeating the step is safe.
    pub async fn change_voters(
        &self,
        promote: Option<ReplicaId>,
        remove: Option<ReplicaId>,
    ) -> Result<(), MembersError> {
        self.replica.members.change_voters(promote, remove).await
    }

    /// Makes exactly these members the voters, in one joint change, once the learners among them have caught up; the other
    /// voters leave. Idempotent. Leader only; the leader does not remove itself.
    ///
    /// # Errors
    /// [`MembersError`]; repeating the step is safe.
    pub async fn set_voters(&self, voters: BTreeSet<ReplicaId>) -> Result<(), MembersError> {
        self.replica.members.set_voters(voters).await
    }

    /// Makes this replica the only member of a group whose majority is lost for good, and waits until it leads. What only the
    /// others had is lost. Idempotent.
    ///
    /// # Errors
    /// [`MembersError::Refused`] while the group has a leader.
    pub async fn recover_alone(&self, order: &Recovery) -> Result<(), MembersError> {
        self.replica.recover_alone(order).await
    }

    /// Sets or clears (`None`) the reason why this replica should not lead, while others of its server may. It takes effect
    /// within a moment, as [`Host::set_abstains`](crate::Host::set_abstains) does for a server.
    pub fn set_abstains(&self, reason: Option<Abstention>) {
        self.replica.leadership.set_abstains(reason);
    }

    /// What the local replica has, for the choice of the one that survives a lost majority.
    pub fn inspect(&self) -> Inspection {
        self.replica.inspect()
    }

    /// Orders leadership to be handed to `to`, which must be another voter, and returns without waiting for it. From then on
    /// this replica takes no proposals. If `to` refuses, or is not elected within seconds, this replica resigns and the
    /// members elect a leader as they would after a failure.
    ///
    /// # Errors
    /// [`MembersError::Later`] if `to` cannot take over now, or another voter should. Nothing has changed then.
    pub async fn transfer_leader(&self, to: ReplicaId) -> Result<(), MembersError> {
        self.replica.leadership.transfer_by_order(to).await
    }
}
