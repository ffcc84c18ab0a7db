//! Bytes as text that is valid in a URL: RFC 4648, section 5, without padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The text of these bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            let index = word >> (18 - 6 * place) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

/// The inverse of [`encode`]; `None` for text that it would not have written.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for (place, symbol) in chunk.iter().enumerate() {
            let index = ALPHABET.iter().position(|known| known == symbol)?;
            word |= u32::try_from(index).ok()? << (18 - 6 * place);
        }
        let whole = chunk.len().checked_sub(1).filter(|whole| *whole > 0)?;
        bytes.extend_from_slice(&word.to_be_bytes()[1..=whole]);
    }
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_are_encoded() {
        for (plain, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn text_that_was_not_encoded_here_is_refused() {
        for text in ["A", "Zh", "Zg==", "Zm+v", "\u{fc}ber", "Zm9vY"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
