//! Splitting a region in memory: both daughters take the parent's files and frozen memtables by reference.

use std::sync::Arc;

use terrane_env::sync::is_planted;
use terrane_types::{KeyRange, RegionId};

use super::state::Frozen;
use super::{Region, seal};
use crate::Error;
use crate::point::DurablePoint;
use crate::row_range::RowRange;

/// One side of a split, or the result of a merge.
#[derive(Clone, Debug)]
pub struct SplitDaughter {
    /// Its id.
    pub region: RegionId,
    /// Its point as of the split.
    pub point: DurablePoint,
}

impl Region {
    /// Makes two daughters that serve at once, and retires this region. `register` makes them known; it runs under the
    /// parent's lock, so a flush of the parent that sees it retired finds the daughters.
    pub(crate) fn split(
        self: &Arc<Self>,
        at: &[u8],
        left: SplitDaughter,
        right: SplitDaughter,
        register: impl FnOnce(&Arc<Self>, &Arc<Self>),
    ) -> Result<(Arc<Self>, Arc<Self>), Error> {
        let (left_range, mut right_range) =
            self.range().split(at).map_err(|_| Error::BadBoundary { region: self.id() })?;
        if terrane_env::planted!("a split loses the row at its boundary") {
            right_range.start = KeyRange::row(&right_range.start).end;
        }
        // One critical section from the freeze to the retirement. A flush between the two would record the parent under
        // the left daughter's point, which says that the split is done: after a crash the right daughter would be lost.
        let mut state = self.state.write();
        if state.retired {
            return Err(Error::Retired { region: self.id() });
        }
        // Everything the parent has in memory goes to both, under their own points.
        let index = left.point.index;
        self.touch(index);
        let sealed = self.freeze_in(&mut state, left.point.clone());
        if is_planted("a split lets its lock go between two steps") {
            drop(state);
            state = self.state.write();
        }
        let first_index = state.frozen.iter().map(|frozen| frozen.first_index).fold(index, u64::min);
        let daughter = |side: SplitDaughter, range: KeyRange| {
            let bounds = RowRange::of(&range);
            let (files, families) = (state.files_within(&bounds), state.families_within(&bounds));
            let (memtables, bytes) = state.inheritance();
            let point = side.point;
            let region = self.after_split(side.region, range, families.clone(), point.clone(), files);
            let frozen = Frozen { first_index, point, families, memtables, bytes: bytes / 2 };
            region.begin_with(frozen);
            region.inherit_settings(self);
            Arc::new(region)
        };
        let (left, right) = (daughter(left, left_range), daughter(right, right_range));
        state.retired = true;
        register(&left, &right);
        drop(state);
        seal(&sealed);
        Ok((left, right))
    }

    /// The region was split while its flush was being recorded: what the daughters inherited is in files now.
    pub(crate) fn hand_down(&self, daughters: [&Self; 2]) {
        let from = self.state.read();
        for daughter in daughters {
            let mut state = daughter.state.write();
            state.set_files(from.files_within(daughter.bounds()));
            let (memtables, bytes) = from.inheritance();
            // The first is what came from the parent, until the split is recorded.
            state.frozen[0].memtables = memtables;
            state.frozen[0].bytes = bytes / 2;
            state.refresh();
        }
    }
}
