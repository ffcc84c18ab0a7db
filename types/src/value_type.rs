//! The types that a value's bytes can be read as, for comparisons and sums.
//!
//! A cell's value is bytes; a comparison names the type to read them as: `i32(data:airtemp) > 100`. Numbers are
//! big-endian, as HBase's `Bytes` writes them, so that values written by HBase programs read the same here. (Parts of
//! row keys are encoded differently, so that they sort as bytes: see [`crate::keycodec`].)
//!
//! Invariants:
//! - [`ValueType::read`] never guesses: a value that does not fit the type is an error that states what the type
//!   requires.
//! - Values of one type have a total order, with floats in IEEE 754's `totalOrder`, so that any two can be compared and
//!   all replicas agree.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::escape::{escape, unescape};
use crate::invalid::Invalid;
use crate::time::Time;

/// A type that the bytes of a value can be read as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueType {
    /// 4 bytes, two's complement, big-endian.
    I32,
    /// 8 bytes, two's complement, big-endian.
    I64,
    /// 4 bytes, unsigned, big-endian.
    U32,
    /// 8 bytes, unsigned, big-endian.
    U64,
    /// 8 bytes, IEEE 754 double precision, big-endian.
    F64,
    /// A point in time: milliseconds since 1970, stored as an [`I64`](ValueType::I64) and written as a date ([`crate::time`]).
    Time,
    /// UTF-8.
    Text,
    /// Any bytes, compared byte by byte.
    #[default]
    Bytes,
}

/// A decoded value.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Of the integer types, and of [`ValueType::Time`] the milliseconds.
    Integer(i128),
    /// Of [`ValueType::F64`].
    Float(f64),
    /// Of [`ValueType::Text`].
    Text(&'a str),
    /// Of [`ValueType::Bytes`].
    Bytes(&'a [u8]),
}

impl ValueType {
    /// All types, in the order of the grammar.
    pub const ALL: [Self; 8] =
        [Self::I32, Self::I64, Self::U32, Self::U64, Self::F64, Self::Time, Self::Text, Self::Bytes];

    /// Its name in commands, filters and on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::Time => "time",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }

    /// The type with this name.
    ///
    /// # Errors
    /// [`Invalid`] that lists the known names.
    pub fn parse(name: &str) -> Result<Self, Invalid> {
        let found = Self::ALL.into_iter().find(|known| known.name() == name);
        found.ok_or_else(|| {
            Invalid::new(format!(
                "{name:?} is not a type of values; they are i32, i64, u32, u64, f64, time, text and bytes"
            ))
        })
    }

    /// Whether values are numbers, or times, which are numbers of milliseconds.
    #[must_use]
    pub const fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::Bytes)
    }

    /// The type with the same bytes whose text is a number: a time as the `i64` that it is stored as.
    #[must_use]
    pub const fn as_stored(self) -> Self {
        match self {
            Self::Time => Self::I64,
            _ => self,
        }
    }

    /// The length of a value in bytes, if it is fixed.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        match self {
            Self::I32 | Self::U32 => Some(4),
            Self::I64 | Self::U64 | Self::F64 | Self::Time => Some(8),
            Self::Text | Self::Bytes => None,
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`Invalid`] that states what the type requires and what was found.
    pub fn read(self, bytes: &[u8]) -> Result<Value<'_>, Invalid> {
        Ok(match self {
            Self::I32 => Value::Integer(i32::from_be_bytes(self.fixed(bytes)?).into()),
            Self::I64 | Self::Time => Value::Integer(i64::from_be_bytes(self.fixed(bytes)?).into()),
            Self::U32 => Value::Integer(u32::from_be_bytes(self.fixed(bytes)?).into()),
            Self::U64 => Value::Integer(u64::from_be_bytes(self.fixed(bytes)?).into()),
            Self::F64 => Value::Float(f64::from_be_bytes(self.fixed(bytes)?)),
            Self::Text => Value::Text(
                std::str::from_utf8(bytes)
                    .map_err(|_| Invalid::new("a text is UTF-8, this value is not".to_owned()))?,
            ),
            Self::Bytes => Value::Bytes(bytes),
        })
    }

    /// The bytes of a value that is written as text: a number in decimal, a time as a date, and text or bytes with the escapes of
    /// [`escape`](crate::escape()).
    ///
    /// ```
    /// use terrane_types::ValueType;
    /// assert_eq!(ValueType::I32.parse_text("-2")?, [0xff, 0xff, 0xff, 0xfe]);
    /// assert_eq!(ValueType::I32.text(&[0xff, 0xff, 0xff, 0xfe])?, "-2");
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] that states what the type takes.
    pub fn parse_text(self, text: &str) -> Result<Vec<u8>, Invalid> {
        fn number<T: FromStr>(text: &str, takes: impl fmt::Display) -> Result<T, Invalid> {
            text.parse().map_err(|_| Invalid::new(format!("{text:?} is not {takes}")))
        }
        fn integer<T: FromStr + fmt::Display>(text: &str, min: T, max: T) -> Result<T, Invalid> {
            number(text, format_args!("an integer from {min} to {max}"))
        }
        Ok(match self {
            Self::I32 => integer(text, i32::MIN, i32::MAX)?.to_be_bytes().into(),
            Self::I64 => integer(text, i64::MIN, i64::MAX)?.to_be_bytes().into(),
            Self::U32 => integer(text, u32::MIN, u32::MAX)?.to_be_bytes().into(),
            Self::U64 => integer(text, u64::MIN, u64::MAX)?.to_be_bytes().into(),
            Self::F64 => number::<f64>(text, "a number")?.to_be_bytes().into(),
            Self::Time => Time::parse(text)?.millis().to_be_bytes().into(),
            Self::Text => String::from_utf8(unescape(text)?)
                .map_err(|_| Invalid::new(format!("{text:?} is not UTF-8, which a text is")))?
                .into_bytes(),
            Self::Bytes => unescape(text)?,
        })
    }

    /// A value as text, which [`ValueType::parse_text`] reads. The bits of a NaN are not kept.
    ///
    /// # Errors
    /// As for [`ValueType::read`].
    pub fn text(self, bytes: &[u8]) -> Result<String, Invalid> {
        if self == Self::Time {
            return Ok(Time::from_millis(i64::from_be_bytes(self.fixed(bytes)?)).to_string());
        }
        Ok(match self.read(bytes)? {
            Value::Integer(integer) => integer.to_string(),
            Value::Float(float) => float.to_string(),
            Value::Text(text) => escape(text.as_bytes()),
            Value::Bytes(bytes) => escape(bytes),
        })
    }

    /// Compares two values read as this type.
    ///
    /// # Errors
    /// [`Invalid`] if one of them cannot be read as this type.
    pub fn compare(self, left: &[u8], right: &[u8]) -> Result<Ordering, Invalid> {
        Ok(self.read(left)?.order(&self.read(right)?))
    }

    fn fixed<const N: usize>(self, bytes: &[u8]) -> Result<[u8; N], Invalid> {
        bytes.try_into().map_err(|_| {
            let length = bytes.len();
            Invalid::new(format!("{} values have {N} bytes, this one has {length}", self.name()))
        })
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ValueType {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        Self::parse(name)
    }
}

impl Value<'_> {
    /// The order of values of one type. Values of different types are ordered by type; no caller compares such.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => left.cmp(right),
            (Self::Float(left), Self::Float(right)) => left.total_cmp(right),
            (Self::Text(left), Self::Text(right)) => left.cmp(right),
            (Self::Bytes(left), Self::Bytes(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) => 0,
            Self::Float(_) => 1,
            Self::Text(_) => 2,
            Self::Bytes(_) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_compare_as_numbers(left: i32, right: i32, small: u64, large: u64) {
            let compared = ValueType::I32.compare(&left.to_be_bytes(), &right.to_be_bytes()).unwrap();
            prop_assert_eq!(compared, left.cmp(&right));
            let compared = ValueType::U64.compare(&small.to_be_bytes(), &large.to_be_bytes()).unwrap();
            prop_assert_eq!(compared, small.cmp(&large));
        }

        #[test]
        fn random_bytes_are_read_or_refused_and_never_panic(bytes: Vec<u8>) {
            for kind in ValueType::ALL {
                let _ = kind.read(&bytes);
            }
        }
    }

    #[test]
    fn a_value_of_another_width_is_refused_in_words() {
        let refused = ValueType::I64.read(&[1, 2, 3]).unwrap_err();
        assert_eq!(refused.to_string(), "i64 values have 8 bytes, this one has 3");
    }

    #[test]
    fn values_are_read_from_the_text_that_shows_them() {
        for (kind, text) in [
            (ValueType::I32, "-2147483648"),
            (ValueType::I64, "9223372036854775807"),
            (ValueType::U32, "4294967295"),
            (ValueType::U64, "18446744073709551615"),
            (ValueType::F64, "-0.25"),
            (ValueType::F64, "inf"),
            (ValueType::Time, "2026-01-31T12:00:00.250Z"),
            (ValueType::Text, r"Zürich\\\x00"),
            (ValueType::Bytes, r"\xFFa"),
        ] {
            assert_eq!(kind.parse_text(text).and_then(|bytes| kind.text(&bytes)).as_deref(), Ok(text), "{kind}");
        }
        for (kind, text, takes) in [
            (ValueType::I32, "2147483648", "from -2147483648 to 2147483647"),
            (ValueType::U64, "-1", "from 0 to 18446744073709551615"),
            (ValueType::I64, "1.5", "an integer"),
            (ValueType::F64, "x", "a number"),
            (ValueType::Time, "2026-13-01", "there is no month 13"),
            (ValueType::Text, r"\xFF", "UTF-8"),
            (ValueType::Bytes, r"\q", "escape"),
        ] {
            let refused = kind.parse_text(text).unwrap_err().to_string();
            assert!(refused.contains(takes), "{refused}");
        }
    }

    #[test]
    fn a_time_has_the_bytes_of_its_milliseconds() {
        let bytes = ValueType::Time.parse_text("2026-01-31").unwrap();
        assert_eq!(bytes, 1_769_817_600_000_i64.to_be_bytes());
        assert_eq!(ValueType::Time.as_stored().text(&bytes).as_deref(), Ok("1769817600000"));
        assert_eq!(ValueType::Time.compare(&bytes, &0_i64.to_be_bytes()), Ok(Ordering::Greater));
    }

    #[test]
    fn floats_have_a_total_order() {
        let of = |value: f64| value.to_be_bytes();
        assert_eq!(ValueType::F64.compare(&of(-1.5), &of(2.0)), Ok(Ordering::Less));
        assert_eq!(ValueType::F64.compare(&of(f64::NAN), &of(f64::INFINITY)), Ok(Ordering::Greater));
    }

    #[test]
    fn names_come_back_and_others_are_refused_with_the_list() {
        for kind in ValueType::ALL {
            assert_eq!(ValueType::parse(kind.name()), Ok(kind));
        }
        assert!(ValueType::parse("i128").unwrap_err().to_string().contains("time, text and bytes"));
    }
}
