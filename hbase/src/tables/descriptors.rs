//! Descriptors of tables and families as HBase's clients write them: upper-case names with values as text.
//!
//! What we have in like meaning becomes ours, and for codecs and split policies the nearest does (`substitutes.rs`). An attribute that would change what the table does and that we lack is refused.
//! The rest (hints about caches and files, settings, and names that HBase does not know either) is kept and returned byte for
//! byte, so that a program that changes a descriptor finds it as it left it: what is text as metadata under `hbase.NAME`, which
//! Terrane's tools show, and whatever does not fit there as a foreign attribute.

use bytes::Bytes;
use terrane_types::limits::{METADATA_ENTRIES_MAX, VERSIONS_MAX};
use terrane_types::schema::{Foreign, is_metadata};
use terrane_types::{Bloom, FamilyName, FamilySchema, Invalid, SplitPolicy, TableName, TableSchema, escape};

use super::substitutes::{self, ATTRIBUTE, number, refuse};
use crate::cell_block::FAMILY_BYTES_MAX;
use crate::exception::{Exception, INVALID_FAMILY, TABLE_EXISTS};
use crate::proto;
use crate::region_name::table_name;

/// Where attributes without a meaning here are kept.
const KEPT: &str = "hbase.";
/// Whether deletes act in the order of writes, `true`, or on what a client dates below them, too. It is kept like an attribute
/// without a meaning, so that families from before it had one, and those of other clients, go on as they were.
const NEW_VERSION_BEHAVIOR: &str = "NEW_VERSION_BEHAVIOR";
const KEPT_NEW_VERSION_BEHAVIOR: &str = "hbase.NEW_VERSION_BEHAVIOR";

/// Whether a put whose timestamp the client gave is hidden by a tombstone of this family that covers it, whatever was written
/// first: HBase's rule without `NEW_VERSION_BEHAVIOR`.
pub(crate) fn deletes_by_timestamp(family: &FamilySchema) -> bool {
    let says_so = |value: &[u8]| value.eq_ignore_ascii_case(b"false");
    if let Some(value) = family.metadata.get(KEPT_NEW_VERSION_BEHAVIOR) {
        return says_so(value.as_bytes());
    }
    // Where metadata had no room for it.
    let apart = || family.foreign.get(&[&[ATTRIBUTE], NEW_VERSION_BEHAVIOR.as_bytes()].concat()[..]);
    !family.foreign.is_empty() && apart().is_some_and(|value| says_so(value))
}

/// What the names of settings that are kept begin with.
const SETTING: u8 = b's';
/// "Cells do not expire", in seconds.
pub(super) const FOREVER: &str = "2147483647";

/// A table's name in a message.
pub(super) fn read_name(name: &proto::TableName) -> Result<TableName, Exception> {
    let part = |part: &Bytes| String::from_utf8_lossy(part).into_owned();
    let name = TableName::new(&format!("{}:{}", part(&name.namespace), part(&name.qualifier)));
    name.map_err(|refused| Exception::bad_request(&refused.what))
}

/// A table that is to be created.
pub(super) fn read_table(table: &proto::TableSchema) -> Result<TableSchema, Exception> {
    let name = table.table_name.as_ref().ok_or_else(|| refuse("the descriptor has no name"))?;
    let name = read_name(name)?;
    if name.namespace() == "hbase" || name.is_meta() {
        let text = format!("{name} is reserved for the system's own tables");
        // The client of HBase knows that these two are there.
        let is_there = name.is_meta() || matches!(name.table(), "meta" | "namespace");
        return Err(if is_there { Exception::new(TABLE_EXISTS, text) } else { refuse(&text) });
    }
    let schema = TableSchema::new(name);
    with_attributes(schema, table, |name| FamilySchema::new(name.clone()))
}

/// The whole descriptor of a table that is to replace the present one. What HBase's descriptors do not express stays.
pub(super) fn modified(current: &TableSchema, table: &proto::TableSchema) -> Result<TableSchema, Exception> {
    let defaults = TableSchema::new(current.name.clone());
    let bare = TableSchema {
        families: Vec::new(),
        region_size: defaults.region_size,
        flush_size: defaults.flush_size,
        read_only: defaults.read_only,
        split_policy: defaults.split_policy,
        atomic: substitutes::atomic_without_policy(current),
        metadata: own_metadata(&current.metadata),
        foreign: Foreign::new(),
        ..current.clone()
    };
    with_attributes(bare, table, |name| bare_family(current, name))
}

/// A schema with another family.
pub(super) fn with_family(current: &TableSchema, family: &proto::ColumnFamilySchema) -> Result<TableSchema, Exception> {
    if current.family(&family.name).is_some() {
        return Err(no_such(family, "exists already, so it cannot be added"));
    }
    let mut schema = current.clone();
    schema
        .add_family(read_family(family, &|name| FamilySchema::new(name.clone()))?)
        .map_err(|refused| refuse(&refused.what))?;
    Ok(schema)
}

/// A schema with a changed family.
pub(super) fn with_changed_family(
    current: &TableSchema,
    family: &proto::ColumnFamilySchema,
) -> Result<TableSchema, Exception> {
    let place = current.families.iter().position(|known| known.name.as_bytes() == &family.name[..]);
    let place = place.ok_or_else(|| no_such(family, "does not exist, so it cannot be modified"))?;
    let mut schema = current.clone();
    schema.families[place] = read_family(family, &|name| bare_family(current, name))?;
    Ok(schema)
}

/// A schema without a family.
pub(super) fn without_family(current: &TableSchema, family: &[u8]) -> Result<TableSchema, Exception> {
    let named = |what: &str| Exception::new(INVALID_FAMILY, format!("family {} {what}", escape(family)));
    if current.family(family).is_none() {
        return Err(named("does not exist, so it cannot be deleted"));
    }
    if current.families.len() == 1 {
        return Err(named("is the only one of the table, so it cannot be deleted"));
    }
    let mut schema = current.clone();
    schema.families.retain(|known| known.name.as_bytes() != family);
    Ok(schema)
}

fn no_such(family: &proto::ColumnFamilySchema, what: &str) -> Exception {
    Exception::new(INVALID_FAMILY, format!("family {} {what}", escape(&family.name)))
}

/// The family that a descriptor is applied to: as it is, without what descriptors express.
fn bare_family(current: &TableSchema, name: &FamilyName) -> FamilySchema {
    let bare = FamilySchema::new(name.clone());
    let Some(known) = current.family(name.as_bytes()) else { return bare };
    let mut rules = bare.rules;
    // Descriptors count in seconds. Unless one says otherwise below, the time to live stays exact.
    rules.ttl_ms = known.rules.ttl_ms;
    FamilySchema { rules, metadata: own_metadata(&known.metadata), types: known.types.clone(), ..bare }
}

/// The metadata that HBase's clients did not set.
fn own_metadata(metadata: &std::collections::BTreeMap<String, String>) -> std::collections::BTreeMap<String, String> {
    let own = metadata.iter().filter(|(name, _)| !name.starts_with(KEPT));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn with_attributes(
    mut schema: TableSchema,
    table: &proto::TableSchema,
    bare: impl Fn(&FamilyName) -> FamilySchema,
) -> Result<TableSchema, Exception> {
    for attribute in &table.attributes {
        let (name, value) = text_of(attribute);
        if !set_of_table(&mut schema, &name, &value)? {
            keep(attribute, &mut schema.metadata, &mut schema.foreign);
        }
    }
    substitutes::set_split_policy(&mut schema, table)?;
    schema.foreign.extend(table.configuration.iter().map(setting));
    for family in &table.column_families {
        schema.add_family(read_family(family, &bare)?).map_err(|refused| refuse(&refused.what))?;
    }
    if schema.families.is_empty() {
        return Err(refuse("a table has at least one family"));
    }
    Ok(schema)
}

fn read_family(
    family: &proto::ColumnFamilySchema,
    bare: &impl Fn(&FamilyName) -> FamilySchema,
) -> Result<FamilySchema, Exception> {
    let name = FamilyName::try_from(&family.name[..]).map_err(|refused| refuse(&refused.what))?;
    if name.as_bytes().len() > FAMILY_BYTES_MAX {
        return Err(refuse(&format!("family names have at most {FAMILY_BYTES_MAX} bytes")));
    }
    let mut schema = bare(&name);
    let present_ttl_ms = schema.rules.ttl_ms.take();
    let mut by_timestamp = true;
    for attribute in &family.attributes {
        let (name, value) = text_of(attribute);
        if name == NEW_VERSION_BEHAVIOR {
            by_timestamp = !flag(&name, &value)?;
            continue;
        }
        if !set_of_family(&mut schema, &name, &value)? {
            keep(attribute, &mut schema.metadata, &mut schema.foreign);
        }
    }
    if by_timestamp {
        keep(&pair(NEW_VERSION_BEHAVIOR, "false".to_owned()), &mut schema.metadata, &mut schema.foreign);
    }
    schema.foreign.extend(family.configuration.iter().map(setting));
    if shown_ttl(schema.rules.ttl_ms) == shown_ttl(present_ttl_ms) {
        schema.rules.ttl_ms = present_ttl_ms;
    }
    schema.rules.check().map_err(|refused| refuse(&refused.what))?;
    Ok(schema)
}

/// Sets what has a meaning here; returns whether it has one.
fn set_of_table(schema: &mut TableSchema, name: &str, value: &str) -> Result<bool, Exception> {
    match name {
        "MAX_FILESIZE" => schema.region_size = number(name, value, 0, u64::MAX)?,
        "MEMSTORE_FLUSHSIZE" => schema.flush_size = number(name, value, 0, u64::MAX)?,
        "READONLY" => schema.read_only = flag(name, value)?,
        substitutes::SPLIT_ENABLED => {
            schema.split_policy = if flag(name, value)? { SplitPolicy::Size } else { SplitPolicy::None };
        }
        "REGION_REPLICATION" => only(name, value, "1")?,
        "IS_META" | "IS_ROOT" => only(name, &value.to_lowercase(), "false")?,
        // Applied when all attributes are known.
        substitutes::SPLIT_POLICY => {}
        "FLUSH_POLICY" | "REGION_MEMSTORE_REPLICATION" => {
            return Err(refuse(&format!("the attribute {name} is not supported; leave it out")));
        }
        _ if name.to_lowercase().starts_with("coprocessor") => {
            return Err(refuse("servers run no coprocessors; leave them out"));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The same for a family.
fn set_of_family(schema: &mut FamilySchema, name: &str, value: &str) -> Result<bool, Exception> {
    match name {
        "VERSIONS" => schema.rules.versions = number(name, value, 1, VERSIONS_MAX)?,
        "MIN_VERSIONS" => schema.rules.min_versions = number(name, value, 0, VERSIONS_MAX)?,
        "TTL" if matches!(value, FOREVER | "FOREVER") => schema.rules.ttl_ms = None,
        "TTL" => schema.rules.ttl_ms = Some(number(name, value, 1, u64::MAX / 1_000)? * 1_000),
        "KEEP_DELETED_CELLS" => {
            let keeps = value.to_lowercase().parse();
            schema.rules.keep_deleted_cells = keeps.map_err(|refused: Invalid| refuse(&refused.what))?;
        }
        substitutes::COMPRESSION => substitutes::set_compression(schema, value)?,
        "BLOOMFILTER" => {
            schema.storage.bloom = match value.to_uppercase().as_str() {
                "NONE" => Bloom::None,
                "ROW" => Bloom::Row,
                "ROWCOL" => Bloom::RowCol,
                _ => return Err(refuse(&format!("BLOOMFILTER={value} is not supported; use ROW, ROWCOL or NONE"))),
            };
        }
        substitutes::BLOCKSIZE => substitutes::set_block_size(schema, value)?,
        "IN_MEMORY" => schema.storage.in_memory = flag(name, value)?,
        "REPLICATION_SCOPE" => only(name, value, "0")?,
        "IS_MOB" => only(name, &value.to_lowercase(), "false")?,
        "ENCRYPTION" | "ENCRYPTION_KEY" => return Err(refuse("families are not encrypted; leave ENCRYPTION out")),
        _ => return Ok(false),
    }
    Ok(true)
}

type Metadata = std::collections::BTreeMap<String, String>;

/// Keeps an attribute that has no meaning here.
fn keep(attribute: &proto::BytesBytesPair, metadata: &mut Metadata, foreign: &mut Foreign) {
    if let (Ok(name), Ok(value)) = (std::str::from_utf8(&attribute.first), std::str::from_utf8(&attribute.second)) {
        let name = format!("{KEPT}{name}");
        let has_room = metadata.len() < METADATA_ENTRIES_MAX || metadata.contains_key(&name);
        if has_room && is_metadata(&name, value) {
            metadata.insert(name, value.to_owned());
            return;
        }
    }
    foreign.insert([&[ATTRIBUTE], &attribute.first[..]].concat().into(), attribute.second.clone());
}

/// A setting, as it is kept.
fn setting(setting: &proto::NameStringPair) -> (Bytes, Bytes) {
    ([&[SETTING], setting.name.as_bytes()].concat().into(), setting.value.clone().into())
}

/// The attributes that were kept, and the settings.
fn kept(metadata: &Metadata, foreign: &Foreign) -> (Vec<proto::BytesBytesPair>, Vec<proto::NameStringPair>) {
    let (mut attributes, mut settings) = (Vec::new(), Vec::new());
    let texts = metadata.iter().filter_map(|(name, value)| Some((name.strip_prefix(KEPT)?, value)));
    attributes.extend(texts.map(|(name, value)| pair(name, value.clone())));
    for (name, value) in foreign {
        match name.split_first() {
            Some((&ATTRIBUTE, first)) if substitutes::shows(first) => {}
            Some((&ATTRIBUTE, first)) => {
                attributes.push(proto::BytesBytesPair { first: Bytes::copy_from_slice(first), second: value.clone() });
            }
            Some((&SETTING, first)) => settings.push(proto::NameStringPair {
                name: String::from_utf8_lossy(first).into_owned(),
                value: String::from_utf8_lossy(value).into_owned(),
            }),
            _ => {}
        }
    }
    (attributes, settings)
}

/// A table's descriptor for clients.
pub(super) fn show_table(schema: &TableSchema) -> proto::TableSchema {
    let mut attributes = vec![
        pair("MAX_FILESIZE", schema.region_size.to_string()),
        pair("MEMSTORE_FLUSHSIZE", schema.flush_size.to_string()),
        pair("IS_META", "false".to_owned()),
    ];
    if schema.read_only {
        attributes.push(pair("READONLY", "true".to_owned()));
    }
    attributes.extend(substitutes::shown_splits(schema).into_iter().map(|(name, value)| pair(name, value.to_owned())));
    let (kept, configuration) = kept(&schema.metadata, &schema.foreign);
    attributes.extend(kept);
    proto::TableSchema {
        table_name: Some(table_name(&schema.name)),
        attributes,
        column_families: schema.families.iter().map(show_family).collect(),
        configuration,
    }
}

fn show_family(family: &FamilySchema) -> proto::ColumnFamilySchema {
    let bloom = match family.storage.bloom {
        Bloom::None => "NONE",
        Bloom::Row => "ROW",
        Bloom::RowCol => "ROWCOL",
    };
    let mut attributes = vec![
        pair("VERSIONS", family.rules.versions.to_string()),
        pair("MIN_VERSIONS", family.rules.min_versions.to_string()),
        pair("TTL", shown_ttl(family.rules.ttl_ms)),
        pair("KEEP_DELETED_CELLS", family.rules.keep_deleted_cells.to_string().to_uppercase()),
        pair(substitutes::COMPRESSION, substitutes::shown_compression(family).to_owned()),
        pair("BLOOMFILTER", bloom.to_owned()),
        pair(substitutes::BLOCKSIZE, substitutes::shown_block_size(family)),
        pair("IN_MEMORY", family.storage.in_memory.to_string()),
        pair("REPLICATION_SCOPE", "0".to_owned()),
    ];
    if !deletes_by_timestamp(family) && !family.metadata.contains_key(KEPT_NEW_VERSION_BEHAVIOR) {
        attributes.push(pair(NEW_VERSION_BEHAVIOR, "true".to_owned()));
    }
    let (kept, configuration) = kept(&family.metadata, &family.foreign);
    attributes.extend(kept);
    let name = Bytes::copy_from_slice(family.name.as_bytes());
    proto::ColumnFamilySchema { name, attributes, configuration }
}

/// HBase counts in seconds.
fn shown_ttl(ttl_ms: Option<u64>) -> String {
    ttl_ms.map_or_else(|| FOREVER.to_owned(), |ms| ms.div_ceil(1_000).to_string())
}

pub(super) fn pair(name: &str, value: String) -> proto::BytesBytesPair {
    proto::BytesBytesPair { first: Bytes::copy_from_slice(name.as_bytes()), second: value.into() }
}

/// An attribute as text: names and values with a meaning are text, and no others become like them.
fn text_of(attribute: &proto::BytesBytesPair) -> (String, String) {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&attribute.first), text(&attribute.second))
}

fn flag(name: &str, value: &str) -> Result<bool, Exception> {
    match value.to_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(refuse(&format!("{name}={value} is neither true nor false"))),
    }
}

fn only(name: &str, value: &str, supported: &str) -> Result<(), Exception> {
    if value == supported {
        return Ok(());
    }
    Err(refuse(&format!("{name}={value} is not supported; use {supported}")))
}

#[cfg(test)]
mod tests {
    use terrane_types::KeepDeleted;

    use super::super::substitutes::tests::family;
    use super::*;

    #[test]
    fn a_descriptor_of_ours_is_read_back() {
        let mut schema = TableSchema::new("n:t".parse().unwrap());
        let mut cf = FamilySchema::new("cf".parse().unwrap());
        cf.rules.versions = 3;
        cf.rules.ttl_ms = Some(60_000);
        cf.rules.keep_deleted_cells = KeepDeleted::Ttl;
        cf.storage.bloom = Bloom::RowCol;
        cf.metadata.insert("hbase.DATA_BLOCK_ENCODING".to_owned(), "FAST_DIFF".to_owned());
        schema.add_family(cf).unwrap();
        schema.read_only = true;
        schema.split_policy = SplitPolicy::None;
        assert_eq!(read_table(&show_table(&schema)).unwrap(), schema);
    }

    #[test]
    fn a_whole_descriptor_replaces_what_it_expresses_and_nothing_else() {
        let mut current = TableSchema::new("n:t".parse().unwrap());
        current.version = 4;
        current.disabled = true;
        current.read_only = true;
        current.metadata.insert("hbase.OWNER".to_owned(), "me".to_owned());
        current.metadata.insert("note".to_owned(), "ours".to_owned());
        for name in ["cf", "gone"] {
            let mut family = FamilySchema::new(name.parse().unwrap());
            family.rules.versions = 5;
            family.rules.ttl_ms = Some(1_500);
            family.types.insert(Bytes::from_static(b"q"), terrane_types::ValueType::Text);
            current.add_family(family).unwrap();
        }
        let shown = show_table(&current);
        let same = modified(&current, &shown).unwrap();
        assert_eq!(same, current, "a descriptor that was read and not changed changes nothing");
        let next = modified(&current, &family(&[("VERSIONS", "3"), ("TTL", "2")])).unwrap();
        assert_eq!((next.version, next.disabled, next.read_only, next.families.len()), (4, true, false, 1));
        assert_eq!((next.metadata.len(), next.metadata["note"].as_str()), (1, "ours"));
        let cf = &next.families[0];
        assert_eq!((cf.rules.versions, cf.rules.ttl_ms, cf.types.len()), (3, Some(1_500), 1));
        let other = modified(&current, &family(&[("TTL", "3")])).unwrap();
        assert_eq!((other.families[0].rules.ttl_ms, other.families[0].rules.versions), (Some(3_000), 1));
        let forever = modified(&current, &family(&[])).unwrap();
        assert_eq!(forever.families[0].rules.ttl_ms, None);
    }

    #[test]
    fn deletes_act_by_timestamps_unless_the_descriptor_says_otherwise() {
        let by_timestamp = |attributes: &[(&str, &str)]| {
            let read = read_table(&family(attributes)).unwrap();
            assert_eq!(read_table(&show_table(&read)).unwrap(), read, "it is shown as it is");
            deletes_by_timestamp(&read.families[0])
        };
        assert!(by_timestamp(&[]));
        assert!(by_timestamp(&[("NEW_VERSION_BEHAVIOR", "false")]));
        assert!(!by_timestamp(&[("NEW_VERSION_BEHAVIOR", "true")]));
        assert!(
            !deletes_by_timestamp(&FamilySchema::new("cf".parse().unwrap())),
            "those of other clients keep their rule"
        );
        let many: Vec<_> = (0..100).map(|at| (format!("n{at}"), "x")).collect();
        let many: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert!(by_timestamp(&many), "also where metadata has no room for it");
    }

    #[test]
    fn families_are_added_changed_and_deleted_one_by_one() {
        let current = read_table(&family(&[("VERSIONS", "2")])).unwrap();
        let named = |name: &'static [u8]| proto::ColumnFamilySchema {
            name: Bytes::from_static(name),
            attributes: vec![pair("VERSIONS", "7".to_owned())],
            configuration: Vec::new(),
        };
        let versions = |schema: &TableSchema, name: &[u8]| schema.family(name).map(|family| family.rules.versions);
        let changed = with_changed_family(&current, &named(b"cf")).unwrap();
        assert_eq!(versions(&changed, b"cf"), Some(7));
        let added = with_family(&current, &named(b"more")).unwrap();
        assert_eq!((versions(&added, b"cf"), versions(&added, b"more")), (Some(2), Some(7)));
        assert_eq!(without_family(&added, b"cf").unwrap().families.len(), 1);
        for refused in [
            with_family(&current, &named(b"cf")),
            with_changed_family(&current, &named(b"more")),
            without_family(&current, b"more"),
            without_family(&current, b"cf"),
        ] {
            assert!(refused.unwrap_err().class.ends_with("InvalidFamilyOperationException"));
        }
    }

    #[test]
    fn attributes_and_settings_without_a_meaning_come_back_byte_for_byte() {
        let bytes = |bytes: &'static [u8]| Bytes::from_static(bytes);
        let mut described = family(&[("CACHE_DATA_ON_WRITE", "true"), ("with space", "x"), ("EMPTY", "")]);
        let mut others: Vec<_> = (0..100)
            .map(|at| proto::BytesBytesPair { first: format!("n{at}").into(), second: bytes(b"\xff\0") })
            .collect();
        others.push(proto::BytesBytesPair { first: bytes(b"\xfe"), second: vec![7; 9_000].into() });
        described.attributes.extend(others.iter().cloned());
        let setting = |name: &str| proto::NameStringPair { name: name.to_owned(), value: "1".to_owned() };
        described.configuration.push(setting("hbase.hregion.x"));
        described.column_families[0].configuration.push(setting("hbase.hstore.blockingStoreFiles"));
        let read = read_table(&described).unwrap();
        assert_eq!(read.families[0].metadata.get("hbase.CACHE_DATA_ON_WRITE").map(String::as_str), Some("true"));
        let shown = show_table(&read);
        for attribute in &described.attributes {
            assert!(shown.attributes.contains(attribute), "{attribute:?}");
        }
        for attribute in &described.column_families[0].attributes {
            assert!(shown.column_families[0].attributes.contains(attribute), "{attribute:?}");
        }
        assert_eq!(shown.configuration, described.configuration);
        assert_eq!(shown.column_families[0].configuration, described.column_families[0].configuration);
        assert_eq!(
            modified(&read, &shown).unwrap(),
            read,
            "a descriptor that was read and not changed changes nothing"
        );
        assert!(modified(&read, &family(&[])).unwrap().foreign.is_empty());
        let mut unreadable = family(&[]);
        let versions = proto::BytesBytesPair { first: bytes(b"VERSIONS"), second: bytes(b"\xff") };
        unreadable.column_families[0].attributes.push(versions);
        assert!(read_table(&unreadable).is_err());
    }

    #[test]
    fn the_attributes_that_the_java_client_sends_by_default_are_taken() {
        let read = read_table(&family(&[
            ("BLOOMFILTER", "ROW"),
            ("IN_MEMORY", "false"),
            ("VERSIONS", "1"),
            ("KEEP_DELETED_CELLS", "FALSE"),
            ("DATA_BLOCK_ENCODING", "NONE"),
            ("COMPRESSION", "NONE"),
            ("TTL", "2147483647"),
            ("MIN_VERSIONS", "0"),
            ("BLOCKCACHE", "true"),
            ("BLOCKSIZE", "65536"),
            ("REPLICATION_SCOPE", "0"),
        ]))
        .unwrap();
        let cf = &read.families[0];
        assert_eq!((cf.rules.ttl_ms, cf.storage.block_size), (None, 65_536));
        assert_eq!(cf.metadata.get("hbase.BLOCKCACHE").map(String::as_str), Some("true"));
    }

    #[test]
    fn attributes_with_a_meaning_that_is_lacking_are_refused() {
        for (name, value) in [
            ("REPLICATION_SCOPE", "1"),
            ("KEEP_DELETED_CELLS", "SOMETIMES"),
            ("COMPRESSION", "GZIP"),
            ("IS_MOB", "true"),
            ("VERSIONS", "0"),
            ("MIN_VERSIONS", "2"),
            ("TTL", "0"),
        ] {
            let refused = read_table(&family(&[(name, value)])).unwrap_err();
            assert!(refused.class.ends_with("FailedSanityCheckException"), "{name}={value}");
        }
        let mut coprocessor = family(&[]);
        coprocessor.attributes.push(pair("coprocessor$1", "|a.B|1|".to_owned()));
        assert!(read_table(&coprocessor).is_err());
        let mut reserved = family(&[]);
        reserved.table_name = Some(table_name(&"hbase:x".parse().unwrap()));
        assert!(read_table(&reserved).is_err());
        reserved.table_name = Some(proto::TableName { namespace: "hbase".into(), qualifier: "meta".into() });
        assert_eq!(read_table(&reserved).unwrap_err().class, TABLE_EXISTS.name, "as HBase answers");
    }
}
