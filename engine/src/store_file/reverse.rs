//! A cursor over the rows of a file, last to first.
//!
//! Cells can only be decoded forward, starting at a restart. So a block is decoded restart by restart from its end, and
//! the decoded cells are kept as slots that refer to the block. While a row extends further back than the cells decoded
//! so far, the number of restarts decoded doubles: a short row costs one more, and a long one few copies. If a row
//! begins in an earlier block (the index says so without reading it), a few blocks are gathered back to its beginning.
//! A longer row, and single columns, are walked forward by a [`Walk`] from the row's beginning, part by part.

use std::sync::Arc;

use super::data_block::{DataBlock, Decoder, Next, Parts, Place, RESTART_INTERVAL};
use super::index::IndexBlock;
use super::read_ahead::ReadAhead;
use super::reader::StoreFile;
use super::walk::{Walk, WantedColumns};
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading};

/// Bytes of blocks that are kept while a row is gathered back to its beginning: a longer row is walked forward.
const GATHERED_BYTES_MAX: usize = 256 << 10;

/// A decoded cell.
#[derive(Clone, Copy, Debug)]
struct Slot {
    row_at: u32,
    row_len: u32,
    parts: Parts,
}

/// Moves backward. At a row, the last slot is the row's last cell.
pub(super) struct ReverseCursor {
    file: Arc<StoreFile>,
    reading: Reading,
    /// The first row within the bounds.
    start: Vec<u8>,
    at_row: bool,
    partition: Option<Arc<IndexBlock>>,
    partition_at: usize,
    block: Option<Arc<DataBlock>>,
    block_at: usize,
    /// The restart that the slots begin with; earlier ones are not decoded yet.
    low: usize,
    slots: Vec<Slot>,
    /// The rows that slots refer to.
    rows: Vec<u8>,
    decoder: Decoder,
    ahead: ReadAhead,
    /// Walks forward over the current row, once some of it was taken: the slots still say which row that is.
    walk: Option<Box<Walk>>,
}

impl ReverseCursor {
    pub(super) fn open(file: Arc<StoreFile>, bounds: &RowRange, reading: Reading) -> Result<Self, Error> {
        let properties = file.properties();
        let inside = !bounds.is_empty() && bounds.meets(&properties.first_row, &properties.last_row);
        let worth = inside && file.covers(reading.time_min);
        let last_row = properties.last_row.clone();
        let mut cursor = Self {
            file,
            reading,
            start: bounds.start.clone(),
            at_row: false,
            partition: None,
            partition_at: 0,
            block: None,
            block_at: 0,
            low: 0,
            slots: Vec::new(),
            rows: Vec::new(),
            decoder: Decoder::default(),
            ahead: ReadAhead::default(),
            walk: None,
        };
        if worth {
            let end = if bounds.end.is_empty() { Place::after(&last_row) } else { Place::row(&bounds.end) };
            cursor.seek_before(end)?;
        }
        Ok(cursor)
    }

    fn is_inside(&self, row: &[u8]) -> bool {
        self.start.is_empty() || row >= self.start.as_slice()
    }

    fn slot_row(&self, slot: &Slot) -> &[u8] {
        &self.rows[slot.row_at as usize..][..slot.row_len as usize]
    }

    /// Moves to the last cell before `place`, which is not after the current cell.
    fn seek_before(&mut self, place: Place<'_>) -> Result<(), Error> {
        self.at_row = false;
        if !self.is_in_block(place) {
            let top = self.file.top();
            // Past the last block, take the last block.
            let partition_at = top.find(place).min(top.len() - 1);
            let partition = self.file.partition(partition_at, self.reading)?;
            let block_at = partition.find(place).min(partition.len() - 1);
            self.partition = Some(partition);
            self.load(partition_at, block_at)?;
        }
        let Some(block) = self.block.clone() else { return Ok(()) };
        // The cells before the place, in the restart that the place is in.
        let low = block.restarts_before(place).map_err(|what| self.malformed(what))?;
        self.slots.clear();
        self.rows.clear();
        self.low = low;
        if low > 0 {
            self.decode(low - 1)?;
            let keep = self.slots.partition_point(|slot| {
                place
                    .is_after(&self.rows[slot.row_at as usize..][..slot.row_len as usize], block.qualifier(&slot.parts))
            });
            self.slots.truncate(keep);
        }
        self.find_row()
    }

    /// Whether the last cell before `place` is in the current block, or before all of its cells.
    fn is_in_block(&self, place: Place<'_>) -> bool {
        let (Some(partition), Some(_)) = (&self.partition, &self.block) else { return false };
        match self.block_at.checked_sub(1) {
            Some(before) => partition.ends_before(partition.entry(before), place),
            None => match self.partition_at.checked_sub(1) {
                Some(before) => self.file.top().ends_before(self.file.top().entry(before), place),
                None => true,
            },
        }
    }

    /// Loads a block of the current partition, with nothing of it decoded.
    fn load(&mut self, partition_at: usize, block_at: usize) -> Result<(), Error> {
        let Some(partition) = &self.partition else { return Ok(()) };
        let at = partition.entry(block_at).at;
        let block = self.file.data(at, self.reading, Some(&mut self.ahead))?;
        self.low = block.restarts();
        self.block = Some(block);
        (self.partition_at, self.block_at) = (partition_at, block_at);
        self.slots.clear();
        self.rows.clear();
        Ok(())
    }

    /// Loads the previous block; `false` when there is none.
    fn previous_block(&mut self) -> Result<bool, Error> {
        if let Some(before) = self.block_at.checked_sub(1) {
            self.load(self.partition_at, before)?;
            return Ok(true);
        }
        let Some(before) = self.partition_at.checked_sub(1) else { return Ok(false) };
        let partition = self.file.partition(before, self.reading)?;
        let last = partition.len() - 1;
        self.partition = Some(partition);
        self.load(before, last)?;
        Ok(true)
    }

    /// Decodes the cells from the restart `from` to where the slots begin, and puts them before those.
    fn decode(&mut self, from: usize) -> Result<(), Error> {
        let Some(block) = self.block.clone() else { return Ok(()) };
        // Mostly there are none, and the slots keep their capacity.
        let later = if self.slots.is_empty() { Vec::new() } else { std::mem::take(&mut self.slots) };
        if later.is_empty() {
            self.rows.clear();
        }
        if self.slots.capacity() == 0 {
            self.slots.reserve((self.low - from) * RESTART_INTERVAL + later.len());
        }
        let (low, restarts) = (self.low, block.restarts());
        self.decoder.row.clear();
        self.decoder.start_at(&block, from);
        let mut row = (0, 0);
        while low == restarts || !self.decoder.is_at(&block, low) {
            match self.decoder.next(&block).map_err(|what| self.malformed(what))? {
                Next::End => break,
                Next::NewRow => {
                    row = (self.rows.len() as u32, self.decoder.row.len() as u32);
                    if self.rows.capacity() == 0 {
                        self.rows.reserve(RESTART_INTERVAL * self.decoder.row.len());
                    }
                    self.rows.extend_from_slice(&self.decoder.row);
                }
                Next::SameRow => {}
            }
            self.slots.push(Slot { row_at: row.0, row_len: row.1, parts: self.decoder.parts });
        }
        self.slots.extend(later);
        self.low = from;
        Ok(())
    }

    /// Makes sure that there is a slot, going back as far as needed, and that its row is within the bounds.
    fn find_row(&mut self) -> Result<(), Error> {
        while self.slots.is_empty() {
            if let Some(before) = self.low.checked_sub(1) {
                self.decode(before)?;
            } else if !self.previous_block()? {
                self.at_row = false;
                return Ok(());
            }
        }
        self.at_row = self.slots.last().is_some_and(|slot| self.is_inside(self.slot_row(slot)));
        Ok(())
    }

    /// The first slot of the current row.
    fn row_start(&self) -> usize {
        let Some(last) = self.slots.last() else { return 0 };
        let row = self.slot_row(last);
        let of_row = |slot: &&Slot| slot.row_at == last.row_at || self.slot_row(slot) == row;
        self.slots.len() - self.slots.iter().rev().take_while(of_row).count()
    }

    /// Whether the row of the first cell of the current block begins in an earlier block.
    fn begins_before(&self) -> bool {
        if let Some(before) = self.block_at.checked_sub(1) {
            return self.partition.as_ref().is_some_and(|index| index.qualifier(index.entry(before)).is_some());
        }
        let top = self.file.top();
        self.partition_at.checked_sub(1).is_some_and(|before| top.qualifier(top.entry(before)).is_some())
    }

    /// Appends the cells of the current row; returns whether that is all of it. What a few blocks hold of a row is one
    /// part, after which nothing of the row is left.
    fn gather(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        if self.walk.is_some() {
            return self.append_rest(sought, bytes_max, out);
        }
        // The parts of the row in later blocks, the last block first.
        let mut later: Vec<(Arc<DataBlock>, Vec<Slot>)> = Vec::new();
        let mut later_bytes = 0;
        let first = loop {
            let mut first = self.row_start();
            let mut restarts = 1;
            while first == 0 && self.low > 0 {
                self.decode(self.low.saturating_sub(restarts))?;
                first = self.row_start();
                restarts *= 2;
            }
            if first > 0 || !self.begins_before() {
                break first;
            }
            let Some(block) = self.block.clone() else { return Ok(true) };
            later_bytes += block.memory_bytes();
            // Columns are searched for from the row's beginning, instead of reading all of it.
            if !sought.is_all() || later_bytes >= bytes_max.min(GATHERED_BYTES_MAX) {
                self.walk = Some(self.walk_of_row()?);
                return self.append_rest(sought, bytes_max, out);
            }
            later.push((block, std::mem::take(&mut self.slots)));
            if !self.previous_block()? {
                return Err(self.malformed("a row begins before the first block"));
            }
            self.decode(self.low - 1)?;
        };
        let Some(block) = &self.block else { return Ok(true) };
        let row = self.slots.last().map_or(&[][..], |slot| self.slot_row(slot));
        let of_row = [(block, &self.slots[first..])].into_iter();
        let of_row = of_row.chain(later.iter().rev().map(|(block, slots)| (block, slots.as_slice())));
        let mut wanted = WantedColumns::new(sought);
        let before = out.len();
        for (block, slots) in of_row {
            for slot in slots {
                let cell = block.cell(row, &slot.parts);
                if wanted.wants(cell.qualifier) {
                    if out.len() == before { out.push(cell) } else { out.push_in_row(cell) }
                }
            }
        }
        self.slots.truncate(first);
        self.find_row()?;
        Ok(true)
    }

    /// A walk at the beginning of the current row.
    fn walk_of_row(&self) -> Result<Box<Walk>, Error> {
        let row = self.row_at_hand();
        let mut walk = Box::<Walk>::default();
        if !walk.seek(&self.file, Place::row(&row), self.reading)? || walk.at_row() != row {
            return Err(self.malformed("a row is no longer where it was found"));
        }
        Ok(walk)
    }

    /// Appends what follows of a row that is walked forward.
    fn append_rest(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        let Some(walk) = &mut self.walk else { return Ok(true) };
        let mut wanted = WantedColumns::new(sought);
        if walk.gather(&self.file, &mut wanted, self.reading, bytes_max, out)? == Next::SameRow {
            self.at_row = true;
            return Ok(false);
        }
        self.leave_row()?;
        Ok(true)
    }

    /// Moves to the last cell before the current row, which the index finds.
    fn leave_row(&mut self) -> Result<(), Error> {
        self.walk = None;
        let row = self.row_at_hand();
        self.seek_before(Place::row(&row))
    }

    fn row_at_hand(&self) -> Vec<u8> {
        self.slots.last().map_or_else(Vec::new, |slot| self.slot_row(slot).to_vec())
    }

    fn malformed(&self, what: &str) -> Error {
        let offset = self.partition.as_ref().map_or(0, |partition| partition.entry(self.block_at).at.offset);
        self.file.damage(offset, what)
    }
}

impl Cursor for ReverseCursor {
    fn row(&self) -> Option<&[u8]> {
        self.slots.last().filter(|_| self.at_row).map(|slot| self.slot_row(slot))
    }

    fn single(&self) -> Option<Cell<'_>> {
        let [.., above, last] = self.slots.as_slice() else { return None };
        let block = self.block.as_ref().filter(|_| self.at_row)?;
        let row = self.slot_row(last);
        // The slots of one row may name it twice, where it continues after a restart.
        (above.row_at != last.row_at && self.slot_row(above) != row).then(|| block.cell(row, &last.parts))
    }

    fn first(&self) -> Option<Cell<'_>> {
        let block = self.block.as_ref().filter(|_| self.at_row)?;
        let start = self.row_start();
        // The first slot's row may begin before what is decoded.
        let first = self.slots.get(start).filter(|_| start > 0)?;
        Some(block.cell(self.slot_row(first), &first.parts))
    }

    fn skip(&mut self) -> Result<(), Error> {
        if !self.at_row {
            return Ok(());
        }
        // Exhausted, unless everything succeeds.
        self.at_row = false;
        if self.walk.is_some() {
            return self.leave_row();
        }
        let mut start = self.row_start();
        if start > 0 {
            self.slots.truncate(start);
            return self.find_row();
        }
        // What is decoded next may belong to the same row.
        let row = self.row_at_hand();
        while start == 0 {
            if self.low == 0 && self.begins_before() {
                return self.seek_before(Place::row(&row));
            }
            self.slots.clear();
            self.find_row()?;
            if !self.at_row || self.slots.last().is_none_or(|slot| self.slot_row(slot) != row) {
                return Ok(());
            }
            self.at_row = false;
            start = self.row_start();
        }
        self.slots.truncate(start);
        self.find_row()
    }

    fn take(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        if !self.at_row {
            return Ok(true);
        }
        // Exhausted, unless everything succeeds.
        self.at_row = false;
        let mark = out.mark();
        let gathered = self.gather(sought, bytes_max, out);
        if gathered.is_err() {
            self.at_row = false;
            out.rewind(mark);
        }
        gathered
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        if !self.at_row {
            return Ok(());
        }
        self.at_row = false;
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => self.walk_of_row()?,
        };
        if walk.seek_column(&self.file, qualifier, self.reading)? != Next::SameRow {
            return self.leave_row();
        }
        self.walk = Some(walk);
        self.at_row = true;
        Ok(())
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        if self.row().is_none_or(|at| at <= row) {
            return Ok(());
        }
        self.walk = None;
        self.seek_before(Place::after(row))
    }
}
