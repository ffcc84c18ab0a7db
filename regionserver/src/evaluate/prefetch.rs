//! Reads ahead what the leader will need, while the write that needs it waits in its queue.
//!
//! The leader evaluates one operation after another, so each that has to wait for the disk would make all behind it wait as
//! well. So the edge looks whether the columns are in memory, and if they are not has them read by many threads at once;
//! when the leader comes to the operation, they are in the block cache. This is a favour: nothing depends on it, and it is
//! left out when there is much of it.
//!
//! Rows that were looked at lately are not looked at again, or every increment of a hot counter would be read at the edge
//! too. They are known by a hash in a table of fixed size: a row that takes another's place makes the edge look once more.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use bytes::Bytes;
use terrane_engine::Patience;
use terrane_env::task::run_read;
use terrane_types::{Projection, RegionId};
use tokio_util::task::TaskTracker;

use super::needs::{self, Needs};
use super::{Columns, stamp_ms};
use crate::operation::{Request, Submitted};

/// Rows remembered.
const ROWS: usize = 16 << 10;
/// Rows of one write that are looked at: the leader gathers what a large write needs at once anyway.
const ROWS_OF_WRITE_MAX: usize = 64;
/// Writes that are read ahead for at the same time.
const READS_MAX: usize = 64;

/// The rows that were looked at lately, and how much is being read.
pub struct Prefetch {
    rows: Box<[AtomicU32]>,
    reading: Arc<AtomicUsize>,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self { rows: (0..ROWS).map(|_| AtomicU32::new(0)).collect(), reading: Arc::default() }
    }
}

impl Prefetch {
    /// Has the columns read that a submitted write needs and that memory does not have. Returns at once.
    pub fn begin(&self, columns: &Arc<dyn Columns>, operation: &[u8], tasks: &TaskTracker) {
        let Ok(Some(write)) = Submitted::read(operation) else { return };
        let now_ms = stamp_ms(terrane_env::time::wall_ms());
        let mut cold = Vec::new();
        for row in write.rows().take(ROWS_OF_WRITE_MAX).flatten() {
            let Some(request) = row.request else { continue };
            if !self.is_new(write.header.region, row.row) {
                continue;
            }
            let Ok(request) = Request::decode(request) else { continue };
            let needs = Needs::of(&row, &request);
            let newest: Vec<_> = needs.columns.into_iter().collect();
            let newest = (!newest.is_empty()).then(|| needs::columns(&newest));
            for projection in newest.into_iter().chain(needs.whole) {
                let read = columns.read(row.row, &projection, now_ms, Patience::MemoryOnly, &mut Vec::new());
                if let Err(terrane_engine::Error::NeedsDisk) = read {
                    cold.push((Bytes::copy_from_slice(row.row), projection));
                }
            }
        }
        if !cold.is_empty() {
            self.read(columns, cold, now_ms, tasks);
        }
    }

    fn read(&self, columns: &Arc<dyn Columns>, cold: Vec<(Bytes, Projection)>, now_ms: i64, tasks: &TaskTracker) {
        let reading = self.reading.clone();
        if reading.fetch_add(1, Ordering::Relaxed) >= READS_MAX {
            reading.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let columns = columns.clone();
        tasks.spawn(async move {
            run_read(move || {
                for (row, projection) in cold {
                    // Whoever needs it meets the error again, and answers for it.
                    columns.read(&row, &projection, now_ms, Patience::MayBlock, &mut Vec::new()).ok();
                }
            })
            .await;
            reading.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Whether a row was not looked at lately; from now on it was.
    fn is_new(&self, region: RegionId, row: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(region.0);
        hasher.write(row);
        let hash = hasher.finish();
        // The upper half tells rows of one place apart; 0 is nobody.
        let tag = u32::try_from(hash >> 32).unwrap_or(1).max(1);
        let place = usize::try_from(hash % ROWS as u64).unwrap_or(0);
        self.rows[place].swap(tag, Ordering::Relaxed) != tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_new_once() {
        let prefetch = Prefetch::default();
        assert!(prefetch.is_new(RegionId(1), b"row"));
        assert!(!prefetch.is_new(RegionId(1), b"row"));
        assert!(prefetch.is_new(RegionId(2), b"row"));
    }
}
