//! The newest versions of the columns read lately, including the effect of writes in flight.
//!
//! While the overlay is active it records every write that is packed, so what it knows of a column stays true, also after
//! the write has landed: a hot counter is read from the engine once. It becomes active when nothing is in flight, and rests
//! again when nothing has been evaluated for a while; then plain writes cost nothing more.
//!
//! Of other columns it knows only, by hashes, whether a write in flight touches them. Two columns with the same hash make a
//! write wait needlessly, and nothing worse.
//!
//! Invariants:
//! - What it knows of a column is what a reader would see after everything packed so far. What would take more than the
//!   newest version to know is dropped, and read again once the write in flight has landed.
//! - Dropping is always correct; so memory is bounded by dropping what was not used for longest.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

use bytes::Bytes;
use terrane_types::cell::Cells;
use terrane_types::{CellKind, CellRef, FamilyRules, RegionId, TableSchema};

/// Columns known, and their bytes; one half is for those used lately.
const COLUMNS_MAX: usize = 64 << 10;
const BYTES_MAX: usize = 16 << 20;
/// About what a column takes in addition to its name and value.
const COLUMN_OVERHEAD_BYTES: usize = 128;
/// The overlay rests after so many milliseconds of log time in which nothing was evaluated.
const REST_AFTER_MS: u64 = 10_000;

/// Hashes that are the same in every process. Nothing depends on their order.
type Hashed = BuildHasherDefault<DefaultHasher>;

/// A column of a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    /// `family length u8 | family | qualifier`: columns of one family are adjacent, in the order of their qualifiers.
    name: Box<[u8]>,
}

impl Column {
    pub fn new(family: &[u8], qualifier: &[u8]) -> Self {
        // Names of families have at most 128 bytes.
        let length = u8::try_from(family.len()).unwrap_or(u8::MAX);
        Self { name: [&[length], family, qualifier].concat().into() }
    }

    pub fn family(&self) -> &[u8] {
        &self.name[1..=usize::from(self.name[0])]
    }

    pub fn qualifier(&self) -> &[u8] {
        &self.name[1 + usize::from(self.name[0])..]
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CellRef::put(self.family(), self.qualifier(), 0, &[]).fmt(f)
    }
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A version of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub timestamp: i64,
    pub value: Bytes,
    /// Its own time to live.
    pub ttl_ms: Option<u64>,
}

impl Version {
    pub fn of(cell: &CellRef<'_>, timestamp: i64) -> Self {
        let ttl_ms = terrane_types::cell::ttl_of(cell.tags);
        Self { timestamp, value: Bytes::copy_from_slice(cell.value), ttl_ms }
    }

    /// Whether its own time to live is over.
    pub fn has_died(&self, now_ms: i64) -> bool {
        self.ttl_ms.is_some_and(|ttl| self.timestamp.saturating_add_unsigned(ttl) < now_ms)
    }
}

/// The newest version of a column; `None` if it has none.
pub type Newest = Option<Version>;

/// What is known of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    newest: Newest,
    /// A reader saw it although it had expired: the family's `min_versions` protects it until the column is written again.
    protected: bool,
}

/// The result of looking up a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Known(Newest),
    /// It can be read from the engine now.
    Unknown,
    /// A write in flight touches it, with an effect that is not known here.
    InFlight,
}

/// A column's newest version after a cell, compared with before.
#[derive(Debug, PartialEq, Eq)]
enum After {
    Same,
    Newest(Version),
    Absent,
    Unknown,
}

/// The rows with known columns, by region and row.
type Rows = HashMap<Box<[u8]>, BTreeMap<Column, Known>, Hashed>;

/// The overlay of one group.
#[derive(Default)]
pub struct Overlay {
    active: bool,
    /// Log time of the last evaluation.
    used: u64,
    /// Rows used lately, and those not used since these filled up.
    young: Rows,
    old: Rows,
    young_columns: usize,
    young_bytes: usize,
    /// Hashes of the rows, columns and families that writes in flight touch, by entry, oldest first.
    in_flight: VecDeque<(u64, HashSet<u64, Hashed>)>,
}

impl Overlay {
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// From now on every write that is packed is recorded. Nothing is in flight.
    pub fn wake(&mut self) {
        *self = Self { active: true, ..Self::default() };
    }

    /// Something is evaluated in an entry with this stamp. Memory is bounded here and not while rows are evaluated, so that
    /// what was gathered for them stays.
    pub fn evaluated(&mut self, stamp: u64) {
        self.used = stamp;
        if self.young_columns > COLUMNS_MAX / 2 || self.young_bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            (self.young_columns, self.young_bytes) = (0, 0);
        }
    }

    /// Rests if nothing was evaluated for a while.
    pub fn rest(&mut self, stamp: u64) {
        if stamp.saturating_sub(self.used) > REST_AFTER_MS {
            *self = Self::default();
        }
    }

    /// Entries up to this ordinal have landed: the engine shows them.
    pub fn land(&mut self, landed: u64) {
        while self.in_flight.front().is_some_and(|(ordinal, _)| *ordinal <= landed) {
            self.in_flight.pop_front();
        }
    }

    /// Looks up a column at this time.
    pub fn look(&mut self, region: RegionId, row: &[u8], column: &Column, schema: &TableSchema, now_ms: i64) -> Look {
        let rules = rules_of(schema, column.family());
        let known = self.row(region, row).and_then(|columns| columns.get(column).cloned());
        match known {
            // What it hid shows again.
            Some(Known { newest: Some(version), .. }) if version.has_died(now_ms) => self.forget(region, row, column),
            Some(Known { newest: Some(version), protected: false })
                if is_expired(&rules, version.timestamp, now_ms) =>
            {
                if rules.min_versions == 0 {
                    return Look::Known(None);
                }
                // Whether it is protected cannot be known from the newest version alone.
                self.forget(region, row, column);
            }
            Some(known) => return Look::Known(known.newest),
            None => {}
        }
        let hashes = Hashes::of(region, row);
        if self.touches(hashes.column(column)) || self.touches(hashes.family(column.family())) {
            Look::InFlight
        } else {
            Look::Unknown
        }
    }

    /// Whether a write in flight touches anything of the row.
    pub fn is_row_in_flight(&self, region: RegionId, row: &[u8]) -> bool {
        self.touches(Hashes::of(region, row).row())
    }

    /// Whether a write in flight deletes anything of the row.
    pub fn is_delete_in_flight(&self, region: RegionId, row: &[u8]) -> bool {
        self.touches(Hashes::of(region, row).deletes())
    }

    /// Records columns from the cells that a read of them at this time returned; columns without a cell are absent.
    pub fn insert(
        &mut self,
        region: RegionId,
        row: &[u8],
        columns: &[Column],
        cells: &[u8],
        schema: &TableSchema,
        now_ms: i64,
    ) {
        let mut newest: BTreeMap<Column, Newest> = columns.iter().map(|column| (column.clone(), None)).collect();
        for cell in Cells::new(cells) {
            if let Some(newest) = newest.get_mut(&Column::new(cell.family, cell.qualifier))
                && newest.is_none()
            {
                *newest = Some(version_of(&cell));
            }
        }
        for (column, newest) in newest {
            let rules = rules_of(schema, column.family());
            // The read may have happened a little earlier: without `min_versions`, what has expired since is gone.
            let protected = rules.min_versions > 0
                && newest.as_ref().is_some_and(|version| is_expired(&rules, version.timestamp, now_ms));
            self.set(region, row, column, Known { newest, protected });
        }
    }

    /// Records a write that is packed into the entry with this ordinal; its cells are stamped.
    pub fn note(&mut self, ordinal: u64, region: RegionId, row: &[u8], cells: &[u8], schema: &TableSchema) {
        if self.in_flight.back().is_none_or(|(last, _)| *last != ordinal) {
            self.in_flight.push_back((ordinal, HashSet::default()));
        }
        let hashes = Hashes::of(region, row);
        if let Some((_, touched)) = self.in_flight.back_mut() {
            touched.insert(hashes.row());
            if Cells::new(cells).any(|cell| cell.kind.is_delete()) {
                touched.insert(hashes.deletes());
            }
            touched.extend(Cells::new(cells).map(|cell| match cell.kind.is_family_tombstone() {
                true => hashes.family(cell.family),
                false => hashes.column(&Column::new(cell.family, cell.qualifier)),
            }));
        }
        if self.row(region, row).is_some() {
            for cell in Cells::new(cells) {
                self.note_cell(region, row, &cell, schema);
            }
        }
    }

    fn note_cell(&mut self, region: RegionId, row: &[u8], cell: &CellRef<'_>, schema: &TableSchema) {
        let rules = rules_of(schema, cell.family);
        let touched: Vec<Column> = {
            let Some(columns) = self.row(region, row) else { return };
            let first = Column::new(cell.family, cell.qualifier);
            if cell.kind.is_family_tombstone() {
                let of_family = columns.range(first..).take_while(|(column, _)| column.family() == cell.family);
                of_family.map(|(column, _)| column.clone()).collect()
            } else {
                columns.contains_key(&first).then_some(first).into_iter().collect()
            }
        };
        for column in touched {
            let now = self.row(region, row).and_then(|columns| columns.get(&column).cloned());
            let newest = now.and_then(|known| known.newest);
            match after(newest.as_ref(), cell, &rules) {
                After::Same => {}
                After::Newest(version) => {
                    self.set(region, row, column, Known { newest: Some(version), protected: false });
                }
                After::Absent => self.set(region, row, column, Known { newest: None, protected: false }),
                After::Unknown => self.forget(region, row, &column),
            }
        }
    }

    /// The known columns of a row, which counts as used.
    fn row(&mut self, region: RegionId, row: &[u8]) -> Option<&mut BTreeMap<Column, Known>> {
        let key = key_of(region, row);
        if !self.young.contains_key(&key) {
            let columns = self.old.remove(&key)?;
            self.young_columns += columns.len();
            self.young_bytes += columns.iter().map(|(column, known)| bytes_of(&key, column, known)).sum::<usize>();
            self.young.insert(key.clone(), columns);
        }
        self.young.get_mut(&key)
    }

    fn set(&mut self, region: RegionId, row: &[u8], column: Column, now: Known) {
        let key = key_of(region, row);
        // Moves the row to the young ones if it is old.
        self.row(region, row);
        let bytes = bytes_of(&key, &column, &now);
        let columns = self.young.entry(key.clone()).or_default();
        self.young_bytes += bytes;
        match columns.entry(column) {
            std::collections::btree_map::Entry::Occupied(mut known) => {
                self.young_bytes -= bytes_of(&key, known.key(), known.get());
                known.insert(now);
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(now);
                self.young_columns += 1;
            }
        }
    }

    fn forget(&mut self, region: RegionId, row: &[u8], column: &Column) {
        let key = key_of(region, row);
        let Some(columns) = self.row(region, row) else { return };
        let known = columns.remove(column);
        let nothing_left = columns.is_empty();
        if let Some(known) = known {
            self.young_columns -= 1;
            self.young_bytes -= bytes_of(&key, column, &known);
        }
        if nothing_left {
            // Otherwise rows without known columns would pile up while the group is led.
            self.young.remove(&key);
        }
    }

    fn touches(&self, hash: u64) -> bool {
        !terrane_env::planted!("a condition ignores writes in flight")
            && self.in_flight.iter().any(|(_, touched)| touched.contains(&hash))
    }
}

/// The newest version of a column after a cell of it. Cells act in write order: this one was written after that version.
fn after(now: Option<&Version>, cell: &CellRef<'_>, rules: &FamilyRules) -> After {
    if rules.ttl_ms.is_some() && rules.min_versions > 0 {
        // Whether the newest cell is protected depends on those before it.
        return After::Unknown;
    }
    let timestamp = now.map(|version| version.timestamp);
    match cell.kind {
        // Of two puts with the same timestamp the later one counts.
        CellKind::Put if timestamp.is_none_or(|newest| cell.timestamp >= newest) => After::Newest(version_of(cell)),
        CellKind::Put => After::Same,
        CellKind::DeleteColumn | CellKind::DeleteFamily => match timestamp {
            Some(newest) if cell.timestamp >= newest => After::Absent,
            _ => After::Same,
        },
        // The version that appears below it is not known.
        CellKind::Delete | CellKind::DeleteFamilyVersion => match timestamp {
            Some(newest) if cell.timestamp == newest => After::Unknown,
            _ => After::Same,
        },
    }
}

fn version_of(cell: &CellRef<'_>) -> Version {
    Version::of(cell, cell.timestamp)
}

/// The rules of a family; those of a new one if the table does not have it.
pub fn rules_of(schema: &TableSchema, family: &[u8]) -> FamilyRules {
    schema.family(family).map(|family| family.rules).unwrap_or_default()
}

/// Whether a cell of this timestamp is past its time to live.
pub fn is_expired(rules: &FamilyRules, timestamp: i64, now_ms: i64) -> bool {
    rules.ttl_ms.is_some_and(|ttl| now_ms.saturating_sub(timestamp) > i64::try_from(ttl).unwrap_or(i64::MAX))
}

fn key_of(region: RegionId, row: &[u8]) -> Box<[u8]> {
    [&region.0.to_be_bytes(), row].concat().into()
}

fn bytes_of(key: &[u8], column: &Column, known: &Known) -> usize {
    let value = known.newest.as_ref().map_or(0, |version| version.value.len());
    COLUMN_OVERHEAD_BYTES + key.len() + column.name.len() + value
}

/// The hashes of a row, of its columns and of its families.
struct Hashes {
    row: DefaultHasher,
}

impl Hashes {
    fn of(region: RegionId, row: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(region.0);
        hasher.write(row);
        Self { row: hasher }
    }

    fn row(&self) -> u64 {
        self.row.finish()
    }

    fn column(&self, column: &Column) -> u64 {
        let mut hasher = self.row.clone();
        hasher.write_u8(1);
        hasher.write(&column.name);
        hasher.finish()
    }

    fn family(&self, family: &[u8]) -> u64 {
        let mut hasher = self.row.clone();
        hasher.write_u8(2);
        hasher.write(family);
        hasher.finish()
    }

    /// Any delete of the row.
    fn deletes(&self) -> u64 {
        let mut hasher = self.row.clone();
        hasher.write_u8(3);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests;
