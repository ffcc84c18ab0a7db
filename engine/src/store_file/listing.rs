//! A store file taken apart for display: properties, index, cells.

use std::ops::ControlFlow;

use super::check::WHOLE_FILE;
use super::reader::StoreFile;
use crate::Error;
use crate::file_dump::{DumpedBlock, DumpedCell, FileDump, FileProperties};

impl StoreFile {
    /// The file with its first `blocks` blocks of data and `cells` cells. Blocks.
    pub(crate) fn listing(&self, blocks: usize, cells: usize) -> Result<FileDump, Error> {
        let mut dump = FileDump { properties: self.listed_properties(), blocks: Vec::new(), cells: Vec::new() };
        for partition in 0..self.top().len() {
            if dump.blocks.len() >= blocks {
                break;
            }
            let index = self.partition(partition, WHOLE_FILE)?;
            let listed = index.entries().iter().take(blocks - dump.blocks.len()).map(|entry| DumpedBlock {
                partition,
                offset: entry.at.offset,
                bytes: u64::from(entry.at.len),
                cells: entry.cells,
                data_bytes: entry.data_bytes,
                last_row: index.row(entry).to_vec(),
                last_qualifier: index.qualifier(entry).map(<[u8]>::to_vec),
            });
            dump.blocks.extend(listed);
        }
        if cells > 0 {
            self.each_cell(&mut |cell| {
                dump.cells.push(DumpedCell::of(cell));
                if dump.cells.len() < cells { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(dump)
    }

    fn listed_properties(&self) -> FileProperties {
        let said = self.properties();
        FileProperties {
            kind: "store file",
            id: said.id,
            format: said.format,
            bytes: said.size,
            first_row: said.first_row.clone(),
            last_row: said.last_row.clone(),
            rows: said.rows,
            cells: said.cells,
            deletes: said.deletes,
            longest_row_cells: said.longest_row_cells,
            timestamps: said.timestamps,
            sequences: said.sequences,
            data_bytes: said.data_bytes,
            data_blocks: said.data_blocks,
            index_blocks: said.index_blocks,
            storage: Some(said.storage),
            has_prefix_filter: said.prefix_id.is_some(),
        }
    }
}
