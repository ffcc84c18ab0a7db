//! Evaluates one row's mutation: from the columns as they were to final cells and a result. It looks at nothing else.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use terrane_types::cell::{Cells, LATEST, pack, stamp_those_in_place, ttl_tag};
use terrane_types::limits::{RETURNED_BYTES_MAX, ROW_MUTATION_BYTES_MAX, VALUE_BYTES_MAX};
use terrane_types::{
    CellKind, CellRef, Invalid, ReadModifyWrite, ReadModifyWriteKind, Returns, TableSchema, escape, escape_family,
};

use super::needs::{is_judged, tested};
use super::overlay::{Column, Newest, Version, is_expired, rules_of};
use crate::group::proposal::{CheckedRow, RowRequest};
use crate::operation::{ResultKind, RowResult};

/// Bytes of the reason why a row is refused, which may contain long keys. Well below the largest result that the window
/// keeps.
const REFUSAL_BYTES_MAX: usize = 2 << 10;

/// Bytes of what increments and appends return by themselves: the largest value, with its column.
const MERGED_BYTES_MAX: usize = VALUE_BYTES_MAX + RETURNED_BYTES_MAX;

/// A row with all that its request needs.
pub struct Row<'a> {
    pub row: &'a CheckedRow,
    pub request: &'a RowRequest,
    /// The newest versions of the columns that [`super::needs::Needs`] names.
    pub columns: &'a BTreeMap<Column, Newest>,
    /// Versions of everything that the mutation names, where newest ones are not enough.
    pub whole: Option<&'a [u8]>,
    /// What the condition of another protocol judges, and what is merged with, where newest versions are not enough.
    pub judged: Option<&'a [u8]>,
    pub merged: Option<&'a [u8]>,
    /// What is deleted, where more than newest versions are.
    pub turned: Option<&'a [u8]>,
    /// The tombstones that are stored of columns in which puts have timestamps.
    pub covering: Option<&'a [u8]>,
    pub schema: &'a TableSchema,
    /// The entry's stamp, which is also the time of reading.
    pub stamp: i64,
}

/// The outcome of a row.
#[derive(Debug, PartialEq, Eq)]
pub enum Evaluated {
    /// These cells are applied; those without a timestamp get the stamp.
    Applied { cells: Bytes, returned: Option<Vec<u8>> },
    /// Nothing is applied.
    ConditionFailed { found: Vec<u8> },
    /// Nothing is applied, for this reason.
    Refused { what: String },
}

impl Evaluated {
    /// A refusal, with its reason cut if it is too long: many rows may be refused at once.
    pub fn refused(mut what: String) -> Self {
        shorten(&mut what);
        Self::Refused { what }
    }

    /// The outcome of a row with nothing to evaluate.
    pub fn plain(row: &CheckedRow) -> Self {
        Self::Applied { cells: row.cells.as_bytes().clone(), returned: None }
    }

    pub fn cells(&self) -> &[u8] {
        match self {
            Self::Applied { cells, .. } => cells,
            Self::ConditionFailed { .. } | Self::Refused { .. } => &[],
        }
    }

    /// Its approximate size in the log.
    pub fn bytes(&self, row: &CheckedRow) -> usize {
        let own = match self {
            Self::Applied { cells, returned } => cells.len() + returned.as_ref().map_or(0, Vec::len),
            Self::ConditionFailed { found } => found.len(),
            Self::Refused { what } => what.len(),
        };
        64 + row.row.len() + own
    }

    /// Its result, if its caller expects more than success.
    pub fn result(&self, stamp: u64) -> Option<RowResult> {
        let kind = match self {
            Self::Applied { returned: None, .. } => return None,
            Self::Applied { returned: Some(cells), .. } => {
                ResultKind::Applied { returned: Bytes::copy_from_slice(cells) }
            }
            Self::ConditionFailed { found } => ResultKind::ConditionFailed { found: Bytes::copy_from_slice(found) },
            Self::Refused { what } => ResultKind::Invalid { what: what.clone() },
        };
        Some(RowResult { stamp, kind })
    }
}

/// Shortens a reason so that the window keeps it: otherwise a retry would be told that the row was applied.
fn shorten(what: &mut String) {
    if what.len() > REFUSAL_BYTES_MAX {
        let end = (0..=REFUSAL_BYTES_MAX).rev().find(|at| what.is_char_boundary(*at)).unwrap_or(0);
        what.truncate(end);
        what.push_str("...");
    }
}

/// Versions of columns, newest first.
type Versions = BTreeMap<Column, Vec<Version>>;

fn versions_of(cells: &[u8]) -> Versions {
    let mut versions = Versions::new();
    for cell in Cells::new(cells) {
        let version = Version::of(&cell, cell.timestamp);
        versions.entry(Column::new(cell.family, cell.qualifier)).or_default().push(version);
    }
    versions
}

/// What an increment, an append or a delete of a newest version becomes.
struct Merged<'a> {
    rmw: &'a ReadModifyWrite,
    timestamp: i64,
    /// `None`: the version of this timestamp is deleted.
    value: Option<Vec<u8>>,
    ttl_ms: Option<u64>,
    /// The time to live as its cell carries it.
    tag: Option<[u8; 11]>,
}

impl Merged<'_> {
    fn cell(&self) -> CellRef<'_> {
        let (family, qualifier) = (self.rmw.family.as_bytes(), &self.rmw.qualifier);
        match &self.value {
            Some(value) => {
                let tags = self.tag.as_ref().map_or(&[][..], |tag| tag);
                CellRef { tags, ..CellRef::put(family, qualifier, self.timestamp, value) }
            }
            None => CellRef::delete(CellKind::Delete, family, qualifier, self.timestamp),
        }
    }
}

/// What increments and appends made, by column, and in their order where there are several of one.
fn returned_merged(merged: &[Option<Merged<'_>>]) -> Result<Vec<u8>, Invalid> {
    let mut made = Vec::with_capacity(merged.len());
    for merged in merged.iter().flatten() {
        if let Some(value) = &merged.value {
            let value = Bytes::copy_from_slice(value);
            let version = Version { timestamp: merged.timestamp, value, ttl_ms: merged.ttl_ms };
            made.push((Column::new(merged.rmw.family.as_bytes(), &merged.rmw.qualifier), version));
        }
    }
    made.sort_by(|(one, _), (other, _)| one.cmp(other));
    let made = made.iter().map(|(column, version)| (column, version));
    packed_within("the columns that are incremented or appended to", MERGED_BYTES_MAX, made)
}

impl Row<'_> {
    pub fn evaluate(&self) -> Evaluated {
        match self.try_evaluate() {
            Ok(evaluated) => evaluated,
            Err(Invalid { what }) => Evaluated::refused(format!("row {}: {what}", escape(&self.row.row))),
        }
    }

    fn try_evaluate(&self) -> Result<Evaluated, Invalid> {
        self.check_families()?;
        // The newest timestamp that the conditions saw, if they decide what the new cells get.
        let mut seen = i64::MIN;
        if let Some(condition) = &self.request.condition {
            let newest = |family: &terrane_types::FamilyName, qualifier: &[u8]| {
                let version = self.newest(&Column::new(family.as_bytes(), qualifier))?;
                Some((version.timestamp, &version.value[..]))
            };
            if !condition.holds(&newest)? {
                let found = if self.request.return_found { self.found(tested(condition))? } else { Vec::new() };
                return Ok(Evaluated::ConditionFailed { found });
            }
            let timestamps = tested(condition).into_iter().filter_map(|column| Some(self.newest(&column)?.timestamp));
            seen = timestamps.max().unwrap_or(seen);
        }
        if let Some(condition) = &self.request.extras.condition {
            match condition.judge(&self.row.row, self.judged.unwrap_or_default())? {
                None => return Ok(Evaluated::ConditionFailed { found: Vec::new() }),
                Some(first) => seen = seen.max(first),
            }
        }
        let merged = self.merged()?;
        let mut cells = self.uncovered(self.final_cells(&merged));
        if self.request.extras.follows_condition && seen > self.stamp {
            let mut stamped = cells.to_vec();
            stamp_those_in_place(&mut stamped, seen, |kind| kind == CellKind::Put);
            cells = stamped.into();
        }
        if cells.len() > ROW_MUTATION_BYTES_MAX {
            let bytes = cells.len();
            return Err(Invalid::new(format!(
                "with what is appended the mutation has {bytes} bytes of cells; the limit is {ROW_MUTATION_BYTES_MAX}"
            )));
        }
        let returned = match self.request.returns {
            Returns::Nothing => None,
            _ if self.request.extras.returns_merged => Some(returned_merged(&merged)?),
            Returns::Old => Some(self.returned(&self.before(), &cells)?),
            Returns::New => Some(self.returned(&self.after(&cells), &cells)?),
        };
        Ok(Evaluated::Applied { cells, returned })
    }

    /// What increments, appends and deletes of newest versions become; `None` where there is nothing to delete.
    fn merged(&self) -> Result<Vec<Option<Merged<'_>>>, Invalid> {
        let extras = &self.request.extras;
        // Nothing was read where nothing was asked for, as of a range without versions.
        let ranged = extras.merge_times.map(|_| versions_of(self.merged.unwrap_or_default()));
        let turned = extras.takes_turns().then(|| versions_of(self.turned.unwrap_or_default()));
        let mut merged = Vec::with_capacity(self.request.read_modify_writes.len());
        for (place, rmw) in self.request.read_modify_writes.iter().enumerate() {
            let column = Column::new(rmw.family.as_bytes(), &rmw.qualifier);
            let read = if rmw.what == ReadModifyWriteKind::DeleteNewest { &turned } else { &ranged };
            let newest = match read {
                Some(read) => read.get(&column).and_then(|versions| versions.get(extras.turn(place))),
                None => self.newest(&column),
            };
            let value = rmw.apply(newest.map(|version| &version.value[..]))?;
            merged.push(match (value, newest) {
                (Some(value), newest) => {
                    let timestamp = newest.map_or(self.first_time(place), |version| self.next_time(version));
                    let ttl_ms = self.request.ttl_ms.or_else(|| newest.and_then(|version| version.ttl_ms));
                    Some(Merged { rmw, timestamp, value: Some(value), ttl_ms, tag: ttl_ms.map(ttl_tag) })
                }
                (None, Some(newest)) => {
                    Some(Merged { rmw, timestamp: newest.timestamp, value: None, ttl_ms: None, tag: None })
                }
                (None, None) => None,
            });
        }
        Ok(merged)
    }

    /// The timestamp of what is written over a version: not below it, whatever timestamp a client gave that one.
    fn next_time(&self, version: &Version) -> i64 {
        let makes_version = self.request.extras.makes_versions
            && !terrane_env::planted!("an increment takes the place of the version that it saw");
        let least = version.timestamp.saturating_add(i64::from(makes_version)).min(LATEST - 1);
        least.max(self.stamp)
    }

    /// The timestamp of what is written to a column that has no version.
    fn first_time(&self, place: usize) -> i64 {
        let given = self.request.extras.first_times.get(place).copied();
        given.filter(|&time| time != LATEST).unwrap_or(self.stamp)
    }

    /// The cells of the mutation, with what was merged in its places.
    fn final_cells(&self, merged: &[Option<Merged<'_>>]) -> Bytes {
        let own = self.row.cells.as_bytes();
        if merged.is_empty() {
            return own.clone();
        }
        let places = self.request.extras.places.as_deref().unwrap_or_default();
        let (mut cells, mut done) = (Vec::with_capacity(own.len()), 0);
        for (at, merged) in merged.iter().enumerate() {
            let place = places.get(at).map_or(own.len(), |place| (*place).clamp(done, own.len()));
            cells.extend_from_slice(&own[done..place]);
            done = place;
            if let Some(merged) = merged {
                pack(&mut cells, merged.cell());
            }
        }
        cells.extend_from_slice(&own[done..]);
        cells.into()
    }

    /// Leaves out puts with timestamps that a stored tombstone covers, where the mutation asks for that.
    fn uncovered(&self, cells: Bytes) -> Bytes {
        let Some(covering) = self.covering else { return cells };
        let tombstones = Tombstones::among(covering);
        if tombstones.is_empty() {
            return cells;
        }
        let mut kept = Vec::with_capacity(cells.len());
        let by_timestamp = &self.request.extras.by_timestamp;
        for cell in Cells::new(&cells).filter(|cell| !is_judged(cell, by_timestamp) || !tombstones.cover(cell)) {
            pack(&mut kept, cell);
        }
        kept.into()
    }

    /// The edge has checked, but the table may have been altered since.
    fn check_families(&self) -> Result<(), Invalid> {
        let tests = self.request.condition.iter().flat_map(tested);
        let named: Vec<Column> =
            tests.chain(self.named(self.row.cells.as_bytes())).chain(self.read_modify_written()).collect();
        let gone = named.iter().find(|column| self.schema.family(column.family()).is_none());
        match gone {
            Some(column) => Err(Invalid::new(format!(
                "table {} has no family {}",
                self.schema.name,
                escape_family(column.family())
            ))),
            None => Ok(()),
        }
    }

    fn read_modify_written(&self) -> impl Iterator<Item = Column> {
        self.request.read_modify_writes.iter().map(|rmw| Column::new(rmw.family.as_bytes(), &rmw.qualifier))
    }

    fn named<'c>(&self, cells: &'c [u8]) -> impl Iterator<Item = Column> + use<'c> {
        Cells::new(cells).map(|cell| Column::new(cell.family, cell.qualifier))
    }

    fn newest(&self, column: &Column) -> Option<&Version> {
        self.columns.get(column)?.as_ref()
    }

    /// The columns that a condition tests, packed.
    fn found(&self, columns: Vec<Column>) -> Result<Vec<u8>, Invalid> {
        let columns: BTreeSet<_> = columns.into_iter().collect();
        let found = columns.iter().filter_map(|column| Some((column, self.newest(column)?)));
        packed("the columns that the condition names", found)
    }

    /// The versions of everything that the mutation names, as they were before.
    fn before(&self) -> Versions {
        let mut versions = Versions::new();
        for (column, newest) in self.columns {
            versions.insert(column.clone(), newest.iter().cloned().collect());
        }
        if let Some(whole) = self.whole {
            // It goes deeper than the columns do.
            versions.extend(versions_of(whole));
        }
        versions
    }

    /// The versions afterwards, as far as the newest one needs.
    fn after(&self, cells: &[u8]) -> Versions {
        let mut versions = self.before();
        for cell in Cells::new(cells) {
            let timestamp = if cell.timestamp == LATEST { self.stamp } else { cell.timestamp };
            if cell.kind.is_family_tombstone() {
                for (_, of_column) in versions.iter_mut().filter(|(column, _)| column.family() == cell.family) {
                    delete(of_column, cell.kind, timestamp);
                }
                continue;
            }
            let of_column = versions.entry(Column::new(cell.family, cell.qualifier)).or_default();
            if cell.kind == CellKind::Put {
                let at = of_column.partition_point(|version| version.timestamp > timestamp);
                if of_column.get(at).is_some_and(|version| version.timestamp == timestamp) {
                    of_column.remove(at);
                }
                of_column.insert(at, Version::of(&cell, timestamp));
                if !cell.tags.is_empty() {
                    continue; // It pushes nothing out that outlives it.
                }
                let kept = rules_of(self.schema, cell.family).versions;
                of_column.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
            } else {
                delete(of_column, cell.kind, timestamp);
            }
        }
        versions
    }

    /// The newest versions of the columns that the mutation names, packed.
    fn returned(&self, versions: &Versions, cells: &[u8]) -> Result<Vec<u8>, Invalid> {
        let named: BTreeSet<Column> = self.named(cells).chain(self.read_modify_written()).collect();
        let markers = || Cells::new(cells).filter(|cell| cell.kind.is_family_tombstone());
        let of_family = |column: &Column| markers().any(|cell| cell.family == column.family());
        let shown = versions.iter().filter(|(column, _)| named.contains(column) || of_family(column));
        let newest = shown.filter_map(|(column, versions)| {
            let rules = rules_of(self.schema, column.family());
            let version = versions.first()?;
            let hidden = rules.min_versions == 0 && is_expired(&rules, version.timestamp, self.stamp);
            (!hidden && !version.has_died(self.stamp)).then_some((column, version))
        });
        packed("the columns that the mutation names", newest)
    }
}

/// What a tombstone is about: a family and, unless it is the whole family, a qualifier.
type Named<'a> = (&'a [u8], Option<&'a [u8]>);

/// The stored tombstones of a row that may cover a put.
#[derive(Default)]
struct Tombstones<'a> {
    up_to: BTreeMap<Named<'a>, i64>,
    exact: BTreeSet<(Named<'a>, i64)>,
}

impl<'a> Tombstones<'a> {
    fn among(stored: &'a [u8]) -> Self {
        let mut all = Self::default();
        for cell in Cells::new(stored) {
            let of = (cell.family, (!cell.kind.is_family_tombstone()).then_some(cell.qualifier));
            match cell.kind {
                CellKind::Put => {}
                CellKind::Delete | CellKind::DeleteFamilyVersion => {
                    all.exact.insert((of, cell.timestamp));
                }
                CellKind::DeleteColumn | CellKind::DeleteFamily => {
                    let time = all.up_to.entry(of).or_insert(cell.timestamp);
                    *time = cell.timestamp.max(*time);
                }
            }
        }
        all
    }

    fn is_empty(&self) -> bool {
        self.up_to.is_empty() && self.exact.is_empty()
    }

    fn cover(&self, put: &CellRef<'a>) -> bool {
        [Some(put.qualifier), None].into_iter().any(|qualifier| {
            let of = (put.family, qualifier);
            self.up_to.get(&of).is_some_and(|&time| time >= put.timestamp) || self.exact.contains(&(of, put.timestamp))
        })
    }
}

fn delete(versions: &mut Vec<Version>, kind: CellKind, timestamp: i64) {
    let exactly = matches!(kind, CellKind::Delete | CellKind::DeleteFamilyVersion);
    versions.retain(|version| if exactly { version.timestamp != timestamp } else { version.timestamp > timestamp });
}

fn packed<'a>(what: &str, versions: impl Iterator<Item = (&'a Column, &'a Version)>) -> Result<Vec<u8>, Invalid> {
    packed_within(what, RETURNED_BYTES_MAX, versions)
}

fn packed_within<'a>(
    what: &str,
    bytes_max: usize,
    versions: impl Iterator<Item = (&'a Column, &'a Version)>,
) -> Result<Vec<u8>, Invalid> {
    let mut out = Vec::new();
    for (column, version) in versions {
        let cell = CellRef::put(column.family(), column.qualifier(), version.timestamp, &version.value);
        if out.len() + cell.packed_len() > bytes_max {
            return Err(Invalid::new(format!(
                "{what} take more than the {bytes_max} bytes that can be returned; nothing was applied"
            )));
        }
        pack(&mut out, cell);
    }
    Ok(out)
}
