//! A row that is judged while it is read.
//!
//! Where the filter judges cell by cell, only what it returns is kept, and it says where the reader continues. Otherwise the row is
//! assembled and judged at its end. Either way what is kept of one row has a limit; what is read has none.

use terrane_filter::Verdict;
use terrane_types::cell::{CellRef, pack};
use terrane_types::limits::READ_BYTES_MAX;
use terrane_types::rows::{RowStart, begin_row, end_row};
use terrane_types::{Error, Onward};

use super::{Evaluation, too_large};

/// How far a row is judged.
#[derive(Default)]
pub struct RowProgress {
    row: Option<Begun>,
}

struct Begun {
    /// Where the row is packed.
    start: RowStart,
    cell_by_cell: bool,
    /// Nothing of it is returned.
    is_hidden: bool,
    /// It cannot be judged.
    refused: Option<Error>,
}

impl RowProgress {
    /// Takes the next cell of a row that is packed at the end of the block. Returns where to continue reading.
    pub fn take(&mut self, evaluation: &mut Evaluation, row: &[u8], cell: CellRef<'_>, block: &mut Vec<u8>) -> Onward {
        let begun = self.row.get_or_insert_with(|| {
            let cell_by_cell = evaluation.judges_cells();
            let is_hidden = cell_by_cell && !evaluation.begin_row(row);
            Begun { start: begin_row(block, row), cell_by_cell, is_hidden, refused: None }
        });
        if begun.is_hidden || begun.refused.is_some() {
            return Onward::Row;
        }
        let onward = if begun.cell_by_cell {
            evaluation.cell(row, cell, block)
        } else {
            pack(block, cell);
            Ok(Onward::Cell)
        };
        match onward {
            Ok(onward) if block.len() - begun.start.cells_start() <= READ_BYTES_MAX => onward,
            Ok(_) => {
                begun.refused = Some(too_large(row));
                Onward::Row
            }
            Err(refused) => {
                begun.refused = Some(refused.into());
                Onward::Row
            }
        }
    }

    /// Passes over the rest of the row.
    pub fn hide(&mut self, row: &[u8], block: &mut Vec<u8>) -> Onward {
        let start = begin_row(block, row);
        self.row = Some(Begun { start, cell_by_cell: true, is_hidden: true, refused: None });
        Onward::Row
    }

    /// Whether a row was begun that has not ended.
    pub fn is_begun(&self) -> bool {
        self.row.is_some()
    }

    /// Ends the row: it is left in the block if it is returned, and removed otherwise. Returns where it was packed, with the verdict;
    /// `None` for a row of which no cell was taken.
    pub fn end(
        &mut self,
        evaluation: &mut Evaluation,
        row: &[u8],
        block: &mut Vec<u8>,
    ) -> Result<Option<(usize, Verdict)>, Error> {
        let Some(Begun { start, cell_by_cell, is_hidden, refused }) = self.row.take() else { return Ok(None) };
        let from = start.start();
        let verdict = match refused {
            Some(refused) => Err(refused),
            None if is_hidden => Ok(Verdict::Hidden),
            None if cell_by_cell => {
                end_row(block, start);
                Ok(evaluation.end_row(row))
            }
            None => {
                end_row(block, start);
                evaluation.judge(block, from).map_err(Error::from)
            }
        };
        if !matches!(verdict, Ok(Verdict::Shown)) {
            block.truncate(from);
        }
        verdict.map(|verdict| Some((from, verdict)))
    }
}
