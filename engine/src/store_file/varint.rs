//! Numbers of variable length: seven bits per byte, low bits first, the high bit set on all bytes but the last.

/// The most bytes of a number.
pub(super) const BYTES_MAX: usize = 10;

/// Appends a number.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the number at `at` and moves `at` past it; `None` where the bytes end first or hold more than 64 bits.
#[inline]
pub(super) fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    get_long(bytes, at)
}

#[inline(never)]
fn get_long(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for (index, byte) in bytes.get(*at..)?.iter().take(BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * index as u32;
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if *byte < 0x80 {
            *at += index + 1;
            return Some(value);
        }
    }
    None
}

/// Reads a number as a length of bytes that are present: it never exceeds what follows.
#[inline]
pub(super) fn get_len(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let len = usize::try_from(get(bytes, at)?).ok()?;
    (len <= bytes.len() - *at).then_some(len)
}

/// Reads a length and that many bytes.
#[inline]
pub(super) fn get_bytes<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let len = get_len(bytes, at)?;
    let found = bytes.get(*at..*at + len)?;
    *at += len;
    Some(found)
}

/// Appends a length and the bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_round_trip() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = vec![9];
                put(&mut out, value);
                let mut at = 1;
                assert_eq!(get(&out, &mut at), Some(value));
                assert_eq!(at, out.len());
                assert_eq!(get(&out[..out.len() - 1], &mut 1), None);
            }
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(get(&[0xff; 11], &mut 0), None);
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(get(&bytes, &mut 0), None);
    }
}
