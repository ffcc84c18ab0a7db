//! The workloads and their names.

use std::fmt;

use serde::Serialize;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Sorted batches of 1,000 rows, into an empty store.
    Batches,
    /// Every row, one at a time, in random order.
    Inserts,
    /// Write everything to disk and wait until the store is idle.
    Drain,
    /// Compact everything to the last level.
    Compact,
    /// Random existing rows, warm.
    Gets,
    /// Random absent keys between existing ones.
    AbsentGets,
    /// 100 rows from random starts, warm.
    Scans,
    /// The same in reverse.
    ReverseScans,
    /// All rows, warm.
    FullScan,
    /// Reopen, up to the first get.
    Reopen,
    /// Overwrite random rows while everything is compacted.
    PutsInCompaction,
}

impl Workload {
    /// All workloads, in the order in which they run.
    pub const ALL: [Self; 11] = [
        Self::Batches,
        Self::Inserts,
        Self::Drain,
        Self::Compact,
        Self::Gets,
        Self::AbsentGets,
        Self::Scans,
        Self::ReverseScans,
        Self::FullScan,
        Self::Reopen,
        Self::PutsInCompaction,
    ];
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batches => "sorted batches of 1,000",
            Self::Inserts => "inserts, random order",
            Self::Drain => "drain",
            Self::Compact => "full compaction",
            Self::Gets => "point gets",
            Self::AbsentGets => "point gets, absent",
            Self::Scans => "100-row scans",
            Self::ReverseScans => "100-row scans, reverse",
            Self::FullScan => "full scan",
            Self::Reopen => "reopen",
            Self::PutsInCompaction => "puts while compacting",
        })
    }
}
