//! Rows that are judged cell by cell, as they are read.
//!
//! That is possible where no answer depends on cells that come later: tests of the row are about its key, and the others about the cell
//! itself and its place. Then only what passes is kept, and the reader learns where to continue.

use std::sync::Arc;

use terrane_types::Onward;
use terrane_types::cell::{CellRef, pack};

use super::{Judging, Placed, RowFilter, Shared, Verdict};
use crate::plan::{CellNode, Plan};

/// How far the row is judged.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// A buffer for a row that is judged whole.
    pub(super) shown: Vec<u8>,
    /// Family and qualifier of the last cell, and the ordinal of its column; `None` before the first one.
    last: Option<u32>,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    passed: usize,
    kept: usize,
}

impl Plan {
    /// Whether every answer is known when its cell is read.
    pub(crate) fn judges_cells_alone(&self) -> bool {
        self.row_tests.iter().all(crate::plan::RowNode::is_about_key)
            && self.cell_tests.iter().all(|test| is_alone(test, true))
            && self.whiles.iter().all(|test| is_alone(test, false))
    }
}

/// Whether a test needs the key and, unless it must not, the cell, and nothing else.
fn is_alone(test: &CellNode, with_cell: bool) -> bool {
    match test {
        CellNode::Row { test, .. } => test.is_about_key(),
        CellNode::All(parts) | CellNode::Any(parts) => parts.iter().all(|part| is_alone(part, with_cell)),
        CellNode::Not(inner) => is_alone(inner, with_cell),
        _ => with_cell,
    }
}

impl RowFilter {
    /// Whether rows can be judged cell by cell: [`RowFilter::begin_row`], [`RowFilter::cell`] for each, [`RowFilter::end_row`].
    #[must_use]
    pub fn judges_cells(&self) -> bool {
        self.shared.alone
    }

    /// Begins a row; returns whether cells of it can pass.
    pub fn begin_row(&mut self, row: &[u8]) -> bool {
        self.answers.fill(None);
        self.progress.last = None;
        (self.progress.passed, self.progress.kept) = (0, 0);
        if !self.may_pass(row) {
            return false;
        }
        let shared = Arc::clone(&self.shared);
        let mut judging = Judging { row, cells: &[], asked: None, answers: &mut self.answers };
        shared.plan.row_tests.iter().all(|test| judging.row_passes(test))
    }

    /// Judges the next cell of the row, and packs what is returned of it.
    pub fn cell(&mut self, row: &[u8], cell: CellRef<'_>, out: &mut Vec<u8>) -> Onward {
        let shared = Arc::clone(&self.shared);
        let placed = self.progress.place(cell);
        if shared.plan.first_only && !placed.is_first {
            return Onward::Row;
        }
        if let Some(onward) = shared.plan.cell_tests.iter().find_map(|test| beside(test, &placed)) {
            return onward;
        }
        let mut judging = Judging { row, cells: &[], asked: None, answers: &mut self.answers };
        if shared.plan.cell_tests.iter().all(|test| judging.cell_passes(test, &placed)) {
            let Progress { passed, kept, .. } = &mut *self.progress;
            *passed += 1;
            if *passed > shared.window.0 && *kept < shared.window.1 {
                *kept += 1;
                shared.pack(out, cell);
            }
            if *kept >= shared.window.1 {
                return Onward::Row;
            }
        }
        if shared.plan.first_only { Onward::Row } else { Onward::Cell }
    }

    /// The verdict on a row of which all cells were given, or enough of them.
    pub fn end_row(&mut self, row: &[u8]) -> Verdict {
        let shared = Arc::clone(&self.shared);
        if self.progress.passed == 0 {
            return Verdict::Hidden;
        }
        let mut judging = Judging { row, cells: &[], asked: None, answers: &mut self.answers };
        let anywhere = Placed { cell: CellRef::put(b"", b"", 0, b""), column: 0, is_first: true };
        if !shared.plan.whiles.iter().all(|test| judging.cell_passes(test, &anywhere)) {
            return Verdict::End;
        }
        if self.progress.kept == 0 { Verdict::Hidden } else { Verdict::Shown }
    }
}

/// Where to continue from a cell whose column is not among those that a test counts.
fn beside(test: &CellNode, placed: &Placed<'_>) -> Option<Onward> {
    let CellNode::Columns { limit, offset } = test else { return None };
    if placed.column < *offset {
        return Some(Onward::Column);
    }
    (u64::from(placed.column) >= u64::from(*offset) + u64::from(*limit)).then_some(Onward::Row)
}

impl Progress {
    /// The place of the next cell in its row.
    fn place<'a>(&mut self, cell: CellRef<'a>) -> Placed<'a> {
        let Some(column) = self.last else {
            self.note(&cell, 0);
            return Placed { cell, column: 0, is_first: true };
        };
        if self.qualifier == cell.qualifier && self.family == cell.family {
            return Placed { cell, column, is_first: false };
        }
        self.note(&cell, column + 1);
        Placed { cell, column: column + 1, is_first: false }
    }

    fn note(&mut self, cell: &CellRef<'_>, column: u32) {
        self.last = Some(column);
        self.qualifier.clear();
        self.qualifier.extend_from_slice(cell.qualifier);
        if self.family != cell.family {
            self.family.clear();
            self.family.extend_from_slice(cell.family);
        }
    }
}

impl Shared {
    /// Packs a cell as it is returned.
    pub(super) fn pack(&self, out: &mut Vec<u8>, cell: CellRef<'_>) {
        let length = u32::try_from(cell.value.len()).unwrap_or(u32::MAX).to_be_bytes();
        let value = match (self.keys_only, self.lengths) {
            (false, _) => cell.value,
            (true, false) => &[],
            (true, true) => &length,
        };
        pack(out, CellRef { value, ..cell });
    }
}
