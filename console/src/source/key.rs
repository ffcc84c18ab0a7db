//! A row key as the pages show it, and as a person enters it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use terrane_types::{escape, unescape};

/// A row key, or a bound of a range. As the start of a range the empty key is the start of the table, as the end its end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Key {
    /// The bytes; in JSON, printable text with `\xHH` for other bytes, which identifies the key in later requests.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub bytes: Vec<u8>,
    /// For people: the parts, as `user=7, time=2026-01-01T00:00:00Z`, where the table declares them; otherwise the escaped
    /// bytes. A bound that ends within a part shows the complete parts and the rest escaped.
    pub text: String,
}

impl Key {
    /// A key of a table without a declared key.
    #[must_use]
    pub fn of_bytes(bytes: impl Into<Vec<u8>>) -> Key {
        let bytes = bytes.into();
        let text = escape(&bytes);
        Key { bytes, text }
    }

    /// A key whose parts the source has decoded.
    #[must_use]
    pub fn decoded(bytes: impl Into<Vec<u8>>, text: impl Into<String>) -> Key {
        Key { bytes: bytes.into(), text: text.into() }
    }
}

/// A key in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// Bytes, as another answer gave them.
    Bytes(Vec<u8>),
    /// As a person typed it: leading key parts (`user=7,time=…` or `7,…`) where the table declares a key, otherwise
    /// printable text with `\xHH`. The source decodes it, because only the source knows the table.
    Typed(String),
}

pub(crate) fn as_text<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(bytes))
}

pub(crate) fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    unescape(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_json_is_text_that_gives_the_bytes_back() {
        let key = Key::of_bytes(b"a\x00\\".to_vec());
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(json, r#"{"bytes":"a\\x00\\\\","text":"a\\x00\\\\"}"#);
        assert_eq!(serde_json::from_str::<Key>(&json).unwrap(), key);
    }
}
