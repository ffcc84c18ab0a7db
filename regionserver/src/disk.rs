//! Whether the disk has room for writes: a plain decision over its sizes, made every second by the housekeeping.
//!
//! A reserve stays free, so that the log, and the flushes that let it be purged, never meet a full disk because of our own
//! writes. Who else fills the disk may still take it.

use std::path::Path;

/// The reserve is the lesser of the disk's tenth part and so many bytes.
const RESERVE_PART: u64 = 10;
const RESERVE_MAX: u64 = 2 << 30;
/// Writes go on when so much of the reserve, in percent, is free above it: not at every file that comes and goes.
const MARGIN_PERCENT: u64 = 5;

/// The disk under the data directory, as last looked at.
#[derive(Debug, Default)]
pub struct Disk {
    /// Bytes to be left free, where somebody has said so.
    reserve: Option<u64>,
    full: bool,
}

impl Disk {
    #[must_use]
    pub fn new(reserve: Option<u64>) -> Self {
        Self { reserve, full: false }
    }

    /// Takes in how much of the disk is free now; answers why it takes no writes, if it takes none.
    pub fn look(&mut self, directory: &Path, free: u64, total: u64) -> Option<String> {
        let reserve = self.reserve.unwrap_or_else(|| (total / RESERVE_PART).min(RESERVE_MAX));
        let wanted = if self.full { reserve + reserve / 100 * MARGIN_PERCENT } else { reserve };
        self.full = free < wanted;
        self.full.then(|| {
            format!(
                "the disk of {} is full: {} are free, and writes need {}; make room, and they go on by themselves",
                directory.display(),
                mebibytes(free),
                mebibytes(wanted)
            )
        })
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_tenth_of_a_small_disk_and_two_gibibytes_of_a_large_one_stay_free() {
        let dir = Path::new("/data");
        assert!(Disk::default().look(dir, 2 * GIB, 10 * GIB).is_none());
        assert!(Disk::default().look(dir, GIB - 1, 10 * GIB).is_some());
        assert!(Disk::default().look(dir, 2 * GIB, 1000 * GIB).is_none());
        let why = Disk::default().look(dir, 2 * GIB - 1, 1000 * GIB).unwrap();
        assert_eq!(
            why,
            "the disk of /data is full: 2047 MiB are free, and writes need 2048 MiB; make room, and they go on by themselves"
        );
    }

    #[test]
    fn writes_go_on_once_there_is_a_margin_again() {
        let mut disk = Disk::new(Some(GIB));
        assert!(disk.look(Path::new("/data"), GIB - 1, 100 * GIB).is_some());
        assert!(disk.look(Path::new("/data"), GIB, 100 * GIB).is_some());
        assert!(disk.look(Path::new("/data"), GIB + GIB / 10, 100 * GIB).is_none());
        assert!(disk.look(Path::new("/data"), GIB, 100 * GIB).is_none());
    }

    #[test]
    fn no_reserve_is_never_full() {
        assert!(Disk::new(Some(0)).look(Path::new("/data"), 0, GIB).is_none());
    }
}
