//! What callers ask to read (gets, scans) and what they get back (rows of cells).
//!
//! Results are slices of the received blocks: a cell is never copied on its way out.

use bytes::Bytes;
use terrane_types::{CellRef, FamilyName, Invalid, KeyRange, PackedCells, Projection, Row};

use crate::operations::Cell;
use crate::page::PageToken;

/// What to read of a row: columns, versions, a range of timestamps. Shared by gets and scans.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    columns: Vec<(String, Option<Bytes>)>,
    versions: u32,
    time_min: i64,
    time_max: i64,
}

impl Selection {
    const fn all() -> Self {
        Self { columns: Vec::new(), versions: 1, time_min: 0, time_max: i64::MAX }
    }

    /// The projection, with its names checked.
    pub(crate) fn projection(&self) -> Result<Projection, Invalid> {
        let mut projection = Projection::all().with_versions(self.versions).with_times(self.time_min, self.time_max);
        for (family, qualifier) in &self.columns {
            let family = FamilyName::new(family)?;
            projection = match qualifier {
                Some(qualifier) => projection.with_column(family, qualifier.clone()),
                None => projection.with_family(family),
            };
        }
        projection.checked()
    }
}

macro_rules! selection_methods {
    () => {
        /// Reads this column (and others that are named); without any, all are read.
        #[must_use]
        pub fn column(mut self, family: &str, qualifier: impl AsRef<[u8]>) -> Self {
            let qualifier = Bytes::copy_from_slice(qualifier.as_ref());
            self.selection.columns.push((family.to_owned(), Some(qualifier)));
            self
        }

        /// Reads all columns of this family (and others that are named).
        #[must_use]
        pub fn family(mut self, family: &str) -> Self {
            self.selection.columns.push((family.to_owned(), None));
            self
        }

        /// Reads up to so many versions of each column, newest first; 1 if not told otherwise.
        #[must_use]
        pub fn versions(mut self, versions: u32) -> Self {
            self.selection.versions = versions;
            self
        }

        /// Reads only cells with a timestamp from `min` up to but not including `max`.
        #[must_use]
        pub fn time_range(mut self, min: i64, max: i64) -> Self {
            self.selection.time_min = min;
            self.selection.time_max = max;
            self
        }
    };
}

/// Asks for one row.
#[derive(Clone, Debug)]
pub struct Get {
    pub(crate) row: Bytes,
    pub(crate) selection: Selection,
}

impl Get {
    /// A get of `row`.
    #[must_use]
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        Self { row: Bytes::copy_from_slice(row.as_ref()), selection: Selection::all() }
    }

    selection_methods!();

    /// The row asked for.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.row
    }
}

/// Asks for the rows of a range, in their order or from the last to the first.
///
/// ```
/// use terrane_client::{KeyRange, Scan};
/// let newest_ten = Scan::prefix("station-7").limit(10).column("data", "airtemp");
/// let backwards = Scan::range(KeyRange::all()).reverse();
/// ```
#[derive(Clone, Debug)]
pub struct Scan {
    pub(crate) range: KeyRange,
    pub(crate) reverse: bool,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) after: Option<PageToken>,
    pub(crate) block_bytes: u32,
    pub(crate) selection: Selection,
}

impl Default for Scan {
    fn default() -> Self {
        Self::all()
    }
}

impl Scan {
    /// A scan of the whole table.
    #[must_use]
    pub fn all() -> Self {
        Self::range(KeyRange::all())
    }

    /// A scan of the rows in `range`.
    #[must_use]
    pub fn range(range: KeyRange) -> Self {
        Self { range, reverse: false, offset: 0, limit: None, after: None, block_bytes: 0, selection: Selection::all() }
    }

    /// A scan of the rows that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        Self::range(KeyRange::prefix(prefix.as_ref()))
    }

    selection_methods!();

    /// From the last row of the range to the first.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Skips so many rows first; they are skipped on the servers.
    #[must_use]
    pub fn offset(mut self, rows: u64) -> Self {
        self.offset = rows;
        self
    }

    /// Ends after so many rows.
    #[must_use]
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Goes on where the page that gave this token ended. The range must be the one of that page.
    #[must_use]
    pub fn after(mut self, token: PageToken) -> Self {
        self.after = Some(token);
        self
    }

    /// The size of the blocks that servers send, in bytes; chosen by them if not set.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes;
        self
    }
}

/// One row as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct RowData {
    row: Row,
    cells: PackedCells,
}

impl RowData {
    pub(crate) const fn new(row: Row, cells: PackedCells) -> Self {
        Self { row, cells }
    }

    /// The row's key.
    #[must_use]
    pub const fn row(&self) -> &Row {
        &self.row
    }

    /// The cells: by family and qualifier ascending, then newest first.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.cells.iter()
    }

    /// The newest value of a column that was read.
    #[must_use]
    pub fn value(&self, family: &str, qualifier: impl AsRef<[u8]>) -> Option<&[u8]> {
        let qualifier = qualifier.as_ref();
        self.cells().find(|cell| cell.family == family.as_bytes() && cell.qualifier == qualifier).map(|cell| cell.value)
    }

    /// All versions of a column that were read, newest first, as (timestamp, value).
    pub fn versions<'a>(&'a self, family: &'a str, qualifier: &'a [u8]) -> impl Iterator<Item = (i64, &'a [u8])> {
        self.cells()
            .filter(move |cell| cell.family == family.as_bytes() && cell.qualifier == qualifier)
            .map(|cell| (cell.timestamp, cell.value))
    }

    /// The cells as values of their own, which outlive the row.
    #[must_use]
    pub fn to_cells(&self) -> Vec<Cell> {
        self.cells().map(Cell::from).collect()
    }
}

impl std::fmt::Debug for RowData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {{", terrane_types::escape(&self.row))?;
        for cell in self.cells() {
            write!(
                f,
                " {}:{}@{}={}",
                terrane_types::escape(cell.family),
                terrane_types::escape(cell.qualifier),
                cell.timestamp,
                terrane_types::escape(cell.value)
            )?;
        }
        write!(f, " }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_named_as_a_whole_outweighs_its_columns() {
        let get = Get::new("r").column("f", "a").family("f").column("g", "b").column("g", "b");
        let projection = get.selection.projection().expect("valid names");
        let shown: Vec<(String, usize)> =
            projection.families.iter().map(|(family, columns)| (family.to_string(), columns.len())).collect();
        assert_eq!(shown, [("f".to_owned(), 0), ("g".to_owned(), 1)]);
    }
}
