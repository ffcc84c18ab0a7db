//! The binary form that schemas and descriptors share: a version byte, then little-endian integers and length-prefixed
//! bytes, written with a [`ByteWriter`](crate::ByteWriter) and read back with a [`ByteReader`].
//!
//! It carries no checksum because it always travels inside something that does: a log record, a manifest record, a
//! checkpoint.

use crate::byte_reader::{ByteReader, Malformed};
pub(crate) use crate::byte_writer::ByteWriter as Writer;
use crate::invalid::Invalid;

/// Reads the version byte; formats 1 to `newest` are known. Returns the format and a reader of the fields.
pub(crate) fn begin<'a>(what: &str, newest: u8, bytes: &'a [u8]) -> Result<(u8, ByteReader<&'a [u8]>), Invalid> {
    let mut reader = ByteReader::new(bytes);
    let format = reader.u8()?;
    if (1..=newest).contains(&format) {
        return Ok((format, reader));
    }
    Err(Invalid::new(format!(
        "a {what} has format {format}; this build reads up to format {newest}, so use the build that wrote it"
    )))
}

impl From<Malformed> for Invalid {
    fn from(malformed: Malformed) -> Self {
        Self::new(malformed.to_string())
    }
}
