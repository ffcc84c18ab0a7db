//! Applying row mutations to the memtables of a region.

use std::collections::BTreeMap;

use terrane_env::sync::limit;
use terrane_types::{FamilyName, PackedCells};

use super::Region;
use super::state::Store;
use crate::cells::{Cell, Cells};
use crate::memtable::ReplacedPuts;

/// Row mutations that are worth a sorted run of their own in the memtable.
const BATCH_ROWS_MIN: usize = limit(256, 3);

impl Region {
    /// Applies one row mutation at the region's next sequence number. Cells of unknown families are left out: the region
    /// server rejects them before it calls this.
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
        // Under the lock: a freeze before this leaves the mark to the memtables that the cells go to.
        self.touch(index);
        let last_sequence = first_sequence + count as u64 - 1;
        if count >= terrane_env::limit!("rows worth a run of their own", BATCH_ROWS_MIN, 1..=4) {
            let replacing = insert_batch(&state.stores, first_sequence, mutations);
            let replaces = replacing.iter().any(|(_, replacing)| !replacing.is_empty());
            let newest_snapshot = self.snapshots.publish_writes(first_sequence, last_sequence, replaces);
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
            let newest_snapshot = self.snapshots.publish_writes(first_sequence, last_sequence, !replacing.is_empty());
            // Only now: until the new versions are visible, readers need the old ones.
            for (store, cell) in replacing {
                store.active.remove_replaced(cell, newest_snapshot);
            }
        }
    }
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

/// Hands the cells of many mutations to the memtables, one batch per family. Returns which of them replace older cells.
fn insert_batch<'a, 's>(
    stores: &'s BTreeMap<FamilyName, Store>,
    first_sequence: u64,
    mutations: impl ExactSizeIterator<Item = (&'a [u8], &'a PackedCells)> + Clone,
) -> Vec<(&'s Store, ReplacedPuts)> {
    let bytes = mutations.clone().map(|(row, cells)| row.len() + cells.as_bytes().len()).sum::<usize>();
    let mut batches: Vec<(&Store, Cells)> = Vec::with_capacity(stores.len());
    for_each_cell(stores, first_sequence, mutations.clone(), |store, cell| {
        // Nearly always the family of the previous cell.
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
    // A table has few families: a linear search is cheaper than building a name to look up.
    stores.iter().find(|(family, _)| family.as_bytes() == name).map(|(_, store)| store)
}
