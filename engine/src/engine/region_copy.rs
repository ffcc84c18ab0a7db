//! Moving one region from a group to another: the source copies what its manifest says of the region, with the files that this
//! names; the receiver verifies them and adds the region to its own manifest, under the other group.
//!
//! The files of a [`RegionCopy`] stay on the source while it lives. What the receiver has staged changes nothing until
//! [`Engine::adopt_region`] writes the one record that makes the region the other group's. Until the first group drops it, a
//! server may have the region in both: the two share nothing but its id.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::task;
use terrane_types::{GroupId, MoveId, RegionId, TableId};

use super::group_copy::CopiedFile;
use super::install::LinkedFiles;
use super::{BoxFuture, Engine};
use crate::Error;
use crate::file_directory::Claim;
use crate::manifest::{FileRecord, Record, RegionRecord};
use crate::point::DurablePoint;
use crate::region::Region;

/// The directory in the engine's where the files of regions arrive.
pub(crate) const ARRIVING: &str = "arriving";

/// What a copy of a region consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionContents(RegionRecord);

impl RegionContents {
    /// For the receiver. The layout is that of a manifest record (`docs/formats/manifest.md`).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Record::Region(self.0.clone()).encode()
    }

    /// `None` for what this build cannot read.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match Record::decode(bytes)? {
            Record::Region(region) => Some(Self(region)),
            _ => None,
        }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.0.region
    }

    /// Its table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.0.table
    }

    /// What the files are as of, in the log of the group that the region comes from.
    #[must_use]
    pub fn point(&self) -> &DurablePoint {
        &self.0.point
    }

    /// The files, each once, by number.
    #[must_use]
    pub fn files(&self) -> Vec<CopiedFile> {
        let files: BTreeMap<u64, u64> = self.records().map(|file| (file.id, file.size)).collect();
        files.into_iter().map(|(id, size)| CopiedFile { id, size }).collect()
    }

    fn records(&self) -> impl Iterator<Item = &FileRecord> {
        self.0.files.values().flatten()
    }
}

/// A copy of a region. Its files stay while it lives.
#[derive(Debug)]
pub struct RegionCopy {
    contents: RegionContents,
    files: BTreeMap<u64, (PathBuf, Arc<Claim>)>,
}

impl RegionCopy {
    /// What it consists of.
    #[must_use]
    pub fn contents(&self) -> &RegionContents {
        &self.contents
    }

    /// Where a file is.
    #[must_use]
    pub fn path(&self, id: u64) -> Option<&PathBuf> {
        self.files.get(&id).map(|(path, _)| path)
    }
}

/// A copy whose files are verified and in the engine's directory. Dropped without being adopted, it leaves nothing behind.
pub struct StagedRegion {
    record: RegionRecord,
    taken: LinkedFiles,
    /// Sequence numbers at which the files have everything, beside the last one.
    views: Vec<u64>,
}

impl StagedRegion {
    /// The sequence numbers at which readers held snapshots where the files come from, when the last of them was written: the
    /// adopted region hands snapshots at them down ([`Region::take_handed_down`]).
    pub fn set_views(&mut self, views: Vec<u64>) {
        self.views = views;
    }
}

impl std::fmt::Debug for StagedRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a copy of region {} with {} files", self.record.region, self.taken.len())
    }
}

impl Engine {
    /// Takes a copy of what is recorded of a group's region; `None` if nothing is. It leaves out what is in memory: flush first.
    ///
    /// # Errors
    /// [`Error::NotCopied`] with an engine that has no files of its own.
    pub fn copy_region(&self, group: GroupId, region: RegionId) -> BoxFuture<'_, Result<Option<RegionCopy>, Error>> {
        Box::pin(async move {
            self.copied_files(group)?;
            // Until all files are claimed, so that no clean-up runs with a later manifest before.
            let manifest = self.manifest.lock().await;
            let Some(record) = manifest.contents().regions.get(&(group, region)) else { return Ok(None) };
            let contents = RegionContents(record.clone());
            let files = self.claimed(contents.records());
            drop(manifest);
            Ok(Some(RegionCopy { contents, files }))
        })
    }

    /// Where the files of regions arrive, a directory for each move: the engine leaves it alone.
    #[must_use]
    pub fn arriving_root(&self) -> PathBuf {
        self.dir.join(ARRIVING)
    }

    /// Where the files of a region arrive.
    #[must_use]
    pub fn arriving_dir(&self, id: MoveId) -> PathBuf {
        self.arriving_root().join(id.to_string())
    }

    /// Keeps files as long as the result lives.
    pub(super) fn claimed<'a>(
        &self,
        files: impl Iterator<Item = &'a FileRecord>,
    ) -> BTreeMap<u64, (PathBuf, Arc<Claim>)> {
        let claimed = |file: &FileRecord| {
            let (path, claim) = (self.backend.path_of(file.id)?, self.backend.claim(file.id)?);
            Some((file.id, (path, claim)))
        };
        files.filter_map(claimed).collect()
    }

    /// Takes in the files of a copy. They are in `dir`, on the engine's file system, synced and each under its
    /// [`Engine::fetched_name`], and stay there: the engine has names of its own for them. Those that a former copy from the same
    /// source brought are not read again.
    ///
    /// # Errors
    /// [`Error::Corruption`] for a damaged file, [`Error::NotCopied`] with an engine that has no files of its own, or
    /// [`Error::Io`]. Nothing has changed, and trying again is safe.
    pub fn stage_region<'a>(
        self: &'a Arc<Self>,
        contents: RegionContents,
        dir: &'a Path,
        former: Option<StagedRegion>,
    ) -> BoxFuture<'a, Result<StagedRegion, Error>> {
        let (engine, dir) = (Arc::clone(self), dir.to_path_buf());
        Box::pin(task::run_to_end(async move {
            let mut regions = [contents.0];
            let former = former.map(|former| former.taken);
            let taken = engine.link_copy(&mut regions, &dir, former).await?;
            let [record] = regions;
            Ok(StagedRegion { record, taken, views: Vec::new() })
        }))
    }

    /// Adds a staged region as of `point`, whose group is the one that takes it. Durable when this returns.
    ///
    /// # Errors
    /// [`Error::Io`]. A restart finds the region here or not.
    pub fn adopt_region(
        self: &Arc<Self>,
        staged: StagedRegion,
        point: DurablePoint,
    ) -> BoxFuture<'_, Result<Arc<Region>, Error>> {
        let engine = Arc::clone(self);
        Box::pin(task::run_to_end(async move {
            let StagedRegion { record, mut taken, views } = staged;
            let record = RegionRecord { point, ..record };
            let region = Arc::new(taken.opened(&record));
            region.hand_down_views(views);
            terrane_env::buggify_pause!("an adopted region waits before its record").await;
            // A region that left may be back before its departure is recorded. Nothing more of its former self may be.
            let former = engine.regions.lock().get(&region.key()).cloned();
            if let Some(former) = former {
                engine.finish_split_here(&former).await?;
                let held = former.lock_record().await;
                former.retire(&held);
            }
            if let Err(error) = engine.append(Record::Region(record)).await {
                taken.in_doubt();
                return Err(error);
            }
            engine.regions.lock().insert(region.key(), Arc::clone(&region));
            drop(taken);
            engine.clean_up().await;
            Ok(region)
        }))
    }
}
