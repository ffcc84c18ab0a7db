//! The memtable: the cells of one family of one region that no file holds yet.
//!
//! A B-tree of columns under a read-write lock, each column with its versions. A write finds its column in one descent
//! and has what lies below it at hand. Readers hold the lock for one chunk
//! and never for a scan, and only one writer exists (a region applies its log in order).
//!
//! **What nobody can see any more goes at once**: a put that comes on top of another put of a family that keeps one
//! version takes its place, unless a live snapshot lies between them, so a hot counter stays one cell, and one more for
//! each snapshot that is held.

use std::cmp::Ordering as CmpOrdering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use smallvec::SmallVec;
use terrane_types::CellKind;

use crate::Error;
use crate::cell::StoredCell;
use crate::source::{Bounds, Source, take_whole_rows};

/// Cells of one family. Frozen by taking no more writes; then shared by reference.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    columns: RwLock<Columns>,
    /// Bytes held, structures included.
    bytes: AtomicU64,
}

type Columns = BTreeMap<Column, Versions>;

/// The cells of one column **against** store order: what is written last goes to the end, as a rule.
type Versions = SmallVec<[StoredCell; 1]>;

/// A column's place in the tree: the row and qualifier of one of its cells.
#[derive(Debug)]
struct Column(StoredCell);

impl Ord for Column {
    fn cmp(&self, other: &Self) -> CmpOrdering {
        self.0.row().cmp(other.0.row()).then_with(|| self.0.qualifier().cmp(other.0.qualifier()))
    }
}

impl PartialOrd for Column {
    fn partial_cmp(&self, other: &Self) -> Option<CmpOrdering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Column {}

impl Memtable {
    /// Inserts a cell.
    pub(crate) fn insert(&self, cell: StoredCell) {
        self.bytes.fetch_add(cell.memory_bytes(), Ordering::Relaxed);
        let mut held = self.columns.write();
        let versions = held.entry(Column(cell.key())).or_default();
        self.place(versions, cell);
    }

    /// Inserts a put of a family of one version; the older puts right below it go when they are newer than
    /// `newest_snapshot`, the newest live snapshot from before this write: nobody reads between them and it. Answers
    /// whether some went.
    pub(crate) fn insert_on_top(&self, cell: StoredCell, newest_snapshot: Option<u64>) -> bool {
        self.bytes.fetch_add(cell.memory_bytes(), Ordering::Relaxed);
        let sequence = cell.sequence();
        let mut held = self.columns.write();
        let versions = held.entry(Column(cell.key())).or_default();
        let mut at = self.place(versions, cell);
        let mut removed = false;
        // More than one where a snapshot that needed the others has gone since.
        while at > 0 && is_replaced(&versions[at - 1], sequence, newest_snapshot) {
            at -= 1;
            let older = versions.remove(at);
            self.bytes.fetch_sub(older.memory_bytes(), Ordering::Relaxed);
            removed = true;
        }
        removed
    }

    /// Puts a cell where it belongs in its column; answers where that is.
    fn place(&self, versions: &mut Versions, cell: StoredCell) -> usize {
        if versions.last().is_none_or(|last| cell < *last) {
            versions.push(cell);
            return versions.len() - 1;
        }
        match versions.binary_search_by(|version| cell.cmp(version)) {
            Ok(at) => {
                let same = std::mem::replace(&mut versions[at], cell);
                self.bytes.fetch_sub(same.memory_bytes(), Ordering::Relaxed);
                at
            }
            Err(at) => {
                versions.insert(at, cell);
                at
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.columns.read().is_empty()
    }

    /// All cells inside of `bounds`, in store order.
    pub(crate) fn within(&self, bounds: &Bounds) -> Vec<StoredCell> {
        let held = self.columns.read();
        held.range(column_range(bounds)).flat_map(|(_, versions)| versions.iter().rev()).cloned().collect()
    }
}

fn is_replaced(older: &StoredCell, sequence: u64, newest_snapshot: Option<u64>) -> bool {
    older.kind() == CellKind::Put && older.sequence() < sequence && Some(older.sequence()) > newest_snapshot
}

fn column_range(bounds: &Bounds) -> (Bound<Column>, Bound<Column>) {
    let first_of = |row: &[u8]| Column(StoredCell::before_row(row));
    let stop = if bounds.stop.is_empty() { Bound::Unbounded } else { Bound::Excluded(first_of(&bounds.stop)) };
    (Bound::Included(first_of(&bounds.start)), stop)
}

impl Source for Memtable {
    fn chunk(&self, bounds: &Bounds, reverse: bool, cells: usize, out: &mut Vec<StoredCell>) -> Result<(), Error> {
        if bounds.is_empty() {
            return Ok(());
        }
        let held = self.columns.read();
        let range = held.range(column_range(bounds));
        if reverse {
            let first = out.len();
            take_whole_rows(range.rev().flat_map(|(_, versions)| versions.iter()), cells, out);
            out[first..].reverse();
        } else {
            take_whole_rows(range.flat_map(|(_, versions)| versions.iter().rev()), cells, out);
        }
        Ok(())
    }

    fn row(&self, row: &[u8], out: &mut Vec<StoredCell>) -> Result<(), Error> {
        let held = self.columns.read();
        let range = held.range((Bound::Included(Column(StoredCell::before_row(row))), Bound::Unbounded));
        let columns = range.take_while(|(column, _)| column.0.row() == row);
        out.extend(columns.flat_map(|(_, versions)| versions.iter().rev()).cloned());
        Ok(())
    }
}
