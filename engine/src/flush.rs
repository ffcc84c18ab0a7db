//! Flushes: what is frozen of a region goes to the backend, then one manifest record says so, then the memory is let go.
//!
//! # What else may happen meanwhile
//! - Writes, reads and freezes of the region go on: a flush works on what was frozen when it began.
//! - A split of the region takes microseconds and waits for nobody. A flush that finds the region split when it is about
//!   to record leaves its cells to the daughters; one that is split while its record is written hands down what it
//!   flushed. Recording the split waits for that flush, so the parent's record never comes after the split's.
//! - A crash, or an error. Files that were not recorded go at the next start. Cells in sled trees have no file of their own
//!   to go with: `Region::unrecorded` remembers that there may be some, and the next flush removes them first. They could
//!   not stay: a flush with everything older at hand drops deletes together with what they deleted, and cells of an
//!   earlier attempt would come back to life.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrane_env::task;
use terrane_types::FamilyName;
use terrane_types::visibility::{Collector, Fate};

use crate::Error;
use crate::backend::FlushCells;
use crate::cell::StoredCell;
use crate::engine::{Engine, PendingSplit};
use crate::file::StoreFile;
use crate::manifest::{FileRecord, Record, RegionRecord};
use crate::memtable::Memtable;
use crate::read::sort_cells;
use crate::region::{Frozen, Region, State};

/// Files of a region at which a flush writes them all anew as one.
pub(crate) const FILES_MAX: usize = 6;

impl Engine {
    /// Writes what is frozen of a region, records its last frozen point, and lets the memtables go. With nothing frozen
    /// it does nothing. A split that the region came from is recorded first.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing was recorded, the cells are still in memory, and trying again is safe.
    pub async fn flush(&self, region: &Arc<Region>) -> Result<(), Error> {
        self.settle(region).await?;
        let _flushing = region.flushing.lock().await;
        let (frozen, files) = {
            let state = region.state.read();
            if state.retired || state.frozen.is_empty() {
                return Ok(());
            }
            (state.frozen.clone(), state.files.clone())
        };
        self.remove_unrecorded(region).await?;
        let rewrites = self.backend.has_files() && files.len() + 1 >= FILES_MAX;
        let from_files = if rewrites { files.clone() } else { Vec::new() };
        let covers_older = rewrites || files.is_empty();
        let file = self.write_cells(region, &frozen, from_files, covers_older).await?;
        let made = file.as_ref().map(|file| file.id);
        let files = with_file(if rewrites { Vec::new() } else { files }, file);
        if region.state.read().retired {
            // Split meanwhile: the daughters hold the same memtables and record them with the split.
            made.into_iter().for_each(|id| self.backend.settled(id));
            return self.remove_unnamed().await;
        }
        let last = frozen.last().expect("frozen is not empty: checked under the lock");
        self.append(Record::Region(record_of(region, last, &files))).await?;
        made.into_iter().for_each(|id| self.backend.settled(id));
        if install(region, &frozen, files) {
            self.hand_down(region);
        }
        if rewrites { self.remove_unnamed().await } else { Ok(()) }
    }

    /// Records the split that a region came from, when that is still to be done.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub async fn settle(&self, region: &Arc<Region>) -> Result<(), Error> {
        let pending = self.pending.lock().get(&region.id()).cloned();
        let Some(split) = pending else { return Ok(()) };
        let mut recorded = split.recorded.lock().await;
        if *recorded {
            return Ok(());
        }
        // A flush of the parent that began before the split ends first, one way or the other.
        let _flushing = split.parent.flushing.lock().await;
        self.remove_unrecorded(&split.parent).await?;
        let left = self.write_daughter(&split.left).await?;
        let right = self.write_daughter(&split.right).await?;
        self.append(Record::Split {
            parent: split.parent.id(),
            daughters: Box::new([
                record_of(&split.left, &left.0, &left.1),
                record_of(&split.right, &right.0, &right.1),
            ]),
        })
        .await?;
        for (region, (frozen, files)) in [(&split.left, left), (&split.right, right)] {
            files.iter().for_each(|file| self.backend.settled(file.id));
            install(region, &[frozen], files);
        }
        *recorded = true;
        self.pending.lock().retain(|_, waiting| waiting.parent.id() != split.parent.id());
        self.remove_unnamed().await
    }

    /// Writes what a daughter took over from its parent.
    async fn write_daughter(&self, region: &Arc<Region>) -> Result<(Frozen, Vec<StoreFile>), Error> {
        let (frozen, files) = {
            let state = region.state.read();
            (state.frozen[0].clone(), state.files.clone())
        };
        let covers_older = files.is_empty();
        let file = self.write_cells(region, std::slice::from_ref(&frozen), Vec::new(), covers_older).await?;
        Ok((frozen, with_file(files, file)))
    }

    /// The parent was split while its flush was being recorded: what the daughters took is in a file now.
    fn hand_down(&self, parent: &Region) {
        let split = self.pending.lock().values().find(|split| split.parent.id() == parent.id()).cloned();
        let Some(split) = split else { return };
        let from = parent.state.read();
        for daughter in [&split.left, &split.right] {
            let mut state = daughter.state.write();
            state.files = self.parts_of(&from.files, daughter.bounds());
            let (tables, bytes) = inheritance(&from);
            // The first is what came from the parent, until the split is recorded.
            state.frozen[0].tables = tables;
            state.frozen[0].bytes = bytes;
        }
    }

    /// Removes cells of flushes that were never recorded, and notes that another begins. The caller holds `flushing`.
    async fn remove_unrecorded(&self, region: &Region) -> Result<(), Error> {
        if !region.unrecorded.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let point = region.point();
        self.backend
            .remove_above(point.group, region.table(), region.families(), region.bounds().clone(), point.sequence)
            .await
    }

    /// Removes files that neither the manifest nor a flush under way knows.
    pub(crate) async fn remove_unnamed(&self) -> Result<(), Error> {
        // In this order: what is no longer spared was settled before the look at the manifest.
        let spared = self.backend.spared();
        let named = self.manifest.lock().await.contents().files();
        let backend = Arc::clone(&self.backend);
        task::run_io(async move { backend.retain(named, spared).await }).await
    }

    /// Collects frozen memtables (and files, when they are written anew) and hands what is left to the backend.
    async fn write_cells(
        &self,
        region: &Region,
        frozen: &[Frozen],
        files: Vec<StoreFile>,
        covers_older: bool,
    ) -> Result<Option<StoreFile>, Error> {
        let last = frozen.last().expect("whoever flushes has something frozen");
        let point = last.point.clone();
        let (bounds, families) = (region.bounds().clone(), last.families.clone());
        let oldest_snapshot = region.snapshots.begin_collection().min(point.sequence);
        // Newest first, as everywhere.
        let tables: Vec<_> = frozen.iter().rev().flat_map(|frozen| frozen.tables.clone()).collect();
        let log_time = i64::try_from(point.stamp).unwrap_or(i64::MAX);
        let collected = task::run_blocking(move || {
            let mut kept = BTreeMap::new();
            for (name, family) in families {
                let mut cells = Vec::new();
                for table in tables.iter().filter(|(of, _)| *of == name).flat_map(|(_, tables)| tables) {
                    cells.extend(table.within(&bounds));
                }
                for source in files.iter().rev().filter_map(|file| file.source(&name)) {
                    source.chunk(&bounds, false, usize::MAX, &mut cells)?;
                }
                cells.retain(|cell| cell.sequence() >= family.since);
                sort_cells(&mut cells);
                let mut collector = Collector::new(&family.rules, oldest_snapshot, log_time, covers_older);
                kept.insert(name, collect(&mut collector, &cells));
            }
            Ok::<_, Error>(kept)
        });
        let cells = FlushCells { group: point.group, table: region.table(), families: collected.await? };
        if cells.is_empty() { Ok(None) } else { self.backend.write(cells).await.map(Some) }
    }
}

/// Everything that a region has in memory, as its daughters take it over, with about the bytes of each one's half.
pub(crate) fn inheritance(parent: &State) -> (BTreeMap<FamilyName, Vec<Arc<Memtable>>>, u64) {
    let mut tables: BTreeMap<FamilyName, Vec<Arc<Memtable>>> = BTreeMap::new();
    for (family, memtables) in parent.frozen.iter().flat_map(|frozen| &frozen.tables) {
        tables.entry(family.clone()).or_default().extend(memtables.iter().cloned());
    }
    (tables, parent.frozen.iter().map(|frozen| frozen.bytes).sum::<u64>() / 2)
}

impl PendingSplit {
    pub(crate) fn new(parent: &Arc<Region>, left: &Arc<Region>, right: &Arc<Region>) -> Self {
        Self {
            parent: Arc::clone(parent),
            left: Arc::clone(left),
            right: Arc::clone(right),
            recorded: tokio::sync::Mutex::new(false),
        }
    }
}

/// Leaves out what no reader will notice.
fn collect(collector: &mut Collector, cells: &[StoredCell]) -> Vec<StoredCell> {
    let mut kept = Vec::with_capacity(cells.len());
    let mut metas = Vec::new();
    let mut rest = cells;
    let mut row: &[u8] = &[];
    while let Some(first) = rest.first() {
        let (column, after) = rest.split_at(rest.iter().take_while(|cell| cell.same_column(first)).count());
        rest = after;
        if first.row() != row {
            row = first.row();
            collector.start_row();
        }
        metas.clear();
        metas.extend(column.iter().map(StoredCell::meta));
        for (cell, fate) in column.iter().zip(collector.column(&metas)) {
            match fate {
                Fate::Keep => kept.push(cell.clone()),
                Fate::Stub => kept.push(cell.stub()),
                Fate::Drop => {}
            }
        }
    }
    kept
}

/// A backend with one file for all (sled's trees) gets it once, with the bytes added up.
fn with_file(mut files: Vec<StoreFile>, file: Option<StoreFile>) -> Vec<StoreFile> {
    let Some(mut file) = file else { return files };
    if let Some(at) = files.iter().position(|older| older.id == file.id) {
        let older = files.remove(at);
        file.bytes += older.bytes;
        let mut families = (*older.families).clone();
        families.extend(file.families.iter().map(|(name, source)| (name.clone(), Arc::clone(source))));
        file.families = Arc::new(families);
    }
    files.push(file);
    files
}

fn record_of(region: &Region, frozen: &Frozen, files: &[StoreFile]) -> RegionRecord {
    RegionRecord {
        region: region.id(),
        table: region.table(),
        range: region.range().clone(),
        point: frozen.point.clone(),
        families: frozen.families.clone(),
        files: files.iter().map(|file| FileRecord { id: file.id, bytes: file.bytes }).collect(),
    }
}

/// Lets flushed memtables go and the files come in, at one moment for readers. Answers whether the region was split before
/// that moment.
fn install(region: &Region, flushed: &[Frozen], files: Vec<StoreFile>) -> bool {
    let mut state = region.state.write();
    state.frozen.drain(..flushed.len());
    state.files = files;
    state.point = flushed.last().expect("whoever flushes has something frozen").point.clone();
    region.unrecorded.store(false, Ordering::Release);
    state.retired
}
