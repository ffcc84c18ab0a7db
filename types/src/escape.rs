//! Bytes as printable text and back: `\xHH` for what is not printable ASCII, `\\` for a backslash.
//!
//! Keys, qualifiers and values are shown this way wherever a person or a script reads them (`terrane scan`, exports,
//! errors) and parsed the same way, so that printed text can be pasted. The output is ASCII without control characters:
//! safe in a terminal, and, because tabs are escaped, in a tab-separated line.

use crate::invalid::Invalid;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Shows bytes as text.
///
/// ```
/// assert_eq!(terrane_types::escape(b"a\\\x00z"), r"a\\\x00z");
/// ```
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(byte)),
            _ => {
                text.push_str("\\x");
                text.push(char::from(HEX[usize::from(byte >> 4)]));
                text.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    text
}

/// Parses the output of [`escape`]. Text outside ASCII stands for its UTF-8 bytes; hex digits may be in either case.
///
/// ```
/// assert_eq!(terrane_types::unescape(r"a\x00")?, b"a\0");
/// assert!(terrane_types::unescape(r"a\q").is_err());
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// # Errors
/// [`Invalid`] for a backslash that starts neither `\xHH` nor `\\`.
pub fn unescape(text: &str) -> Result<Vec<u8>, Invalid> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = after;
            continue;
        }
        match after {
            [b'\\', tail @ ..] => {
                bytes.push(b'\\');
                rest = tail;
            }
            [b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.push(hex_value(*high) << 4 | hex_value(*low));
                rest = tail;
            }
            _ => return Err(bad_escape(text, text.len() - rest.len())),
        }
    }
    Ok(bytes)
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

fn bad_escape(text: &str, at: usize) -> Invalid {
    let shown: String = text[at..].chars().take(4).collect();
    Invalid::new(format!(
        "the escape {shown:?} at byte {at} is not one: write \\xHH (two hex digits) for a byte or \\\\ for a backslash"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_bytes_and_tabs_are_hex() {
        assert_eq!(escape(b"\t\x7f\xff ~"), r"\x09\x7F\xFF ~");
    }

    #[test]
    fn bad_escapes_are_refused_with_their_place() {
        for text in [r"ab\", r"ab\x", r"ab\x1", r"ab\xg0", r"ab\n"] {
            let error = unescape(text).expect_err(text);
            assert!(error.what.contains("at byte 2"), "{error}");
        }
        assert!(unescape("é\\é").expect_err("not an escape").what.contains("at byte 2"));
    }

    #[test]
    fn lower_case_hex_and_utf8_are_read() {
        assert_eq!(unescape(r"\xff\xFF").expect("hex"), [255, 255]);
        assert_eq!(unescape("é").expect("utf-8"), "é".as_bytes());
    }

    proptest! {
        #[test]
        fn round_trip(bytes: Vec<u8>) {
            let text = escape(&bytes);
            prop_assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            prop_assert_eq!(unescape(&text).expect("own output"), bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = unescape(&text);
        }
    }
}
