//! What all copies that a process sends share: turns, and a rate.

use std::sync::Arc;

use terrane_env::pace::Pace;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{BYTES_PER_SECOND, COPIES_AT_ONCE};

/// The turns and the rate of the copies that a process sends.
pub(crate) struct Copies {
    turns: Semaphore,
    pub(super) pace: Pace,
}

impl Copies {
    pub(crate) fn new() -> Arc<Copies> {
        Arc::new(Copies { turns: Semaphore::new(COPIES_AT_ONCE), pace: Pace::new(BYTES_PER_SECOND) })
    }

    /// A turn for one copy, until it is dropped.
    pub(super) fn try_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.try_acquire().ok()
    }
}
