//! The decisions of compaction, without files, clock or randomness.
//!
//! A store is a [`Tree`] of file summaries. [`pick`] says which files to rewrite together, move or drop next; [`debt()`]
//! says how far behind the store is, [`pressure`] and [`verdict`] what that costs writers, and [`Pacing`] how fast
//! compaction may read and write. All of them are plain functions of their arguments, so that tests draw trees as text,
//! and every replica decides alike.
//!
//! # The order of the log in a tree
//! The newest cells of a row are in the last file of level 0, then in the files before it, then in level 1, and so on
//! down to [`LEVEL_MAX`]. What is collected together must be a contiguous part of the log of each row, therefore
//! - inputs include, for every row they touch, all files between the newest and the oldest of them that touch it;
//! - the output takes the place of the oldest input, or a lower one with nothing older above it: cells never move past
//!   a file that stays;
//! - outputs in level 1 and deeper overlap no file that stays in their level, by their row ranges.
//!
//! `selection` holds these rules, for the levelled picker and the time windows alike.

mod debt;
mod headroom;
mod jobs;
mod levelled;
mod major;
mod pacing;
mod picker;
mod selection;
mod tiering;
mod time_window;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

pub(crate) use debt::{Debt, debt, pressure};
pub use debt::{Verdict, verdict};
pub(crate) use headroom::DiskHeadroom;
pub use jobs::CompactionProgress;
pub(crate) use jobs::Compactions;
pub(crate) use pacing::Pacing;
pub(crate) use picker::{pick, pick_major};

/// What an engine has done in compactions since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionTotals {
    /// Compactions carried out.
    pub compactions: u64,
    /// Bytes of data read.
    pub bytes_read: u64,
    /// Bytes of files written.
    pub bytes_written: u64,
    /// Bytes of data that wait to be compacted.
    pub bytes_pending: u64,
}

/// The deepest level. A fixed bottom and targets that grow upwards from it need no renumbering when a store grows.
pub(crate) const LEVEL_MAX: usize = 6;

/// A score or pressure of one: a level at its target, a store at its hard limit.
pub(crate) const PERMILLE: u64 = 1000;

/// What the picker knows of a store file. Rows and bytes are those within the region's bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSummary {
    pub(crate) id: u64,
    pub(crate) bytes: u64,
    pub(crate) first_row: Bytes,
    pub(crate) last_row: Bytes,
    pub(crate) min_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) min_sequence: u64,
    pub(crate) max_sequence: u64,
    pub(crate) cells: u64,
    pub(crate) deletes: u64,
    /// The file extends beyond the region.
    pub(crate) straddles: bool,
    /// The oldest snapshot of the rewrite that wrote the file, if everything older was present; otherwise 0. What could
    /// be collected up to there is gone: a file that kept tombstones nevertheless is not rewritten for them again and
    /// again.
    pub(crate) collected_sequence: u64,
    /// The log time of that rewrite; 0 for none.
    pub(crate) collected_ms: i64,
}

impl FileSummary {
    /// More than a quarter of its cells are tombstones: reads pay for them, and what they hide takes up space below.
    pub(crate) fn is_dense_in_deletes(&self) -> bool {
        self.deletes.saturating_mul(4) > self.cells
    }

    pub(crate) fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        self.first_row <= last && self.last_row >= first
    }
}

/// A running compaction: what [`Plan::job`] returned when it was picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) files: BTreeSet<u64>,
    pub(crate) to_level: usize,
}

/// The files of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Oldest first; they may overlap.
    pub(crate) level0: Vec<FileSummary>,
    /// Level 1 first; each sorted by row, and no row in two files of one level. Missing ones are empty.
    pub(crate) levels: Vec<Vec<FileSummary>>,
    /// The running compactions. Whole jobs and not only their files, since an output may cover the rows between two
    /// inputs, where a file that was flushed meanwhile would otherwise look free.
    pub(crate) busy: Vec<Job>,
}

impl Tree {
    pub(crate) fn level(&self, level: usize) -> &[FileSummary] {
        match level {
            0 => &self.level0,
            _ => self.levels.get(level - 1).map_or(&[], Vec::as_slice),
        }
    }

    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        (0..=LEVEL_MAX).map(|level| self.level_bytes(level)).sum()
    }

    /// The files of a level (from 1 on) that overlap these rows: neighbours, because levels are sorted.
    pub(crate) fn overlapping(&self, level: usize, first: &[u8], last: &[u8]) -> &[FileSummary] {
        let files = self.level(level);
        let start = files.partition_point(|file| file.last_row < first);
        let end = files.partition_point(|file| file.first_row <= last);
        &files[start..end.max(start)]
    }

    /// The highest level from 1 on that has files.
    pub(crate) fn first_filled_level(&self) -> Option<usize> {
        (1..=LEVEL_MAX).find(|&level| !self.level(level).is_empty())
    }
}

/// What the settings of the family and the region require of compaction, as of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The size at which the region splits.
    pub(crate) region_bytes: u64,
    /// The size of a memtable when it is flushed.
    pub(crate) flush_bytes: u64,
    /// The size of an output file in levels from 1 on. Level 0 gets one output file per rewrite.
    pub(crate) file_bytes: u64,
    /// The number of files in level 0 that triggers a compaction.
    pub(crate) level0_files: usize,
    /// The bytes that level 0 brings down at once, from which the first level between is computed.
    pub(crate) base_bytes: u64,
    /// How many times larger each level is than the one above.
    pub(crate) multiplier: u64,
    /// How long cells live. A family with a `ttl` is kept in time windows.
    pub(crate) ttl: Option<Duration>,
    /// The stamp of the last applied entry.
    pub(crate) log_time_ms: i64,
    /// Expiry is final: no other rules follow, and no cell is protected by a minimum of versions or a live snapshot.
    pub(crate) rules_drop_expired: bool,
    /// The oldest live snapshot, or the last applied sequence number: nothing newer is collected.
    pub(crate) oldest_snapshot: u64,
    /// The sequence number since which the present rules hold: files that were collected before may have more to drop.
    pub(crate) rules_sequence: u64,
}

impl Policy {
    const FILE_BYTES_DEFAULT: u64 = 32 << 20;
    const FILE_BYTES_MIN: u64 = 1 << 20;
    /// At four flushes, level 0 costs a read about as much as all levels below together.
    const LEVEL0_FILES: usize = 4;
    const MULTIPLIER: u64 = 10;

    /// The defaults for a region of this size. A small region has smaller files, so that it, too, is compacted in parts.
    pub(crate) fn new(region_bytes: u64, flush_bytes: u64) -> Self {
        // No smaller than a flush writes them, or than is worth a file.
        let least = Self::FILE_BYTES_MIN.min(flush_bytes.max(1));
        let file_bytes = (region_bytes / 16).clamp(least, Self::FILE_BYTES_DEFAULT);
        let level0_bytes = flush_bytes.saturating_mul(Self::LEVEL0_FILES as u64);
        Self {
            region_bytes,
            flush_bytes,
            file_bytes,
            level0_files: Self::LEVEL0_FILES,
            base_bytes: level0_bytes.max(file_bytes),
            multiplier: Self::MULTIPLIER,
            ttl: None,
            log_time_ms: 0,
            rules_drop_expired: false,
            oldest_snapshot: 0,
            rules_sequence: 0,
        }
    }

    /// Cells of this timestamp and lower ones are expired, if cells expire.
    pub(crate) fn expired_until_ms(&self) -> Option<i64> {
        let ttl = i64::try_from(self.ttl?.as_millis()).unwrap_or(i64::MAX);
        self.log_time_ms.checked_sub(ttl)?.checked_sub(1)
    }

    /// Nothing in the file will ever be visible again.
    pub(crate) fn is_expired(&self, file: &FileSummary) -> bool {
        self.expired_until_ms().is_some_and(|until| file.max_timestamp <= until)
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing would be gained.
    Idle,
    /// There is work, but a running job is in the way of all of it: pick again when one has ended.
    Wait,
    /// The file moves to a deeper level unchanged: one manifest record, no rewrite.
    Move {
        file: u64,
        from_level: usize,
        to_level: usize,
    },
    Rewrite(Rewrite),
    /// Everything in these files has expired.
    Drop {
        files: Vec<u64>,
    },
}

/// Files to be merged into new ones. The runner decides whether tombstones may go: they may, in the rows that no file
/// deeper than `to_level` has, or with `to_level` 0, no older file at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rewrite {
    /// Level and id, newest first in level 0 and by row in the others, upper levels first.
    pub(crate) inputs: Vec<(usize, u64)>,
    /// With 0, the one output file takes the place of the inputs in level 0.
    pub(crate) to_level: usize,
    pub(crate) reason: Reason,
}

/// Why a rewrite was picked; shown in logs, status and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Level 0 has reached its number of files or its bytes.
    Level0,
    /// Small files of level 0 are joined, because going down costs more, or is not possible now.
    SmallFiles,
    /// A level is larger than its target.
    LevelSize,
    /// The file is dense in deletes.
    Deletes,
    /// Part of the file belongs to another region.
    Straddles,
    /// A good part of the file has expired.
    Expired,
    /// Files of one time window are joined.
    Window,
    /// A time window is over: its files are joined for good.
    WindowClosed,
    /// It was requested.
    Major,
}

impl Plan {
    /// What is busy while the plan is carried out; `None` when it does nothing.
    pub(crate) fn job(&self) -> Option<Job> {
        match self {
            Plan::Idle | Plan::Wait => None,
            Plan::Move { file, to_level, .. } => Some(Job { files: BTreeSet::from([*file]), to_level: *to_level }),
            Plan::Rewrite(rewrite) => {
                Some(Job { files: rewrite.inputs.iter().map(|&(_, file)| file).collect(), to_level: rewrite.to_level })
            }
            Plan::Drop { files } => Some(Job { files: files.iter().copied().collect(), to_level: LEVEL_MAX }),
        }
    }
}

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tree_model;
