//! Readers of files, and flushes and compactions that write and replace them, against the clean-up that removes files.

use std::sync::Arc;

use terrane_env::fs::Tear;
use terrane_env::interleave::{explore, finds, spawn};
use terrane_env::sync::point as scheduling_point;
use terrane_types::KeyRange;

use super::world::{
    compact, create, create_of_table, expected, files, finish, flush, freeze, new_disk, open, put, put_file, rows,
    scanner,
};

const LOG: [(u64, char); 6] = [(1, 'a'), (2, 'b'), (3, 'a'), (4, 'c'), (5, 'd'), (6, 'a')];
const VERSIONS: u32 = 5;

/// Readers keep their files, new files stay until a record names them, and what is left afterwards is what is named.
fn files_come_and_go() {
    let memory = new_disk();
    let engine = open(&memory);
    let region = create(&engine, VERSIONS);
    for (index, row) in &LOG[..3] {
        put_file(&engine, &region, *index, *row);
    }
    put(&region, 4, &['c']);
    freeze(&region, 4);
    let held = region.snapshot();
    let tasks = [compact, flush].map(|run| {
        let (engine, region) = (Arc::clone(&engine), Arc::clone(&region));
        spawn(move || run(&engine, &region))
    });
    let reader = spawn({
        let region = Arc::clone(&region);
        move || {
            for _ in 0..2 {
                let scan = scanner(&region, region.snapshot_at(4).unwrap(), false);
                scheduling_point();
                assert_eq!(finish(scan, false), expected(&LOG, &KeyRange::all(), 4, VERSIONS as usize));
            }
        }
    });
    put(&region, 5, &['d']);
    freeze(&region, 5);
    flush(&engine, &region);
    tasks.into_iter().for_each(|task| task.join().unwrap());
    reader.join().unwrap();
    drop(held);
    // Files that were read during the last clean-up go with the next one.
    put_file(&engine, &region, 6, 'a');
    compact(&engine, &region);
    let recovered = memory.crash(Tear::Lost);
    let reopened = open(&recovered);
    for region in [&region, &reopened.regions()[0]] {
        assert_eq!(rows(region), expected(&LOG, &KeyRange::all(), 6, VERSIONS as usize));
    }
    assert_eq!(files(&memory), files(&recovered), "opening an engine leaves only the files that the manifest names");
}

#[test]
fn a_file_stays_while_it_is_read_or_about_to_be_named_and_no_longer() {
    explore(files_come_and_go);
}

#[test]
fn a_clean_up_that_overlooks_readers_is_found() {
    finds("a clean-up overlooks readers", files_come_and_go);
}

/// Flushes of one region that write their files while compactions of another end, and clean up. Of one region they exclude each
/// other.
fn flushes_beside_clean_ups() {
    let memory = new_disk();
    let engine = open(&memory);
    let [compacted, flushed] = [1, 2].map(|number| create_of_table(&engine, number, VERSIONS));
    for (index, row) in &LOG[..2] {
        put_file(&engine, &compacted, *index, *row);
    }
    let flushing = spawn({
        let (engine, flushed) = (Arc::clone(&engine), Arc::clone(&flushed));
        move || LOG.iter().for_each(|(index, row)| put_file(&engine, &flushed, *index, *row))
    });
    for (index, row) in &LOG[2..] {
        put_file(&engine, &compacted, *index, *row);
        compact(&engine, &compacted);
    }
    flushing.join().unwrap();
    let reopened = open(&memory.crash(Tear::Lost));
    for region in [&compacted, &flushed, &reopened.regions()[0], &reopened.regions()[1]] {
        assert_eq!(rows(region), expected(&LOG, &KeyRange::all(), 6, VERSIONS as usize));
    }
}

#[test]
fn a_file_that_is_being_written_outlives_a_clean_up() {
    explore(flushes_beside_clean_ups);
}
