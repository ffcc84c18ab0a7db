//! What mutations answer.

use terrane_types::{Row, RowOutcome};

use crate::read::row_data::RowData;
use crate::wire::failure::Failure;
use crate::wire::failure::broken_reply;

/// What became of a mutation of one row that did not fail.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutationOutcome {
    /// Whether its condition held; true without one. If false, nothing of it was applied.
    pub held: bool,
    /// The cells that were asked for: old or new ones by [`crate::RowMutation::returning`], or, where the condition did not
    /// hold, what it found by [`crate::RowMutation::return_found`]. `None` when nothing was asked for, or nothing is there.
    pub row: Option<RowData>,
    /// The time that servers gave it, in milliseconds since 1970: the timestamp of cells written without one. That of the
    /// first try, if it took several. 0: not known any more.
    pub stamp_ms: u64,
}

impl MutationOutcome {
    /// Applied, with nothing to tell.
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

/// What became of an atomic batch that did not fail.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicOutcome {
    /// Whether all conditions held. If false, nothing of the batch was applied, and no row of it `held`; those that asked for
    /// it ([`crate::RowMutation::return_found`]) and whose own condition did not hold say what they found.
    pub held: bool,
    /// The outcome of each row, in the order given.
    pub rows: Vec<MutationOutcome>,
}
