//! What callers ask to read (gets, scans) and what they get back (rows of cells).
//!
//! Results are slices of the received blocks: a cell is never copied on its way out. Bounds and names are checked when the
//! read is carried out.

use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use terrane_proto::v1;
use terrane_types::{CellRef, ColumnValue, Invalid, KeyRange, PackedCells, Row, escape};

use crate::error::Error;
use crate::read::page::PageToken;
use crate::read::selection::{Selection, selection_methods};
use crate::write::operations::Cell;

/// Which writes a read is guaranteed to see, and what that costs.
///
/// The first two are linearizable: they return every write that was acknowledged before the read began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The leader answers: alone while its lease holds, otherwise after a quorum round. The default.
    #[default]
    Linearizable,
    /// Linearizable without relying on clock speed: the leader always runs a quorum round first. Costs one round between
    /// servers for each batch of reads.
    Strict,
    /// Any member of the group answers from what it has applied, so reads spread over servers and continue without a
    /// leader. The answer may lack the newest writes; it says as of when it is complete ([`AsOf`]).
    Stale,
}

impl From<Consistency> for v1::Consistency {
    fn from(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Linearizable => Self::Linearizable,
            Consistency::Strict => Self::Strict,
            Consistency::Stale => Self::Stale,
        }
    }
}

/// An answer, and as of when it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf<T> {
    /// What was read.
    pub value: T,
    /// Everything acknowledged before this time is shown: milliseconds since 1970, by the cluster's clock. `None`: the read
    /// was linearizable, so that it shows everything acknowledged before it began.
    pub as_of_ms: Option<u64>,
}

/// The bound of two answers together; 0 on the wire is no bound.
pub(crate) fn older(known: Option<u64>, as_of_ms: u64) -> Option<u64> {
    match (known, as_of_ms) {
        (known, 0) => known,
        (None, heard) => Some(heard),
        (Some(known), heard) => Some(known.min(heard)),
    }
}

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

/// Of what rows a scan shows the first ones: those that share a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatestPer(Per);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Per {
    Parts(u32),
    Bytes(u32),
}

impl LatestPer {
    /// Rows that share so many leading parts of the key that the table declares, a bucket counted among them. At least 1.
    #[must_use]
    pub const fn parts(parts: u32) -> Self {
        Self(Per::Parts(parts))
    }

    /// Rows that share so many leading bytes; a shorter row is a prefix of its own. At least 1.
    #[must_use]
    pub const fn bytes(bytes: u32) -> Self {
        Self(Per::Bytes(bytes))
    }

    pub(crate) fn wire(self, rows: u32) -> v1::Latest {
        let prefix = match self.0 {
            Per::Parts(parts) => v1::latest::Prefix::Parts(parts),
            Per::Bytes(bytes) => v1::latest::Prefix::Bytes(bytes),
        };
        v1::Latest { prefix: Some(prefix), rows, ..v1::Latest::default() }
    }
}

/// Asks for the rows of a range, in their order or from the last to the first.
///
/// ```
/// use terrane_client::{KeyRange, Scan};
/// let newest_ten = Scan::prefix("station-7").limit(10).column("data", "airtemp");
/// let backwards = Scan::range(KeyRange::all()).reverse();
/// let between = Scan::rows("a"..="m").filter("i32(data:airtemp) > 100");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a table reads what it is given"]
pub struct Scan {
    pub(crate) range: KeyRange,
    pub(crate) reverse: bool,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) after: Option<PageToken>,
    pub(crate) block_bytes: u32,
    pub(crate) selection: Selection,
    pub(crate) consistency: Consistency,
    pub(crate) snapshot: bool,
    pub(crate) fill_cache_never: bool,
    pub(crate) latest: Option<(LatestPer, u32)>,
}

impl Default for Scan {
    fn default() -> Self {
        Self::all()
    }
}

impl From<KeyRange> for Scan {
    fn from(range: KeyRange) -> Self {
        Self::range(range)
    }
}

impl Scan {
    /// A scan of the whole table.
    pub fn all() -> Self {
        Self::range(KeyRange::all())
    }

    /// A scan of the rows in `range`.
    pub fn range(range: KeyRange) -> Self {
        Self {
            range,
            reverse: false,
            offset: 0,
            limit: None,
            after: None,
            block_bytes: 0,
            selection: Selection::all(),
            consistency: Consistency::Linearizable,
            snapshot: false,
            fill_cache_never: false,
            latest: None,
        }
    }

    /// A scan of the rows that begin with `prefix`.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        Self::range(KeyRange::prefix(prefix.as_ref()))
    }

    /// A scan of the rows between two bounds, each included or not: `Scan::rows("a".."c")`, `Scan::rows("a"..="c")`,
    /// `Scan::rows("b"..)`. The lower bound is given first in both directions.
    pub fn rows<R: AsRef<[u8]>>(bounds: impl RangeBounds<R>) -> Self {
        let scan = match bounds.start_bound() {
            Bound::Included(row) => Self::all().start(row),
            Bound::Excluded(row) => Self::all().start_after(row),
            Bound::Unbounded => Self::all(),
        };
        match bounds.end_bound() {
            Bound::Included(row) => scan.end_inclusive(row),
            Bound::Excluded(row) => scan.end(row),
            Bound::Unbounded => scan,
        }
    }

    selection_methods!(selection);

    /// Begins at this row, itself included. In both directions the start is the lower bound.
    pub fn start(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.start = Bytes::copy_from_slice(row.as_ref());
        self
    }

    /// Begins behind this row.
    pub fn start_after(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.start = behind(row.as_ref());
        self
    }

    /// Ends before this row; nothing bounds it if the row is empty. In both directions the end is the upper bound.
    pub fn end(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.end = Bytes::copy_from_slice(row.as_ref());
        self
    }

    /// Ends with this row, itself included.
    pub fn end_inclusive(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.end = behind(row.as_ref());
        self
    }

    /// From the last row of the range to the first.
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Skips so many rows first; they are skipped on the servers, exactly, over as many regions as it takes.
    pub fn offset(mut self, rows: u64) -> Self {
        self.offset = rows;
        self
    }

    /// Ends after so many rows; if not set, with the range.
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Goes on where the page that gave this token ended. Range, direction and filter must be those of that page; it is
    /// for [`Table::page`](crate::Table::page) alone.
    pub fn after(mut self, token: PageToken) -> Self {
        self.after = Some(token);
        self
    }

    /// The size of the blocks that servers send, in bytes; 256 KiB if not set.
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// How fresh the rows are; [`Consistency::Linearizable`] if not set.
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// Shows each region as it was at one moment, that of the scan's first block from it. Without, each row is of one
    /// moment and later rows may be newer. A scan that takes longer than the table's `history` and is cut off meanwhile
    /// may be answered that its snapshot is too old: begin again.
    pub fn snapshot(mut self) -> Self {
        self.snapshot = true;
        self
    }

    /// Whether blocks that servers read from disk for this scan stay in their cache; they do if not set. A scan over much
    /// that is read once does better without.
    pub fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache_never = !fill;
        self
    }

    /// Shows of the rows that share a prefix the first `rows` only (the last, when reversed); servers seek over the rest.
    /// Limit and offset count the rows shown. [`Table::latest`](crate::Table::latest) reads well for the same.
    pub fn latest(mut self, per: LatestPer, rows: u32) -> Self {
        self.latest = Some((per, rows));
        self
    }

    /// How many rows are shown at most: the limit, or what a `page(n)` in the filter leaves behind the offset.
    pub(crate) fn limit_in_all(&self) -> Option<u64> {
        let passing = self.selection.rows_that_pass().map(|rows| rows.saturating_sub(self.offset));
        self.limit.into_iter().chain(passing).min()
    }

    /// The range, checked.
    pub(crate) fn checked_range(&self) -> Result<KeyRange, Invalid> {
        KeyRange::new(self.range.start.clone(), self.range.end.clone())
    }
}

/// The least key above this one.
pub(crate) fn behind(row: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(row.len() + 1);
    bytes.extend_from_slice(row);
    bytes.push(0);
    bytes.into()
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

    /// The newest value of a column that was read, as a number, a text or anything else that is a [`ColumnValue`]: what a
    /// counter holds is `row.read::<i64>("stats", "visits")?`. `None` when the column is absent.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming row and column, when the value is none of the type.
    pub fn read<T: ColumnValue>(&self, family: &str, qualifier: impl AsRef<[u8]>) -> Result<Option<T>, Error> {
        let qualifier = qualifier.as_ref();
        let Some(value) = self.value(family, qualifier) else { return Ok(None) };
        let named = |invalid: Invalid| {
            let (row, qualifier) = (escape(&self.row), escape(qualifier));
            Error::invalid(format!("row {row}, column {family}:{qualifier}: {}", invalid.what))
        };
        T::from_value(value).map(Some).map_err(named)
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
    fn bounds_are_included_as_they_are_written() {
        let range = |scan: Scan| scan.checked_range().expect("ordered");
        assert!(range(Scan::rows("a"..="c")).contains(b"c") && !range(Scan::rows("a".."c")).contains(b"c"));
        assert!(!range(Scan::rows("a"..="c")).contains(b"c\0"));
        let behind = range(Scan::rows::<&str>((Bound::Excluded("a"), Bound::Unbounded)));
        assert!(!behind.contains(b"a") && behind.contains(b"a\0") && behind.contains(b"\xff"));
        assert_eq!(range(Scan::rows::<&str>(..)), KeyRange::all());
        assert!(Scan::rows("b".."a").checked_range().is_err());
    }

    #[test]
    fn a_value_that_is_none_of_the_type_is_named_with_its_row_and_column() {
        let five = 5i64.to_be_bytes();
        let cells = [CellRef::put(b"f", b"text", 1, b"five"), CellRef::put(b"f", b"visits", 1, &five)];
        let row = RowData::new(Row::new("r").expect("a row"), PackedCells::from_cells(cells).expect("cells"));
        assert_eq!(row.read::<i64>("f", "visits").unwrap(), Some(5));
        assert_eq!(row.read::<String>("f", "text").unwrap().as_deref(), Some("five"));
        assert_eq!(row.read::<i64>("f", "absent").unwrap(), None);
        let error = row.read::<i64>("f", "text").unwrap_err().to_string();
        assert!(error.starts_with("row r, column f:text: ") && error.contains("8 bytes"), "{error}");
    }

    #[test]
    fn the_bound_of_several_answers_is_the_oldest() {
        assert_eq!(
            [(None, 0), (None, 5), (Some(4), 5), (Some(6), 5), (Some(6), 0)].map(|(known, heard)| older(known, heard)),
            [None, Some(5), Some(4), Some(5), Some(6)]
        );
    }
}
