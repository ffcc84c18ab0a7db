//! Merges the sorted runs of memtables that are read, so that reads visit fewer of them. One region at a time: no request
//! waits for it.

use std::time::Duration;

use terrane_types::RegionId;
use tokio::time::Instant;

use super::jobs::Periodic;
use super::{Background, Finished, InFlight};

/// How often a server without writes looks for memtables worth merging.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Where the merging of runs is.
pub(super) struct RunMerges {
    pub(super) running: bool,
    /// The region that was merged last: the search continues after it.
    last: Option<RegionId>,
    idle_look: Periodic,
}

impl Default for RunMerges {
    fn default() -> Self {
        Self { running: false, last: None, idle_look: Periodic::every(IDLE_INTERVAL) }
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

    /// The same on a server without writes, where reads may have begun. It is done rarely, because it looks at all regions.
    pub(super) fn start_idle_run_merge(&self, in_flight: &mut InFlight) {
        if in_flight.run_merges.idle_look.is_due(Instant::now()) {
            self.start_run_merge(in_flight);
        }
    }
}
