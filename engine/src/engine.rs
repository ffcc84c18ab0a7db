//! The engine of one server: its regions, its manifest and its backend.
//!
//! # Order of things
//! - A flush writes and syncs cells, then appends one synced manifest record, and only then do memtables leave.
//! - A split is in memory first: the daughters take the parent's files and frozen memtables by reference. The flush of
//!   those memtables writes the one manifest record that replaces the parent. Before it, no daughter is flushed.
//! - What a crash leaves between is removed or repeated: files that the manifest does not name go at start, and the log
//!   is applied again from the recorded points.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use terrane_env::{fs, task};
use terrane_types::visibility::{Collector, Fate, RulesHistory};
use terrane_types::{FamilyName, GroupId, RegionId};

use crate::Error;
use crate::backend::{Backend, BackendKind, FlushCells};
use crate::cell::StoredCell;
use crate::file::StoreFile;
use crate::manifest::{FileRecord, Manifest, Record, RegionRecord};
use crate::memtable::Memtable;
use crate::point::{DurablePoint, GroupPoint};
use crate::read::sort_cells;
use crate::region::{Frozen, Region, RegionSpec};
use crate::source::Bounds;

/// Files of a region at which a flush writes them all anew as one.
const FILES_MAX: usize = 6;

/// How an engine is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its directory; made when absent.
    pub dir: PathBuf,
    /// What keeps the cells.
    pub backend: BackendKind,
    /// Memory for blocks read from files.
    pub cache_bytes: u64,
}

/// One side of a split.
#[derive(Clone, Debug)]
pub struct SplitDaughter {
    /// Its id.
    pub region: RegionId,
    /// Its point as of the split.
    pub point: DurablePoint,
}

/// A split that the manifest does not have yet.
struct PendingSplit {
    parent: Arc<Region>,
    left: Arc<Region>,
    right: Arc<Region>,
    /// Whether it is recorded; held while somebody records it.
    recorded: tokio::sync::Mutex<bool>,
}

/// The data of one server.
pub struct Engine {
    regions: Mutex<BTreeMap<RegionId, Arc<Region>>>,
    /// By daughter.
    pending: Mutex<BTreeMap<RegionId, Arc<PendingSplit>>>,
    backend: Arc<Backend>,
    manifest: Arc<tokio::sync::Mutex<Manifest>>,
    groups: Mutex<BTreeMap<GroupId, GroupPoint>>,
}

impl Engine {
    /// Opens the engine's directory and brings back what its manifest says.
    ///
    /// # Errors
    /// [`Error::WrongEngine`], [`Error::Corruption`], or [`Error::Io`].
    pub async fn open(options: Options) -> Result<Arc<Self>, Error> {
        let Options { dir, backend, cache_bytes } = options;
        let opened = task::run_io(async move {
            fs::create_dir_all(&dir).await.map_err(Error::io("make the engine's directory"))?;
            let manifest = Manifest::open(&dir, backend.name()).await?;
            Ok::<_, Error>((dir, manifest))
        });
        let (dir, manifest) = opened.await?;
        let backend = Backend::open(backend, &dir, cache_bytes, manifest.contents().files()).await?;
        let mut regions = BTreeMap::new();
        for (id, record) in &manifest.contents().regions {
            let files = backend.files_of(record)?;
            let region =
                Region::new(*id, record.table, record.range.clone(), record.rules.clone(), record.point.clone(), files);
            regions.insert(*id, Arc::new(region));
        }
        let groups = manifest.contents().groups.clone();
        Ok(Arc::new(Self {
            regions: Mutex::new(regions),
            pending: Mutex::default(),
            backend: Arc::new(backend),
            manifest: Arc::new(tokio::sync::Mutex::new(manifest)),
            groups: Mutex::new(groups),
        }))
    }

    /// Every region that is here, sorted by id.
    #[must_use]
    pub fn regions(&self) -> Vec<Arc<Region>> {
        self.regions.lock().values().cloned().collect()
    }

    /// The recorded state of a group.
    #[must_use]
    pub fn group_point(&self, group: GroupId) -> Option<GroupPoint> {
        self.groups.lock().get(&group).cloned()
    }

    /// The recorded state of every group.
    #[must_use]
    pub fn group_points(&self) -> Vec<(GroupId, GroupPoint)> {
        self.groups.lock().iter().map(|(group, point)| (*group, point.clone())).collect()
    }

    /// Records the state of a group; synced when this returns.
    ///
    /// # Errors
    /// [`Error::Io`]; the state is not durable then, and recording it again is safe.
    pub async fn record_group(&self, group: GroupId, point: GroupPoint) -> Result<(), Error> {
        self.append(Record::Group { group, point: point.clone() }).await?;
        self.groups.lock().insert(group, point);
        Ok(())
    }

    /// Makes a region whose creation is at `index` of its group's log. It is durable after its first flush.
    pub fn create(&self, spec: RegionSpec, index: u64) -> Arc<Region> {
        let rules = spec.families.into_iter().map(|family| (family.name, RulesHistory::new(family.rules))).collect();
        let point = DurablePoint { group: spec.group, ..DurablePoint::default() };
        let region = Arc::new(Region::new(spec.region, spec.table, spec.range, rules, point, Vec::new()));
        region.touch(index);
        self.regions.lock().insert(spec.region, Arc::clone(&region));
        region
    }

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
        let rewrites = self.backend.has_files() && files.len() + 1 >= FILES_MAX;
        let from_files = if rewrites { files.clone() } else { Vec::new() };
        let covers_older = rewrites || files.is_empty();
        let point = frozen.last().expect("frozen is not empty: checked under the lock").point.clone();
        let file = self.write_cells(region, &frozen, from_files, covers_older, &point).await?;
        let made = file.as_ref().map(|file| file.id);
        let kept = if rewrites { Vec::new() } else { files };
        let files = with_file(kept, file);
        if region.state.read().retired {
            // Split meanwhile: the daughters hold the same memtables and record them with the split.
            made.into_iter().for_each(|id| self.backend.settled(id));
            return self.remove_unnamed().await;
        }
        self.append(Record::Region(record_of(region, &point, &files))).await?;
        made.into_iter().for_each(|id| self.backend.settled(id));
        install(region, frozen.len(), files, point);
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
        // A flush of the parent that began before the split may still be about to record it. Behind the split's record that
        // would bring the parent back beside its daughters.
        let _parent = split.parent.flushing.lock().await;
        let left = self.write_daughter(&split.left).await?;
        let right = self.write_daughter(&split.right).await?;
        self.append(Record::Split {
            parent: split.parent.id(),
            left: record_of(&split.left, &left.1, &left.0),
            right: record_of(&split.right, &right.1, &right.0),
        })
        .await?;
        for file in left.0.iter().chain(&right.0) {
            self.backend.settled(file.id);
        }
        install(&split.left, 1, left.0, left.1);
        install(&split.right, 1, right.0, right.1);
        *recorded = true;
        self.pending.lock().retain(|_, waiting| waiting.parent.id() != split.parent.id());
        self.remove_unnamed().await
    }

    /// Writes what a daughter took over from its parent.
    async fn write_daughter(&self, region: &Arc<Region>) -> Result<(Vec<StoreFile>, DurablePoint), Error> {
        let (frozen, files) = {
            let state = region.state.read();
            (state.frozen[..1].to_vec(), state.files.clone())
        };
        let point = frozen[0].point.clone();
        let covers_older = files.is_empty();
        let file = self.write_cells(region, &frozen, Vec::new(), covers_older, &point).await?;
        Ok((with_file(files, file), point))
    }

    /// Splits a region at `at`, in memory: both daughters take its files and frozen memtables by reference and serve at
    /// once. The parent is retired.
    ///
    /// # Errors
    /// [`Error::Unsettled`] when the parent's own split is not recorded yet (see [`Engine::settle`]),
    /// [`Error::BadBoundary`], or [`Error::Retired`].
    pub fn split(
        &self,
        parent: &Arc<Region>,
        at: &[u8],
        left: SplitDaughter,
        right: SplitDaughter,
    ) -> Result<(Arc<Region>, Arc<Region>), Error> {
        if self.pending.lock().contains_key(&parent.id()) {
            return Err(Error::Unsettled { region: parent.id() });
        }
        let (left_range, right_range) =
            parent.range().split(at).map_err(|_| Error::BadBoundary { region: parent.id() })?;
        if parent.state.read().retired {
            return Err(Error::Retired { region: parent.id() });
        }
        // Everything the parent has in memory goes to both, under their own points.
        let index = left.point.index;
        parent.touch(index);
        parent.freeze(left.point.clone());
        let mut state = parent.state.write();
        let first_index = state.frozen.iter().map(|frozen| frozen.first_index).fold(index, u64::min);
        let mut tables: BTreeMap<FamilyName, Vec<Arc<Memtable>>> = BTreeMap::new();
        for frozen in &state.frozen {
            for (family, memtables) in &frozen.tables {
                tables.entry(family.clone()).or_default().extend(memtables.iter().cloned());
            }
        }
        let bytes = state.frozen.iter().map(|frozen| frozen.bytes).sum::<u64>() / 2;
        let rules: BTreeMap<_, _> =
            state.stores.iter().map(|(name, store)| (name.clone(), store.rules.clone())).collect();
        let daughter = |side: SplitDaughter, range: terrane_types::KeyRange| {
            let bounds = Bounds { start: range.start.to_vec(), stop: range.stop.to_vec() };
            // Kept until the split is recorded: a flush of the parent that is under way may write its files anew as one.
            state.files.iter().for_each(|file| self.backend.keep(file.id));
            let files = state.files.iter().map(|file| self.part_of(file, &bounds)).collect();
            let point = side.point;
            let region = Region::new(side.region, parent.table(), range, rules.clone(), point.clone(), files);
            region.state.write().frozen.push(Frozen { first_index, point, tables: tables.clone(), bytes });
            Arc::new(region)
        };
        let (left, right) = (daughter(left, left_range), daughter(right, right_range));
        state.retired = true;
        drop(state);
        let split = Arc::new(PendingSplit {
            parent: Arc::clone(parent),
            left: Arc::clone(&left),
            right: Arc::clone(&right),
            recorded: tokio::sync::Mutex::new(false),
        });
        let mut regions = self.regions.lock();
        let mut pending = self.pending.lock();
        regions.remove(&parent.id());
        for region in [&left, &right] {
            regions.insert(region.id(), Arc::clone(region));
            pending.insert(region.id(), Arc::clone(&split));
        }
        Ok((left, right))
    }

    /// A file as a daughter sees it: with the bytes inside of its bounds.
    fn part_of(&self, file: &StoreFile, bounds: &Bounds) -> StoreFile {
        let bytes = match &*self.backend {
            Backend::Memory(memory) => memory.bytes_within(file.id, bounds),
            // A split point halves a region by bytes.
            #[cfg(feature = "sled")]
            Backend::Sled(_) => file.bytes / 2,
        };
        StoreFile { id: file.id, bytes, families: Arc::clone(&file.families) }
    }

    /// Drops regions, with the state of their group as of then: one manifest record, then their cells.
    ///
    /// # Errors
    /// [`Error::Io`]; dropping them again is safe.
    pub async fn drop_regions(&self, regions: &[RegionId], group: GroupId, point: GroupPoint) -> Result<(), Error> {
        let mut dropped = Vec::new();
        for id in regions {
            // A daughter's split is recorded first: a record that names the parent must not bring it back later.
            let region = self.regions.lock().get(id).cloned();
            let Some(region) = region else { continue };
            self.settle(&region).await?;
            let _flushing = region.flushing.lock().await;
            region.state.write().retired = true;
            dropped.push(region.clone());
        }
        self.append(Record::Drop { regions: regions.to_vec(), group, point: point.clone() }).await?;
        self.groups.lock().insert(group, point);
        for region in dropped {
            self.regions.lock().remove(&region.id());
            let families = region.families();
            self.backend.drop_range(group, region.table(), families, region.bounds().clone()).await?;
        }
        self.remove_unnamed().await
    }

    /// Waits until what is being recorded is on disk. Nothing is flushed: who wants that asks for it.
    pub async fn shutdown(&self) {
        drop(self.manifest.lock().await);
    }

    async fn append(&self, record: Record) -> Result<(), Error> {
        let manifest = Arc::clone(&self.manifest);
        task::run_io(async move { manifest.lock().await.append(record).await }).await
    }

    async fn remove_unnamed(&self) -> Result<(), Error> {
        let spared = self.backend.spared();
        let named = self.manifest.lock().await.contents().files();
        let backend = Arc::clone(&self.backend);
        task::run_io(async move { backend.retain(named, spared).await }).await
    }

    /// Collects frozen memtables (and files, when they are written anew) and hands what is left to the backend.
    async fn write_cells(
        &self,
        region: &Arc<Region>,
        frozen: &[Frozen],
        files: Vec<StoreFile>,
        covers_older: bool,
        point: &DurablePoint,
    ) -> Result<Option<StoreFile>, Error> {
        let bounds = region.bounds().clone();
        let rules: BTreeMap<FamilyName, RulesHistory> = {
            let state = region.state.read();
            state.stores.iter().map(|(family, store)| (family.clone(), store.rules.clone())).collect()
        };
        let oldest_snapshot = region.snapshots.begin_collection().min(point.sequence);
        let tables: Vec<_> = frozen.iter().flat_map(|frozen| frozen.tables.clone()).collect();
        let log_time = i64::try_from(point.stamp).unwrap_or(i64::MAX);
        let collected = task::run_blocking(move || {
            let mut families = BTreeMap::new();
            for (family, rules) in rules {
                let mut cells = Vec::new();
                for table in tables.iter().filter(|(name, _)| *name == family).flat_map(|(_, tables)| tables) {
                    cells.extend(table.within(&bounds));
                }
                for source in files.iter().filter_map(|file| file.source(&family)) {
                    source.chunk(&bounds, false, usize::MAX, &mut cells)?;
                }
                sort_cells(&mut cells);
                let mut collector = Collector::new(&rules, oldest_snapshot, log_time, covers_older);
                families.insert(family, collect(&mut collector, cells));
            }
            Ok::<_, Error>(families)
        });
        let cells = FlushCells { group: point.group, table: region.table(), families: collected.await? };
        if cells.is_empty() { Ok(None) } else { self.backend.write(cells).await.map(Some) }
    }
}

/// Leaves out what no reader will notice.
fn collect(collector: &mut Collector, cells: Vec<StoredCell>) -> Vec<StoredCell> {
    let mut kept = Vec::with_capacity(cells.len());
    let mut metas = Vec::new();
    let mut rest = cells.as_slice();
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

fn record_of(region: &Region, point: &DurablePoint, files: &[StoreFile]) -> RegionRecord {
    let state = region.state.read();
    RegionRecord {
        region: region.id(),
        table: region.table(),
        range: region.range().clone(),
        point: point.clone(),
        rules: state.stores.iter().map(|(family, store)| (family.clone(), store.rules.clone())).collect(),
        files: files.iter().map(|file| FileRecord { id: file.id, bytes: file.bytes }).collect(),
    }
}

/// Lets flushed memtables go and the files come in, at one moment for readers.
fn install(region: &Region, flushed: usize, files: Vec<StoreFile>, point: DurablePoint) {
    let mut state = region.state.write();
    state.frozen.drain(..flushed);
    state.files = files;
    state.point = point;
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
