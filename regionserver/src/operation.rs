//! The operations in a group's log, in our own versioned layout (`docs/formats/operations.md`).
//!
//! An operation is written once, at the edge of the leader, and read by every replica at apply, also after years and by
//! later builds. So it starts with a format version and a kind, flags that a build does not know are refused rather than
//! skipped, and the fields of exactly-once and of conditions have their place from the first version on.
//!
//! ```text
//! operation    = format u8 (1) | kind u8 | body
//! Write        = region u64 | epoch u64 | schema version u64 | client id [16] | lowest unsettled u64 | rows u32 | row ...
//! row          = operation u64 | first try u64 | flags u8 (0) | row length u16 | cells length u32 | row | packed cells
//! ChangeTables = schema u32-length | regions u32 | (descriptor u32-length) ... | drop u64
//! Split        = region u64 | epoch u64 | left u64 | right u64 | at u16-length
//! Tick         = (nothing)
//! ```
//!
//! The rows of a Write are read one by one and share the entry's buffer. Cells are stamped in place before the entry is
//! proposed, so the bytes that the client packed are the bytes in the log and in every memtable.

use bytes::Bytes;
use terrane_types::cell::stamp_in_place;
use terrane_types::{RegionDescriptor, RegionEpoch, RegionId, TableId, TableSchema};

use crate::record::{Malformed, Reader, put_count, put_long, put_short, put_u64};

/// The layout this build writes, and the only one it reads.
const FORMAT: u8 = 1;

const WRITE: u8 = 1;
const CHANGE_TABLES: u8 = 2;
const SPLIT: u8 = 3;
const TICK: u8 = 4;

/// Bytes of a Write before its rows, and of a row before its key.
const WRITE_HEADER_BYTES: usize = 2 + 8 + 8 + 8 + 16 + 8 + 4;
const ROW_HEADER_BYTES: usize = 8 + 8 + 1 + 2 + 4;
/// Where in a Write its count of rows is.
const ROW_COUNT_AT: usize = WRITE_HEADER_BYTES - 4;

/// One operation as it is read at apply.
pub enum Operation {
    Write(Write),
    ChangeTables(ChangeTables),
    Split(Split),
    /// Nothing happens but time: an empty entry carries the leader's stamp.
    Tick,
}

/// What a Write says besides its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHeader {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    pub schema_version: u64,
    /// Exactly-once: the client, and the lowest operation number it still waits for.
    pub client: [u8; 16],
    pub lowest_unsettled: u64,
}

/// Mutations of rows of one region.
pub struct Write {
    pub header: WriteHeader,
    rows: Reader,
    left: usize,
}

/// One row's mutation: the unit of atomicity and of exactly-once.
#[derive(Debug, PartialEq, Eq)]
pub struct RowWrite {
    pub operation: u64,
    pub first_try_ms: u64,
    pub row: Bytes,
    pub cells: Bytes,
}

/// Table schemas, new regions, dropped tables: one entry per group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeTables {
    pub schema: Option<TableSchema>,
    pub create: Vec<RegionDescriptor>,
    pub drop: Option<TableId>,
}

/// One region becomes two at a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    pub left: RegionId,
    pub right: RegionId,
    pub at: Bytes,
}

impl Operation {
    /// Reads an operation of a committed entry.
    pub fn decode(record: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        if reader.u8()? != FORMAT {
            return Err(Malformed("the operation's format is not known to this build"));
        }
        match reader.u8()? {
            WRITE => Write::decode(reader).map(Self::Write),
            CHANGE_TABLES => ChangeTables::decode(reader).map(Self::ChangeTables),
            SPLIT => Split::decode(reader).map(Self::Split),
            TICK => reader.finish().map(|()| Self::Tick),
            _ => Err(Malformed("the operation's kind is not known to this build")),
        }
    }
}

/// An empty entry's operation.
#[must_use]
pub fn tick() -> Vec<u8> {
    vec![FORMAT, TICK]
}

impl Write {
    fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let header = WriteHeader {
            region: RegionId(reader.u64()?),
            epoch: RegionEpoch(reader.u64()?),
            schema_version: reader.u64()?,
            client: reader.array()?,
            lowest_unsettled: reader.u64()?,
        };
        let left = reader.count(ROW_HEADER_BYTES)?;
        Ok(Self { header, rows: reader, left })
    }

    fn row(&mut self) -> Result<RowWrite, Malformed> {
        let operation = self.rows.u64()?;
        let first_try_ms = self.rows.u64()?;
        if self.rows.u8()? != 0 {
            return Err(Malformed("a row carries flags that are not known to this build"));
        }
        let row_len = usize::from(self.rows.u16()?);
        let cells_len = usize::try_from(self.rows.u32()?).map_err(|_| Malformed("the cells' length is too large"))?;
        Ok(RowWrite { operation, first_try_ms, row: self.rows.bytes(row_len)?, cells: self.rows.bytes(cells_len)? })
    }
}

impl Write {
    /// Rows that are left to read.
    pub fn len(&self) -> usize {
        self.left
    }
}

impl Iterator for Write {
    type Item = Result<RowWrite, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.row())
    }
}

/// Lays a Write out while its rows are being checked, so that each cell is copied once between socket and log.
pub struct WriteBuilder {
    out: Vec<u8>,
    rows: u32,
}

impl WriteBuilder {
    /// `bytes` is about what the rows will take.
    #[must_use]
    pub fn new(header: &WriteHeader, bytes: usize) -> Self {
        let mut out = Vec::with_capacity(WRITE_HEADER_BYTES + bytes);
        out.extend_from_slice(&[FORMAT, WRITE]);
        put_u64(&mut out, header.region.0);
        put_u64(&mut out, header.epoch.0);
        put_u64(&mut out, header.schema_version);
        out.extend_from_slice(&header.client);
        put_u64(&mut out, header.lowest_unsettled);
        put_count(&mut out, 0);
        Self { out, rows: 0 }
    }

    /// Appends a row whose parts have been checked.
    pub fn push(&mut self, operation: u64, first_try_ms: u64, row: &[u8], cells: &[u8]) {
        put_u64(&mut self.out, operation);
        put_u64(&mut self.out, first_try_ms);
        self.out.push(0);
        self.out.extend_from_slice(&u16::try_from(row.len()).expect("rows are bounded at the edge").to_le_bytes());
        put_count(&mut self.out, cells.len());
        self.out.extend_from_slice(row);
        self.out.extend_from_slice(cells);
        self.rows += 1;
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.out[ROW_COUNT_AT..WRITE_HEADER_BYTES].copy_from_slice(&self.rows.to_le_bytes());
        self.out
    }

    /// What a row takes in the log besides its key and cells.
    #[must_use]
    pub const fn row_overhead() -> usize {
        ROW_HEADER_BYTES
    }
}

/// Fills the entry's stamp into every cell that has no timestamp of its own. Other operations carry none.
pub fn stamp(operation: &mut [u8], stamp: i64) -> Result<(), Malformed> {
    const SHORT: Malformed = Malformed("the operation ends inside its rows");
    let &[FORMAT, WRITE, ..] = &*operation else {
        return Ok(());
    };
    let mut rest = operation.get_mut(WRITE_HEADER_BYTES..).ok_or(SHORT)?;
    while !rest.is_empty() {
        let (header, body) = rest.split_at_mut_checked(ROW_HEADER_BYTES).ok_or(SHORT)?;
        let row_len = usize::from(u16::from_le_bytes([header[17], header[18]]));
        let cells_len = u32::from_le_bytes([header[19], header[20], header[21], header[22]]);
        let cells_len = usize::try_from(cells_len).map_err(|_| SHORT)?;
        let (_, body) = body.split_at_mut_checked(row_len).ok_or(SHORT)?;
        let (cells, after) = body.split_at_mut_checked(cells_len).ok_or(SHORT)?;
        stamp_in_place(cells, stamp);
        rest = after;
    }
    Ok(())
}

impl ChangeTables {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT, CHANGE_TABLES];
        put_long(&mut out, &self.schema.as_ref().map(TableSchema::encode).unwrap_or_default());
        put_count(&mut out, self.create.len());
        for descriptor in &self.create {
            put_descriptor(&mut out, descriptor);
        }
        put_u64(&mut out, self.drop.map_or(0, |table| table.0));
        out
    }

    fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let schema = reader.long()?;
        let schema = if schema.is_empty() { None } else { Some(read_schema(&schema)?) };
        let count = reader.count(DESCRIPTOR_BYTES_MIN)?;
        let create = (0..count).map(|_| read_descriptor(&mut reader)).collect::<Result<_, _>>()?;
        let drop = reader.u64()?;
        reader.finish()?;
        Ok(Self { schema, create, drop: (drop != 0).then_some(TableId(drop)) })
    }
}

impl Split {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT, SPLIT];
        put_u64(&mut out, self.region.0);
        put_u64(&mut out, self.epoch.0);
        put_u64(&mut out, self.left.0);
        put_u64(&mut out, self.right.0);
        put_short(&mut out, &self.at);
        out
    }

    fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let split = Self {
            region: RegionId(reader.u64()?),
            epoch: RegionEpoch(reader.u64()?),
            left: RegionId(reader.u64()?),
            right: RegionId(reader.u64()?),
            at: reader.short()?,
        };
        reader.finish()?;
        Ok(split)
    }
}

/// The least a descriptor takes: its length.
pub const DESCRIPTOR_BYTES_MIN: usize = 4;

/// Appends a descriptor, as operations, replies and durable points hold it.
pub fn put_descriptor(out: &mut Vec<u8>, descriptor: &RegionDescriptor) {
    put_long(out, &descriptor.encode());
}

/// Reads what [`put_descriptor`] wrote.
pub fn read_descriptor(reader: &mut Reader) -> Result<RegionDescriptor, Malformed> {
    RegionDescriptor::decode(&reader.long()?).map_err(|_| Malformed("a region's descriptor cannot be read"))
}

/// Reads a table's schema.
pub fn read_schema(record: &[u8]) -> Result<TableSchema, Malformed> {
    TableSchema::decode(record).map_err(|_| Malformed("a table's schema cannot be read"))
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
