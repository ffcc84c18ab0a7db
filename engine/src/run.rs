//! A sorted run: the cells of one family that a flush wrote, immutable, in memory.

use std::ops::Range;

use crate::Error;
use crate::cell::StoredCell;
use crate::source::{Bounds, Source, take_whole_rows};

/// Cells in store order.
#[derive(Debug, Default)]
pub(crate) struct Run {
    cells: Vec<StoredCell>,
}

impl Run {
    /// `cells` must be in store order.
    pub(crate) fn new(cells: Vec<StoredCell>) -> Self {
        debug_assert!(cells.is_sorted(), "a run is sorted");
        Self { cells }
    }

    pub(crate) fn cells(&self) -> &[StoredCell] {
        &self.cells
    }

    /// The cells inside of `bounds`.
    pub(crate) fn within(&self, bounds: &Bounds) -> &[StoredCell] {
        &self.cells[self.range(bounds)]
    }

    fn range(&self, bounds: &Bounds) -> Range<usize> {
        let start = self.cells.partition_point(|cell| cell.row() < bounds.start.as_slice());
        let stop = if bounds.stop.is_empty() {
            self.cells.len()
        } else {
            self.cells.partition_point(|cell| cell.row() < bounds.stop.as_slice())
        };
        start..stop.max(start)
    }
}

impl Source for Run {
    fn chunk(&self, bounds: &Bounds, reverse: bool, cells: usize, out: &mut Vec<StoredCell>) -> Result<(), Error> {
        let within = self.within(bounds);
        if reverse {
            let first = out.len();
            take_whole_rows(within.iter().rev(), cells, out);
            out[first..].reverse();
        } else {
            take_whole_rows(within.iter(), cells, out);
        }
        Ok(())
    }

    fn row(&self, row: &[u8], out: &mut Vec<StoredCell>) -> Result<(), Error> {
        let start = self.cells.partition_point(|cell| cell.row() < row);
        out.extend(self.cells[start..].iter().take_while(|cell| cell.row() == row).cloned());
        Ok(())
    }
}
