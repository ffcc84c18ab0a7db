//! Readers, flushes and splits at the same time.

use std::sync::atomic::{AtomicBool, Ordering};

use terrane_types::{CellKind, KeyRange, Projection};

use crate::support::fixture::{cell, one_region, put};
use crate::support::scanning::{Scan, packed};
use crate::support::world::backends;

const ROWS: u64 = 60;

/// The writer counts up through all rows, over and over, freezing and flushing as it goes. A scan at a given sequence
/// number must therefore find exactly one possible value in each row.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_reader_never_misses_or_repeats_a_row_while_cells_are_flushed() {
    for backend in backends() {
        let (world, region) = one_region(backend).await;
        let handle = world.live[&region].clone();
        let done = std::sync::Arc::new(AtomicBool::new(false));
        let reader = tokio::spawn(terrane_env::task::run_blocking({
            let (handle, done) = (handle.clone(), done.clone());
            move || {
                let mut scans = 0u32;
                while !done.load(Ordering::Acquire) || scans == 0 {
                    let reverse = scans % 2 == 1;
                    let snapshot = handle.snapshot();
                    let scan = Scan { range: KeyRange::all(), reverse, projection: Projection::all(), now: 100 };
                    let mut seen = scan.run(&handle, &snapshot, usize::MAX);
                    if reverse {
                        seen.reverse();
                    }
                    let sequence = snapshot.sequence();
                    let expected: Vec<_> = (0..ROWS.min(sequence))
                        .map(|row| {
                            let last = sequence - (sequence - 1 - row) % ROWS;
                            let value = last.to_string().into_bytes();
                            (row.to_be_bytes().to_vec(), vec![("f".to_owned(), b"q".to_vec(), 50, value)])
                        })
                        .collect();
                    assert_eq!(seen, expected, "at {sequence}");
                    scans += 1;
                }
            }
        }));
        let rounds = if backend.name() == "memory" { 60 } else { 12 };
        for sequence in 1..=rounds * 25 {
            let row = ((sequence - 1) % ROWS).to_be_bytes();
            let put = cell(&row, 50, CellKind::Put, &sequence.to_string());
            handle.apply(sequence + 1, sequence, &row, &packed(&[put]));
            if sequence % 25 == 0 {
                handle.freeze(world.point(&handle, sequence + 1));
                world.engine().flush(&handle).await.unwrap();
            }
        }
        done.store(true, Ordering::Release);
        reader.await.unwrap();
    }
}

/// A split happens at every stage of a flush of its parent, or before or after it; nothing is lost in memory or on
/// disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_that_races_with_a_flush_of_its_parent_loses_nothing() {
    for backend in backends() {
        for yields in 0..24 {
            let (mut world, region) = one_region(backend).await;
            put(&mut world, region, b"a", "1");
            put(&mut world, region, b"x", "2");
            world.freeze(region);
            put(&mut world, region, b"b", "3");
            let flush = tokio::spawn({
                let (engine, parent) = (world.engine().clone(), world.live[&region].clone());
                async move { engine.flush(&parent).await }
            });
            for _ in 0..yields * yields {
                tokio::task::yield_now().await;
            }
            let (left, right) = world.split(region, b"m").await;
            put(&mut world, left, b"a", "4");
            world.check_all();
            flush.await.unwrap().unwrap();
            world.check_all();
            if yields % 2 == 0 {
                world.finish_split(right).await;
                world.check_all();
            }
            world.reopen().await;
            world.check_all();
        }
    }
}
