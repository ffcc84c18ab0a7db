//! Attributes of tables and families by name, as `terrane table create` and `alter` take them.
//!
//! An unknown name is refused, and the error suggests a similar one: silently accepting it would promise an effect that
//! it does not have. [`TableSchema::attributes`] and [`FamilySchema::attributes`] list values in the form that
//! `set_attribute` accepts, so that a described table can be created again.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::escape::{escape, unescape};
use crate::invalid::Invalid;
use crate::key::KeyDeclaration;
use crate::limits::VERSIONS_MAX;
use crate::quantity::{parse_duration_ms, parse_size};
use crate::schema::{FamilySchema, TableSchema, check_block_size, check_flush_size, check_metadata, check_region_size};
use crate::suggestion::closest;
use crate::value_type::ValueType;

const FAMILY_ATTRIBUTES: [&str; 10] = [
    "versions",
    "min_versions",
    "ttl",
    "keep_deleted_cells",
    "compression",
    "bloom",
    "block_size",
    "in_memory",
    "type.QUALIFIER",
    "meta.NAME",
];
const TABLE_ATTRIBUTES: [&str; 11] = [
    "region_size",
    "flush_size",
    "split_policy",
    "history",
    "key",
    "atomic",
    "bloom_prefix",
    "read_only",
    "disabled",
    "strict_reads",
    "meta.NAME",
];
/// Attributes with few values, and these.
const VALUES: [(&str, &[&str]); 10] = [
    ("keep_deleted_cells", &["false", "true", "ttl"]),
    ("compression", &["lz4", "none", "zstd"]),
    ("bloom", &["none", "row", "rowcol"]),
    ("in_memory", &["false", "true"]),
    ("split_policy", &["none", "size"]),
    ("read_only", &["false", "true"]),
    ("disabled", &["false", "true"]),
    ("strict_reads", &["false", "true"]),
    ("ttl", &["none"]),
    ("history", &["none"]),
];

/// The names of a family's attributes, for completion. `type.` and `meta.` begin names.
pub fn family_attributes() -> impl Iterator<Item = &'static str> {
    FAMILY_ATTRIBUTES.into_iter().map(without_placeholder)
}

/// The names of a table's attributes, for completion. `meta.` begins names.
pub fn table_attributes() -> impl Iterator<Item = &'static str> {
    TABLE_ATTRIBUTES.into_iter().map(without_placeholder)
}

/// The values of an attribute that has few, or names some beside numbers; empty for others.
#[must_use]
pub fn attribute_values(name: &str) -> &'static [&'static str] {
    VALUES.iter().find(|(known, _)| *known == name).map_or(&[], |(_, values)| values)
}

fn without_placeholder(name: &'static str) -> &'static str {
    name.trim_end_matches("QUALIFIER").trim_end_matches("NAME")
}

/// The prefix of a qualifier whose type is declared.
const TYPE_PREFIX: &str = "type.";
/// The prefix of free metadata names.
const METADATA_PREFIX: &str = "meta.";

impl FamilySchema {
    /// Sets an attribute by its name. Rules: `versions`, `min_versions`, `ttl` (see [`parse_duration_ms`]; `none`:
    /// cells do not expire) and `keep_deleted_cells`. Storage: `compression` (`none`, `lz4`, `zstd`), `bloom` (`none`,
    /// `row`, `rowcol`), `block_size` (see [`parse_size`]) and `in_memory`. Types of columns: `type.QUALIFIER`, a
    /// [`ValueType`] or `none`, with the qualifier escaped as by [`escape`](crate::escape()). Free metadata: `meta.NAME` (an
    /// empty value removes the entry).
    ///
    /// [`TableSchema::check`] compares attributes that depend on each other (`min_versions` is at most `versions`), so
    /// that they can be set in any order.
    ///
    /// # Errors
    /// [`Invalid`] for an unknown attribute or a bad value.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        match name {
            "versions" => self.rules.versions = parse_number(name, value, 1, VERSIONS_MAX)?,
            "min_versions" => self.rules.min_versions = parse_number(name, value, 0, VERSIONS_MAX)?,
            "ttl" if value == "none" => self.rules.ttl_ms = None,
            "ttl" => self.rules.ttl_ms = Some(parse_duration_ms(value)?),
            "keep_deleted_cells" => self.rules.keep_deleted_cells = value.parse()?,
            "compression" => self.storage.compression = value.parse()?,
            "bloom" => self.storage.bloom = value.parse()?,
            "block_size" => self.storage.block_size = check_block_size(parse_size(value)?)?,
            "in_memory" => self.storage.in_memory = parse_bool(name, value)?,
            _ if name.starts_with(TYPE_PREFIX) => self.set_type(&name[TYPE_PREFIX.len()..], value)?,
            _ => {
                return set_metadata(
                    &mut self.metadata,
                    "family",
                    name,
                    value,
                    (&FAMILY_ATTRIBUTES, &TABLE_ATTRIBUTES),
                );
            }
        }
        Ok(())
    }

    fn set_type(&mut self, qualifier: &str, value: &str) -> Result<(), Invalid> {
        let qualifier = Bytes::from(unescape(qualifier)?);
        if matches!(value, "" | "none") {
            self.types.remove(&qualifier);
        } else {
            self.types.insert(qualifier, ValueType::parse(value)?);
        }
        Ok(())
    }

    /// All attributes with their values, as [`FamilySchema::set_attribute`] accepts them, with the types and the metadata that
    /// are set.
    #[must_use]
    pub fn attributes(&self) -> BTreeMap<String, String> {
        let Self { rules, storage, types, metadata, .. } = self;
        let types = types.iter().map(|(name, read_as)| (format!("{TYPE_PREFIX}{}", escape(name)), read_as.to_string()));
        let attributes = [
            ("versions", rules.versions.to_string()),
            ("min_versions", rules.min_versions.to_string()),
            ("ttl", duration_text(rules.ttl_ms.unwrap_or(0))),
            ("keep_deleted_cells", rules.keep_deleted_cells.to_string()),
            ("compression", storage.compression.to_string()),
            ("bloom", storage.bloom.to_string()),
            ("block_size", size_text(u64::from(storage.block_size))),
            ("in_memory", storage.in_memory.to_string()),
        ];
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
        attributes.chain(types).chain(metadata_attributes(metadata)).collect()
    }
}

impl TableSchema {
    /// Sets an attribute by its name: `region_size`, `flush_size`, `split_policy` (`size`, `none`), `history` (see
    /// [`parse_duration_ms`]; `none` for no history), `key`, `atomic`, `bloom_prefix`, `read_only`, `disabled`, `strict_reads`,
    /// or free metadata as `meta.NAME` (an empty value takes the entry away).
    ///
    /// ```
    /// # use terrane_types::{TableName, TableSchema};
    /// let mut schema = TableSchema::new(TableName::new("t")?);
    /// schema.set_attribute("region_size", "16MiB")?;
    /// assert_eq!(schema.region_size, 16 << 20);
    /// let refused = schema.set_attribute("region_sise", "1GiB").unwrap_err();
    /// assert!(refused.what.contains("did you mean region_size?"));
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] for an unknown attribute or a bad value.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        match name {
            "region_size" => {
                let bytes = parse_size(value)?;
                check_region_size(bytes)?;
                self.region_size = bytes;
            }
            "flush_size" => {
                let bytes = parse_size(value)?;
                check_flush_size(bytes)?;
                self.flush_size = bytes;
            }
            "split_policy" => self.split_policy = value.parse()?,
            "history" if value == "none" => self.history_ms = 0,
            "history" => self.history_ms = parse_duration_ms(value)?,
            "key" => self.key = Some(KeyDeclaration::parse(value)?),
            "atomic" => self.atomic = parse_number(name, value, 0, u32::MAX)?,
            "bloom_prefix" => self.bloom_prefix = parse_number(name, value, 0, u32::MAX)?,
            "read_only" => self.read_only = parse_bool(name, value)?,
            "disabled" => self.disabled = parse_bool(name, value)?,
            "strict_reads" => self.strict_reads = parse_bool(name, value)?,
            _ => {
                return set_metadata(&mut self.metadata, "table", name, value, (&TABLE_ATTRIBUTES, &FAMILY_ATTRIBUTES));
            }
        }
        Ok(())
    }

    /// All attributes with their values, as [`TableSchema::set_attribute`] accepts them, and the metadata that is set.
    /// The key and attributes that depend on it are listed only if a key is declared.
    #[must_use]
    pub fn attributes(&self) -> BTreeMap<String, String> {
        let attributes = [
            ("region_size", size_text(self.region_size)),
            ("flush_size", size_text(self.flush_size)),
            ("split_policy", self.split_policy.as_str().to_owned()),
            ("history", duration_text(self.history_ms)),
            ("read_only", self.read_only.to_string()),
            ("disabled", self.disabled.to_string()),
            ("strict_reads", self.strict_reads.to_string()),
        ];
        let of_key = self.key.as_ref().map(|key| {
            let counts = [("atomic", self.atomic.to_string()), ("bloom_prefix", self.bloom_prefix.to_string())];
            [("key", key.to_string())].into_iter().chain(counts)
        });
        let attributes = attributes.into_iter().chain(of_key.into_iter().flatten());
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value));
        attributes.chain(metadata_attributes(&self.metadata)).collect()
    }
}

/// Sets an entry of free metadata; any other name is refused. `valid` has the names that this kind of owner accepts,
/// and those of the other kind.
fn set_metadata(
    metadata: &mut BTreeMap<String, String>,
    owner: &str,
    attribute: &str,
    value: &str,
    valid: (&[&str], &[&str]),
) -> Result<(), Invalid> {
    let Some(name) = attribute.strip_prefix(METADATA_PREFIX) else {
        return Err(refused(owner, attribute, valid));
    };
    check_metadata(name, value)?;
    if value.is_empty() {
        metadata.remove(name);
    } else {
        metadata.insert(name.to_owned(), value.to_owned());
    }
    Ok(())
}

fn metadata_attributes(metadata: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> + '_ {
    metadata.iter().map(|(name, value)| (format!("{METADATA_PREFIX}{name}"), value.clone()))
}

fn refused(owner: &str, name: &str, (valid, of_the_other): (&[&str], &[&str])) -> Invalid {
    let shown: String = name.chars().take(40).collect();
    let mut what = format!("{shown:?} is not an attribute of a {owner}; ");
    if of_the_other.contains(&name) {
        let other = if owner == "table" { "family" } else { "table" };
        what += &format!("it is one of a {other}; ");
    } else if let Some(meant) = closest(&shown, valid.iter().copied()) {
        what += &format!("did you mean {meant}? ");
    }
    Invalid::new(format!("{what}a {owner} takes {}", valid.join(", ")))
}

/// A size in the form of [`parse_size`], in the largest unit that is exact.
fn size_text(bytes: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// A duration in the form of [`parse_duration_ms`], in milliseconds, which is what scripts expect; `none` for zero.
fn duration_text(ms: u64) -> String {
    if ms == 0 { "none".to_owned() } else { format!("{ms}ms") }
}

fn parse_number(name: &str, value: &str, min: u32, max: u32) -> Result<u32, Invalid> {
    let number = value.parse::<u32>().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| Invalid::new(format!("{name}={value} is not a number from {min} to {max}")))
}

fn parse_bool(name: &str, value: &str) -> Result<bool, Invalid> {
    value.parse().map_err(|_| Invalid::new(format!("{name}={value} is neither true nor false")))
}

#[cfg(test)]
mod tests;
