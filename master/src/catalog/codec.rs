//! The catalog's encoding: fixed-width little-endian numbers, and lengths before data.
//!
//! `docs/formats/catalog.md` documents what is encoded. A length in the input is never used for an allocation: the
//! reader returns slices of its input, and lists grow as their elements are read.

use bytes::Bytes;
use terrane_types::{ByteReader, Invalid, Malformed};

/// Version of the layout of edits and outcomes.
pub const EDIT_VERSION: u8 = 1;

/// Bytes that do not follow their format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a field, or continue after the last one.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// An unknown version.
    #[error("version {found} of {what} was written by a newer build")]
    Version {
        /// What has the version.
        what: &'static str,
        /// The version found.
        found: u16,
    },
    /// An unknown tag.
    #[error("{found} is not a known {what}")]
    Tag {
        /// What the tag chooses.
        what: &'static str,
        /// The tag found.
        found: u8,
    },
    /// A field with an invalid value.
    #[error("{0}")]
    Rule(String),
}

impl From<Invalid> for DecodeError {
    fn from(invalid: Invalid) -> Self {
        Self::Rule(invalid.what)
    }
}

/// Appends fields.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn raw(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).expect("a field of the catalog is far smaller than 4 GiB"));
        self.raw(value);
    }

    pub fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// A tag, then numbers.
    pub fn tagged(&mut self, tag: u8, numbers: &[u64]) {
        self.u8(tag);
        numbers.iter().for_each(|number| self.u64(*number));
    }

    /// A count, then each element.
    pub fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.u32(u32::try_from(items.len()).expect("a list of the catalog has far fewer than 2^32 elements"));
        for item in items {
            each(self, item);
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads the catalog's fields.
pub type Reader<'a> = ByteReader<&'a [u8]>;

/// Reads a length and that many bytes, copied.
pub fn owned(from: &mut Reader<'_>) -> Result<Bytes, Malformed> {
    from.bytes().map(Bytes::copy_from_slice)
}

/// Reads a byte that is 0 or 1.
pub(super) fn flag(from: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(DecodeError::Tag { what: "flag", found }),
    }
}

/// Rejects an edit or outcome of an unknown version.
pub(super) fn check_version(version: u8) -> Result<(), DecodeError> {
    if version == EDIT_VERSION {
        return Ok(());
    }
    Err(DecodeError::Version { what: "the catalog's edits", found: u16::from(version) })
}
