//! Table schemas: families with their rules and storage, attributes of the table; and descriptors of regions.
//!
//! The catalog stores these values, group logs carry them, and clients see them in `describe`. Logs, checkpoints and
//! manifests hold their binary form (`format.rs`); `proto` has their form on the wire. `attribute.rs` parses attributes by
//! name.

mod descriptor;
mod difference;
mod format;
mod keep_deleted;
mod storage;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::escape::escape_family;
use crate::ids::TableId;
use crate::invalid::Invalid;
use crate::key::KeyDeclaration;
use crate::limits::{
    COLUMN_TYPES_MAX, FAMILIES_MAX, FLUSH_SIZE_DEFAULT, FLUSH_SIZE_MIN, METADATA_ENTRIES_MAX, METADATA_VALUE_BYTES_MAX,
    QUALIFIER_BYTES_MAX, REGION_SIZE_DEFAULT, REGION_SIZE_MIN, SCHEMA_BYTES_MAX, VERSIONS_MAX,
};
use crate::name::{FamilyName, TableName, check_name};
use crate::value_type::ValueType;

pub use descriptor::RegionDescriptor;
pub use keep_deleted::KeepDeleted;
pub(crate) use storage::check_block_size;
pub use storage::{Bloom, Compression, FamilyStorage};

/// The attributes of a family that decide which of its cells a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FamilyRules {
    /// How many versions of a column are kept, at least 1.
    pub versions: u32,
    /// How many of the newest versions `ttl_ms` does not hide; at most `versions`.
    pub min_versions: u32,
    /// Cells older than this are hidden; `None`: cells do not expire.
    pub ttl_ms: Option<u64>,
    /// Whether a read of times below a tombstone still sees the cells that the tombstone hides.
    pub keep_deleted_cells: KeepDeleted,
}

impl Default for FamilyRules {
    fn default() -> Self {
        Self { versions: 1, min_versions: 0, ttl_ms: None, keep_deleted_cells: KeepDeleted::No }
    }
}

impl FamilyRules {
    /// Checks that the attributes are consistent.
    ///
    /// # Errors
    /// [`Invalid`] that names the attribute and the limit.
    pub fn check(&self) -> Result<(), Invalid> {
        if !(1..=VERSIONS_MAX).contains(&self.versions) {
            return Err(Invalid::new(format!("versions={} is out of range; it is 1 to {VERSIONS_MAX}", self.versions)));
        }
        if self.min_versions > self.versions {
            return Err(Invalid::new(format!(
                "min_versions={} is more than versions={}; it is 0 to versions",
                self.min_versions, self.versions
            )));
        }
        if self.ttl_ms == Some(0) {
            return Err(Invalid::new("ttl=0 would hide every cell; leave ttl out, or say `none`, for cells that stay"));
        }
        Ok(())
    }
}

/// A column family: a name, its rules and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySchema {
    /// The family's name.
    pub name: FamilyName,
    /// Which cells readers see.
    pub rules: FamilyRules,
    /// How cells are stored.
    pub storage: FamilyStorage,
    /// The declared types of columns' values by qualifier, set as `type.QUALIFIER`. Tools parse and show values by them;
    /// servers do not check what is written.
    pub types: BTreeMap<Bytes, ValueType>,
    /// Free metadata, set as `meta.NAME`.
    pub metadata: BTreeMap<String, String>,
    /// Attributes of another protocol, kept byte for byte. Tools do not show them.
    pub foreign: Foreign,
}

/// Attributes without a meaning here, by name.
pub type Foreign = BTreeMap<Bytes, Bytes>;

/// When a region splits automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitPolicy {
    /// At the table's region size.
    #[default]
    Size = 0,
    /// Never; it can still be split on request.
    None = 1,
}

impl SplitPolicy {
    /// Its name in attributes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::None => "none",
        }
    }

    const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Size),
            1 => Some(Self::None),
            _ => None,
        }
    }
}

impl std::str::FromStr for SplitPolicy {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        match name {
            "size" => Ok(Self::Size),
            "none" => Ok(Self::None),
            _ => Err(Invalid::new(format!("split_policy={name} is neither size nor none"))),
        }
    }
}

impl FamilySchema {
    /// A family with the default rules and storage.
    #[must_use]
    pub fn new(name: FamilyName) -> Self {
        Self {
            name,
            rules: FamilyRules::default(),
            storage: FamilyStorage::default(),
            types: BTreeMap::new(),
            metadata: BTreeMap::new(),
            foreign: Foreign::new(),
        }
    }
}

/// A table as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSchema {
    /// The table's id; zero until the catalog assigns one.
    pub table: TableId,
    /// Its name.
    pub name: TableName,
    /// Raised by every alter.
    pub version: u64,
    /// Its families, sorted by name.
    pub families: Vec<FamilySchema>,
    /// Bytes at which a region splits.
    pub region_size: u64,
    /// Bytes of memtable at which a region flushes.
    pub flush_size: u64,
    /// The typed parts of its row keys; `None`: keys are bytes.
    pub key: Option<KeyDeclaration>,
    /// A split never separates rows that share this many leading key parts; 0: none.
    pub atomic: u32,
    /// How many leading key parts bloom filters hold in addition, so that a scan of rows that share them can skip
    /// files; 0: none.
    pub bloom_prefix: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether reads and writes are refused.
    pub disabled: bool,
    /// Whether reads that do not ask for less are confirmed by a quorum, so that they do not rely on clocks.
    pub strict_reads: bool,
    /// How long snapshots can read versions that are otherwise obsolete, in milliseconds; 0: not at all.
    pub history_ms: u64,
    /// When its regions split automatically.
    pub split_policy: SplitPolicy,
    /// Free metadata, set as `meta.NAME`.
    pub metadata: BTreeMap<String, String>,
    /// Attributes of another protocol, kept byte for byte. Tools do not show them.
    pub foreign: Foreign,
}

impl TableSchema {
    /// A table with default attributes and no family yet.
    #[must_use]
    pub fn new(name: TableName) -> Self {
        Self {
            table: TableId::default(),
            name,
            version: 1,
            families: Vec::new(),
            region_size: REGION_SIZE_DEFAULT,
            flush_size: FLUSH_SIZE_DEFAULT,
            key: None,
            atomic: 0,
            bloom_prefix: 0,
            read_only: false,
            disabled: false,
            strict_reads: false,
            history_ms: 0,
            split_policy: SplitPolicy::default(),
            metadata: BTreeMap::new(),
            foreign: Foreign::new(),
        }
    }

    /// The declared type of a column's values.
    #[must_use]
    pub fn value_type(&self, family: &[u8], qualifier: &[u8]) -> Option<ValueType> {
        self.family(family)?.types.get(qualifier).copied()
    }

    /// The family with this name.
    #[must_use]
    pub fn family(&self, name: &[u8]) -> Option<&FamilySchema> {
        self.families.iter().find(|family| family.name.as_bytes() == name)
    }

    /// The family with this name, which has to exist.
    ///
    /// # Errors
    /// [`Invalid`] that names the family and those that the table has.
    pub fn known_family(&self, name: &[u8]) -> Result<&FamilySchema, Invalid> {
        self.family(name).ok_or_else(|| {
            let known: Vec<String> = self.families.iter().map(|family| family.name.to_string()).collect();
            let known = known.join(", ");
            Invalid::new(format!("table {} has no family {}; it has {known}", self.name, escape_family(name)))
        })
    }

    /// Checks that the table has a family with this name.
    ///
    /// # Errors
    /// As for [`TableSchema::known_family`].
    pub fn check_family(&self, name: &[u8]) -> Result<(), Invalid> {
        self.known_family(name).map(drop)
    }

    /// Adds a family.
    ///
    /// # Errors
    /// [`Invalid`] if the name is taken, or the table has the maximum number of families.
    pub fn add_family(&mut self, family: FamilySchema) -> Result<(), Invalid> {
        if self.families.len() >= FAMILIES_MAX {
            return Err(Invalid::new(format!("table {} has {FAMILIES_MAX} families, which is the limit", self.name)));
        }
        match self.families.binary_search_by(|there| there.name.cmp(&family.name)) {
            Ok(_) => Err(Invalid::new(format!("table {} has a family {} already", self.name, family.name))),
            Err(at) => {
                self.families.insert(at, family);
                Ok(())
            }
        }
    }

    /// Checks that the whole schema is consistent. `create` and `alter` do this before anything is recorded.
    ///
    /// # Errors
    /// [`Invalid`] that names the attribute and the limit.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.name.is_meta() {
            return Err(Invalid::new("the name meta is reserved for the index of regions; choose another"));
        }
        if self.families.is_empty() {
            return Err(Invalid::new(format!("table {} has no family; it needs at least one", self.name)));
        }
        self.check_families()?;
        check_region_size(self.region_size)?;
        check_flush_size(self.flush_size)?;
        check_duration("history", self.history_ms)?;
        self.check_leading_parts("atomic", self.atomic)?;
        self.check_leading_parts("bloom_prefix", self.bloom_prefix)?;
        check_entries(&self.metadata).map_err(|error| Invalid::new(format!("table {}: {error}", self.name)))?;
        let bytes = self.encode().len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(Invalid::new(format!(
                "the schema of table {} takes {bytes} bytes; the limit is {SCHEMA_BYTES_MAX}: shorten its metadata and attributes",
                self.name
            )));
        }
        Ok(())
    }

    fn check_families(&self) -> Result<(), Invalid> {
        if self.families.len() > FAMILIES_MAX {
            return Err(Invalid::new(format!(
                "table {} has {} families; the limit is {FAMILIES_MAX}",
                self.name,
                self.families.len()
            )));
        }
        for (at, family) in self.families.iter().enumerate() {
            if self.families[..at].iter().any(|earlier| earlier.name == family.name) {
                return Err(Invalid::new(format!("table {} names family {} twice", self.name, family.name)));
            }
            let in_family = |error: Invalid| Invalid::new(format!("family {}: {error}", family.name));
            let ttl = check_duration("ttl", family.rules.ttl_ms.unwrap_or(0));
            let checked = family.rules.check().and(ttl).and_then(|()| family.storage.check());
            let checked = checked.and_then(|()| check_types(&family.types));
            checked.and_then(|()| check_entries(&family.metadata)).map_err(in_family)?;
        }
        Ok(())
    }

    /// Checks an attribute that counts leading parts of the key.
    fn check_leading_parts(&self, attribute: &str, count: u32) -> Result<(), Invalid> {
        if count == 0 {
            return Ok(());
        }
        let Some(key) = &self.key else {
            return Err(Invalid::new(format!(
                "{attribute}={count} counts key parts, but table {} declares no key",
                self.name
            )));
        };
        let parts = key.parts().len();
        if count as usize > parts {
            return Err(Invalid::new(format!("{attribute}={count} counts more parts than the key has: {parts}")));
        }
        Ok(())
    }
}

/// Checks the declared types of a family's columns.
fn check_types(types: &BTreeMap<Bytes, ValueType>) -> Result<(), Invalid> {
    let count = types.len();
    if count > COLUMN_TYPES_MAX {
        return Err(Invalid::new(format!("it declares the types of {count} columns; the limit is {COLUMN_TYPES_MAX}")));
    }
    let too_long = types.keys().find(|qualifier| qualifier.len() > QUALIFIER_BYTES_MAX);
    match too_long.map(Bytes::len) {
        Some(length) => Err(Invalid::new(format!(
            "it declares the type of a column whose qualifier has {length} bytes; the limit is {QUALIFIER_BYTES_MAX}"
        ))),
        None => Ok(()),
    }
}

pub(crate) fn check_region_size(bytes: u64) -> Result<(), Invalid> {
    if bytes >= REGION_SIZE_MIN {
        return Ok(());
    }
    Err(Invalid::new(format!("region_size={bytes}B is below the floor of 16KiB ({REGION_SIZE_MIN} bytes)")))
}

pub(crate) fn check_flush_size(bytes: u64) -> Result<(), Invalid> {
    if bytes >= FLUSH_SIZE_MIN {
        return Ok(());
    }
    Err(Invalid::new(format!("flush_size={bytes}B is below the floor of 4KiB ({FLUSH_SIZE_MIN} bytes)")))
}

/// Checks the free metadata of a table or family.
fn check_entries(metadata: &BTreeMap<String, String>) -> Result<(), Invalid> {
    if metadata.len() > METADATA_ENTRIES_MAX {
        let count = metadata.len();
        return Err(Invalid::new(format!("it has {count} entries of metadata; the limit is {METADATA_ENTRIES_MAX}")));
    }
    metadata.iter().try_for_each(|(name, value)| {
        // As an attribute, an empty value takes the entry away: `describe` could not show one that can be set again.
        if value.is_empty() {
            return Err(Invalid::new(format!("the metadata entry {name} is empty; leave it out")));
        }
        check_metadata(name, value)
    })
}

/// Checks a duration that did not come as text. Schemas in logs are not checked.
fn check_duration(attribute: &str, ms: u64) -> Result<(), Invalid> {
    if i64::try_from(ms).is_ok() {
        return Ok(());
    }
    Err(Invalid::new(format!("{attribute}={ms}ms is out of range; it is at most {}ms", i64::MAX)))
}

/// Whether this can be an entry of free metadata.
#[must_use]
pub fn is_metadata(name: &str, value: &str) -> bool {
    !value.is_empty() && check_metadata(name, value).is_ok()
}

pub(crate) fn check_metadata(name: &str, value: &str) -> Result<(), Invalid> {
    check_name("metadata entry", name)?;
    if value.len() <= METADATA_VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "the metadata entry {name} has {} bytes; the limit is {METADATA_VALUE_BYTES_MAX}",
        value.len()
    )))
}

#[cfg(test)]
mod tests;
