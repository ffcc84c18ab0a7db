//! Which columns a row's request needs to be evaluated.

use std::collections::BTreeSet;
use std::convert::Infallible;

use bytes::Bytes;
use terrane_engine::Patience;
use terrane_types::cell::LATEST;
use terrane_types::{CellKind, CellRef, Condition, FamilyName, Projection, ReadModifyWriteKind, Returns};

use super::Columns;
use super::overlay::Column;
use crate::group::proposal::{CheckedRow, RowRequest};

/// What a row needs.
pub struct Needs {
    /// Columns of which the newest version is needed.
    pub columns: BTreeSet<Column>,
    /// What is to be returned takes more than newest versions: all of this has to be read.
    pub whole: Option<Projection>,
    /// What a [`RowCondition`](crate::group::proposal::RowCondition) judges.
    judged: Option<Projection>,
    /// The first cell of the row, which it judges with that.
    first: Option<Projection>,
    /// The columns to merge with, where they are not read as they are now.
    merged: Option<Projection>,
    /// The columns of which more than the newest version is deleted.
    turned: Option<Projection>,
    /// The tombstones that may cover puts with timestamps.
    covering: Option<Projection>,
}

/// What cells of a row are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The newest versions of columns.
    Newest,
    /// What is to be returned.
    Whole,
    Judged,
    First,
    Merged,
    Turned,
    Covering,
}

impl Part {
    /// Reads it.
    pub fn read(
        self,
        columns: &dyn Columns,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error> {
        match self {
            Self::Covering => columns.read_tombstones(row, projection, now_ms, patience, out),
            _ => columns.read(row, projection, now_ms, patience, out),
        }
    }
}

impl Needs {
    pub fn of(row: &CheckedRow, request: &RowRequest) -> Self {
        let mut columns = BTreeSet::new();
        if let Some(condition) = &request.condition {
            columns.extend(tested(condition));
        }
        let extras = &request.extras;
        let judged = extras.condition.as_ref().map(|condition| condition.reads().clone());
        let first = extras.condition.as_ref().filter(|condition| condition.reads_first()).map(|condition| Projection {
            families: Vec::new(),
            within: None,
            first_cell_only: true,
            ..condition.reads().clone()
        });
        let (mut ranged, mut turned) = (BTreeSet::new(), BTreeSet::new());
        for rmw in &request.read_modify_writes {
            let column = Column::new(rmw.family.as_bytes(), &rmw.qualifier);
            let deletes = rmw.what == ReadModifyWriteKind::DeleteNewest;
            match () {
                () if deletes && extras.takes_turns() => turned.insert(column),
                () if !deletes && extras.merge_times.is_some() => ranged.insert(column),
                () => columns.insert(column),
            };
        }
        let (ranged, turned): (Vec<_>, Vec<_>) = (ranged.into_iter().collect(), turned.into_iter().collect());
        let merged = extras.merge_times.filter(|_| !ranged.is_empty());
        let merged = merged.map(|(time_min, time_max)| Projection { time_min, time_max, ..self::columns(&ranged) });
        let turns = extras.turns.iter().max().map_or(1, |turn| turn.saturating_add(1));
        let turns = turns.min(terrane_types::limits::VERSIONS_MAX);
        let turned = (!turned.is_empty()).then(|| self::columns(&turned).with_versions(turns));
        let covering = covering(row, &extras.by_timestamp);
        if request.returns == Returns::Nothing || extras.returns_merged {
            return Self { columns, whole: None, judged, first, merged, turned, covering };
        }
        let takes_more = |kind| !matches!(kind, CellKind::Put | CellKind::DeleteColumn);
        let deletes_newest =
            request.read_modify_writes.iter().filter(|rmw| rmw.what == ReadModifyWriteKind::DeleteNewest);
        let deletes_newest = deletes_newest.count();
        if deletes_newest > 0 || row.cells.iter().any(|cell| takes_more(cell.kind)) {
            let whole = whole(row, &columns, deletes_newest);
            return Self { columns, whole, judged, first, merged, turned, covering };
        }
        columns.extend(row.cells.iter().map(|cell| Column::new(cell.family, cell.qualifier)));
        Self { columns, whole: None, judged, first, merged, turned, covering }
    }

    /// Everything that takes more than newest versions.
    pub fn whole_parts(&self) -> impl Iterator<Item = (Part, &Projection)> {
        let parts = [
            (Part::Whole, &self.whole),
            (Part::Judged, &self.judged),
            (Part::First, &self.first),
            (Part::Merged, &self.merged),
            (Part::Turned, &self.turned),
            (Part::Covering, &self.covering),
        ];
        parts.into_iter().filter_map(|(part, projection)| Some((part, projection.as_ref()?)))
    }

    /// Whether there is any of it.
    pub fn reads_whole(&self) -> bool {
        self.whole_parts().next().is_some()
    }

    /// Whether only tombstones matter of it.
    pub fn reads_tombstones_only(&self) -> bool {
        self.whole_parts().all(|(part, _)| part == Part::Covering)
    }
}

/// The columns that a condition tests.
pub fn tested(condition: &Condition) -> Vec<Column> {
    let mut columns = Vec::new();
    let all = condition.each_test(&mut |test| {
        columns.push(Column::new(test.family.as_bytes(), &test.qualifier));
        Ok::<(), Infallible>(())
    });
    match all {
        Ok(()) => columns,
        Err(never) => match never {},
    }
}

/// Everything that a mutation with deletes of versions or families names, with enough versions that each column has one left
/// after the deletes of single versions.
fn whole(row: &CheckedRow, read: &BTreeSet<Column>, deletes_newest: usize) -> Option<Projection> {
    let exact = |kind| matches!(kind, CellKind::Delete | CellKind::DeleteFamilyVersion);
    let versions = 1 + deletes_newest + row.cells.iter().filter(|cell| exact(cell.kind)).count();
    let versions = u32::try_from(versions).unwrap_or(u32::MAX).min(terrane_types::limits::VERSIONS_MAX);
    let mut projection = Projection::all().with_versions(versions).with_ttl();
    let (mut families, mut columns) = (BTreeSet::new(), read.clone());
    for cell in row.cells.iter() {
        match cell.kind.is_family_tombstone() {
            true => drop(families.insert(cell.family)),
            false => drop(columns.insert(Column::new(cell.family, cell.qualifier))),
        }
    }
    for family in families {
        projection = projection.with_family(family_of(family)?);
    }
    // In order, so that each is appended: a mutation may name a great many.
    for column in columns {
        projection = projection.with_column(family_of(column.family())?, Bytes::copy_from_slice(column.qualifier()));
    }
    Some(projection)
}

/// What is stored of the columns in which puts of these families have timestamps, from the lowest of these on, and of their families:
/// the tombstones count.
fn covering(row: &CheckedRow, by_timestamp: &[FamilyName]) -> Option<Projection> {
    let mut time_min = LATEST;
    let mut columns = BTreeSet::new();
    for cell in row.cells.iter().filter(|cell| is_judged(cell, by_timestamp)) {
        time_min = time_min.min(cell.timestamp);
        columns.insert(Column::new(cell.family, cell.qualifier));
        columns.insert(Column::new(cell.family, b""));
    }
    let columns: Vec<_> = columns.into_iter().collect();
    let versions = terrane_types::limits::VERSIONS_MAX;
    (!columns.is_empty()).then(|| Projection {
        raw: true,
        time_min,
        with_ttl: false,
        ..self::columns(&columns).with_versions(versions).with_keys_only()
    })
}

/// Whether a cell of a mutation is left out where a stored tombstone covers it.
pub fn is_judged(cell: &CellRef<'_>, by_timestamp: &[FamilyName]) -> bool {
    cell.kind == CellKind::Put
        && cell.timestamp != LATEST
        && by_timestamp.binary_search_by(|family| family.as_bytes().cmp(cell.family)).is_ok()
}

/// The newest version of each of these columns.
pub fn columns(columns: &[Column]) -> Projection {
    let mut projection = Projection::all().with_ttl();
    for column in columns {
        if let Some(family) = family_of(column.family()) {
            projection = projection.with_column(family, Bytes::copy_from_slice(column.qualifier()));
        }
    }
    projection
}

/// Families were checked at the edge, so each has a name.
fn family_of(family: &[u8]) -> Option<FamilyName> {
    FamilyName::try_from(family).ok()
}
