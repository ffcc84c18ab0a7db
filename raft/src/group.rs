//! A group's local replica, and the handle to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use terrane_types::{GroupId, ReplicaId, ServerId};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::abstain::Abstentions;
use crate::adapter::Standing;
use crate::clock::{Bounds, Clocks};
use crate::log::{GroupLog, Refusal, Role, SharedLog};
use crate::network::{Refused, SnapshotWanted};
use crate::proposer::{Asker, OPERATION_BYTES_MAX, Queue};
use crate::read::{LeaseClock, Rounds};
use crate::staleness::Heard;
use crate::types::{Metrics, Raft, Types};
use crate::{Error, GroupSpec, GroupStatus, ProposeError, ReadPoint, StalePoint, StateMachine};

/// Where the outcome of a submitted operation goes. Called once, from a task that must not be held up.
pub type Reply = Box<dyn FnOnce(Result<Bytes, ProposeError>) + Send>;

/// A group's local replica.
pub(crate) struct Replica {
    pub(crate) spec: GroupSpec,
    pub(crate) raft: Raft,
    pub(crate) machine: Arc<dyn StateMachine>,
    pub(crate) standing: Arc<Standing>,
    pub(crate) log: Arc<GroupLog>,
    pub(crate) shared_log: Arc<SharedLog>,
    pub(crate) metrics: WatchReceiverOf<Types, Metrics>,
    pub(crate) queue: Queue,
    pub(crate) snapshot_wanted: Arc<SnapshotWanted>,
    /// Members whose log takes no more entries of this group.
    pub(crate) refused_by: Arc<Refused>,
    /// Its failure was logged.
    pub(crate) failure_told: AtomicBool,
    /// Who keeps this group's entries in the log, in words; as of the last look.
    pub(crate) held_by: parking_lot::Mutex<Option<String>>,
    /// Until then this replica neither votes nor stands: before it was restarted it may have promised a leader not to.
    pub(crate) votes_from: Instant,
    pub(crate) clock: Arc<LeaseClock>,
    pub(crate) rounds: Rounds,
    /// What leaders said about how complete this replica is.
    pub(crate) heard: Heard,
    /// The index up to which all members have the log, as this leader last looked.
    pub(crate) matched_by_all: AtomicU64,
    /// The log's newest segment when members were last told by an entry of its own what all of them have.
    pub(crate) hinted_in: AtomicU64,
    /// When a single entry that members have is said though nothing calls for it.
    pub(crate) say_again: parking_lot::Mutex<crate::purge::SayAgain>,
    /// The last term in which this leader was told to hand over. Raised before openraft hears of it.
    pub(crate) transferred: AtomicU64,
    /// Why this server should lead nothing at present.
    pub(crate) abstentions: Arc<Abstentions>,
    /// When a leader was last heard here, or the start.
    pub(crate) leader_heard: parking_lot::Mutex<Instant>,
    /// The servers of all members.
    pub(crate) servers: Vec<ServerId>,
    pub(crate) clocks: Arc<Clocks>,
    /// By how much this server's clock is off the members' at the last look, if too much; else 0.
    pub(crate) clock_off: AtomicI64,
    /// Within what the group's time was at the last look.
    pub(crate) time_bounds: parking_lot::Mutex<Option<Bounds>>,
    pub(crate) stopped: watch::Receiver<bool>,
}

impl Replica {
    pub(crate) fn transferred_term(&self) -> u64 {
        self.transferred.load(Ordering::SeqCst)
    }

    /// The index up to which all members are known to have the log, from own knowledge or from entries of leaders.
    pub(crate) fn least_matched(&self) -> u64 {
        self.matched_by_all.load(Ordering::Relaxed)
    }

    pub(crate) fn not_leader(&self) -> ProposeError {
        let metrics = self.metrics.borrow_watched();
        let leader = metrics.current_leader.filter(|leader| *leader != self.spec.replica);
        let leader = leader.and_then(|leader| Some((leader, self.server_of(&metrics, leader)?)));
        ProposeError::NotLeader { term: metrics.current_term, leader }
    }

    pub(crate) fn server_of(&self, metrics: &Metrics, replica: ReplicaId) -> Option<ServerId> {
        let member = metrics.membership_config.get_node(&replica).map(|member| member.server);
        member.or_else(|| self.spec.members.get(&replica).copied())
    }

    /// This replica handed its leadership over, and the successor is not known here yet. It will be in a moment: better to
    /// wait for its name than to send callers to look for it.
    pub(crate) fn awaits_successor(&self) -> bool {
        let metrics = self.metrics.borrow_watched();
        let handed_over = self.transferred_term();
        // The successor's term is the next one.
        let recent = handed_over > 0 && metrics.current_term <= handed_over + 1;
        recent && metrics.current_leader.is_none_or(|leader| leader == self.spec.replica)
    }

    /// The group's time, as far as the clocks of its members bear out the own clock. `None` while too few are known.
    pub(crate) fn time_ms(&self) -> Option<u64> {
        let known = *self.time_bounds.lock();
        known.or_else(|| self.look_at_clocks()).map(|bounds| self.clocks.within(bounds))
    }

    /// Reads the members' clocks again.
    pub(crate) fn look_at_clocks(&self) -> Option<Bounds> {
        let bounds = self.clocks.bounds(&self.servers);
        *self.time_bounds.lock() = bounds;
        bounds
    }

    pub(crate) fn status(&self) -> GroupStatus {
        let metrics = self.metrics.borrow_watched();
        let leader = metrics.current_leader;
        let members: std::collections::BTreeMap<_, _> =
            metrics.membership_config.nodes().map(|(replica, member)| (*replica, member.server)).collect();
        let term = metrics.current_term;
        let leads = metrics.state == ServerState::Leader && self.log.voted_term() == term;
        GroupStatus {
            group: self.spec.group,
            replica: self.spec.replica,
            term,
            leader: leader.and_then(|leader| Some((leader, self.server_of(&metrics, leader)?))),
            is_leader: leads && self.standing.applied_term() == term,
            last_index: metrics.last_log_index.unwrap_or(0),
            committed: metrics.local_committed.map_or(0, |id| id.index),
            applied: self.standing.applied_index(),
            last_stamp: self.standing.stamp(),
            members: if members.is_empty() { self.spec.members.clone() } else { members },
            snapshot_wanted_by: self.snapshot_wanted.by(),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string).filter(|_| !*self.stopped.borrow()),
        }
    }

    /// Who is in the way of a group that may have no more of the log.
    pub(crate) fn log_holder(&self, refusal: &Refusal) -> String {
        let holder = self.held_by.lock().clone().unwrap_or_else(|| format!("group {}", self.spec.group));
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        format!(
            "{holder} ({} MiB held, this group's share is {} MiB)",
            mebibytes(refusal.used),
            mebibytes(refusal.share)
        )
    }
}

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
        let (asker, answer) = oneshot::channel();
        self.enqueue(operation, Asker::Waiting(asker));
        // An asker is always answered, but for a task that was torn down with its runtime.
        answer.await.unwrap_or(Err(ProposeError::Uncertain))
    }

    /// Proposes an operation; `reply` is called with the outcome, perhaps before this returns.
    pub fn submit(&self, operation: Vec<u8>, reply: Reply) {
        self.enqueue(operation, Asker::Callback(reply));
    }

    fn enqueue(&self, operation: Vec<u8>, asker: Asker) {
        if operation.len() > OPERATION_BYTES_MAX {
            return asker.answer(Err(ProposeError::TooLarge { limit: OPERATION_BYTES_MAX }));
        }
        if let Some(held_by) = self.replica.shared_log.lacks_room() {
            if self.replica.metrics.borrow_watched().state != ServerState::Leader {
                return asker.answer(Err(self.replica.not_leader()));
            }
            return asker.answer(Err(ProposeError::LogFull { held_by }));
        }
        if let Some(refusal) = self.replica.shared_log.refusal(self.id(), Role::Leader) {
            // A caller that hears of a full log comes back to the same server, so only the leader says so.
            if self.replica.metrics.borrow_watched().state != ServerState::Leader {
                return asker.answer(Err(self.replica.not_leader()));
            }
            return asker.answer(Err(ProposeError::LogFull { held_by: self.replica.log_holder(&refusal) }));
        }
        self.replica.queue.push(operation, asker);
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
