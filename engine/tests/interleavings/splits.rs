//! Splits against flushes, compactions, readers and power cuts.

use std::sync::Arc;

use terrane_engine::{Engine, Region, SplitDaughter};
use terrane_env::fs::{MemoryDisk, Tear};
use terrane_env::interleave::{explore, finds, spawn};
use terrane_env::sync::point as scheduling_point;
use terrane_types::{KeyRange, RegionId};

use super::world::{
    compact, create, expected, finish, flush, freeze, new_disk, open, point, put, put_file, rows, scanner,
};

/// The whole log but the split.
const LOG: [(u64, char); 7] = [(1, 'a'), (2, 'x'), (3, 'b'), (4, 'z'), (5, 'c'), (7, 'd'), (8, 'y')];
const SPLIT: u64 = 6;
/// More than any row has.
const VERSIONS: u32 = 5;

/// What every disk holds after a power cut: the parent from before the split, or both daughters. Each has exactly the
/// entries up to its point: the log has the others.
fn check_recovered(memory: &MemoryDisk) {
    let engine = open(memory);
    let regions = engine.regions();
    let ids: Vec<u64> = regions.iter().map(|region| region.id().0).collect();
    assert!(ids == [1] || ids == [2, 3], "regions {ids:?} were recovered");
    for region in regions {
        let index = region.point().index;
        assert_eq!(region.id().0 == 1, index < SPLIT, "{region:?} was recorded up to entry {index}");
        assert_eq!(rows(&region), expected(&LOG, region.range(), index, VERSIONS as usize), "{region:?} up to {index}");
    }
}

fn split(engine: &Arc<Engine>, parent: &Arc<Region>) -> [Arc<Region>; 2] {
    let side = |id: u64| SplitDaughter { region: RegionId(id), point: point(parent, SPLIT) };
    let (left, right) = engine.split(parent, b"m", side(2), side(3)).unwrap();
    [left, right]
}

/// A region with two files and two rows in memory.
fn before_the_split() -> (MemoryDisk, Arc<Engine>, Arc<Region>) {
    let memory = new_disk();
    let engine = open(&memory);
    let parent = create(&engine, VERSIONS);
    put_file(&engine, &parent, 1, 'a');
    put_file(&engine, &parent, 2, 'x');
    put(&parent, 3, &['b']);
    put(&parent, 4, &['z']);
    (memory, engine, parent)
}

/// A region is split while its flush runs, and its compaction, and a reader; then the daughters are written and flushed.
/// Power is cut at any moment.
fn a_split_beside(compacts: bool) {
    let (memory, engine, parent) = before_the_split();
    freeze(&parent, 4);
    put(&parent, 5, &['c']);

    let task = |run: fn(&Arc<Engine>, &Arc<Region>)| {
        let (engine, parent) = (Arc::clone(&engine), Arc::clone(&parent));
        spawn(move || run(&engine, &parent))
    };
    let flushing = task(flush);
    let compacting = compacts.then(|| task(compact));
    let reading = task(|_, parent| {
        let scan = scanner(parent, parent.snapshot(), false);
        scheduling_point();
        assert_eq!(finish(scan, false), expected(&LOG, &KeyRange::all(), SPLIT, VERSIONS as usize));
    });
    let cut = spawn({
        let memory = memory.clone();
        move || [memory.crash(Tear::Lost), memory.crash(Tear::Kept)]
    });

    let [left, right] = split(&engine, &parent);
    // As the log does: each entry has one number, in both daughters.
    left.take_sequence(6);
    right.take_sequence(6);
    put(&left, 7, &['d']);
    right.take_sequence(7);
    put(&right, 8, &['y']);
    freeze(&left, 8);
    let flushing_left = {
        let (engine, left) = (Arc::clone(&engine), Arc::clone(&left));
        spawn(move || flush(&engine, &left))
    };
    let check = || {
        assert_eq!(rows(&left), expected(&LOG, left.range(), 8, VERSIONS as usize));
        assert_eq!(rows(&right), expected(&LOG, right.range(), 8, VERSIONS as usize));
    };
    check();
    flushing.join().unwrap();
    flushing_left.join().unwrap();
    compacting.into_iter().for_each(|compacting| compacting.join().unwrap());
    reading.join().unwrap();
    check();
    cut.join().unwrap().iter().for_each(check_recovered);
    check_recovered(&memory.crash(Tear::Lost));
}

#[test]
fn a_flush_beside_a_split_records_the_parent_or_both_daughters() {
    explore(|| a_split_beside(false));
}

#[test]
fn a_compaction_and_a_flush_beside_a_split_lose_nothing() {
    explore(|| a_split_beside(true));
}

/// A flush alone beside a split that nothing has recorded when power is cut. Few steps: many schedules begin the flush in the
/// middle of the split.
fn a_flush_beside_an_unrecorded_split() {
    let (memory, engine, parent) = before_the_split();
    put(&parent, 5, &['c']);
    let flushing = spawn({
        let (engine, parent) = (Arc::clone(&engine), Arc::clone(&parent));
        move || flush(&engine, &parent)
    });
    split(&engine, &parent);
    flushing.join().unwrap();
    check_recovered(&memory.crash(Tear::Lost));
}

#[test]
fn a_flush_beside_an_unrecorded_split_records_the_parent_as_of_before() {
    explore(a_flush_beside_an_unrecorded_split);
}

#[test]
fn a_split_that_lets_its_lock_go_between_two_steps_is_found() {
    finds("a split lets its lock go between two steps", a_flush_beside_an_unrecorded_split);
}
