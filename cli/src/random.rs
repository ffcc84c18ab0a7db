//! A small seeded generator (SplitMix64), so that the demo's weather and a benchmark's keys are the same every time.
//!
//! It is implemented here because a library may change its generator between versions, and a seed would then stand for
//! different data.

/// A stream of numbers determined by a seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is below the bound; its bias is bound / 2^64.
        let product = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of a product of two 64-bit numbers has 64 bits")
    }

    /// Fills the bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.draw().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // The first outputs of the reference implementation for the seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.draw(), 6_457_827_717_110_365_317);
        assert_eq!(random.draw(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn bounds_hold_and_are_reached() {
        let mut random = Random::new(7);
        let drawn: std::collections::BTreeSet<u64> = (0..1_000).map(|_| random.below(5)).collect();
        assert_eq!(drawn, (0..5).collect());
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn fill_reaches_the_last_byte() {
        let mut bytes = [0u8; 13];
        Random::new(1).fill(&mut bytes);
        assert!(bytes[8..].iter().any(|&byte| byte != 0));
    }
}
