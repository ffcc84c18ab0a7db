//! Apache Parquet files of flat columns.
//!
//! Two layouts. `cells` has a record per cell, in bytes (`row`, `family`, `qualifier`, `timestamp`, `value`), and is exact; in
//! a table with a declared key the parts of the key stand beside the row for readers, as `key.NAME`, and mean nothing to an
//! import. `rows` has a record per row, with typed columns named as in the table. A file's schema tells which of them it has;
//! every other file is read as rows, by names or by a mapping.
//!
//! Files are read and written column by column, through the crate's own columns instead of Arrow's arrays: Arrow would add
//! nine crates to the tree for arrays that are taken apart at once.

mod read;
mod types;
mod write;

use terrane_types::ValueType;
use terrane_types::keycodec::PartType;

pub use read::{FileBytes, ParquetReader, Shape};
pub use write::{CellsWriter, RowsWriter};

/// The columns of the layout `cells`, without those of the key.
const CELLS: [(&str, Kind); 5] = [
    ("row", Kind::Bytes),
    ("family", Kind::Text),
    ("qualifier", Kind::Bytes),
    ("timestamp", Kind::I64),
    ("value", Kind::Bytes),
];
/// What the names of the key's parts begin with in the layout `cells`.
const KEY_PREFIX: &str = "key.";

/// What a column that we write holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    I32,
    U32,
    I64,
    U64,
    F64,
    /// Milliseconds since 1970.
    Time,
    Bool,
    Text,
    Bytes,
}

impl Kind {
    fn of_part(part: PartType) -> Kind {
        match part {
            PartType::U32 => Kind::U32,
            PartType::U64 => Kind::U64,
            PartType::I32 => Kind::I32,
            PartType::I64 => Kind::I64,
            PartType::F64 => Kind::F64,
            PartType::Time => Kind::Time,
            PartType::Bool => Kind::Bool,
            PartType::Text | PartType::Uuid => Kind::Text,
            PartType::Bytes | PartType::Tail | PartType::Fixed(_) | PartType::Bucket(_) => Kind::Bytes,
        }
    }

    fn of_value(kind: Option<ValueType>) -> Kind {
        match kind {
            Some(ValueType::I32) => Kind::I32,
            Some(ValueType::I64) => Kind::I64,
            Some(ValueType::U32) => Kind::U32,
            Some(ValueType::U64) => Kind::U64,
            Some(ValueType::F64) => Kind::F64,
            Some(ValueType::Time) => Kind::Time,
            Some(ValueType::Text) => Kind::Text,
            Some(ValueType::Bytes) | None => Kind::Bytes,
        }
    }
}

#[cfg(test)]
mod tests;
