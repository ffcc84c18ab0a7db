//! Rows whose contents follow from the calls alone, for millions of calls: no event is kept.
//!
//! Each row has one writer, which counts up: write number `n` sets the row's state to `n` and adds 1 to its counter, in one
//! mutation. So a read must show a state that [`Row`] allows, and a count that [`Counter`] allows.

use crate::counter::Counter;
use crate::rows::{Change, Row};
use crate::verdict::{Fate, Findings, Verdict};

/// The contents of a row: the number of its last write, and its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub state: u64,
    pub count: u64,
}

/// The rows of a table whose only writer is this run, by their numbers.
pub struct CountedRows {
    rows: Vec<(Row, Counter)>,
    pub findings: Findings,
}

impl CountedRows {
    /// Rows 0 and up begin with these contents.
    pub fn new(found: impl IntoIterator<Item = Content>) -> CountedRows {
        let row = |Content { state, count }| (Row::with(state), Counter::with(count));
        CountedRows { rows: found.into_iter().map(row).collect(), findings: Findings::default() }
    }

    /// Begins a write and returns its number.
    pub fn begin_write(&mut self, row: u64) -> u64 {
        let (state, counter) = self.row(row);
        counter.call(1);
        state.attempt(Change::Put)
    }

    /// A write has ended.
    pub fn end_write(&mut self, row: u64, number: u64, fate: Fate) {
        let (state, counter) = self.row(row);
        let verdict = state.end(number, fate).and(counter.end(1, fate));
        self.findings.judge(format_args!("row {row}"), verdict);
    }

    /// The least that a read which begins now must return.
    pub fn begin_read(&mut self, row: u64) -> Content {
        let (state, counter) = self.row(row);
        Content { state: state.certain(), count: counter.floor() }
    }

    /// Checks what a read returned that began when `least` held.
    pub fn end_read(&mut self, row: u64, least: Content, found: Option<Content>) {
        let (state, counter) = self.row(row);
        let verdict: Verdict = match found {
            None => state.show(least.state, 0),
            Some(found) => state.show(least.state, found.state).and_then(|()| counter.show(least.count, found.count)),
        };
        self.findings.judge(format_args!("row {row}"), verdict);
    }

    /// Checks a row after all calls have ended.
    pub fn check_at_end(&mut self, row: u64, found: Option<Content>) {
        let least = self.begin_read(row);
        self.end_read(row, least, found);
    }

    fn row(&mut self, row: u64) -> &mut (Row, Counter) {
        &mut self.rows[usize::try_from(row).expect("a row of this table")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(state: u64, count: u64) -> Option<Content> {
        Some(Content { state, count })
    }

    /// One row after three acknowledged writes.
    fn three_writes() -> CountedRows {
        let mut rows = CountedRows::new([Content { state: 0, count: 0 }]);
        for _ in 0..3 {
            let number = rows.begin_write(0);
            rows.end_write(0, number, Fate::Applied);
        }
        rows
    }

    fn violations(rows: &CountedRows) -> &[String] {
        &rows.findings.first
    }

    #[test]
    fn a_lost_write_shows() {
        let mut rows = three_writes();
        rows.check_at_end(0, content(2, 2));
        rows.check_at_end(0, None);
        assert_eq!(
            violations(&rows),
            [
                "row 0 shows 2, but change 3 was certain before",
                "row 0 is missing, but exists since change 3 (certain: 3, attempted: 3)"
            ]
        );
    }

    #[test]
    fn a_write_applied_twice_shows() {
        let mut rows = three_writes();
        rows.check_at_end(0, content(3, 4));
        assert_eq!(
            violations(&rows),
            ["row 0 is 4, but can only be 3 to 3: one counts twice (3 acknowledged, 0 shown)"]
        );
        let least = rows.begin_read(0);
        rows.end_read(0, least, content(3, 4));
        assert_eq!(rows.findings.violations, 2, "while the run lasts, too");
    }

    #[test]
    fn a_write_with_an_unknown_outcome_may_be_applied_late_and_once() {
        let mut rows = three_writes();
        let unknown = rows.begin_write(0);
        rows.end_write(0, unknown, Fate::Unknown);
        let number = rows.begin_write(0);
        rows.end_write(0, number, Fate::Applied);
        for found in [content(5, 4), content(5, 5), content(4, 5)] {
            rows.check_at_end(0, found);
        }
        assert_eq!(violations(&rows), [""; 0]);
        rows.check_at_end(0, content(5, 6));
        assert_eq!(
            violations(&rows),
            ["row 0 is 6, but can only be 5 to 5: one counts twice (4 acknowledged, 5 shown)"]
        );
    }
}
