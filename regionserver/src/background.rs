//! Background work: flushes, compactions, splits, records of group state, checks of the disk, and an empty entry per minute
//! in groups whose cells expire. Each kind of work has a module of its own.
//!
//! One task decides and owns everything in flight, so nothing is detached and nothing runs twice. It wakes on a signal from
//! applying, and otherwise every [`TURN`]; while nothing is applied a turn does next to nothing. A flush or compaction that
//! fails is logged once, shown as a health issue, and retried with growing pauses.
//!
//! Compactions run one at a time, alongside flushes. The next one is looked for when a flush or a compaction ends and when
//! one is requested, even while another runs: that search updates the pressure that slows writers down.

mod compact;
mod disk;
pub(crate) mod disk_free;
mod disk_space;
mod flush;
pub mod flush_policy;
pub(crate) mod hot;
mod jobs;
mod load_split;
pub(crate) mod maintenance;
mod merge;
mod merge_runs;
mod record;
pub(crate) mod shape_limits;
pub(crate) mod signals;
mod split;
mod tick;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use terrane_engine::Engine;
use terrane_raft::BoxFuture;
use terrane_types::{Error, GroupId, IssueKind, Place, RegionId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::disk::DISK_INTERVAL;
use self::disk_space::DiskSpace;
use self::flush::Flushing;
use self::jobs::{Jobs, Pace, Periodic};
use self::load_split::Watch;
use self::merge::MERGE_INTERVAL;
use self::merge_runs::RunMerges;
use self::tick::TICK_INTERVAL;
use crate::background::disk_free::DiskFree;
use crate::background::shape_limits::ShapeLimits;
use crate::background::signals::Signals;
use crate::edge::admission::Admission;
use crate::group::proposal::GroupHost;
use crate::health::HealthIssues;
use crate::masters::addresses::Addresses;
use crate::masters::region_ids::RegionIdStock;
use crate::metrics::Metrics;
use crate::replicas::Replicas;

/// How often sizes are checked while there are writes.
const TURN: Duration = Duration::from_millis(100);
/// How often the load of regions is measured.
const LOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The background task and everything it works with.
pub struct Background {
    pub replicas: Arc<Replicas>,
    pub host: Arc<GroupHost>,
    pub signals: Arc<Signals>,
    pub region_ids: Arc<RegionIdStock>,
    pub addresses: Arc<Addresses>,
    pub admission: Arc<Admission>,
    pub metrics: Arc<Metrics>,
    pub health: Arc<HealthIssues>,
    pub disk_free: Arc<DiskFree>,
    pub memtable_budget: u64,
    pub engine: Arc<Engine>,
    pub data_dir: PathBuf,
    /// Bytes of the disk to keep free, if configured.
    pub disk_reserve: Option<u64>,
    /// The least the reserve holds, whatever is configured.
    pub disk_reserve_min: u64,
    pub shape: ShapeLimits,
}

/// How a job ended.
enum Finished {
    Flush((GroupId, RegionId), Result<(), terrane_engine::Error>),
    Record(GroupId, Result<(), terrane_engine::Error>),
    Compaction(RegionId, Result<(), terrane_engine::Error>),
    Split(RegionId, Result<(), Error>),
    Merge(RegionId, Result<(), Error>),
    /// Free and total bytes of the disk.
    DiskCheck(std::io::Result<(u64, u64)>),
    RunMerge,
    Tick,
}

/// The jobs in flight, and those that pause after a failure.
struct InFlight {
    jobs: FuturesUnordered<BoxFuture<'static, Finished>>,
    pace: Pace,
    /// While a region moves, it may be here in both groups.
    flushes: Jobs<(GroupId, RegionId)>,
    flushing: Flushing,
    /// Separate from flushes: a region that cannot be split is flushed all the same.
    splits: Jobs<RegionId>,
    /// By left region. At most one runs.
    merges: Jobs<RegionId>,
    merge_turn: Periodic,
    load_turn: Periodic,
    /// The regions that this server leads and whose load is high.
    watches: BTreeMap<RegionId, Watch>,
    records: Jobs<GroupId>,
    /// At most one runs.
    compactions: Jobs<RegionId>,
    run_merges: RunMerges,
    tick: Periodic,
    disk_check: Periodic,
    disk_space: DiskSpace,
    /// Ends the jobs that wait for a log. Disk work runs to its end.
    stop: CancellationToken,
}

impl InFlight {
    fn new(disk_space: DiskSpace, stop: CancellationToken) -> Self {
        Self {
            jobs: FuturesUnordered::new(),
            pace: Pace::default(),
            flushes: Jobs::default(),
            flushing: Flushing::default(),
            splits: Jobs::default(),
            merges: Jobs::default(),
            merge_turn: Periodic::every(MERGE_INTERVAL),
            load_turn: Periodic::every(LOAD_INTERVAL),
            watches: BTreeMap::new(),
            records: Jobs::default(),
            compactions: Jobs::default(),
            run_merges: RunMerges::default(),
            tick: Periodic::every(TICK_INTERVAL),
            disk_check: Periodic::every(DISK_INTERVAL),
            disk_space,
            stop,
        }
    }

    fn push(&self, job: impl Future<Output = Finished> + Send + 'static) {
        self.jobs.push(Box::pin(job));
    }

    fn expire_backoffs(&mut self) {
        let now = Instant::now();
        self.flushes.backoffs.expire(now);
        self.splits.backoffs.expire(now);
        self.merges.backoffs.expire(now);
        self.records.backoffs.expire(now);
        self.compactions.backoffs.expire(now);
    }

    fn has_backoffs(&self) -> bool {
        !(self.flushes.backoffs.is_empty()
            && self.splits.backoffs.is_empty()
            && self.records.backoffs.is_empty()
            && self.compactions.backoffs.is_empty())
    }
}

impl Background {
    /// Runs until `stop`, then waits for the jobs in flight.
    pub async fn run(self, stop: CancellationToken) {
        let disk_space = DiskSpace::new(self.disk_reserve, self.disk_reserve_min);
        let mut in_flight = InFlight::new(disk_space, stop.clone());
        // Files from before the start may need a compaction.
        self.signals.request_compaction();
        let mut turn = tokio::time::interval(TURN);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(finished) = in_flight.jobs.next() => self.finish(&mut in_flight, finished),
                () = self.signals.woken() => {}
                () = in_flight.pace.until_owed() => {}
                _ = turn.tick() => {}
            }
            self.turn(&mut in_flight);
        }
        // A compaction that is cut off loses only its own work so far.
        self.engine.stop_compactions();
        while in_flight.jobs.next().await.is_some() {}
        self.signals.release_gate();
    }

    /// Starts what is due, unless the last look at all regions was a moment ago.
    fn turn(&self, in_flight: &mut InFlight) {
        let began = Instant::now();
        if in_flight.pace.may_look(began) {
            self.start_what_is_due(in_flight);
            in_flight.pace.looked(began, Instant::now());
        }
    }

    fn start_what_is_due(&self, in_flight: &mut InFlight) {
        let idle = !self.signals.take_work();
        in_flight.expire_backoffs();
        self.start_disk_check(in_flight);
        self.start_load_splits(in_flight);
        self.start_merges(in_flight);
        let has_looked = self.look_at_memtables(in_flight);
        if idle && !in_flight.has_backoffs() && !self.signals.has_requested_flushes() {
            if has_looked {
                self.start_run_merge(in_flight);
            }
            self.start_ticks(in_flight);
            return;
        }
        self.start_records(in_flight);
        self.start_flushes(in_flight);
        self.start_compaction(in_flight);
        self.start_splits(in_flight);
        self.start_run_merge(in_flight);
        self.start_ticks(in_flight);
    }

    fn finish(&self, in_flight: &mut InFlight, finished: Finished) {
        let now = Instant::now();
        match finished {
            Finished::Flush(key, result) => {
                let region = key.1;
                self.metrics.flushes.inc();
                self.note_damage(region, &result);
                let job = format!("flush of region {region}");
                let succeeded = self.report_outcome(IssueKind::Flush, Place::Region(region), &job, &result);
                in_flight.flushing.end(&key);
                in_flight.flushes.finish(key, succeeded, now);
                if succeeded {
                    self.signals.note_compaction();
                } else {
                    self.signals.flush_failed(region);
                }
            }
            Finished::Record(group, result) => {
                let job = format!("record of group {group}");
                let succeeded = self.report_outcome(IssueKind::Flush, Place::Group(group), &job, &result);
                in_flight.records.finish(group, succeeded, now);
            }
            Finished::Split(region, result) => {
                if let Err(error) = &result {
                    tracing::debug!(%region, %error, "the region was not split");
                    if let Some(watch) = in_flight.watches.get_mut(&region) {
                        watch.postpone();
                    }
                }
                in_flight.splits.finish(region, result.is_ok(), now);
            }
            Finished::Merge(region, result) => {
                if let Err(error) = &result {
                    tracing::debug!(%region, %error, "the region was not merged");
                }
                in_flight.merges.finish(region, result.is_ok(), now);
                if result.is_ok() {
                    // Others may wait: the next one is looked for at once.
                    in_flight.merge_turn = Periodic::every(MERGE_INTERVAL);
                }
                return;
            }
            Finished::Compaction(region, result) => {
                self.note_damage(region, &result);
                let job = format!("compaction of region {region}");
                let succeeded = self.report_outcome(IssueKind::Compaction, Place::Region(region), &job, &result);
                in_flight.compactions.finish(region, succeeded, now);
                self.signals.note_compaction();
            }
            Finished::DiskCheck(sizes) => {
                self.apply_disk_check(in_flight, sizes);
                return;
            }
            Finished::RunMerge => in_flight.run_merges.running = false,
            Finished::Tick => {}
        }
        // The next job of this kind may start now.
        self.signals.note_work();
    }

    fn note_damage(&self, region: RegionId, result: &Result<(), terrane_engine::Error>) {
        if let (Err(error), Some(hosted)) = (result, self.replicas.regions.get(region)) {
            hosted.note_damage(error);
        }
    }

    /// Opens or closes the health issue of a job on the disk; true if the job succeeded.
    fn report_outcome(
        &self,
        kind: IssueKind,
        place: Place,
        job: &str,
        result: &Result<(), terrane_engine::Error>,
    ) -> bool {
        match result {
            Ok(()) => {
                if self.health.clear(kind, Some(place)) {
                    tracing::info!("the {job} succeeded after failures");
                }
                true
            }
            Err(error) => {
                if self.health.set(kind.issue(format!("the {job} failed: {error}")).at(place)) {
                    tracing::error!("the {job} failed and will be retried: {error}");
                }
                false
            }
        }
    }
}
