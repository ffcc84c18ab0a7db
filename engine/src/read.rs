//! Gets: one row of one region, as a snapshot sees it.

use std::sync::Arc;

use terrane_types::visibility::{CellMeta, Resolver, View};
use terrane_types::{FamilyName, Projection};

use crate::Error;
use crate::cell::StoredCell;
use crate::manifest::FamilyRecord;
use crate::region::Region;
use crate::snapshot::Snapshot;
use crate::source::Source;

/// What a read cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Cells read.
    pub cells_seen: u64,
    /// Cells shown.
    pub cells_shown: u64,
}

impl Region {
    /// Appends the packed cells of `row` that `snapshot` sees; none when the row has none.
    ///
    /// # Errors
    /// [`Error::Corruption`] or [`Error::Io`] from the files below.
    pub fn get(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        let mut stats = ReadStats::default();
        if !self.bounds().contains(row) {
            return Ok(stats);
        }
        let view = view_of(projection, snapshot.sequence(), now_ms);
        let mut cells = Vec::new();
        for (mut reader, sources) in self.readers(projection, view) {
            cells.clear();
            let mut sources_with_row = 0;
            for source in sources {
                let before = cells.len();
                source.row(row, &mut cells)?;
                sources_with_row += usize::from(cells.len() > before);
            }
            if sources_with_row > 1 {
                sort_cells(&mut cells);
            }
            reader.show(&mut cells, projection, &mut stats, |cell, family| {
                terrane_types::cell::pack(out, cell.as_ref(family));
            });
        }
        Ok(stats)
    }

    /// A reader and the sources of each family asked for, as they are at one moment. The lock is not kept: files are read
    /// without it, and a freeze never waits for a reader.
    pub(crate) fn readers(&self, projection: &Projection, view: View) -> Vec<(FamilyReader, Vec<Arc<dyn Source>>)> {
        let state = self.state.read();
        let selected = state.stores.iter().filter(|(name, _)| projection.selects_family(name.as_bytes()));
        selected
            .map(|(name, store)| (FamilyReader::new(name.clone(), &store.family, view), Self::sources(&state, name)))
            .collect()
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

/// Puts cells of one row from several sources, newest first, in store order. The same cell from two sources (in a memtable
/// and, while its flush is under way, already in the backend) stays once, as the newer source has it: the older one may
/// hold it as a stub. The sort is stable for that reason.
pub(crate) fn sort_cells(cells: &mut Vec<StoredCell>) {
    cells.sort();
    cells.dedup();
}

/// Shows what a reader sees of one family, row after row.
pub(crate) struct FamilyReader {
    name: FamilyName,
    /// Cells from before it are of an earlier family of this name.
    since: u64,
    resolver: Resolver,
    metas: Vec<CellMeta>,
}

impl FamilyReader {
    fn new(name: FamilyName, family: &FamilyRecord, view: View) -> Self {
        Self { name, since: family.since, resolver: Resolver::new(&family.rules, view), metas: Vec::new() }
    }

    pub(crate) fn name(&self) -> &FamilyName {
        &self.name
    }

    /// Hands the visible cells of one row, given in store order, to `show`.
    pub(crate) fn show(
        &mut self,
        cells: &mut Vec<StoredCell>,
        projection: &Projection,
        stats: &mut ReadStats,
        mut show: impl FnMut(&StoredCell, &[u8]),
    ) {
        if self.since > 0 {
            cells.retain(|cell| cell.sequence() >= self.since);
        }
        self.resolver.start_row();
        let mut rest = cells.as_slice();
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|cell| cell.qualifier() == first.qualifier()).count();
            let (column, after) = rest.split_at(same);
            rest = after;
            stats.cells_seen += column.len() as u64;
            let selected = projection.selects(self.name.as_bytes(), first.qualifier());
            // Family markers come with the empty qualifier, so that column is resolved even when it is not asked for.
            if !selected && !first.qualifier().is_empty() {
                continue;
            }
            self.metas.clear();
            self.metas.extend(column.iter().map(StoredCell::meta));
            let visible = self.resolver.column(&self.metas);
            if selected {
                stats.cells_shown += visible.len() as u64;
                visible.iter().for_each(|&index| show(&column[index as usize], self.name.as_bytes()));
            }
        }
    }
}
