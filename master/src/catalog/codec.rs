//! Reading and writing the catalog's bytes: fixed-width little-endian numbers, lengths before what they measure.
//!
//! `docs/formats/catalog.md` says what is written with it. A length from the bytes never becomes an allocation: a reader
//! hands out slices of what is there, and lists grow as their elements are found.

use bytes::Bytes;
use terrane_types::Invalid;

/// Version of the layout of edits and outcomes.
pub const EDIT_VERSION: u8 = 1;

/// Bytes that are not what their format says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("the bytes end inside a field, at offset {0}")]
    Short(usize),
    /// Bytes are left after the last field.
    #[error("{0} bytes are left after the last field")]
    Long(usize),
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

/// Takes fields off the front.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(count).ok_or(DecodeError::Short(self.at))?;
        let taken = self.bytes.get(self.at..end).ok_or(DecodeError::Short(self.at))?;
        self.at = end;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.u32()?;
        self.take(usize::try_from(count).map_err(|_| DecodeError::Short(self.at))?)
    }

    pub fn owned(&mut self) -> Result<Bytes, DecodeError> {
        self.bytes().map(Bytes::copy_from_slice)
    }

    pub fn text(&mut self) -> Result<String, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| DecodeError::Rule(error.to_string()))
    }

    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.u32()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(each(self)?);
        }
        Ok(items)
    }

    /// Refuses what is left over.
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(DecodeError::Long(left)),
        }
    }
}

/// Refuses an edit or outcome of a version that this build does not know.
pub(super) fn check_version(version: u8) -> Result<(), DecodeError> {
    if version == EDIT_VERSION {
        return Ok(());
    }
    Err(DecodeError::Version { what: "the catalog's edits", found: u16::from(version) })
}
