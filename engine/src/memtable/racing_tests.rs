//! One writer and readers at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrane_types::{CellKind, CellRef};

use super::model_tests::{READING, Snapshots};
use super::*;
use crate::column_selection::ColumnSelection;

const ROWS: u64 = 2_000;

/// Each mutation goes to the next row, round after round, and writes its sequence number to two columns.
fn write(memtable: &Memtable, sequence: u64) -> Vec<Cells> {
    let mut cells = Cells::default();
    push(sequence, &mut cells);
    let replaces = |cell: &Cell<'_>| memtable.insert(*cell);
    cells.iter().filter(replaces).map(one).collect()
}

fn one(cell: Cell<'_>) -> Cells {
    let mut cells = Cells::default();
    cells.push(cell);
    cells
}

fn push(sequence: u64, out: &mut Cells) {
    let row = ((sequence - 1) % ROWS).to_be_bytes();
    let value = sequence.to_be_bytes();
    let timestamp = i64::try_from(sequence).unwrap();
    for (position, qualifier) in [(0, b"a"), (1, b"b")] {
        let cell = CellRef { family: b"f", qualifier, timestamp, kind: CellKind::Put, tags: b"", value: &value };
        out.push(Cell::of_mutation(&row, cell, sequence, position));
    }
}

/// The row's two values at a snapshot.
fn newest(cells: &Cells, snapshot: u64) -> Vec<u64> {
    let mut found: Vec<(&[u8], u64)> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.sequence <= snapshot) {
        if found.last().is_none_or(|last| last.0 != cell.qualifier) {
            found.push((cell.qualifier, u64::from_be_bytes(cell.value.try_into().unwrap())));
        }
    }
    found.into_iter().map(|(_, value)| value).collect()
}

fn expected(row: u64, snapshot: u64) -> Vec<u64> {
    if row >= snapshot {
        return Vec::new();
    }
    let last = snapshot - (snapshot - 1 - row) % ROWS;
    vec![last, last]
}

fn scan(memtable: &Arc<Memtable>, snapshot: u64, reverse: bool) {
    let bounds = RowRange { start: Vec::new(), end: Vec::new() };
    let mut cursor = Arc::clone(memtable).cursor(&bounds, reverse, READING).unwrap();
    let mut rows = (0..ROWS).filter(|row| !expected(*row, snapshot).is_empty()).collect::<Vec<_>>();
    if reverse {
        rows.reverse();
    }
    let mut rows = rows.into_iter();
    let mut out = Cells::default();
    while cursor.row().is_some() {
        out.clear();
        cursor.take(ColumnSelection::ALL, usize::MAX, &mut out).unwrap();
        let seen = newest(&out, snapshot);
        if !seen.is_empty() {
            let row = u64::from_be_bytes(out.row(0).try_into().unwrap());
            assert_eq!(rows.next(), Some(row), "at {snapshot}, reverse {reverse}");
            assert_eq!(seen, expected(row, snapshot), "row {row} at {snapshot}, reverse {reverse}");
        }
    }
    assert_eq!(rows.next(), None, "at {snapshot}, reverse {reverse}");
}

fn get(memtable: &Arc<Memtable>, row: u64, snapshot: u64) {
    let mut out = Cells::default();
    memtable.row(&RowLookup::new(&row.to_be_bytes(), ColumnSelection::ALL, READING, usize::MAX), &mut out).unwrap();
    assert_eq!(newest(&out, snapshot), expected(row, snapshot), "row {row} at {snapshot}");
}

async fn race(one_version: bool) {
    let snapshots = Arc::new(Snapshots::default());
    let memtable = Arc::new(Memtable::new(Some(Arc::clone(&snapshots) as Arc<dyn Retention>)));
    memtable.set_one_version(one_version.then_some(0));
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2u64)
        .map(|reader| {
            let (memtable, snapshots, done) = (Arc::clone(&memtable), Arc::clone(&snapshots), Arc::clone(&done));
            tokio::spawn(terrane_env::task::run_blocking(move || {
                let mut reads = 0u64;
                let mut older = snapshots.take();
                while !done.load(Ordering::Acquire) || reads < 10 {
                    let snapshot = snapshots.take();
                    scan(&memtable, snapshot, reads % 2 == reader);
                    for row in 0..50 {
                        get(&memtable, (reads * 131 + row * 37) % ROWS, snapshot);
                    }
                    // An older snapshot still sees what it saw.
                    scan(&memtable, older, reads.is_multiple_of(2));
                    if reads.is_multiple_of(3) {
                        snapshots.let_go(older);
                        older = snapshot;
                    } else {
                        snapshots.let_go(snapshot);
                    }
                    reads += 1;
                }
                snapshots.let_go(older);
            }))
        })
        .collect();
    let copying = {
        let (memtable, done) = (Arc::clone(&memtable), Arc::clone(&done));
        tokio::spawn(terrane_env::task::run_blocking(move || {
            while !done.load(Ordering::Acquire) {
                memtable.look(u64::MAX);
                memtable.merge_once();
            }
        }))
    };
    let mut sequence = 0;
    for round in 0..120u64 {
        if round.is_multiple_of(3) {
            let mut cells = Cells::default();
            for _ in 0..300 + round * 5 {
                sequence += 1;
                push(sequence, &mut cells);
            }
            assert!(memtable.insert_batch(cells).is_empty());
            snapshots.publish(sequence, false);
        } else {
            for _ in 0..400 {
                sequence += 1;
                let replacing = write(&memtable, sequence);
                let newest = snapshots.publish(sequence, !replacing.is_empty());
                for cell in replacing {
                    memtable.remove_replaced(cell.get(0), newest);
                }
            }
        }
        if round.is_multiple_of(7) {
            memtable.rotate();
        }
    }
    memtable.seal();
    done.store(true, Ordering::Release);
    for reader in readers {
        reader.await.unwrap();
    }
    copying.await.unwrap();
    assert!(sequence > 10 * ROWS, "every row was written many times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_miss_nothing_while_a_writer_replaces_versions() {
    race(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_miss_nothing_while_a_writer_adds_versions() {
    race(false).await;
}
