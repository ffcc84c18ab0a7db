//! Structs that are rows of a table: their fields are parts of the key, or columns.
//!
//! [`TableRow`] is derived with `#[derive(Row)]`:
//!
//! ```
//! use terrane_types::{Desc, Row, RowKey, TableRow};
//!
//! #[derive(Clone, Debug, PartialEq, RowKey)]
//! struct ActionKey { user: u64, time: Desc<i64>, action: u32 }
//!
//! /// A row of table `actions`, its columns in family `a`.
//! #[derive(Debug, PartialEq, Row)]
//! #[row(key = ActionKey, family = "a")]
//! struct Action {
//!     #[row(part)]
//!     user: u64,
//!     #[row(part)]
//!     time: Desc<i64>,
//!     #[row(part)]
//!     action: u32,
//!     kind: String,
//!     /// An absent column.
//!     note: Option<String>,
//!     /// Elsewhere under another name.
//!     #[row(family = "n", qualifier = "seconds")]
//!     duration: i32,
//! }
//!
//! let row = Action { user: 7, time: Desc(1), action: 3, kind: "login".into(), note: None, duration: 5 };
//! assert_eq!(row.key(), ActionKey { user: 7, time: Desc(1), action: 3 });
//! assert_eq!(Action::COLUMNS, [("a", "kind"), ("a", "note"), ("n", "seconds")]);
//! assert_eq!(row.columns()?, [Some(b"login".to_vec()), None, Some(vec![0, 0, 0, 5])]);
//! let again = Action::from_columns(row.key(), &[Some(b"login"), None, Some(&[0, 0, 0, 5])])?;
//! assert_eq!(again, row);
//! # Ok::<(), terrane_types::Invalid>(())
//! ```
//!
//! Instead of naming each part, a struct may hold its key whole, in a field with `#[row(key)]`. A column that the
//! struct needs and the row lacks is an error that names it; a column that is an `Option` may be absent.
//!
//! [`ColumnValue`] encodes the values: numbers as big-endian bytes, as HBase's `Bytes` writes them and as increments,
//! filters and aggregates read them; text as UTF-8; bytes unchanged.
//!
//! A missing part of the key does not compile, nor does a field whose type is not a column value:
//!
//! ```compile_fail
//! use terrane_types::{Row, RowKey};
//! #[derive(Clone, RowKey)]
//! struct Key { user: u64, action: u32 }
//! #[derive(Row)]
//! #[row(key = Key, family = "a")]
//! struct Wrong { #[row(part)] user: u64, kind: String }
//! ```
//!
//! ```compile_fail
//! use terrane_types::{Row, RowKey};
//! #[derive(Clone, RowKey)]
//! struct Key { user: u64 }
//! #[derive(Row)]
//! #[row(key = Key, family = "a")]
//! struct Wrong { #[row(part)] user: u64, kind: std::time::Duration }
//! ```

use bytes::Bytes;
use uuid::Uuid;

use crate::escape::escape;
use crate::invalid::Invalid;
use crate::row_key::RowKey;
use crate::time::Time;

/// A struct that is a row of a table. Derived; see [the module](self).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a row of a table",
    label = "derive `Row` for it",
    note = "for a key alone, with columns by name, there is `KeyedTable`"
)]
pub trait TableRow: Sized {
    /// The key of the table.
    type Key: RowKey;

    /// The family and qualifier of each column, in the order of the fields.
    const COLUMNS: &'static [(&'static str, &'static str)];

    /// The key of this row.
    fn key(&self) -> Self::Key;

    /// The value of each column in the order of [`TableRow::COLUMNS`]; `None`: absent.
    ///
    /// # Errors
    /// [`Invalid`] for a value that has no encoding.
    fn columns(&self) -> Result<Vec<Option<Vec<u8>>>, Invalid>;

    /// The row with this key and these values, in the order of [`TableRow::COLUMNS`].
    ///
    /// # Errors
    /// [`Invalid`] that names the column, if a value is missing or does not decode as its field's type.
    fn from_columns(key: Self::Key, values: &[Option<&[u8]>]) -> Result<Self, Invalid>;
}

/// A type that can be the value of a column.
///
/// ```
/// use terrane_types::ColumnValue;
/// assert_eq!(5i64.to_value()?, [0, 0, 0, 0, 0, 0, 0, 5]);
/// assert_eq!(i64::from_value(&[0, 0, 0, 0, 0, 0, 0, 5])?, 5);
/// assert!(i64::from_value(b"five").is_err());
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the value of a column",
    note = "numbers, bool, Time, String, bytes, Uuid and Option of them are; Json and Postcard of the client hold anything else"
)]
pub trait ColumnValue: Sized {
    /// The value's bytes.
    ///
    /// # Errors
    /// [`Invalid`] for a value that has no encoding. All values of this crate's types have one.
    fn to_value(&self) -> Result<Vec<u8>, Invalid>;

    /// Decodes a value.
    ///
    /// # Errors
    /// [`Invalid`] that states what the type requires and what was found.
    fn from_value(value: &[u8]) -> Result<Self, Invalid>;
}

/// A field that is a column: a value, or an `Option` of one. For the derive's use.
#[doc(hidden)]
pub trait ColumnField: Sized {
    fn to_column(&self) -> Result<Option<Vec<u8>>, Invalid>;
    fn from_column(value: Option<&[u8]>) -> Result<Self, Invalid>;
}

impl<T: ColumnValue> ColumnField for T {
    fn to_column(&self) -> Result<Option<Vec<u8>>, Invalid> {
        self.to_value().map(Some)
    }

    fn from_column(value: Option<&[u8]>) -> Result<Self, Invalid> {
        value.map_or_else(|| Err(Invalid::new("the row has no such column")), T::from_value)
    }
}

impl<T: ColumnValue> ColumnField for Option<T> {
    fn to_column(&self) -> Result<Option<Vec<u8>>, Invalid> {
        self.as_ref().map(T::to_value).transpose()
    }

    fn from_column(value: Option<&[u8]>) -> Result<Self, Invalid> {
        value.map(T::from_value).transpose()
    }
}

/// Reads one column of a row. For the derive's use.
#[doc(hidden)]
pub fn read_column<T: ColumnField>(
    columns: &[(&str, &str)],
    values: &[Option<&[u8]>],
    at: usize,
) -> Result<T, Invalid> {
    T::from_column(values.get(at).copied().flatten()).map_err(|invalid| {
        let (family, qualifier) = columns.get(at).copied().unwrap_or_default();
        Invalid::new(format!("column {family}:{}: {}", escape(qualifier.as_bytes()), invalid.what))
    })
}

macro_rules! number_value {
    ($($number:ty),*) => {$(
        /// Raw and big-endian.
        impl ColumnValue for $number {
            fn to_value(&self) -> Result<Vec<u8>, Invalid> {
                Ok(self.to_be_bytes().to_vec())
            }

            fn from_value(value: &[u8]) -> Result<Self, Invalid> {
                Ok(Self::from_be_bytes(exactly(stringify!($number), value)?))
            }
        }
    )*};
}

number_value!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

fn exactly<const N: usize>(name: &str, value: &[u8]) -> Result<[u8; N], Invalid> {
    value.try_into().map_err(|_| Invalid::new(format!("{name} values have {N} bytes, this one has {}", value.len())))
}

/// Its milliseconds as an `i64`.
impl ColumnValue for Time {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        self.millis().to_value()
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        Ok(Self::from_millis(i64::from_be_bytes(exactly("time", value)?)))
    }
}

/// One byte, as in HBase: FF is true and 00 is false; every other byte reads as true.
impl ColumnValue for bool {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        Ok(vec![if *self { 0xff } else { 0 }])
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        let [byte] = exactly("bool", value)?;
        Ok(byte != 0)
    }
}

/// UTF-8.
impl ColumnValue for String {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        Ok(self.as_bytes().to_vec())
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        Self::from_utf8(value.to_vec()).map_err(|_| Invalid::new("a text is UTF-8, this value is not"))
    }
}

impl ColumnValue for Vec<u8> {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        Ok(self.clone())
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        Ok(value.to_vec())
    }
}

impl ColumnValue for Bytes {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        Ok(self.to_vec())
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        Ok(Self::copy_from_slice(value))
    }
}

impl<const N: usize> ColumnValue for [u8; N] {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        Ok(self.to_vec())
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        exactly("fixed-width", value)
    }
}

/// 16 bytes.
impl ColumnValue for Uuid {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        Ok(self.as_bytes().to_vec())
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        Ok(Self::from_bytes(exactly("uuid", value)?))
    }
}

#[cfg(test)]
mod tests {
    use terrane_types_derive::Row;

    use super::*;
    use crate::keycodec::{Bucket, Desc};

    #[derive(Clone, Debug, PartialEq, RowKey)]
    struct Key {
        bucket: Bucket<4>,
        user: String,
        time: Desc<i64>,
    }

    #[derive(Debug, PartialEq, Row)]
    #[row(family = "f")]
    struct Whole {
        #[row(key)]
        key: Key,
        count: i64,
        ratio: Option<f64>,
        #[row(qualifier = "on")]
        r#type: bool,
        raw: Vec<u8>,
        id: [u8; 3],
    }

    fn whole() -> Whole {
        let key = Key { bucket: Bucket, user: "ann".to_owned(), time: Desc(5) };
        Whole { key, count: -2, ratio: Some(0.5), r#type: true, raw: vec![1, 0], id: [1, 2, 3] }
    }

    #[test]
    fn a_row_comes_back_from_its_columns() {
        let columns = whole().columns().expect("all have an encoding");
        let values: Vec<Option<&[u8]>> = columns.iter().map(Option::as_deref).collect();
        assert_eq!(Whole::from_columns(whole().key(), &values), Ok(whole()));
        assert_eq!(Whole::COLUMNS, [("f", "count"), ("f", "ratio"), ("f", "on"), ("f", "raw"), ("f", "id")]);
        assert_eq!(values[0], Some(&(-2i64).to_be_bytes()[..]));
        assert_eq!(values[2], Some(&[0xff][..]));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let columns = whole().columns().expect("all have an encoding");
        let refused = |at: usize, value: Option<&'static [u8]>| {
            let mut values: Vec<Option<&[u8]>> = columns.iter().map(Option::as_deref).collect();
            values[at] = value;
            Whole::from_columns(whole().key(), &values).map_err(|invalid| invalid.what)
        };
        assert_eq!(refused(1, None).expect("an option may be absent").ratio, None);
        assert!(refused(0, None).expect_err("missing").contains("f:count: the row has no such column"));
        assert!(refused(0, Some(b"abc")).expect_err("short").contains("i64 values have 8 bytes, this one has 3"));
        assert!(refused(1, Some(b"abc")).expect_err("short").contains("f:ratio"));
        assert!(refused(4, Some(b"abcd")).expect_err("long").contains("f:id"));
    }
}
