//! How fast the compactions of a server may read and write, all together.
//!
//! A bucket of bytes that fills at a rate and holds a burst. A job always gets its bytes and learns how long to wait
//! before it continues, so jobs queue by arithmetic alone: each pays for what those before it took. Jobs take small
//! steps, so that a wait is short and the next one follows the current pressure. The rate leaves capacity to reads
//! while the debt is small, rises as writers come under pressure, and near the hard limit it is unlimited: then
//! everything waits for compaction.
//!
//! Time is passed in, in nanoseconds of a monotonic clock; a reading that goes back counts as no time.

use std::time::Duration;

const NANOS: u128 = Duration::from_secs(1).as_nanos();
/// From here on there is no limit.
const PRESSURE_UNLIMITED: u32 = 900;

/// The bytes per second without pressure, and the most at once.
#[derive(Debug)]
pub(crate) struct Pacing {
    bytes_per_second: u64,
    burst_bytes: u64,
    /// In billionths of a byte, so that short times count in full. Negative: taken in advance.
    level: i128,
    filled_ns: u64,
}

impl Pacing {
    /// A fraction of a second at any sensible rate: little enough for reads not to notice.
    pub(crate) const BURST_BYTES_DEFAULT: u64 = 4 << 20;

    /// A full bucket. A rate of 0 counts as 1: work that has begun must end some day.
    pub(crate) fn new(bytes_per_second: u64, burst_bytes: u64, now_ns: u64) -> Self {
        let level = i128::from(burst_bytes) * NANOS as i128;
        Self { bytes_per_second: bytes_per_second.max(1), burst_bytes, level, filled_ns: now_ns }
    }

    /// Takes these bytes, one step's worth; returns the nanoseconds to wait before continuing. `pressure` is that of
    /// the writers.
    pub(crate) fn take(&mut self, now_ns: u64, bytes: u64, pressure: u32) -> u64 {
        let full = i128::from(self.burst_bytes) * NANOS as i128;
        let Some(rate) = self.rate(pressure) else {
            // What is taken now is no debt for later: a bucket in the red would slow down the calm period that follows.
            self.filled_ns = self.filled_ns.max(now_ns);
            self.level = self.level.max(0);
            return 0;
        };
        let elapsed = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = self.filled_ns.max(now_ns);
        self.level = self.level.saturating_add(i128::from(elapsed) * i128::from(rate)).min(full);
        self.level -= i128::from(bytes) * NANOS as i128;
        let missing = u128::try_from(-self.level).unwrap_or(0);
        u64::try_from(missing.div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
    }

    /// Increasingly steep: halfway to unlimited doubles the rate, nine tenths of the way give tenfold. `None`: no
    /// limit.
    fn rate(&self, pressure: u32) -> Option<u64> {
        let left = PRESSURE_UNLIMITED.checked_sub(pressure).filter(|&left| left > 0)?;
        Some(self.bytes_per_second.saturating_mul(u64::from(PRESSURE_UNLIMITED)) / u64::from(left))
    }
}

#[cfg(test)]
mod tests;
