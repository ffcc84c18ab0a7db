//! Snapshots against everything that collects old versions: later writes, flushes, compactions and splits.

use std::sync::Arc;

use terrane_engine::{Region, Snapshot, SplitDaughter};
use terrane_env::interleave::{explore, finds, spawn};
use terrane_types::{KeyRange, RegionId};

use super::world::{
    Seen, compact, create, expected, finish, flush, freeze, new_disk, open, point, put, put_file, scanner,
};

/// Entry `n` writes this row.
fn row_of(entry: u64) -> char {
    if entry.is_multiple_of(3) { 'b' } else { 'a' }
}

const LAST: u64 = 9;

fn at(sequence: u64, range: &KeyRange) -> Vec<Seen> {
    let log: Vec<_> = (1..=LAST).map(|entry| (entry, row_of(entry))).collect();
    expected(&log, range, sequence, 1)
}

fn check(region: &Region, snapshot: Snapshot, reverse: bool) {
    let sequence = snapshot.sequence();
    assert_eq!(finish(scanner(region, snapshot, reverse), reverse), at(sequence, region.range()), "at {sequence}");
}

/// A snapshot sees the same however often it is read, and one at an older number is refused or sees what was current then.
fn a_reader(region: &Region) {
    for reverse in [false, true] {
        let held = region.snapshot();
        let sequence = held.sequence();
        check(region, region.snapshot_at(sequence).unwrap(), reverse);
        for older in [sequence.saturating_sub(1), sequence.saturating_sub(3)] {
            if let Ok(older) = region.snapshot_at(older) {
                check(region, older, reverse);
            }
        }
        check(region, held, reverse);
    }
}

/// A family that keeps one version is overwritten, flushed and compacted while snapshots come and go.
fn snapshots_beside_collection() {
    let memory = new_disk();
    let engine = open(&memory);
    let region = create(&engine, 1);
    put_file(&engine, &region, 1, row_of(1));
    put_file(&engine, &region, 2, row_of(2));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let region = Arc::clone(&region);
            spawn(move || a_reader(&region))
        })
        .collect();
    let collecting = spawn({
        let (engine, region) = (Arc::clone(&engine), Arc::clone(&region));
        move || {
            compact(&engine, &region);
            flush(&engine, &region);
            compact(&engine, &region);
        }
    });
    for entry in 3..=LAST {
        put(&region, entry, &[row_of(entry)]);
        if entry == 5 {
            freeze(&region, entry);
        }
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    collecting.join().unwrap();
    check(&region, region.snapshot(), false);
}

#[test]
fn a_snapshot_keeps_what_it_sees_whatever_is_collected() {
    explore(snapshots_beside_collection);
}

#[test]
fn a_snapshot_that_is_counted_too_late_is_found() {
    finds("a snapshot is counted after it is numbered", snapshots_beside_collection);
}

/// Readers of a region continue at the same number in the daughters of its split, while those are written and flushed.
#[test]
fn a_snapshot_of_the_parent_sees_the_same_in_its_daughters() {
    explore(|| {
        let memory = new_disk();
        let engine = open(&memory);
        let parent = create(&engine, 1);
        put_file(&engine, &parent, 1, row_of(1));
        for entry in 2..=4 {
            put(&parent, entry, &[row_of(entry)]);
        }
        let held = parent.snapshot();
        let merging = spawn({
            let parent = Arc::clone(&parent);
            move || parent.merge_memtable()
        });
        let reading = spawn({
            let parent = Arc::clone(&parent);
            move || a_reader(&parent)
        });
        put(&parent, 5, &[row_of(5)]);
        let side = |id: u64| SplitDaughter { region: RegionId(id), point: point(&parent, 6) };
        let (left, right) = engine.split(&parent, b"b", side(2), side(3)).unwrap();
        let handed_down = [left.take_handed_down(), right.take_handed_down()];
        let flushing = spawn({
            let (engine, right) = (Arc::clone(&engine), Arc::clone(&right));
            move || flush(&engine, &right)
        });
        put(&right, 6, &[row_of(6)]);
        for daughter in [&left, &right] {
            check(daughter, daughter.snapshot_at(held.sequence()).unwrap(), false);
        }
        drop((held, handed_down));
        flushing.join().unwrap();
        merging.join().unwrap();
        reading.join().unwrap();
        check(&right, right.snapshot(), false);
    });
}
