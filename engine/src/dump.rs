//! A file of cells taken apart, for `tool dump` to print.

use std::path::Path;
use std::sync::Arc;

use terrane_env::fs::Disk;
use terrane_env::task;

use crate::Error;
use crate::backend::memory;
use crate::boxed::BoxFuture;
use crate::cells::Cells;
use crate::file_dump::{DumpedCell, FileDump, FileProperties};
use crate::store_file::{self, FamilyReads, StoreFile, StoreFileShared};

const CACHE_BYTES: u64 = 1 << 20;
const OPEN_FILES: usize = 4;

/// Takes a file of cells apart: its properties, its first `blocks` blocks and its first `cells` cells. `None` when its
/// name is not that of such a file.
///
/// # Errors
/// [`Error::Corruption`] for a damaged file, [`Error::Io`].
pub fn dump_file(path: &Path, blocks: usize, cells: usize) -> BoxFuture<'_, Result<Option<FileDump>, Error>> {
    Box::pin(dump(path, blocks, cells))
}

async fn dump(path: &Path, blocks: usize, cells: usize) -> Result<Option<FileDump>, Error> {
    let disk = Disk::os();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(id) = store_file::id_of(&name) {
        let bytes = disk.file_len(path).await.map_err(Error::io(format!("stat {}", path.display())))?;
        let dir = path.parent().map(Path::to_owned).unwrap_or_default();
        let shared = Arc::new(StoreFileShared::new(disk, dir, CACHE_BYTES, OPEN_FILES));
        let dumped = task::run_blocking(move || {
            StoreFile::open(&shared, id, None, bytes, &Arc::new(FamilyReads::default()), None)?.listing(blocks, cells)
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

/// A file without stored properties: they are counted.
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
