//! Rows from many cursors in one order.
//!
//! Cursors are kept sorted by their current row, so the next row is that of the first. After a row was taken, the
//! cursors that had it are moved to where they now belong: mostly one cursor, and a search among few.
//!
//! A row comes in parts where it is larger than what is wanted at once. While several cursors have such a row, each
//! fills a buffer of its own, and the buffers are merged cell by cell.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::{ColumnSelection, Portion};
use crate::source::Cursor;

/// Moves over the rows of several sources of one family, in one direction. After an error it is exhausted.
pub(crate) struct MergingCursor {
    /// Newest source first.
    cursors: Vec<Box<dyn Cursor>>,
    /// Indices of the cursors that are not at their end, sorted by row in the direction of the merge, then newest
    /// first.
    order: Vec<usize>,
    reverse: bool,
    /// The current row, while it is given in parts and several cursors have it: those stay first in `order`.
    wide: Option<Box<Wide>>,
}

struct Wide {
    row: Vec<u8>,
    /// Newest first.
    lanes: Vec<Lane>,
}

/// What one cursor has of a wide row.
struct Lane {
    cursor: usize,
    /// Read ahead; those before `at` were returned already.
    cells: Cells,
    at: usize,
    /// The cursor has no more of the row.
    is_over: bool,
}

impl Lane {
    fn cell(&self) -> Option<Cell<'_>> {
        (self.at < self.cells.len()).then(|| self.cells.get(self.at))
    }
}

impl MergingCursor {
    /// Merges cursors that all move in the same direction, newest source first.
    pub(crate) fn new(cursors: Vec<Box<dyn Cursor>>, reverse: bool) -> Self {
        let mut merge = Self { order: Vec::with_capacity(cursors.len()), cursors, reverse, wide: None };
        merge.sort();
        merge
    }

    fn sort(&mut self) {
        let Self { cursors, order, reverse, .. } = self;
        order.clear();
        order.extend((0..cursors.len()).filter(|&index| cursors[index].row().is_some()));
        order.sort_by(|&a, &b| compare(cursors, *reverse, a, b));
    }

    /// The next row; `None` at the end.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        match &self.wide {
            None => self.cursors[*self.order.first()?].row(),
            Some(wide) => Some(&wide.row),
        }
    }

    /// How many cursors have the next row: the first ones of the order.
    fn with_row(&self) -> usize {
        let Some((&first, rest)) = self.order.split_first() else { return 0 };
        let row = self.cursors[first].row();
        1 + rest.iter().take_while(|&&index| self.cursors[index].row() == row).count()
    }

    /// Appends the cells of the next row in store order and moves on; arguments and result as in [`Cursor::take`].
    pub(crate) fn take(
        &mut self,
        sought: ColumnSelection<'_>,
        bytes_max: usize,
        out: &mut Cells,
    ) -> Result<bool, Error> {
        if self.wide.is_some() {
            return self.take_part(sought, bytes_max, out);
        }
        let with_row = self.with_row();
        let Self { cursors, order, .. } = self;
        let begin = out.len();
        if with_row <= 1 {
            let Some(&only) = order.first() else { return Ok(true) };
            let is_over = cursors[only].take(sought, bytes_max, out)?;
            if is_over {
                self.reorder(1);
            }
            return Ok(is_over);
        }
        let mark = out.mark();
        let share = (bytes_max / with_row).max(1);
        let mut taken: SmallVec<[(usize, bool); 8]> = SmallVec::new();
        let mut key = Vec::new();
        for &index in &order[..with_row] {
            let is_over = cursors[index].take(sought, share, out)?;
            if !is_over && key.is_empty() {
                key.extend_from_slice(cursors[index].row().unwrap_or_default());
            }
            taken.push((out.len(), is_over));
        }
        if key.is_empty() {
            out.sort_from(begin);
            self.reorder(with_row);
            return Ok(true);
        }
        let mut lanes = Vec::with_capacity(with_row);
        let mut first = begin;
        for (&cursor, (end, is_over)) in order.iter().zip(taken) {
            let mut cells = Cells::default();
            (first..end).for_each(|at| cells.push(out.get(at)));
            lanes.push(Lane { cursor, cells, at: 0, is_over });
            first = end;
        }
        out.rewind(mark);
        self.wide = Some(Box::new(Wide { row: key, lanes }));
        self.take_part(sought, bytes_max, out)
    }

    /// Appends a part of a wide row; returns whether it is over.
    fn take_part(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        let Self { cursors, wide, .. } = self;
        let Some(wide) = wide else { return Ok(true) };
        let lanes = &mut wide.lanes;
        let share = (bytes_max / lanes.len()).max(1);
        let mut portion = Portion::begin(out, bytes_max, sought);
        loop {
            for lane in lanes.iter_mut() {
                while lane.at == lane.cells.len() && !lane.is_over {
                    lane.cells.clear();
                    lane.at = 0;
                    lane.is_over = cursors[lane.cursor].take(sought, share, &mut lane.cells)?;
                }
            }
            if portion.is_full(out) {
                return Ok(false);
            }
            // Of two at one place the newer is kept.
            let Some(lowest) = lanes
                .iter()
                .filter_map(Lane::cell)
                .reduce(|lowest, cell| if cell.cmp_in_row(&lowest).is_lt() { cell } else { lowest })
            else {
                break;
            };
            out.push(lowest);
            let last = out.get(out.len() - 1);
            for lane in lanes.iter_mut() {
                if lane.cell().is_some_and(|cell| cell.cmp_in_row(&last).is_eq()) {
                    lane.at += 1;
                }
            }
        }
        self.close_row();
        Ok(true)
    }

    /// Leaves a wide row, of which the cursors have no more.
    fn close_row(&mut self) {
        if let Some(wide) = self.wide.take() {
            self.reorder(wide.lanes.len());
        }
    }

    /// Moves, within the next row or what is left of it, to the first cell whose qualifier is not below this one, or past the
    /// row where there is none.
    pub(crate) fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        let Self { cursors, wide, .. } = self;
        if let Some(wide) = wide {
            let Wide { row, lanes } = &mut **wide;
            for lane in lanes.iter_mut() {
                while lane.cell().is_some_and(|cell| cell.qualifier < qualifier) {
                    lane.at += 1;
                }
                if lane.cell().is_none() && !lane.is_over {
                    cursors[lane.cursor].seek_column(qualifier)?;
                    lane.is_over = cursors[lane.cursor].row() != Some(row.as_slice());
                }
            }
            if lanes.iter().all(|lane| lane.is_over && lane.cell().is_none()) {
                self.close_row();
            }
            return Ok(());
        }
        let with_row = self.with_row();
        for &index in &self.order[..with_row] {
            self.cursors[index].seek_column(qualifier)?;
        }
        self.sort();
        Ok(())
    }

    /// The only cell of the next row, where all sources together have a single one and that is known without further
    /// reading.
    pub(crate) fn single(&self) -> Option<Cell<'_>> {
        if self.wide.is_some() {
            // In the middle of a row, cursors are past what their lanes hold.
            return None;
        }
        let (&first, rest) = self.order.split_first()?;
        let cell = self.cursors[first].single()?;
        rest.first().is_none_or(|&second| self.cursors[second].row() != Some(cell.row)).then_some(cell)
    }

    /// The first cell of the next row, in store order, where it is known without further reading.
    pub(crate) fn first(&self) -> Option<Cell<'_>> {
        if self.wide.is_some() {
            return None;
        }
        let (&newest, rest) = self.order.split_first()?;
        let mut first = self.cursors[newest].first()?;
        for &index in rest {
            if self.cursors[index].row() != Some(first.row) {
                break;
            }
            let other = self.cursors[index].first()?;
            if other.cmp_in_row(&first).is_lt() {
                first = other;
            }
        }
        Some(first)
    }

    /// Moves past the next row, or what is left of it.
    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        if let Some(wide) = &self.wide {
            for lane in wide.lanes.iter().filter(|lane| !lane.is_over) {
                self.cursors[lane.cursor].skip()?;
            }
            self.close_row();
            return Ok(());
        }
        let with_row = self.with_row();
        for &index in &self.order[..with_row] {
            self.cursors[index].skip()?;
        }
        self.reorder(with_row);
        Ok(())
    }

    /// Moves past a row with a [single](MergingCursor::single) cell.
    pub(crate) fn skip_single(&mut self) -> Result<(), Error> {
        let Some(&first) = self.order.first() else { return Ok(()) };
        self.cursors[first].skip()?;
        self.reorder(1);
        Ok(())
    }

    /// Moves the first cursors of the order, which have advanced, to where they belong.
    fn reorder(&mut self, moved: usize) {
        let Self { cursors, order, reverse, .. } = self;
        // From the last to the first, so that the earlier ones stay in place until it is their turn.
        for at in (0..moved).rev() {
            let index = order[at];
            if cursors[index].row().is_none() {
                order.remove(at);
                continue;
            }
            let after = &order[at + 1..];
            let places = match after.first() {
                Some(&next) if compare(cursors, *reverse, next, index).is_lt() => {
                    after.partition_point(|&other| compare(cursors, *reverse, other, index).is_lt())
                }
                _ => 0,
            };
            order[at..=at + places].rotate_left(1);
        }
    }

    /// Moves to the first row, in the direction of the merge, that is not before `row`.
    pub(crate) fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        self.wide = None;
        for cursor in &mut self.cursors {
            cursor.seek(row)?;
        }
        self.sort();
        Ok(())
    }
}

/// Compares cursors that are not at their end.
fn compare(cursors: &[Box<dyn Cursor>], reverse: bool, a: usize, b: usize) -> Ordering {
    let rows = cursors[a].row().cmp(&cursors[b].row());
    let rows = if reverse { rows.reverse() } else { rows };
    rows.then(a.cmp(&b))
}

#[cfg(test)]
mod script_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Cell;
    use crate::row_range::RowRange;
    use crate::sorted_cells::SortedCells;
    use std::sync::Arc;

    fn run(rows: &[&[u8]], sequence: u64) -> Arc<SortedCells> {
        let mut cells = Cells::default();
        for row in rows {
            cells.push(Cell { sequence, ..Cell::put(row, b"q", 1, b"") });
        }
        Arc::new(SortedCells::new(cells))
    }

    fn merged(runs: &[Arc<SortedCells>], reverse: bool, from: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u64>)> {
        use crate::source::{Reading, Source};
        let bounds = RowRange { start: Vec::new(), end: Vec::new() };
        let reading = Reading { blocking: true, sequential: true, fills_cache: true, time_min: 0, prefix: None };
        let cursors = runs.iter().map(|run| run.clone().cursor(&bounds, reverse, reading).unwrap()).collect();
        let mut merge = MergingCursor::new(cursors, reverse);
        if let Some(row) = from {
            merge.seek(row).unwrap();
        }
        let mut rows = Vec::new();
        let mut cells = Cells::default();
        while let Some(row) = merge.row() {
            let row = row.to_vec();
            cells.clear();
            assert!(merge.take(ColumnSelection::ALL, usize::MAX, &mut cells).unwrap(), "the whole row");
            rows.push((row, cells.iter().map(|cell| cell.sequence).collect()));
        }
        rows
    }

    #[test]
    fn in_the_middle_of_a_row_no_cell_of_the_next_one_is_given() {
        use crate::source::Source;
        let run = |sequence: u64, rows: &[(&[u8], u32)]| {
            let mut cells = Cells::default();
            for &(row, count) in rows {
                for number in 0..count {
                    let qualifier = (u64::from(number) * 2 + sequence).to_be_bytes();
                    cells.push(Cell { sequence, ..Cell::put(row, &qualifier, 1, b"value") });
                }
            }
            Arc::new(SortedCells::new(cells))
        };
        // One source is past the row while the other still has most of it.
        for runs in [
            [run(2, &[(b"a", 1), (b"b", 1)]), run(1, &[(b"a", 100)])],
            [run(2, &[(b"a", 100)]), run(1, &[(b"a", 1), (b"b", 1)])],
        ] {
            let bounds = RowRange { start: Vec::new(), end: Vec::new() };
            let cursors =
                runs.iter().map(|run| run.clone().cursor(&bounds, false, crate::source::Reading::BULK).unwrap());
            let mut merge = MergingCursor::new(cursors.collect(), false);
            let mut gathered = Cells::default();
            while !merge.take(ColumnSelection::ALL, 500, &mut gathered).unwrap() {
                assert!(
                    merge.single().is_none() && merge.first().is_none(),
                    "{} cells of the row given",
                    gathered.len()
                );
                gathered.clear();
            }
            assert_eq!(merge.row(), Some(&b"b"[..]));
        }
    }

    #[test]
    fn a_row_comes_in_parts_and_is_the_same_row() {
        let columns = |sequence: u64, step: usize| {
            let mut cells = Cells::default();
            for row in [&b"a"[..], b"b"] {
                for number in (0..200u32).step_by(step) {
                    let qualifier = number.to_be_bytes();
                    cells.push(Cell { sequence, ..Cell::put(row, &qualifier, 1, b"value") });
                }
            }
            Arc::new(SortedCells::new(cells))
        };
        // The third has cells that the first has too: of two at one place the newer is returned.
        let runs = [columns(3, 3), columns(2, 2), columns(3, 5), columns(1, 1)];
        let open = |reverse| {
            use crate::source::Source;
            let bounds = RowRange { start: Vec::new(), end: Vec::new() };
            let cursors =
                runs.iter().map(|run| run.clone().cursor(&bounds, reverse, crate::source::Reading::BULK).unwrap());
            MergingCursor::new(cursors.collect(), reverse)
        };
        let take = |merge: &mut MergingCursor, bytes_max: usize| {
            let mut row = Vec::new();
            let mut part = Cells::default();
            loop {
                part.clear();
                let is_over = merge.take(ColumnSelection::ALL, bytes_max, &mut part).unwrap();
                assert!(part.len() <= bytes_max / 49 + 2, "{} cells in a part of {bytes_max} bytes", part.len());
                row.extend(part.iter().map(|cell| (cell.row.to_vec(), cell.qualifier.to_vec(), cell.sequence)));
                if is_over {
                    return row;
                }
            }
        };
        for reverse in [false, true] {
            let mut whole = open(reverse);
            let (first, second) = (take(&mut whole, 1 << 20), take(&mut whole, 1 << 20));
            assert!(whole.row().is_none() && first.is_sorted_by(|a, b| a < b || a.2 > b.2), "{first:?}");
            for bytes_max in [1, 77, 500, 5_000] {
                let mut parts = open(reverse);
                assert_eq!(take(&mut parts, bytes_max), first);
                assert_eq!(take(&mut parts, bytes_max), second);
                assert!(parts.row().is_none());
                // Left in the middle, and entered in the middle.
                let mut skipped = open(reverse);
                skipped.take(ColumnSelection::ALL, bytes_max, &mut Cells::default()).unwrap();
                skipped.skip().unwrap();
                skipped.seek_column(&150u32.to_be_bytes()).unwrap();
                let tail: Vec<_> =
                    second.iter().filter(|cell| cell.1 >= 150u32.to_be_bytes().to_vec()).cloned().collect();
                assert_eq!(take(&mut skipped, bytes_max), tail);
            }
        }
    }

    #[test]
    fn rows_come_in_order_with_the_cells_of_all_sources() {
        let runs = [run(&[b"b", b"c", b"d"], 3), run(&[b"a", b"c"], 2), run(&[b"c", b"e"], 1), run(&[], 0)];
        let mut expected = vec![
            (b"a".to_vec(), vec![2]),
            (b"b".to_vec(), vec![3]),
            (b"c".to_vec(), vec![3, 2, 1]),
            (b"d".to_vec(), vec![3]),
            (b"e".to_vec(), vec![1]),
        ];
        assert_eq!(merged(&runs, false, None), expected);
        assert_eq!(merged(&runs, false, Some(b"bb")), expected[2..]);
        expected.reverse();
        assert_eq!(merged(&runs, true, None), expected);
        assert_eq!(merged(&runs, true, Some(b"bb")), expected[3..]);
    }
}
