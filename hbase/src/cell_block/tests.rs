//! Cells of HBase's own bytes, of random ones, and of damaged blocks.

use proptest::prelude::*;

use super::*;

fn kinds() -> impl Strategy<Value = CellKind> {
    prop::sample::select(vec![
        CellKind::Put,
        CellKind::Delete,
        CellKind::DeleteColumn,
        CellKind::DeleteFamily,
        CellKind::DeleteFamilyVersion,
    ])
}

#[test]
fn a_cell_has_the_bytes_of_hbase() {
    let cell = KeyValue { row: b"r1", cell: CellRef::put(b"cf", b"a", 1, b"v") };
    let mut block = Vec::new();
    cell.encode(Codec::KeyValue, &mut block).unwrap();
    let expected = b"\0\0\0\x1a\0\0\0\x11\0\0\0\x01\0\x02r1\x02cfa\0\0\0\0\0\0\0\x01\x04v";
    assert_eq!(block, expected);
    let mut reader = BlockReader::new(Codec::KeyValue, &block);
    assert_eq!(reader.next_cell().unwrap(), cell);
    assert!(reader.finish().is_ok());
}

#[test]
fn a_block_with_fewer_or_more_cells_than_announced_is_refused() {
    let mut block = Vec::new();
    let cell = KeyValue { row: b"r", cell: CellRef::put(b"f", b"q", 1, b"v") };
    cell.encode(Codec::KeyValue, &mut block).unwrap();
    let mut reader = BlockReader::new(Codec::KeyValue, &block);
    assert!(reader.finish().unwrap_err().what.contains("follow the 0 cells"));
    assert!(reader.take(2).unwrap_err().what.contains("ends after 1 cells"));
    assert!(BlockReader::new(Codec::KeyValue, &block).take(usize::MAX).is_err());
}

#[test]
fn rows_and_families_that_the_layout_has_no_room_for_are_refused() {
    let mut out = Vec::new();
    let (family, row) = ([b'f'; FAMILY_BYTES_MAX + 1], [b'r'; ROW_BYTES_MAX + 1]);
    let long_family = KeyValue { row: b"r", cell: CellRef::put(&family, b"", 1, b"") };
    assert!(long_family.encode(Codec::KeyValue, &mut out).is_err());
    let long_row = KeyValue { row: &row, cell: CellRef::put(b"f", b"", 1, b"") };
    assert!(long_row.encode(Codec::KeyValue, &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn tags_travel_only_under_the_codec_with_tags() {
    let mut cell = CellRef::put(b"f", b"q", 1, b"v");
    cell.tags = b"\x01\x01\x00x";
    let cell = KeyValue { row: b"r", cell };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    cell.encode(Codec::KeyValueWithTags, &mut with).unwrap();
    cell.encode(Codec::KeyValue, &mut without).unwrap();
    assert_eq!(BlockReader::new(Codec::KeyValueWithTags, &with).next_cell().unwrap(), cell);
    assert!(BlockReader::new(Codec::KeyValue, &with).next_cell().is_err());
    assert_eq!(BlockReader::new(Codec::KeyValue, &without).next_cell().unwrap().cell.tags, b"");
}

proptest! {
    #[test]
    fn cells_are_read_back(cells in prop::collection::vec(
        (prop::collection::vec(any::<u8>(), 0..20), prop::collection::vec(any::<u8>(), 0..20),
         prop::collection::vec(any::<u8>(), 0..20), any::<i64>(), kinds(),
         prop::collection::vec(any::<u8>(), 0..50), prop::collection::vec(any::<u8>(), 0..9)), 0..10),
        tags: bool,
    ) {
        let codec = if tags { Codec::KeyValueWithTags } else { Codec::KeyValue };
        let mut block = Vec::new();
        let cells: Vec<KeyValue<'_>> = cells.iter().map(|(row, family, qualifier, timestamp, kind, value, section)| {
            let tags = if tags { &section[..] } else { &[] };
            KeyValue { row, cell: CellRef { family, qualifier, timestamp: *timestamp, kind: *kind, tags, value } }
        }).collect();
        for cell in &cells {
            cell.encode(codec, &mut block).unwrap();
        }
        let mut reader = BlockReader::new(codec, &block);
        prop_assert_eq!(reader.take(cells.len()).unwrap(), cells);
        prop_assert!(reader.finish().is_ok());
    }

    #[test]
    fn a_damaged_block_is_read_or_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), tags: bool,
    ) {
        let codec = if tags { Codec::KeyValueWithTags } else { Codec::KeyValue };
        let mut block = Vec::new();
        for row in [&b"one"[..], b"two", b"three"] {
            KeyValue { row, cell: CellRef::put(b"f", b"q", 7, b"value") }.encode(codec, &mut block).unwrap();
        }
        for (at, byte) in damage {
            let at = at.index(block.len());
            block[at] = byte;
        }
        let mut reader = BlockReader::new(codec, &block);
        let _ = reader.take(3).map(|_| reader.finish());
    }
}
