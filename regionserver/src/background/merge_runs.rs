//! Merges the sorted runs of memtables that are read, so that reads visit fewer of them, and gives readers copies of buffers
//! that are no longer written. One region at a time: no request waits for it.

use std::time::Duration;

use terrane_types::RegionId;
use tokio::time::Instant;

use super::jobs::Periodic;
use super::{Background, Finished, InFlight};

/// How often a server checks which memtables are no longer written. A server without writes also looks for merges this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Copies of buffers take at most this part of the memtable budget, beside it.
const COPIES_PART: u64 = 8;

/// Where the merging of runs is.
pub(super) struct RunMerges {
    pub(super) running: bool,
    /// The region that was merged last: the search continues after it.
    last: Option<RegionId>,
    look: Periodic,
}

impl Default for RunMerges {
    fn default() -> Self {
        Self { running: false, last: None, look: Periodic::every(LOOK_INTERVAL) }
    }
}

impl Background {
    /// Starts the merge of the next region's runs, unless one runs.
    pub(super) fn start_run_merge(&self, in_flight: &mut InFlight) {
        let merges = &mut in_flight.run_merges;
        if merges.running {
            return;
        }
        let mut regions = self.replicas.regions.all();
        let next = regions.partition_point(|hosted| Some(hosted.region) <= merges.last);
        regions.rotate_left(next);
        let Some(hosted) = regions.into_iter().find(|hosted| hosted.engine.wants_merge()) else {
            return;
        };
        merges.running = true;
        merges.last = Some(hosted.region);
        in_flight.push(async move {
            terrane_env::task::run_blocking(move || hosted.engine.merge_memtable()).await;
            Finished::RunMerge
        });
    }

    /// Checks all memtables if that is due. Returns whether it was: a server without writes then looks for merges, because
    /// reads may have begun.
    pub(super) fn look_at_memtables(&self, in_flight: &mut InFlight) -> bool {
        let is_due = in_flight.run_merges.look.is_due(Instant::now());
        if is_due {
            let mut room = self.memtable_budget / COPIES_PART;
            for hosted in self.replicas.regions.all() {
                room = room.saturating_sub(hosted.engine.look_at_memtables(room));
            }
        }
        is_due
    }
}
