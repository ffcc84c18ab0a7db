//! A sorted run: cells of one family, immutable, in memory.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::Error;
use crate::cells::Cells;
use crate::reading::{Cursor, Reading, RowKey, Source};
use crate::source::Bounds;

/// Cells in store order.
#[derive(Debug, Default)]
pub(crate) struct Run {
    cells: Cells,
}

impl Run {
    /// `cells` must be in store order.
    pub(crate) fn new(mut cells: Cells) -> Self {
        cells.shrink();
        Self { cells }
    }

    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The first cell whose row is not less than `row`, or, with `after`, greater.
    fn lower_bound(&self, row: &[u8], after: bool) -> usize {
        let (mut low, mut high) = (0, self.cells.len());
        while low < high {
            let middle = low.midpoint(high);
            let before = match self.cells.row(middle).cmp(row) {
                Ordering::Less => true,
                Ordering::Equal => after,
                Ordering::Greater => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The cells inside of `bounds`, by index.
    pub(crate) fn range(&self, bounds: &Bounds) -> Range<usize> {
        let start = self.lower_bound(&bounds.start, false);
        let stop = if bounds.stop.is_empty() { self.cells.len() } else { self.lower_bound(&bounds.stop, false) };
        start..stop.max(start)
    }
}

impl Source for Run {
    fn row(&self, row: &RowKey<'_>, _columns: &[Bytes], _reading: Reading, out: &mut Cells) -> Result<(), Error> {
        for index in self.lower_bound(row.row, false)..self.cells.len() {
            let cell = self.cells.get(index);
            if cell.row != row.row {
                break;
            }
            out.push(cell);
        }
        Ok(())
    }

    fn cursor(self: Arc<Self>, bounds: &Bounds, reverse: bool, _reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        let range = self.range(bounds);
        Ok(Box::new(RunCursor { run: self, range, reverse }))
    }
}

struct RunCursor {
    run: Arc<Run>,
    /// What is still to come.
    range: Range<usize>,
    reverse: bool,
}

impl Cursor for RunCursor {
    fn row(&self) -> Option<&[u8]> {
        let at = if self.reverse { self.range.end.checked_sub(1) } else { Some(self.range.start) };
        at.filter(|at| self.range.contains(at)).map(|at| self.run.cells.row(at))
    }

    fn take(&mut self, _columns: &[Bytes], out: &mut Cells) -> Result<(), Error> {
        let cells = &self.run.cells;
        if self.range.is_empty() {
            return Ok(());
        }
        let of_row = if self.reverse {
            let row = cells.row(self.range.end - 1);
            let rest = self.range.clone().rev().take_while(|&at| cells.row(at) == row).count();
            let first = self.range.end - rest;
            let of_row = first..self.range.end;
            self.range.end = first;
            of_row
        } else {
            let row = cells.row(self.range.start);
            let count = self.range.clone().take_while(|&at| cells.row(at) == row).count();
            let of_row = self.range.start..self.range.start + count;
            self.range.start = of_row.end;
            of_row
        };
        of_row.for_each(|at| out.push(cells.get(at)));
        Ok(())
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        if self.reverse {
            self.range.end = self.run.lower_bound(row, true).clamp(self.range.start, self.range.end);
        } else {
            self.range.start = self.run.lower_bound(row, false).clamp(self.range.start, self.range.end);
        }
        Ok(())
    }
}
