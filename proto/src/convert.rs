//! Conversions between messages and types.
//!
//! `TryFrom` is for incoming messages, which may be invalid; `From` is for outgoing ones, which cannot be.

mod admin;
pub mod health;

use bytes::Bytes;
use terrane_types::cell::Cells;
use terrane_types::schema::Foreign;
use terrane_types::{
    Bloom, CellKind, CellRef, Compression, Endpoint, Error, FamilyName, FamilyRules, FamilySchema, FamilyStorage,
    GroupId, Invalid, KeepDeleted, KeyDeclaration, KeyRange, PackedCells, PackedRow, PackedRows, RegionCounts,
    RegionDescriptor, RegionEpoch, RegionId, Row, ServerEndpoint, ServerId, SplitPolicy, TableId, TableName,
    TableSchema, ValueType,
};

use crate::v1;

pub(crate) fn invalid(what: String) -> Error {
    Error::Invalid(Invalid { what })
}

impl From<RegionCounts> for v1::RegionCounts {
    fn from(counts: RegionCounts) -> Self {
        let RegionCounts { rows_read, rows_written, memtable_bytes, file_bytes, files, families } = counts;
        Self { rows_read, rows_written, memtable_bytes, file_bytes, files, families }
    }
}

impl From<&v1::RegionCounts> for RegionCounts {
    fn from(counts: &v1::RegionCounts) -> Self {
        let v1::RegionCounts { rows_read, rows_written, memtable_bytes, file_bytes, files, families } = *counts;
        Self { rows_read, rows_written, memtable_bytes, file_bytes, files, families }
    }
}

impl From<Endpoint> for v1::Endpoint {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint { protocol, address, start_code } = endpoint;
        Self { protocol, address, start_code }
    }
}

impl From<v1::Endpoint> for Endpoint {
    fn from(endpoint: v1::Endpoint) -> Self {
        let v1::Endpoint { protocol, address, start_code } = endpoint;
        Self { protocol, address, start_code }
    }
}

impl From<ServerEndpoint> for v1::ServerEndpoint {
    fn from(ServerEndpoint { server, endpoint }: ServerEndpoint) -> Self {
        Self { server: server.0, endpoint: Some(endpoint.into()) }
    }
}

impl From<&RegionDescriptor> for v1::RegionDescriptor {
    fn from(region: &RegionDescriptor) -> Self {
        Self {
            region: region.region.0,
            table: region.table.0,
            start: region.range.start.clone(),
            end: region.range.end.clone(),
            epoch: region.epoch.0,
            group: region.group.0,
            schema_version: region.schema_version,
        }
    }
}

impl TryFrom<v1::RegionDescriptor> for RegionDescriptor {
    type Error = Error;

    fn try_from(region: v1::RegionDescriptor) -> Result<Self, Error> {
        Ok(Self {
            region: RegionId(region.region),
            table: TableId(region.table),
            range: KeyRange::new(region.start, region.end)?,
            epoch: RegionEpoch(region.epoch),
            group: GroupId(region.group),
            schema_version: region.schema_version,
        })
    }
}

impl From<&FamilySchema> for v1::FamilySchema {
    fn from(family: &FamilySchema) -> Self {
        let FamilySchema { name, rules, storage, types, metadata, foreign } = family;
        let column_type = |(qualifier, read_as): (&Bytes, &ValueType)| v1::ColumnType {
            qualifier: qualifier.clone(),
            r#type: read_as.to_string(),
        };
        let compression = match storage.compression {
            Compression::None => v1::Compression::None,
            Compression::Lz4 => v1::Compression::Lz4,
            Compression::Zstd => v1::Compression::Zstd,
        };
        let bloom = match storage.bloom {
            Bloom::None => v1::Bloom::None,
            Bloom::Row => v1::Bloom::Row,
            Bloom::RowCol => v1::Bloom::Rowcol,
        };
        Self {
            name: name.as_str().to_owned(),
            versions: rules.versions,
            min_versions: rules.min_versions,
            ttl_ms: rules.ttl_ms.unwrap_or(0),
            keep_deleted_cells: rules.keep_deleted_cells as i32,
            compression: compression.into(),
            bloom: bloom.into(),
            block_size: storage.block_size,
            in_memory: storage.in_memory,
            metadata: metadata.clone().into_iter().collect(),
            types: types.iter().map(column_type).collect(),
            foreign: foreign_attributes(foreign),
        }
    }
}

impl TryFrom<v1::FamilySchema> for FamilySchema {
    type Error = Error;

    fn try_from(family: v1::FamilySchema) -> Result<Self, Error> {
        let types = family.types.iter().map(|column| Ok((column.qualifier.clone(), column.r#type.parse()?)));
        Ok(Self {
            types: types.collect::<Result<_, Invalid>>()?,
            name: FamilyName::new(&family.name)?,
            rules: FamilyRules {
                versions: family.versions,
                min_versions: family.min_versions,
                ttl_ms: (family.ttl_ms != 0).then_some(family.ttl_ms),
                keep_deleted_cells: keep_deleted(family.keep_deleted_cells)?,
            },
            storage: storage(&family)?,
            metadata: family.metadata.into_iter().collect(),
            foreign: foreign(family.foreign),
        })
    }
}

/// How a family is stored. An attribute that the peer left out, or is too old to know, has its default.
fn foreign_attributes(foreign: &Foreign) -> Vec<v1::ForeignAttribute> {
    let attribute = |(name, value): (&Bytes, &Bytes)| v1::ForeignAttribute { name: name.clone(), value: value.clone() };
    foreign.iter().map(attribute).collect()
}

fn foreign(attributes: Vec<v1::ForeignAttribute>) -> Foreign {
    attributes.into_iter().map(|attribute| (attribute.name, attribute.value)).collect()
}

fn keep_deleted(number: i32) -> Result<KeepDeleted, Error> {
    let known = u8::try_from(number).ok().and_then(KeepDeleted::from_u8);
    known.ok_or_else(|| Invalid::new(format!("keep_deleted_cells {number} is not one of 0 to 2")).into())
}

fn storage(family: &v1::FamilySchema) -> Result<FamilyStorage, Error> {
    let defaults = FamilyStorage::default();
    let compression = match v1::Compression::try_from(family.compression) {
        Ok(v1::Compression::Default) => defaults.compression,
        Ok(v1::Compression::None) => Compression::None,
        Ok(v1::Compression::Lz4) => Compression::Lz4,
        Ok(v1::Compression::Zstd) => Compression::Zstd,
        Err(_) => return Err(invalid(format!("compression {} is not one of 0 to 3", family.compression))),
    };
    let bloom = match v1::Bloom::try_from(family.bloom) {
        Ok(v1::Bloom::Default) => defaults.bloom,
        Ok(v1::Bloom::None) => Bloom::None,
        Ok(v1::Bloom::Row) => Bloom::Row,
        Ok(v1::Bloom::Rowcol) => Bloom::RowCol,
        Err(_) => return Err(invalid(format!("bloom {} is not one of 0 to 3", family.bloom))),
    };
    let block_size = if family.block_size == 0 { defaults.block_size } else { family.block_size };
    Ok(FamilyStorage { compression, bloom, block_size, in_memory: family.in_memory })
}

impl From<&TableSchema> for v1::TableSchema {
    fn from(schema: &TableSchema) -> Self {
        Self {
            table: schema.table.0,
            name: schema.name.to_string(),
            version: schema.version,
            families: schema.families.iter().map(v1::FamilySchema::from).collect(),
            region_size: schema.region_size,
            flush_size: schema.flush_size,
            key: schema.key.as_ref().map(ToString::to_string).unwrap_or_default(),
            atomic: schema.atomic,
            bloom_prefix: schema.bloom_prefix,
            read_only: schema.read_only,
            metadata: schema.metadata.clone().into_iter().collect(),
            history_ms: schema.history_ms,
            split_policy: schema.split_policy.as_str().to_owned(),
            disabled: schema.disabled,
            strict_reads: schema.strict_reads,
            foreign: foreign_attributes(&schema.foreign),
        }
    }
}

impl TryFrom<v1::TableSchema> for TableSchema {
    type Error = Error;

    fn try_from(schema: v1::TableSchema) -> Result<Self, Error> {
        let families = schema.families.into_iter().map(FamilySchema::try_from).collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            table: TableId(schema.table),
            name: TableName::new(&schema.name)?,
            version: schema.version,
            families,
            region_size: schema.region_size,
            flush_size: schema.flush_size,
            key: (!schema.key.is_empty()).then(|| schema.key.parse::<KeyDeclaration>()).transpose()?,
            atomic: schema.atomic,
            bloom_prefix: schema.bloom_prefix,
            read_only: schema.read_only,
            disabled: schema.disabled,
            strict_reads: schema.strict_reads,
            metadata: schema.metadata.into_iter().collect(),
            foreign: foreign(schema.foreign),
            history_ms: schema.history_ms,
            split_policy: if schema.split_policy.is_empty() {
                SplitPolicy::default()
            } else {
                schema.split_policy.parse()?
            },
        })
    }
}

/// Where a group is, according to the map or a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLocation {
    /// The group.
    pub group: GroupId,
    /// Its leader, if known.
    pub leader: Option<ServerId>,
    /// The term that leader was seen in.
    pub term: u64,
    /// Every member's server and address.
    pub members: Vec<(ServerId, String)>,
}

impl From<&GroupLocation> for v1::GroupLocation {
    fn from(location: &GroupLocation) -> Self {
        Self {
            group: location.group.0,
            leader: location.leader.map_or(0, |server| server.0),
            term: location.term,
            members: location.members.iter().map(|(server, address)| server_address(*server, address)).collect(),
        }
    }
}

impl From<v1::GroupLocation> for GroupLocation {
    fn from(location: v1::GroupLocation) -> Self {
        Self {
            group: GroupId(location.group),
            leader: (location.leader != 0).then_some(ServerId(location.leader)),
            term: location.term,
            members: location.members.into_iter().map(|member| (ServerId(member.server), member.address)).collect(),
        }
    }
}

/// A server, and the address where others reach it.
#[must_use]
pub fn server_address(server: ServerId, address: &str) -> v1::ServerAddress {
    v1::ServerAddress { server: server.0, address: address.to_owned() }
}

/// Packs cells that arrived as messages.
///
/// # Errors
/// [`Error::Invalid`] when a cell is outside the limits or its kind is unknown.
pub fn pack_messages(cells: &[v1::Cell]) -> Result<PackedCells, Error> {
    let mut packed = Vec::new();
    for cell in cells {
        let family = FamilyName::new(&cell.family)?;
        let kind = u8::try_from(cell.kind)
            .ok()
            .and_then(CellKind::from_u8)
            .ok_or_else(|| invalid(format!("cell kind {} is not one of 0 to 4", cell.kind)))?;
        let cell = CellRef {
            family: family.as_bytes(),
            qualifier: &cell.qualifier,
            timestamp: cell.timestamp,
            kind,
            tags: &[],
            value: &cell.value,
        };
        cell.check()?;
        terrane_types::cell::pack(&mut packed, cell);
    }
    Ok(PackedCells::validate(packed.into())?)
}

/// Packed rows as messages, for callers that request them.
///
/// # Errors
/// [`Error::Invalid`] when the packed bytes are not whole rows.
pub fn row_messages(rows: Bytes) -> Result<Vec<v1::Row>, Error> {
    let mut messages = Vec::new();
    for row in PackedRows::new(rows) {
        let PackedRow { row, cells } = row?;
        messages.push(v1::Row { row: row.into_bytes(), cells: cell_messages(cells.iter()) });
    }
    Ok(messages)
}

/// Packed cells as messages.
pub(crate) fn cell_messages(cells: Cells<'_>) -> Vec<v1::Cell> {
    let message = |cell: CellRef<'_>| v1::Cell {
        family: String::from_utf8_lossy(cell.family).into_owned(),
        qualifier: Bytes::copy_from_slice(cell.qualifier),
        timestamp: cell.timestamp,
        kind: u32::from(cell.kind as u8),
        value: Bytes::copy_from_slice(cell.value),
    };
    cells.map(message).collect()
}

/// A row key from outside.
///
/// # Errors
/// [`Error::Invalid`] when it is empty or too long.
pub fn row(bytes: Bytes) -> Result<Row, Error> {
    Ok(Row::new(bytes)?)
}

#[cfg(test)]
mod tests;
