//! When to hedge a read: after what delay a second member gets a read that the first has not answered yet.
//!
//! Only reads that any member may answer are hedged, so hedging never weakens an answer. The delay is learnt: about one read
//! in twenty takes longer. Each second request is paid for from the retry budget, so a cluster that is slow as a whole does
//! not get every read twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The initial delay, and its bounds.
const DELAY_FIRST: Duration = Duration::from_millis(10);
const DELAY_MIN: Duration = Duration::from_micros(500);
const DELAY_MAX: Duration = Duration::from_secs(1);
/// A slow read raises the delay by a fiftieth; a quick one lowers it by a nineteenth of that. The two balance where one read
/// in twenty is slow.
const STEP: u64 = 50;
const QUICK_FOR_SLOW: u64 = 19;

/// Learns how long a read takes before it counts as slow.
#[derive(Debug)]
pub(crate) struct Hedging {
    /// Nanoseconds. Concurrent readers may lose an update, which does no harm.
    delay: AtomicU64,
}

impl Hedging {
    pub(crate) fn new() -> Self {
        Self { delay: AtomicU64::new(nanos(DELAY_FIRST)) }
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.load(Ordering::Relaxed))
    }

    pub(crate) fn learn(&self, took: Duration) {
        let delay = self.delay.load(Ordering::Relaxed);
        let step = delay / STEP;
        let moved = if nanos(took) > delay { delay + step } else { delay - step / QUICK_FOR_SLOW };
        self.delay.store(moved.clamp(nanos(DELAY_MIN), nanos(DELAY_MAX)), Ordering::Relaxed);
    }

    /// A read has taken longer than the delay, and is not answered yet.
    pub(crate) fn learn_slow(&self, so_far: Duration) {
        self.learn(so_far.max(self.delay() + Duration::from_nanos(1)));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_converges_to_where_one_read_in_twenty_is_slower() {
        let hedging = Hedging::new();
        // Reads take 1 to 100 ms, evenly: the 95th takes 95.
        for round in 0..200_000u64 {
            hedging.learn(Duration::from_millis(round * 37 % 100 + 1));
        }
        let delay = hedging.delay();
        assert!(delay > Duration::from_millis(85) && delay <= Duration::from_millis(101), "{delay:?}");
    }

    #[test]
    fn the_delay_has_bounds() {
        let hedging = Hedging::new();
        (0..1_000_000).for_each(|_| hedging.learn(Duration::ZERO));
        assert_eq!(hedging.delay(), DELAY_MIN);
        (0..10_000).for_each(|_| hedging.learn(Duration::from_secs(100)));
        assert_eq!(hedging.delay(), DELAY_MAX);
    }
}
