//! The binary form of table schemas, for logs, checkpoints and manifests. `docs/formats/schema.md` has the layouts.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    Bloom, Compression, FamilyRules, FamilySchema, FamilyStorage, Foreign, KeepDeleted, SplitPolicy, TableSchema,
};
use crate::binary::begin;
use crate::byte_reader::ByteReader;
use crate::byte_writer::ByteWriter as _;
use crate::ids::TableId;
use crate::invalid::Invalid;
use crate::key::KeyDeclaration;
use crate::name::{FamilyName, TableName};
use crate::value_type::ValueType;

const SCHEMA_FORMAT: u8 = 1;

/// The fields of an encoded schema.
type Fields<'a> = ByteReader<&'a [u8]>;

impl TableSchema {
    /// The binary form for logs and checkpoints.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![SCHEMA_FORMAT];
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
            out.flag(family.storage.in_memory);
            encode_metadata(&mut out, &family.metadata);
            out.list(family.types.iter(), |out, (qualifier, read_as)| {
                out.bytes(qualifier);
                out.text(read_as.name());
            });
            encode_foreign(&mut out, &family.foreign);
        }
        out.u64(self.region_size);
        out.u64(self.flush_size);
        out.text(&self.key.as_ref().map(ToString::to_string).unwrap_or_default());
        out.u32(self.atomic);
        out.u32(self.bloom_prefix);
        out.flag(self.read_only);
        encode_metadata(&mut out, &self.metadata);
        out.u64(self.history_ms);
        out.u8(self.split_policy as u8);
        out.flag(self.disabled);
        encode_foreign(&mut out, &self.foreign);
        out.flag(self.strict_reads);
        out
    }

    /// Decodes the bytes of [`TableSchema::encode`].
    ///
    /// # Errors
    /// [`Invalid`] for an unknown version, missing or extra bytes, or values that break a rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut input = begin("table schema", SCHEMA_FORMAT, bytes)?;
        let schema = Self {
            table: TableId(input.u64()?),
            name: TableName::new(&input.text()?)?,
            version: input.u64()?,
            families: Self::decode_families(&mut input)?,
            region_size: input.u64()?,
            flush_size: input.u64()?,
            key: Some(input.text()?)
                .filter(|key| !key.is_empty())
                .map(|key| KeyDeclaration::parse(&key))
                .transpose()?,
            atomic: input.u32()?,
            bloom_prefix: input.u32()?,
            read_only: input.u8()? != 0,
            metadata: decode_metadata(&mut input)?,
            history_ms: input.u64()?,
            split_policy: decode_split_policy(input.u8()?)?,
            disabled: input.u8()? != 0,
            foreign: decode_foreign(&mut input)?,
            strict_reads: input.u8()? != 0,
        };
        input.finish()?;
        Ok(schema)
    }

    fn decode_families(input: &mut Fields<'_>) -> Result<Vec<FamilySchema>, Invalid> {
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
            families.push(FamilySchema {
                name,
                rules,
                storage: Self::decode_storage(input)?,
                metadata: decode_metadata(input)?,
                types: decode_types(input)?,
                foreign: decode_foreign(input)?,
            });
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

fn encode_foreign(out: &mut Vec<u8>, foreign: &Foreign) {
    out.list(foreign.iter(), |out, (name, value)| {
        out.bytes(name);
        out.bytes(value);
    });
}

fn decode_foreign(input: &mut Fields<'_>) -> Result<Foreign, Invalid> {
    let mut foreign = Foreign::new();
    for _ in 0..input.u32()? {
        foreign.insert(Bytes::copy_from_slice(input.bytes()?), Bytes::copy_from_slice(input.bytes()?));
    }
    Ok(foreign)
}

fn encode_metadata(out: &mut Vec<u8>, metadata: &BTreeMap<String, String>) {
    out.list(metadata.iter(), |out, (name, value)| {
        out.text(name);
        out.text(value);
    });
}

fn decode_metadata(input: &mut Fields<'_>) -> Result<BTreeMap<String, String>, Invalid> {
    let mut metadata = BTreeMap::new();
    for _ in 0..input.u32()? {
        metadata.insert(input.text()?, input.text()?);
    }
    Ok(metadata)
}

fn decode_split_policy(number: u8) -> Result<SplitPolicy, Invalid> {
    SplitPolicy::from_u8(number).ok_or_else(|| Invalid::new(format!("split policy {number} is not one of 0 and 1")))
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
