//! The work behind the requests: flushes, compactions, splits, records of group state, a look at the disk, and an empty
//! entry a minute for tables whose cells expire.
//!
//! One task decides and owns everything under way, so nothing is detached and nothing runs twice. It wakes when applying
//! says that something is due and looks around every so often; when nothing was applied it does next to nothing. A flush
//! or compaction that fails is logged once, shown as a trouble, and tried again after a growing pause.
//!
//! Compactions run one at a time beside the flushes. The next one is looked for when a flush or a compaction has ended or
//! somebody asked for one, also while one is under way: that look is what renews the pressure that writers feel.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use terrane_engine::Engine;
use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_raft::{Abstention, BoxFuture, GroupHost, Weight};
use terrane_types::{Error, GroupId, RegionId, SplitPolicy};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::apply_gate::ApplyGate;
use crate::cluster::Addresses;
use crate::disk::{Disk, Look};
use crate::faults::stopping;
use crate::flush::{self, Candidate};
use crate::group::machine::{FlushNeed, GroupMachine};
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
/// How often a server without writes looks whether memtables that are read are worth a merge.
const MERGE_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the disk's free space is looked at.
const DISK_INTERVAL: Duration = Duration::from_secs(1);
/// Compactions of resting regions that are passed over in the search for one that may run.
const PASSED_OVER_MAX: usize = 64;
/// A region that had no boundary is looked at again when it has grown by this share, in percent.
const UNSPLITTABLE_GROWTH_PERCENT: u64 = 25;

/// What the state machines tell the housekeeping. Written while entries are applied, so all of it returns at once.
#[derive(Default)]
pub struct Signals {
    wake: Notify,
    /// Something was applied since the last turn.
    applied: AtomicBool,
    awaited: Mutex<BTreeSet<RegionId>>,
    /// There may be something new to compact.
    compaction: AtomicBool,
    /// Where entries wait for room in the memtables.
    gate: ApplyGate,
}

impl Signals {
    /// Signals of a server whose memtables have this budget.
    #[must_use]
    pub fn new(memtable_budget: u64) -> Self {
        Self { gate: ApplyGate::new(memtable_budget), ..Self::default() }
    }

    /// Returns when the memtables have room for an entry of `bytes`. The caller holds nothing that a flush needs.
    pub async fn room_for(&self, bytes: u64) {
        self.gate.enter(bytes, || self.wake()).await;
    }

    /// The sum of all memtables, as of now.
    pub fn set_memtables(&self, bytes: u64) {
        self.gate.set_memtables(bytes);
    }

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

    /// There may be something new to compact.
    pub fn compact(&self) {
        self.compaction.store(true, Ordering::Relaxed);
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
    pub engine: Arc<Engine>,
    pub data_dir: PathBuf,
    pub disk_reserve: Option<u64>,
    /// What the reserve holds at least.
    pub disk_reserve_least: u64,
}

/// A piece of work that ended.
enum Done {
    Flushed(RegionId, Result<(), terrane_engine::Error>),
    Recorded(GroupId, Result<(), terrane_engine::Error>),
    Compacted(RegionId, Result<(), terrane_engine::Error>),
    Split(RegionId, Result<(), Error>),
    /// Free bytes of the disk and all of them.
    Looked(std::io::Result<(u64, u64)>),
    /// Memtables of a region were merged.
    Merged,
    Ticked,
}

/// What is under way and what rests after a failure.
#[derive(Default)]
struct Desk {
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    flushing: BTreeSet<RegionId>,
    splitting: BTreeSet<RegionId>,
    recording: BTreeSet<GroupId>,
    compacting: bool,
    /// A region that cannot be split is flushed all the same, so the two rest apart.
    flush_rests: Rests<RegionId>,
    split_rests: Rests<RegionId>,
    record_rests: Rests<GroupId>,
    compaction_rests: Rests<RegionId>,
    /// Whether memtables are being merged: one at a time, as nobody waits for it.
    merging: bool,
    /// The region whose memtables were merged last: others come first.
    merged: Option<RegionId>,
    /// When an idle server was last looked through for memtables to merge.
    merge_looked: Option<Instant>,
    ticked: Option<Instant>,
    disk: Disk,
    looked: Option<Instant>,
    /// Ends what waits for a log. Disk work is finished.
    stop: CancellationToken,
}

/// What rests after a failure, until when, and how long that pause was.
struct Rests<K>(BTreeMap<K, (Instant, Duration)>);

impl<K> Default for Rests<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Rests<K> {
    fn begin(&mut self, key: K, now: Instant) {
        let pause = self.0.get(&key).map_or(RETRY_MIN, |(_, pause)| (*pause * 2).min(RETRY_MAX));
        self.0.insert(key, (now + pause, pause));
    }

    fn end(&mut self, key: &K) {
        self.0.remove(key);
    }

    fn holds(&self, key: &K, now: Instant) -> bool {
        self.0.get(key).is_some_and(|(until, _)| *until > now)
    }

    /// Forgets what failed so long ago that the next failure is one of its own, or is gone.
    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (until, _)| now < *until + RETRY_MAX);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Housekeeper {
    /// Runs until `stop`, then finishes what is under way.
    pub async fn run(self, stop: CancellationToken) {
        let disk = Disk::new(self.disk_reserve, self.disk_reserve_least);
        let mut desk = Desk { stop: stop.clone(), disk, ..Desk::default() };
        // What was there before the start may have to be compacted.
        self.signals.compact();
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
        // A compaction that is cut off costs nothing but its work so far.
        self.engine.stop_compactions();
        while desk.work.next().await.is_some() {}
        // From here on nobody makes room.
        self.signals.gate.release();
    }

    /// Looks around and starts what is due.
    fn turn(&self, desk: &mut Desk) {
        let idle = !self.signals.applied.swap(false, Ordering::Relaxed);
        desk.forget_rests();
        self.look_at_disk(desk);
        if idle && desk.nothing_rests() && self.signals.awaited.lock().is_empty() {
            self.merge_for_readers(desk);
            self.tick(desk);
            return;
        }
        for machine in self.registry.machines() {
            self.record(desk, machine);
        }
        self.flush(desk);
        self.compact(desk);
        self.split(desk);
        self.merge(desk);
        self.tick(desk);
    }

    fn record(&self, desk: &mut Desk, machine: Arc<GroupMachine>) {
        let rests = desk.record_rests.holds(&machine.group(), Instant::now());
        if !rests && machine.is_dirty() && desk.recording.insert(machine.group()) {
            desk.work.push(Box::pin(async move { Done::Recorded(machine.group(), machine.record().await) }));
        }
    }

    fn flush(&self, desk: &mut Desk) {
        let now = Instant::now();
        let awaited = self.signals.awaited.lock().clone();
        let mut machines = BTreeMap::new();
        let mut candidates = Vec::new();
        let mut total = 0;
        for machine in self.registry.machines() {
            for need in machine.flush_needs() {
                total += need.memtable_bytes;
                let region = need.region;
                if !desk.flush_rests.holds(&region, now) {
                    let awaited = awaited.contains(&region);
                    let FlushNeed { memtable_bytes, active_bytes, flush_size, .. } = need;
                    candidates.push(Candidate { region, memtable_bytes, active_bytes, flush_size, awaited });
                    machines.insert(region, machine.clone());
                }
            }
        }
        self.admission.set_memtable_bytes(total);
        self.signals.set_memtables(total);
        // Regions that are gone meanwhile need nothing; their daughters are awaited themselves.
        self.signals.awaited.lock().retain(|region| self.registry.regions.get(*region).is_some());
        for region in flush::choose(&candidates, &desk.flushing, self.memtable_budget) {
            let Some(machine) = machines.remove(&region) else { continue };
            self.signals.awaited.lock().remove(&region);
            desk.flushing.insert(region);
            desk.work.push(Box::pin(async move { Done::Flushed(region, machine.flush(region).await) }));
        }
    }

    /// Starts the most urgent compaction of a region that does not rest, unless one is under way.
    fn compact(&self, desk: &mut Desk) {
        if !self.signals.compaction.swap(false, Ordering::Relaxed) && desk.compaction_rests.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut passed_over = Vec::new();
        let mut next = self.engine.next_compaction();
        self.admission.set_compaction_pressure(self.engine.pressure());
        while let Some(compaction) = next.take_if(|next| desk.compaction_rests.holds(&next.region().id(), now)) {
            if passed_over.len() == PASSED_OVER_MAX {
                break;
            }
            // Held, and so under way for the engine, it makes room for the next in line.
            passed_over.push(compaction);
            next = self.engine.next_compaction();
        }
        let Some(compaction) = next else { return };
        if desk.compacting {
            // It is found again when the one under way has ended.
            return;
        }
        desk.compacting = true;
        let (engine, region) = (self.engine.clone(), compaction.region().id());
        desk.work.push(Box::pin(async move { Done::Compacted(region, engine.compact(compaction).await) }));
    }

    /// Has the disk looked at, every so often.
    fn look_at_disk(&self, desk: &mut Desk) {
        let now = Instant::now();
        if desk.looked.is_some_and(|last| now < last + DISK_INTERVAL) {
            return;
        }
        desk.looked = Some(now);
        let directory = self.data_dir.clone();
        desk.work.push(Box::pin(async move {
            let looked =
                run_io(async move { Ok((fs::free_space(&directory).await?, fs::total_space(&directory).await?)) });
            Done::Looked(looked.await)
        }));
    }

    fn note_disk(&self, desk: &mut Desk, looked: std::io::Result<(u64, u64)>) {
        const ABOUT: &str = "disk";
        let Look { full, follows_nobody, room } = match looked {
            Ok((free, total)) => desk.disk.look(&self.data_dir, free, total),
            Err(error) => {
                // Nothing is refused for it: a disk that is full says so itself.
                tracing::debug!(%error, "the free space of the disk is not known");
                return;
            }
        };
        let why = full.or_else(|| self.host.log_lacks_space());
        match &why {
            Some(why) if self.troubles.set(ABOUT, why.clone()) => tracing::error!("{why}"),
            None if self.troubles.clear(ABOUT) => tracing::info!("the disk has room again, writes go on"),
            _ => {}
        }
        self.keep_compactions_off(room);
        self.host.set_disk_reserved(why.clone().filter(|_| follows_nobody));
        let abstention = |reason| Abstention { reason, weight: Weight::Soft };
        self.host.set_abstains(ABOUT, why.clone().map(abstention));
        self.admission.set_disk_full(why);
    }

    /// Has compactions leave the reserve alone, and says so when one waits for room.
    fn keep_compactions_off(&self, room: u64) {
        const ABOUT: &str = "room for compactions";
        self.engine.set_compaction_room(room);
        match self.engine.compaction_waits_for() {
            Some(bytes) => {
                let sentence = format!(
                    "a compaction in {} waits for room: it needs {} MiB, and {} MiB are free above the reserve",
                    self.data_dir.display(),
                    bytes.div_ceil(1 << 20),
                    room >> 20
                );
                if self.troubles.set(ABOUT, sentence.clone()) {
                    tracing::warn!("{sentence}");
                }
            }
            None => {
                if self.troubles.clear(ABOUT) {
                    tracing::info!("compactions have room again");
                }
                return;
            }
        }
        // Whether it fits now is seen at the next look.
        self.signals.compact();
    }

    fn split(&self, desk: &mut Desk) {
        let now = Instant::now();
        for hosted in self.registry.regions.all() {
            if desk.splitting.len() >= SPLITS_MAX {
                // The next turn comes when one of them is done.
                return;
            }
            let rests = desk.split_rests.holds(&hosted.region, now);
            if rests || !hosted.is_settled() || desk.splitting.contains(&hosted.region) || !is_too_large(&hosted) {
                continue;
            }
            let Some(group) = self.host.group(hosted.group) else { continue };
            if group.status().is_leader {
                desk.splitting.insert(hosted.region);
                let (stock, addresses, stop) = (self.stock.clone(), self.addresses.clone(), desk.stop.clone());
                desk.work.push(Box::pin(async move {
                    let done = tokio::select! {
                        biased;
                        // A leader without a quorum would wait for ever; the log knows what became of the split.
                        () = stop.cancelled() => Err(stopping()),
                        done = split::split(&hosted, &group, None, &stock, &addresses) => done.map(drop),
                    };
                    Done::Split(hosted.region, done)
                }));
            }
        }
    }

    /// Merges the memtables of a region that is read, so that reads meet fewer runs.
    fn merge(&self, desk: &mut Desk) {
        if desk.merging {
            return;
        }
        let mut regions = self.registry.regions.all();
        let behind = regions.partition_point(|hosted| Some(hosted.region) <= desk.merged);
        regions.rotate_left(behind);
        let Some(hosted) = regions.into_iter().find(|hosted| hosted.engine.wants_merge()) else {
            return;
        };
        desk.merging = true;
        desk.merged = Some(hosted.region);
        desk.work.push(Box::pin(async move {
            terrane_env::task::run_blocking(move || hosted.engine.merge_memtable()).await;
            Done::Merged
        }));
    }

    /// The same where nothing is written and readers may have come since: seldom, as all regions are looked at.
    fn merge_for_readers(&self, desk: &mut Desk) {
        let now = Instant::now();
        if desk.merge_looked.is_none_or(|last| now >= last + MERGE_LOOK_INTERVAL) {
            desk.merge_looked = Some(now);
            self.merge(desk);
        }
    }

    /// Lets log time go on in groups that have cells that expire, and has it recorded with their regions: compactions
    /// judge what has expired by the recorded time.
    fn tick(&self, desk: &mut Desk) {
        let now = Instant::now();
        if desk.ticked.is_some_and(|last| now < last + TICK_INTERVAL) {
            return;
        }
        desk.ticked = Some(now);
        let interval = u64::try_from(TICK_INTERVAL.as_millis()).expect("a minute");
        for machine in self.registry.machines() {
            let (advancing, signals) = (machine.clone(), self.signals.clone());
            desk.work.push(Box::pin(async move {
                advancing.advance_log_time(interval).await.into_iter().for_each(|region| signals.flush(region));
                Done::Ticked
            }));
            let Some(group) = self.host.group(machine.group()) else { continue };
            let quiet = machine.log_time() + interval <= group.time_ms(0);
            if quiet && machine.has_expiring_cells() && group.status().is_leader {
                let stop = desk.stop.clone();
                desk.work.push(Box::pin(async move {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        // Whoever leads next tries again in a minute.
                        _ = group.propose(operation::tick()) => {}
                    }
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
                self.note_damage(region, &result);
                if self.outcome(&about, &result) {
                    desk.flush_rests.end(&region);
                    self.signals.compaction.store(true, Ordering::Relaxed);
                } else {
                    desk.flush_rests.begin(region, Instant::now());
                    self.signals.awaited.lock().insert(region);
                }
            }
            Done::Recorded(group, result) => {
                desk.recording.remove(&group);
                if self.outcome(&format!("record of group {group}"), &result) {
                    desk.record_rests.end(&group);
                } else {
                    desk.record_rests.begin(group, Instant::now());
                }
            }
            Done::Split(region, result) => {
                desk.splitting.remove(&region);
                if let Err(error) = result {
                    tracing::debug!(%region, %error, "the region was not split");
                    desk.split_rests.begin(region, Instant::now());
                } else {
                    desk.split_rests.end(&region);
                }
            }
            Done::Compacted(region, result) => {
                desk.compacting = false;
                self.note_damage(region, &result);
                if self.outcome(&compaction_of(region), &result) {
                    desk.compaction_rests.end(&region);
                } else {
                    desk.compaction_rests.begin(region, Instant::now());
                }
                self.signals.compaction.store(true, Ordering::Relaxed);
            }
            Done::Looked(looked) => {
                self.note_disk(desk, looked);
                return;
            }
            Done::Merged => desk.merging = false,
            Done::Ticked => {}
        }
        // What ended made room for the next of its kind.
        self.signals.applied.store(true, Ordering::Relaxed);
    }

    fn note_damage(&self, region: RegionId, result: &Result<(), terrane_engine::Error>) {
        if let (Err(error), Some(hosted)) = (result, self.registry.regions.get(region)) {
            hosted.note_damage(error);
        }
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
    fn forget_rests(&mut self) {
        let now = Instant::now();
        self.flush_rests.forget(now);
        self.split_rests.forget(now);
        self.record_rests.forget(now);
        self.compaction_rests.forget(now);
    }

    fn nothing_rests(&self) -> bool {
        self.flush_rests.is_empty()
            && self.split_rests.is_empty()
            && self.record_rests.is_empty()
            && self.compaction_rests.is_empty()
    }
}

/// What the trouble with a region's compactions is about.
pub fn compaction_of(region: RegionId) -> String {
    format!("compaction of region {region}")
}

/// Whether a region is over its table's size, in a table whose regions split by size, and not known to have no boundary at
/// about its present size.
fn is_too_large(hosted: &Hosted) -> bool {
    let state = hosted.state();
    let bytes = hosted.engine.size_bytes();
    let in_vain = hosted.unsplittable_bytes();
    let grown = in_vain + in_vain / 100 * UNSPLITTABLE_GROWTH_PERCENT;
    let splits = state.schema.split_policy == SplitPolicy::Size;
    splits && bytes >= state.schema.region_size && (in_vain == 0 || bytes > grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_end_and_are_forgotten() {
        let mut rests = Rests::default();
        let now = Instant::now();
        rests.begin(7, now);
        assert!(rests.holds(&7, now) && !rests.holds(&8, now));
        assert!(!rests.holds(&7, now + RETRY_MIN));
        rests.begin(7, now);
        assert!(rests.holds(&7, now + RETRY_MIN), "the second pause is longer");
        rests.forget(now + RETRY_MAX);
        assert!(!rests.is_empty());
        rests.forget(now + 2 * RETRY_MAX);
        assert!(rests.is_empty(), "an idle server has nothing to look at");
        rests.begin(7, now);
        rests.end(&7);
        assert!(rests.is_empty());
    }
}
