//! Conditions: what must hold for a row before a mutation of it is applied.
//!
//! A condition tests the newest version of some columns. The leader of the row's group evaluates it once, in the order
//! of the log. Tests are joined by *and* and *or* and bounded in depth and number, so that evaluation takes bounded
//! time.
//!
//! Invariants:
//! - A condition that passed [`Condition::check`] is within the limits, and all operands can be read as their types. So
//!   an error during evaluation is always about the cell that was found.
//! - An absent column passes only [`Test::Absent`], as in a filter: it is neither equal to a value nor different from
//!   it.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::cell::CellRef;
use crate::invalid::Invalid;
use crate::limits::{
    CONDITION_DEPTH_MAX, CONDITION_TESTS_MAX, CONDITION_VALUES_MAX, QUALIFIER_BYTES_MAX, VALUE_BYTES_MAX,
};
use crate::name::FamilyName;
use crate::value_type::ValueType;

/// What must hold for a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A test of one column.
    Column(ColumnTest),
    /// All of them hold; true for an empty list.
    All(Vec<Condition>),
    /// At least one of them holds; false for an empty list.
    Any(Vec<Condition>),
}

/// A test of the newest version of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTest {
    /// The column's family.
    pub family: FamilyName,
    /// The column's qualifier.
    pub qualifier: Bytes,
    /// The type that both the cell's value and the operands are read as.
    pub read_as: ValueType,
    /// The test of the newest version.
    pub test: Test,
}

/// A test of a column's newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It has this value.
    Equal(Bytes),
    /// It exists and has another value.
    NotEqual(Bytes),
    /// It is below this value.
    Less(Bytes),
    /// It is not above this value.
    LessOrEqual(Bytes),
    /// It is above this value.
    Greater(Bytes),
    /// It is not below this value.
    GreaterOrEqual(Bytes),
    /// The column is absent.
    Absent,
    /// The column exists.
    Exists,
    /// Its value is one of these.
    In(Vec<Bytes>),
    /// Its timestamp is this one: compare and set by version.
    Version(i64),
}

/// The newest version of a column: its timestamp and value.
pub type Newest<'a> = Option<(i64, &'a [u8])>;

impl Test {
    /// The operands.
    #[must_use]
    pub fn values(&self) -> &[Bytes] {
        match self {
            Self::Equal(value)
            | Self::NotEqual(value)
            | Self::Less(value)
            | Self::LessOrEqual(value)
            | Self::Greater(value)
            | Self::GreaterOrEqual(value) => std::slice::from_ref(value),
            Self::In(values) => values,
            Self::Absent | Self::Exists | Self::Version(_) => &[],
        }
    }
}

impl ColumnTest {
    /// A test that compares values byte by byte.
    #[must_use]
    pub fn new(family: FamilyName, qualifier: impl Into<Bytes>, test: Test) -> Self {
        Self { family, qualifier: qualifier.into(), read_as: ValueType::Bytes, test }
    }

    /// The same test, with values read as this type.
    #[must_use]
    pub fn reading_as(mut self, read_as: ValueType) -> Self {
        self.read_as = read_as;
        self
    }

    /// Whether the newest version passes.
    ///
    /// # Errors
    /// [`Invalid`] that names the column, if its value cannot be read as the test's type.
    pub fn passes(&self, newest: Newest<'_>) -> Result<bool, Invalid> {
        let Some((timestamp, value)) = newest else {
            return Ok(self.test == Test::Absent);
        };
        let order = |other: &Bytes| self.compare(value, other);
        Ok(match &self.test {
            Test::Equal(other) => order(other)?.is_eq(),
            Test::NotEqual(other) => order(other)?.is_ne(),
            Test::Less(other) => order(other)?.is_lt(),
            Test::LessOrEqual(other) => order(other)?.is_le(),
            Test::Greater(other) => order(other)?.is_gt(),
            Test::GreaterOrEqual(other) => order(other)?.is_ge(),
            Test::Absent => false,
            Test::Exists => true,
            Test::In(others) => {
                for other in others {
                    if order(other)?.is_eq() {
                        return Ok(true);
                    }
                }
                false
            }
            Test::Version(wanted) => timestamp == *wanted,
        })
    }

    fn compare(&self, value: &[u8], other: &[u8]) -> Result<Ordering, Invalid> {
        self.read_as.compare(value, other).map_err(|why| Invalid::new(format!("column {}: {why}", self.column())))
    }

    /// `family:qualifier`, for messages.
    fn column(&self) -> String {
        CellRef::put(self.family.as_bytes(), &self.qualifier, 0, &[]).to_string()
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.qualifier.len() > QUALIFIER_BYTES_MAX {
            return Err(Invalid::new(format!(
                "the qualifier of {} has {} bytes; the limit is {QUALIFIER_BYTES_MAX}",
                self.column(),
                self.qualifier.len()
            )));
        }
        for value in self.test.values() {
            if value.len() > VALUE_BYTES_MAX {
                return Err(Invalid::new(format!(
                    "a value that {} is compared with has {} bytes; the limit is {VALUE_BYTES_MAX}",
                    self.column(),
                    value.len()
                )));
            }
            let readable = self.read_as.read(value);
            readable.map_err(|why| Invalid::new(format!("a value that {} is compared with: {why}", self.column())))?;
        }
        if let Test::Version(timestamp) = self.test
            && timestamp < 0
        {
            let column = self.column();
            return Err(Invalid::new(format!(
                "{column} is compared with version {timestamp}; timestamps are not negative"
            )));
        }
        Ok(())
    }
}

impl Condition {
    /// Checks the limits, and that all operands can be read as their types.
    ///
    /// # Errors
    /// [`Invalid`] that names the exceeded limit or the operand.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_depth(1)?;
        let (mut tests, mut values) = (0, 0);
        self.each_test(&mut |test| {
            tests += 1;
            values += test.test.values().len();
            test.check()
        })?;
        if tests > CONDITION_TESTS_MAX {
            return Err(Invalid::new(format!("the condition has {tests} tests; the limit is {CONDITION_TESTS_MAX}")));
        }
        if values > CONDITION_VALUES_MAX {
            return Err(Invalid::new(format!(
                "the condition compares with {values} values; the limit is {CONDITION_VALUES_MAX}"
            )));
        }
        Ok(())
    }

    fn check_depth(&self, depth: usize) -> Result<(), Invalid> {
        if depth > CONDITION_DEPTH_MAX {
            return Err(Invalid::new(format!("the condition is nested deeper than {CONDITION_DEPTH_MAX}")));
        }
        match self {
            Self::Column(_) => Ok(()),
            Self::All(parts) | Self::Any(parts) => {
                // Groups without tests count too; otherwise a condition could be arbitrarily large without testing
                // anything.
                if parts.len() > CONDITION_TESTS_MAX {
                    return Err(Invalid::new(format!(
                        "the condition joins {} parts; the limit is {CONDITION_TESTS_MAX}",
                        parts.len()
                    )));
                }
                parts.iter().try_for_each(|part| part.check_depth(depth + 1))
            }
        }
    }

    /// Calls `each` with every test, in order.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn each_test<E>(&self, each: &mut impl FnMut(&ColumnTest) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Column(test) => each(test),
            Self::All(parts) | Self::Any(parts) => parts.iter().try_for_each(|part| part.each_test(each)),
        }
    }

    /// Whether the condition holds for a row whose newest versions `newest` returns. Parts are evaluated in order, and
    /// only until the outcome is known.
    ///
    /// # Errors
    /// [`Invalid`] that names a column whose value cannot be read as the compared type.
    pub fn holds<'a>(&self, newest: &impl Fn(&FamilyName, &[u8]) -> Newest<'a>) -> Result<bool, Invalid> {
        match self {
            Self::Column(test) => test.passes(newest(&test.family, &test.qualifier)),
            Self::All(parts) => {
                for part in parts {
                    if !part.holds(newest)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(parts) => {
                for part in parts {
                    if part.holds(newest)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(test: Test) -> ColumnTest {
        ColumnTest::new(FamilyName::new("f").unwrap(), "q", test)
    }

    fn i64s(value: i64) -> Bytes {
        Bytes::copy_from_slice(&value.to_be_bytes())
    }

    #[test]
    fn an_absent_column_passes_absent_only() {
        let value = || Bytes::from_static(b"v");
        for (passes, one) in [
            (true, Test::Absent),
            (false, Test::NotEqual(value())),
            (false, Test::Equal(value())),
            (false, Test::Less(value())),
            (false, Test::GreaterOrEqual(value())),
            (false, Test::Exists),
            (false, Test::In(vec![value()])),
            (false, Test::Version(0)),
        ] {
            assert_eq!(test(one.clone()).passes(None), Ok(passes), "{one:?}");
        }
    }

    #[test]
    fn values_are_compared_as_what_they_are_read_as() {
        let minus = (-1i64).to_be_bytes();
        let less = test(Test::Less(i64s(0)));
        assert_eq!(less.passes(Some((1, &minus))), Ok(false), "as bytes, minus one is large");
        assert_eq!(less.reading_as(ValueType::I64).passes(Some((1, &minus))), Ok(true));
    }

    #[test]
    fn a_value_that_cannot_be_read_is_an_error_that_names_the_column() {
        let refused = test(Test::Less(i64s(0))).reading_as(ValueType::I64).passes(Some((1, b"abc"))).unwrap_err();
        assert_eq!(refused.to_string(), "column f:q: i64 values have 8 bytes, this one has 3");
    }

    #[test]
    fn versions_are_compared_by_timestamp_and_sets_by_membership() {
        assert_eq!(test(Test::Version(7)).passes(Some((7, b""))), Ok(true));
        assert_eq!(test(Test::Version(7)).passes(Some((8, b""))), Ok(false));
        let set = test(Test::In(vec!["a".into(), "b".into()]));
        assert_eq!(set.passes(Some((1, b"b"))), Ok(true));
        assert_eq!(set.passes(Some((1, b"c"))), Ok(false));
    }

    #[test]
    fn and_and_or_look_no_further_than_they_need() {
        let exists = || Condition::Column(test(Test::Exists));
        let unreadable = || Condition::Column(test(Test::Less(i64s(0))).reading_as(ValueType::I64));
        let row = |_: &FamilyName, _: &[u8]| Some((1, &b"abc"[..]));
        assert_eq!(Condition::Any(vec![exists(), unreadable()]).holds(&row), Ok(true));
        assert!(Condition::All(vec![exists(), unreadable()]).holds(&row).is_err());
        assert_eq!(Condition::All(Vec::new()).holds(&row), Ok(true));
        assert_eq!(Condition::Any(Vec::new()).holds(&row), Ok(false));
    }

    #[test]
    fn what_is_over_a_limit_is_refused_in_words() {
        let exists = || Condition::Column(test(Test::Exists));
        let deep = (0..CONDITION_DEPTH_MAX).fold(exists(), |inner, _| Condition::All(vec![inner]));
        assert!(deep.check().unwrap_err().to_string().contains("deeper than 8"));
        let wide = Condition::All(vec![exists(); 65]);
        assert!(wide.check().unwrap_err().to_string().contains("limit is 64"));
        let halves = Condition::Any(vec![Condition::All(vec![exists(); 40]), Condition::All(vec![exists(); 40])]);
        assert!(halves.check().unwrap_err().to_string().contains("80 tests; the limit is 64"));
        let values = Condition::Column(test(Test::In(vec!["v".into(); 257])));
        assert!(values.check().unwrap_err().to_string().contains("257 values; the limit is 256"));
        let unreadable = Condition::Column(test(Test::Equal("x".into())).reading_as(ValueType::U32));
        assert!(unreadable.check().unwrap_err().to_string().contains("f:q is compared with: u32 values have 4 bytes"));
    }
}
