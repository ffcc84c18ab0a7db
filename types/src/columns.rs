//! Which columns of a family a reader asks for: single ones and ranges of them.
//!
//! Invariant: qualifiers are sorted, ranges are sorted and apart from each other, so that looking a column up is two
//! searches. Everything that adds one keeps it so; what comes from outside is brought into this form by
//! [`Projection::checked`](crate::Projection::checked).

use std::fmt;

use bytes::Bytes;

use crate::escape::escape;
use crate::range::prefix_end;

/// Columns of one family: single ones, and ranges of them. Neither: the whole family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Single qualifiers, sorted.
    pub qualifiers: Vec<Bytes>,
    /// Ranges of qualifiers, sorted and apart from each other.
    pub ranges: Vec<QualifierRange>,
}

/// Qualifiers from `start` up to, not including, `end`; an empty `end` is no bound.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifierRange {
    /// The first qualifier inside.
    pub start: Bytes,
    /// The first one beyond; empty: there is none.
    pub end: Bytes,
}

impl QualifierRange {
    /// The qualifiers that begin with these bytes; all of them for none.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(prefix), end: prefix_end(prefix) }
    }

    /// Whether the qualifier lies inside.
    #[must_use]
    pub fn contains(&self, qualifier: &[u8]) -> bool {
        qualifier >= &self.start[..] && (self.end.is_empty() || qualifier < &self.end[..])
    }

    /// Whether no qualifier can lie inside.
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

    /// Whether the whole family is meant.
    #[must_use]
    pub const fn is_whole_family(&self) -> bool {
        self.qualifiers.is_empty() && self.ranges.is_empty()
    }

    /// What to look for in a row: its single columns, or with none of them whatever the row has, since there are ranges
    /// or the whole family is meant.
    #[must_use]
    pub fn sought(&self) -> &[Bytes] {
        if self.ranges.is_empty() { &self.qualifiers } else { &[] }
    }

    /// Whether the column is among them.
    #[must_use]
    pub fn selects(&self, qualifier: &[u8]) -> bool {
        self.is_whole_family()
            || self.qualifiers.binary_search_by(|wanted| wanted[..].cmp(qualifier)).is_ok()
            || self.is_in_range(qualifier)
    }

    fn is_in_range(&self, qualifier: &[u8]) -> bool {
        // The last range that does not begin behind the qualifier is the only one that can hold it.
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
        self.settle();
    }

    /// Sorts what came in any order and joins ranges that meet. What is turned round stays as it came, to be refused.
    pub(crate) fn settle(&mut self) {
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
        // Without any range left it would ask for the whole family, where it asked for nothing.
        if joined.is_empty() && self.qualifiers.is_empty() {
            joined.push(QualifierRange::nothing());
        }
        self.ranges = joined;
    }
}
