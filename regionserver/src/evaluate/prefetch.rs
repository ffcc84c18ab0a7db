//! Reads ahead what the leader will need, while the write that needs it waits in its queue.
//!
//! The leader evaluates one write after another, so one that waits for the disk makes all after it wait too. The edge
//! therefore checks whether the columns are in memory, and otherwise has many threads read them at once; when the leader
//! comes to the write, they are in the block cache. Nothing depends on this, and it is skipped when there is much of it.
//!
//! Rows that were checked lately are not checked again, or the edge would also read every increment of a hot counter.
//! They are known by a hash in a table of fixed size: a row that takes another's place costs one more look.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use bytes::Bytes;
use terrane_engine::Patience;
use terrane_env::task::run_read;
use terrane_types::{Projection, RegionId};
use tokio_util::task::TaskTracker;

use super::needs::{self, Needs, Part};
use super::{Columns, stamp_ms};
use crate::group::proposal::Write;

/// Rows recorded.
const ROWS: usize = 16 << 10;
/// Rows of one write that are checked: the leader gathers what a large write needs at once anyway.
const ROWS_OF_WRITE_MAX: usize = 64;
/// Writes for which reading ahead may run at the same time.
const READS_MAX: usize = 64;

/// The rows that were checked lately, and how much is being read.
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
    /// Starts to read the columns that a write needs and that are not in memory. Returns at once.
    pub fn begin(&self, columns: &Arc<dyn Columns>, write: &Write, tasks: &TaskTracker) {
        let now_ms = stamp_ms(terrane_env::time::wall_ms());
        let mut cold = Vec::new();
        for row in write.rows().iter().take(ROWS_OF_WRITE_MAX) {
            let Some(request) = &row.request else { continue };
            if !self.is_new(write.header.region, &row.row) {
                continue;
            }
            let needs = Needs::of(row, request);
            let newest: Vec<_> = needs.columns.iter().cloned().collect();
            let newest = (!newest.is_empty()).then(|| (Part::Newest, needs::columns(&newest)));
            let whole = needs.whole_parts().map(|(part, projection)| (part, projection.clone()));
            for (part, projection) in newest.into_iter().chain(whole) {
                let memory = Patience::MemoryOnly;
                let read = part.read(&**columns, &row.row, &projection, now_ms, memory, &mut Vec::new());
                if let Err(terrane_engine::Error::NeedsDisk) = read {
                    cold.push((row.row.clone(), part, projection));
                }
            }
        }
        if !cold.is_empty() {
            self.read(columns, cold, now_ms, tasks);
        }
    }

    fn read(&self, columns: &Arc<dyn Columns>, cold: Vec<(Bytes, Part, Projection)>, now_ms: i64, tasks: &TaskTracker) {
        let reading = self.reading.clone();
        if reading.fetch_add(1, Ordering::Relaxed) >= READS_MAX {
            reading.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let columns = columns.clone();
        tasks.spawn(async move {
            run_read(move || {
                for (row, part, projection) in cold {
                    // The leader meets the error again, and answers with it.
                    part.read(&*columns, &row, &projection, now_ms, Patience::MayBlock, &mut Vec::new()).ok();
                }
            })
            .await;
            reading.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Whether a row was not checked lately. Records that it was.
    fn is_new(&self, region: RegionId, row: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(region.0);
        hasher.write(row);
        let hash = hasher.finish();
        // The upper half distinguishes rows with the same place; 0 means none.
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
