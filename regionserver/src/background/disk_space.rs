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
        let refuses_followed_entries = free < reserve / 100 * FOLLOWING_PERCENT;
        Assessment { full, refuses_followed_entries, available: free.saturating_sub(reserve) }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn why(disk: &mut DiskSpace, free: u64, total: u64) -> Option<String> {
        disk.assess(Path::new("/data"), free, total).full
    }

    fn is_full(reserve: Option<u64>, free: u64, total: u64) -> bool {
        why(&mut DiskSpace::new(reserve, 300 * MIB), free, total).is_some()
    }

    #[test]
    fn a_tenth_of_a_small_disk_and_two_gibibytes_of_a_large_one_stay_free() {
        assert!(!is_full(None, 2 * GIB, 10 * GIB));
        assert!(is_full(None, GIB - 1, 10 * GIB));
        assert!(!is_full(None, 2 * GIB, 1000 * GIB));
        assert_eq!(
            why(&mut DiskSpace::default(), 2 * GIB - 1, 1000 * GIB).unwrap(),
            "the disk of /data is full: 2047 MiB are free, and writes need 2048 MiB; free some space, and writes resume"
        );
    }

    #[test]
    fn writes_resume_once_there_is_a_margin_again() {
        let mut disk = DiskSpace::new(Some(GIB), 0);
        assert!(why(&mut disk, GIB - 1, 100 * GIB).is_some());
        assert!(why(&mut disk, GIB, 100 * GIB).is_some());
        assert!(why(&mut disk, GIB + GIB / 10, 100 * GIB).is_none());
        assert!(why(&mut disk, GIB, 100 * GIB).is_none());
    }

    #[test]
    fn the_reserve_always_holds_a_segment_and_the_memtables() {
        for reserve in [Some(0), Some(64 * MIB), None] {
            assert!(is_full(reserve, 399 * MIB, GIB), "{reserve:?}");
            assert!(!is_full(reserve, 400 * MIB, GIB), "{reserve:?}");
        }
        assert!(!is_full(Some(0), 200 * MIB, 400 * MIB), "half of a disk that is too small for them");
        assert!(is_full(Some(0), 200 * MIB - 1, 400 * MIB));
    }

    #[test]
    fn entries_of_other_leaders_may_take_a_quarter_of_the_reserve() {
        let mut disk = DiskSpace::new(Some(GIB), 0);
        let mut refuses = |free| disk.assess(Path::new("/data"), free, 100 * GIB).refuses_followed_entries;
        assert!(!refuses(GIB - 1) && !refuses(GIB / 4 * 3) && refuses(GIB / 4 * 3 - MIB));
    }

    #[test]
    fn space_above_the_reserve_is_available_to_compactions() {
        let mut disk = DiskSpace::new(Some(GIB), 0);
        let mut available = |free| disk.assess(Path::new("/data"), free, 100 * GIB).available;
        assert_eq!((available(3 * GIB), available(GIB), available(0)), (2 * GIB, 0, 0));
    }
}
