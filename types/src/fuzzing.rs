//! What the fuzz driver and the crates with formats share: the description of a format, and the dice that draw values.
//!
//! Only built with the feature `fuzzing`. Each crate with formats has a module `fuzzing` with a list `FORMATS`, so that
//! decoders stay private and the driver treats all formats alike. `docs/testing.md` explains the checks.

pub mod draw;

use std::fmt::{Debug, Display};

/// What a format guarantees about damaged bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing: what surrounds the bytes has the checksum.
    Undetected,
    /// A flipped bit anywhere is refused.
    Refused,
    /// Bytes from the damage on are refused or cut; what is before them is read as it was.
    Cut,
}

/// A format as the fuzz driver exercises it.
#[derive(Clone, Copy)]
pub struct Format {
    /// Its name on the command line and in the corpus.
    pub name: &'static str,
    /// What it guarantees about damage.
    pub damage: Damage,
    /// Reads bytes and writes what was read; `None` if they are refused. Any bytes are allowed.
    pub read: fn(&[u8]) -> Option<Vec<u8>>,
    /// Draws a value and writes it; panics unless reading returns the same value.
    pub draw: fn(&mut Dice) -> Vec<u8>,
    /// Writes values at the limits that the edge enforces; panics unless reading returns them.
    pub limits: fn() -> Vec<Vec<u8>>,
}

/// No limits apply to the format alone.
#[must_use]
pub fn no_limits() -> Vec<Vec<u8>> {
    Vec::new()
}

/// What was read, written again. Formats the error too, because messages quote bytes from outside.
pub fn again<T, E: Display>(read: Result<T, E>, write: impl FnOnce(T) -> Vec<u8>) -> Option<Vec<u8>> {
    read.map_err(|error| error.to_string()).ok().map(write)
}

/// The written bytes of a value, checked to be read as the same value.
///
/// # Panics
/// If they are refused, or read as another value.
pub fn round_trip<T: PartialEq + Debug, E: Display>(
    value: &T,
    bytes: Vec<u8>,
    read: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Vec<u8> {
    match read(&bytes) {
        Ok(back) if back == *value => bytes,
        Ok(back) => panic!("a value is read as another one\nwritten {value:?}\n   read {back:?}"),
        Err(error) => panic!("a value that was written is refused: {error}\nwritten {value:?}"),
    }
}

/// A small seeded generator (SplitMix64) of values that decoders find interesting: zeros, limits, neighbours of both.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.u64() % (end.max(1) as u64)).expect("it is below a usize")
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of two.
    pub fn flag(&mut self) -> bool {
        self.one_in(2)
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Small numbers, numbers next to a power of two, the greatest ones, or any.
    pub fn number(&mut self) -> u64 {
        match self.below(6) {
            0 | 1 => self.u64() % 8,
            2 => self.u64() % 100_000,
            3 => (1u64 << self.below(64)).wrapping_add(self.u64() % 3).wrapping_sub(1),
            4 => u64::MAX - self.u64() % 3,
            _ => self.u64(),
        }
    }

    /// The low half of a [`Dice::number`].
    pub fn number32(&mut self) -> u32 {
        u32::try_from(self.number() & u64::from(u32::MAX)).expect("the upper half is masked")
    }

    /// A signed [`Dice::number`].
    pub fn signed(&mut self) -> i64 {
        self.number().cast_signed()
    }

    /// `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u64().to_le_bytes()[0])
    }

    /// Up to `longest` bytes, mostly few; often of a small alphabet, so that two of them share beginnings.
    pub fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let usual = longest.min(12);
        let length = if self.one_in(16) { self.below(longest + 1) } else { self.below(usual + 1) };
        let narrow = self.flag();
        (0..length)
            .map(|_| if narrow { self.pick(&[0x00, 0x01, b'a', b'b', 0xFE, 0xFF]) } else { self.array::<1>()[0] })
            .collect()
    }

    /// Up to `longest` characters of any kind.
    pub fn text(&mut self, longest: usize) -> String {
        let length = self.below(longest + 1);
        (0..length).map(|_| self.pick(&['a', 'B', '0', ' ', '\'', '\\', '"', '\n', '\0', 'é', '水', '🦀'])).collect()
    }

    /// A name as tables, families and key parts have it.
    pub fn name(&mut self) -> String {
        let length = 1 + if self.one_in(20) { self.below(128) } else { self.below(6) };
        (0..length).map(|_| self.pick(&['a', 'b', 'Z', '0', '9', '_', '.', '-'])).collect()
    }

    /// Up to `most` values.
    pub fn list<T>(&mut self, most: usize, mut each: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| each(self)).collect()
    }
}
