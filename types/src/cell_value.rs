//! A value on its way into a cell: bytes, text, or a number in the encoding that [`ValueType`] reads.
//!
//! Calls that write take `impl Into<CellValue>`, so that a caller writes `5_i64` and not its bytes. A value of any other
//! type becomes one with [`CellValue::of`], or with a `From` of its own.
//!
//! Invariants:
//! - Building one copies no bytes: borrowed bytes stay borrowed, and numbers fit inside.
//! - The encoding is that of [`ColumnValue`], so that what is written as a type is read as the same type.

use std::borrow::Cow;

use bytes::Bytes;
use uuid::Uuid;

use crate::invalid::Invalid;
use crate::row::Row;
use crate::table_row::ColumnValue;
use crate::time::Time;
use crate::value_type::ValueType;

/// The bytes of the longest value with a fixed width: a UUID.
const SHORT_BYTES_MAX: usize = 16;

/// A value to write into a cell or to compare one with; made from bytes, text, numbers, [`Time`], `bool` and [`Uuid`].
///
/// Numbers are big-endian, as [`ValueType`] reads them; a `Time` is an `i64` of milliseconds; `bool` is one byte, FF or 00. The type of a number decides its
/// bytes: `5` alone is an `i32` of 4 bytes, and a counter needs `5_i64`.
///
/// ```
/// use terrane_types::{CellValue, ColumnValue, ValueType};
/// let value = CellValue::from(5_i64);
/// assert_eq!(value.bytes()?, [0, 0, 0, 0, 0, 0, 0, 5]);
/// assert_eq!(value.value_type(), ValueType::I64);
/// assert_eq!(i64::from_value(value.bytes()?)?, 5);
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// A type of the caller's gets a `From`:
///
/// ```
/// use terrane_types::CellValue;
/// enum State { Waiting, Running }
/// impl From<State> for CellValue<'_> {
///     fn from(state: State) -> Self {
///         match state {
///             State::Waiting => "waiting".into(),
///             State::Running => "running".into(),
///         }
///     }
/// }
/// assert_eq!(CellValue::from(State::Running).bytes()?, b"running");
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct CellValue<'a> {
    content: Content<'a>,
    value_type: ValueType,
}

#[derive(Clone, Debug)]
enum Content<'a> {
    Borrowed(&'a [u8]),
    Shared(Bytes),
    Owned(Vec<u8>),
    /// The first `length` bytes.
    Short {
        bytes: [u8; SHORT_BYTES_MAX],
        length: usize,
    },
    /// The value has no encoding.
    Refused(Invalid),
}

impl CellValue<'_> {
    /// Any value that can be a column's. If it has no encoding, the call that takes the value fails.
    #[must_use]
    pub fn of(value: &impl ColumnValue) -> Self {
        let content = value.to_value().map_or_else(Content::Refused, Content::Owned);
        Self { content, value_type: ValueType::Bytes }
    }

    /// The value's bytes.
    ///
    /// # Errors
    /// [`Invalid`] for a value without an encoding, which only [`CellValue::of`] can make.
    pub fn bytes(&self) -> Result<&[u8], Invalid> {
        match &self.content {
            Content::Borrowed(bytes) => Ok(bytes),
            Content::Shared(bytes) => Ok(bytes),
            Content::Owned(bytes) => Ok(bytes),
            Content::Short { bytes, length } => Ok(&bytes[..*length]),
            Content::Refused(invalid) => Err(invalid.clone()),
        }
    }

    /// The value's bytes, which are copied only if they are borrowed.
    ///
    /// # Errors
    /// As for [`CellValue::bytes`].
    pub fn into_bytes(self) -> Result<Bytes, Invalid> {
        match self.content {
            Content::Shared(bytes) => Ok(bytes),
            Content::Owned(bytes) => Ok(bytes.into()),
            _ => self.bytes().map(Bytes::copy_from_slice),
        }
    }

    /// The same value, which borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> CellValue<'static> {
        let content = match self.content {
            Content::Borrowed(bytes) => Content::Shared(Bytes::copy_from_slice(bytes)),
            Content::Shared(bytes) => Content::Shared(bytes),
            Content::Owned(bytes) => Content::Owned(bytes),
            Content::Short { bytes, length } => Content::Short { bytes, length },
            Content::Refused(invalid) => Content::Refused(invalid),
        };
        CellValue { content, value_type: self.value_type }
    }

    /// The type of a number or a text; [`ValueType::Bytes`] for everything else.
    #[must_use]
    pub const fn value_type(&self) -> ValueType {
        self.value_type
    }

    fn short<const N: usize>(value: [u8; N], value_type: ValueType) -> Self {
        const { assert!(N <= SHORT_BYTES_MAX) };
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..N].copy_from_slice(&value);
        Self { content: Content::Short { bytes, length: N }, value_type }
    }
}

macro_rules! from_number {
    ($($number:ty => $value_type:ident),*) => {$(
        impl From<$number> for CellValue<'_> {
            fn from(number: $number) -> Self {
                Self::short(number.to_be_bytes(), ValueType::$value_type)
            }
        }
    )*};
}

from_number!(i32 => I32, i64 => I64, u32 => U32, u64 => U64, f64 => F64);

impl From<Time> for CellValue<'_> {
    fn from(value: Time) -> Self {
        Self::short(value.millis().to_be_bytes(), ValueType::Time)
    }
}

impl From<bool> for CellValue<'_> {
    fn from(value: bool) -> Self {
        Self::short([if value { 0xff } else { 0 }], ValueType::Bytes)
    }
}

impl From<Uuid> for CellValue<'_> {
    fn from(value: Uuid) -> Self {
        Self::short(value.into_bytes(), ValueType::Bytes)
    }
}

macro_rules! from_content {
    ($([$($generic:tt)*] $source:ty => $value_type:ident, |$value:ident| $content:expr;)*) => {$(
        impl<'a, $($generic)*> From<$source> for CellValue<'a> {
            fn from($value: $source) -> Self {
                Self { content: $content, value_type: ValueType::$value_type }
            }
        }
    )*};
}

from_content! {
    [] &'a [u8] => Bytes, |value| Content::Borrowed(value);
    [const N: usize] &'a [u8; N] => Bytes, |value| Content::Borrowed(value);
    [const N: usize] [u8; N] => Bytes, |value| Content::Owned(value.to_vec());
    [] Vec<u8> => Bytes, |value| Content::Owned(value);
    [] &'a Vec<u8> => Bytes, |value| Content::Borrowed(value);
    [] Box<[u8]> => Bytes, |value| Content::Owned(value.into_vec());
    [] Bytes => Bytes, |value| Content::Shared(value);
    [] &'a Bytes => Bytes, |value| Content::Borrowed(value);
    [] Row => Bytes, |value| Content::Shared(value.into_bytes());
    [] &'a Row => Bytes, |value| Content::Borrowed(value.as_bytes());
    [] &'a str => Text, |value| Content::Borrowed(value.as_bytes());
    [] &&'a str => Text, |value| Content::Borrowed(value.as_bytes());
    [] String => Text, |value| Content::Owned(value.into_bytes());
    [] &'a String => Text, |value| Content::Borrowed(value.as_bytes());
}

impl<'a> From<Cow<'a, [u8]>> for CellValue<'a> {
    fn from(value: Cow<'a, [u8]>) -> Self {
        match value {
            Cow::Borrowed(bytes) => bytes.into(),
            Cow::Owned(bytes) => bytes.into(),
        }
    }
}

impl<'a> From<Cow<'a, str>> for CellValue<'a> {
    fn from(value: Cow<'a, str>) -> Self {
        match value {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value_type::Value;

    fn read_back<T: ColumnValue + PartialEq + std::fmt::Debug + Clone>(value: T)
    where
        CellValue<'static>: From<T>,
    {
        let written = CellValue::from(value.clone());
        assert_eq!(T::from_value(written.bytes().unwrap()).unwrap(), value);
        assert_eq!(CellValue::of(&value).into_bytes().unwrap(), written.bytes().unwrap());
        assert_eq!(written.clone().into_owned().into_bytes().unwrap(), written.bytes().unwrap());
    }

    #[test]
    fn a_value_is_read_back_as_the_type_it_was_written_as() {
        read_back(-5_i32);
        read_back(i64::MIN);
        read_back(u32::MAX);
        read_back(u64::MAX);
        read_back(-0.5_f64);
        read_back(Time::from_millis(-7));
        read_back(true);
        read_back(false);
        read_back(Uuid::from_u128(7));
        read_back("Zürich".to_owned());
        read_back(vec![0_u8, 255]);
        read_back(Bytes::from_static(b"ab"));
        read_back([1_u8, 2, 3]);
    }

    #[test]
    fn numbers_are_the_bytes_that_their_type_reads() {
        let read = |value: CellValue<'_>| match value.value_type().read(value.bytes().unwrap()) {
            Ok(Value::Integer(number)) => number,
            other => panic!("no integer: {other:?}"),
        };
        assert_eq!(read((-5_i32).into()), -5);
        assert_eq!(read(i64::MAX.into()), i64::MAX.into());
        assert_eq!(read(u32::MAX.into()), u32::MAX.into());
        assert_eq!(read(u64::MAX.into()), u64::MAX.into());
        let float = CellValue::from(0.25);
        assert!(matches!(float.value_type().read(float.bytes().unwrap()), Ok(Value::Float(number)) if number == 0.25));
    }

    #[test]
    fn a_value_without_an_encoding_keeps_its_reason() {
        struct Never;
        impl ColumnValue for Never {
            fn to_value(&self) -> Result<Vec<u8>, Invalid> {
                Err(Invalid::new("it has none"))
            }

            fn from_value(_: &[u8]) -> Result<Self, Invalid> {
                Ok(Self)
            }
        }
        let value = CellValue::of(&Never).into_owned();
        assert_eq!(value.bytes().unwrap_err().what, "it has none");
        assert_eq!(value.into_bytes().unwrap_err().what, "it has none");
    }
}
