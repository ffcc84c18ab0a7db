//! The names of the disk: visible directories, durable directories, and the changes between the two.
//!
//! Names and files are separate, as on a real disk: a name points at a file by number, several names may point at one file,
//! and each becomes durable without the other. The parent module says which unsynced changes of names may survive a crash.
//!
//! Invariant: of two changes of the same name, the later never survives without the earlier, so the survivors can always be
//! replayed over the durable names. A rename belongs to both its names and is atomic.

use std::collections::{BTreeMap, BTreeSet};

use super::Tear;
use super::chance::SplitMix64;

/// Number of a file or a directory.
pub(super) type NodeId = u64;
/// The directory that every path starts from; it always exists.
pub(super) const ROOT: NodeId = 0;

/// Names in a directory.
pub(super) type Names = BTreeMap<String, NodeId>;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) directory: NodeId,
    pub(super) name: String,
}

/// A change of names.
#[derive(Debug)]
pub(super) enum Change {
    /// `place` points at `node` from now on.
    Put { place: Place, node: NodeId },
    /// `place` is removed.
    Remove { place: Place },
    /// `to` points at what `from` pointed at, and `from` is removed.
    Move { from: Place, to: Place, node: NodeId, is_directory: bool },
}

impl Change {
    fn places(&self) -> impl Iterator<Item = &Place> {
        let (first, second) = match self {
            Change::Put { place, .. } | Change::Remove { place } => (place, None),
            Change::Move { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    /// A moved directory takes everything below it along. Without an earlier change it could end up inside itself, so it
    /// depends on all of them.
    fn needs_all_before(&self) -> bool {
        matches!(self, Change::Move { is_directory: true, .. })
    }

    /// A directory that no crash can bring back has no names to change.
    fn apply(&self, directories: &mut BTreeMap<NodeId, Names>) {
        match self {
            Change::Put { place, node } => put(directories, place, *node),
            Change::Remove { place } => remove(directories, place),
            Change::Move { from, to, node, .. } => {
                remove(directories, from);
                put(directories, to, *node);
            }
        }
    }
}

fn put(directories: &mut BTreeMap<NodeId, Names>, place: &Place, node: NodeId) {
    if let Some(names) = directories.get_mut(&place.directory) {
        names.insert(place.name.clone(), node);
    }
}

fn remove(directories: &mut BTreeMap<NodeId, Names>, place: &Place) {
    if let Some(names) = directories.get_mut(&place.directory) {
        names.remove(&place.name);
    }
}

/// All directories of a disk.
#[derive(Debug)]
pub(super) struct Directories {
    now: BTreeMap<NodeId, Names>,
    durable: BTreeMap<NodeId, Names>,
    /// In order.
    unsynced: Vec<Change>,
}

impl Directories {
    /// Directories that are all durable.
    pub(super) fn durable(directories: BTreeMap<NodeId, Names>) -> Directories {
        Directories { now: directories.clone(), durable: directories, unsynced: Vec::new() }
    }

    /// The number of directories and outstanding changes kept.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.durable.len(), self.unsynced.len())
    }

    /// The number of changes that a crash may lose.
    #[cfg(feature = "sim")]
    pub(super) fn outstanding(&self) -> usize {
        self.unsynced.len()
    }

    /// The names in a directory; `None` if this is not a directory.
    pub(super) fn names(&self, directory: NodeId) -> Option<&Names> {
        self.now.get(&directory)
    }

    pub(super) fn add(&mut self, directory: NodeId) {
        self.now.insert(directory, Names::new());
        self.durable.insert(directory, Names::new());
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }

    /// Makes the names in a directory durable, and of other directories only the changes these depend on.
    pub(super) fn sync(&mut self, directory: NodeId) {
        let mut wanted: BTreeSet<Place> = BTreeSet::new();
        let mut everything = false;
        let mut due = vec![false; self.unsynced.len()];
        for (change, due) in self.unsynced.iter().zip(&mut due).rev() {
            *due = everything || change.places().any(|place| place.directory == directory || wanted.contains(place));
            if *due {
                wanted.extend(change.places().cloned());
                everything |= change.needs_all_before();
            }
        }
        let mut later = Vec::new();
        for (change, due) in std::mem::take(&mut self.unsynced).into_iter().zip(due) {
            if due {
                change.apply(&mut self.durable);
            } else {
                later.push(change);
            }
        }
        self.unsynced = later;
    }

    /// Drops directories that no crash can bring back: those the root does not reach by durable, visible or outstanding
    /// names. Returns everything that it reaches.
    pub(super) fn sweep(&mut self) -> BTreeSet<NodeId> {
        let mut kept = BTreeSet::new();
        let mut found = vec![ROOT];
        // A change counts only if its directory is reached, which another change may cause.
        while !found.is_empty() {
            while let Some(node) = found.pop() {
                if kept.insert(node) {
                    for names in [self.durable.get(&node), self.now.get(&node)].into_iter().flatten() {
                        found.extend(names.values());
                    }
                }
            }
            for change in &self.unsynced {
                if let Change::Put { node, .. } | Change::Move { node, .. } = change
                    && !kept.contains(node)
                    && change.places().any(|place| kept.contains(&place.directory))
                {
                    found.push(*node);
                }
            }
        }
        self.durable.retain(|directory, _| kept.contains(directory));
        self.now.retain(|directory, _| kept.contains(directory));
        let durable = &self.durable;
        self.unsynced.retain(|change| change.places().any(|place| durable.contains_key(&place.directory)));
        kept
    }

    /// The directories after a crash, each with its names, as far as the root reaches them.
    pub(super) fn after_crash(&self, tear: Tear, chance: &mut SplitMix64) -> BTreeMap<NodeId, Names> {
        let mut directories = self.durable.clone();
        let survives: Vec<bool> = match tear {
            Tear::Lost => vec![false; self.unsynced.len()],
            Tear::Kept => vec![true; self.unsynced.len()],
            Tear::Random(_) if chance.in_eight(4) => self.cut_per_directory(chance),
            Tear::Random(_) => self.toss_per_name(chance),
        };
        for (change, survives) in self.unsynced.iter().zip(survives) {
            if survives {
                change.apply(&mut directories);
            }
        }
        let mut reached = BTreeMap::new();
        let mut found = vec![ROOT];
        while let Some(node) = found.pop() {
            if let Some(names) = directories.remove(&node) {
                found.extend(names.values());
                reached.insert(node, names);
            }
        }
        reached
    }

    /// As with a journal: the changes of each directory up to some moment.
    fn cut_per_directory(&self, chance: &mut SplitMix64) -> Vec<bool> {
        let mut left: BTreeMap<NodeId, usize> = BTreeMap::new();
        for place in self.unsynced.iter().flat_map(Change::places) {
            *left.entry(place.directory).or_default() += 1;
        }
        for count in left.values_mut() {
            *count = chance.below(*count + 1);
        }
        let mut any_lost = false;
        let mut survives = Vec::with_capacity(self.unsynced.len());
        for change in &self.unsynced {
            let kept = change.places().all(|place| left.get(&place.directory).is_some_and(|left| *left > 0))
                && (!any_lost || !change.needs_all_before());
            for place in change.places() {
                if let Some(left) = left.get_mut(&place.directory) {
                    // No change of a directory survives a lost earlier one, also where a rename was cut off elsewhere.
                    *left = if kept { left.saturating_sub(1) } else { 0 };
                }
            }
            any_lost |= !kept;
            survives.push(kept);
        }
        survives
    }

    /// As with a log per file: every name on its own.
    fn toss_per_name(&self, chance: &mut SplitMix64) -> Vec<bool> {
        let eighths = 1 + chance.below(7);
        let mut lost: BTreeSet<&Place> = BTreeSet::new();
        let mut survives = Vec::with_capacity(self.unsynced.len());
        for change in &self.unsynced {
            let kept = chance.in_eight(eighths)
                && !change.places().any(|place| lost.contains(place))
                && (lost.is_empty() || !change.needs_all_before());
            if !kept {
                lost.extend(change.places());
            }
            survives.push(kept);
        }
        survives
    }
}
