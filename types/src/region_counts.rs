//! What the leader of a region has counted of it.

/// What was counted since a server opened a region and led it, and what the region occupies there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCounts {
    /// Rows read.
    pub rows_read: u64,
    /// Rows written.
    pub rows_written: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Files.
    pub files: u32,
    /// Families.
    pub families: u32,
}
