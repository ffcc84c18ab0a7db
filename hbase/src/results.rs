//! Packed rows as results: in a cell block, or in messages for a connection without a codec.

use bytes::Bytes;
use terrane_types::CellRef;
use terrane_types::cell::{TTL_TAG, ttl_of};
use terrane_types::rows::RowRefs;

use crate::cell_block::{Codec, KeyValue};
use crate::connection::Opened;
use crate::exception::{Exception, REGION_TOO_BUSY, RETRY_IMMEDIATELY};
use crate::proto;

/// The result of one row, of a block that holds it or nothing. Its cells are appended to the cell block.
pub(crate) fn of_row(
    codec: Option<Codec>,
    rows: &Bytes,
    exists_only: bool,
    block: &mut Vec<u8>,
) -> Result<proto::Result, Exception> {
    let row = RowRefs::new(rows).next().transpose().map_err(|malformed| Exception::bad_request(&malformed.what))?;
    if exists_only {
        return Ok(exists(row.is_some()));
    }
    match row {
        Some(row) => of_cells(codec, row.row, row.cells(), block),
        None => Ok(empty(codec)),
    }
}

/// The answer to a get that asks only whether there is such a row.
pub(crate) fn exists(exists: bool) -> proto::Result {
    proto::Result { exists: Some(exists), ..proto::Result::default() }
}

/// A result without cells.
pub(crate) fn empty(codec: Option<Codec>) -> proto::Result {
    proto::Result { associated_cell_count: codec.map(|_| 0), ..proto::Result::default() }
}

/// The result of some cells of a row. They are appended to the cell block, all or none.
pub(crate) fn of_cells<'a>(
    codec: Option<Codec>,
    row: &'a [u8],
    cells: impl IntoIterator<Item = CellRef<'a>>,
    block: &mut Vec<u8>,
) -> Result<proto::Result, Exception> {
    of_key_values(codec, cells.into_iter().map(|cell| KeyValue { row, cell }), block)
}

/// The same of cells that name their row.
pub(crate) fn of_key_values<'a>(
    codec: Option<Codec>,
    cells: impl Iterator<Item = KeyValue<'a>>,
    block: &mut Vec<u8>,
) -> Result<proto::Result, Exception> {
    let before = block.len();
    let mut result = proto::Result::default();
    let mut count = 0;
    for cell in cells {
        match codec {
            Some(codec) => {
                let ttl = ttl_of(cell.cell.tags).map(hbase_ttl_tag);
                let tags = ttl.as_ref().map_or(&[][..], |tag| tag);
                let cell = KeyValue { row: cell.row, cell: CellRef { tags, ..cell.cell } };
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

/// A time to live as HBase's tags have it: `length u16 | type u8 | milliseconds i64`, big-endian.
fn hbase_ttl_tag(ttl_ms: u64) -> [u8; 11] {
    let mut tag = [0, 9, TTL_TAG, 0, 0, 0, 0, 0, 0, 0, 0];
    tag[3..].copy_from_slice(&i64::try_from(ttl_ms).unwrap_or(i64::MAX).to_be_bytes());
    tag
}

/// The answer to a get for which the answer to its batch has no room.
pub(crate) fn full_answer(opened: &Opened) -> Exception {
    let class = if opened.knows_immediate_retries() { RETRY_IMMEDIATELY } else { REGION_TOO_BUSY };
    Exception::new(class, "the answer is full; ask for the rest again")
}

/// A row, or a part of one, on its way into the answer to a scan.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// Most cells of one result.
    pub batch: usize,
    /// The row goes on in the next part.
    pub continues: bool,
    /// It goes on with what the last result of the answer has of the row.
    pub joins: bool,
}

/// Appends the results of one row. All but the last are partial, and that one is if the row goes on elsewhere.
pub(crate) fn push_row<'a>(
    response: &mut proto::ScanResponse,
    codec: Option<Codec>,
    cells: impl Iterator<Item = KeyValue<'a>>,
    part: Part,
    block: &mut Vec<u8>,
) -> Result<(), Exception> {
    let mut left = cells.peekable();
    loop {
        let result = of_key_values(codec, left.by_ref().take(part.batch), block)?;
        let is_last = left.peek().is_none();
        let partial = !is_last || part.continues;
        match result.associated_cell_count {
            Some(count)
                if part.joins
                    && let Some(last) = response.cells_per_result.last_mut() =>
            {
                *last += count.cast_unsigned();
                response.partial_flag_per_result.pop();
                response.partial_flag_per_result.push(partial);
            }
            None if part.joins
                && let Some(last) = response.results.last_mut() =>
            {
                last.cell.extend(result.cell);
                last.partial = Some(partial);
            }
            Some(count) => {
                response.cells_per_result.push(count.cast_unsigned());
                response.partial_flag_per_result.push(partial);
            }
            None => response.results.push(proto::Result { partial: Some(partial), ..result }),
        }
        if is_last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_takes_tags_is_shown_times_to_live() {
        let tag = terrane_types::cell::ttl_tag(0x0102);
        let cell = KeyValue { row: b"r", cell: CellRef { tags: &tag, ..CellRef::put(b"f", b"q", 1, b"v") } };
        for (codec, shown) in
            [(Codec::KeyValue, &[][..]), (Codec::KeyValueWithTags, &[0, 9, 8, 0, 0, 0, 0, 0, 0, 1, 2])]
        {
            let mut block = Vec::new();
            of_key_values(Some(codec), [cell].into_iter(), &mut block).unwrap();
            let found = crate::cell_block::BlockReader::new(codec, &block).next_cell().unwrap();
            assert_eq!(found.cell.tags, shown, "{codec:?}");
        }
    }

    #[test]
    fn parts_of_a_row_become_one_result_for_a_client_that_takes_none() {
        let cell = KeyValue { row: b"r", cell: CellRef::put(b"f", b"q", 1, b"v") };
        for codec in [None, Some(Codec::KeyValue)] {
            let (mut response, mut block) = (proto::ScanResponse::default(), Vec::new());
            for (joins, continues) in [(false, true), (true, true), (true, false), (false, false)] {
                let part = Part { batch: usize::MAX, continues, joins };
                push_row(&mut response, codec, [cell].into_iter(), part, &mut block).unwrap();
            }
            let of_messages = response.results.iter().map(|result| (result.cell.len(), result.partial()));
            let of_blocks = response.cells_per_result.iter().map(|&count| count as usize);
            let of_blocks = of_blocks.zip(response.partial_flag_per_result.iter().copied());
            assert_eq!(of_messages.chain(of_blocks).collect::<Vec<_>>(), [(3, false), (1, false)], "{codec:?}");
        }
    }
}
