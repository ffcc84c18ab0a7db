//! The result of a row's mutation, as the log and the exactly-once window hold it.
//!
//! Every result goes through the log, including those of rows to which nothing was applied: an answer given before the
//! commit could describe a state that never existed. A retry is answered with the same bytes.
//!
//! ```text
//! result = version u8 (1) | stamp u64 | kind u8 | body
//! kind   = 0 applied, body: returned cells        1 the condition did not hold, body: the columns it found
//!        | 2 invalid, body: the sentence, UTF-8   3 not tried   4 applied by an earlier try, the result is not kept
//!        | 5 postponed
//! ```

use std::time::Duration;

use bytes::Bytes;
use terrane_types::{ByteWriter as _, Error, Invalid, PackedCells, RowOutcome};

use crate::record::{Malformed, Reader};

const VERSION: u8 = 1;

/// When to resend a postponed row: it only has to wait for the entry before it.
const POSTPONED_RETRY: Duration = Duration::from_millis(1);

const APPLIED: u8 = 0;
const CONDITION_FAILED: u8 = 1;
const INVALID: u8 = 2;
const NOT_TRIED: u8 = 3;
const ALREADY_APPLIED: u8 = 4;
const POSTPONED: u8 = 5;

/// The result of a row whose caller is owed more than success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowResult {
    /// The entry's stamp.
    pub stamp: u64,
    pub kind: ResultKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// Applied; these are the cells to return.
    Applied { returned: Bytes },
    /// Nothing was applied because the condition did not hold; these are the columns it names, if requested.
    ConditionFailed { found: Bytes },
    /// Nothing was applied, for the reason in this sentence.
    Invalid { what: String },
    /// Nothing was applied: the region no longer remembers this operation.
    NotTried,
    /// Applied by an earlier try, whose result is no longer kept.
    AlreadyApplied,
    /// Nothing was applied and the number was not noted: the write takes more than one entry may hold. The caller resends it.
    Postponed,
}

impl RowResult {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.push(VERSION);
        out.u64(self.stamp);
        match &self.kind {
            ResultKind::Applied { returned } => {
                out.push(APPLIED);
                out.extend_from_slice(returned);
            }
            ResultKind::ConditionFailed { found } => {
                out.push(CONDITION_FAILED);
                out.extend_from_slice(found);
            }
            ResultKind::Invalid { what } => {
                out.push(INVALID);
                out.extend_from_slice(what.as_bytes());
            }
            ResultKind::NotTried => out.push(NOT_TRIED),
            ResultKind::AlreadyApplied => out.push(ALREADY_APPLIED),
            ResultKind::Postponed => out.push(POSTPONED),
        }
        out
    }

    pub fn decode(record: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        if reader.u8()? != VERSION {
            return Err(Malformed("a row's result is of a version that is not known to this build"));
        }
        let stamp = reader.u64()?;
        let kind = match reader.u8()? {
            APPLIED => ResultKind::Applied { returned: reader.rest() },
            CONDITION_FAILED => ResultKind::ConditionFailed { found: reader.rest() },
            INVALID => {
                let what = String::from_utf8(reader.rest().into());
                ResultKind::Invalid { what: what.map_err(|_| Malformed("a text is not UTF-8"))? }
            }
            NOT_TRIED => ResultKind::NotTried,
            ALREADY_APPLIED => ResultKind::AlreadyApplied,
            POSTPONED => ResultKind::Postponed,
            _ => return Err(Malformed("a row's result is of a kind that is not known to this build")),
        };
        reader.finish()?;
        Ok(Self { stamp, kind })
    }

    /// The outcome as reported to the client.
    pub fn outcome(self) -> Result<RowOutcome, Error> {
        let Self { stamp, kind } = self;
        let cells =
            |cells| PackedCells::validate(cells).map_err(|error| Error::Internal { message: error.to_string() });
        match kind {
            ResultKind::Applied { returned } => {
                Ok(RowOutcome { condition_failed: false, cells: cells(returned)?, stamp })
            }
            ResultKind::ConditionFailed { found } => {
                Ok(RowOutcome { condition_failed: true, cells: cells(found)?, stamp })
            }
            ResultKind::Invalid { what } => Err(Error::Invalid(Invalid { what })),
            ResultKind::NotTried => Err(Error::Uncertain { not_tried: true }),
            ResultKind::AlreadyApplied => Err(Error::AlreadyApplied),
            ResultKind::Postponed => Err(Error::Busy { retry_after: POSTPONED_RETRY }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back() {
        for kind in [
            ResultKind::Applied { returned: Bytes::from_static(b"cells") },
            ResultKind::ConditionFailed { found: Bytes::new() },
            ResultKind::Invalid { what: "why".to_owned() },
            ResultKind::NotTried,
            ResultKind::AlreadyApplied,
            ResultKind::Postponed,
        ] {
            let result = RowResult { stamp: 7, kind };
            assert_eq!(RowResult::decode(result.encode().into()).unwrap(), result);
        }
    }

    #[test]
    fn the_layout_is_on_disks() {
        let result = RowResult { stamp: 7, kind: ResultKind::Invalid { what: "no".to_owned() } };
        assert_eq!(result.encode(), [1, 7, 0, 0, 0, 0, 0, 0, 0, 2, b'n', b'o']);
        assert!(RowResult::decode(Bytes::from_static(&[2, 7, 0, 0, 0, 0, 0, 0, 0, 3])).is_err(), "another version");
        assert!(RowResult::decode(Bytes::from_static(&[1, 7, 0, 0, 0, 0, 0, 0, 0, 9])).is_err(), "another kind");
        assert!(RowResult::decode(Bytes::from_static(&[1, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0])).is_err(), "bytes left over");
    }
}
