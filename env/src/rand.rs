//! Randomness: the operating system's in production, one seeded generator in the simulation.
//!
//! In production the generator is cryptographically secure and seeded by the system: its output may be an id that must not
//! collide, or the key that seals page tokens.

use std::ops::Range;

#[cfg(not(feature = "sim"))]
use ::rand::Rng;

/// A uniformly drawn number.
pub fn u64() -> u64 {
    u64::from_le_bytes(bytes())
}

/// `N` uniformly drawn bytes.
#[cfg(not(feature = "sim"))]
pub fn bytes<const N: usize>() -> [u8; N] {
    ::rand::rng().random()
}

/// `N` uniformly drawn bytes.
#[cfg(feature = "sim")]
pub fn bytes<const N: usize>() -> [u8; N] {
    crate::sim::random_bytes()
}

/// A number drawn uniformly from `range`; the start of an empty range.
pub fn range(range: Range<u64>) -> u64 {
    let width = range.end.saturating_sub(range.start);
    if width == 0 {
        return range.start;
    }
    // The high half of the product is uniform up to a bias of width / 2^64, far below anything that could be noticed.
    let scaled = (u128::from(u64()) * u128::from(width)) >> 64;
    range.start + u64::try_from(scaled).expect("the product's high half is below the width")
}

#[cfg(test)]
mod tests {
    #[test]
    fn range_stays_inside_and_reaches_both_ends() {
        let drawn: std::collections::BTreeSet<u64> = (0..2_000).map(|_| super::range(10..14)).collect();
        assert_eq!(drawn, (10..14).collect());
    }

    #[test]
    fn an_empty_range_gives_its_start() {
        assert_eq!(super::range(7..7), 7);
    }

    #[test]
    fn two_draws_differ() {
        assert_ne!(super::bytes::<16>(), super::bytes::<16>());
    }
}
