//! Snapshots: a reader's guard on a sequence number.
//!
//! Under one mutex lie the region's published sequence number, the live snapshots, and up to where versions have been
//! collected. A write goes into the memtable, is published, and only then removes what it replaced: whoever takes a
//! snapshot after that sees the write, and whoever took one before is asked about ([`Retention`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::SnapshotTooOld;
use crate::memtable::{Limits, Retention};

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

    /// Makes everything up to `sequence` visible, and answers the newest snapshot that lives. `replaces` says that older
    /// versions will be removed then: in the same step snapshots at lower numbers are refused from here on, unless one
    /// lives there.
    pub(crate) fn publish(&self, sequence: u64, replaces: bool) -> Option<u64> {
        let mut held = self.0.lock();
        debug_assert!(held.published <= sequence, "sequence numbers never go down");
        held.published = sequence;
        if replaces {
            held.collected = held.collected.max(sequence);
        }
        held.live.keys().next_back().copied()
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

    /// The oldest live snapshot, or what is published.
    pub(crate) fn oldest(&self) -> u64 {
        let held = self.0.lock();
        held.live.keys().next().copied().unwrap_or(held.published)
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
        // What a living snapshot sees is not collected, so another at its number sees all of it too.
        if sequence < held.collected && !held.live.contains_key(&sequence) {
            return Err(SnapshotTooOld { oldest: held.collected });
        }
        let sequence = sequence.min(held.published);
        *held.live.entry(sequence).or_default() += 1;
        drop(held);
        Ok(Snapshot { sequence, snapshots: self.clone() })
    }
}

impl Retention for Snapshots {
    fn begin_drop(&self) -> Limits {
        let mut held = self.0.lock();
        // From here on no snapshot below what is published is given out, unless one lives at its number.
        held.collected = held.collected.max(held.published);
        Limits { newest_snapshot: held.live.keys().next_back().copied(), published: held.published }
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
