//! Keys and values of cells in sled: `docs/formats/sled.md` has the layout.

use terrane_types::{CellKind, CellRef};

use crate::cells::{Cell, Cells};
use crate::codec::{ByteWriter as _, Reader};

/// A key before every cell of `row` and after every cell of lower rows.
pub(super) fn row_start(row: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(row.len() + 2);
    if !row.is_empty() {
        escape(&mut key, row);
    }
    key
}

/// Row and qualifier are escaped and terminated, so that they sort correctly and neither runs into what follows; then
/// timestamp, sequence and position complemented, so that the newest comes first.
pub(super) fn key_of(cell: Cell<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(cell.row.len() + cell.qualifier.len() + 24);
    escape(&mut key, cell.row);
    escape(&mut key, cell.qualifier);
    key.extend_from_slice(&(!cell.timestamp.cast_unsigned()).to_be_bytes());
    key.extend_from_slice(&(!cell.sequence).to_be_bytes());
    key.extend_from_slice(&(!cell.position).to_be_bytes());
    key
}

pub(super) fn value_of(cell: Cell<'_>) -> Vec<u8> {
    let mut value = Vec::new();
    value.u8(cell.kind as u8);
    value.u16(u16::try_from(cell.tags.len()).expect("tag sections are limited to less than 64 KiB at the edge"));
    value.raw(cell.tags);
    value.raw(cell.value);
    value
}

pub(super) fn read_cell(key: &[u8], value: &[u8], out: &mut Cells) -> Option<()> {
    let (row, rest) = unescape(key)?;
    let (qualifier, rest) = unescape(rest)?;
    let (timestamp, rest) = rest.split_first_chunk::<8>()?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    let (position, rest) = rest.split_first_chunk::<4>()?;
    if !rest.is_empty() {
        return None;
    }
    let mut input = Reader::new(value);
    let kind = CellKind::from_u8(input.u8()?)?;
    let tags_len = usize::from(input.u16()?);
    let (tags, value) = input.rest().split_at_checked(tags_len)?;
    let timestamp = (!u64::from_be_bytes(*timestamp)).cast_signed();
    let cell = CellRef { family: &[], qualifier: &qualifier, timestamp, kind, tags, value };
    out.push(Cell::of_mutation(&row, cell, !u64::from_be_bytes(*sequence), !u32::from_be_bytes(*position)));
    Some(())
}

/// 00 becomes 00 FF, and 00 01 terminates it.
pub(super) fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

pub(super) fn unescape(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match rest {
            [0, 1, after @ ..] => return Some((out, after)),
            [0, 0xFF, after @ ..] => {
                out.push(0);
                rest = after;
            }
            [0, ..] | [] => return None,
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}

/// The sequence number in a key.
pub(super) fn sequence_of(key: &[u8]) -> Option<u64> {
    let (rest, _position) = key.split_last_chunk::<4>()?;
    let (_, sequence) = rest.split_last_chunk::<8>()?;
    Some(!u64::from_be_bytes(*sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_cells_do_and_read_back() {
        let mut cells = Cells::default();
        for (row, qualifier, timestamp, sequence) in [
            (&b"a"[..], &b""[..], 5, 1),
            (b"a", b"q", 5, 2),
            (b"a", b"q", 5, 1),
            (b"a", b"q", 4, 9),
            (b"a\0", b"q", 4, 9),
            (b"a\0\x01", b"q", 4, 9),
            (b"ab", b"q\0", 0, 9),
        ] {
            let cell = CellRef { family: b"f", qualifier, timestamp, kind: CellKind::Put, tags: b"t", value: b"v" };
            cells.push(Cell::of_mutation(row, cell, sequence, 3));
        }
        cells.sort_from(0);
        let keys: Vec<_> = cells.iter().map(key_of).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for cell in cells.iter() {
            let mut back = Cells::default();
            read_cell(&key_of(cell), &value_of(cell), &mut back).unwrap();
            let back = back.get(0);
            assert!(back.cmp_place(&cell).is_eq());
            assert_eq!((back.value, back.tags, back.kind), (cell.value, cell.tags, cell.kind));
        }
    }
}
