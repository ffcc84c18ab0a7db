//! The numbers of a seed: splitmix64, which needs no dependency and is the same everywhere.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Draws numbers.
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is positive.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// A time in milliseconds.
    pub fn ms(&mut self, range: RangeInclusive<u64>) -> Duration {
        let (first, last) = range.into_inner();
        Duration::from_millis(first + self.next() % (last - first + 1))
    }

    /// Whether something happens that happens once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_numbers() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..5).map(|_| dice.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn draws_stay_in_their_bounds() {
        let mut dice = Dice::new(3);
        for _ in 0..1_000 {
            assert!(dice.below(3) < 3);
            let time = dice.ms(5..=7);
            assert!((5..=7).contains(&time.as_millis()));
        }
    }
}
