//! The least key above another, which is how an exclusive start and an inclusive end become a half-open range.

use bytes::Bytes;

/// The least key above this one.
pub(crate) fn key_after(row: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(row.len() + 1);
    bytes.extend_from_slice(row);
    bytes.push(0);
    bytes.into()
}
