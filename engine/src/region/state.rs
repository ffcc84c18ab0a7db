//! What a region's lock protects: a store per family, frozen memtables, and what the manifest says of the region.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_types::FamilyName;

use crate::levels::{Levels, RegionFiles};
use crate::manifest::{Families, FamilyRecord};
use crate::memtable::Memtable;
use crate::point::DurablePoint;
use crate::row_range::RowRange;
use crate::snapshot::Snapshots;
use crate::source::Source;

/// What readers find of a family at some moment. Immutable: a reader takes it and needs no lock afterwards.
pub(crate) struct StoreView {
    pub(crate) name: FamilyName,
    pub(crate) family: FamilyRecord,
    /// Everything that holds cells of the family, newest first.
    pub(crate) sources: Vec<Arc<dyn Source>>,
}

/// One family's active memtable and files.
pub(super) struct Store {
    pub(super) family: FamilyRecord,
    pub(super) active: Arc<Memtable>,
    pub(super) files: Levels,
    pub(super) view: Arc<StoreView>,
}

/// The memtables of each family; several where a daughter inherited them, newest first.
pub(crate) type Memtables = BTreeMap<FamilyName, Vec<Arc<Memtable>>>;

/// Memtables of all families that take no more writes, with the point that their flush will record.
#[derive(Clone)]
pub(crate) struct Frozen {
    pub(crate) first_index: u64,
    pub(crate) point: DurablePoint,
    /// The rules as of the point. Later changes are not recorded with it: after a restart from here, the log applies them
    /// again.
    pub(crate) families: Families,
    pub(crate) memtables: Memtables,
    /// Bytes that the memtables hold within the region, approximately.
    pub(crate) bytes: u64,
}

pub(super) struct State {
    pub(super) stores: BTreeMap<FamilyName, Store>,
    /// Oldest first.
    pub(super) frozen: Vec<Frozen>,
    /// The last recorded point, with the families as recorded.
    pub(super) point: DurablePoint,
    pub(super) recorded: Families,
    /// Split, merged or dropped: the region is not flushed any more.
    pub(super) retired: bool,
}

impl State {
    pub(super) fn new(point: DurablePoint, families: Families, mut files: RegionFiles, snapshots: &Snapshots) -> Self {
        let mut state =
            Self { stores: BTreeMap::new(), frozen: Vec::new(), point, recorded: families.clone(), retired: false };
        for (name, family) in families {
            let files = files.remove(&name).unwrap_or_default();
            state.add_store(&name, family, files, snapshots);
        }
        state.refresh();
        state
    }

    pub(super) fn families(&self) -> Families {
        self.stores.iter().map(|(name, store)| (name.clone(), store.family.clone())).collect()
    }

    pub(super) fn files(&self) -> RegionFiles {
        self.stores.iter().map(|(name, store)| (name.clone(), store.files.clone())).collect()
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.stores.values().map(|store| store.files.bytes()).sum()
    }

    pub(super) fn file_count(&self) -> usize {
        self.stores.values().map(|store| store.files.iter().count()).sum()
    }

    /// Puts files in place. Families that were removed meanwhile take none.
    pub(super) fn set_files(&mut self, files: RegionFiles) {
        for (name, files) in files {
            if let Some(store) = self.stores.get_mut(&name) {
                store.files = files;
            }
        }
    }

    /// Records the point of a flush or ingest.
    pub(super) fn set_point(&mut self, point: DurablePoint, families: Families) {
        assert_forward(&self.point, &point);
        self.point = point;
        self.recorded = families;
    }

    /// Rebuilds what readers find, after memtables, files or rules have changed.
    pub(super) fn refresh(&mut self) {
        for (name, store) in &mut self.stores {
            let mut sources: Vec<Arc<dyn Source>> = vec![Arc::clone(&store.active) as Arc<dyn Source>];
            for frozen in self.frozen.iter().rev() {
                let memtables = frozen.memtables.get(name).into_iter().flatten();
                sources.extend(memtables.map(|memtable| Arc::clone(memtable) as Arc<dyn Source>));
            }
            sources.extend(store.files.sources());
            store.view = Arc::new(StoreView { name: name.clone(), family: store.family.clone(), sources });
        }
    }

    pub(super) fn add_store(&mut self, name: &FamilyName, family: FamilyRecord, files: Levels, snapshots: &Snapshots) {
        let active = Arc::new(new_memtable(&family, snapshots));
        let view = Arc::new(StoreView { name: name.clone(), family: family.clone(), sources: Vec::new() });
        self.stores.insert(name.clone(), Store { family, active, files, view });
    }

    /// Everything frozen, for the regions that take it over, with its bytes.
    pub(super) fn inheritance(&self) -> (Memtables, u64) {
        let mut memtables = Memtables::new();
        // Newest first, as everywhere.
        for (family, of_family) in self.frozen.iter().rev().flat_map(|frozen| &frozen.memtables) {
            memtables.entry(family.clone()).or_default().extend(of_family.iter().cloned());
        }
        (memtables, self.frozen.iter().map(|frozen| frozen.bytes).sum())
    }

    /// The families as a region within `bounds` takes them over.
    pub(super) fn families_within(&self, bounds: &RowRange) -> Families {
        self.stores.iter().map(|(name, store)| (name.clone(), store.family.within(bounds))).collect()
    }

    /// The files within `bounds`, as a daughter takes them over.
    pub(super) fn files_within(&self, bounds: &RowRange) -> RegionFiles {
        self.stores.iter().map(|(name, store)| (name.clone(), store.files.within(bounds))).collect()
    }
}

/// Points only move forward: the log below one may be purged.
pub(super) fn assert_forward(from: &DurablePoint, to: &DurablePoint) {
    assert!(
        to.group != from.group || (to.index >= from.index && to.sequence >= from.sequence),
        "the durable point went back, from index {} and sequence {} to index {} and sequence {}",
        from.index,
        from.sequence,
        to.index,
        to.sequence,
    );
}

/// The write from which a put of the family replaces the puts below it, if it does.
pub(super) fn one_version_since(family: &FamilyRecord) -> Option<u64> {
    let last = family.last_change();
    (last.rules.versions == 1 && !last.rules.keep_deleted_cells.keeps()).then_some(last.sequence)
}

pub(super) fn new_memtable(family: &FamilyRecord, snapshots: &Snapshots) -> Memtable {
    let memtable = Memtable::new(Some(Arc::new(snapshots.clone())));
    memtable.set_one_version(one_version_since(family));
    memtable
}
