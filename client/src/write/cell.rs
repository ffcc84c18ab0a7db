//! One cell as an owned value.

use bytes::Bytes;
use terrane_types::{CellKind, CellRef};

/// One owned cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The family's name.
    pub family: Bytes,
    /// The qualifier.
    pub qualifier: Bytes,
    /// The timestamp in milliseconds. In a cell to write, [`LATEST`](crate::LATEST) means the server's time.
    pub timestamp: i64,
    /// Whether it is a value or a kind of tombstone. Reads return only values.
    pub kind: CellKind,
    /// The value.
    pub value: Bytes,
}

impl Cell {
    /// A value to write.
    #[must_use]
    pub fn put(family: &str, qualifier: impl AsRef<[u8]>, timestamp: i64, value: impl AsRef<[u8]>) -> Self {
        Self {
            family: Bytes::copy_from_slice(family.as_bytes()),
            qualifier: Bytes::copy_from_slice(qualifier.as_ref()),
            timestamp,
            kind: CellKind::Put,
            value: Bytes::copy_from_slice(value.as_ref()),
        }
    }
}

impl From<CellRef<'_>> for Cell {
    fn from(cell: CellRef<'_>) -> Self {
        Self {
            family: Bytes::copy_from_slice(cell.family),
            qualifier: Bytes::copy_from_slice(cell.qualifier),
            timestamp: cell.timestamp,
            kind: cell.kind,
            value: Bytes::copy_from_slice(cell.value),
        }
    }
}
