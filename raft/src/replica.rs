//! A group's local replica: everything the parts of this crate share about one group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use terrane_types::versions::Levels;
use terrane_types::{ReplicaId, ServerId};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::abstention::{Abstention, Abstentions};
use crate::adapter::{Raft, Standing};
use crate::announcing::Announcer;
use crate::applying::{Applying, Members, Stuck, Watch};
use crate::campaign::Campaigns;
use crate::clock::{Clocks, TimeBounds};
use crate::completeness::{Heard, Moments};
use crate::copies::progress::Sending;
use crate::copies::receiving::Incoming;
use crate::copies::share::Copies;
use crate::erased::{Machine, Submission};
use crate::handover::Handovers;
use crate::lagging::{FailingCopies, Refused};
use crate::lease::LeaseClock;
use crate::log::{GroupLog, Refusal, Role, SharedLog};
use crate::pace::Pace;
use crate::release::Silence;
use crate::rounds::Rounds;
use crate::submission::{PROPOSAL_BYTES_MAX, Queue};
use crate::types::{LogId, Metrics, Types};
use crate::{GroupSpec, GroupStatus, ProposeError, Timing};

/// A member that acknowledged a heartbeat within this time is alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);

/// A group's local replica.
pub(crate) struct Replica {
    pub(crate) spec: GroupSpec,
    pub(crate) raft: Raft,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) standing: Arc<Standing>,
    pub(crate) log: Arc<GroupLog>,
    pub(crate) shared_log: Arc<SharedLog>,
    /// The feature level of the cluster, as far as the host knows.
    pub(crate) level: Arc<AtomicU32>,
    /// The feature levels of this process.
    pub(crate) levels: Levels,
    pub(crate) metrics: WatchReceiverOf<Types, Metrics>,
    pub(crate) queue: Queue,
    pub(crate) failing_copies: Arc<FailingCopies>,
    /// What the members have applied, as they have said.
    pub(crate) applied: Arc<Members>,
    /// What this replica had applied, and when, while it leads.
    pub(crate) pace: parking_lot::Mutex<Pace>,
    /// Whether this replica gets on with applying.
    pub(crate) apply_watch: parking_lot::Mutex<Watch>,
    /// What all copies share that this process sends.
    pub(crate) copies: Arc<Copies>,
    /// The copies of the group that this leader sends.
    pub(crate) sending: Arc<Sending>,
    /// The copy that this replica receives.
    pub(crate) incoming: Incoming,
    /// Members whose log accepts no more entries of this group.
    pub(crate) refused_by: Arc<Refused>,
    /// Its failure was logged.
    pub(crate) failure_logged: AtomicBool,
    /// What keeps this group's entries in the log, for people, as of the last check.
    pub(crate) held_by: parking_lot::Mutex<Option<String>>,
    /// Until then this replica neither votes nor stands: before its restart it may have promised a leader not to.
    pub(crate) votes_from: Instant,
    pub(crate) clock: Arc<LeaseClock>,
    pub(crate) rounds: Rounds,
    /// The bounds received from leaders.
    pub(crate) heard: Heard,
    /// The times of late, while this replica leads.
    pub(crate) moments: Moments,
    /// The index up to which the log is not kept for members, as of the last check.
    pub(crate) released: AtomicU64,
    /// The last entry that the log had when the replica started.
    pub(crate) found_to: u64,
    /// Since when this leader has not heard its members.
    pub(crate) silence: parking_lot::Mutex<Silence>,
    /// Decides when this leader announces that index.
    pub(crate) announcer: parking_lot::Mutex<Announcer>,
    /// The newest term of the group after a recovery, as a master has said; 0: none.
    pub(crate) recovered_term: AtomicU64,
    /// The last term in which this leader was ordered to hand over. Raised before openraft gets the order.
    pub(crate) transferred: AtomicU64,
    /// What is remembered of handovers, to this replica and by it.
    pub(crate) handovers: Arc<parking_lot::Mutex<Handovers>>,
    /// Why this server should lead nothing at present.
    pub(crate) abstentions: Arc<Abstentions>,
    /// Why this replica should not lead at present, though others of its server may.
    pub(crate) own_abstention: parking_lot::Mutex<Option<Abstention>>,
    /// The elections since the group last had a leader.
    pub(crate) campaigns: parking_lot::Mutex<Campaigns>,
    /// When this replica last heard from a leader, or started.
    pub(crate) leader_heard: parking_lot::Mutex<Instant>,
    pub(crate) clocks: Arc<Clocks>,
    /// How far this server's clock was off the members' at the last check, if too far; otherwise 0.
    pub(crate) clock_off: AtomicI64,
    /// The bounds of the group's time at the last check.
    pub(crate) time_bounds: parking_lot::Mutex<Option<TimeBounds>>,
    /// Set when the replica stops, with the host or because it is removed.
    pub(crate) stop: watch::Sender<bool>,
    /// The members' servers as of a membership.
    pub(crate) servers: parking_lot::Mutex<(Option<LogId>, Arc<[ServerId]>)>,
}

impl Replica {
    /// The last term in which this replica was ordered to hand over.
    pub(crate) fn transferred_term(&self) -> u64 {
        self.transferred.load(Ordering::SeqCst)
    }

    /// The index up to which the log is not kept for members: as this leader decided, or from leaders' entries.
    pub(crate) fn least_released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Whether a member acknowledged a heartbeat of this leader recently.
    pub(crate) fn is_alive(&self, metrics: &Metrics, replica: ReplicaId) -> bool {
        let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(&replica).copied().flatten());
        heard.is_some_and(|at| openraft_rt::Instant::elapsed(&at.into_inner()) < ALIVE_WITHIN)
    }

    /// Up to which entry a member has everything and has applied it, as far as this leader knows.
    pub(crate) fn reached(&self, metrics: &Metrics, replica: ReplicaId) -> u64 {
        let matched = metrics.replication.as_ref().and_then(|all| all.get(&replica).copied().flatten());
        let matched = matched.map_or(0, |id| id.index);
        if replica == self.spec.replica {
            return self.standing.applied_index().min(matched);
        }
        self.applied.reached(replica, matched)
    }

    /// What this replica says of itself with its answers to appends.
    pub(crate) fn applying(&self) -> Applying {
        let lacks_for = self.machine.progress().lacks.map_or(0, |(entry, _)| entry);
        let asks = lacks_for > 0 && self.stuck().is_some_and(|stuck| stuck.lacks.is_some());
        let asks = asks && !terrane_env::planted!("files go with the holder's log");
        Applying { applied: self.standing.applied_index(), lacks_for, asks }
    }

    /// Why this replica applies nothing, if so.
    pub(crate) fn stuck(&self) -> Option<Stuck> {
        self.apply_watch.lock().stuck().cloned()
    }

    /// Looks whether this replica gets on with applying.
    pub(crate) fn watch_apply(&self) {
        let committed = self.metrics.borrow_watched().local_committed.map_or(0, |id| id.index);
        let (applied, progress) = (self.standing.applied_index(), self.machine.progress());
        let mut watch = self.apply_watch.lock();
        if !watch.look(applied, committed, progress, Instant::now()) {
            return;
        }
        let (group, replica) = (self.spec.group, self.spec.replica);
        match watch.stuck() {
            Some(stuck) => tracing::warn!(%group, %replica, "a replica does not get on: {}", stuck.reason()),
            None => tracing::info!(%group, %replica, "a replica gets on with applying again"),
        }
    }

    /// Whether this replica is the only voter.
    pub(crate) fn is_alone(&self, metrics: &Metrics) -> bool {
        let mut voters = metrics.membership_config.voter_ids().peekable();
        match voters.peek() {
            Some(_) => voters.all(|voter| voter == self.spec.replica),
            // Its log has no membership yet.
            None => self.spec.members.len() == 1,
        }
    }

    /// The servers whose clocks make the group's time: those of the voters. A learner does not count, or one that is away would
    /// stop the writes together with one voter. Asked for with every entry, so the list is kept until the membership changes.
    pub(crate) fn servers(&self) -> Arc<[ServerId]> {
        let metrics = self.metrics.borrow_watched();
        let as_of = metrics.membership_config.log_id();
        let mut known = self.servers.lock();
        if known.1.is_empty() || known.0 != *as_of {
            let voters: BTreeSet<_> = metrics.membership_config.voter_ids().collect();
            let nodes = metrics.membership_config.nodes().filter(|(replica, _)| voters.contains(replica));
            let members: BTreeSet<_> = nodes.map(|(_, member)| member.server).collect();
            let created = || self.spec.members.values().copied().collect();
            let servers = if members.is_empty() { created() } else { members.into_iter().collect() };
            *known = (*as_of, servers);
        }
        known.1.clone()
    }

    /// The error that redirects a caller to the leader.
    pub(crate) fn not_leader(&self) -> ProposeError {
        let metrics = self.metrics.borrow_watched();
        let leader = metrics.current_leader.filter(|leader| *leader != self.spec.replica && !self.is_lost());
        let leader = leader.and_then(|leader| Some((leader, self.server_of(&metrics, leader)?)));
        ProposeError::NotLeader { term: metrics.current_term, leader }
    }

    pub(crate) fn server_of(&self, metrics: &Metrics, replica: ReplicaId) -> Option<ServerId> {
        let member = metrics.membership_config.get_node(&replica).map(|member| member.server);
        member.or_else(|| self.spec.members.get(&replica).copied())
    }

    /// Whether this replica handed over its leadership and does not know the successor yet. It will in a moment: waiting for
    /// the name is better than making callers search.
    pub(crate) fn awaits_successor(&self) -> bool {
        let metrics = self.metrics.borrow_watched();
        let handed_over = self.transferred_term();
        // The successor's term is the next one.
        let recent = handed_over > 0 && metrics.current_term <= handed_over + 1;
        recent && metrics.current_leader.is_none_or(|leader| leader == self.spec.replica)
    }

    /// Whether this replica handed its leadership over because its log's disk stalls, and its core waits for that disk: it
    /// neither serves nor learns of its successor.
    pub(crate) fn is_stuck(&self) -> bool {
        let handed_over = self.transferred_term();
        handed_over > 0
            && self.shared_log.sync_times().are_stalled(terrane_env::time::now_ns())
            && handed_over >= self.metrics.borrow_watched().current_term
    }

    /// The group's time: this server's clock as far as the members' clocks confirm it. `None` while too few are known.
    pub(crate) fn time_ms(&self) -> Option<u64> {
        let known = *self.time_bounds.lock();
        known.or_else(|| self.look_at_clocks()).map(|bounds| self.clocks.within(bounds))
    }

    /// Reads the members' clocks again.
    pub(crate) fn look_at_clocks(&self) -> Option<TimeBounds> {
        let bounds = self.clocks.bounds(&self.servers());
        *self.time_bounds.lock() = bounds;
        bounds
    }

    /// Queues a submission that counts for so many bytes, or answers it at once if this replica cannot take it.
    pub(crate) fn submit(&self, submission: Box<dyn Submission>, bytes: usize) {
        match self.refusal(bytes) {
            None => self.queue.push(submission, bytes),
            Some(error) => submission.finish(Err(error), Timing::default()),
        }
    }

    fn refusal(&self, bytes: usize) -> Option<ProposeError> {
        if bytes > PROPOSAL_BYTES_MAX {
            return Some(ProposeError::TooLarge { limit: PROPOSAL_BYTES_MAX });
        }
        if self.is_stuck() {
            return Some(self.not_leader());
        }
        let held_by = match self.shared_log.lacks_space() {
            Some(held_by) => held_by,
            None => self.log_holder(&self.shared_log.refusal(self.spec.group, Role::Leader)?),
        };
        // A caller that is told of a full log retries on the same server, so only the leader reports it.
        Some(if self.leads() { ProposeError::LogFull { held_by } } else { self.not_leader() })
    }

    /// Whether this replica leads, its first entry applied or not.
    pub(crate) fn leads(&self) -> bool {
        self.metrics.borrow_watched().state == ServerState::Leader && !self.is_lost()
    }

    /// Waits until the status satisfies `condition`; `None` if `timeout` passes first.
    pub(crate) async fn wait_for(
        &self,
        condition: impl Fn(&GroupStatus) -> bool + Send,
        timeout: Duration,
    ) -> Option<GroupStatus> {
        let mut metrics = self.metrics.clone();
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

    /// Whether everything is applied that may have been applied before the last restart: what the log had then, or all that
    /// was left of it.
    pub(crate) fn has_replayed(&self) -> bool {
        let last = self.metrics.borrow_watched().last_log_index.unwrap_or(0);
        self.standing.applied_index() >= self.found_to.min(last)
    }

    /// The status of the group as seen from here.
    pub(crate) fn status(&self) -> GroupStatus {
        let metrics = self.metrics.borrow_watched();
        let (last, committed) = (metrics.last_log_index, metrics.local_committed.map(|id| id.index));
        debug_assert!(committed <= last, "entry {committed:?} is committed, but the log ends at {last:?}");
        let is_lost = self.is_lost();
        let leader = metrics.current_leader.filter(|_| !is_lost);
        let members: BTreeMap<_, _> =
            metrics.membership_config.nodes().map(|(replica, member)| (*replica, member.server)).collect();
        let voters: BTreeSet<_> = metrics.membership_config.voter_ids().collect();
        let term = metrics.current_term;
        let leads = metrics.state == ServerState::Leader && self.log.voted_term() == term && !is_lost;
        GroupStatus {
            group: self.spec.group,
            replica: self.spec.replica,
            term,
            leader: leader.and_then(|leader| Some((leader, self.server_of(&metrics, leader)?))),
            is_leader: leads && self.standing.applied_term() == term,
            last_index: last.unwrap_or(0),
            committed: committed.unwrap_or(0),
            applied: self.standing.applied_index(),
            last_stamp: self.standing.stamp(),
            voters: if voters.is_empty() { self.spec.members.keys().copied().collect() } else { voters },
            members: if members.is_empty() { self.spec.members.clone() } else { members },
            copies_failing: self.failing_copies.all(),
            stuck: self.stuck().map(|stuck| stuck.reason()),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string).filter(|_| !*self.stop.borrow()),
        }
    }

    /// What prevents a group that used up its share of the log from purging.
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
