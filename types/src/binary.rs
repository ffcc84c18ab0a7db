//! The binary form that schemas and descriptors share: a version byte, then little-endian integers and length-prefixed
//! bytes, read back with a [`ByteReader`].
//!
//! It carries no checksum because it always travels inside something that does: a log record, a manifest record, a
//! checkpoint.

use crate::byte_reader::{ByteReader, Malformed};
use crate::invalid::Invalid;

/// Appends fields in order.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(format: u8) -> Self {
        Self(vec![format])
    }

    pub(crate) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("what is counted here has limits far below 2^32"));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

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
