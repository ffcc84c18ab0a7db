//! Walking a whole store file: samples of its rows, and its cells one by one.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::check::WHOLE_FILE;
use super::data_block::{DataBlock, Decoder, Next, Place};
use super::index::IndexBlock;
use super::reader::StoreFile;
use super::walk::Walk;
use crate::Error;
use crate::cells::Cell;

impl StoreFile {
    /// About `count` rows at about equal distances, sorted, including the first row, each with the bytes of data from
    /// it to the next; together these are all bytes of the file. Blocks, for about as many reads.
    pub(crate) fn samples(&self, count: usize) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let total = self.properties().data_bytes;
        let step = (total / count.max(1) as u64).max(1);
        if self.properties().data_blocks <= count as u64 {
            return self.samples_of_cells(step);
        }
        let mut samples = vec![(self.properties().first_row.clone(), 0)];
        let mut walk = Walk::default();
        let mut gathered = 0;
        let (mut bound, mut goes_on) = (Vec::new(), false);
        // With many partitions, their bounds are fine enough.
        let partitions: Vec<Option<Arc<IndexBlock>>> = if self.top().len() >= 4 * count {
            vec![None]
        } else {
            (0..self.top().len()).map(|at| self.partition(at, WHOLE_FILE).map(Some)).collect::<Result<_, _>>()?
        };
        for partition in partitions {
            let index = partition.as_deref().unwrap_or(self.top());
            for entry in index.entries() {
                // Not within a row that continues: its bytes are its own.
                if gathered >= step && !goes_on {
                    gathered = 0;
                    // What follows the bound of the previous block begins here.
                    if walk.seek(self, Place::after(&bound), WHOLE_FILE)? {
                        samples.push((walk.at_row().to_vec(), 0));
                    }
                }
                gathered += entry.data_bytes;
                if let Some((_, bytes)) = samples.last_mut() {
                    *bytes += entry.data_bytes;
                }
                goes_on = index.qualifier(entry).is_some();
                bound.clear();
                bound.extend_from_slice(index.row(entry));
            }
        }
        Ok(samples)
    }

    fn samples_of_cells(&self, step: u64) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
        self.each_cell(&mut |cell| {
            let full = samples.last().is_none_or(|(row, bytes)| *bytes >= step && row != cell.row);
            if full {
                samples.push((cell.row.to_vec(), 0));
            }
            if let Some((_, bytes)) = samples.last_mut() {
                *bytes += cell.data_bytes() as u64;
            }
            ControlFlow::Continue(())
        })?;
        Ok(samples)
    }

    /// Calls `with` for all cells in order, until it breaks. Blocks.
    pub(crate) fn each_cell(&self, with: &mut dyn FnMut(Cell<'_>) -> ControlFlow<()>) -> Result<(), Error> {
        let mut ahead = Default::default();
        let mut decoder = Decoder::default();
        for at in 0..self.top().len() {
            for entry in self.partition(at, WHOLE_FILE)?.entries() {
                let damage = |what: &str| self.damage(entry.at.offset, what);
                let block = DataBlock::new(self.fresh(entry.at, Some(&mut ahead))?).map_err(damage)?;
                decoder.start();
                while decoder.next(&block).map_err(damage)? != Next::End {
                    if with(decoder.cell(&block)).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}
