//! Whether the disk has room for writes: a plain decision over its sizes, made every second by the housekeeping.
//!
//! A reserve stays free, so that the log, and the flushes that let it be purged, never meet a full disk because of our own
//! writes: it has room for a log segment and for all memtables at least, whatever was configured. Writes and compactions
//! stop before they touch it. Entries of other leaders may take a part of it, so that of servers that fill up together the
//! leaders refuse writes first, and what makes room (the drop of a table) still comes through. Who else fills the disk may
//! take all of it.

use std::path::Path;

/// The reserve is the lesser of the disk's tenth part and so many bytes.
const RESERVE_PART: u64 = 10;
const RESERVE_MAX: u64 = 2 << 30;
/// Of a disk that is too small for segment and memtables, the reserve is this part.
const SMALL_DISK_PART: u64 = 2;
/// Entries of other leaders are refused when less than this of the reserve, in percent, is left.
const FOLLOWING_PERCENT: u64 = 75;
/// Writes go on when so much of the reserve, in percent, is free above it: not at every file that comes and goes.
const MARGIN_PERCENT: u64 = 5;

/// The disk under the data directory, as last looked at.
#[derive(Debug, Default)]
pub struct Disk {
    /// Bytes to be left free, where somebody has said so.
    reserve: Option<u64>,
    /// What the reserve holds at least: a log segment and all memtables.
    least: u64,
    full: bool,
}

/// What one look at the disk said.
#[derive(Debug, PartialEq, Eq)]
pub struct Look {
    /// Why the disk takes no writes, if it takes none.
    pub full: Option<String>,
    /// Whether it takes no entries of other leaders either.
    pub follows_nobody: bool,
    /// Bytes free above the reserve.
    pub room: u64,
}

impl Disk {
    #[must_use]
    pub fn new(reserve: Option<u64>, least: u64) -> Self {
        Self { reserve, least, full: false }
    }

    /// Takes in how much of the disk is free now.
    pub fn look(&mut self, directory: &Path, free: u64, total: u64) -> Look {
        let reserve = self.reserve.unwrap_or_else(|| (total / RESERVE_PART).min(RESERVE_MAX));
        let least = self.least / FOLLOWING_PERCENT * 100;
        let reserve = reserve.max(least.min(total / SMALL_DISK_PART));
        let wanted = if self.full { reserve + reserve / 100 * MARGIN_PERCENT } else { reserve };
        self.full = free < wanted;
        let full = self.full.then(|| {
            format!(
                "the disk of {} is full: {} are free, and writes need {}; make room, and they go on by themselves",
                directory.display(),
                mebibytes(free),
                mebibytes(wanted)
            )
        });
        let follows_nobody = free < reserve / 100 * FOLLOWING_PERCENT;
        Look { full, follows_nobody, room: free.saturating_sub(reserve) }
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

    fn why(disk: &mut Disk, free: u64, total: u64) -> Option<String> {
        disk.look(Path::new("/data"), free, total).full
    }

    fn is_full(reserve: Option<u64>, free: u64, total: u64) -> bool {
        why(&mut Disk::new(reserve, 300 * MIB), free, total).is_some()
    }

    #[test]
    fn a_tenth_of_a_small_disk_and_two_gibibytes_of_a_large_one_stay_free() {
        assert!(!is_full(None, 2 * GIB, 10 * GIB));
        assert!(is_full(None, GIB - 1, 10 * GIB));
        assert!(!is_full(None, 2 * GIB, 1000 * GIB));
        assert_eq!(
            why(&mut Disk::default(), 2 * GIB - 1, 1000 * GIB).unwrap(),
            "the disk of /data is full: 2047 MiB are free, and writes need 2048 MiB; make room, and they go on by themselves"
        );
    }

    #[test]
    fn writes_go_on_once_there_is_a_margin_again() {
        let mut disk = Disk::new(Some(GIB), 0);
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
        let mut disk = Disk::new(Some(GIB), 0);
        let mut follows_nobody = |free| disk.look(Path::new("/data"), free, 100 * GIB).follows_nobody;
        assert!(!follows_nobody(GIB - 1) && !follows_nobody(GIB / 4 * 3) && follows_nobody(GIB / 4 * 3 - MIB));
    }

    #[test]
    fn what_is_above_the_reserve_is_room_for_compactions() {
        let mut disk = Disk::new(Some(GIB), 0);
        let mut room = |free| disk.look(Path::new("/data"), free, 100 * GIB).room;
        assert_eq!((room(3 * GIB), room(GIB), room(0)), (2 * GIB, 0, 0));
    }
}
