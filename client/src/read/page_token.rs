//! Page tokens: as text, and as the bytes that a server sealed.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use terrane_types::Invalid;

use crate::read::base64url;

/// The longest text that can be a token: servers create tokens of at most 64 KiB, and text is a third longer.
const TOKEN_TEXT_MAX: usize = 96 << 10;

/// The fewest bytes that can be a token: each ends with a tag of this length. Shorter input is the caller's mistake, refused
/// here before any request is sent.
const TOKEN_BYTES_MIN: usize = 32;

/// Where a page ended. Opaque. Its text (`Display`, `FromStr`) is valid in a URL and may be shown to a browser.
///
/// ```
/// let text = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA";
/// let token: terrane_client::PageToken = text.parse()?;
/// assert_eq!(token.to_string(), text);
/// assert!("no-token".parse::<terrane_client::PageToken>().is_err());
/// # Ok::<(), terrane_client::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken {
    pub(crate) sealed: Bytes,
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url::encode(&self.sealed))
    }
}

impl FromStr for PageToken {
    type Err = Invalid;

    /// Accepts any text that can be a token; only a server can tell whether it is a valid one.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let sealed = if text.len() > TOKEN_TEXT_MAX { None } else { base64url::decode(text) };
        let sealed = sealed.filter(|sealed| sealed.len() >= TOKEN_BYTES_MIN);
        sealed
            .map(|sealed| Self { sealed: sealed.into() })
            .ok_or_else(|| Invalid::new("the page token is damaged or is not one of ours; pass it on unchanged"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_as_text() {
        for length in 32..96u8 {
            let sealed: Vec<u8> = (0..length).map(|i| i.wrapping_mul(61).wrapping_add(length)).collect();
            let token = PageToken { sealed: sealed.into() };
            let text = token.to_string();
            assert_eq!(text.parse::<PageToken>().expect("our own text"), token);
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{text} fits into a URL");
        }
        for text in ["", "A", "a b", "==", "no-token", &"A".repeat(TOKEN_TEXT_MAX + 1)] {
            assert!(text.parse::<PageToken>().is_err(), "{text:?}");
        }
    }
}
