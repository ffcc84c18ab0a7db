//! The newest versions of columns that were looked at, with the writes in flight taken into account.
//!
//! While the overlay is active every write that is packed is noted in it, so what it knows of a column stays true, also
//! after the write has landed: a hot counter is read from the engine once. It becomes active at a moment when nothing is
//! in flight, and rests again when nothing was evaluated for a while: plain writes then cost nothing more.
//!
//! Of a column that was not looked at is known only whether a write in flight touches it, as hashes: two columns with one
//! hash make an operation wait for nothing, and that is all.
//!
//! Invariants:
//! - What is known of a column is what a reader would see after all that is packed so far. What cannot be told without
//!   reading more than the newest version is forgotten, and read anew once the write in flight has landed.
//! - Forgetting is always right; so memory is bounded by forgetting what was not looked at for longest.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

use bytes::Bytes;
use terrane_types::cell::Cells;
use terrane_types::{CellKind, CellRef, FamilyRules, RegionId, TableSchema};

/// Columns known, and bytes they take, of which one half was looked at lately.
const COLUMNS_MAX: usize = 64 << 10;
const BYTES_MAX: usize = 16 << 20;
/// What a column takes besides its name and value, about.
const COLUMN_OVERHEAD_BYTES: usize = 128;
/// Milliseconds of log time without anything evaluated after which the overlay rests.
const REST_AFTER_MS: u64 = 10_000;

/// Hashes that are the same in every process: nothing depends on the order that they give.
type Hashed = BuildHasherDefault<DefaultHasher>;

/// A column of a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    /// `family length u8 | family | qualifier`: in the order of families and qualifiers, more or less, and one family's
    /// columns lie together.
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
}

/// The newest version of a column, `None` where there is none.
pub type Newest = Option<Version>;

/// What is known of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    newest: Newest,
    /// A reader saw it although it had expired: the family's `min_versions` protects it, until the column is written again.
    protected: bool,
}

/// What a look at a column gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Known(Newest),
    /// It can be read from the engine now.
    Unknown,
    /// A write in flight touches it, and it is not known what comes of it.
    InFlight,
}

/// What a cell makes of a column's newest version.
#[derive(Debug, PartialEq, Eq)]
enum After {
    Same,
    Newest(Version),
    Absent,
    Unknown,
}

/// The rows of which something is known, by region and row.
type Rows = HashMap<Box<[u8]>, BTreeMap<Column, Known>, Hashed>;

/// The overlay of one group.
#[derive(Default)]
pub struct Overlay {
    active: bool,
    /// Log time when something was evaluated last.
    used: u64,
    /// Rows that were looked at lately, and those that were not since these filled up.
    young: Rows,
    old: Rows,
    young_columns: usize,
    young_bytes: usize,
    /// Hashes of rows, columns and families that writes in flight touch, by entry, oldest first.
    in_flight: VecDeque<(u64, HashSet<u64, Hashed>)>,
}

impl Overlay {
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// From now on every write that is packed is noted. Nothing is in flight.
    pub fn wake(&mut self) {
        *self = Self { active: true, ..Self::default() };
    }

    /// Something is evaluated in an entry with this stamp. Memory is bounded here, and not while rows are evaluated: what
    /// was gathered for them stays.
    pub fn evaluated(&mut self, stamp: u64) {
        self.used = stamp;
        if self.young_columns > COLUMNS_MAX / 2 || self.young_bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            (self.young_columns, self.young_bytes) = (0, 0);
        }
    }

    /// Rests when nothing was evaluated for a while.
    pub fn rest(&mut self, stamp: u64) {
        if stamp.saturating_sub(self.used) > REST_AFTER_MS {
            *self = Self::default();
        }
    }

    /// Entries up to this ordinal have landed: reading from the engine shows them.
    pub fn land(&mut self, landed: u64) {
        while self.in_flight.front().is_some_and(|(ordinal, _)| *ordinal <= landed) {
            self.in_flight.pop_front();
        }
    }

    /// What is known of a column at this time.
    pub fn look(&mut self, region: RegionId, row: &[u8], column: &Column, schema: &TableSchema, now_ms: i64) -> Look {
        let rules = rules_of(schema, column.family());
        let known = self.row(region, row).and_then(|columns| columns.get(column).cloned());
        match known {
            Some(Known { newest: Some(version), protected: false })
                if is_expired(&rules, version.timestamp, now_ms) =>
            {
                if rules.min_versions == 0 {
                    return Look::Known(None);
                }
                // Whether it is protected takes more to know than the newest version.
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

    /// Learns columns from the cells that a read of them at this time gave; those that it did not give are absent.
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
            // The read may have been made a little before this time: without `min_versions` what has expired since is gone.
            let protected = rules.min_versions > 0
                && newest.as_ref().is_some_and(|version| is_expired(&rules, version.timestamp, now_ms));
            self.set(region, row, column, Known { newest, protected });
        }
    }

    /// Notes a write that is packed into the entry with this ordinal; its cells are stamped.
    pub fn note(&mut self, ordinal: u64, region: RegionId, row: &[u8], cells: &[u8], schema: &TableSchema) {
        if self.in_flight.back().is_none_or(|(last, _)| *last != ordinal) {
            self.in_flight.push_back((ordinal, HashSet::default()));
        }
        let hashes = Hashes::of(region, row);
        if let Some((_, touched)) = self.in_flight.back_mut() {
            touched.insert(hashes.row());
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

    /// What is known of a row. It counts as looked at.
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
        // Brings the row among the young ones if it is old.
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
            // Else rows of which nothing is known would pile up, for as long as the group is led.
            self.young.remove(&key);
        }
    }

    fn touches(&self, hash: u64) -> bool {
        self.in_flight.iter().any(|(_, touched)| touched.contains(&hash))
    }
}

/// What a cell makes of the newest version of its column. It acts in write order: it was written after that.
fn after(now: Option<&Version>, cell: &CellRef<'_>, rules: &FamilyRules) -> After {
    if rules.ttl_ms.is_some() && rules.min_versions > 0 {
        // Whether the newest cell is protected depends on those below it.
        return After::Unknown;
    }
    let timestamp = now.map(|version| version.timestamp);
    match cell.kind {
        // Of two puts of one timestamp the later stands.
        CellKind::Put if timestamp.is_none_or(|newest| cell.timestamp >= newest) => After::Newest(version_of(cell)),
        CellKind::Put => After::Same,
        CellKind::DeleteColumn | CellKind::DeleteFamily => match timestamp {
            Some(newest) if cell.timestamp >= newest => After::Absent,
            _ => After::Same,
        },
        // What comes up below it is not known.
        CellKind::Delete | CellKind::DeleteFamilyVersion => match timestamp {
            Some(newest) if cell.timestamp == newest => After::Unknown,
            _ => After::Same,
        },
    }
}

fn version_of(cell: &CellRef<'_>) -> Version {
    Version { timestamp: cell.timestamp, value: Bytes::copy_from_slice(cell.value) }
}

/// The rules of a family; of one that is not there, those of a new one.
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
}

#[cfg(test)]
mod tests;
