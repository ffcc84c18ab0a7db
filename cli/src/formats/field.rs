//! One field of a record, and what it says as a timestamp or a value.
//!
//! Invariant: a value is stored as its column's declared type, or else as bytes.

use std::borrow::Cow;

use bytes::Bytes;
use terrane_types::limits::VALUE_BYTES_MAX;
use terrane_types::{ValueType, escape, unescape};

use super::{LineError, timestamp_from_text};

/// A field of a record.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// An empty field of a text.
    Blank,
    /// A null of a typed file.
    Null,
    /// Text with escapes.
    Text(&'a str),
    /// The bytes themselves, of a text or not.
    Bytes(&'a [u8]),
    Integer(i128),
    Float(f64),
    /// A number of 32 bits, whose shortest text is another than that of the same number in 64.
    Single(f32),
    Bool(bool),
}

impl<'a> Field<'a> {
    /// The field as text: bytes with escapes, a number in its shortest form.
    pub fn text(self) -> Cow<'a, str> {
        Cow::Owned(match self {
            Field::Blank | Field::Null => return Cow::Borrowed(""),
            Field::Text(text) => return Cow::Borrowed(text),
            Field::Bytes(bytes) => escape(bytes),
            Field::Integer(integer) => integer.to_string(),
            Field::Float(float) => float.to_string(),
            Field::Single(float) => float.to_string(),
            Field::Bool(truth) => truth.to_string(),
        })
    }

    /// The timestamp; `None` if the field has none.
    pub fn timestamp(self) -> Result<Option<i64>, LineError> {
        let text = self.text();
        match self {
            Field::Blank | Field::Null => Ok(None),
            Field::Float(_) | Field::Single(_) | Field::Bool(_) => {
                Err(LineError::new(format!("the timestamp {text:?} is not an integer of milliseconds")))
            }
            Field::Text(_) | Field::Bytes(_) | Field::Integer(_) => timestamp_from_text(&text).map(Some),
        }
    }

    /// The bytes of a value of this type; `None` if the field has none.
    pub fn value(self, kind: Option<ValueType>) -> Result<Option<Bytes>, LineError> {
        let value = match (self, kind) {
            (Field::Blank | Field::Null, _) => return Ok(None),
            (Field::Text(text), None | Some(ValueType::Text | ValueType::Bytes)) if !text.contains('\\') => {
                Bytes::copy_from_slice(text.as_bytes())
            }
            (Field::Text(text), None) => Bytes::from(unescape(text).map_err(line_error)?),
            (Field::Bytes(bytes), None | Some(ValueType::Bytes)) => Bytes::copy_from_slice(bytes),
            (Field::Bytes(bytes), Some(kind)) => {
                let text = std::str::from_utf8(bytes).map_err(|_| LineError::new("the bytes are not UTF-8"))?;
                let parsed = if kind == ValueType::Text { Ok(bytes.to_vec()) } else { kind.parse_text(text) };
                Bytes::from(parsed.map_err(line_error)?)
            }
            (Field::Float(float), Some(ValueType::F64)) => Bytes::copy_from_slice(&float.to_be_bytes()),
            (Field::Single(float), Some(ValueType::F64)) => Bytes::copy_from_slice(&f64::from(float).to_be_bytes()),
            (_, Some(kind)) => Bytes::from(kind.parse_text(&self.text()).map_err(line_error)?),
            (_, None) => Bytes::from(self.text().into_owned()),
        };
        if value.len() > VALUE_BYTES_MAX {
            return Err(LineError::new(format!(
                "the value has {} bytes; at most {VALUE_BYTES_MAX} are allowed",
                value.len()
            )));
        }
        Ok(Some(value))
    }
}

/// A refusal of the types, as one of the line.
pub(super) fn line_error(error: impl ToString) -> LineError {
    LineError::new(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_their_columns_types_or_are_refused() {
        let of = |kind, field: Field<'_>| field.value(kind).map(|value| value.expect("a value"));
        for (kind, field, bytes) in [
            (None, Field::Integer(-3), &b"-3"[..]),
            (None, Field::Float(1.5), b"1.5"),
            (None, Field::Bool(true), b"true"),
            (None, Field::Bytes(b"\\x41"), b"\\x41"),
            (None, Field::Text("\\x41"), b"A"),
            (Some(ValueType::I32), Field::Integer(-3), &(-3i32).to_be_bytes()),
            (Some(ValueType::U64), Field::Text("7"), &7u64.to_be_bytes()),
            (Some(ValueType::I64), Field::Float(2.0), &2i64.to_be_bytes()),
            (Some(ValueType::Time), Field::Text("1970-01-02"), &86_400_000i64.to_be_bytes()),
            (Some(ValueType::Time), Field::Bytes(b"1970-01-01T01:00+01:00"), &0i64.to_be_bytes()),
            (Some(ValueType::Time), Field::Integer(-7), &(-7i64).to_be_bytes()),
            (Some(ValueType::F64), Field::Float(f64::NAN), &f64::NAN.to_be_bytes()),
            (Some(ValueType::F64), Field::Integer(2), &2f64.to_be_bytes()),
            (Some(ValueType::I64), Field::Bytes(b"12"), &12i64.to_be_bytes()),
            (Some(ValueType::Text), Field::Bytes("é\\".as_bytes()), "é\\".as_bytes()),
        ] {
            assert_eq!(of(kind, field).as_deref(), Ok(bytes), "{kind:?} {field:?}");
        }
        for (kind, field) in [
            (Some(ValueType::I32), Field::Integer(1 << 40)),
            (Some(ValueType::U64), Field::Integer(-1)),
            (Some(ValueType::I64), Field::Float(2.5)),
            (Some(ValueType::I64), Field::Bool(true)),
            (Some(ValueType::Text), Field::Bytes(b"\xff")),
            (Some(ValueType::I64), Field::Text("")),
            (Some(ValueType::Time), Field::Text("now")),
            (Some(ValueType::Time), Field::Float(1.5)),
            (None, Field::Text("\\q")),
        ] {
            assert!(of(kind, field).is_err(), "{kind:?} {field:?}");
        }
    }
}
