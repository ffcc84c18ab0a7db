//! What searches among sorted rows look at first: their heads, side by side.
//!
//! The rows of a block lie scattered in it, so that each step of a binary search waits for memory. Their heads (see
//! [`Prefix`]) fill a line or two; the rows themselves are only compared where heads are equal. Heads are computed when a
//! block is read and are not on disk.

use std::ops::Range;

use crate::memtable::prefix::Prefix;

/// The heads of sorted rows.
#[derive(Debug, Default)]
pub(super) struct Heads {
    prefix: Prefix,
    heads: Box<[u64]>,
}

impl Heads {
    /// Of these rows, of which the first and the last are named besides.
    pub(super) fn new<'a>(first: &[u8], last: &[u8], rows: impl Iterator<Item = &'a [u8]>) -> Self {
        let prefix = Prefix::of(first, last);
        let heads = rows.map(|row| prefix.head(row)).collect();
        Self { prefix, heads }
    }

    /// The rows that may be equal to this one, as far as heads tell. Those before are lower, those behind are higher.
    #[inline]
    pub(super) fn near(&self, row: &[u8]) -> Range<usize> {
        let head = self.prefix.head(row);
        let start = self.heads.partition_point(|other| *other < head);
        let equal = self.heads[start..].iter().take_while(|other| **other == head).count();
        start..start + equal
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.heads) + self.prefix.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_before_and_behind_the_near_ones_are_lower_and_higher() {
        let rows: Vec<Vec<u8>> = (0..300u32).map(|at| format!("row{}", at / 3 * 7 + 1000).into_bytes()).collect();
        let heads = Heads::new(&rows[0], &rows[299], rows.iter().map(Vec::as_slice));
        let others = (0..3500u32).map(|at| format!("row{at:04}").into_bytes());
        for row in others.chain([b"".to_vec(), b"ro".to_vec(), b"rox".to_vec(), b"row1000\0".to_vec()]) {
            let near = heads.near(&row);
            assert!(rows[..near.start].iter().all(|other| *other < row));
            assert!(rows[near.end..].iter().all(|other| *other > row));
        }
    }
}
