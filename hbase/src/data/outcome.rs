//! What the actions of a batch came to, and the answer to those of one region.

use bytes::Bytes;
use terrane_regionserver::edge::Mutated;
use terrane_types::cell::Cells;
use terrane_types::{Error, RowOutcome};

use super::DataCalls;
use super::requests::exception;
use crate::exception::Exception;
use crate::{proto, results};

/// The outcome of one row of a write; `None`: an earlier try was applied.
pub(super) fn row_outcome(mutated: &mut Mutated, row: u32, repeatable: bool) -> Result<Option<RowOutcome>, Exception> {
    if let Some(failure) = mutated.errors.iter().find(|failure| failure.row == row) {
        return match &failure.error {
            Error::AlreadyApplied => Ok(None),
            error => Err(exception(error, repeatable)),
        };
    }
    let found = mutated.results.iter().position(|(at, _)| *at == row);
    Ok(Some(found.map(|at| mutated.results.swap_remove(at).1).unwrap_or_default()))
}

/// What one action of a batch came to.
pub(super) enum ActionOutcome {
    /// It was done, and has nothing to show.
    Done,
    /// Whether there is such a row.
    Exists(bool),
    /// What was read of the row, or what a write returns of it.
    Cells { row: Bytes, packed: Bytes },
}

/// The answer to one region's actions, each by its place. It is encoded when all are known, because cells stand in their order.
#[derive(Default)]
pub(super) struct RegionResult {
    pub indices: Vec<Option<u32>>,
    pub came: Vec<Option<Result<ActionOutcome, Exception>>>,
    pub refused: Option<Exception>,
    pub processed: Option<bool>,
}

impl RegionResult {
    pub fn refused(exception: Exception) -> Self {
        Self { refused: Some(exception), ..Self::default() }
    }

    pub fn encode(self, calls: &DataCalls, cells: &mut Vec<u8>) -> proto::RegionActionResult {
        let mut result = proto::RegionActionResult { processed: self.processed, ..Default::default() };
        if let Some(refused) = self.refused {
            result.exception = Some(refused.to_pair());
            return result;
        }
        let codec = calls.opened.codec;
        assert_eq!(self.indices.len(), self.came.len(), "an action of a batch would be left without an answer");
        for (index, came) in self.indices.into_iter().zip(self.came) {
            let missing = || Err(exception(&Error::Uncertain { not_tried: true }, true));
            let encoded = came.unwrap_or_else(missing).and_then(|came| match came {
                ActionOutcome::Done => Ok(results::empty(codec)),
                ActionOutcome::Exists(exists) => Ok(results::exists(exists)),
                ActionOutcome::Cells { row, packed } => results::of_cells(codec, &row, Cells::new(&packed), cells),
            });
            result.result_or_exception.push(match encoded {
                Ok(result) => proto::ResultOrException { index, result: Some(result), exception: None },
                Err(refused) => proto::ResultOrException { index, result: None, exception: Some(refused.to_pair()) },
            });
        }
        result
    }
}
