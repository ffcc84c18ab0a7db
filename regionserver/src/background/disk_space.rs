//! Whether the disk has space for writes: a pure decision over its sizes.
//!
//! A reserve stays free, so that the log, and the flushes that let it be purged, never fail because our own writes filled
//! the disk. It holds at least a log segment and all memtables, whatever is configured. Writes and compactions stop before
//! they reach it. Entries from other leaders may use a part of it, so that when servers fill up together the leaders refuse
//! writes first, and what frees space (dropping a table) still gets through. Other programs may use all of it.

use std::path::Path;

/// The default reserve is this fraction of the disk, up to a maximum.
const RESERVE_FRACTION: u64 = 10;
const RESERVE_MAX: u64 = 2 << 30;
/// On a disk too small for a segment and the memtables, the reserve is this fraction.
const SMALL_DISK_FRACTION: u64 = 2;
/// Entries from other leaders are refused when less than this share of the reserve, in percent, is free.
const FOLLOWING_PERCENT: u64 = 75;
/// Writes resume when this share of the reserve, in percent, is free above it: not at every file that comes and goes.
const MARGIN_PERCENT: u64 = 5;
/// A disk with less free than this many times the reserve is nearly full.
const LOW_RESERVES: u64 = 2;

/// The state of the disk under the data directory.
#[derive(Debug, Default)]
pub(super) struct DiskSpace {
    /// Bytes to keep free, if configured.
    reserve: Option<u64>,
    /// The least the reserve holds: a log segment and all memtables.
    reserve_min: u64,
    full: bool,
}

/// What a pair of sizes means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assessment {
    /// Why writes are refused, if they are.
    pub(super) full: Option<String>,
    /// What to say if the disk is nearly full.
    pub(super) low: Option<String>,
    /// Whether entries from other leaders are refused too.
    pub(super) refuses_followed_entries: bool,
    /// Bytes free above the reserve.
    pub(super) available: u64,
}

impl DiskSpace {
    pub(super) fn new(reserve: Option<u64>, reserve_min: u64) -> Self {
        Self { reserve, reserve_min, full: false }
    }

    /// Decides what the present sizes of the disk mean.
    pub(super) fn assess(&mut self, directory: &Path, free: u64, total: u64) -> Assessment {
        let reserve = self.reserve.unwrap_or_else(|| (total / RESERVE_FRACTION).min(RESERVE_MAX));
        let least = self.reserve_min / FOLLOWING_PERCENT * 100;
        let reserve = reserve.max(least.min(total / SMALL_DISK_FRACTION));
        let needed = if self.full { reserve + reserve / 100 * MARGIN_PERCENT } else { reserve };
        self.full = free < needed;
        let full = self.full.then(|| {
            format!(
                "the disk of {} is full: {} are free, and writes need {}; free some space, and writes resume",
                directory.display(),
                mebibytes(free),
                mebibytes(needed)
            )
        });
        let low = (!self.full && free < reserve.saturating_mul(LOW_RESERVES)).then(|| {
            format!(
                "the disk of {} is nearly full: {} are free, and writes are rejected below {}; free some space, or add servers",
                directory.display(),
                mebibytes(free),
                mebibytes(reserve)
            )
        });
        let refuses_followed_entries = free < reserve / 100 * FOLLOWING_PERCENT;
        Assessment { full, low, refuses_followed_entries, available: free.saturating_sub(reserve) }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_how_much_space_is_missing() {
        let full = DiskSpace::default().assess(Path::new("/data"), (2 << 30) - 1, 1000 << 30).full.unwrap();
        assert_eq!(
            full,
            "the disk of /data is full: 2047 MiB are free, and writes need 2048 MiB; free some space, and writes resume"
        );
    }
}
