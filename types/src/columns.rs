//! The columns of a family that a reader requests: single ones and ranges.
//!
//! Invariant: qualifiers are sorted, and ranges are sorted and disjoint, so that looking up a column takes two
//! searches. Methods that add columns keep this; [`Projection::checked`](crate::Projection::checked) establishes it for
//! values from outside.

use std::fmt;

use bytes::Bytes;

use crate::escape::escape;
use crate::range::prefix_end;

/// Columns of one family: single ones and ranges. If there are neither: the whole family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Single qualifiers, sorted.
    pub qualifiers: Vec<Bytes>,
    /// Ranges of qualifiers, sorted and disjoint.
    pub ranges: Vec<QualifierRange>,
}

/// Qualifiers from `start` (inclusive) to `end` (exclusive; empty: unbounded).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifierRange {
    /// The first qualifier inside.
    pub start: Bytes,
    /// The first qualifier after the range; empty: unbounded.
    pub end: Bytes,
}

impl QualifierRange {
    /// The qualifiers with this prefix; all qualifiers for an empty one.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(prefix), end: prefix_end(prefix) }
    }

    /// Whether the qualifier lies inside.
    #[must_use]
    pub fn contains(&self, qualifier: &[u8]) -> bool {
        qualifier >= &self.start[..] && (self.end.is_empty() || qualifier < &self.end[..])
    }

    /// Whether the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.end.is_empty() && self.end <= self.start
    }

    pub(crate) fn is_turned_round(&self) -> bool {
        !self.end.is_empty() && self.end < self.start
    }

    /// Only this qualifier.
    #[must_use]
    pub fn qualifier(qualifier: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(qualifier), end: [qualifier, &[0]].concat().into() }
    }

    /// The qualifiers in both.
    fn intersect(&self, other: &Self) -> Self {
        let end = match (self.end.is_empty(), other.end.is_empty()) {
            (true, _) => other.end.clone(),
            (false, true) => self.end.clone(),
            (false, false) => self.end.clone().min(other.end.clone()),
        };
        Self { start: self.start.clone().max(other.start.clone()), end }
    }

    /// A range without qualifiers.
    const fn nothing() -> Self {
        Self { start: Bytes::from_static(b"\0"), end: Bytes::from_static(b"\0") }
    }
}

impl fmt::Debug for QualifierRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", escape(&self.start), escape(&self.end))
    }
}

impl Columns {
    /// All columns.
    #[must_use]
    pub const fn whole_family() -> Self {
        Self { qualifiers: Vec::new(), ranges: Vec::new() }
    }

    /// Whether the whole family is requested.
    #[must_use]
    pub const fn is_whole_family(&self) -> bool {
        self.qualifiers.is_empty() && self.ranges.is_empty()
    }

    /// The columns of these ranges, in any order; none for no ranges.
    #[must_use]
    pub fn of_ranges(ranges: impl IntoIterator<Item = QualifierRange>) -> Self {
        let mut columns = Self { qualifiers: Vec::new(), ranges: ranges.into_iter().collect() };
        if columns.ranges.iter().all(QualifierRange::is_empty) {
            columns.ranges = vec![QualifierRange::nothing()];
        }
        columns.normalize();
        // Single columns are looked up by name.
        columns.ranges.retain(|range| {
            let single = range.end.strip_suffix(&[0]).is_some_and(|start| start == range.start);
            if single {
                columns.qualifiers.push(range.start.clone());
            }
            !single
        });
        columns.qualifiers.sort();
        columns
    }

    /// The requested columns of a family that is not requested as a whole, as sorted ranges that do not overlap.
    fn as_ranges(&self) -> Vec<QualifierRange> {
        let single = self.qualifiers.iter().map(|qualifier| QualifierRange::qualifier(qualifier));
        let mut all = Self { qualifiers: Vec::new(), ranges: single.chain(self.ranges.iter().cloned()).collect() };
        all.normalize();
        all.ranges
    }

    /// The columns that both request.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        if self.is_whole_family() {
            return other.clone();
        }
        if other.is_whole_family() {
            return self.clone();
        }
        let (ours, theirs) = (self.as_ranges(), other.as_ranges());
        let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
        let mut both = Vec::new();
        while let (Some(one), Some(other)) = (ours.peek(), theirs.peek()) {
            both.push(one.intersect(other));
            // The range that ends first meets nothing else.
            let is_first = !one.end.is_empty() && (other.end.is_empty() || one.end < other.end);
            let _met = if is_first { ours.next() } else { theirs.next() };
        }
        Self::of_ranges(both.into_iter().filter(|range| !range.is_empty()))
    }

    /// The columns that either requests.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_whole_family() || other.is_whole_family() {
            return Self::whole_family();
        }
        Self::of_ranges(self.as_ranges().into_iter().chain(other.as_ranges()))
    }

    /// Whether the column is requested.
    #[must_use]
    pub fn selects(&self, qualifier: &[u8]) -> bool {
        self.is_whole_family()
            || self.qualifiers.binary_search_by(|wanted| wanted[..].cmp(qualifier)).is_ok()
            || self.is_in_range(qualifier)
    }

    fn is_in_range(&self, qualifier: &[u8]) -> bool {
        // Only the last range that starts at or before the qualifier can contain it.
        let behind = self.ranges.partition_point(|range| range.start[..] <= *qualifier);
        behind > 0 && self.ranges[behind - 1].contains(qualifier)
    }

    pub(crate) fn add(&mut self, qualifier: Bytes) {
        if let Err(at) = self.qualifiers.binary_search(&qualifier) {
            self.qualifiers.insert(at, qualifier);
        }
    }

    pub(crate) fn add_range(&mut self, range: QualifierRange) {
        self.ranges.push(range);
        self.normalize();
    }

    /// Sorts the columns and joins ranges that touch. A reversed range is left unchanged, to be refused.
    pub(crate) fn normalize(&mut self) {
        self.qualifiers.sort();
        self.qualifiers.dedup();
        if self.ranges.is_empty() || self.ranges.iter().any(QualifierRange::is_turned_round) {
            return;
        }
        self.ranges.retain(|range| !range.is_empty());
        self.ranges.sort();
        let mut joined: Vec<QualifierRange> = Vec::with_capacity(self.ranges.len());
        for range in self.ranges.drain(..) {
            match joined.last_mut() {
                Some(last) if last.end.is_empty() || range.start <= last.end => {
                    if range.end.is_empty() || (!last.end.is_empty() && range.end > last.end) {
                        last.end = range.end;
                    }
                }
                _ => joined.push(range),
            }
        }
        // Without any range left it would request the whole family, although nothing was requested.
        if joined.is_empty() && self.qualifiers.is_empty() {
            joined.push(QualifierRange::nothing());
        }
        self.ranges = joined;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn columns() -> impl Strategy<Value = Columns> {
        let name = || proptest::collection::vec(0u8..3, 0..3);
        proptest::collection::vec((name(), name()), 0..4).prop_map(|ranges| {
            Columns::of_ranges(
                ranges
                    .into_iter()
                    .map(|(start, end)| QualifierRange { start: start.into(), end: end.into() })
                    .filter(|range| !range.is_turned_round()),
            )
        })
    }

    proptest! {
        #[test]
        fn columns_are_joined_as_sets(one in columns(), other in columns(), qualifier in proptest::collection::vec(0u8..3, 0..4)) {
            let (ours, theirs) = (one.selects(&qualifier), other.selects(&qualifier));
            prop_assert_eq!(one.intersect(&other).selects(&qualifier), ours && theirs, "{:?} and {:?}", one, other);
            prop_assert_eq!(one.union(&other).selects(&qualifier), ours || theirs, "{:?} or {:?}", one, other);
        }
    }
}
