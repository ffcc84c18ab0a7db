//! Applies the entries that name files: loads and adoptions.
//!
//! The files are here and verified before the boundary is taken, so no flush waits for another server, and neither does the
//! removal of the replica. What is decided before about the entry still holds afterwards: entries are applied one after
//! another. Only a copy of the group can come in between, and it covers the entry.

use terrane_engine::StagedRegion;
use terrane_raft::AppliedEntry;
use tokio::time::Instant;

use super::GroupMachine;
use super::regions::FULL_DISK_RETRY;
use crate::group::reply::Reply;
use crate::loads::files::LoadDir;
use crate::operation::Operation;

/// Files that are here, for the entry that names them.
pub(super) enum Brought {
    /// It needs none: it is refused, or took effect before.
    Nothing,
    Load(LoadDir),
    Region(Box<StagedRegion>),
}

/// An entry that is to be tried again, with its files fetched again or once there is space on the disk.
pub(super) struct Again;

impl GroupMachine {
    /// Applies an entry whose only operation names files.
    pub(super) async fn apply_with_files(&self, entry: &AppliedEntry, operation: &Operation) -> Reply {
        // Other members apply the entry; what they answer is not known here.
        let unknown = Reply::Unknown;
        let began = Instant::now();
        loop {
            let Some(brought) = self.bring(entry, operation).await else {
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
            let taken = match operation {
                Operation::Load(load) => self.take_in_load(entry, load, brought, began).await,
                Operation::Adopt(adopt) => self.adopt(entry, adopt, brought).await,
                _ => return unknown,
            };
            match taken {
                Ok(reply) => {
                    self.inner.lock().end_entry(entry);
                    return reply;
                }
                Err(Again) => drop(boundary),
            }
            tokio::time::sleep(FULL_DISK_RETRY).await;
        }
    }

    /// Fetches and verifies the files that an operation names; `None` if they are no longer needed.
    async fn bring(&self, entry: &AppliedEntry, operation: &Operation) -> Option<Brought> {
        let awaited = self.bringing.begin(self.group, entry.index);
        if self.inner.lock().copied >= entry.index {
            return None;
        }
        match operation {
            Operation::Load(load) if self.loads_now(entry, load) => {
                self.load_files.take(&awaited, load).await.map(Brought::Load)
            }
            Operation::Adopt(adopt) => match self.adopts_now(entry, adopt) {
                Some(contents) => {
                    self.arrivals.take(&awaited, adopt, &contents).await.map(|region| Brought::Region(Box::new(region)))
                }
                None => Some(Brought::Nothing),
            },
            _ => Some(Brought::Nothing),
        }
    }
}
