//! Names of regions as HBase's clients know them: `TABLE,STARTKEY,ID.HASH.`
//!
//! Clients send the whole name with every request, keep it as an opaque key of their caches, and read the 32 digits of the
//! MD5 hash as the region's *encoded name*. The id is Terrane's region id, so a server finds the region without the rest of
//! the name.
//!
//! The region of `hbase:meta` has a name of the old form, without a hash; its encoded name is a constant.

use std::fmt::Write as _;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use terrane_types::{RegionId, TableName};

use crate::proto;

/// The name of the one region of `hbase:meta`.
pub const META_NAME: &[u8] = b"hbase:meta,,1";

/// Its encoded name.
pub const META_ENCODED_NAME: &str = "1588230740";

/// The id of the one region of `hbase:namespace`. No region of a stored table has it, because the name says the table, too.
pub const NAMESPACE_REGION: RegionId = RegionId(1);

/// The digits of an encoded name.
const HASH_DIGITS: usize = 32;

/// A region's name.
#[must_use]
pub fn region_name(table: &TableName, start: &[u8], region: RegionId) -> Bytes {
    // A table's name is written as HBase writes it: without a namespace in the default one.
    let mut name = table.to_string().into_bytes();
    name.push(b',');
    name.extend_from_slice(start);
    name.push(b',');
    name.extend_from_slice(region.to_string().as_bytes());
    let hash = Md5::digest(&name);
    let mut digits = String::with_capacity(HASH_DIGITS);
    for byte in hash {
        // Writing to a `String` cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    name.push(b'.');
    name.extend_from_slice(digits.as_bytes());
    name.push(b'.');
    name.into()
}

/// The parts of a region's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameParts<'a> {
    /// The table as HBase writes it.
    pub table: &'a [u8],
    /// The region's first row.
    pub start: &'a [u8],
    /// The region.
    pub region: RegionId,
    /// Its encoded name; empty in a name of the old form.
    pub encoded: &'a [u8],
}

/// Reads a region's name. `None` if it is not one, or names another replica than the first: there is one.
#[must_use]
pub fn parse(name: &[u8]) -> Option<NameParts<'_>> {
    let first = name.iter().position(|&byte| byte == b',')?;
    let last = name.iter().rposition(|&byte| byte == b',')?;
    if first == last {
        return None;
    }
    let (table, start, rest) = (&name[..first], &name[first + 1..last], &name[last + 1..]);
    let (id, encoded) = match rest.iter().position(|&byte| byte == b'.') {
        Some(dot) => {
            let encoded = rest[dot + 1..].strip_suffix(b".")?;
            (&rest[..dot], Some(encoded).filter(|hash| hash.len() == HASH_DIGITS)?)
        }
        None => (rest, &rest[..0]),
    };
    let region = std::str::from_utf8(id).ok().filter(|id| id.bytes().all(|digit| digit.is_ascii_digit()))?;
    Some(NameParts { table, start, region: RegionId(region.parse().ok()?), encoded })
}

/// Whether a region specifier names this region; `name` is its name, which is made only if it may be the one.
#[must_use]
pub fn named(wanted: &proto::RegionSpecifier, region: RegionId, name: impl FnOnce() -> Bytes) -> bool {
    match wanted.r#type() {
        proto::region_specifier::RegionSpecifierType::RegionName => {
            parse(&wanted.value).is_some_and(|parts| parts.region == region) && wanted.value == name()
        }
        proto::region_specifier::RegionSpecifierType::EncodedRegionName => {
            parse(&name()).is_some_and(|parts| parts.encoded == &wanted.value[..])
        }
    }
}

/// A region specifier with a whole name.
#[must_use]
pub fn specifier(name: Bytes) -> proto::RegionSpecifier {
    proto::RegionSpecifier { r#type: proto::region_specifier::RegionSpecifierType::RegionName.into(), value: name }
}

/// Whether a region specifier names the region of `hbase:meta`.
#[must_use]
pub fn is_meta(region: &proto::RegionSpecifier) -> bool {
    match region.r#type() {
        proto::region_specifier::RegionSpecifierType::RegionName => region.value == META_NAME,
        proto::region_specifier::RegionSpecifierType::EncodedRegionName => region.value == META_ENCODED_NAME.as_bytes(),
    }
}

/// The name of `hbase:namespace`.
#[must_use]
pub fn namespace_table() -> TableName {
    "hbase:namespace".parse().expect("it is a well-formed name")
}

/// A table's name as a message.
#[must_use]
pub fn table_name(table: &TableName) -> proto::TableName {
    proto::TableName { namespace: table.namespace().to_owned().into(), qualifier: table.table().to_owned().into() }
}

/// The message that describes the region of `hbase:meta`.
#[must_use]
pub fn meta_region_info() -> proto::RegionInfo {
    proto::RegionInfo {
        region_id: 1,
        table_name: proto::TableName {
            namespace: Bytes::from_static(b"hbase"),
            qualifier: Bytes::from_static(b"meta"),
        },
        start_key: Some(Bytes::new()),
        end_key: Some(Bytes::new()),
        offline: Some(false),
        split: Some(false),
        replica_id: Some(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_region_has_the_name_and_hash_that_hbase_gives_it() {
        let name = region_name(&"t1".parse().unwrap(), b"", RegionId(1_700_000_000_000));
        assert_eq!(name, "t1,,1700000000000.43ae7364b4a555b93267937f9bc49ec1.");
        let parts = parse(&name).unwrap();
        assert_eq!(parts.region, RegionId(1_700_000_000_000));
        assert_eq!(parts.encoded, b"43ae7364b4a555b93267937f9bc49ec1");
    }

    #[test]
    fn a_region_is_named_by_its_whole_name_or_by_its_hash() {
        let name = region_name(&"t1".parse().unwrap(), b"", RegionId(1_700_000_000_000));
        let encoded = proto::RegionSpecifier {
            r#type: proto::region_specifier::RegionSpecifierType::EncodedRegionName.into(),
            value: Bytes::from_static(b"43ae7364b4a555b93267937f9bc49ec1"),
        };
        for wanted in [specifier(name.clone()), encoded] {
            assert!(named(&wanted, RegionId(1_700_000_000_000), || name.clone()));
            let other = region_name(&"t1".parse().unwrap(), b"a", RegionId(1_700_000_000_000));
            assert!(!named(&wanted, RegionId(1_700_000_000_000), || other));
        }
    }

    #[test]
    fn the_name_of_meta_is_of_the_old_form() {
        let parts = parse(META_NAME).unwrap();
        assert_eq!((parts.table, parts.start, parts.region), (&b"hbase:meta"[..], &b""[..], RegionId(1)));
        assert_eq!(parts.encoded, b"");
    }

    #[test]
    fn names_of_other_replicas_and_malformed_names_are_not_read() {
        let hash = "0123456789abcdef0123456789abcdef";
        for wrong in [
            String::new(),
            "t".to_owned(),
            "t,1".to_owned(),
            "t,,".to_owned(),
            "t,,x".to_owned(),
            "t,,+1".to_owned(),
            "t,,1.abc.".to_owned(),
            format!("t,,1.{hash}"),
            format!("t,,1_0001.{hash}."),
            "t,,99999999999999999999".to_owned(),
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back(start in prop::collection::vec(any::<u8>(), 0..40), region: u64, namespace: bool) {
            let table: TableName = if namespace { "n:t" } else { "t" }.parse().unwrap();
            let name = region_name(&table, &start, RegionId(region));
            let parts = parse(&name).unwrap();
            let text = table.to_string();
            prop_assert_eq!(parts.table, text.as_bytes());
            prop_assert_eq!(parts.start, &start[..]);
            prop_assert_eq!(parts.region, RegionId(region));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(name in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&name);
        }
    }
}
