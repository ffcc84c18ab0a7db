//! HBase's filters: which rows and cells a read returns, evaluated with HBase's outcome.
//!
//! A filter of HBase is an object with state. The reader of a region asks it about each row and each cell in order, and its
//! answers ([`Code`]) also steer the reader: to the next column, to the next row of the family, to a cell further on. What a
//! filter returns therefore depends on the order of evaluation, on how lists join the answers of their parts, and on what was
//! asked before. Terrane's own filters have neither state nor order, so most of HBase's cannot become one of them. They are
//! evaluated here, as pure code over the cells of a row: as they are read, or of the whole row.
//!
//! - `decode` reads a filter from its message, within the limits below. `rows`, `columns`, `column_values`, `row_sets` and
//!   `list` are the filters, each a [`CellFilter`]; `compare`, `decimal` and `pattern` are the comparators.
//! - [`Evaluator`] does what HBase's region scanner does with a filter's answers: it is the judge of a read of the data path.
//!   `evaluator::streaming` is how it judges a row whose cells are still being read.
//!
//! Invariants:
//! - The cost of a filter is bounded before anything is read.
//! - An evaluator belongs to one read of one region, as in HBase: pages are counted, and matches awaited, per region.
//! - Rows that cannot pass are left out of what is read only where that cannot change an answer: see
//!   [`CellFilter::watches_rows`].

mod column_values;
mod columns;
mod compare;
mod decimal;
mod decode;
mod evaluator;
mod list;
mod pattern;
mod position;
mod row_progress;
mod row_sets;
mod rows;
mod value_test;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use terrane_types::{Columns, Invalid, KeyRange};

pub(crate) use self::evaluator::{Evaluator, StoreLimits, parts_of};
pub(crate) use self::pattern::Pattern;
use self::position::{CellCoordinates, Position};
pub(crate) use self::value_test::ValueTest;
use crate::cell_block::KeyValue;

/// A filter's answer about a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// It is returned.
    Include,
    /// It is returned, older versions of its column are not.
    IncludeAndNextColumn,
    /// It is not returned.
    Skip,
    /// Neither it nor older versions of its column are returned.
    NextColumn,
    /// Neither it nor the rest of the row in its family is returned.
    NextRow,
    /// The next cell of its family that is asked about is at the filter's hint.
    Seek,
}

impl Code {
    const fn includes(self) -> bool {
        matches!(self, Self::Include | Self::IncludeAndNextColumn)
    }
}

/// What is shown of a cell's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Whole,
    Nothing,
    /// This number instead, in 4 bytes.
    Length(u32),
}

/// A cell that is returned.
#[derive(Clone, Copy)]
struct Kept<'a> {
    cell: KeyValue<'a>,
    shown: Shown,
}

/// Filters are copied in their present state.
trait Copied {
    fn copy(&self) -> Box<dyn CellFilter>;
}

impl<F: CellFilter + Clone + 'static> Copied for F {
    fn copy(&self) -> Box<dyn CellFilter> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn CellFilter> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

/// A filter being evaluated, with its state. The default methods are those of a filter that lets everything pass.
///
/// The reader asks in this order for each row: [`skips_row`](Self::skips_row); for each cell, [`is_over`](Self::is_over) and
/// [`cell`](Self::cell), then [`hint`](Self::hint) or [`shown`](Self::shown) by the answer; [`edits_row`](Self::edits_row) and
/// [`edit`](Self::edit); [`drops_row`](Self::drops_row) if a cell is left; and last [`reset`](Self::reset).
trait CellFilter: Copied + Send + Sync {
    /// Prepares for the next row.
    fn reset(&mut self) {}

    /// Whether no further row and no further cell of this one passes.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether the row is passed over, judging by its key.
    fn skips_row(&mut self, _row: &[u8]) -> Result<bool, Invalid> {
        Ok(self.is_over())
    }

    /// The answer about a cell.
    fn cell(&mut self, _cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        Ok(Code::Include)
    }

    /// After [`Code::Seek`] for the cell at this position: where to continue, if that is known.
    fn hint(&mut self, _at: CellCoordinates<'_>) -> Option<Position> {
        None
    }

    /// What is shown of the value of a cell that is returned, whose value has this length and would be shown like this.
    fn shown(&self, shown: Shown, _length: usize) -> Shown {
        shown
    }

    /// Whether the row must be whole before it is judged.
    fn edits_row(&self) -> bool {
        false
    }

    /// Whether [`edit`](Self::edit) may change the cells to return.
    fn edits_cells(&self) -> bool {
        false
    }

    /// Changes the cells to return.
    fn edit(&mut self, _cells: &mut Vec<Kept<'_>>) {}

    /// Whether the row is not returned, after all of its cells.
    fn drops_row(&mut self) -> bool {
        false
    }

    /// Whether the cells of a family help to judge the row. Those of other families are only read for rows that pass.
    fn needs_family(&self, _family: &[u8]) -> bool {
        true
    }

    /// Rows come in descending order.
    fn reverse(&mut self) {}

    /// Whether answers about cells of rows that are not skipped can differ from [`Code::Include`].
    fn judges_cells(&self) -> bool {
        true
    }

    /// The columns, by family and qualifier, that decide whether the row is returned: of others it only matters whether there are
    /// any. `None`: other cells may decide.
    fn decided_by(&self) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }

    /// Whether all cells of a row but the first are left out, whatever they are.
    fn takes_first_cell(&self) -> bool {
        false
    }

    /// Whether values may not be shown whole.
    fn changes_values(&self) -> bool {
        false
    }

    /// Whether values are looked at.
    fn reads_values(&self) -> bool {
        false
    }

    /// Whether no value is shown.
    fn hides_values(&self) -> bool {
        false
    }

    /// Whether no row and no cell is left out until the filter is over.
    fn passes_until_over(&self) -> bool {
        false
    }

    /// Whether a row that does not pass can change the answers about later ones. Then no row may be left unread.
    fn watches_rows(&self) -> bool {
        false
    }

    /// Whether answers about cells depend on nothing that was asked about other cells of the row, and never fail.
    fn judges_each_alone(&self) -> bool {
        false
    }

    /// The columns outside of which no cell passes. Whether cells of others are asked about makes no difference to these.
    fn columns(&self) -> Columns {
        Columns::whole_family()
    }

    /// The part of a range outside of which no row can pass.
    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        Some(range)
    }
}
