//! Values: a unique token, repeated up to a size, so that a history names a large value in a few bytes.
//!
//! A value that was mixed up, cut or damaged has another name than the one that was written.

/// The bytes of `token*size`.
pub fn bytes(token: &str, size: usize) -> Vec<u8> {
    token.bytes().cycle().take(size.max(token.len())).collect()
}

/// How a history names a value.
pub fn name(token: &str, size: usize) -> String {
    format!("{token}*{}", size.max(token.len()))
}

/// The name of bytes that were read: of a value if they are one, otherwise with what they begin with.
pub fn name_of(found: &[u8]) -> String {
    let token: Vec<u8> = found.iter().copied().take_while(u8::is_ascii_graphic).collect();
    let end = token.iter().position(|byte| *byte == END).map_or(token.len(), |at| at + 1);
    let token = String::from_utf8_lossy(&token[..end]);
    if bytes(&token, found.len()) == found {
        return name(&token, found.len());
    }
    let begin: String = found.iter().take(64).map(|byte| byte.escape_ascii().to_string()).collect();
    format!("damaged, {} bytes: {begin}", found.len())
}

/// The last byte of each token.
const END: u8 = b';';

/// A token that no other write has.
pub fn token(who: &str, number: u64) -> String {
    format!("{who}-{number};")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_name_it_was_written_under() {
        for size in [0, 6, 7, 3_000] {
            let token = token("w1", 17);
            assert_eq!(name_of(&bytes(&token, size)), name(&token, size));
        }
    }

    #[test]
    fn a_damaged_value_has_another_name() {
        let token = token("w1", 17);
        let mut cut = bytes(&token, 100);
        cut.truncate(99);
        assert_eq!(name_of(&cut), name(&token, 99));
        let mut mixed = bytes(&token, 100);
        mixed[50] ^= 1;
        assert!(name_of(&mixed).starts_with("damaged, 100 bytes: w1-17;w1-17;"));
        assert_eq!(name_of(b""), "*0");
    }
}
