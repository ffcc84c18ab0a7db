//! What a get reads: a row, and which of its cells.

use bytes::Bytes;

use crate::read::selection::{Selection, selection_methods};

/// Reads one row.
///
/// ```
/// use terrane_client::Get;
/// let get = Get::new("user-17").family("info").column_prefix("seen", "2026-").versions(3);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a get does nothing until a table reads it"]
pub struct Get {
    pub(crate) row: Bytes,
    pub(crate) selection: Selection,
}

impl Get {
    /// A get of `row`.
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        Self { row: Bytes::copy_from_slice(row.as_ref()), selection: Selection::all() }
    }

    selection_methods!(selection);

    /// The row to read.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.row
    }
}

/// A row key by itself reads all columns of the row.
impl<R: AsRef<[u8]>> From<R> for Get {
    fn from(row: R) -> Self {
        Self::new(row)
    }
}
