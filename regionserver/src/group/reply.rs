//! What a group answers to a proposal: a value, handed from the state machine to whatever proposed it in this process.
//!
//! A refusal is a reply too: every replica comes to the same one, and nothing else happens.

use std::time::Duration;

use bytes::Bytes;
use terrane_types::{Error, Invalid, RegionDescriptor, RegionId, RowOutcome, TableId};

use crate::operation::RowResult;

/// How long a caller waits while a region is frozen: the last step of a move takes some tens of milliseconds.
pub const MOVING_RETRY: Duration = Duration::from_millis(5);
/// How long the caller of a write waits whose read failed.
const UNREADABLE_RETRY: Duration = Duration::from_millis(100);

/// The outcome of one proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Applied, in an entry with this stamp.
    Applied { stamp: u64 },
    /// The same for a write some of whose rows have a result, by their place in it; nothing may have been applied of them.
    /// Results stay as the log and the window hold them ([`RowResult`]): on most replicas nothing waits for them.
    Rows { stamp: u64, results: Vec<(u32, Bytes)> },
    /// The region or its epoch no longer exists; nothing was applied.
    Stale { region: RegionId, current: Vec<RegionDescriptor> },
    /// It was made for another version of the table's schema than the current one, `version`; nothing was applied.
    SchemaChanged { table: TableId, version: u64 },
    /// The table has become read-only; nothing was applied.
    ReadOnly { what: String },
    /// The table has been disabled; nothing was applied.
    Disabled { what: String },
    /// The region is frozen, because it moves to another group; nothing was applied.
    Moving { region: RegionId },
    /// The proposal does not fit the state; nothing was applied.
    Invalid { what: String },
    /// It depends on a damaged file; nothing was applied.
    Damaged { file: String, offset: u64 },
    /// It depends on something that the disk did not return, and may return for another try; nothing was applied.
    Unreadable { what: String },
    /// A defect kept what it depends on from being read; nothing was applied.
    Failed { what: String },
    /// The daughters of a split.
    Split { daughters: Vec<RegionDescriptor> },
    /// The region that two were merged into.
    Merged { region: RegionDescriptor },
    /// It is committed, and this replica was removed or stopped before it applied it: the others decide what it does.
    Unknown,
    /// The group has adopted the region of a move, now or before.
    Adopted,
    /// The record of the operation's number, or of the move, is gone: it may have been applied before, and was not applied now.
    Forgotten,
    /// The group has refused a move.
    Refused { why: String },
}

impl Reply {
    /// What was applied, or the refusal as an error for the client.
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
            Self::Split { .. } | Self::Merged { .. } | Self::Adopted => Ok(Applied::default()),
            Self::Unknown => Err(Error::Uncertain { not_tried: false }),
            Self::Forgotten => Err(Error::Uncertain { not_tried: true }),
            Self::Moving { region } => Err(Error::Moving { region, retry_after: MOVING_RETRY }),
            Self::Stale { region, current } => Err(Error::StaleEpoch { region, current }),
            Self::SchemaChanged { table, version } => Err(Error::SchemaChanged { table, version }),
            Self::ReadOnly { what } => Err(Error::ReadOnly { what }),
            Self::Disabled { what } => Err(Error::Disabled { what }),
            Self::Invalid { what } | Self::Refused { why: what } => Err(Error::Invalid(Invalid { what })),
            Self::Damaged { file, offset } => Err(Error::Corruption { file, offset }),
            Self::Unreadable { what } => Err(Error::Unavailable { message: what, retry_after: UNREADABLE_RETRY }),
            Self::Failed { what } => Err(Error::Internal { message: what }),
        }
    }

    /// Why nothing was applied, as a sentence.
    #[must_use]
    pub fn refusal(self) -> String {
        match self {
            Self::Refused { why } => why,
            other => other.applied().map_or_else(|error| error.to_string(), |_| "it was refused".to_owned()),
        }
    }

    /// The refusal of a proposal for which a read failed with this error.
    #[must_use]
    pub fn failed(error: Error) -> Self {
        match error {
            Error::Corruption { file, offset } => Self::Damaged { file, offset },
            Error::Invalid(Invalid { what }) => Self::Invalid { what },
            Error::Unavailable { message, .. } => Self::Unreadable { what: message },
            other => Self::Failed { what: other.to_string() },
        }
    }
}

/// What was applied of a write.
#[derive(Debug, Default)]
pub struct Applied {
    pub stamp: u64,
    /// The outcomes of rows that have one beyond success, by their place in the write.
    pub rows: Vec<(u32, Result<RowOutcome, Error>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_whose_read_the_disk_failed_can_be_tried_again() {
        let io = Error::Unavailable { message: "Input/output error".to_owned(), retry_after: Duration::ZERO };
        let refused = Reply::failed(io).applied().unwrap_err();
        assert!(
            matches!(&refused, Error::Unavailable { message, .. } if message.contains("Input/output")),
            "{refused}"
        );
        let damaged = Error::Corruption { file: "7.tbl".to_owned(), offset: 5 };
        assert_eq!(Reply::failed(damaged.clone()).applied().unwrap_err(), damaged);
    }
}
