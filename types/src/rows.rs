//! Packed rows: the contents of a scan's block, of the answer to a get, and of an export.
//!
//! ```text
//! row_len u16 | cells_len u32 | row | cells        little-endian, one row after another
//! ```
//!
//! Rows are slices of the received block; nothing is copied. The cells of a row are in reading order: family and
//! qualifier ascending, timestamp descending.

use bytes::Bytes;

use crate::cell::{Cells, PackedCells};
use crate::invalid::Invalid;
use crate::row::Row;

/// Bytes of a packed row before the row key.
pub const ROW_HEADER_BYTES: usize = 6;

/// Appends a row with its packed cells.
///
/// # Panics
/// If the row is longer than a row can be, or its cells exceed 4 GiB.
pub fn pack_row(out: &mut Vec<u8>, row: &[u8], cells: &[u8]) {
    let at = begin_row(out, row);
    out.extend_from_slice(cells);
    end_row(out, at);
}

/// Starts a row whose cells are then appended to `out` directly; pass the result to [`end_row`].
///
/// # Panics
/// If the row is longer than a row can be.
#[must_use]
pub fn begin_row(out: &mut Vec<u8>, row: &[u8]) -> RowStart {
    let row_len = u16::try_from(row.len()).expect("rows are checked against their limit before they are packed");
    let start = out.len();
    out.extend_from_slice(&row_len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(row);
    RowStart { start, cells_start: out.len() }
}

/// Ends a row: fills in the length of the cells appended since [`begin_row`].
///
/// # Panics
/// If the cells exceed 4 GiB, which no block allows.
pub fn end_row(out: &mut [u8], row: RowStart) {
    let cells_len = u32::try_from(out.len() - row.cells_start).expect("a block is far below 4 GiB");
    out[row.start + 2..row.start + ROW_HEADER_BYTES].copy_from_slice(&cells_len.to_le_bytes());
}

/// Where a row that is being packed starts.
#[derive(Clone, Copy, Debug)]
pub struct RowStart {
    start: usize,
    cells_start: usize,
}

impl RowStart {
    /// The offset of the row in the buffer: truncating to it removes the row.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// The offset of the row's cells in the buffer.
    #[must_use]
    pub const fn cells_start(&self) -> usize {
        self.cells_start
    }
}

/// One row of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRow {
    /// The row key.
    pub row: Row,
    /// Its cells.
    pub cells: PackedCells,
}

/// Iterates over a block of packed rows. Each row is checked when it is reached; the first malformed one ends the
/// iteration.
///
/// ```
/// use bytes::Bytes;
/// use terrane_types::rows::{PackedRows, pack_row};
///
/// let mut block = Vec::new();
/// pack_row(&mut block, b"row1", &[]);
/// let rows: Vec<_> = PackedRows::new(Bytes::from(block)).collect::<Result<_, _>>()?;
/// assert_eq!(rows[0].row.as_bytes(), b"row1");
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct PackedRows {
    rest: Bytes,
}

impl PackedRows {
    /// Iterates over the rows of `block`.
    #[must_use]
    pub const fn new(block: Bytes) -> Self {
        Self { rest: block }
    }

    fn take_row(&mut self) -> Result<PackedRow, Invalid> {
        let truncated = || Invalid::new("a block of packed rows ends inside a row");
        let header = self.rest.first_chunk::<ROW_HEADER_BYTES>().ok_or_else(truncated)?;
        let row_len = usize::from(u16::from_le_bytes([header[0], header[1]]));
        let cells_len = u32::from_le_bytes([header[2], header[3], header[4], header[5]]) as usize;
        let cells_at = ROW_HEADER_BYTES + row_len;
        let end = cells_at.checked_add(cells_len).filter(|&end| end <= self.rest.len()).ok_or_else(truncated)?;
        let row = Row::new(self.rest.slice(ROW_HEADER_BYTES..cells_at))?;
        let cells = PackedCells::validate(self.rest.slice(cells_at..end))?;
        self.rest = self.rest.slice(end..);
        Ok(PackedRow { row, cells })
    }
}

impl Iterator for PackedRows {
    type Item = Result<PackedRow, Invalid>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let row = self.take_row();
        if row.is_err() {
            self.rest = Bytes::new();
        }
        Some(row)
    }
}

/// One row of a block that was packed by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRef<'a> {
    /// The row key.
    pub row: &'a [u8],
    /// Its cells, packed.
    pub packed: &'a [u8],
}

impl<'a> RowRef<'a> {
    /// Its cells.
    #[must_use]
    pub const fn cells(&self) -> Cells<'a> {
        Cells::new(self.packed)
    }
}

/// Iterates in place over a block of rows that this process packed: without reference counts, and without checks of rows and
/// cells. A block that ends inside a row gives one error and ends.
///
/// ```
/// use terrane_types::cell::{CellRef, pack};
/// use terrane_types::rows::{RowRefs, pack_row};
///
/// let (mut cells, mut block) = (Vec::new(), Vec::new());
/// pack(&mut cells, CellRef::put(b"f", b"q", 5, b"v"));
/// pack_row(&mut block, b"row1", &cells);
/// let row = RowRefs::new(&block).next().transpose()?.unwrap();
/// assert_eq!((row.row, row.cells().count()), (&b"row1"[..], 1));
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowRefs<'a> {
    rest: &'a [u8],
}

impl<'a> RowRefs<'a> {
    /// Iterates over the rows of `block`.
    #[must_use]
    pub const fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    fn take_row(&mut self) -> Option<RowRef<'a>> {
        let header = self.rest.first_chunk::<ROW_HEADER_BYTES>()?;
        let row_len = usize::from(u16::from_le_bytes([header[0], header[1]]));
        let cells_len = u32::from_le_bytes([header[2], header[3], header[4], header[5]]) as usize;
        let (row, rest) = self.rest[ROW_HEADER_BYTES..].split_at_checked(row_len)?;
        let (packed, rest) = rest.split_at_checked(cells_len)?;
        self.rest = rest;
        Some(RowRef { row, packed })
    }
}

impl<'a> Iterator for RowRefs<'a> {
    type Item = Result<RowRef<'a>, Invalid>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let row = self.take_row();
        if row.is_none() {
            self.rest = &[];
        }
        Some(row.ok_or_else(|| Invalid::new("a block of packed rows ends inside a row")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cell::{CellRef, pack};

    #[test]
    fn rows_packed_in_place_equal_rows_packed_whole() {
        let mut cells = Vec::new();
        pack(&mut cells, CellRef::put(b"f", b"q", 5, b"v"));
        let mut whole = Vec::new();
        pack_row(&mut whole, b"row", &cells);
        let mut in_place = b"before".to_vec();
        let start = begin_row(&mut in_place, b"row");
        assert_eq!(start.start(), 6);
        in_place.extend_from_slice(&cells);
        end_row(&mut in_place, start);
        assert_eq!(&in_place[6..], &whole[..]);
        assert_eq!(&whole[..6], [3, 0, 21, 0, 0, 0]);
    }

    #[test]
    fn rows_are_walked_in_place() {
        let mut cells = Vec::new();
        pack(&mut cells, CellRef::put(b"f", b"q", 5, b"v"));
        let mut block = Vec::new();
        for row in [&b"a"[..], b"bb", b"c"] {
            pack_row(&mut block, row, &cells);
        }
        let rows: Vec<_> = RowRefs::new(&block).collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.iter().map(|row| row.row).collect::<Vec<_>>(), [&b"a"[..], b"bb", b"c"]);
        assert!(rows.iter().all(|row| row.packed == cells && row.cells().count() == 1));
        for cut in 1..block.len() {
            let rows: Vec<_> = RowRefs::new(&block[..cut]).collect();
            let whole = PackedRows::new(Bytes::copy_from_slice(&block[..cut])).filter(Result::is_ok).count();
            assert_eq!(rows.iter().filter(|row| row.is_ok()).count(), whole, "cut at {cut}");
            assert!(rows.len() <= whole + 1, "one error at most, cut at {cut}");
        }
    }

    #[test]
    fn a_truncated_block_gives_one_error_and_ends() {
        let mut block = Vec::new();
        pack_row(&mut block, b"a", &[]);
        pack_row(&mut block, b"b", &[]);
        for cut in 8..block.len() {
            let rows: Vec<_> = PackedRows::new(Bytes::copy_from_slice(&block[..cut])).collect();
            assert_eq!(rows.len(), 2, "cut at {cut}");
            assert!(rows[0].is_ok() && rows[1].is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = RowRefs::new(&bytes).count();
            let _ = PackedRows::new(Bytes::from(bytes)).count();
        }
    }
}
