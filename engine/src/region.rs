//! A region's data on this server: a store per family, the durable point, and what is not durable yet.
//!
//! - `state`: what the region's lock protects.
//! - `write`: applying row mutations.
//! - `recorded`: flushes, compactions and ingests, which change what the manifest says of the region.
//! - `split`: two daughters that share everything the parent had.
//! - `merge`: one region of two neighbours, with everything both had.
//!
//! # Invariants
//! - One writer: `apply`, `freeze`, `set_family`, `split` and `merge` are called in log order by the code that applies the group's
//!   log.
//! - `unflushed_from` is the first log index whose effect is in no recorded flush; `None` when there is none.
//! - Frozen memtables leave only when the manifest record of their flush is synced, and the files come in at that moment,
//!   under one lock: a reader finds every cell in at least one of the two.

mod merge;
mod recorded;
mod split;
mod state;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use smallvec::SmallVec;
use terrane_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrane_env::sync::{Mutex, RwLock};
use terrane_types::limits::{FLUSH_SIZE_DEFAULT, REGION_SIZE_DEFAULT};
use terrane_types::visibility::{RulesChange, RulesHistory};
use terrane_types::{FamilyName, FamilySchema, GroupId, KeyRange, Projection, RegionId, TableId};

pub(crate) use self::recorded::{FlushInput, Recording};
pub use self::split::SplitDaughter;
pub(crate) use self::state::{Frozen, Memtables, StoreView};
use self::state::{State, assert_forward, new_memtable, one_version_since};
use crate::SnapshotTooOld;
use crate::compaction::{CompactionProgress, Compactions};
use crate::levels::{FileRef, Levels, RegionFiles};
use crate::manifest::{Families, FamilyRecord};
use crate::memtable::Memtable;
use crate::point::{DurablePoint, RegionKey};
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;
use crate::snapshot::{Snapshot, Snapshots};
use crate::source::PART_BYTES;

/// No log index: nothing waits for a flush.
const NONE: u64 = u64::MAX;

/// How a region begins.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// Its id.
    pub region: RegionId,
    /// The table it is a part of.
    pub table: TableId,
    /// The group that orders its writes.
    pub group: GroupId,
    /// Its rows.
    pub range: KeyRange,
    /// Its families and their rules.
    pub families: Vec<FamilySchema>,
}

/// The views of the families that are read: mostly few.
pub(crate) type StoreViews = SmallVec<[Arc<StoreView>; 4]>;

/// A region open on this server.
pub struct Region {
    id: RegionId,
    group: GroupId,
    table: TableId,
    range: KeyRange,
    bounds: RowRange,
    state: RwLock<State>,
    /// The first log index that went into the active memtables or changed the descriptor since the last freeze.
    active_first: AtomicU64,
    snapshots: Snapshots,
    /// Until they are taken: snapshots that were live on the parent when it was split, or where the region moved from.
    handed_down: Mutex<Vec<Snapshot>>,
    /// See [`Recording`].
    recording: tokio::sync::Mutex<()>,
    /// Whether the backend may hold cells above the recorded point, from a flush that was never recorded: one that a
    /// crash cut off, or that failed. Changed under `recording`.
    unrecorded: AtomicBool,
    pub(crate) compactions: Compactions,
    prefix: RwLock<Option<RowPrefix>>,
    /// The size at which the region splits, and the one at which it is flushed.
    sizes: RwLock<(u64, u64)>,
    part_bytes: AtomicUsize,
}

/// No compaction of a region begins while this lives.
#[derive(Debug)]
pub struct CompactionHold(Arc<Region>);

impl Drop for CompactionHold {
    fn drop(&mut self) {
        self.0.compactions.end_hold();
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "region {} of table {}", self.id, self.table)
    }
}

impl Region {
    pub(crate) fn new(
        id: RegionId,
        table: TableId,
        range: KeyRange,
        families: Families,
        point: DurablePoint,
        files: RegionFiles,
    ) -> Self {
        let snapshots = Snapshots::new(point.sequence);
        Self::with_snapshots(id, table, range, State::new(point, families, files, &snapshots), snapshots)
    }

    /// The daughter of a split: its sequence numbers continue the parent's, and so do its snapshots. Those that are live
    /// wait in [`Region::take_handed_down`].
    fn after_split(
        &self,
        id: RegionId,
        range: KeyRange,
        families: Families,
        point: DurablePoint,
        files: RegionFiles,
    ) -> Self {
        let (snapshots, handed_down) = self.snapshots.after_split(point.sequence);
        let state = State::new(point, families, files, &snapshots);
        let daughter = Self::with_snapshots(id, self.table, range, state, snapshots);
        *daughter.handed_down.lock() = handed_down;
        daughter
    }

    fn with_snapshots(id: RegionId, table: TableId, range: KeyRange, state: State, snapshots: Snapshots) -> Self {
        Self {
            id,
            group: state.point.group,
            table,
            bounds: RowRange::of(&range),
            range,
            state: RwLock::new(state),
            active_first: AtomicU64::new(NONE),
            snapshots,
            handed_down: Mutex::default(),
            recording: tokio::sync::Mutex::new(()),
            unrecorded: AtomicBool::new(true),
            compactions: Compactions::default(),
            prefix: RwLock::new(None),
            sizes: RwLock::new((REGION_SIZE_DEFAULT, FLUSH_SIZE_DEFAULT)),
            part_bytes: AtomicUsize::new(terrane_env::limit!("bytes of a part of a row", PART_BYTES, 1..=600)),
        }
    }

    /// Lets no compaction of the region begin while the result lives. Those that run end.
    #[must_use]
    pub fn hold_compactions(self: &Arc<Self>) -> CompactionHold {
        self.compactions.begin_hold();
        CompactionHold(Arc::clone(self))
    }

    /// What distinguishes it from all others on this server.
    pub(crate) fn key(&self) -> RegionKey {
        (self.group, self.id)
    }

    /// The region's id.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// The table it is a part of.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Its rows.
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.range
    }

    pub(crate) fn bounds(&self) -> &RowRange {
        &self.bounds
    }

    /// Sets how row prefixes are cut for bloom filters, from now on. It is not recorded: set it again whenever the engine is
    /// opened.
    pub fn set_prefix(&self, prefix: Option<RowPrefix>) {
        *self.prefix.write() = prefix;
    }

    /// Sets the sizes at which the region splits and is flushed, from which compaction derives the sizes of files and levels.
    /// Not recorded either.
    pub fn set_sizes(&self, region_bytes: u64, flush_bytes: u64) {
        *self.sizes.write() = (region_bytes, flush_bytes);
    }

    /// Lowers the number of bytes after which a row is read and written in parts, so that tests meet parts in small rows. Not
    /// recorded either.
    pub fn set_part_bytes(&self, bytes: usize) {
        self.part_bytes.store(bytes.clamp(1, PART_BYTES), Ordering::Relaxed);
    }

    pub(crate) fn part_bytes(&self) -> usize {
        self.part_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn sizes(&self) -> (u64, u64) {
        *self.sizes.read()
    }

    pub(crate) fn prefix(&self) -> Option<RowPrefix> {
        self.prefix.read().clone()
    }

    /// Takes over what is not recorded from the region that this one was made of.
    pub(crate) fn inherit_settings(&self, from: &Self) {
        self.set_prefix(from.prefix());
        let (region_bytes, flush_bytes) = from.sizes();
        self.set_sizes(region_bytes, flush_bytes);
        self.set_part_bytes(from.part_bytes());
    }

    /// What a new region takes over in memory from those that it was made of.
    fn begin_with(&self, inherited: Frozen) {
        let mut state = self.state.write();
        state.frozen.push(inherited);
        state.refresh();
    }

    /// The last recorded durable point.
    #[must_use]
    pub fn point(&self) -> DurablePoint {
        self.state.read().point.clone()
    }

    /// The sequence number of the last row mutation applied.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.snapshots.published()
    }

    /// The first log index whose effect is not durable here; `None` when all of it is.
    #[must_use]
    pub fn unflushed_from(&self) -> Option<u64> {
        let state = self.state.read();
        let active = self.active_first.load(Ordering::Acquire);
        let first = state.frozen.iter().map(|frozen| frozen.first_index).fold(active, u64::min);
        (first != NONE).then_some(first)
    }

    /// Whether something frozen waits for [`crate::Engine::flush`].
    #[must_use]
    pub fn has_frozen(&self) -> bool {
        !self.state.read().frozen.is_empty()
    }

    /// Bytes in memory that no file holds.
    #[must_use]
    pub fn memtable_bytes(&self) -> u64 {
        let state = self.state.read();
        let active: u64 = state.stores.values().map(|store| store.active.bytes()).sum();
        active + state.frozen.iter().map(|frozen| frozen.bytes).sum::<u64>()
    }

    /// Bytes of the active memtables alone: what a freeze would take.
    #[must_use]
    pub fn active_bytes(&self) -> u64 {
        self.state.read().stores.values().map(|store| store.active.bytes()).sum()
    }

    /// Its part of every file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.state.read().file_bytes()
    }

    /// How many files it has, those that it shares with the other daughter of a split included.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.state.read().file_count()
    }

    /// The region's size: memtables and its part of every file.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.memtable_bytes() + self.file_bytes()
    }

    /// The families, sorted.
    #[must_use]
    pub fn families(&self) -> Vec<FamilyName> {
        self.state.read().stores.keys().cloned().collect()
    }

    /// Notes that the descriptor or schema changed at `index`: not durable before the next flush.
    pub fn touch(&self, index: u64) {
        self.active_first.fetch_min(index, Ordering::AcqRel);
    }

    /// Applies new rules of a family from `from_sequence` on; a family that does not exist yet is added. `stamp_ms` is the
    /// stamp of the log entry that brought them. A family that was removed and is added again starts empty: what it held
    /// before stays gone. The way files are written changes with the rules.
    pub fn set_family(&self, from_sequence: u64, stamp_ms: u64, family: &FamilySchema) {
        let stamp_ms = i64::try_from(stamp_ms).unwrap_or(i64::MAX);
        let (name, rules, storage) = (&family.name, family.rules, family.storage);
        let mut state = self.state.write();
        match state.stores.get_mut(name) {
            Some(store) => {
                store.family.change_rules(RulesChange { sequence: from_sequence, stamp_ms, rules });
                store.family.storage = storage;
                store.active.set_one_version(one_version_since(&store.family));
            }
            None => {
                let record = FamilyRecord::new(from_sequence, RulesHistory::new(rules), storage);
                state.add_store(name, record, Levels::default(), &self.snapshots);
            }
        }
        state.refresh();
    }

    /// Gives the region's next sequence number to something other than a row mutation, and makes it visible. A change of
    /// rules has a number of its own: readers see it without a later write, and of two changes without a write between
    /// them each takes effect.
    pub fn take_sequence(&self, sequence: u64) {
        self.snapshots.publish_writes(sequence, sequence, false);
    }

    /// Removes a family and its cells.
    pub fn remove_family(&self, family: &FamilyName) {
        let mut state = self.state.write();
        state.stores.remove(family);
        for frozen in &mut state.frozen {
            frozen.memtables.remove(family);
        }
        state.refresh();
    }

    /// Whether reads of what is in memory would be cheaper after [`Region::merge_memtable`].
    #[must_use]
    pub fn wants_merge(&self) -> bool {
        self.state.read().stores.values().any(|store| store.active.wants_merge())
    }

    /// Notes which memtables are no longer written, and drops stale copies of their buffers. Those that are read get a copy at
    /// the next [`Region::merge_memtable`], unless it takes more than `room` bytes. Returns the bytes that copies take or will
    /// take. Call it about once per second, from one thread.
    pub fn look_at_memtables(&self, room: u64) -> u64 {
        let mut taken = 0;
        for store in self.state.read().stores.values() {
            taken += store.active.look(room.saturating_sub(taken));
        }
        taken
    }

    /// Does one merge of memtable runs per family where one is due. It computes for some milliseconds and nothing waits for
    /// it: do not call it on a runtime thread.
    pub fn merge_memtable(&self) {
        let wanting: Vec<_> = {
            let state = self.state.read();
            state.stores.values().map(|store| Arc::clone(&store.active)).filter(|active| active.wants_merge()).collect()
        };
        wanting.iter().for_each(|active| {
            active.merge_once();
        });
    }

    /// Freezes the active memtables of all families as of `point`; called between two applies. Does nothing when nothing
    /// changed since the last freeze.
    pub fn freeze(&self, point: DurablePoint) {
        let mut state = self.state.write();
        let frozen = self.freeze_in(&mut state, point);
        drop(state);
        seal(&frozen);
    }

    /// The part of a freeze that happens under the lock. Returns what was frozen, for [`seal`].
    fn freeze_in(&self, state: &mut State, point: DurablePoint) -> Vec<Arc<Memtable>> {
        let first_index = self.active_first.swap(NONE, Ordering::AcqRel);
        if first_index == NONE {
            return Vec::new();
        }
        assert_forward(state.frozen.last().map_or(&state.point, |frozen| &frozen.point), &point);
        let mut memtables = Memtables::new();
        let mut bytes = 0;
        for (family, store) in &mut state.stores {
            if store.active.is_empty() {
                continue;
            }
            let fresh = Arc::new(new_memtable(&store.family, &self.snapshots));
            let memtable = std::mem::replace(&mut store.active, fresh);
            memtable.set_one_version(None);
            bytes += memtable.bytes();
            memtables.insert(family.clone(), vec![memtable]);
        }
        let families = state.families();
        let frozen = memtables.values().flatten().cloned().collect();
        state.frozen.push(Frozen { first_index, point, families, memtables, bytes });
        state.refresh();
        frozen
    }

    /// What each selected family consists of at this moment. The lock is not kept: files are read without it, and a freeze
    /// never waits for a reader.
    pub(crate) fn views(&self, projection: &Projection) -> StoreViews {
        let state = self.state.read();
        let selected = state.stores.iter().filter(|(name, _)| projection.selects_family(name.as_bytes()));
        selected.map(|(_, store)| Arc::clone(&store.view)).collect()
    }

    /// All memtables and files, for the choice of a split point.
    pub(crate) fn memtables_and_files(&self) -> (Vec<Arc<Memtable>>, Vec<FileRef>) {
        let state = self.state.read();
        let frozen = state.frozen.iter().flat_map(|frozen| frozen.memtables.values().flatten().cloned());
        let memtables = state.stores.values().map(|store| Arc::clone(&store.active)).chain(frozen).collect();
        let files = state.stores.values().flat_map(|store| store.files.iter().cloned()).collect();
        (memtables, files)
    }

    /// How far the compaction requested with [`crate::Engine::request_compaction`] has come.
    #[must_use]
    pub fn compaction_progress(&self) -> CompactionProgress {
        self.compactions.progress()
    }

    /// A snapshot of everything applied so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots.take()
    }

    /// Keeps versions that are no longer visible readable by [`Region::snapshot_at`] for `history_ms` of log time, from now
    /// on; with 0 they go as soon as no snapshot holds them. What is collected already stays so. This is not recorded: set it
    /// again whenever the engine is opened; after that, snapshots begin at the durable point.
    pub fn set_history(&self, history_ms: u64) {
        self.snapshots.set_history(history_ms);
    }

    /// The log has come to `stamp_ms`: what is applied next is written then. History is measured by this time, so call this
    /// before each write to a region that keeps some.
    pub fn advance(&self, stamp_ms: u64) {
        self.snapshots.advance(stamp_ms);
    }

    /// Snapshots that were live on the parent when this region came from it by a split, or where the region was before it moved.
    /// While they live here, those readers can continue at the same number. The code that splits or moves takes them, and drops
    /// them once the readers have had time to arrive; until then nothing that they see is collected.
    #[must_use]
    pub fn take_handed_down(&self) -> Vec<Snapshot> {
        std::mem::take(&mut *self.handed_down.lock())
    }

    /// The sequence numbers at which readers hold snapshots, the newest ones of many, in their order. All that those see is
    /// here and is collected by no flush or compaction while they live.
    #[must_use]
    pub fn read_at(&self) -> Vec<u64> {
        self.snapshots.live()
    }

    /// Keeps everything from a sequence number on, or from the oldest that can still be read, for readers of another replica of
    /// the region: they may come here once it leads. With `None` no more. This is not recorded.
    pub fn keep_from(&self, sequence: Option<u64>) {
        self.snapshots.keep_from(sequence);
    }

    /// The region moved here with files that have everything at these sequence numbers.
    pub(crate) fn hand_down_views(&self, views: Vec<u64>) {
        self.handed_down.lock().extend(self.snapshots.brought(views));
    }

    /// Whether a snapshot is one of this region, and not of what it was before it moved.
    #[must_use]
    pub fn is_seen_by(&self, snapshot: &Snapshot) -> bool {
        self.snapshots.took(snapshot)
    }

    /// Whether a reader holds a snapshot.
    #[must_use]
    pub fn is_being_read(&self) -> bool {
        self.snapshots.is_any_live()
    }

    /// The oldest sequence number that a snapshot can be taken at, and that of the last row mutation.
    #[must_use]
    pub fn readable(&self) -> (u64, u64) {
        self.snapshots.readable()
    }

    /// A snapshot at an earlier sequence number.
    ///
    /// # Errors
    /// [`SnapshotTooOld`] when versions it would see may have been collected.
    pub fn snapshot_at(&self, sequence: u64) -> Result<Snapshot, SnapshotTooOld> {
        self.snapshots.take_at(sequence)
    }
}

/// Turns the last cells of each frozen memtable into a run. It takes a moment: not under the lock that readers take.
fn seal(frozen: &[Arc<Memtable>]) {
    #[cfg(test)]
    tests::reach_seal();
    frozen.iter().for_each(|memtable| memtable.seal());
}

#[cfg(test)]
pub(crate) mod tests {
    thread_local! {
        /// What happens on this thread right before frozen memtables are sealed, once.
        pub(crate) static AT_SEAL: std::cell::RefCell<Option<Box<dyn FnOnce()>>> =
            const { std::cell::RefCell::new(None) };
    }

    /// A freeze has released the region's lock and has not sealed what it froze.
    pub(super) fn reach_seal() {
        if let Some(act) = AT_SEAL.take() {
            act();
        }
    }
}
