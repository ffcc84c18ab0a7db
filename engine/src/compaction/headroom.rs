//! The disk space that compactions may take: they ask before they begin, and stop before they touch the reserve.
//!
//! The code that watches the disk reports how much is free above its reserve, again and again. A rewrite needs as much as
//! its inputs hold, since these go only when all is written. One that does not fit is not begun, and a running one ends when
//! nothing is left; what it wrote is removed. Moves and drops of whole files take no space.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Plan, Tree};
use crate::Error;

/// Free bytes above the reserve. The numbers only hold work back, so relaxed accesses suffice.
#[derive(Debug)]
pub(crate) struct DiskHeadroom {
    bytes: AtomicU64,
    /// What the smallest compaction that was passed over needs; 0 when none was.
    awaited: AtomicU64,
}

impl Default for DiskHeadroom {
    fn default() -> Self {
        Self { bytes: AtomicU64::new(u64::MAX), awaited: AtomicU64::new(0) }
    }
}

impl DiskHeadroom {
    /// Notes how much is free.
    pub(crate) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// What the smallest waiting compaction needs, as of the last search; `None` when none waits.
    pub(crate) fn awaited(&self) -> Option<u64> {
        Some(self.awaited.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// A search for the next compaction begins.
    pub(crate) fn begin_search(&self) {
        self.awaited.store(0, Ordering::Relaxed);
    }

    /// Whether a plan may begin; one that may not is noted as waiting.
    pub(crate) fn admits(&self, plan: &Plan, tree: &Tree) -> bool {
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
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        Err(Error::io("compact without touching the disk's reserve")(std::io::ErrorKind::StorageFull.into()))
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

    fn free(bytes: u64) -> DiskHeadroom {
        DiskHeadroom { bytes: AtomicU64::new(bytes), ..DiskHeadroom::default() }
    }

    #[test]
    fn a_rewrite_begins_only_with_space_for_all_of_its_inputs() {
        let tree = Tree { level0: vec![file(1, 100), file(2, 50)], ..Tree::default() };
        assert!(DiskHeadroom::default().admits(&rewrite(&[1, 2]), &tree), "unlimited until a limit is set");
        let headroom = free(149);
        assert!(!headroom.admits(&rewrite(&[1, 2]), &tree));
        assert_eq!(headroom.awaited(), Some(150));
        assert!(headroom.admits(&rewrite(&[1]), &tree), "a smaller one fits");
        headroom.begin_search();
        assert_eq!(headroom.awaited(), None);
        assert!(free(150).admits(&rewrite(&[1, 2]), &tree));
    }

    #[test]
    fn what_frees_space_needs_none() {
        let tree = Tree { level0: vec![file(1, 100)], ..Tree::default() };
        assert!(free(0).admits(&Plan::Drop { files: vec![1] }, &tree));
        assert!(free(0).check().is_err() && free(1).check().is_ok());
    }
}
