//! Moving over rows without packing them: rows that are counted or skipped, and rows whose cells are examined where
//! they lie.
//!
//! A row counts when one of its cells is visible, and mostly its first cell proves so by itself (see
//! [`terrane_types::visibility::Resolver::first_shows`]): then nothing of the row is copied and nothing else of it is
//! examined. Only rows whose first cell is hidden, or of an unrequested column, are gathered.
//!
//! This is the cost of an exact offset or count: a look at each row. A count of rows per block of a file would make an
//! offset logarithmic; it would be used here, where a skip begins and `left` is larger than what a block holds.

use std::ops::ControlFlow;

use terrane_types::CellRef;

use super::{FamilyScan, HIDDEN_CELLS_MAX, RowScanner, Step};
use crate::Error;
use crate::cell_window::CellWindow;
use crate::family_reader::Patience;

impl RowScanner {
    /// Skips visible rows, up to `left` of them, and decrements `left` by each. [`Step::Row`]: all were skipped;
    /// [`RowScanner::row`] is the last of them. The rest of a row that [`RowScanner::next`] returned in parts is not
    /// counted.
    ///
    /// # Errors
    /// As [`RowScanner::next`]. The rows that `left` was decremented by are skipped nevertheless.
    pub fn pass(&mut self, left: &mut u64, patience: Patience) -> Result<Step, Error> {
        self.drop_shown()?;
        let seen_before = self.stats.cells_seen;
        while *left > 0 {
            let passed = match self.pass_row(patience) {
                Ok(Some(passed)) => passed,
                Ok(None) => return Ok(Step::End),
                Err(error) => {
                    self.close();
                    return Err(error);
                }
            };
            if passed {
                *left -= 1;
            } else if self.within {
                return Ok(Step::HiddenPart);
            } else if self.stats.cells_seen - seen_before >= HIDDEN_CELLS_MAX {
                return Ok(Step::Hidden);
            }
        }
        Ok(Step::Row)
    }

    /// Hands the visible cells of the next row to `each`, with the row, and moves on. A row is never given in parts.
    ///
    /// # Errors
    /// As [`RowScanner::next`]; discard what `each` received then, because the row is read again.
    pub fn look(&mut self, patience: Patience, mut each: impl FnMut(&[u8], CellRef<'_>)) -> Result<Step, Error> {
        self.look_until(patience, |row, cell| {
            each(row, cell);
            ControlFlow::Continue(())
        })
    }

    /// The same, until `each` has seen enough of the row.
    pub(crate) fn look_until(
        &mut self,
        patience: Patience,
        mut each: impl FnMut(&[u8], CellRef<'_>) -> ControlFlow<()>,
    ) -> Result<Step, Error> {
        self.drop_shown()?;
        let seen_before = self.stats.cells_seen;
        loop {
            match self.look_at_row(patience, &mut each) {
                Ok(Some(true)) => return Ok(Step::Row),
                Ok(Some(false)) if self.within => return Ok(Step::HiddenPart),
                Ok(Some(false)) if self.stats.cells_seen - seen_before >= HIDDEN_CELLS_MAX => return Ok(Step::Hidden),
                Ok(Some(false)) => {}
                Ok(None) => return Ok(Step::End),
                Err(error) => {
                    self.close();
                    return Err(error);
                }
            }
        }
    }

    /// Leaves the current row, unless nothing of it is visible so far and it is still being looked at.
    fn drop_shown(&mut self) -> Result<(), Error> {
        if self.within && self.at_hand.is_passed {
            return Ok(());
        }
        self.drop_row().inspect_err(|_| self.close())
    }

    /// The last row that is done, where [`RowScanner::row`] may not be.
    #[must_use]
    pub fn done_row(&self) -> &[u8] {
        if self.within { &self.next_row } else { &self.row }
    }

    /// Whether the next row is visible; `None` at the end. Where much of it was read and nothing is visible so far: `false`, and the
    /// next call goes on within it.
    fn pass_row(&mut self, patience: Patience) -> Result<Option<bool>, Error> {
        if !self.within && self.skip_shown()? {
            return Ok(Some(true));
        }
        self.look_at_row(patience, &mut |_, _| ControlFlow::Break(()))
    }

    /// Shows the next row from where it lies, or gathers it, until `each` has seen enough. Returns whether anything of
    /// it is visible; `None` at the end. It stays within a row of which much was read and nothing is visible so far.
    fn look_at_row(
        &mut self,
        patience: Patience,
        each: &mut impl FnMut(&[u8], CellRef<'_>) -> ControlFlow<()>,
    ) -> Result<Option<bool>, Error> {
        let mut show_one = |row: &[u8], cell: CellRef<'_>| {
            // It is the only cell, so it makes no difference whether that is enough.
            let _enough = each(row, cell);
        };
        let seen_before = self.stats.cells_seen;
        let (mut first, mut shown) = (0, false);
        if self.within {
            first = self.next_part()?;
        } else {
            if let Some(shown) = self.show_single(&mut show_one)? {
                return Ok(Some(shown));
            }
            if !self.begin_row(patience, self.part_bytes)? {
                return Ok(None);
            }
        }
        let shape = CellWindow::of(&self.projection);
        loop {
            for FamilyScan { store, gathered, visible, .. } in &self.families[first..self.at_hand.reached] {
                for &at in visible {
                    shown = true;
                    if each(&self.row, shape.shown(gathered.get(at).packed(store.name.as_bytes()))).is_break() {
                        self.leave_row()?;
                        return Ok(Some(true));
                    }
                }
            }
            if self.is_gathered() {
                break;
            }
            if !shown && self.has_hidden(seen_before) {
                self.at_hand.is_passed = true;
                return Ok(Some(false));
            }
            first = self.next_part()?;
        }
        self.leave_row()?;
        Ok(Some(shown))
    }

    /// Moves past the next row if the first cell of one of its families proves that it is visible; otherwise does
    /// nothing.
    fn skip_shown(&mut self) -> Result<bool, Error> {
        let Self { families, next_row, projection, stats, .. } = self;
        // With an offset of cells, one visible cell does not prove that the row is shown.
        if self.from_cell.is_some() || self.bounds.is_empty() || projection.cell_offset > 0 {
            return Ok(false);
        }
        let mut rows = families.iter().filter_map(|family| family.merge.as_ref()?.row());
        let row = match families.len() {
            1 => rows.next(),
            _ if self.reverse => rows.max(),
            _ => rows.min(),
        };
        let Some(row) = row.filter(|_| families.iter().all(|family| family.merge.is_some())) else {
            return Ok(false);
        };
        next_row.clear();
        next_row.extend_from_slice(row);
        let shows = families.iter_mut().any(|FamilyScan { reader, store, merge, .. }| {
            let first = merge.as_ref().and_then(|merge| merge.first());
            first.is_some_and(|cell| {
                cell.row == next_row.as_slice()
                    && reader.first_shows(&cell, projection.columns(store.name.as_bytes()), stats)
            })
        });
        if !shows {
            return Ok(false);
        }
        for merge in families.iter_mut().filter_map(|family| family.merge.as_mut()) {
            if merge.row() == Some(next_row.as_slice()) {
                merge.skip()?;
            }
        }
        std::mem::swap(&mut self.row, &mut self.next_row);
        Ok(true)
    }

    /// Moves in the direction of the scan: forward to the first row that is not before `row`, as [`RowScanner::seek`] does; in
    /// reverse to the last row before `row`.
    ///
    /// # Errors
    /// As [`RowScanner::next`]; the scanner has moved nevertheless.
    pub fn seek_beyond(&mut self, row: &[u8], patience: Patience) -> Result<(), Error> {
        if !self.reverse {
            return self.seek(row, patience);
        }
        self.from_cell = None;
        if self.bounds.end.is_empty() || row < self.bounds.end.as_slice() {
            self.bounds.end = row.to_vec();
        }
        let sought = self.drop_row().and_then(|()| self.open(patience)).and_then(|()| {
            for merge in self.families.iter_mut().filter_map(|family| family.merge.as_mut()) {
                merge.seek(row)?;
                if merge.row() == Some(row) {
                    merge.skip()?;
                }
            }
            Ok(())
        });
        if sought.is_err() {
            self.close();
        }
        sought
    }
}
