//! What reads of each family have met, for whoever shows it: whether the cache is large enough, and whether filters are
//! worth their bytes.

use std::sync::atomic::Ordering;

use terrane_types::{FamilyName, TableId};

use crate::backend::Backend;
use crate::engine::Engine;

/// What reads of one family have met since the engine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyReadCounts {
    /// Blocks that the cache had.
    pub cache_hits: u64,
    /// Blocks that were read from the disk.
    pub cache_misses: u64,
    /// Bytes of the blocks that were read from the disk.
    pub bytes_read: u64,
    /// Files that a filter kept a read from looking into.
    pub filtered: u64,
    /// Files that a filter let a read look into.
    pub passed: u64,
    /// Files that a filter let a read look into in vain.
    pub passed_in_vain: u64,
}

impl Engine {
    /// What reads of each family have met. Empty for an engine without a cache of its own.
    #[must_use]
    pub fn family_reads(&self) -> Vec<(TableId, FamilyName, FamilyReadCounts)> {
        let Backend::Lsm(tables) = &*self.backend else { return Vec::new() };
        let counts = tables.reads().into_iter().map(|((table, family), reads)| {
            let counts = FamilyReadCounts {
                cache_hits: reads.hits.load(Ordering::Relaxed),
                cache_misses: reads.misses.load(Ordering::Relaxed),
                bytes_read: reads.read_bytes.load(Ordering::Relaxed),
                filtered: reads.filter_negative.load(Ordering::Relaxed),
                passed: reads.filter_positive.load(Ordering::Relaxed),
                passed_in_vain: reads.filter_false.load(Ordering::Relaxed),
            };
            (table, family, counts)
        });
        counts.collect()
    }
}
