//! The sled backend: flushed cells go to one sled tree per (group, table, family).
//!
//! A region is a range of the tree, so a split copies nothing. Keys order cells as bytes in store order and contain the
//! sequence number: a flush that is repeated after a crash writes the same keys again.
//!
//! sled's own `flush` does not reach the disk on every system, so after it **every file of its directory and the
//! directory are synced** before the flush counts. A sled directory that does not open is damaged: nothing of it is
//! served.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod keys;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use terrane_env::{fs, task};
use terrane_types::{FamilyName, GroupId, TableId};

use self::keys::{escape, key_of, read_cell, row_start, sequence_of, value_of};
use super::{CellStore, FamilyKey, FamilyWriter, WriterTarget};
use crate::Error;
use crate::boxed::BoxFuture;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::levels::{FileRef, FileSource, Levels};
use crate::manifest::{Contents, FileRecord};
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source};

/// Cells per sled batch: enough to spread its cost, and far below its limits.
const BATCH_CELLS: usize = 1_024;
/// Keys examined per step when cells are removed.
const REMOVE_STEP: usize = 4_096;
/// How often, and at what interval, a lock that is still held is tried again.
const LOCK_RETRIES: u32 = 50;
const LOCK_RETRY: std::time::Duration = std::time::Duration::from_millis(20);
/// Cells of the first chunk; each later one is twice as large, up to the last.
const CHUNK_CELLS_MIN: usize = 64;
const CHUNK_CELLS_MAX: usize = 1_024;
/// Bytes in the longest chunk, which holds whole rows: offsets in it have 32 bits.
const CHUNK_BYTES_MAX: usize = 1 << 30;
/// The prefix of the engine's tree names; sled has a tree of its own.
const TREE_PREFIX: &str = "g";

/// The open sled of one server.
pub(crate) struct SledBackend {
    dir: PathBuf,
    db: sled::Db,
}

impl SledBackend {
    /// Opens sled and drops the trees that no region in the manifest has: their cells were dropped, or never recorded.
    pub(crate) async fn open(dir: &Path, cache_bytes: u64, contents: &Contents) -> Result<Self, Error> {
        let dir = dir.join("sled");
        fs::create_dir_all(&dir).await.map_err(Error::io("create sled's directory"))?;
        let path = dir.clone();
        let open = move || {
            // No timer of its own: a flush decides when bytes reach the disk.
            sled::Config::new().path(&path).cache_capacity(cache_bytes).flush_every_ms(None).open()
        };
        let mut opened = task::run_blocking(open.clone()).await;
        // Threads of a sled that was dropped a moment ago in this process may still hold its lock; the engine's own
        // directory is locked by its process, so no other process can.
        for _ in 0..LOCK_RETRIES {
            if !matches!(&opened, Err(sled::Error::Io(error)) if error.kind() == std::io::ErrorKind::Other) {
                break;
            }
            tokio::time::sleep(LOCK_RETRY).await;
            opened = task::run_blocking(open.clone()).await;
        }
        let db = opened.map_err(|error| Error::damage(&dir, 0, format!("sled does not open: {error}")))?;
        // sled creates what is missing: an empty directory in place of one with cells would read as if nothing had been
        // there.
        if !db.was_recovered() && contents.regions.values().any(|region| !region.files.values().all(Vec::is_empty)) {
            return Err(Error::damage(&dir, 0, "the manifest names cells, but sled's files are missing"));
        }
        let backend = Self { dir, db };
        backend.drop_unnamed_trees(contents).await?;
        Ok(backend)
    }

    async fn drop_unnamed_trees(&self, contents: &Contents) -> Result<(), Error> {
        let mut named = BTreeSet::new();
        for region in contents.regions.values() {
            named.extend(region.families.keys().map(|family| tree_name(region.point.group, region.table, family)));
        }
        for name in self.db.tree_names() {
            let ours = std::str::from_utf8(&name).is_ok_and(|name| name.starts_with(TREE_PREFIX));
            if !ours || std::str::from_utf8(&name).is_ok_and(|name| named.contains(name)) {
                continue;
            }
            let db = self.db.clone();
            let dropped = task::run_blocking(move || db.drop_tree(name)).await;
            dropped.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    fn source(&self, key: FamilyKey<'_>) -> Result<Arc<SledSource>, Error> {
        let tree = self.db.open_tree(tree_name(key.group, key.table, key.family));
        Ok(Arc::new(SledSource { dir: self.dir.clone(), tree: tree.map_err(|error| self.failed(&error))? }))
    }

    fn failed(&self, error: &sled::Error) -> Error {
        failed(&self.dir, error)
    }
}

impl CellStore for SledBackend {
    /// A tree is the same file for all regions of the table.
    fn load<'a>(
        &'a self,
        _record: &'a FileRecord,
        key: FamilyKey<'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSource>, Error>> {
        Box::pin(async move { Ok(self.source(key)? as Arc<dyn FileSource>) })
    }

    fn writer(&self, target: WriterTarget<'_>) -> Result<Box<dyn FamilyWriter>, Error> {
        Ok(Box::new(SledWriter { source: self.source(target.key)?, cells: Cells::default() }))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let db = self.db.clone();
            let flushed = task::run_blocking(move || db.flush()).await;
            flushed.map_err(|error| self.failed(&error))?;
            let dir = self.dir.clone();
            task::run_io(async move { sync_all(&dir).await }).await
        })
    }

    /// Trees hold the cells of all regions, and no part of a file is there twice.
    fn linked<'a>(&'a self, file: &'a FileRef, _key: FamilyKey<'a>) -> BoxFuture<'a, Result<Option<FileRef>, Error>> {
        Box::pin(async move { Ok(Some(file.clone())) })
    }

    /// A tree counts as one file, with the bytes of all flushes.
    fn with_files(&self, before: Levels, made: Vec<FileRef>, bounds: &RowRange) -> Levels {
        let Some(new) = made.into_iter().next() else { return before };
        let mut record = (*new.record).clone();
        if let Some(older) = before.level0.first() {
            record.bytes += older.record.bytes;
            record.cells += older.record.cells;
            record.first_row = record.first_row.min(older.record.first_row.clone());
            record.last_row = record.last_row.max(older.record.last_row.clone());
        }
        record.bounds = bounds.clone();
        Levels { level0: vec![FileRef { record: Arc::new(record), source: new.source }], below: Vec::new() }
    }

    fn remove(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: RowRange,
        above: Option<u64>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            for family in families {
                let source = self.source(FamilyKey { group, table, family: &family })?;
                let mut from = Some(row_start(&bounds.start));
                while let Some(start) = from {
                    let (tree, end) = (source.tree.clone(), bounds.end.clone());
                    let step = task::run_blocking(move || remove_step(&tree, start, &end, above)).await;
                    from = step.map_err(|error| self.failed(&error))?;
                }
            }
            Ok(())
        })
    }
}

/// Removes cells from the next keys on; returns where to continue.
fn remove_step(
    tree: &sled::Tree,
    start: Vec<u8>,
    end: &[u8],
    above: Option<u64>,
) -> Result<Option<Vec<u8>>, sled::Error> {
    let mut batch = sled::Batch::default();
    let mut last = None;
    let mut count = 0;
    for key in range_from(tree, start, end).keys().take(REMOVE_STEP) {
        let key = key?;
        if above.is_none_or(|above| sequence_of(&key).is_some_and(|sequence| sequence > above)) {
            batch.remove(&key);
        }
        last = Some(key);
        count += 1;
    }
    tree.apply_batch(batch)?;
    Ok(last.filter(|_| count == REMOVE_STEP).map(|key| [&*key, &[0]].concat()))
}

fn tree_name(group: GroupId, table: TableId, family: &FamilyName) -> String {
    format!("{TREE_PREFIX}{}.t{}.{family}", group.0, table.0)
}

/// Syncs every file below `dir` and the directories themselves.
async fn sync_all(dir: &Path) -> Result<(), Error> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for name in fs::list(&dir).await.map_err(Error::io(format!("list {}", dir.display())))? {
            let path = dir.join(name);
            // sled removes and renames its own files while it works; what is gone needs no sync.
            match fs::File::open_read(&path).await {
                Ok(file) => match file.sync_all().await {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(Error::io(format!("sync {}", path.display()))(error)),
                },
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => dirs.push(path),
                Err(error) => return Err(Error::io(format!("open {}", path.display()))(error)),
            }
        }
        fs::sync_dir(&dir).await.map_err(Error::io(format!("sync {}", dir.display())))?;
    }
    Ok(())
}

fn failed(dir: &Path, error: &sled::Error) -> Error {
    Error::damage(dir.display().to_string(), 0, format!("sled reports: {error}"))
}

/// The cells of one tree.
struct SledSource {
    dir: PathBuf,
    tree: sled::Tree,
}

impl SledSource {
    /// Appends one cell.
    fn read(&self, item: sled::Result<(sled::IVec, sled::IVec)>, out: &mut Cells) -> Result<(), Error> {
        let (key, value) = item.map_err(|error| failed(&self.dir, &error))?;
        read_cell(&key, &value, out)
            .ok_or_else(|| Error::damage(self.dir.display().to_string(), 0, "a malformed cell in sled"))
    }
}

impl Source for SledSource {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        let mark = out.mark();
        let mut prefix = Vec::with_capacity(lookup.key.row.len() + 2);
        escape(&mut prefix, lookup.key.row);
        for item in self.tree.scan_prefix(&prefix) {
            if out.has_grown(mark, lookup.bytes_max) {
                return Ok(false);
            }
            if let Err(error) = self.read(item, out) {
                out.rewind(mark);
                return Err(error);
            }
        }
        Ok(true)
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, _reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        let mut cursor = SledCursor {
            source: self,
            bounds: bounds.clone(),
            reverse,
            chunk: Cells::default(),
            left: 0..0,
            taken: 0,
            chunk_cells: CHUNK_CELLS_MIN,
        };
        cursor.refill()?;
        Ok(Box::new(cursor))
    }
}

/// A sled tree cannot tell what a range holds.
impl FileSource for SledSource {
    fn bytes_within(&self, _bounds: &RowRange) -> Option<u64> {
        None
    }

    fn samples(&self, bounds: &RowRange) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        const SAMPLES_MAX: usize = 1_024;
        let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
        let (mut step, mut in_sample) = (1, 0);
        let mut cells = Cells::default();
        for item in range_of(&self.tree, bounds) {
            cells.clear();
            self.read(item, &mut cells)?;
            let cell = cells.get(0);
            let bytes_of_cell = cell.weight();
            match samples.last_mut() {
                Some((row, bytes)) if in_sample < step || row.as_slice() == cell.row => *bytes += bytes_of_cell,
                _ => {
                    samples.push((cell.row.to_vec(), bytes_of_cell));
                    in_sample = 0;
                }
            }
            in_sample += 1;
            if samples.len() == SAMPLES_MAX {
                // Merges pairs of samples, so that their number stays bounded whatever the tree holds.
                step *= 2;
                samples =
                    samples.chunks(2).map(|pair| (pair[0].0.clone(), pair.iter().map(|one| one.1).sum())).collect();
            }
        }
        Ok(samples)
    }
}

/// Reads a tree in chunks of whole rows, each twice as large as the one before, up to a bound.
struct SledCursor {
    source: Arc<SledSource>,
    /// What no chunk has had yet.
    bounds: RowRange,
    reverse: bool,
    /// In store order.
    chunk: Cells,
    left: std::ops::Range<usize>,
    /// How many cells of the current row were taken.
    taken: usize,
    chunk_cells: usize,
}

impl SledCursor {
    fn refill(&mut self) -> Result<(), Error> {
        self.chunk.clear();
        self.left = 0..0;
        self.taken = 0;
        if self.bounds.is_empty() {
            return Ok(());
        }
        let mut range = range_of(&self.source.tree, &self.bounds);
        let mut next = || if self.reverse { range.next_back() } else { range.next() };
        while let Some(item) = next() {
            self.source.read(item, &mut self.chunk)?;
            if self.chunk.data_bytes() > CHUNK_BYTES_MAX {
                let what =
                    "a row of more than 1 GiB, which sled cannot return in parts; copy the table to --engine lsm";
                return Err(Error::damage(self.source.dir.display().to_string(), 0, what));
            }
            let len = self.chunk.len();
            if len > self.chunk_cells && self.chunk.row(len - 1) != self.chunk.row(len - 2) {
                self.chunk.truncate(len - 1);
                break;
            }
        }
        if self.chunk.is_empty() {
            return Ok(());
        }
        let last = self.chunk.row(self.chunk.len() - 1).to_vec();
        if self.reverse {
            self.bounds.end = last;
            self.chunk.sort_from(0);
        } else {
            self.bounds.start = last;
            self.bounds.start.push(0);
        }
        self.left = 0..self.chunk.len();
        self.chunk_cells = (self.chunk_cells * 2).min(CHUNK_CELLS_MAX);
        Ok(())
    }

    fn at(&self) -> Option<usize> {
        if self.left.is_empty() {
            return None;
        }
        Some(if self.reverse { self.left.end - 1 } else { self.left.start })
    }
}

impl SledCursor {
    /// The cells of the current row.
    fn of_row(&self) -> std::ops::Range<usize> {
        let Some(at) = self.at() else { return self.left.clone() };
        let same = |other: &usize| self.chunk.row(*other) == self.chunk.row(at);
        if self.reverse {
            self.left.end - self.left.clone().rev().take_while(same).count()..self.left.end
        } else {
            at..at + self.left.clone().take_while(same).count()
        }
    }

    /// Those that were not taken yet.
    fn rest(&self) -> std::ops::Range<usize> {
        let of_row = self.of_row();
        of_row.start + self.taken..of_row.end
    }

    fn leave_row(&mut self) -> Result<(), Error> {
        let of_row = self.of_row();
        self.taken = 0;
        if self.reverse {
            self.left.end = of_row.start;
        } else {
            self.left.start = of_row.end;
        }
        if self.left.is_empty() && !of_row.is_empty() {
            self.refill()?;
        }
        Ok(())
    }
}

impl Cursor for SledCursor {
    fn row(&self) -> Option<&[u8]> {
        self.at().map(|at| self.chunk.row(at))
    }

    fn skip(&mut self) -> Result<(), Error> {
        self.leave_row()
    }

    fn take(&mut self, _sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        let rest = self.rest();
        let mark = out.mark();
        for at in rest.clone() {
            if out.has_grown(mark, bytes_max) {
                self.taken = at - self.of_row().start;
                return Ok(false);
            }
            out.push(self.chunk.get(at));
        }
        self.leave_row()?;
        Ok(true)
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        let rest = self.rest();
        let below = rest.clone().take_while(|at| self.chunk.get(*at).qualifier < qualifier).count();
        if below == rest.len() {
            return self.leave_row();
        }
        self.taken += below;
        Ok(())
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        let is_behind = self.row().is_some_and(|at| if self.reverse { at > row } else { at < row });
        if is_behind {
            let bounds = if self.reverse {
                RowRange { start: Vec::new(), end: [row, &[0]].concat() }
            } else {
                RowRange { start: row.to_vec(), end: Vec::new() }
            };
            // The rest of the chunk is read again where it lies within the new bounds.
            let mut all = self.bounds.clone();
            if self.reverse {
                all.end.clear();
            } else {
                all.start.clear();
            }
            self.bounds = all.intersect(&bounds);
            self.refill()?;
        }
        Ok(())
    }
}

/// Gathers the cells of one family's flush.
struct SledWriter {
    source: Arc<SledSource>,
    cells: Cells,
}

impl FamilyWriter for SledWriter {
    fn add(&mut self, cell: Cell<'_>) {
        self.cells.push(cell);
    }

    fn finish(self: Box<Self>, bounds: &RowRange) -> BoxFuture<'_, Result<Vec<FileRef>, Error>> {
        Box::pin(async move { Ok(self.write(bounds)?.into_iter().collect()) })
    }
}

impl SledWriter {
    fn write(self, bounds: &RowRange) -> Result<Option<FileRef>, Error> {
        if self.cells.is_empty() {
            return Ok(None);
        }
        let mut batch = sled::Batch::default();
        let mut in_batch = 0;
        for cell in self.cells.iter() {
            batch.insert(key_of(cell), value_of(cell));
            in_batch += 1;
            if in_batch == BATCH_CELLS {
                self.apply(std::mem::take(&mut batch))?;
                in_batch = 0;
            }
        }
        self.apply(batch)?;
        let record = FileRecord {
            id: 0,
            level: 0,
            size: 0,
            bytes: self.cells.weight(),
            bounds: bounds.clone(),
            first_row: Bytes::copy_from_slice(self.cells.row(0)),
            last_row: Bytes::copy_from_slice(self.cells.row(self.cells.len() - 1)),
            // A tree holds the cells of all flushes, so nothing is known of it as a whole.
            timestamps: (i64::MIN, i64::MAX),
            sequences: (0, u64::MAX),
            cells: self.cells.len() as u64,
            deletes: 0,
            collected: (0, 0),
            origin: 0,
            ingested_at: 0,
        };
        Ok(Some(FileRef { record: Arc::new(record), source: self.source }))
    }

    fn apply(&self, batch: sled::Batch) -> Result<(), Error> {
        self.source.tree.apply_batch(batch).map_err(|error| failed(&self.source.dir, &error))
    }
}

fn range_of(tree: &sled::Tree, bounds: &RowRange) -> sled::Iter {
    range_from(tree, row_start(&bounds.start), &bounds.end)
}

fn range_from(tree: &sled::Tree, start: Vec<u8>, end: &[u8]) -> sled::Iter {
    if end.is_empty() { tree.range(start..) } else { tree.range(start..row_start(end)) }
}
