//! Which cells a reader sees: the rules of visibility, written once for reads, flushes, compactions and tests.

use crate::cell::CellKind;
use crate::schema::FamilyRules;

/// What the rules need to know of a cell: 32 bytes, copied freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellMeta {
    /// The cell's timestamp, never [`crate::cell::LATEST`].
    pub timestamp: i64,
    /// The sequence number of the mutation that wrote it.
    pub sequence: u64,
    /// The cell's place among the cells of that mutation: within one sequence number, later ones act after earlier ones.
    pub position: u32,
    /// What it does.
    pub kind: CellKind,
}

/// The rules of a family, with the moment from which they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesChange {
    /// Mutations at and above this sequence number fall under the rules.
    pub sequence: u64,
    /// The stamp of the entry that brought them.
    pub stamp_ms: i64,
    /// The rules.
    pub rules: FamilyRules,
}

/// All rules that a family of a region has had, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesHistory {
    changes: Vec<RulesChange>,
}

/// A reader: at which moment, and what of each column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Mutations above this sequence number have not happened yet.
    pub sequence: u64,
    /// The time of reading, by which cells expire.
    pub now_ms: i64,
    /// How many versions are shown of each column.
    pub versions: u32,
    /// The lowest timestamp shown.
    pub time_min: i64,
    /// The first timestamp above those shown; `i64::MAX` is no bound.
    pub time_max: i64,
}

/// What becomes of a cell when its column is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Keep,
    /// It stays without its value: no reader sees it, but it bears witness that it once pushed others out.
    Stub,
    /// It goes.
    Drop,
}
