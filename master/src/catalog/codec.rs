//! The catalog's encoding: fixed-width little-endian numbers, and lengths before data.
//!
//! `docs/formats/catalog.md` documents what is encoded. A length in the input is never used for an allocation: the
//! reader returns slices of its input, and lists grow as their elements are read.

use bytes::Bytes;
pub use terrane_types::ByteWriter;
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
