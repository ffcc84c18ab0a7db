//! Admission: what is taken in at once is bounded, and what is beyond is answered `Busy` with a delay.
//!
//! Two bounds. Writes in flight (proposed, not yet answered) hold their bytes until they are answered, so that a slow
//! quorum shows up at the client instead of in this server's memory. Memtables are bounded by the budget that the
//! flushes work towards; past it every write is asked to wait a little, ever longer the further past, so that pressure
//! grows smoothly and reaches a plain refusal only when flushes cannot keep up at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrane_types::Error;

/// Writes in flight in the whole server, and their bytes.
pub const OPERATIONS_MAX: u64 = 32_768;
pub const BYTES_MAX: u64 = 128 << 20;

/// What a refused caller waits at least and at most.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(5);
const RETRY_AFTER_MAX: Duration = Duration::from_millis(500);

/// Counts what is in flight. Numbers only guard memory, they order nothing: relaxed accesses do.
pub struct Admission {
    operations: AtomicU64,
    bytes: AtomicU64,
    /// Memtable bytes of all regions, as the flush policy last summed them up.
    memtable_bytes: AtomicU64,
    memtable_budget: u64,
}

/// One admitted write; dropping it gives its room back.
pub struct Admitted {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Admission {
    #[must_use]
    pub fn new(memtable_budget: u64) -> Arc<Self> {
        Arc::new(Self {
            operations: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            memtable_bytes: AtomicU64::new(0),
            memtable_budget,
        })
    }

    /// Takes a write of `bytes` in, or says how long to wait.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Result<Admitted, Error> {
        let memtables = self.memtable_bytes.load(Ordering::Relaxed);
        if let Some(wait) = self.memtable_pressure(memtables) {
            return Err(Error::Busy { retry_after: wait });
        }
        let bytes = bytes as u64;
        let admitted = Admitted { admission: self.clone(), bytes };
        let operations = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let in_flight = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A write larger than the whole bound is let in alone: it would never fit otherwise.
        if operations > OPERATIONS_MAX || (in_flight > BYTES_MAX && in_flight > bytes) {
            return Err(Error::Busy { retry_after: RETRY_AFTER_MIN });
        }
        Ok(admitted)
    }

    /// The flush policy's latest sum.
    pub fn set_memtable_bytes(&self, bytes: u64) {
        self.memtable_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// Writes in flight.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Flushes start well below the budget, so between it and twice it they are behind: the wait grows with the excess.
    fn memtable_pressure(&self, bytes: u64) -> Option<Duration> {
        let excess = bytes.checked_sub(self.memtable_budget)?;
        let share = excess.saturating_mul(1000) / self.memtable_budget.max(1);
        let span = RETRY_AFTER_MAX - RETRY_AFTER_MIN;
        Some(RETRY_AFTER_MIN + span * u32::try_from(share.min(1000)).expect("at most 1000") / 1000)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.operations.fetch_sub(1, Ordering::Relaxed);
        self.admission.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_flight_are_bounded_and_given_back() {
        let admission = Admission::new(1 << 30);
        let first = admission.admit(BYTES_MAX as usize - 1).unwrap();
        assert!(matches!(admission.admit(2), Err(Error::Busy { .. })));
        drop(first);
        assert!(admission.admit(2).is_ok());
        assert_eq!(admission.operations(), 0);
    }

    #[test]
    fn a_write_larger_than_the_bound_is_let_in_alone() {
        let admission = Admission::new(1 << 30);
        let _alone = admission.admit(BYTES_MAX as usize + 1).unwrap();
        assert!(admission.admit(1).is_err());
    }

    #[test]
    fn the_wait_grows_with_the_memtables() {
        let admission = Admission::new(100);
        let wait = |bytes| {
            admission.set_memtable_bytes(bytes);
            match admission.admit(1) {
                Err(Error::Busy { retry_after }) => Some(retry_after),
                Err(other) => panic!("{other}"),
                Ok(_) => None,
            }
        };
        assert_eq!(wait(99), None);
        assert_eq!(wait(100), Some(RETRY_AFTER_MIN));
        assert!(wait(150) > wait(110));
        assert_eq!(wait(10_000), Some(RETRY_AFTER_MAX));
    }
}
