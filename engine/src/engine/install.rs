//! Installing a copy of a group that was taken on another server (`group_copy`), and removing a group.
//!
//! First it is staged: all files are verified in full and linked into the engine's directory. One manifest record then
//! replaces the state of the group and all its regions, so a crash leaves the old ones or the new ones, whole. The regions
//! that were there are retired: what still runs on them ends without a change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::task;
use terrane_types::{GroupId, RegionId};

use super::group_copy::GroupContents;
use super::{BoxFuture, Engine};
use crate::Error;
use crate::levels::{FileRef, FileSource, Levels, RegionFiles};
use crate::manifest::{FileRecord, GroupRecord, Record, RegionRecord};
use crate::region::Region;

/// The files taken in, by their numbers here.
type Adopted = BTreeMap<u64, Arc<dyn FileSource>>;

/// A copy whose files are verified and in the engine's directory. Dropped without being installed, it leaves nothing behind.
pub struct StagedGroup {
    engine: Arc<Engine>,
    record: GroupRecord,
    adopted: Adopted,
}

impl std::fmt::Debug for StagedGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a copy of group {} with {} files", self.record.group, self.adopted.len())
    }
}

impl Drop for StagedGroup {
    fn drop(&mut self) {
        // The next clean-up removes them.
        self.adopted.keys().for_each(|id| self.engine.backend.release(*id));
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

    async fn stage_here(self: &Arc<Self>, copy: GroupRecord, dir: &Path) -> Result<StagedGroup, Error> {
        self.check_copy(&copy)?;
        let mut staged = StagedGroup { engine: Arc::clone(self), record: copy, adopted: Adopted::new() };
        match self.take_in_files(&mut staged, dir).await {
            Ok(()) => Ok(staged),
            Err(error) => {
                drop(staged);
                self.clean_up().await;
                Err(error)
            }
        }
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
        // No later record may bring a parent back.
        for region in self.regions_of(staged.record.group) {
            self.finish_split_here(&region).await?;
        }
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
        for region in &regions {
            self.finish_split_here(region).await?;
        }
        // A split that was recorded just now has made others.
        let regions = self.regions_of(group);
        for region in &regions {
            let held = region.lock_record().await;
            region.retire(&held);
        }
        self.append(Record::RemoveGroup(group)).await?;
        self.groups.lock().remove(&group);
        for region in regions {
            self.regions.lock().remove(&region.id());
            self.backend.drop_range(group, region.table(), region.families(), region.bounds().clone()).await?;
        }
        self.clean_up().await;
        Ok(())
    }

    /// A copy may be older than what is here. If the process ends after it has installed a copy and before its log has a record of
    /// that, the log starts from before the copy; then another member may send the state as of an entry in between. What
    /// follows that entry is applied again. The log never takes a copy that is older than what it has applied.
    fn check_copy(&self, copy: &GroupRecord) -> Result<(), Error> {
        let refused = |why: String| Error::NotCopied { group: copy.group, why };
        if !self.backend.has_files() {
            return Err(refused("its engine keeps cells in files that all groups share".to_owned()));
        }
        let regions = self.regions.lock();
        let foreign = copy.regions.iter().filter_map(|copied| regions.get(&copied.region));
        match foreign.map(|region| (region.id(), region.point().group)).find(|(_, group)| *group != copy.group) {
            Some((region, group)) => Err(refused(format!("region {region} belongs to group {group} on this server"))),
            None => Ok(()),
        }
    }

    /// The regions of a group in the order of their rows, in which several of them are locked.
    fn regions_of(&self, group: GroupId) -> Vec<Arc<Region>> {
        let mut regions = self.regions();
        regions.retain(|region| region.point().group == group);
        regions.sort_by(|a, b| (a.table(), &a.range().start).cmp(&(b.table(), &b.range().start)));
        regions
    }

    /// Takes in all files, and changes the record to the numbers that they have here.
    async fn take_in_files(&self, staged: &mut StagedGroup, dir: &Path) -> Result<(), Error> {
        // A file of several regions has one number.
        let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
        let StagedGroup { record, adopted, .. } = staged;
        for region in &mut record.regions {
            for (family, files) in &mut region.files {
                for file in files {
                    let id = match numbers.get(&file.id) {
                        Some(id) => *id,
                        None => {
                            let from: PathBuf = dir.join(Self::fetched_name(file.id));
                            let (id, source) = self.backend.adopt(&from, file, region.table, family).await?;
                            numbers.insert(file.id, id);
                            adopted.insert(id, source);
                            id
                        }
                    };
                    *file = FileRecord { id, ..file.clone() };
                }
            }
        }
        self.backend.sync(!adopted.is_empty()).await
    }

    async fn replace_group(&self, staged: &mut StagedGroup) -> Result<(), Error> {
        let mut record = staged.record.clone();
        if terrane_env::planted!("an installed copy lacks a region") {
            record.regions.pop();
        }
        let regions: Vec<_> = record.regions.iter().map(|region| Arc::new(opened(region, &staged.adopted))).collect();
        let old = self.regions_of(record.group);
        let mut held = Vec::with_capacity(old.len());
        for region in &old {
            held.push(region.lock_record().await);
        }
        terrane_env::buggify_pause!("a copy of a group waits before its record").await;
        let (group, point) = (record.group, record.point.clone());
        if let Err(error) = self.append(Record::Install(record)).await {
            // A restart may or may not find the record, so until that is known the files stay.
            self.backend.in_doubt_ids(std::mem::take(&mut staged.adopted).into_keys());
            return Err(error);
        }
        old.iter().zip(&held).for_each(|(region, held)| region.retire(held));
        let gone: Vec<RegionId> = old.iter().map(|region| region.id()).collect();
        let mut all = self.regions.lock();
        gone.iter().for_each(|id| drop(all.remove(id)));
        all.extend(regions.into_iter().map(|region| (region.id(), region)));
        self.groups.lock().insert(group, point);
        Ok(())
    }
}

/// A region as its record says, with files that were taken in.
fn opened(record: &RegionRecord, adopted: &Adopted) -> Region {
    let opened = |file: &FileRecord| {
        let source = &adopted[&file.id];
        FileRef { record: Arc::new(file.clone()), source: Arc::clone(source) }
    };
    let files: RegionFiles =
        record.files.iter().map(|(family, files)| (family.clone(), Levels::new(files.iter().map(opened)))).collect();
    let (range, families) = (record.range.clone(), record.families.clone());
    Region::new(record.region, record.table, range, families, record.point.clone(), files)
}
