//! Reading and writing the catalog's bytes: fixed-width little-endian numbers, lengths before what they measure.
//!
//! `docs/formats/catalog.md` says what is written with it. A length from the bytes never becomes an allocation: a reader
//! hands out slices of what is there, and lists grow as their elements are found.

use bytes::Bytes;
use terrane_types::{ByteReader, Invalid, Malformed};

/// Version of the layout of edits and outcomes.
pub const EDIT_VERSION: u8 = 1;

/// Bytes that are not what their format says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not hold the fields that they should.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A version that this build does not know.
    #[error("version {found} of {what} is not known to this build; a newer one wrote it")]
    Version {
        /// What has the version.
        what: &'static str,
        /// The version found.
        found: u16,
    },
    /// A tag that names nothing.
    #[error("{found} is no kind of {what}")]
    Tag {
        /// What the tag chooses.
        what: &'static str,
        /// The tag found.
        found: u8,
    },
    /// A field that breaks a rule of its own.
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
        self.u32(u32::try_from(value.len()).expect("no field of the catalog comes near 4 GiB"));
        self.raw(value);
    }

    pub fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// A count, then each element.
    pub fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.u32(u32::try_from(items.len()).expect("no list of the catalog comes near 2^32 elements"));
        for item in items {
            each(self, item);
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Takes the fields of the catalog's bytes.
pub type Reader<'a> = ByteReader<&'a [u8]>;

/// Bytes after their length, copied.
pub fn owned(from: &mut Reader<'_>) -> Result<Bytes, Malformed> {
    from.bytes().map(Bytes::copy_from_slice)
}

/// Refuses an edit or outcome of a version that this build does not know.
pub(super) fn check_version(version: u8) -> Result<(), DecodeError> {
    if version == EDIT_VERSION {
        return Ok(());
    }
    Err(DecodeError::Version { what: "the catalog's edits", found: u16::from(version) })
}
