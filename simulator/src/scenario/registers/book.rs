//! The rows of the registers scenario, and the history of every register: one column of one row.

use std::collections::BTreeMap;

use terrane_oracle::linearizability::{Cell, History, Op, OpId, Outcome, Seen};

use crate::scenario::places::{Places, Row};
use crate::trace;

/// Places of rows.
pub const PLACES: usize = 5;
/// The registers of a row: one holds numbers, the other text.
pub const COLUMNS: [(&str, &str); 2] = [("f", "n"), ("g", "t")];
pub const NUMBER: usize = 0;
pub const TEXT: usize = 1;

/// A row is retired after so many operations, or so many with unknown outcomes.
const OPERATIONS_MAX: usize = 400;
const UNKNOWN_MAX: usize = 12;

/// A register: a row and the number of a column.
pub type Register = (Row, usize);

/// All rows and their histories.
#[derive(Debug)]
pub struct Book {
    pub history: History,
    pub places: Places,
    /// What some client last knew of each register.
    newest: BTreeMap<Register, Seen>,
    /// The newest timestamp of each row that some client knows.
    stamps: BTreeMap<Row, i64>,
}

impl Default for Book {
    fn default() -> Book {
        Book {
            history: History::default(),
            places: Places::new(PLACES, key, OPERATIONS_MAX, UNKNOWN_MAX),
            newest: BTreeMap::new(),
            stamps: BTreeMap::new(),
        }
    }
}

/// The key of the row at a place that replaces so many earlier ones.
pub fn key(place: usize, earlier: usize) -> Vec<u8> {
    format!("place-{place}-{earlier:03}").into_bytes()
}

impl Book {
    /// An operation of a register is called.
    pub fn begin(&mut self, client: &str, (row, column): Register, op: Op) -> OpId {
        let name = [self.places.key(row), b"/", COLUMNS[column].1.as_bytes()].concat();
        self.history.begin(client, &name, op, trace::now())
    }

    /// An operation of a register ends.
    pub fn end(&mut self, id: OpId, register: Register, outcome: Outcome) {
        self.places.count(register.0, outcome == Outcome::Unknown);
        match &outcome {
            Outcome::Read(seen)
            | Outcome::NotHeld { found: Some(seen) }
            | Outcome::Applied { after: Some(seen), .. } => self.learn(register, seen.clone()),
            _ => {}
        }
        self.history.end(id, outcome, trace::now());
    }

    /// A client knows that a register has this content, or had it a moment ago.
    pub fn learn(&mut self, register: Register, seen: Seen) {
        let version = seen.as_ref().and_then(|cell| cell.version).unwrap_or_default();
        let stamp = self.stamps.entry(register.0).or_default();
        *stamp = version.max(*stamp);
        self.newest.insert(register, seen);
    }

    /// What some client last knew.
    pub fn newest(&self, register: Register) -> Option<Cell> {
        self.newest.get(&register).cloned().flatten()
    }

    /// The newest timestamp of a row that some client knows.
    pub fn stamp(&self, row: Row) -> i64 {
        self.stamps.get(&row).copied().unwrap_or_default()
    }
}
