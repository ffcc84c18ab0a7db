//! Index blocks: where the blocks of a file are, and an upper bound of each.
//!
//! There are two levels of the same form. The *partitions* index data blocks and are read and cached like those; the
//! *top index* indexes the partitions and stays in memory while a file is open.
//!
//! ```text
//! index = first offset varint | count varint | entry*
//! entry = shared varint | (length varint, row suffix) | qualifier | length of the block varint | cells varint
//!       | bytes of data varint | (length varint, what later versions add)
//! qualifier = 0: all of the row; n + 1, n bytes: up to this qualifier
//! ```
//!
//! An entry's key is an upper bound of the cells in its block, and below all cells of the next. Where the rows of two
//! blocks differ, it is the shortest row that separates them; an entry with a qualifier therefore says that the row
//! continues in the next block. The blocks of an index follow one another without gaps: only lengths are stored.

use std::cmp::Ordering;

use super::block::{BlockAt, PADDING_BYTES};
use super::data_block::{Malformed, Place, common_prefix};
use super::varint;
use crate::row_heads::head_after;

/// Marks the end of all columns of a row in [`Entry::qualifier_len`].
const WHOLE_ROW: u32 = u32::MAX;

/// The upper bound of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpperBound {
    pub(super) row: Vec<u8>,
    /// `None`: to the end of the row.
    pub(super) qualifier: Option<Vec<u8>>,
}

impl UpperBound {
    /// A bound between the last cell of one block and the first of the next.
    pub(super) fn between(last: (&[u8], &[u8]), next: (&[u8], &[u8])) -> Self {
        if last.0 == next.0 {
            return Self { row: last.0.to_vec(), qualifier: Some(last.1.to_vec()) };
        }
        Self { row: separator(last.0, next.0), qualifier: None }
    }

    /// The bound after the last cell of all.
    pub(super) fn end(last_row: &[u8]) -> Self {
        Self { row: last_row.to_vec(), qualifier: None }
    }
}

/// A short row that is not before `last` and before `next`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = common_prefix(last, next);
    // The beginning of `next` up to the byte in which they differ is after `last`, and before `next` if that is longer.
    if shared < last.len() && shared + 1 < next.len() && shared + 1 < last.len() {
        next[..=shared].to_vec()
    } else {
        last.to_vec()
    }
}

/// Gathers the entries of one index block.
#[derive(Default)]
pub(super) struct IndexBuilder {
    entries: Vec<u8>,
    first_offset: u64,
    count: u64,
    last: Option<UpperBound>,
    cells: u64,
    data_bytes: u64,
}

impl IndexBuilder {
    pub(super) fn add(&mut self, bound: UpperBound, at: BlockAt, cells: u64, data_bytes: u64) {
        if self.count == 0 {
            self.first_offset = at.offset;
        }
        let shared = self.last.as_ref().map_or(0, |last| common_prefix(&last.row, &bound.row));
        varint::put(&mut self.entries, shared as u64);
        varint::put_bytes(&mut self.entries, &bound.row[shared..]);
        match &bound.qualifier {
            None => varint::put(&mut self.entries, 0),
            Some(qualifier) => {
                varint::put(&mut self.entries, qualifier.len() as u64 + 1);
                self.entries.extend_from_slice(qualifier);
            }
        }
        varint::put(&mut self.entries, u64::from(at.len));
        varint::put(&mut self.entries, cells);
        varint::put(&mut self.entries, data_bytes);
        varint::put(&mut self.entries, 0);
        self.count += 1;
        self.cells += cells;
        self.data_bytes += data_bytes;
        self.last = Some(bound);
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// The payload, and what the entry for this index in the index above says; `None` when nothing was added.
    pub(super) fn finish(&mut self) -> Option<(Vec<u8>, UpperBound, u64, u64)> {
        let built = std::mem::take(self);
        let bound = built.last?;
        let mut payload = Vec::with_capacity(built.entries.len() + 2 * varint::BYTES_MAX);
        varint::put(&mut payload, built.first_offset);
        varint::put(&mut payload, built.count);
        payload.extend_from_slice(&built.entries);
        Some((payload, bound, built.cells, built.data_bytes))
    }
}

/// A block as its index describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) at: BlockAt,
    row_at: u32,
    row_len: u32,
    /// The qualifier follows the row.
    qualifier_len: u32,
    pub(crate) cells: u64,
    pub(crate) data_bytes: u64,
}

/// An index block in memory, decoded for searching.
#[derive(Debug)]
pub(crate) struct IndexBlock {
    keys: Box<[u8]>,
    entries: Box<[Entry]>,
    /// Bytes that the rows of all entries begin with.
    common: usize,
    /// The head of each entry's row after those (see [`crate::row_heads`]): a search stays within a few cache
    /// lines, and reads rows only where heads are equal.
    heads: Box<[u64]>,
}

impl IndexBlock {
    /// Reads a payload as [`super::block::unseal`] returns it, whose blocks all lie before `end` in the file.
    pub(super) fn new(bytes: &[u8], end: u64) -> Result<Self, Malformed> {
        Self::parse(&bytes[..bytes.len() - PADDING_BYTES], end)
            .ok_or("an index block is malformed although its checksum is right")
    }

    fn parse(bytes: &[u8], end: u64) -> Option<Self> {
        let mut at = 0;
        let mut offset = varint::get(bytes, &mut at)?;
        let count = usize::try_from(varint::get(bytes, &mut at)?).ok()?;
        // An entry takes at least seven bytes.
        let mut entries = Vec::with_capacity(count.min(bytes.len() / 7));
        let mut keys = Vec::new();
        let mut last = (0, 0);
        for _ in 0..count {
            let shared = usize::try_from(varint::get(bytes, &mut at)?).ok()?;
            let suffix = varint::get_bytes(bytes, &mut at)?;
            if shared > last.1 {
                return None;
            }
            let row_at = keys.len();
            keys.extend_from_within(last.0..last.0 + shared);
            keys.extend_from_slice(suffix);
            last = (row_at, keys.len() - row_at);
            let qualifier_len = match varint::get(bytes, &mut at)? {
                0 => WHOLE_ROW,
                len => {
                    let len = u16::try_from(len - 1).ok()?;
                    let qualifier = bytes.get(at..at + usize::from(len))?;
                    keys.extend_from_slice(qualifier);
                    at += usize::from(len);
                    u32::from(len)
                }
            };
            let len = u32::try_from(varint::get(bytes, &mut at)?).ok()?;
            let cells = varint::get(bytes, &mut at)?;
            let data_bytes = varint::get(bytes, &mut at)?;
            varint::get_bytes(bytes, &mut at)?;
            entries.push(Entry {
                at: BlockAt { offset, len },
                row_at: u32::try_from(row_at).ok()?,
                row_len: u32::try_from(last.1).ok()?,
                qualifier_len,
                cells,
                data_bytes,
            });
            offset = offset.checked_add(u64::from(len)).filter(|offset| *offset <= end)?;
        }
        let row = |entry: &Entry| &keys[entry.row_at as usize..][..entry.row_len as usize];
        let (first, last) = (entries.first()?, entries.last()?);
        let common = common_prefix(row(first), row(last));
        let heads = entries.iter().map(|entry| head_after(&row(first)[..common], row(entry))).collect();
        (at == bytes.len()).then(|| Self {
            keys: keys.into_boxed_slice(),
            entries: entries.into_boxed_slice(),
            common,
            heads,
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.keys.len() + size_of_val(&*self.entries) + size_of_val(&*self.heads)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&self, index: usize) -> &Entry {
        &self.entries[index]
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The row up to which the block of this entry goes.
    pub(super) fn row(&self, entry: &Entry) -> &[u8] {
        &self.keys[entry.row_at as usize..][..entry.row_len as usize]
    }

    /// The qualifier up to which the block of this entry goes, where its last row continues in the next block.
    pub(super) fn qualifier(&self, entry: &Entry) -> Option<&[u8]> {
        let at = entry.row_at as usize + entry.row_len as usize;
        (entry.qualifier_len != WHOLE_ROW).then(|| &self.keys[at..][..entry.qualifier_len as usize])
    }

    /// Whether all cells of the entry's block are before `place`.
    pub(super) fn ends_before(&self, entry: &Entry, place: Place<'_>) -> bool {
        match self.row(entry).cmp(place.row) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => match (self.qualifier(entry), place.qualifier) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(bound), Some(wanted)) => !wanted.is_empty() && bound < wanted,
            },
        }
    }

    /// The first entry whose block may hold cells that are not before `place`; the count of entries if there is none.
    pub(super) fn find(&self, place: Place<'_>) -> usize {
        self.find_from(0, place)
    }

    /// The same, where the entries before `from` are known to end before `place`.
    pub(super) fn find_from(&self, from: usize, place: Place<'_>) -> usize {
        let head = head_after(&self.keys[..self.common], place.row);
        let at = from + self.heads[from..].partition_point(|other| *other < head);
        // Mostly the next head is greater already, which decides about its row.
        if self.heads.get(at).is_none_or(|other| *other > head) {
            return at;
        }
        let equal = self.heads[at..].partition_point(|other| *other == head);
        at + self.entries[at..at + equal].partition_point(|entry| self.ends_before(entry, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(bounds: &[(&[u8], Option<&[u8]>)]) -> IndexBlock {
        let mut builder = IndexBuilder::default();
        let mut offset = 100;
        for (at, (row, qualifier)) in bounds.iter().enumerate() {
            let bound = UpperBound { row: row.to_vec(), qualifier: qualifier.map(<[u8]>::to_vec) };
            let len = 10 + at as u32;
            builder.add(bound, BlockAt { offset, len }, 5, 1000);
            offset += u64::from(len);
        }
        let (mut payload, bound, cells, data_bytes) = builder.finish().unwrap();
        assert_eq!((cells, data_bytes), (5 * bounds.len() as u64, 1000 * bounds.len() as u64));
        assert_eq!(bound.row, bounds.last().unwrap().0);
        payload.extend_from_slice(&[0; PADDING_BYTES]);
        assert!(IndexBlock::new(&payload, offset - 1).is_err(), "a block behind the end of the blocks");
        IndexBlock::new(&payload, offset).unwrap()
    }

    #[test]
    fn entries_round_trip_and_are_found_by_place() {
        let index = build(&[(b"b", None), (b"bx", Some(b"q5")), (b"bx", None), (b"d", None)]);
        assert_eq!(index.entry(2).at, BlockAt { offset: 121, len: 12 });
        let find = |row: &[u8], qualifier: Option<&[u8]>| index.find(Place { row, qualifier });
        assert_eq!(find(b"", Some(b"")), 0);
        assert_eq!(find(b"b", Some(b"zz")), 0);
        assert_eq!(find(b"b", None), 1);
        assert_eq!(find(b"bx", Some(b"")), 1);
        assert_eq!(find(b"bx", Some(b"q5")), 1, "older versions of the column may be in the next block");
        assert_eq!(find(b"bx", Some(b"q6")), 2);
        assert_eq!(find(b"bx", None), 3);
        assert_eq!(find(b"d", Some(b"")), 3);
        assert_eq!(find(b"d\0", Some(b"")), 4);
        assert_eq!(index.qualifier(index.entry(1)), Some(&b"q5"[..]));
        assert_eq!(index.qualifier(index.entry(2)), None);
    }

    #[test]
    fn separators_are_short_and_between() {
        for (last, next, expected) in [
            (&b"aaaa"[..], &b"acccc"[..], &b"ac"[..]),
            (b"a", b"b", b"a"),
            (b"abc", b"abd", b"abc"),
            (b"ab", b"abc", b"ab"),
            (b"abcx", b"abd", b"abcx"),
            (b"abcxyz", b"abdq", b"abd"),
        ] {
            let found = separator(last, next);
            assert_eq!(found, expected);
            assert!(found.as_slice() >= last && found.as_slice() < next);
        }
    }

    #[test]
    fn bytes_that_make_no_sense_end_in_an_error_and_never_in_a_panic() {
        let mut builder = IndexBuilder::default();
        for at in 0..5u8 {
            let bound = UpperBound { row: vec![7, at], qualifier: (at == 2).then(|| vec![1, 2]) };
            builder.add(bound, BlockAt { offset: u64::from(at) * 50, len: 50 }, 1, 1);
        }
        let (good, ..) = builder.finish().unwrap();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes.extend_from_slice(&[0; PADDING_BYTES]);
            if let Ok(index) = IndexBlock::new(&bytes, 10_000) {
                let _ = index.find(Place::row(&[7, 3]));
            }
        }
    }
}
