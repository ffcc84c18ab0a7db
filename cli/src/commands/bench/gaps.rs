//! The longest time without an acknowledged call to some part of the table.
//!
//! A mean rate hides an interruption: while one region waits for a new leader, the others continue. So the rows are
//! divided into as many equal ranges as the table had regions at first, and each range records its longest pause
//! between two acknowledged calls, including the pause at the end of the run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The pauses of each range of rows.
pub struct Gaps {
    rows: u64,
    ranges: Vec<Pauses>,
}

/// Times are nanoseconds since the start of the run; 0 means no call yet. Relaxed accesses are enough: they order
/// nothing.
#[derive(Default)]
struct Pauses {
    last: AtomicU64,
    longest: AtomicU64,
}

impl Gaps {
    /// The gaps of `rows` rows in this many ranges.
    pub fn new(rows: u64, ranges: u32) -> Gaps {
        Gaps { rows: rows.max(1), ranges: (0..ranges.max(1)).map(|_| Pauses::default()).collect() }
    }

    /// Records a call for this row, acknowledged at this time after the start.
    pub fn acknowledged(&self, row: u64, at: Duration) {
        let range = u128::from(row) * self.ranges.len() as u128 / u128::from(self.rows);
        let range = usize::try_from(range).unwrap_or(usize::MAX).min(self.ranges.len() - 1);
        self.ranges[range].acknowledged(nanoseconds(at));
    }

    /// The longest pause of any range with calls, for a run that ended at this time after its start.
    pub fn longest(&self, end: Duration) -> Duration {
        let of_range = |pauses: &Pauses| match pauses.last.load(Ordering::Relaxed) {
            0 => 0,
            last => pauses.longest.load(Ordering::Relaxed).max(nanoseconds(end).saturating_sub(last)),
        };
        Duration::from_nanos(self.ranges.iter().map(of_range).max().unwrap_or(0))
    }
}

impl Pauses {
    fn acknowledged(&self, at: u64) {
        // Two calls may be recorded in the wrong order; their difference is not a pause.
        let before = self.last.fetch_max(at.max(1), Ordering::Relaxed);
        if before > 0 {
            self.longest.fetch_max(at.saturating_sub(before), Ordering::Relaxed);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn a_pause_of_one_range_shows_while_others_continue() {
        let gaps = Gaps::new(100, 2);
        for at in 1..=50 {
            gaps.acknowledged(7, ms(at * 10));
        }
        gaps.acknowledged(60, ms(10));
        gaps.acknowledged(99, ms(310));
        gaps.acknowledged(60, ms(490));
        assert_eq!(gaps.longest(ms(500)), ms(300));
    }

    #[test]
    fn the_pause_at_the_end_counts_but_not_the_one_at_the_start() {
        let gaps = Gaps::new(100, 2);
        gaps.acknowledged(7, ms(400));
        assert_eq!(gaps.longest(ms(1_000)), ms(600));
        assert_eq!(Gaps::new(100, 2).longest(ms(1_000)), Duration::ZERO);
    }

    #[test]
    fn calls_recorded_in_the_wrong_order_make_no_pause() {
        let gaps = Gaps::new(1, 1);
        gaps.acknowledged(0, ms(20));
        gaps.acknowledged(0, ms(10));
        gaps.acknowledged(0, ms(25));
        assert_eq!(gaps.longest(ms(25)), ms(5));
    }
}
