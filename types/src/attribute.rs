//! Attributes of tables and families by name, as `terrane table create` and `alter` take them.
//!
//! Three kinds of names are told apart, since each asks for something else from the person who typed it: those that
//! work, those that are planned and have no effect yet (silently accepting one would promise what is not kept), and
//! those that nobody knows (a slip of the pen). The last two are refused by name.

use crate::error::Invalid;
use crate::key::KeyDeclaration;
use crate::limits::VERSIONS_MAX;
use crate::schema::{FamilySchema, TableSchema, check_block_size, check_flush_size, check_metadata, check_region_size};

const FAMILY_ATTRIBUTES: [&str; 8] =
    ["versions", "min_versions", "ttl", "keep_deleted_cells", "compression", "bloom", "block_size", "in_memory"];
const TABLE_ATTRIBUTES: [&str; 7] =
    ["region_size", "flush_size", "key", "atomic", "bloom_prefix", "read_only", "meta.NAME"];
const PLANNED: [&str; 2] = ["split_policy", "history"];

impl FamilySchema {
    /// Sets an attribute by its name. Of the rules: `versions`, `min_versions`, `ttl` (see [`parse_duration_ms`]; `none`
    /// for cells that stay) and `keep_deleted_cells`. Of the storage: `compression` (`none`, `lz4`, `zstd`), `bloom`
    /// (`none`, `row`, `rowcol`), `block_size` (see [`parse_size`]) and `in_memory`.
    ///
    /// Attributes that must fit each other (`min_versions` is at most `versions`) are compared by
    /// [`TableSchema::check`], so that they may be set in any order.
    ///
    /// # Errors
    /// [`Invalid`] for an attribute that is not known or not built yet, by name, and for a bad value.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        match name {
            "versions" => self.rules.versions = parse_number(name, value, 1, VERSIONS_MAX)?,
            "min_versions" => self.rules.min_versions = parse_number(name, value, 0, VERSIONS_MAX)?,
            "ttl" if value == "none" => self.rules.ttl_ms = None,
            "ttl" => self.rules.ttl_ms = Some(parse_duration_ms(value)?),
            "keep_deleted_cells" => self.rules.keep_deleted_cells = parse_bool(name, value)?,
            "compression" => self.storage.compression = value.parse()?,
            "bloom" => self.storage.bloom = value.parse()?,
            "block_size" => self.storage.block_size = check_block_size(parse_size(value)?)?,
            "in_memory" => self.storage.in_memory = parse_bool(name, value)?,
            _ => return Err(refused("family", name, &FAMILY_ATTRIBUTES)),
        }
        Ok(())
    }
}

impl TableSchema {
    /// Sets an attribute by its name: `region_size`, `flush_size`, `key`, `atomic`, `bloom_prefix`, `read_only`, or free
    /// metadata as `meta.NAME` (an empty value takes the entry away).
    ///
    /// ```
    /// # use terrane_types::{TableName, TableSchema};
    /// let mut schema = TableSchema::new(TableName::new("t")?);
    /// schema.set_attribute("region_size", "16MiB")?;
    /// assert_eq!(schema.region_size, 16 << 20);
    /// assert!(schema.set_attribute("split_policy", "none").is_err());
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] for an attribute that is not known or not built yet, by name, and for a bad value.
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
            "key" => self.key = Some(KeyDeclaration::parse(value)?),
            "atomic" => self.atomic = parse_number(name, value, 0, u32::MAX)?,
            "bloom_prefix" => self.bloom_prefix = parse_number(name, value, 0, u32::MAX)?,
            "read_only" => self.read_only = parse_bool(name, value)?,
            _ => return self.set_metadata(name, value),
        }
        Ok(())
    }

    fn set_metadata(&mut self, attribute: &str, value: &str) -> Result<(), Invalid> {
        let Some(name) = attribute.strip_prefix("meta.") else {
            return Err(refused("table", attribute, &TABLE_ATTRIBUTES));
        };
        check_metadata(name, value)?;
        if value.is_empty() {
            self.metadata.remove(name);
        } else {
            self.metadata.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }
}

fn refused(owner: &str, name: &str, valid: &[&str]) -> Invalid {
    let valid = valid.join(", ");
    if PLANNED.contains(&name) {
        return Invalid::new(format!(
            "the attribute {name} is not built yet and would have no effect; a {owner} takes {valid}"
        ));
    }
    let shown: String = name.chars().take(40).collect();
    Invalid::new(format!("{shown:?} is not an attribute of a {owner}; a {owner} takes {valid}"))
}

fn parse_number(name: &str, value: &str, min: u32, max: u32) -> Result<u32, Invalid> {
    let number = value.parse::<u32>().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| Invalid::new(format!("{name}={value} is not a number from {min} to {max}")))
}

fn parse_bool(name: &str, value: &str) -> Result<bool, Invalid> {
    value.parse().map_err(|_| Invalid::new(format!("{name}={value} is neither true nor false")))
}

/// Reads a size: an integer with `B`, `KiB`, `MiB` or `GiB`.
///
/// ```
/// assert_eq!(terrane_types::parse_size("16MiB")?, 16 << 20);
/// assert!(terrane_types::parse_size("16MB").is_err());
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// # Errors
/// [`Invalid`] for anything else, a size over 2^64 bytes included.
pub fn parse_size(text: &str) -> Result<u64, Invalid> {
    let units = [("KiB", 1u64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
    parse_with_unit(text, &units)
        .ok_or_else(|| Invalid::new(format!("{text:?} is not a size: an integer with B, KiB, MiB or GiB, as in 16MiB")))
}

/// Reads a time span into milliseconds: an integer with `ms`, `s`, `m`, `h` or `d`, or a bare integer of seconds, as
/// HBase has it. It is at least a millisecond.
///
/// ```
/// assert_eq!(terrane_types::parse_duration_ms("90")?, 90_000);
/// assert_eq!(terrane_types::parse_duration_ms("7d")?, 604_800_000);
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// # Errors
/// [`Invalid`] for anything else, zero and more than 2^63 milliseconds included.
pub fn parse_duration_ms(text: &str) -> Result<u64, Invalid> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("", 1_000)];
    parse_with_unit(text, &units).filter(|&ms| ms > 0 && i64::try_from(ms).is_ok()).ok_or_else(|| {
        Invalid::new(format!("{text:?} is not a time span: an integer with ms, s, m, h or d, or of seconds, as in 7d"))
    })
}

/// The number before the first unit that the text ends with, times the unit. Units are tried in order, so that `ms`
/// is not taken for `s`.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(*scale)
}

#[cfg(test)]
#[path = "attribute_tests.rs"]
mod tests;
