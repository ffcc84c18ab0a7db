//! What a reader sees of one family, row after row: the part that gets and scans have in common.

use smallvec::SmallVec;
use terrane_types::visibility::{CellMeta, Resolver, View};
use terrane_types::{Columns, Projection};

#[cfg(doc)]
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::manifest::FamilyRecord;

/// What a read cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Cells read.
    pub cells_seen: u64,
    /// Cells shown.
    pub cells_shown: u64,
}

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It may wait: for code that runs outside of the runtime's threads.
    MayBlock,
    /// It returns [`Error::NeedsDisk`] instead of waiting, and is repeated where it may block.
    MemoryOnly,
}

/// How a row is read.
#[derive(Clone, Copy, Debug)]
pub struct RowRead<'a> {
    /// Which of its cells to show.
    pub projection: &'a Projection,
    /// The time by which expiry is judged.
    pub now_ms: i64,
    /// Whether it may wait for the disk.
    pub patience: Patience,
    /// The most bytes of packed cells: a larger row is refused.
    pub bytes_max: usize,
}

/// What a projection shows of a family.
pub(crate) fn view_of(projection: &Projection, family: &[u8], sequence: u64, now_ms: i64) -> View {
    let (time_min, time_max) = projection.times(family);
    View { sequence, now_ms, versions: projection.versions, time_min, time_max, raw: projection.raw }
}

fn is_selected(asked: Option<&Columns>, qualifier: &[u8]) -> bool {
    asked.is_some_and(|asked| asked.selects(qualifier))
}

/// Cells of one column at the end of a part from which on they are shown although the column may continue.
const OPENED_CELLS: usize = 64;

/// Shows what a reader sees of one family, row after row.
pub(crate) struct FamilyReader {
    /// Older cells belong to an earlier family of this name.
    since: u64,
    /// Whether it shows several cells of one timestamp.
    raw: bool,
    resolver: Resolver,
    /// Where the rules differ by row.
    by_row: Option<Box<ByRow>>,
    metas: SmallVec<[CellMeta; 4]>,
    /// The qualifier of a column that is larger than a part, of which a part was shown.
    open: Option<Vec<u8>>,
    /// A buffer for that.
    spare: Vec<u8>,
}

/// Rules that differ by row, and which of them the reader has at hand.
struct ByRow {
    family: FamilyRecord,
    view: View,
    place: usize,
}

impl FamilyReader {
    pub(crate) fn new(family: &FamilyRecord, view: View) -> Self {
        let resolver = Resolver::new(&family.rules, view);
        let by_row = (!family.beyond.is_empty()).then(|| Box::new(ByRow { family: family.clone(), view, place: 0 }));
        Self {
            since: family.since,
            raw: view.raw,
            resolver,
            by_row,
            metas: SmallVec::new(),
            open: None,
            spare: Vec::new(),
        }
    }

    /// Takes the rules of a row.
    fn enter(&mut self, row: &[u8]) {
        let Some(by_row) = &mut self.by_row else { return };
        let place = by_row.family.place_of(row);
        if place != by_row.place {
            let (since, rules) = by_row.family.history(place);
            (self.since, self.resolver) = (since, Resolver::new(rules, by_row.view));
            by_row.place = place;
        }
    }

    /// Whether the only cell of a row is shown.
    pub(crate) fn shows_single(&mut self, cell: &Cell<'_>, asked: Option<&Columns>, stats: &mut ReadStats) -> bool {
        self.enter(cell.row);
        if cell.sequence < self.since {
            return false;
        }
        stats.cells_seen += 1;
        let selected = is_selected(asked, cell.qualifier);
        self.resolver.start_row();
        // A tombstone of the family, which may come unrequested, is never visible.
        let shown = selected && !self.resolver.column(&[cell.meta()]).is_empty();
        stats.cells_shown += u64::from(shown);
        shown
    }

    /// Whether the first cell of a row, in store order, by itself proves that the row is shown. `false` proves nothing.
    pub(crate) fn first_shows(&mut self, cell: &Cell<'_>, asked: Option<&Columns>, stats: &mut ReadStats) -> bool {
        self.enter(cell.row);
        let shows = cell.sequence >= self.since
            && is_selected(asked, cell.qualifier)
            && self.resolver.first_shows(&cell.meta());
        stats.cells_seen += u64::from(shows);
        stats.cells_shown += u64::from(shows);
        shows
    }

    /// Hands the visible cells of one row, given in store order, to `show`, each with its index. `asked` are the
    /// columns that the projection names.
    pub(crate) fn show(
        &mut self,
        cells: &mut Cells,
        asked: Option<&Columns>,
        stats: &mut ReadStats,
        show: impl FnMut(usize, Cell<'_>),
    ) {
        if !cells.is_empty() {
            self.begin_row(cells.row(0));
        }
        self.show_part(cells, true, asked, stats, show);
    }

    /// Begins a row that is shown in parts.
    pub(crate) fn begin_row(&mut self, row: &[u8]) {
        self.enter(row);
        self.resolver.start_row();
        self.close_column();
    }

    /// Takes the cells with the empty qualifier from a row that is shown starting at a later column: they include the
    /// tombstones of the family.
    pub(crate) fn take_tombstones(&mut self, cells: &Cells) {
        let tombstones = cells.iter().filter(|cell| cell.qualifier.is_empty() && cell.sequence >= self.since);
        self.metas.clear();
        self.metas.extend(tombstones.map(|cell| cell.meta()));
        self.resolver.column(&self.metas);
    }

    /// Shows what can be shown of a row with these cells next in store order, as [`FamilyReader::show`] does, and
    /// returns how many of them are decided. The others must be passed again, with those that follow: their column may
    /// continue. `is_last`: nothing follows.
    pub(crate) fn show_part(
        &mut self,
        cells: &mut Cells,
        is_last: bool,
        asked: Option<&Columns>,
        stats: &mut ReadStats,
        mut show: impl FnMut(usize, Cell<'_>),
    ) -> usize {
        if self.since > 0 {
            let since = self.since;
            cells.retain(|cell| cell.sequence >= since);
        }
        let mut first = 0;
        if self.open.is_some() {
            first = self.show_open_column(cells, 0, is_last, asked, stats, &mut show);
        }
        while first < cells.len() {
            let cell = cells.get(first);
            let qualifier = cell.qualifier;
            self.metas.clear();
            self.metas.push(cell.meta());
            let mut next = first + 1;
            while next < cells.len() {
                let cell = cells.get(next);
                if cell.qualifier != qualifier {
                    break;
                }
                self.metas.push(cell.meta());
                next += 1;
            }
            if next == cells.len() && !is_last {
                break;
            }
            let selected = is_selected(asked, qualifier);
            // Tombstones of the family have the empty qualifier, so that column is resolved even when it is not
            // requested.
            if selected || qualifier.is_empty() {
                let visible = self.resolver.column(&self.metas);
                if selected {
                    stats.cells_shown += visible.len() as u64;
                    for &index in visible {
                        let at = first + index as usize;
                        show(at, cells.get(at));
                    }
                }
            }
            first = next;
        }
        if first < cells.len() && self.open.is_none() && (first == 0 || cells.len() - first >= OPENED_CELLS) {
            // Part of a single column, which is shown as far as it goes.
            let mut qualifier = std::mem::take(&mut self.spare);
            qualifier.clear();
            qualifier.extend_from_slice(cells.get(first).qualifier);
            self.open = Some(qualifier);
            self.resolver.begin_column();
            first = self.show_open_column(cells, first, is_last, asked, stats, &mut show);
        }
        stats.cells_seen += first as u64;
        first
    }

    /// Shows what follows of a column that is larger than a part. What is visible of a column from some timestamp up
    /// does not depend on anything below (see [`Resolver::column`]), so a column may be cut between two timestamps.
    fn show_open_column(
        &mut self,
        cells: &Cells,
        first: usize,
        is_last: bool,
        asked: Option<&Columns>,
        stats: &mut ReadStats,
        show: &mut impl FnMut(usize, Cell<'_>),
    ) -> usize {
        let Some(qualifier) = &self.open else { return first };
        let of_column = cells.iter().skip(first).take_while(|cell| cell.qualifier == qualifier.as_slice()).count();
        let is_whole = is_last || first + of_column < cells.len();
        let timestamp = |at: usize| cells.get(first + at).timestamp;
        let before_last = || (1..of_column).rev().find(|&at| timestamp(at - 1) != timestamp(at));
        // A raw reader shows the cells of one timestamp together, so it waits for the others.
        let at_least = if self.raw { 0 } else { of_column };
        let end = if is_whole { of_column } else { before_last().unwrap_or(at_least) };
        self.metas.clear();
        self.metas.extend((first..first + end).map(|at| cells.get(at).meta()));
        let visible = self.resolver.column_part(&self.metas);
        if is_selected(asked, qualifier) {
            for at in visible.iter().map(|&index| first + index as usize) {
                stats.cells_shown += 1;
                show(at, cells.get(at));
            }
        }
        if is_whole {
            self.close_column();
        }
        first + end
    }

    fn close_column(&mut self) {
        if let Some(qualifier) = self.open.take() {
            self.spare = qualifier;
        }
    }

    /// Leaves a column that is shown in parts where nothing more of it is visible or requested. Returns its qualifier: what
    /// follows in the row is behind it.
    pub(crate) fn leave_settled(&mut self, asked: Option<&Columns>) -> Option<&[u8]> {
        let qualifier = self.open.as_ref()?;
        // The column without a name goes on with tombstones of the family.
        let is_settled = !qualifier.is_empty() && (self.resolver.is_settled() || !is_selected(asked, qualifier));
        if !is_settled {
            return None;
        }
        self.close_column();
        Some(&self.spare)
    }
}
