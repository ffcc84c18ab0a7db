//! Cells as the engine passes them around: borrowed as [`Cell`], stored as [`Cells`].
//!
//! [`Cells`] holds any number of cells in two allocations, their bytes and their slots, so that merging, gathering a
//! row and keeping a sorted run cost no allocation per cell. Cells of one row that are pushed in sequence share the
//! row's bytes. The family is not in a cell: a store holds one family.
//!
//! Invariant: slots only point into the bytes they came with; bytes never move once they are in.

use std::cmp::Ordering;

use terrane_types::visibility::CellMeta;
use terrane_types::{CellKind, CellRef};

/// One cell of one family, borrowed from wherever its bytes are.
///
/// Its order among others: row and qualifier ascending, then timestamp, sequence and position descending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) row: &'a [u8],
    pub(crate) qualifier: &'a [u8],
    pub(crate) tags: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) timestamp: i64,
    pub(crate) sequence: u64,
    /// The cell's position in its row mutation: of two at the same place the later wins.
    pub(crate) position: u32,
    pub(crate) kind: CellKind,
}

impl<'a> Cell<'a> {
    /// A cell of a mutation of `row` at `sequence`.
    pub(crate) fn of_mutation(row: &'a [u8], cell: CellRef<'a>, sequence: u64, position: u32) -> Self {
        Self {
            row,
            qualifier: cell.qualifier,
            tags: cell.tags,
            value: cell.value,
            timestamp: cell.timestamp,
            sequence,
            position,
            kind: cell.kind,
        }
    }

    /// Compares places in store order.
    pub(crate) fn cmp_place(&self, other: &Cell<'_>) -> Ordering {
        self.row.cmp(other.row).then_with(|| self.cmp_in_row(other))
    }

    /// Compares places of two cells of one row.
    pub(crate) fn cmp_in_row(&self, other: &Cell<'_>) -> Ordering {
        self.qualifier
            .cmp(other.qualifier)
            .then_with(|| other.timestamp.cmp(&self.timestamp))
            .then_with(|| other.sequence.cmp(&self.sequence))
            .then_with(|| other.position.cmp(&self.position))
    }

    pub(crate) fn meta(&self) -> CellMeta {
        CellMeta {
            timestamp: self.timestamp,
            sequence: self.sequence,
            position: self.position,
            kind: self.kind,
            expires_ms: self.expires_ms(),
            is_bare: self.value.is_empty(),
        }
    }

    /// The last moment of a put with a time to live of its own; `i64::MAX`: it has none.
    #[inline]
    pub(crate) fn expires_ms(&self) -> i64 {
        terrane_types::cell::expires_ms(self.tags, self.timestamp)
    }

    /// The cell in the form of the wire, with its family's name.
    pub(crate) fn packed<'b>(&self, family: &'b [u8]) -> CellRef<'b>
    where
        'a: 'b,
    {
        CellRef {
            family,
            qualifier: self.qualifier,
            timestamp: self.timestamp,
            kind: self.kind,
            tags: self.tags,
            value: self.value,
        }
    }

    /// The same cell without its value: a masked put.
    pub(crate) fn masked(self) -> Self {
        Self { value: &[], ..self }
    }

    /// See [`weight_of`].
    pub(crate) fn weight(&self) -> u64 {
        weight_of(1, self.data_bytes() as u64)
    }

    /// Bytes of row, qualifier, tags and value.
    pub(crate) fn data_bytes(&self) -> usize {
        self.row.len() + self.qualifier.len() + self.tags.len() + self.value.len()
    }
}

/// Where the parts of a cell are, and its fixed-size fields.
#[derive(Clone, Copy, Debug)]
struct Slot {
    row_at: u32,
    /// Qualifier, tags and value lie here, one after the other.
    rest_at: u32,
    value_len: u32,
    position: u32,
    timestamp: i64,
    sequence: u64,
    row_len: u16,
    qualifier_len: u16,
    tags_len: u16,
    kind: CellKind,
}

/// Bytes of one cell's slot.
pub(crate) const SLOT_BYTES: usize = std::mem::size_of::<Slot>();

/// The weight of cells: their bytes, and a fixed overhead for each. It is the same in memory and in files, so that a
/// region does not shrink by being flushed.
pub(crate) const fn weight_of(cells: u64, data_bytes: u64) -> u64 {
    data_bytes + cells * SLOT_BYTES as u64
}

/// A position in [`Cells`], between two cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    bytes: usize,
    slots: usize,
}

/// Any number of cells, owned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Cells {
    /// Reserves capacity for this many cells with this many bytes of data in all.
    pub(crate) fn with_capacity(cells: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), slots: Vec::with_capacity(cells) }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Removes the cells and keeps the capacity.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
    }

    /// Removes the cells from `len` on. Their bytes stay until [`Cells::clear`].
    #[cfg(any(test, feature = "sled"))]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.slots.truncate(len);
    }

    /// Removes the cells before `first`. The rest is copied to `spare`, and the two buffers are swapped.
    pub(crate) fn drop_front(&mut self, first: usize, spare: &mut Self) {
        spare.clear();
        (first..self.len()).for_each(|at| spare.push(self.get(at)));
        self.clear();
        std::mem::swap(self, spare);
    }

    /// A mark to rewind to.
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), slots: self.slots.len() }
    }

    /// Removes what was appended since the mark, bytes included.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.slots.truncate(mark.slots);
    }

    /// Whether cells of this weight were appended since the mark.
    #[inline]
    pub(crate) fn has_grown(&self, mark: Mark, bytes: usize) -> bool {
        self.bytes.len() - mark.bytes + (self.slots.len() - mark.slots) * SLOT_BYTES >= bytes
    }

    /// Bytes of data held.
    pub(crate) fn data_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// See [`weight_of`].
    pub(crate) fn weight(&self) -> u64 {
        weight_of(self.len() as u64, self.data_bytes() as u64)
    }

    /// Bytes of memory held, spare capacity included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * SLOT_BYTES
    }

    /// Sets the sequence number of the cells from `first` on.
    pub(crate) fn set_sequence_from(&mut self, first: usize, sequence: u64) {
        self.slots[first..].iter_mut().for_each(|slot| slot.sequence = sequence);
    }

    /// Gives spare capacity back.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.slots.shrink_to_fit();
    }

    /// Appends a copy of a cell.
    pub(crate) fn push(&mut self, cell: Cell<'_>) {
        let row_at = match self.slots.last() {
            Some(last) if row_of(&self.bytes, last) == cell.row => last.row_at,
            _ => self.append(cell.row),
        };
        self.push_rest(row_at, cell);
    }

    /// Appends a copy of a cell of the same row as the last one pushed.
    pub(crate) fn push_in_row(&mut self, cell: Cell<'_>) {
        let row_at = self.slots.last().expect("the row's first cell was pushed").row_at;
        self.push_rest(row_at, cell);
    }

    fn push_rest(&mut self, row_at: u32, cell: Cell<'_>) {
        let rest_at = self.append(cell.qualifier);
        self.append(cell.tags);
        self.append(cell.value);
        self.slots.push(Slot {
            row_at,
            rest_at,
            value_len: u32::try_from(cell.value.len()).expect("values are limited to far less than 4 GiB at the edge"),
            position: cell.position,
            timestamp: cell.timestamp,
            sequence: cell.sequence,
            row_len: short(cell.row.len()),
            qualifier_len: short(cell.qualifier.len()),
            tags_len: short(cell.tags.len()),
            kind: cell.kind,
        });
    }

    fn append(&mut self, bytes: &[u8]) -> u32 {
        let at = u32::try_from(self.bytes.len()).expect("cells in memory are flushed long before they reach 4 GiB");
        self.bytes.extend_from_slice(bytes);
        at
    }

    /// The cell with this index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Cell<'_> {
        self.cell(&self.slots[index])
    }

    #[inline]
    fn cell(&self, slot: &Slot) -> Cell<'_> {
        Self::cell_in(&self.bytes, slot)
    }

    #[inline]
    fn cell_in<'a>(bytes: &'a [u8], slot: &Slot) -> Cell<'a> {
        let rest = &bytes[slot.rest_at as usize..];
        let (qualifier, rest) = rest.split_at(usize::from(slot.qualifier_len));
        let (tags, rest) = rest.split_at(usize::from(slot.tags_len));
        Cell {
            row: row_of(bytes, slot),
            qualifier,
            tags,
            value: &rest[..slot.value_len as usize],
            timestamp: slot.timestamp,
            sequence: slot.sequence,
            position: slot.position,
            kind: slot.kind,
        }
    }

    /// The row of the cell with this index.
    #[inline]
    pub(crate) fn row(&self, index: usize) -> &[u8] {
        row_of(&self.bytes, &self.slots[index])
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Cell<'_>> + ExactSizeIterator {
        self.slots.iter().map(|slot| self.cell(slot))
    }

    /// Removes the cells for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Cell<'_>) -> bool) {
        let Self { bytes, slots } = self;
        slots.retain(|slot| keep(Self::cell_in(bytes, slot)));
    }

    /// Sorts the cells from `first` on into store order. Of two at one place the earlier stays: pushing newer sources
    /// first keeps theirs.
    pub(crate) fn sort_from(&mut self, first: usize) {
        let Self { bytes, slots } = self;
        let view = |slot: &Slot| Self::cell_in(bytes, slot);
        let sorted = slots[first..].is_sorted_by(|a, b| view(a).cmp_place(&view(b)).is_lt());
        if sorted {
            return;
        }
        slots[first..].sort_by(|a, b| view(a).cmp_place(&view(b)));
        let mut kept = first;
        for at in first..slots.len() {
            let same = at > first && view(&slots[kept - 1]).cmp_place(&view(&slots[at])).is_eq();
            if !same {
                slots[kept] = slots[at];
                kept += 1;
            }
        }
        slots.truncate(kept);
    }
}

fn row_of<'a>(bytes: &'a [u8], slot: &Slot) -> &'a [u8] {
    &bytes[slot.row_at as usize..slot.row_at as usize + usize::from(slot.row_len)]
}

/// Rows, qualifiers and tag sections are checked against their limits, all below 64 KiB, before they get here.
fn short(len: usize) -> u16 {
    u16::try_from(len).expect("rows, qualifiers and tags are limited to less than 64 KiB at the edge")
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<'a> Cell<'a> {
        /// A put without tags, and the first cell of the first write.
        pub(crate) fn put(row: &'a [u8], qualifier: &'a [u8], timestamp: i64, value: &'a [u8]) -> Self {
            Self { row, qualifier, tags: b"", value, timestamp, sequence: 1, position: 0, kind: CellKind::Put }
        }
    }

    fn cell<'a>(row: &'a [u8], qualifier: &'a [u8], timestamp: i64, sequence: u64, value: &'a [u8]) -> Cell<'a> {
        Cell { sequence, ..Cell::put(row, qualifier, timestamp, value) }
    }

    #[test]
    fn cells_round_trip_and_share_their_row() {
        let mut cells = Cells::default();
        cells.push(cell(b"row", b"a", 5, 1, b"one"));
        cells.push(cell(b"row", b"b", 5, 1, b"two"));
        cells.push(cell(b"s", b"", 6, 2, b""));
        let back: Vec<_> = cells.iter().map(|cell| (cell.row, cell.qualifier, cell.value)).collect();
        assert_eq!(back, [(&b"row"[..], &b"a"[..], &b"one"[..]), (b"row", b"b", b"two"), (b"s", b"", b"")]);
        assert_eq!(cells.data_bytes(), 3 + 4 + 4 + 1);
    }

    #[test]
    fn sorting_orders_places_and_keeps_the_first_of_two_alike() {
        let mut cells = Cells::default();
        cells.push(cell(b"z", b"", 1, 1, b"before"));
        for (row, timestamp, sequence, value) in
            [(b"b", 5, 1, b"1"), (b"a", 5, 2, b"2"), (b"a", 6, 3, b"3"), (b"a", 5, 4, b"4"), (b"b", 5, 1, b"x")]
        {
            cells.push(cell(row, b"q", timestamp, sequence, value));
        }
        cells.sort_from(1);
        let values: Vec<_> = cells.iter().map(|cell| cell.value.to_vec()).collect();
        assert_eq!(values, [b"before".to_vec(), b"3".to_vec(), b"4".to_vec(), b"2".to_vec(), b"1".to_vec()]);
    }
}
