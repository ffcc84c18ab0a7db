//! Rows with several versions and one writer each: what a read may show, given the writes so far.
//!
//! The writer gives every timestamp, so each write leads from one known state of the row to the next. A read shows the
//! state after the last write that was acknowledged or seen before the read began, or after a later one that was called
//! before it ended. A write with an unknown outcome is the last of its row.
//!
//! The rules of visibility are stated here once more, as plainly as possible: they are what the engine is compared with.

use std::collections::BTreeMap;

use crate::verdict::{Fate, Verdict};

/// A change of one row; timestamps come from the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put {
        column: u8,
        timestamp: i64,
        value: Vec<u8>,
    },
    /// Deletes one version.
    DeleteVersion {
        column: u8,
        timestamp: i64,
    },
    /// Deletes the versions up to and including a timestamp.
    DeleteColumnUntil {
        column: u8,
        timestamp: i64,
    },
    /// Deletes the versions of all columns up to and including a timestamp.
    DeleteFamilyUntil {
        timestamp: i64,
    },
    /// Deletes the versions of all columns with this timestamp.
    DeleteFamilyVersion {
        timestamp: i64,
    },
    DeleteRow,
}

/// What a read selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Versions of each column, the newest ones.
    pub versions: usize,
    /// From this timestamp, inclusive.
    pub min: i64,
    /// To this timestamp, exclusive.
    pub max: i64,
}

/// A cell as a read shows it: column, timestamp and value. Columns ascend, versions descend.
pub type Shown = (u8, i64, Vec<u8>);

/// The visible versions of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    columns: BTreeMap<u8, BTreeMap<i64, Vec<u8>>>,
}

impl State {
    fn apply(&mut self, change: &Change, versions_max: usize) {
        match change {
            Change::Put { column, timestamp, value } => {
                let versions = self.columns.entry(*column).or_default();
                versions.insert(*timestamp, value.clone());
                if versions.len() > versions_max {
                    versions.pop_first();
                }
            }
            Change::DeleteVersion { column, timestamp } => {
                self.retain(|at, version| at != *column || version != *timestamp);
            }
            Change::DeleteColumnUntil { column, timestamp } => {
                self.retain(|at, version| at != *column || version > *timestamp);
            }
            Change::DeleteFamilyUntil { timestamp } => self.retain(|_, version| version > *timestamp),
            Change::DeleteFamilyVersion { timestamp } => self.retain(|_, version| version != *timestamp),
            Change::DeleteRow => self.columns.clear(),
        }
    }

    fn retain(&mut self, keeps: impl Fn(u8, i64) -> bool) {
        for (column, versions) in &mut self.columns {
            versions.retain(|version, _| keeps(*column, *version));
        }
    }

    fn shows(&self, selected: Selected) -> Vec<Shown> {
        let mut shown = Vec::new();
        for (column, versions) in &self.columns {
            let newest = versions.range(selected.min..selected.max).rev().take(selected.versions);
            shown.extend(newest.map(|(timestamp, value)| (*column, *timestamp, value.clone())));
        }
        shown
    }
}

/// The states of a row, one after another.
#[derive(Debug)]
pub struct Row {
    versions_max: usize,
    states: Vec<State>,
    /// The newest state that was acknowledged or seen.
    known: usize,
}

/// A read that has started.
#[derive(Clone, Copy, Debug)]
#[must_use = "a read that began has to be judged when it ends"]
pub struct Reading {
    floor: usize,
}

impl Row {
    /// An empty row that keeps so many versions.
    #[must_use]
    pub fn new(versions_max: usize) -> Row {
        Row { versions_max, states: vec![State::default()], known: 0 }
    }

    /// The writer calls a mutation: its changes take effect in order, and together.
    pub fn call(&mut self, changes: &[Change]) {
        let mut next = self.states.last().cloned().unwrap_or_default();
        changes.iter().for_each(|change| next.apply(change, self.versions_max));
        self.states.push(next);
    }

    /// The last mutation has ended.
    ///
    /// # Errors
    /// If it was refused, and its effect was seen.
    pub fn end(&mut self, fate: Fate) -> Verdict {
        let last = self.states.len() - 1;
        match fate {
            Fate::Applied => self.known = last,
            Fate::Refused if self.known == last => return Err("shows a write that was refused".to_owned()),
            Fate::Refused => _ = self.states.pop(),
            Fate::Unknown => {}
        }
        Ok(())
    }

    /// A read begins.
    pub const fn begin_read(&self) -> Reading {
        Reading { floor: self.known }
    }

    /// A read ends.
    ///
    /// # Errors
    /// If it cannot show this.
    pub fn end_read(&mut self, reading: Reading, selected: Selected, shown: &[Shown]) -> Verdict {
        // A mutation that was refused meanwhile is gone.
        let floor = reading.floor.min(self.states.len() - 1);
        let found = (floor..self.states.len()).find(|at| self.states[*at].shows(selected) == shown);
        let Some(found) = found else {
            let expected: Vec<Vec<Shown>> = self.states[floor..].iter().map(|state| state.shows(selected)).collect();
            return Err(format!("shows {} for {selected:?}; possible: {}", text(shown), texts(&expected)));
        };
        self.known = self.known.max(found);
        Ok(())
    }
}

fn text(shown: &[Shown]) -> String {
    let cells = shown.iter().map(|(column, at, value)| format!("{column}@{at}={}", value.escape_ascii()));
    format!("[{}]", cells.collect::<Vec<_>>().join(" "))
}

fn texts(all: &[Vec<Shown>]) -> String {
    all.iter().map(|shown| text(shown)).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Selected = Selected { versions: 9, min: 0, max: i64::MAX };

    fn put(column: u8, timestamp: i64) -> Change {
        Change::Put { column, timestamp, value: vec![column] }
    }

    fn written(mutations: &[&[Change]]) -> Row {
        let mut row = Row::new(3);
        for changes in mutations {
            row.call(changes);
            row.end(Fate::Applied).unwrap();
        }
        row
    }

    fn timestamps(row: &Row, selected: Selected) -> Vec<(u8, i64)> {
        let shown = row.states.last().unwrap().shows(selected);
        shown.into_iter().map(|(column, at, _)| (column, at)).collect()
    }

    #[test]
    fn the_lowest_of_too_many_versions_is_pushed_out_for_good() {
        let mut row = written(&[&[put(0, 1), put(0, 2), put(0, 3), put(0, 4)]]);
        assert_eq!(timestamps(&row, ALL), [(0, 4), (0, 3), (0, 2)]);
        row.call(&[Change::DeleteVersion { column: 0, timestamp: 4 }]);
        assert_eq!(timestamps(&row, ALL), [(0, 3), (0, 2)]);
    }

    #[test]
    fn a_delete_has_no_effect_on_later_writes() {
        let row = written(&[&[put(0, 5)], &[Change::DeleteColumnUntil { column: 0, timestamp: 9 }, put(0, 4)]]);
        assert_eq!(timestamps(&row, ALL), [(0, 4)]);
        let row = written(&[&[put(0, 5), put(1, 5)], &[Change::DeleteRow]]);
        assert_eq!(timestamps(&row, ALL), []);
        let row = written(&[&[put(0, 5), put(1, 6)], &[Change::DeleteFamilyVersion { timestamp: 5 }]]);
        assert_eq!(timestamps(&row, ALL), [(1, 6)]);
        let row = written(&[&[put(0, 5), put(1, 6)], &[Change::DeleteFamilyUntil { timestamp: 5 }]]);
        assert_eq!(timestamps(&row, ALL), [(1, 6)]);
    }

    #[test]
    fn a_read_selects_times_and_versions() {
        let row = written(&[&[put(0, 1), put(0, 2), put(0, 3), put(1, 2)]]);
        assert_eq!(timestamps(&row, Selected { versions: 1, min: 0, max: 3 }), [(0, 2), (1, 2)]);
        assert_eq!(timestamps(&row, Selected { versions: 2, min: 2, max: 9 }), [(0, 3), (0, 2), (1, 2)]);
    }

    #[test]
    fn a_read_shows_the_last_known_state_or_a_later_one() {
        let mut row = written(&[&[put(0, 1)]]);
        let first = row.states[1].shows(ALL);
        row.call(&[put(0, 2)]);
        let second = row.states[2].shows(ALL);
        let late = row.begin_read();
        let reading = row.begin_read();
        row.end_read(reading, ALL, &second).unwrap();
        row.end_read(late, ALL, &first).unwrap();
        let reading = row.begin_read();
        assert!(row.end_read(reading, ALL, &first).unwrap_err().contains("possible: [0@2=\\x00 0@1=\\x00]"));
        assert!(row.end(Fate::Refused).is_err());
    }

    #[test]
    fn a_refused_write_is_never_shown() {
        let mut row = written(&[&[put(0, 1)]]);
        row.call(&[put(0, 2)]);
        let second = row.states[2].shows(ALL);
        row.end(Fate::Refused).unwrap();
        let reading = row.begin_read();
        row.end_read(reading, ALL, &second).unwrap_err();
    }
}
