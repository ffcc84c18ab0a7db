//! The memory backend: flushed cells stay in memory, and lie in one file per flush for the next start.
//!
//! The file makes durable points, manifest and purge real: tests and the simulator crash it like any other engine, and
//! `--engine memory` shows the cost of everything above the store. `docs/formats/cells.md` has its layout: a header
//! frame, then frames of cells, each with a checksum, and a closing frame with their count.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use terrane_env::fs::Disk;
use terrane_types::{CellKind, CellRef, FamilyName};

use super::{CellFiles, CellStore, FamilyKey, FamilyWriter, VerifiedFile, WriterTarget, sync_names};
use crate::Error;
use crate::boxed::BoxFuture;
use crate::cells::{Cell, Cells};
use crate::codec::{ByteWriter as _, FRAME_HEADER_BYTES, Reader, frame, unframe};
use crate::column_selection::ColumnSelection;
use crate::file_directory::FileDirectory;
use crate::levels::{FileRef, FileSource};
use crate::manifest::FileRecord;
use crate::row_range::RowRange;
use crate::sorted_cells::SortedCells;
use crate::source::Reading;

pub(crate) const FORMAT: u8 = 1;
const HEADER: u8 = 1;
const CELLS: u8 = 2;
const END: u8 = 3;
/// Approximately how many bytes of cells share a checksum.
const FRAME_BYTES: usize = 256 << 10;
/// The directory of its files, and the extension of their names.
pub(crate) const DIRECTORY: &str = "cells";
pub(crate) const SUFFIX: &str = ".cells";
/// The number of files of a family at which a flush rewrites them all as one.
pub(crate) const FILES_MAX: usize = 6;
/// The most bytes of data in one file, which is one list of cells: offsets in it have 32 bits.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// The files of one server.
pub(crate) struct MemoryBackend {
    disk: Disk,
    files: Arc<FileDirectory>,
}

impl MemoryBackend {
    pub(crate) async fn open(disk: &Disk, dir: &Path, named: &BTreeSet<u64>) -> Result<Self, Error> {
        let files = Arc::new(FileDirectory::open(disk, dir, DIRECTORY, SUFFIX, named).await?);
        Ok(Self { disk: disk.clone(), files })
    }

    fn new_writer(&self, family: &FamilyName) -> MemoryWriter {
        let (disk, files) = (self.disk.clone(), Arc::clone(&self.files));
        MemoryWriter { disk, files, family: family.clone(), cells: Cells::default(), bytes: 0 }
    }
}

impl CellStore for MemoryBackend {
    fn load<'a>(
        &'a self,
        record: &'a FileRecord,
        _key: FamilyKey<'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSource>, Error>> {
        Box::pin(async move {
            let (cells, _) = read_file(&self.disk, &self.files.path_of(record.id), record.origin).await?;
            Ok(Arc::new(SortedCells::new(cells)) as Arc<dyn FileSource>)
        })
    }

    fn writer(&self, target: WriterTarget<'_>) -> Result<Box<dyn FamilyWriter>, Error> {
        Ok(Box::new(self.new_writer(target.key.family)))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), Error>> {
        sync_names(&self.files)
    }

    /// The part of the file as a file of its own.
    fn linked<'a>(&'a self, file: &'a FileRef, key: FamilyKey<'a>) -> BoxFuture<'a, Result<Option<FileRef>, Error>> {
        Box::pin(async move {
            let bounds = &file.record.bounds;
            let mut writer = self.new_writer(key.family);
            let mut cursor = file.bounded().cursor(bounds, false, Reading::BULK)?;
            while cursor.row().is_some() {
                cursor.take(ColumnSelection::ALL, usize::MAX, &mut writer.cells)?;
            }
            writer.write(bounds).await
        })
    }

    fn rewrites(&self, files: usize) -> bool {
        files >= FILES_MAX
    }
}

impl CellFiles for MemoryBackend {
    fn directory(&self) -> &Arc<FileDirectory> {
        &self.files
    }

    fn verified<'a>(
        &'a self,
        record: &'a FileRecord,
        key: FamilyKey<'a>,
    ) -> BoxFuture<'a, Result<VerifiedFile, Error>> {
        Box::pin(async move {
            let source = self.load(record, key).await?;
            Ok((check_file(&self.disk, &self.files.path_of(record.id), record.origin).await?, source))
        })
    }
}

/// Gathers the cells of one family's flush.
struct MemoryWriter {
    disk: Disk,
    files: Arc<FileDirectory>,
    family: FamilyName,
    cells: Cells,
    /// Bytes of data handed over.
    bytes: u64,
}

impl FamilyWriter for MemoryWriter {
    fn add(&mut self, cell: Cell<'_>) {
        self.bytes += cell.data_bytes() as u64;
        if self.bytes <= FILE_BYTES_MAX {
            self.cells.push(cell);
        }
    }

    fn finish(self: Box<Self>, bounds: &RowRange) -> BoxFuture<'_, Result<Vec<FileRef>, Error>> {
        Box::pin(async move { Ok(self.write(bounds).await?.into_iter().collect()) })
    }
}

impl MemoryWriter {
    /// Writes and syncs the file; nothing is written when there are no cells.
    async fn write(self, bounds: &RowRange) -> Result<Option<FileRef>, Error> {
        if self.cells.is_empty() {
            return Ok(None);
        }
        if self.bytes > FILE_BYTES_MAX {
            let cause =
                std::io::Error::new(std::io::ErrorKind::FileTooLarge, "a family's part of a region is over 2 GiB");
            return Err(Error::io("flush with the memory engine")(cause));
        }
        let id = self.files.allocate();
        let written = write_file(&self.disk, &self.files, id, &self.family, &self.cells).await;
        if written.is_err() {
            // It will never be recorded.
            self.files.release(id);
        }
        let size = written?;
        let record = Arc::new(record_of(id, size, &self.cells, bounds));
        Ok(Some(FileRef { record, source: Arc::new(SortedCells::new(self.cells)) }))
    }
}

/// The id of the file with this name; `None` for names of other files.
pub(crate) fn id_of(name: &str) -> Option<u64> {
    let id = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (name == format!("{id:016}{SUFFIX}")).then_some(id)
}

/// The cells of a file, and its length.
pub(crate) async fn read_file(disk: &Disk, path: &Path, id: u64) -> Result<(Cells, u64), Error> {
    let bytes = disk.read(path).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::damage(path, 0, "the manifest names the file, but it is missing"),
        _ => Error::io(format!("read {}", path.display()))(error),
    })?;
    Ok((decode(path, id, &bytes)?, bytes.len() as u64))
}

/// Verifies a file as a whole and returns what the manifest should say of it.
pub(crate) async fn check_file(disk: &Disk, path: &Path, id: u64) -> Result<FileRecord, Error> {
    let (cells, bytes) = read_file(disk, path, id).await?;
    let is_sorted = cells.iter().zip(cells.iter().skip(1)).all(|(a, b)| a.cmp_place(&b).is_lt());
    if cells.is_empty() || !is_sorted {
        return Err(Error::damage(path, 0, "it has no cells, or they are not in order"));
    }
    Ok(record_of(id, bytes, &cells, &RowRange::default()))
}

async fn write_file(
    disk: &Disk,
    files: &FileDirectory,
    id: u64,
    family: &FamilyName,
    cells: &Cells,
) -> Result<u64, Error> {
    let path = files.path_of(id);
    let bytes = encode(id, family, cells);
    let file = disk.create_new(&path).await.map_err(Error::io(format!("create {}", path.display())))?;
    file.write_all_at(&bytes, 0).await.map_err(Error::io(format!("write {}", path.display())))?;
    file.sync_all().await.map_err(Error::io(format!("sync {}", path.display())))?;
    Ok(bytes.len() as u64)
}

/// What the manifest says of cells that were written.
fn record_of(id: u64, size: u64, cells: &Cells, bounds: &RowRange) -> FileRecord {
    let mut record = FileRecord {
        id,
        level: 0,
        size,
        bytes: cells.weight(),
        bounds: bounds.clone(),
        first_row: Bytes::copy_from_slice(cells.row(0)),
        last_row: Bytes::copy_from_slice(cells.row(cells.len() - 1)),
        timestamps: (i64::MAX, i64::MIN),
        sequences: (u64::MAX, 0),
        cells: cells.len() as u64,
        deletes: 0,
        collected: (0, 0),
        origin: id,
        ingested_at: 0,
    };
    for cell in cells.iter() {
        record.timestamps = (record.timestamps.0.min(cell.timestamp), record.timestamps.1.max(cell.timestamp));
        record.sequences = (record.sequences.0.min(cell.sequence), record.sequences.1.max(cell.sequence));
        record.deletes += u64::from(cell.kind.is_delete());
    }
    record
}

impl FileSource for SortedCells {
    fn bytes_within(&self, bounds: &RowRange) -> Option<u64> {
        let within = self.range(bounds).len() as u64;
        let all = (self.cells().len() as u64).max(1);
        // The cells of one table are much alike.
        Some(self.cells().weight() * within / all)
    }

    fn samples(&self, bounds: &RowRange) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        const SAMPLES: usize = 256;
        let range = self.range(bounds);
        let step = range.len().div_ceil(SAMPLES).max(1);
        let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
        for first in range.clone().step_by(step) {
            let bytes = (first..range.end.min(first + step)).map(|at| self.cells().get(at).weight()).sum();
            samples.push((self.cells().row(first).to_vec(), bytes));
        }
        Ok(samples)
    }
}

fn encode(id: u64, family: &FamilyName, all: &Cells) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = Vec::new();
    header.u8(HEADER);
    header.u8(FORMAT);
    header.u64(id);
    frame(&mut out, &header);
    let mut cells = begin(family);
    for cell in all.iter() {
        write_cell(&mut cells, cell);
        if cells.len() >= FRAME_BYTES {
            frame(&mut out, &cells);
            cells = begin(family);
        }
    }
    frame(&mut out, &cells);
    let mut end = Vec::new();
    end.u8(END);
    end.u64(all.len() as u64);
    frame(&mut out, &end);
    out
}

fn begin(family: &FamilyName) -> Vec<u8> {
    let mut cells = Vec::new();
    cells.u8(CELLS);
    cells.bytes(family.as_bytes());
    cells
}

fn write_cell(out: &mut Vec<u8>, cell: Cell<'_>) {
    out.bytes(cell.row);
    out.bytes(cell.qualifier);
    out.i64(cell.timestamp);
    out.u64(cell.sequence);
    out.u32(cell.position);
    out.u8(cell.kind as u8);
    out.bytes(cell.tags);
    out.bytes(cell.value);
}

fn decode(path: &Path, id: u64, bytes: &[u8]) -> Result<Cells, Error> {
    let damage = |at: usize, what: &str| Error::damage(path.display().to_string(), at as u64, what);
    let mut cells = Cells::default();
    let (mut at, mut total) = (0, 0u64);
    loop {
        let payload = unframe(&bytes[at..]).ok_or_else(|| damage(at, "a frame fails its checksum"))?;
        let mut input = Reader::new(payload);
        let kind = input.u8();
        match kind {
            Some(HEADER) if at == 0 && input.u8() == Some(FORMAT) => {
                if input.u64() != Some(id) {
                    return Err(damage(at, "the file holds the cells of another file"));
                }
            }
            Some(CELLS) if at > 0 => {
                total +=
                    read_cells(&mut input, &mut cells).ok_or_else(|| damage(at, "a frame of cells is malformed"))?;
            }
            Some(END) if at > 0 => {
                let whole = at + FRAME_HEADER_BYTES + payload.len() == bytes.len();
                if input.u64() != Some(total) || !whole {
                    return Err(damage(at, "the file ends in the wrong place, or with the wrong number of cells"));
                }
                break;
            }
            _ => return Err(damage(at, "a frame has a kind or format that this build cannot read")),
        }
        at += FRAME_HEADER_BYTES + payload.len();
    }
    Ok(cells)
}

fn read_cells(input: &mut Reader<'_>, cells: &mut Cells) -> Option<u64> {
    FamilyName::new(std::str::from_utf8(input.bytes()?).ok()?).ok()?;
    let mut count = 0;
    while !input.is_empty() {
        let (row, qualifier) = (input.bytes()?, input.bytes()?);
        let (timestamp, sequence, position) = (input.i64()?, input.u64()?, input.u32()?);
        let kind = CellKind::from_u8(input.u8()?)?;
        let (tags, value) = (input.bytes()?, input.bytes()?);
        let cell = CellRef { family: &[], qualifier, timestamp, kind, tags, value };
        cells.push(Cell::of_mutation(row, cell, sequence, position));
        count += 1;
    }
    Some(count)
}
