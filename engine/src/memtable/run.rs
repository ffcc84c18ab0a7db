//! A sorted run: cells in store order that never change, with what finds a row among them.
//!
//! A search compares heads ([`Prefix`]), which lie side by side, and touches cells only where heads are equal. The
//! bloom filter is built at the first point read, and at once where readers wait for the run: a follower, which serves no
//! reads, never builds it.
//!
//! Invariant: there is at least one cell; `heads` has one number for each row, and they never descend.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::OnceLock;

use super::filter::Filter;
use crate::cells::{Cell, Cells};
use crate::column_selection::{ColumnSelection, Portion};
use crate::row_heads::Prefix;
use crate::source::{RowKey, hash_of};

/// Rows with more cells than this are searched for the wanted columns instead of being copied whole.
const CELLS_COPIED_WHOLE: usize = 16;

/// Runs with fewer rows are searched without a filter.
const ROWS_WITHOUT_FILTER: usize = 64;

/// Heads per entry of `tops`: two cache lines.
const STRIDE: usize = 16;

#[derive(Debug)]
pub(super) struct SortedRun {
    cells: Cells,
    /// The common beginning of all rows.
    prefix: Prefix,
    /// The head of each row.
    heads: Vec<u64>,
    /// Every [`STRIDE`]th head: few enough to stay in the cache, so that a search in a long run touches two cold lines
    /// of `heads` instead of one per step.
    tops: Vec<u64>,
    /// Where each row's cells begin; empty when every row has one cell.
    starts: Vec<u32>,
    filter: OnceLock<Filter>,
}

impl SortedRun {
    /// A run of cells in store order; `None` when there are none.
    pub(super) fn new(mut cells: Cells) -> Option<Self> {
        if cells.is_empty() {
            return None;
        }
        // A little spare capacity is cheaper than the copy that would give it back.
        let used = cells.data_bytes() + cells.len() * crate::cells::SLOT_BYTES;
        if cells.memory_bytes() > used + used / 32 {
            cells.shrink();
        }
        let prefix = Prefix::of(cells.row(0), cells.row(cells.len() - 1));
        let mut heads = Vec::with_capacity(cells.len());
        let mut starts = Vec::new();
        let mut last: &[u8] = &[];
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 && cell.row == last {
                if starts.is_empty() {
                    // The first row with a second cell: every row before it had one.
                    starts.reserve_exact(cells.len());
                    starts.extend((0..heads.len()).map(offset));
                }
                continue;
            }
            if !starts.is_empty() {
                starts.push(offset(index));
            }
            heads.push(prefix.head_inside(cell.row));
            last = cell.row;
        }
        heads.shrink_to_fit();
        starts.shrink_to_fit();
        let tops = heads.iter().copied().step_by(STRIDE).collect();
        Some(Self { cells, prefix, heads, tops, starts, filter: OnceLock::new() })
    }

    pub(super) fn rows(&self) -> usize {
        self.heads.len()
    }

    pub(super) fn cells(&self) -> &Cells {
        &self.cells
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Bytes of memory held. The filter counts from the beginning: it is about a hundredth, and this keeps the number
    /// fixed.
    pub(super) fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes()
            + (self.heads.capacity() + self.tops.capacity()) * size_of::<u64>()
            + self.starts.capacity() * size_of::<u32>()
            + Filter::memory_bytes(self.rows())
            + size_of::<Self>()
    }

    /// The row with this index.
    #[inline]
    pub(super) fn row(&self, index: usize) -> &[u8] {
        self.cells.row(if self.starts.is_empty() { index } else { self.starts[index] as usize })
    }

    /// The head of the row with this index, under the run's own prefix.
    #[inline]
    pub(super) fn head(&self, index: usize) -> u64 {
        self.heads[index]
    }

    /// Where the cells of the row with this index are.
    #[inline]
    pub(super) fn cells_of(&self, index: usize) -> Range<usize> {
        if self.starts.is_empty() {
            return index..index + 1;
        }
        let end = self.starts.get(index + 1).map_or(self.cells.len(), |start| *start as usize);
        self.starts[index] as usize..end
    }

    /// The first row of `within` that is not before `row`; the end of `within` when there is none.
    #[inline]
    pub(super) fn not_before(&self, row: &[u8], within: Range<usize>) -> usize {
        let head = self.prefix.head(row);
        let (mut low, mut high) = (within.start, within.end);
        // The ends first: the bounds of a scan mostly lie outside of a run.
        if low >= high || self.heads[low] > head {
            return low;
        }
        if self.heads[high - 1] < head {
            return high;
        }
        // The answer lies at or before the first top that is not below, and after the top before it.
        let (first, last) = (low.div_ceil(STRIDE), high.div_ceil(STRIDE));
        let top = first + self.tops[first..last].partition_point(|other| *other < head);
        if top > first {
            low = (top - 1) * STRIDE + 1;
        }
        let near = high.min(top * STRIDE + 1);
        // Heads alone narrow it down to those that are equal, mostly none or one.
        low += self.heads[low..near].partition_point(|other| *other < head);
        if low == high || self.heads[low] > head {
            return low;
        }
        if self.heads.get(low + STRIDE).is_none_or(|other| *other != head) {
            high = high.min(low + STRIDE);
        }
        high = low + self.heads[low..high].partition_point(|other| *other == head);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle) < row {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// As [`SortedRun::not_before`], where the answer is likely to be near: found in about as many steps as its
    /// distance from the beginning of `within`, or with `from_end` from the end, has digits.
    #[inline]
    pub(super) fn not_before_near(&self, row: &[u8], within: Range<usize>, from_end: bool) -> usize {
        let head = self.prefix.head(row);
        let (mut low, mut high) = (within.start, within.end);
        let mut step = 1;
        while step <= within.len() {
            let at = if from_end { within.end - step } else { within.start + step - 1 };
            // Equal heads decide nothing: such a row is known neither to be before nor not to be.
            match self.heads[at].cmp(&head) {
                Ordering::Less => low = low.max(at + 1),
                Ordering::Greater => high = high.min(at),
                Ordering::Equal => {}
            }
            if (self.heads[at] < head) == from_end && self.heads[at] != head {
                break;
            }
            step *= 2;
        }
        self.not_before(row, low..high)
    }

    /// Whether the row with this index is `row`.
    #[inline]
    pub(super) fn is_row(&self, index: usize, row: &[u8]) -> bool {
        self.heads[index] == self.prefix.head(row) && self.row(index) == row
    }

    /// The row's index.
    pub(super) fn find(&self, row: &[u8]) -> Option<usize> {
        let index = self.not_before(row, 0..self.rows());
        (index < self.rows() && self.row(index) == row).then_some(index)
    }

    /// The index of a row, for a point read.
    pub(super) fn look_up(&self, key: &RowKey<'_>) -> Option<usize> {
        if self.rows() >= ROWS_WITHOUT_FILTER && !self.filter().may_contain(key.hash) {
            return None;
        }
        self.find(key.row)
    }

    /// Whether point reads have built the filter.
    pub(super) fn has_filter(&self) -> bool {
        self.filter.get().is_some()
    }

    pub(super) fn filter(&self) -> &Filter {
        self.filter.get_or_init(|| Filter::new(self.rows(), (0..self.rows()).map(|index| hash_of(self.row(index)))))
    }

    /// Whether a put of this column is here.
    pub(super) fn has_column(&self, row: &[u8], qualifier: &[u8]) -> bool {
        self.find(row).is_some_and(|index| {
            let cells = self.cells_of(index);
            let at = self.column_start(cells.clone(), qualifier);
            at < cells.end && self.cells.get(at).qualifier == qualifier
        })
    }

    /// Appends the cells of the row with this index: all of them, or in wide rows the wanted ones. Returns whether it
    /// appended all of those, see [`crate::source::Source::row`].
    pub(super) fn push_row(
        &self,
        index: usize,
        sought: ColumnSelection<'_>,
        portion: &mut Portion,
        out: &mut Cells,
    ) -> bool {
        let Range { start: mut at, end } = self.cells_of(index);
        if sought.is_all() || end - at <= CELLS_COPIED_WHOLE {
            return push_all((at..end).map(|index| self.cells.get(index)), portion, out);
        }
        while at < end {
            let cell = self.cells.get(at);
            if sought.wants(cell.qualifier) {
                if portion.is_full(out) {
                    return false;
                }
                out.push(cell);
                at += 1;
            } else if let Some(next) = sought.next_behind(cell.qualifier) {
                at = self.column_start(at..end, next);
            } else {
                break;
            }
        }
        true
    }

    /// The first cell of `within`, cells of one row, whose qualifier is not below.
    pub(super) fn column_start(&self, within: Range<usize>, qualifier: &[u8]) -> usize {
        let (mut low, mut high) = (within.start, within.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.cells.get(middle).qualifier < qualifier {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Appends cells of one row; returns whether all of them fit.
fn push_all<'a>(mut cells: impl Iterator<Item = Cell<'a>>, portion: &mut Portion, out: &mut Cells) -> bool {
    if let Some(first) = cells.next() {
        out.push(first);
        for cell in cells {
            if portion.is_full(out) {
                return false;
            }
            out.push_in_row(cell);
        }
    }
    true
}

fn offset(index: usize) -> u32 {
    u32::try_from(index).expect("a run has fewer cells than bytes, and those are addressed by 32 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use terrane_types::CellKind;

    use super::*;

    proptest! {
        #[test]
        fn what_is_near_is_found_as_everything_else(
            rows in prop::collection::btree_set(prop::collection::vec(0u8..3, 1..12), 1..80),
            sought in prop::collection::vec(0u8..3, 0..12),
            bounds: (usize, usize),
            from_end: bool,
        ) {
            let mut cells = Cells::default();
            for row in &rows {
                let cell = Cell {
                    row,
                    qualifier: b"",
                    tags: b"",
                    value: b"",
                    timestamp: 1,
                    sequence: 1,
                    position: 0,
                    kind: CellKind::Put,
                };
                cells.push(cell);
            }
            let run = SortedRun::new(cells).expect("there are rows");
            let (one, other) = (bounds.0 % (rows.len() + 1), bounds.1 % (rows.len() + 1));
            let within = one.min(other)..one.max(other);
            let plain = rows.iter().skip(within.start).take(within.len()).take_while(|row| **row < sought).count();
            prop_assert_eq!(run.not_before(&sought, within.clone()), within.start + plain);
            prop_assert_eq!(run.not_before_near(&sought, within.clone(), from_end), within.start + plain);
        }
    }
}
