//! A row larger than anything that reads or writes it may hold at once.
//!
//! In a test binary of its own, with an allocator that enforces a limit: code that gathered the whole row would abort.

#![allow(clippy::unwrap_used, reason = "what helpers of tests unwrap is what the test claims")]

use std::alloc::System;

use cap::Cap;
use terrane_engine::{
    BackendKind, CellPosition, DurablePoint, Engine, Error, Options, Patience, Region, RegionSpec, RowRead, ScanSpec,
    Step,
};
use terrane_types::{
    CellRef, FamilyName, FamilySchema, GroupId, KeyRange, PackedCells, PackedRows, Projection, RegionId, TableId, cell,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const MIB: usize = 1 << 20;
/// The bytes of one column, of which the row has many.
const VALUE_BYTES: usize = 32 << 10;
const COLUMNS: u32 = 480;
/// Columns that one flush writes: its memtable does not count towards the limit.
const COLUMNS_OF_FLUSH: u32 = 120;
/// What may be held in addition to the row's memtable, whatever is done with the row. The row has 15 MiB.
const HELD_MAX: usize = 11 * MIB;
const GROUP: GroupId = GroupId(1);

/// Runs with a limit on what is allocated in addition to the present.
fn bounded<T>(run: impl FnOnce() -> T) -> T {
    ALLOCATOR.set_limit(ALLOCATOR.allocated() + HELD_MAX).expect("more than is there");
    let done = run();
    ALLOCATOR.set_limit(usize::MAX).expect("no bound");
    done
}

fn qualifier(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn put(region: &Region, index: u64, number: u32) {
    let mut packed = Vec::new();
    let value = vec![number as u8; VALUE_BYTES];
    cell::pack(&mut packed, CellRef::put(b"f", &qualifier(number), 1_000, &value));
    let cells = PackedCells::validate(packed.into()).expect("a cell within the limits");
    region.apply(index, region.sequence() + 1, b"wide", &cells);
}

/// Every fourth column in each file, so that all of them must be merged.
async fn fill(engine: &std::sync::Arc<Engine>, region: &std::sync::Arc<Region>) {
    let flushes = COLUMNS / COLUMNS_OF_FLUSH;
    let mut index = 1;
    for flush in 0..flushes {
        for number in (flush..COLUMNS).step_by(flushes as usize) {
            index += 1;
            put(region, index, number);
        }
        let point = DurablePoint { group: GROUP, index, sequence: region.sequence(), ..DurablePoint::default() };
        region.freeze(point);
        ALLOCATOR.set_limit(ALLOCATOR.allocated() + HELD_MAX).expect("more than is there");
        engine.flush(region).await.unwrap();
        ALLOCATOR.set_limit(usize::MAX).expect("no bound");
    }
}

/// Scans the row like a server that keeps nothing between two blocks; returns its columns, and the cells read for them.
fn scan(region: &Region, reverse: bool) -> (Vec<u32>, u64) {
    let (mut from_cell, mut columns, mut seen) = (None::<CellPosition>, Vec::new(), 0);
    loop {
        let spec = ScanSpec::new(KeyRange::row(b"wide"), Projection::all(), 2_000);
        let spec = ScanSpec { reverse, from_cell: from_cell.take(), fills_cache: false, ..spec };
        let mut scanner = region.scan(region.snapshot(), spec);
        let mut block = Vec::new();
        let step = scanner.next(&mut block, 256 << 10, Patience::MayBlock).unwrap();
        for row in PackedRows::new(block.into()) {
            let cells = row.unwrap().cells;
            columns.extend(cells.iter().map(|cell| u32::from_be_bytes(cell.qualifier.try_into().unwrap())));
        }
        seen += scanner.take_stats().cells_seen;
        match step {
            Step::Part { position } => from_cell = Some(position),
            Step::Row | Step::End => return (columns, seen),
            Step::Hidden | Step::HiddenPart => panic!("everything is visible"),
        }
    }
}

fn get(region: &Region, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let projection = Projection::all();
    let read = RowRead { projection: &projection, now_ms: 2_000, patience: Patience::MayBlock, bytes_max };
    region.get_row(&region.snapshot(), b"wide", read, &mut out).map(|_| out)
}

fn check(region: &Region) {
    for reverse in [false, true] {
        let (columns, seen) = bounded(|| scan(region, reverse));
        assert_eq!(columns, (0..COLUMNS).collect::<Vec<_>>(), "reverse {reverse}");
        // Only the last part of each block is read again.
        assert!(seen <= u64::from(COLUMNS) * 6, "{seen} cells read, reverse {reverse}");
    }
    let refused = bounded(|| get(region, 12 * MIB)).unwrap_err();
    assert!(matches!(refused, Error::RowTooLarge { .. }), "{refused}");
    assert!(matches!(bounded(|| get(region, 5 * MIB)), Err(Error::RowTooLarge { .. })));
    let whole = get(region, usize::MAX).unwrap();
    assert_eq!(whole.len(), COLUMNS as usize * CellRef::put(b"f", &qualifier(0), 0, &[0; VALUE_BYTES]).packed_len());
    assert_eq!(whole.capacity(), whole.len(), "room of its very size");
}

#[tokio::test]
async fn a_wide_row_is_flushed_read_scanned_and_compacted_in_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::open(Options::new(directory.path().to_owned(), BackendKind::Lsm, 1 << 20)).await.unwrap();
    let spec = RegionSpec {
        region: RegionId(1),
        table: TableId(1),
        group: GROUP,
        range: KeyRange::all(),
        families: vec![FamilySchema::new(FamilyName::new("f").unwrap())],
    };
    let region = engine.create(spec, 1);
    fill(&engine, &region).await;
    check(&region);
    engine.request_compaction(&region);
    let compaction = engine.next_compaction().expect("several files");
    ALLOCATOR.set_limit(ALLOCATOR.allocated() + HELD_MAX).expect("more than is there");
    engine.compact(compaction).await.unwrap();
    ALLOCATOR.set_limit(usize::MAX).expect("no bound");
    assert_eq!(engine.compaction_totals().compactions, 1);
    check(&region);
}
