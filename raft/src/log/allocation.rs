//! Disk space for the log: segments are allocated before anything depends on them.
//!
//! The segment after the current one is allocated ahead, as the file `spare`. So a full disk is noticed while there is still
//! a whole segment for what is in flight: from then on entries with operations are refused ([`Space`]), on leaders and
//! followers alike, and nothing acknowledged fails. A batch that no longer fits waits in the writer until there is space; the
//! owner of the log requests a retry from time to time.
//!
//! A restart begins a new segment, for which it needs no new space: it uses the spare, or the space that the last segment had
//! allocated and not used. While there is no spare, part of each segment stays unused, so that there is always some.

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

/// The fraction of a segment that is reserved for restarts while there is no spare.
const SLACK_PART: u64 = 16;

/// Whether the disk permits the log to accept entries.
#[derive(Default)]
pub(super) struct Space {
    /// A reason is set. Hot paths check only this.
    refusing: AtomicBool,
    reasons: RwLock<Reasons>,
    /// There may be space again, or the log is closed.
    pub(super) retry: Notify,
}

#[derive(Default)]
struct Reasons {
    /// The next segment cannot be allocated.
    lacking: Option<String>,
    /// The owner of the disk reserves the rest for something else.
    reserved: Option<String>,
}

impl Space {
    /// Why entries with operations from other leaders are refused, if they are.
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
    /// Whether the spare exists.
    spare: bool,
}

/// A segment to be written: its file and the bytes allocated for it.
pub(super) struct AllocatedSegment {
    pub(super) file: fs::File,
    pub(super) bytes: u64,
}

impl Allocator {
    pub(super) fn new(files: Arc<Files>, segment_bytes: u64) -> Allocator {
        Allocator { files, segment_bytes, spare: false }
    }

    /// The first segment of this start. `last` is the newest recovered segment with its bytes in use: the space beyond them is
    /// freed first. If the disk has no space for a whole segment, a smaller one has to do.
    pub(super) async fn first(&mut self, segment: u64, last: Option<(u64, u64)>) -> io::Result<AllocatedSegment> {
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
                    self.sync_names().await?;
                    return Ok(AllocatedSegment { file, bytes });
                }
                // As large as possible, within a few percent: the next restart depends on what this one leaves.
                Err(error) if is_full(&error) && bytes > SEGMENT_BYTES_MIN => {
                    let less = bytes - (bytes / SLACK_PART).max(SEGMENT_BYTES_MIN).min(bytes);
                    bytes = (less / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN).max(SEGMENT_BYTES_MIN);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees the unused space of a segment.
    async fn give_back(&self, segment: u64, end: u64) -> io::Result<()> {
        let file = self.files.disk().open_rw(&self.files.path(segment)).await?;
        if file.len().await? > end {
            file.set_len(end).await?;
            file.sync_all().await?;
        }
        Ok(())
    }

    /// Turns the spare into segment `segment`; `None` while there is no space for a spare.
    pub(super) async fn next(&mut self, segment: u64) -> io::Result<Option<AllocatedSegment>> {
        if !self.prepare().await? {
            return Ok(None);
        }
        let path = self.files.path(segment);
        match self.files.disk().rename(&self.spare_path(), &path).await {
            Ok(()) => {}
            Err(error) if is_full(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        self.spare = false;
        // The name is durable before anything is written to the file, so a spare is always empty.
        self.sync_names().await?;
        let file = self.files.disk().open_rw(&path).await?;
        Ok(Some(AllocatedSegment { file, bytes: self.segment_bytes }))
    }

    /// Allocates the spare unless it exists; false while the disk has no space for it.
    pub(super) async fn prepare(&mut self) -> io::Result<bool> {
        if self.spare {
            return Ok(true);
        }
        match self.allocate(self.spare_path(), self.segment_bytes).await {
            Ok(_) => {
                self.sync_names().await?;
                self.spare = true;
            }
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.spare)
    }

    /// Makes the names of segments durable.
    async fn sync_names(&self) -> io::Result<()> {
        if terrane_env::planted!("the names of log segments are not synced") {
            return Ok(());
        }
        self.files.disk().sync_dir(self.files.directory()).await
    }

    /// Publishes whether there is a spare.
    pub(super) fn publish(&self, space: &Space) {
        let was_lacking = space.lacking().is_some();
        if self.spare {
            if was_lacking {
                tracing::info!("the log has space for its next segment again");
                space.set_lacking(None);
            }
        } else if !was_lacking {
            let reason = format!(
                "the disk of {} has no space for the next log segment of {} KiB; free some, and writes resume by themselves",
                self.files.directory().display(),
                self.segment_bytes >> 10
            );
            tracing::error!("{reason}");
            space.set_lacking(Some(reason));
        }
    }

    /// Whether the next segment is allocated.
    pub(super) fn has_spare(&self) -> bool {
        self.spare
    }

    /// The number of a segment's allocated bytes that may be written now.
    pub(super) fn usable(&self, allocated: u64) -> u64 {
        if self.spare { allocated } else { allocated - allocated / SLACK_PART }
    }

    fn spare_path(&self) -> PathBuf {
        self.files.directory().join(SPARE)
    }

    /// Creates a file of that many zeros, durable except for its name. A partial allocation is removed.
    async fn allocate(&self, path: PathBuf, bytes: u64) -> io::Result<fs::File> {
        let allocated = async {
            let file = self.files.disk().open_rw(&path).await?;
            file.allocate(bytes).await?;
            file.sync_all().await?;
            Ok(file)
        };
        let allocated: io::Result<fs::File> = allocated.await;
        if allocated.as_ref().is_err_and(is_full) && self.files.disk().exists(&path).await? {
            self.files.disk().remove_file(&path).await?;
        }
        allocated
    }
}

/// Whether an operation failed because the disk, or the user's quota of it, is full. Nothing is lost: the operation can be
/// repeated once there is space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
