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

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::View;
use super::active::is_wanted;
use super::run::SortedRun;
use crate::Error;
use crate::cells::{Cell, Cells, Mark};
use crate::row_range::RowRange;
use crate::source::Cursor;

/// Rows of the active buffer in the first chunk; each later chunk is twice as long, up to the last.
const CHUNK_ROWS_MIN: usize = 2;
/// Rows of the longest chunk.
const CHUNK_ROWS_MAX: usize = 256;

/// What a lane walks over.
enum Part {
    /// This run of the view; the range is of its remaining rows.
    Run(usize, Range<usize>),
    Active(Buffered),
}

/// Rows read ahead from the active buffer.
struct Buffered {
    /// What no chunk has had yet; `None` when there is no more.
    bounds: Option<RowRange>,
    /// Cells in the cursor's direction, whole rows.
    chunk: Cells,
    at: usize,
    rows: usize,
}

struct Lane {
    /// Of the current row, under the prefix of the view.
    head: u64,
    part: Part,
}

struct Lanes {
    view: Arc<View>,
    lanes: Vec<Lane>,
    reverse: bool,
}

pub(super) struct MemtableCursor {
    lanes: Lanes,
    /// A binary heap.
    heap: Vec<usize>,
    /// The current row, while it is given in parts: its lanes are not on the heap.
    wide: Option<Box<Wide>>,
}

impl MemtableCursor {
    pub(super) fn new(view: Arc<View>, bounds: &RowRange, reverse: bool) -> Self {
        let mut lanes = Lanes { lanes: Vec::with_capacity(view.runs.len() + 1), view, reverse };
        if !bounds.is_empty() {
            lanes.add_all(bounds);
        }
        let mut cursor = Self { heap: Vec::with_capacity(lanes.lanes.len()), lanes, wide: None };
        cursor.rebuild();
        cursor
    }

    fn rebuild(&mut self) {
        self.heap.clear();
        self.heap.extend((0..self.lanes.lanes.len()).filter(|lane| self.lanes.has_row(*lane)));
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
            wide.lanes.push((lane, self.lanes.cells_at_hand(lane)));
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

    /// Appends a part of the opened row; answers whether it is over.
    fn take_part(&mut self, columns: &[Bytes], bytes_max: usize, out: &mut Cells) -> bool {
        let mark = out.mark();
        let Some(wide) = &mut self.wide else { return true };
        while let Some(cell) = wide.next(&self.lanes) {
            if is_wanted(cell.qualifier, columns) {
                out.push(cell);
                if out.has_grown(mark, bytes_max) && wide.has_more() {
                    return false;
                }
            }
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

    fn lone(&self) -> Option<Cell<'_>> {
        let first = *self.heap.first().filter(|_| self.wide.is_none())?;
        self.lanes.lone(first).filter(|_| !self.is_shared())
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

    fn take(&mut self, columns: &[Bytes], bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        if self.wide.is_some() {
            return Ok(self.take_part(columns, bytes_max, out));
        }
        if self.heap.is_empty() {
            return Ok(true);
        }
        let (first, mark) = (out.len(), out.mark());
        let is_taken = if self.is_shared() {
            let is_taken = self.take_shared(|lanes, lane| lanes.push_row(lane, columns, (mark, bytes_max), out));
            if is_taken {
                out.sort_from(first);
            }
            is_taken
        } else {
            let is_taken = self.lanes.push_row(self.heap[0], columns, (mark, bytes_max), out);
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
        Ok(self.take_part(columns, bytes_max, out))
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        if self.wide.is_none() {
            self.open_row();
        }
        let Some(wide) = &mut self.wide else { return Ok(()) };
        for (lane, left) in &mut wide.lanes {
            self.lanes.drop_below(*lane, left, qualifier);
        }
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
        for lane in 0..self.lanes.lanes.len() {
            if self.lanes.has_row(lane) && self.lanes.is_behind(lane, row, head) {
                self.lanes.seek(lane, row);
            }
        }
        self.rebuild();
        Ok(())
    }
}

impl Lanes {
    fn add_all(&mut self, bounds: &RowRange) {
        let view = Arc::clone(&self.view);
        if !view.active.is_empty() {
            let active =
                Buffered { bounds: Some(bounds.clone()), chunk: Cells::default(), at: 0, rows: CHUNK_ROWS_MIN };
            self.lanes.push(Lane { head: 0, part: Part::Active(active) });
            self.refill(0);
        }
        for (index, run) in view.runs.iter().enumerate().rev() {
            let rows = run.rows();
            // The bound that the cursor moves away from is searched first and the other from there: a range of few rows
            // costs one search.
            let (start, end) = if self.reverse {
                let end = if bounds.end.is_empty() { rows } else { run.not_before(&bounds.end, 0..rows) };
                let has_start = !bounds.start.is_empty();
                (if has_start { run.not_before_near(&bounds.start, 0..end, true) } else { 0 }, end)
            } else {
                let start = if bounds.start.is_empty() { 0 } else { run.not_before(&bounds.start, 0..rows) };
                let has_end = !bounds.end.is_empty();
                (start, if has_end { run.not_before_near(&bounds.end, start..rows, false) } else { rows })
            };
            if start < end {
                self.lanes.push(Lane { head: 0, part: Part::Run(index, start..end) });
                self.set_head(self.lanes.len() - 1);
            }
        }
    }

    fn has_row(&self, lane: usize) -> bool {
        match &self.lanes[lane].part {
            Part::Run(_, left) => !left.is_empty(),
            Part::Active(active) => active.at < active.chunk.len(),
        }
    }

    /// The current row of a lane that has one.
    #[inline]
    fn row(&self, lane: usize) -> &[u8] {
        match &self.lanes[lane].part {
            Part::Run(run, left) => self.view.runs[*run].row(self.at_hand(left)),
            Part::Active(active) => active.chunk.row(active.at),
        }
    }

    #[inline]
    fn at_hand(&self, left: &Range<usize>) -> usize {
        if self.reverse { left.end - 1 } else { left.start }
    }

    #[inline]
    fn set_head(&mut self, lane: usize) {
        let prefix = &self.view.prefix;
        let head = match &self.lanes[lane].part {
            Part::Run(run, left) => {
                let (run, at): (&SortedRun, _) = (&self.view.runs[*run], self.at_hand(left));
                if run.prefix().len() == prefix.len() { run.head(at) } else { prefix.head_inside(run.row(at)) }
            }
            Part::Active(active) => prefix.head(active.chunk.row(active.at)),
        };
        self.lanes[lane].head = head;
    }

    /// Compares the current rows, in the cursor's direction.
    #[inline]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let order = self.lanes[a].head.cmp(&self.lanes[b].head).then_with(|| self.row(a).cmp(self.row(b)));
        if self.reverse { order.reverse() } else { order }
    }

    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        self.compare(a, b).then(a.cmp(&b)).is_lt()
    }

    /// Whether the current row of a lane comes before `row`, which has this head under the prefix of the view.
    fn is_behind(&self, lane: usize, row: &[u8], head: u64) -> bool {
        let order = self.lanes[lane].head.cmp(&head).then_with(|| self.row(lane).cmp(row));
        if self.reverse { order.is_gt() } else { order.is_lt() }
    }

    /// Appends the current row of a lane; answers whether all of it fit.
    #[inline]
    fn push_row(&self, lane: usize, columns: &[Bytes], limit: (Mark, usize), out: &mut Cells) -> bool {
        match &self.lanes[lane].part {
            Part::Run(run, left) => self.view.runs[*run].push_row(self.at_hand(left), columns, limit, out),
            Part::Active(active) => {
                let mut row = active.at..active.row_end();
                while let Some(cell) = if self.reverse { row.next_back() } else { row.next() } {
                    out.push(active.chunk.get(cell));
                    if out.has_grown(limit.0, limit.1) && !row.is_empty() {
                        return false;
                    }
                }
                true
            }
        }
    }

    /// The cells of the current row of a lane, by number. In reverse, those of the active buffer lie the other way
    /// round.
    fn cells_at_hand(&self, lane: usize) -> Range<usize> {
        match &self.lanes[lane].part {
            Part::Run(run, left) => self.view.runs[*run].cells_of(self.at_hand(left)),
            Part::Active(active) => active.at..active.row_end(),
        }
    }

    /// The first in store order of some cells of a lane.
    fn first_of(&self, lane: usize, left: &Range<usize>) -> Cell<'_> {
        match &self.lanes[lane].part {
            Part::Run(run, _) => self.view.runs[*run].cells().get(left.start),
            Part::Active(active) => active.chunk.get(if self.reverse { left.end - 1 } else { left.start }),
        }
    }

    fn drop_first(&self, lane: usize, left: &mut Range<usize>) {
        match &self.lanes[lane].part {
            Part::Active(_) if self.reverse => left.end -= 1,
            Part::Run(..) | Part::Active(_) => left.start += 1,
        }
    }

    /// Drops the cells whose qualifier is below this one.
    fn drop_below(&self, lane: usize, left: &mut Range<usize>, qualifier: &[u8]) {
        if let Part::Run(run, _) = &self.lanes[lane].part {
            left.start = self.view.runs[*run].column_start(left.clone(), qualifier);
            return;
        }
        while left.start < left.end && self.first_of(lane, left).qualifier < qualifier {
            self.drop_first(lane, left);
        }
    }

    /// The first cell of the current row of a lane.
    #[inline]
    fn first(&self, lane: usize) -> Cell<'_> {
        match &self.lanes[lane].part {
            Part::Run(run, left) => {
                let run: &SortedRun = &self.view.runs[*run];
                run.cells().get(run.cells_of(self.at_hand(left)).start)
            }
            Part::Active(active) if self.reverse => active.chunk.get(active.row_end() - 1),
            Part::Active(active) => active.chunk.get(active.at),
        }
    }

    /// The cell of the current row of a lane, if it is the only one.
    #[inline]
    fn lone(&self, lane: usize) -> Option<Cell<'_>> {
        match &self.lanes[lane].part {
            Part::Run(run, left) => {
                let run: &SortedRun = &self.view.runs[*run];
                let cells = run.cells_of(self.at_hand(left));
                (cells.len() == 1).then(|| run.cells().get(cells.start))
            }
            Part::Active(active) => (active.row_end() == active.at + 1).then(|| active.chunk.get(active.at)),
        }
    }

    /// Advances a lane to its next row; answers whether there is one.
    #[inline]
    fn advance(&mut self, lane: usize) -> bool {
        match &mut self.lanes[lane].part {
            Part::Run(_, left) => {
                if self.reverse {
                    left.end -= 1;
                } else {
                    left.start += 1;
                }
            }
            Part::Active(active) => {
                active.at = active.row_end();
                if active.at == active.chunk.len() {
                    return self.refill(lane);
                }
            }
        }
        let more = self.has_row(lane);
        if more {
            self.set_head(lane);
        }
        more
    }

    /// Advances a lane to the first row that is not before `row`, which it has not reached; answers whether there is
    /// one.
    fn seek(&mut self, lane: usize, row: &[u8]) -> bool {
        match &mut self.lanes[lane].part {
            Part::Run(run, left) => {
                let run: &SortedRun = &self.view.runs[*run];
                if self.reverse {
                    // The last row that is not above: directly before the first one that is not before its successor.
                    let at = run.not_before_near(row, left.clone(), true);
                    left.end = if at < left.end && run.is_row(at, row) { at + 1 } else { at };
                } else {
                    left.start = run.not_before_near(row, left.clone(), false);
                }
            }
            Part::Active(active) => {
                let is_behind = |other: &[u8]| if self.reverse { other > row } else { other < row };
                while active.at < active.chunk.len() && is_behind(active.chunk.row(active.at)) {
                    active.at += 1;
                }
                if active.at == active.chunk.len() {
                    active.narrow(row, self.reverse);
                    return self.refill(lane);
                }
            }
        }
        let more = self.has_row(lane);
        if more {
            self.set_head(lane);
        }
        more
    }

    /// Reads the next chunk of the active buffer; answers whether there was one.
    fn refill(&mut self, lane: usize) -> bool {
        let Part::Active(active) = &mut self.lanes[lane].part else { return false };
        active.chunk.clear();
        active.at = 0;
        let Some(bounds) = active.bounds.take() else { return false };
        if self.view.active.push_rows(&bounds, self.reverse, active.rows, &mut active.chunk) {
            let last = active.chunk.row(active.chunk.len() - 1);
            active.bounds = Some(beyond(bounds, last, self.reverse));
        }
        active.rows = (active.rows * 2).min(CHUNK_ROWS_MAX);
        if active.chunk.is_empty() {
            return false;
        }
        self.set_head(lane);
        true
    }
}

impl Buffered {
    /// Where the current row ends.
    fn row_end(&self) -> usize {
        let row = self.chunk.row(self.at);
        (self.at + 1..self.chunk.len()).find(|cell| self.chunk.row(*cell) != row).unwrap_or(self.chunk.len())
    }

    /// Leaves rows before `row` out of the next chunk.
    fn narrow(&mut self, row: &[u8], reverse: bool) {
        let Some(bounds) = &mut self.bounds else { return };
        if reverse {
            let mut end = row.to_vec();
            end.push(0);
            if bounds.end.is_empty() || end < bounds.end {
                bounds.end = end;
            }
        } else if bounds.start.as_slice() < row {
            bounds.start = row.to_vec();
        }
        if bounds.is_empty() {
            self.bounds = None;
        }
    }
}

/// What is left of `bounds` beyond a row.
fn beyond(mut bounds: RowRange, row: &[u8], reverse: bool) -> RowRange {
    if reverse {
        // Rows are never empty, so neither is this bound: an empty one would mean no bound.
        bounds.end = row.to_vec();
    } else {
        bounds.start = row.to_vec();
        bounds.start.push(0);
    }
    bounds
}
