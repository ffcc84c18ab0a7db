//! What compactions may take of the disk: they ask before they begin, and stop before they touch the reserve.
//!
//! Whoever looks after the disk says how much is free above its reserve, again and again. A rewrite needs as much as its
//! inputs hold, since these go only when all is written. One that does not fit is not begun, and one under way ends when
//! nothing is left; what it wrote is removed. Moves and drops of whole files take no room.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Plan, Tree};
use crate::Error;
use crate::engine::Engine;

/// Free bytes above the reserve. The numbers only hold back: relaxed accesses do.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: AtomicU64,
    /// What the smallest compaction needs that was passed over; 0: none was.
    awaited: AtomicU64,
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: AtomicU64::new(u64::MAX), awaited: AtomicU64::new(0) }
    }
}

impl Room {
    /// A new search for the next compaction begins.
    pub(super) fn search(&self) {
        self.awaited.store(0, Ordering::Relaxed);
    }

    /// Whether a plan may be begun; one that may not is remembered.
    pub(super) fn admits(&self, plan: &Plan, tree: &Tree) -> bool {
        let Plan::Rewrite(rewrite) = plan else { return true };
        let size = |&(level, id): &(usize, u64)| {
            tree.level(level).iter().find(|file| file.id == id).map_or(0, |file| file.bytes)
        };
        let needed = rewrite.inputs.iter().map(size).sum::<u64>().max(1);
        if needed <= self.bytes.load(Ordering::Relaxed) {
            return true;
        }
        let awaited = self.awaited.load(Ordering::Relaxed);
        self.awaited.store(if awaited == 0 { needed } else { awaited.min(needed) }, Ordering::Relaxed);
        false
    }

    /// Fails when nothing is left above the reserve.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        Err(Error::io("compact without touching the disk's reserve")(std::io::ErrorKind::StorageFull.into()))
    }
}

impl Engine {
    /// How many bytes of the disk are free for compactions. Unlimited until this is called.
    pub fn set_compaction_room(&self, bytes: u64) {
        self.compaction_room.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The room that the smallest of the compactions needs which wait for it, as of the last
    /// [`Engine::next_compaction`]; `None`: none waits.
    #[must_use]
    pub fn compaction_waits_for(&self) -> Option<u64> {
        Some(self.compaction_room.awaited.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FileSummary, Reason, Rewrite};
    use super::*;

    fn file(id: u64, bytes: u64) -> FileSummary {
        FileSummary {
            id,
            bytes,
            first_row: bytes::Bytes::from_static(b"a"),
            last_row: bytes::Bytes::from_static(b"z"),
            min_timestamp: 0,
            max_timestamp: 0,
            min_sequence: 0,
            max_sequence: 0,
            cells: 1,
            deletes: 0,
            straddles: false,
            collected_sequence: 0,
            collected_ms: 0,
        }
    }

    fn rewrite(inputs: &[u64]) -> Plan {
        let inputs = inputs.iter().map(|id| (0, *id)).collect();
        Plan::Rewrite(Rewrite { inputs, to_level: 6, reason: Reason::Level0 })
    }

    fn free(bytes: u64) -> Room {
        Room { bytes: AtomicU64::new(bytes), ..Room::default() }
    }

    #[test]
    fn a_rewrite_begins_only_with_room_for_all_of_its_inputs() {
        let tree = Tree { level0: vec![file(1, 100), file(2, 50)], ..Tree::default() };
        assert!(Room::default().admits(&rewrite(&[1, 2]), &tree), "nobody has said anything");
        let room = free(149);
        assert!(!room.admits(&rewrite(&[1, 2]), &tree));
        assert_eq!(room.awaited.load(Ordering::Relaxed), 150);
        assert!(room.admits(&rewrite(&[1]), &tree), "a smaller one fits");
        room.search();
        assert_eq!(room.awaited.load(Ordering::Relaxed), 0);
        assert!(free(150).admits(&rewrite(&[1, 2]), &tree));
    }

    #[test]
    fn what_frees_room_needs_none() {
        let tree = Tree { level0: vec![file(1, 100)], ..Tree::default() };
        assert!(free(0).admits(&Plan::Drop { files: vec![1] }, &tree));
        assert!(free(0).check().is_err() && free(1).check().is_ok());
    }
}
