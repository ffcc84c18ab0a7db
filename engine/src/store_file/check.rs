//! Verifying a store file as a whole.
//!
//! Reads every byte from the disk, regardless of the cache, and compares everything that is stored twice: blocks with
//! the index, partitions with the top index, filters with rows, properties with counts.

use super::PrefixOf;
use super::block::{self, BlockAt};
use super::data_block::{DataBlock, Decoder, Next, Place};
use super::index::{Entry, IndexBlock};
use super::properties::StoreFileProperties;
use super::read_ahead::ReadAhead;
use super::reader::StoreFile;
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::source::{Reading, RowKey, hash_of};

/// How checks and dumps of whole files read blocks.
pub(super) const WHOLE_FILE: Reading =
    Reading { blocking: true, sequential: true, fills_cache: false, time_min: i64::MIN, prefix: None };

/// What a check of a file has gone over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckReport {
    pub(crate) file_bytes: u64,
    pub(crate) data_blocks: u64,
    pub(crate) index_blocks: u64,
    pub(crate) cells: u64,
    pub(crate) rows: u64,
}

/// The last cell, to compare the next one with.
#[derive(Default)]
struct PreviousCell {
    cell: Cells,
    /// The entry of the previous block, as its row and qualifier.
    bound: Option<(Vec<u8>, Option<Vec<u8>>)>,
    row_hash: u64,
    row_cells: u64,
}

impl StoreFile {
    /// Verifies the whole file; the first violation is the error. Blocks.
    ///
    /// The prefix filter can only be verified with the function that it was built with.
    pub(crate) fn check(&self, prefix: Option<&PrefixOf>) -> Result<CheckReport, Error> {
        // What was read on opening may have changed on disk since, so it is read again.
        let again =
            Self::open(self.shared(), self.id(), Some(self.origin()), self.properties().size, self.reads(), None)?;
        if again.properties() != self.properties() || again.footer != self.footer {
            return Err(self.damage(0, "the file is not the one that was opened"));
        }
        again.check_blocks(prefix)
    }

    fn check_blocks(&self, prefix: Option<&PrefixOf>) -> Result<CheckReport, Error> {
        let said = self.properties();
        let mut counted = StoreFileProperties::new(said.format, said.id, said.storage);
        counted.size = said.size;
        counted.prefix_id = said.prefix_id;
        let (mut last, mut ahead) = (PreviousCell::default(), ReadAhead::default());
        let mut data_end = 0;
        for (at, above) in self.top().entries().iter().enumerate() {
            let payload = self.fresh(above.at, None)?;
            let partition =
                IndexBlock::new(&payload, self.footer.data_end).map_err(|what| self.damage(above.at.offset, what))?;
            counted.index_blocks += 1;
            self.check_partition(at, above, &partition)?;
            for entry in partition.entries() {
                if entry.at.offset != data_end {
                    return Err(self.damage(above.at.offset, "the index leaves a gap between two blocks"));
                }
                data_end += u64::from(entry.at.len);
                counted.data_blocks += 1;
                self.check_data(&partition, entry, &mut last, &mut ahead, &mut counted, prefix)?;
            }
        }
        counted.longest_row_cells = counted.longest_row_cells.max(last.row_cells);
        if data_end != self.footer.data_end {
            return Err(self.damage(data_end, "the index does not name all blocks"));
        }
        if let Some(cell) = last.cell.iter().next() {
            counted.last_row = cell.row.to_vec();
        }
        if counted != *said {
            return Err(self.damage(self.footer.properties.offset, "the properties do not match the cells"));
        }
        Ok(CheckReport {
            file_bytes: said.size,
            data_blocks: counted.data_blocks,
            index_blocks: counted.index_blocks,
            cells: counted.cells,
            rows: counted.rows,
        })
    }

    /// Compares a partition with what the top index says of it.
    fn check_partition(&self, at: usize, above: &Entry, partition: &IndexBlock) -> Result<(), Error> {
        let (top, entries) = (self.top(), partition.entries());
        let cells = entries.iter().map(|entry| entry.cells).sum::<u64>();
        let bytes = entries.iter().map(|entry| entry.data_bytes).sum::<u64>();
        let last = partition.entry(partition.len() - 1);
        let same_bound = partition.row(last) == top.row(above) && partition.qualifier(last) == top.qualifier(above);
        if !same_bound || (cells, bytes) != (above.cells, above.data_bytes) {
            let what = format!("partition {at} of the index is not what the top index says");
            return Err(self.damage(above.at.offset, &what));
        }
        Ok(())
    }

    fn check_data(
        &self,
        partition: &IndexBlock,
        entry: &Entry,
        last: &mut PreviousCell,
        ahead: &mut ReadAhead,
        counted: &mut StoreFileProperties,
        prefix: Option<&PrefixOf>,
    ) -> Result<(), Error> {
        let damage = |what: &str| self.damage(entry.at.offset, what);
        let block = DataBlock::new(self.fresh(entry.at, Some(ahead))?).map_err(damage)?;
        let (mut decoder, mut cells, mut data_bytes) = (Decoder::default(), 0u64, 0u64);
        while decoder.next(&block).map_err(damage)? != Next::End {
            let cell = decoder.cell(&block);
            let place = Place { row: cell.row, qualifier: Some(cell.qualifier) };
            let before = last.cell.iter().next();
            if before.is_some_and(|before| before.cmp_place(&cell).is_ge()) {
                return Err(damage("cells are not in order"));
            }
            if partition.ends_before(entry, place) {
                return Err(damage("a cell is after the bound of its block in the index"));
            }
            if let Some((row, qualifier)) = &last.bound
                && (cell.row < row.as_slice()
                    || cell.row == row && qualifier.as_ref().is_none_or(|bound| cell.qualifier < bound.as_slice()))
            {
                return Err(damage("a cell is before the bound of the previous block in the index"));
            }
            if before.is_none_or(|before| before.row != cell.row) {
                self.check_row(&cell, last, counted, prefix).map_err(damage)?;
            }
            last.row_cells += 1;
            if !self.may_contain_column(last.row_hash, cell.qualifier) {
                return Err(damage("the filter denies a column that is present"));
            }
            counted.count(&cell);
            cells += 1;
            data_bytes += cell.data_bytes() as u64;
            last.cell.clear();
            // Its value is not compared.
            last.cell.push(cell.masked());
        }
        if cells != block.cells() as u64 || cells != entry.cells || data_bytes != entry.data_bytes {
            return Err(damage("a block has another number of cells than it or its index states"));
        }
        last.bound = Some((partition.row(entry).to_vec(), partition.qualifier(entry).map(<[u8]>::to_vec)));
        Ok(())
    }

    fn check_row(
        &self,
        cell: &Cell<'_>,
        last: &mut PreviousCell,
        counted: &mut StoreFileProperties,
        prefix: Option<&PrefixOf>,
    ) -> Result<(), &'static str> {
        counted.longest_row_cells = counted.longest_row_cells.max(last.row_cells);
        last.row_cells = 0;
        if counted.cells == 0 {
            counted.first_row = cell.row.to_vec();
        }
        counted.rows += 1;
        let key = RowKey::new(cell.row);
        last.row_hash = key.hash;
        if !self.may_contain(&key) {
            return Err("the filter denies a row that is present");
        }
        let head = prefix.and_then(|prefix| cell.row.get(..prefix(cell.row)?));
        if head.is_some_and(|head| self.prefix_filter().is_some_and(|filter| !filter.may_contain(hash_of(head)))) {
            return Err("the filter denies a prefix that is present");
        }
        Ok(())
    }

    /// The payload of a block as it is on disk now.
    pub(super) fn fresh(&self, at: BlockAt, ahead: Option<&mut ReadAhead>) -> Result<Vec<u8>, Error> {
        let unseal = |sealed: &[u8]| {
            block::unseal(sealed, self.origin(), at.offset).map_err(|what| self.damage(at.offset, what))
        };
        match ahead {
            Some(ahead) => {
                self.fill(ahead, at)?;
                unseal(ahead.get(at).ok_or_else(|| self.damage(at.offset, "a block lies beyond the data blocks"))?)
            }
            None => {
                let mut sealed = vec![0; at.len as usize];
                self.read(at.offset, &mut sealed)?;
                unseal(&sealed)
            }
        }
    }
}
