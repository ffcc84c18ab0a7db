//! The engine of one server: its regions, its manifest and its backend.
//!
//! - `flush`, `split`, `compact`, `ingest`: the operations that end in a manifest record.
//! - `checkpoint`: a region's files held for a copy.
//! - `group_copy`, `install`: a whole group, from one server to another.
//! - `region_copy`: one region, from one group to another.
//! - `cleanup`: removing files that nothing needs any more.
//!
//! # Order of things
//! - A flush writes and syncs cells, then appends one synced manifest record, and only then are memtables freed.
//! - A split is in memory first: the daughters take the parent's files and frozen memtables by reference. The flush of
//!   those memtables writes the one manifest record that replaces the parent. Before it, no daughter is flushed. A merge of
//!   two neighbours is the same with two parents and one new region.
//! - An operation that ends in a record runs to its end even if its caller gives up: otherwise the record would be on disk, and
//!   memory as before it.
//! - What a crash leaves half done is removed or repeated: files that the manifest does not name are removed at start, and
//!   the log is applied again from the recorded points.

mod checkpoint;
mod cleanup;
mod compact;
mod flush;
pub(crate) mod group_copy;
pub(crate) mod ingest;
mod install;
pub(crate) mod region_copy;
mod split;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use terrane_env::fs::Disk;
use terrane_env::sync::Mutex;
use terrane_env::task;
use terrane_types::visibility::RulesHistory;
use terrane_types::{FamilyName, FamilySchema, GroupId, RegionId, TableId};

use self::checkpoint::Checkpoints;
pub use self::checkpoint::{Checkpoint, CheckpointFile};
pub use self::compact::Compaction;
pub use self::group_copy::{CopiedFile, GroupContents, GroupCopy};
pub use self::ingest::IngestFile;
pub use self::install::StagedGroup;
pub use self::region_copy::{RegionContents, RegionCopy, StagedRegion};
use self::split::PendingSplit;
use crate::Error;
use crate::backend::Backend;
use crate::boxed::BoxFuture;
use crate::compaction::{CompactionTotals, DiskHeadroom, Pacing};
use crate::levels::RegionFiles;
use crate::manifest::{FamilyRecord, Manifest, Record, RegionRecord};
use crate::options::Options;
use crate::point::{DurablePoint, GroupPoint, RegionKey};
use crate::region::{Region, RegionSpec};
use crate::store_file::FamilyReadCounts;

/// The data of one server.
pub struct Engine {
    regions: Mutex<BTreeMap<RegionKey, Arc<Region>>>,
    /// Splits and merges, by new region. Locked after `regions`, where both are.
    pending_splits: Mutex<BTreeMap<RegionKey, Arc<PendingSplit>>>,
    backend: Arc<Backend>,
    manifest: Arc<tokio::sync::Mutex<Manifest>>,
    groups: Mutex<BTreeMap<GroupId, GroupPoint>>,
    /// How hard writers should be held back for compactions, in thousandths.
    pressure: AtomicU32,
    pacing: Mutex<Pacing>,
    totals: Mutex<CompactionTotals>,
    headroom: DiskHeadroom,
    stopping: AtomicBool,
    checkpoints: Checkpoints,
    dir: PathBuf,
    disk: Disk,
}

impl Engine {
    /// Opens the engine's directory and restores what its manifest says.
    ///
    /// # Errors
    /// [`Error::WrongEngine`], [`Error::Corruption`], or [`Error::Io`].
    pub fn open(options: Options) -> BoxFuture<'static, Result<Arc<Self>, Error>> {
        Box::pin(Self::open_here(options))
    }

    async fn open_here(options: Options) -> Result<Arc<Self>, Error> {
        let opened = task::run_io(async move {
            let Options { dir, backend, disk, .. } = &options;
            disk.create_dir_all(dir).await.map_err(Error::io("create the engine's directory"))?;
            let manifest = Manifest::open(disk, dir, backend.name()).await?;
            Ok::<_, Error>((options, manifest))
        });
        let (options, manifest) = opened.await?;
        let backend = Backend::open(&options, manifest.contents()).await?;
        let checkpoints = Checkpoints::open(&options.disk, &options.dir).await?;
        let mut regions = BTreeMap::new();
        let files = backend.load(manifest.contents()).await?;
        for ((key, record), files) in manifest.contents().regions.iter().zip(files) {
            let region = Region::new(
                record.region,
                record.table,
                record.range.clone(),
                record.families.clone(),
                record.point.clone(),
                files,
            );
            regions.insert(*key, Arc::new(region));
        }
        let groups = manifest.contents().groups.clone();
        Ok(Arc::new(Self {
            regions: Mutex::new(regions),
            pending_splits: Mutex::default(),
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
            headroom: DiskHeadroom::default(),
            stopping: AtomicBool::new(false),
            checkpoints,
            dir: options.dir,
            disk: options.disk,
        }))
    }

    /// All regions, sorted by group and id.
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
    pub fn record_group(self: &Arc<Self>, group: GroupId, point: GroupPoint) -> BoxFuture<'_, Result<(), Error>> {
        let engine = Arc::clone(self);
        Box::pin(task::run_to_end(async move {
            engine.append(Record::Group { group, point: point.clone() }).await?;
            engine.groups.lock().insert(group, point);
            Ok(())
        }))
    }

    /// Creates a region whose creation is at `index` of its group's log. It is durable after its first flush.
    pub fn create(&self, spec: RegionSpec, index: u64) -> Arc<Region> {
        let family = |family: FamilySchema| {
            let rules = RulesHistory::new(family.rules);
            (family.name, FamilyRecord::new(0, rules, family.storage))
        };
        let families = spec.families.into_iter().map(family).collect();
        let point = DurablePoint { group: spec.group, ..DurablePoint::default() };
        let region = Arc::new(Region::new(spec.region, spec.table, spec.range, families, point, RegionFiles::new()));
        region.touch(index);
        self.regions.lock().insert(region.key(), Arc::clone(&region));
        region
    }

    /// Drops regions, together with recording the state of their group as of then: one manifest record, then their cells.
    ///
    /// # Errors
    /// [`Error::Io`]; dropping them again is safe.
    pub fn drop_regions<'a>(
        self: &'a Arc<Self>,
        regions: &'a [RegionId],
        group: GroupId,
        point: GroupPoint,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let (engine, regions) = (Arc::clone(self), regions.to_vec());
        Box::pin(task::run_to_end(async move { engine.drop_regions_here(&regions, group, point).await }))
    }

    async fn drop_regions_here(&self, regions: &[RegionId], group: GroupId, point: GroupPoint) -> Result<(), Error> {
        let mut dropped = Vec::new();
        for id in regions {
            // A daughter's split is recorded first: no later record may bring the parent back.
            let region = self.regions.lock().get(&(group, *id)).cloned();
            let Some(region) = region else { continue };
            self.finish_split_here(&region).await?;
            let held = region.lock_record().await;
            region.retire(&held);
            dropped.push(region.clone());
        }
        self.append(Record::Drop { regions: regions.to_vec(), group, point: point.clone() }).await?;
        self.groups.lock().insert(group, point);
        for region in dropped {
            self.regions.lock().remove(&region.key());
            let families = region.families();
            self.backend.store().remove(group, region.table(), families, region.bounds().clone(), None).await?;
        }
        self.clean_up().await;
        Ok(())
    }

    /// Counts of what reads of each family met since the engine was opened; empty where the backend counts nothing.
    #[must_use]
    pub fn family_reads(&self) -> Vec<(TableId, FamilyName, FamilyReadCounts)> {
        let Some(lsm) = self.backend.lsm() else { return Vec::new() };
        lsm.reads().into_iter().map(|((table, family), reads)| (table, family, reads.counts())).collect()
    }

    /// Bytes of blocks in the cache.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.backend.lsm().map_or(0, |lsm| lsm.shared.cache.bytes())
    }

    /// Makes running compactions end soon, without a change. Nothing else is affected.
    pub fn stop_compactions(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Waits until what is being recorded is on disk. It does not flush: call [`Engine::flush`] before, where that is wanted.
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { drop(self.manifest.lock().await) })
    }

    async fn append(&self, record: Record) -> Result<(), Error> {
        let manifest = Arc::clone(&self.manifest);
        task::run_io(async move { manifest.lock().await.append(record).await }).await
    }

    async fn append_regions(&self, group: GroupId, regions: Vec<RegionRecord>) -> Result<(), Error> {
        let manifest = Arc::clone(&self.manifest);
        task::run_io(async move { manifest.lock().await.append_regions(group, regions).await }).await
    }
}

#[cfg(test)]
pub(crate) mod tests;
