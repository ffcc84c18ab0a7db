//! Places in the files of the log.

/// Set in the number of a held file where a number may be that of a segment or of a held file.
pub(crate) const HELD: u64 = 1 << 63;

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The segment, or the held file (marked by [`HELD`]).
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// Bytes of a file that are not what they should be.
#[derive(Debug)]
pub(super) struct BadBytes {
    pub(super) offset: u64,
    pub(super) what: &'static str,
}
