//! Conditions on a row, as they are written in a program.
//!
//! ```
//! use terrane_client::column;
//! let free = column("job", "owner").is_absent().or(column("job", "lease").as_i64().less_than(1_700_000_000_000));
//! let mine = column("job", "owner").equals("worker-3").and(column("job", "state").one_of(["taken", "running"]));
//! let unchanged = column("page", "text").version_is(1_700_000_000_123);
//! ```

use std::marker::PhantomData;

use bytes::Bytes;
use terrane_types::{ColumnTest, FamilyName, Invalid, Test, ValueType};

/// What must hold of a row for a mutation of it to be applied; built by [`column()`].
///
/// It looks at the newest version of each column it names and is evaluated once, on the server, in the order in which
/// the row's writes are applied: nothing comes between the test and the mutation. At most 64 tests, 8 deep, comparing
/// with 256 values.
#[derive(Clone, Debug)]
pub struct Condition(Result<terrane_types::Condition, Invalid>);

impl Condition {
    /// Both hold.
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

    /// At least one of the two holds.
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

    /// All of them hold; of none, it does.
    #[must_use]
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let parts: Result<Vec<_>, Invalid> = parts.into_iter().map(|part| part.0).collect();
        Self(parts.map(terrane_types::Condition::All))
    }

    /// At least one of them holds; of none, it does not.
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

    /// The condition, if its names, values and size are within the limits.
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

/// The newest version of a column, to be tested. Values are compared byte by byte, or as numbers or text by
/// [`Column::as_i64`] and its like.
#[must_use]
pub fn column(family: &str, qualifier: impl AsRef<[u8]>) -> Column {
    Column {
        family: family.to_owned(),
        qualifier: Bytes::copy_from_slice(qualifier.as_ref()),
        read_as: ValueType::Bytes,
        read: PhantomData,
    }
}

/// Values compared byte by byte, or as text.
#[derive(Clone, Copy, Debug)]
pub enum Raw {}

/// A column to be tested, its values read as `T`.
#[derive(Clone, Debug)]
pub struct Column<T = Raw> {
    family: String,
    qualifier: Bytes,
    read_as: ValueType,
    read: PhantomData<T>,
}

mod sealed {
    pub trait Sealed<T> {}
}

/// What a column read as `T` can be compared with: anything made of bytes where it is read as bytes or text, a number of the
/// same type where it is read as a number. Not to be implemented elsewhere.
pub trait Comparable<T>: sealed::Sealed<T> {
    /// The bytes that stand for it in a cell.
    fn cell_bytes(&self) -> Bytes;
}

impl<A: AsRef<[u8]>> sealed::Sealed<Raw> for A {}
impl<A: AsRef<[u8]>> Comparable<Raw> for A {
    fn cell_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_ref())
    }
}

macro_rules! numbers {
    ($($method:ident $number:ty, $read_as:ident, $words:literal;)*) => {
        $(
            impl sealed::Sealed<$number> for $number {}
            impl Comparable<$number> for $number {
                fn cell_bytes(&self) -> Bytes {
                    Bytes::copy_from_slice(&self.to_be_bytes())
                }
            }
        )*

        impl Column<Raw> {
            $(
                #[doc = concat!("Its values are read as ", $words, ", big-endian. A cell that is none fails the mutation.")]
                #[must_use]
                pub fn $method(self) -> Column<$number> {
                    let Self { family, qualifier, .. } = self;
                    Column { family, qualifier, read_as: ValueType::$read_as, read: PhantomData }
                }
            )*

            /// Its values are read as UTF-8 text. A cell that is none fails the mutation.
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
    as_i64 i64, I64, "signed numbers of 8 bytes, as counters are";
    as_u32 u32, U32, "unsigned numbers of 4 bytes";
    as_u64 u64, U64, "unsigned numbers of 8 bytes";
    as_f64 f64, F64, "floating point numbers of 8 bytes";
}

impl<T> Column<T> {
    /// It has this value.
    #[must_use]
    pub fn equals(self, value: impl Comparable<T>) -> Condition {
        self.test(Test::Equal(value.cell_bytes()))
    }

    /// It has another value. A column that is absent has none: `.or(column(..).is_absent())` lets it pass too.
    #[must_use]
    pub fn not_equals(self, value: impl Comparable<T>) -> Condition {
        self.test(Test::NotEqual(value.cell_bytes()))
    }

    /// It is below this value. A column that is absent is not.
    #[must_use]
    pub fn less_than(self, value: impl Comparable<T>) -> Condition {
        self.test(Test::Less(value.cell_bytes()))
    }

    /// It is not above this value. A column that is absent fails.
    #[must_use]
    pub fn at_most(self, value: impl Comparable<T>) -> Condition {
        self.test(Test::LessOrEqual(value.cell_bytes()))
    }

    /// It is above this value. A column that is absent is not.
    #[must_use]
    pub fn greater_than(self, value: impl Comparable<T>) -> Condition {
        self.test(Test::Greater(value.cell_bytes()))
    }

    /// It is not below this value. A column that is absent fails.
    #[must_use]
    pub fn at_least(self, value: impl Comparable<T>) -> Condition {
        self.test(Test::GreaterOrEqual(value.cell_bytes()))
    }

    /// Its value is one of these.
    #[must_use]
    pub fn one_of<V: Comparable<T>>(self, values: impl IntoIterator<Item = V>) -> Condition {
        let values = values.into_iter().map(|value| value.cell_bytes()).collect();
        self.test(Test::In(values))
    }

    /// There is no such column.
    #[must_use]
    pub fn is_absent(self) -> Condition {
        self.test(Test::Absent)
    }

    /// There is one, of whatever value.
    #[must_use]
    pub fn exists(self) -> Condition {
        self.test(Test::Exists)
    }

    /// Its newest version has this timestamp, in milliseconds: compare-and-set by version.
    #[must_use]
    pub fn version_is(self, timestamp: i64) -> Condition {
        self.test(Test::Version(timestamp))
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
    fn what_is_wrong_anywhere_in_it_is_told() {
        let wrong = column("f", "a").exists().and(column("no/family", "b").exists()).or(column("f", "c").exists());
        assert!(wrong.checked().is_err());
        let deep = (0..20).fold(column("f", "q").exists(), |inner, index| {
            let other = column("f", "q").exists();
            if index % 2 == 0 { other.and(inner) } else { other.or(inner) }
        });
        assert!(deep.checked().unwrap_err().to_string().contains("deeper"));
    }
}
