//! The outcomes of mutations.

use terrane_types::{Row, RowOutcome};

use crate::read::row_data::RowData;
use crate::wire::failure::Failure;
use crate::wire::failure::broken_reply;

/// The outcome of a mutation of one row that did not fail.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutationOutcome {
    /// Whether its condition held; true without one. If false, nothing was applied.
    pub held: bool,
    /// The requested cells: old or new ones with [`crate::RowMutation::returning`], or, if the condition did not hold, those it
    /// found with [`crate::RowMutation::return_found`]. `None` if none were requested, or none exist.
    pub row: Option<RowData>,
    /// The time that the server assigned, in milliseconds since 1970: the timestamp of cells written without one. If it took
    /// several tries, that of the try that was applied. 0: no longer known.
    pub stamp_ms: u64,
}

impl MutationOutcome {
    /// Applied, with nothing to return.
    pub(crate) const fn applied(stamp_ms: u64) -> Self {
        Self { held: true, row: None, stamp_ms }
    }

    /// The outcome of a row that has more to say. `stamp_ms` is the time of its request.
    pub(crate) fn of(row: &bytes::Bytes, outcome: RowOutcome, stamp_ms: u64) -> Result<Self, Failure> {
        let broken = |invalid| broken_reply(format!("the outcome of a row cannot be read: {invalid}"));
        let row = Row::new(row.clone()).map_err(broken)?;
        let found = outcome.cells.iter().next().is_some();
        Ok(Self {
            held: !outcome.condition_failed,
            row: found.then(|| RowData::new(row, outcome.cells)),
            stamp_ms: if outcome.stamp == 0 { stamp_ms } else { outcome.stamp },
        })
    }
}

/// The outcome of an atomic batch that did not fail.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicOutcome {
    /// Whether all conditions held. If false, nothing of the batch was applied, and `held` is false for every row. Rows with
    /// [`crate::RowMutation::return_found`] whose own condition did not hold contain what it found.
    pub held: bool,
    /// The outcome of each row, in the order given.
    pub rows: Vec<MutationOutcome>,
}
