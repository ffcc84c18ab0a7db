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
        let start = self.start.clone().max(other.start.clone());
        let stop = match (self.stop.is_empty(), other.stop.is_empty()) {
            (true, _) => other.stop.clone(),
            (_, true) => self.stop.clone(),
            _ => self.stop.clone().min(other.stop.clone()),
        };
        Self { start, stop }
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
