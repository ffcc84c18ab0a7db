//! How much a test does: enough to notice a mistake by default, and much more on request.

use std::ops::Range;

/// Whether the thorough form of the tests was requested with `TERRANE_FULL=1`.
pub fn thorough() -> bool {
    std::env::var_os("TERRANE_FULL").is_some()
}

/// The seeds of a random test: `few` by default, `many` in the thorough form, or the one that `TERRANE_SEED` names.
pub fn seeds(few: u64, many: u64) -> Range<u64> {
    let only = std::env::var("TERRANE_SEED").ok().map(|seed| seed.parse().expect("TERRANE_SEED is a number"));
    only.map_or(0..if thorough() { many } else { few }, |seed: u64| seed..seed + 1)
}
