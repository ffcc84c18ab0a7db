//! Gets: one row of one region, as a snapshot sees it.

use std::sync::Arc;

use smallvec::SmallVec;
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

impl Region {
    /// Appends the packed cells of `row` that `snapshot` sees; none when the row has none.
    ///
    /// # Errors
    /// [`Error::NeedsDisk`] where the patience is [`Patience::MemoryOnly`]; [`Error::Corruption`] or [`Error::Io`] from the
    /// files below. Whatever it is, nothing was appended.
    pub fn get(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        let before = out.len();
        let result = self.get_row(snapshot, row, projection, now_ms, patience, out);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn get_row(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        let mut stats = ReadStats::default();
        if !self.bounds().contains(row) {
            return Ok(stats);
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
        let mut window = CellWindow::of(projection);
        for store in self.views(projection) {
            let asked = projection.columns(store.name.as_bytes());
            let columns = asked.map(Columns::sought).unwrap_or_default();
            cells.clear();
            let mut sources_with_row = 0;
            for source in &store.sources {
                let before = cells.len();
                source.row(&key, columns, reading, &mut cells)?;
                sources_with_row += usize::from(cells.len() > before);
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
        Ok(stats)
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
}

impl FamilyReader {
    pub(crate) fn new(family: &FamilyRecord, view: View) -> Self {
        Self { since: family.since, resolver: Resolver::new(&family.rules, view), metas: SmallVec::new() }
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
        mut show: impl FnMut(usize, Cell<'_>),
    ) {
        if self.since > 0 {
            let since = self.since;
            cells.retain(|cell| cell.sequence >= since);
        }
        stats.cells_seen += cells.len() as u64;
        self.resolver.start_row();
        let mut first = 0;
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
    }
}
