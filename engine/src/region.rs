//! A region's data on this server: a store per family, the durable point, and what is not durable yet.
//!
//! # Invariants
//! - One writer: `apply`, `freeze`, `set_rules` and `split` are called in log order by whoever applies the group's log.
//! - `unflushed_from` is the first log index whose effect is in no recorded flush; `None` when there is none.
//! - Frozen memtables leave only when the manifest record of their flush is synced, and files come in at that moment,
//!   under one lock: a reader finds every cell in at least one of the two.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use terrane_types::visibility::{RulesChange, RulesHistory};
use terrane_types::{
    CellKind, FamilyName, FamilyRules, FamilySchema, GroupId, KeyRange, PackedCells, RegionId, TableId,
};

use crate::SnapshotTooOld;
use crate::cell::StoredCell;
use crate::file::StoreFile;
use crate::manifest::FamilyRecord;
use crate::memtable::Memtable;
use crate::point::DurablePoint;
use crate::snapshot::{Snapshot, Snapshots};
use crate::source::{Bounds, Source};

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

/// One family's memtables.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) family: FamilyRecord,
    pub(crate) active: Arc<Memtable>,
}

/// Families with their rules, as of some moment.
pub(crate) type Families = BTreeMap<FamilyName, FamilyRecord>;

/// Memtables of all families that take no more writes, with the point that their flush will record.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) first_index: u64,
    pub(crate) point: DurablePoint,
    /// The rules as of the point. What changed later is applied again after a restart from here, so it is not recorded.
    pub(crate) families: Families,
    pub(crate) tables: BTreeMap<FamilyName, Vec<Arc<Memtable>>>,
    /// What the tables hold inside of the region, about.
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) stores: BTreeMap<FamilyName, Store>,
    /// Oldest first.
    pub(crate) frozen: Vec<Frozen>,
    /// Oldest first.
    pub(crate) files: Vec<StoreFile>,
    /// The last recorded point.
    pub(crate) point: DurablePoint,
    /// Split or dropped: it is not flushed any more.
    pub(crate) retired: bool,
}

impl State {
    pub(crate) fn families(&self) -> Families {
        self.stores.iter().map(|(name, store)| (name.clone(), store.family.clone())).collect()
    }
}

/// A region open on this server.
#[derive(Debug)]
pub struct Region {
    id: RegionId,
    table: TableId,
    range: KeyRange,
    bounds: Bounds,
    pub(crate) state: RwLock<State>,
    /// The first log index that went into the active memtables or changed the descriptor since the last freeze.
    active_first: AtomicU64,
    pub(crate) snapshots: Snapshots,
    /// Held by whoever flushes, so that flushes are recorded in the order of their points.
    pub(crate) flushing: tokio::sync::Mutex<()>,
    /// Whether the backend may hold cells from above the recorded point, of a flush that was never recorded: one that a
    /// crash cut off, or that failed. Changed under `flushing`.
    pub(crate) unrecorded: AtomicBool,
}

impl Region {
    pub(crate) fn new(
        id: RegionId,
        table: TableId,
        range: KeyRange,
        families: Families,
        point: DurablePoint,
        files: Vec<StoreFile>,
    ) -> Self {
        let bounds = Bounds { start: range.start.to_vec(), stop: range.stop.to_vec() };
        let stores =
            families.into_iter().map(|(name, family)| (name, Store { family, active: Arc::default() })).collect();
        let snapshots = Snapshots::new(point.sequence);
        Self {
            id,
            table,
            range,
            bounds,
            state: RwLock::new(State { stores, frozen: Vec::new(), files, point, retired: false }),
            active_first: AtomicU64::new(NONE),
            snapshots,
            flushing: tokio::sync::Mutex::new(()),
            unrecorded: AtomicBool::new(true),
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
        self.memtable_bytes() + self.state.read().files.iter().map(|file| file.bytes).sum::<u64>()
    }

    /// The families, sorted.
    #[must_use]
    pub fn families(&self) -> Vec<FamilyName> {
        self.state.read().stores.keys().cloned().collect()
    }

    /// Applies one row mutation at the region's next sequence number. Cells of families that are not there are left out:
    /// the region server answers for them before it comes here.
    pub fn apply(&self, index: u64, sequence: u64, row: &[u8], cells: &PackedCells) {
        let state = self.state.read();
        // Under the lock: a freeze before it leaves the mark to the memtables that the cells go to.
        self.touch(index);
        // Held until the write is visible: a reader comes before it, and is counted, or after it, and sees all of it.
        let write = self.snapshots.begin_write();
        let mut removed = false;
        for (position, cell) in cells.iter().enumerate() {
            let Some(store) = family_of(&state.stores, cell.family) else { continue };
            let position = u32::try_from(position).expect("a row mutation of 16 MiB has fewer than 2^32 cells");
            let stored = StoredCell::new(row, cell, sequence, position);
            let rules = store.family.rules.current();
            if rules.versions > 1 || rules.keep_deleted_cells || cell.kind != CellKind::Put {
                store.active.insert(stored);
            } else {
                removed |= store.active.insert_on_top(stored, write.newest());
            }
        }
        write.publish(sequence, removed);
    }

    /// Notes that the descriptor or schema changed at `index`: not durable before the next flush.
    pub fn touch(&self, index: u64) {
        self.active_first.fetch_min(index, Ordering::AcqRel);
    }

    /// Puts new rules of a family into force from `from_sequence` on; a family that is not there yet is added. `stamp_ms`
    /// is the stamp of the log entry that brought them. A family that was taken away and comes again begins anew: what it
    /// held before stays gone.
    pub fn set_rules(&self, from_sequence: u64, stamp_ms: u64, family: &FamilyName, rules: FamilyRules) {
        let stamp_ms = i64::try_from(stamp_ms).unwrap_or(i64::MAX);
        let mut state = self.state.write();
        match state.stores.get_mut(family) {
            Some(store) => store.family.rules.push(RulesChange { sequence: from_sequence, stamp_ms, rules }),
            None => {
                let record = FamilyRecord { since: from_sequence, rules: RulesHistory::new(rules) };
                state.stores.insert(family.clone(), Store { family: record, active: Arc::default() });
            }
        }
    }

    /// Takes a family away; its cells leave the files with the next rewrite.
    pub fn remove_family(&self, family: &FamilyName) {
        let mut state = self.state.write();
        state.stores.remove(family);
        for frozen in &mut state.frozen {
            frozen.tables.remove(family);
        }
    }

    /// Freezes the active memtables of all families as of `point`; called between two applies. Nothing happens when
    /// nothing changed since the last freeze.
    pub fn freeze(&self, point: DurablePoint) {
        let mut state = self.state.write();
        let first_index = self.active_first.swap(NONE, Ordering::AcqRel);
        if first_index == NONE {
            return;
        }
        let mut tables = BTreeMap::new();
        let mut bytes = 0;
        for (family, store) in &mut state.stores {
            let table = std::mem::take(&mut store.active);
            bytes += table.bytes();
            if !table.is_empty() {
                tables.insert(family.clone(), vec![table]);
            }
        }
        let families = state.families();
        state.frozen.push(Frozen { first_index, point, families, tables, bytes });
    }

    /// A snapshot of everything applied so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots.take()
    }

    /// A snapshot at an earlier sequence number.
    ///
    /// # Errors
    /// [`SnapshotTooOld`] when versions it would see may have been collected.
    pub fn snapshot_at(&self, sequence: u64) -> Result<Snapshot, SnapshotTooOld> {
        self.snapshots.take_at(sequence)
    }

    /// Everything that holds cells of a family, newest first.
    pub(crate) fn sources(state: &State, family: &FamilyName) -> Vec<Arc<dyn Source>> {
        let mut sources: Vec<Arc<dyn Source>> = Vec::with_capacity(2 + state.files.len());
        if let Some(store) = state.stores.get(family) {
            sources.push(store.active.clone());
        }
        for frozen in state.frozen.iter().rev() {
            let tables = frozen.tables.get(family).into_iter().flatten();
            sources.extend(tables.map(|table| Arc::clone(table) as Arc<dyn Source>));
        }
        sources.extend(state.files.iter().rev().filter_map(|file| file.source(family)));
        sources
    }
}

fn family_of<'a>(stores: &'a BTreeMap<FamilyName, Store>, name: &[u8]) -> Option<&'a Store> {
    // A table has few families: a walk is cheaper than making a name to look up with.
    stores.iter().find(|(family, _)| family.as_bytes() == name).map(|(_, store)| store)
}
