//! A rendered row.

use bytes::Bytes;
use terrane_types::CellRef;
use terrane_types::cell::pack;
use terrane_types::rows::{begin_row, end_row};

/// A cell of a rendered row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The family.
    pub family: &'static [u8],
    /// The qualifier.
    pub qualifier: &'static [u8],
    /// Some time before the read.
    pub timestamp: i64,
    /// The value.
    pub value: Bytes,
}

/// A rendered row, with its cells in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Bytes,
    /// The cells.
    pub cells: Vec<Cell>,
}

impl Row {
    /// The row in the form in which reads return stored ones.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        let start = begin_row(&mut packed, &self.key);
        for cell in &self.cells {
            pack(&mut packed, CellRef::put(cell.family, cell.qualifier, cell.timestamp, &cell.value));
        }
        end_row(&mut packed, start);
        packed
    }
}
