//! The merge: rows from many cursors in one order.
//!
//! Cursors are kept sorted by the row each has at hand, so the next row is that of the first. After it was taken, the
//! cursors that had it are put back where they now belong: mostly one cursor, and a search among few.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::reading::Cursor;

/// Goes over the rows of several sources of one family, one way. After an error it is spent.
pub(crate) struct Merge {
    /// Newest source first.
    cursors: Vec<Box<dyn Cursor>>,
    /// Indices of the cursors that are not at their end, sorted by row in the direction of the merge, then newest first.
    order: Vec<usize>,
    reverse: bool,
}

impl Merge {
    /// Merges cursors that all go the same way, newest source first.
    pub(crate) fn new(cursors: Vec<Box<dyn Cursor>>, reverse: bool) -> Self {
        let mut merge = Self { order: Vec::with_capacity(cursors.len()), cursors, reverse };
        merge.sort();
        merge
    }

    fn sort(&mut self) {
        let Self { cursors, order, reverse } = self;
        order.clear();
        order.extend((0..cursors.len()).filter(|&index| cursors[index].row().is_some()));
        order.sort_by(|&a, &b| compare(cursors, *reverse, a, b));
    }

    /// The next row; `None` at the end.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        self.cursors[*self.order.first()?].row()
    }

    /// Appends the cells of the next row in store order and goes on; of which columns, as with [`Cursor::take`].
    pub(crate) fn take(&mut self, columns: &[Bytes], out: &mut Cells) -> Result<(), Error> {
        let Self { cursors, order, .. } = self;
        let Some(&first) = order.first() else { return Ok(()) };
        let row = cursors[first].row();
        let with_row = 1 + order[1..].iter().take_while(|&&index| cursors[index].row() == row).count();
        let begin = out.len();
        for &index in &order[..with_row] {
            cursors[index].take(columns, out)?;
        }
        if with_row > 1 {
            out.sort_from(begin);
        }
        self.settle(with_row);
        Ok(())
    }

    /// The cell of the next row, where all sources together have a single one and that can be told without reading on.
    pub(crate) fn lone(&self) -> Option<Cell<'_>> {
        let (&first, rest) = self.order.split_first()?;
        let cell = self.cursors[first].lone()?;
        rest.first().is_none_or(|&second| self.cursors[second].row() != Some(cell.row)).then_some(cell)
    }

    /// The first cell of the next row, in store order, where it can be told without reading on.
    pub(crate) fn first(&self) -> Option<Cell<'_>> {
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

    /// Goes on behind the next row.
    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        let Self { cursors, order, .. } = self;
        let Some(&first) = order.first() else { return Ok(()) };
        let row = cursors[first].row();
        let with_row = 1 + order[1..].iter().take_while(|&&index| cursors[index].row() == row).count();
        for &index in &order[..with_row] {
            cursors[index].skip()?;
        }
        self.settle(with_row);
        Ok(())
    }

    /// Goes on behind a row with a [lone](Merge::lone) cell.
    pub(crate) fn skip_lone(&mut self) -> Result<(), Error> {
        let Some(&first) = self.order.first() else { return Ok(()) };
        self.cursors[first].skip()?;
        self.settle(1);
        Ok(())
    }

    /// Puts the first cursors of the order, which have moved on, where they belong.
    fn settle(&mut self, moved: usize) {
        let Self { cursors, order, reverse } = self;
        // From the last to the first, so that those before stay where they are until it is their turn.
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

    /// Goes on to the first row, in the direction of the merge, that is not before `row`.
    pub(crate) fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
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
mod tests {
    use super::*;
    use crate::cells::Cell;
    use crate::run::Run;
    use crate::source::Bounds;
    use std::sync::Arc;
    use terrane_types::CellKind;

    fn run(rows: &[&[u8]], sequence: u64) -> Arc<Run> {
        let mut cells = Cells::default();
        for row in rows {
            let cell = Cell {
                row,
                qualifier: b"q",
                tags: b"",
                value: b"",
                timestamp: 1,
                sequence,
                position: 0,
                kind: CellKind::Put,
            };
            cells.push(cell);
        }
        Arc::new(Run::new(cells))
    }

    fn merged(runs: &[Arc<Run>], reverse: bool, from: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u64>)> {
        use crate::reading::{Reading, Source};
        let bounds = Bounds { start: Vec::new(), stop: Vec::new() };
        let reading = Reading { blocking: true, sequential: true, fills_cache: true, time_min: 0, prefix: None };
        let cursors = runs.iter().map(|run| run.clone().cursor(&bounds, reverse, reading).unwrap()).collect();
        let mut merge = Merge::new(cursors, reverse);
        if let Some(row) = from {
            merge.seek(row).unwrap();
        }
        let mut rows = Vec::new();
        let mut cells = Cells::default();
        while let Some(row) = merge.row() {
            let row = row.to_vec();
            cells.clear();
            merge.take(&[], &mut cells).unwrap();
            rows.push((row, cells.iter().map(|cell| cell.sequence).collect()));
        }
        rows
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
