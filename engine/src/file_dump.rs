//! What a dump of a file of cells shows.

use terrane_types::CellKind;
use terrane_types::schema::FamilyStorage;

use crate::cells::Cell;

/// A file of cells, as far as requested.
#[derive(Clone, Debug)]
pub struct FileDump {
    /// What it says about itself.
    pub properties: FileProperties,
    /// The first blocks, in order.
    pub blocks: Vec<DumpedBlock>,
    /// The first cells, in order.
    pub cells: Vec<DumpedCell>,
}

/// What a file says about itself.
#[derive(Clone, Debug)]
pub struct FileProperties {
    /// The kind of file, for people.
    pub kind: &'static str,
    /// Its id, which is also in its name.
    pub id: u64,
    /// The version of its format.
    pub format: u32,
    /// Its length.
    pub bytes: u64,
    /// The first row.
    pub first_row: Vec<u8>,
    /// The last row.
    pub last_row: Vec<u8>,
    /// The number of rows.
    pub rows: u64,
    /// The number of cells.
    pub cells: u64,
    /// The number of tombstones among them.
    pub deletes: u64,
    /// The most cells of one row.
    pub longest_row_cells: u64,
    /// The lowest and the highest.
    pub timestamps: (i64, i64),
    /// The lowest and the highest.
    pub sequences: (u64, u64),
    /// Bytes of rows, qualifiers, tags and values, before compression.
    pub data_bytes: u64,
    /// The number of data blocks.
    pub data_blocks: u64,
    /// The number of index partitions.
    pub index_blocks: u64,
    /// How it was written, for kinds of files that can be written in several ways.
    pub storage: Option<FamilyStorage>,
    /// Whether it has a prefix filter.
    pub has_prefix_filter: bool,
}

/// An entry of the index.
#[derive(Clone, Debug)]
pub struct DumpedBlock {
    /// The index partition that names it, counted from 0.
    pub partition: usize,
    /// Where the block is.
    pub offset: u64,
    /// Its length in the file.
    pub bytes: u64,
    /// The number of its cells.
    pub cells: u64,
    /// Their bytes before compression.
    pub data_bytes: u64,
    /// No cell of the block comes after this row...
    pub last_row: Vec<u8>,
    /// ...and, where it is given, after this qualifier of it.
    pub last_qualifier: Option<Vec<u8>>,
}

/// A cell.
#[derive(Clone, Debug)]
pub struct DumpedCell {
    /// The row.
    pub row: Vec<u8>,
    /// The qualifier.
    pub qualifier: Vec<u8>,
    /// The timestamp.
    pub timestamp: i64,
    /// The sequence number.
    pub sequence: u64,
    /// Its position in its row mutation.
    pub position: u32,
    /// The kind.
    pub kind: CellKind,
    /// The tags.
    pub tags: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl DumpedCell {
    pub(crate) fn of(cell: Cell<'_>) -> Self {
        Self {
            row: cell.row.to_vec(),
            qualifier: cell.qualifier.to_vec(),
            timestamp: cell.timestamp,
            sequence: cell.sequence,
            position: cell.position,
            kind: cell.kind,
            tags: cell.tags.to_vec(),
            value: cell.value.to_vec(),
        }
    }
}
