//! A row with its key decoded.

use crate::read::row_data::RowData;

/// A row with its key decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedRow<K> {
    /// The key.
    pub key: K,
    /// The row as it was read.
    pub data: RowData,
}
