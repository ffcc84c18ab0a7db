//! The binary form that schemas and descriptors share: a version byte, then little-endian integers and length-prefixed
//! bytes, written with a [`ByteWriter`](crate::ByteWriter) and read back with a [`ByteReader`].
//!
//! It carries no checksum because it always travels inside something that does: a log record, a manifest record, a
//! checkpoint.

use crate::byte_reader::{ByteReader, Malformed};
use crate::invalid::Invalid;

/// Reads the version byte, which has to be `format`, and returns a reader of the fields.
pub(crate) fn begin<'a>(what: &str, format: u8, bytes: &'a [u8]) -> Result<ByteReader<&'a [u8]>, Invalid> {
    let mut reader = ByteReader::new(bytes);
    match reader.u8()? {
        found if found == format => Ok(reader),
        found => Err(Invalid::new(format!(
            "a {what} has format {found}; this build reads format {format}, so use the build that wrote it"
        ))),
    }
}

impl From<Malformed> for Invalid {
    fn from(malformed: Malformed) -> Self {
        Self::new(malformed.to_string())
    }
}
