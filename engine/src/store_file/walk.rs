//! Going over the cells of a file forward: seek, next, and gathering a row.
//!
//! A [`Walk`] holds the block it is in and does not own the table: gets of single rows make one for as long as they last,
//! cursors keep one. It holds on to index partition and block, so that a seek to what is near costs no look in the cache.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::data_block::{DataBlock, Decoder, Next, Place};
use super::index::IndexBlock;
use super::read_ahead::ReadAhead;
use super::reader::StoreFile;
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::source::Reading;

/// Cells of other columns after which a wanted column is sought instead of waited for.
const SKIPPED_MAX: usize = 16;

/// The columns that are wanted of a row; with none named, all.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// Sorted; the empty qualifier is always among them.
    qualifiers: SmallVec<[&'a [u8]; 8]>,
    all: bool,
    /// Those before this one have passed.
    at: usize,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(columns: &'a [Bytes]) -> Self {
        let mut qualifiers: SmallVec<[&[u8]; 8]> = SmallVec::new();
        if !columns.is_empty() {
            qualifiers.push(&[]);
            qualifiers.extend(columns.iter().map(|column| &column[..]));
            if !qualifiers.is_sorted() {
                qualifiers.sort_unstable();
            }
            qualifiers.dedup();
        }
        Self { qualifiers, all: columns.is_empty(), at: 0 }
    }

    /// Drops the columns that `keep` says no to; `false` when that leaves none.
    pub(super) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) -> bool {
        self.qualifiers.retain(|qualifier| keep(qualifier));
        self.all || !self.qualifiers.is_empty()
    }

    /// Where the first of them is in its row.
    pub(super) fn first(&self) -> &'a [u8] {
        self.qualifiers.first().copied().unwrap_or_default()
    }

    /// Whether a column is wanted. Asked in ascending order within a row.
    #[inline]
    pub(super) fn wants(&mut self, qualifier: &[u8]) -> bool {
        if self.all {
            return true;
        }
        while self.qualifiers.get(self.at).is_some_and(|wanted| *wanted < qualifier) {
            self.at += 1;
        }
        self.qualifiers.get(self.at).is_some_and(|wanted| *wanted == qualifier)
    }

    /// The next column that is wanted, after one that is not.
    fn next(&self) -> Option<&'a [u8]> {
        self.qualifiers.get(self.at).copied()
    }
}

/// Goes over the cells of a file.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The partition at hand, and its place in the top index.
    partition: Option<Arc<IndexBlock>>,
    partition_at: usize,
    /// The block at hand, and its place in the partition.
    block: Option<Arc<DataBlock>>,
    block_at: usize,
    decoder: Decoder,
    ahead: ReadAhead,
    /// The row that is gathered, while a seek within it is under way.
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

    /// The row of the cell at hand.
    pub(super) fn at_row(&self) -> &[u8] {
        &self.decoder.row
    }

    /// The cell at hand, where the block tells that it is the last of its row.
    pub(super) fn lone(&self) -> Option<Cell<'_>> {
        let block = self.block.as_ref()?;
        self.decoder.row_ends(block).then(|| self.decoder.cell(block))
    }

    /// The cell at hand.
    pub(super) fn at_cell(&self) -> Option<Cell<'_>> {
        self.block.as_ref().map(|block| self.decoder.cell(block))
    }

    /// Goes to the first cell of the next row: `false` at the end.
    pub(super) fn skip_row(&mut self, table: &StoreFile, reading: Reading) -> Result<bool, Error> {
        for _ in 0..=SKIPPED_MAX {
            match self.next(table, reading)? {
                Next::SameRow => {}
                Next::NewRow => return Ok(true),
                Next::End => return Ok(false),
            }
        }
        Ok(self.skip(table, None, reading)? != Next::End)
    }

    /// Goes to the first cell that is not before `place`, which is not before the cell at hand: `false` at the end.
    pub(super) fn seek(&mut self, table: &StoreFile, place: Place<'_>, reading: Reading) -> Result<bool, Error> {
        let near = match &self.partition {
            Some(partition) if self.block.is_some() => {
                let at = partition.find_from(self.block_at, place);
                (at < partition.len()).then_some((at - self.block_at, at))
            }
            _ => None,
        };
        match near {
            Some((0, _)) => {}
            Some((_, at)) => self.load(table, self.partition_at, at, reading)?,
            None => {
                let partition_at = table.top().find(place);
                if partition_at == table.top().len() {
                    self.block = None;
                    return Ok(false);
                }
                let partition = table.partition(partition_at, reading)?;
                let at = partition.find(place);
                if at == partition.len() {
                    let offset = table.top().entry(partition_at).at.offset;
                    return Err(table.damage(offset, "a partition of the index ends before the index says"));
                }
                self.partition = Some(partition);
                self.load(table, partition_at, at, reading)?;
            }
        }
        let Some(block) = &self.block else { return Ok(false) };
        let found = self.decoder.seek(block, place).map_err(|what| self.malformed(table, what))?;
        if found != Next::End {
            return Ok(true);
        }
        // The bound of the block is shortened: it may be above the block's last cell, and is below the next one's first.
        self.decoder.row.clear();
        Ok(self.next_block(table, reading)? && self.next(table, reading)? != Next::End)
    }

    /// Goes to the next cell.
    #[inline]
    pub(super) fn next(&mut self, table: &StoreFile, reading: Reading) -> Result<Next, Error> {
        loop {
            let Some(block) = &self.block else { return Ok(Next::End) };
            match self.decoder.next(block) {
                Ok(Next::End) => {}
                Ok(next) => return Ok(next),
                Err(what) => return Err(self.malformed(table, what)),
            }
            if !self.next_block(table, reading)? {
                return Ok(Next::End);
            }
        }
    }

    /// Goes before the first cell of the next block: `false` when there is none.
    fn next_block(&mut self, table: &StoreFile, reading: Reading) -> Result<bool, Error> {
        let Some(partition) = &self.partition else { return Ok(false) };
        let (mut partition_at, mut block_at) = (self.partition_at, self.block_at + 1);
        if block_at == partition.len() {
            (partition_at, block_at) = (partition_at + 1, 0);
            if partition_at == table.top().len() {
                self.block = None;
                return Ok(false);
            }
            self.partition = Some(table.partition(partition_at, reading)?);
        }
        self.load(table, partition_at, block_at, reading)?;
        Ok(true)
    }

    /// Goes before the first cell of a block of the partition at hand.
    fn load(&mut self, table: &StoreFile, partition_at: usize, block_at: usize, reading: Reading) -> Result<(), Error> {
        let Some(partition) = &self.partition else { return Ok(()) };
        let at = partition.entry(block_at).at;
        self.block = Some(table.data(at, reading, Some(&mut self.ahead))?);
        (self.partition_at, self.block_at) = (partition_at, block_at);
        self.decoder.start();
        Ok(())
    }

    fn malformed(&self, table: &StoreFile, what: &str) -> Error {
        let offset = self.partition.as_ref().map_or(0, |partition| partition.entry(self.block_at).at.offset);
        table.damage(offset, what)
    }

    /// Appends what is wanted of one row, up to about `bytes_max` bytes. Answers where that ended; `None` where the file
    /// has no cells of the row.
    pub(super) fn row(
        &mut self,
        table: &StoreFile,
        row: &[u8],
        wanted: &mut Wanted<'_>,
        reading: Reading,
        bytes_max: usize,
        out: &mut Cells,
    ) -> Result<Option<Next>, Error> {
        let place = Place { row, qualifier: Some(wanted.first()) };
        if !self.seek(table, place, reading)? || self.at_row() != row {
            return Ok(None);
        }
        self.gather(table, wanted, reading, bytes_max, out).map(Some)
    }

    /// Appends what is wanted of the row at hand, and goes to the first cell of the next row: [`Next::NewRow`], or the end.
    /// Once about `bytes_max` bytes were appended it stays at the next cell of the row: [`Next::SameRow`].
    pub(super) fn gather(
        &mut self,
        table: &StoreFile,
        wanted: &mut Wanted<'_>,
        reading: Reading,
        bytes_max: usize,
        out: &mut Cells,
    ) -> Result<Next, Error> {
        let (before, mark) = (out.len(), out.mark());
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
                let next = self.next(table, reading)?;
                if next == Next::SameRow && out.has_grown(mark, bytes_max) {
                    return Ok(Next::SameRow);
                }
                next
            } else if skipped < SKIPPED_MAX {
                skipped += 1;
                self.next(table, reading)?
            } else {
                skipped = 0;
                self.skip(table, wanted.next(), reading)?
            };
            if next != Next::SameRow {
                return Ok(next);
            }
        }
    }

    /// Goes on, within the row at hand, to the first cell of a column or behind it, unless it is there.
    pub(super) fn seek_column(&mut self, table: &StoreFile, qualifier: &[u8], reading: Reading) -> Result<Next, Error> {
        match self.at_cell() {
            None => Ok(Next::End),
            Some(cell) if cell.qualifier >= qualifier => Ok(Next::SameRow),
            Some(_) => self.skip(table, Some(qualifier), reading),
        }
    }

    /// Goes on to a column of the row at hand, or behind the row.
    fn skip(&mut self, table: &StoreFile, qualifier: Option<&[u8]>, reading: Reading) -> Result<Next, Error> {
        let mut row = std::mem::take(&mut self.gathered);
        row.clear();
        row.extend_from_slice(&self.decoder.row);
        let found = self.seek(table, Place { row: &row, qualifier }, reading);
        let same = self.decoder.row == row;
        self.gathered = row;
        Ok(match found? {
            false => Next::End,
            true if same => Next::SameRow,
            true => Next::NewRow,
        })
    }
}
