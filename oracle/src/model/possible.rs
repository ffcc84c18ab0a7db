//! The plain model where answers get lost: rows may hold one of several contents.
//!
//! A client that gets no answer to a write tries again. The first try may still be on its way, and be applied long after the
//! second one. Nothing can be said of what is written to the row afterwards, so a row with such a write is written no more; it
//! holds what any number of further tries makes of it.

use std::collections::BTreeMap;

use super::plain::{Change, Decision, Model, Rows, Seen, Selection};

/// All rows.
#[derive(Debug)]
pub struct Possible {
    /// Rows with one content.
    certain: Model,
    /// Rows with several possible contents, each as a model of its own.
    uncertain: BTreeMap<Vec<u8>, Vec<Model>>,
}

impl Possible {
    /// The rows of a model.
    #[must_use]
    pub const fn new(certain: Model) -> Self {
        Self { certain, uncertain: BTreeMap::new() }
    }

    /// What becomes of a change of a row that may be written.
    #[must_use]
    pub fn decide(&self, change: &Change) -> Decision {
        self.certain.decide(change)
    }

    /// Applies a change of a row that may be written; returns its result.
    pub fn apply(&mut self, change: &Change, stamp: i64) -> Vec<Seen> {
        self.certain.apply(change, stamp)
    }

    /// The newest version of a column of a row that may be written.
    #[must_use]
    pub fn newest(&self, row: &[u8], family: &str, qualifier: &str) -> Option<Seen> {
        self.certain.newest(row, family, qualifier)
    }

    /// Each of these changes of a row, all of which were applied, may be applied again, at any time and in any order. The row
    /// must not be written any more.
    pub fn may_repeat(&mut self, row: &[u8], changes: &[Change], stamp: i64) {
        let all = Selection { versions: usize::MAX, ..Selection::default() };
        let mut found: Vec<(Vec<Seen>, Model)> = Vec::new();
        let mut next = vec![self.certain.take_row(row)];
        while let Some(model) = next.pop() {
            let cells = model.read(row, &all);
            if found.iter().any(|(known, _)| *known == cells) {
                continue;
            }
            for change in changes {
                let mut after = model.clone();
                after.apply(change, stamp);
                next.push(after);
            }
            found.push((cells, model));
        }
        let mut contents: Vec<Model> = found.into_iter().map(|(_, model)| model).collect();
        match contents.len() {
            1 => contents.drain(..).for_each(|model| self.certain.add_rows(model)),
            _ => drop(self.uncertain.insert(row.to_vec(), contents)),
        }
    }

    /// The answers that a read of one row may get.
    #[must_use]
    pub fn read(&self, row: &[u8], selection: &Selection) -> Vec<Vec<Seen>> {
        match self.uncertain.get(row) {
            None => vec![self.certain.read(row, selection)],
            Some(contents) => contents.iter().map(|model| model.read(row, selection)).collect(),
        }
    }

    /// Whether a scan may return these rows: those of a range, in order or in reverse, and the first ones of them if there is
    /// a limit.
    ///
    /// # Errors
    /// The first row that differs.
    pub fn is_scan(
        &self,
        (from, to): (&[u8], &[u8]),
        selection: &Selection,
        reverse: bool,
        limit: Option<usize>,
        found: &Rows,
    ) -> Result<(), String> {
        let within = |row: &&[u8]| *row >= from && (to.is_empty() || *row < to);
        let mut rows: Vec<&[u8]> =
            self.certain.rows().chain(self.uncertain.keys().map(Vec::as_slice)).filter(within).collect();
        rows.sort_unstable();
        if reverse {
            rows.reverse();
        }
        let mut left = found.iter().peekable();
        let mut taken = 0;
        for row in rows {
            if limit == Some(taken) {
                break;
            }
            let possible = self.read(row, selection);
            let cells = left.next_if(|(key, _)| key == row).map(|(_, cells)| cells.as_slice());
            taken += usize::from(cells.is_some());
            if !possible.iter().any(|possible| possible[..] == *cells.unwrap_or_default()) {
                return Err(format!("{} has {cells:?}, not {possible:?}", row.escape_ascii()));
            }
        }
        match left.next() {
            None => Ok(()),
            Some((row, cells)) => Err(format!("{} is too much, with {cells:?}", row.escape_ascii())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::plain::{Answers, Event, Kind};

    const ROW: &[u8] = b"r";

    fn change(events: &[(Kind, i64)]) -> Change {
        let event = |&(kind, at): &(Kind, i64)| Event {
            family: "f",
            qualifier: "q",
            timestamp: Some(at),
            kind,
            value: Vec::new(),
        };
        Change {
            row: ROW.to_vec(),
            events: events.iter().map(event).collect(),
            read_modify_writes: Vec::new(),
            condition: None,
            answers: Answers::Nothing,
            return_found: false,
        }
    }

    fn times(contents: Vec<Vec<Seen>>) -> Vec<Vec<i64>> {
        contents.into_iter().map(|cells| cells.into_iter().map(|cell| cell.2).collect()).collect()
    }

    #[test]
    fn a_write_that_changes_nothing_when_it_is_repeated_leaves_its_row_certain() {
        let mut model = Possible::new(Model::new(&[("f", 2)]));
        let put = change(&[(Kind::Put, 3)]);
        model.apply(&put, 0);
        model.may_repeat(ROW, &[put], 0);
        assert_eq!(times(model.read(ROW, &Selection::default())), [[3]]);
        assert!(model.uncertain.is_empty());
    }

    #[test]
    fn a_put_below_the_kept_versions_shows_if_it_is_repeated_after_a_delete() {
        let mut model = Possible::new(Model::new(&[("f", 2)]));
        model.apply(&change(&[(Kind::Put, 5), (Kind::Put, 6)]), 0);
        let both = change(&[(Kind::Put, 1), (Kind::Version, 6)]);
        model.apply(&both, 0);
        model.may_repeat(ROW, &[both], 0);
        let all = Selection { versions: 9, ..Selection::default() };
        assert_eq!(times(model.read(ROW, &all)), [vec![5], vec![5, 1]]);
        let cells = |at: i64| ("f".to_owned(), "q".to_owned(), at, Vec::new());
        let is_scan = |cells: Vec<Seen>| {
            let rows: Rows = if cells.is_empty() { Vec::new() } else { vec![(ROW.to_vec(), cells)] };
            model.is_scan((b"", b""), &all, false, None, &rows).is_ok()
        };
        assert!(is_scan(vec![cells(5)]) && is_scan(vec![cells(5), cells(1)]));
        assert!(!is_scan(vec![cells(6)]) && !is_scan(Vec::new()));
    }

    #[test]
    fn a_scan_with_a_limit_returns_the_first_rows_and_no_row_that_is_not_there() {
        let mut model = Possible::new(Model::new(&[("f", 1)]));
        for row in [b"a", b"b", b"c"] {
            model.apply(&Change { row: row.to_vec(), ..change(&[(Kind::Put, 1)]) }, 0);
        }
        let rows = |names: &[&str]| -> Rows {
            let cells = || vec![("f".to_owned(), "q".to_owned(), 1, Vec::new())];
            names.iter().map(|name| (name.as_bytes().to_vec(), cells())).collect()
        };
        let is_scan = |reverse, limit, names: &[&str]| {
            model.is_scan((b"", b""), &Selection::default(), reverse, limit, &rows(names)).is_ok()
        };
        assert!(is_scan(false, None, &["a", "b", "c"]) && is_scan(true, Some(2), &["c", "b"]));
        assert!(!is_scan(false, None, &["a", "c"]) && !is_scan(true, Some(2), &["c"]));
        assert!(!is_scan(false, Some(1), &["a", "b"]) && !is_scan(false, None, &["a", "b", "c", "d"]));
    }
}
