//! Admission: bounds what is in flight, and slows writers down when the disk cannot keep up.
//!
//! - Writes in flight (proposed, not yet answered) hold their bytes until they are answered, so that a slow quorum shows
//!   up at the client instead of in this server's memory.
//! - Pressure, in thousandths, is the larger of two: how near the memtables are to their budget, and how far compaction
//!   lags behind. Below its maximum a write is delayed before it is proposed, longer with more pressure. At the maximum, or
//!   while too much is in flight, it waits for up to [`PATIENCE`], in the order of its stream, and is then answered `Busy`.
//!   So a writer that outruns the disk finds a pace in between, and there is work to do as soon as space is free. The bytes
//!   of waiting writes have a budget of their own.
//! - A rejected caller is told when to return: the more are rejected in the same second, the later, so that they do not all
//!   return at once.
//! - When the disk is nearly full, writes are rejected with an error that says so, while there is still space for the log
//!   and for flushes. Reads continue, and writes resume when space is free again.

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

/// Writes in flight in this server: [`OPERATIONS_MAX`].
pub fn operations_max() -> u64 {
    terrane_env::limit!("writes in flight", OPERATIONS_MAX, 8..=32)
}

/// Bytes of writes that wait to be proposed, in the whole server.
pub const WAITING_BYTES_MAX: u64 = 128 << 20;
/// The longest time a write waits to be admitted.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How often a waiting write checks whether it is admitted.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How much longer each rejected caller waits than the one before it in the same second, and the longest that any waits.
const RETRY_SPACING: Duration = Duration::from_micros(50);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How long a caller waits when too much is in flight.
const FULL_RETRY: Duration = Duration::from_millis(5);
/// How long a caller waits at full pressure: a flush or a small compaction may end in that time.
const BUSY_RETRY: Duration = Duration::from_millis(250);
/// How long a caller waits when the disk is full.
const DISK_RETRY: Duration = Duration::from_secs(1);

/// The pressure at which writes are rejected.
const PRESSURE_MAX: u32 = 1000;
/// Memtable bytes, in percent of the budget, above which pressure builds up. Flushes begin well below: above it they do not
/// keep up.
const MEMTABLES_SOFT_PERCENT: u64 = 75;
/// The longest delay of a write that is not rejected, and the shortest that timers can resolve.
const DELAY_MAX: Duration = Duration::from_millis(100);
const DELAY_MIN: Duration = Duration::from_millis(1);

/// Counts what is in flight and knows the pressure. The numbers only guard memory and order nothing, so relaxed accesses
/// suffice.
pub struct Admission {
    operations: AtomicU64,
    bytes: AtomicU64,
    /// Memtable bytes of all regions, as of the last turn of the background task.
    memtable_bytes: AtomicU64,
    memtable_budget: u64,
    /// How far compaction lags behind, in thousandths.
    compaction_pressure: AtomicU32,
    /// Why writes are rejected, while the disk is full.
    disk_full: RwLock<Option<String>>,
    /// Writes that wait to be proposed.
    waiting: Arc<Budget>,
    refusals: Mutex<Refusals>,
}

/// The callers rejected since a moment at most a second ago.
struct Refusals {
    since: Instant,
    count: u32,
}

/// An admitted write. Dropping it releases what it holds.
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

    /// Admits a write of `bytes`, or says how long to wait.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Result<Admitted, Error> {
        if let Some(message) = &*self.disk_full.read() {
            return Err(Error::Unavailable { message: message.clone(), retry_after: DISK_RETRY });
        }
        if self.pressure() >= PRESSURE_MAX {
            return Err(self.busy(BUSY_RETRY));
        }
        if terrane_env::buggify!("a write is refused although there is room", 4) {
            return Err(self.busy(FULL_RETRY));
        }
        let bytes = bytes as u64;
        let admitted = Admitted { admission: self.clone(), bytes };
        let count = 1 + u64::from(terrane_env::planted!("a write counts twice"));
        let operations = self.operations.fetch_add(count, Ordering::Relaxed) + count;
        let in_flight = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A write larger than the whole bound is admitted alone: it would never fit otherwise.
        if operations > operations_max() || (in_flight > BYTES_MAX && in_flight > bytes) {
            return Err(self.busy(FULL_RETRY));
        }
        Ok(admitted)
    }

    /// Bytes of writes that wait to be proposed.
    pub fn waiting(&self) -> &Arc<Budget> {
        &self.waiting
    }

    /// Takes the bytes of a write that has to wait from their budget, or says how long to stay away.
    pub fn queue(&self, bytes: usize) -> Result<Share, Error> {
        self.waiting.try_take(bytes as u64).ok_or_else(|| self.busy(FULL_RETRY))
    }

    /// Whether no write is admitted at the moment.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.pressure() >= PRESSURE_MAX
            || self.operations.load(Ordering::Relaxed) >= operations_max()
            || self.bytes.load(Ordering::Relaxed) >= BYTES_MAX
    }

    /// Waits until writes are admitted again, or until a write that arrived at `arrived` has waited long enough.
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

    /// How long a write waits before it is proposed; `None`: not at all. At full pressure it is rejected at once instead.
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

    /// Sets the memtable bytes of all regions.
    pub fn set_memtable_bytes(&self, bytes: u64) {
        self.memtable_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets how far compaction lags behind, in thousandths.
    pub fn set_compaction_pressure(&self, pressure: u32) {
        self.compaction_pressure.store(pressure, Ordering::Relaxed);
    }

    /// Rejects writes with this reason from now on, or admits them again.
    pub fn set_disk_full(&self, why: Option<String>) {
        *self.disk_full.write() = why;
    }

    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// Memtable bytes at which writes are rejected.
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

/// The square of how far the memtables are on the way from the soft limit to the budget.
fn memtable_pressure(bytes: u64, budget: u64) -> u32 {
    let soft = budget / 100 * MEMTABLES_SOFT_PERCENT;
    if bytes >= budget {
        return PRESSURE_MAX;
    }
    let (way, whole) = (u128::from(bytes.saturating_sub(soft)), u128::from(budget - soft));
    let pressure = u128::from(PRESSURE_MAX) * way * way / (whole * whole);
    u32::try_from(pressure).expect("below the maximum: the way is shorter than the whole")
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.operations.fetch_sub(1, Ordering::Relaxed);
        self.admission.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_admission_for_a_limited_time() {
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
        assert!(admission.queue(1).is_err(), "waiting bytes are bounded");
    }
}
