//! Cells in a block: how they are encoded, and decoded one after the other.
//!
//! ```text
//! block = base timestamp i64 | base sequence u64 | widths u8 | cell* | restart u32 * ceil(cells / 16) | cells u32
//! cell  = flags u8 | extra u8? | (shared, suffix length, suffix)? | (length, qualifier)? | timestamp? | sequence?
//!       | position? | tags length? | value length? | tags | value
//! ```
//!
//! Cells stay structured: there is no escaping, and there are no key bytes to split. What a cell has in common with the
//! previous one (row, qualifier, timestamp, sequence, length of the value, a position one higher) costs one flag bit.
//! Timestamps and sequences are distances from the block's lowest ones, all of one width per block, so that decoding
//! them is a load and a mask. Every 16th cell is a *restart*: it refers to nothing before it, and its offset is stored
//! at the end of the block.
//!
//! Decoding allocates nothing per cell: a [`Decoder`] keeps one buffer for the row and refers to the block for the
//! rest.

use std::cmp::Ordering;
use std::ops::Range;

use smallvec::SmallVec;
use terrane_types::CellKind;

use super::block::PADDING_BYTES;
use super::varint;
use crate::cells::{Cell, Cells};
use crate::row_heads::{head_after, head_of};

/// Cells from one restart to the next.
pub(super) const RESTART_INTERVAL: usize = 16;

const HEADER_BYTES: usize = 17;

const SAME_ROW: u8 = 0x01;
const SAME_QUALIFIER: u8 = 0x02;
const SAME_TIMESTAMP: u8 = 0x04;
const SAME_SEQUENCE: u8 = 0x08;
const SAME_VALUE_LEN: u8 = 0x10;
/// A byte with the kind and [`EXTRA_TAGS`] follows; without it the cell is a put without tags.
const EXTRA: u8 = 0x20;
/// The position is one higher than that of the previous cell.
const NEXT_POSITION: u8 = 0x40;
/// The position is given; with neither flag it is zero.
const GIVEN_POSITION: u8 = 0x80;

const EXTRA_KIND: u8 = 0x07;
const EXTRA_TAGS: u8 = 0x08;

/// What is wrong with a block that passed its checksum: a bug wrote it, or reads it.
pub(super) type Malformed = &'static str;

const LONG_SHARE: Malformed = "a cell shares more of a row than the previous cell has";

const CUT_CELL: Malformed = "a cell ends beyond its block";

/// A place to seek: the first cell of a row from this qualifier on, or with `None` what follows the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) row: &'a [u8],
    pub(super) qualifier: Option<&'a [u8]>,
}

impl<'a> Place<'a> {
    pub(super) fn row(row: &'a [u8]) -> Self {
        Self { row, qualifier: Some(&[]) }
    }

    pub(super) fn after(row: &'a [u8]) -> Self {
        Self { row, qualifier: None }
    }

    /// Whether a cell is before the place.
    #[inline]
    pub(super) fn is_after(&self, row: &[u8], qualifier: &[u8]) -> bool {
        match row.cmp(self.row) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.qualifier.is_none_or(|wanted| !wanted.is_empty() && qualifier < wanted),
        }
    }
}

/// Appends the block of these cells, of which there is at least one.
pub(super) fn encode(cells: &Cells, out: &mut Vec<u8>) {
    let start = out.len();
    let (mut timestamps, mut sequences) = ((i64::MAX, i64::MIN), (u64::MAX, u64::MIN));
    for cell in cells.iter() {
        timestamps = (timestamps.0.min(cell.timestamp), timestamps.1.max(cell.timestamp));
        sequences = (sequences.0.min(cell.sequence), sequences.1.max(cell.sequence));
    }
    let timestamp_width = width_of(timestamps.1.wrapping_sub(timestamps.0) as u64);
    let sequence_width = width_of(sequences.1.wrapping_sub(sequences.0));
    out.extend_from_slice(&timestamps.0.to_le_bytes());
    out.extend_from_slice(&sequences.0.to_le_bytes());
    out.push((timestamp_width | sequence_width << 4) as u8);

    let mut restarts = Vec::with_capacity(cells.len().div_ceil(RESTART_INTERVAL));
    let mut previous: Option<Cell<'_>> = None;
    for (index, cell) in cells.iter().enumerate() {
        if index % RESTART_INTERVAL == 0 {
            restarts.push((out.len() - start) as u32);
            previous = None;
        }
        let mut flags = 0;
        let mut shared = 0;
        if let Some(previous) = &previous {
            shared = common_prefix(previous.row, cell.row);
            let same_row = shared == cell.row.len() && shared == previous.row.len();
            flags |= flag(SAME_ROW, same_row)
                | flag(SAME_QUALIFIER, previous.qualifier == cell.qualifier)
                | flag(SAME_TIMESTAMP, previous.timestamp == cell.timestamp)
                | flag(SAME_SEQUENCE, previous.sequence == cell.sequence)
                | flag(SAME_VALUE_LEN, previous.value.len() == cell.value.len());
        }
        let extra = cell.kind as u8 | flag(EXTRA_TAGS, !cell.tags.is_empty());
        flags |= flag(EXTRA, extra != 0);
        if cell.position != 0 {
            let next = previous.and_then(|previous| previous.position.checked_add(1));
            flags |= if next == Some(cell.position) { NEXT_POSITION } else { GIVEN_POSITION };
        }
        out.push(flags);
        if flags & EXTRA != 0 {
            out.push(extra);
        }
        if flags & SAME_ROW == 0 {
            varint::put(out, shared as u64);
            varint::put_bytes(out, &cell.row[shared..]);
        }
        if flags & SAME_QUALIFIER == 0 {
            varint::put_bytes(out, cell.qualifier);
        }
        if flags & SAME_TIMESTAMP == 0 {
            let delta = cell.timestamp.wrapping_sub(timestamps.0) as u64;
            out.extend_from_slice(&delta.to_le_bytes()[..timestamp_width]);
        }
        if flags & SAME_SEQUENCE == 0 {
            let delta = cell.sequence.wrapping_sub(sequences.0);
            out.extend_from_slice(&delta.to_le_bytes()[..sequence_width]);
        }
        if flags & GIVEN_POSITION != 0 {
            varint::put(out, u64::from(cell.position));
        }
        if extra & EXTRA_TAGS != 0 {
            varint::put(out, cell.tags.len() as u64);
        }
        if flags & SAME_VALUE_LEN == 0 {
            varint::put(out, cell.value.len() as u64);
        }
        out.extend_from_slice(cell.tags);
        out.extend_from_slice(cell.value);
        previous = Some(cell);
    }
    for restart in restarts {
        out.extend_from_slice(&restart.to_le_bytes());
    }
    out.extend_from_slice(&(cells.len() as u32).to_le_bytes());
}

/// Bytes that numbers up to `value` need.
fn width_of(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

fn flag(bit: u8, set: bool) -> u8 {
    if set { bit } else { 0 }
}

/// The number of bytes that two rows have in common at their beginning.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut at = 0;
    // Eight bytes at a time: rows of a table mostly have long common beginnings.
    while let (Some(left), Some(right)) = (a[at..].first_chunk::<8>(), b[at..].first_chunk::<8>()) {
        let differing = u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(left, right)| left == right).count()
}

/// A block of cells in memory, decompressed and verified.
#[derive(Debug)]
pub(crate) struct DataBlock {
    /// The payload followed by zeros.
    bytes: Box<[u8]>,
    /// In order. A search compares heads, in one or two cache lines, and reads cells only where heads are equal.
    restarts: SmallVec<[Restart; 8]>,
    /// Where the cells end and the restarts begin.
    cells_end: usize,
    cells: u32,
    /// Where in the block the first row is, and how many bytes of it all restarts begin with.
    common_at: u32,
    common_len: u16,
    timestamp_width: u8,
    sequence_width: u8,
    base_timestamp: i64,
    base_sequence: u64,
}

/// A cell that refers to nothing before it.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// Of its row, after what the rows of all restarts have in common (see [`crate::row_heads`]).
    head: u64,
    /// Where the cell begins.
    at: u32,
}

impl DataBlock {
    /// Reads a payload as [`super::block::unseal`] returns it.
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, Malformed> {
        const SHORT: Malformed = "a block of cells is shorter than its header and restarts";
        let len = bytes.len() - PADDING_BYTES;
        let header: &[u8; HEADER_BYTES] = bytes[..len].first_chunk().ok_or(SHORT)?;
        let count: &[u8; 4] = bytes[HEADER_BYTES..len].last_chunk().ok_or(SHORT)?;
        let cells = u32::from_le_bytes(*count);
        let restarts_bytes = (cells as usize).div_ceil(RESTART_INTERVAL) * 4 + 4;
        let cells_end = len.checked_sub(restarts_bytes).filter(|end| *end >= HEADER_BYTES).ok_or(SHORT)?;
        let (timestamp, rest) = header.split_at(8);
        let (sequence, widths) = rest.split_at(8);
        let (timestamp_width, sequence_width) = (widths[0] & 15, widths[0] >> 4);
        if timestamp_width > 8 || sequence_width > 8 {
            return Err("a block of cells has numbers wider than eight bytes");
        }
        let eight = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| SHORT);
        let offsets = bytes[cells_end..len - 4].as_chunks::<4>().0;
        let mut restarts: SmallVec<[Restart; 8]> = SmallVec::with_capacity(offsets.len());
        for offset in offsets {
            let at = u32::from_le_bytes(*offset);
            if !(HEADER_BYTES..cells_end).contains(&(at as usize)) {
                return Err("a restart lies outside its block");
            }
            restarts.push(Restart { head: 0, at });
        }
        let (mut common_at, mut common_len) = (0, 0);
        if let (Some(first), Some(last)) = (restarts.first(), restarts.last()) {
            let (first_row, last_row) = (restart_row(&bytes, first.at)?, restart_row(&bytes, last.at)?);
            let common = common_prefix(&bytes[first_row.clone()], &bytes[last_row]);
            common_at = first_row.start as u32;
            common_len = u16::try_from(common).map_err(|_| "a row is too long")?;
            for restart in &mut restarts {
                let row = restart_row(&bytes, restart.at)?;
                restart.head = head_after(&bytes[first_row.start..][..common], &bytes[row]);
            }
        }
        Ok(Self {
            restarts,
            cells_end,
            cells,
            common_at,
            common_len,
            base_timestamp: eight(timestamp)? as i64,
            base_sequence: eight(sequence)?,
            timestamp_width,
            sequence_width,
            bytes: bytes.into_boxed_slice(),
        })
    }

    /// Bytes of memory that the block takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let spilled = if self.restarts.spilled() { size_of_val(&*self.restarts) } else { 0 };
        size_of::<Self>() + self.bytes.len() + spilled
    }

    /// How many cells there are.
    pub(super) fn cells(&self) -> usize {
        self.cells as usize
    }

    pub(super) fn restarts(&self) -> usize {
        self.restarts.len()
    }

    /// Where the restart with this index begins; after the last one, the end of the cells.
    fn restart(&self, index: usize) -> usize {
        self.restarts.get(index).map_or(self.cells_end, |restart| restart.at as usize)
    }

    /// How many restarts begin with a cell before `place`.
    pub(super) fn restarts_before(&self, place: Place<'_>) -> Result<usize, Malformed> {
        let common_len = usize::from(self.common_len);
        if let Some(rest) = place.row.get(common_len..) {
            // Assumed to begin as the restarts do, until the cells are read, which a seek reads next anyway: looking at
            // their common beginning first would be one more cache miss.
            let before = self.restarts_below(head_of(rest), place)?;
            let row = restart_row(&self.bytes, self.restarts.get(before.saturating_sub(1)).map_or(0, |it| it.at))?;
            if self.bytes[row].starts_with(&place.row[..common_len]) {
                return Ok(before);
            }
        }
        let common = &self.bytes[self.common_at as usize..][..common_len];
        self.restarts_below(head_after(common, place.row), place)
    }

    /// How many restarts begin with a cell before `place`, whose row has this head.
    fn restarts_below(&self, head: u64, place: Place<'_>) -> Result<usize, Malformed> {
        let mut low = self.restarts.partition_point(|restart| restart.head < head);
        // Mostly the next head is greater already, which decides about its row.
        if self.restarts.get(low).is_none_or(|restart| restart.head > head) {
            return Ok(low);
        }
        let mut high = low + self.restarts[low..].partition_point(|restart| restart.head == head);
        while low < high {
            let middle = low.midpoint(high);
            let row = restart_row(&self.bytes, self.restarts[middle].at)?;
            let mut qualifier_at = row.end;
            let qualifier = varint::get_bytes(&self.bytes, &mut qualifier_at).ok_or(CUT_CELL)?;
            if place.is_after(&self.bytes[row], qualifier) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The cell with these parts; its row is the decoder's.
    #[inline]
    pub(super) fn cell<'a>(&'a self, row: &'a [u8], parts: &Parts) -> Cell<'a> {
        let rest = &self.bytes[parts.rest_at as usize..];
        let (tags, rest) = rest.split_at(usize::from(parts.tags_len));
        Cell {
            row,
            qualifier: self.qualifier(parts),
            tags,
            value: &rest[..parts.value_len as usize],
            timestamp: parts.timestamp,
            sequence: parts.sequence,
            position: parts.position,
            kind: parts.kind,
        }
    }

    #[inline]
    pub(super) fn qualifier(&self, parts: &Parts) -> &[u8] {
        &self.bytes[parts.qualifier_at as usize..][..usize::from(parts.qualifier_len)]
    }
}

/// Where the row of the restart that begins at `at` is; its qualifier follows.
fn restart_row(bytes: &[u8], at: u32) -> Result<Range<usize>, Malformed> {
    const BAD: Malformed = "a restart refers to an earlier cell";
    let flags = bytes[at as usize];
    if flags & (SAME_ROW | SAME_QUALIFIER) != 0 {
        return Err(BAD);
    }
    let mut at = at as usize + 1 + usize::from(flags & EXTRA != 0);
    if varint::get(bytes, &mut at) != Some(0) {
        return Err(BAD);
    }
    let row = varint::get_bytes(bytes, &mut at).ok_or(CUT_CELL)?;
    Ok(at - row.len()..at)
}

/// A cell without its row, as a [`Decoder`] found it in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) timestamp: i64,
    pub(super) sequence: u64,
    qualifier_at: u32,
    /// Tags and value lie here.
    rest_at: u32,
    value_len: u32,
    pub(super) position: u32,
    qualifier_len: u16,
    tags_len: u16,
    pub(super) kind: CellKind,
}

/// What [`Decoder::next`] reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A cell of the same row.
    SameRow,
    /// A cell of another row.
    NewRow,
    /// The end of the block.
    End,
}

/// How a cell gives its row.
enum RowStep<'a> {
    /// It is that of the previous cell.
    Same,
    /// It is the beginning of the previous row, followed by these bytes.
    Given { shared: usize, suffix: &'a [u8] },
    /// There is no cell.
    End,
}

/// Decodes the cells of a block one after the other.
#[derive(Debug)]
pub(super) struct Decoder {
    /// Where the next cell begins.
    at: usize,
    /// The row of the current cell.
    pub(super) row: Vec<u8>,
    pub(super) parts: Parts,
}

impl Default for Decoder {
    fn default() -> Self {
        let parts = Parts {
            timestamp: 0,
            sequence: 0,
            qualifier_at: 0,
            rest_at: 0,
            value_len: 0,
            position: 0,
            qualifier_len: 0,
            tags_len: 0,
            kind: CellKind::Put,
        };
        Self { at: HEADER_BYTES, row: Vec::new(), parts }
    }
}

impl Decoder {
    /// Moves before the first cell of a block. The row stays: the first cell may be of the same.
    pub(super) fn start(&mut self) {
        self.at = HEADER_BYTES;
    }

    /// Moves before the restart with this index.
    pub(super) fn start_at(&mut self, block: &DataBlock, restart: usize) {
        self.at = block.restart(restart);
    }

    /// Whether the next cell is the one that begins the restart with this index.
    pub(super) fn is_at(&self, block: &DataBlock, restart: usize) -> bool {
        self.at >= block.restart(restart)
    }

    /// Decodes the next cell.
    #[inline]
    pub(super) fn next(&mut self, block: &DataBlock) -> Result<Next, Malformed> {
        match self.step(block)? {
            RowStep::End => Ok(Next::End),
            RowStep::Same => Ok(Next::SameRow),
            RowStep::Given { shared, suffix } => {
                if shared > self.row.len() {
                    return Err(LONG_SHARE);
                }
                // A restart gives its row in full whether it is a new one or not; no other cell repeats a row.
                if shared == 0 && self.row == suffix {
                    return Ok(Next::SameRow);
                }
                self.row.truncate(shared);
                self.row.extend_from_slice(suffix);
                Ok(Next::NewRow)
            }
        }
    }

    /// Whether the next cell of the block is of another row. `false` at the end of the block, which cannot tell.
    #[inline]
    pub(super) fn row_ends(&self, block: &DataBlock) -> bool {
        let bytes = &block.bytes[..];
        let mut at = self.at;
        if at >= block.cells_end || bytes[at] & SAME_ROW != 0 {
            return false;
        }
        at += 1 + usize::from(bytes[at] & EXTRA != 0);
        match varint::get(bytes, &mut at) {
            Some(0) => varint::get_bytes(bytes, &mut at).is_some_and(|row| row != self.row),
            shared => shared.is_some(),
        }
    }

    /// Decodes the next cell except its row, for which it returns what the block says.
    #[inline]
    fn step<'a>(&mut self, block: &'a DataBlock) -> Result<RowStep<'a>, Malformed> {
        let bytes = &block.bytes[..];
        let mut at = self.at;
        if at >= block.cells_end {
            return Ok(RowStep::End);
        }
        let flags = bytes[at];
        at += 1;
        let mut extra = 0;
        if flags & EXTRA != 0 {
            extra = bytes[at];
            at += 1;
        }
        let mut step = RowStep::Same;
        if flags & SAME_ROW == 0 {
            let shared = varint::get(bytes, &mut at).ok_or(CUT_CELL)? as usize;
            step = RowStep::Given { shared, suffix: varint::get_bytes(bytes, &mut at).ok_or(CUT_CELL)? };
        }
        if flags & SAME_QUALIFIER == 0 {
            let len = varint::get_len(bytes, &mut at).ok_or(CUT_CELL)?;
            self.parts.qualifier_len = u16::try_from(len).map_err(|_| "a qualifier is too long")?;
            self.parts.qualifier_at = at as u32;
            at += len;
        }
        if flags & SAME_TIMESTAMP == 0 {
            let delta = fixed(bytes, &mut at, block.timestamp_width)?;
            self.parts.timestamp = block.base_timestamp.wrapping_add(delta as i64);
        }
        if flags & SAME_SEQUENCE == 0 {
            self.parts.sequence = block.base_sequence.wrapping_add(fixed(bytes, &mut at, block.sequence_width)?);
        }
        self.parts.position = match flags & (NEXT_POSITION | GIVEN_POSITION) {
            0 => 0,
            NEXT_POSITION => self.parts.position.wrapping_add(1),
            _ => varint::get(bytes, &mut at).ok_or(CUT_CELL)? as u32,
        };
        let mut tags_len = 0;
        self.parts.kind = CellKind::Put;
        if extra != 0 {
            self.parts.kind = CellKind::from_u8(extra & EXTRA_KIND).ok_or("a cell has an unknown kind")?;
            if extra & EXTRA_TAGS != 0 {
                tags_len = varint::get_len(bytes, &mut at).ok_or(CUT_CELL)?;
            }
        }
        self.parts.tags_len = u16::try_from(tags_len).map_err(|_| "a tag section is too long")?;
        if flags & SAME_VALUE_LEN == 0 {
            self.parts.value_len = varint::get_len(bytes, &mut at).ok_or(CUT_CELL)? as u32;
        }
        self.parts.rest_at = at as u32;
        at += tags_len + self.parts.value_len as usize;
        if at > block.cells_end {
            return Err(CUT_CELL);
        }
        self.at = at;
        Ok(step)
    }

    /// Moves to the first cell of the block that is not before `place`: [`Next::NewRow`] (which says nothing about the
    /// row it was at before), or the end.
    pub(super) fn seek(&mut self, block: &DataBlock, place: Place<'_>) -> Result<Next, Malformed> {
        let restart = block.restarts_before(place)?.saturating_sub(1);
        self.start_at(block, restart);
        self.row.clear();
        // Rows ascend, so what one shares with the previous one mostly decides how it compares, and no row is assembled
        // before the one that is sought. `matched` is how much of that the current row begins with.
        let (mut order, mut matched) = (Ordering::Less, 0);
        loop {
            match self.step(block)? {
                RowStep::End => return Ok(Next::End),
                // Of a row that is before the place, or of the place's own.
                RowStep::Same => {}
                // It differs from the place's row where the previous one does, and so comes before it as well.
                RowStep::Given { shared, .. } if shared > matched => {}
                RowStep::Given { shared, suffix } => {
                    if shared == matched || shared == 0 {
                        let rest = &place.row[shared..];
                        let more = common_prefix(suffix, rest);
                        matched = shared + more;
                        order = suffix.get(more).cmp(&rest.get(more));
                    } else {
                        // It leaves the previous row where that is still the place's.
                        order = Ordering::Greater;
                    }
                    if order != Ordering::Less {
                        self.row.clear();
                        self.row.extend_from_slice(&place.row[..shared]);
                        self.row.extend_from_slice(suffix);
                    }
                }
            }
            let found = match order {
                Ordering::Less => false,
                Ordering::Greater => true,
                Ordering::Equal => {
                    place.qualifier.is_some_and(|wanted| wanted.is_empty() || block.qualifier(&self.parts) >= wanted)
                }
            };
            if found {
                return Ok(Next::NewRow);
            }
        }
    }

    /// The current cell.
    #[inline]
    pub(super) fn cell<'a>(&'a self, block: &'a DataBlock) -> Cell<'a> {
        block.cell(&self.row, &self.parts)
    }
}

/// Reads a number of `width` bytes. The zeros after the payload allow reading eight.
#[inline]
fn fixed(bytes: &[u8], at: &mut usize, width: u8) -> Result<u64, Malformed> {
    let eight = bytes.get(*at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(CUT_CELL)?;
    *at += usize::from(width);
    let unused = 64 - 8 * u32::from(width);
    // Shifting by 64 is undefined: a width of zero reads as zero.
    Ok(u64::from_le_bytes(*eight).checked_shl(unused).map_or(0, |value| value >> unused))
}

#[cfg(test)]
mod tests;
