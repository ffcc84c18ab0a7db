//! What all copies that a process sends share: turns, and a rate.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::{BYTES_PER_SECOND, COPIES_AT_ONCE};

/// The turns and the rate of the copies that a process sends.
pub(crate) struct Copies {
    turns: Semaphore,
    /// When the next part may be sent.
    next: Mutex<Instant>,
}

impl Copies {
    pub(crate) fn new() -> Arc<Copies> {
        Arc::new(Copies { turns: Semaphore::new(COPIES_AT_ONCE), next: Mutex::new(Instant::now()) })
    }

    /// A turn for one copy, until it is dropped.
    pub(super) fn try_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.try_acquire().ok()
    }

    /// Waits until so many bytes may be sent.
    pub(super) async fn pace(&self, bytes: u64) {
        let at = {
            let mut next = self.next.lock();
            let at = (*next).max(Instant::now());
            *next = at + Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / BYTES_PER_SECOND);
            at
        };
        tokio::time::sleep_until(at).await;
    }
}
