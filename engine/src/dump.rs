//! One file of cells taken apart, for `tool dump` to print.

use std::path::Path;
use std::sync::Arc;

use terrane_env::fs::Disk;
use terrane_env::task;
use terrane_types::CellKind;
use terrane_types::schema::FamilyStorage;

use crate::Error;
use crate::backend::memory;
use crate::block_cache::FamilyReads;
use crate::cells::{Cell, Cells};
use crate::table::{self, Table, TableShared};

const CACHE_BYTES: u64 = 1 << 20;
const OPEN_FILES: usize = 4;

/// A file of cells, as far as it was asked for.
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
    /// What kind of file it is, in words.
    pub kind: &'static str,
    /// Its id, which is in its name too.
    pub id: u64,
    /// The version of its format.
    pub format: u32,
    /// Its length.
    pub bytes: u64,
    /// The first row.
    pub first_row: Vec<u8>,
    /// The last row.
    pub last_row: Vec<u8>,
    /// How many rows it has.
    pub rows: u64,
    /// How many cells it has.
    pub cells: u64,
    /// How many of them delete.
    pub deletes: u64,
    /// Most cells of one row.
    pub longest_row_cells: u64,
    /// The lowest and the highest.
    pub timestamps: (i64, i64),
    /// The lowest and the highest.
    pub sequences: (u64, u64),
    /// Bytes of rows, qualifiers, tags and values, before compression.
    pub data_bytes: u64,
    /// How many blocks of cells.
    pub data_blocks: u64,
    /// How many partitions of the index.
    pub index_blocks: u64,
    /// How it was written, for files that can be written in several ways.
    pub storage: Option<FamilyStorage>,
    /// Whether it has a filter of row prefixes.
    pub has_prefix_filter: bool,
}

/// An entry of the index.
#[derive(Clone, Debug)]
pub struct DumpedBlock {
    /// The partition of the index that names it, counted from 0.
    pub partition: usize,
    /// Where the block is.
    pub offset: u64,
    /// Its length in the file.
    pub bytes: u64,
    /// How many cells it holds.
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
    /// Where it was in its row mutation.
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

/// Takes a file of cells apart: its properties, its first `blocks` blocks and its first `cells` cells. `None` when its name is
/// not one of such a file.
///
/// # Errors
/// [`Error::Corruption`] for what does not hold, [`Error::Io`].
pub async fn dump_file(path: &Path, blocks: usize, cells: usize) -> Result<Option<FileDump>, Error> {
    let disk = Disk::os();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(id) = table::id_of(&name) {
        let bytes = disk.file_len(path).await.map_err(Error::io(format!("look at {}", path.display())))?;
        let dir = path.parent().map(Path::to_owned).unwrap_or_default();
        let shared = Arc::new(TableShared::new(disk, dir, CACHE_BYTES, OPEN_FILES));
        let dumped = task::run_blocking(move || {
            Table::open(&shared, id, None, bytes, &Arc::new(FamilyReads::default()))?.listing(blocks, cells)
        });
        return dumped.await.map(Some);
    }
    match memory::id_of(&name) {
        Some(id) => {
            let (all, bytes) = memory::read_file(&disk, path, id).await?;
            Ok(Some(of_cells(id, bytes, &all, cells)))
        }
        None => Ok(None),
    }
}

/// A file that has no properties of its own: they are counted.
fn of_cells(id: u64, bytes: u64, all: &Cells, limit: usize) -> FileDump {
    let mut properties = FileProperties {
        kind: "file of cells",
        id,
        format: u32::from(memory::FORMAT),
        bytes,
        first_row: Vec::new(),
        last_row: Vec::new(),
        rows: 0,
        cells: all.len() as u64,
        deletes: 0,
        longest_row_cells: 0,
        timestamps: (i64::MAX, i64::MIN),
        sequences: (u64::MAX, 0),
        data_bytes: all.data_bytes() as u64,
        data_blocks: 0,
        index_blocks: 0,
        storage: None,
        has_prefix_filter: false,
    };
    let mut row_cells = 0;
    for cell in all.iter() {
        if properties.rows == 0 || properties.last_row != cell.row {
            if properties.rows == 0 {
                properties.first_row = cell.row.to_vec();
            }
            properties.last_row = cell.row.to_vec();
            properties.rows += 1;
            row_cells = 0;
        }
        row_cells += 1;
        properties.longest_row_cells = properties.longest_row_cells.max(row_cells);
        properties.deletes += u64::from(cell.kind.is_delete());
        let (low, high) = properties.timestamps;
        properties.timestamps = (low.min(cell.timestamp), high.max(cell.timestamp));
        let (low, high) = properties.sequences;
        properties.sequences = (low.min(cell.sequence), high.max(cell.sequence));
    }
    FileDump { properties, blocks: Vec::new(), cells: all.iter().take(limit).map(DumpedCell::of).collect() }
}
