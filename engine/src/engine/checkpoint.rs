//! Checkpoints: a region as it is on disk at some moment, held while it is being copied.
//!
//! A checkpoint is a directory of hard links to the region's store files, with what the manifest says of them. Files never
//! change, so the links cost no space while the region still has the files, and keep them once it has not. Dropping the guard
//! releases the directory for removal; what a crash leaves is removed when the engine is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::fs::Disk;
use terrane_env::sync::Mutex;
use terrane_env::task;
use terrane_types::FamilyName;

use super::{BoxFuture, Engine};
use crate::Error;
use crate::point::DurablePoint;
use crate::region::Region;

/// The directory of checkpoints in the engine's.
pub(crate) const DIRECTORY: &str = "checkpoints";

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    /// The family whose cells it holds.
    pub family: FamilyName,
    /// Where the link is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub size: u64,
    /// Its level in the region.
    pub level: u8,
}

/// A region as of its durable point, while this lives.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    point: DurablePoint,
    files: Vec<CheckpointFile>,
    discarded: Arc<Mutex<Vec<PathBuf>>>,
}

impl Checkpoint {
    /// The point that the files are as of.
    #[must_use]
    pub fn point(&self) -> &DurablePoint {
        &self.point
    }

    /// The directory of the links.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The files; those of each family level by level, in level 0 oldest first.
    #[must_use]
    pub fn files(&self) -> &[CheckpointFile] {
        &self.files
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // Removal needs the disk, which a destructor must not wait for: the next clean-up does it.
        self.discarded.lock().push(std::mem::take(&mut self.dir));
    }
}

/// The checkpoints of an engine.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    next: Mutex<u64>,
    discarded: Arc<Mutex<Vec<PathBuf>>>,
}

impl Checkpoints {
    /// Removes what a crash left behind.
    pub(crate) async fn open(disk: &Disk, dir: &Path) -> Result<Self, Error> {
        let dir = dir.join(DIRECTORY);
        let exists = disk.exists(&dir).await.map_err(Error::io("look for checkpoints"))?;
        if exists {
            disk.remove_dir_all(&dir).await.map_err(Error::io("remove old checkpoints"))?;
        }
        Ok(Self::default())
    }

    /// Removes the directories of guards that were dropped.
    pub(crate) async fn clean_up(&self, disk: &Disk) -> Result<(), Error> {
        let discarded = std::mem::take(&mut *self.discarded.lock());
        for dir in discarded {
            let disk = disk.clone();
            let removed = task::run_io(async move { disk.remove_dir_all(&dir).await }).await;
            removed.map_err(Error::io("remove a checkpoint"))?;
        }
        Ok(())
    }
}

impl Engine {
    /// Makes a checkpoint of what is recorded of a region. It leaves out what is in memory: flush first.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Retired`] for a region that was split or dropped. Trying again is safe.
    pub fn checkpoint<'a>(self: &'a Arc<Self>, region: &'a Arc<Region>) -> BoxFuture<'a, Result<Checkpoint, Error>> {
        Box::pin(self.checkpoint_here(region))
    }

    async fn checkpoint_here(self: &Arc<Self>, region: &Arc<Region>) -> Result<Checkpoint, Error> {
        self.finish_split(region).await?;
        let (point, all) = region.recorded_files()?;
        let number = {
            let mut next = self.checkpoints.next.lock();
            *next += 1;
            *next
        };
        let parent = self.dir.join(DIRECTORY);
        let dir = parent.join(format!("{number:08}"));
        let mut links = Vec::new();
        let mut files = Vec::new();
        for (family, levels) in &all {
            for file in levels.iter() {
                let Some(from) = self.backend.path_of(file.record.id) else { continue };
                let Some(name) = from.file_name() else { continue };
                let path = dir.join(name);
                links.push((from.clone(), path.clone()));
                let (size, level) = (file.record.size, file.record.level);
                files.push(CheckpointFile { family: family.clone(), path, size, level });
            }
        }
        // Before the first link: whatever fails from here on, the directory is removed.
        let checkpoint =
            Checkpoint { dir: dir.clone(), point, files, discarded: Arc::clone(&self.checkpoints.discarded) };
        let disk = self.disk.clone();
        task::run_io(async move {
            disk.create_dir_all(&dir).await.map_err(Error::io("create a checkpoint's directory"))?;
            for (from, to) in &links {
                disk.hard_link(from, to).await.map_err(Error::io(format!("link {}", from.display())))?;
            }
            disk.sync_dir(&dir).await.map_err(Error::io("sync a checkpoint"))?;
            disk.sync_dir(&parent).await.map_err(Error::io("sync the checkpoints"))
        })
        .await?;
        // Until every file has its second name, `all` keeps them.
        drop(all);
        Ok(checkpoint)
    }
}
