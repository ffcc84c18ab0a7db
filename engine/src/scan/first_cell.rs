//! The first cell of each row, without the rest of it.
//!
//! Mostly the first cell of a row is visible and requested, and proves so by itself (see
//! [`terrane_types::visibility::Resolver::first_shows`]). Then it is shown from where it lies and the cursors move past
//! the row: however wide it is, nothing else of it is copied or resolved. Other rows are gathered as usual.

use terrane_types::CellRef;

use super::{FamilyScan, RowScanner};
use crate::Error;
use crate::cell_window::CellWindow;
use crate::merging_cursor::MergingCursor;

impl RowScanner {
    /// Shows the first cell of the next row and moves past the row, where only that is requested and the cell is known
    /// without gathering the row; otherwise does nothing and returns `false`.
    pub(super) fn show_first(&mut self, show: &mut impl FnMut(&[u8], CellRef<'_>)) -> Result<bool, Error> {
        let Self { families, next_row, projection, stats, .. } = self;
        if !projection.first_cell_only
            || projection.cell_offset > 0
            || self.from_cell.is_some()
            || self.bounds.is_empty()
            || families.iter().any(|family| family.merge.is_none())
        {
            return Ok(false);
        }
        let rows = families.iter().filter_map(|family| family.merge.as_ref()?.row());
        let Some(row) = (if self.reverse { rows.max() } else { rows.min() }) else { return Ok(false) };
        next_row.clear();
        next_row.extend_from_slice(row);
        // Families are in order, so the first one that has the row has the row's first cell, if it shows one.
        let has_row = |family: &&mut FamilyScan| {
            family.merge.as_ref().is_some_and(|merge| merge.row() == Some(next_row.as_slice()))
        };
        let Some(FamilyScan { reader, store, merge: Some(merge), .. }) = families.iter_mut().find(has_row) else {
            return Ok(false);
        };
        let name = store.name.as_bytes();
        let Some(cell) = merge.first().filter(|cell| reader.first_shows(cell, projection.columns(name), stats)) else {
            return Ok(false);
        };
        show(cell.row, CellWindow::of(projection).shown(cell.packed(name)));
        let with_row = families.iter_mut().filter_map(|family| family.merge.as_mut());
        let mut with_row = with_row.filter(|merge| merge.row() == Some(next_row.as_slice()));
        let moved = with_row.try_for_each(MergingCursor::skip);
        std::mem::swap(&mut self.row, &mut self.next_row);
        if moved.is_err() {
            // The row is done all the same. An error that lasts comes with the next one.
            self.close();
        }
        Ok(true)
    }
}
