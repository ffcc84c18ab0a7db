//! The leading part of row keys that bloom filters can hold in addition to whole rows.

use std::sync::Arc;

/// The leading part of row keys that many rows share and readers ask for. Files with a filter of these prefixes can tell
/// which of them they lack.
#[derive(Clone)]
pub struct RowPrefix {
    /// Identifies the way keys are cut, so that a file's filter is only asked in the way it was built.
    pub id: u64,
    /// The length of the prefix of a row, in bytes; `None` for a row without one.
    pub length: RowPrefixLength,
}

/// Finds how many bytes of a row are its prefix.
pub type RowPrefixLength = Arc<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;

impl std::fmt::Debug for RowPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row prefix {}", self.id)
    }
}
