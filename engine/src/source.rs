//! Where a read finds cells: memtables, sorted runs and the backend's files, all behind one small trait.
//!
//! A source is read in chunks of whole rows. So a memtable is locked for a chunk and not for a scan, and a merge
//! compares rows instead of cells.

use std::sync::Arc;

use crate::Error;
use crate::cell::StoredCell;

/// Cells of a first chunk; each chunk after it is twice as large, up to the last.
const CHUNK_CELLS_MIN: usize = 64;
/// Cells of the largest chunk.
const CHUNK_CELLS_MAX: usize = 1_024;

/// Rows `[start, stop)`; an empty `stop` is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: Vec<u8>,
    pub(crate) stop: Vec<u8>,
}

impl Bounds {
    pub(crate) fn contains(&self, row: &[u8]) -> bool {
        row >= self.start.as_slice() && (self.stop.is_empty() || row < self.stop.as_slice())
    }

    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let start = self.start.clone().max(other.start.clone());
        let stop = match (self.stop.is_empty(), other.stop.is_empty()) {
            (true, _) => other.stop.clone(),
            (_, true) => self.stop.clone(),
            _ => self.stop.clone().min(other.stop.clone()),
        };
        Self { start, stop }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.stop.is_empty() && self.start >= self.stop
    }
}

/// Something sorted that holds cells of one family.
pub(crate) trait Source: Send + Sync {
    /// Appends about `cells` cells of whole rows inside of `bounds`, the lowest ones, or with `reverse` the highest ones;
    /// in store order either way. Nothing appended: there is nothing.
    fn chunk(&self, bounds: &Bounds, reverse: bool, cells: usize, out: &mut Vec<StoredCell>) -> Result<(), Error>;

    /// Appends all cells of one row in store order.
    fn row(&self, row: &[u8], out: &mut Vec<StoredCell>) -> Result<(), Error>;
}

/// Goes over the rows of a source, one way.
pub(crate) struct Cursor {
    source: Arc<dyn Source>,
    /// What no chunk has had yet.
    bounds: Bounds,
    reverse: bool,
    /// Cells read and not taken yet, in store order; only ever whole rows.
    chunk: std::vec::IntoIter<StoredCell>,
    chunk_cells: usize,
}

impl Cursor {
    pub(crate) fn new(source: Arc<dyn Source>, bounds: Bounds, reverse: bool) -> Result<Self, Error> {
        let mut cursor = Self { source, bounds, reverse, chunk: Vec::new().into_iter(), chunk_cells: CHUNK_CELLS_MIN };
        cursor.refill()?;
        Ok(cursor)
    }

    /// The row at hand; `None` at the end.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        let cells = self.chunk.as_slice();
        let at_hand = if self.reverse { cells.last() } else { cells.first() };
        at_hand.map(StoredCell::row)
    }

    /// Appends the cells of the row at hand in store order, and goes on to the next.
    pub(crate) fn take(&mut self, out: &mut Vec<StoredCell>) -> Result<(), Error> {
        let Some(row) = self.row() else { return Ok(()) };
        let in_row = |cell: &&StoredCell| cell.row() == row;
        let cells = self.chunk.as_slice();
        let first = out.len();
        if self.reverse {
            let count = cells.iter().rev().take_while(in_row).count();
            out.extend(self.chunk.by_ref().rev().take(count));
            out[first..].reverse();
        } else {
            let count = cells.iter().take_while(in_row).count();
            out.extend(self.chunk.by_ref().take(count));
        }
        if self.chunk.as_slice().is_empty() {
            self.pass(out[first].row());
            self.refill()?;
        }
        Ok(())
    }

    /// Leaves `row` and what came before it behind.
    fn pass(&mut self, row: &[u8]) {
        if self.reverse {
            // Rows are never empty, so neither is this bound: an empty one would be none.
            self.bounds.stop = row.to_vec();
        } else {
            self.bounds.start = row.to_vec();
            self.bounds.start.push(0);
        }
    }

    fn refill(&mut self) -> Result<(), Error> {
        if self.bounds.is_empty() {
            return Ok(());
        }
        let mut chunk = Vec::with_capacity(self.chunk_cells);
        self.source.chunk(&self.bounds, self.reverse, self.chunk_cells, &mut chunk)?;
        self.chunk_cells = (self.chunk_cells * 2).min(CHUNK_CELLS_MAX);
        self.chunk = chunk.into_iter();
        Ok(())
    }
}

/// How many cells of `cells`, in the order they come, make about `wanted` and end with a whole row.
pub(crate) fn take_whole_rows<'a>(
    mut cells: impl Iterator<Item = &'a StoredCell>,
    wanted: usize,
    out: &mut Vec<StoredCell>,
) {
    let first = out.len();
    for cell in cells.by_ref() {
        if out.len() - first >= wanted && out.last().is_some_and(|last: &StoredCell| last.row() != cell.row()) {
            return;
        }
        out.push(cell.clone());
    }
}
