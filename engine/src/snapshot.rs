//! Snapshots: a reader's guard on a sequence number.
//!
//! Under one mutex lie the region's published sequence number, the live snapshots, and up to where versions have been
//! collected. The order matters: a write publishes its number first and asks afterwards which snapshots live, so a
//! snapshot taken in between already sees the write and never misses what the write replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::SnapshotTooOld;

#[derive(Debug)]
struct Held {
    published: u64,
    /// How many snapshots live at each sequence number.
    live: BTreeMap<u64, usize>,
    /// Snapshots below this may miss versions that were collected.
    collected: u64,
}

/// The snapshots of one region.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots(Arc<Mutex<Held>>);

impl Snapshots {
    /// Nothing of before `sequence` can be read: a restart kept no snapshots.
    pub(crate) fn new(sequence: u64) -> Self {
        Self(Arc::new(Mutex::new(Held { published: sequence, live: BTreeMap::new(), collected: sequence })))
    }

    /// Makes a write visible; answers the newest live snapshot from before it. `replaced` is the sequence number of the
    /// newest cell that the write replaces: such a cell may go when it is newer than that snapshot, for then nobody reads
    /// between the two. Readers who come later for that stretch are refused from here on, under the same lock: one that
    /// came between the look at the snapshots and the removal would miss what was removed.
    pub(crate) fn publish(&self, sequence: u64, replaced: Option<u64>) -> Option<u64> {
        let mut held = self.0.lock();
        debug_assert!(held.published <= sequence, "sequence numbers never go down");
        held.published = sequence;
        let newest = held.live.range(..sequence).next_back().map(|(snapshot, _)| *snapshot);
        if replaced > newest {
            held.collected = held.collected.max(sequence);
        }
        newest
    }

    pub(crate) fn published(&self) -> u64 {
        self.0.lock().published
    }

    /// Where a collection may begin: at the oldest live snapshot, or at what is published. Older ones are refused from
    /// here on, so that none appears while the collection runs.
    pub(crate) fn begin_collection(&self) -> u64 {
        let mut held = self.0.lock();
        let oldest = held.live.keys().next().copied().unwrap_or(held.published);
        held.collected = held.collected.max(oldest);
        oldest
    }

    pub(crate) fn take(&self) -> Snapshot {
        let mut held = self.0.lock();
        let sequence = held.published;
        *held.live.entry(sequence).or_default() += 1;
        drop(held);
        Snapshot { sequence, snapshots: self.clone() }
    }

    pub(crate) fn take_at(&self, sequence: u64) -> Result<Snapshot, SnapshotTooOld> {
        let mut held = self.0.lock();
        if sequence < held.collected {
            return Err(SnapshotTooOld { oldest: held.collected });
        }
        let sequence = sequence.min(held.published);
        *held.live.entry(sequence).or_default() += 1;
        drop(held);
        Ok(Snapshot { sequence, snapshots: self.clone() })
    }
}

/// A view of a region as of a sequence number. While it lives, nothing it sees is collected.
#[derive(Debug)]
pub struct Snapshot {
    sequence: u64,
    snapshots: Snapshots,
}

impl Snapshot {
    /// The last row mutation it sees.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut held = self.snapshots.0.lock();
        if let Some(count) = held.live.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                held.live.remove(&self.sequence);
            }
        }
    }
}
