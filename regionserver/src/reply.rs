//! What applying an operation answers to whoever proposed it.
//!
//! Replies go from the state machine to the edge of the same process only, as bytes because the raft room carries them
//! without looking. They are neither logged nor sent, so this layout may change freely. A refusal is a reply: every
//! replica comes to the same one and nothing else happens.

use bytes::Bytes;
use terrane_types::{Error, Invalid, RegionDescriptor, RegionId, RowOutcome, TableId};

use crate::operation::{DESCRIPTOR_BYTES_MIN, RowResult, put_descriptor, read_descriptor};
use crate::record::{Malformed, Reader, put_count, put_long, put_u64};

const APPLIED: u8 = 0;
const STALE: u8 = 1;
const READ_ONLY: u8 = 2;
const INVALID: u8 = 3;
const SPLIT: u8 = 4;
const ROWS: u8 = 5;
const DAMAGED: u8 = 6;
const FAILED: u8 = 7;
const SCHEMA_CHANGED: u8 = 8;

/// The least a row's result takes: its place and its length.
const RESULT_BYTES_MIN: usize = 8;

/// The outcome of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, in an entry with this stamp.
    Applied { stamp: u64 },
    /// The same of a write of which some rows have something to tell, by their place in it. Among them may be rows to which
    /// nothing was applied.
    Rows { stamp: u64, results: Vec<(u32, Bytes)> },
    /// The region or its epoch is no longer; nothing was done.
    Stale { region: RegionId, current: Vec<RegionDescriptor> },
    /// It was made for another version of the table's schema than this one, which holds; nothing was done.
    SchemaChanged { table: TableId, version: u64 },
    /// The table has become read-only; nothing was done.
    ReadOnly { what: String },
    /// The operation does not fit the state; nothing was done.
    Invalid { what: String },
    /// What it depends on lies in a damaged file; nothing was done.
    Damaged { file: String, offset: u64 },
    /// What it depends on cannot be read; nothing was done.
    Failed { what: String },
    /// The daughters of a split.
    Split { daughters: Vec<RegionDescriptor> },
}

impl Reply {
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(9);
        match self {
            Self::Applied { stamp } => {
                out.push(APPLIED);
                put_u64(&mut out, *stamp);
            }
            Self::Rows { stamp, results } => {
                out.push(ROWS);
                put_u64(&mut out, *stamp);
                put_count(&mut out, results.len());
                for (row, result) in results {
                    out.extend_from_slice(&row.to_le_bytes());
                    put_long(&mut out, result);
                }
            }
            Self::Damaged { file, offset } => {
                out.push(DAMAGED);
                put_u64(&mut out, *offset);
                put_long(&mut out, file.as_bytes());
            }
            Self::Failed { what } => {
                out.push(FAILED);
                put_long(&mut out, what.as_bytes());
            }
            Self::Stale { region, current } => {
                out.push(STALE);
                put_u64(&mut out, region.0);
                put_descriptors(&mut out, current);
            }
            Self::SchemaChanged { table, version } => {
                out.push(SCHEMA_CHANGED);
                put_u64(&mut out, table.0);
                put_u64(&mut out, *version);
            }
            Self::ReadOnly { what } => {
                out.push(READ_ONLY);
                put_long(&mut out, what.as_bytes());
            }
            Self::Invalid { what } => {
                out.push(INVALID);
                put_long(&mut out, what.as_bytes());
            }
            Self::Split { daughters } => {
                out.push(SPLIT);
                put_descriptors(&mut out, daughters);
            }
        }
        out.into()
    }

    pub fn decode(record: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        let reply = match reader.u8()? {
            APPLIED => Self::Applied { stamp: reader.u64()? },
            STALE => Self::Stale { region: RegionId(reader.u64()?), current: read_descriptors(&mut reader)? },
            READ_ONLY => Self::ReadOnly { what: text(&mut reader)? },
            INVALID => Self::Invalid { what: text(&mut reader)? },
            SCHEMA_CHANGED => Self::SchemaChanged { table: TableId(reader.u64()?), version: reader.u64()? },
            SPLIT => Self::Split { daughters: read_descriptors(&mut reader)? },
            ROWS => {
                let stamp = reader.u64()?;
                let count = reader.count(RESULT_BYTES_MIN)?;
                let result = |_| Ok::<_, Malformed>((reader.u32()?, reader.bytes()?));
                Self::Rows { stamp, results: (0..count).map(result).collect::<Result<_, _>>()? }
            }
            DAMAGED => Self::Damaged { offset: reader.u64()?, file: text(&mut reader)? },
            FAILED => Self::Failed { what: text(&mut reader)? },
            _ => return Err(Malformed("the reply's kind is not known")),
        };
        reader.finish()?;
        Ok(reply)
    }

    /// What was applied, or the refusal as a client hears it.
    pub fn applied(self) -> Result<Applied, Error> {
        match self {
            Self::Applied { stamp } => Ok(Applied { stamp, rows: Vec::new() }),
            Self::Rows { stamp, results } => {
                let row = |(row, result)| {
                    let result =
                        RowResult::decode(result).map_err(|error| Error::Internal { message: error.to_string() });
                    (row, result.and_then(RowResult::outcome))
                };
                Ok(Applied { stamp, rows: results.into_iter().map(row).collect() })
            }
            Self::Split { .. } => Ok(Applied::default()),
            Self::Stale { region, current } => Err(Error::StaleEpoch { region, current }),
            Self::SchemaChanged { table, version } => Err(Error::SchemaChanged { table, version }),
            Self::ReadOnly { what } => Err(Error::ReadOnly { what }),
            Self::Invalid { what } => Err(Error::Invalid(Invalid { what })),
            Self::Damaged { file, offset } => Err(Error::Corruption { file, offset }),
            Self::Failed { what } => Err(Error::Internal { message: what }),
        }
    }

    /// What the error of a read is to whoever needed it.
    #[must_use]
    pub fn failed(error: Error) -> Self {
        match error {
            Error::Corruption { file, offset } => Self::Damaged { file, offset },
            Error::Invalid(Invalid { what }) => Self::Invalid { what },
            other => Self::Failed { what: other.to_string() },
        }
    }
}

/// What was applied of a write.
#[derive(Debug, Default)]
pub struct Applied {
    pub stamp: u64,
    /// Rows that have something to tell, by their place in the write.
    pub rows: Vec<(u32, Result<RowOutcome, Error>)>,
}

fn put_descriptors(out: &mut Vec<u8>, descriptors: &[RegionDescriptor]) {
    put_count(out, descriptors.len());
    for descriptor in descriptors {
        put_descriptor(out, descriptor);
    }
}

fn read_descriptors(reader: &mut Reader) -> Result<Vec<RegionDescriptor>, Malformed> {
    let count = reader.count(DESCRIPTOR_BYTES_MIN)?;
    (0..count).map(|_| read_descriptor(reader)).collect()
}

fn text(reader: &mut Reader) -> Result<String, Malformed> {
    String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| Malformed("a text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use terrane_types::{GroupId, KeyRange, RegionEpoch};

    use super::*;

    #[test]
    fn replies_come_back() {
        let region = RegionDescriptor {
            region: RegionId(8),
            table: TableId(5),
            range: KeyRange::new("a", "b").unwrap(),
            epoch: RegionEpoch(1),
            group: GroupId(2),
            schema_version: 1,
        };
        for reply in [
            Reply::Applied { stamp: 5 },
            Reply::Rows { stamp: 5, results: vec![(1, Bytes::from_static(b"x")), (7, Bytes::new())] },
            Reply::Damaged { file: "7.tst".into(), offset: 9 },
            Reply::Failed { what: "the disk".into() },
            Reply::Stale { region: RegionId(1), current: vec![region.clone(), region.clone()] },
            Reply::ReadOnly { what: "table t".into() },
            Reply::Invalid { what: "no".into() },
            Reply::Split { daughters: vec![region] },
        ] {
            assert_eq!(Reply::decode(reply.encode()).unwrap(), reply);
        }
    }
}
