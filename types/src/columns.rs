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

    /// The single columns to look up in a row. Empty if everything has to be read, because there are ranges or the
    /// whole family is requested.
    #[must_use]
    pub fn sought(&self) -> &[Bytes] {
        if self.ranges.is_empty() { &self.qualifiers } else { &[] }
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
