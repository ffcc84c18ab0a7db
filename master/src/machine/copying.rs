//! Copies of the catalog, for masters that lack entries which the log no longer has.
//!
//! A copy is one file, a checkpoint. It is of the moment of copying, which may be after the entry that the copy is sent
//! for: applying skips what a checkpoint has.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_raft::{BoxFuture, CopiedFile, StagedCopy, StateCopy};

use super::CatalogMachine;
use crate::catalog::checkpoint::{Checkpoint, path_in};

/// The number of the file.
const CHECKPOINT: u64 = 0;
/// The directory of copies that arrive, in the catalog's.
pub const INCOMING: &str = "incoming";
/// A catalog is far smaller: a million regions take about a tenth.
const BYTES_MAX: u64 = 1 << 30;

impl CatalogMachine {
    pub(super) fn copied(&self) -> Arc<dyn StateCopy> {
        Arc::new(Copied { checkpoint: Bytes::from(self.state.read().encode()) })
    }

    pub(super) fn room_for(&self, bytes: u64) -> Result<PathBuf, String> {
        if bytes > BYTES_MAX {
            return Err(format!("a copy of the catalog has at most {BYTES_MAX} bytes, not {bytes}"));
        }
        Ok(self.dir.join(INCOMING))
    }

    pub(super) async fn staged(self: Arc<Self>, dir: &Path) -> Result<Box<dyn StagedCopy>, String> {
        let file = dir.join(CopiedFile::name(CHECKPOINT));
        let bytes = run_io(async move { fs::read(&file).await }).await.map_err(|error| error.to_string())?;
        let checkpoint = Checkpoint::decode(&bytes).map_err(|error| error.to_string())?;
        match self.levels.outgrown(checkpoint.catalog.level()) {
            Some(why) => Err(why),
            None => Ok(Box::new(Staged { machine: self, checkpoint })),
        }
    }

    async fn install(&self, mut checkpoint: Checkpoint, index: u64) -> io::Result<()> {
        let _writing = self.writing.lock().await;
        checkpoint.applied = checkpoint.applied.max(index);
        let (path, bytes) = (path_in(&self.dir), checkpoint.encode());
        run_io(async move { fs::write_durable(&path, &bytes).await }).await?;
        self.durable.store(checkpoint.applied, Ordering::Release);
        *self.state.write() = checkpoint;
        self.nudge();
        Ok(())
    }
}

struct Staged {
    machine: Arc<CatalogMachine>,
    checkpoint: Checkpoint,
}

impl StagedCopy for Staged {
    fn install(self: Box<Self>, index: u64) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move { self.machine.install(self.checkpoint, index).await })
    }
}

/// A copy that is being sent.
struct Copied {
    checkpoint: Bytes,
}

impl StateCopy for Copied {
    fn files(&self) -> Vec<CopiedFile> {
        vec![CopiedFile { id: CHECKPOINT, size: self.checkpoint.len() as u64 }]
    }

    fn read(&self, id: u64, offset: u64, length: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.checkpoint.len());
        let end = start.saturating_add(length).min(self.checkpoint.len());
        let read = if id == CHECKPOINT {
            Ok(self.checkpoint.slice(start..end))
        } else {
            Err(io::Error::from(io::ErrorKind::NotFound))
        };
        Box::pin(std::future::ready(read))
    }
}
