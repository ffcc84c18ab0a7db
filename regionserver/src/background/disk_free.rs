//! How much of the disk under the data directory is free, as the background task last read it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Stands for a disk that was not read yet, or could not be.
const UNKNOWN: u64 = u64::MAX;

/// The free bytes, written by the background task and read by reports.
#[derive(Debug)]
pub struct DiskFree(AtomicU64);

impl Default for DiskFree {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl DiskFree {
    /// Records what was read; `None`: it failed.
    pub fn set(&self, bytes: Option<u64>) {
        self.0.store(bytes.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// What was read last.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_cannot_be_read_has_no_figure() {
        let free = DiskFree::default();
        assert_eq!(free.get(), None);
        free.set(Some(0));
        assert_eq!(free.get(), Some(0));
        free.set(None);
        assert_eq!(free.get(), None);
    }
}
