//! A group's local replica: its parts, each about one thing.
//!
//! All parts look at the [`GroupView`], and none at the replica; what two of them need is passed to both when they are made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::copies::receiving::Incoming;
use crate::copies::requested::RequestedCopies;
use crate::copies::share::Copies;
use crate::copies::turns::Turns;
use crate::groups::group_view::GroupView;
use crate::leadership::Leadership;
use crate::leadership::abstention::Abstentions;
use crate::leadership::election::Election;
use crate::leadership::handover::Handovers;
use crate::log::{Role, SharedLog};
use crate::members::MemberChanges;
use crate::members::apply_watch::ApplyWatch;
use crate::members::applying::Watch;
use crate::proposals::adapter::Raft;
use crate::proposals::entry::format_at;
use crate::proposals::erased::{Machine, Submission};
use crate::proposals::submission::{PROPOSAL_BYTES_MAX, Queue};
use crate::reads::barrier::Reads;
use crate::reads::lease::LeaseClock;
use crate::reads::staleness::StaleReads;
use crate::retention::Retention;
use crate::time::clock::Clocks;
use crate::time::group_time::GroupTime;
use crate::{GroupStatus, ProposeError, Timing};

/// A group's local replica.
pub(crate) struct Replica {
    pub(crate) view: Arc<GroupView>,
    pub(crate) raft: Raft,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) queue: Queue,
    pub(crate) time: Arc<GroupTime>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) stale_reads: Arc<StaleReads>,
    pub(crate) applying: Arc<ApplyWatch>,
    pub(crate) election: Arc<Election>,
    pub(crate) leadership: Leadership,
    pub(crate) members: MemberChanges,
    pub(crate) retention: Retention,
    pub(crate) requested_copies: Arc<RequestedCopies>,
    /// The copy that this replica receives.
    pub(crate) incoming: Incoming,
    level: Arc<AtomicU32>,
    newest_level: u32,
    /// Set when the replica stops, with the host or because it is removed.
    stop: watch::Sender<bool>,
    /// Its failure was logged.
    failure_logged: AtomicBool,
}

/// What the replicas of a process share.
pub(crate) struct Shared {
    pub(crate) log: Arc<SharedLog>,
    pub(crate) lease_clock: Arc<LeaseClock>,
    pub(crate) clocks: Arc<Clocks>,
    /// Why this server should lead nothing at present.
    pub(crate) abstentions: Arc<Abstentions>,
    /// What copies that are sent share.
    pub(crate) copies: Arc<Copies>,
    /// How many copies may be received.
    pub(crate) incoming_turns: Arc<Turns>,
    /// The feature level of the cluster, as far as it is known.
    pub(crate) level: Arc<AtomicU32>,
    /// The newest level that this process works at.
    pub(crate) newest_level: u32,
}

/// What a replica has of its own when it starts.
pub(crate) struct ReplicaParts {
    pub(crate) view: Arc<GroupView>,
    pub(crate) raft: Raft,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) handovers: Arc<Mutex<Handovers>>,
    /// The last entry that the log had.
    pub(crate) found_to: u64,
    /// For how long it may be bound by what it promised a leader before its restart.
    pub(crate) promised: Duration,
    /// How long it may apply nothing before it counts as stuck.
    pub(crate) stuck_after: Duration,
}

impl Replica {
    pub(crate) fn new(shared: &Shared, parts: ReplicaParts, queue: Queue) -> Replica {
        let ReplicaParts { view, raft, machine, handovers, found_to, promised, stuck_after } = parts;
        let stop = watch::channel(false).0;
        let time = Arc::new(GroupTime::new(view.clone(), shared.clocks.clone()));
        let reads = Arc::new(Reads::new(view.clone(), raft.clone(), shared.lease_clock.clone()));
        let applying = Arc::new(ApplyWatch::new(view.clone(), machine.clone(), Watch::new(stuck_after), found_to));
        let election = Arc::new(Election::new(view.clone(), promised));
        let leadership = Leadership::new(
            view.clone(),
            raft.clone(),
            time.clone(),
            applying.clone(),
            election.clone(),
            handovers,
            shared.abstentions.clone(),
        );
        let (copies, stopped) = (shared.copies.clone(), stop.subscribe());
        Replica {
            stale_reads: Arc::new(StaleReads::new(view.clone(), time.clone(), reads.clone())),
            members: MemberChanges::new(view.clone(), raft.clone()),
            retention: Retention::new(view.clone(), raft.clone(), machine.clone()),
            requested_copies: Arc::new(RequestedCopies::new(view.clone(), machine.clone(), copies, stopped)),
            incoming: Incoming::new(machine.clone(), shared.incoming_turns.clone(), found_to),
            level: shared.level.clone(),
            newest_level: shared.newest_level,
            failure_logged: AtomicBool::new(false),
            view,
            raft,
            machine,
            queue,
            time,
            reads,
            applying,
            election,
            leadership,
            stop,
        }
    }

    /// The format of log entries that the builds of all members read.
    pub(crate) fn entry_format(&self) -> u8 {
        if terrane_env::planted!("an entry is written before all servers can read it") {
            return format_at(self.newest_level);
        }
        format_at(self.level.load(Ordering::Relaxed))
    }

    /// Tells when the replica stops.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Stops the replica. openraft has ended when this returns.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        // An error means that it has stopped already.
        self.raft.shutdown().await.ok();
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
        if self.view.is_stuck() {
            return Some(self.view.not_leader());
        }
        let log = self.view.shared_log();
        let held_by = match log.lacks_space() {
            Some(held_by) => held_by,
            None => self.retention.refusal(&log.refusal(self.view.group(), Role::Leader)?),
        };
        // A caller that is told of a full log retries on the same server, so only the leader reports it.
        Some(if self.view.leads() { ProposeError::LogFull { held_by } } else { self.view.not_leader() })
    }

    /// Waits until the status satisfies `condition`; `None` if `timeout` passes first.
    pub(crate) async fn wait_for(
        &self,
        condition: impl Fn(&GroupStatus) -> bool + Send,
        timeout: Duration,
    ) -> Option<GroupStatus> {
        let mut metrics = self.view.changes();
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

    /// The status of the group as seen from here.
    pub(crate) fn status(&self) -> GroupStatus {
        let (view, applied_state) = (&self.view, self.view.applied_state());
        let metrics = view.metrics();
        let (last, committed) = (metrics.last_log_index, metrics.local_committed.map(|id| id.index));
        debug_assert!(committed <= last, "entry {committed:?} is committed, but the log ends at {last:?}");
        let is_lost = view.is_lost();
        let leader = metrics.current_leader.filter(|_| !is_lost);
        let members: BTreeMap<_, _> =
            metrics.membership_config.nodes().map(|(replica, member)| (*replica, member.server)).collect();
        let voters: BTreeSet<_> = metrics.membership_config.voter_ids().collect();
        let term = metrics.current_term;
        let leads = metrics.state == ServerState::Leader && view.log().voted_term() == term && !is_lost;
        GroupStatus {
            group: view.group(),
            replica: view.replica(),
            term,
            leader: leader.and_then(|leader| Some((leader, view.server_of(&metrics, leader)?))),
            is_leader: leads && applied_state.applied_term() == term,
            last_index: last.unwrap_or(0),
            committed: committed.unwrap_or(0),
            applied: applied_state.applied_index(),
            last_stamp: applied_state.stamp(),
            voters: if voters.is_empty() { view.spec().members.keys().copied().collect() } else { voters },
            members: if members.is_empty() { view.spec().members.clone() } else { members },
            copies_failing: view.followers().failing_copies.all(),
            stuck: self.applying.stuck().map(|stuck| stuck.reason()),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string).filter(|_| !*self.stop.borrow()),
        }
    }

    /// Logs once that this replica has failed. Its status reports the failure from then on.
    pub(crate) fn note_failure(&self) {
        if let Some(why) = self.status().failed
            && !self.failure_logged.swap(true, Ordering::Relaxed)
        {
            let (group, replica) = (self.view.group(), self.view.replica());
            tracing::error!(%group, %replica, why, "a replica has failed and stopped");
            if let Some(what) = self.view.log().damage() {
                self.machine.note_damage(what);
            }
        }
    }
}
