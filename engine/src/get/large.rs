//! Gets of rows that are too large to be gathered at once.
//!
//! The row is walked part by part, as in a scan. Its cells are packed as they come for the first few megabytes; after
//! that their bytes are only counted. A row that is refused has therefore cost no more memory than that, however many
//! are refused at once, and one that is not refused is packed in a second pass, into a buffer of exactly its size.

use std::ops::ControlFlow;

use terrane_types::CellRef;

use crate::Error;
use crate::family_reader::{ReadStats, RowRead};
use crate::region::Region;
use crate::scan::Step;
use crate::snapshot::Snapshot;

/// Bytes that are packed before it is known that the row is within the limit.
const PACKED_UNCOUNTED_MAX: usize = 4 << 20;

impl Region {
    /// Appends the packed cells of a large row. After an error some may have been appended.
    pub(crate) fn get_large(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        read: RowRead<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        let before = out.len();
        let (mut bytes, packed_max) = (0, PACKED_UNCOUNTED_MAX.min(read.bytes_max));
        let stats = self.for_each_visible(snapshot, row, read, |cell| {
            bytes += cell.packed_len();
            if bytes <= packed_max {
                terrane_types::cell::pack(out, cell);
            }
            if bytes <= read.bytes_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if bytes > read.bytes_max {
            return Err(Error::RowTooLarge { bytes_max: read.bytes_max });
        }
        if bytes > packed_max {
            out.truncate(before);
            out.reserve_exact(bytes);
            self.for_each_visible(snapshot, row, read, |cell| {
                terrane_types::cell::pack(out, cell);
                ControlFlow::Continue(())
            })?;
        }
        Ok(stats)
    }

    fn for_each_visible(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        read: RowRead<'_>,
        mut each: impl FnMut(CellRef<'_>) -> ControlFlow<()>,
    ) -> Result<ReadStats, Error> {
        let mut scanner = self.scan_row(snapshot, row, read);
        while matches!(scanner.look_until(read.patience, |_, cell| each(cell))?, Step::Hidden | Step::HiddenPart) {}
        Ok(scanner.take_stats())
    }
}
