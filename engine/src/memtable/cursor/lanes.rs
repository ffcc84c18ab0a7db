//! The parts of a memtable that a cursor walks: its runs where they lie, and the active buffer chunk by chunk.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::cells::{Cell, Cells};
use crate::column_selection::{ColumnSelection, Portion};
use crate::memtable::run::SortedRun;
use crate::memtable::view::View;
use crate::row_range::RowRange;

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

pub(super) struct Lanes {
    pub(super) view: Arc<View>,
    lanes: Vec<Lane>,
    pub(super) reverse: bool,
}

impl Lanes {
    /// The lanes of a view within `bounds`.
    pub(super) fn new(view: Arc<View>, bounds: &RowRange, reverse: bool) -> Self {
        let mut lanes = Self { lanes: Vec::with_capacity(view.runs.len() + 1), view, reverse };
        if !bounds.is_empty() {
            lanes.add_all(bounds);
        }
        lanes
    }

    /// How many there are, those without rows included.
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

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

    pub(super) fn has_row(&self, lane: usize) -> bool {
        match &self.lanes[lane].part {
            Part::Run(_, left) => !left.is_empty(),
            Part::Active(active) => active.at < active.chunk.len(),
        }
    }

    /// The current row of a lane that has one.
    #[inline]
    pub(super) fn row(&self, lane: usize) -> &[u8] {
        match &self.lanes[lane].part {
            Part::Run(run, left) => self.view.runs[*run].row(self.current(left)),
            Part::Active(active) => active.chunk.row(active.at),
        }
    }

    #[inline]
    fn current(&self, left: &Range<usize>) -> usize {
        if self.reverse { left.end - 1 } else { left.start }
    }

    #[inline]
    fn set_head(&mut self, lane: usize) {
        let prefix = &self.view.prefix;
        let head = match &self.lanes[lane].part {
            Part::Run(run, left) => {
                let (run, at): (&SortedRun, _) = (&self.view.runs[*run], self.current(left));
                if run.prefix().len() == prefix.len() { run.head(at) } else { prefix.head_inside(run.row(at)) }
            }
            Part::Active(active) => prefix.head(active.chunk.row(active.at)),
        };
        self.lanes[lane].head = head;
    }

    /// Compares the current rows, in the cursor's direction.
    #[inline]
    pub(super) fn compare(&self, a: usize, b: usize) -> Ordering {
        let order = self.lanes[a].head.cmp(&self.lanes[b].head).then_with(|| self.row(a).cmp(self.row(b)));
        if self.reverse { order.reverse() } else { order }
    }

    #[inline]
    pub(super) fn is_before(&self, a: usize, b: usize) -> bool {
        self.compare(a, b).then(a.cmp(&b)).is_lt()
    }

    /// Whether the current row of a lane comes before `row`, which has this head under the prefix of the view.
    pub(super) fn is_behind(&self, lane: usize, row: &[u8], head: u64) -> bool {
        let order = self.lanes[lane].head.cmp(&head).then_with(|| self.row(lane).cmp(row));
        if self.reverse { order.is_gt() } else { order.is_lt() }
    }

    /// Appends the current row of a lane; returns whether all of it fit.
    #[inline]
    pub(super) fn push_row(
        &self,
        lane: usize,
        sought: ColumnSelection<'_>,
        portion: &mut Portion,
        out: &mut Cells,
    ) -> bool {
        match &self.lanes[lane].part {
            Part::Run(run, left) => self.view.runs[*run].push_row(self.current(left), sought, portion, out),
            Part::Active(active) => {
                let mut row = active.at..active.row_end();
                while let Some(cell) = if self.reverse { row.next_back() } else { row.next() } {
                    let cell = active.chunk.get(cell);
                    if !sought.wants(cell.qualifier) {
                        continue;
                    }
                    out.push(cell);
                    if portion.is_full(out) && !row.is_empty() {
                        return false;
                    }
                }
                true
            }
        }
    }

    /// The cells of the current row of a lane, by number. In reverse, those of the active buffer lie the other way
    /// round.
    pub(super) fn current_cells(&self, lane: usize) -> Range<usize> {
        match &self.lanes[lane].part {
            Part::Run(run, left) => self.view.runs[*run].cells_of(self.current(left)),
            Part::Active(active) => active.at..active.row_end(),
        }
    }

    /// The first in store order of some cells of a lane.
    pub(super) fn first_of(&self, lane: usize, left: &Range<usize>) -> Cell<'_> {
        match &self.lanes[lane].part {
            Part::Run(run, _) => self.view.runs[*run].cells().get(left.start),
            Part::Active(active) => active.chunk.get(if self.reverse { left.end - 1 } else { left.start }),
        }
    }

    pub(super) fn drop_first(&self, lane: usize, left: &mut Range<usize>) {
        match &self.lanes[lane].part {
            Part::Active(_) if self.reverse => left.end -= 1,
            Part::Run(..) | Part::Active(_) => left.start += 1,
        }
    }

    /// Drops the cells whose qualifier is below this one.
    pub(super) fn drop_below(&self, lane: usize, left: &mut Range<usize>, qualifier: &[u8]) {
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
    pub(super) fn first(&self, lane: usize) -> Cell<'_> {
        match &self.lanes[lane].part {
            Part::Run(run, left) => {
                let run: &SortedRun = &self.view.runs[*run];
                run.cells().get(run.cells_of(self.current(left)).start)
            }
            Part::Active(active) if self.reverse => active.chunk.get(active.row_end() - 1),
            Part::Active(active) => active.chunk.get(active.at),
        }
    }

    /// The cell of the current row of a lane, if it is the only one.
    #[inline]
    pub(super) fn single(&self, lane: usize) -> Option<Cell<'_>> {
        match &self.lanes[lane].part {
            Part::Run(run, left) => {
                let run: &SortedRun = &self.view.runs[*run];
                let cells = run.cells_of(self.current(left));
                (cells.len() == 1).then(|| run.cells().get(cells.start))
            }
            Part::Active(active) => (active.row_end() == active.at + 1).then(|| active.chunk.get(active.at)),
        }
    }

    /// Advances a lane to its next row; returns whether there is one.
    #[inline]
    pub(super) fn advance(&mut self, lane: usize) -> bool {
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

    /// Advances a lane to the first row that is not before `row`, which it has not reached; returns whether there is
    /// one.
    pub(super) fn seek(&mut self, lane: usize, row: &[u8]) -> bool {
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

    /// Reads the next chunk of the active buffer; returns whether there was one.
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
