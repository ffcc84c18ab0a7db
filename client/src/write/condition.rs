//! Conditions on a row.
//!
//! ```
//! use terrane_client::column;
//! let free = column("job", "owner").is_absent().or(column("job", "lease").as_i64().less_than(1_700_000_000_000));
//! let mine = column("job", "owner").equals("worker-3").and(column("job", "state").one_of(["taken", "running"]));
//! let unchanged = column("page", "text").version_is(1_700_000_000_123);
//! ```
//!
//! Text in the language of filters is a condition too, with bound parameters for values that come from outside:
//!
//! ```
//! use terrane_client::{Condition, Filter};
//! let free = Condition::from("not exists(job:owner) or i64(job:lease) < 1700000000000");
//! let mine = Condition::from(Filter::with("job:owner = ?").bind("worker-3"));
//! ```

use std::marker::PhantomData;

use bytes::Bytes;
use terrane_filter::{Filter, FilterTemplate, IntoFilter};
use terrane_types::{CellValue, ColumnTest, FamilyName, Invalid, Test, Time, ValueType, escape, escape_family};

/// A condition that must hold for a row so that a mutation is applied; built by [`column()`], or from text: comparisons of columns
/// (`f:q = 'v'`, `i64(f:q) < 5`, `f:q in ('a', 'b')`), `exists(f:q)` and `not exists(f:q)`, joined by `and` and `or`.
///
/// It tests the newest version of each column it names. The server evaluates it once, in the order of the row's writes: no
/// write comes between the test and the mutation. At most 64 tests, nested 8 deep, comparing with 256 values.
#[derive(Clone, Debug)]
pub struct Condition(Result<terrane_types::Condition, Invalid>);

impl Condition {
    /// Holds if both hold.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        self.join(other.into(), |one, other| match one {
            terrane_types::Condition::All(mut parts) => {
                parts.push(other);
                terrane_types::Condition::All(parts)
            }
            one => terrane_types::Condition::All(vec![one, other]),
        })
    }

    /// Holds if at least one of the two holds.
    #[must_use]
    pub fn or(self, other: impl Into<Self>) -> Self {
        self.join(other.into(), |one, other| match one {
            terrane_types::Condition::Any(mut parts) => {
                parts.push(other);
                terrane_types::Condition::Any(parts)
            }
            one => terrane_types::Condition::Any(vec![one, other]),
        })
    }

    /// Holds if all of them hold; also if there are none.
    #[must_use]
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let parts: Result<Vec<_>, Invalid> = parts.into_iter().map(|part| part.0).collect();
        Self(parts.map(terrane_types::Condition::All))
    }

    /// Holds if at least one of them holds; not if there are none.
    #[must_use]
    pub fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let parts: Result<Vec<_>, Invalid> = parts.into_iter().map(|part| part.0).collect();
        Self(parts.map(terrane_types::Condition::Any))
    }

    fn join(
        self,
        other: Self,
        how: impl FnOnce(terrane_types::Condition, terrane_types::Condition) -> terrane_types::Condition,
    ) -> Self {
        match (self.0, other.0) {
            (Ok(one), Ok(other)) => Self(Ok(how(one, other))),
            (Err(invalid), _) | (_, Err(invalid)) => Self(Err(invalid)),
        }
    }

    /// The condition, if its names, values and size are within limits.
    pub(crate) fn checked(self) -> Result<terrane_types::Condition, Invalid> {
        let condition = self.0?;
        condition.check()?;
        Ok(condition)
    }
}

impl From<terrane_types::Condition> for Condition {
    fn from(condition: terrane_types::Condition) -> Self {
        Self(Ok(condition))
    }
}

macro_rules! from_filter {
    ($($filter:ty),*) => {$(
        /// Tests of columns in the language of filters. What is no condition fails the mutation with
        /// [`Error::Invalid`](crate::Error::Invalid), which shows the place, before it is sent.
        impl From<$filter> for Condition {
            fn from(filter: $filter) -> Self {
                Self(IntoFilter::into_condition(filter))
            }
        }
    )*};
}

from_filter!(&str, String, &String, Filter, &Filter, FilterTemplate);

/// The newest version of a column, to test. Values are compared as bytes, or as numbers if they are compared with one:
/// `column("job", "tries").less_than(5_i64)` fails the mutation when the column holds something else. [`Column::as_i64`] and
/// similar methods name the type instead.
#[must_use]
pub fn column(family: &str, qualifier: impl AsRef<[u8]>) -> Column {
    Column {
        family: family.to_owned(),
        qualifier: Bytes::copy_from_slice(qualifier.as_ref()),
        read_as: ValueType::Bytes,
        read: PhantomData,
    }
}

/// Values compared as what they are compared with.
#[derive(Clone, Copy, Debug)]
pub enum Raw {}

/// A column to test, its values read as `T`.
#[derive(Clone, Debug)]
pub struct Column<T = Raw> {
    family: String,
    qualifier: Bytes,
    read_as: ValueType,
    read: PhantomData<T>,
}

mod sealed {
    pub trait Sealed<'v, T> {}
}

/// A value that a column read as `T` can be compared with: any [`CellValue`] if it is not read as a number, else a number of the
/// same type. Sealed: implemented only in this crate.
pub trait Comparable<'v, T>: sealed::Sealed<'v, T> {
    /// The value.
    fn compared(self) -> CellValue<'v>;
}

impl<'v, A: Into<CellValue<'v>>> sealed::Sealed<'v, Raw> for A {}
impl<'v, A: Into<CellValue<'v>>> Comparable<'v, Raw> for A {
    fn compared(self) -> CellValue<'v> {
        self.into()
    }
}

macro_rules! numbers {
    ($($method:ident $number:ty, $read_as:ident, $words:literal;)*) => {
        $(
            impl<'v> sealed::Sealed<'v, $number> for $number {}
            impl<'v> Comparable<'v, $number> for $number {
                fn compared(self) -> CellValue<'v> {
                    self.into()
                }
            }
        )*

        impl Column<Raw> {
            $(
                #[doc = concat!("Reads its values as ", $words, ", big-endian. Another value fails the mutation.")]
                #[must_use]
                pub fn $method(self) -> Column<$number> {
                    let Self { family, qualifier, .. } = self;
                    Column { family, qualifier, read_as: ValueType::$read_as, read: PhantomData }
                }
            )*

            /// Reads its values as UTF-8 text. Another value fails the mutation.
            #[must_use]
            pub fn as_text(mut self) -> Self {
                self.read_as = ValueType::Text;
                self
            }
        }
    };
}

numbers! {
    as_i32 i32, I32, "signed numbers of 4 bytes";
    as_i64 i64, I64, "signed numbers of 8 bytes, such as counters";
    as_u32 u32, U32, "unsigned numbers of 4 bytes";
    as_u64 u64, U64, "unsigned numbers of 8 bytes";
    as_f64 f64, F64, "floating point numbers of 8 bytes";
    as_time Time, Time, "times: signed milliseconds of 8 bytes";
}

impl<T> Column<T> {
    /// The column has this value.
    #[must_use]
    pub fn equals<'v>(self, value: impl Comparable<'v, T>) -> Condition {
        self.compare(value, Test::Equal)
    }

    /// The column has another value. An absent column has none: add `.or(column(..).is_absent())` to let it pass.
    #[must_use]
    pub fn not_equals<'v>(self, value: impl Comparable<'v, T>) -> Condition {
        self.compare(value, Test::NotEqual)
    }

    /// The column is below this value. An absent column fails.
    #[must_use]
    pub fn less_than<'v>(self, value: impl Comparable<'v, T>) -> Condition {
        self.compare(value, Test::Less)
    }

    /// The column is at most this value. An absent column fails.
    #[must_use]
    pub fn at_most<'v>(self, value: impl Comparable<'v, T>) -> Condition {
        self.compare(value, Test::LessOrEqual)
    }

    /// The column is above this value. An absent column fails.
    #[must_use]
    pub fn greater_than<'v>(self, value: impl Comparable<'v, T>) -> Condition {
        self.compare(value, Test::Greater)
    }

    /// The column is at least this value. An absent column fails.
    #[must_use]
    pub fn at_least<'v>(self, value: impl Comparable<'v, T>) -> Condition {
        self.compare(value, Test::GreaterOrEqual)
    }

    /// The column has one of these values.
    #[must_use]
    pub fn one_of<'v, V: Comparable<'v, T>>(mut self, values: impl IntoIterator<Item = V>) -> Condition {
        let values: Result<_, Invalid> = values.into_iter().map(|value| self.operand(value.compared())).collect();
        match values {
            Ok(values) => self.test(Test::In(values)),
            Err(invalid) => Condition(Err(invalid)),
        }
    }

    /// The column is absent.
    #[must_use]
    pub fn is_absent(self) -> Condition {
        self.test(Test::Absent)
    }

    /// The column exists, with any value.
    #[must_use]
    pub fn exists(self) -> Condition {
        self.test(Test::Exists)
    }

    /// The newest version has this timestamp, in milliseconds: compare-and-set by version.
    #[must_use]
    pub fn version_is(self, timestamp: i64) -> Condition {
        self.test(Test::Version(timestamp))
    }

    fn compare<'v>(mut self, value: impl Comparable<'v, T>, how: impl FnOnce(Bytes) -> Test) -> Condition {
        match self.operand(value.compared()) {
            Ok(value) => self.test(how(value)),
            Err(invalid) => Condition(Err(invalid)),
        }
    }

    /// The bytes to compare with. A number also says how to read the column, unless that was said before.
    fn operand(&mut self, value: CellValue<'_>) -> Result<Bytes, Invalid> {
        let value_type = value.value_type();
        if value_type.is_number() && value_type != self.read_as {
            if self.read_as != ValueType::Bytes {
                let column = format!("{}:{}", escape_family(self.family.as_bytes()), escape(&self.qualifier));
                let read_as = self.read_as;
                return Err(Invalid::new(format!(
                    "column {column} is read as {read_as} and compared with a number ({value_type})"
                )));
            }
            self.read_as = value_type;
        }
        value.into_bytes()
    }

    fn test(self, test: Test) -> Condition {
        let Self { family, qualifier, read_as, .. } = self;
        let column = FamilyName::new(&family).map(|family| ColumnTest { family, qualifier, read_as, test });
        Condition(column.map(terrane_types::Condition::Column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_joined_as_they_read() {
        let built = column("f", "a").equals("x").and(column("f", "b").is_absent()).and(column("f", "c").exists());
        let terrane_types::Condition::All(parts) = built.checked().unwrap() else { panic!("joined by and") };
        assert_eq!(parts.len(), 3);
        let either = column("f", "a").exists().and(column("f", "b").exists()).or(column("f", "c").exists());
        assert!(matches!(either.checked().unwrap(), terrane_types::Condition::Any(parts) if parts.len() == 2));
    }

    #[test]
    fn numbers_are_compared_as_the_bytes_of_their_type() {
        let built = column("f", "n").as_i64().less_than(-5).checked().unwrap();
        let terrane_types::Condition::Column(test) = built else { panic!("one test") };
        assert_eq!(
            (test.read_as, test.test),
            (ValueType::I64, Test::Less(Bytes::copy_from_slice(&(-5i64).to_be_bytes())))
        );
    }

    #[test]
    fn a_number_says_how_its_column_is_read() {
        let built = column("f", "n").at_least(5_i64).checked().unwrap();
        let terrane_types::Condition::Column(test) = built else { panic!("one test") };
        assert_eq!(
            (test.read_as, test.test),
            (ValueType::I64, Test::GreaterOrEqual(Bytes::copy_from_slice(&5i64.to_be_bytes())))
        );
        let several = column("f", "n").one_of([1_u32, 2]).checked().unwrap();
        assert!(matches!(several, terrane_types::Condition::Column(test) if test.read_as == ValueType::U32));
        let since = column("f", "t").at_least(Time::from_millis(5)).checked().unwrap();
        assert!(matches!(since, terrane_types::Condition::Column(test) if test.read_as == ValueType::Time));
        let text = column("f", "t").equals("a").checked().unwrap();
        assert!(matches!(text, terrane_types::Condition::Column(test) if test.read_as == ValueType::Bytes));
        let both = column("f", "t").as_text().equals(5_i64).checked().unwrap_err();
        assert_eq!(both.what, "column f:t is read as text and compared with a number (i64)");
    }

    #[test]
    fn text_is_a_condition() {
        let text = Condition::from("not exists(f:a) and i64(f:n) < 5").checked().unwrap();
        let built = column("f", "a").is_absent().and(column("f", "n").less_than(5_i64)).checked().unwrap();
        assert_eq!(text, built);
        let bound = Condition::from(Filter::with("f:a = ?").bind("x' or exists(f:b)")).checked().unwrap();
        assert_eq!(bound, column("f", "a").equals("x' or exists(f:b)").checked().unwrap());
        for wrong in ["f:a =", "prefix(row, 'a')", "f:a = ?"] {
            assert!(Condition::from(wrong).checked().is_err(), "{wrong}");
        }
        let joined = column("f", "a").exists().and("f:a =").checked().unwrap_err();
        assert!(joined.what.contains('^'), "the place is shown: {joined}");
    }

    #[test]
    fn an_error_anywhere_in_a_condition_is_returned() {
        let wrong = column("f", "a").exists().and(column("no/family", "b").exists()).or(column("f", "c").exists());
        assert!(wrong.checked().is_err());
        let deep = (0..20).fold(column("f", "q").exists(), |inner, index| {
            let other = column("f", "q").exists();
            if index % 2 == 0 { other.and(inner) } else { other.or(inner) }
        });
        assert!(deep.checked().unwrap_err().to_string().contains("deeper"));
    }
}
