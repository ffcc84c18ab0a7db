//! Attributes that ask for what Terrane does in another way: a codec or a split policy of HBase.
//!
//! The nearest that we have does it. The descriptor shows what was given, byte for byte, as long as it is true: once Terrane's
//! own tools have changed the codec or the policy, it shows theirs.

use bytes::Bytes;
use terrane_types::keycodec::PartType;
use terrane_types::limits::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN};
use terrane_types::schema::Foreign;
use terrane_types::{Compression, FamilySchema, KeyDeclaration, SplitPolicy, TableName, TableSchema};

use crate::exception::{Exception, SANITY_CHECK};
use crate::proto;

/// What the names of foreign attributes of HBase's begin with.
pub(super) const ATTRIBUTE: u8 = b'a';
pub(super) const COMPRESSION: &str = "COMPRESSION";
pub(super) const SPLIT_POLICY: &str = "SPLIT_POLICY";
pub(super) const SPLIT_ENABLED: &str = "SPLIT_ENABLED";
pub(super) const BLOCKSIZE: &str = "BLOCKSIZE";
/// Bytes of the largest block that HBase takes.
const HBASE_BLOCK_SIZE_MAX: u32 = 16 << 20;
/// Whether regions are merged when somebody asks for it.
const MERGE_ENABLED: &str = "MERGE_ENABLED";
/// Where HBase's policies are.
const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.";
/// How many leading bytes the policy of prefixes keeps together; the second name is the older one.
const PREFIX_LENGTH: [&str; 2] = ["KeyPrefixRegionSplitPolicy.prefix_length", "prefix_split_key_policy.prefix_length"];

/// Whether the functions here show this attribute, and not those that show what is kept without a meaning.
pub(super) fn shows(attribute: &[u8]) -> bool {
    [COMPRESSION, SPLIT_POLICY, SPLIT_ENABLED, BLOCKSIZE].iter().any(|name| name.as_bytes() == attribute)
}

/// The refusal of a descriptor.
pub(super) fn refuse(what: &str) -> Exception {
    Exception::new(SANITY_CHECK, what)
}

/// A number among the values of an attribute.
pub(super) fn number<N: std::str::FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    value: &str,
    least: N,
    most: N,
) -> Result<N, Exception> {
    match value.parse::<N>() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(refuse(&format!("{name}={value} is not a number from {least} to {most}"))),
    }
}

fn remember(foreign: &mut Foreign, attribute: &str, given: &str) {
    foreign.insert(key(attribute), Bytes::copy_from_slice(given.as_bytes()));
}

fn key(attribute: &str) -> Bytes {
    [&[ATTRIBUTE], attribute.as_bytes()].concat().into()
}

/// What was given for an attribute, if it was remembered.
fn given<'a>(foreign: &'a Foreign, attribute: &str) -> Option<&'a str> {
    std::str::from_utf8(foreign.get(&key(attribute))?).ok()
}

/// The codec that stands for one of HBase's: of its kind, fast or dense.
fn codec(name: &str) -> Option<Compression> {
    match name.to_uppercase().as_str() {
        "NONE" => Some(Compression::None),
        "LZ4" | "SNAPPY" | "LZO" => Some(Compression::Lz4),
        "ZSTD" | "GZ" | "BZIP2" | "LZMA" | "BROTLI" => Some(Compression::Zstd),
        _ => None,
    }
}

const fn codec_name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "NONE",
        Compression::Lz4 => "LZ4",
        Compression::Zstd => "ZSTD",
    }
}

pub(super) fn set_compression(family: &mut FamilySchema, name: &str) -> Result<(), Exception> {
    let compression = codec(name).ok_or_else(|| {
        refuse(&format!("COMPRESSION={name} is not one of HBase's codecs; LZ4, ZSTD and NONE are stored as such"))
    })?;
    family.storage.compression = compression;
    if !name.eq_ignore_ascii_case(codec_name(compression)) {
        remember(&mut family.foreign, COMPRESSION, name);
    }
    Ok(())
}

pub(super) fn shown_compression(family: &FamilySchema) -> &str {
    let present = family.storage.compression;
    let given = given(&family.foreign, COMPRESSION).filter(|name| codec(name) == Some(present));
    given.unwrap_or_else(|| codec_name(present))
}

/// Sets the size of blocks: of those larger than ours can be, the largest.
pub(super) fn set_block_size(family: &mut FamilySchema, value: &str) -> Result<(), Exception> {
    let given = number(BLOCKSIZE, value, BLOCK_SIZE_MIN, HBASE_BLOCK_SIZE_MAX)?;
    family.storage.block_size = given.min(BLOCK_SIZE_MAX);
    if given > BLOCK_SIZE_MAX {
        remember(&mut family.foreign, BLOCKSIZE, value);
    }
    Ok(())
}

pub(super) fn shown_block_size(family: &FamilySchema) -> String {
    let present = family.storage.block_size;
    let given = given(&family.foreign, BLOCKSIZE).filter(|_| present == BLOCK_SIZE_MAX);
    given.map_or_else(|| present.to_string(), str::to_owned)
}

/// Checks that the regions of a table may be split by hand: HBase's switch of a table is for that, too.
pub(super) fn check_splits(schema: &TableSchema) -> Result<(), Exception> {
    match shown_splits(schema).iter().any(|(name, _)| *name == SPLIT_ENABLED) {
        false => Ok(()),
        true => Err(Exception::bad_request(&format!(
            "table {} has SPLIT_ENABLED=false, so its regions are not split; set it to true first",
            schema.name
        ))),
    }
}

/// The same of merges, for what is shown of the table.
pub(super) fn check_merges(name: &TableName, shown: &proto::TableSchema) -> Result<(), Exception> {
    match attribute(shown, MERGE_ENABLED).is_some_and(|flag| flag.eq_ignore_ascii_case("false")) {
        false => Ok(()),
        true => Err(Exception::bad_request(&format!(
            "table {name} has MERGE_ENABLED=false, so its regions are not merged; set it to true first"
        ))),
    }
}

/// What a split policy of HBase means here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// When a region splits, which we decide by its size and its load.
    When,
    /// Regions do not split by themselves.
    Never,
    /// Rows with the same leading bytes stay together.
    Prefix,
}

fn policy(class: &str) -> Option<Policy> {
    match class.strip_prefix(PACKAGE)? {
        "ConstantSizeRegionSplitPolicy"
        | "IncreasingToUpperBoundRegionSplitPolicy"
        | "SteppingSplitPolicy"
        | "BusyRegionSplitPolicy" => Some(Policy::When),
        "DisabledRegionSplitPolicy" => Some(Policy::Never),
        "KeyPrefixRegionSplitPolicy" => Some(Policy::Prefix),
        _ => None,
    }
}

/// The policy that a table was given and still has.
fn present_policy(schema: &TableSchema) -> Option<(Policy, &str)> {
    let class = given(&schema.foreign, SPLIT_POLICY)?;
    let policy = policy(class)?;
    let holds = match policy {
        Policy::When => true,
        Policy::Never => schema.split_policy == SplitPolicy::None,
        Policy::Prefix => schema.atomic > 0,
    };
    holds.then_some((policy, class))
}

/// How many parts of the key stay together in a table whose whole descriptor is replaced: what a policy has set goes with it.
pub(super) fn atomic_without_policy(schema: &TableSchema) -> u32 {
    let by_policy = present_policy(schema).is_some_and(|(policy, _)| policy == Policy::Prefix);
    if by_policy { 0 } else { schema.atomic }
}

/// Applies the split policy of a descriptor whose other attributes are set already.
pub(super) fn set_split_policy(schema: &mut TableSchema, table: &proto::TableSchema) -> Result<(), Exception> {
    let Some(class) = attribute(table, SPLIT_POLICY) else { return Ok(()) };
    let Some(policy) = policy(&class) else {
        return Err(refuse(&match class.strip_prefix(PACKAGE) {
            Some("DelimitedKeyPrefixRegionSplitPolicy") => {
                "SPLIT_POLICY=DelimitedKeyPrefixRegionSplitPolicy is not supported; use KeyPrefixRegionSplitPolicy if the prefix \
                 has a fixed length"
                    .to_owned()
            }
            _ => format!("SPLIT_POLICY={class} is not one of HBase's policies, and servers run no Java; leave it out"),
        }));
    };
    match policy {
        Policy::When => {}
        Policy::Never => {
            if schema.split_policy == SplitPolicy::None {
                remember(&mut schema.foreign, SPLIT_ENABLED, "false");
            }
            schema.split_policy = SplitPolicy::None;
        }
        Policy::Prefix => {
            let length = PREFIX_LENGTH.iter().find_map(|name| attribute(table, name));
            keep_prefixes_together(schema, length.as_deref().unwrap_or_default())?;
        }
    }
    remember(&mut schema.foreign, SPLIT_POLICY, &class);
    Ok(())
}

fn attribute(table: &proto::TableSchema, name: &str) -> Option<String> {
    let found = table.attributes.iter().rfind(|attribute| attribute.first == name.as_bytes())?;
    Some(String::from_utf8_lossy(&found.second).into_owned())
}

/// Keeps rows together that share this many leading bytes. Parts of the key do that, so it is declared unless it has such parts.
fn keep_prefixes_together(schema: &mut TableSchema, length: &str) -> Result<(), Exception> {
    let wrong = || refuse(&format!("{}={length} is not a number of bytes that a row can have", PREFIX_LENGTH[0]));
    let bytes = length.trim().parse::<usize>().map_err(|_| wrong())?;
    let key = match &schema.key {
        Some(key) => key.clone(),
        None => KeyDeclaration::parse(&format!("prefix:bytes{bytes}, rest:tail")).map_err(|_| wrong())?,
    };
    let Some(parts) = parts_of(&key, bytes) else {
        return Err(refuse(&format!(
            "SPLIT_POLICY=KeyPrefixRegionSplitPolicy keeps {bytes} bytes together, and no leading parts of the table's key \
             ({key}) have that many; choose the length of its parts"
        )));
    };
    (schema.key, schema.atomic) = (Some(key), parts);
    Ok(())
}

/// How many leading parts of a key have this many bytes in every row.
fn parts_of(key: &KeyDeclaration, bytes: usize) -> Option<u32> {
    let mut length = 0;
    for (part, count) in key.parts().iter().zip(1..) {
        length += match part.kind.part {
            PartType::U32 | PartType::I32 => 4,
            PartType::U64 | PartType::I64 | PartType::F64 | PartType::Time => 8,
            PartType::Bool | PartType::Bucket(_) => 1,
            PartType::Uuid => 16,
            PartType::Fixed(length) => usize::from(length),
            PartType::Text | PartType::Bytes | PartType::Tail => return None,
        };
        if length >= bytes {
            return (length == bytes).then_some(count);
        }
    }
    None
}

/// The attributes that say how a table splits.
pub(super) fn shown_splits(schema: &TableSchema) -> Vec<(&'static str, &str)> {
    let present = present_policy(schema);
    let by_policy = present.is_some_and(|(policy, _)| policy == Policy::Never);
    let by_flag =
        schema.split_policy == SplitPolicy::None && (!by_policy || given(&schema.foreign, SPLIT_ENABLED).is_some());
    let flag = by_flag.then_some((SPLIT_ENABLED, "false"));
    flag.into_iter().chain(present.map(|(_, class)| (SPLIT_POLICY, class))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::descriptors::{modified, pair, read_table, show_table, with_changed_family};
    use super::*;
    use crate::region_name::table_name;

    /// A table with a family of these attributes.
    pub fn family(attributes: &[(&str, &str)]) -> proto::TableSchema {
        let family = proto::ColumnFamilySchema {
            name: Bytes::from_static(b"cf"),
            attributes: attributes.iter().map(|(name, value)| pair(name, (*value).to_owned())).collect(),
            configuration: Vec::new(),
        };
        proto::TableSchema {
            table_name: Some(table_name(&"n:t".parse().unwrap())),
            column_families: vec![family],
            ..proto::TableSchema::default()
        }
    }

    fn table_with(attributes: &[(&str, &str)]) -> proto::TableSchema {
        let pairs = attributes.iter().map(|(name, value)| pair(name, (*value).to_owned()));
        proto::TableSchema { attributes: pairs.collect(), ..family(&[]) }
    }

    /// The values of an attribute.
    fn shown(attributes: &[proto::BytesBytesPair], name: &str) -> Vec<String> {
        let found = attributes.iter().filter(|attribute| attribute.first == name.as_bytes());
        found.map(|attribute| String::from_utf8(attribute.second.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_codec_of_hbase_is_shown_as_it_was_given_until_another_is_set() {
        for (given, ours) in [
            ("SNAPPY", Compression::Lz4),
            ("lzo", Compression::Lz4),
            ("GZ", Compression::Zstd),
            ("BZIP2", Compression::Zstd),
            ("LZ4", Compression::Lz4),
            ("NONE", Compression::None),
        ] {
            let mut read = read_table(&family(&[("COMPRESSION", given)])).unwrap();
            assert_eq!(read.families[0].storage.compression, ours, "{given}");
            let described = show_table(&read);
            assert_eq!(shown(&described.column_families[0].attributes, "COMPRESSION"), [given]);
            assert_eq!(modified(&read, &described).unwrap(), read);
            let next = with_changed_family(&read, &family(&[("COMPRESSION", "NONE")]).column_families[0]).unwrap();
            assert!(next.families[0].foreign.is_empty());
            read.families[0].storage.compression =
                if ours == Compression::Lz4 { Compression::Zstd } else { Compression::Lz4 };
            let described = show_table(&read);
            let [now] = &shown(&described.column_families[0].attributes, "COMPRESSION")[..] else { panic!("{given}") };
            assert_ne!(now, given);
        }
    }

    #[test]
    fn blocks_over_our_limit_are_as_large_as_ours_can_be_and_shown_as_given() {
        let of = |value: &str| read_table(&family(&[("BLOCKSIZE", value)]));
        for (given, size) in [("1024", 1024), ("1048576", BLOCK_SIZE_MAX), ("16777216", BLOCK_SIZE_MAX)] {
            let read = of(given).unwrap();
            assert_eq!(read.families[0].storage.block_size, size);
            let described = show_table(&read);
            assert_eq!(shown(&described.column_families[0].attributes, "BLOCKSIZE"), [given]);
            assert_eq!(modified(&read, &described).unwrap(), read);
        }
        let mut read = of("16777216").unwrap();
        read.families[0].storage.block_size = 4096;
        assert_eq!(shown(&show_table(&read).column_families[0].attributes, "BLOCKSIZE"), ["4096"]);
        for refused in ["0", "256", "16777217", "many"] {
            assert!(of(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_switches_of_a_table_are_for_splits_and_merges_by_hand_too() {
        for (name, splits, merges) in [("SPLIT_ENABLED", false, true), ("MERGE_ENABLED", true, false)] {
            for (value, is_off) in [("true", false), ("false", true)] {
                let read = read_table(&table_with(&[(name, value)])).unwrap();
                let by_hand = (check_splits(&read).is_ok(), check_merges(&read.name, &show_table(&read)).is_ok());
                assert_eq!(by_hand, (splits || !is_off, merges || !is_off), "{name}={value}");
            }
        }
    }

    const POLICIES: &str = "org.apache.hadoop.hbase.regionserver.";

    #[test]
    fn a_policy_of_when_to_split_is_kept() {
        for name in ["ConstantSizeRegionSplitPolicy", "IncreasingToUpperBoundRegionSplitPolicy", "SteppingSplitPolicy"]
        {
            let class = format!("{POLICIES}{name}");
            let read = read_table(&table_with(&[("SPLIT_POLICY", &class)])).unwrap();
            assert_eq!((read.split_policy, read.atomic, read.key.is_none()), (SplitPolicy::Size, 0, true));
            let described = show_table(&read);
            assert_eq!(shown(&described.attributes, "SPLIT_POLICY"), [class]);
            assert_eq!(modified(&read, &described).unwrap(), read);
            assert!(modified(&read, &family(&[])).unwrap().foreign.is_empty());
        }
        for class in ["com.example.Mine", &format!("{POLICIES}DelimitedKeyPrefixRegionSplitPolicy"), ""] {
            let refused = read_table(&table_with(&[("SPLIT_POLICY", class)])).unwrap_err();
            assert!(refused.text.contains(&format!("SPLIT_POLICY={}", class.trim_start_matches(POLICIES))));
        }
    }

    #[test]
    fn the_disabled_policy_switches_splits_off_until_it_is_taken_away() {
        let class = format!("{POLICIES}DisabledRegionSplitPolicy");
        let flags = |table: &TableSchema| shown(&show_table(table).attributes, "SPLIT_ENABLED");
        for (enabled, flag) in [("true", &[][..]), ("false", &["false"])] {
            let given = table_with(&[("SPLIT_POLICY", &class), ("SPLIT_ENABLED", enabled)]);
            let mut read = read_table(&given).unwrap();
            assert_eq!(read.split_policy, SplitPolicy::None);
            assert_eq!(flags(&read), flag);
            assert_eq!(modified(&read, &show_table(&read)).unwrap(), read);
            let mut without = show_table(&read);
            without.attributes.retain(|attribute| attribute.first != "SPLIT_POLICY".as_bytes());
            let splits = if flag.is_empty() { SplitPolicy::Size } else { SplitPolicy::None };
            assert_eq!(modified(&read, &without).unwrap().split_policy, splits);
            // Terrane's own tools have switched them on again.
            read.split_policy = SplitPolicy::Size;
            assert!(flags(&read).is_empty() && shown(&show_table(&read).attributes, "SPLIT_POLICY").is_empty());
        }
    }

    #[test]
    fn the_policy_of_prefixes_keeps_rows_together() {
        let class = format!("{POLICIES}KeyPrefixRegionSplitPolicy");
        let with = |length: &str| {
            table_with(&[("KeyPrefixRegionSplitPolicy.prefix_length", length), ("SPLIT_POLICY", &class)])
        };
        let read = read_table(&with("4")).unwrap();
        assert_eq!((read.key.clone().unwrap().to_string().as_str(), read.atomic), ("prefix:bytes4, rest:tail", 1));
        assert_eq!(read.key.as_ref().unwrap().prefix_len(b"abcd\0\xff", 1), Some(4));
        let described = show_table(&read);
        assert_eq!(shown(&described.attributes, "SPLIT_POLICY"), [class.as_str()]);
        assert_eq!(shown(&described.attributes, "KeyPrefixRegionSplitPolicy.prefix_length"), ["4"]);
        assert_eq!(modified(&read, &described).unwrap(), read);
        assert_eq!(modified(&read, &family(&[])).unwrap().atomic, 0);
        for wrong in ["", "0", "-1", "x", "40000"] {
            let refused = read_table(&with(wrong)).unwrap_err();
            assert!(refused.text.contains("prefix_length="), "{wrong}: {}", refused.text);
        }
        let mut declared = read_table(&family(&[])).unwrap();
        (declared.key, declared.atomic) = (Some("user:u64, time:desc i64, what:text".parse().unwrap()), 1);
        let atomic = |length: &str| modified(&declared, &with(length)).map(|table| table.atomic);
        assert_eq!((atomic("8").unwrap(), atomic("16").unwrap()), (1, 2));
        assert!(atomic("4").unwrap_err().text.contains("user:u64"));
        assert!(atomic("20").is_err());
        assert_eq!(modified(&declared, &family(&[])).unwrap().atomic, 1, "what no policy has set stays");
    }
}
