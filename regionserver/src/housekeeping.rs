//! The work behind the requests: flushes, splits, records of group state, and an empty entry a minute for tables whose
//! cells expire.
//!
//! One task decides and owns everything under way, so nothing is detached and nothing runs twice. It wakes when applying
//! says that something is due and looks around every so often; when nothing was applied it does next to nothing. A flush
//! that fails is logged once, shown as a trouble, and tried again after a growing pause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use terrane_raft::{BoxFuture, GroupHost};
use terrane_types::{Error, GroupId, RegionId};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::cluster::Addresses;
use crate::flush::{self, Candidate};
use crate::group::machine::GroupMachine;
use crate::ids::IdStock;
use crate::metrics::Metrics;
use crate::operation;
use crate::region::split;
use crate::registry::{Hosted, Registry};
use crate::troubles::Troubles;

/// How often sizes are looked at while there are writes.
const TURN: Duration = Duration::from_millis(100);
/// Splits under way at once: each freezes a region's memtable, and their records are written one after another.
const SPLITS_MAX: usize = 4;
/// Pause after a failure, doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Groups with cells that expire write an empty entry so often, so that log time goes on without writes.
const TICK_INTERVAL: Duration = Duration::from_secs(60);
/// A region that had no boundary is looked at again when it has grown by this share, in percent.
const UNSPLITTABLE_GROWTH_PERCENT: u64 = 25;

/// What the state machines tell the housekeeping. Written while entries are applied, so all of it returns at once.
#[derive(Default)]
pub struct Signals {
    wake: Notify,
    /// Something was applied since the last turn.
    applied: AtomicBool,
    awaited: Mutex<BTreeSet<RegionId>>,
}

impl Signals {
    /// Rows were written; `full` when the memtable is due to be flushed.
    pub fn applied(&self, full: bool) {
        self.applied.store(true, Ordering::Relaxed);
        if full {
            self.wake.notify_one();
        }
    }

    /// Something waits for this region's flush.
    pub fn flush(&self, region: RegionId) {
        self.awaited.lock().insert(region);
        self.wake();
    }

    pub fn wake(&self) {
        self.applied.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }
}

/// Everything the housekeeping works with.
pub struct Housekeeper {
    pub registry: Arc<Registry>,
    pub host: Arc<GroupHost>,
    pub signals: Arc<Signals>,
    pub stock: Arc<IdStock>,
    pub addresses: Arc<Addresses>,
    pub admission: Arc<Admission>,
    pub metrics: Arc<Metrics>,
    pub troubles: Arc<Troubles>,
    pub memtable_budget: u64,
}

/// A piece of work that ended.
enum Done {
    Flushed(RegionId, Result<(), terrane_engine::Error>),
    Recorded(GroupId, Result<(), terrane_engine::Error>),
    Split(RegionId, Result<(), Error>),
    Ticked,
}

/// What is under way and what rests after a failure.
#[derive(Default)]
struct Desk {
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    flushing: BTreeSet<RegionId>,
    splitting: BTreeSet<RegionId>,
    recording: BTreeSet<GroupId>,
    resting: BTreeMap<RegionId, (Instant, Duration)>,
    ticked: Option<Instant>,
}

impl Housekeeper {
    /// Runs until `stop`, then finishes what is under way.
    pub async fn run(self, stop: CancellationToken) {
        let mut desk = Desk::default();
        let mut turn = tokio::time::interval(TURN);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(done) = desk.work.next() => self.finish(&mut desk, done),
                () = self.signals.wake.notified() => {}
                _ = turn.tick() => {}
            }
            self.turn(&mut desk);
        }
        while desk.work.next().await.is_some() {}
    }

    /// Looks around and starts what is due.
    fn turn(&self, desk: &mut Desk) {
        let idle = !self.signals.applied.swap(false, Ordering::Relaxed);
        if idle && desk.resting.is_empty() && self.signals.awaited.lock().is_empty() {
            self.tick(desk);
            return;
        }
        for machine in self.registry.machines() {
            self.record(desk, machine);
        }
        self.flush(desk);
        self.split(desk);
        self.tick(desk);
    }

    fn record(&self, desk: &mut Desk, machine: Arc<GroupMachine>) {
        if machine.is_dirty() && desk.recording.insert(machine.group()) {
            desk.work.push(Box::pin(async move { Done::Recorded(machine.group(), machine.record().await) }));
        }
    }

    fn flush(&self, desk: &mut Desk) {
        let now = Instant::now();
        let resting = |region: &RegionId| desk.resting.get(region).is_some_and(|(until, _)| *until > now);
        let awaited = self.signals.awaited.lock().clone();
        let mut machines = BTreeMap::new();
        let mut candidates = Vec::new();
        let mut total = 0;
        for machine in self.registry.machines() {
            for need in machine.flush_needs() {
                total += need.memtable_bytes;
                let region = need.region;
                if !resting(&region) {
                    let awaited = awaited.contains(&region);
                    let (memtable_bytes, flush_size) = (need.memtable_bytes, need.flush_size);
                    candidates.push(Candidate { region, memtable_bytes, flush_size, awaited });
                    machines.insert(region, machine.clone());
                }
            }
        }
        self.admission.set_memtable_bytes(total);
        // Regions that are gone meanwhile need nothing; their daughters are awaited themselves.
        self.signals.awaited.lock().retain(|region| self.registry.regions.get(*region).is_some());
        for region in flush::choose(&candidates, &desk.flushing, self.memtable_budget) {
            let Some(machine) = machines.remove(&region) else { continue };
            self.signals.awaited.lock().remove(&region);
            desk.flushing.insert(region);
            desk.work.push(Box::pin(async move { Done::Flushed(region, machine.flush(region).await) }));
        }
    }

    fn split(&self, desk: &mut Desk) {
        let now = Instant::now();
        for hosted in self.registry.regions.all() {
            if desk.splitting.len() >= SPLITS_MAX {
                // The next turn comes when one of them is done.
                return;
            }
            let rests = desk.resting.get(&hosted.region).is_some_and(|(until, _)| *until > now);
            if rests || !hosted.is_settled() || desk.splitting.contains(&hosted.region) || !is_too_large(&hosted) {
                continue;
            }
            let Some(group) = self.host.group(hosted.group) else { continue };
            if group.status().is_leader {
                desk.splitting.insert(hosted.region);
                let (stock, addresses) = (self.stock.clone(), self.addresses.clone());
                desk.work.push(Box::pin(async move {
                    let done = split::split(&hosted, &group, None, &stock, &addresses).await;
                    Done::Split(hosted.region, done.map(drop))
                }));
            }
        }
    }

    /// Lets log time go on in groups that have cells that expire.
    fn tick(&self, desk: &mut Desk) {
        let now = Instant::now();
        if desk.ticked.is_some_and(|last| now < last + TICK_INTERVAL) {
            return;
        }
        desk.ticked = Some(now);
        let interval = u64::try_from(TICK_INTERVAL.as_millis()).expect("a minute");
        for machine in self.registry.machines() {
            let quiet = machine.log_time() + interval <= terrane_env::time::wall_ms();
            let Some(group) = self.host.group(machine.group()) else { continue };
            if quiet && machine.has_expiring_cells() && group.status().is_leader {
                desk.work.push(Box::pin(async move {
                    // Whoever leads next tries again in a minute.
                    group.propose(operation::tick()).await.ok();
                    Done::Ticked
                }));
            }
        }
    }

    fn finish(&self, desk: &mut Desk, done: Done) {
        match done {
            Done::Flushed(region, result) => {
                desk.flushing.remove(&region);
                self.metrics.flushes.inc();
                let about = format!("flush of region {region}");
                if self.outcome(&about, &result) {
                    desk.resting.remove(&region);
                } else {
                    desk.rest(region);
                    self.signals.awaited.lock().insert(region);
                }
            }
            Done::Recorded(group, result) => {
                desk.recording.remove(&group);
                self.outcome(&format!("record of group {group}"), &result);
            }
            Done::Split(region, result) => {
                desk.splitting.remove(&region);
                if let Err(error) = result {
                    tracing::debug!(%region, %error, "the region was not split");
                    desk.rest(region);
                }
            }
            Done::Ticked => {}
        }
        // What ended made room for the next of its kind.
        self.signals.applied.store(true, Ordering::Relaxed);
    }

    /// Notes how a piece of disk work ended; true when it went well.
    fn outcome(&self, about: &str, result: &Result<(), terrane_engine::Error>) -> bool {
        match result {
            Ok(()) => {
                if self.troubles.clear(about) {
                    tracing::info!("the {about} went through");
                }
                true
            }
            Err(error) => {
                if self.troubles.set(about, format!("the {about} failed: {error}")) {
                    tracing::error!("the {about} failed and is tried again: {error}");
                }
                false
            }
        }
    }
}

impl Desk {
    fn rest(&mut self, region: RegionId) {
        let pause = self.resting.get(&region).map_or(RETRY_MIN, |(_, pause)| (*pause * 2).min(RETRY_MAX));
        self.resting.insert(region, (Instant::now() + pause, pause));
    }
}

/// Whether a region is over its table's size, and not known to have no boundary at about its present size.
fn is_too_large(hosted: &Hosted) -> bool {
    let bytes = hosted.engine.size_bytes();
    let in_vain = hosted.unsplittable_bytes();
    let grown = in_vain + in_vain / 100 * UNSPLITTABLE_GROWTH_PERCENT;
    bytes >= hosted.state().schema.region_size && (in_vain == 0 || bytes > grown)
}
