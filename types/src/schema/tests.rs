//! Schemas and descriptors: what fits together, and their binary form.

use proptest::prelude::*;

use super::*;
use crate::ids::{GroupId, RegionEpoch, RegionId};
use crate::limits::{KEY_PARTS_MAX, NAME_CHARS_MAX};
use crate::range::KeyRange;

fn schema() -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("ns:t").expect("a name"));
    schema.table = TableId(7);
    schema.version = 3;
    schema.add_family(FamilySchema::new(FamilyName::new("info").expect("a name"))).expect("the first");
    let mut data = FamilySchema::new(FamilyName::new("data").expect("a name"));
    data.rules =
        FamilyRules { versions: 5, min_versions: 2, ttl_ms: Some(1_000), keep_deleted_cells: KeepDeleted::Yes };
    data.storage =
        FamilyStorage { compression: Compression::Zstd, bloom: Bloom::RowCol, block_size: 4 << 10, in_memory: true };
    data.metadata.insert("unit".to_owned(), "K".to_owned());
    schema.add_family(data).expect("the second");
    let attributes = [
        ("key", "bucket4, user:text, time:desc i64"),
        ("atomic", "2"),
        ("bloom_prefix", "1"),
        ("history", "1s"),
        ("split_policy", "none"),
        ("meta.owner", "ann"),
    ];
    for (name, value) in attributes {
        schema.set_attribute(name, value).expect(name);
    }
    schema
}

fn descriptor() -> RegionDescriptor {
    RegionDescriptor {
        region: RegionId(1 << 48 | 5),
        table: TableId(7),
        range: KeyRange::new("a", "m").expect("ordered"),
        epoch: RegionEpoch(2),
        group: GroupId(3),
        schema_version: 4,
    }
}

/// A name of the greatest length, each of them another.
fn longest_name(number: usize) -> String {
    format!("{number:0>NAME_CHARS_MAX$}")
}

/// A schema with everything that is counted or measured at its limit, apart from metadata.
fn schema_at_its_limits() -> TableSchema {
    let mut schema = TableSchema::new(
        TableName::new(&format!("{}:{}", longest_name(1), longest_name(2))).expect("names of the greatest length"),
    );
    (schema.table, schema.version) = (TableId(u64::MAX), u64::MAX);
    for number in 0..FAMILIES_MAX {
        let mut family = FamilySchema::new(FamilyName::new(&longest_name(number)).expect("the longest name"));
        let rules = FamilyRules { versions: VERSIONS_MAX, min_versions: VERSIONS_MAX, ..family.rules };
        family.rules =
            FamilyRules { ttl_ms: Some(i64::MAX.cast_unsigned()), keep_deleted_cells: KeepDeleted::Yes, ..rules };
        family.storage.block_size = crate::limits::BLOCK_SIZE_MAX;
        schema.add_family(family).expect("not too many");
    }
    let parts = (0..KEY_PARTS_MAX).map(|number| format!("{}:desc bytes32767", longest_name(number)));
    schema.key = Some(parts.collect::<Vec<_>>().join(", ").parse().expect("as many parts as there may be"));
    (schema.atomic, schema.bloom_prefix) = (KEY_PARTS_MAX as u32, KEY_PARTS_MAX as u32);
    (schema.region_size, schema.flush_size) = (u64::MAX, u64::MAX);
    schema.history_ms = i64::MAX.cast_unsigned();
    (schema.read_only, schema.split_policy) = (true, SplitPolicy::None);
    schema
}

#[test]
fn attributes_of_other_protocols_come_back_byte_for_byte() {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    schema.add_family(FamilySchema::new(FamilyName::new("f").unwrap())).unwrap();
    schema.foreign.insert(Bytes::from_static(b"\xff\0"), Bytes::new());
    schema.families[0].foreign.insert(Bytes::new(), Bytes::from_static(b"\0\xfe"));
    assert_eq!(TableSchema::decode(&schema.encode()).unwrap(), schema);
    schema.foreign.insert(Bytes::from_static(b"large"), vec![0; crate::limits::SCHEMA_BYTES_MAX].into());
    assert!(schema.check().is_err());
}

#[test]
fn every_flag_and_name_of_a_family_round_trips() {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    for name in ["f.-_", ".f", "a b", "ä"] {
        schema.add_family(FamilySchema::new(FamilyName::new(name).unwrap())).unwrap();
    }
    (schema.strict_reads, schema.disabled) = (true, true);
    schema.families[0].rules.keep_deleted_cells = KeepDeleted::Ttl;
    schema.families[1].rules.keep_deleted_cells = KeepDeleted::Yes;
    assert_eq!(TableSchema::decode(&schema.encode()).unwrap(), schema);
    let twice = [&schema.encode()[..], &[0]].concat();
    assert!(TableSchema::decode(&twice).is_err(), "nothing may follow");
}

#[test]
fn what_passes_the_check_at_every_limit_is_read_again() {
    let mut schema = schema_at_its_limits();
    let value = "v".repeat(METADATA_VALUE_BYTES_MAX);
    for number in 0..METADATA_ENTRIES_MAX {
        schema.metadata.insert(longest_name(number), value.clone());
        schema.families[0].metadata.insert(longest_name(number), value.clone());
    }
    schema.check().expect("at its limits");
    assert_eq!(TableSchema::decode(&schema.encode()), Ok(schema.clone()));
    let row = vec![0xff; crate::limits::ROW_BYTES_MAX];
    for range in [KeyRange::new("", row.clone()), KeyRange::new(row, "")] {
        let range = range.expect("a row is a bound");
        range.check_region().expect("a row is a boundary");
        let descriptor = RegionDescriptor { range, epoch: RegionEpoch(u64::MAX), ..descriptor() };
        assert_eq!(RegionDescriptor::decode(&descriptor.encode()), Ok(descriptor));
    }
}

#[test]
fn one_beyond_each_limit_is_refused_by_name() {
    let refusal = |change: &dyn Fn(&mut TableSchema)| {
        let mut schema = schema_at_its_limits();
        change(&mut schema);
        schema.check().expect_err("beyond a limit").what
    };
    let one_more = |schema: &mut TableSchema| {
        schema.families.push(FamilySchema::new(FamilyName::new("one.more").expect("a name")));
    };
    assert!(refusal(&one_more).contains("65 families; the limit is 64"));
    let versions = refusal(&|schema| schema.families[0].rules.versions = VERSIONS_MAX + 1);
    assert!(versions.contains("versions=2147483648"), "{versions}");
    assert!(refusal(&|schema| schema.atomic += 1).contains("atomic=33"));
    assert!(refusal(&|schema| schema.bloom_prefix += 1).contains("bloom_prefix=33"));
    let long = |schema: &mut TableSchema| {
        schema.metadata.insert("note".into(), "v".repeat(METADATA_VALUE_BYTES_MAX + 1));
    };
    assert!(refusal(&long).contains("4097 bytes; the limit is 4096"));
    let named = |schema: &mut TableSchema| drop(schema.metadata.insert("n".repeat(NAME_CHARS_MAX + 1), "v".into()));
    assert!(refusal(&named).contains("not the name of a metadata entry"));
    let many = |schema: &mut TableSchema| {
        schema.metadata = (0..=METADATA_ENTRIES_MAX).map(|number| (longest_name(number), String::new())).collect();
    };
    assert!(refusal(&many).contains("65 entries of metadata"));
    let large = |schema: &mut TableSchema| {
        let entries = |_| (0..METADATA_ENTRIES_MAX).map(|at| (longest_name(at), "v".repeat(METADATA_VALUE_BYTES_MAX)));
        schema.families.iter_mut().for_each(|family| family.metadata = entries(()).collect());
    };
    assert!(refusal(&large).contains("the limit is 1048576"));
    assert!(FamilyName::new(&"f".repeat(NAME_CHARS_MAX + 1)).is_err());
    let parts = (0..=KEY_PARTS_MAX).map(|number| format!("p{number}:u32")).collect::<Vec<_>>().join(", ");
    assert!(KeyDeclaration::parse(&parts).expect_err("too many parts").what.contains("1 to 32 parts"));
    assert!(KeyDeclaration::parse("p:bytes32768").is_err());
}

#[test]
fn families_are_sorted_and_named_once() {
    let mut schema = schema();
    let names: Vec<&str> = schema.families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names, ["data", "info"]);
    let again = FamilySchema::new(FamilyName::new("data").expect("a name"));
    assert!(schema.add_family(again).expect_err("there already").what.contains("data already"));
    assert!(schema.family(b"info").is_some() && schema.family(b"other").is_none());
}

#[test]
fn a_schema_that_does_not_fit_together_is_refused() {
    assert_eq!(schema().check(), Ok(()));
    let broken = |change: fn(&mut TableSchema), part: &str| {
        let mut schema = schema();
        change(&mut schema);
        let error = schema.check().expect_err(part).what;
        assert!(error.contains(part), "{error}");
    };
    broken(|schema| schema.families.clear(), "no family");
    broken(|schema| schema.name = TableName::meta(), "reserved");
    broken(|schema| schema.region_size = 1, "16KiB");
    broken(|schema| schema.flush_size = 1, "4KiB");
    broken(|schema| schema.atomic = 4, "more parts than the key has: 3");
    broken(|schema| schema.key = None, "atomic=2 counts key parts, but table ns:t declares no key");
    broken(|schema| schema.bloom_prefix = 4, "bloom_prefix=4 counts more parts than the key has: 3");
    broken(|schema| (schema.key, schema.atomic) = (None, 0), "bloom_prefix=1 counts key parts, but table ns:t");
    broken(|schema| schema.families[0].storage.block_size = 0, "family data: block_size=0B");
    broken(|schema| schema.families[0].rules.min_versions = 6, "family data: min_versions=6");
    broken(|schema| schema.families[0].rules.versions = 0, "versions=0");
    let many = |count: usize| (0..count).map(|number| (format!("n{number}"), "v".to_owned())).collect();
    assert!(check_entries(&many(METADATA_ENTRIES_MAX)).is_ok());
    assert!(check_entries(&many(METADATA_ENTRIES_MAX + 1)).expect_err("too many").what.contains("the limit is 64"));
    broken(
        |schema| drop(schema.families[0].metadata.insert("n".into(), "v".repeat(5_000))),
        "family data: the metadata",
    );
    broken(|schema| schema.families[1].name = schema.families[0].name.clone(), "family data twice");
    broken(|schema| schema.families = vec![schema.families[0].clone(); FAMILIES_MAX + 1], "the limit is 64");
}

#[test]
fn binary_forms_round_trip() {
    assert_eq!(TableSchema::decode(&schema().encode()), Ok(schema()));
    let plain = TableSchema::new(TableName::new("t").expect("a name"));
    assert_eq!(TableSchema::decode(&plain.encode()), Ok(plain));
    assert_eq!(RegionDescriptor::decode(&descriptor().encode()), Ok(descriptor()));
}

#[test]
fn the_declared_types_of_columns_round_trip() {
    let mut typed = schema();
    typed.families[0].set_attribute(r"type.count\x00", "i64").expect("a type");
    let bytes = typed.encode();
    assert_eq!(TableSchema::decode(&bytes).as_ref(), Ok(&typed));
    for cut in 0..bytes.len() {
        assert!(TableSchema::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert_eq!(typed.value_type(b"data", b"count\0"), Some(ValueType::I64));
    assert_eq!((typed.value_type(b"data", b"other"), typed.value_type(b"none", b"count\0")), (None, None));
    typed.families[0].set_attribute(r"type.count\x00", "none").expect("no type");
    assert_eq!(typed, schema());
}

#[test]
fn the_declared_types_of_columns_have_limits() {
    let mut schema = schema();
    let refusal = |schema: &TableSchema| schema.check().expect_err("beyond a limit").what;
    schema.families[0].types = (0..=COLUMN_TYPES_MAX).map(|at| (at.to_string().into(), ValueType::I32)).collect();
    assert!(refusal(&schema).contains("family data: it declares the types of 1025 columns; the limit is 1024"));
    schema.families[0].types = [("q".repeat(QUALIFIER_BYTES_MAX + 1).into(), ValueType::I32)].into();
    assert!(refusal(&schema).contains("whose qualifier has"));
    let refused = schema.families[0].set_attribute("type.q", "int").expect_err("no such type");
    assert!(refused.what.contains("i32, i64"), "{refused}");
}

#[test]
fn damaged_storage_attributes_are_refused() {
    let bytes = schema().encode();
    // The first family, `data`, ends in compression 2, bloom 2, blocks of 4096 bytes, in memory.
    let pattern = [2, 2, 0, 16, 0, 0, 1];
    let at = bytes.windows(pattern.len()).position(|window| window == pattern).expect("the family's storage");
    for (offset, byte, named) in [(0, 9, "compression 9"), (1, 9, "bloom 9"), (5, 1, "block_size=16781312B")] {
        let mut damaged = bytes.clone();
        damaged[at + offset] = byte;
        let error = TableSchema::decode(&damaged).expect_err(named).what;
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn damaged_binary_forms_are_refused() {
    let bytes = descriptor().encode();
    for cut in 0..bytes.len() {
        assert!(RegionDescriptor::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(RegionDescriptor::decode(&longer).expect_err("left over").what.contains("1 bytes follow the last field"));
    let mut newer = bytes;
    newer[0] = 2;
    assert!(RegionDescriptor::decode(&newer).expect_err("another version").what.contains("format 2"));

    let bytes = schema().encode();
    for cut in 0..bytes.len() {
        assert!(TableSchema::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for format in [0, 2] {
        let mut other = bytes.clone();
        other[0] = format;
        let error = TableSchema::decode(&other).expect_err("another version").what;
        assert!(error.contains(&format!("format {format}; this build reads format 1")), "{error}");
    }
}

/// What format 1 writes for [`schema`].
const SCHEMA_IN_FORMAT_1: &[u8] = b"\
    \x01\
    \x07\0\0\0\0\0\0\0\
    \x04\0\0\0ns:t\
    \x03\0\0\0\0\0\0\0\
    \x02\0\0\0\
    \x04\0\0\0data\x05\0\0\0\x02\0\0\0\xe8\x03\0\0\0\0\0\0\x01\x02\x02\0\x10\0\0\x01\
    \x01\0\0\0\x04\0\0\0unit\x01\0\0\0K\0\0\0\0\0\0\0\0\
    \x04\0\0\0info\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\0\x40\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\x10\0\0\0\0\
    \0\0\0\x04\0\0\0\0\
    \x21\0\0\0bucket4, user:text, time:desc i64\
    \x02\0\0\0\
    \x01\0\0\0\
    \0\
    \x01\0\0\0\x05\0\0\0owner\x03\0\0\0ann\
    \xe8\x03\0\0\0\0\0\0\
    \x01\0\0\0\0\0\0";

#[test]
fn the_format_of_schemas_is_fixed() {
    assert_eq!(schema().encode(), SCHEMA_IN_FORMAT_1);
    assert_eq!(TableSchema::decode(SCHEMA_IN_FORMAT_1), Ok(schema()));
}

#[test]
fn the_format_of_descriptors_is_fixed() {
    let mut fixture = vec![1];
    for number in [9u64, 8] {
        fixture.extend_from_slice(&number.to_le_bytes());
    }
    fixture.extend_from_slice(&[1, 0, 0, 0, b'a', 0, 0, 0, 0]);
    for number in [7u64, 6, 5] {
        fixture.extend_from_slice(&number.to_le_bytes());
    }
    let expected = RegionDescriptor {
        region: RegionId(9),
        table: TableId(8),
        range: KeyRange::new("a", "").expect("ordered"),
        epoch: RegionEpoch(7),
        group: GroupId(6),
        schema_version: 5,
    };
    assert_eq!(RegionDescriptor::decode(&fixture), Ok(expected));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = TableSchema::decode(&bytes);
        let _ = RegionDescriptor::decode(&bytes);
    }

    #[test]
    fn a_flipped_byte_never_panics(at: prop::sample::Index, flip in 1u8..) {
        let mut bytes = schema().encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let _ = TableSchema::decode(&bytes);
    }
}

#[test]
fn what_attributes_cannot_express_is_refused_at_the_edge_and_read_from_logs() {
    let mut schema = TableSchema::new("t".parse().unwrap());
    schema.add_family(FamilySchema::new("f".parse().unwrap())).unwrap();
    let refusal = |change: &dyn Fn(&mut TableSchema)| {
        let mut changed = schema.clone();
        change(&mut changed);
        assert_eq!(TableSchema::decode(&changed.encode()), Ok(changed.clone()), "logs are read as they are");
        changed.check().unwrap_err().what
    };
    let empty = |schema: &mut TableSchema| drop(schema.metadata.insert("note".into(), String::new()));
    assert!(refusal(&empty).contains("the metadata entry note is empty"));
    let ttl = |schema: &mut TableSchema| schema.families[0].rules.ttl_ms = Some(1 << 63);
    assert!(refusal(&ttl).contains("family f: ttl=9223372036854775808ms is out of range"));
    assert!(refusal(&|schema| schema.history_ms = u64::MAX).contains("history=18446744073709551615ms"));
}
