//! A family of a region: which rules hold for which of its rows, and how its new files are written.
//!
//! Sequence numbers are counted per region, and rules are kept with the numbers from which they hold. When two regions merge,
//! a number of one side says nothing about the other side's cells, so each side keeps its history for its rows. Changes after
//! the merge have numbers above those of both sides and apply to all rows.
//!
//! Invariant: all histories of a family end with the same rules, because a table's rules change in all of its regions.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::schema::FamilyStorage;
use terrane_types::visibility::{RulesChange, RulesHistory};

use crate::row_range::RowRange;

/// A family of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FamilyRecord {
    /// The sequence number at which it was added: older cells belong to an earlier family of the same name, and are
    /// gone.
    pub(crate) since: u64,
    pub(crate) rules: RulesHistory,
    /// How its new files are written.
    pub(crate) storage: FamilyStorage,
    /// What holds instead of `since` and `rules` from some row on, by row; empty unless regions with different histories
    /// were merged.
    pub(crate) beyond: Arc<[RulesFrom]>,
}

/// The history of a family for rows from `row` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RulesFrom {
    pub(crate) row: Bytes,
    pub(crate) since: u64,
    pub(crate) rules: RulesHistory,
}

impl FamilyRecord {
    pub(crate) fn new(since: u64, rules: RulesHistory, storage: FamilyStorage) -> Self {
        Self { since, rules, storage, beyond: Arc::default() }
    }

    /// The place of the history that holds for a row: 0 is the first one.
    pub(crate) fn place_of(&self, row: &[u8]) -> usize {
        self.beyond.partition_point(|from| from.row.as_ref() <= row)
    }

    /// The history at a place.
    pub(crate) fn history(&self, place: usize) -> (u64, &RulesHistory) {
        match place.checked_sub(1) {
            None => (self.since, &self.rules),
            Some(beyond) => (self.beyond[beyond].since, &self.beyond[beyond].rules),
        }
    }

    /// New rules for all rows.
    pub(crate) fn change_rules(&mut self, change: RulesChange) {
        self.rules.push(change);
        let changed = |from: &RulesFrom| {
            let mut rules = from.rules.clone();
            rules.push(change);
            RulesFrom { rules, ..from.clone() }
        };
        self.beyond = self.beyond.iter().map(changed).collect();
    }

    /// The present rules, with the highest number from which they hold for some row.
    pub(crate) fn last_change(&self) -> RulesChange {
        let last =
            |rules: &RulesHistory| *rules.changes().last().expect("a history begins with a change and loses none");
        self.beyond
            .iter()
            .map(|from| last(&from.rules))
            .fold(last(&self.rules), |highest, other| if other.sequence > highest.sequence { other } else { highest })
    }

    /// The part for these rows.
    pub(crate) fn within(&self, bounds: &RowRange) -> Self {
        if self.beyond.is_empty() {
            return self.clone();
        }
        let first = self.place_of(&bounds.start);
        let (since, rules) = self.history(first);
        let inside = |from: &&RulesFrom| bounds.end.is_empty() || from.row.as_ref() < bounds.end.as_slice();
        let beyond = self.beyond[first..].iter().take_while(inside).cloned().collect();
        Self { since, rules: rules.clone(), storage: self.storage, beyond }
    }

    /// The family of this region and of its neighbour from `row` on, as one.
    pub(crate) fn joined(&self, row: &Bytes, neighbour: &Self) -> Self {
        if terrane_env::planted!("a merge judges both sides by one history") {
            return self.clone();
        }
        let first = RulesFrom { row: row.clone(), since: neighbour.since, rules: neighbour.rules.clone() };
        let mut beyond: Vec<RulesFrom> = self.beyond.to_vec();
        for from in std::iter::once(&first).chain(neighbour.beyond.iter()) {
            let before = beyond.last().map_or((self.since, &self.rules), |from| (from.since, &from.rules));
            if before != (from.since, &from.rules) {
                beyond.push(from.clone());
            }
        }
        Self { beyond: beyond.into(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::FamilyRules;

    use super::*;

    fn history(numbers: &[u64]) -> RulesHistory {
        let mut rules = RulesHistory::new(FamilyRules::default());
        for number in numbers {
            let versions = 2 + rules.current().versions;
            let changed = FamilyRules { versions, ..FamilyRules::default() };
            rules.push(RulesChange { sequence: *number, stamp_ms: 0, rules: changed });
        }
        rules
    }

    fn family(numbers: &[u64]) -> FamilyRecord {
        FamilyRecord::new(0, history(numbers), FamilyStorage::default())
    }

    fn range(start: &str, end: &str) -> RowRange {
        RowRange { start: start.into(), end: end.into() }
    }

    #[test]
    fn each_side_of_a_merge_keeps_its_history() {
        let merged = family(&[5]).joined(&Bytes::from("m"), &family(&[90]));
        assert_eq!(merged.history(merged.place_of(b"a")), (0, &history(&[5])));
        assert_eq!(merged.history(merged.place_of(b"m")), (0, &history(&[90])));
        assert_eq!(merged.last_change().sequence, 90);
    }

    #[test]
    fn equal_histories_become_one() {
        let merged = family(&[5]).joined(&Bytes::from("m"), &family(&[5]));
        assert_eq!(merged, family(&[5]));
        let three = family(&[5]).joined(&Bytes::from("m"), &family(&[9])).joined(&Bytes::from("t"), &family(&[9]));
        assert_eq!(three.beyond.len(), 1);
    }

    #[test]
    fn a_change_after_the_merge_holds_for_all_rows() {
        let mut merged = family(&[5]).joined(&Bytes::from("m"), &family(&[90]));
        let rules = FamilyRules { versions: 40, ..FamilyRules::default() };
        merged.change_rules(RulesChange { sequence: 100, stamp_ms: 1, rules });
        for row in [b"a", b"m"] {
            assert_eq!(merged.history(merged.place_of(row)).1.current(), rules);
        }
    }

    #[test]
    fn a_split_takes_the_part_of_its_rows() {
        let merged = family(&[5]).joined(&Bytes::from("m"), &family(&[90]));
        assert_eq!(merged.within(&range("", "c")), family(&[5]));
        assert_eq!(merged.within(&range("m", "")), family(&[90]));
        assert_eq!(merged.within(&range("p", "q")), family(&[90]));
        assert_eq!(merged.within(&range("c", "n")), merged);
    }
}
