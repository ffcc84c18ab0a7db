//! Schemas, descriptors, attributes and names; packed cells and rows; the bounded reader below all of them.

use bytes::Bytes;
use terrane_types::cell::stamp_in_place;
use terrane_types::fuzzing::{Damage, Dice, Format, again, draw, no_limits, round_trip};
use terrane_types::limits::{
    FAMILIES_MAX, METADATA_ENTRIES_MAX, METADATA_VALUE_BYTES_MAX, NAME_CHARS_MAX, QUALIFIER_BYTES_MAX, ROW_BYTES_MAX,
    TAGS_BYTES_MAX, VALUE_BYTES_MAX,
};
use terrane_types::{
    ByteReader, CellKind, CellRef, FamilyName, FamilySchema, Invalid, KeyRange, NamespaceName, PackedCells, PackedRows,
    RegionDescriptor, TableName, TableSchema, escape, unescape,
};

/// The formats of this module.
pub const FORMATS: &[Format] = &[TABLE_SCHEMA, DESCRIPTOR, ATTRIBUTES, NAMES, CELLS, ROWS, READER];

const TABLE_SCHEMA: Format = Format {
    name: "table-schema",
    damage: Damage::Undetected,
    read: |bytes| again(TableSchema::decode(bytes), |schema| schema.encode()),
    draw: |dice| {
        let schema = draw::schema(dice);
        round_trip(&schema, schema.encode(), TableSchema::decode)
    },
    limits: || {
        let mut most = draw::schema(&mut Dice::new(1));
        let family = |number: usize| FamilyName::new(&format!("{number:0>NAME_CHARS_MAX$}")).expect("a valid name");
        most.families = (0..FAMILIES_MAX).map(|number| FamilySchema::new(family(number))).collect();
        let entry = |number: usize| (format!("{number:0>NAME_CHARS_MAX$}"), "v".repeat(METADATA_VALUE_BYTES_MAX));
        most.metadata = (0..METADATA_ENTRIES_MAX).map(entry).collect();
        most.check().expect("a schema at its limits is accepted");
        vec![round_trip(&most, most.encode(), TableSchema::decode)]
    },
};

const DESCRIPTOR: Format = Format {
    name: "region-descriptor",
    damage: Damage::Undetected,
    read: |bytes| again(RegionDescriptor::decode(bytes), |descriptor| descriptor.encode()),
    draw: |dice| {
        let descriptor = draw::descriptor(dice);
        round_trip(&descriptor, descriptor.encode(), RegionDescriptor::decode)
    },
    limits: || {
        let row = |byte| vec![byte; ROW_BYTES_MAX];
        let range = KeyRange::new(row(b'a'), row(b'z')).expect("the range is not reversed");
        let descriptor = RegionDescriptor { range, ..draw::descriptor(&mut Dice::new(1)) };
        vec![round_trip(&descriptor, descriptor.encode(), RegionDescriptor::decode)]
    },
};

/// Lines of `name=value` of a table, then an empty line and those of a family: what `describe` shows can be set again.
const ATTRIBUTES: Format = Format {
    name: "attributes",
    damage: Damage::Undetected,
    read: |bytes| {
        let text = std::str::from_utf8(bytes).ok()?;
        let (table, family) = with_attributes(text)?;
        Some(shown_attributes(&table, &family))
    },
    draw: |dice| {
        let schema = draw::schema(dice);
        let text = shown_attributes(&schema, &schema.families[0]);
        // The text has a value on each line.
        let text: String = String::from_utf8(text).expect("attributes are text");
        let (table, family) =
            with_attributes(&text).unwrap_or_else(|| panic!("described attributes are refused:\n{text}"));
        shown_attributes(&table, &family)
    },
    limits: no_limits,
};

fn with_attributes(text: &str) -> Option<(TableSchema, FamilySchema)> {
    let mut table = TableSchema::new(TableName::new("t").expect("a valid name"));
    let mut family = FamilySchema::new(FamilyName::new("f").expect("a valid name"));
    let (of_table, of_family) = text.split_once("\n\n")?;
    for line in of_table.lines() {
        let (name, value) = line.split_once('=')?;
        table.set_attribute(name, value).map_err(|error| error.to_string()).ok()?;
    }
    for line in of_family.lines() {
        let (name, value) = line.split_once('=')?;
        family.set_attribute(name, value).map_err(|error| error.to_string()).ok()?;
    }
    Some((table, family))
}

/// The attributes, without values that have line ends.
fn shown_attributes(table: &TableSchema, family: &FamilySchema) -> Vec<u8> {
    let lines = |attributes: std::collections::BTreeMap<String, String>| -> String {
        let lines = attributes.iter().filter(|(name, value)| !value.contains(['\n', '\r']) && !name.contains('='));
        lines.map(|(name, value)| format!("{name}={value}\n")).collect()
    };
    format!("{}\n{}", lines(table.attributes()), lines(family.attributes())).into_bytes()
}

/// A name of each kind, and escaped bytes.
const NAMES: Format = Format {
    name: "names",
    damage: Damage::Undetected,
    read: |bytes| {
        let escaped = escape(bytes);
        assert_eq!(unescape(&escaped).as_deref(), Ok(bytes), "escaped bytes are read as others");
        let text = std::str::from_utf8(bytes).ok()?;
        unescape(text).map_err(|error| error.to_string()).ok();
        if let Ok(name) = NamespaceName::new(text).map_err(|error| error.to_string()) {
            assert_eq!(name.as_str(), text, "a name is shown as another one");
        }
        for name in [FamilyName::new(text), text.parse()] {
            if let Ok(name) = name.map_err(|error: Invalid| error.to_string()) {
                assert_eq!(name.to_string().parse(), Ok(name), "a family is shown as another one");
            }
        }
        again(TableName::new(text), |name| name.to_string().into_bytes())
    },
    draw: |dice| {
        let name = draw::schema(dice).name;
        round_trip(&name, name.to_string().into_bytes(), |bytes| TableName::new(&String::from_utf8_lossy(bytes)))
    },
    limits: no_limits,
};

const CELLS: Format = Format {
    name: "packed-cells",
    damage: Damage::Undetected,
    read: |bytes| {
        let cells = Bytes::copy_from_slice(bytes);
        PackedCells::validate_mutation(cells.clone()).map_err(|error| error.to_string()).ok();
        PackedCells::stored(cells.clone()).map_err(|error| error.to_string()).ok();
        stamp_in_place(&mut bytes.to_vec(), 5);
        let cells = PackedCells::validate(cells).map_err(|error| error.to_string()).ok()?;
        let mut again = Vec::new();
        for cell in cells.iter() {
            drop(cell.to_string());
            terrane_types::cell::pack(&mut again, cell);
        }
        assert!(again == bytes, "cells are packed as other ones");
        Some(again)
    },
    draw: |dice| {
        let families = [draw::family(dice), draw::family(dice)];
        draw::cells(dice, &families, 6)
    },
    limits: || {
        let (family, qualifier) = ("f".repeat(NAME_CHARS_MAX), vec![0xFF; QUALIFIER_BYTES_MAX]);
        // A tag section of one tag.
        let mut tags = vec![0; TAGS_BYTES_MAX];
        tags[1..3].copy_from_slice(&u16::try_from(TAGS_BYTES_MAX - 3).expect("it fits").to_le_bytes());
        let value = vec![7; VALUE_BYTES_MAX];
        let timestamp = terrane_types::limits::TIMESTAMP_MAX;
        let cell = CellRef {
            family: family.as_bytes(),
            qualifier: &qualifier,
            timestamp,
            kind: CellKind::Put,
            tags: &tags,
            value: &value,
        };
        let mut out = Vec::new();
        terrane_types::cell::pack(&mut out, cell);
        vec![out]
    },
};

const ROWS: Format = Format {
    name: "packed-rows",
    damage: Damage::Undetected,
    read: |bytes| {
        let mut again = Vec::new();
        for row in PackedRows::new(Bytes::copy_from_slice(bytes)) {
            let row = row.map_err(|error| error.to_string()).ok()?;
            terrane_types::pack_row(&mut again, row.row.as_bytes(), row.cells.as_bytes());
        }
        assert!(again == bytes, "rows are packed as other ones");
        Some(again)
    },
    draw: |dice| {
        let families = [draw::family(dice)];
        let mut out = Vec::new();
        for _ in 0..dice.below(5) {
            let (row, cells) = (draw::row(dice), draw::cells(dice, &families, 3));
            terrane_types::pack_row(&mut out, &row, &cells);
        }
        out
    },
    limits: || {
        let mut out = Vec::new();
        terrane_types::pack_row(&mut out, &vec![0xFF; ROW_BYTES_MAX], &[]);
        vec![out]
    },
};

/// A program for the reader below all binary formats, and its input: borrowed and shared bytes read alike.
const READER: Format = Format {
    name: "byte-reader",
    damage: Damage::Undetected,
    read: |bytes| {
        let (steps, input) = bytes.split_at_checked(8)?;
        let mut borrowed = ByteReader::new(input);
        let mut shared = ByteReader::new(Bytes::copy_from_slice(input));
        for step in steps {
            let same = match step % 12 {
                0 => borrowed.u8() == shared.u8(),
                1 => borrowed.u16() == shared.u16(),
                2 => borrowed.u32() == shared.u32(),
                3 => borrowed.u64() == shared.u64(),
                4 => borrowed.i64() == shared.i64(),
                5 => borrowed.flag() == shared.flag(),
                6 => borrowed.count(usize::from(step / 12)) == shared.count(usize::from(step / 12)),
                7 => borrowed.bytes().map(<[u8]>::to_vec) == shared.bytes().map(|bytes| bytes.to_vec()),
                8 => borrowed.short().map(<[u8]>::to_vec) == shared.short().map(|bytes| bytes.to_vec()),
                9 => borrowed.text() == shared.text(),
                10 => borrowed.option(ByteReader::u16) == shared.option(ByteReader::u16),
                _ => borrowed.list(ByteReader::u16) == shared.list(ByteReader::u16),
            };
            assert!(same, "borrowed and shared bytes are read differently");
            assert_eq!((borrowed.offset(), borrowed.remaining()), (shared.offset(), shared.remaining()));
            assert_eq!(borrowed.offset() + borrowed.remaining(), input.len(), "the reader lost bytes");
        }
        Some(bytes.to_vec())
    },
    draw: |dice| [&dice.array::<8>()[..], &dice.bytes(100)].concat(),
    limits: no_limits,
};
