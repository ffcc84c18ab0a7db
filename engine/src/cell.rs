//! A cell as the engine holds it in memory: one allocation, ordered as stores are.
//!
//! Row, qualifier, tags and value lie one after the other in one shared slice, so that a reader's copy of a cell costs a
//! reference count and no allocation. The family is not in it: a store holds one family.

use std::cmp::Ordering;
use std::sync::Arc;

use terrane_types::visibility::CellMeta;
use terrane_types::{CellKind, CellRef};

/// What a cell costs in memory beside its bytes: the struct, once more as its column's name, their place in the tree, and
/// the shared slice's header.
const OVERHEAD_BYTES: usize = 2 * std::mem::size_of::<StoredCell>() + 40;

/// A cell of at most this many bytes shares them with its column's name.
const SHARED_KEY_BYTES_MAX: usize = 1 << 10;

/// One cell of one family.
///
/// Ordered by row and qualifier ascending, then timestamp, sequence and position descending.
#[derive(Clone, Debug)]
pub(crate) struct StoredCell {
    data: Arc<[u8]>,
    row_len: u16,
    qualifier_len: u16,
    tags_len: u16,
    kind: CellKind,
    /// Where the cell was in its row mutation: the later of two alike wins.
    position: u32,
    timestamp: i64,
    sequence: u64,
}

impl StoredCell {
    pub(crate) fn new(row: &[u8], cell: CellRef<'_>, sequence: u64, position: u32) -> Self {
        let len = row.len() + cell.qualifier.len() + cell.tags.len() + cell.value.len();
        // Collected from an iterator of known length, the shared slice is allocated once; a vector would be copied into it.
        let mut data: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let bytes = Arc::get_mut(&mut data).expect("nobody else has the slice yet");
        let mut at = 0;
        for part in [row, cell.qualifier, cell.tags, cell.value] {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Self {
            data,
            row_len: short(row.len()),
            qualifier_len: short(cell.qualifier.len()),
            tags_len: short(cell.tags.len()),
            kind: cell.kind,
            position,
            timestamp: cell.timestamp,
            sequence,
        }
    }

    /// A place before every cell of `row`, to seek with.
    pub(crate) fn before_row(row: &[u8]) -> Self {
        Self {
            data: row.into(),
            row_len: short(row.len()),
            qualifier_len: 0,
            tags_len: 0,
            kind: CellKind::Put,
            position: u32::MAX,
            timestamp: i64::MAX,
            sequence: u64::MAX,
        }
    }

    /// What names this cell's column in a tree. It shares the cell's bytes while they are few, and else has its own: a
    /// column outlives the cell it began with.
    pub(crate) fn key(&self) -> Self {
        if self.data.len() <= SHARED_KEY_BYTES_MAX {
            return self.clone();
        }
        let cell = CellRef { tags: &[], value: &[], ..self.as_ref(&[]) };
        Self::new(self.row(), cell, self.sequence, self.position)
    }

    pub(crate) fn row(&self) -> &[u8] {
        &self.data[..usize::from(self.row_len)]
    }

    pub(crate) fn qualifier(&self) -> &[u8] {
        let start = usize::from(self.row_len);
        &self.data[start..start + usize::from(self.qualifier_len)]
    }

    pub(crate) fn tags(&self) -> &[u8] {
        let start = usize::from(self.row_len) + usize::from(self.qualifier_len);
        &self.data[start..start + usize::from(self.tags_len)]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.data[usize::from(self.row_len) + usize::from(self.qualifier_len) + usize::from(self.tags_len)..]
    }

    pub(crate) fn kind(&self) -> CellKind {
        self.kind
    }

    pub(crate) fn timestamp(&self) -> i64 {
        self.timestamp
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn position(&self) -> u32 {
        self.position
    }

    pub(crate) fn meta(&self) -> CellMeta {
        CellMeta { timestamp: self.timestamp, sequence: self.sequence, position: self.position, kind: self.kind }
    }

    pub(crate) fn as_ref<'a>(&'a self, family: &'a [u8]) -> CellRef<'a> {
        CellRef {
            family,
            qualifier: self.qualifier(),
            timestamp: self.timestamp,
            kind: self.kind,
            tags: self.tags(),
            value: self.value(),
        }
    }

    /// The same cell without its value: what is left of a witness.
    pub(crate) fn stub(&self) -> Self {
        let cell = CellRef { value: &[], ..self.as_ref(&[]) };
        Self::new(self.row(), cell, self.sequence, self.position)
    }

    pub(crate) fn same_column(&self, other: &Self) -> bool {
        self.row_len == other.row_len && self.row() == other.row() && self.qualifier() == other.qualifier()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.data.len() + OVERHEAD_BYTES) as u64
    }
}

/// Rows, qualifiers and tag sections are checked against their limits, all below 64 KiB, before they come here.
fn short(len: usize) -> u16 {
    u16::try_from(len).expect("rows, qualifiers and tags are limited to less than 64 KiB at the edge")
}

impl Ord for StoredCell {
    fn cmp(&self, other: &Self) -> Ordering {
        self.row()
            .cmp(other.row())
            .then_with(|| self.qualifier().cmp(other.qualifier()))
            .then_with(|| other.timestamp.cmp(&self.timestamp))
            .then_with(|| other.sequence.cmp(&self.sequence))
            .then_with(|| other.position.cmp(&self.position))
    }
}

impl PartialOrd for StoredCell {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for StoredCell {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for StoredCell {}
