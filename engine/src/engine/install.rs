//! Installing a copy of a group that was taken on another server (`group_copy`), and removing a group.
//!
//! First it is staged: all files are verified in full and linked into the engine's directory. One manifest record then
//! replaces the state of the group and all its regions, so a crash leaves the old ones or the new ones, whole. The regions
//! that were there are retired: what still runs on them ends without a change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::task;
use terrane_types::GroupId;

use super::group_copy::GroupContents;
use super::{BoxFuture, Engine};
use crate::Error;
use crate::backend::{CellFiles, FamilyKey};
use crate::levels::{FileRef, FileSource, Levels, RegionFiles};
use crate::manifest::{FileRecord, GroupRecord, Record, RegionRecord};
use crate::point::GroupPoint;
use crate::region::Region;

/// Verified files of a copy in the engine's directory, by their numbers here. Those that no manifest record names when this is
/// dropped are removed.
pub(super) struct LinkedFiles {
    engine: Arc<Engine>,
    files: BTreeMap<u64, Arc<dyn FileSource>>,
    /// The numbers here by those of the source.
    numbers: BTreeMap<u64, u64>,
}

impl LinkedFiles {
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Releases the files that the regions no longer consist of.
    fn keep(&mut self, named: &BTreeSet<u64>) {
        self.numbers.retain(|_, id| named.contains(id));
        self.files.retain(|id, _| {
            let is_kept = named.contains(id);
            if !is_kept {
                self.engine.backend.release(*id);
            }
            is_kept
        });
    }

    /// It is not known whether a record that names the files is on disk. Until a restart knows, they stay.
    pub(super) fn in_doubt(&mut self) {
        self.engine.backend.in_doubt_ids(std::mem::take(&mut self.files).into_keys());
    }

    /// A region as its record says, with these files.
    pub(super) fn opened(&self, record: &RegionRecord) -> Region {
        let opened = |file: &FileRecord| {
            let source = &self.files[&file.id];
            FileRef { record: Arc::new(file.clone()), source: Arc::clone(source) }
        };
        let files: RegionFiles = record
            .files
            .iter()
            .map(|(family, files)| (family.clone(), Levels::new(files.iter().map(opened))))
            .collect();
        let (range, families) = (record.range.clone(), record.families.clone());
        Region::new(record.region, record.table, range, families, record.point.clone(), files)
    }
}

impl Drop for LinkedFiles {
    fn drop(&mut self) {
        // The next clean-up removes them.
        self.files.keys().for_each(|id| self.engine.backend.release(*id));
    }
}

/// A copy whose files are verified and in the engine's directory. Dropped without being installed, it leaves nothing behind.
pub struct StagedGroup {
    record: GroupRecord,
    taken: LinkedFiles,
}

impl std::fmt::Debug for StagedGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a copy of group {} with {} files", self.record.group, self.taken.len())
    }
}

impl Engine {
    /// The name that a fetched file must have in the directory given to [`Engine::stage_group`].
    #[must_use]
    pub fn fetched_name(id: u64) -> String {
        format!("{id:016}")
    }

    /// Takes in the files of a copy. The source had everything up to `index` on disk: where a recorded point is older, nothing
    /// of the entries in between concerns that region, and here the point may be newer. The files are in `dir`, on the engine's file system, synced and each under its
    /// [`Engine::fetched_name`]. Afterwards `dir` is no longer needed.
    ///
    /// # Errors
    /// [`Error::Corruption`] for a damaged file, [`Error::NotCopied`] for a copy that does not belong here, or [`Error::Io`].
    /// Nothing has changed, and trying again is safe.
    pub fn stage_group<'a>(
        self: &'a Arc<Self>,
        copy: GroupContents,
        dir: &'a Path,
        index: u64,
    ) -> BoxFuture<'a, Result<StagedGroup, Error>> {
        let (engine, dir) = (Arc::clone(self), dir.to_path_buf());
        Box::pin(task::run_to_end(async move { engine.stage_here(copy.0.raised_to(index), &dir).await }))
    }

    async fn stage_here(self: &Arc<Self>, mut record: GroupRecord, dir: &Path) -> Result<StagedGroup, Error> {
        self.copied_files(record.group)?;
        let taken = self.link_copy(&mut record.regions, dir, None).await?;
        Ok(StagedGroup { record, taken })
    }

    /// Replaces a group and all its regions by a staged copy. Called by the code that applies the group's log, between two
    /// entries. Afterwards [`Engine::regions`] has the new regions.
    ///
    /// # Errors
    /// [`Error::Io`]. The group is as it was, unless the last step failed: then a restart finds the old state or the new one.
    pub fn install_group(self: &Arc<Self>, staged: StagedGroup) -> BoxFuture<'_, Result<(), Error>> {
        let engine = Arc::clone(self);
        Box::pin(task::run_to_end(async move {
            let installed = engine.install_here(staged).await;
            engine.cleaned_up_after(installed).await
        }))
    }

    async fn install_here(&self, mut staged: StagedGroup) -> Result<(), Error> {
        self.replace_group(&mut staged).await?;
        drop(staged);
        self.clean_up().await;
        Ok(())
    }

    /// Removes a group, its regions and their cells: the replica is no longer here. Idempotent.
    ///
    /// # Errors
    /// [`Error::Io`]; removing it again is safe.
    pub fn remove_group(self: &Arc<Self>, group: GroupId) -> BoxFuture<'_, Result<(), Error>> {
        let engine = Arc::clone(self);
        Box::pin(task::run_to_end(async move {
            let removed = engine.remove_here(group).await;
            engine.cleaned_up_after(removed).await
        }))
    }

    async fn remove_here(&self, group: GroupId) -> Result<(), Error> {
        let regions = self.regions_of(group);
        if regions.is_empty() && self.group_point(group).is_none() {
            return Ok(());
        }
        let removed = self.replace_regions(group, Record::RemoveGroup(group), None, Vec::new()).await?;
        for region in removed {
            let (families, bounds) = (region.families(), region.bounds().clone());
            self.backend.store().remove(group, region.table(), families, bounds, None).await?;
        }
        self.clean_up().await;
        Ok(())
    }

    /// The backend, if groups can be copied from and to it.
    pub(super) fn copied_files(&self, group: GroupId) -> Result<&dyn CellFiles, Error> {
        let why = || "its engine keeps cells in files that all groups share".to_owned();
        self.backend.files().ok_or_else(|| Error::NotCopied { group, why: why() })
    }

    /// The regions of a group in the order of their rows, in which several of them are locked.
    fn regions_of(&self, group: GroupId) -> Vec<Arc<Region>> {
        let mut regions = self.regions();
        regions.retain(|region| region.point().group == group);
        regions.sort_by(|a, b| (a.table(), &a.range().start).cmp(&(b.table(), &b.range().start)));
        regions
    }

    /// Takes in the files of regions, and changes their records to the numbers that the files have here.
    /// Files that `former` has are not read again.
    pub(super) async fn link_copy(
        self: &Arc<Self>,
        regions: &mut [RegionRecord],
        dir: &Path,
        former: Option<LinkedFiles>,
    ) -> Result<LinkedFiles, Error> {
        let new = || LinkedFiles { engine: Arc::clone(self), files: BTreeMap::new(), numbers: BTreeMap::new() };
        let mut taken = former.unwrap_or_else(new);
        match self.link_files(regions, &mut taken, dir).await {
            Ok(()) => Ok(taken),
            Err(error) => {
                drop(taken);
                self.clean_up().await;
                Err(error)
            }
        }
    }

    async fn link_files(&self, regions: &mut [RegionRecord], taken: &mut LinkedFiles, dir: &Path) -> Result<(), Error> {
        let mut named = BTreeSet::new();
        for region in regions {
            let backend = self.copied_files(region.point.group)?;
            for (family, files) in &mut region.files {
                let key = FamilyKey { group: region.point.group, table: region.table, family };
                for file in files {
                    // A file of several regions has one number.
                    let id = match taken.numbers.get(&file.id) {
                        Some(id) => *id,
                        None => {
                            let from: PathBuf = dir.join(Self::fetched_name(file.id));
                            let (id, source) = backend.adopt(&from, file, key).await?;
                            taken.numbers.insert(file.id, id);
                            taken.files.insert(id, source);
                            id
                        }
                    };
                    named.insert(id);
                    *file = FileRecord { id, ..file.clone() };
                }
            }
        }
        taken.keep(&named);
        self.backend.sync(taken.len() > 0).await
    }

    /// A copy may be older than what is here. If the process ends after it has installed a copy and before its log has a record of
    /// that, the log starts from before the copy; then another member may send the state as of an entry in between. What
    /// follows that entry is applied again. The log never takes a copy that is older than what it has applied.
    async fn replace_group(&self, staged: &mut StagedGroup) -> Result<(), Error> {
        let mut record = staged.record.clone();
        if terrane_env::planted!("an installed copy lacks a region") {
            record.regions.pop();
        }
        let regions: Vec<_> = record.regions.iter().map(|region| Arc::new(staged.taken.opened(region))).collect();
        let (group, point) = (record.group, record.point.clone());
        let replaced = self.replace_regions(group, Record::Install(record), Some(point), regions).await;
        replaced.map(drop).inspect_err(|_| staged.taken.in_doubt())
    }

    /// Replaces all regions of a group, and its point, by one record, and retires them; returns them.
    ///
    /// Splits and merges of the group that are not recorded yet never will be: to record them would write the memtables that
    /// they inherited, which a full disk does not take, for regions that end here. No later record may bring one of their
    /// parents back, so what still records a parent ends first; what begins later finds the parent retired.
    async fn replace_regions(
        &self,
        group: GroupId,
        record: Record,
        point: Option<GroupPoint>,
        new: Vec<Arc<Region>>,
    ) -> Result<Vec<Arc<Region>>, Error> {
        let pending = self.pending_of(group);
        let mut recorded = Vec::with_capacity(pending.len());
        for change in &pending {
            recorded.push(change.hold().await);
        }
        let parents: Vec<Arc<Region>> = pending.iter().flat_map(|change| change.parents()).cloned().collect();
        let old = self.regions_of(group);
        let (mut of_parents, mut held) = (Vec::with_capacity(parents.len()), Vec::with_capacity(old.len()));
        for region in &parents {
            of_parents.push(region.lock_record().await);
        }
        for region in &old {
            held.push(region.lock_record().await);
        }
        terrane_env::buggify_pause!("the regions of a group wait before the record that replaces them").await;
        self.append(record).await?;
        recorded.iter_mut().for_each(|recorded| **recorded = true);
        pending.iter().for_each(|change| self.forget_pending(change));
        old.iter().zip(&held).for_each(|(region, held)| region.retire(held));
        let mut all = self.regions.lock();
        old.iter().for_each(|region| drop(all.remove(&region.key())));
        all.extend(new.into_iter().map(|region| (region.key(), region)));
        let mut groups = self.groups.lock();
        match point {
            Some(point) => drop(groups.insert(group, point)),
            None => drop(groups.remove(&group)),
        }
        drop((groups, all, held));
        Ok(old)
    }
}
