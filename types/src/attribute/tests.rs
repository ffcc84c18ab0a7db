//! Attributes by name: what is taken, and what is refused with which words.

use super::*;
use crate::name::{FamilyName, TableName};
use crate::schema::{Bloom, Compression, FamilyRules, FamilyStorage, SplitPolicy};

fn table() -> TableSchema {
    TableSchema::new(TableName::new("t").expect("a name"))
}

fn family() -> FamilySchema {
    FamilySchema::new(FamilyName::new("f").expect("a name"))
}

#[test]
fn family_attributes_are_set() {
    let mut family = family();
    for (name, value) in [("versions", "5"), ("min_versions", "2"), ("ttl", "90"), ("keep_deleted_cells", "true")] {
        family.set_attribute(name, value).expect(name);
    }
    assert_eq!((family.rules.versions, family.rules.min_versions), (5, 2));
    assert_eq!((family.rules.ttl_ms, family.rules.keep_deleted_cells), (Some(90_000), crate::schema::KeepDeleted::Yes));
    family.set_attribute("ttl", "none").expect("none takes it away");
    assert_eq!(family.rules.ttl_ms, None);
}

#[test]
fn storage_attributes_are_set() {
    let mut family = family();
    assert_eq!(
        family.storage,
        FamilyStorage { compression: Compression::Lz4, bloom: Bloom::Row, block_size: 16 << 10, in_memory: false }
    );
    for (name, value) in [("compression", "zstd"), ("bloom", "rowcol"), ("block_size", "4KiB"), ("in_memory", "true")] {
        family.set_attribute(name, value).expect(name);
    }
    assert_eq!(
        family.storage,
        FamilyStorage { compression: Compression::Zstd, bloom: Bloom::RowCol, block_size: 4 << 10, in_memory: true }
    );
    assert_eq!(family.rules, FamilyRules::default(), "what readers see is another matter");
    for (name, value) in [("compression", "none"), ("bloom", "none"), ("in_memory", "false")] {
        family.set_attribute(name, value).expect(name);
    }
    assert_eq!((family.storage.compression, family.storage.bloom), (Compression::None, Bloom::None));
}

#[test]
fn table_attributes_are_set() {
    let mut table = table();
    let attributes = [
        ("region_size", "16KiB"),
        ("flush_size", "1MiB"),
        ("key", "user:u64, time:desc i64"),
        ("atomic", "1"),
        ("bloom_prefix", "2"),
        ("read_only", "true"),
        ("split_policy", "none"),
        ("history", "1h"),
        ("meta.owner", "ann"),
    ];
    for (name, value) in attributes {
        table.set_attribute(name, value).expect(name);
    }
    assert_eq!((table.split_policy, table.history_ms), (SplitPolicy::None, 3_600_000));
    assert_eq!((table.region_size, table.flush_size), (16 << 10, 1 << 20));
    assert_eq!((table.atomic, table.bloom_prefix), (1, 2));
    assert!(table.read_only);
    assert_eq!(table.key.as_ref().map(ToString::to_string).as_deref(), Some("user:u64, time:desc i64"));
    assert_eq!(table.metadata.get("owner").map(String::as_str), Some("ann"));
    table.set_attribute("meta.owner", "").expect("an empty value takes it away");
    assert!(table.metadata.is_empty());
}

#[test]
fn families_have_metadata_of_their_own() {
    let mut family = family();
    family.set_attribute("meta.unit", "tenths of a degree").expect("free metadata");
    assert_eq!(family.metadata.get("unit").map(String::as_str), Some("tenths of a degree"));
    family.set_attribute("meta.unit", "").expect("an empty value takes it away");
    assert!(family.metadata.is_empty());
}

#[test]
fn what_is_shown_can_be_set_again() {
    let mut shown = table();
    let attributes = [
        ("region_size", "16KiB"),
        ("flush_size", "4097B"),
        ("split_policy", "none"),
        ("history", "1d"),
        ("key", "user:u64, time:desc i64"),
        ("atomic", "1"),
        ("read_only", "true"),
        ("meta.owner", "ann"),
    ];
    for (name, value) in attributes {
        shown.set_attribute(name, value).expect(name);
    }
    for described in [shown, table()] {
        let mut again = table();
        for (name, value) in described.attributes() {
            again.set_attribute(&name, &value).expect(&name);
        }
        assert_eq!(again, described);
    }
    let mut shown = family();
    for (name, value) in [("versions", "3"), ("ttl", "7d"), ("bloom", "rowcol"), ("meta.unit", "m/s")] {
        shown.set_attribute(name, value).expect(name);
    }
    for described in [shown, family()] {
        let mut again = family();
        for (name, value) in described.attributes() {
            again.set_attribute(&name, &value).expect(&name);
        }
        assert_eq!(again, described);
    }
}

#[test]
fn a_slip_of_the_pen_is_answered_with_what_was_meant() {
    let meant = |error: Result<(), Invalid>| {
        let what = error.expect_err("no attribute").what;
        what.split_once("did you mean ").map(|(_, rest)| rest.split('?').next().unwrap_or_default().to_owned())
    };
    assert_eq!(meant(table().set_attribute("regionsize", "1")).as_deref(), Some("region_size"));
    assert_eq!(meant(table().set_attribute("readonly", "true")).as_deref(), Some("read_only"));
    assert_eq!(meant(family().set_attribute("versoins", "1")).as_deref(), Some("versions"));
    assert_eq!(meant(family().set_attribute("tll", "1")).as_deref(), Some("ttl"));
    assert_eq!(meant(family().set_attribute("tab", "1")), None, "two of three letters differ from `ttl`");
    assert_eq!(meant(table().set_attribute("colour", "red")), None);
    let error = table().set_attribute("versions", "3").expect_err("a family's").what;
    assert!(error.contains("it is one of a family"), "{error}");
}

#[test]
fn what_is_unknown_is_refused_with_what_there_is() {
    let error = table().set_attribute("regionsize", "1MiB").expect_err("a slip of the pen").what;
    assert!(error.contains("\"regionsize\"") && error.contains("region_size, flush_size"), "{error}");
    let error = family().set_attribute("region_size", "1MiB").expect_err("a table's, not a family's").what;
    assert!(error.contains("versions, min_versions, ttl"), "{error}");
}

#[test]
fn values_out_of_range_name_the_range() {
    let table_error = |name, value| table().set_attribute(name, value).expect_err(value).what;
    let family_error = |name, value| family().set_attribute(name, value).expect_err(value).what;
    let error = table_error("region_size", "16383B");
    assert!(error.contains("16383B") && error.contains("16KiB"), "{error}");
    assert!(table_error("flush_size", "4095B").contains("4KiB"));
    assert!(table_error("read_only", "yes").contains("neither true nor false"));
    assert!(table_error("meta.", "x").contains("metadata"));
    assert!(family_error("versions", "0").contains("from 1 to"));
    assert!(family_error("versions", "-1").contains("from 1 to"));
    assert!(family_error("ttl", "0").contains("not a time span"));
    assert!(family_error("compression", "gzip").contains("none, lz4 nor zstd"));
    assert!(family_error("bloom", "col").contains("none, row nor rowcol"));
    assert!(family_error("block_size", "16384").contains("not a size"));
    for size in ["1023B", "1048577B", "4GiB", "4194305KiB"] {
        assert!(family_error("block_size", size).contains("it is 1KiB to 1MiB"), "{size}");
    }
    assert!(table_error("split_policy", "load").contains("neither size nor none"));
    assert!(table_error("history", "0").contains("not a time span"));
    assert!(family_error("meta.", "x").contains("metadata"));
    assert!(family_error("in_memory", "1").contains("neither true nor false"));
    assert!(table_error("bloom_prefix", "-1").contains("bloom_prefix=-1"));
}

#[test]
fn sizes_are_read_strictly() {
    for (text, bytes) in [("0B", 0), ("1KiB", 1 << 10), ("3MiB", 3 << 20), ("2GiB", 2 << 30)] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "B", "1", "1MB", "-1B", "+1B", "1.5MiB", " 1B", "1 MiB", "99999999999GiB", "18446744073709551616B"]
    {
        assert!(parse_size(text).is_err(), "{text:?}");
    }
}

#[test]
fn time_spans_are_seconds_unless_they_say_otherwise() {
    for (text, ms) in [("1", 1_000), ("1ms", 1), ("2s", 2_000), ("3m", 180_000), ("4h", 14_400_000), ("1d", 86_400_000)]
    {
        assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
    }
    for text in ["", "ms", "0", "0d", "-5", "1w", "1.5h", "99999999999999999d"] {
        assert!(parse_duration_ms(text).is_err(), "{text:?}");
    }
}

#[test]
fn values_that_completion_offers_are_accepted() {
    let (mut family, mut table) = (family(), table());
    for name in super::family_attributes() {
        attribute_values(name).iter().for_each(|value| family.set_attribute(name, value).expect(name));
    }
    for name in super::table_attributes() {
        attribute_values(name).iter().for_each(|value| table.set_attribute(name, value).expect(name));
    }
    let known: Vec<&str> = super::family_attributes().chain(super::table_attributes()).collect();
    assert!(VALUES.iter().all(|(name, _)| known.contains(name)), "{known:?}");
    assert!(known.contains(&"meta.") && known.contains(&"type."));
}
