//! Little-endian fields of the records that this crate encodes by hand: log operations, results, resume tokens and group
//! state.
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

/// Appends a field preceded by its 16-bit length.
///
/// # Errors
/// [`Malformed`] for a field whose length does not fit, and then nothing is written. The edge refuses such rows and
/// qualifiers by name.
pub fn put_short(out: &mut Vec<u8>, field: &[u8]) -> Result<(), Malformed> {
    let len = u16::try_from(field.len()).map_err(|_| Malformed("a row or qualifier is longer than 65535 bytes"))?;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(field);
    Ok(())
}

/// Appends a field preceded by its 32-bit length. A whole batch is at most 32 MiB, checked at the edge.
pub fn put_long(out: &mut Vec<u8>, field: &[u8]) {
    put_count(out, field.len());
    out.extend_from_slice(field);
}

/// Appends a 32-bit count.
pub fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u32::try_from(count).expect("counts and sizes are bounded at the edge").to_le_bytes());
}

/// Appends a 64-bit number.
pub fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let mut out = Vec::new();
        put_short(&mut out, b"row").unwrap();
        put_long(&mut out, b"cells");
        put_u64(&mut out, 9);
        let mut reader = Reader::new(out.into());
        assert_eq!(reader.short().unwrap(), "row");
        assert_eq!(reader.bytes().unwrap(), "cells");
        assert_eq!(reader.u64().unwrap(), 9);
        reader.finish().unwrap();
    }

    #[test]
    fn a_field_too_long_for_its_length_is_refused_and_not_written() {
        let mut out = Vec::new();
        put_short(&mut out, &[b'k'; 65_535]).unwrap();
        assert_eq!(Reader::new(out.into()).short().unwrap().len(), 65_535);
        let mut out = Vec::new();
        assert!(put_short(&mut out, &[b'k'; 65_536]).is_err());
        assert!(out.is_empty());
    }

    #[test]
    fn a_length_past_the_end_is_refused() {
        let mut reader = Reader::new(Bytes::from_static(&[9, 0, 1]));
        assert!(reader.short().is_err());
    }

    #[test]
    fn a_count_that_cannot_be_is_refused() {
        let mut reader = Reader::new(Bytes::from_static(&[255, 255, 255, 255, 1, 2]));
        assert!(reader.count(1).is_err());
    }
}
