//! What a scan reads: a range of rows, how many of them, in which direction, and which cells of each.
//!
//! Bounds and names are checked when the scan runs.

use std::ops::RangeBounds;

use bytes::Bytes;
use terrane_types::{IntoPrefix, Invalid, KeyRange};

use crate::consistency::Consistency;
use crate::read::key_after::key_after;
use crate::read::page_token::PageToken;
use crate::read::selection::{Selection, selection_methods};
use crate::wire::scan::{Latest, LatestPrefix};

/// Which rows count as one prefix, for a scan that shows only the first rows of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatestPer(LatestPrefix);

impl LatestPer {
    /// Rows that share this many leading parts of the table's declared key; a bucket counts as a part. At least 1.
    #[must_use]
    pub const fn parts(parts: u32) -> Self {
        Self(LatestPrefix::Parts(parts))
    }

    /// Rows that share this many leading bytes; a shorter row is its own prefix. At least 1.
    #[must_use]
    pub const fn bytes(bytes: u32) -> Self {
        Self(LatestPrefix::Bytes(bytes))
    }

    /// The first `rows` rows of each prefix.
    pub(crate) fn first(self, rows: u32) -> Latest {
        Latest { prefix: self.0, rows, last_prefix: Bytes::new(), given: 0 }
    }
}

/// Reads the rows of a range, in order or in reverse.
///
/// ```
/// use terrane_client::Scan;
/// let newest_ten = Scan::prefix("station-7").limit(10).column("data", "airtemp");
/// let backwards = Scan::range(..).reverse();
/// let between = Scan::range("a"..="m").filter("i32(data:airtemp) > 100");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a scan does nothing until a table reads it"]
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

/// A scan of a range, so that calls which take a scan take `..`, `"a".."c"` or a prefix as well.
impl<R: Into<KeyRange>> From<R> for Scan {
    fn from(range: R) -> Self {
        Self::range(range)
    }
}

impl Scan {
    /// A scan of the whole table.
    pub fn all() -> Self {
        Self::range(KeyRange::all())
    }

    /// A scan of the rows in a range: `..`, `"a".."c"`, `"a"..="c"`, `"b"..`, a prefix (`"user-"`), the leading parts of a
    /// typed key, or a [`KeyRange`]. The lower bound comes first in both directions; an empty end is no bound. A range whose
    /// end lies before its start fails the read with [`Error::Invalid`](crate::Error::Invalid), before any request is sent.
    pub fn range(range: impl Into<KeyRange>) -> Self {
        Self {
            range: range.into(),
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

    /// A scan of the rows that start with `prefix`: bytes, text, or the leading parts of a typed key
    /// (`Scan::prefix(ActionKey::prefix().user(7))`).
    pub fn prefix(prefix: impl IntoPrefix) -> Self {
        Self::range(prefix.prefixed_rows())
    }

    /// A scan of the rows between two bounds, each included or not: `Scan::rows("a".."c")`, `Scan::rows("a"..="c")`,
    /// `Scan::rows("b"..)`. The lower bound comes first in both directions.
    pub fn rows<R: AsRef<[u8]>>(bounds: impl RangeBounds<R>) -> Self {
        Self::range(KeyRange::between(bounds))
    }

    selection_methods!(selection);

    /// Starts at this row, inclusive. The start is the lower bound, also in reverse.
    #[doc(alias = "withStartRow")]
    pub fn start(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.start = Bytes::copy_from_slice(row.as_ref());
        self
    }

    /// Starts after this row.
    pub fn start_after(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.start = key_after(row.as_ref());
        self
    }

    /// Ends before this row; nothing bounds it if the row is empty. In both directions the end is the upper bound.
    #[doc(alias = "withStopRow")]
    pub fn end(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.end = Bytes::copy_from_slice(row.as_ref());
        self
    }

    /// Ends with this row, itself included.
    pub fn end_inclusive(mut self, row: impl AsRef<[u8]>) -> Self {
        self.range.end = key_after(row.as_ref());
        self
    }

    /// Reads from the last row of the range to the first.
    #[doc(alias = "setReversed")]
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Skips this many rows first. The servers skip them, exactly, over as many regions as necessary.
    pub fn offset(mut self, rows: u64) -> Self {
        self.offset = rows;
        self
    }

    /// Ends after this many rows; by default at the end of the range.
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Continues after the page that returned this token. Range, direction and filter must be those of that page. Only for
    /// [`Table::page`](crate::Table::page).
    pub fn after(mut self, token: PageToken) -> Self {
        self.after = Some(token);
        self
    }

    /// The size of the blocks that servers send, in bytes; 256 KiB by default.
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Which writes the scan sees; [`Consistency::Linearizable`] by default.
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// Reads each region as of one moment, that of the scan's first block from it. By default each row is of one moment, and
    /// later rows may be newer. A scan that takes longer than the table's `history` and loses its connection may fail with
    /// [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld): start again.
    pub fn snapshot(mut self) -> Self {
        self.snapshot = true;
        self
    }

    /// Whether the blocks that servers read from disk for this scan stay in their cache; on by default. Turn it off for a large
    /// scan of data that is read once.
    pub fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache_never = !fill;
        self
    }

    /// Returns only the first `rows` rows of each prefix (the last ones in reverse); servers seek over the rest. Limit and
    /// offset count the rows returned. [`Table::latest`](crate::Table::latest) is a shorter way to write it.
    pub fn latest(mut self, per: LatestPer, rows: u32) -> Self {
        self.latest = Some((per, rows));
        self
    }

    /// The most rows that the scan can return: its limit, or what a `page(n)` in the filter leaves after the offset.
    pub(crate) fn total_limit(&self) -> Option<u64> {
        let passing = self.selection.rows_that_pass().map(|rows| rows.saturating_sub(self.offset));
        self.limit.into_iter().chain(passing).min()
    }

    /// The range, checked.
    pub(crate) fn checked_range(&self) -> Result<KeyRange, Invalid> {
        KeyRange::new(self.range.start.clone(), self.range.end.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;

    #[test]
    fn bounds_are_included_as_written() {
        let range = |scan: Scan| scan.checked_range().expect("ordered");
        assert!(range(Scan::rows("a"..="c")).contains(b"c") && !range(Scan::rows("a".."c")).contains(b"c"));
        assert!(!range(Scan::rows("a"..="c")).contains(b"c\0"));
        let after = range(Scan::rows::<&str>((Bound::Excluded("a"), Bound::Unbounded)));
        assert!(!after.contains(b"a") && after.contains(b"a\0") && after.contains(b"\xff"));
        assert_eq!(range(Scan::rows::<&str>(..)), KeyRange::all());
        assert!(Scan::rows("b".."a").checked_range().is_err());
    }

    #[test]
    fn whatever_is_a_range_is_a_scan_of_it() {
        fn range(scan: impl Into<Scan>) -> String {
            scan.into().checked_range().expect("ordered").to_string()
        }
        assert_eq!(range(..), "[,)");
        assert_eq!(range("a".."c"), "[a,c)");
        assert_eq!(range("user-"), "[user-,user.)");
        assert_eq!(range(KeyRange::row(b"r")), r"[r,r\x00)");
        assert_eq!(range(Scan::prefix("a").limit(1)), "[a,b)");
    }
}
