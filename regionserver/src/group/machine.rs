//! One replica's state machine: what it holds, and what background work does with it.
//!
//! Parts: [`copying`] takes and installs copies, [`prepare`] packs proposals on the leader, [`apply`] applies committed entries,
//! [`regions`] what they say about tables and regions, [`moves`] what they say about regions that move, [`loads`] what they
//! say about files of bulk loads, [`files`] fetches the files that they name, [`compare`] reads what replicas are compared by.
//!
//! Durability: regions carry their own points; background work records the group's part (schemas, dropped tables) later.
//! Until then `dirty` holds back the log. After a restart each region skips entries up to the point with which it was
//! opened, and entries about regions that no longer exist have no effect.
//!
//! A region's window of operations changes with its writes and is part of its durable point, so a replay restores it.

mod apply;
pub mod compare;
mod copying;
pub mod digest;
mod files;
mod loads;
mod moves;
mod prepare;
mod regions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use terrane_engine::{DurablePoint, Engine, GroupPoint};
use terrane_env::trace::Tracer;
use terrane_raft::{
    AppliedEntry, BoxFuture, Durable, Packing, Prepared, Progress, StagedCopy, StateCopy, StateMachine,
};
use terrane_types::{GroupId, RegionDescriptor, RegionId, TableSchema};

use self::regions::set_attributes;
use super::region_state::RegionState;
use super::state::GroupState;
use crate::background::signals::Signals;
use crate::evaluate::Evaluator;
use crate::group::proposal::Proposal;
use crate::group::reply::Reply;
use crate::metrics::Metrics;
use crate::ranked_lock::RankedMutex;
use crate::replicas::hosted::{HostedRegion, HostedRegions};
use crate::staging::Staging;
use crate::staging::wait::Waits;
use crate::window::Window;

/// Expired cells are looked for once per this fraction of their time to live.
const TTL_SHARE: u64 = 16;
/// How long a simulated record of the end of regions takes: the log may be purged meanwhile.
const SLOW_RECORD: Duration = Duration::from_secs(2);

/// One replica's state machine.
///
/// Locks are taken in the order `boundary`, `evaluator`, `inner`, and then those of regions and the engine.
pub struct GroupMachine {
    group: GroupId,
    engine: Arc<Engine>,
    regions: Arc<HostedRegions>,
    signals: Arc<Signals>,
    metrics: Arc<Metrics>,
    /// The files that entries name.
    staging: Arc<Staging>,
    /// Whether the next entry waits for some.
    waits: Waits,
    /// Records what is applied of traced writes.
    tracer: Tracer,
    /// What is wrong with the replica's log.
    damage: OnceLock<String>,
    /// For a copy, which is installed later.
    this: Weak<GroupMachine>,
    /// Held while the group's part of the state is recorded.
    recording: tokio::sync::Mutex<()>,
    /// Held while the departure of regions is recorded, and while a region is taken in, which may be one of them. Taken after the
    /// other two; held for I/O only.
    returning: tokio::sync::Mutex<()>,
    /// Held while an entry is applied and while a region is frozen, so that a durable point never lies inside an entry. Never
    /// held by anything that waits for an apply, for another server, or for space on the disk.
    boundary: tokio::sync::Mutex<()>,
    inner: RankedMutex<Inner, 2>,
    /// What the leader decides with. Applying never locks it.
    evaluator: RankedMutex<Evaluator, 1>,
}

struct Inner {
    state: GroupState,
    hosted: BTreeMap<RegionId, Arc<HostedRegion>>,
    /// The operation numbers that the regions have recorded, as of the last applied entry.
    windows: BTreeMap<RegionId, Window>,
    /// Index and stamp of the last entry applied as a whole.
    applied: u64,
    stamp: u64,
    /// Index of the last entry that this process applied, if any. (`applied` starts at what is on disk, and a restart applies
    /// some entries again.)
    last_entry: Option<u64>,
    /// Entry up to which an installed copy has everything. Entries up to it that come all the same have no effect.
    copied: u64,
    /// Entry up to which the group's part is recorded.
    recorded: u64,
    /// First and last entry whose change of the group's part is not recorded yet.
    dirty: Option<(u64, u64)>,
    /// Regions of dropped tables, and those that have left, while their files are still there; with the first entry whose effect
    /// on them is on no disk. After a restart they are there again, and must find the entries that led to their end.
    discarded: BTreeMap<RegionId, Option<u64>>,
    /// The replica was removed from this server.
    is_removed: bool,
}

/// What background work needs to know to flush a region.
pub struct FlushNeed {
    pub region: RegionId,
    /// All of its bytes in memory, and those of them that no flush has begun to write.
    pub memtable_bytes: u64,
    pub active_bytes: u64,
    pub flush_size: u64,
}

impl GroupMachine {
    /// Opens the state machine of a group over what the engine has on disk of it.
    pub fn open(
        group: GroupId,
        engine: Arc<Engine>,
        regions: Arc<HostedRegions>,
        signals: Arc<Signals>,
        metrics: Arc<Metrics>,
        staging: Arc<Staging>,
        tracer: Tracer,
    ) -> Result<Arc<Self>, String> {
        let inner = Inner::restored(group, &engine)?;
        for hosted in inner.hosted.values() {
            regions.insert(hosted.clone());
        }
        let boundary = tokio::sync::Mutex::new(());
        let (inner, evaluator) = (RankedMutex::new(inner), RankedMutex::default());
        Ok(Arc::new_cyclic(|this| Self {
            group,
            engine,
            regions,
            signals,
            metrics,
            staging,
            waits: Waits::default(),
            tracer,
            damage: OnceLock::new(),
            this: this.clone(),
            recording: tokio::sync::Mutex::new(()),
            returning: tokio::sync::Mutex::new(()),
            boundary,
            inner,
            evaluator,
        }))
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The present regions that `region` became, if this group still has it recorded.
    pub fn successors(&self, region: RegionId) -> Vec<RegionDescriptor> {
        self.inner.lock().state.successors(region)
    }

    /// Whether damage was found in the replica's log or in its files.
    pub fn is_damaged(&self) -> bool {
        self.damage.get().is_some() || self.hosted().iter().any(|hosted| hosted.is_damaged())
    }

    /// The replica's log is damaged.
    fn set_damage(&self, what: String) {
        if self.damage.set(what.clone()).is_ok() {
            tracing::error!(group = %self.group, what, "a replica is damaged");
        }
    }

    /// The group's regions.
    pub fn hosted(&self) -> Vec<Arc<HostedRegion>> {
        self.inner.lock().hosted.values().cloned().collect()
    }

    /// Stamp of the last applied entry: the group's log time.
    pub fn log_time(&self) -> u64 {
        self.inner.lock().stamp
    }

    /// A table's schema as the group knows it.
    pub fn table(&self, table: terrane_types::TableId) -> Option<Arc<TableSchema>> {
        self.inner.lock().state.table(table).cloned()
    }

    /// Whether any region or schema of a table is left here.
    pub fn has_table(&self, table: terrane_types::TableId) -> bool {
        let inner = self.inner.lock();
        inner.state.table(table).is_some() || inner.state.regions().any(|region| region.descriptor.table == table)
    }

    /// Whether any region here has a family whose cells expire.
    pub fn has_expiring_cells(&self) -> bool {
        let inner = self.inner.lock();
        inner.state.regions().any(|region| region.schema.families.iter().any(|family| family.rules.ttl_ms.is_some()))
    }

    /// What the flush policy needs to know of each region.
    pub fn flush_needs(&self) -> Vec<FlushNeed> {
        let inner = self.inner.lock();
        let need = |hosted: &Arc<HostedRegion>| FlushNeed {
            memtable_bytes: hosted.engine.memtable_bytes(),
            active_bytes: hosted.engine.active_bytes(),
            flush_size: inner.state.region(hosted.region).map_or(u64::MAX, |state| state.schema.flush_size),
            region: hosted.region,
        };
        inner.hosted.values().map(need).collect()
    }

    /// Freezes a region at the last applied entry and flushes it. Does nothing if the region is gone.
    pub async fn flush(&self, region: RegionId) -> Result<(), terrane_engine::Error> {
        match self.freeze_for_flush(region).await {
            Some(hosted) => self.flush_frozen(&hosted).await,
            None => Ok(()),
        }
    }

    /// Freezes a region at the last applied entry; `None` if it is gone.
    pub async fn freeze_for_flush(&self, region: RegionId) -> Option<Arc<HostedRegion>> {
        let _boundary = self.boundary.lock().await;
        self.freeze(region)
    }

    /// Writes what is frozen of a region into files.
    pub async fn flush_frozen(&self, hosted: &HostedRegion) -> Result<(), terrane_engine::Error> {
        // For a region that is split or dropped meanwhile this succeeds: its daughters are flushed by themselves.
        self.engine.flush(&hosted.engine).await?;
        hosted.set_in_manifest(true);
        if terrane_env::buggify!("a region is compacted for no reason") {
            self.engine.request_compaction(&hosted.engine);
            self.signals.request_compaction();
        }
        Ok(())
    }

    /// Marks the regions whose cells may have expired since their recorded point, so that their next flush records the
    /// present log time; returns which. There are few in each interval: it is enough that expired cells go within a small
    /// part of their time to live.
    pub async fn advance_log_time(&self, interval_ms: u64) -> Vec<RegionId> {
        let _boundary = self.boundary.lock().await;
        let inner = self.inner.lock();
        let due = |hosted: &&Arc<HostedRegion>| {
            let state = hosted.state();
            let ttl = state.schema.families.iter().filter_map(|family| family.rules.ttl_ms).min();
            let Some(ttl) = ttl else { return false };
            let behind = inner.stamp.saturating_sub(hosted.engine.point().stamp);
            behind > interval_ms.max(ttl / TTL_SHARE) && hosted.engine.size_bytes() > 0
        };
        let due: Vec<_> = inner.hosted.values().filter(due).collect();
        due.iter().for_each(|hosted| hosted.engine.touch(inner.applied.max(hosted.opened_at)));
        due.iter().map(|hosted| hosted.region).collect()
    }

    /// Freezes a region between two entries: the caller holds the boundary.
    fn freeze(&self, region: RegionId) -> Option<Arc<HostedRegion>> {
        let inner = self.inner.lock();
        let hosted = inner.hosted.get(&region)?.clone();
        let state = inner.state.region(region)?;
        hosted.engine.freeze(inner.point(self.group, &hosted, state));
        hosted.note_full(false);
        Some(hosted)
    }

    /// Whether the group's part of the state has changes to record.
    pub fn is_dirty(&self) -> bool {
        let inner = self.inner.lock();
        // What is removed records nothing more: to ask for it would repeat at once.
        !inner.is_removed && (inner.dirty.is_some() || !inner.discarded.is_empty())
    }

    /// Records the group's part of the state, and drops the files of dropped tables in the same step.
    ///
    /// Regions that are not in the manifest yet come first. After a restart the entries that created them create them again,
    /// and those entries must find the group's part as it was before them, not one that already knows the regions' fate.
    pub async fn record(&self) -> Result<(), terrane_engine::Error> {
        let _recording = self.recording.lock().await;
        let (point, discarded, unrecorded) = {
            let _boundary = self.boundary.lock().await;
            let inner = self.inner.lock();
            if inner.is_removed {
                return Ok(());
            }
            let unrecorded: Vec<_> = inner.hosted.values().filter(|hosted| !hosted.is_in_manifest()).cloned().collect();
            (
                GroupPoint { index: inner.applied.max(inner.recorded), state: inner.state.encode() },
                inner.discarded.keys().copied().collect::<Vec<_>>(),
                unrecorded,
            )
        };
        self.put_together_on_disk(&unrecorded).await?;
        for hosted in unrecorded.iter().filter(|hosted| !hosted.is_in_manifest()) {
            self.put_on_disk(hosted.region).await?;
        }
        let index = point.index;
        if !discarded.is_empty() && terrane_env::buggify!("the end of regions is recorded late") {
            tokio::time::sleep(SLOW_RECORD).await;
        }
        // What came back meanwhile is not discarded.
        let _returning = self.returning.lock().await;
        let discarded: Vec<RegionId> = {
            let inner = self.inner.lock();
            discarded.into_iter().filter(|region| inner.discarded.contains_key(region)).collect()
        };
        if discarded.is_empty() {
            self.engine.record_group(self.group, point).await?;
        } else {
            self.engine.drop_regions(&discarded, self.group, point).await?;
        }
        let mut inner = self.inner.lock();
        inner.recorded = inner.recorded.max(index);
        inner.discarded.retain(|region, _| !discarded.contains(region));
        // What changed while the record was written is above its index and waits for the next one.
        inner.dirty = inner.dirty.filter(|(_, last)| *last > index).map(|(first, last)| (first.max(index + 1), last));
        Ok(())
    }

    /// Waits for the entry that is being applied, and applies nothing more. openraft does not wait for it when it stops, and the
    /// next start would open the engine's directory beside it. A restart applies what is left; the log is closed by now, so
    /// that nothing of it is purged.
    pub async fn stop_applying(&self) {
        self.waits.give_up();
        let _boundary = self.boundary.lock().await;
        self.inner.lock().is_removed = true;
    }

    /// Removes everything of the group from this server: its replica has left the group, and nothing is proposed or applied any
    /// more. Reads that have begun end with what they have.
    pub async fn remove(&self) -> Result<(), terrane_engine::Error> {
        self.waits.give_up();
        let _recording = self.recording.lock().await;
        let _boundary = self.boundary.lock().await;
        let gone: Vec<RegionId> = {
            let mut inner = self.inner.lock();
            inner.is_removed = true;
            std::mem::take(&mut inner.hosted).into_keys().collect()
        };
        gone.into_iter().for_each(|region| self.regions.remove(region, self.group));
        self.engine.remove_group(self.group).await
    }

    /// Puts regions that have no cells in the manifest with one record: a table of thousands of regions would otherwise keep the
    /// disk of the log busy with a sync for each. The others are left as they are.
    async fn put_together_on_disk(&self, unrecorded: &[Arc<HostedRegion>]) -> Result<(), terrane_engine::Error> {
        if unrecorded.len() < 2 {
            return Ok(());
        }
        let frozen: Vec<_> = {
            let _boundary = self.boundary.lock().await;
            unrecorded
                .iter()
                .filter_map(|hosted| self.freeze(hosted.region))
                .map(|hosted| hosted.engine.clone())
                .collect()
        };
        let recorded: BTreeSet<_> = self.engine.record_empty(self.group, frozen).await?.into_iter().collect();
        let recorded = unrecorded.iter().filter(|hosted| recorded.contains(&hosted.region));
        recorded.for_each(|hosted| hosted.set_in_manifest(true));
        Ok(())
    }

    /// Flushes a region that is not in the manifest yet. One that was split before that is on disk with its daughters.
    async fn put_on_disk(&self, region: RegionId) -> Result<(), terrane_engine::Error> {
        self.flush(region).await?;
        let successors: Vec<_> = {
            let inner = self.inner.lock();
            let successors = inner.state.successors(region);
            successors.iter().filter_map(|successor| inner.hosted.get(&successor.region).cloned()).collect()
        };
        for successor in successors {
            self.engine.finish_split(&successor.engine).await?;
        }
        Ok(())
    }
}

impl Inner {
    /// What the engine has on disk of a group.
    fn restored(group: GroupId, engine: &Engine) -> Result<Self, String> {
        let recorded = engine.group_point(group);
        // A copy of a group of which nothing was recorded has an empty state.
        let mut state = match recorded.as_ref().filter(|point| !point.state.is_empty()) {
            Some(point) => GroupState::decode(group, point.state.clone())
                .map_err(|error| format!("the recorded state of group {group}: {error}"))?,
            None => GroupState::new(group),
        };
        let (mut hosted, mut windows) = (BTreeMap::new(), BTreeMap::new());
        let recorded = recorded.map(|point| point.index);
        let mut applied = recorded;
        let mut stamp = 0;
        for region in engine.regions() {
            let point = region.point();
            if point.group != group {
                continue;
            }
            let region_state = RegionState::decode(point.descriptor.clone())
                .map_err(|error| format!("the recorded state of region {}: {error}", region.id()))?;
            applied = Some(applied.map_or(point.index, |least| least.min(point.index)));
            stamp = stamp.max(point.stamp);
            let forgets = terrane_env::planted!("the window is lost at a restart");
            let recorded = if forgets { Window::default().encode() } else { point.window.clone() };
            let window = Window::decode(recorded)
                .map_err(|error| format!("the recorded operations of region {}: {error}", region.id()))?;
            windows.insert(region.id(), window);
            state.restore(region_state.clone());
            let opened = HostedRegion::new(region_state, region, point.index);
            set_attributes(&opened.engine, &opened.state().schema);
            hosted.insert(opened.region, opened);
        }
        let applied = applied.unwrap_or(0);
        let recorded = recorded.unwrap_or(0);
        Ok(Self {
            state,
            hosted,
            windows,
            applied,
            stamp,
            last_entry: None,
            copied: 0,
            recorded,
            dirty: None,
            discarded: BTreeMap::new(),
            is_removed: false,
        })
    }

    /// The durable point of a region as of the last applied entry.
    fn point(&self, group: GroupId, hosted: &HostedRegion, state: &RegionState) -> DurablePoint {
        DurablePoint {
            group,
            // After a restart, entries are applied again from below the point with which the region was opened.
            index: self.applied.max(hosted.opened_at),
            sequence: hosted.engine.sequence(),
            stamp: self.stamp,
            descriptor: state.encode(),
            window: self.windows.get(&hosted.region).map(Window::encode).unwrap_or_default(),
        }
    }

    /// Entries arrive in log order. One that came a second time would be applied twice.
    fn begin_entry(&mut self, group: GroupId, index: u64) {
        if let Some(last) = self.last_entry {
            assert!(index > last, "group {group}: entry {index} is applied after entry {last}");
        }
        self.last_entry = Some(index);
    }

    /// An entry is applied as a whole.
    fn end_entry(&mut self, entry: &AppliedEntry) {
        self.applied = entry.index;
        self.stamp = self.stamp.max(entry.stamp);
    }

    /// A region that is here no more.
    fn discard(&mut self, region: RegionId) {
        let hosted = self.hosted.remove(&region);
        self.windows.remove(&region);
        self.discarded.insert(region, hosted.and_then(|hosted| hosted.engine.unflushed_from()));
    }

    fn mark_dirty(&mut self, index: u64) {
        if index <= self.recorded {
            return;
        }
        let (first, _) = self.dirty.unwrap_or((index, index));
        self.dirty = Some((first, index));
    }
}

impl StateMachine for GroupMachine {
    type Proposal = Proposal;
    type Answer = Reply;

    fn prepare(&self, packing: &Packing, proposal: &Proposal, entry: &mut Vec<u8>) -> Prepared<Reply> {
        self.prepare_proposal(packing, proposal, entry)
    }

    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<Reply>>> {
        Box::pin(async move {
            let mut replies = Vec::with_capacity(entries.len());
            for entry in entries {
                let Some(of_entry) = self.apply_entry(entry).await else { break };
                replies.push(of_entry);
            }
            replies
        })
    }

    fn progress(&self) -> Progress {
        self.waits.progress(self.inner.lock().applied)
    }

    fn note_damage(&self, what: &str) {
        self.set_damage(what.to_owned());
    }

    fn damage(&self) -> Option<String> {
        self.damage.get().cloned()
    }

    fn durable(&self) -> Durable {
        let inner = self.inner.lock();
        let mut durable = Durable { index: inner.applied, held_by: None };
        if let Some((from, _)) = inner.dirty {
            durable =
                Durable { index: from.saturating_sub(1), held_by: Some(format!("the state of group {}", self.group)) };
        }
        let here = inner.hosted.values().map(|hosted| (hosted.region, hosted.engine.unflushed_from()));
        let gone = inner.discarded.iter().map(|(region, from)| (*region, *from));
        for (region, from) in
            here.chain(gone.filter(|_| !terrane_env::planted!("a region that has left needs no entries")))
        {
            if let Some(from) = from
                && from.saturating_sub(1) < durable.index
            {
                durable = Durable { index: from.saturating_sub(1), held_by: Some(format!("region {region}")) };
            }
        }
        durable
    }

    fn keeps_files_after(&self, index: u64) -> bool {
        self.staging.last_marked(self.group) > index || self.inner.lock().state.last_adoption() > index
    }

    fn relieve(&self, index: u64) {
        for hosted in self.hosted() {
            if hosted.engine.unflushed_from().is_some_and(|from| from <= index) {
                self.signals.request_flush(hosted.region);
            }
        }
        self.signals.wake();
    }

    fn discard_assumptions(&self) {
        self.evaluator.lock().forget();
    }

    fn gained_leadership(&self) {
        self.regions.note_change(self.group);
    }

    fn began_to_serve(&self) {
        self.regions.note_change(self.group);
    }

    fn lost_leadership(&self) {
        self.evaluator.lock().forget();
    }

    fn can_be_copied(&self) -> bool {
        self.engine.can_copy_groups()
    }

    fn copy(&self) -> BoxFuture<'_, Result<Arc<dyn StateCopy>, String>> {
        Box::pin(self.copied())
    }

    fn incoming_dir(&self) -> Option<PathBuf> {
        Some(self.engine.incoming_dir(self.group))
    }

    fn incoming(&self, bytes: u64) -> BoxFuture<'_, Result<PathBuf, String>> {
        Box::pin(self.room_for(bytes))
    }

    fn stage<'a>(&'a self, dir: &'a Path, index: u64) -> BoxFuture<'a, Result<Box<dyn StagedCopy>, String>> {
        Box::pin(self.staged(dir, index))
    }
}

#[cfg(test)]
mod tests;
