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
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use terrane_env::fs::Disk;
use terrane_env::task;
use terrane_types::visibility::RulesHistory;
use terrane_types::{FamilyName, FamilySchema, GroupId, KeyRange, RegionId, TableId};

use crate::Error;
use crate::backend::{Backend, BackendKind};
use crate::block_cache::FamilyReadCounts;
use crate::checkpoint::Checkpoints;
use crate::compaction::{CompactionTotals, Pacing, Room};
use crate::flush::{inheritance, parts_of};
use crate::manifest::{FamilyRecord, Manifest, Record};
use crate::point::{DurablePoint, GroupPoint};
use crate::region::{Files, Frozen, Region, RegionSpec, seal};
use crate::source::Bounds;

/// How an engine is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its directory; made when absent.
    pub dir: PathBuf,
    /// What keeps the cells.
    pub backend: BackendKind,
    /// Memory for blocks read from files.
    pub cache_bytes: u64,
    /// Files open at once.
    pub open_files: usize,
    /// Bytes that compactions may read and write in a second while the writers are under no pressure: what is left of the
    /// disk is for reads.
    pub compaction_bytes_per_second: u64,
    /// Where the directory is.
    pub disk: Disk,
}

impl Options {
    /// Files open at once when nobody says otherwise.
    pub const OPEN_FILES_DEFAULT: usize = crate::descriptors::OPEN_FILES_MAX;

    /// What compactions may read and write in a second when nobody says otherwise: a quarter or less of what the disks of
    /// today give.
    pub const COMPACTION_BYTES_PER_SECOND_DEFAULT: u64 = 128 << 20;

    /// Options for a directory on the system's disk.
    #[must_use]
    pub fn new(dir: PathBuf, backend: BackendKind, cache_bytes: u64) -> Self {
        Self {
            dir,
            backend,
            cache_bytes,
            open_files: Self::OPEN_FILES_DEFAULT,
            compaction_bytes_per_second: Self::COMPACTION_BYTES_PER_SECOND_DEFAULT,
            disk: Disk::os(),
        }
    }
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
pub(crate) struct PendingSplit {
    pub(crate) parent: Arc<Region>,
    pub(crate) left: Arc<Region>,
    pub(crate) right: Arc<Region>,
    /// Whether it is recorded; held while somebody records it.
    pub(crate) recorded: tokio::sync::Mutex<bool>,
}

/// The data of one server.
pub struct Engine {
    regions: Mutex<BTreeMap<RegionId, Arc<Region>>>,
    /// By daughter.
    pub(crate) pending: Mutex<BTreeMap<RegionId, Arc<PendingSplit>>>,
    pub(crate) backend: Arc<Backend>,
    pub(crate) manifest: Arc<tokio::sync::Mutex<Manifest>>,
    groups: Mutex<BTreeMap<GroupId, GroupPoint>>,
    /// How hard writers are to be held back for compactions, in thousandths.
    pub(crate) pressure: AtomicU32,
    pub(crate) pacing: Mutex<Pacing>,
    pub(crate) totals: Mutex<CompactionTotals>,
    pub(crate) compaction_room: Room,
    stopping: AtomicBool,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) dir: PathBuf,
    pub(crate) disk: Disk,
}

impl Engine {
    /// Opens the engine's directory and brings back what its manifest says.
    ///
    /// # Errors
    /// [`Error::WrongEngine`], [`Error::Corruption`], or [`Error::Io`].
    pub async fn open(options: Options) -> Result<Arc<Self>, Error> {
        let opened = task::run_io(async move {
            let Options { dir, backend, disk, .. } = &options;
            disk.create_dir_all(dir).await.map_err(Error::io("make the engine's directory"))?;
            let manifest = Manifest::open(disk, dir, backend.name()).await?;
            Ok::<_, Error>((options, manifest))
        });
        let (options, manifest) = opened.await?;
        let backend = Backend::open(&options, manifest.contents()).await?;
        let checkpoints = Checkpoints::open(&options.disk, &options.dir).await?;
        let mut regions = BTreeMap::new();
        let files = backend.load(manifest.contents()).await?;
        for ((id, record), files) in manifest.contents().regions.iter().zip(files) {
            let region = Region::new(
                *id,
                record.table,
                record.range.clone(),
                record.families.clone(),
                record.point.clone(),
                files,
            );
            regions.insert(*id, Arc::new(region));
        }
        let groups = manifest.contents().groups.clone();
        Ok(Arc::new(Self {
            regions: Mutex::new(regions),
            pending: Mutex::default(),
            backend: Arc::new(backend),
            manifest: Arc::new(tokio::sync::Mutex::new(manifest)),
            groups: Mutex::new(groups),
            pressure: AtomicU32::new(0),
            pacing: Mutex::new(Pacing::new(
                options.compaction_bytes_per_second,
                Pacing::BURST_BYTES_DEFAULT,
                terrane_env::time::now_ns(),
            )),
            totals: Mutex::default(),
            compaction_room: Room::default(),
            stopping: AtomicBool::new(false),
            checkpoints,
            dir: options.dir,
            disk: options.disk,
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
        let family = |family: FamilySchema| {
            let rules = RulesHistory::new(family.rules);
            (family.name, FamilyRecord { since: 0, rules, storage: family.storage })
        };
        let families = spec.families.into_iter().map(family).collect();
        let point = DurablePoint { group: spec.group, ..DurablePoint::default() };
        let region = Arc::new(Region::new(spec.region, spec.table, spec.range, families, point, Files::new()));
        region.touch(index);
        self.regions.lock().insert(spec.region, Arc::clone(&region));
        region
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
        // One critical section from the freeze to the retirement. A flush between the two would record the parent under the
        // left daughter's point, which says that the split is done: after a crash the right daughter would not come back.
        let mut state = parent.state.write();
        if state.retired {
            return Err(Error::Retired { region: parent.id() });
        }
        // Everything the parent has in memory goes to both, under their own points.
        let index = left.point.index;
        parent.touch(index);
        let frozen = parent.freeze_in(&mut state, left.point.clone());
        let first_index = state.frozen.iter().map(|frozen| frozen.first_index).fold(index, u64::min);
        let families = state.families();
        let daughter = |side: SplitDaughter, range: KeyRange| {
            let bounds = Bounds { start: range.start.to_vec(), stop: range.end.to_vec() };
            let files = parts_of(&state, &bounds);
            let (tables, bytes) = inheritance(&state);
            let point = side.point;
            let region = parent.after_split(side.region, range, families.clone(), point.clone(), files);
            let frozen = Frozen { first_index, point, families: families.clone(), tables, bytes };
            let mut daughter = region.state.write();
            daughter.frozen.push(frozen);
            daughter.refresh();
            drop(daughter);
            region.set_prefix(parent.prefix());
            let (region_bytes, flush_bytes) = parent.sizes();
            region.set_sizes(region_bytes, flush_bytes);
            region.set_part_bytes(parent.part_bytes());
            Arc::new(region)
        };
        let (left, right) = (daughter(left, left_range), daughter(right, right_range));
        state.retired = true;
        // Still under the parent's lock: a flush of the parent that sees it retired finds the daughters.
        let split = Arc::new(PendingSplit::new(parent, &left, &right));
        let mut regions = self.regions.lock();
        let mut pending = self.pending.lock();
        regions.remove(&parent.id());
        for region in [&left, &right] {
            regions.insert(region.id(), Arc::clone(region));
            pending.insert(region.id(), Arc::clone(&split));
        }
        drop((regions, pending, state));
        seal(&frozen);
        Ok((left, right))
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
            let _flushing = region.recording.lock().await;
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
        self.clean_up().await;
        Ok(())
    }

    /// Puts one region in the place of others.
    pub(crate) fn replace_regions(&self, gone: &[RegionId], region: &Arc<Region>) {
        let mut regions = self.regions.lock();
        gone.iter().for_each(|id| drop(regions.remove(id)));
        regions.insert(region.id(), Arc::clone(region));
    }

    /// What reads of each family have met since the engine was opened; nothing where the engine counts nothing.
    #[must_use]
    pub fn family_reads(&self) -> Vec<(TableId, FamilyName, FamilyReadCounts)> {
        let Backend::Lsm(tables) = &*self.backend else { return Vec::new() };
        tables.reads().into_iter().map(|((table, family), reads)| (table, family, reads.counts())).collect()
    }

    /// Bytes of blocks in the cache.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        match &*self.backend {
            Backend::Lsm(tables) => tables.shared.cache.bytes(),
            _ => 0,
        }
    }

    /// Has compactions under way end soon, without a change. Nothing else is touched.
    pub fn stop_compactions(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Waits until what is being recorded is on disk. Nothing is flushed: who wants that asks for it.
    pub async fn shutdown(&self) {
        drop(self.manifest.lock().await);
    }

    pub(crate) async fn append(&self, record: Record) -> Result<(), Error> {
        let manifest = Arc::clone(&self.manifest);
        task::run_io(async move { manifest.lock().await.append(record).await }).await
    }
}

#[cfg(test)]
pub(crate) mod tests;
