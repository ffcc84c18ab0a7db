//! Table schemas: families with their rules and storage, attributes of the table; and descriptors of regions.
//!
//! The catalog stores these values, group logs carry them, and clients see them in `describe`. Logs, checkpoints and
//! manifests hold their binary form (`encode` / `decode`), which starts with a version byte; `proto` has their form on
//! the wire. `attribute.rs` parses attributes by name. `docs/formats/schema.md` has the layouts.

mod descriptor;
mod difference;
mod keep_deleted;
mod storage;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::binary::{Writer, begin};
use crate::byte_reader::ByteReader;
use crate::escape::escape;
use crate::ids::TableId;
use crate::invalid::Invalid;
use crate::key::KeyDeclaration;
use crate::limits::{
    COLUMN_TYPES_MAX, FAMILIES_MAX, FLUSH_SIZE_DEFAULT, FLUSH_SIZE_MIN, METADATA_ENTRIES_MAX, METADATA_VALUE_BYTES_MAX,
    QUALIFIER_BYTES_MAX, REGION_SIZE_DEFAULT, REGION_SIZE_MIN, SCHEMA_BYTES_MAX, VERSIONS_MAX,
};
use crate::name::{FamilyName, TableName, check_name};
use crate::value_type::ValueType;
use crate::versions::{LEVEL_OF_VALUE_TYPES, LEVEL_UNRECORDED};

pub use descriptor::RegionDescriptor;
pub use keep_deleted::KeepDeleted;
pub(crate) use storage::check_block_size;
pub use storage::{Bloom, Compression, FamilyStorage};

/// The newest format. [`TableSchema::encode`] writes it only for a schema that needs it.
const SCHEMA_FORMAT: u8 = 5;
/// The first format with [`FamilyStorage`] and `bloom_prefix`; older ones imply the defaults.
const SCHEMA_FORMAT_OF_STORAGE: u8 = 2;
/// The first format with metadata of families, `history` and the split policy.
const SCHEMA_FORMAT_OF_HISTORY: u8 = 3;
/// The first format with value types of columns, disabled tables, and deleted cells that are kept until they expire.
const SCHEMA_FORMAT_OF_TYPES: u8 = 4;
/// The first format with attributes of other protocols.
const SCHEMA_FORMAT_OF_FOREIGN: u8 = 5;

/// The fields of an encoded schema.
type Fields<'a> = ByteReader<&'a [u8]>;

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

    /// The feature level of the processes that can read the schema.
    #[must_use]
    pub fn level(&self) -> u32 {
        if self.format() >= SCHEMA_FORMAT_OF_TYPES { LEVEL_OF_VALUE_TYPES } else { LEVEL_UNRECORDED }
    }

    /// The oldest format that can express the schema, so that builds of the level before read what does not need the newest.
    fn format(&self) -> u8 {
        if !self.foreign.is_empty() || self.families.iter().any(|family| !family.foreign.is_empty()) {
            return SCHEMA_FORMAT_OF_FOREIGN;
        }
        let is_new =
            |family: &FamilySchema| !family.types.is_empty() || family.rules.keep_deleted_cells == KeepDeleted::Ttl;
        if self.disabled || self.families.iter().any(is_new) {
            SCHEMA_FORMAT_OF_TYPES
        } else {
            SCHEMA_FORMAT_OF_HISTORY
        }
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
            let known: Vec<&str> = self.families.iter().map(|family| family.name.as_str()).collect();
            let known = known.join(", ");
            Invalid::new(format!("table {} has no family {}; it has {known}", self.name, escape(name)))
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

    /// The binary form for logs and checkpoints.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let format = self.format();
        let mut out = Writer::new(format);
        out.u64(self.table.0);
        out.text(&self.name.to_string());
        out.u64(self.version);
        out.count(self.families.len());
        for family in &self.families {
            out.text(family.name.as_str());
            out.u32(family.rules.versions);
            out.u32(family.rules.min_versions);
            out.u64(family.rules.ttl_ms.unwrap_or(0));
            out.u8(family.rules.keep_deleted_cells as u8);
            out.u8(family.storage.compression as u8);
            out.u8(family.storage.bloom as u8);
            out.u32(family.storage.block_size);
            out.u8(u8::from(family.storage.in_memory));
            encode_metadata(&mut out, &family.metadata);
            if format >= SCHEMA_FORMAT_OF_TYPES {
                out.count(family.types.len());
                for (qualifier, read_as) in &family.types {
                    out.bytes(qualifier);
                    out.text(read_as.name());
                }
            }
            if format >= SCHEMA_FORMAT_OF_FOREIGN {
                encode_foreign(&mut out, &family.foreign);
            }
        }
        out.u64(self.region_size);
        out.u64(self.flush_size);
        out.text(&self.key.as_ref().map(ToString::to_string).unwrap_or_default());
        out.u32(self.atomic);
        out.u32(self.bloom_prefix);
        out.u8(u8::from(self.read_only));
        encode_metadata(&mut out, &self.metadata);
        out.u64(self.history_ms);
        out.u8(self.split_policy as u8);
        if format >= SCHEMA_FORMAT_OF_TYPES {
            out.u8(u8::from(self.disabled));
        }
        if format >= SCHEMA_FORMAT_OF_FOREIGN {
            encode_foreign(&mut out, &self.foreign);
        }
        out.finish()
    }

    /// Decodes the bytes of [`TableSchema::encode`], including older formats.
    ///
    /// # Errors
    /// [`Invalid`] for an unknown version, missing or extra bytes, or values that break a rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let (format, mut input) = begin("table schema", SCHEMA_FORMAT, bytes)?;
        let has_storage = format >= SCHEMA_FORMAT_OF_STORAGE;
        let has_history = format >= SCHEMA_FORMAT_OF_HISTORY;
        let mut schema = Self {
            table: TableId(input.u64()?),
            name: TableName::new(&input.text()?)?,
            version: input.u64()?,
            families: Self::decode_families(&mut input, format)?,
            region_size: input.u64()?,
            flush_size: input.u64()?,
            key: Some(input.text()?)
                .filter(|key| !key.is_empty())
                .map(|key| KeyDeclaration::parse(&key))
                .transpose()?,
            atomic: input.u32()?,
            bloom_prefix: if has_storage { input.u32()? } else { 0 },
            read_only: input.u8()? != 0,
            disabled: false,
            metadata: decode_metadata(&mut input)?,
            foreign: Foreign::new(),
            history_ms: 0,
            split_policy: SplitPolicy::default(),
        };
        if has_history {
            schema.history_ms = input.u64()?;
            let policy = input.u8()?;
            schema.split_policy = SplitPolicy::from_u8(policy)
                .ok_or_else(|| Invalid::new(format!("split policy {policy} is not one of 0 and 1")))?;
        }
        if format >= SCHEMA_FORMAT_OF_TYPES {
            schema.disabled = input.u8()? != 0;
        }
        if format >= SCHEMA_FORMAT_OF_FOREIGN {
            schema.foreign = decode_foreign(&mut input)?;
        }
        input.finish()?;
        Ok(schema)
    }

    fn decode_families(input: &mut Fields<'_>, format: u8) -> Result<Vec<FamilySchema>, Invalid> {
        let mut families = Vec::new();
        for _ in 0..input.u32()? {
            let name = FamilyName::new(&input.text()?)?;
            let rules = FamilyRules {
                versions: input.u32()?,
                min_versions: input.u32()?,
                ttl_ms: Some(input.u64()?).filter(|&ttl| ttl != 0),
                keep_deleted_cells: decode_keep_deleted(input.u8()?)?,
            };
            rules.check()?;
            let has_storage = format >= SCHEMA_FORMAT_OF_STORAGE;
            let storage = if has_storage { Self::decode_storage(input)? } else { FamilyStorage::default() };
            let has_metadata = format >= SCHEMA_FORMAT_OF_HISTORY;
            let metadata = if has_metadata { decode_metadata(input)? } else { BTreeMap::new() };
            let has_types = format >= SCHEMA_FORMAT_OF_TYPES;
            let types = if has_types { decode_types(input)? } else { BTreeMap::new() };
            let has_foreign = format >= SCHEMA_FORMAT_OF_FOREIGN;
            let foreign = if has_foreign { decode_foreign(input)? } else { Foreign::new() };
            families.push(FamilySchema { name, rules, storage, types, metadata, foreign });
        }
        Ok(families)
    }

    fn decode_storage(input: &mut Fields<'_>) -> Result<FamilyStorage, Invalid> {
        let (compression, bloom) = (input.u8()?, input.u8()?);
        let storage = FamilyStorage {
            compression: Compression::from_u8(compression)
                .ok_or_else(|| Invalid::new(format!("compression {compression} is not one of 0 to 2")))?,
            bloom: Bloom::from_u8(bloom).ok_or_else(|| Invalid::new(format!("bloom {bloom} is not one of 0 to 2")))?,
            block_size: input.u32()?,
            in_memory: input.u8()? != 0,
        };
        storage.check()?;
        Ok(storage)
    }
}

fn encode_foreign(out: &mut Writer, foreign: &Foreign) {
    out.count(foreign.len());
    for (name, value) in foreign {
        out.bytes(name);
        out.bytes(value);
    }
}

fn decode_foreign(input: &mut Fields<'_>) -> Result<Foreign, Invalid> {
    let mut foreign = Foreign::new();
    for _ in 0..input.u32()? {
        foreign.insert(Bytes::copy_from_slice(input.bytes()?), Bytes::copy_from_slice(input.bytes()?));
    }
    Ok(foreign)
}

fn encode_metadata(out: &mut Writer, metadata: &BTreeMap<String, String>) {
    out.count(metadata.len());
    for (name, value) in metadata {
        out.text(name);
        out.text(value);
    }
}

fn decode_metadata(input: &mut Fields<'_>) -> Result<BTreeMap<String, String>, Invalid> {
    let mut metadata = BTreeMap::new();
    for _ in 0..input.u32()? {
        metadata.insert(input.text()?, input.text()?);
    }
    Ok(metadata)
}

fn decode_keep_deleted(number: u8) -> Result<KeepDeleted, Invalid> {
    KeepDeleted::from_u8(number)
        .ok_or_else(|| Invalid::new(format!("keep_deleted_cells {number} is not one of 0 to 2")))
}

fn decode_types(input: &mut Fields<'_>) -> Result<BTreeMap<Bytes, ValueType>, Invalid> {
    let mut types = BTreeMap::new();
    for _ in 0..input.u32()? {
        types.insert(Bytes::copy_from_slice(input.bytes()?), ValueType::parse(&input.text()?)?);
    }
    Ok(types)
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

/// Checks a duration that did not come as text. Schemas in logs are not checked: an older build accepted longer ones.
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
