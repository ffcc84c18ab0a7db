//! Schemas and descriptors: what fits together, and their binary form.

use proptest::prelude::*;

use super::*;

fn schema() -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("ns:t").expect("a name"));
    schema.table = TableId(7);
    schema.version = 3;
    schema.add_family(FamilySchema::new(FamilyName::new("info").expect("a name"))).expect("the first");
    let mut data = FamilySchema::new(FamilyName::new("data").expect("a name"));
    data.rules = FamilyRules { versions: 5, min_versions: 2, ttl_ms: Some(1_000), keep_deleted_cells: true };
    schema.add_family(data).expect("the second");
    for (name, value) in [("key", "bucket4, user:text, time:desc i64"), ("atomic", "2"), ("meta.owner", "ann")] {
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
    broken(|schema| schema.key = None, "declares no key");
    broken(|schema| schema.families[0].rules.min_versions = 6, "family data: min_versions=6");
    broken(|schema| schema.families[0].rules.versions = 0, "versions=0");
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
fn damaged_binary_forms_are_refused() {
    let bytes = descriptor().encode();
    for cut in 0..bytes.len() {
        assert!(RegionDescriptor::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(RegionDescriptor::decode(&longer).expect_err("left over").what.contains("1 bytes that do not belong"));
    let mut newer = bytes;
    newer[0] = 2;
    assert!(RegionDescriptor::decode(&newer).expect_err("another version").what.contains("format 2"));
}

#[test]
fn the_first_format_is_still_read() {
    // Bytes written by format 1: they stay readable for as long as data directories hold them.
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
