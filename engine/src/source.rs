//! Where a read finds cells: memtables, sorted runs and the backend's files, all behind one small trait.
//!
//! A source is read in chunks of whole rows. So a memtable is locked for a chunk and not for a scan, and a merge
//! compares rows instead of cells.

use std::sync::Arc;

use crate::Error;
use crate::cell::StoredCell;

/// Rows of a first chunk; each chunk after it is twice as large, up to the last.
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
    bounds: Bounds,
    reverse: bool,
    chunk: Vec<StoredCell>,
    /// The row at hand: cells `[at, end)` of the chunk. Empty: the next chunk is to be read, or there is none.
    at: usize,
    end: usize,
    chunk_cells: usize,
    exhausted: bool,
}

impl Cursor {
    pub(crate) fn new(source: Arc<dyn Source>, bounds: Bounds, reverse: bool) -> Result<Self, Error> {
        let exhausted = bounds.is_empty();
        let chunk_cells = CHUNK_CELLS_MIN;
        let mut cursor = Self { source, bounds, reverse, chunk: Vec::new(), at: 0, end: 0, chunk_cells, exhausted };
        cursor.refill()?;
        Ok(cursor)
    }

    /// The row at hand; `None` at the end.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        (self.at < self.end).then(|| self.chunk[self.at].row())
    }

    /// Appends the cells of the row at hand and goes on to the next.
    pub(crate) fn take(&mut self, out: &mut Vec<StoredCell>) -> Result<(), Error> {
        out.extend_from_slice(&self.chunk[self.at..self.end]);
        self.step()
    }

    /// Goes on to the next row.
    pub(crate) fn step(&mut self) -> Result<(), Error> {
        let left = if self.reverse { self.at > 0 } else { self.end < self.chunk.len() };
        if left {
            self.find_row();
            return Ok(());
        }
        let row = self.chunk[self.at].row();
        if self.reverse {
            self.bounds.stop = row.to_vec();
        } else {
            self.bounds.start = row.to_vec();
            self.bounds.start.push(0);
        }
        self.exhausted |= self.bounds.is_empty() || (self.reverse && self.bounds.stop.is_empty());
        self.refill()
    }

    fn refill(&mut self) -> Result<(), Error> {
        self.chunk.clear();
        (self.at, self.end) = (0, 0);
        if self.exhausted {
            return Ok(());
        }
        self.source.chunk(&self.bounds, self.reverse, self.chunk_cells, &mut self.chunk)?;
        self.chunk_cells = (self.chunk_cells * 2).min(CHUNK_CELLS_MAX);
        if self.chunk.is_empty() {
            self.exhausted = true;
            return Ok(());
        }
        (self.at, self.end) = if self.reverse { (self.chunk.len(), self.chunk.len()) } else { (0, 0) };
        self.find_row();
        Ok(())
    }

    /// Moves to the row after the one at hand, which the chunk holds whole.
    fn find_row(&mut self) {
        if self.reverse {
            self.end = self.at;
            let row = self.chunk[self.end - 1].row();
            let before = self.chunk[..self.end].iter().rev().take_while(|cell| cell.row() == row).count();
            self.at = self.end - before;
        } else {
            self.at = self.end;
            let row = self.chunk[self.at].row();
            self.end = self.at + self.chunk[self.at..].iter().take_while(|cell| cell.row() == row).count();
        }
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
