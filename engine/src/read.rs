//! Gets: one row of one region, as a snapshot sees it.

use std::sync::Arc;

use smallvec::SmallVec;
use terrane_types::limits::BATCH_BYTES_MAX;
use terrane_types::visibility::{CellMeta, Resolver, View};
use terrane_types::{Columns, Projection};

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::manifest::FamilyRecord;
use crate::reading::{Reading, RowKey};
use crate::region::{Region, View as StoreView};
use crate::snapshot::Snapshot;
use crate::window::CellWindow;

thread_local! {
    /// Room for the cells of a row that a get gathers, which the thread keeps for the next.
    static ROOM: std::cell::Cell<Cells> = std::cell::Cell::default();
}

/// Most room that a thread keeps.
const ROOM_BYTES_MAX: usize = 64 << 10;

/// A view of each family that is read: mostly few.
pub(crate) type Views = SmallVec<[Arc<StoreView>; 4]>;

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
    /// It waits: for code that is off the runtime's threads.
    MayBlock,
    /// It answers [`Error::NeedsDisk`] instead of waiting, and is begun again where it may block.
    MemoryOnly,
}

/// How a row is to be read.
#[derive(Clone, Copy, Debug)]
pub struct RowRead<'a> {
    /// Which of its cells.
    pub projection: &'a Projection,
    /// The time that expiry is judged by.
    pub now_ms: i64,
    /// Whether it may wait for the disk.
    pub patience: Patience,
    /// Bytes of packed cells at most: a row with more is refused.
    pub bytes_max: usize,
}

impl Region {
    /// Appends the packed cells of `row` that `snapshot` sees; none when the row has none. A row with more than
    /// [`BATCH_BYTES_MAX`] bytes of them is refused.
    ///
    /// # Errors
    /// As [`Region::get_row`].
    pub fn get(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        self.get_row(snapshot, row, RowRead { projection, now_ms, patience, bytes_max: BATCH_BYTES_MAX }, out)
    }

    /// Appends the packed cells of `row` that `snapshot` sees; none when the row has none. Whatever the row holds, no more of
    /// it is in memory than the limit and a part.
    ///
    /// # Errors
    /// [`Error::RowTooLarge`] as soon as more is visible than the limit. [`Error::NeedsDisk`] where the patience is
    /// [`Patience::MemoryOnly`], and the row is not in memory or is large. [`Error::Corruption`] or [`Error::Io`] from the
    /// files below. Whatever it is, nothing was appended.
    pub fn get_row(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        read: RowRead<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        let before = out.len();
        let mut result = self.get_small(snapshot, row, read, out);
        if let Ok(None) = result {
            out.truncate(before);
            result = match read.patience {
                // It takes a while, which is not for a thread of the runtime.
                Patience::MemoryOnly => Err(Error::NeedsDisk),
                Patience::MayBlock => self.get_large(snapshot, row, read, out).map(Some),
            };
        }
        if result.is_ok() && out.len() - before > read.bytes_max {
            result = Err(Error::RowTooLarge { bytes_max: read.bytes_max });
        }
        if result.is_err() {
            out.truncate(before);
        }
        result.map(Option::unwrap_or_default)
    }

    /// The row at once; `None` where a family has so much of it that it is to be read in parts.
    fn get_small(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        read: RowRead<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ReadStats>, Error> {
        let RowRead { projection, now_ms, patience, .. } = read;
        let mut stats = ReadStats::default();
        if !self.bounds().contains(row) {
            return Ok(Some(stats));
        }
        let view = view_of(projection, snapshot.sequence(), now_ms);
        let key = RowKey::new(row);
        let reading = Reading {
            blocking: patience == Patience::MayBlock,
            sequential: false,
            fills_cache: true,
            time_min: projection.time_min,
            prefix: None,
        };
        let mut cells = ROOM.take();
        let (mut is_all, part_bytes) = (true, self.part_bytes());
        let mut window = CellWindow::of(projection);
        for store in self.views(projection) {
            let asked = projection.columns(store.name.as_bytes());
            let columns = asked.map(Columns::sought).unwrap_or_default();
            cells.clear();
            let mut sources_with_row = 0;
            for source in &store.sources {
                let before = cells.len();
                is_all = source.row(&key, columns, reading, part_bytes, &mut cells)?;
                sources_with_row += usize::from(cells.len() > before);
                if !is_all {
                    break;
                }
            }
            if !is_all {
                break;
            }
            if sources_with_row == 0 {
                continue;
            }
            if sources_with_row > 1 {
                cells.sort_from(0);
            }
            let mut reader = FamilyReader::new(&store.family, view);
            let name = store.name.as_bytes();
            reader.show(&mut cells, asked, &mut stats, |_, cell| {
                if window.admits() {
                    terrane_types::cell::pack(out, window.shown(cell.packed(name)));
                }
            });
            if window.is_full() {
                break;
            }
        }
        cells.clear();
        if cells.memory_bytes() <= ROOM_BYTES_MAX {
            ROOM.set(cells);
        }
        Ok(is_all.then_some(stats))
    }

    /// What there is of each family asked for, as it is at one moment. The lock is not kept: files are read without it,
    /// and a freeze never waits for a reader.
    pub(crate) fn views(&self, projection: &Projection) -> Views {
        let state = self.state.read();
        let selected = state.stores.iter().filter(|(name, _)| projection.selects_family(name.as_bytes()));
        selected.map(|(_, store)| Arc::clone(&store.view)).collect()
    }
}

pub(crate) fn view_of(projection: &Projection, sequence: u64, now_ms: i64) -> View {
    View {
        sequence,
        now_ms,
        versions: projection.versions,
        time_min: projection.time_min,
        time_max: projection.time_max,
    }
}

fn is_selected(asked: Option<&Columns>, qualifier: &[u8]) -> bool {
    asked.is_some_and(|asked| asked.selects(qualifier))
}

/// Shows what a reader sees of one family, row after row.
pub(crate) struct FamilyReader {
    /// Cells from before it are of an earlier family of this name.
    since: u64,
    resolver: Resolver,
    metas: SmallVec<[CellMeta; 4]>,
    /// Of a column that is larger than a part: its qualifier, and what was shown of it so far.
    open: (Vec<u8>, Vec<CellMeta>),
}

impl FamilyReader {
    pub(crate) fn new(family: &FamilyRecord, view: View) -> Self {
        let resolver = Resolver::new(&family.rules, view);
        Self { since: family.since, resolver, metas: SmallVec::new(), open: Default::default() }
    }

    /// Whether the only cell of a row is shown.
    pub(crate) fn shows_lone(&mut self, cell: &Cell<'_>, asked: Option<&Columns>, stats: &mut ReadStats) -> bool {
        if cell.sequence < self.since {
            return false;
        }
        stats.cells_seen += 1;
        let selected = is_selected(asked, cell.qualifier);
        self.resolver.start_row();
        // A marker of the family, which may come without being asked for, is never visible.
        let shown = selected && !self.resolver.column(&[cell.meta()]).is_empty();
        stats.cells_shown += u64::from(shown);
        shown
    }

    /// Whether the first cell of a row, in store order, says by itself that the row is shown. `false` says nothing.
    pub(crate) fn first_shows(&mut self, cell: &Cell<'_>, asked: Option<&Columns>, stats: &mut ReadStats) -> bool {
        let shows = cell.sequence >= self.since
            && is_selected(asked, cell.qualifier)
            && self.resolver.first_shows(&cell.meta());
        stats.cells_seen += u64::from(shows);
        stats.cells_shown += u64::from(shows);
        shows
    }

    /// Hands the visible cells of one row, given in store order, to `show`, each with its index. `asked` are the columns
    /// that the projection names, as it gives them.
    pub(crate) fn show(
        &mut self,
        cells: &mut Cells,
        asked: Option<&Columns>,
        stats: &mut ReadStats,
        show: impl FnMut(usize, Cell<'_>),
    ) {
        self.begin_row();
        self.show_part(cells, true, asked, stats, show);
    }

    /// Begins a row that is shown in parts.
    pub(crate) fn begin_row(&mut self) {
        self.resolver.start_row();
        self.open.1.clear();
    }

    /// Takes the cells with the empty qualifier from a row that is shown from a later column on: the markers of the family
    /// are among them.
    pub(crate) fn take_markers(&mut self, cells: &Cells) {
        let markers = cells.iter().filter(|cell| cell.qualifier.is_empty() && cell.sequence >= self.since);
        self.metas.clear();
        self.metas.extend(markers.map(|cell| cell.meta()));
        self.resolver.column(&self.metas);
    }

    /// Shows what can be shown of a row with these cells next in store order, as [`FamilyReader::show`] does, and answers how
    /// many of them that decides about. The others come again, with those that follow: their column may go on. `is_last`:
    /// nothing follows.
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
        if !self.open.1.is_empty() {
            first = self.show_open_column(cells, is_last, asked, stats, &mut show);
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
            // Family markers come with the empty qualifier, so that column is resolved even when it is not asked for.
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
        if first == 0 && !cells.is_empty() {
            // A part of a single column, which is shown as far as it goes.
            self.open.0.clear();
            self.open.0.extend_from_slice(cells.get(0).qualifier);
            first = self.show_open_column(cells, is_last, asked, stats, &mut show);
        }
        stats.cells_seen += first as u64;
        first
    }

    /// Shows what follows of a column that is larger than a part. What is visible of a column from some timestamp up depends
    /// on nothing below (see [`Resolver::column`]), so a column may be cut between two timestamps.
    fn show_open_column(
        &mut self,
        cells: &Cells,
        is_last: bool,
        asked: Option<&Columns>,
        stats: &mut ReadStats,
        show: &mut impl FnMut(usize, Cell<'_>),
    ) -> usize {
        let (qualifier, metas) = &mut self.open;
        let of_column = cells.iter().take_while(|cell| cell.qualifier == qualifier.as_slice()).count();
        let is_whole = is_last || of_column < cells.len();
        let before_last = || (1..of_column).rev().find(|&at| cells.get(at - 1).timestamp != cells.get(at).timestamp);
        let end = if is_whole { of_column } else { before_last().unwrap_or(of_column) };
        let shown_before = metas.len();
        metas.extend((0..end).map(|at| cells.get(at).meta()));
        if qualifier.is_empty() {
            // Its markers are handed over once more, with the others.
            self.resolver.start_row();
        }
        let visible = self.resolver.column(metas);
        if is_selected(asked, qualifier) {
            for at in visible.iter().filter_map(|&index| (index as usize).checked_sub(shown_before)) {
                stats.cells_shown += 1;
                show(at, cells.get(at));
            }
        }
        if is_whole {
            metas.clear();
        }
        end
    }
}
