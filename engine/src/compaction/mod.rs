//! Compaction (being moved in).
#[derive(Debug, Default)]
pub(crate) struct Compactions {}
