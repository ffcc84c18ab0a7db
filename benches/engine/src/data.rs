//! Keys, values and choices, each a pure function of the seed and a number, so that every store gets the same.
//!
//! The key of row `n` is `user` followed by 36 digits of `2n`; odd numbers are the absent keys between rows. Half of each
//! value is random and half is the same in all rows, so block compression removes about half of it. Rows are inserted in
//! an order that is computed, not stored, so the harness takes no memory from the caches under test.

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 40;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 100;

/// Bytes of a row's data, the basis for disk usage.
pub(crate) const ROW_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;

const RANDOM_BYTES: usize = VALUE_BYTES / 2;
const PREFIX: &[u8] = b"user";
const PATTERN: &[u8; 10] = b"0123456789";

/// Rounds of the permutation. Three turn a pseudo-random function into a good shuffle; four are customary.
const ROUNDS: u64 = 4;

pub(crate) type Key = [u8; KEY_BYTES];
pub(crate) type Value = [u8; VALUE_BYTES];

/// The rows of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    count: u64,
    seed: u64,
    /// Half the width of the numbers that the permutation works on.
    half_bits: u32,
}

impl Rows {
    /// Takes at least one row.
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        let count = count.max(1);
        let bits = 64 - (count - 1).leading_zeros();
        Self { count, seed, half_bits: bits.div_ceil(2).max(1) }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The row inserted at position `place`, from 0: a permutation of `0..count`.
    pub(crate) fn number(&self, place: u64) -> u64 {
        debug_assert!(place < self.count, "places are below the number of rows");
        let mut number = place;
        // The network permutes a power of four that is at least the count. A result beyond the count is permuted again; it
        // returns into the range eventually, because it started there.
        loop {
            number = self.shuffled(number);
            if number < self.count {
                return number;
            }
        }
    }

    /// A Feistel network: every round is its own inverse, so it is a permutation whatever the mixing function.
    fn shuffled(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (mix(self.seed ^ (round << 60) ^ right) & mask));
        }
        (left << self.half_bits) | right
    }

    /// The value of a row; `version` distinguishes overwrites.
    pub(crate) fn value(&self, number: u64, version: u64, value: &mut Value) {
        let (random, pattern) = value.split_at_mut(RANDOM_BYTES);
        let mut state = mix(self.seed ^ number.rotate_left(20) ^ version);
        for chunk in random.chunks_mut(8) {
            state = mix(state);
            chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
        }
        for chunk in pattern.chunks_mut(PATTERN.len()) {
            chunk.copy_from_slice(&PATTERN[..chunk.len()]);
        }
    }

    /// The `draw`-th number of stream `stream`, below `bound`.
    pub(crate) fn choice(&self, stream: u64, draw: u64, bound: u64) -> u64 {
        let random = mix(mix(self.seed ^ stream) ^ draw);
        // The high half of the product is below the bound; its bias is bound / 2^64.
        let product = u128::from(random) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of a product of two 64-bit numbers has 64 bits")
    }
}

/// The key of a row that exists.
pub(crate) fn key(number: u64) -> Key {
    digits(2 * number)
}

/// An absent key, directly after that of row `number`.
pub(crate) fn absent_key(number: u64) -> Key {
    digits(2 * number + 1)
}

fn digits(mut number: u64) -> Key {
    let mut key = [b'0'; KEY_BYTES];
    key[..PREFIX.len()].copy_from_slice(PREFIX);
    for digit in key.iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + u8::try_from(number % 10).expect("a digit is below ten");
        number /= 10;
    }
    key
}

/// The finishing function of SplitMix64: every bit of the input reaches every bit of the output.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_inserted_once() {
        for count in [1, 2, 3, 4, 5, 100, 1_000, 4_096, 4_097] {
            let rows = Rows::new(count, 7);
            let numbers: BTreeSet<u64> = (0..count).map(|place| rows.number(place)).collect();
            assert_eq!(numbers, (0..count).collect(), "{count} rows");
        }
    }

    #[test]
    fn the_order_is_random_and_the_seeds() {
        let order = |seed| (0..1_000).map(|place| Rows::new(1_000, seed).number(place)).collect::<Vec<_>>();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let ascending = order(1).windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((400..600).contains(&ascending), "{ascending} of 999 steps go up");
    }

    #[test]
    fn keys_sort_by_number_with_absent_ones_between() {
        assert_eq!(&key(0), b"user000000000000000000000000000000000000");
        assert_eq!(&key(617)[30..], b"0000001234");
        for number in [0, 4, 5, 9, 49, 999_999] {
            assert!(key(number) < absent_key(number) && absent_key(number) < key(number + 1));
        }
    }

    #[test]
    fn values_differ_by_row_and_version_in_their_first_half_only() {
        let value = |number, version| {
            let mut value = [0; VALUE_BYTES];
            Rows::new(10, 1).value(number, version, &mut value);
            value
        };
        assert_eq!(value(3, 0), value(3, 0));
        assert_ne!(value(3, 0)[..RANDOM_BYTES], value(4, 0)[..RANDOM_BYTES]);
        assert_ne!(value(3, 0)[..RANDOM_BYTES], value(3, 1)[..RANDOM_BYTES]);
        assert_eq!(value(3, 0)[RANDOM_BYTES..], value(4, 1)[RANDOM_BYTES..]);
    }

    #[test]
    fn choices_reach_both_ends_and_no_further() {
        let rows = Rows::new(10, 1);
        let chosen: BTreeSet<u64> = (0..1_000).map(|draw| rows.choice(1, draw, 10)).collect();
        assert_eq!(chosen, (0..10).collect());
    }
}
