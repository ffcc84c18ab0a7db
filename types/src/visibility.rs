//! Which cells a reader sees: the rules, written once for reads, flushes, compactions and tests.
//!
//! What a reader sees is a function of the log and of the time of reading, never of when a flush or compaction ran. The
//! rules below are therefore told as a replay of the log, and everything here gives what that replay would give.
//!
//! # The replay
//!
//! A column holds *live* cells, at most one per timestamp. Mutations act in **write order**: by sequence number, and
//! within one mutation by position, later after earlier. So a delete followed by a put in one mutation leaves the put
//! (what HBase promises with `NEW_VERSION_BEHAVIOR`), and of two puts of one cell the later stands.
//!
//! - A **put** replaces the live cell of its timestamp, which is no second version. If then more than `versions` cells
//!   live, the one with the lowest timestamp is *pushed out*, and stays out whatever happens later.
//! - A **delete** ends the life of what was written before it: of one timestamp (`Delete`, `DeleteFamilyVersion`) or of
//!   all timestamps up to its own (`DeleteColumn`, `DeleteFamily`). What is written later is not touched.
//! - `ttl` hides live cells by the time of reading: those older than it, but for the *protected* ones. A cell is
//!   protected while it would be live if `versions` were `min_versions`; so a cell that lost its protection to newer
//!   ones does not get it back when those are deleted.
//! - When the **rules change**, what the old ones hid stays hidden: cells expired by the stamp of the change end their
//!   life, lower `versions` push out, and protection is given anew to the top `min_versions`.
//! - `keep_deleted_cells`: to a reader whose `time_max` is at or below a delete's timestamp that delete did not happen,
//!   provided that the attribute has held from the delete to the moment of the view.
//! - A reader takes the live, unexpired cells inside its time range, newest first, up to the versions it asks for.
//!
//! # How it is used
//!
//! Cells of one row and family come in storage order: qualifier ascending, timestamp descending, sequence descending,
//! position descending. A [`Resolver`] (reads) or [`Collector`] (flush, compaction, memtable) is made once per scan or
//! run and family; [`Resolver::start_row`] begins a row, and each column's cells are handed over in one slice. Markers
//! of the whole family have an empty qualifier, so they are in the first column and are remembered from there; **a
//! reader who wants other columns only must still hand over the family markers first.**
//!
//! ```
//! use terrane_types::cell::CellKind;
//! use terrane_types::schema::FamilyRules;
//! use terrane_types::visibility::{CellMeta, Resolver, RulesHistory, View};
//!
//! let rules = RulesHistory::new(FamilyRules { versions: 3, ..FamilyRules::default() });
//! let cell = |timestamp, sequence, kind| CellMeta { timestamp, sequence, position: 0, kind };
//! let column = [
//!     cell(20, 2, CellKind::Put),
//!     cell(10, 4, CellKind::Put), // written after the delete: seen
//!     cell(10, 3, CellKind::DeleteColumn),
//!     cell(5, 1, CellKind::Put),
//! ];
//! let mut resolver = Resolver::new(&rules, View { versions: 9, ..View::latest(4, 1_000) });
//! resolver.start_row();
//! assert_eq!(resolver.column(&column), [0, 1]);
//! ```
//!
//! Invariants, each held by a property test against a plain replay:
//! - [`Resolver`] gives what the replay gives.
//! - Collecting changes nothing for any reader at or above the oldest snapshot, whatever the parts of the log that are
//!   collected, and however often.

mod collect;
mod replay;
mod resolve;

pub use collect::Collector;
pub use resolve::Resolver;

use std::sync::Arc;

use crate::cell::CellKind;
use crate::schema::FamilyRules;

/// What the rules need to know of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellMeta {
    /// The cell's timestamp, never [`crate::cell::LATEST`].
    pub timestamp: i64,
    /// The sequence number of the mutation that wrote it.
    pub sequence: u64,
    /// The cell's place among the cells of that mutation: within one sequence number, later ones act after earlier
    /// ones.
    pub position: u32,
    /// What it does.
    pub kind: CellKind,
}

/// The place of a cell in write order: sequence, then position.
type WriteOrder = (u64, u32);

impl CellMeta {
    const fn order(&self) -> WriteOrder {
        (self.sequence, self.position)
    }
}

/// The rules of a family, with the moment from which they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesChange {
    /// Mutations at and above this sequence number fall under the rules.
    pub sequence: u64,
    /// The stamp of the log entry that brought them: what the rules before had hidden by then stays hidden.
    pub stamp_ms: i64,
    /// The rules.
    pub rules: FamilyRules,
}

/// All rules that a family of a region has had, oldest first. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesHistory {
    changes: Arc<[RulesChange]>,
}

impl RulesHistory {
    /// Rules that have held from the beginning.
    #[must_use]
    pub fn new(rules: FamilyRules) -> Self {
        Self { changes: Arc::new([RulesChange { sequence: 0, stamp_ms: 0, rules }]) }
    }

    /// The history with these changes, for what was stored; `None` unless there is one, their sequence numbers rise,
    /// and the first is 0.
    #[must_use]
    pub fn from_changes(changes: &[RulesChange]) -> Option<Self> {
        let rising = changes.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
        (rising && changes.first()?.sequence == 0).then(|| Self { changes: changes.into() })
    }

    /// Adds a change. One at a sequence number that has a change replaces it; one that changes nothing is left out.
    ///
    /// # Panics
    /// When the change lies below the last one: changes come from the log, in its order.
    pub fn push(&mut self, change: RulesChange) {
        let last = self.last();
        assert!(change.sequence >= last.sequence, "rules change in log order");
        if change.rules == last.rules {
            return;
        }
        let replaces = usize::from(change.sequence == last.sequence);
        let kept = &self.changes[..self.changes.len() - replaces];
        self.changes = kept.iter().copied().chain([change]).collect();
    }

    /// All changes, oldest first; there is at least one.
    #[must_use]
    pub fn changes(&self) -> &[RulesChange] {
        &self.changes
    }

    /// The rules that hold now.
    #[must_use]
    pub fn current(&self) -> FamilyRules {
        self.last().rules
    }

    /// The rules that hold for a mutation with this sequence number.
    #[must_use]
    pub fn at(&self, sequence: u64) -> FamilyRules {
        self.changes[self.index_at(sequence)].rules
    }

    fn last(&self) -> &RulesChange {
        self.changes.last().expect("a history begins with one change and none is taken away")
    }

    /// The index of the change under which this sequence number falls.
    fn index_at(&self, sequence: u64) -> usize {
        self.changes.partition_point(|change| change.sequence <= sequence).saturating_sub(1)
    }
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

impl View {
    /// The newest version of each column at this moment.
    #[must_use]
    pub const fn latest(sequence: u64, now_ms: i64) -> Self {
        Self { sequence, now_ms, versions: 1, time_min: 0, time_max: i64::MAX }
    }
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

/// Whether a cell of this timestamp is past the rules' ttl.
fn is_expired(rules: &FamilyRules, timestamp: i64, now_ms: i64) -> bool {
    // A ttl beyond what a timestamp can say never passes, and saturating keeps odd clocks from wrapping round.
    rules.ttl_ms.is_some_and(|ttl| now_ms.saturating_sub(timestamp) > i64::try_from(ttl).unwrap_or(i64::MAX))
}

/// The delete markers of the whole family in one row, each list with timestamps descending.
#[derive(Clone, Debug, Default)]
struct FamilyMarkers {
    /// `DeleteFamily`.
    up_to: Vec<CellMeta>,
    /// `DeleteFamilyVersion`.
    exact: Vec<CellMeta>,
}

impl FamilyMarkers {
    fn clear(&mut self) {
        self.up_to.clear();
        self.exact.clear();
    }

    fn is_empty(&self) -> bool {
        self.up_to.is_empty() && self.exact.is_empty()
    }

    /// Remembers the markers among a column's cells, those above `sequence` left out.
    fn take_from(&mut self, cells: &[CellMeta], sequence: u64) {
        for cell in cells.iter().filter(|cell| cell.sequence <= sequence) {
            match cell.kind {
                CellKind::DeleteFamily => self.up_to.push(*cell),
                CellKind::DeleteFamilyVersion => self.exact.push(*cell),
                CellKind::Put | CellKind::Delete | CellKind::DeleteColumn => {}
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &CellMeta> {
        self.up_to.iter().chain(&self.exact)
    }
}

#[cfg(test)]
mod tests;
