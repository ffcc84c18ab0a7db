//! Bytes as printable text and back: `\xHH` for what is not printable UTF-8, `\\` for a backslash.
//!
//! Keys, qualifiers and values are shown this way wherever a person or a script reads them (`terrane scan`, exports,
//! errors) and parsed the same way, so that printed text can be pasted. The output has neither control nor invisible
//! characters: it is safe in a terminal, and, because tabs are escaped, in a tab-separated line.

use crate::invalid::Invalid;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Shows bytes as text.
///
/// ```
/// assert_eq!(terrane_types::escape(b"a\\\x00z"), r"a\\\x00z");
/// assert_eq!(terrane_types::escape("Zürich 東京".as_bytes()), "Zürich 東京");
/// assert_eq!(terrane_types::escape(b"\xE6\x9D"), r"\xE6\x9D"); // half a character
/// ```
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    escaped(bytes, |character| matches!(character, ' '..='~'))
}

/// Shows the name of a family: of ASCII, only what tables' names are made of is shown as it is. So a name is one word in
/// a list, a command, an attribute and a column. [`unescape`] reads it.
///
/// ```
/// assert_eq!(terrane_types::escape_family("a, 東京".as_bytes()), r"a\x2C\x20東京");
/// ```
#[must_use]
pub fn escape_family(name: &[u8]) -> String {
    escaped(name, |character| character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-'))
}

fn escaped(bytes: &[u8], is_plain: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' if is_plain('\\') => text.push_str("\\\\"),
                _ if is_plain(character) => text.push(character),
                _ if !character.is_ascii() && is_printable(character) => text.push(character),
                _ => push_hex(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        text.push_str("\\x");
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
}

/// Whether a character outside ASCII is printable: no control, format, private or unassigned character, and no separator.
/// The standard library knows that only as the characters that its debug form leaves alone. A character before it keeps
/// combining marks, which that form escapes at the start of a text.
fn is_printable(character: char) -> bool {
    let mut buffer = [b'x'; 5];
    let length = 1 + character.encode_utf8(&mut buffer[1..]).len();
    let text = std::str::from_utf8(&buffer[..length]).expect("a letter and a character are UTF-8");
    text.escape_debug().eq(text.chars())
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
        "the escape {shown} at byte {at} is not one: write \\xHH (two hex digits) for a byte or \\\\ for a backslash"
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
    fn text_in_any_script_is_shown_and_what_cannot_be_seen_is_hex() {
        for shown in ["Zürich", "東京", "नमस्ते", "e\u{301}", "😀", "a'b\"c"] {
            assert_eq!(escape(shown.as_bytes()), shown);
        }
        // A zero-width space, a direction override, a no-break space, a line separator and a private character.
        for hidden in ["\u{200b}", "\u{202e}", "\u{a0}", "\u{2028}", "\u{e000}", "\u{85}"] {
            let text = escape(hidden.as_bytes());
            assert!(text.starts_with("\\x") && text.is_ascii(), "{text}");
        }
        assert_eq!(escape(b"\xc3(\xff\xe6\x9d\xb1\xe6"), r"\xC3(\xFF東\xE6");
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
            prop_assert!(!text.contains(char::is_control));
            prop_assert_eq!(unescape(&text).expect("own output"), &bytes[..]);
            let word = escape_family(&bytes);
            prop_assert!(!word.contains([' ', ',', ':', '=', '(', '\'', '"', '/']));
            prop_assert_eq!(unescape(&word).expect("own output"), bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = unescape(&text);
        }
    }
}
