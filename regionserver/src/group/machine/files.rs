//! Applies the entries that name files: loads and adoptions.
//!
//! The files are here and verified before the boundary is taken, so no flush waits for another server, and neither does the
//! removal of the replica. What is decided before about the entry still holds afterwards: entries are applied one after
//! another. Only a copy of the group can come in between, and it covers the entry.

use terrane_raft::AppliedEntry;
use tokio::time::Instant;

use super::GroupMachine;
use super::regions::FULL_DISK_RETRY;
use crate::group::reply::Reply;
use crate::operation::Operation;
use crate::staging::{FileSet, StagedFiles};

/// An entry that is to be tried again, with its files fetched again or once there is space on the disk.
pub(super) struct Retry;

impl GroupMachine {
    /// Applies an entry whose only operation names files.
    pub(super) async fn apply_with_files(&self, entry: &AppliedEntry, operation: &Operation) -> Reply {
        // Other members apply the entry; what they answer is not known here.
        let unknown = Reply::Unknown;
        let began = Instant::now();
        loop {
            let Some(files) = self.fetch(entry, operation).await else {
                let mut inner = self.inner.lock();
                if inner.copied < entry.index {
                    // The server stops, or the replica is removed. A restart applies the entry again.
                    inner.is_removed = true;
                }
                return unknown;
            };
            let boundary = self.boundary.lock().await;
            {
                let mut inner = self.inner.lock();
                if inner.is_removed || entry.index <= inner.copied {
                    return unknown;
                }
                if inner.last_entry != Some(entry.index) {
                    inner.begin_entry(self.group, entry.index);
                }
            }
            let applied = match operation {
                Operation::Load(load) => self.ingest(entry, load, files, began).await,
                Operation::Adopt(adopt) => self.adopt(entry, adopt, files).await,
                _ => return unknown,
            };
            match applied {
                Ok(reply) => {
                    self.inner.lock().end_entry(entry);
                    return reply;
                }
                Err(Retry) => drop(boundary),
            }
            tokio::time::sleep(FULL_DISK_RETRY).await;
        }
    }

    /// Fetches and verifies the files that an operation names; `None` if they are no longer needed.
    async fn fetch(&self, entry: &AppliedEntry, operation: &Operation) -> Option<StagedFiles> {
        let wait = self.waits.begin(self.group, entry.index);
        if self.inner.lock().copied >= entry.index {
            return None;
        }
        let files = match operation {
            Operation::Load(load) if self.loads_now(entry, load) => FileSet::Load(load),
            Operation::Adopt(adopt) if self.adopts_now(entry, adopt) => FileSet::Region(adopt),
            _ => return Some(StagedFiles::Unneeded),
        };
        self.staging.take(&wait, files).await
    }
}
