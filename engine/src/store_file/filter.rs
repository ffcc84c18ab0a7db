//! Bloom filters: which rows, columns or row prefixes a file certainly does not hold.
//!
//! A filter is an array of lines of 512 bits, each a cache line of the processor: all bits of one key lie in one line,
//! so a lookup costs at most one miss. At ten bits per key about one lookup in a hundred for an absent key is a false
//! positive. Keys come as hashes ([`crate::source::hash_of`]), computed once per read for all files.
//!
//! ```text
//! filter = bits per key u8 | probes u8 | lines u32 | line*      line = 8 × u64
//! ```

use super::data_block::Malformed;
use crate::source::hash_of;

/// Bits per key.
const BITS_PER_KEY: u64 = 10;

/// Bits that a key sets.
const PROBES: u8 = 6;

const LINE_BITS: u64 = 512;
const LINE_BYTES: usize = 64;
const HEADER_BYTES: usize = 6;

/// Spreads the bits of a hash from one probe to the next: 2^32 over the golden ratio.
const SPREAD: u32 = 0x9e37_79b9;

/// The hash of a column: of its qualifier, seeded with the row's hash. It is stored on disk and never changes.
pub(crate) fn column_hash(row: u64, qualifier: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(qualifier, row)
}

/// One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; 8]);

/// A filter in memory.
#[derive(Debug)]
pub(super) struct Filter {
    lines: Box<[Line]>,
    probes: u8,
}

impl Filter {
    /// The payload of the filter of these hashes.
    pub(super) fn build(hashes: &[u64]) -> Vec<u8> {
        let lines = (hashes.len() as u64 * BITS_PER_KEY).div_ceil(LINE_BITS).max(1);
        let lines = u32::try_from(lines).expect("a file of 4 billion cache lines of keys is beyond any size of file");
        let mut filter = Self { lines: vec![Line([0; 8]); lines as usize].into_boxed_slice(), probes: PROBES };
        for hash in hashes {
            let at = filter.line_of(*hash);
            let line = &mut filter.lines[at];
            for_each_bit(*hash, PROBES, |word, bit| {
                line.0[word] |= bit;
                true
            });
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + filter.lines.len() * LINE_BYTES);
        out.push(BITS_PER_KEY as u8);
        out.push(PROBES);
        out.extend_from_slice(&lines.to_le_bytes());
        for line in &filter.lines {
            for word in line.0 {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out
    }

    /// Reads a payload.
    pub(super) fn new(payload: &[u8]) -> Result<Self, Malformed> {
        const BAD: Malformed = "a filter is malformed although its checksum is right";
        let (header, words) = payload.split_first_chunk::<HEADER_BYTES>().ok_or(BAD)?;
        let lines = u32::from_le_bytes([header[2], header[3], header[4], header[5]]) as usize;
        let probes = header[1];
        if lines == 0 || probes == 0 || words.len() != lines * LINE_BYTES {
            return Err(BAD);
        }
        let mut filter = vec![Line([0; 8]); lines].into_boxed_slice();
        for (line, bytes) in filter.iter_mut().zip(words.as_chunks::<LINE_BYTES>().0) {
            for (word, bytes) in line.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        Ok(Self { lines: filter, probes })
    }

    /// Whether a key with this hash may be in the file. `false` is certain.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let line = &self.lines[self.line_of(hash)];
        for_each_bit(hash, self.probes, |word, bit| line.0[word] & bit != 0)
    }

    #[inline]
    fn line_of(&self, hash: u64) -> usize {
        // The high half chooses the line, the low half the bits in it.
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }
}

/// Calls `with` for each bit of a hash, as the word of the line and the bit in the word, until it returns `false`.
#[inline]
fn for_each_bit(hash: u64, probes: u8, mut with: impl FnMut(usize, u64) -> bool) -> bool {
    let mut bits = hash as u32;
    for _ in 0..probes {
        let bit = bits >> 23;
        if !with(bit as usize / 64, 1 << (bit % 64)) {
            return false;
        }
        bits = bits.wrapping_mul(SPREAD);
    }
    true
}

/// Gathers hashes for the filters of a file that is being written.
#[derive(Default)]
pub(super) struct FilterBuilder {
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// Adds a hash, unless it equals the previous one.
    pub(super) fn add(&mut self, hash: u64) {
        // The planted bug takes neighbours for equal whose hashes agree in four bits.
        let bits = if terrane_env::planted!("a bloom filter misses rows") { 0xF } else { u64::MAX };
        if self.hashes.last().is_none_or(|last| (last ^ hash) & bits != 0) {
            self.hashes.push(hash);
        }
    }

    /// Adds a row and returns its hash.
    pub(super) fn add_row(&mut self, row: &[u8]) -> u64 {
        let hash = hash_of(row);
        self.add(hash);
        hash
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    pub(super) fn finish(&self) -> Vec<u8> {
        Filter::build(&self.hashes)
    }

    /// Bytes that the filter will take.
    pub(super) fn bytes(&self) -> u64 {
        self.hashes.len() as u64 * BITS_PER_KEY / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_keys_are_found_and_hardly_any_others() {
        for keys in [0u64, 1, 100, 20_000] {
            let hashes: Vec<u64> = (0..keys).map(|key| hash_of(&key.to_le_bytes())).collect();
            let filter = Filter::new(&Filter::build(&hashes)).unwrap();
            assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
            let found = (0..20_000u64).filter(|key| filter.may_contain(hash_of(&(key + keys).to_be_bytes()))).count();
            assert!(found < 20_000 * 15 / 1000, "{found} of 20000 with {keys} keys");
        }
    }

    #[test]
    fn a_filter_of_the_wrong_length_is_refused() {
        let payload = Filter::build(&[1, 2, 3]);
        for len in 0..payload.len() {
            assert!(Filter::new(&payload[..len]).is_err());
        }
    }
}
