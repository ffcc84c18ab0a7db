//! A sampled row, and the units by which load is weighed: a row, or a KiB of it.

use bytes::Bytes;

/// Bytes that count as much as a row.
pub const UNIT_BYTES: u64 = 1 << 10;

/// A row that was requested, and the units that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub row: Bytes,
    pub units: u64,
}
