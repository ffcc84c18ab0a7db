//! The numbers of inserted rows, given out in order, and up to which all of them are acknowledged.
//!
//! A read must not choose a row whose insert is still on its way. So a read chooses among the rows below the first insert
//! that has not ended, as with YCSB's `AcknowledgedCounterGenerator`. A failed insert ends as well: its row is then missing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Rows `0..rows` exist at first.
#[derive(Debug)]
pub struct Inserts {
    /// The next number to insert.
    next: AtomicU64,
    /// All rows below exist. Changed under the lock; a reader that sees it late chooses among fewer rows.
    readable: AtomicU64,
    /// Ended inserts above an insert that has not ended; at most as many as there are calls in flight.
    ended: Mutex<BTreeSet<u64>>,
}

impl Inserts {
    pub fn new(rows: u64) -> Inserts {
        Inserts { next: AtomicU64::new(rows), readable: AtomicU64::new(rows), ended: Mutex::new(BTreeSet::new()) }
    }

    /// The number of the next row to insert.
    pub fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The insert of this row has ended.
    pub fn end(&self, row: u64) {
        let mut ended = self.ended.lock();
        ended.insert(row);
        let mut readable = self.readable.load(Ordering::Relaxed);
        while ended.remove(&readable) {
            readable += 1;
        }
        self.readable.store(readable, Ordering::Relaxed);
    }

    /// All rows below this number exist.
    pub fn readable(&self) -> u64 {
        self.readable.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_readable_once_all_before_it_are_written() {
        let inserts = Inserts::new(10);
        assert_eq!([inserts.begin(), inserts.begin(), inserts.begin()], [10, 11, 12]);
        inserts.end(12);
        inserts.end(11);
        assert_eq!(inserts.readable(), 10);
        inserts.end(10);
        assert_eq!((inserts.readable(), inserts.ended.lock().len()), (13, 0));
    }
}
