//! When a leader may answer a read from what it has applied.
//!
//! **Under lease.** A leader acknowledges a write only after applying it. So a replica may answer from its applied state at
//! once if (1) no other replica can lead and (2) it has applied an entry of its own term, and with it everything that earlier
//! leaders acknowledged. The first holds while a quorum's answer is younger than [`LEASE_AGE_MAX`](crate::reads::lease::LEASE_AGE_MAX):
//! openraft counts the age from when the question was sent; every member that answered votes for no other candidate for
//! 600 ms from when the question arrived; and a member that restarts, and has lost its promise, neither votes nor stands for
//! that long. Three things could break the promise, and [`LeaseView::check`] looks at each of them every time:
//! - the leader's own vote for another (`voted_term`, raised before that vote is saved, hence before it is sent);
//! - a transfer of leadership, which members obey in spite of the lease (`transferred_term`, set before the transfer is
//!   ordered);
//! - a suspended machine, whose timers stood still ([`LeaseClock`](crate::reads::lease::LeaseClock)). A machine that its host pauses is
//!   noticed only where the hypervisor tells (`terrane_env::time::ClockWatch`); elsewhere strict reads are for that.
//!
//! **By a quorum round.** Otherwise openraft asks a quorum (ReadIndex), and the read waits until that index is applied. Reads
//! share rounds (`rounds.rs`). A caller can request a round whatever the lease says.
//!
//! Reads that accept older data are in `staleness.rs`.

use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{LinearizableReadError, RaftError};
use openraft::{ReadPolicy, ServerState};
use openraft_rt::Instant as _;
use terrane_env::time::seen_of;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::groups::group_view::GroupView;
use crate::proposals::adapter::Raft;
use crate::reads::lease::{LeaseClock, LeaseView};
use crate::reads::rounds::{JoinOutcome, Rounds};
use crate::types::{LeaseInstant, Types, spawn};
use crate::{ProposeError, ReadPoint};

/// How often a leader that is not sure of its leadership yet repeats a round, and for how long at most.
const ROUND_RETRY: Duration = Duration::from_millis(5);
const ROUND_DEADLINE: Duration = Duration::from_secs(2);
/// How often a read that waits for a round looks whether the round can end at all.
const STUCK_LOOK: Duration = Duration::from_millis(100);

/// Linearizable reads of a group.
pub(crate) struct Reads {
    view: Arc<GroupView>,
    raft: Raft,
    clock: Arc<LeaseClock>,
    rounds: Rounds,
}

impl Reads {
    pub(crate) fn new(view: Arc<GroupView>, raft: Raft, clock: Arc<LeaseClock>) -> Reads {
        Reads { view, raft, clock, rounds: Rounds::default() }
    }

    /// A point for a linearizable read: under the lease if it holds, otherwise by a quorum round.
    pub(crate) async fn read_barrier(self: &Arc<Self>) -> Result<ReadPoint, ProposeError> {
        match self.read_under_lease() {
            Some(point) if !terrane_env::buggify!("a lease is not used") => Ok(point),
            _ => self.read_by_round().await,
        }
    }

    /// A point for a linearizable read, by a quorum round that begins after this call.
    pub(crate) async fn read_by_round(self: &Arc<Self>) -> Result<ReadPoint, ProposeError> {
        if self.view.is_stuck() || self.view.is_lost() {
            return Err(self.view.not_leader());
        }
        let (reader, answer) = oneshot::channel();
        match self.rounds.join(reader) {
            JoinOutcome::Full => return Err(ProposeError::Busy),
            JoinOutcome::Waits => {}
            JoinOutcome::Starts => {
                let reads = self.clone();
                spawn(async move { reads.run_rounds().await });
            }
        }
        // The rounds end without an answer only when the host goes away.
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or(Err(ProposeError::Stopped)),
            () = self.until_stuck() => Err(self.view.not_leader()),
        }
    }

    /// Returns when this replica is stuck ([`GroupView::is_stuck`]), or is told that its group went on without it.
    async fn until_stuck(&self) {
        while !self.view.is_stuck() && !self.view.is_lost() {
            tokio::time::sleep(STUCK_LOOK).await;
        }
    }

    /// A point for a linearizable read if this replica leads and its lease holds.
    pub(crate) fn read_under_lease(&self) -> Option<ReadPoint> {
        self.lease().map(|(point, _)| point)
    }

    /// A point for a linearizable read if this replica leads and its lease holds, and when it asked the question that a quorum
    /// has answered last. Without others to ask: `None`.
    pub(crate) fn lease(&self) -> Option<(ReadPoint, Option<LeaseInstant>)> {
        let (term, asked, alone) = {
            let metrics = self.view.metrics();
            if metrics.state != ServerState::Leader || self.view.is_lost() {
                return None;
            }
            let asked = metrics.last_quorum_acked.map(|asked| asked.into_inner());
            (metrics.current_term, asked, self.view.is_alone(&metrics))
        };
        let never_ends = terrane_env::planted!("a lease never ends");
        let age = |asked: LeaseInstant| if never_ends { Duration::ZERO } else { seen_of(asked.elapsed()) };
        let age = asked.map(age);
        let suspended_since = asked.is_some_and(|asked| self.clock.not_before().is_some_and(|moment| asked <= moment));
        // Term before index: see `AppliedState::reached`.
        let applied_term = self.view.applied_state().applied_term();
        let voted_term = self.view.log().voted_term();
        let point = self.applied_point(term);
        let view = LeaseView {
            term,
            alone,
            quorum_age: age,
            suspended_since,
            applied_term,
            voted_term,
            // Last: a transfer that is ordered after this look cannot have elected its successor yet.
            transferred_term: self.view.transferred_term(),
        };
        let unasked = terrane_env::planted!("a leader reads without a quorum");
        let asked = asked.filter(|_| !alone);
        (unasked || view.check().is_ok()).then_some((point, asked))
    }

    /// What is applied now, as the leader of `term`.
    fn applied_point(&self, term: u64) -> ReadPoint {
        let applied_state = self.view.applied_state();
        ReadPoint { term, index: applied_state.applied_index(), stamp: applied_state.stamp() }
    }

    async fn run_rounds(self: Arc<Self>) {
        while let Some(readers) = self.rounds.begin() {
            let outcome = self.round().await;
            for reader in readers {
                // A reader may have stopped waiting.
                reader.send(outcome.clone()).ok();
            }
        }
    }

    async fn round(&self) -> Result<ReadPoint, ProposeError> {
        let deadline = Instant::now() + ROUND_DEADLINE;
        loop {
            let linearizer = match self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
                Ok(linearizer) => linearizer,
                Err(RaftError::Fatal(_)) => return Err(ProposeError::Stopped),
                Err(RaftError::APIError(error)) if self.worth_retrying(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(ROUND_RETRY).await;
                    continue;
                }
                Err(RaftError::APIError(_)) => return Err(self.view.not_leader()),
            };
            let term = linearizer.read_log_id().committed_leader_id().term;
            let left = deadline.saturating_duration_since(Instant::now());
            return match linearizer.try_await_ready(&self.raft, Some(left)).await {
                Ok(Ok(_)) => Ok(self.applied_point(term)),
                Ok(Err(_)) => Err(ProposeError::Busy),
                Err(_) => Err(ProposeError::Stopped),
            };
        }
    }

    /// A leader that is new, briefly lost its quorum or hands over refuses, but may succeed in a moment. Any other refusal
    /// means that another replica leads, or none.
    fn worth_retrying(&self, error: &LinearizableReadError<Types>) -> bool {
        let leads = self.view.metrics().state == ServerState::Leader || self.view.awaits_successor();
        match error {
            LinearizableReadError::ForwardToLeader(_) => leads,
            LinearizableReadError::QuorumNotEnough(_) => false,
        }
    }
}
