//! The properties of a format, and one execution that checks them on bytes chosen by a seed.
//!
//! 1. Any bytes are read or refused: no panic, and no allocation beyond [`ALLOCATION_MIN`] plus
//!    [`ALLOCATION_FACTOR`] times the input.
//! 2. What was read is written, and the written bytes are read as themselves.
//! 3. A drawn value is written and read as the same value, and its bytes are read as themselves.
//! 4. Flipped bits are refused, or cut off with everything behind them, where the format promises that.

use terrane_types::fuzzing::{Damage, Dice, Format};

use crate::mutate;

/// Allocated on any input: a block may state a length of 14 MiB before it is decompressed.
pub const ALLOCATION_MIN: usize = 32 << 20;
/// Allocated for each byte of input.
pub const ALLOCATION_FACTOR: usize = 4096;

/// Bits flipped in one drawn encoding.
const FLIPS: usize = 6;

/// Chooses bytes by the seed, announces them, and checks the format on them. `corpus` holds valid encodings.
///
/// # Panics
/// If a property does not hold.
pub fn execute(format: &Format, seed: u64, corpus: &[Vec<u8>], announce: &mut dyn FnMut(&[u8])) {
    let mut dice = Dice::new(seed);
    match dice.below(8) {
        0 | 1 => drawn(format, &mut dice, announce),
        2 => {
            let bytes = dice.bytes(600);
            announce(&bytes);
            any(format, &bytes);
        }
        _ => {
            let from_corpus = !corpus.is_empty() && dice.flag();
            let mut bytes = if from_corpus { dice.pick(corpus) } else { (format.draw)(&mut dice) };
            let other = if from_corpus { dice.pick(corpus) } else { Vec::new() };
            mutate::change(&mut dice, &mut bytes, &other);
            announce(&bytes);
            any(format, &bytes);
        }
    }
}

/// Properties 1 and 2.
///
/// # Panics
/// If one does not hold.
pub fn any(format: &Format, bytes: &[u8]) {
    let (before, highest_before) = crate::allocated();
    let read = (format.read)(bytes);
    let (_, highest) = crate::allocated();
    let bound = before + ALLOCATION_MIN + ALLOCATION_FACTOR * bytes.len();
    assert!(
        highest == highest_before || highest <= bound,
        "reading {} bytes allocated {} bytes",
        bytes.len(),
        highest - before
    );
    let Some(written) = read else { return };
    let again = (format.read)(&written);
    assert!(
        again.as_ref() == Some(&written),
        "what was read and written is not read as itself\nwritten {}\n   then {}",
        shown(Some(&written)),
        shown(again.as_ref())
    );
}

/// Properties 3 and 4.
fn drawn(format: &Format, dice: &mut Dice, announce: &mut dyn FnMut(&[u8])) {
    let bytes = (format.draw)(dice);
    announce(&bytes);
    valid(format, &bytes);
    for _ in 0..FLIPS {
        let bit = dice.below(bytes.len() * 8);
        flipped(format, &bytes, bit, announce);
    }
}

/// The bytes of a valid value are read as themselves.
///
/// # Panics
/// If they are not.
pub fn valid(format: &Format, bytes: &[u8]) {
    let read = (format.read)(bytes);
    assert!(
        read.as_deref() == Some(bytes),
        "a valid encoding is not read as itself\nwritten {}\n   read {}",
        shown(Some(&bytes.to_vec())),
        shown(read.as_ref())
    );
}

/// A value that an earlier build wrote is read. This build may write it in another way.
///
/// # Panics
/// If it is not.
pub fn readable(format: &Format, bytes: &[u8]) {
    assert!(
        (format.read)(bytes).is_some(),
        "{} does not read what a build wrote: {}",
        format.name,
        shown(Some(&bytes.to_vec()))
    );
}

/// Checks what the format promises about one flipped bit of a valid encoding.
///
/// # Panics
/// If it does not hold.
pub fn flipped(format: &Format, bytes: &[u8], bit: usize, announce: &mut dyn FnMut(&[u8])) {
    let mut damaged = bytes.to_vec();
    let Some(byte) = damaged.get_mut(bit / 8) else { return };
    *byte ^= 1 << (bit % 8);
    announce(&damaged);
    let read = (format.read)(&damaged);
    match format.damage {
        Damage::Undetected => {}
        Damage::Refused => assert!(read.is_none(), "bit {bit} was flipped, and nothing is refused"),
        Damage::Cut => {
            let holds = read.as_ref().is_none_or(|read| read.len() < bytes.len() && bytes.starts_with(read));
            assert!(holds, "bit {bit} was flipped, and what is read differs: {}", shown(read.as_ref()));
        }
    }
}

/// The beginning of some bytes, as hexadecimal digits.
fn shown(bytes: Option<&Vec<u8>>) -> String {
    let Some(bytes) = bytes else { return "refused".to_owned() };
    let digits: String = bytes.iter().take(200).map(|byte| format!("{byte:02x}")).collect();
    format!("{} bytes {digits}", bytes.len())
}
