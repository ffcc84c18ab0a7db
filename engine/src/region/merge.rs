//! Merging two neighbours in memory: the merged region takes the files and frozen memtables of both by reference.
//!
//! Their rows are disjoint, so nothing has to be rewritten. Each side's cells keep their sequence numbers; the merged region
//! continues from the higher number, so later writes are above the cells of both. Each side's rows keep the rules they had
//! ([`FamilyRecord::beyond`](crate::manifest::FamilyRecord)).

use std::sync::Arc;

use terrane_types::{KeyRange, RegionId};

use super::split::SplitDaughter;
use super::state::{Frozen, Memtables, State};
use super::{Region, seal};
use crate::Error;
use crate::levels::RegionFiles;
use crate::manifest::Families;
use crate::snapshot::Snapshots;

impl Region {
    /// Makes one region of this one and its neighbour with the higher rows, which serves at once, and retires both.
    /// `register` makes it known; it runs under the locks of both, so a flush of either that finds its region retired finds
    /// the merged one.
    pub(crate) fn merge(
        left: &Arc<Self>,
        right: &Arc<Self>,
        into: SplitDaughter,
        register: impl FnOnce(&Arc<Self>),
    ) -> Result<Arc<Self>, Error> {
        let refused = |why| Error::NotMerged { left: left.id(), right: right.id(), why };
        let boundary = &right.range().start;
        if boundary.is_empty() || left.range().end != *boundary || left.table() != right.table() {
            return Err(refused("they are not neighbours of one table"));
        }
        let range = KeyRange::new(left.range().start.clone(), right.range().end.clone());
        let range = range.map_err(|_| refused("they are not neighbours of one table"))?;
        // One critical section from the freeze to the retirement, as in a split. In the order of their rows, here as
        // everywhere two are locked.
        let (mut of_left, mut of_right) = (left.state.write(), right.state.write());
        unless_retired(left.id(), &of_left)?;
        unless_retired(right.id(), &of_right)?;
        let families = joined_families(&of_left, &of_right, boundary);
        let families = families.ok_or_else(|| refused("they do not have the same families"))?;
        let SplitDaughter { region, point } = into;
        let mut sealed = Vec::new();
        for (parent, state) in [(left, &mut of_left), (right, &mut of_right)] {
            parent.touch(point.index);
            sealed.extend(parent.freeze_in(state, point.clone()));
        }
        let frozen = of_left.frozen.iter().chain(&of_right.frozen);
        let first_index = frozen.map(|frozen| frozen.first_index).fold(point.index, u64::min);
        let (memtables, bytes) = inheritance(&of_left, &of_right);
        let snapshots = Snapshots::after_merge(&left.snapshots, &right.snapshots, point.sequence, point.stamp);
        let state = State::new(point.clone(), families.clone(), joined_files(&of_left, &of_right), &snapshots);
        let merged = Self::with_snapshots(region, left.table(), range, state, snapshots);
        merged.inherit_settings(left);
        merged.begin_with(Frozen { first_index, point, families, memtables, bytes });
        let merged = Arc::new(merged);
        (of_left.retired, of_right.retired) = (true, true);
        register(&merged);
        drop((of_left, of_right));
        seal(&sealed);
        Ok(merged)
    }

    /// A parent was merged while its flush was being recorded: part of what this region inherited is in files now.
    pub(crate) fn take_over(&self, left: &Self, right: &Self) {
        let (of_left, of_right) = (left.state.read(), right.state.read());
        let mut state = self.state.write();
        state.set_files(joined_files(&of_left, &of_right));
        // The first is what came from the parents, until the merge is recorded.
        (state.frozen[0].memtables, state.frozen[0].bytes) = inheritance(&of_left, &of_right);
        state.refresh();
    }
}

fn unless_retired(region: RegionId, state: &State) -> Result<(), Error> {
    if state.retired { Err(Error::Retired { region }) } else { Ok(()) }
}

/// `None` where the two do not have the same families.
fn joined_families(left: &State, right: &State, boundary: &bytes::Bytes) -> Option<Families> {
    let (left, right) = (left.families(), right.families());
    if !left.keys().eq(right.keys()) {
        return None;
    }
    let joined = left.into_iter().zip(right.values());
    Some(joined.map(|((name, left), right)| (name, left.joined(boundary, right))).collect())
}

fn joined_files(left: &State, right: &State) -> RegionFiles {
    let (mut files, of_right) = (left.files(), right.files());
    for (name, levels) in of_right {
        let joined = files.entry(name).or_default();
        *joined = joined.joined(&levels);
    }
    files
}

/// Everything that both have frozen, with its bytes.
fn inheritance(left: &State, right: &State) -> (Memtables, u64) {
    let ((mut memtables, of_left), (others, of_right)) = (left.inheritance(), right.inheritance());
    if terrane_env::planted!("a merge leaves the memtables of one side") {
        return (memtables, of_left);
    }
    for (family, of_family) in others {
        // No row is in both, so the order of the sides does not matter.
        memtables.entry(family).or_default().extend(of_family);
    }
    (memtables, of_left + of_right)
}
