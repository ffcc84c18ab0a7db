//! Which cells a reader sees: the rules, written once for reads, flushes, compactions and tests.
//!
//! What a reader sees depends on the log and on the time of reading, never on when a flush or compaction ran. The rules
//! are therefore defined as a replay of the log, and everything here gives the same result as that replay.
//!
//! # The replay
//!
//! A column holds *live* cells, at most one per timestamp. Mutations act in **write order**: by sequence number, and
//! within one mutation by position. So a delete followed by a put in one mutation leaves the put (as HBase does with
//! `NEW_VERSION_BEHAVIOR`), and the later of two puts of one cell wins.
//!
//! - A **put** replaces the live cell of its timestamp; this does not count as a second version. If more than
//!   `versions` cells are live then, the one with the lowest timestamp is *pushed out*, permanently.
//! - A **tombstone** deletes what was written before it: one timestamp (`Delete`, `DeleteFamilyVersion`) or all
//!   timestamps up to its own (`DeleteColumn`, `DeleteFamily`). It has no effect on later writes.
//! - `ttl` hides live cells that are older than it at the time of reading, except *protected* ones. A cell is protected
//!   while it would be live if `versions` were `min_versions`; a cell that lost its protection to newer ones does not
//!   regain it when those are deleted.
//! - A put with a **time to live of its own** is hidden once that is over, whatever protects it, and pushes out or replaces
//!   only what expires no later; so what it hid may show again. (What a reader sees of the others is the same as if it had
//!   never been written. `mortal` has the rules in full.)
//! - When the **rules change**, cells that the old rules hid stay hidden: cells that are expired at the stamp of the
//!   change are no longer live, a lower `versions` pushes cells out, and the top `min_versions` cells become the
//!   protected ones.
//! - `keep_deleted_cells`: a reader ignores tombstones with timestamps at or above its `time_max`, provided that the
//!   attribute was set from the delete to the moment of the read. With `ttl`, a tombstone that has expired is not ignored,
//!   and neither is one from before a change of such rules: what had expired by then stays hidden.
//! - A *raw* reader takes what is stored: tombstones and puts, live or not, except expired ones of families without
//!   `min_versions`. So its answer depends on what was collected. It sees one cell of each kind and timestamp, and masked puts never.
//! - Any other reader takes the live, unexpired cells inside its time range, newest first, up to the versions it asks for.
//!
//! # How it is used
//!
//! Cells of one row and family come in storage order: qualifier ascending, then timestamp, sequence and position
//! descending. Create one [`Resolver`] (reads) or [`Collector`] (flush, compaction, memtable) per scan or run and
//! family, call [`Resolver::start_row`] for each row, and pass the cells of each column as one slice. Family tombstones
//! have an empty qualifier, so they come with the row's first column and apply to the later ones; **a reader that wants
//! only other columns must still pass the family tombstones first.**
//!
//! ```
//! use terrane_types::cell::CellKind;
//! use terrane_types::schema::FamilyRules;
//! use terrane_types::visibility::{CellMeta, Resolver, RulesHistory, View};
//!
//! let rules = RulesHistory::new(FamilyRules { versions: 3, ..FamilyRules::default() });
//! let cell = |timestamp, sequence, kind| CellMeta::new(timestamp, sequence, 0, kind);
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
//! - [`Resolver`] gives the same result as the replay.
//! - Collecting changes nothing for any reader at or above the oldest snapshot, whichever parts of the log are
//!   collected, and however often.

mod collect;
mod mortal;
mod replay;
mod resolve;

pub use collect::Collector;
pub use resolve::Resolver;

use std::sync::Arc;

use crate::cell::CellKind;
use crate::schema::FamilyRules;

/// The part of a cell that the rules depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellMeta {
    /// The cell's timestamp, never [`crate::cell::LATEST`].
    pub timestamp: i64,
    /// The sequence number of the mutation that wrote it.
    pub sequence: u64,
    /// The cell's position in that mutation: of cells with one sequence number, later ones act after earlier ones.
    pub position: u32,
    /// What it does.
    pub kind: CellKind,
    /// The last moment of a put with a time to live of its own; `i64::MAX`: it has none.
    pub expires_ms: i64,
    /// Whether it has no value: such a put may be a masked one.
    pub is_bare: bool,
}

/// A cell's place in write order: sequence, then position.
type WriteOrder = (u64, u32);

impl CellMeta {
    /// A cell without a time to live of its own, and with a value if it is a put.
    #[must_use]
    pub const fn new(timestamp: i64, sequence: u64, position: u32, kind: CellKind) -> Self {
        Self { timestamp, sequence, position, kind, expires_ms: i64::MAX, is_bare: kind.is_delete() }
    }

    /// Whether it has a time to live of its own.
    const fn is_mortal(&self) -> bool {
        self.expires_ms != i64::MAX
    }

    /// Whether its own time to live is over.
    const fn has_died(&self, now_ms: i64) -> bool {
        self.expires_ms < now_ms
    }

    const fn order(&self) -> WriteOrder {
        (self.sequence, self.position)
    }
}

/// A family's rules, and the moment from which they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesChange {
    /// The rules apply to mutations from this sequence number on.
    pub sequence: u64,
    /// The stamp of the log entry that set them: cells that the earlier rules had hidden by then stay hidden.
    pub stamp_ms: i64,
    /// The rules.
    pub rules: FamilyRules,
}

/// All rules that a region's family has had, oldest first. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesHistory {
    changes: Arc<[RulesChange]>,
}

impl RulesHistory {
    /// A history with only these rules.
    #[must_use]
    pub fn new(rules: FamilyRules) -> Self {
        Self { changes: Arc::new([RulesChange { sequence: 0, stamp_ms: 0, rules }]) }
    }

    /// A stored history; `None` unless there is a change, the sequence numbers rise, and the first one is 0.
    #[must_use]
    pub fn from_changes(changes: &[RulesChange]) -> Option<Self> {
        let rising = changes.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
        (rising && changes.first()?.sequence == 0).then(|| Self { changes: changes.into() })
    }

    /// Adds a change. It replaces a change at the same sequence number; a change to the same rules is dropped.
    ///
    /// # Panics
    /// If the change precedes the last one: changes come from the log, in its order.
    pub fn push(&mut self, change: RulesChange) {
        let last = self.last();
        assert!(
            change.sequence >= last.sequence,
            "a change of rules at sequence {} precedes the last one at {}",
            change.sequence,
            last.sequence
        );
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
        self.changes.last().expect("a history starts with one change and none is ever removed")
    }

    /// The index of the change under which this sequence number falls.
    fn index_at(&self, sequence: u64) -> usize {
        self.changes.partition_point(|change| change.sequence <= sequence).saturating_sub(1)
    }
}

/// A reader's view: the moment, and which versions of each column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Mutations above this sequence number have not happened yet.
    pub sequence: u64,
    /// The time of reading, which decides what has expired.
    pub now_ms: i64,
    /// How many versions of each column are shown.
    pub versions: u32,
    /// The lowest timestamp shown.
    pub time_min: i64,
    /// The first timestamp above those shown; `i64::MAX`: unbounded.
    pub time_max: i64,
    /// Whether it shows what is stored, tombstones included, and not what they and the limit of versions leave of it.
    pub raw: bool,
}

impl View {
    /// The newest version of each column at this moment.
    #[must_use]
    pub const fn latest(sequence: u64, now_ms: i64) -> Self {
        Self { sequence, now_ms, versions: 1, time_min: 0, time_max: i64::MAX, raw: false }
    }
}

/// The fate of a cell when its column is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is kept.
    Keep,
    /// It becomes a masked put: it is kept without its value. No reader sees it, but it still hides older versions.
    Mask,
    /// It is dropped.
    Drop,
}

/// Whether a cell with this timestamp is older than the rules' ttl.
fn is_expired(rules: &FamilyRules, timestamp: i64, now_ms: i64) -> bool {
    // A ttl beyond the range of timestamps never expires, and saturating arithmetic tolerates wrong clocks.
    rules.ttl_ms.is_some_and(|ttl| now_ms.saturating_sub(timestamp) > i64::try_from(ttl).unwrap_or(i64::MAX))
}

/// The family tombstones of one row, each list with timestamps descending.
#[derive(Clone, Debug, Default)]
struct FamilyTombstones {
    /// `DeleteFamily`.
    up_to: Vec<CellMeta>,
    /// `DeleteFamilyVersion`.
    exact: Vec<CellMeta>,
}

impl FamilyTombstones {
    fn clear(&mut self) {
        self.up_to.clear();
        self.exact.clear();
    }

    fn is_empty(&self) -> bool {
        self.up_to.is_empty() && self.exact.is_empty()
    }

    /// Records the family tombstones among a column's cells, except those above `sequence`.
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
mod script_tests;
#[cfg(test)]
mod tests;
