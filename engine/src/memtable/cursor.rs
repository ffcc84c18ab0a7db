//! A cursor over a memtable: its runs and its active buffer, row by row in either direction.
//!
//! Each part is a *lane*, and a heap of lane numbers says which is next. Runs are walked where they lie. The active
//! buffer is read ahead in chunks of whole rows, few at first: a short scan should not pay for rows it never reaches.
//! Cells are compared only where several lanes hold the same row.
//!
//! A row with more cells than are wanted at once is opened: its lanes leave the heap and are merged cell by cell, part
//! after part.
//!
//! Invariant: the heap holds every lane that has rows left exactly once, except those of an opened row; lanes are
//! numbered newest first, and among equal rows the lowest number comes first.

mod lanes;

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use self::lanes::Lanes;
use super::view::View;
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::{ColumnSelection, Portion};
use crate::row_range::RowRange;
use crate::source::Cursor;

/// Cells that are passed over one by one before a column is searched for.
const DROPPED_ONE_BY_ONE: usize = 8;

pub(super) struct MemtableCursor {
    lanes: Lanes,
    /// A binary heap.
    heap: Vec<usize>,
    /// The current row, while it is given in parts: its lanes are not on the heap.
    wide: Option<Box<Wide>>,
}

impl MemtableCursor {
    pub(super) fn new(view: Arc<View>, bounds: &RowRange, reverse: bool) -> Self {
        let lanes = Lanes::new(view, bounds, reverse);
        let mut cursor = Self { heap: Vec::with_capacity(lanes.len()), lanes, wide: None };
        cursor.rebuild();
        cursor
    }

    fn rebuild(&mut self) {
        self.heap.clear();
        self.heap.extend((0..self.lanes.len()).filter(|lane| self.lanes.has_row(*lane)));
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.lanes.is_before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.lanes.is_before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.lanes.is_before(self.heap[at], self.heap[parent]) {
                return;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    /// Takes the first lane off the heap.
    fn pop(&mut self) {
        let last = self.heap.len() - 1;
        self.heap.swap(0, last);
        self.heap.truncate(last);
        self.sift_down(0);
    }

    /// Moves the first lane on to its next row.
    fn advance_first(&mut self) {
        if self.lanes.advance(self.heap[0]) {
            self.sift_down(0);
        } else {
            self.pop();
        }
    }

    /// Whether another lane is at the same row as the first: if so, one directly below it in the heap is.
    fn is_shared(&self) -> bool {
        let first = self.heap[0];
        self.heap.iter().skip(1).take(2).any(|lane| self.lanes.compare(*lane, first).is_eq())
    }

    /// Hands each lane at the same row as the first to `each`, newest first, and advances them. Where `each` returns
    /// `false`, no lane is advanced, and the answer is `false`.
    fn take_shared(&mut self, mut each: impl FnMut(&Lanes, usize) -> bool) -> bool {
        let mut same: SmallVec<[usize; 16]> = SmallVec::new();
        while let Some(lane) = self.heap.first().copied() {
            if same.first().is_some_and(|first| self.lanes.compare(lane, *first).is_ne()) {
                break;
            }
            same.push(lane);
            self.pop();
        }
        let is_taken = same.iter().all(|lane| each(&self.lanes, *lane));
        for lane in same {
            if !is_taken || self.lanes.advance(lane) {
                self.push(lane);
            }
        }
        is_taken
    }

    fn push(&mut self, lane: usize) {
        self.heap.push(lane);
        self.sift_up(self.heap.len() - 1);
    }

    /// Takes the lanes at the first row off the heap, to walk the row cell by cell.
    fn open_row(&mut self) {
        let Some(first) = self.heap.first().copied() else { return };
        let mut wide = Wide { row: self.lanes.row(first).to_vec(), lanes: SmallVec::new() };
        while let Some(lane) = self.heap.first().copied().filter(|lane| self.lanes.row(*lane) == wide.row) {
            wide.lanes.push((lane, self.lanes.current_cells(lane)));
            self.pop();
        }
        self.wide = Some(Box::new(wide));
    }

    /// Advances the lanes of the opened row, and puts them back.
    fn close_row(&mut self) {
        let Some(wide) = self.wide.take() else { return };
        for (lane, _) in wide.lanes {
            if self.lanes.advance(lane) {
                self.push(lane);
            }
        }
    }

    /// Appends a part of the opened row; returns whether it is over.
    fn take_part(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> bool {
        let mut portion = Portion::begin(out, bytes_max, sought);
        let Some(wide) = &mut self.wide else { return true };
        while let Some(cell) = wide.next(&self.lanes) {
            if sought.wants(cell.qualifier) {
                out.push(cell);
                if portion.is_full(out) && wide.has_more() {
                    return false;
                }
                continue;
            }
            let Some(next) = sought.next_behind(cell.qualifier) else { break };
            wide.drop_below(&self.lanes, next);
        }
        self.close_row();
        true
    }
}

/// A row that is walked cell by cell, because it has more cells than are wanted at once.
struct Wide {
    row: Vec<u8>,
    /// The lanes that have it, newest first, with the remaining cells, by number.
    lanes: SmallVec<[(usize, Range<usize>); 4]>,
}

impl Wide {
    /// Leaves out the cells whose qualifier is below this one.
    fn drop_below(&mut self, lanes: &Lanes, qualifier: &[u8]) {
        for (lane, left) in self.lanes.iter_mut().filter(|(_, left)| !left.is_empty()) {
            // Mostly it is close.
            let near = (0..DROPPED_ONE_BY_ONE).any(|_| {
                let is_below = left.start < left.end && lanes.first_of(*lane, left).qualifier < qualifier;
                if is_below {
                    lanes.drop_first(*lane, left);
                }
                !is_below
            });
            if !near {
                lanes.drop_below(*lane, left, qualifier);
            }
        }
    }

    fn has_more(&self) -> bool {
        self.lanes.iter().any(|(_, left)| !left.is_empty())
    }

    /// The next cell in store order. Of those at one place the newest lane's is returned, the others are skipped.
    fn next<'a>(&mut self, lanes: &'a Lanes) -> Option<Cell<'a>> {
        let mut lowest: Option<Cell<'a>> = None;
        for (lane, left) in self.lanes.iter().filter(|(_, left)| !left.is_empty()) {
            let cell = lanes.first_of(*lane, left);
            if lowest.is_none_or(|lowest| cell.cmp_in_row(&lowest).is_lt()) {
                lowest = Some(cell);
            }
        }
        let lowest = lowest?;
        for (lane, left) in self.lanes.iter_mut().filter(|(_, left)| !left.is_empty()) {
            if lanes.first_of(*lane, left).cmp_in_row(&lowest).is_eq() {
                lanes.drop_first(*lane, left);
            }
        }
        Some(lowest)
    }
}

impl Cursor for MemtableCursor {
    fn row(&self) -> Option<&[u8]> {
        match &self.wide {
            None => self.heap.first().map(|lane| self.lanes.row(*lane)),
            Some(wide) => Some(&wide.row),
        }
    }

    fn single(&self) -> Option<Cell<'_>> {
        let first = *self.heap.first().filter(|_| self.wide.is_none())?;
        self.lanes.single(first).filter(|_| !self.is_shared())
    }

    fn first(&self) -> Option<Cell<'_>> {
        let first = *self.heap.first().filter(|_| self.wide.is_none())?;
        if self.is_shared() { None } else { Some(self.lanes.first(first)) }
    }

    fn skip(&mut self) -> Result<(), Error> {
        if self.wide.is_some() {
            self.close_row();
        } else if self.heap.is_empty() {
            return Ok(());
        } else if self.is_shared() {
            self.take_shared(|_, _| true);
        } else {
            self.advance_first();
        }
        Ok(())
    }

    fn take(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        if self.wide.is_some() {
            return Ok(self.take_part(sought, bytes_max, out));
        }
        if self.heap.is_empty() {
            return Ok(true);
        }
        let (first, mark) = (out.len(), out.mark());
        let mut portion = Portion::begin(out, bytes_max, sought);
        let is_taken = if self.is_shared() {
            let is_taken = self.take_shared(|lanes, lane| lanes.push_row(lane, sought, &mut portion, out));
            if is_taken {
                out.sort_from(first);
            }
            is_taken
        } else {
            let is_taken = self.lanes.push_row(self.heap[0], sought, &mut portion, out);
            if is_taken {
                self.advance_first();
            }
            is_taken
        };
        if is_taken {
            return Ok(true);
        }
        out.rewind(mark);
        self.open_row();
        Ok(self.take_part(sought, bytes_max, out))
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        if self.wide.is_none() {
            self.open_row();
        }
        let Some(wide) = &mut self.wide else { return Ok(()) };
        wide.drop_below(&self.lanes, qualifier);
        if !wide.has_more() {
            self.close_row();
        }
        Ok(())
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        if let Some(wide) = &self.wide {
            let is_behind = if self.lanes.reverse { wide.row.as_slice() > row } else { wide.row.as_slice() < row };
            if !is_behind {
                return Ok(());
            }
            self.close_row();
        }
        let head = self.lanes.view.prefix.head(row);
        // Mostly it is the next row, or one close to it: then few lanes move.
        let mut moved = 0;
        while let Some(lane) = self.heap.first().copied() {
            if !self.lanes.is_behind(lane, row, head) {
                return Ok(());
            }
            if moved >= 4 {
                break;
            }
            moved += 1;
            if self.lanes.seek(lane, row) {
                self.sift_down(0);
            } else {
                self.pop();
            }
        }
        for lane in 0..self.lanes.len() {
            if self.lanes.has_row(lane) && self.lanes.is_behind(lane, row, head) {
                self.lanes.seek(lane, row);
            }
        }
        self.rebuild();
        Ok(())
    }
}
