//! Walking the cells of a file forward: seek, next, and gathering a row.
//!
//! A [`Walk`] holds its current block and does not own the file: a get of a single row makes a short-lived one, a
//! cursor keeps one. It holds on to index partition and block, so that a seek to something near needs no cache lookup.

use std::sync::Arc;

use smallvec::SmallVec;
use terrane_types::QualifierRange;

use super::data_block::{DataBlock, Decoder, Next, Place};
use super::index::IndexBlock;
use super::read_ahead::ReadAhead;
use super::reader::StoreFile;
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::{ColumnSelection, Portion};
use crate::source::Reading;

/// Cells of other columns after which a wanted column is searched for instead of walked to.
const SKIPPED_MAX: usize = 16;

/// The columns wanted from a row; all, when none is named.
#[derive(Debug)]
pub(super) struct WantedColumns<'a> {
    /// Sorted; the empty qualifier is always among them.
    qualifiers: SmallVec<[&'a [u8]; 8]>,
    /// Sorted and disjoint.
    ranges: &'a [QualifierRange],
    all: bool,
    /// Those before this one have been passed.
    at: usize,
    /// The same of the ranges.
    range_at: usize,
    sought: ColumnSelection<'a>,
}

impl<'a> WantedColumns<'a> {
    pub(super) fn new(sought: ColumnSelection<'a>) -> Self {
        let mut qualifiers: SmallVec<[&[u8]; 8]> = SmallVec::new();
        if !sought.is_all() {
            qualifiers.push(&[]);
            qualifiers.extend(sought.qualifiers().iter().map(|column| &column[..]));
            qualifiers.dedup();
        }
        Self { qualifiers, ranges: sought.ranges(), all: sought.is_all(), at: 0, range_at: 0, sought }
    }

    /// Drops the single columns for which `keep` returns `false`; `false` when nothing is left.
    pub(super) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) -> bool {
        self.qualifiers.retain(|qualifier| keep(qualifier));
        self.all || !self.qualifiers.is_empty() || !self.ranges.is_empty()
    }

    /// The first of them in row order.
    pub(super) fn first(&self) -> &'a [u8] {
        self.next().unwrap_or_default()
    }

    /// Whether a column is wanted. Called in ascending order within a row.
    #[inline]
    pub(super) fn wants(&mut self, qualifier: &[u8]) -> bool {
        if self.all {
            return true;
        }
        while self.qualifiers.get(self.at).is_some_and(|wanted| *wanted < qualifier) {
            self.at += 1;
        }
        self.qualifiers.get(self.at).is_some_and(|wanted| *wanted == qualifier) || self.is_in_range(qualifier)
    }

    fn is_in_range(&mut self, qualifier: &[u8]) -> bool {
        let is_behind = |range: &QualifierRange| !range.end.is_empty() && range.end[..] <= *qualifier;
        while self.ranges.get(self.range_at).is_some_and(is_behind) {
            self.range_at += 1;
        }
        self.ranges.get(self.range_at).is_some_and(|range| range.start[..] <= *qualifier)
    }

    /// The next wanted column, after one that is not wanted.
    fn next(&self) -> Option<&'a [u8]> {
        let single = self.qualifiers.get(self.at).copied();
        let Some(range) = self.ranges.get(self.range_at) else { return single };
        Some(single.map_or(&range.start[..], |single| single.min(&range.start[..])))
    }
}

/// Walks the cells of a file.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The current partition, and its position in the top index.
    partition: Option<Arc<IndexBlock>>,
    partition_at: usize,
    /// The current block, and its position in the partition.
    block: Option<Arc<DataBlock>>,
    block_at: usize,
    decoder: Decoder,
    ahead: ReadAhead,
    /// The row being gathered, during a seek within it.
    gathered: Vec<u8>,
}

impl Walk {
    /// A walk that decodes rows into this buffer.
    pub(super) fn with_buffer(buffer: Vec<u8>) -> Self {
        let mut walk = Self::default();
        walk.decoder.row = buffer;
        walk
    }

    /// The buffer, for another walk.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.decoder.row
    }

    /// The row of the current cell.
    pub(super) fn at_row(&self) -> &[u8] {
        &self.decoder.row
    }

    /// The current cell, where the block shows that it is the last of its row.
    pub(super) fn single(&self) -> Option<Cell<'_>> {
        let block = self.block.as_ref()?;
        self.decoder.row_ends(block).then(|| self.decoder.cell(block))
    }

    /// The current cell.
    pub(super) fn at_cell(&self) -> Option<Cell<'_>> {
        self.block.as_ref().map(|block| self.decoder.cell(block))
    }

    /// Moves to the first cell of the next row: `false` at the end.
    pub(super) fn skip_row(&mut self, file: &StoreFile, reading: Reading) -> Result<bool, Error> {
        for _ in 0..=SKIPPED_MAX {
            match self.next(file, reading)? {
                Next::SameRow => {}
                Next::NewRow => return Ok(true),
                Next::End => return Ok(false),
            }
        }
        Ok(self.skip(file, None, reading)? != Next::End)
    }

    /// Moves to the first cell that is not before `place`, which is not before the current cell: `false` at the end.
    pub(super) fn seek(&mut self, file: &StoreFile, place: Place<'_>, reading: Reading) -> Result<bool, Error> {
        let near = match &self.partition {
            Some(partition) if self.block.is_some() => {
                let at = partition.find_from(self.block_at, place);
                (at < partition.len()).then_some((at - self.block_at, at))
            }
            _ => None,
        };
        match near {
            Some((0, _)) => {}
            Some((_, at)) => self.load(file, self.partition_at, at, reading)?,
            None => {
                let partition_at = file.top().find(place);
                if partition_at == file.top().len() {
                    self.block = None;
                    return Ok(false);
                }
                let partition = file.partition(partition_at, reading)?;
                let at = partition.find(place);
                if at == partition.len() {
                    let offset = file.top().entry(partition_at).at.offset;
                    return Err(file.damage(offset, "a partition of the index ends before its bound in the top index"));
                }
                self.partition = Some(partition);
                self.load(file, partition_at, at, reading)?;
            }
        }
        let Some(block) = &self.block else { return Ok(false) };
        let found = self.decoder.seek(block, place).map_err(|what| self.malformed(file, what))?;
        if found != Next::End {
            return Ok(true);
        }
        // The bound of the block is shortened: it may be above the block's last cell, and is below the next one's
        // first.
        self.decoder.row.clear();
        Ok(self.next_block(file, reading)? && self.next(file, reading)? != Next::End)
    }

    /// Moves to the next cell.
    #[inline]
    pub(super) fn next(&mut self, file: &StoreFile, reading: Reading) -> Result<Next, Error> {
        loop {
            let Some(block) = &self.block else { return Ok(Next::End) };
            match self.decoder.next(block) {
                Ok(Next::End) => {}
                Ok(next) => return Ok(next),
                Err(what) => return Err(self.malformed(file, what)),
            }
            if !self.next_block(file, reading)? {
                return Ok(Next::End);
            }
        }
    }

    /// Moves before the first cell of the next block: `false` when there is none.
    fn next_block(&mut self, file: &StoreFile, reading: Reading) -> Result<bool, Error> {
        let Some(partition) = &self.partition else { return Ok(false) };
        let (mut partition_at, mut block_at) = (self.partition_at, self.block_at + 1);
        if block_at == partition.len() {
            (partition_at, block_at) = (partition_at + 1, 0);
            if partition_at == file.top().len() {
                self.block = None;
                return Ok(false);
            }
            self.partition = Some(file.partition(partition_at, reading)?);
        }
        self.load(file, partition_at, block_at, reading)?;
        Ok(true)
    }

    /// Moves before the first cell of a block of the current partition.
    fn load(&mut self, file: &StoreFile, partition_at: usize, block_at: usize, reading: Reading) -> Result<(), Error> {
        let Some(partition) = &self.partition else { return Ok(()) };
        let at = partition.entry(block_at).at;
        self.block = Some(file.data(at, reading, Some(&mut self.ahead))?);
        (self.partition_at, self.block_at) = (partition_at, block_at);
        self.decoder.start();
        Ok(())
    }

    fn malformed(&self, file: &StoreFile, what: &str) -> Error {
        let offset = self.partition.as_ref().map_or(0, |partition| partition.entry(self.block_at).at.offset);
        file.damage(offset, what)
    }

    /// Appends what is wanted of one row, up to about `bytes_max` bytes. Returns where that ended; `None` where the
    /// file has no cells of the row.
    pub(super) fn row(
        &mut self,
        file: &StoreFile,
        row: &[u8],
        wanted: &mut WantedColumns<'_>,
        reading: Reading,
        bytes_max: usize,
        out: &mut Cells,
    ) -> Result<Option<Next>, Error> {
        let place = Place { row, qualifier: Some(wanted.first()) };
        if !self.seek(file, place, reading)? || self.at_row() != row {
            return Ok(None);
        }
        self.gather(file, wanted, reading, bytes_max, out).map(Some)
    }

    /// Appends what is wanted of the current row, and moves to the first cell of the next row: [`Next::NewRow`], or the
    /// end. After a portion it stays at the next cell of the row: [`Next::SameRow`].
    pub(super) fn gather(
        &mut self,
        file: &StoreFile,
        wanted: &mut WantedColumns<'_>,
        reading: Reading,
        bytes_max: usize,
        out: &mut Cells,
    ) -> Result<Next, Error> {
        let (before, mut portion) = (out.len(), Portion::begin(out, bytes_max, wanted.sought));
        let mut skipped = 0;
        loop {
            let Some(block) = &self.block else { return Ok(Next::End) };
            let cell = self.decoder.cell(block);
            let next = if wanted.wants(cell.qualifier) {
                skipped = 0;
                if out.len() == before {
                    out.push(cell)
                } else {
                    out.push_in_row(cell)
                }
                let next = self.next(file, reading)?;
                if next == Next::SameRow && portion.is_full(out) {
                    return Ok(Next::SameRow);
                }
                next
            } else if skipped < SKIPPED_MAX {
                skipped += 1;
                self.next(file, reading)?
            } else {
                skipped = 0;
                self.skip(file, wanted.next(), reading)?
            };
            if next != Next::SameRow {
                return Ok(next);
            }
        }
    }

    /// Moves, within the current row, to the first cell at or after a column, unless it is there already.
    pub(super) fn seek_column(&mut self, file: &StoreFile, qualifier: &[u8], reading: Reading) -> Result<Next, Error> {
        match self.at_cell() {
            None => Ok(Next::End),
            Some(cell) if cell.qualifier >= qualifier => Ok(Next::SameRow),
            Some(_) => self.skip(file, Some(qualifier), reading),
        }
    }

    /// Moves to a column of the current row, or past the row.
    fn skip(&mut self, file: &StoreFile, qualifier: Option<&[u8]>, reading: Reading) -> Result<Next, Error> {
        let mut row = std::mem::take(&mut self.gathered);
        row.clear();
        row.extend_from_slice(&self.decoder.row);
        let found = self.seek(file, Place { row: &row, qualifier }, reading);
        let same = self.decoder.row == row;
        self.gathered = row;
        Ok(match found? {
            false => Next::End,
            true if same => Next::SameRow,
            true => Next::NewRow,
        })
    }
}
