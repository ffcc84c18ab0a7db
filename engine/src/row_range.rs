//! A range of rows that may be empty, in contrast to [`KeyRange`]: what is left of a range after it was clipped.
//!
//! Unbounded ends are checked before rows are compared. Comparing with an empty vector is not cheap: its address is
//! dangling, and a vectorised comparison of no bytes is slow on it.

use terrane_types::KeyRange;

/// Rows `[start, end)`; an empty `end` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl RowRange {
    pub(crate) fn of(range: &KeyRange) -> Self {
        Self { start: range.start.to_vec(), end: range.end.to_vec() }
    }

    pub(crate) fn contains(&self, row: &[u8]) -> bool {
        (self.start.is_empty() || row >= self.start.as_slice()) && (self.end.is_empty() || row < self.end.as_slice())
    }

    pub(crate) fn intersect(&self, other: &Self) -> Self {
        self.clip(&other.start, &other.end)
    }

    /// The part of `[start, end)` that lies inside.
    pub(crate) fn clip(&self, start: &[u8], end: &[u8]) -> Self {
        let start = if start.is_empty() { &self.start } else { start.max(self.start.as_slice()) };
        let end = match (self.end.is_empty(), end.is_empty()) {
            (true, _) => end,
            (_, true) => self.end.as_slice(),
            _ => end.min(self.end.as_slice()),
        };
        Self { start: start.to_vec(), end: end.to_vec() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.end.is_empty() && !self.start.is_empty() && self.start >= self.end
    }

    /// Whether some row from `first` to `last`, both inclusive, lies inside.
    pub(crate) fn meets(&self, first: &[u8], last: &[u8]) -> bool {
        !self.is_empty()
            && (self.start.is_empty() || last >= self.start.as_slice())
            && (self.end.is_empty() || first < self.end.as_slice())
    }

    /// Whether all rows from `first` to `last`, both inclusive, lie inside.
    pub(crate) fn hold(&self, first: &[u8], last: &[u8]) -> bool {
        self.contains(first) && self.contains(last)
    }
}
