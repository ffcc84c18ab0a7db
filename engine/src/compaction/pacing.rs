//! How fast the compactions of a server may read and write, all together.
//!
//! A bucket of bytes that fills at a rate and holds a burst. A taker always gets its bytes and is told how long to wait
//! before it goes on, so takers stand in line by arithmetic alone: each pays for what those before it took. Takers
//! take in small steps, so that a wait is short and the next one goes by the pressure of then. The rate
//! leaves room for reads while little is owed, rises as the writers come under pressure, and near the hard limit there
//! is no limit: then compaction is what everybody waits for.
//!
//! Time is passed in, in nanoseconds of a clock that never runs backwards; a reading that does is taken as no time.

use std::time::Duration;

const NANOS: u128 = Duration::from_secs(1).as_nanos();
/// From here on there is no limit.
const PRESSURE_UNLIMITED: u32 = 900;

/// The bytes per second at rest, and what may come at once.
#[derive(Debug)]
pub(crate) struct Pacing {
    bytes_per_second: u64,
    burst_bytes: u64,
    /// In billionths of a byte, so that short times count in full. Negative: taken ahead.
    level: i128,
    filled_ns: u64,
}

impl Pacing {
    /// A part of a second at any sensible rate: what a disk does between two reads without their noticing much.
    pub(crate) const BURST_BYTES_DEFAULT: u64 = 4 << 20;

    /// A full bucket. A rate of 0 is taken as 1: work that was begun must end some day.
    pub(crate) fn new(bytes_per_second: u64, burst_bytes: u64, now_ns: u64) -> Self {
        let level = i128::from(burst_bytes) * NANOS as i128;
        Self { bytes_per_second: bytes_per_second.max(1), burst_bytes, level, filled_ns: now_ns }
    }

    /// Takes these bytes, a step's worth; go on after so many nanoseconds. `pressure` is what the writers are under.
    pub(crate) fn take(&mut self, now_ns: u64, bytes: u64, pressure: u32) -> u64 {
        let full = i128::from(self.burst_bytes) * NANOS as i128;
        let Some(rate) = self.rate(pressure) else {
            // What is taken now is no debt for later: a bucket in the red would hold up the calm that follows.
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

    /// Ever steeper: half of the way to no limit doubles the rate, nine tenths give tenfold. `None`: no limit.
    fn rate(&self, pressure: u32) -> Option<u64> {
        let left = PRESSURE_UNLIMITED.checked_sub(pressure).filter(|&left| left > 0)?;
        Some(self.bytes_per_second.saturating_mul(u64::from(PRESSURE_UNLIMITED)) / u64::from(left))
    }
}

#[cfg(test)]
mod tests;
