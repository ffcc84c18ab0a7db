//! Hot cells, hidden ranges, and rows at the edges of what a row can be.

use terrane_engine::{BackendKind, Patience, ScanSpec, Step};
use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::{CellKind, FamilyRules, KeyRange, PackedCells, Projection};

use crate::support::fixture::{cell, one_region, put};
use crate::support::scanning::{packed, seen_of};
use crate::support::world::World;

const HOT_WRITES: u64 = 200_000;

#[tokio::test]
async fn a_hot_column_keeps_one_cell_and_one_per_snapshot() {
    let mut world = World::new(BackendKind::Memory).await;
    let region = world.create(KeyRange::all(), &[("f", FamilyRules::default())]);
    let region = world.live[&region].clone();
    let value_at = |snapshot: &terrane_engine::Snapshot| {
        let mut out = Vec::new();
        region.get(snapshot, b"hot", &Projection::all(), 0, Patience::MayBlock, &mut out).unwrap();
        seen_of(&PackedCells::validate(out.into()).unwrap()).remove(0).3
    };
    let mut held = None;
    let mut bytes_of_two = 0;
    for sequence in 1..=HOT_WRITES {
        let count = format!("{sequence:08}");
        region.apply(sequence, sequence, b"hot", &packed(&[cell(b"hot", 100, CellKind::Put, &count)]));
        match sequence {
            1_000 => held = Some(region.snapshot()),
            1_001 => bytes_of_two = region.memtable_bytes(),
            _ => {}
        }
    }
    assert_eq!(region.memtable_bytes(), bytes_of_two, "the newest cell and the snapshot's");
    let held = held.unwrap();
    assert_eq!(value_at(&held), b"00001000");
    assert_eq!(value_at(&region.snapshot()), format!("{HOT_WRITES:08}").as_bytes());
    drop(held);
    let last = packed(&[cell(b"hot", 100, CellKind::Put, "the last")]);
    region.apply(HOT_WRITES + 1, HOT_WRITES + 1, b"hot", &last);
    assert_eq!(region.memtable_bytes(), bytes_of_two / 2, "the snapshot's cell went with it");
    let too_old = region.snapshot_at(1_000).unwrap_err();
    assert_eq!(too_old.oldest, HOT_WRITES + 1);
}

#[tokio::test]
async fn a_scan_returns_regularly_from_a_range_of_hidden_rows() {
    let (mut world, region) = one_region(BackendKind::Memory).await;
    for row in 0..9_000u32 {
        world.write(region, vec![cell(&row.to_be_bytes(), 5, CellKind::DeleteColumn, "")]);
    }
    put(&mut world, region, b"\x01 the only one", "v");
    let spec = ScanSpec::new(KeyRange::all(), Projection::all(), 500);
    let mut scanner = world.live[&region].scan(world.live[&region].snapshot(), spec);
    let mut block = Vec::new();
    let mut hidden = 0;
    let mut last = Vec::new();
    while scanner.next(&mut block, usize::MAX, Patience::MayBlock).unwrap() == Step::Hidden {
        assert!(block.is_empty());
        assert!(scanner.row() > last.as_slice(), "it says how far it is");
        last = scanner.row().to_vec();
        hidden += 1;
    }
    assert_eq!((hidden, scanner.row()), (2, &b"\x01 the only one"[..]));
    assert_eq!(scanner.next(&mut block, usize::MAX, Patience::MayBlock).unwrap(), Step::End);
}

#[tokio::test]
async fn the_smallest_and_the_longest_rows_are_found_both_ways() {
    for backend in crate::support::world::backends() {
        let (mut world, region) = one_region(backend).await;
        let longest = vec![0xFF; ROW_BYTES_MAX];
        let zeros = vec![0; ROW_BYTES_MAX];
        let rows: [&[u8]; 4] = [b"\0", &zeros, b"\xFF", &longest];
        for flushed in [false, true] {
            for row in rows {
                put(&mut world, region, row, "v");
            }
            if flushed {
                world.freeze(region);
                world.flush(region).await;
            }
            for reverse in [false, true] {
                let scan = crate::support::scanning::Scan {
                    range: KeyRange::all(),
                    reverse,
                    projection: Projection::all(),
                    now: 500,
                };
                let handle = &world.live[&region];
                let seen = scan.run(handle, &handle.snapshot(), 1);
                assert_eq!(seen.len(), rows.len(), "{backend} reverse {reverse}");
                assert_eq!(seen, scan.expected(&world.models[&region], handle, handle.sequence()));
            }
        }
    }
}
