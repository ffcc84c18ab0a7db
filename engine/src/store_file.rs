//! Store files: sorted, immutable files of cells of one family, in blocks under checksums.
//!
//! ```text
//! file = data block* | filter? | prefix filter? | index partition* | top index | properties | footer
//! ```
//!
//! [`StoreFileWriter`] makes one from cells in store order; [`StoreFile`] reads it. What most reads need stays in
//! memory while a file is open: filters, the top index, properties, and index partitions within a budget
//! ([`PinnedBudget`]). Data blocks and the rest of the index come through the [`BlockCache`].
//! `docs/formats/store-file.md` has the layout with an example.
//!
//! Reads are plain blocking code: a point get that finds everything in memory never awaits, and what needs the disk
//! runs where blocking is allowed ([`Reading::blocking`](crate::source::Reading)).
//!
//! # Invariants
//! - A file is written once, synced before anything refers to it, and never changed. Its id is never given out again.
//! - No byte is used before the checksum over it, its place and its file is verified.
//! - An index entry is an upper bound of its block and below everything that follows it.
//! - Filters only err towards "may be present".

mod block;
mod block_cache;
mod builder;
mod check;
mod cursor;
mod data_block;
mod filter;
mod footer;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod index;
mod listing;
mod properties;
mod read_ahead;
mod reader;
mod reverse;
mod source;
mod survey;
mod varint;
mod walk;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrane_env::fs::Disk;

use self::block_cache::BlockCache;
use crate::descriptors::Descriptors;

pub use block_cache::FamilyReadCounts;
pub(crate) use block_cache::FamilyReads;
pub use builder::StoreFileBuilder;
pub(crate) use footer::VERSIONS;
pub(crate) use properties::StoreFileProperties;
pub(crate) use reader::StoreFile;
pub(crate) use writer::{StoreFileOptions, StoreFileWriter};

/// The extension of store files.
pub(crate) const EXTENSION_WITH_DOT: &str = ".tbl";

/// The length of a row's prefix in bytes; `None` when the row has none.
pub(crate) type PrefixOf = Arc<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;

/// What all open store files of a server share.
#[derive(Debug)]
pub(crate) struct StoreFileShared {
    pub(crate) disk: Disk,
    pub(crate) dir: PathBuf,
    pub(crate) cache: BlockCache,
    pub(crate) descriptors: Descriptors,
    pub(crate) pinned: PinnedBudget,
}

/// Memory for index partitions that open files keep, in addition to the block cache.
#[derive(Debug)]
pub(crate) struct PinnedBudget {
    left: AtomicU64,
}

impl PinnedBudget {
    /// A budget of this many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes) }
    }

    /// Takes bytes; `false` when not enough are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        // Only a count of bytes: nothing is ordered by it.
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Returns bytes that were taken.
    pub(crate) fn release_bytes(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Index partitions may take the block cache's size divided by this, in addition to the cache.
const PINNED_PART: u64 = 8;

impl StoreFileShared {
    pub(crate) fn new(disk: Disk, dir: PathBuf, cache_bytes: u64, open_files_max: usize) -> Self {
        let descriptors = Descriptors::new(disk.clone(), open_files_max);
        let pinned = PinnedBudget::new(cache_bytes / PINNED_PART);
        Self { disk, dir, cache: BlockCache::new(cache_bytes), descriptors, pinned }
    }
}

/// The name of a store file: the only place that knows it.
pub(crate) fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:016}{EXTENSION_WITH_DOT}"))
}

/// The id of the store file with this name; `None` for names of other files.
pub(crate) fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION_WITH_DOT)?;
    let all_digits = digits.len() >= 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
