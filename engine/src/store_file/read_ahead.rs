//! Reads more than requested where a cursor walks a file block by block, to reduce disk accesses.
//!
//! The first read after a seek is of one block: most cursors stop early. Once a block adjoins the previously read one,
//! on either side, a larger piece is read at once, and twice as much each time after.

use std::ops::Range;

use super::block::BlockAt;

const BYTES_FIRST: u64 = 32 << 10;
const BYTES_MAX: u64 = 256 << 10;

/// What a cursor has read of a file beyond what it needed.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    pub(super) bytes: Vec<u8>,
    /// Where in the file the bytes are.
    pub(super) offset: u64,
    /// The last block requested.
    last: Option<BlockAt>,
    /// How much to read next time.
    next_bytes: u64,
}

impl ReadAhead {
    /// The bytes of a block, if they were read.
    pub(super) fn get(&self, at: BlockAt) -> Option<&[u8]> {
        let start = usize::try_from(at.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(at.len as usize)?)
    }

    /// The range to read instead of this block alone: the block and what follows it, or what precedes it, within the
    /// data blocks.
    pub(super) fn range(&mut self, at: BlockAt, data_end: u64) -> Range<u64> {
        let end = at.offset + u64::from(at.len);
        let follows = |last: BlockAt| last.offset + u64::from(last.len) == at.offset;
        let precedes = |last: BlockAt| last.offset == end;
        let bytes = self.next_bytes.max(BYTES_FIRST);
        let range = match self.last {
            Some(last) if follows(last) => at.offset..(at.offset + bytes).min(data_end).max(end),
            Some(last) if precedes(last) => end.saturating_sub(bytes).min(at.offset)..end,
            _ => {
                self.next_bytes = BYTES_FIRST;
                return at.offset..end;
            }
        };
        self.next_bytes = (bytes * 2).min(BYTES_MAX);
        range
    }

    /// Notes that a block was requested, wherever it came from.
    pub(super) fn asked(&mut self, at: BlockAt) {
        self.last = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjoining_blocks_are_read_in_ever_larger_pieces_both_ways() {
        let at = |offset| BlockAt { offset, len: 1000 };
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.range(at(5000), 1 << 20), 5000..6000);
        ahead.asked(at(5000));
        assert_eq!(ahead.range(at(6000), 1 << 20), 6000..6000 + BYTES_FIRST);
        ahead.asked(at(6000));
        assert_eq!(ahead.range(at(7000), 1 << 20), 7000..7000 + 2 * BYTES_FIRST);
        assert_eq!(ahead.range(at(7000), 9000), 7000..9000);
        ahead.asked(at(90_000));
        assert_eq!(ahead.range(at(500_000), 1 << 20), 500_000..501_000);
        ahead.asked(at(500_000));
        assert_eq!(ahead.range(at(499_000), 1 << 20), 500_000 - BYTES_FIRST..500_000);
        ahead.asked(at(499_000));
        ahead.asked(at(1000));
        assert_eq!(ahead.range(at(0), 1 << 20), 0..1000);
    }
}
