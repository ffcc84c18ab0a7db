//! Versions that are no longer visible, kept for a while or not.

use terrane_engine::{BackendKind, Patience, Region, Snapshot};
use terrane_env::fs::MemoryDisk;
use terrane_types::{FamilyRules, KeyRange, PackedCells, Projection};

use crate::support::fixture::put;
use crate::support::scanning::seen_of;
use crate::support::world::{Home, Settings, World, backends};

/// Longer than the distance between two marks.
const HISTORY: u64 = 640;

async fn world_with_history(backend: BackendKind, history: u64) -> (World, u64) {
    let home = if backend.name() == "sled" {
        Home::Temporary(tempfile::tempdir().unwrap())
    } else {
        Home::in_memory(&MemoryDisk::new()).await
    };
    let mut world = World::empty(home, backend, Settings { history, ..Settings::default() });
    world.reopen().await;
    let region = world.create(KeyRange::all(), &[("f", FamilyRules::default())]);
    (world, region)
}

fn value_at(region: &Region, snapshot: &Snapshot, row: &[u8]) -> String {
    let mut out = Vec::new();
    region.get(snapshot, row, &Projection::all(), 0, Patience::MayBlock, &mut out).unwrap();
    let seen = seen_of(&PackedCells::validate(out.into()).unwrap()).remove(0);
    String::from_utf8(seen.3).unwrap()
}

/// Writes one cell repeatedly, one stamp apart; returns the sequence number of the first write.
fn overwrite(world: &mut World, region: u64, times: u64) -> u64 {
    let first = world.live[&region].sequence() + 1;
    for sequence in first..first + times {
        put(world, region, b"m", &format!("v{sequence}"));
    }
    first
}

async fn flush_and_compact(world: &mut World, region: u64) {
    world.freeze(region);
    world.flush(region).await;
    world.try_compact_all(region).await.unwrap();
}

#[tokio::test]
async fn with_history_old_snapshots_are_readable_until_they_expire() {
    for backend in backends() {
        let (mut world, region) = world_with_history(backend, HISTORY).await;
        let first = overwrite(&mut world, region, 50);
        for _ in 0..2 {
            let handle = world.live[&region].clone();
            for sequence in first..first + 50 {
                let snapshot = handle.snapshot_at(sequence).unwrap();
                assert_eq!(value_at(&handle, &snapshot, b"m"), format!("v{sequence}"), "{backend}");
            }
            flush_and_compact(&mut world, region).await;
        }
        // Half of them are as old as the history is long.
        world.stamp += HISTORY - 25;
        put(&mut world, region, b"other", "v");
        flush_and_compact(&mut world, region).await;
        let handle = world.live[&region].clone();
        for sequence in first + 25..first + 50 {
            let snapshot = handle.snapshot_at(sequence).unwrap();
            assert_eq!(value_at(&handle, &snapshot, b"m"), format!("v{sequence}"), "{backend}");
        }
        // And all of them.
        world.stamp += HISTORY + 50;
        put(&mut world, region, b"other", "v");
        flush_and_compact(&mut world, region).await;
        let too_old = world.live[&region].snapshot_at(first).unwrap_err();
        assert!(too_old.oldest > first + 25, "{backend}: {too_old:?}");
        world.check_all();
    }
}

#[tokio::test]
async fn without_history_an_overwritten_version_is_dropped_at_once() {
    let (mut world, region) = world_with_history(BackendKind::Memory, 0).await;
    let first = overwrite(&mut world, region, 10);
    let too_old = world.live[&region].snapshot_at(first).unwrap_err();
    assert_eq!(too_old.oldest, first + 9);
}

#[tokio::test]
async fn history_can_be_switched_off_and_on() {
    let (mut world, region) = world_with_history(BackendKind::Lsm, HISTORY).await;
    let first = overwrite(&mut world, region, 10);
    world.live[&region].snapshot_at(first).unwrap();
    world.live[&region].set_history(0);
    overwrite(&mut world, region, 1);
    assert_eq!(world.live[&region].snapshot_at(first).unwrap_err().oldest, first + 10);
    world.live[&region].set_history(HISTORY);
    overwrite(&mut world, region, 5);
    assert_eq!(world.live[&region].readable(), (first + 10, first + 15));
}

#[tokio::test]
async fn daughters_keep_the_sequence_numbers_and_the_history() {
    for backend in backends() {
        let (mut world, region) = world_with_history(backend, HISTORY).await;
        let first = overwrite(&mut world, region, 20);
        let (left, right) = world.split(region, b"k").await;
        for flushed in [false, true] {
            if flushed {
                flush_and_compact(&mut world, left).await;
                flush_and_compact(&mut world, right).await;
            }
            let handle = world.live[&right].clone();
            for sequence in first..first + 20 {
                let snapshot = handle.snapshot_at(sequence).unwrap();
                assert_eq!(value_at(&handle, &snapshot, b"m"), format!("v{sequence}"), "{backend}");
            }
            assert_eq!(world.live[&left].readable(), handle.readable());
        }
    }
}

#[tokio::test]
async fn a_live_snapshot_continues_in_the_daughters_without_any_history() {
    for backend in backends() {
        let (mut world, region) = world_with_history(backend, 0).await;
        let first = overwrite(&mut world, region, 10);
        let held = world.live[&region].snapshot();
        overwrite(&mut world, region, 10);
        let (_, right) = world.split(region, b"k").await;
        // The parent's reader drops the parent's snapshot and continues in the daughter.
        drop(held);
        overwrite(&mut world, right, 10);
        flush_and_compact(&mut world, right).await;
        let handle = world.live[&right].clone();
        let snapshot = handle.snapshot_at(first + 9).unwrap();
        assert_eq!(value_at(&handle, &snapshot, b"m"), format!("v{}", first + 9), "{backend}");
        drop(snapshot);
        world.held.clear();
        handle.snapshot_at(first + 9).unwrap_err();
    }
}

#[tokio::test]
async fn after_a_restart_snapshots_begin_at_the_durable_point() {
    let (mut world, region) = world_with_history(BackendKind::Lsm, HISTORY).await;
    let first = overwrite(&mut world, region, 10);
    world.freeze(region);
    world.flush(region).await;
    overwrite(&mut world, region, 10);
    world.reopen().await;
    let handle = world.live[&region].clone();
    assert_eq!(handle.readable(), (first + 9, first + 19), "what the log brings again is readable at every number");
    let snapshot = handle.snapshot_at(first + 12).unwrap();
    assert_eq!(value_at(&handle, &snapshot, b"m"), format!("v{}", first + 12));
}
