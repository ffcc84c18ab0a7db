//! The operations in a group's log, in their versioned layout (`docs/formats/operations.md`).
//!
//! The leader writes an operation once, when it packs the entry, and every replica reads it at apply, possibly years
//! later and with a later build. It starts with a format version and a kind, and a build refuses flags that it does not
//! know instead of skipping them.
//!
//! ```text
//! operation    = format u8 (1) | kind u8 | body
//! Write        = region u64 | epoch u64 | schema version u64 | client id [16] | lowest unsettled u64
//!              | flags u8 (1 atomic, 2 exact schema, 4 traced) | trace [16] and span [8], if flagged | rows u32 | row ...
//! row          = operation u64 | first try u64 | flags u8 (1 result, 2 untracked) | row length u16 | cells length u32
//!              | row | packed cells | result u32-length, if flagged
//! ChangeTables = schema u32-length | regions u32 | (descriptor u32-length) ... | drop u64
//! Split        = region u64 | epoch u64 | left u64 | right u64 | at u16-length
//! Tick         = (nothing)
//! Merge        = left u64 | left epoch u64 | right u64 | right epoch u64 | into u64
//! Settle       = region u64 | client id [16] | below u64 | ranges u32 | (first u64 | last u64) ...
//! Freeze       = region u64 | epoch u64 | move u64 | to group u64 | servers u32 | server u64 ...
//! Unfreeze     = region u64 | move u64
//! Depart       = move u64 | descriptor u32-length
//! Adopt        = move u64 | source server u64 | its boot u64 | contents u32-length
//! Refuse       = move u64
//! Load         = region u64 | epoch u64 | schema version u64 | client id [16] | lowest unsettled u64
//!              | operations u32 | operation u64 ... | first try u64 | staging [16] | source server u64
//!              | files u32 | file ...
//! file         = family u16-length | number u64 | bytes u64 | crc32c u32
//! Compare      = region u64 | comparison [16]
//! ```
//!
//! The rows of a Write are read one by one and share the entry's buffer.
//!
//! What is proposed to a group are values ([`crate::group::proposal`]); these bytes come into being when the leader packs them.

mod compare;
mod load;
mod moves;
mod result;
mod write;

use bytes::Bytes;
use terrane_types::versions::FormatVersions;
use terrane_types::{ByteWriter as _, RegionDescriptor, RegionEpoch, RegionId, TableId, TableSchema};

pub use self::compare::{Compare, ComparisonId};
pub use self::load::{Load, LoadedFile, StagingId};
pub use self::moves::{Adopt, Depart, Destination, Freeze, Refuse, Source, Unfreeze};
pub use self::result::{ResultKind, RowResult};
pub use self::write::{LoggedRow, LoggedWrite, ROW_HEADER_BYTES, WriteEncoder, WriteHeader};
use crate::record::{Malformed, Reader};
use crate::window::{ClientId, UnderWay};

/// The layout this build writes.
const FORMAT: u8 = 1;
/// Its versions.
pub const VERSIONS: FormatVersions =
    FormatVersions { name: "log operation", oldest: FORMAT as u32, newest: FORMAT as u32 };

const WRITE: u8 = 1;
const CHANGE_TABLES: u8 = 2;
const SPLIT: u8 = 3;
const TICK: u8 = 4;
const SETTLE: u8 = 5;
const MERGE: u8 = 6;

/// One operation as it is read at apply.
pub enum Operation {
    Write(LoggedWrite),
    ChangeTables(ChangeTables),
    Split(Split),
    Merge(Merge),
    /// Changes nothing but the log time: an empty entry carries the leader's stamp.
    Tick,
    Settle(Settle),
    Freeze(Freeze),
    Unfreeze(Unfreeze),
    Depart(Depart),
    Adopt(Adopt),
    Refuse(Refuse),
    Load(Load),
    Compare(Compare),
}

/// The operation numbers that a client no longer waits for, for the window of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    pub region: RegionId,
    pub client: ClientId,
    pub under_way: UnderWay,
}

/// Table schemas, new regions, dropped tables: one operation per group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeTables {
    pub schema: Option<TableSchema>,
    pub create: Vec<RegionDescriptor>,
    pub drop: Option<TableId>,
}

/// Splits one region into two at a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    pub left: RegionId,
    pub right: RegionId,
    pub at: Bytes,
}

/// Makes one region of two neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The region with the lower rows.
    pub left: RegionId,
    pub left_epoch: RegionEpoch,
    pub right: RegionId,
    pub right_epoch: RegionEpoch,
    pub into: RegionId,
}

impl Operation {
    /// Reads an operation of a committed entry.
    pub fn decode(record: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        if reader.u8()? != FORMAT {
            return Err(Malformed("the operation's format is not known to this build"));
        }
        match reader.u8()? {
            WRITE => LoggedWrite::decode(reader).map(Self::Write),
            CHANGE_TABLES => ChangeTables::decode(reader).map(Self::ChangeTables),
            SPLIT => Split::decode(reader).map(Self::Split),
            MERGE => Merge::decode(reader).map(Self::Merge),
            TICK => Ok(reader.finish().map(|()| Self::Tick)?),
            SETTLE => Settle::decode(reader).map(Self::Settle),
            moves::FREEZE => Freeze::decode(reader).map(Self::Freeze),
            moves::UNFREEZE => Unfreeze::decode(reader).map(Self::Unfreeze),
            moves::DEPART => Depart::decode(reader).map(Self::Depart),
            moves::ADOPT => Adopt::decode(reader).map(Self::Adopt),
            moves::REFUSE => Refuse::decode(reader).map(Self::Refuse),
            load::LOAD => Load::read(reader).map(Self::Load),
            compare::COMPARE => Compare::decode(reader).map(Self::Compare),
            _ => Err(Malformed("the operation's kind is not known to this build")),
        }
    }
}

/// Appends the operation that changes nothing but the log time.
pub fn encode_tick(out: &mut Vec<u8>) {
    out.extend_from_slice(&[FORMAT, TICK]);
}

impl ChangeTables {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, CHANGE_TABLES]);
        out.bytes(&self.schema.as_ref().map(TableSchema::encode).unwrap_or_default());
        out.list(self.create.iter(), put_descriptor);
        out.u64(self.drop.map_or(0, |table| table.0));
    }

    fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let schema = reader.bytes()?;
        let schema = if schema.is_empty() { None } else { Some(read_schema(&schema)?) };
        let count = reader.count(DESCRIPTOR_BYTES_MIN)?;
        let create = (0..count).map(|_| read_descriptor(&mut reader)).collect::<Result<_, _>>()?;
        let drop = reader.u64()?;
        reader.finish()?;
        Ok(Self { schema, create, drop: (drop != 0).then_some(TableId(drop)) })
    }
}

impl Split {
    /// # Errors
    /// [`Malformed`] for a boundary that is longer than any row.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.extend_from_slice(&[FORMAT, SPLIT]);
        out.u64(self.region.0);
        out.u64(self.epoch.0);
        out.u64(self.left.0);
        out.u64(self.right.0);
        Ok(out.short(&self.at)?)
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

impl Merge {
    /// Bytes that it takes in the log.
    pub const BYTES: usize = 2 + 5 * 8;

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, MERGE]);
        for number in [self.left.0, self.left_epoch.0, self.right.0, self.right_epoch.0, self.into.0] {
            out.u64(number);
        }
    }

    fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let merge = Self {
            left: RegionId(reader.u64()?),
            left_epoch: RegionEpoch(reader.u64()?),
            right: RegionId(reader.u64()?),
            right_epoch: RegionEpoch(reader.u64()?),
            into: RegionId(reader.u64()?),
        };
        reader.finish()?;
        Ok(merge)
    }
}

impl Settle {
    /// Bytes that it takes in the log.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        2 + 8 + 16 + 8 + 4 + 16 * self.under_way.ranges().len()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let ranges = self.under_way.ranges();
        out.reserve(self.encoded_len());
        out.extend_from_slice(&[FORMAT, SETTLE]);
        out.u64(self.region.0);
        out.extend_from_slice(&self.client);
        out.u64(self.under_way.below);
        out.list(ranges.iter(), |out, (first, last)| {
            out.u64(*first);
            out.u64(*last);
        });
    }

    fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let (region, client, below) = (RegionId(reader.u64()?), reader.array()?, reader.u64()?);
        let count = reader.count(16)?;
        let ranges = (0..count).map(|_| Ok((reader.u64()?, reader.u64()?))).collect::<Result<_, Malformed>>()?;
        reader.finish()?;
        Ok(Self { region, client, under_way: UnderWay::new(below, ranges)? })
    }
}

/// The least that a descriptor takes: its length.
const DESCRIPTOR_BYTES_MIN: usize = 4;

/// Appends a descriptor, in the layout of operations and durable points.
pub fn put_descriptor(out: &mut Vec<u8>, descriptor: &RegionDescriptor) {
    out.bytes(&descriptor.encode());
}

/// Reads what [`put_descriptor`] wrote.
pub fn read_descriptor(reader: &mut Reader) -> Result<RegionDescriptor, Malformed> {
    RegionDescriptor::decode(&reader.bytes()?).map_err(|_| Malformed("a region's descriptor cannot be read"))
}

/// Reads a table's schema.
pub fn read_schema(record: &[u8]) -> Result<TableSchema, Malformed> {
    TableSchema::decode(record).map_err(|_| Malformed("a table's schema cannot be read"))
}

#[cfg(test)]
mod tests;
