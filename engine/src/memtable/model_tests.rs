//! Random work compared with a plain map of everything that was ever written.
//!
//! The visibility rules over the cells at or below a snapshot decide what a reader sees, so that is what is compared:
//! the same rules over the memtable's cells and over the map. Where nothing may be dropped the cells themselves must
//! agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_types::visibility::{CellMeta, Resolver, RulesChange, RulesHistory, View as Reader};
use terrane_types::{CellKind, FamilyRules};

use super::*;
use crate::column_selection::ColumnSelection;

pub(super) const READING: Reading =
    Reading { blocking: false, sequential: false, fills_cache: true, time_min: 0, prefix: None };

/// Rows with common beginnings of all lengths, in order.
const ROWS: [&[u8]; 14] = [
    b"a",
    b"user",
    b"user\0",
    b"user0000",
    b"user00001",
    b"user000010000000a",
    b"user000010000000b",
    b"user00002",
    b"user00002\0",
    b"user0000200",
    b"user0000300000000001",
    b"user0000300000000002",
    b"user1",
    b"\xff\xff",
];
const QUALIFIERS: [&[u8]; 4] = [b"", b"p", b"q", b"qq"];

/// The region's knowledge of its snapshots.
#[derive(Debug, Default)]
pub(super) struct SnapshotState {
    pub(super) published: u64,
    pub(super) live: BTreeMap<u64, usize>,
    pub(super) collected: u64,
}

#[derive(Debug, Default)]
pub(super) struct Snapshots(pub(super) Mutex<SnapshotState>);

impl Snapshots {
    pub(super) fn publish(&self, sequence: u64, replaces: bool) -> Option<u64> {
        let mut held = self.0.lock();
        held.published = sequence;
        if replaces {
            held.collected = sequence;
        }
        held.live.keys().next_back().copied()
    }

    pub(super) fn take(&self) -> u64 {
        let mut held = self.0.lock();
        let sequence = held.published;
        *held.live.entry(sequence).or_default() += 1;
        sequence
    }

    fn take_at(&self, sequence: u64) -> Option<u64> {
        let mut held = self.0.lock();
        let sequence = sequence.min(held.published);
        let allowed = sequence >= held.collected || held.live.contains_key(&sequence);
        if allowed {
            *held.live.entry(sequence).or_default() += 1;
        }
        allowed.then_some(sequence)
    }

    pub(super) fn let_go(&self, sequence: u64) {
        let mut held = self.0.lock();
        let count = held.live.get_mut(&sequence).unwrap();
        *count -= 1;
        if *count == 0 {
            held.live.remove(&sequence);
        }
    }
}

impl Retention for Snapshots {
    fn begin_drop(&self) -> Limits {
        let mut held = self.0.lock();
        held.collected = held.published;
        Limits { newest_snapshot: held.live.keys().next_back().copied(), published: held.published }
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.roll(count) == 0
    }
}

/// A row's cells as a reader receives them: qualifier, metadata for the rules, value.
type Row = Vec<(Vec<u8>, CellMeta, Vec<u8>)>;

struct World {
    dice: Dice,
    snapshots: Arc<Snapshots>,
    memtable: Arc<Memtable>,
    rules: RulesHistory,
    /// Every cell written, by row.
    written: BTreeMap<Vec<u8>, Cells>,
    sequence: u64,
    live: Vec<u64>,
    /// Whether one version was ever kept: then some cells may have been dropped.
    drops: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let snapshots = Arc::new(Snapshots::default());
        let mut dice = Dice(seed);
        let drops = !dice.one_in(3);
        let memtable = Arc::new(Memtable::new(Some(Arc::clone(&snapshots) as Arc<dyn Retention>)));
        let rules = RulesHistory::new(FamilyRules { versions: if drops { 1 } else { 3 }, ..FamilyRules::default() });
        if drops {
            memtable.set_one_version(Some(0));
        }
        let written = BTreeMap::new();
        Self { dice, snapshots, memtable, rules, written, sequence: 0, live: Vec::new(), drops }
    }

    /// One row mutation at the next sequence number.
    fn mutation(&mut self, out: &mut Cells) {
        self.sequence += 1;
        let row = ROWS[self.dice.roll(ROWS.len())];
        for position in 0..=self.dice.roll(3) {
            let kind = match self.dice.roll(24) {
                0 => CellKind::Delete,
                1 => CellKind::DeleteColumn,
                2 => CellKind::DeleteFamily,
                3 => CellKind::DeleteFamilyVersion,
                _ => CellKind::Put,
            };
            let of_family = matches!(kind, CellKind::DeleteFamily | CellKind::DeleteFamilyVersion);
            let qualifier = if of_family { QUALIFIERS[0] } else { QUALIFIERS[self.dice.roll(QUALIFIERS.len())] };
            let value = if kind == CellKind::Put { format!("{}-{position}", self.sequence) } else { String::new() };
            let ttl = terrane_types::cell::ttl_tag(self.dice.roll(3) as u64);
            let cell = Cell {
                row,
                qualifier,
                tags: if kind == CellKind::Put && self.dice.one_in(4) { &ttl } else { b"" },
                value: value.as_bytes(),
                timestamp: i64::try_from(self.dice.roll(6)).unwrap() + 1,
                sequence: self.sequence,
                position: u32::try_from(position).unwrap(),
                kind,
            };
            out.push(cell);
            self.written.entry(row.to_vec()).or_default().push(cell);
        }
    }

    fn write_one(&mut self) {
        let mut cells = Cells::default();
        self.mutation(&mut cells);
        let replacing: Vec<_> = cells.iter().filter(|cell| self.memtable.insert(*cell)).collect();
        self.check_sometimes();
        let newest = self.snapshots.publish(self.sequence, !replacing.is_empty());
        self.check_sometimes();
        for cell in replacing {
            self.memtable.remove_replaced(cell, newest);
        }
    }

    fn write_batch(&mut self, mutations: usize) {
        let mut cells = Cells::default();
        for _ in 0..mutations {
            self.mutation(&mut cells);
        }
        let replacing = self.memtable.insert_batch(cells);
        self.check_sometimes();
        let newest = self.snapshots.publish(self.sequence, !replacing.is_empty());
        self.check_sometimes();
        self.memtable.remove_all_replaced(&replacing, newest);
    }

    fn set_rules(&mut self) {
        let versions = if self.rules.current().versions == 1 { 3 } else { 1 };
        let rules = FamilyRules { versions, ..FamilyRules::default() };
        self.rules.push(RulesChange { sequence: self.sequence + 1, stamp_ms: 0, rules });
        self.memtable.set_one_version((versions == 1).then_some(self.sequence + 1));
        self.drops |= versions == 1;
    }

    fn merge_some(&mut self) {
        let view = self.memtable.view.load_full();
        if view.runs.len() >= 2 {
            let first = self.dice.roll(view.runs.len() - 1);
            let count = 2 + self.dice.roll(view.runs.len() - first - 1);
            assert!(self.memtable.merge(&view.runs[first..first + count]));
        }
    }

    /// Readers get a copy of the buffer.
    fn settle(&mut self) {
        self.check_all();
        self.memtable.look(u64::MAX);
        self.memtable.look(u64::MAX);
        self.memtable.merge_once();
        self.check_all();
    }

    fn step(&mut self) {
        match self.dice.roll(100) {
            0..60 => self.write_one(),
            60..66 => {
                let mutations = 1 + self.dice.roll(40);
                self.write_batch(mutations);
            }
            66..68 => self.write_batch(260),
            68 => self.memtable.merge_replaced(),
            69..73 => self.memtable.rotate(),
            73 => _ = self.memtable.look(u64::MAX),
            74 => self.settle(),
            75..78 => self.merge_some(),
            78..88 => {
                if self.live.len() < 5 {
                    self.live.push(self.snapshots.take());
                }
            }
            88..90 => {
                let sequence = self.sequence.saturating_sub(self.dice.roll(20) as u64);
                self.live.extend(self.snapshots.take_at(sequence));
            }
            90..98 => {
                if !self.live.is_empty() {
                    let index = self.dice.roll(self.live.len());
                    let sequence = self.live.swap_remove(index);
                    self.snapshots.let_go(sequence);
                }
            }
            98 => self.set_rules(),
            _ => self.check_all(),
        }
    }

    fn check_sometimes(&mut self) {
        if self.dice.one_in(16) {
            self.check_all();
        }
    }

    /// Reads at all live snapshots and at the last published sequence number.
    fn check_all(&mut self) {
        let now = self.snapshots.take();
        let mut sequences = self.live.clone();
        sequences.push(now);
        sequences.sort_unstable();
        sequences.dedup();
        for sequence in sequences {
            let expected = self.expected(sequence);
            self.check_rows(sequence, &expected);
            self.check_scan(sequence, &expected);
        }
        self.snapshots.let_go(now);
    }

    fn expected(&self, sequence: u64) -> BTreeMap<Vec<u8>, Row> {
        let mut rows = BTreeMap::new();
        for (row, cells) in &self.written {
            let mut cells = cells.clone();
            cells.sort_from(0);
            let seen = self.resolve(&cells, 0, sequence);
            if !seen.is_empty() {
                rows.insert(row.clone(), seen);
            }
        }
        rows
    }

    /// What a reader sees of a row whose cells begin at `first`.
    fn resolve(&self, cells: &Cells, first: usize, sequence: u64) -> Row {
        let cells: Vec<Cell<'_>> =
            (first..cells.len()).map(|at| cells.get(at)).filter(|cell| cell.sequence <= sequence).collect();
        assert!(cells.is_sorted_by(|a, b| a.cmp_place(b).is_lt()), "in store order: {cells:?}");
        let owned = |cell: &Cell<'_>| (cell.qualifier.to_vec(), cell.meta(), cell.value.to_vec());
        if !self.drops {
            return cells.iter().map(owned).collect();
        }
        let mut resolver = Resolver::new(&self.rules, Reader { versions: 9, ..Reader::latest(sequence, 100) });
        resolver.start_row();
        let mut seen = Vec::new();
        for column in cells.chunk_by(|a, b| a.qualifier == b.qualifier) {
            let metas: Vec<_> = column.iter().map(Cell::meta).collect();
            seen.extend(resolver.column(&metas).iter().map(|index| owned(&column[*index as usize])));
        }
        seen
    }

    fn check_rows(&mut self, sequence: u64, expected: &BTreeMap<Vec<u8>, Row>) {
        let row = ROWS[self.dice.roll(ROWS.len())];
        let columns: Vec<Bytes> = match self.dice.roll(3) {
            0 => vec![Bytes::from_static(b"p"), Bytes::from_static(b"qq")],
            _ => Vec::new(),
        };
        let mut out = Cells::default();
        out.push(Cell::of_mutation(b"before", cell_ref(), 1, 0));
        self.memtable
            .row(&RowLookup::new(row, ColumnSelection::columns(&columns), READING, usize::MAX), &mut out)
            .unwrap();
        assert_eq!(out.row(0), b"before");
        assert!((1..out.len()).all(|at| out.row(at) == row));
        let wanted = |qualifier: &[u8]| columns.is_empty() || columns.iter().any(|column| column == qualifier);
        let mut seen = self.resolve(&out, 1, sequence);
        let mut of_row = expected.get(row).cloned().unwrap_or_default();
        seen.retain(|cell| wanted(&cell.0));
        of_row.retain(|cell| wanted(&cell.0));
        assert_eq!(seen, of_row, "row {:?} at {sequence}", row.escape_ascii().to_string());
    }

    fn check_scan(&mut self, sequence: u64, expected: &BTreeMap<Vec<u8>, Row>) {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        if self.dice.one_in(2) {
            start = ROWS[self.dice.roll(ROWS.len())].to_vec();
        }
        if self.dice.one_in(2) {
            end = ROWS[self.dice.roll(ROWS.len())].to_vec();
        }
        let bounds = RowRange { start, end };
        let reverse = self.dice.one_in(2);
        let mut cursor = Arc::clone(&self.memtable).cursor(&bounds, reverse, READING).unwrap();
        let inside = expected.iter().filter(|(row, _)| bounds.contains(row));
        let mut left: Vec<_> = inside.map(|(row, cells)| (row.clone(), cells.clone())).collect();
        if reverse {
            left.reverse();
        }
        let mut left = left.into_iter().peekable();
        let mut out = Cells::default();
        let mut last: Option<Vec<u8>> = None;
        loop {
            if self.dice.one_in(4) {
                let target = ROWS[self.dice.roll(ROWS.len())];
                cursor.seek(target).unwrap();
                let behind = |row: &[u8]| if reverse { row > target } else { row < target };
                while left.next_if(|(row, _)| behind(row)).is_some() {}
                assert!(cursor.row().is_none_or(|row| !behind(row)));
            }
            let Some(row) = cursor.row().map(<[u8]>::to_vec) else { break };
            assert!(bounds.contains(&row));
            assert!(last.is_none_or(|last| if reverse { row < last } else { row > last }), "rows in order");
            out.clear();
            cursor.take(ColumnSelection::ALL, usize::MAX, &mut out).unwrap();
            assert!((0..out.len()).all(|at| out.row(at) == row) && !out.is_empty());
            let seen = self.resolve(&out, 0, sequence);
            if !seen.is_empty() {
                assert_eq!(left.next(), Some((row.clone(), seen)), "at {sequence}, reverse {reverse}");
            }
            last = Some(row);
        }
        assert_eq!(left.next(), None, "at {sequence}, reverse {reverse}, {bounds:?}");
    }
}

fn cell_ref() -> terrane_types::CellRef<'static> {
    terrane_types::CellRef { family: b"f", qualifier: b"", timestamp: 1, kind: CellKind::Put, tags: b"", value: b"" }
}

/// Names the seed when the test unwinds.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

#[test]
fn readers_see_what_a_plain_map_of_all_writes_shows() {
    let seeds = if std::env::var_os("TERRANE_FULL").is_some() { 16 } else { 5 };
    for seed in 0..seeds {
        let _named = Named(seed);
        let mut world = World::new(seed);
        for _ in 0..200 {
            world.step();
        }
        world.check_all();
        world.memtable.seal();
        assert!(world.memtable.view.load().active.is_empty());
        for _ in 0..5 {
            world.merge_some();
            world.check_all();
        }
    }
}

#[test]
fn merged_runs_hold_one_version_of_what_no_snapshot_needs() {
    let mut world = World::new(1);
    world.drops = true;
    world.rules = RulesHistory::new(FamilyRules::default());
    world.memtable.set_one_version(Some(0));
    let put = |sequence: u64, out: &mut Cells| {
        out.push(Cell { row: b"row", timestamp: 5, sequence, ..Cell::of_mutation(b"", cell_ref(), 0, 0) });
    };
    let mut snapshot = 0;
    for batch in 0..4u64 {
        let mut cells = Cells::default();
        for sequence in batch * 1_000 + 1..=(batch + 1) * 1_000 {
            put(sequence, &mut cells);
        }
        assert!(world.memtable.insert_batch(cells).is_empty());
        world.snapshots.publish((batch + 1) * 1_000, false);
        if batch == 1 {
            snapshot = world.snapshots.take();
        }
    }
    let mut unpublished = Cells::default();
    (4_001..5_000).for_each(|sequence| put(sequence, &mut unpublished));
    assert!(world.memtable.insert_batch(unpublished).is_empty());
    let cells = || -> Vec<u64> {
        let view = world.memtable.view.load();
        view.runs.iter().flat_map(|run| run.cells().iter().map(|cell| cell.sequence).collect::<Vec<_>>()).collect()
    };
    let merge = || assert!(world.memtable.merge(&world.memtable.view.load().runs.clone()));
    // While the snapshot lives, only what is above it goes.
    merge();
    let kept: Vec<u64> = (4_000..5_000).rev().chain((1..=2_000).rev()).collect();
    assert!(cells() == kept);
    assert_eq!(world.snapshots.take_at(3_000), None, "the past is closed to new snapshots");
    assert_eq!(world.snapshots.take_at(2_000), Some(2_000), "but not where one lives");
    // Once the snapshot is gone, everything with a published replacement goes.
    world.snapshots.let_go(snapshot);
    world.snapshots.let_go(snapshot);
    merge();
    let kept: Vec<u64> = (4_000..5_000).rev().collect();
    assert!(cells() == kept);
}

#[test]
fn a_counter_incremented_again_and_again_stays_one_cell() {
    let snapshots = Arc::new(Snapshots::default());
    let memtable = Memtable::new(Some(Arc::clone(&snapshots) as Arc<dyn Retention>));
    memtable.set_one_version(Some(0));
    for sequence in 1..=200_000u64 {
        let value = sequence.to_be_bytes();
        let timestamp = i64::try_from(sequence).unwrap();
        let cell = Cell { row: b"row", value: &value, timestamp, sequence, ..Cell::of_mutation(b"", cell_ref(), 0, 0) };
        let replaces = memtable.insert(cell);
        assert_eq!(replaces, sequence > 1);
        let newest = snapshots.publish(sequence, replaces);
        assert_eq!(memtable.remove_replaced(cell, newest), replaces);
    }
    let view = memtable.view.load();
    assert!(view.runs.is_empty());
    assert_eq!(view.active.cells().iter().map(|cell| cell.sequence).collect::<Vec<_>>(), [200_000]);
    assert!(memtable.bytes() < 256);
}

#[test]
fn counters_that_do_not_fit_the_buffer_stay_a_few_runs() {
    let snapshots = Arc::new(Snapshots::default());
    let memtable = Memtable::new(Some(Arc::clone(&snapshots) as Arc<dyn Retention>));
    memtable.set_one_version(Some(0));
    let mut dice = Dice(7);
    for sequence in 1..=150_000u64 {
        let row = dice.roll(10_000).to_be_bytes();
        let timestamp = i64::try_from(sequence).unwrap();
        let cell =
            Cell { row: &row, value: b"12345678", timestamp, sequence, ..Cell::of_mutation(b"", cell_ref(), 0, 0) };
        let replaces = memtable.insert(cell);
        let newest = snapshots.publish(sequence, replaces);
        if replaces {
            assert!(memtable.remove_replaced(cell, newest));
        }
    }
    let held: usize = memtable.view.load().runs.iter().map(|run| run.cells().len()).sum();
    assert!(held < 40_000, "{held} cells of 10000 counters; {memtable:?}");
}

#[test]
fn a_buffer_that_is_read_and_no_longer_written_is_copied_until_the_next_insert() {
    let memtable = Memtable::default();
    let insert = |row: u64| {
        let row = row.to_be_bytes();
        memtable.insert(Cell { row: &row, sequence: 1, ..Cell::of_mutation(b"", cell_ref(), 0, 0) });
    };
    let cells_of = |row: u64| {
        let mut out = Cells::default();
        memtable.row(&RowLookup::new(&row.to_be_bytes(), ColumnSelection::ALL, READING, usize::MAX), &mut out).unwrap();
        out.len()
    };
    (0..1_000).for_each(insert);
    let bytes = memtable.bytes();
    // Written since the last look, and never read: neither is worth a copy.
    memtable.look(u64::MAX);
    assert!(!memtable.wants_merge());
    memtable.look(u64::MAX);
    assert!(!memtable.wants_merge(), "there was no read");
    assert_eq!(cells_of(7), 1);
    assert!(memtable.wants_merge());
    memtable.look(bytes - 1);
    assert!(!memtable.wants_merge(), "there is no room");
    assert_eq!(memtable.look(bytes), bytes);
    assert!(memtable.merge_once());
    assert!(!memtable.wants_merge());
    assert!(memtable.view.load().is_settled());
    assert_eq!(memtable.bytes(), bytes, "a copy is no reason to flush");
    assert!((1..bytes).contains(&memtable.look(u64::MAX)));
    assert_eq!((cells_of(7), cells_of(1_000)), (1, 0));
    // With the next insert it serves no longer, and the next look lets it go.
    insert(1_000);
    assert!(!memtable.view.load().is_settled());
    assert_eq!((cells_of(7), cells_of(1_000)), (1, 1));
    assert_eq!(memtable.look(u64::MAX), 0);
    assert!(!memtable.view.load().has_stale_copy());
    // That copy was premature, so the next one waits longer.
    memtable.look(u64::MAX);
    assert!(!memtable.wants_merge());
    memtable.look(u64::MAX);
    assert!(memtable.merge_once());
    assert_eq!((cells_of(7), cells_of(1_000)), (1, 1));
}

#[test]
fn memory_is_counted_by_what_each_part_holds() {
    let memtable = Memtable::default();
    let empty = memtable.bytes();
    assert_eq!(empty, 0);
    let mut cells = Cells::default();
    for row in 0..1_000u64 {
        let row = row.to_be_bytes();
        cells.push(Cell { row: &row, value: &[0; 100], sequence: 1, ..Cell::of_mutation(b"", cell_ref(), 0, 0) });
    }
    assert!(memtable.insert_batch(cells.clone()).is_empty());
    // Bytes, slot, head and the filter's ten bits; nearly all the memory gained by doubling has been given back.
    let data = 1_000 * (8 + 100 + crate::cells::SLOT_BYTES as u64 + 8) + 1_250;
    assert!((data..data + data / 20).contains(&memtable.bytes()), "{} of {data}", memtable.bytes());
    let run = memtable.bytes();
    for row in 0..1_000u64 {
        let row = row.to_be_bytes();
        memtable.insert(Cell { row: &row, value: &[0; 100], sequence: 2, ..Cell::of_mutation(b"", cell_ref(), 0, 0) });
    }
    // An entry of 56 bytes with its reference counts and, on average, two levels of the list; its bytes.
    let data = 1_000 * (56 + 8 + 16 + 112);
    assert_eq!(memtable.bytes() - run, data);
    memtable.seal();
    assert!(memtable.bytes() < run * 2 + run / 10);
}
