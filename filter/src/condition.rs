//! Filters as conditions of writes: the part of the filter language that tests columns by name.
//!
//! Conditions and filters share one language, so that users learn it once. A condition is evaluated on one row during
//! the write and can only name columns: tests of row keys or of any value, patterns and bit masks are rejected with a
//! list of what is supported. A missing column fails every comparison, including `!=`, as it does in a filter; `not
//! exists(f:q)` tests for absence. docs/filters.md has the differences that remain.

use terrane_types::{ColumnTest, Condition, FamilyName, Invalid, Test, ValueType};

use crate::expression::{ColumnSubject, Filter, Relation, Subject};

impl Filter {
    /// The filter as the condition of a write.
    ///
    /// ```
    /// use terrane_filter::Filter;
    /// let free = Filter::from_text("not exists(job:owner) or i64(job:lease) < 1700000000000")?.into_condition()?;
    /// assert!(Filter::from_text("prefix(row, 'a')")?.into_condition().is_err());
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] that says what conditions can test, and for more tests than a condition can have.
    pub fn into_condition(self) -> Result<Condition, Invalid> {
        self.check()?;
        let condition = condition_of(self)?;
        condition.check()?;
        Ok(condition)
    }
}

fn condition_of(filter: Filter) -> Result<Condition, Invalid> {
    let all = |filters: Vec<Filter>| filters.into_iter().map(condition_of).collect::<Result<Vec<_>, _>>();
    match filter {
        Filter::And(filters) => Ok(Condition::All(all(filters)?)),
        Filter::Or(filters) => Ok(Condition::Any(all(filters)?)),
        Filter::Compare { subject: Subject::Column(column), read_as, relation, operand } => {
            let test = match relation {
                Relation::Equal => Test::Equal(operand),
                Relation::NotEqual => Test::NotEqual(operand),
                Relation::Less => Test::Less(operand),
                Relation::LessOrEqual => Test::LessOrEqual(operand),
                Relation::Greater => Test::Greater(operand),
                Relation::GreaterOrEqual => Test::GreaterOrEqual(operand),
            };
            compared(column, read_as, test)
        }
        Filter::OneOf { subject: Subject::Column(column), read_as, operands } => {
            compared(column, read_as, Test::In(operands))
        }
        Filter::Exists { family, qualifier } => Ok(tested(family, qualifier, ValueType::Bytes, Test::Exists)),
        Filter::Not(filter) => match *filter {
            Filter::Exists { family, qualifier } => Ok(tested(family, qualifier, ValueType::Bytes, Test::Absent)),
            other => Err(Invalid::new(format!(
                "in a condition, `not` is only supported before exists(…); write `{other}` without it"
            ))),
        },
        other => Err(Invalid::new(format!(
            "`{other}` is not a condition; use comparisons of columns (f:q = 'v', i64(f:q) < 5, f:q in ('a', 'b')), exists(f:q) \
             and not exists(f:q), joined by `and` and `or`"
        ))),
    }
}

fn compared(column: ColumnSubject, read_as: ValueType, test: Test) -> Result<Condition, Invalid> {
    let ColumnSubject { family, qualifier, pass_missing, any_version } = column;
    if any_version {
        return Err(Invalid::new("a condition can only test the newest version of a column"));
    }
    let compared = tested(family.clone(), qualifier.clone(), read_as, test);
    let presence = |test| tested(family, qualifier, ValueType::Bytes, test);
    Ok(if pass_missing { Condition::Any(vec![presence(Test::Absent), compared]) } else { compared })
}

fn tested(family: FamilyName, qualifier: bytes::Bytes, read_as: ValueType, test: Test) -> Condition {
    Condition::Column(ColumnTest::new(family, qualifier, test).reading_as(read_as))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> Result<Condition, Invalid> {
        Filter::from_text(text)?.into_condition()
    }

    /// Whether the condition holds for a row with these columns.
    fn holds(text: &str, columns: &[(&[u8], &[u8])]) -> bool {
        let newest = |_: &FamilyName, qualifier: &[u8]| {
            columns.iter().find(|(name, _)| *name == qualifier).map(|(_, value)| (1, *value))
        };
        let condition = condition(text).unwrap_or_else(|invalid| panic!("{text}: {invalid}"));
        condition.holds(&newest).expect("values of the right width")
    }

    #[test]
    fn a_condition_means_what_the_filter_of_the_same_text_means() {
        let five = 5_i64.to_be_bytes();
        let row: &[(&[u8], &[u8])] = &[(b"a", b"x"), (b"n", &five)];
        for (text, there, absent) in [
            ("f:a = 'x'", true, false),
            ("f:a != 'x'", false, false),
            ("f:a != 'y'", true, false),
            ("f:a in ('w', 'x')", true, false),
            ("i64(f:n) <= 5", true, false),
            ("i64(f:n) > 5", false, false),
            ("exists(f:a)", true, false),
            ("not exists(f:a)", false, true),
            ("f:a = 'x' and i64(f:n) < 6", true, false),
            ("not exists(f:a) or i64(f:n) = 5", true, true),
        ] {
            assert_eq!((holds(text, row), holds(text, &[])), (there, absent), "{text}");
        }
    }

    #[test]
    fn anything_but_tests_of_columns_is_rejected() {
        for text in ["row = 'a'", "value = 'a'", "prefix(f:q, 'a')", "not f:q = 'a'", "keys_only()", "f:q =", ""] {
            assert!(condition(text).is_err(), "{text:?}");
        }
        assert!(condition("f:q =").expect_err("no value").to_string().contains('^'), "the place is shown");
    }
}
