//! Packed rows as results: in a cell block, or in messages for a connection without a codec.

use bytes::Bytes;
use terrane_types::{CellRef, PackedRows};

use crate::cell_block::{Codec, KeyValue};
use crate::exception::Exception;
use crate::proto;

/// The result of one row, of a block that holds it or nothing. Its cells are appended to the cell block.
pub(super) fn of_row(
    codec: Option<Codec>,
    rows: Bytes,
    exists_only: bool,
    block: &mut Vec<u8>,
) -> Result<proto::Result, Exception> {
    let row = PackedRows::new(rows).next().transpose().map_err(|malformed| Exception::bad_request(&malformed.what))?;
    if exists_only {
        return Ok(proto::Result { exists: Some(row.is_some()), ..proto::Result::default() });
    }
    match row {
        Some(row) => of_cells(codec, row.row.as_ref(), &row.cells, block),
        None => Ok(empty(codec)),
    }
}

/// A result without cells.
pub(super) fn empty(codec: Option<Codec>) -> proto::Result {
    proto::Result { associated_cell_count: codec.map(|_| 0), ..proto::Result::default() }
}

/// The result of some cells of a row. They are appended to the cell block, all or none.
pub(super) fn of_cells<'a>(
    codec: Option<Codec>,
    row: &'a [u8],
    cells: impl IntoIterator<Item = CellRef<'a>>,
    block: &mut Vec<u8>,
) -> Result<proto::Result, Exception> {
    let before = block.len();
    let mut result = proto::Result::default();
    let mut count = 0;
    for cell in cells {
        let cell = KeyValue { row, cell };
        match codec {
            Some(codec) => {
                if let Err(refused) = cell.encode(codec, block) {
                    block.truncate(before);
                    return Err(Exception::bad_request(&refused.what));
                }
            }
            None => result.cell.push(cell.to_proto()),
        }
        count += 1;
    }
    result.associated_cell_count = codec.map(|_| count);
    Ok(result)
}
