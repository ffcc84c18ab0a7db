//! When a leader may answer a read from what it has applied.
//!
//! **Under lease.** A write is acknowledged only after the leader that proposed it applied it. So a replica that (1) still is
//! the only possible leader and (2) has applied an entry of its own term, hence everything that earlier leaders
//! acknowledged, may answer from its applied state at once. The first is so while a quorum's answer to it is younger than
//! [`LEASE_AGE_MAX`]: openraft counts the age from when the question was sent, every member that answered votes for no other
//! for 600 ms from when it arrived, and a member that restarts, and has forgotten its promise, neither votes nor stands for
//! that long. What could break the promise is looked at each time:
//! - the leader's own vote for another (`voted_term`, raised before that vote is saved, hence before it is sent);
//! - a transfer of leadership, which members obey in spite of the lease (`transferred_term`, set before it is asked for);
//! - a machine that was suspended, whose timers stood still ([`LeaseClock`]).
//!
//! **By a quorum round.** Otherwise openraft asks a quorum (ReadIndex) and the read waits until the index is applied. Reads
//! that come while a round is under way share the next one; none joins a round that began before it. Who asks for it gets a
//! round in any case.
//!
//! Reads that put up with less than this are in `staleness.rs`.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::{ReadPolicy, ServerState};
use openraft_rt::Instant as _;
use parking_lot::Mutex;
use terrane_env::time::ClockWatch;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::group::Replica;
use crate::types::{LeaseInstant, Types, spawn};
use crate::{ProposeError, ReadPoint};

/// A quorum's answer older than this is not leaned on. The members' promise holds for 600 ms; the rest is for clocks that
/// run at different speeds and for the time between the look and the read.
const LEASE_AGE_MAX: Duration = Duration::from_millis(400);

/// Reads of one group that may wait for a round.
const WAITING_READS_MAX: usize = 65_536;

/// How often a round is tried again while this replica is a leader that is not sure of itself yet, and how long at most.
const ROUND_RETRY: Duration = Duration::from_millis(5);
const ROUND_DEADLINE: Duration = Duration::from_secs(2);

/// Notices that the machine was suspended, for all groups of the process.
#[derive(Default)]
pub(crate) struct LeaseClock {
    state: Mutex<(ClockWatch, Option<LeaseInstant>)>,
}

impl LeaseClock {
    /// Answers from before this moment say nothing about now. `None`: nothing happened since the start.
    fn not_before(&self) -> Option<LeaseInstant> {
        let mut state = self.state.lock();
        if state.0.moved_apart() {
            state.1 = Some(LeaseInstant::now());
        }
        state.1
    }
}

/// The quorum rounds of one group.
#[derive(Default)]
pub(crate) struct Rounds {
    state: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    running: bool,
    readers: Vec<oneshot::Sender<Result<ReadPoint, ProposeError>>>,
}

impl Replica {
    pub(crate) async fn read_barrier(self: &Arc<Self>) -> Result<ReadPoint, ProposeError> {
        match self.read_under_lease() {
            Some(point) => Ok(point),
            None => self.read_by_round().await,
        }
    }

    pub(crate) async fn read_by_round(self: &Arc<Self>) -> Result<ReadPoint, ProposeError> {
        let (reader, answer) = oneshot::channel();
        {
            let mut waiting = self.rounds.state.lock();
            if waiting.readers.len() >= WAITING_READS_MAX {
                return Err(ProposeError::Busy);
            }
            waiting.readers.push(reader);
            if !waiting.running {
                waiting.running = true;
                let replica = self.clone();
                spawn(async move { replica.run_rounds().await });
            }
        }
        // The rounds end without an answer only when the host goes away.
        answer.await.unwrap_or(Err(ProposeError::Stopped))
    }

    /// The module documentation says why this is enough.
    pub(crate) fn read_under_lease(&self) -> Option<ReadPoint> {
        let term = {
            let metrics = self.metrics.borrow_watched();
            if metrics.state != ServerState::Leader {
                return None;
            }
            if self.spec.members.len() > 1 {
                let answered = metrics.last_quorum_acked?.into_inner();
                let fresh = answered.elapsed() < LEASE_AGE_MAX || terrane_env::planted!("a lease never ends");
                if !fresh || self.clock.not_before().is_some_and(|moment| answered <= moment) {
                    return None;
                }
            }
            metrics.current_term
        };
        self.read_point(term).filter(|_| self.transferred_term() != term)
    }

    /// The applied state as leader of `term`, if this replica has applied an entry of it and has voted for no other since.
    fn read_point(&self, term: u64) -> Option<ReadPoint> {
        // Term before index: see `Standing::reached`.
        if self.standing.applied_term() != term || self.log.voted_term() != term {
            return None;
        }
        Some(ReadPoint { term, index: self.standing.applied_index(), stamp: self.standing.stamp() })
    }

    async fn run_rounds(self: Arc<Self>) {
        loop {
            let readers = {
                let mut waiting = self.rounds.state.lock();
                if waiting.readers.is_empty() {
                    waiting.running = false;
                    return;
                }
                std::mem::take(&mut waiting.readers)
            };
            let outcome = self.round().await;
            for reader in readers {
                // A reader may have given up.
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
                Err(RaftError::APIError(_)) => return Err(self.not_leader()),
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

    fn applied_point(&self, term: u64) -> ReadPoint {
        ReadPoint { term, index: self.standing.applied_index(), stamp: self.standing.stamp() }
    }

    /// A leader that is new, lost touch with a quorum for a moment or hands over says so; anybody else leads or nobody does.
    fn worth_retrying(&self, error: &LinearizableReadError<Types>) -> bool {
        let leads = self.metrics.borrow_watched().state == ServerState::Leader || self.awaits_successor();
        match error {
            LinearizableReadError::ForwardToLeader(_) => leads,
            LinearizableReadError::QuorumNotEnough(_) => false,
        }
    }
}
