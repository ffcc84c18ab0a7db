//! Cells of one family in store order, immutable, in memory: a file of the memory backend.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::cells::Cells;
use crate::column_selection::{ColumnSelection, Portion};
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source};

/// Cells in store order.
#[derive(Debug, Default)]
pub(crate) struct SortedCells {
    cells: Cells,
}

impl SortedCells {
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

    /// The cells within `bounds`, by index.
    pub(crate) fn range(&self, bounds: &RowRange) -> Range<usize> {
        let start = self.lower_bound(&bounds.start, false);
        let end = if bounds.end.is_empty() { self.cells.len() } else { self.lower_bound(&bounds.end, false) };
        start..end.max(start)
    }
}

impl Source for SortedCells {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        let mut portion = Portion::begin(out, lookup.bytes_max, lookup.sought);
        for index in self.lower_bound(lookup.key.row, false)..self.cells.len() {
            let cell = self.cells.get(index);
            if cell.row != lookup.key.row {
                break;
            }
            if portion.is_full(out) {
                return Ok(false);
            }
            out.push(cell);
        }
        Ok(true)
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, _reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        let range = self.range(bounds);
        Ok(Box::new(SortedCellsCursor { run: self, range, reverse, rest: None }))
    }
}

struct SortedCellsCursor {
    run: Arc<SortedCells>,
    /// What remains, including the current row.
    range: Range<usize>,
    reverse: bool,
    /// What remains of the current row, once some of it was taken.
    rest: Option<Range<usize>>,
}

impl SortedCellsCursor {
    /// What remains of the current row.
    fn rest(&self) -> Range<usize> {
        if let Some(rest) = &self.rest {
            return rest.clone();
        }
        let (cells, range) = (&self.run.cells, &self.range);
        if range.is_empty() {
            return range.clone();
        }
        if self.reverse {
            let row = cells.row(range.end - 1);
            let count = range.clone().rev().take_while(|&at| cells.row(at) == row).count();
            range.end - count..range.end
        } else {
            let row = cells.row(range.start);
            let count = range.clone().take_while(|&at| cells.row(at) == row).count();
            range.start..range.start + count
        }
    }

    /// Leaves the current row.
    fn leave_row(&mut self) {
        let Some(row) = self.row() else { return };
        if self.reverse {
            self.range.end = self.run.lower_bound(row, false).max(self.range.start);
        } else {
            self.range.start = self.rest().end;
        }
        self.rest = None;
    }
}

impl Cursor for SortedCellsCursor {
    fn row(&self) -> Option<&[u8]> {
        let at = if self.reverse { self.range.end.checked_sub(1) } else { Some(self.range.start) };
        at.filter(|at| self.range.contains(at)).map(|at| self.run.cells.row(at))
    }

    fn skip(&mut self) -> Result<(), Error> {
        self.leave_row();
        Ok(())
    }

    fn take(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        let rest = self.rest();
        let mut portion = Portion::begin(out, bytes_max, sought);
        for at in rest.clone() {
            if portion.is_full(out) {
                self.rest = Some(at..rest.end);
                return Ok(false);
            }
            out.push(self.run.cells.get(at));
        }
        self.rest = Some(rest.end..rest.end);
        self.leave_row();
        Ok(true)
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        let mut rest = self.rest();
        let below = |at: &usize| self.run.cells.get(*at).qualifier < qualifier;
        rest.start += rest.clone().take_while(below).count();
        let is_over = rest.is_empty();
        self.rest = Some(rest);
        if is_over {
            self.leave_row();
        }
        Ok(())
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        if self.row().is_none_or(|at| if self.reverse { at <= row } else { at >= row }) {
            return Ok(());
        }
        self.rest = None;
        if self.reverse {
            self.range.end = self.run.lower_bound(row, true).clamp(self.range.start, self.range.end);
        } else {
            self.range.start = self.run.lower_bound(row, false).clamp(self.range.start, self.range.end);
        }
        Ok(())
    }
}
