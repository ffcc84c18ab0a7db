//! The memory that a memtable reports is the memory that the allocator has handed out for it.
//!
//! In a test binary of its own, with a counting allocator: the memory budget of a server relies on this number.

use std::alloc::System;

use bytes::Bytes;
use cap::Cap;
use terrane_engine::{BackendKind, Engine, Options, Region, RegionSpec};
use terrane_types::{CellRef, FamilyName, FamilySchema, GroupId, KeyRange, PackedCells, RegionId, TableId, cell};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const ROWS: u64 = 60_000;

/// Rows in a scattered order, of 40 + 100 bytes.
fn row(number: u64) -> String {
    format!("user{:036}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1_000_000_007)
}

fn cells() -> PackedCells {
    let mut packed = Vec::new();
    cell::pack(&mut packed, CellRef::put(b"f", b"q", 1_000, &[7; 100]));
    PackedCells::validate(packed.into()).expect("a cell within the limits")
}

fn one_by_one(region: &Region) {
    let cells = cells();
    for number in 1..=ROWS {
        region.apply(number, number, row(number).as_bytes(), &cells);
    }
}

fn in_batches(region: &Region) {
    let cells = cells();
    for (index, first) in (1..=ROWS).step_by(1_000).enumerate() {
        let rows: Vec<Bytes> = (first..first + 1_000).map(|number| row(number).into()).collect();
        region.apply_all(index as u64, first, rows.iter().map(|row| (&row[..], &cells)));
    }
}

#[tokio::test]
async fn memtables_count_their_memory_to_within_five_percent() {
    for (how, fill) in [("one by one", one_by_one as fn(&Region)), ("in batches", in_batches)] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new(directory.path().to_owned(), BackendKind::Memory, 0);
        let engine = Engine::open(options).await.unwrap();
        let spec = RegionSpec {
            region: RegionId(1),
            table: TableId(1),
            group: GroupId(1),
            range: KeyRange::all(),
            families: vec![FamilySchema::new(FamilyName::new("f").unwrap())],
        };
        let region = engine.create(spec, 1);
        let before = ALLOCATOR.allocated();
        fill(&region);
        let held = (ALLOCATOR.allocated() - before) as u64;
        let said = region.memtable_bytes();
        assert!(held.abs_diff(said) * 20 <= held, "{how}: {said} bytes said, {held} held");
    }
}
