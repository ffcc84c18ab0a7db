//! Flushes and compactions of a whole table that an administrator requests: of this server's replicas, whether they lead or
//! not.
//!
//! A flush is done here. Compactions are requested from the engine and carried out by the background task, one after another
//! among whatever else is urgent, so repeated requests cost nothing. Both report progress several times a second, even when
//! nothing has changed: it shows the caller that this server is alive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures::{Stream, StreamExt};
use terrane_engine::Engine;
use terrane_types::{Error, IssueKind, Place, RegionId, TableId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::background::flush_policy::FLUSHES_MAX;
use crate::background::signals::Signals;
use crate::edge::error_mapping::stopping;
use crate::group::machine::GroupMachine;
use crate::health::HealthIssues;
use crate::replicas::Replicas;
use crate::replicas::hosted::HostedRegion;

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// A compaction that fails is retried. After this time the caller is told about the failure.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);

/// Carries out requested flushes and compactions.
#[derive(Clone)]
pub struct Maintenance {
    pub replicas: Arc<Replicas>,
    pub engine: Arc<Engine>,
    pub signals: Arc<Signals>,
    pub health: Arc<HealthIssues>,
    pub closing: CancellationToken,
}

/// The progress of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Replicas of the table here, and how many of them are done.
    pub regions: u32,
    pub regions_done: u32,
    /// Bytes of their memtables, or of their files, and how many of them are done.
    pub bytes: u64,
    pub bytes_done: u64,
    /// Failures of regions that are done, one sentence each.
    pub failures: Vec<String>,
    /// Whether this is the last message.
    pub done: bool,
}

/// A region whose compaction the request waits for.
struct Waiting {
    hosted: Arc<HostedRegion>,
    /// Since when its compaction has been failing.
    failing: Option<Instant>,
    failure: Option<String>,
}

impl Maintenance {
    fn replicas(&self, table: TableId) -> Vec<(Arc<GroupMachine>, Arc<HostedRegion>)> {
        let machines = self.replicas.machines().into_iter();
        let of_machine = |machine: Arc<GroupMachine>| {
            machine.hosted().into_iter().map(move |hosted| (machine.clone(), hosted)).collect::<Vec<_>>()
        };
        machines.flat_map(of_machine).filter(|(_, hosted)| hosted.engine.table() == table).collect()
    }

    /// Flushes the table's replicas on this server.
    pub fn flush(self, table: TableId) -> impl Stream<Item = Result<Progress, Error>> + Send + 'static {
        stream! {
            let replicas = self.replicas(table);
            let mut progress = Progress { regions: count(replicas.len()), ..Progress::default() };
            let sized: Vec<_> =
                replicas.into_iter().map(|(machine, hosted)| (hosted.engine.memtable_bytes(), machine, hosted)).collect();
            progress.bytes = sized.iter().map(|(bytes, ..)| *bytes).sum();
            yield Ok(progress.clone());
            let flushes = sized.into_iter().map(|(bytes, machine, hosted)| async move {
                (bytes, machine.flush(hosted.region).await, hosted)
            });
            let mut flushes = futures::stream::iter(flushes).buffer_unordered(FLUSHES_MAX);
            let mut turn = tokio::time::interval(PROGRESS_INTERVAL);
            loop {
                tokio::select! {
                    biased;
                    () = self.closing.cancelled() => {
                        yield Err(stopping());
                        return;
                    }
                    flushed = flushes.next() => {
                        let Some((bytes, flushed, hosted)) = flushed else { break };
                        progress.regions_done += 1;
                        progress.bytes_done += bytes;
                        if let Err(error) = flushed {
                            hosted.note_damage(&error);
                            progress.failures.push(format!("the flush of region {} failed: {error}", hosted.region));
                        }
                    }
                    _ = turn.tick() => {}
                }
                yield Ok(progress.clone());
            }
            self.signals.request_compaction();
            progress.done = true;
            yield Ok(progress);
        }
    }

    /// Flushes the table's replicas on this server and rewrites their files. Daughters of regions that are split meanwhile
    /// are included.
    pub fn compact(self, table: TableId) -> impl Stream<Item = Result<Progress, Error>> + Send + 'static {
        stream! {
            let mut waiting = BTreeMap::<RegionId, Waiting>::new();
            let mut turn = tokio::time::interval(PROGRESS_INTERVAL);
            loop {
                tokio::select! {
                    biased;
                    () = self.closing.cancelled() => {
                        yield Err(stopping());
                        return;
                    }
                    _ = turn.tick() => {}
                }
                let mut living = self.replicas(table);
                living.retain(|(_, hosted)| !waiting.get(&hosted.region).is_some_and(|waits| Arc::ptr_eq(&waits.hosted, hosted)));
                for (machine, hosted) in living {
                    let failure = self.request(&machine, &hosted).await;
                    waiting.insert(hosted.region, Waiting { hosted, failing: None, failure });
                    // Each took a flush: report progress in between.
                    yield Ok(Progress { done: false, ..self.compacted(&mut waiting) });
                }
                let progress = self.compacted(&mut waiting);
                let done = progress.done;
                yield Ok(progress);
                if done {
                    return;
                }
            }
        }
    }

    /// Requests the compaction of a region. Returns why that failed, if it did.
    async fn request(&self, machine: &GroupMachine, hosted: &HostedRegion) -> Option<String> {
        if let Err(error) = machine.flush(hosted.region).await {
            hosted.note_damage(&error);
            return Some(format!("the flush of region {} failed: {error}", hosted.region));
        }
        self.engine.request_compaction(&hosted.engine);
        self.signals.request_compaction();
        None
    }

    fn compacted(&self, waiting: &mut BTreeMap<RegionId, Waiting>) -> Progress {
        let mut progress = Progress { regions: count(waiting.len()), ..Progress::default() };
        for (region, waits) in waiting.iter_mut() {
            let compaction = waits.hosted.engine.compaction_progress();
            progress.bytes += compaction.bytes_total;
            // A region that was split or dropped, or that a copy of its group replaced, holds nothing any more. Its successors are
            // waited for by themselves.
            let here = self.replicas.regions.get(*region);
            let gone = here.is_none_or(|here| !Arc::ptr_eq(&here, &waits.hosted));
            if compaction.wanted && !gone && waits.failure.is_none() {
                progress.bytes_done += compaction.bytes_done.min(compaction.bytes_total);
                waits.failure = self.given_up(*region, &mut waits.failing);
            } else {
                progress.regions_done += 1;
                progress.bytes_done += compaction.bytes_total;
            }
            progress.failures.extend(waits.failure.clone());
        }
        progress.done = progress.regions_done == progress.regions;
        progress
    }

    /// Why the request no longer waits for a region's compaction, once that has failed for a while.
    fn given_up(&self, region: RegionId, failing: &mut Option<Instant>) -> Option<String> {
        let Some(failure) = self.health.get(IssueKind::Compaction, Place::Region(region)) else {
            *failing = None;
            return None;
        };
        let since = *failing.get_or_insert_with(Instant::now);
        (since.elapsed() >= GIVE_UP_AFTER).then(|| failure.text())
    }
}

fn count(regions: usize) -> u32 {
    u32::try_from(regions).unwrap_or(u32::MAX)
}
