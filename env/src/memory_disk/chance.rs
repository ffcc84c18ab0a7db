//! The random choices of a crash.
//!
//! Its own generator, so that a seed printed by a failed test means the same states whatever the versions of libraries.

/// SplitMix64: small, and good enough to choose among outcomes.
#[derive(Debug)]
pub(super) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or zero when there is none.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is below the bound, so the cast loses nothing.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// True in `eighths` of eight draws.
    pub(super) fn in_eight(&mut self, eighths: usize) -> bool {
        self.below(8) < eighths
    }
}
