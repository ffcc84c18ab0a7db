//! A region's data on this server: a store per family, the durable point, and what is not durable yet.
//!
//! # Invariants
//! - One writer: `apply`, `freeze`, `set_rules` and `split` are called in log order by whoever applies the group's log.
//! - `unflushed_from` is the first log index whose effect is in no recorded flush; `None` when there is none.
//! - Frozen memtables leave only when the manifest record of their flush is synced, and files come in at that moment,
//!   under one lock: a reader finds every cell in at least one of the two.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use terrane_types::limits::{FLUSH_SIZE_DEFAULT, REGION_SIZE_DEFAULT};
use terrane_types::visibility::{RulesChange, RulesHistory};
use terrane_types::{FamilyName, FamilySchema, GroupId, KeyRange, PackedCells, RegionId, TableId};

use crate::SnapshotTooOld;
use crate::cells::{Cell, Cells};
use crate::compaction::Compactions;
use crate::file::Levels;
use crate::manifest::FamilyRecord;
use crate::memtable::{Memtable, Replacing};
use crate::point::DurablePoint;
use crate::reading::{PART_BYTES, Source};
use crate::snapshot::{Snapshot, Snapshots};
use crate::source::Bounds;

/// No log index: nothing waits for a flush.
const NONE: u64 = u64::MAX;

/// Row mutations that are worth a sorted run of their own in the memtable.
const BATCH_ROWS_MIN: usize = 256;

/// The leading part of row keys that many rows share and readers ask for: files can then tell which of them they lack.
#[derive(Clone)]
pub struct RowPrefix {
    /// Tells one way of cutting keys from another, so that a file's filter is only asked in the way it was made.
    pub id: u64,
    /// The length of the part of a row, in bytes; `None` for a row that has no such part.
    pub length: RowPrefixLength,
}

/// Finds how many bytes of a row are its prefix.
pub type RowPrefixLength = Arc<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;

impl std::fmt::Debug for RowPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row prefix {}", self.id)
    }
}

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

/// What readers find of a family at some moment. Immutable: a reader takes it and needs no lock after.
pub(crate) struct View {
    pub(crate) name: FamilyName,
    pub(crate) family: FamilyRecord,
    /// Everything that holds cells of the family, newest first.
    pub(crate) sources: Vec<Arc<dyn Source>>,
}

/// One family's active memtable and files.
pub(crate) struct Store {
    pub(crate) family: FamilyRecord,
    pub(crate) active: Arc<Memtable>,
    pub(crate) files: Levels,
    pub(crate) view: Arc<View>,
}

/// Families with their rules, as of some moment.
pub(crate) type Families = BTreeMap<FamilyName, FamilyRecord>;

/// The files of each family.
pub(crate) type Files = BTreeMap<FamilyName, Levels>;

/// Memtables of all families that take no more writes, with the point that their flush will record.
#[derive(Clone)]
pub(crate) struct Frozen {
    pub(crate) first_index: u64,
    pub(crate) point: DurablePoint,
    /// The rules as of the point. What changed later is applied again after a restart from here, so it is not recorded.
    pub(crate) families: Families,
    pub(crate) tables: BTreeMap<FamilyName, Vec<Arc<Memtable>>>,
    /// What the tables hold inside of the region, about.
    pub(crate) bytes: u64,
}

pub(crate) struct State {
    pub(crate) stores: BTreeMap<FamilyName, Store>,
    /// Oldest first.
    pub(crate) frozen: Vec<Frozen>,
    /// The last recorded point, with the families as recorded.
    pub(crate) point: DurablePoint,
    pub(crate) recorded: Families,
    /// Split or dropped: it is not flushed any more.
    pub(crate) retired: bool,
}

impl State {
    pub(crate) fn families(&self) -> Families {
        self.stores.iter().map(|(name, store)| (name.clone(), store.family.clone())).collect()
    }

    pub(crate) fn files(&self) -> Files {
        self.stores.iter().map(|(name, store)| (name.clone(), store.files.clone())).collect()
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.stores.values().map(|store| store.files.bytes()).sum()
    }

    /// Puts files in place. Families that have gone meanwhile take none.
    pub(crate) fn set_files(&mut self, files: Files) {
        for (name, files) in files {
            if let Some(store) = self.stores.get_mut(&name) {
                store.files = files;
            }
        }
    }

    /// Makes what readers find anew, after anything about memtables, files or rules has changed.
    pub(crate) fn refresh(&mut self) {
        for (name, store) in &mut self.stores {
            let mut sources: Vec<Arc<dyn Source>> = vec![Arc::clone(&store.active) as Arc<dyn Source>];
            for frozen in self.frozen.iter().rev() {
                let tables = frozen.tables.get(name).into_iter().flatten();
                sources.extend(tables.map(|table| Arc::clone(table) as Arc<dyn Source>));
            }
            sources.extend(store.files.sources());
            store.view = Arc::new(View { name: name.clone(), family: store.family.clone(), sources });
        }
    }

    fn add_store(&mut self, name: &FamilyName, family: FamilyRecord, files: Levels, snapshots: &Snapshots) {
        let active = Arc::new(new_memtable(&family, snapshots));
        let view = Arc::new(View { name: name.clone(), family: family.clone(), sources: Vec::new() });
        self.stores.insert(name.clone(), Store { family, active, files, view });
    }
}

/// Since which write a put of the family takes the place of the puts below it, if it does.
fn one_version_since(rules: &RulesHistory) -> Option<u64> {
    let last = rules.changes().last()?;
    (last.rules.versions == 1 && !last.rules.keep_deleted_cells).then_some(last.sequence)
}

fn new_memtable(family: &FamilyRecord, snapshots: &Snapshots) -> Memtable {
    let memtable = Memtable::new(Some(Arc::new(snapshots.clone())));
    memtable.set_one_version(one_version_since(&family.rules));
    memtable
}

/// A region open on this server.
pub struct Region {
    id: RegionId,
    table: TableId,
    range: KeyRange,
    bounds: Bounds,
    pub(crate) state: RwLock<State>,
    /// The first log index that went into the active memtables or changed the descriptor since the last freeze.
    active_first: AtomicU64,
    pub(crate) snapshots: Snapshots,
    /// Of a daughter, until somebody takes them: snapshots that lived on its parent when that was split.
    handed_down: parking_lot::Mutex<Vec<Snapshot>>,
    /// Held by whoever changes the region's record (a flush, the end of a compaction), so that records follow in the order
    /// of what they say.
    pub(crate) recording: tokio::sync::Mutex<()>,
    /// Whether the backend may hold cells from above the recorded point, of a flush that was never recorded: one that a
    /// crash cut off, or that failed. Changed under `recording`.
    pub(crate) unrecorded: AtomicBool,
    pub(crate) compaction: Compactions,
    prefix: RwLock<Option<RowPrefix>>,
    /// The size at which the region splits, and that at which it is flushed.
    sizes: RwLock<(u64, u64)>,
    part_bytes: AtomicUsize,
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
        files: Files,
    ) -> Self {
        let snapshots = Snapshots::new(point.sequence);
        Self::with_snapshots(id, table, range, families, point, files, snapshots)
    }

    /// The daughter of a split: its sequence numbers go on where the parent's end, and its snapshots with them. What lives
    /// of those waits in [`Region::take_handed_down`].
    pub(crate) fn after_split(
        &self,
        id: RegionId,
        range: KeyRange,
        families: Families,
        point: DurablePoint,
        files: Files,
    ) -> Self {
        let (snapshots, handed_down) = self.snapshots.after_split(point.sequence);
        let daughter = Self::with_snapshots(id, self.table, range, families, point, files, snapshots);
        *daughter.handed_down.lock() = handed_down;
        daughter
    }

    fn with_snapshots(
        id: RegionId,
        table: TableId,
        range: KeyRange,
        families: Families,
        point: DurablePoint,
        mut files: Files,
        snapshots: Snapshots,
    ) -> Self {
        let bounds = Bounds { start: range.start.to_vec(), stop: range.end.to_vec() };
        let mut state =
            State { stores: BTreeMap::new(), frozen: Vec::new(), point, recorded: families.clone(), retired: false };
        for (name, family) in families {
            let files = files.remove(&name).unwrap_or_default();
            state.add_store(&name, family, files, &snapshots);
        }
        state.refresh();
        Self {
            id,
            table,
            range,
            bounds,
            state: RwLock::new(state),
            active_first: AtomicU64::new(NONE),
            snapshots,
            handed_down: parking_lot::Mutex::default(),
            recording: tokio::sync::Mutex::new(()),
            unrecorded: AtomicBool::new(true),
            compaction: Compactions::default(),
            prefix: RwLock::new(None),
            sizes: RwLock::new((REGION_SIZE_DEFAULT, FLUSH_SIZE_DEFAULT)),
            part_bytes: AtomicUsize::new(PART_BYTES),
        }
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

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// What filters on row prefixes are made of, from now on. It is not recorded: whoever opens an engine says it again.
    pub fn set_prefix(&self, prefix: Option<RowPrefix>) {
        *self.prefix.write() = prefix;
    }

    /// The sizes at which the region splits and is flushed, by which files and levels are made larger or smaller. Not
    /// recorded either.
    pub fn set_sizes(&self, region_bytes: u64, flush_bytes: u64) {
        *self.sizes.write() = (region_bytes, flush_bytes);
    }

    /// Bytes of cells after which a row is read and written in parts, where that is to be less than usual: so that tests meet
    /// parts in small rows. Not recorded either.
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

    /// The region's size: memtables and its part of every file.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.memtable_bytes() + self.state.read().file_bytes()
    }

    /// The families, sorted.
    #[must_use]
    pub fn families(&self) -> Vec<FamilyName> {
        self.state.read().stores.keys().cloned().collect()
    }

    /// Applies one row mutation at the region's next sequence number. Cells of families that are not there are left out:
    /// the region server answers for them before it comes here.
    pub fn apply(&self, index: u64, sequence: u64, row: &[u8], cells: &PackedCells) {
        self.apply_all(index, sequence, std::iter::once((row, cells)));
    }

    /// Applies row mutations, the first at the region's next sequence number, each of the others at the one after. They
    /// become visible together. See [`Region::apply`].
    pub fn apply_all<'a>(
        &self,
        index: u64,
        first_sequence: u64,
        mutations: impl ExactSizeIterator<Item = (&'a [u8], &'a PackedCells)> + Clone,
    ) {
        let count = mutations.len();
        if count == 0 {
            return;
        }
        let state = self.state.read();
        // Under the lock: a freeze before it leaves the mark to the memtables that the cells go to.
        self.touch(index);
        let last_sequence = first_sequence + count as u64 - 1;
        if count >= BATCH_ROWS_MIN {
            let replacing = insert_batch(&state.stores, first_sequence, mutations);
            let replaces = replacing.iter().any(|(_, replacing)| !replacing.is_empty());
            let newest_snapshot = self.snapshots.publish(last_sequence, replaces);
            for (store, replacing) in replacing {
                store.active.remove_all_replaced(&replacing, newest_snapshot);
            }
        } else {
            let mut replacing = Vec::new();
            for_each_cell(&state.stores, first_sequence, mutations, |store, cell| {
                if store.active.insert(cell) {
                    replacing.push((store, cell));
                }
            });
            let newest_snapshot = self.snapshots.publish(last_sequence, !replacing.is_empty());
            // Only now: until the new versions are visible, readers need the old ones.
            for (store, cell) in replacing {
                store.active.remove_replaced(cell, newest_snapshot);
            }
        }
    }

    /// Notes that the descriptor or schema changed at `index`: not durable before the next flush.
    pub fn touch(&self, index: u64) {
        self.active_first.fetch_min(index, Ordering::AcqRel);
    }

    /// Puts new rules of a family into force from `from_sequence` on; a family that is not there yet is added. `stamp_ms`
    /// is the stamp of the log entry that brought them. A family that was taken away and comes again begins anew: what it
    /// held before stays gone. How files are written from now on changes with it.
    pub fn set_family(&self, from_sequence: u64, stamp_ms: u64, family: &FamilySchema) {
        let stamp_ms = i64::try_from(stamp_ms).unwrap_or(i64::MAX);
        let (name, rules, storage) = (&family.name, family.rules, family.storage);
        let mut state = self.state.write();
        match state.stores.get_mut(name) {
            Some(store) => {
                store.family.rules.push(RulesChange { sequence: from_sequence, stamp_ms, rules });
                store.family.storage = storage;
                store.active.set_one_version(one_version_since(&store.family.rules));
            }
            None => {
                let record = FamilyRecord { since: from_sequence, rules: RulesHistory::new(rules), storage };
                state.add_store(name, record, Levels::default(), &self.snapshots);
            }
        }
        state.refresh();
    }

    /// Gives the region's next sequence number to something that is no row mutation, and makes it visible. A change of
    /// rules has a number of its own: readers see it without a write that follows, and of two changes without a write
    /// between them each has had its effect.
    pub fn take_sequence(&self, sequence: u64) {
        self.snapshots.publish(sequence, false);
    }

    /// Takes a family away, and its cells with it.
    pub fn remove_family(&self, family: &FamilyName) {
        let mut state = self.state.write();
        state.stores.remove(family);
        for frozen in &mut state.frozen {
            frozen.tables.remove(family);
        }
        state.refresh();
    }

    /// Whether reads of what is in memory would be cheaper after [`Region::merge_memtable`].
    #[must_use]
    pub fn wants_merge(&self) -> bool {
        self.state.read().stores.values().any(|store| store.active.wants_merge())
    }

    /// Does one merge in memory, if there is one to do. Takes some milliseconds of computing, and nobody waits for it: not
    /// for a thread of the runtime.
    pub fn merge_memtable(&self) {
        let wanting: Vec<_> = {
            let state = self.state.read();
            state.stores.values().map(|store| Arc::clone(&store.active)).filter(|active| active.wants_merge()).collect()
        };
        wanting.iter().for_each(|active| {
            active.merge_once();
        });
    }

    /// Freezes the active memtables of all families as of `point`; called between two applies. Nothing happens when
    /// nothing changed since the last freeze.
    pub fn freeze(&self, point: DurablePoint) {
        let mut state = self.state.write();
        let frozen = self.freeze_in(&mut state, point);
        drop(state);
        seal(&frozen);
    }

    /// The part of a freeze that happens under the lock. Answers what was frozen, for [`seal`].
    pub(crate) fn freeze_in(&self, state: &mut State, point: DurablePoint) -> Vec<Arc<Memtable>> {
        let first_index = self.active_first.swap(NONE, Ordering::AcqRel);
        if first_index == NONE {
            return Vec::new();
        }
        let mut tables = BTreeMap::new();
        let mut bytes = 0;
        for (family, store) in &mut state.stores {
            if store.active.is_empty() {
                continue;
            }
            let fresh = Arc::new(new_memtable(&store.family, &self.snapshots));
            let table = std::mem::replace(&mut store.active, fresh);
            table.set_one_version(None);
            bytes += table.bytes();
            tables.insert(family.clone(), vec![table]);
        }
        let families = state.families();
        let frozen = tables.values().flatten().cloned().collect();
        state.frozen.push(Frozen { first_index, point, families, tables, bytes });
        state.refresh();
        frozen
    }

    /// A snapshot of everything applied so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots.take()
    }

    /// Has versions that nobody sees any more readable by [`Region::snapshot_at`] for `history_ms` of log time, from now
    /// on; 0: they go as soon as no snapshot holds them. What is collected already stays so. It is not recorded: whoever
    /// opens an engine says it again, and after that snapshots begin at the durable point.
    pub fn set_history(&self, history_ms: u64) {
        self.snapshots.set_history(history_ms);
    }

    /// The log has come to `stamp_ms`: what is applied next is written then. By this time history is measured, so a region
    /// that keeps some is told before it is written to.
    pub fn advance(&self, stamp_ms: u64) {
        self.snapshots.advance(stamp_ms);
    }

    /// Snapshots that lived on the parent when this region came from it by a split: as long as they live here, whoever read
    /// the parent can go on reading at the same number. Who splits takes them, and drops them when the readers had time to
    /// come; until then nothing that they see is collected.
    #[must_use]
    pub fn take_handed_down(&self) -> Vec<Snapshot> {
        std::mem::take(&mut *self.handed_down.lock())
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

/// Makes a run of the last cells of each frozen memtable. It takes a moment: not under the lock that readers take.
pub(crate) fn seal(frozen: &[Arc<Memtable>]) {
    #[cfg(test)]
    crate::engine::tests::reach_seal();
    frozen.iter().for_each(|table| table.seal());
}

fn for_each_cell<'a, 's>(
    stores: &'s BTreeMap<FamilyName, Store>,
    first_sequence: u64,
    mutations: impl Iterator<Item = (&'a [u8], &'a PackedCells)>,
    mut each: impl FnMut(&'s Store, Cell<'a>),
) {
    for (sequence, (row, cells)) in (first_sequence..).zip(mutations) {
        for (position, cell) in (0u32..).zip(cells.iter()) {
            if let Some(store) = family_of(stores, cell.family) {
                each(store, Cell::of_mutation(row, cell, sequence, position));
            }
        }
    }
}

/// Hands the cells of many mutations to the memtables, those of each family at once; answers which replace older ones.
fn insert_batch<'a, 's>(
    stores: &'s BTreeMap<FamilyName, Store>,
    first_sequence: u64,
    mutations: impl ExactSizeIterator<Item = (&'a [u8], &'a PackedCells)> + Clone,
) -> Vec<(&'s Store, Replacing)> {
    let bytes = mutations.clone().map(|(row, cells)| row.len() + cells.as_bytes().len()).sum::<usize>();
    let mut batches: Vec<(&Store, Cells)> = Vec::with_capacity(stores.len());
    for_each_cell(stores, first_sequence, mutations.clone(), |store, cell| {
        // Nearly always the family of the cell before.
        match batches.iter_mut().rev().find(|(of, _)| std::ptr::eq(*of, store)) {
            Some((_, cells)) => cells.push(cell),
            None => {
                let mut cells = Cells::with_capacity(mutations.len(), bytes);
                cells.push(cell);
                batches.push((store, cells));
            }
        }
    });
    batches.into_iter().map(|(store, cells)| (store, store.active.insert_batch(cells))).collect()
}

fn family_of<'a>(stores: &'a BTreeMap<FamilyName, Store>, name: &[u8]) -> Option<&'a Store> {
    // A table has few families: a walk is cheaper than making a name to look up with.
    stores.iter().find(|(family, _)| family.as_bytes() == name).map(|(_, store)| store)
}
