//! The parts of a row's mutation other than its cells: increments and appends, which cells it returns, and its outcome.
//!
//! A row's mutation takes effect atomically: its condition, increments and appends see the row as it was before.

pub mod checks;

use bytes::Bytes;

use crate::cell::{CellRef, PackedCells};
use crate::invalid::Invalid;
use crate::limits::{QUALIFIER_BYTES_MAX, VALUE_BYTES_MAX};
use crate::name::FamilyName;

/// An increment or an append: the new value of a column is computed from its newest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadModifyWrite {
    /// The column's family.
    pub family: FamilyName,
    /// The column's qualifier.
    pub qualifier: Bytes,
    /// The operation.
    pub what: ReadModifyWriteKind,
}

/// What a read-modify-write does to the newest version of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadModifyWriteKind {
    /// Adds to a 64-bit big-endian integer; an absent column counts as 0.
    Increment(i64),
    /// Appends bytes to the present value; an absent column counts as empty.
    Append(Bytes),
    /// Deletes the newest version, so that the one before it shows; an absent column stays absent.
    DeleteNewest,
}

impl ReadModifyWrite {
    /// Checks the lengths.
    ///
    /// # Errors
    /// [`Invalid`] that names the column and the limit.
    pub fn check(&self) -> Result<(), Invalid> {
        let qualifier = self.qualifier.len();
        if qualifier > QUALIFIER_BYTES_MAX {
            let column = self.column();
            return Err(Invalid::new(format!(
                "the qualifier of {column} has {qualifier} bytes; the limit is {QUALIFIER_BYTES_MAX}"
            )));
        }
        match &self.what {
            ReadModifyWriteKind::Append(value) if value.len() > VALUE_BYTES_MAX => Err(Invalid::new(format!(
                "what is appended to {} has {} bytes; the limit of a value is {VALUE_BYTES_MAX}",
                self.column(),
                value.len()
            ))),
            ReadModifyWriteKind::Append(_) | ReadModifyWriteKind::Increment(_) | ReadModifyWriteKind::DeleteNewest => {
                Ok(())
            }
        }
    }

    /// The column's new value, computed from its newest version; `None` if that version is deleted.
    ///
    /// # Errors
    /// [`Invalid`] that names the column and the rule: an incremented value has 8 bytes and does not overflow; an
    /// appended one stays within the limit of a value.
    pub fn apply(&self, newest: Option<&[u8]>) -> Result<Option<Vec<u8>>, Invalid> {
        match &self.what {
            ReadModifyWriteKind::Increment(by) => {
                let now = newest.map_or(Ok(0), |value| self.counter(value))?;
                let sum = now.checked_add(*by).ok_or_else(|| {
                    let column = self.column();
                    Invalid::new(format!("column {column} holds {now}; adding {by} would overflow its 64 bits"))
                })?;
                Ok(Some(sum.to_be_bytes().to_vec()))
            }
            ReadModifyWriteKind::Append(more) => {
                let now = newest.unwrap_or_default();
                let length = now.len() + more.len();
                if length > VALUE_BYTES_MAX {
                    return Err(Invalid::new(format!(
                        "column {} would have {length} bytes after the append; the limit of a value is {VALUE_BYTES_MAX}",
                        self.column()
                    )));
                }
                Ok(Some([now, more].concat()))
            }
            ReadModifyWriteKind::DeleteNewest => Ok(None),
        }
    }

    fn counter(&self, value: &[u8]) -> Result<i64, Invalid> {
        let bytes = <[u8; 8]>::try_from(value).map_err(|_| {
            let (column, length) = (self.column(), value.len());
            Invalid::new(format!(
                "column {column} holds {length} bytes and cannot be incremented; a counter has 8, a big-endian integer"
            ))
        })?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// `family:qualifier`, for messages.
    fn column(&self) -> String {
        CellRef::put(self.family.as_bytes(), &self.qualifier, 0, &[]).to_string()
    }
}

/// Which cells a mutation returns: the newest version of each column that it names,...
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Returns {
    /// No cells.
    #[default]
    Nothing,
    /// ...before the mutation.
    Old,
    /// ...after the mutation.
    New,
}

/// The outcome of a row's mutation that returns something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowOutcome {
    /// The condition did not hold: nothing was applied.
    pub condition_failed: bool,
    /// The returned cells; if the condition did not hold, those of the columns that it names, if requested.
    pub cells: PackedCells,
    /// The stamp of the log entry that applied it; for a retry, that of the first try.
    pub stamp: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rmw(what: ReadModifyWriteKind) -> ReadModifyWrite {
        ReadModifyWrite { family: FamilyName::new("f").unwrap(), qualifier: "q".into(), what }
    }

    #[test]
    fn an_increment_adds_and_begins_at_zero() {
        let by = rmw(ReadModifyWriteKind::Increment(-3));
        assert_eq!(by.apply(None).unwrap().unwrap(), (-3i64).to_be_bytes());
        assert_eq!(by.apply(Some(&10i64.to_be_bytes())).unwrap().unwrap(), 7i64.to_be_bytes());
    }

    #[test]
    fn an_increment_of_something_else_or_past_the_end_is_refused_with_column_and_rule() {
        let by = rmw(ReadModifyWriteKind::Increment(1));
        let refused = by.apply(Some(b"abc")).unwrap_err().to_string();
        assert!(refused.contains("column f:q holds 3 bytes") && refused.contains("a counter has 8"), "{refused}");
        let refused = by.apply(Some(&i64::MAX.to_be_bytes())).unwrap_err().to_string();
        assert!(refused.contains("column f:q") && refused.contains("overflow"), "{refused}");
    }

    #[test]
    fn an_append_stays_within_the_limit_of_a_value() {
        let more = rmw(ReadModifyWriteKind::Append("cd".into()));
        assert_eq!(more.apply(Some(b"ab")).unwrap().unwrap(), b"abcd");
        assert_eq!(more.apply(None).unwrap().unwrap(), b"cd");
        let refused = more.apply(Some(&vec![0; VALUE_BYTES_MAX - 1])).unwrap_err().to_string();
        assert!(refused.contains("10485761 bytes after the append"), "{refused}");
    }
}
