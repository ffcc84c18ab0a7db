//! A bloom filter over the rows of a run, in memory only.
//!
//! Split into blocks of 32 bytes, so that a lookup touches one cache line: the upper half of the row's hash chooses the
//! block, the lower half one bit in each of the block's eight words. With [`BITS_PER_ROW`] about one absent row in a
//! hundred passes. The filter never reaches the disk, so it may change at will.

/// Bits per row; a block has 256.
const BITS_PER_ROW: usize = 10;

const BLOCK_BITS: usize = 256;

/// Odd numbers without a pattern (the digits of pi): a word's bit is chosen by the hash times its number.
const FACTORS: [u32; 8] =
    [0x243f_6a89, 0x85a3_08d3, 0x1319_8a2f, 0x0370_7345, 0xa409_3823, 0x299f_31d1, 0x082e_fa99, 0xec4e_6c89];

#[derive(Clone, Debug)]
pub(super) struct Filter {
    blocks: Box<[[u32; 8]]>,
}

impl Filter {
    /// A filter of rows with these hashes.
    pub(super) fn new(rows: usize, hashes: impl Iterator<Item = u64>) -> Self {
        let mut filter = Self { blocks: vec![[0; 8]; Self::blocks(rows)].into() };
        for hash in hashes {
            let block = filter.block(hash);
            for (word, bit) in filter.blocks[block].iter_mut().zip(bits(hash)) {
                *word |= bit;
            }
        }
        filter
    }

    /// Whether a row with this hash may be among them; `false` is certain.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let block = &self.blocks[self.block(hash)];
        block.iter().zip(bits(hash)).all(|(word, bit)| word & bit != 0)
    }

    /// Bytes that a filter of this many rows takes.
    pub(super) fn memory_bytes(rows: usize) -> usize {
        Self::blocks(rows) * (BLOCK_BITS / 8)
    }

    fn blocks(rows: usize) -> usize {
        (rows * BITS_PER_ROW).div_ceil(BLOCK_BITS).max(1)
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "half of a hash times a length, shifted by the half, is below it"
    )]
    fn block(&self, hash: u64) -> usize {
        (((hash >> 32) * self.blocks.len() as u64) >> 32) as usize
    }
}

#[inline]
fn bits(hash: u64) -> impl Iterator<Item = u32> {
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is what is meant")]
    let low = hash as u32;
    FACTORS.iter().map(move |factor| 1u32 << (low.wrapping_mul(*factor) >> 27))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::hash_of;

    #[test]
    fn added_rows_are_found_and_hardly_any_others() {
        let hash = |row: u64| hash_of(&row.to_be_bytes());
        for rows in [1, 7, 4_096u64, 20_000] {
            let filter = Filter::new(usize::try_from(rows).unwrap(), (0..rows).map(hash));
            assert!((0..rows).all(|row| filter.may_contain(hash(row))));
            let wrong = (rows..rows + 10_000).filter(|row| filter.may_contain(hash(*row))).count();
            assert!(wrong < 300, "{wrong} of 10000 absent rows pass a filter of {rows}");
        }
    }
}
