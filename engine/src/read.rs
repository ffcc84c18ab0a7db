//! Gets: one row of one region, as a snapshot sees it.

use terrane_types::visibility::{CellMeta, Resolver, RulesHistory, View};
use terrane_types::{FamilyName, Projection};

use crate::Error;
use crate::cell::StoredCell;
use crate::region::Region;
use crate::snapshot::Snapshot;

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
        let state = self.state.read();
        for (family, store) in &state.stores {
            if !projection.selects_family(family.as_bytes()) {
                continue;
            }
            cells.clear();
            let mut sources_with_row = 0;
            for source in Self::sources(&state, family) {
                let before = cells.len();
                source.row(row, &mut cells)?;
                sources_with_row += usize::from(cells.len() > before);
            }
            if sources_with_row > 1 {
                sort_cells(&mut cells);
            }
            let mut family = FamilyReader::new(family.clone(), &store.rules, view);
            family.show(&cells, projection, &mut stats, |cell, family| {
                terrane_types::cell::pack(out, cell.as_ref(family));
                true
            });
        }
        Ok(stats)
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

/// Puts cells of one row from several sources in store order. The same cell from two sources (a flush that was repeated)
/// stays once.
pub(crate) fn sort_cells(cells: &mut Vec<StoredCell>) {
    cells.sort();
    cells.dedup();
}

/// Shows what a reader sees of one family, row after row.
pub(crate) struct FamilyReader {
    family: FamilyName,
    resolver: Resolver,
    metas: Vec<CellMeta>,
}

impl FamilyReader {
    pub(crate) fn new(family: FamilyName, rules: &RulesHistory, view: View) -> Self {
        Self { family, resolver: Resolver::new(rules, view), metas: Vec::new() }
    }

    pub(crate) fn family(&self) -> &FamilyName {
        &self.family
    }

    /// Hands the visible cells of one row, given in store order, to `show`, until that says no.
    pub(crate) fn show(
        &mut self,
        cells: &[StoredCell],
        projection: &Projection,
        stats: &mut ReadStats,
        mut show: impl FnMut(&StoredCell, &[u8]) -> bool,
    ) {
        self.resolver.start_row();
        let mut rest = cells;
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|cell| cell.qualifier() == first.qualifier()).count();
            let (column, after) = rest.split_at(same);
            rest = after;
            let selected = projection.selects(self.family.as_bytes(), first.qualifier());
            // Family markers come with the empty qualifier, so that column is resolved even when it is not asked for.
            if !selected && !first.qualifier().is_empty() {
                stats.cells_seen += column.len() as u64;
                continue;
            }
            self.metas.clear();
            self.metas.extend(column.iter().map(StoredCell::meta));
            let visible = self.resolver.column(&self.metas);
            let shown = if selected { visible.len() } else { 0 };
            stats.cells_shown += shown as u64;
            stats.cells_seen += column.len() as u64;
            for &index in &visible[..shown] {
                if !show(&column[index as usize], self.family.as_bytes()) {
                    return;
                }
            }
        }
    }
}
