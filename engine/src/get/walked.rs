//! Gets of rows whose cells are judged as they come.

use terrane_types::cell::Cells;
use terrane_types::{CellRef, Onward};

use crate::Error;
use crate::family_reader::{Patience, ReadStats, RowRead};
use crate::region::Region;
use crate::scan::{FIRST_PART_BYTES, Step};
use crate::snapshot::Snapshot;

impl Region {
    /// Hands the visible cells of `row` to `each`, which says where to continue and may be given cells before that. Of a large row
    /// only what is wanted is read, as in [`RowScanner::walk`](crate::RowScanner::walk). The limit of bytes does not apply.
    ///
    /// # Errors
    /// [`Error::NeedsDisk`] where the patience is [`Patience::MemoryOnly`], and the row is not in memory or much of it is wanted: it is
    /// to be read again from the beginning. [`Error::Corruption`] or [`Error::Io`] from the files below.
    pub fn walk_row(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        read: RowRead<'_>,
        mut each: impl FnMut(CellRef<'_>) -> Onward,
    ) -> Result<ReadStats, Error> {
        // Mostly it is small, and filters of rows say where it is not.
        let mut cells = Vec::new();
        let part_bytes = FIRST_PART_BYTES.min(self.part_bytes());
        if let Some(stats) = self.get_small(snapshot, row, read, part_bytes, &mut cells)? {
            for cell in Cells::new(&cells) {
                if each(cell) == Onward::Row {
                    break;
                }
            }
            return Ok(stats);
        }
        let mut scanner = self.scan_row(snapshot, row, read);
        loop {
            match scanner.walk(read.patience, |_, cell| each(cell))? {
                Step::Row | Step::End => return Ok(scanner.take_stats()),
                // Too slow for a runtime thread.
                Step::HiddenPart if read.patience == Patience::MemoryOnly => return Err(Error::NeedsDisk),
                Step::Hidden | Step::HiddenPart | Step::Part { .. } => {}
            }
        }
    }
}
