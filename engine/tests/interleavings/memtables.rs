//! A reader's view of the memtables while they are filled, merged, frozen, flushed and replaced by files.

use std::ops::RangeInclusive;
use std::sync::Arc;

use terrane_engine::Region;
use terrane_env::interleave::{explore, finds, spawn};
use terrane_types::KeyRange;

use super::world::{create, expected, finish, flush, freeze, new_disk, open, put, scanner};

/// More than any row is written, so a cell that a reader meets twice is seen twice.
const VERSIONS: u32 = 50;
/// Entries written before the threads start, and all.
const FIRST: u64 = 11;
const LAST: u64 = 18;

/// Rows that are written in turn; with few of them, versions of one row meet in a buffer.
const ROWS: u64 = 4;
const FEW_ROWS: u64 = 2;

fn row_of(entry: u64, rows: u64) -> char {
    ['a', 'b', 'c', 'd'][usize::try_from(entry % rows).unwrap()]
}

/// A reader at any number sees every version up to it once.
fn a_reader(region: &Region, rows: u64, versions: u32, reads: usize) {
    let log: Vec<_> = (1..=LAST).map(|entry| (entry, row_of(entry, rows))).collect();
    for read in 0..reads {
        let (snapshot, reverse) = (region.snapshot(), read % 2 == 1);
        let expected = expected(&log, &KeyRange::all(), snapshot.sequence(), versions as usize);
        let sequence = snapshot.sequence();
        assert_eq!(finish(scanner(region, snapshot, reverse), reverse), expected, "at {sequence}");
    }
}

/// One row at a time, and in between a batch, which becomes a run by itself.
fn write(region: &Region, rows: u64, entries: RangeInclusive<u64>) {
    let mut entry = *entries.start();
    while entry <= *entries.end() {
        let count = if entry.is_multiple_of(5) { 4.min(entries.end() - entry + 1) } else { 1 };
        let written: Vec<_> = (entry..entry + count).map(|entry| row_of(entry, rows)).collect();
        put(region, entry, &written);
        entry += count;
    }
}

/// The writer fills buffers and adds runs, idle threads and readers merge them.
fn merges_beside_a_writer(versions: u32) {
    let engine = open(&new_disk());
    let region = create(&engine, versions);
    write(&region, ROWS, 1..=FIRST);
    let task = |run: fn(&Region, u32)| {
        let region = Arc::clone(&region);
        spawn(move || run(&region, versions))
    };
    let reading = task(|region, versions| a_reader(region, ROWS, versions, 2));
    let merging = task(|region, _| (0..3).for_each(|_| region.merge_memtable()));
    write(&region, ROWS, FIRST + 1..=LAST);
    reading.join().unwrap();
    merging.join().unwrap();
    assert_eq!(region.sequence(), LAST);
    a_reader(&region, ROWS, versions, 2);
}

/// Readers get copies of buffers that are not written between two looks, while a writer goes on.
fn copies_beside_a_writer(rows: u64, versions: u32) {
    let engine = open(&new_disk());
    let region = create(&engine, versions);
    // Rows of one entry each, so that the buffer holds some.
    write(&region, rows, 1..=2);
    a_reader(&region, rows, versions, 1);
    let reading = spawn({
        let region = Arc::clone(&region);
        move || a_reader(&region, rows, versions, 3)
    });
    let copying = spawn({
        let region = Arc::clone(&region);
        move || {
            for _ in 0..3 {
                region.look_at_memtables(u64::MAX);
                region.merge_memtable();
            }
        }
    });
    write(&region, rows, 3..=LAST);
    reading.join().unwrap();
    copying.join().unwrap();
    a_reader(&region, rows, versions, 2);
}

/// Memtables are frozen and flushed: readers find the files instead.
fn flushes_beside_readers() {
    let engine = open(&new_disk());
    let region = create(&engine, VERSIONS);
    write(&region, ROWS, 1..=FIRST);
    freeze(&region, FIRST);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let region = Arc::clone(&region);
            spawn(move || a_reader(&region, ROWS, VERSIONS, 2))
        })
        .collect();
    let flushing = spawn({
        let (engine, region) = (Arc::clone(&engine), Arc::clone(&region));
        move || flush(&engine, &region)
    });
    write(&region, ROWS, FIRST + 1..=LAST);
    freeze(&region, LAST);
    flush(&engine, &region);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    flushing.join().unwrap();
    assert!(!region.has_frozen());
    a_reader(&region, ROWS, VERSIONS, 1);
}

#[test]
fn a_reader_sees_every_version_once_while_runs_are_added_and_merged() {
    explore(|| merges_beside_a_writer(VERSIONS));
}

#[test]
fn a_reader_misses_nothing_while_a_writer_replaces_versions() {
    explore(|| merges_beside_a_writer(1));
}

#[test]
fn a_reader_sees_every_version_once_while_memtables_are_replaced_by_files() {
    explore(flushes_beside_readers);
}

#[test]
fn a_reader_sees_every_version_once_while_copies_of_buffers_come_and_go() {
    explore(|| copies_beside_a_writer(ROWS, VERSIONS));
}

#[test]
fn a_reader_misses_nothing_while_replaced_versions_leave_copied_buffers() {
    explore(|| copies_beside_a_writer(FEW_ROWS, 1));
}

#[test]
fn a_copy_that_serves_after_the_next_insert_is_found() {
    finds("a copy of a buffer serves after the next insert", || copies_beside_a_writer(ROWS, VERSIONS));
}

#[test]
fn a_copy_that_counts_an_insert_which_it_misses_is_found() {
    finds("inserts are counted after the copy", || copies_beside_a_writer(ROWS, VERSIONS));
}

#[test]
fn a_merge_that_replaces_a_newer_view_is_found() {
    finds("a merge replaces the view that it began with", || merges_beside_a_writer(VERSIONS));
}

#[test]
fn memtables_that_leave_before_their_files_come_are_found() {
    finds("memtables leave before their files come", flushes_beside_readers);
}
