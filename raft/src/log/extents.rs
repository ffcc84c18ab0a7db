//! Which segments are still needed, according to what is synced.
//!
//! A segment may be removed when every entry in it is durably purged or truncated. The groups' memory does not count: a crash
//! loses a purge that is still queued, and then the entries must still be there.

use std::collections::{BTreeMap, VecDeque};

use terrane_types::GroupId;

/// Where each group's entries are, segment by segment.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    groups: BTreeMap<GroupId, VecDeque<Extent>>,
}

/// The entries of one group in one segment.
#[derive(Debug)]
struct Extent {
    segment: u64,
    first: u64,
    last: u64,
}

impl Extents {
    /// An entry was written to `segment`, the newest so far.
    pub(crate) fn entry(&mut self, group: GroupId, segment: u64, index: u64) {
        let extents = self.groups.entry(group).or_default();
        match extents.back_mut() {
            Some(extent) if extent.segment == segment => extent.last = index,
            last => {
                let before = last.map_or(0, |extent| extent.segment);
                assert!(before < segment, "entry {index} of group {group} went to segment {segment} after {before}");
                extents.push_back(Extent { segment, first: index, last: index });
            }
        }
    }

    pub(crate) fn truncated(&mut self, group: GroupId, last: Option<u64>) {
        let Some(extents) = self.groups.get_mut(&group) else {
            return;
        };
        let keep = |extent: &Extent| last.is_some_and(|last| extent.first <= last);
        while extents.back().is_some_and(|extent| !keep(extent)) {
            extents.pop_back();
        }
        if let (Some(extent), Some(last)) = (extents.back_mut(), last) {
            extent.last = extent.last.min(last);
        }
    }

    pub(crate) fn purged(&mut self, group: GroupId, index: u64) {
        if let Some(extents) = self.groups.get_mut(&group) {
            while extents.front().is_some_and(|extent| extent.last <= index) {
                extents.pop_front();
            }
        }
    }

    /// Entries up to `last` were copied out of the segments before `before`.
    pub(crate) fn moved(&mut self, group: GroupId, before: u64, last: u64) {
        if let Some(extents) = self.groups.get_mut(&group) {
            while extents.front().is_some_and(|extent| extent.segment < before && extent.last <= last) {
                extents.pop_front();
            }
        }
    }

    /// The groups with entries in segments before `segment`, each with its last index there.
    pub(crate) fn holders(&self, segment: u64) -> Vec<(GroupId, u64)> {
        let of = |extents: &VecDeque<Extent>| {
            Some(extents.iter().take_while(|extent| extent.segment < segment).last()?.last)
        };
        self.groups.iter().filter_map(|(group, extents)| Some((*group, of(extents)?))).collect()
    }

    /// The oldest segment with a needed entry, and the group that needs it.
    pub(crate) fn oldest(&self) -> Option<(u64, GroupId)> {
        let fronts = self.groups.iter().filter_map(|(group, extents)| Some((extents.front()?.segment, *group)));
        fronts.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GroupId = GroupId(1);
    const B: GroupId = GroupId(2);

    fn filled() -> Extents {
        let mut extents = Extents::default();
        for (group, segment, index) in [(A, 1, 0), (A, 1, 1), (B, 1, 0), (A, 2, 2), (A, 3, 3), (B, 3, 1)] {
            extents.entry(group, segment, index);
        }
        extents
    }

    #[test]
    fn a_segment_is_needed_until_every_group_purged_past_it() {
        let mut extents = filled();
        extents.purged(A, 1);
        assert_eq!(extents.oldest(), Some((1, B)));
        extents.purged(B, 0);
        assert_eq!(extents.oldest(), Some((2, A)));
        extents.purged(A, 3);
        assert_eq!(extents.oldest(), Some((3, B)));
        extents.purged(B, 1);
        assert_eq!(extents.oldest(), None);
    }

    #[test]
    fn one_needed_entry_keeps_a_segment() {
        let mut extents = filled();
        extents.purged(B, 9);
        extents.purged(A, 0);
        assert_eq!(extents.oldest(), Some((1, A)));
    }

    #[test]
    fn copied_entries_no_longer_need_their_segments() {
        let mut extents = filled();
        extents.moved(A, 3, 2);
        assert_eq!(extents.oldest(), Some((1, B)));
        extents.moved(B, 3, 0);
        assert_eq!(extents.oldest(), Some((3, A)));
        // Entries that replaced truncated ones were not copied.
        extents.moved(A, 4, 2);
        assert_eq!(extents.oldest(), Some((3, A)));
    }

    #[test]
    fn truncated_entries_need_no_segment() {
        let mut extents = filled();
        extents.purged(B, 9);
        extents.truncated(A, Some(1));
        extents.purged(A, 1);
        assert_eq!(extents.oldest(), None);
        extents.truncated(A, None);
        assert_eq!(extents.oldest(), None);
    }
}
