//! A row with its key decoded.

use std::fmt;

use terrane_types::{CellRef, ColumnValue, RowKey};

use crate::error::Error;
use crate::read::row_data::RowData;

/// A row with its key decoded. It prints the parts of the key by name: `user=7,time=1000 { a:kind@1700000000000=login }`.
#[derive(Clone, PartialEq, Eq)]
pub struct TypedRow<K> {
    /// The key.
    pub key: K,
    /// The row as it was read.
    pub data: RowData,
}

impl<K> TypedRow<K> {
    /// As [`RowData::cells`].
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.data.cells()
    }

    /// As [`RowData::value`].
    #[must_use]
    pub fn value(&self, family: &str, qualifier: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.data.value(family, qualifier)
    }

    /// As [`RowData::read`]: `row.read::<String>("a", "kind")?`.
    ///
    /// # Errors
    /// As for [`RowData::read`].
    pub fn read<T: ColumnValue>(&self, family: &str, qualifier: impl AsRef<[u8]>) -> Result<Option<T>, Error> {
        self.data.read(family, qualifier)
    }
}

impl<K: RowKey> fmt::Display for TypedRow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data.show(&self.key.line(), f)
    }
}

/// As it is displayed. The key needs no `Debug` for it.
impl<K: RowKey> fmt::Debug for TypedRow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
