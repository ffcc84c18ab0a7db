//! A rendered row of `hbase:meta`.

use bytes::Bytes;
use terrane_types::CellRef;

use crate::cell_block::KeyValue;

/// A cell of `hbase:meta`.
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

/// A row of `hbase:meta`, with its cells in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Bytes,
    /// The cells.
    pub cells: Vec<Cell>,
}

impl Row {
    /// The cells in HBase's layout.
    pub fn key_values(&self) -> impl Iterator<Item = KeyValue<'_>> {
        self.cells.iter().map(|cell| KeyValue {
            row: &self.key,
            cell: CellRef::put(cell.family, cell.qualifier, cell.timestamp, &cell.value),
        })
    }
}
