//! Writes a store file from cells in store order.
//!
//! Adding cells only works in memory; finished blocks gather until the caller has them written, so that writes are
//! large and compactions pause only where they mean to. Filters, index and properties follow at the end. Nothing may
//! refer to the file before [`StoreFileWriter::finish`] returned and its directory was synced: until then it is
//! incomplete, and a start removes files that nothing refers to.
//!
//! A block ends between two rows once it has reached its size, and within a row only at twice that: a row smaller than
//! a block never lies in two.

use std::path::PathBuf;

use terrane_env::fs::{Disk, File};
use terrane_types::schema::{Bloom, Compression, FamilyStorage};

use super::block::{BlockAt, Sealer};
use super::filter::{FilterBuilder, column_hash};
use super::footer::{FOOTER_BYTES, FORMAT, Footer};
use super::index::{IndexBuilder, UpperBound};
use super::properties::StoreFileProperties;
use super::{data_block, path_of};
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::row_prefix::RowPrefix;
use crate::source::hash_of;

/// Bytes of entries at which an index partition ends.
const PARTITION_BYTES: usize = 4 << 10;

/// The overhead of a cell in a block, approximately: what is compared with the block size.
const CELL_OVERHEAD_BYTES: usize = 8;

/// How a file is written.
#[derive(Clone)]
pub(crate) struct StoreFileOptions {
    pub(crate) storage: FamilyStorage,
    /// How rows are cut for the prefix filter; without it there is none.
    pub(crate) prefix: Option<RowPrefix>,
}

/// A partition of the index, kept until all data blocks are written.
struct Partition {
    payload: Vec<u8>,
    bound: UpperBound,
    cells: u64,
    data_bytes: u64,
}

/// A store file that is being written.
pub(crate) struct StoreFileWriter {
    disk: Disk,
    path: PathBuf,
    file: File,
    id: u64,
    options: StoreFileOptions,
    properties: StoreFileProperties,
    /// The cells of the block that is being filled.
    block: Cells,
    block_data_bytes: u64,
    payload: Vec<u8>,
    sealer: Sealer,
    /// Sealed blocks that are not written yet; they belong at `written`.
    pending: Vec<u8>,
    written: u64,
    index: IndexBuilder,
    partitions: Vec<Partition>,
    partitions_bytes: usize,
    rows: FilterBuilder,
    row_hash: u64,
    row_cells: u64,
    prefixes: FilterBuilder,
}

impl StoreFileWriter {
    /// Creates the file `id` in `dir`, where none of that id exists.
    pub(crate) async fn create(
        disk: &Disk,
        dir: &std::path::Path,
        id: u64,
        options: StoreFileOptions,
    ) -> Result<Self, Error> {
        let path = path_of(dir, id);
        let file = disk.create_new(&path).await.map_err(Error::io(format!("create {}", path.display())))?;
        Ok(Self {
            disk: disk.clone(),
            file,
            id,
            properties: StoreFileProperties::new(FORMAT, id, options.storage),
            block: Cells::default(),
            block_data_bytes: 0,
            payload: Vec::new(),
            sealer: Sealer::new(options.storage.compression),
            pending: Vec::new(),
            written: 0,
            index: IndexBuilder::default(),
            partitions: Vec::new(),
            partitions_bytes: 0,
            rows: FilterBuilder::default(),
            row_hash: 0,
            row_cells: 0,
            prefixes: FilterBuilder::default(),
            path,
            options,
        })
    }

    /// Adds a cell, which comes after all others in store order.
    pub(crate) fn add(&mut self, cell: Cell<'_>) {
        let same_row = self.properties.cells > 0 && self.properties.last_row == cell.row;
        debug_assert!(
            self.block.is_empty() || self.block.get(self.block.len() - 1).cmp_place(&cell).is_lt(),
            "cells come in store order"
        );
        let size = self.block.data_bytes() + CELL_OVERHEAD_BYTES * self.block.len();
        let limit = self.options.storage.block_size as usize * if same_row { 2 } else { 1 };
        if size >= limit && !self.block.is_empty() {
            let last = self.block.get(self.block.len() - 1);
            let bound = UpperBound::between((last.row, last.qualifier), (cell.row, cell.qualifier));
            self.end_block(bound);
        }
        if !same_row {
            self.start_row(cell.row);
        }
        self.row_cells += 1;
        if self.options.storage.bloom == Bloom::RowCol {
            self.rows.add(column_hash(self.row_hash, cell.qualifier));
        }
        self.properties.count(&cell);
        self.block_data_bytes += cell.data_bytes() as u64;
        self.block.push(cell);
    }

    fn start_row(&mut self, row: &[u8]) {
        debug_assert!(self.properties.cells == 0 || self.properties.last_row.as_slice() < row, "rows ascend");
        self.end_row();
        if self.properties.cells == 0 {
            self.properties.first_row = row.to_vec();
        }
        self.properties.last_row.clear();
        self.properties.last_row.extend_from_slice(row);
        self.properties.rows += 1;
        if self.options.storage.bloom != Bloom::None {
            self.row_hash = self.rows.add_row(row);
        }
        if let Some(prefix) = self.options.prefix.as_ref().and_then(|prefix| row.get(..(prefix.length)(row)?)) {
            self.prefixes.add(hash_of(prefix));
        }
    }

    fn end_row(&mut self) {
        self.properties.longest_row_cells = self.properties.longest_row_cells.max(self.row_cells);
        self.row_cells = 0;
    }

    fn end_block(&mut self, bound: UpperBound) {
        self.payload.clear();
        data_block::encode(&self.block, &mut self.payload);
        let payload = std::mem::take(&mut self.payload);
        let at = self.seal(&payload, self.options.storage.compression);
        self.payload = payload;
        self.index.add(bound, at, self.block.len() as u64, self.block_data_bytes);
        self.properties.data_blocks += 1;
        self.block.clear();
        self.block_data_bytes = 0;
        if self.index.bytes() >= terrane_env::limit!("bytes of an index partition", PARTITION_BYTES, 32..=256) {
            self.end_partition();
        }
    }

    fn end_partition(&mut self) {
        if let Some((payload, bound, cells, data_bytes)) = self.index.finish() {
            self.partitions_bytes += payload.len();
            self.partitions.push(Partition { payload, bound, cells, data_bytes });
        }
    }

    /// Appends a block to the pending ones.
    fn seal(&mut self, payload: &[u8], compression: Compression) -> BlockAt {
        let offset = self.written + self.pending.len() as u64;
        self.sealer.seal(payload, compression, self.id, offset, &mut self.pending)
    }

    /// Bytes that wait to be written: from about 1 MiB on they are worth a write.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes what is pending.
    pub(crate) async fn write_pending(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all_at(&self.pending, self.written).await;
        written.map_err(Error::io(format!("write {}", self.path.display())))?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// The approximate length of the file if it were finished now.
    pub(crate) fn size_estimate(&self) -> u64 {
        let index = self.partitions_bytes + self.index.bytes();
        let gathered = self.block.data_bytes() + self.pending.len() + index + FOOTER_BYTES;
        self.written + gathered as u64 + self.rows.bytes() + self.prefixes.bytes()
    }

    /// Cells added so far.
    pub(crate) fn cells(&self) -> u64 {
        self.properties.cells
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Writes the rest and syncs the file. Its name is durable once the caller has synced the directory.
    ///
    /// A file without cells is an error of the caller, which should [`StoreFileWriter::abandon`] it instead.
    pub(crate) async fn finish(mut self) -> Result<StoreFileProperties, Error> {
        if self.properties.cells == 0 {
            let cause = std::io::Error::new(std::io::ErrorKind::InvalidInput, "a store file needs a cell");
            return Err(Error::io(format!("finish {}", self.path.display()))(cause));
        }
        self.end_row();
        self.end_block(UpperBound::end(&self.properties.last_row.clone()));
        self.end_partition();
        let data_end = self.written + self.pending.len() as u64;
        // Filters are read once, when the file is opened, and hardly compress.
        let filter = (!self.rows.is_empty()).then(|| self.rows.finish());
        let filter = filter.map(|payload| self.seal(&payload, Compression::None));
        let prefix_filter = (!self.prefixes.is_empty()).then(|| self.prefixes.finish());
        let prefix_filter = prefix_filter.map(|payload| self.seal(&payload, Compression::None));
        self.properties.prefix_id = prefix_filter.and(self.options.prefix.as_ref()).map(|prefix| prefix.id);
        let mut top = IndexBuilder::default();
        for partition in std::mem::take(&mut self.partitions) {
            let at = self.seal(&partition.payload, self.options.storage.compression);
            top.add(partition.bound, at, partition.cells, partition.data_bytes);
            self.properties.index_blocks += 1;
        }
        let (top, ..) = top.finish().expect("a file with a cell has a block, and so a partition");
        let top_index = self.seal(&top, Compression::None);
        let properties = self.properties.encode();
        let properties = self.seal(&properties, Compression::None);
        let footer = Footer { top_index, filter, prefix_filter, properties, data_end, id: self.id };
        self.pending.extend_from_slice(&footer.encode());
        self.write_pending().await?;
        if !terrane_env::planted!("a store file is not synced") {
            self.file.sync_all().await.map_err(Error::io(format!("sync {}", self.path.display())))?;
        }
        self.properties.size = self.written;
        Ok(self.properties)
    }

    /// Gives up the file and removes it.
    pub(crate) async fn abandon(self) -> Result<(), Error> {
        let Self { disk, path, file, .. } = self;
        drop(file);
        disk.remove_file(&path).await.map_err(Error::io(format!("remove {}", path.display())))
    }
}
