//! Merges the sorted runs of memtables that are read, so that reads visit fewer of them, and copies their buffers into runs
//! once they are no longer written. One region at a time: no request waits for it.

use std::time::Duration;

use terrane_types::RegionId;
use tokio::time::Instant;

use super::jobs::Periodic;
use super::{Background, Finished, InFlight};

/// How often a server looks which memtables are no longer written, and one without writes for memtables worth merging.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

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

    /// Has every region look at its memtables where that is due. Returns whether it was; then a server without writes, too,
    /// looks for merges: reads may have begun.
    pub(super) fn look_at_memtables(&self, in_flight: &mut InFlight) -> bool {
        let is_due = in_flight.run_merges.look.is_due(Instant::now());
        if is_due {
            self.replicas.regions.all().iter().for_each(|hosted| hosted.engine.look_at_memtables());
        }
        is_due
    }
}
