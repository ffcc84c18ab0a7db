//! Rows from one to another.
//!
//! What is unbounded is asked about before rows are compared: a comparison with an empty vector is not cheap, as the
//! address of nothing is invalid and a vectorised comparison of no bytes stumbles over it.

/// Rows `[start, stop)`; an empty `stop` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: Vec<u8>,
    pub(crate) stop: Vec<u8>,
}

impl Bounds {
    pub(crate) fn contains(&self, row: &[u8]) -> bool {
        (self.start.is_empty() || row >= self.start.as_slice()) && (self.stop.is_empty() || row < self.stop.as_slice())
    }

    pub(crate) fn intersect(&self, other: &Self) -> Self {
        self.clip(&other.start, &other.stop)
    }

    /// The rows `[start, stop)` that lie inside.
    pub(crate) fn clip(&self, start: &[u8], stop: &[u8]) -> Self {
        let start = if start.is_empty() { &self.start } else { start.max(self.start.as_slice()) };
        let stop = match (self.stop.is_empty(), stop.is_empty()) {
            (true, _) => stop,
            (_, true) => self.stop.as_slice(),
            _ => stop.min(self.stop.as_slice()),
        };
        Self { start: start.to_vec(), stop: stop.to_vec() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.stop.is_empty() && !self.start.is_empty() && self.start >= self.stop
    }

    /// Whether some row from `first` to `last`, both included, lies inside.
    pub(crate) fn meets(&self, first: &[u8], last: &[u8]) -> bool {
        (self.start.is_empty() || last >= self.start.as_slice())
            && (self.stop.is_empty() || first < self.stop.as_slice())
    }

    /// Whether all rows from `first` to `last`, both included, lie inside.
    pub(crate) fn hold(&self, first: &[u8], last: &[u8]) -> bool {
        self.contains(first) && self.contains(last)
    }
}
