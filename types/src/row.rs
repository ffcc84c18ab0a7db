//! A checked row key.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::escape::escape;
use crate::invalid::Invalid;
use crate::limits::ROW_BYTES_MAX;

/// A row key: 1 to 32,767 bytes, ordered as bytes.
///
/// ```
/// use terrane_types::Row;
/// assert_eq!(Row::new("a")?.as_bytes(), b"a");
/// assert!(Row::new("").is_err());
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(Bytes);

impl Row {
    /// Checks the length of a row key.
    ///
    /// # Errors
    /// [`Invalid`] when there are none or more than [`ROW_BYTES_MAX`].
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, Invalid> {
        let bytes = bytes.into();
        check_row(&bytes)?;
        Ok(Self(bytes))
    }

    /// The key's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key as shared bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The least row above this one: the key with a zero byte appended. A scan that must skip this row starts there.
    ///
    /// It may be one byte longer than a row can be, which is fine for a bound, so its type is bytes.
    #[must_use]
    pub fn after(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.0.len() + 1);
        bytes.extend_from_slice(&self.0);
        bytes.push(0);
        bytes.into()
    }
}

/// Checks the length of a borrowed row key.
///
/// # Errors
/// [`Invalid`] when there are no bytes or more than [`ROW_BYTES_MAX`].
pub fn check_row(bytes: &[u8]) -> Result<(), Invalid> {
    match bytes.len() {
        0 => Err(Invalid::new(format!("the row key is empty; rows have 1 to {ROW_BYTES_MAX} bytes"))),
        length if length > ROW_BYTES_MAX => {
            Err(Invalid::new(format!("the row key has {length} bytes; rows have 1 to {ROW_BYTES_MAX} bytes")))
        }
        _ => Ok(()),
    }
}

impl Deref for Row {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Row {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Row {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<Row> for Bytes {
    fn from(row: Row) -> Self {
        row.0
    }
}

impl TryFrom<Bytes> for Row {
    type Error = Invalid;

    fn try_from(bytes: Bytes) -> Result<Self, Invalid> {
        Self::new(bytes)
    }
}

impl TryFrom<Vec<u8>> for Row {
    type Error = Invalid;

    fn try_from(bytes: Vec<u8>) -> Result<Self, Invalid> {
        Self::new(bytes)
    }
}

impl TryFrom<&[u8]> for Row {
    type Error = Invalid;

    fn try_from(bytes: &[u8]) -> Result<Self, Invalid> {
        check_row(bytes)?;
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }
}

impl TryFrom<&str> for Row {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        Self::try_from(text.as_bytes())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_at_the_limits() {
        assert!(Row::new(Vec::new()).is_err());
        assert!(Row::new(vec![0; 1]).is_ok());
        assert!(Row::new(vec![0; ROW_BYTES_MAX]).is_ok());
        let error = Row::new(vec![0; ROW_BYTES_MAX + 1]).expect_err("one byte too long");
        assert_eq!(error.what, "the row key has 32768 bytes; rows have 1 to 32767 bytes");
    }

    #[test]
    fn nothing_lies_between_a_row_and_what_is_after_it() {
        let row = Row::new("ab").expect("a valid row");
        assert_eq!(&row.after()[..], b"ab\0");
    }
}
