//! The packed cell: round trip, the exact bytes, and bytes from outside.

use proptest::prelude::*;

use super::*;

fn packed(cell: CellRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    pack(&mut out, cell);
    out
}

fn validated(cell: CellRef<'_>) -> Result<PackedCells, Invalid> {
    PackedCells::validate(packed(cell).into())
}

#[test]
fn the_layout_is_the_one_that_is_written_down() {
    // The worked example of docs/formats/cell.md.
    let bytes = packed(CellRef::put(b"data", b"airtemp", 1_000, &[0, 0, 0, 21]));
    let expected: &[u8] = &[
        4, // family_len
        7, 0, // qualifier_len
        0, 0, // tags_len
        4, 0, 0, 0, // value_len
        0xe8, 3, 0, 0, 0, 0, 0, 0, // timestamp
        0, // kind
        b'd', b'a', b't', b'a', b'a', b'i', b'r', b't', b'e', b'm', b'p', 0, 0, 0, 21,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(unpack(expected).map(|(_, length)| length), Some(33));
}

#[test]
fn numbers_of_kinds_never_change() {
    let kinds = [
        CellKind::Put,
        CellKind::Delete,
        CellKind::DeleteColumn,
        CellKind::DeleteFamily,
        CellKind::DeleteFamilyVersion,
    ];
    for (number, kind) in (0..).zip(kinds) {
        assert_eq!((kind as u8, CellKind::from_u8(number)), (number, Some(kind)));
    }
    assert_eq!(CellKind::from_u8(5), None);
}

#[test]
fn only_latest_is_stamped() {
    let mut bytes = packed(CellRef::put(b"f", b"a", LATEST, b"1"));
    pack(&mut bytes, CellRef::put(b"f", b"b", 7, b"2"));
    pack(&mut bytes, CellRef::delete(CellKind::DeleteColumn, b"f", b"c", LATEST));
    assert_eq!(stamp_in_place(&mut bytes, 99), 2);
    let timestamps: Vec<i64> = Cells::new(&bytes).map(|cell| cell.timestamp).collect();
    assert_eq!(timestamps, [99, 7, 99]);
    assert_eq!(stamp_in_place(&mut bytes, 100), 0);
}

#[test]
fn every_limit_is_checked_and_named() {
    let put = CellRef::put(b"f", b"q", 1, b"v");
    let long_qualifier = vec![0; QUALIFIER_BYTES_MAX + 1];
    let long_value = vec![0; VALUE_BYTES_MAX + 1];
    let cases = [
        (CellRef { family: b"", ..put }, "name of a family"),
        (CellRef { family: b"a:b", ..put }, "name of a family"),
        (CellRef { qualifier: &long_qualifier, ..put }, "the limit is 32767"),
        (CellRef { value: &long_value, ..put }, "the limit is 10485760"),
        (CellRef { timestamp: -1, ..put }, "is negative"),
        (CellRef { kind: CellKind::Delete, ..put }, "carries a value"),
        (CellRef { kind: CellKind::DeleteFamily, value: b"", ..put }, "names a qualifier"),
        (CellRef { tags: &[1, 2, 0, 0], ..put }, "ends inside a tag"),
        (CellRef { tags: &[1, 2], ..put }, "ends inside a tag's header"),
    ];
    for (cell, part) in cases {
        let error = validated(cell).expect_err(part);
        assert!(error.what.contains(part), "{error}");
        assert!(error.what.len() < 400, "a message does not carry the input: {error}");
    }
    let at_the_limits = CellRef {
        qualifier: &long_qualifier[1..],
        value: &long_value[1..],
        timestamp: TIMESTAMP_MAX,
        tags: &[9, 1, 0, 7],
        ..put
    };
    assert!(validated(at_the_limits).is_ok());
}

#[test]
fn a_mutation_is_not_empty_and_has_nothing_that_is_not_built() {
    assert!(PackedCells::validate(Bytes::new()).expect("no cells are cells").is_empty());
    let refuse = |bytes: Vec<u8>, part: &str| {
        let error = PackedCells::validate_mutation(bytes.into()).expect_err(part);
        assert!(error.what.contains(part), "{error}");
    };
    refuse(Vec::new(), "holds no cell");
    let tagged = |tags: &[u8]| packed(CellRef { tags, ..CellRef::put(b"f", b"q", 1, b"") });
    refuse(tagged(&[1, 0, 0]), "tags other than one time to live");
    refuse(tagged(&[TTL_TAG, 2, 0, 1, 0]), "tags other than one time to live");
    refuse(tagged(&[ttl_tag(5), ttl_tag(6)].concat()), "tags other than one time to live");
    let deletes = CellRef { tags: &ttl_tag(5), ..CellRef::delete(CellKind::DeleteColumn, b"f", b"q", 1) };
    refuse(packed(deletes), "deletes and yet carries tags");
    assert!(PackedCells::validate_mutation(tagged(&ttl_tag(5)).into()).is_ok());
    refuse(packed(CellRef::delete(CellKind::Delete, b"f", b"q", LATEST)), "must name its timestamp");
    refuse(vec![0; ROW_MUTATION_BYTES_MAX + 1], "the limit is 16777216");
    let fine = packed(CellRef::delete(CellKind::DeleteFamily, b"f", b"", LATEST));
    assert!(PackedCells::validate_mutation(fine.into()).is_ok());
}

#[test]
fn a_time_to_live_counts_from_the_timestamp() {
    let put = CellRef::put(b"f", b"q", 100, b"");
    assert_eq!(put.expires_ms(), i64::MAX);
    for (ttl_ms, expires_ms) in [(0, 100), (7, 107), (u64::MAX, i64::MAX)] {
        let tags = [&[9, 1, 0, 7][..], &ttl_tag(ttl_ms)].concat();
        assert_eq!((ttl_of(&tags), CellRef { tags: &tags, ..put }.expires_ms()), (Some(ttl_ms), expires_ms));
    }
    assert_eq!(ttl_of(&[TTL_TAG, 1, 0, 7]), None);
}

#[test]
fn every_cut_is_found() {
    let mut bytes = packed(CellRef::put(b"f", b"q", 1, b"value"));
    pack(&mut bytes, CellRef::put(b"f", b"r", 1, b"value"));
    let first = bytes.len() / 2;
    for cut in 1..bytes.len() {
        let valid = PackedCells::validate(Bytes::copy_from_slice(&bytes[..cut])).is_ok();
        assert_eq!(valid, cut == first, "cut at {cut}");
    }
}

#[test]
fn a_length_that_lies_is_refused_without_memory() {
    let mut bytes = packed(CellRef::put(b"f", b"q", 1, b"v"));
    bytes[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = PackedCells::validate(bytes.into()).expect_err("four billion bytes are not there");
    assert!(error.what.contains("malformed at byte 0"), "{error}");
}

fn cell_parts() -> impl Strategy<Value = (String, Vec<u8>, i64, Vec<u8>)> {
    ("[A-Za-z0-9_.-]{1,8}", proptest::collection::vec(any::<u8>(), 0..20), 0..=i64::MAX, any::<Vec<u8>>())
}

proptest! {
    #[test]
    fn round_trip(parts in proptest::collection::vec(cell_parts(), 0..6)) {
        let cells: Vec<CellRef<'_>> = parts
            .iter()
            .map(|(family, qualifier, timestamp, value)| {
                CellRef::put(family.as_bytes(), qualifier, *timestamp, value)
            })
            .collect();
        let packed = PackedCells::from_cells(cells.iter().copied()).expect("within the limits");
        let again = PackedCells::validate(packed.as_bytes().clone()).expect("own output");
        prop_assert_eq!(again.iter().collect::<Vec<_>>(), cells);
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let mut stamped = bytes.clone();
        stamp_in_place(&mut stamped, 1);
        let _ = PackedCells::validate_mutation(bytes.into());
    }

    #[test]
    fn a_flipped_byte_never_panics(parts in cell_parts(), at: prop::sample::Index, flip in 1u8..) {
        let (family, qualifier, timestamp, value) = &parts;
        let mut bytes = packed(CellRef::put(family.as_bytes(), qualifier, *timestamp, value));
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(cells) = PackedCells::validate(bytes.into()) {
            prop_assert!(cells.iter().count() >= 1);
        }
    }
}
