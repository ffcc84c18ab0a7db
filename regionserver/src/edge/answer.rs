//! Answers of the data path, as values.

use bytes::Bytes;
use terrane_types::{Error, RowOutcome};

use crate::edge::page_token::Position;
use crate::group::reply::Applied;
use crate::loads::commit::Committed;
use crate::loads::runs::PartsHere;
use crate::region::scan::Block;

/// The answer to a request of a session.
pub enum Answer {
    Mutated(Mutated),
    /// Packed rows.
    Rows {
        rows: Vec<u8>,
        as_of_ms: u64,
    },
    Block {
        block: Box<Block>,
        reverse: bool,
        as_of_ms: u64,
    },
    /// The parts of a run that are here.
    PartsHere(PartsHere),
    /// What became of a run.
    Committed(Committed),
    /// A page token.
    Sealed(Bytes),
    /// The positions in a page token.
    Opened(Vec<Position>),
}

/// The outcome of a write: the rows that failed, those that have an outcome beyond success, and the stamp of the others.
#[derive(Debug, Default)]
pub struct Mutated {
    /// In the order of the request.
    pub errors: Vec<RowFailure>,
    /// By their place in the request.
    pub results: Vec<(u32, RowOutcome)>,
    pub stamp: u64,
}

/// Why a row was not applied.
#[derive(Debug)]
pub struct RowFailure {
    /// Its place in the request.
    pub row: u32,
    pub error: Error,
    /// The log says so; otherwise the row was refused before its number was looked up.
    pub decided: bool,
}

impl Answer {
    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Mutated(mutated) => mutated.results.iter().map(|(_, outcome)| outcome.cells.as_bytes().len()).sum(),
            Self::Rows { rows, .. } => rows.len(),
            Self::Block { block, .. } => block.rows.len(),
            Self::PartsHere(_) | Self::Committed(_) | Self::Sealed(_) | Self::Opened(_) => 0,
        }
    }
}

impl Mutated {
    /// Joins the outcome of the proposed rows and the errors of the others, in the order of the request. `places` are those of
    /// the proposed rows in the request, unless all were proposed.
    pub(crate) fn join(refused: Vec<(u32, Error)>, places: &[u32], applied: Applied) -> Self {
        let refused = refused.into_iter().map(|(row, error)| RowFailure { row, error, decided: false });
        let (mut errors, mut results) = (refused.collect::<Vec<_>>(), Vec::new());
        for (row, outcome) in applied.rows {
            let at = usize::try_from(row).ok().and_then(|row| places.get(row)).copied().unwrap_or(row);
            match outcome {
                Ok(outcome) => results.push((at, outcome)),
                Err(error) => errors.push(RowFailure { row: at, error, decided: true }),
            }
        }
        errors.sort_by_key(|failure| failure.row);
        Self { errors, results, stamp: applied.stamp }
    }
}
