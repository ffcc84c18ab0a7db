//! Copies of a group, for members that lack entries which the log no longer has.
//!
//! A copy is what a restart would begin from: the engine's record of the group and its files. Installing one is like a
//! restart in the middle of the process: everything in memory is built again from what the engine has then. Readers that hold
//! a region of before continue over its cells, and find the new one with their next request.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use terrane_engine::{GroupContents, GroupCopy, StagedGroup};
use terrane_env::fs;
use terrane_env::task::{abort_process, run_io};
use terrane_raft::{BoxFuture, CopiedFile, StagedCopy, StateCopy};

use super::{GroupMachine, Inner};
use crate::staging::transfer::{FREE_BYTES_MIN, FilePart, read_part};

/// The number of the file that describes a copy.
const DESCRIPTION: u64 = 0;

impl GroupMachine {
    /// A copy of what is in synced files. What was written since is in the log.
    pub(super) async fn copied(&self) -> Result<Arc<dyn StateCopy>, String> {
        let copy = self.engine.copy_group(self.group).await.map_err(|error| error.to_string())?;
        let description = Bytes::from(copy.contents().encode());
        Ok(Arc::new(Copied { copy, description }))
    }

    /// Where a copy of so many bytes is put as it arrives.
    pub(super) async fn room_for(&self, bytes: u64) -> Result<PathBuf, String> {
        let dir = self.engine.incoming_dir(self.group);
        let engine_dir = self.engine.dir().to_owned();
        let free = run_io(async move { fs::free_space(&engine_dir).await }).await.map_err(|error| error.to_string())?;
        // What is in memory needs space before the copy replaces anything.
        let memtables: u64 = self.regions.all().iter().map(|hosted| hosted.engine.memtable_bytes()).sum();
        if free < bytes.saturating_add(memtables).saturating_add(FREE_BYTES_MIN) {
            let mebibytes = |bytes: u64| bytes >> 20;
            return Err(format!(
                "a copy of group {} takes {} MiB, the memtables take {} MiB when they are flushed, and {} MiB are free; free \
                 some space, and it is sent again",
                self.group,
                mebibytes(bytes),
                mebibytes(memtables),
                mebibytes(free)
            ));
        }
        Ok(dir)
    }

    /// Verifies a copy that has arrived.
    pub(super) async fn staged(&self, dir: &Path, index: u64) -> Result<Box<dyn StagedCopy>, String> {
        let description = dir.join(CopiedFile::name(DESCRIPTION));
        let bytes = run_io(async move { fs::read(&description).await }).await.map_err(|error| error.to_string())?;
        let contents = GroupContents::decode(&bytes).ok_or("its description is of another build, or damaged")?;
        if contents.group() != self.group {
            return Err(format!("it is a copy of group {}", contents.group()));
        }
        let staged = self.engine.stage_group(contents, dir, index).await.map_err(|error| error.to_string())?;
        let machine = self.this.upgrade().ok_or("the group is being closed")?;
        Ok(Box::new(Staged { machine, staged }))
    }

    async fn install(&self, staged: StagedGroup, index: u64) -> io::Result<()> {
        // A record of the state before must not follow the copy.
        let _recording = self.recording.lock().await;
        let _boundary = self.boundary.lock().await;
        // The core of a replica has stopped before it is removed; what it ordered before may still run.
        {
            let inner = self.inner.lock();
            if inner.is_removed {
                return Err(io::Error::other("the replica was removed"));
            }
            if inner.last_entry.is_some_and(|last| last >= index) {
                // What it was sent for was found meanwhile.
                return Ok(());
            }
        }
        match self.engine.install_group(staged).await {
            Ok(()) => {}
            // The replica stops, and the server says why. A restart would find the disk as full as it is.
            Err(error) if error.is_disk_full() => return Err(io::Error::other(error)),
            // Whether it is on disk is not known. A restart finds out; this process never would.
            Err(error) => abort_process(&format!("cannot install a copy of group {}: {error}", self.group)),
        }
        let mut fresh = Inner::restored(self.group, &self.engine).map_err(io::Error::other)?;
        // Regions without later writes have older points.
        fresh.applied = fresh.applied.max(index);
        fresh.last_entry = Some(index);
        fresh.copied = index;
        self.evaluator.lock().forget();
        let mut inner = self.inner.lock();
        for hosted in fresh.hosted.values() {
            self.regions.insert(hosted.clone());
        }
        // Only now: a request always finds the regions of before, or those of the copy.
        for gone in inner.hosted.keys().filter(|region| !fresh.hosted.contains_key(region)) {
            self.regions.remove(*gone, self.group);
        }
        *inner = fresh;
        drop(inner);
        self.waits.supersede();
        self.signals.wake();
        Ok(())
    }
}

struct Staged {
    machine: Arc<GroupMachine>,
    staged: StagedGroup,
}

impl StagedCopy for Staged {
    fn install(self: Box<Self>, index: u64) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move { self.machine.install(self.staged, index).await })
    }
}

/// A copy that is being sent.
struct Copied {
    copy: GroupCopy,
    description: Bytes,
}

impl StateCopy for Copied {
    fn files(&self) -> Vec<CopiedFile> {
        let description = CopiedFile { id: DESCRIPTION, size: self.description.len() as u64 };
        let files: BTreeMap<u64, u64> =
            self.copy.contents().files().into_iter().map(|file| (file.id, file.size)).collect();
        std::iter::once(description).chain(files.into_iter().map(|(id, size)| CopiedFile { id, size })).collect()
    }

    fn read(&self, id: u64, offset: u64, length: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        if id == DESCRIPTION {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.description.len());
            let end = start.saturating_add(length).min(self.description.len());
            return Box::pin(std::future::ready(Ok(self.description.slice(start..end))));
        }
        let path = self.copy.path(id).cloned();
        let part = FilePart { file: id, offset, length: u32::try_from(length).unwrap_or(u32::MAX) };
        Box::pin(async move {
            let path = path.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            read_part(path, part).await.map_err(io::Error::other)
        })
    }
}
