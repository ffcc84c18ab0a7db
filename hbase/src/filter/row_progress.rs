//! How far a row is judged whose cells are still being read.

use terrane_types::cell::{CellRef, pack};

use super::{Position, Shown};

/// How far a row is judged.
#[derive(Clone, Default)]
pub(super) struct RowProgress {
    /// The filter was asked about the row, and whether it passes over it.
    pub begun: Option<RowDecision>,
    /// The family whose cells are being read.
    pub family: Option<FamilyProgress>,
    /// Families that have cells here, and the rows in which they continue, if not in the next one.
    pub families: usize,
    pub targets: Vec<Vec<u8>>,
    pub kept: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowDecision {
    Taken,
    /// The filter passes over the row. It still hears of the cells.
    Skipped,
    /// The filter is over, and hears of nothing more.
    Over,
}

/// How far a family of a row is judged.
#[derive(Clone, Default)]
pub(super) struct FamilyProgress {
    pub name: Vec<u8>,
    /// Some cell of it was not passed over.
    pub is_here: bool,
    /// Nothing more of it is judged in this row.
    pub is_done: bool,
    /// Its next cell that is judged is behind this place.
    pub place: Option<Position>,
    pub column: Option<Vec<u8>>,
    pub column_done: bool,
    pub versions: usize,
    pub included: u32,
}

/// Packs a cell as it is shown.
pub(super) fn pack_shown(out: &mut Vec<u8>, cell: CellRef<'_>, shown: Shown) {
    let length;
    let value = match shown {
        Shown::Whole => cell.value,
        // A raw scan shows tombstones, which have no place for a length.
        Shown::Length(_) if cell.kind.is_delete() => &[],
        Shown::Nothing => &[],
        Shown::Length(bytes) => {
            length = bytes.to_be_bytes();
            &length[..]
        }
    };
    pack(out, CellRef { value, ..cell });
}
