//! What each row may contain, from the calls made so far.
//!
//! Each row has one writer, which counts up: write number `n` sets the row's state to `n` and adds 1 to its counter, in
//! one mutation. So the contents of a row follow from the calls alone: a read must return the last state that was
//! acknowledged or read before it began, or a later one that was attempted before it ended (a register with one writer
//! is linearizable exactly then), and the counter must have grown by the acknowledged writes, each once. A write with an
//! unknown outcome may take effect at any later time.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Violations that are kept in full; further ones are only counted.
const VIOLATIONS_KEPT: usize = 5;

/// The contents of a row: the number of its last write, and its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub state: u64,
    pub count: u64,
}

/// The rows of a table whose only writer is this run.
pub struct Ledger {
    rows: Vec<Mutex<Row>>,
    violations: AtomicU64,
    kept: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Row {
    /// The least that a read which begins now must return.
    least: Content,
    /// The last attempted write.
    attempted: u64,
    /// The counter if every write with an unknown outcome was applied.
    count_max: u64,
    /// Acknowledged writes, added to the counter found at first.
    count_acknowledged: u64,
    /// Writes with an unknown outcome. There are few: each has used up its timeout.
    unknown: Vec<u64>,
}

impl Ledger {
    /// A ledger that begins with these contents of rows 0 and up.
    pub fn new(found: impl IntoIterator<Item = Content>) -> Ledger {
        let rows = found.into_iter().map(|found| Mutex::new(Row::new(found))).collect();
        Ledger { rows, violations: AtomicU64::new(0), kept: Mutex::default() }
    }

    /// Begins a write and returns its number.
    pub fn begin_write(&self, row: u64) -> u64 {
        let mut row = self.row(row);
        row.attempted += 1;
        row.count_max += 1;
        row.attempted
    }

    /// A write was acknowledged.
    pub fn acknowledged(&self, row: u64, number: u64) {
        let mut row = self.row(row);
        row.count_acknowledged += 1;
        row.least = Content { state: row.least.state.max(number), count: row.least.count.max(row.count_acknowledged) };
    }

    /// A write failed; `applied_maybe`: it may have been applied, or may yet be.
    pub fn failed(&self, row: u64, number: u64, applied_maybe: bool) {
        let mut row = self.row(row);
        if applied_maybe {
            row.unknown.push(number);
        } else {
            row.count_max -= 1;
        }
    }

    /// The least that a read which begins now must return.
    pub fn begin_read(&self, row: u64) -> Content {
        self.row(row).least
    }

    /// Checks what a read returned that began when `least` held.
    pub fn read(&self, number: u64, least: Content, found: Option<Content>) {
        let mut row = self.row(number);
        let counts = least.count..=row.count_max;
        let checked = row.check(least.state, &counts, found);
        if let (Ok(()), Some(found)) = (&checked, found) {
            // A write with an unknown outcome that took effect late is not the newest.
            let state = if row.unknown.contains(&found.state) { 0 } else { found.state };
            row.least = Content { state: row.least.state.max(state), count: row.least.count.max(found.count) };
        }
        drop(row);
        self.note(number, checked);
    }

    /// Checks a row after all calls have ended.
    pub fn check_at_end(&self, number: u64, found: Option<Content>) {
        let row = self.row(number);
        let counts = row.count_acknowledged..=row.count_max;
        let checked = row.check(row.least.state, &counts, found);
        drop(row);
        self.note(number, checked);
    }

    /// Records a violation.
    pub fn violated(&self, what: String) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if kept.len() < VIOLATIONS_KEPT {
            kept.push(what);
        }
    }

    /// How many violations there were, and the first of them.
    pub fn violations(&self) -> (u64, Vec<String>) {
        (self.violations.load(Ordering::Relaxed), self.kept.lock().clone())
    }

    fn row(&self, row: u64) -> parking_lot::MutexGuard<'_, Row> {
        let index = usize::try_from(row).expect("a row of this ledger");
        self.rows[index].lock()
    }

    fn note(&self, row: u64, checked: Result<(), String>) {
        if let Err(what) = checked {
            self.violated(format!("row {row} {what}"));
        }
    }
}

impl Row {
    fn new(found: Content) -> Row {
        Row {
            least: found,
            attempted: found.state,
            count_max: found.count,
            count_acknowledged: found.count,
            unknown: Vec::new(),
        }
    }

    fn check(&self, state_min: u64, counts: &RangeInclusive<u64>, found: Option<Content>) -> Result<(), String> {
        let Some(found) = found else { return Err(format!("is missing; write {state_min} is in it")) };
        let is_current = (state_min..=self.attempted).contains(&found.state);
        if !is_current && !self.unknown.contains(&found.state) {
            return Err(format!("has write {}, not one of {state_min} to {}", found.state, self.attempted));
        }
        if !counts.contains(&found.count) {
            return Err(format!("counts {}, not {} to {}", found.count, counts.start(), counts.end()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(state: u64, count: u64) -> Option<Content> {
        Some(Content { state, count })
    }

    /// A ledger of one row after three acknowledged writes.
    fn three_writes() -> Ledger {
        let ledger = Ledger::new([Content { state: 0, count: 0 }]);
        for _ in 0..3 {
            let number = ledger.begin_write(0);
            ledger.acknowledged(0, number);
        }
        ledger
    }

    fn violations(ledger: &Ledger) -> Vec<String> {
        ledger.violations().1
    }

    #[test]
    fn a_lost_write_shows() {
        let ledger = three_writes();
        ledger.check_at_end(0, content(2, 2));
        ledger.check_at_end(0, None);
        assert_eq!(violations(&ledger), ["row 0 has write 2, not one of 3 to 3", "row 0 is missing; write 3 is in it"]);
    }

    #[test]
    fn a_write_applied_twice_shows() {
        let ledger = three_writes();
        ledger.check_at_end(0, content(3, 4));
        assert_eq!(violations(&ledger), ["row 0 counts 4, not 3 to 3"]);
        let least = ledger.begin_read(0);
        ledger.read(0, least, content(3, 4));
        assert_eq!(ledger.violations().0, 2, "while the run lasts, too");
    }

    #[test]
    fn a_read_may_return_a_write_in_progress_and_later_reads_must() {
        let ledger = three_writes();
        let before = ledger.begin_read(0);
        ledger.begin_write(0);
        ledger.read(0, before, content(4, 4));
        assert_eq!(violations(&ledger), [""; 0]);
        let after = ledger.begin_read(0);
        ledger.read(0, after, content(3, 3));
        assert_eq!(violations(&ledger), ["row 0 has write 3, not one of 4 to 4"]);
    }

    #[test]
    fn a_read_that_began_earlier_may_return_an_older_write() {
        let ledger = three_writes();
        let before = ledger.begin_read(0);
        let number = ledger.begin_write(0);
        ledger.acknowledged(0, number);
        ledger.read(0, before, content(3, 3));
        ledger.check_at_end(0, content(4, 4));
        assert_eq!(violations(&ledger), [""; 0]);
    }

    #[test]
    fn a_write_with_an_unknown_outcome_may_be_applied_late_and_once() {
        let ledger = three_writes();
        let unknown = ledger.begin_write(0);
        ledger.failed(0, unknown, true);
        let number = ledger.begin_write(0);
        ledger.acknowledged(0, number);
        for found in [content(5, 4), content(5, 5), content(4, 5)] {
            ledger.check_at_end(0, found);
        }
        assert_eq!(violations(&ledger), [""; 0]);
        ledger.check_at_end(0, content(5, 6));
        assert_eq!(violations(&ledger), ["row 0 counts 6, not 4 to 5"]);
    }

    #[test]
    fn a_refused_write_is_not_counted() {
        let ledger = three_writes();
        let refused = ledger.begin_write(0);
        ledger.failed(0, refused, false);
        ledger.check_at_end(0, content(3, 4));
        assert_eq!(violations(&ledger), ["row 0 counts 4, not 3 to 3"]);
    }
}
