//! How many visible cells of a row are shown, and whether with their values.

use terrane_types::{CellRef, Projection};

/// The offset and limit of cells that a projection sets, counted down over one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellWindow {
    offset: usize,
    limit: usize,
    keys_only: bool,
    with_ttl: bool,
}

impl CellWindow {
    /// The window at the beginning of a row.
    pub(crate) fn of(projection: &Projection) -> Self {
        let (offset, limit) = projection.cell_window();
        Self { offset, limit, keys_only: projection.keys_only, with_ttl: projection.with_ttl }
    }

    /// Whether the next visible cell is shown.
    #[inline]
    pub(crate) fn admits(&mut self) -> bool {
        if self.offset > 0 {
            self.offset -= 1;
            return false;
        }
        let admitted = self.limit > 0;
        self.limit = self.limit.saturating_sub(1);
        admitted
    }

    /// Whether no further cell is shown.
    pub(crate) fn is_full(&self) -> bool {
        self.limit == 0
    }

    /// The cell as it is shown.
    #[inline]
    pub(crate) fn shown<'a>(&self, cell: CellRef<'a>) -> CellRef<'a> {
        let value = if self.keys_only { &[] } else { cell.value };
        let tags = if self.with_ttl { cell.tags } else { &[] };
        CellRef { value, tags, ..cell }
    }
}
