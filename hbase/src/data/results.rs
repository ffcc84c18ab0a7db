//! Packed rows as results: in a cell block, or in messages for a connection without a codec.

use bytes::Bytes;
use terrane_types::{PackedCells, PackedRows};

use crate::cell_block::{Codec, KeyValue};
use crate::exception::Exception;
use crate::proto;

/// The result of one row, of a block that holds it or nothing.
pub(super) fn of_row(
    codec: Option<Codec>,
    rows: Bytes,
    exists_only: bool,
) -> Result<(proto::Result, Vec<u8>), Exception> {
    let row = PackedRows::new(rows).next().transpose().map_err(|malformed| Exception::bad_request(&malformed.what))?;
    if exists_only {
        return Ok((proto::Result { exists: Some(row.is_some()), ..proto::Result::default() }, Vec::new()));
    }
    match row {
        Some(row) => of_cells(codec, row.row.as_ref(), &row.cells),
        None => Ok((empty(codec), Vec::new())),
    }
}

/// A result without cells.
pub(super) fn empty(codec: Option<Codec>) -> proto::Result {
    proto::Result { associated_cell_count: codec.map(|_| 0), ..proto::Result::default() }
}

/// The result of some cells of a row.
pub(super) fn of_cells(
    codec: Option<Codec>,
    row: &[u8],
    cells: &PackedCells,
) -> Result<(proto::Result, Vec<u8>), Exception> {
    let mut block = Vec::new();
    let mut result = proto::Result::default();
    let mut count = 0;
    for cell in cells {
        let cell = KeyValue { row, cell };
        match codec {
            Some(codec) => cell.encode(codec, &mut block).map_err(|refused| Exception::bad_request(&refused.what))?,
            None => result.cell.push(cell.to_proto()),
        }
        count += 1;
    }
    result.associated_cell_count = codec.map(|_| count);
    Ok((result, block))
}
