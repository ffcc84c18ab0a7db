//! Going over a store file to say what is in it: samples of its rows, and what a person wants to see.

use std::fmt::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::check::WHOLE_FILE;
use super::data_block::{DataBlock, Decoder, Next, Place};
use super::index::IndexBlock;
use super::reader::Table;
use super::walk::Walk;
use crate::Error;
use crate::cells::Cell;

/// How much of a file is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpLimits {
    /// Data blocks listed.
    pub(crate) blocks: usize,
    /// Cells shown, from the first on.
    pub(crate) cells: usize,
    /// Bytes shown of each row, qualifier and value.
    pub(crate) bytes: usize,
}

impl Table {
    /// About `count` rows at about equal distances, the first row among them, sorted, each with the bytes of data from it to
    /// the next: all of them together are all bytes of the file. Blocks, for about as many reads.
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
        // With many partitions, those are fine enough.
        let partitions: Vec<Option<Arc<IndexBlock>>> = if self.top().len() >= 4 * count {
            vec![None]
        } else {
            (0..self.top().len()).map(|at| self.partition(at, WHOLE_FILE).map(Some)).collect::<Result<_, _>>()?
        };
        for partition in partitions {
            let index = partition.as_deref().unwrap_or(self.top());
            for entry in index.entries() {
                // Not within a row that goes on: its bytes are its own.
                if gathered >= step && !goes_on {
                    gathered = 0;
                    // What follows the bound of the block before this one begins here.
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

    /// Calls `with` for all cells in order, until it breaks off. Blocks.
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

    /// Writes properties, index and cells as text. Blocks.
    pub(crate) fn dump(&self, out: &mut String, limits: DumpLimits) -> Result<(), Error> {
        self.dump_properties(out, limits);
        let mut blocks = 0;
        for (at, above) in self.top().entries().iter().enumerate() {
            if blocks >= limits.blocks {
                break;
            }
            line(out, format_args!("partition {at} at {}: {} cells", above.at.offset, above.cells));
            let partition = self.partition(at, WHOLE_FILE)?;
            for entry in partition.entries().iter().take(limits.blocks - blocks) {
                blocks += 1;
                let row = Shown(partition.row(entry), limits.bytes);
                let qualifier = partition.qualifier(entry).map(|qualifier| Shown(qualifier, limits.bytes));
                let up_to = qualifier.map_or_else(String::new, |qualifier| format!(" column {qualifier}, and on"));
                line(
                    out,
                    format_args!(
                        "  block at {}: {} bytes, {} cells, {} bytes of data, up to row {row}{up_to}",
                        entry.at.offset, entry.at.len, entry.cells, entry.data_bytes
                    ),
                );
            }
        }
        let mut cells = 0;
        if limits.cells == 0 {
            return Ok(());
        }
        self.each_cell(&mut |cell| {
            cells += 1;
            line(
                out,
                format_args!(
                    "{} {} @{} {:?} sequence {}.{} {}{}",
                    Shown(cell.row, limits.bytes),
                    Shown(cell.qualifier, limits.bytes),
                    cell.timestamp,
                    cell.kind,
                    cell.sequence,
                    cell.position,
                    Shown(cell.value, limits.bytes),
                    if cell.tags.is_empty() { "" } else { " with tags" },
                ),
            );
            if cells >= limits.cells { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn dump_properties(&self, out: &mut String, limits: DumpLimits) {
        let said = self.properties();
        line(out, format_args!("store file {}, format {}, {} bytes", said.id, said.format, said.size));
        let (first, last) = (Shown(&said.first_row, limits.bytes), Shown(&said.last_row, limits.bytes));
        line(out, format_args!("rows: {} from {first} to {last}", said.rows));
        line(
            out,
            format_args!(
                "cells: {}, of them {} delete; at most {} in a row; {} bytes of data",
                said.cells, said.deletes, said.longest_row_cells, said.data_bytes
            ),
        );
        line(out, format_args!("timestamps: {} to {}", said.timestamps.0, said.timestamps.1));
        line(out, format_args!("sequence numbers: {} to {}", said.sequences.0, said.sequences.1));
        let storage = said.storage;
        line(
            out,
            format_args!(
                "compression {}, bloom {}, block_size {}, in_memory {}",
                storage.compression, storage.bloom, storage.block_size, storage.in_memory
            ),
        );
        line(
            out,
            format_args!(
                "blocks: {} of cells up to {}, {} of the index",
                said.data_blocks, self.footer.data_end, said.index_blocks
            ),
        );
    }
}

fn line(out: &mut String, text: fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string does not fail");
}

/// Bytes as people read them, cut to a length.
struct Shown<'a>(&'a [u8], usize);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(self.1)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.0.len() { write!(f, " and {} bytes", self.0.len() - shown.len()) } else { Ok(()) }
    }
}
