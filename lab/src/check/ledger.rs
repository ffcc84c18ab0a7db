//! What each row may contain, from the calls made so far.
//!
//! Each row has one writer, which counts up: write number `n` sets the row's state to `n` and adds 1 to its counter, in
//! one mutation. So the contents of a row follow from the calls alone: a read must return the last state that was
//! acknowledged or read before it began, or a later one that was attempted before it ended (a register with one writer
//! is linearizable exactly then), and the counter must have grown by the acknowledged writes, each once. A write with an
//! unknown outcome may take effect at any later time.

use super::Findings;
use super::counters::Bounds;

/// The contents of a row: the number of its last write, and its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub state: u64,
    pub count: i64,
}

/// The rows of a table whose only writer is this run.
pub struct Ledger {
    rows: Vec<Row>,
    findings: Findings,
}

#[derive(Debug)]
struct Row {
    /// The least state that a read which begins now must return.
    state_min: u64,
    /// The last attempted write.
    attempted: u64,
    /// Writes with an unknown outcome. There are few: each has used up its timeout.
    unknown: Vec<u64>,
    counter: Bounds,
}

impl Ledger {
    /// A ledger that begins with these contents of rows 0 and up.
    pub fn new(found: impl IntoIterator<Item = Content>) -> Ledger {
        Ledger { rows: found.into_iter().map(Row::new).collect(), findings: Findings::default() }
    }

    /// Begins a write and returns its number.
    pub fn begin_write(&mut self, row: u64) -> u64 {
        let row = self.row(row);
        row.attempted += 1;
        row.counter.call(1);
        row.attempted
    }

    /// A write was acknowledged.
    pub fn acknowledged(&mut self, row: u64, number: u64) {
        let row = self.row(row);
        row.counter.acknowledge(1);
        row.state_min = row.state_min.max(number);
    }

    /// A write failed; `applied_maybe`: it may have been applied, or may yet be.
    pub fn failed(&mut self, row: u64, number: u64, applied_maybe: bool) {
        let row = self.row(row);
        if applied_maybe {
            row.unknown.push(number);
        } else {
            row.counter.fail(1);
        }
    }

    /// The least that a read which begins now must return.
    pub fn begin_read(&mut self, row: u64) -> Content {
        let row = self.row(row);
        Content { state: row.state_min, count: row.counter.floor() }
    }

    /// Checks what a read returned that began when `least` held.
    pub fn read(&mut self, number: u64, least: Content, found: Option<Content>) {
        if let Err(what) = self.row(number).judge(least, found) {
            self.findings.add(|| format!("row {number} {what}"));
        }
    }

    /// Checks a row after all calls have ended.
    pub fn check_at_end(&mut self, number: u64, found: Option<Content>) {
        let least = self.begin_read(number);
        self.read(number, least, found);
    }

    /// Records a violation.
    pub fn violated(&mut self, what: String) {
        self.findings.add(|| what);
    }

    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    fn row(&mut self, row: u64) -> &mut Row {
        let index = usize::try_from(row).expect("a row of this ledger");
        &mut self.rows[index]
    }
}

impl Row {
    fn new(found: Content) -> Row {
        let Content { state, count } = found;
        Row { state_min: state, attempted: state, unknown: Vec::new(), counter: Bounds::from(count) }
    }

    fn judge(&mut self, least: Content, found: Option<Content>) -> Result<(), String> {
        let Some(found) = found else { return Err(format!("is missing; write {} is in it", least.state)) };
        // A write with an unknown outcome that took effect late is not the newest.
        if !self.unknown.contains(&found.state) {
            if !(least.state..=self.attempted).contains(&found.state) {
                return Err(format!("has write {}, not one of {} to {}", found.state, least.state, self.attempted));
            }
            self.state_min = self.state_min.max(found.state);
        }
        self.counter.show(found.count, least.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(state: u64, count: i64) -> Option<Content> {
        Some(Content { state, count })
    }

    /// A ledger of one row after three acknowledged writes.
    fn three_writes() -> Ledger {
        let mut ledger = Ledger::new([Content { state: 0, count: 0 }]);
        for _ in 0..3 {
            let number = ledger.begin_write(0);
            ledger.acknowledged(0, number);
        }
        ledger
    }

    fn violations(ledger: &Ledger) -> &[String] {
        &ledger.findings().first
    }

    #[test]
    fn a_lost_write_shows() {
        let mut ledger = three_writes();
        ledger.check_at_end(0, content(2, 2));
        ledger.check_at_end(0, None);
        assert_eq!(violations(&ledger), ["row 0 has write 2, not one of 3 to 3", "row 0 is missing; write 3 is in it"]);
    }

    #[test]
    fn a_write_applied_twice_shows() {
        let mut ledger = three_writes();
        ledger.check_at_end(0, content(3, 4));
        assert_eq!(violations(&ledger), ["row 0 shows 4, but is at most 3: one counts twice"]);
        let least = ledger.begin_read(0);
        ledger.read(0, least, content(3, 4));
        assert_eq!(ledger.findings().violations, 2, "while the run lasts, too");
    }

    #[test]
    fn a_read_may_return_a_write_in_progress_and_later_reads_must() {
        let mut ledger = three_writes();
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
        let mut ledger = three_writes();
        let before = ledger.begin_read(0);
        let number = ledger.begin_write(0);
        ledger.acknowledged(0, number);
        ledger.read(0, before, content(3, 3));
        ledger.check_at_end(0, content(4, 4));
        assert_eq!(violations(&ledger), [""; 0]);
    }

    #[test]
    fn a_write_with_an_unknown_outcome_may_be_applied_late_and_once() {
        let mut ledger = three_writes();
        let unknown = ledger.begin_write(0);
        ledger.failed(0, unknown, true);
        let number = ledger.begin_write(0);
        ledger.acknowledged(0, number);
        for found in [content(5, 4), content(5, 5), content(4, 5)] {
            ledger.check_at_end(0, found);
        }
        assert_eq!(violations(&ledger), [""; 0]);
        ledger.check_at_end(0, content(5, 6));
        assert_eq!(violations(&ledger), ["row 0 shows 6, but is at most 5: one counts twice"]);
    }

    #[test]
    fn a_refused_write_is_not_counted() {
        let mut ledger = three_writes();
        let refused = ledger.begin_write(0);
        ledger.failed(0, refused, false);
        ledger.check_at_end(0, content(3, 4));
        assert_eq!(violations(&ledger), ["row 0 shows 4, but is at most 3: one counts twice"]);
    }
}
