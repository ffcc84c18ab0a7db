//! An engine whose log is known: entry `n` puts the value `n` into a row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_engine::{
    BackendKind, DurablePoint, Engine, Options, Patience, Region, RegionSpec, RowScanner, ScanSpec, Snapshot, Step,
};
use terrane_env::fs::{Disk, MemoryDisk};
use terrane_env::interleave::block_on;
use terrane_types::{
    CellRef, FamilyName, FamilyRules, FamilySchema, GroupId, KeyRange, PackedCells, PackedRows, Projection, RegionId,
    TableId, cell,
};

const GROUP: GroupId = GroupId(1);

/// A row with the values of its versions, newest first.
pub type Seen = (char, Vec<u64>);

/// Opens the engine on a disk. Its block cache keeps next to nothing and one file may be open, so that reads go to the files
/// by name.
pub fn open(memory: &MemoryDisk) -> Arc<Engine> {
    let options =
        Options { open_files: 1, disk: Disk::from(memory), ..Options::new("/data".into(), BackendKind::Lsm, 0) };
    block_on(Engine::open(options)).unwrap()
}

pub fn new_disk() -> MemoryDisk {
    let memory = MemoryDisk::new();
    let disk = Disk::from(&memory);
    block_on(async {
        disk.create_dir_all(Path::new("/data")).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
    });
    memory
}

/// Creates region 1, which keeps this many versions.
pub fn create(engine: &Arc<Engine>, versions: u32) -> Arc<Region> {
    create_of_table(engine, 1, versions)
}

/// Creates the only region of a table, with the same number.
pub fn create_of_table(engine: &Arc<Engine>, number: u64, versions: u32) -> Arc<Region> {
    let rules = FamilyRules { versions, ..FamilyRules::default() };
    let family = FamilySchema { rules, ..FamilySchema::new(FamilyName::new("f").unwrap()) };
    let range = KeyRange::all();
    let spec =
        RegionSpec { region: RegionId(number), table: TableId(number), group: GROUP, range, families: vec![family] };
    engine.create(spec, 0)
}

/// Applies log entry `index` to a region: one row, or several at the numbers that follow.
pub fn put(region: &Region, index: u64, rows: &[char]) {
    let packed: Vec<_> = (index..)
        .zip(rows)
        .map(|(value, row)| {
            let mut packed = Vec::new();
            let timestamp = i64::try_from(value).unwrap();
            cell::pack(&mut packed, CellRef::put(b"f", b"q", timestamp, &value.to_le_bytes()));
            (row.to_string(), PackedCells::validate(packed.into()).unwrap())
        })
        .collect();
    let mutations = packed.iter().map(|(row, cells)| (row.as_bytes(), cells));
    region.apply_all(index, index, mutations);
}

/// The point after everything applied to a region, up to log entry `index`.
pub fn point(region: &Region, index: u64) -> DurablePoint {
    DurablePoint { group: GROUP, index, sequence: region.sequence(), ..DurablePoint::default() }
}

pub fn freeze(region: &Region, index: u64) {
    region.freeze(point(region, index));
}

pub fn flush(engine: &Arc<Engine>, region: &Arc<Region>) {
    block_on(engine.flush(region)).unwrap();
}

/// Puts one row and flushes it: a file of its own.
pub fn put_file(engine: &Arc<Engine>, region: &Arc<Region>, index: u64, row: char) {
    put(region, index, &[row]);
    freeze(region, index);
    flush(engine, region);
}

/// Merges all files of a region.
pub fn compact(engine: &Arc<Engine>, region: &Arc<Region>) {
    engine.request_compaction(region);
    while let Some(compaction) = engine.next_compaction() {
        block_on(engine.compact(compaction)).unwrap();
    }
}

pub fn scanner(region: &Region, snapshot: Snapshot, reverse: bool) -> RowScanner {
    let projection = Projection { versions: 1_000, ..Projection::all() };
    region.scan(snapshot, ScanSpec { reverse, ..ScanSpec::new(KeyRange::all(), projection, 1_000) })
}

/// Everything that a scanner has left, in ascending order.
pub fn finish(mut scanner: RowScanner, reverse: bool) -> Vec<Seen> {
    let mut block = Vec::new();
    while let Step::Row = scanner.next(&mut block, usize::MAX, Patience::MayBlock).unwrap() {}
    let value = |cell: CellRef<'_>| u64::from_le_bytes(cell.value.try_into().unwrap());
    let mut seen: Vec<_> = PackedRows::new(block.into())
        .map(|packed| {
            let packed = packed.unwrap();
            (char::from(packed.row[0]), packed.cells.iter().map(value).collect())
        })
        .collect();
    if reverse {
        seen.reverse();
    }
    seen
}

pub fn rows(region: &Region) -> Vec<Seen> {
    finish(scanner(region, region.snapshot(), false), false)
}

/// What the log entries up to `last` leave in a range of rows, with the newest `versions` of each.
pub fn expected(log: &[(u64, char)], range: &KeyRange, last: u64, versions: usize) -> Vec<Seen> {
    let mut all = std::collections::BTreeMap::<char, Vec<u64>>::new();
    for (index, row) in log.iter().filter(|(index, row)| *index <= last && range.contains(row.to_string().as_bytes())) {
        all.entry(*row).or_default().insert(0, *index);
    }
    all.values_mut().for_each(|values| values.truncate(versions));
    all.into_iter().collect()
}

/// The store files on the disk.
pub fn files(memory: &MemoryDisk) -> Vec<String> {
    block_on(Disk::from(memory).list(&PathBuf::from("/data/tables"))).unwrap()
}
