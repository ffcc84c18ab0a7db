//! Room for the log on its disk: segments are allocated before anything depends on them.
//!
//! The segment after the current one is allocated ahead, as the file `spare`. So a disk that fills up is noticed while
//! there is still a whole segment for what is under way: from then on entries with operations are refused ([`Space`]), on
//! the leader as on a follower, and nothing fails that was acknowledged. What no longer fits waits in the writer until
//! there is room; the owner of the log has it look again from time to time.
//!
//! A restart begins a segment, and needs no new space for it: it takes the spare, or what the last segment had allocated
//! and not used. A part of each segment takes nothing while there is no spare, so that there is always some.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use terrane_env::fs;
use tokio::sync::Notify;

use super::files::Files;
use super::names::SPARE;

/// Smaller segments would hold little more than the state at their head.
pub(super) const SEGMENT_BYTES_MIN: u64 = 4 << 10;

/// The part of a segment that is kept for restarts while there is no spare.
const SLACK_PART: u64 = 16;

/// Whether the log may take entries, as far as the disk is concerned.
#[derive(Default)]
pub(super) struct Space {
    /// Some reason is set: what hot paths look at.
    refusing: AtomicBool,
    reasons: RwLock<Reasons>,
    /// There may be room again, or the log is closed.
    pub(super) retry: Notify,
}

#[derive(Default)]
struct Reasons {
    /// No segment could be allocated ahead.
    lacking: Option<String>,
    /// The owner of the disk keeps the rest for something else.
    reserved: Option<String>,
}

impl Space {
    /// Why no entry of another leader with operations may be taken, if none may.
    pub(super) fn refusal(&self) -> Option<String> {
        if !self.refusing.load(Ordering::Relaxed) {
            return None;
        }
        let reasons = self.reasons.read();
        reasons.lacking.clone().or_else(|| reasons.reserved.clone())
    }

    pub(super) fn set_reserved(&self, reason: Option<String>) {
        self.set(|reasons| reasons.reserved = reason);
    }

    pub(super) fn lacking(&self) -> Option<String> {
        if !self.refusing.load(Ordering::Relaxed) {
            return None;
        }
        self.reasons.read().lacking.clone()
    }

    fn set_lacking(&self, reason: Option<String>) {
        self.set(|reasons| reasons.lacking = reason);
    }

    fn set(&self, change: impl FnOnce(&mut Reasons)) {
        let mut reasons = self.reasons.write();
        change(&mut reasons);
        let refusing = reasons.lacking.is_some() || reasons.reserved.is_some();
        self.refusing.store(refusing, Ordering::Relaxed);
    }
}

/// Allocates segments. Owned by the writer.
pub(super) struct Allocator {
    files: Arc<Files>,
    segment_bytes: u64,
    /// Whether the spare is there.
    spare: bool,
}

/// A segment to be written: its file, and the bytes allocated for it.
pub(super) struct Allocated {
    pub(super) file: fs::File,
    pub(super) bytes: u64,
}

impl Allocator {
    pub(super) fn new(files: Arc<Files>, segment_bytes: u64) -> Allocator {
        Allocator { files, segment_bytes, spare: false }
    }

    /// The first segment of this start. `last` is the newest that was recovered, with its bytes in use: what it has beyond
    /// them is given back first. Where the disk has no room for a whole segment, a smaller one does.
    pub(super) async fn first(&mut self, segment: u64, last: Option<(u64, u64)>) -> io::Result<Allocated> {
        if let Some((last, end)) = last {
            self.give_back(last, end).await?;
        }
        if let Some(allocated) = self.next(segment).await? {
            return Ok(allocated);
        }
        let path = self.files.path(segment);
        let mut bytes = self.segment_bytes;
        loop {
            match self.allocate(path.clone(), bytes).await {
                Ok(file) => {
                    fs::sync_dir(self.files.directory()).await?;
                    return Ok(Allocated { file, bytes });
                }
                // As much as there is, within a few percent: the next restart has to live on what this one leaves.
                Err(error) if is_full(&error) && bytes > SEGMENT_BYTES_MIN => {
                    let less = bytes - (bytes / SLACK_PART).max(SEGMENT_BYTES_MIN).min(bytes);
                    bytes = (less / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN).max(SEGMENT_BYTES_MIN);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Cuts what was allocated for a segment and is not used.
    async fn give_back(&self, segment: u64, end: u64) -> io::Result<()> {
        let file = fs::File::open_rw(&self.files.path(segment)).await?;
        if file.len().await? > end {
            file.set_len(end).await?;
            file.sync_all().await?;
        }
        Ok(())
    }

    /// Makes the spare the segment of this number; `None` while there is no room for either.
    pub(super) async fn next(&mut self, segment: u64) -> io::Result<Option<Allocated>> {
        if !self.prepare().await? {
            return Ok(None);
        }
        let path = self.files.path(segment);
        match fs::rename(&self.spare_path(), &path).await {
            Ok(()) => {}
            Err(error) if is_full(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        self.spare = false;
        // Its name is durable before anything is written to it: a spare is always empty.
        fs::sync_dir(self.files.directory()).await?;
        let file = fs::File::open_rw(&path).await?;
        Ok(Some(Allocated { file, bytes: self.segment_bytes }))
    }

    /// Allocates the spare unless it is there; false while the disk has no room for it.
    pub(super) async fn prepare(&mut self) -> io::Result<bool> {
        if self.spare {
            return Ok(true);
        }
        match self.allocate(self.spare_path(), self.segment_bytes).await {
            Ok(_) => {
                fs::sync_dir(self.files.directory()).await?;
                self.spare = true;
            }
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.spare)
    }

    /// Tells everybody whether there is a spare.
    pub(super) fn publish(&self, space: &Space) {
        let was_lacking = space.lacking().is_some();
        if self.spare {
            if was_lacking {
                tracing::info!("the log has room for its next segment again");
                space.set_lacking(None);
            }
        } else if !was_lacking {
            let reason = format!(
                "the disk of {} has no room for the next log segment of {} KiB; make room, and writes go on by themselves",
                self.files.directory().display(),
                self.segment_bytes >> 10
            );
            tracing::error!("{reason}");
            space.set_lacking(Some(reason));
        }
    }

    /// How many of a segment's allocated bytes may be written now.
    pub(super) fn usable(&self, allocated: u64) -> u64 {
        if self.spare { allocated } else { allocated - allocated / SLACK_PART }
    }

    fn spare_path(&self) -> PathBuf {
        self.files.directory().join(SPARE)
    }

    /// A file of that many zeros, durable but for its name. What was allocated of it in vain is removed.
    async fn allocate(&self, path: PathBuf, bytes: u64) -> io::Result<fs::File> {
        let allocated = async {
            let file = fs::File::open_rw(&path).await?;
            file.allocate(bytes).await?;
            file.sync_all().await?;
            Ok(file)
        };
        let allocated: io::Result<fs::File> = allocated.await;
        if allocated.as_ref().is_err_and(is_full) && fs::exists(&path).await? {
            fs::remove_file(&path).await?;
        }
        allocated
    }
}

/// Whether an operation failed because the disk, or what this user may have of it, is used up. Nothing is lost by it: it is
/// right again once there is room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
