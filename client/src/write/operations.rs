//! The single kinds of writes: puts, deletes, increments and appends. [`crate::write::row_mutation`] mixes them.
//!
//! Cells are packed while a write is built, so each is encoded once. Lengths are checked at the same time; the first violation
//! is recorded and returned when the write is used. Only the table knows whether the families exist, and checks that then.

use terrane_types::{CellKind, CellValue, LATEST};

use crate::write::row_mutation::RowMutation;

/// Cells to write into one row, all or none.
///
/// ```
/// use terrane_client::Put;
/// let put = Put::new("user-17").set("info", "name", "Ada").set("info", "age", 36_i64);
/// let put = put.set_at("info", "seen", 1_700_000_000_000, true);
/// ```
#[derive(Clone, Debug)]
pub struct Put {
    mutation: RowMutation,
}

impl Put {
    /// A put into `row` (1 to 32,767 bytes).
    #[must_use]
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        Self { mutation: RowMutation::new(row) }
    }

    /// Writes a cell with the server's timestamp. The value is bytes, text, a number (`5_i64`; big-endian), `bool`, a UUID or
    /// any other [`CellValue`].
    #[doc(alias = "addColumn")]
    #[must_use]
    pub fn set<'v>(mut self, family: &str, qualifier: impl AsRef<[u8]>, value: impl Into<CellValue<'v>>) -> Self {
        self.mutation = self.mutation.set(family, qualifier, value);
        self
    }

    /// Writes a cell with the caller's timestamp: milliseconds since 1970, unless the application defines another meaning.
    #[must_use]
    pub fn set_at<'v>(
        mut self,
        family: &str,
        qualifier: impl AsRef<[u8]>,
        timestamp: i64,
        value: impl Into<CellValue<'v>>,
    ) -> Self {
        self.mutation = self.mutation.set_at(family, qualifier, timestamp, value);
        self
    }

    /// The row written to.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.mutation.row
    }
}

/// Cells to delete from one row; the whole row if no column or family is named. Without a timestamp, versions up to the server's
/// time are deleted: cells that were written with a timestamp in the future stay.
///
/// A delete hides only what was written before it, whatever the timestamps of later writes.
///
/// Calls that take a delete also take a row key alone: it deletes the whole row.
///
/// ```
/// use terrane_client::Delete;
/// let row = Delete::new("user-17");
/// let columns = Delete::new("user-17").column("info", "mail").column("info", "age");
/// let family = Delete::new("user-17").family("info");
/// let version = Delete::new("user-17").version("info", "mail", 1_700_000_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct Delete {
    mutation: RowMutation,
}

impl Delete {
    /// A delete in `row`: the whole row, unless columns or families are named.
    #[must_use]
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        Self { mutation: RowMutation::new(row) }
    }

    /// Deletes all versions of a column.
    #[doc(alias = "addColumns")]
    #[must_use]
    pub fn column(mut self, family: &str, qualifier: impl AsRef<[u8]>) -> Self {
        self.mutation.push(CellKind::DeleteColumn, family, qualifier.as_ref(), LATEST, &[]);
        self
    }

    /// Deletes the versions of a column up to and including `timestamp`.
    #[must_use]
    pub fn column_until(mut self, family: &str, qualifier: impl AsRef<[u8]>, timestamp: i64) -> Self {
        self.mutation.push_at(CellKind::DeleteColumn, family, qualifier.as_ref(), timestamp, &[]);
        self
    }

    /// Deletes the version of a column with exactly this timestamp.
    #[doc(alias = "addColumn")]
    #[must_use]
    pub fn version(mut self, family: &str, qualifier: impl AsRef<[u8]>, timestamp: i64) -> Self {
        self.mutation.push_at(CellKind::Delete, family, qualifier.as_ref(), timestamp, &[]);
        self
    }

    /// Deletes all cells of a family.
    #[doc(alias = "addFamily")]
    #[must_use]
    pub fn family(mut self, family: &str) -> Self {
        self.mutation.push(CellKind::DeleteFamily, family, &[], LATEST, &[]);
        self
    }

    /// Deletes the cells of a family up to and including `timestamp`.
    #[must_use]
    pub fn family_until(mut self, family: &str, timestamp: i64) -> Self {
        self.mutation.push_at(CellKind::DeleteFamily, family, &[], timestamp, &[]);
        self
    }

    /// Deletes the cells of a family with exactly this timestamp.
    #[must_use]
    pub fn family_version(mut self, family: &str, timestamp: i64) -> Self {
        self.mutation.push_at(CellKind::DeleteFamilyVersion, family, &[], timestamp, &[]);
        self
    }

    /// The row deleted from.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.mutation.row
    }
}

/// A row key by itself deletes the whole row.
impl<R: AsRef<[u8]>> From<R> for Delete {
    fn from(row: R) -> Self {
        Self::new(row)
    }
}

impl From<Put> for RowMutation {
    fn from(put: Put) -> Self {
        put.mutation
    }
}

impl From<Delete> for RowMutation {
    fn from(delete: Delete) -> Self {
        let mut mutation = delete.mutation;
        mutation.whole_row = mutation.cells.is_empty();
        mutation
    }
}

/// Adds to counters of one row, all or none. A counter is a column of 8 bytes, a big-endian `i64`, as in HBase. An absent column
/// counts as 0.
///
/// A column that holds another value, or would overflow, fails the whole mutation: [`crate::Error::Invalid`] names the column,
/// and nothing is applied.
///
/// [`Table::increment`](crate::Table::increment) adds to one counter and returns its new value. This adds to several:
///
/// ```no_run
/// # async fn run(pages: terrane_client::Table) -> Result<(), terrane_client::Error> {
/// use terrane_client::{Increment, Returns};
/// let visit = Increment::new("page-9").by("stats", "visits", 1).by("stats", "bytes", 5_120);
/// let outcome = pages.mutate(visit).returning(Returns::New).await?;
/// if let Some(row) = outcome.row {
///     println!("{:?} visits", row.read::<i64>("stats", "visits")?);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Increment {
    mutation: RowMutation,
}

impl Increment {
    /// Adds to counters of `row`.
    #[must_use]
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        Self { mutation: RowMutation::new(row) }
    }

    /// Adds `by` to a counter; a negative number subtracts. A column may be named once.
    #[doc(alias("addColumn", "add"))]
    #[must_use]
    pub fn by(mut self, family: &str, qualifier: impl AsRef<[u8]>, by: i64) -> Self {
        self.mutation = self.mutation.increment(family, qualifier, by);
        self
    }

    /// The row written to.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.mutation.row
    }
}

/// Appends bytes to the values of columns of one row, all or none. An absent column counts as empty.
///
/// A value that would grow above 10 MiB fails the whole mutation.
#[derive(Clone, Debug)]
pub struct Append {
    mutation: RowMutation,
}

impl Append {
    /// Appends to columns of `row`.
    #[must_use]
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        Self { mutation: RowMutation::new(row) }
    }

    /// Appends `value` to the value of a column.
    #[must_use]
    pub fn value(mut self, family: &str, qualifier: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.mutation = self.mutation.append(family, qualifier, value);
        self
    }

    /// The row written to.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.mutation.row
    }
}

impl From<Increment> for RowMutation {
    fn from(increment: Increment) -> Self {
        increment.mutation
    }
}

impl From<Append> for RowMutation {
    fn from(append: Append) -> Self {
        append.mutation
    }
}

impl RowMutation {
    /// Adds the cells of a put; its row must be the same.
    #[must_use]
    pub fn put(self, put: Put) -> Self {
        self.join(put.into())
    }

    /// Adds the tombstones of a delete; its row must be the same. A delete that names nothing deletes the whole row before the
    /// rest of this mutation takes effect: together with cells, it replaces a row.
    #[must_use]
    pub fn delete(self, delete: Delete) -> Self {
        self.join(delete.into())
    }

    /// Adds the increments of several counters; its row must be the same.
    #[must_use]
    pub fn increments(self, increment: Increment) -> Self {
        self.join(increment.into())
    }

    /// Adds several appends; its row must be the same.
    #[must_use]
    pub fn appends(self, append: Append) -> Self {
        self.join(append.into())
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::PackedCells;
    use terrane_types::limits::VALUE_BYTES_MAX;

    use super::*;

    fn sentence(mutation: impl Into<RowMutation>) -> String {
        mutation.into().check().expect_err("outside a limit").what
    }

    #[test]
    fn errors_name_the_violation_and_the_limit() {
        assert!(sentence(Put::new("").set("f", "q", "v")).contains("1 to 32767"));
        assert!(sentence(Put::new(vec![0; 32_768]).set("f", "q", "v")).contains("32768 bytes"));
        assert!(sentence(Put::new("r").set("f", "q", vec![0; VALUE_BYTES_MAX + 1])).contains("10485760"));
        assert!(sentence(Put::new("r").set("f", vec![0; 32_768], "v")).contains("32767"));
        assert!(sentence(Put::new("r").set_at("f", "q", -1, "v")).contains("timestamp"));
        assert!(sentence(Put::new("r")).contains("changes nothing"));
        assert!(!sentence(Put::new("r").set("", "q", "v")).is_empty());
        let wide = Put::new("r").set("f", "a", vec![0; VALUE_BYTES_MAX]).set("f", "b", vec![0; VALUE_BYTES_MAX]);
        assert!(sentence(wide).contains("the limit is 16777216"));
        assert!(sentence(RowMutation::new("a").put(Put::new("b").set("f", "q", "v"))).contains("one row"));
    }

    #[test]
    fn a_delete_that_names_nothing_deletes_the_whole_row() {
        assert!(RowMutation::from(Delete::new("r")).whole_row);
        assert!(RowMutation::from(Delete::from("r")).whole_row);
        assert!(!RowMutation::from(Delete::new("r").column("f", "q")).whole_row);
    }

    #[test]
    fn the_kinds_of_deletes_are_packed_as_they_are_named() {
        let delete = Delete::new("r")
            .column("f", "a")
            .column_until("f", "b", 5)
            .version("f", "c", 6)
            .family("g")
            .family_version("h", 7);
        let mutation = RowMutation::from(delete);
        let cells = PackedCells::validate(mutation.cells.into()).expect("packed here");
        let kinds: Vec<(CellKind, i64)> = cells.iter().map(|cell| (cell.kind, cell.timestamp)).collect();
        assert_eq!(
            kinds,
            [
                (CellKind::DeleteColumn, LATEST),
                (CellKind::DeleteColumn, 5),
                (CellKind::Delete, 6),
                (CellKind::DeleteFamily, LATEST),
                (CellKind::DeleteFamilyVersion, 7)
            ]
        );
    }
}
