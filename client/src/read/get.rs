//! What a get reads: a row, and what of it.

use bytes::Bytes;

use crate::read::selection::{Selection, selection_methods};

/// Asks for one row.
///
/// ```
/// use terrane_client::Get;
/// let get = Get::new("user-17").family("info").column_prefix("seen", "2026-").versions(3);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a table reads what it is given"]
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

    /// The row asked for.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.row
    }
}

/// A row's name alone asks for all its columns.
impl<R: AsRef<[u8]>> From<R> for Get {
    fn from(row: R) -> Self {
        Self::new(row)
    }
}
