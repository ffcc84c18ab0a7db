//! Reads the records that this crate encodes by hand: log operations, results, resume tokens and group state.
//!
//! Decoding never trusts a length: every field is checked against what is left, and slices share the record's buffer, so a
//! length from outside never becomes an allocation.

use bytes::Bytes;
use terrane_types::ByteReader;

/// A record that ends too early, has an impossible count, or an unknown version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record is malformed: {0}")]
pub struct Malformed(pub &'static str);

/// Reads the fields of a record; slices share its buffer.
pub type Reader = ByteReader<Bytes>;

impl From<terrane_types::Malformed> for Malformed {
    fn from(malformed: terrane_types::Malformed) -> Self {
        Self(malformed.what())
    }
}
