//! Count, sum, least and greatest value of a column, row by row.
//!
//! Integers of all widths are summed as `i128`, which no table can overflow. Floats are summed in the order of the scan, so
//! sums of floats may differ in the last digits between two scans that are cut differently. The totals so far travel in the
//! resume token, so a scan that continues elsewhere continues to count.
//!
//! Invariant: a row is counted whole or not at all. A value that cannot be read ends the scan before its row counts.

use bytes::Bytes;
use terrane_types::{ByteWriter as _, CellRef, Error, FamilyName, Invalid, Value, ValueType, escape};

use crate::record::{Malformed, Reader};

/// The column, and the numeric type of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    pub family: FamilyName,
    pub qualifier: Bytes,
    pub read_as: ValueType,
}

/// A value of the column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i128),
    Float(f64),
}

/// The totals of the rows so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Totals {
    pub rows: u64,
    /// Rows that have the column.
    pub values: u64,
    pub sum: Number,
    /// The least and the greatest value. NaN is left out.
    pub extremes: Option<(Number, Number)>,
}

impl Eq for Totals {}

impl Aggregate {
    /// Validates a request.
    ///
    /// # Errors
    /// [`Invalid`] for an invalid family name, and for a type that is not numeric.
    pub fn new(family: &str, qualifier: Bytes, read_as: &str) -> Result<Self, Invalid> {
        let read_as = ValueType::parse(read_as)?;
        if !read_as.is_number() {
            let what = format!("values read as {read_as} cannot be aggregated; read them as i32, i64, u32, u64 or f64");
            return Err(Invalid::new(what));
        }
        Ok(Self { family: FamilyName::new(family)?, qualifier, read_as })
    }

    /// The totals of no rows.
    #[must_use]
    pub fn nothing(&self) -> Totals {
        Totals { rows: 0, values: 0, sum: self.zero(), extremes: None }
    }

    fn zero(&self) -> Number {
        if self.read_as == ValueType::F64 { Number::Float(0.0) } else { Number::Integer(0) }
    }

    /// Whether totals are of the same kind of numbers as these values.
    #[must_use]
    pub fn fits(&self, totals: &Totals) -> bool {
        std::mem::discriminant(&totals.sum) == std::mem::discriminant(&self.zero())
    }

    /// Whether a cell belongs to the column.
    #[inline]
    #[must_use]
    pub fn is_of(&self, cell: &CellRef<'_>) -> bool {
        cell.qualifier == self.qualifier && cell.family == self.family.as_bytes()
    }

    /// Reads a value of the column.
    ///
    /// # Errors
    /// [`Invalid`] that names row, column and rule.
    #[inline]
    pub fn read(&self, row: &[u8], value: &[u8]) -> Result<Number, Invalid> {
        match self.read_as.read(value) {
            Ok(Value::Integer(value)) => Ok(Number::Integer(value)),
            Ok(Value::Float(value)) => Ok(Number::Float(value)),
            Ok(Value::Text(_) | Value::Bytes(_)) => {
                Err(self.refusal(row, &format!("{} is not a number", self.read_as)))
            }
            Err(rule) => Err(self.refusal(row, &rule.what)),
        }
    }

    #[cold]
    fn refusal(&self, row: &[u8], rule: &str) -> Invalid {
        let (family, qualifier) = (&self.family, escape(&self.qualifier));
        Invalid::new(format!("row {}, column {family}:{qualifier}: {rule}", escape(row)))
    }
}

impl Totals {
    /// Adds a row, with its value if it has the column.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the sum overflows, which only a forged resume token can cause.
    #[inline]
    pub fn add(&mut self, value: Option<Number>) -> Result<(), Error> {
        if let Some(value) = value {
            self.sum = match (self.sum, value) {
                (Number::Integer(sum), Number::Integer(value)) => Number::Integer(
                    sum.checked_add(value).ok_or_else(|| Invalid::new("the sum in the resume token is too large"))?,
                ),
                (Number::Float(sum), Number::Float(value)) => Number::Float(sum + value),
                _ => return Err(Invalid::new("the resume token's totals are of another type").into()),
            };
            self.values = self.values.saturating_add(1);
            self.widen(value);
        }
        self.rows = self.rows.saturating_add(1);
        Ok(())
    }

    #[inline]
    fn widen(&mut self, value: Number) {
        if matches!(value, Number::Float(float) if float.is_nan()) {
            return;
        }
        self.extremes = Some(match self.extremes {
            None => (value, value),
            Some((least, greatest)) => (
                if value.is_less(&least) { value } else { least },
                if greatest.is_less(&value) { value } else { greatest },
            ),
        });
    }

    /// Appends the totals to a resume token; see [`crate::region::resume_token`] for the layout.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.rows);
        out.u64(self.values);
        let float = matches!(self.sum, Number::Float(_));
        out.push(u8::from(float) | u8::from(self.extremes.is_some()) << 1);
        self.sum.encode(out);
        if let Some((least, greatest)) = self.extremes {
            least.encode(out);
            greatest.encode(out);
        }
    }

    /// Decodes what [`Totals::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        let (rows, values) = (reader.u64()?, reader.u64()?);
        let flags = reader.u8()?;
        if flags & !3 != 0 {
            return Err(Malformed("its totals have flags that this server does not know"));
        }
        let float = flags & 1 != 0;
        let sum = Number::decode(reader, float)?;
        let extremes =
            if flags & 2 != 0 { Some((Number::decode(reader, float)?, Number::decode(reader, float)?)) } else { None };
        Ok(Self { rows, values, sum, extremes })
    }
}

impl Number {
    fn is_less(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => left < right,
            (Self::Float(left), Self::Float(right)) => left < right,
            // Never mixed: totals are of one kind.
            _ => false,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Integer(value) => out.raw(&value.to_le_bytes()),
            Self::Float(value) => out.raw(&value.to_le_bytes()),
        }
    }

    fn decode(reader: &mut Reader, float: bool) -> Result<Self, Malformed> {
        Ok(if float {
            Self::Float(f64::from_le_bytes(reader.array()?))
        } else {
            Self::Integer(i128::from_le_bytes(reader.array()?))
        })
    }

    /// The form on the wire: 16 or 8 bytes, big-endian.
    #[must_use]
    pub fn wire(&self) -> Bytes {
        match self {
            Self::Integer(value) => Bytes::copy_from_slice(&value.to_be_bytes()),
            Self::Float(value) => Bytes::copy_from_slice(&value.to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(read_as: &str) -> Aggregate {
        Aggregate::new("f", "q".into(), read_as).unwrap()
    }

    #[test]
    fn integers_of_all_widths_are_summed_without_overflow() {
        let of = column("u64");
        let mut totals = of.nothing();
        for value in [u64::MAX, u64::MAX, 0] {
            totals.add(Some(of.read(b"r", &value.to_be_bytes()).unwrap())).unwrap();
        }
        totals.add(None).unwrap();
        assert_eq!((totals.rows, totals.values), (4, 3));
        assert_eq!(totals.sum, Number::Integer(2 * i128::from(u64::MAX)));
        assert_eq!(totals.extremes, Some((Number::Integer(0), Number::Integer(u64::MAX.into()))));
    }

    #[test]
    fn nan_is_neither_least_nor_greatest() {
        let of = column("f64");
        let mut totals = of.nothing();
        for value in [f64::NAN, -1.5, 2.0] {
            totals.add(Some(of.read(b"r", &value.to_be_bytes()).unwrap())).unwrap();
        }
        assert_eq!(totals.extremes, Some((Number::Float(-1.5), Number::Float(2.0))));
        assert!(matches!(totals.sum, Number::Float(sum) if sum.is_nan()));
    }

    #[test]
    fn a_value_of_another_width_is_refused_by_row_column_and_rule() {
        let refused = column("i32").read(b"row\x01", b"abc").unwrap_err();
        assert_eq!(refused.to_string(), r"row row\x01, column f:q: i32 values have 4 bytes, this one has 3");
        assert!(Aggregate::new("f", "q".into(), "text").is_err());
        assert!(Aggregate::new("f", "q".into(), "i16").is_err());
    }

    #[test]
    fn an_overflowing_sum_is_refused() {
        let of = column("i64");
        let mut totals = Totals { sum: Number::Integer(i128::MAX), ..of.nothing() };
        assert!(totals.add(Some(Number::Integer(1))).is_err());
        assert!(!column("f64").fits(&totals));
    }
}
