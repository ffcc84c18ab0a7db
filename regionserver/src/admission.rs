//! Admission: what is taken in at once is bounded, and what the disk cannot keep up with is slowed down.
//!
//! - Writes in flight (proposed, not yet answered) hold their bytes until they are answered, so that a slow quorum shows
//!   up at the client instead of in this server's memory.
//! - Pressure, in thousandths, is the larger of two: how near the memtables are to their budget, and how far compaction is
//!   behind. Below its limit a write waits a little before it is proposed, ever longer; at the limit it is answered
//!   `Busy`. So a writer that outruns the disk finds its pace somewhere between, without a stall.
//! - When the disk is nearly full, writes are refused with words that say so, while there is still room for the log and
//!   for flushes. Reads go on, and writes when there is room again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use terrane_types::Error;

/// Writes in flight in the whole server, and their bytes.
pub const OPERATIONS_MAX: u64 = 32_768;
pub const BYTES_MAX: u64 = 128 << 20;

/// What a caller waits that finds too much in flight.
const FULL_RETRY: Duration = Duration::from_millis(5);
/// What a caller waits at full pressure: a flush or a small compaction may have ended by then.
const BUSY_RETRY: Duration = Duration::from_millis(250);
/// What a caller waits when the disk is full.
const DISK_RETRY: Duration = Duration::from_secs(1);

/// The pressure at which writes are refused.
const PRESSURE_MAX: u32 = 1000;
/// Flushes begin well below it; what is above, they did not keep up with.
const MEMTABLES_SOFT_PERCENT: u64 = 75;
/// The longest a write waits without being told to come back, and the shortest: what timers can tell apart.
const DELAY_MAX: Duration = Duration::from_millis(100);
const DELAY_MIN: Duration = Duration::from_millis(1);

/// Counts what is in flight and knows the pressure. Numbers only guard memory, they order nothing: relaxed accesses do.
pub struct Admission {
    operations: AtomicU64,
    bytes: AtomicU64,
    /// Memtable bytes of all regions, as the flush policy last summed them up.
    memtable_bytes: AtomicU64,
    memtable_budget: u64,
    /// How far compaction is behind, in thousandths.
    compaction_pressure: AtomicU32,
    /// Why the disk takes no writes, when it takes none.
    disk_full: RwLock<Option<String>>,
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
            compaction_pressure: AtomicU32::new(0),
            disk_full: RwLock::new(None),
        })
    }

    /// Takes a write of `bytes` in, or says how long to wait.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Result<Admitted, Error> {
        if let Some(message) = &*self.disk_full.read() {
            return Err(Error::Unavailable { message: message.clone(), retry_after: DISK_RETRY });
        }
        if self.pressure() >= PRESSURE_MAX {
            return Err(Error::Busy { retry_after: BUSY_RETRY });
        }
        let bytes = bytes as u64;
        let admitted = Admitted { admission: self.clone(), bytes };
        let operations = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let in_flight = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A write larger than the whole bound is let in alone: it would never fit otherwise.
        if operations > OPERATIONS_MAX || (in_flight > BYTES_MAX && in_flight > bytes) {
            return Err(Error::Busy { retry_after: FULL_RETRY });
        }
        Ok(admitted)
    }

    /// How long a write waits before it is proposed; `None`: it does not. At full pressure it does not either: it is
    /// refused at once.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        let pressure = self.pressure();
        let delay = DELAY_MAX * pressure / PRESSURE_MAX;
        (pressure < PRESSURE_MAX && delay >= DELAY_MIN).then_some(delay)
    }

    /// How hard writes are held back, in thousandths.
    #[must_use]
    pub fn pressure(&self) -> u32 {
        let memtables = memtable_pressure(self.memtable_bytes(), self.memtable_budget);
        memtables.max(self.compaction_pressure.load(Ordering::Relaxed))
    }

    /// The flush policy's latest sum.
    pub fn set_memtable_bytes(&self, bytes: u64) {
        self.memtable_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How far compaction is behind, in thousandths.
    pub fn set_compaction_pressure(&self, pressure: u32) {
        self.compaction_pressure.store(pressure, Ordering::Relaxed);
    }

    /// Refuses writes with these words from now on, or takes them again.
    pub fn set_disk_full(&self, why: Option<String>) {
        *self.disk_full.write() = why;
    }

    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// Memtable bytes at which writes are refused.
    pub fn memtable_budget(&self) -> u64 {
        self.memtable_budget
    }

    /// Writes in flight.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

/// The square of how far the memtables have come from the soft limit to the budget.
fn memtable_pressure(bytes: u64, budget: u64) -> u32 {
    let soft = budget / 100 * MEMTABLES_SOFT_PERCENT;
    if bytes >= budget {
        return PRESSURE_MAX;
    }
    let (way, whole) = (u128::from(bytes.saturating_sub(soft)), u128::from(budget - soft));
    let pressure = u128::from(PRESSURE_MAX) * way * way / (whole * whole);
    u32::try_from(pressure).expect("below the limit: the way is shorter than the whole")
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
    fn writes_are_slowed_down_ever_more_before_they_are_refused() {
        let admission = Admission::new(1 << 20);
        let delay = |percent: u64| {
            admission.set_memtable_bytes((1 << 20) / 100 * percent);
            assert!(admission.admit(1).is_ok(), "{percent}");
            admission.delay()
        };
        assert_eq!(delay(74), None);
        let [light, half, heavy] = [82, 88, 99].map(|percent| delay(percent).unwrap());
        assert!(half - light > Duration::from_millis(10) && heavy - half > Duration::from_millis(40));
        assert!(heavy < DELAY_MAX);
        admission.set_memtable_bytes(1 << 20);
        assert_eq!(admission.admit(1).err(), Some(Error::Busy { retry_after: BUSY_RETRY }));
        assert_eq!(admission.delay(), None, "who is refused is told at once");
    }

    #[test]
    fn the_larger_pressure_counts() {
        let admission = Admission::new(1 << 20);
        admission.set_compaction_pressure(500);
        assert_eq!(admission.delay(), Some(DELAY_MAX / 2));
        admission.set_memtable_bytes(1 << 20);
        assert!(admission.admit(1).is_err());
        admission.set_memtable_bytes(0);
        admission.set_compaction_pressure(PRESSURE_MAX);
        assert!(admission.admit(1).is_err());
    }

    #[test]
    fn a_full_disk_refuses_with_its_words_until_there_is_room_again() {
        let admission = Admission::new(1 << 20);
        admission.set_disk_full(Some("the disk is full".to_owned()));
        let refused = admission.admit(1).err().unwrap();
        assert!(refused.to_string().contains("the disk is full"), "{refused}");
        admission.set_disk_full(None);
        assert!(admission.admit(1).is_ok());
    }
}
