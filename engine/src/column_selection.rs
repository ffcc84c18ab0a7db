//! What a reader seeks of a row, and how much of it is taken at once.
//!
//! A source skips what is not sought. It does not know which cells are visible, so it cannot tell when enough versions of a column
//! were read: after some cells of one column it pauses instead, and the reader decides whether the rest of the column is worth
//! reading.

use bytes::Bytes;
use terrane_types::{Columns, QualifierRange};

use crate::cells::{Cells, Mark};

/// The columns of a row that are sought, and when to pause within one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnSelection<'a> {
    /// Sorted. With no ranges either: all columns.
    qualifiers: &'a [Bytes],
    /// Sorted and disjoint.
    ranges: &'a [QualifierRange],
    /// Cells of one column after which a part may end.
    column_cells: usize,
}

/// The qualifier of the tombstones of a family.
static TOMBSTONES: [Bytes; 1] = [Bytes::new()];

impl<'a> ColumnSelection<'a> {
    /// Everything.
    pub(crate) const ALL: Self = Self { qualifiers: &[], ranges: &[], column_cells: usize::MAX };

    /// Only the tombstones of the family.
    pub(crate) const TOMBSTONES: Self = Self { qualifiers: &TOMBSTONES, ..Self::ALL };

    /// What a projection asks of a family.
    pub(crate) fn of(asked: Option<&'a Columns>) -> Self {
        match asked {
            Some(Columns { qualifiers, ranges }) => Self { qualifiers, ranges, ..Self::ALL },
            None => Self::ALL,
        }
    }

    /// Pauses after this many cells of one column, or some more.
    pub(crate) fn pausing_after(self, column_cells: usize) -> Self {
        Self { column_cells, ..self }
    }

    pub(crate) fn qualifiers(&self) -> &'a [Bytes] {
        self.qualifiers
    }

    pub(crate) fn ranges(&self) -> &'a [QualifierRange] {
        self.ranges
    }

    pub(crate) fn is_all(&self) -> bool {
        self.qualifiers.is_empty() && self.ranges.is_empty()
    }

    /// Whether the cells of a column are sought. Those with the empty qualifier always are: they include tombstones of the family.
    pub(crate) fn wants(&self, qualifier: &[u8]) -> bool {
        if self.is_all() || qualifier.is_empty() {
            return true;
        }
        let behind = self.ranges.partition_point(|range| range.start[..] <= *qualifier);
        (behind > 0 && self.ranges[behind - 1].contains(qualifier))
            || self.qualifiers.binary_search_by(|wanted| wanted[..].cmp(qualifier)).is_ok()
    }

    /// Where the next columns that are sought begin, behind one that is not.
    pub(crate) fn next_behind(&self, qualifier: &[u8]) -> Option<&'a [u8]> {
        let single = self.qualifiers.get(self.qualifiers.partition_point(|wanted| wanted[..] <= *qualifier));
        let range = self.ranges.get(self.ranges.partition_point(|range| range.start[..] <= *qualifier));
        let (single, range) = (single.map(|single| &single[..]), range.map(|range| &range.start[..]));
        single.into_iter().chain(range).min()
    }
}

#[cfg(test)]
impl<'a> ColumnSelection<'a> {
    /// These columns, which are sorted.
    pub(crate) fn columns(qualifiers: &'a [Bytes]) -> Self {
        assert!(qualifiers.is_sorted(), "{qualifiers:?}");
        Self { qualifiers, ..Self::ALL }
    }
}

/// How much of a row is taken at once.
pub(crate) struct Portion {
    mark: Mark,
    bytes_max: usize,
    column_cells: usize,
    /// The number of cells at which to look whether they are all of one column.
    look_at: usize,
}

impl Portion {
    /// Of cells that are appended from now on.
    pub(crate) fn begin(out: &Cells, bytes_max: usize, sought: ColumnSelection<'_>) -> Self {
        let column_cells = sought.column_cells;
        Self { mark: out.mark(), bytes_max, column_cells, look_at: out.len().saturating_add(column_cells) }
    }

    /// Whether enough was appended.
    #[inline]
    pub(crate) fn is_full(&mut self, out: &Cells) -> bool {
        out.has_grown(self.mark, self.bytes_max) || (out.len() >= self.look_at && self.is_one_column(out))
    }

    /// Whether the last cells are of one column. They are sorted, so the first and the last say that.
    #[cold]
    fn is_one_column(&mut self, out: &Cells) -> bool {
        let last = out.get(out.len() - 1);
        if out.get(self.look_at - self.column_cells).qualifier == last.qualifier {
            return true;
        }
        self.look_at = out.len().saturating_add(self.column_cells);
        false
    }
}
