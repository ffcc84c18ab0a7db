//! Store files as a whole: every way of reading returns what was written, and damage is never missed.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane_env::fs::{Disk, MemoryDisk};
use terrane_types::CellKind;
use terrane_types::schema::{Bloom, Compression, FamilyStorage};

use super::*;
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source, hash_of};
use crate::store_file::FamilyReads;

const DIR: &str = "/tables";

const READING: Reading =
    Reading { blocking: true, sequential: false, fills_cache: true, time_min: i64::MIN, prefix: None };

fn storage(compression: Compression, bloom: Bloom, block_size: u32) -> FamilyStorage {
    FamilyStorage { compression, bloom, block_size, in_memory: false }
}

fn prefix() -> RowPrefix {
    RowPrefix { id: 3, length: Arc::new(|row| (row.len() >= 2).then_some(2)) }
}

struct World {
    memory: MemoryDisk,
    shared: Arc<StoreFileShared>,
    reads: Arc<FamilyReads>,
}

impl World {
    async fn new(cache_bytes: u64) -> Self {
        let memory = MemoryDisk::default();
        let disk = Disk::from(&memory);
        disk.create_dir_all(Path::new(DIR)).await.unwrap();
        let shared = Arc::new(StoreFileShared::new(disk, DIR.into(), cache_bytes, 8));
        Self { memory, shared, reads: Arc::default() }
    }

    async fn write(&self, id: u64, cells: &Cells, storage: FamilyStorage) -> StoreFileProperties {
        let options = StoreFileOptions { storage, prefix: Some(prefix()) };
        let mut writer = StoreFileWriter::create(&self.shared.disk, &self.shared.dir, id, options).await.unwrap();
        for cell in cells.iter() {
            writer.add(cell);
            if writer.pending_bytes() > 10_000 {
                writer.write_pending().await.unwrap();
            }
        }
        writer.finish().await.unwrap()
    }

    fn open(&self, id: u64, size: u64) -> Result<Arc<StoreFile>, Error> {
        StoreFile::open(&self.shared, id, Some(id), size, &self.reads, None).map(Arc::new)
    }

    async fn file(&self, id: u64, cells: &Cells, storage: FamilyStorage) -> Arc<StoreFile> {
        let properties = self.write(id, cells, storage).await;
        let file = self.open(id, properties.size).unwrap();
        assert_eq!(*file.properties(), properties);
        file
    }

    async fn bytes(&self, id: u64) -> Vec<u8> {
        self.shared.disk.read(&path_of(&self.shared.dir, id)).await.unwrap()
    }

    async fn put(&self, id: u64, bytes: &[u8]) {
        let path = path_of(&self.shared.dir, id);
        self.shared.descriptors.close(id);
        let file = self.shared.disk.open_rw(&path).await.unwrap();
        file.set_len(0).await.unwrap();
        file.write_all_at(bytes, 0).await.unwrap();
    }
}

/// Random cells in store order: narrow and wide rows, many versions, tombstones, tags, positions, occasionally a huge
/// value.
fn random_cells(random: &mut StdRng, rows: usize) -> Cells {
    let mut cells = Cells::default();
    for _ in 0..rows {
        let row = format!(
            "{}{:0width$}",
            ["ab", "abc", "b", "zzz"][random.random_range(0..4)],
            random.random_range(0..rows * 3),
            width = random.random_range(1..9)
        );
        let (columns, versions) = match random.random_range(0..20) {
            0 => (random.random_range(1..200), 2),
            1 => (2, random.random_range(1..150)),
            _ => (random.random_range(1..4), 2),
        };
        for _ in 0..columns {
            let qualifier = if random.random_bool(0.1) {
                String::new()
            } else {
                format!("q{}", random.random_range(0..columns * 2))
            };
            for _ in 0..random.random_range(1..=versions) {
                let len = if random.random_ratio(1, 500) { 30_000 } else { random.random_range(0..60) };
                let value: Vec<u8> = (0..len).map(|at| (at / 7 % 5) as u8 ^ random.random_range(0..3u8)).collect();
                let kind = match random.random_range(0..10) {
                    0 => CellKind::Delete,
                    1 => CellKind::DeleteColumn,
                    2 if qualifier.is_empty() => CellKind::DeleteFamily,
                    _ => CellKind::Put,
                };
                cells.push(Cell {
                    row: row.as_bytes(),
                    qualifier: qualifier.as_bytes(),
                    tags: if random.random_bool(0.05) { b"\x01\x01\x00t" } else { b"" },
                    value: if kind == CellKind::Put { &value } else { b"" },
                    timestamp: if random.random_bool(0.02) { 0 } else { random.random_range(1_000_000..1_000_900) },
                    sequence: random.random_range(1..5_000),
                    position: random.random_range(0..3),
                    kind,
                });
            }
        }
    }
    cells.sort_from(0);
    cells
}

fn shown(cell: &Cell<'_>) -> String {
    format!("{cell:?}")
}

fn all(cells: &Cells) -> Vec<String> {
    cells.iter().map(|cell| shown(&cell)).collect()
}

fn rows_of(cells: &Cells) -> Vec<Vec<u8>> {
    let mut rows: Vec<_> = cells.iter().map(|cell| cell.row.to_vec()).collect();
    rows.dedup();
    rows
}

fn drain(cursor: &mut dyn Cursor) -> Vec<(Vec<u8>, Vec<String>)> {
    let mut rows = Vec::new();
    let mut out = Cells::default();
    while let Some(row) = cursor.row().map(<[u8]>::to_vec) {
        out.clear();
        cursor.take(ColumnSelection::ALL, usize::MAX, &mut out).unwrap();
        assert!(out.iter().all(|cell| cell.row == row));
        rows.push((row, all(&out)));
    }
    rows
}

fn expected(cells: &Cells, bounds: &RowRange) -> Vec<(Vec<u8>, Vec<String>)> {
    let mut rows: Vec<(Vec<u8>, Vec<String>)> = Vec::new();
    for cell in cells.iter().filter(|cell| bounds.contains(cell.row)) {
        match rows.last_mut() {
            Some((row, shown_cells)) if row == cell.row => shown_cells.push(shown(&cell)),
            _ => rows.push((cell.row.to_vec(), vec![shown(&cell)])),
        }
    }
    rows
}

/// A row of the file, or one near it, or the empty one.
fn some_row(random: &mut StdRng, rows: &[Vec<u8>]) -> Vec<u8> {
    let mut row = rows[random.random_range(0..rows.len())].clone();
    match random.random_range(0..6) {
        0 => row.push(0),
        1 => drop(row.pop()),
        2 => row.clear(),
        3 => row.push(b'~'),
        _ => {}
    }
    row
}

#[tokio::test]
async fn every_way_of_reading_returns_what_was_written() {
    for seed in 0..12u64 {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let world = World::new(if seed % 3 == 0 { 40_000 } else { 4 << 20 }).await;
        let count = [3, 60, 300][seed as usize % 3];
        let cells = random_cells(&mut random, count);
        let compression = Compression::ALL[random.random_range(0..3)];
        let bloom = Bloom::ALL[random.random_range(0..3)];
        let file = world.file(seed, &cells, storage(compression, bloom, 1 << random.random_range(10..15))).await;
        let report = file.check(Some(&prefix().length)).unwrap();
        assert_eq!(report.cells, cells.len() as u64);
        let rows = rows_of(&cells);
        assert_eq!(report.rows, rows.len() as u64);

        for _ in 0..20 {
            let reading =
                Reading { sequential: random.random_bool(0.5), fills_cache: random.random_bool(0.7), ..READING };
            let bounds = RowRange { start: some_row(&mut random, &rows), end: some_row(&mut random, &rows) };
            let mut wanted = expected(&cells, &bounds);
            let reverse = random.random_bool(0.5);
            if reverse {
                wanted.reverse();
            }
            let mut cursor = Arc::clone(&file).cursor(&bounds, reverse, reading).unwrap();
            assert_eq!(drain(cursor.as_mut()), wanted, "{bounds:?} reverse {reverse}");
        }
        seeks_and_columns(&mut random, &file, &cells, &rows);
        gets(&mut random, &file, &cells, &rows);
    }
}

fn seeks_and_columns(random: &mut StdRng, file: &Arc<StoreFile>, cells: &Cells, rows: &[Vec<u8>]) {
    let everything = expected(cells, &RowRange::default());
    for _ in 0..40 {
        let reverse = random.random_bool(0.5);
        let mut cursor = Arc::clone(file).cursor(&RowRange::default(), reverse, READING).unwrap();
        let mut left: Vec<_> = everything.clone();
        if reverse {
            left.reverse();
        }
        let mut left = left.as_slice();
        let mut out = Cells::default();
        for _ in 0..20 {
            assert_eq!(cursor.row(), left.first().map(|(row, _)| &row[..]));
            if random.random_bool(0.5) {
                let target = some_row(random, rows);
                cursor.seek(&target).unwrap();
                let skipped = left.partition_point(|(row, _)| if reverse { *row > target } else { *row < target });
                left = &left[skipped..];
            } else if let [(_, row), rest @ ..] = left {
                out.clear();
                let mut columns: Vec<Bytes> = (0..random.random_range(0..3usize))
                    .map(|_| Bytes::from(format!("q{}", random.random_range(0..300))))
                    .collect();
                columns.sort();
                cursor.take(ColumnSelection::columns(&columns), usize::MAX, &mut out).unwrap();
                assert_holds(row, &columns, &out);
                left = rest;
            }
        }
    }
}

/// The result is cells of the row in order, including all wanted ones.
fn assert_holds(row: &[String], columns: &[Bytes], out: &Cells) {
    let read = all(out);
    let mut rest = row.iter();
    assert!(read.iter().all(|cell| rest.any(|other| other == cell)), "cells of the row, in order");
    if columns.is_empty() {
        assert_eq!(read, row);
    }
    let wanted = |cell: &&String| {
        let names = columns.iter().map(|column| &column[..]).chain([&b""[..]]);
        names.into_iter().any(|name| cell.contains(&format!("qualifier: {name:?}, ")))
    };
    let missing = row.iter().filter(wanted).find(|cell| !read.contains(cell));
    assert_eq!(missing, None);
}

fn gets(random: &mut StdRng, file: &Arc<StoreFile>, cells: &Cells, rows: &[Vec<u8>]) {
    let mut out = Cells::default();
    for _ in 0..300 {
        let row = some_row(random, rows);
        let mut columns: Vec<Bytes> = (0..random.random_range(0..3usize))
            .map(|_| Bytes::from(format!("q{}", random.random_range(0..6))))
            .collect();
        columns.sort();
        out.clear();
        let lookup = RowLookup::new(&row, ColumnSelection::columns(&columns), READING, usize::MAX);
        file.row(&lookup, &mut out).unwrap();
        let there: Vec<String> = cells.iter().filter(|cell| cell.row == row).map(|cell| shown(&cell)).collect();
        assert_holds(&there, &columns, &out);
        assert!(there.is_empty() || file.may_contain(&lookup.key));
        if !there.is_empty() && row.len() >= 2 {
            assert!(file.may_contain_prefix(3, hash_of(&row[..2])));
        }
    }
    assert!(file.may_contain_prefix(4, hash_of(b"xx")), "a filter of other prefixes says nothing");
}

#[tokio::test]
async fn a_read_that_would_have_to_wait_fails_and_changes_nothing() {
    let world = World::new(64 << 20).await;
    let cells = random_cells(&mut StdRng::seed_from_u64(1), 3000);
    let file = world.file(1, &cells, storage(Compression::Lz4, Bloom::Row, 4096)).await;
    let now = Reading { blocking: false, ..READING };
    let row = cells.row(cells.len() / 2).to_vec();
    let mut out = Cells::default();
    out.push(cells.get(0));
    let refused = file.row(&RowLookup::new(&row, ColumnSelection::ALL, now, usize::MAX), &mut out);
    assert!(matches!(refused, Err(Error::NeedsDisk)));
    assert_eq!(out.len(), 1);
    assert!(matches!(Arc::clone(&file).cursor(&RowRange::default(), false, now), Err(Error::NeedsDisk)));
    file.row(&RowLookup::new(&row, ColumnSelection::ALL, READING, usize::MAX), &mut out).unwrap();
    let operations = world.memory.operations();
    file.row(&RowLookup::new(&row, ColumnSelection::ALL, now, usize::MAX), &mut out).unwrap();
    assert_eq!(world.memory.operations(), operations, "all was in memory");
    let beyond = RowRange { start: b"~".to_vec(), end: Vec::new() };
    assert!(Arc::clone(&file).cursor(&beyond, true, now).unwrap().row().is_none(), "bounds outside cost nothing");
    let newer = Reading { time_min: 2_000_000, ..now };
    assert!(Arc::clone(&file).cursor(&RowRange::default(), false, newer).unwrap().row().is_none());
}

#[tokio::test]
async fn filters_spare_reads_of_absent_rows_and_columns() {
    let world = World::new(1 << 20).await;
    let mut cells = Cells::default();
    for row in 0..3000u32 {
        let (row, value) = (format!("row{:05}", row * 2), [7; 100]);
        cells.push(Cell::put(row.as_bytes(), b"q", 1, &value));
    }
    let file = world.file(1, &cells, storage(Compression::None, Bloom::RowCol, 4096)).await;
    let reading = Reading { fills_cache: false, ..READING };
    let mut out = Cells::default();
    let before = world.memory.operations();
    for row in 0..3000u32 {
        let (absent, other) = (format!("row{:05}", row * 2 + 1), [Bytes::from_static(b"other")]);
        file.row(&RowLookup::new(absent.as_bytes(), ColumnSelection::ALL, reading, usize::MAX), &mut out).unwrap();
        let (row, sought) = (format!("row{:05}", row * 2), ColumnSelection::columns(&other));
        file.row(&RowLookup::new(row.as_bytes(), sought, reading, usize::MAX), &mut out).unwrap();
    }
    assert!(out.is_empty());
    let reads = world.memory.operations() - before;
    assert!(reads < 600, "{reads} reads for 6000 gets of what is not there");
    let before = world.memory.operations();
    for row in 0..100u32 {
        let row = format!("row{:05}", row * 2);
        file.row(&RowLookup::new(row.as_bytes(), ColumnSelection::ALL, reading, usize::MAX), &mut out).unwrap();
    }
    assert_eq!(out.len(), 100);
    assert!(world.memory.operations() - before <= 200, "one block of cells and one of the index for each");
}

#[tokio::test]
async fn one_column_of_a_wide_row_is_found_without_reading_the_row() {
    let world = World::new(1 << 20).await;
    let mut cells = Cells::default();
    for column in 0..20_000u32 {
        let (qualifier, value) = (column.to_be_bytes(), [column as u8; 50]);
        cells.push(Cell { position: column, ..Cell::put(b"wide", &qualifier, 1, &value) });
    }
    let file = world.file(1, &cells, storage(Compression::None, Bloom::Row, 4096)).await;
    let reading = Reading { fills_cache: false, ..READING };
    let columns = [Bytes::copy_from_slice(&3u32.to_be_bytes()), Bytes::copy_from_slice(&15_000u32.to_be_bytes())];
    for reverse in [false, true] {
        let before = world.memory.operations();
        let mut out = Cells::default();
        let mut cursor = Arc::clone(&file).cursor(&RowRange::default(), reverse, reading).unwrap();
        cursor.take(ColumnSelection::columns(&columns), usize::MAX, &mut out).unwrap();
        assert!(cursor.row().is_none());
        let mut positions: Vec<_> = out.iter().map(|cell| cell.position).collect();
        positions.sort_unstable();
        assert_eq!(positions, [3, 15_000]);
        let reads = world.memory.operations() - before;
        assert!(reads <= 14, "{reads} reads, reverse {reverse}");
    }
}

#[tokio::test]
async fn sequential_reads_are_few_and_large() {
    let world = World::new(64 << 20).await;
    let cells = random_cells(&mut StdRng::seed_from_u64(2), 2_500);
    let file = world.file(1, &cells, storage(Compression::None, Bloom::None, 4096)).await;
    for reverse in [false, true] {
        let before = world.memory.operations();
        let reading = Reading { sequential: true, fills_cache: false, ..READING };
        let mut cursor = Arc::clone(&file).cursor(&RowRange::default(), reverse, reading).unwrap();
        assert_eq!(drain(cursor.as_mut()).len(), rows_of(&cells).len());
        let reads = world.memory.operations() - before;
        let size = file.properties().size;
        assert!(
            reads < size / (100 << 10) + 20 + file.properties().index_blocks,
            "{reads} reads of {size} bytes, reverse {reverse}"
        );
    }
}

#[tokio::test]
async fn samples_and_estimates_add_up() {
    for (rows, block_size) in [(5, 1024), (1000, 1024), (1000, 16384)] {
        let world = World::new(1 << 20).await;
        let cells = random_cells(&mut StdRng::seed_from_u64(3), rows);
        let file = world.file(1, &cells, storage(Compression::Lz4, Bloom::Row, block_size)).await;
        let total = file.properties().data_bytes;
        let samples = file.samples(64).unwrap();
        assert_eq!(samples.iter().map(|(_, bytes)| bytes).sum::<u64>(), total);
        assert!(samples.is_sorted_by(|a, b| a.0 < b.0));
        let rows = rows_of(&cells);
        assert_eq!(samples[0].0, rows[0]);
        assert!(samples.iter().all(|(row, _)| rows.binary_search(row).is_ok()), "samples are rows of the file");
        assert!(samples.len() >= rows.len().min(30), "{} samples", samples.len());
        assert_eq!(file.bytes_within(&RowRange::default()), total);
        let middle = rows[rows.len() / 2].clone();
        let low = file.bytes_within(&RowRange { start: Vec::new(), end: middle.clone() });
        let high = file.bytes_within(&RowRange { start: middle, end: Vec::new() });
        assert_eq!(low + high, total);
        if rows.len() > 100 {
            assert!(low > total / 4 && high > total / 4, "{low} and {high}");
        }
        let listing = file.listing(3, 4).unwrap();
        assert!(listing.blocks.len() == 3.min(file.properties().data_blocks as usize) && listing.cells.len() == 4);
        assert_eq!((&listing.cells[0].row, listing.blocks[0].offset), (&rows[0], 0));
    }
}

/// Reads everything: an error, or all cells and a check that succeeds.
fn read_all(world: &World, id: u64, size: u64, cells: &Cells) -> Result<(), Error> {
    let file = world.open(id, size)?;
    let reading = Reading { fills_cache: false, ..READING };
    let mut read = Cells::default();
    let mut cursor = Arc::clone(&file).cursor(&RowRange::default(), false, reading)?;
    while cursor.row().is_some() {
        cursor.take(ColumnSelection::ALL, usize::MAX, &mut read)?;
    }
    assert_eq!(all(&read), all(cells), "damage was served");
    for row in rows_of(cells) {
        read.clear();
        file.row(&RowLookup::new(&row, ColumnSelection::ALL, reading, usize::MAX), &mut read)?;
        assert!(!read.is_empty(), "damage hides a row");
    }
    file.check(Some(&prefix().length)).map(drop)
}

#[tokio::test]
async fn every_flipped_bit_is_found_and_none_is_served() {
    let world = World::new(1 << 20).await;
    let mut cells = random_cells(&mut StdRng::seed_from_u64(11), 12);
    cells.truncate(50);
    let size = world.write(1, &cells, storage(Compression::Lz4, Bloom::RowCol, 1024)).await.size;
    read_all(&world, 1, size, &cells).unwrap();
    let path = path_of(&world.shared.dir, 1);
    for bit in 0..size * 8 {
        world.memory.damage(&path, bit / 8, (bit % 8) as u8).unwrap();
        let found = read_all(&world, 1, size, &cells);
        assert!(matches!(found, Err(Error::Corruption { .. } | Error::NewerFormat { .. })), "bit {bit}: {found:?}");
        world.memory.damage(&path, bit / 8, (bit % 8) as u8).unwrap();
    }
}

#[tokio::test]
async fn a_file_cut_short_is_refused_at_every_length() {
    let world = World::new(1 << 20).await;
    let mut cells = random_cells(&mut StdRng::seed_from_u64(12), 8);
    cells.truncate(50);
    let size = world.write(1, &cells, storage(Compression::Zstd, Bloom::Row, 1024)).await.size;
    let whole = world.bytes(1).await;
    for len in 0..whole.len() {
        world.put(1, &whole[..len]).await;
        for size in [size, len as u64] {
            let refused = world.open(1, size).err();
            assert!(matches!(refused, Some(Error::Corruption { .. })), "{len} of {size}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn a_newer_a_vanished_and_a_renamed_file_are_each_refused_by_name() {
    let world = World::new(1 << 20).await;
    let cells = random_cells(&mut StdRng::seed_from_u64(13), 8);
    let size = world.write(1, &cells, FamilyStorage::default()).await.size;
    let mut bytes = world.bytes(1).await;
    world.put(2, &bytes).await;
    let renamed = world.open(2, size).unwrap_err().to_string();
    assert!(renamed.contains("0000000000000002.tbl") && renamed.contains("it is file 1"), "{renamed}");
    let vanished = world.open(3, size).unwrap_err().to_string();
    assert!(vanished.contains("0000000000000003.tbl") && vanished.contains("missing"), "{vanished}");
    let format_at = bytes.len() - 12;
    bytes[format_at..format_at + 4].copy_from_slice(&(super::footer::FORMAT + 1).to_le_bytes());
    world.put(1, &bytes).await;
    let newer = world.open(1, size).unwrap_err();
    assert!(matches!(newer, Error::NewerFormat { found, known, .. } if found == known + 1), "{newer}");
}

#[tokio::test]
async fn a_file_without_cells_is_refused_and_an_abandoned_one_leaves_nothing() {
    let world = World::new(1 << 20).await;
    let options = StoreFileOptions { storage: FamilyStorage::default(), prefix: None };
    for id in [1, 2] {
        let mut writer =
            StoreFileWriter::create(&world.shared.disk, &world.shared.dir, id, options.clone()).await.unwrap();
        if id == 1 {
            assert!(writer.finish().await.is_err());
        } else {
            writer.add(random_cells(&mut StdRng::seed_from_u64(1), 1).get(0));
            writer.abandon().await.unwrap();
        }
    }
    assert_eq!(world.shared.disk.list(&world.shared.dir).await.unwrap(), ["0000000000000001.tbl"]);
}

#[test]
fn file_names_contain_their_ids() {
    let path = path_of(Path::new("/d"), 42);
    assert_eq!(path, Path::new("/d/0000000000000042.tbl"));
    assert_eq!(id_of("0000000000000042.tbl"), Some(42));
    assert_eq!(id_of(&format!("{:016}.tbl", u64::MAX)), Some(u64::MAX));
    for name in ["42.tbl", "0000000000000042.tmp", "000000000000004x.tbl", ".tbl", ""] {
        assert_eq!(id_of(name), None, "{name}");
    }
}

/// The cells of the fixture `store-file-1.tbl`.
fn fixture_cells() -> Cells {
    let mut cells = Cells::default();
    for at in 0..400u32 {
        let (row, qualifier, value) = (format!("row{:04}", at / 3), [b'a' + (at % 3) as u8], at.to_string().repeat(5));
        cells.push(Cell {
            row: row.as_bytes(),
            qualifier: &qualifier,
            tags: if at % 50 == 7 { b"\x01\x01\x00t" } else { b"" },
            value: if at % 10 == 9 { b"" } else { value.as_bytes() },
            timestamp: i64::from(1_700_000_000 + at * 7 % 100),
            sequence: u64::from(100 + at / 3),
            position: at % 3,
            kind: if at % 10 == 9 { CellKind::DeleteColumn } else { CellKind::Put },
        });
    }
    cells
}

/// The cells of the example in `docs/formats/store-file.md`, which is the fixture `store-file-1-example.tbl`.
fn example_cells() -> Cells {
    let mut cells = Cells::default();
    cells.push(Cell { sequence: 7, ..Cell::put(b"aa", b"q", 1000, b"one") });
    cells.push(Cell { sequence: 7, position: 1, ..Cell::put(b"aa", b"r", 1000, b"two") });
    cells.push(Cell { sequence: 9, kind: CellKind::DeleteColumn, ..Cell::put(b"ab", b"r", 1005, b"") });
    cells
}

const FIXTURE: FamilyStorage =
    FamilyStorage { compression: Compression::Lz4, bloom: Bloom::RowCol, block_size: 1024, in_memory: false };
const EXAMPLE: FamilyStorage =
    FamilyStorage { compression: Compression::None, bloom: Bloom::Row, block_size: 16384, in_memory: false };

#[tokio::test]
async fn files_of_format_1_are_read() {
    let world = World::new(1 << 20).await;
    let fixtures: [(u64, &[u8], Cells, FamilyStorage); 2] = [
        (1, include_bytes!("../../tests/fixtures/store-file-1.tbl"), fixture_cells(), FIXTURE),
        (2, include_bytes!("../../tests/fixtures/store-file-1-example.tbl"), example_cells(), EXAMPLE),
    ];
    for (id, bytes, cells, storage) in fixtures {
        world.put(id, bytes).await;
        read_all(&world, id, bytes.len() as u64, &cells).unwrap();
        assert_eq!(world.open(id, bytes.len() as u64).unwrap().properties().storage, storage);
    }
    let options = StoreFileOptions { storage: EXAMPLE, prefix: None };
    let dir = world.shared.dir.join("again");
    world.shared.disk.create_dir_all(&dir).await.unwrap();
    let mut writer = StoreFileWriter::create(&world.shared.disk, &dir, 2, options).await.unwrap();
    example_cells().iter().for_each(|cell| writer.add(cell));
    writer.finish().await.unwrap();
    let written = world.shared.disk.read(&path_of(&dir, 2)).await.unwrap();
    assert_eq!(
        written,
        include_bytes!("../../tests/fixtures/store-file-1-example.tbl"),
        "the example in the documentation is what is written"
    );
}
