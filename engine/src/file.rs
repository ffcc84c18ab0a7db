//! What a flush leaves behind, as a region refers to it.
//!
//! Files are immutable and shared: after a split both daughters hold the parent's, each with its own bounds, and a file
//! goes when no region in the manifest names it any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_types::FamilyName;

use crate::source::Source;

/// A region's part of a file.
#[derive(Clone)]
pub(crate) struct StoreFile {
    pub(crate) id: u64,
    /// Bytes of it that lie inside of the region, about.
    pub(crate) bytes: u64,
    /// The cells by family; the region's bounds are applied by whoever reads.
    pub(crate) families: Arc<BTreeMap<FamilyName, Arc<dyn Source>>>,
}

impl StoreFile {
    pub(crate) fn source(&self, family: &FamilyName) -> Option<Arc<dyn Source>> {
        self.families.get(family).cloned()
    }
}

impl std::fmt::Debug for StoreFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file {} ({} bytes)", self.id, self.bytes)
    }
}
