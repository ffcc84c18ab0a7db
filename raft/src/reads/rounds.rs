//! Reads that wait for a quorum round: which of them share one.
//!
//! Reads share the next round that begins after they arrive. A read never joins a round in progress, because that round may
//! have asked the members before the acknowledgement of a write that the read must see.

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{ProposeError, ReadPoint};

/// Reads of one group that may wait for a round; more are answered `Busy`.
const WAITING_READS_MAX: usize = 65_536;

/// Where the outcome of a round goes.
pub(crate) type Reader = oneshot::Sender<Result<ReadPoint, ProposeError>>;

/// The quorum rounds of one group.
#[derive(Default)]
pub(crate) struct Rounds {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    readers: Vec<Reader>,
}

/// What became of a read that wants a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinOutcome {
    /// It waits for the next round, which another caller runs.
    Waits,
    /// It waits, and the caller has to run the rounds.
    Starts,
    /// Too many reads wait.
    Full,
}

impl Rounds {
    /// Adds a reader to the next round.
    pub(crate) fn join(&self, reader: Reader) -> JoinOutcome {
        let mut state = self.state.lock();
        if state.readers.len() >= terrane_env::limit!("reads that wait for a round", WAITING_READS_MAX, 4..=16) {
            return JoinOutcome::Full;
        }
        state.readers.push(reader);
        if std::mem::replace(&mut state.running, true) { JoinOutcome::Waits } else { JoinOutcome::Starts }
    }

    /// The readers of the round that begins now. `None` ends the rounds: the next reader starts them again.
    pub(crate) fn begin(&self) -> Option<Vec<Reader>> {
        let mut state = self.state.lock();
        if state.readers.is_empty() {
            state.running = false;
            return None;
        }
        Some(std::mem::take(&mut state.readers))
    }
}
