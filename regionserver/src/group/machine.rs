//! Applies a group's entries to the engine and to what the edge looks up.
//!
//! Order is everything here. The raft room calls [`GroupMachine::apply`] with committed entries in log order, one call at
//! a time. Within an entry, operations take effect one after another under the lock of `inner`; a region's freeze for a
//! flush takes the `boundary` first, which an entry holds from its first operation to its last, so that a durable point
//! never lies inside an entry. (A point inside one would apply its first operations a second time after a restart, under
//! other sequence numbers than on the other replicas.)
//!
//! Durability: regions carry their own points; the group's part (schemas, dropped tables) is recorded behind its back by
//! the housekeeping. Until then `dirty` holds back the log. After a restart each region skips entries up to the point
//! it was opened with, and entries about regions that are no longer there have no effect.
//!
//! A region's window of operations changes with its writes and lies in its durable point, so a replay gives it again.
//!
//! An entry that this build cannot read ends the process: going on would make this replica differ from the others.

mod prepare;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_engine::{DurablePoint, Engine, GroupPoint, Region, RegionSpec, SplitDaughter};
use terrane_env::task::abort_process;
use terrane_raft::{AppliedEntry, BoxFuture, Durable, Packing, Prepared, StateMachine};
use terrane_types::{GroupId, PackedCells, RegionDescriptor, RegionId, TableSchema};

use super::region_state::RegionState;
use super::state::GroupState;
use crate::evaluate::Evaluator;
use crate::hosted::{HostedRegion, HostedRegions};
use crate::metrics::Metrics;
use crate::operation::{ChangeTables, Operation, Settle, Split, Write};
use crate::region::bloom_prefix::row_prefix;
use crate::reply::Reply;
use crate::signals::Signals;
use crate::window::Window;

/// Expired cells are looked for every such part of their time to live.
const TTL_SHARE: u64 = 16;

/// One replica's state machine.
pub struct GroupMachine {
    group: GroupId,
    engine: Arc<Engine>,
    regions: Arc<HostedRegions>,
    signals: Arc<Signals>,
    metrics: Arc<Metrics>,
    /// Held while an entry is applied, and while a region is frozen. Never held by anything that waits for an apply.
    boundary: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    /// What the leader decides with. Taken before `inner` where both are held; applying never takes it.
    evaluator: Mutex<Evaluator>,
}

struct Inner {
    state: GroupState,
    hosted: BTreeMap<RegionId, Arc<HostedRegion>>,
    /// What the regions remember of operations, as of the last applied entry.
    windows: BTreeMap<RegionId, Window>,
    /// Index and stamp of the last entry applied as a whole.
    applied: u64,
    stamp: u64,
    /// Entry up to which the group's part is recorded.
    recorded: u64,
    /// First and last entry whose change of the group's part is not recorded yet.
    dirty: Option<(u64, u64)>,
    /// Regions of dropped tables whose files are still there.
    discarded: Vec<RegionId>,
}

/// Rows of consecutive writes of one entry to one region, on their way to its memtables.
#[derive(Default)]
struct Gathered {
    /// The region, and its table's flush size.
    region: Option<(Arc<HostedRegion>, u64)>,
    rows: Vec<(Bytes, PackedCells)>,
    /// Of the entry.
    stamp: u64,
}

/// What housekeeping needs to know to flush a region.
pub struct FlushNeed {
    pub region: RegionId,
    /// All of its bytes in memory, and those of them that no flush has taken up yet.
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
    ) -> Result<Arc<Self>, String> {
        let recorded = engine.group_point(group);
        let mut state = match &recorded {
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
            let window = Window::decode(point.window.clone())
                .map_err(|error| format!("the recorded operations of region {}: {error}", region.id()))?;
            windows.insert(region.id(), window);
            state.restore(region_state.clone());
            hosted.insert(region.id(), HostedRegion::new(region_state, region, point.index));
        }
        for hosted in hosted.values() {
            set_attributes(&hosted.engine, &hosted.state().schema);
            regions.insert(hosted.clone());
        }
        let applied = applied.unwrap_or(0);
        let recorded = recorded.unwrap_or(0);
        let inner = Inner { state, hosted, windows, applied, stamp, recorded, dirty: None, discarded: Vec::new() };
        let boundary = tokio::sync::Mutex::new(());
        let (inner, evaluator) = (Mutex::new(inner), Mutex::default());
        Ok(Arc::new(Self { group, engine, regions, signals, metrics, boundary, inner, evaluator }))
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The living regions that came from `region` by splits, if this group remembers it.
    pub fn successors(&self, region: RegionId) -> Vec<RegionDescriptor> {
        self.inner.lock().state.successors(region)
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

    /// The regions with what a flush decision needs.
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

    /// Freezes a region at the last applied entry and writes it out. A region that is gone meanwhile needs nothing.
    pub async fn flush(&self, region: RegionId) -> Result<(), terrane_engine::Error> {
        let boundary = self.boundary.lock().await;
        let frozen = self.freeze(region);
        drop(boundary);
        let Some(hosted) = frozen else { return Ok(()) };
        // A region that is split or dropped meanwhile answers that all is well: its daughters are flushed themselves.
        self.engine.flush(&hosted.engine).await?;
        hosted.set_in_manifest(true);
        Ok(())
    }

    /// Marks the regions whose cells may have expired since their recorded point, so that their next flush records the log
    /// time of now; answers which. They are few per turn of their time to live: it is enough that expired cells go within
    /// a small part of it.
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

    /// Between two entries only: the caller holds the boundary.
    fn freeze(&self, region: RegionId) -> Option<Arc<HostedRegion>> {
        let inner = self.inner.lock();
        let hosted = inner.hosted.get(&region)?.clone();
        let state = inner.state.region(region)?;
        hosted.engine.freeze(inner.point(self.group, &hosted, state));
        hosted.note_full(false);
        Some(hosted)
    }

    /// Whether the group's part of the state waits to be recorded.
    pub fn is_dirty(&self) -> bool {
        let inner = self.inner.lock();
        inner.dirty.is_some() || !inner.discarded.is_empty()
    }

    /// Records the group's part of the state, and lets go of the files of dropped tables in the same step.
    ///
    /// Regions that no record names yet come first. After a restart they are made anew by the entries that made them, and
    /// those entries must meet the group's part as it was before them, not one that knows what became of the regions.
    pub async fn record(&self) -> Result<(), terrane_engine::Error> {
        let (point, discarded, unsettled) = {
            let _boundary = self.boundary.lock().await;
            let inner = self.inner.lock();
            let unsettled: Vec<_> = inner.hosted.values().filter(|hosted| !hosted.is_in_manifest()).cloned().collect();
            (
                GroupPoint { index: inner.applied.max(inner.recorded), state: inner.state.encode() },
                inner.discarded.clone(),
                unsettled,
            )
        };
        for hosted in unsettled {
            self.put_on_disk(hosted.region).await?;
        }
        let index = point.index;
        if discarded.is_empty() {
            self.engine.record_group(self.group, point).await?;
        } else {
            self.engine.drop_regions(&discarded, self.group, point).await?;
        }
        let mut inner = self.inner.lock();
        inner.recorded = inner.recorded.max(index);
        inner.discarded.retain(|region| !discarded.contains(region));
        // What changed while the record was written is above its index and waits for the next one.
        inner.dirty = inner.dirty.filter(|(_, last)| *last > index).map(|(first, last)| (first.max(index + 1), last));
        Ok(())
    }

    /// Flushes a region that no record names yet. One that was split before that is on disk with its daughters.
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

    /// Applies one entry. The boundary is held throughout, also while a split waits for its parent's own split to be on
    /// disk: that wait needs writes of the manifest only, no freeze.
    async fn apply_entry(&self, entry: &AppliedEntry) -> Vec<Bytes> {
        // Before the boundary, which the flushes that make room need.
        self.signals.wait_for_memtables(entry.operations.iter().map(|operation| operation.len() as u64).sum()).await;
        let _boundary = self.boundary.lock().await;
        let applied = Reply::Applied { stamp: entry.stamp }.encode();
        let mut replies = Vec::with_capacity(entry.operations.len());
        let mut gathered = Gathered { stamp: entry.stamp, ..Gathered::default() };
        for operation in &entry.operations {
            let operation = self.read(operation, entry.index);
            if !matches!(operation, Operation::Write(_) | Operation::Settle(_)) {
                // What changes regions finds them as they are after the writes before it.
                self.apply_rows(entry.index, &mut gathered);
            }
            if let Operation::Split(split) = &operation {
                self.settle(split, entry.index).await;
            }
            let mut inner = self.inner.lock();
            let reply = match operation {
                Operation::Write(write) => self.write(&mut inner, entry, write, &mut gathered),
                Operation::ChangeTables(change) => {
                    self.change_tables(&mut inner, entry, &change);
                    Ok(None)
                }
                Operation::Split(split) => self.split(&mut inner, entry, &split).map(Some),
                Operation::Settle(settle) => self.settle_numbers(&mut inner, entry, &settle),
                Operation::Tick => Ok(None),
            };
            replies.push(match reply {
                Ok(None) => applied.clone(),
                Ok(Some(reply)) | Err(reply) => reply.encode(),
            });
        }
        self.apply_rows(entry.index, &mut gathered);
        let mut inner = self.inner.lock();
        inner.applied = entry.index;
        inner.stamp = inner.stamp.max(entry.stamp);
        replies
    }

    fn read(&self, operation: &Bytes, index: u64) -> Operation {
        Operation::decode(operation.clone()).unwrap_or_else(|error| self.unreadable(index, &error))
    }

    fn unreadable(&self, index: u64, error: &dyn std::fmt::Display) -> ! {
        abort_process(&format!(
            "entry {index} of group {} cannot be read by this build ({error}); start the build that wrote it",
            self.group
        ))
    }

    /// Gathers the rows of one operation, and notes their numbers. The range needs no second look: it is fixed by region
    /// id and epoch, and the edge checked each row against it. Families are looked at again if the table was altered since.
    fn write(
        &self,
        inner: &mut Inner,
        entry: &AppliedEntry,
        write: Write,
        gathered: &mut Gathered,
    ) -> Result<Option<Reply>, Reply> {
        let index = entry.index;
        let Inner { state, hosted, windows, .. } = inner;
        let region = state.check_write(&write.header)?;
        let rows: Vec<_> = match write.header.families_checked && write.header.schema_version != region.schema.version {
            true => write.clone().map_while(Result::ok).collect(),
            false => Vec::new(),
        };
        region.check_families(&write.header, rows.iter().map(|row| &row.cells[..]))?;
        let Some(hosted) = hosted.get(&write.header.region) else {
            return Err(state.stale(write.header.region));
        };
        if index <= hosted.opened_at {
            return Ok(None);
        }
        if gathered.region.as_ref().is_some_and(|(other, _)| other.region != hosted.region) {
            self.apply_rows(index, gathered);
        }
        if gathered.region.is_none() {
            gathered.region = Some((hosted.clone(), region.schema.flush_size));
        }
        gathered.rows.reserve(write.len());
        let (client, lowest_unsettled) = (write.header.client, write.header.lowest_unsettled);
        let mut noting = windows.entry(hosted.region).or_default().update(client, lowest_unsettled, entry.stamp);
        let mut results = Vec::new();
        for (place, row) in (0u32..).zip(write) {
            let row = row.unwrap_or_else(|error| self.unreadable(index, &error));
            let noted = row.untracked || noting.applied(row.operation, row.result.as_ref());
            if let Some(result) = row.result {
                results.push((place, result));
            }
            if row.untracked {
                // The window heard of its client, and so has to be on disk before the log may forget it.
                hosted.engine.touch(index);
                continue;
            }
            if !noted {
                // The leader looks every number up before it packs it, so this cannot be; applying it twice would be worse.
                tracing::error!(region = %hosted.region, number = row.operation, "an operation came a second time");
                continue;
            }
            if row.cells.is_empty() {
                // Only its number is news, and has to be on disk before the log may forget it.
                hosted.engine.touch(index);
                continue;
            }
            let cells = PackedCells::validate(row.cells).unwrap_or_else(|error| self.unreadable(index, &error));
            gathered.rows.push((row.row, cells));
        }
        Ok((!results.is_empty()).then_some(Reply::Rows { stamp: entry.stamp, results }))
    }

    /// Notes what a client no longer waits for.
    fn settle_numbers(&self, inner: &mut Inner, entry: &AppliedEntry, settle: &Settle) -> Result<Option<Reply>, Reply> {
        let hosted = inner.hosted.get(&settle.region).ok_or_else(|| inner.state.stale(settle.region))?;
        if entry.index <= hosted.opened_at {
            return Ok(None);
        }
        if let Some(window) = inner.windows.get_mut(&settle.region)
            && window.client(&settle.client).is_some()
        {
            window.update(settle.client, 0, entry.stamp).settle(&settle.under_way);
            hosted.engine.touch(entry.index);
        }
        Ok(None)
    }

    /// Applies what was gathered, all of it of one region: rows of one entry become visible together, and the engine takes
    /// many at once faster than one by one.
    fn apply_rows(&self, index: u64, gathered: &mut Gathered) {
        let Some((hosted, flush_size)) = gathered.region.take() else { return };
        hosted.engine.advance(gathered.stamp);
        if gathered.rows.is_empty() {
            return;
        }
        let first = hosted.engine.sequence() + 1;
        hosted.engine.apply_all(index, first, gathered.rows.iter().map(|(row, cells)| (&row[..], cells)));
        gathered.rows.clear();
        let full = hosted.engine.active_bytes() >= flush_size;
        self.signals.applied(hosted.note_full(full));
    }

    fn change_tables(&self, inner: &mut Inner, entry: &AppliedEntry, change: &ChangeTables) {
        let changes = inner.state.change_tables(change);
        for created in changes.created {
            let region = self.engine.create(region_spec(&created), entry.index);
            set_attributes(&region, &created.schema);
            let hosted = HostedRegion::new(created, region, 0);
            hosted.set_in_manifest(false);
            inner.hosted.insert(hosted.region, hosted.clone());
            self.regions.insert(hosted.clone());
            self.signals.request_flush(hosted.region);
        }
        for (region, before) in changes.altered {
            inner.alter(region, entry, &before);
        }
        for region in changes.dropped {
            inner.hosted.remove(&region);
            inner.windows.remove(&region);
            self.regions.remove(region);
            inner.discarded.push(region);
        }
        inner.mark_dirty(entry.index);
        self.signals.wake();
    }

    async fn settle(&self, split: &Split, index: u64) {
        let parent = self.inner.lock().hosted.get(&split.region).cloned();
        let Some(parent) = parent.filter(|parent| parent.opened_at < index) else {
            return;
        };
        if let Err(error) = self.engine.finish_split(&parent.engine).await {
            abort_process(&format!("region {} cannot be split, its files cannot be written: {error}", split.region));
        }
    }

    fn split(&self, inner: &mut Inner, entry: &AppliedEntry, split: &Split) -> Result<Reply, Reply> {
        let Some(parent) = inner.hosted.get(&split.region).cloned() else {
            let refusal = inner.state.stale(split.region);
            // After a restart the daughters may be on disk already, but not yet that they came from here.
            if inner.state.note_split(split) {
                inner.mark_dirty(entry.index);
            }
            return Err(refusal);
        };
        if entry.index <= parent.opened_at {
            // The region is on disk as it was after this entry, so the entry was refused.
            return Err(inner.state.stale(split.region));
        }
        let (left, right) = inner.state.split(split)?;
        let window = inner.windows.remove(&split.region).unwrap_or_default();
        let recorded = window.encode();
        let daughter = |state: &RegionState| SplitDaughter {
            region: state.descriptor.region,
            point: DurablePoint {
                group: self.group,
                index: entry.index,
                sequence: parent.engine.sequence(),
                stamp: entry.stamp,
                descriptor: state.encode(),
                window: recorded.clone(),
            },
        };
        let halves = self.engine.split(&parent.engine, &split.at, daughter(&left), daughter(&right));
        let (left_half, right_half) = halves.unwrap_or_else(|error| {
            abort_process(&format!("region {} could not be split: {error}", split.region));
        });
        let daughters = vec![left.descriptor.clone(), right.descriptor.clone()];
        inner.hosted.remove(&split.region);
        for (state, half) in [(left, left_half), (right, right_half)] {
            let hosted = HostedRegion::new(state, half, 0);
            hosted.set_in_manifest(false);
            // A retry of what was applied to the parent comes to either of the two.
            if !terrane_env::planted!("a split forgets the window") {
                inner.windows.insert(hosted.region, window.clone());
            }
            // Readers of the parent find their moment here, if they come soon. What is held is nobody's state but theirs.
            for snapshot in hosted.engine.take_handed_down() {
                hosted.held_snapshots.hold(snapshot, terrane_env::time::now_ns());
            }
            inner.hosted.insert(hosted.region, hosted.clone());
            self.regions.insert(hosted.clone());
            self.signals.request_flush(hosted.region);
        }
        // Only now: a request always finds the parent or the daughters, never a hole.
        self.regions.remove(split.region);
        inner.mark_dirty(entry.index);
        self.metrics.splits.inc();
        Ok(Reply::Split { daughters })
    }
}

impl Inner {
    /// The durable point of a region as of the last applied entry.
    fn point(&self, group: GroupId, hosted: &HostedRegion, state: &RegionState) -> DurablePoint {
        DurablePoint {
            group,
            // After a restart, entries come again from below the point that the region was opened with.
            index: self.applied.max(hosted.opened_at),
            sequence: hosted.engine.sequence(),
            stamp: self.stamp,
            descriptor: state.encode(),
            window: self.windows.get(&hosted.region).map(Window::encode).unwrap_or_default(),
        }
    }

    /// Puts a region under its new schema: families, rules, how files are written. A change of what readers see takes a
    /// sequence number, as a write does.
    fn alter(&mut self, region: RegionId, entry: &AppliedEntry, before: &TableSchema) {
        let (Some(hosted), Some(state)) = (self.hosted.get(&region), self.state.region(region)) else {
            return;
        };
        let next = hosted.engine.sequence() + 1;
        let mut changes_views = false;
        for family in &state.schema.families {
            let known = before.families.iter().find(|known| known.name == family.name);
            if known.is_none_or(|known| known.rules != family.rules || known.storage != family.storage) {
                hosted.engine.set_family(next, entry.stamp, family);
                changes_views |= known.is_none_or(|known| known.rules != family.rules);
            }
        }
        for gone in before.families.iter().filter(|known| state.schema.family(known.name.as_bytes()).is_none()) {
            hosted.engine.remove_family(&gone.name);
        }
        if changes_views {
            hosted.engine.advance(entry.stamp);
            hosted.engine.take_sequence(next);
        }
        set_attributes(&hosted.engine, &state.schema);
        hosted.engine.touch(entry.index);
        hosted.set_state(state.clone());
    }

    fn mark_dirty(&mut self, index: u64) {
        if index <= self.recorded {
            return;
        }
        let (first, _) = self.dirty.unwrap_or((index, index));
        self.dirty = Some((first, index));
    }
}

/// Tells the engine what it does not record of a table's attributes. A region that is split hands it to its daughters.
fn set_attributes(region: &Region, schema: &TableSchema) {
    region.set_prefix(row_prefix(schema));
    region.set_history(schema.history_ms);
    region.set_sizes(schema.region_size, schema.flush_size);
}

fn region_spec(state: &RegionState) -> RegionSpec {
    RegionSpec {
        region: state.descriptor.region,
        table: state.descriptor.table,
        group: state.descriptor.group,
        range: state.descriptor.range.clone(),
        families: state.schema.families.clone(),
    }
}

impl StateMachine for GroupMachine {
    type Proposal = Vec<u8>;
    type Answer = Bytes;

    fn prepare(&self, packing: &Packing, operation: &Vec<u8>, entry: &mut Vec<u8>) -> Prepared<Bytes> {
        self.prepare_operation(packing, operation, entry)
    }

    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<Bytes>>> {
        Box::pin(async move {
            let mut replies = Vec::with_capacity(entries.len());
            for entry in entries {
                replies.push(self.apply_entry(entry).await);
            }
            replies
        })
    }

    fn durable(&self) -> Durable {
        let inner = self.inner.lock();
        let mut durable = Durable { index: inner.applied, held_by: None };
        if let Some((from, _)) = inner.dirty {
            durable =
                Durable { index: from.saturating_sub(1), held_by: Some(format!("the state of group {}", self.group)) };
        }
        for hosted in inner.hosted.values() {
            if let Some(from) = hosted.engine.unflushed_from()
                && from.saturating_sub(1) < durable.index
            {
                durable = Durable { index: from.saturating_sub(1), held_by: Some(format!("region {}", hosted.region)) };
            }
        }
        durable
    }

    fn relieve(&self, index: u64) {
        for hosted in self.hosted() {
            if hosted.engine.unflushed_from().is_some_and(|from| from <= index) {
                self.signals.request_flush(hosted.region);
            }
        }
        self.signals.wake();
    }

    fn came_back(&self) {
        self.evaluator.lock().forget();
    }

    fn lost_leadership(&self) {
        self.evaluator.lock().forget();
    }
}

#[cfg(test)]
mod tests;
