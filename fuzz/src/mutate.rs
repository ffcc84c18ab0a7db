//! Changes of valid encodings: flipped bits, other lengths, cuts, repeated and spliced parts.

use terrane_types::fuzzing::Dice;

/// Longest input that changes make.
const BYTES_MAX: usize = 64 << 10;

/// Changes the bytes in one to four ways. `other` is a second valid encoding, or empty.
pub fn change(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + dice.below(4) {
        change_once(dice, bytes, other);
    }
    bytes.truncate(BYTES_MAX);
}

fn change_once(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = dice.below(bytes.len() + 1);
    match dice.below(10) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        2 if at < bytes.len() => bytes[at] = dice.pick(&[0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]),
        3 => overwrite(bytes, at, &dice.number().to_le_bytes()),
        // A length or count: small, huge, or almost what was there.
        4 => overwrite(bytes, at, &dice.number32().to_le_bytes()),
        5 => {
            let near = u16::try_from(dice.below(1 << 16)).unwrap_or(u16::MAX);
            overwrite(bytes, at, &near.to_le_bytes());
        }
        6 => bytes.truncate(at),
        7 => {
            let end = at + dice.below((bytes.len() - at).min(64) + 1);
            if dice.flag() {
                bytes.drain(at..end);
            } else {
                let part = bytes[at..end].to_vec();
                insert(bytes, at, &part);
            }
        }
        8 => {
            let inserted = dice.bytes(16);
            insert(bytes, at, &inserted);
        }
        _ => {
            let from = dice.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes[at..].iter_mut().zip(with).for_each(|(byte, with)| *byte = *with);
}

fn insert(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    bytes.splice(at..at, part.iter().copied());
}
