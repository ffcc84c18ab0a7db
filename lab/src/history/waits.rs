//! How long clients waited for each range of rows.
//!
//! The gap of a range is the longest time during which at least one call to it was waiting and none was answered. A
//! pause in which no call asks for the range is no gap: with a fixed number of callers, a range that fails keeps them
//! from calling the others. Reads and writes count apart, so that reads from memory do not hide writes that wait for a
//! disk. A failed call does not end a gap; the next answer does.

use std::time::Duration;

/// The waits of all ranges, for reads and writes.
pub struct Waits {
    rows: u64,
    ranges: Vec<[Wait; 2]>,
    /// Of the whole table: while nothing at all is answered.
    table: Wait,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Read,
    Write,
}

impl Kind {
    pub const fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}

/// The calls in flight to one range. Times are since the start of the run.
#[derive(Debug, Default)]
struct Wait {
    in_flight: u32,
    /// The last answer, or the first call after a quiet time. `None`: no call waits and none has failed since the last
    /// answer.
    since: Option<Duration>,
    longest: Duration,
}

impl Waits {
    /// The waits of `rows` rows in this many ranges of equal size.
    pub fn new(rows: u64, ranges: u32) -> Waits {
        let ranges = (0..ranges.max(1)).map(|_| Default::default()).collect();
        Waits { rows: rows.max(1), ranges, table: Wait::default() }
    }

    /// A call for this row begins.
    pub fn asked(&mut self, row: u64, kind: Kind, at: Duration) {
        self.change(row, kind, |wait| wait.asked(at));
    }

    /// A call for this row succeeded.
    pub fn answered(&mut self, row: u64, kind: Kind, at: Duration) {
        self.change(row, kind, |wait| wait.answered(at));
    }

    /// A call for this row failed for good.
    pub fn failed(&mut self, row: u64, kind: Kind) {
        self.change(row, kind, |wait| wait.in_flight -= 1);
    }

    /// The gap of each range, for a run that ended at this time after its start.
    pub fn gaps(&self, end: Duration) -> Vec<Duration> {
        let of_range = |waits: &[Wait; 2]| waits.iter().map(|wait| wait.gap(end)).max();
        self.ranges.iter().map(|waits| of_range(waits).unwrap_or_default()).collect()
    }

    /// The longest time without any answer while calls waited.
    pub fn silence(&self, end: Duration) -> Duration {
        self.table.gap(end)
    }

    fn change(&mut self, row: u64, kind: Kind, change: impl Fn(&mut Wait)) {
        let range = u128::from(row) * self.ranges.len() as u128 / u128::from(self.rows);
        let range = usize::try_from(range).unwrap_or(usize::MAX).min(self.ranges.len() - 1);
        change(&mut self.ranges[range][kind as usize]);
        change(&mut self.table);
    }
}

impl Wait {
    fn asked(&mut self, at: Duration) {
        self.in_flight += 1;
        self.since.get_or_insert(at);
    }

    fn answered(&mut self, at: Duration) {
        self.longest = self.gap(at);
        self.in_flight -= 1;
        // Two calls may be recorded in the wrong order; the later time counts.
        self.since = (self.in_flight > 0).then(|| self.since.map_or(at, |since| since.max(at)));
    }

    fn gap(&self, at: Duration) -> Duration {
        self.longest.max(self.since.map_or(Duration::ZERO, |since| at.saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// The gaps of two ranges after these calls to rows 0 to 99.
    fn gaps(calls: impl Fn(&mut Waits)) -> Vec<Duration> {
        let mut waits = Waits::new(100, 2);
        calls(&mut waits);
        waits.gaps(ms(10_000))
    }

    #[test]
    fn a_gap_lasts_while_calls_wait_and_none_is_answered() {
        let found = gaps(|waits| {
            waits.asked(7, Kind::Write, ms(100));
            waits.asked(8, Kind::Write, ms(150));
            waits.answered(8, Kind::Write, ms(400));
            waits.answered(7, Kind::Write, ms(500));
            waits.asked(60, Kind::Read, ms(600));
            waits.answered(60, Kind::Read, ms(620));
        });
        assert_eq!(found, [ms(300), ms(20)]);
    }

    #[test]
    fn a_range_without_calls_has_no_gap() {
        let found = gaps(|waits| {
            waits.asked(7, Kind::Read, ms(100));
            waits.answered(7, Kind::Read, ms(110));
            waits.asked(7, Kind::Read, ms(9_000));
            waits.answered(7, Kind::Read, ms(9_005));
        });
        assert_eq!(found, [ms(10), ms(0)]);
    }

    #[test]
    fn reads_do_not_hide_writes_that_wait() {
        let found = gaps(|waits| {
            waits.asked(7, Kind::Write, ms(0));
            for at in 1..100 {
                waits.asked(7, Kind::Read, ms(at * 10));
                waits.answered(7, Kind::Read, ms(at * 10 + 1));
            }
            waits.answered(7, Kind::Write, ms(1_000));
        });
        assert_eq!(found, [ms(1_000), ms(0)]);
    }

    #[test]
    fn a_failed_call_does_not_end_a_gap() {
        let found = gaps(|waits| {
            waits.asked(7, Kind::Write, ms(100));
            waits.failed(7, Kind::Write);
            waits.asked(7, Kind::Write, ms(2_000));
            waits.answered(7, Kind::Write, ms(2_100));
            waits.asked(60, Kind::Write, ms(4_000));
            waits.failed(60, Kind::Write);
        });
        assert_eq!(found, [ms(2_000), ms(6_000)], "also at the end of the run");
    }

    #[test]
    fn the_table_is_silent_only_while_no_range_answers() {
        let mut waits = Waits::new(100, 2);
        waits.asked(7, Kind::Write, ms(0));
        waits.asked(60, Kind::Write, ms(100));
        waits.answered(60, Kind::Write, ms(300));
        waits.answered(7, Kind::Write, ms(900));
        assert_eq!(waits.silence(ms(1_000)), ms(600));
    }
}
