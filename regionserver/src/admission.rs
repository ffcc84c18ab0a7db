//! Admission: what is taken in at once is bounded, and what the disk cannot keep up with is slowed down.
//!
//! - Writes in flight (proposed, not yet answered) hold their bytes until they are answered, so that a slow quorum shows
//!   up at the client instead of in this server's memory.
//! - Pressure, in thousandths, is the larger of two: how near the memtables are to their budget, and how far compaction is
//!   behind. Below its limit a write waits a little before it is proposed, ever longer. At the limit, or while too much is
//!   in flight, it waits for up to [`PATIENCE`], in the order of its stream, and is then answered `Busy`. So a writer that
//!   outruns the disk finds its pace somewhere between, and work is at hand as soon as there is room. Bytes that wait have
//!   a budget of their own.
//! - A refused caller is told when to come back: the more are refused in the same second, the later, so that they do not
//!   come back all at once.
//! - When the disk is nearly full, writes are refused with words that say so, while there is still room for the log and
//!   for flushes. Reads go on, and writes when there is room again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use terrane_env::budget::{Budget, Share, Unit};
use terrane_types::Error;
use tokio::time::Instant;

/// Writes in flight in the whole server, and their bytes.
pub const OPERATIONS_MAX: u64 = 32_768;
pub const BYTES_MAX: u64 = 128 << 20;

/// Bytes of writes that wait to be proposed, in the whole server.
pub const WAITING_BYTES_MAX: u64 = 128 << 20;
/// How long a write waits at most for the server to take it.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How often a write that waits looks whether it is taken.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What each caller waits longer than the one refused before it in the same second, and the longest that any waits.
const RETRY_SPACING: Duration = Duration::from_micros(50);
const RETRY_MAX: Duration = Duration::from_secs(2);
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
    /// Writes that wait to be proposed.
    waiting: Arc<Budget>,
    refusals: Mutex<Refusals>,
}

/// The callers refused since a moment, at most a second ago.
struct Refusals {
    since: Instant,
    count: u32,
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
            waiting: Budget::new("waiting_writes", Unit::Bytes, WAITING_BYTES_MAX),
            refusals: Mutex::new(Refusals { since: Instant::now(), count: 0 }),
        })
    }

    /// Takes a write of `bytes` in, or says how long to wait.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Result<Admitted, Error> {
        if let Some(message) = &*self.disk_full.read() {
            return Err(Error::Unavailable { message: message.clone(), retry_after: DISK_RETRY });
        }
        if self.pressure() >= PRESSURE_MAX {
            return Err(self.busy(BUSY_RETRY));
        }
        let bytes = bytes as u64;
        let admitted = Admitted { admission: self.clone(), bytes };
        let operations = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let in_flight = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A write larger than the whole bound is let in alone: it would never fit otherwise.
        if operations > OPERATIONS_MAX || (in_flight > BYTES_MAX && in_flight > bytes) {
            return Err(self.busy(FULL_RETRY));
        }
        Ok(admitted)
    }

    /// Bytes of writes that wait to be proposed.
    pub fn waiting(&self) -> &Arc<Budget> {
        &self.waiting
    }

    /// Room for a write that has to wait, or how long to stay away.
    pub fn queue(&self, bytes: usize) -> Result<Share, Error> {
        self.waiting.try_take(bytes as u64).ok_or_else(|| self.busy(FULL_RETRY))
    }

    /// Whether nothing is taken in just now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.pressure() >= PRESSURE_MAX
            || self.operations.load(Ordering::Relaxed) >= OPERATIONS_MAX
            || self.bytes.load(Ordering::Relaxed) >= BYTES_MAX
    }

    /// Waits until something is taken in again, or until a write that came at `arrived` has waited for long enough.
    pub async fn wait(&self, arrived: Instant, deadline: Duration) {
        let patience = PATIENCE.min(deadline);
        while self.is_full() && self.disk_full.read().is_none() && arrived.elapsed() < patience {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn busy(&self, least: Duration) -> Error {
        let now = Instant::now();
        let mut refusals = self.refusals.lock();
        if now.duration_since(refusals.since) >= Duration::from_secs(1) {
            *refusals = Refusals { since: now, count: 0 };
        }
        refusals.count = refusals.count.saturating_add(1);
        Error::Busy { retry_after: (least + RETRY_SPACING.saturating_mul(refusals.count)).min(RETRY_MAX) }
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

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
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
        assert!(matches!(admission.admit(1), Err(Error::Busy { retry_after }) if retry_after >= BUSY_RETRY));
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

    #[tokio::test(start_paused = true)]
    async fn callers_that_are_refused_together_come_back_one_after_another() {
        let admission = Admission::new(1 << 20);
        admission.set_compaction_pressure(PRESSURE_MAX);
        let refused = || match admission.admit(1) {
            Err(Error::Busy { retry_after }) => retry_after,
            _ => panic!("nothing is taken at full pressure"),
        };
        let first = refused();
        let later: Vec<Duration> = (0..10_000).map(|_| refused()).collect();
        assert!(later.is_sorted() && later[0] > first);
        assert_eq!(later[9_999] - first, RETRY_SPACING * 10_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(refused(), first);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_room_and_not_for_ever() {
        let admission = Admission::new(1 << 20);
        admission.set_compaction_pressure(PRESSURE_MAX);
        let arrived = Instant::now();
        let eased = async {
            tokio::time::sleep(PATIENCE / 2).await;
            admission.set_compaction_pressure(0);
        };
        tokio::join!(admission.wait(arrived, Duration::MAX), eased);
        assert!(arrived.elapsed() < PATIENCE && !admission.is_full());
        admission.set_compaction_pressure(PRESSURE_MAX);
        let arrived = Instant::now();
        admission.wait(arrived, Duration::MAX).await;
        assert!(arrived.elapsed() >= PATIENCE && arrived.elapsed() < PATIENCE * 2);
        let _others = admission.queue(usize::try_from(WAITING_BYTES_MAX).unwrap()).unwrap();
        assert!(admission.queue(1).is_err(), "bytes that wait are bounded");
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
