//! One row as it was read. Its cells are slices of the received block; they are never copied.

use std::fmt;

use terrane_types::{CellRef, ColumnValue, Invalid, PackedCells, PackedRow, Row, escape, escape_family};

use crate::error::Error;
use crate::write::cell::Cell;

/// One row as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct RowData {
    row: Row,
    cells: PackedCells,
}

impl From<PackedRow> for RowData {
    fn from(packed: PackedRow) -> Self {
        Self::new(packed.row, packed.cells)
    }
}

impl RowData {
    pub(crate) const fn new(row: Row, cells: PackedCells) -> Self {
        Self { row, cells }
    }

    /// The row's key.
    #[doc(alias = "key")]
    #[must_use]
    pub const fn row(&self) -> &Row {
        &self.row
    }

    /// The cells: families and qualifiers ascending, versions newest first.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.cells.iter()
    }

    /// The newest value of a column among the cells that were read.
    #[must_use]
    pub fn value(&self, family: &str, qualifier: impl AsRef<[u8]>) -> Option<&[u8]> {
        let qualifier = qualifier.as_ref();
        self.cells().find(|cell| cell.family == family.as_bytes() && cell.qualifier == qualifier).map(|cell| cell.value)
    }

    /// The newest value of a column as a number, text or any other [`ColumnValue`]; a counter is
    /// `row.read::<i64>("stats", "visits")?`. `None` when the column is absent.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming row and column, when the value is not of that type.
    pub fn read<T: ColumnValue>(&self, family: &str, qualifier: impl AsRef<[u8]>) -> Result<Option<T>, Error> {
        let qualifier = qualifier.as_ref();
        let Some(value) = self.value(family, qualifier) else { return Ok(None) };
        let named = |invalid: Invalid| {
            let (row, family, qualifier) = (escape(&self.row), escape_family(family.as_bytes()), escape(qualifier));
            Error::invalid(format!("row {row}, column {family}:{qualifier}: {}", invalid.what))
        };
        T::from_value(value).map(Some).map_err(named)
    }

    /// All versions of a column that were read, newest first, as (timestamp in milliseconds, value). A read returns one version
    /// unless it asks for more: `.versions(3)`.
    pub fn versions<'a, Q: AsRef<[u8]> + ?Sized>(
        &'a self,
        family: &'a str,
        qualifier: &'a Q,
    ) -> impl Iterator<Item = (i64, &'a [u8])> + use<'a, Q> {
        let qualifier = qualifier.as_ref();
        self.cells()
            .filter(move |cell| cell.family == family.as_bytes() && cell.qualifier == qualifier)
            .map(|cell| (cell.timestamp, cell.value))
    }

    /// The cells as owned values, which outlive the row.
    #[must_use]
    pub fn to_cells(&self) -> Vec<Cell> {
        self.cells().map(Cell::from).collect()
    }
}

impl RowData {
    /// The row with its key as text: `user-17 { info:age@1700000000000=36 }`. What is not printable ASCII is escaped.
    pub(crate) fn show(&self, key: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{key} {{")?;
        for cell in self.cells() {
            let (family, qualifier) = (escape_family(cell.family), escape(cell.qualifier));
            write!(f, " {family}:{qualifier}@{}={}", cell.timestamp, escape(cell.value))?;
        }
        f.write_str(" }")
    }
}

/// The key and the cells, as `family:qualifier@timestamp=value`; bytes that are not printable ASCII are escaped.
impl fmt::Display for RowData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(&escape(&self.row), f)
    }
}

/// As it is displayed.
impl fmt::Debug for RowData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_type_is_named_with_its_row_and_column() {
        let five = 5i64.to_be_bytes();
        let cells = [CellRef::put(b"f", b"text", 1, b"five"), CellRef::put(b"f", b"visits", 1, &five)];
        let row = RowData::new(Row::new("r").expect("a row"), PackedCells::from_cells(cells).expect("cells"));
        assert_eq!(row.read::<i64>("f", "visits").unwrap(), Some(5));
        assert_eq!(row.read::<String>("f", "text").unwrap().as_deref(), Some("five"));
        assert_eq!(row.read::<i64>("f", "absent").unwrap(), None);
        assert_eq!(row.versions("f", "text").collect::<Vec<_>>(), [(1, &b"five"[..])]);
        assert_eq!(row.to_string(), r"r { f:text@1=five f:visits@1=\x00\x00\x00\x00\x00\x00\x00\x05 }");
        let error = row.read::<i64>("f", "text").unwrap_err().to_string();
        assert!(error.starts_with("row r, column f:text: ") && error.contains("8 bytes"), "{error}");
    }
}
