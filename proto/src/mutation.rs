//! Conversions of the parts of a row's mutation other than its cells: conditions, increments and appends, returned
//! cells, and the outcome.

use bytes::Bytes;
use terrane_types::{
    ColumnTest, Condition, Error, FamilyName, PackedCells, ReadModifyWrite, ReadModifyWriteKind, Returns, RowOutcome,
    Test, ValueType,
};

use crate::convert::{cell_messages, invalid, pack_messages};
use crate::v1;

impl From<&Condition> for v1::Condition {
    fn from(condition: &Condition) -> Self {
        let joined = |parts: &[Condition]| v1::Conditions { of: parts.iter().map(Self::from).collect() };
        let kind = match condition {
            Condition::Column(test) => v1::condition::Kind::Column(v1::ColumnTest::from(test)),
            Condition::All(parts) => v1::condition::Kind::All(joined(parts)),
            Condition::Any(parts) => v1::condition::Kind::Any(joined(parts)),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Condition> for Condition {
    type Error = Error;

    /// The result is checked. The recursion ends because decoding bounds the depth of a message.
    fn try_from(condition: v1::Condition) -> Result<Self, Error> {
        let condition = condition_from(condition)?;
        condition.check()?;
        Ok(condition)
    }
}

fn condition_from(condition: v1::Condition) -> Result<Condition, Error> {
    let joined = |parts: v1::Conditions| parts.of.into_iter().map(condition_from).collect::<Result<Vec<_>, Error>>();
    match condition.kind {
        Some(v1::condition::Kind::Column(test)) => Ok(Condition::Column(test.try_into()?)),
        Some(v1::condition::Kind::All(parts)) => Ok(Condition::All(joined(parts)?)),
        Some(v1::condition::Kind::Any(parts)) => Ok(Condition::Any(joined(parts)?)),
        None => Err(invalid("a condition is empty, or of a kind this server does not know".to_owned())),
    }
}

impl From<&ColumnTest> for v1::ColumnTest {
    fn from(column: &ColumnTest) -> Self {
        let comparison = match &column.test {
            Test::Equal(_) => v1::Comparison::Equal,
            Test::NotEqual(_) => v1::Comparison::NotEqual,
            Test::Less(_) => v1::Comparison::Less,
            Test::LessOrEqual(_) => v1::Comparison::LessOrEqual,
            Test::Greater(_) => v1::Comparison::Greater,
            Test::GreaterOrEqual(_) => v1::Comparison::GreaterOrEqual,
            Test::Absent => v1::Comparison::Absent,
            Test::Exists => v1::Comparison::Exists,
            Test::In(_) => v1::Comparison::In,
            Test::Version(_) => v1::Comparison::Version,
        };
        Self {
            family: column.family.as_str().to_owned(),
            qualifier: column.qualifier.clone(),
            comparison: comparison.into(),
            values: column.test.values().to_vec(),
            read_as: column.read_as.name().to_owned(),
            timestamp: if let Test::Version(timestamp) = column.test { timestamp } else { 0 },
        }
    }
}

impl TryFrom<v1::ColumnTest> for ColumnTest {
    type Error = Error;

    fn try_from(column: v1::ColumnTest) -> Result<Self, Error> {
        let v1::ColumnTest { family, qualifier, comparison, values, read_as, timestamp } = column;
        let Ok(comparison) = v1::Comparison::try_from(comparison) else {
            return Err(invalid(format!("comparison {comparison} is not one of 0 to 9")));
        };
        let test = match comparison {
            v1::Comparison::Equal => Test::Equal(one_of(values)?),
            v1::Comparison::NotEqual => Test::NotEqual(one_of(values)?),
            v1::Comparison::Less => Test::Less(one_of(values)?),
            v1::Comparison::LessOrEqual => Test::LessOrEqual(one_of(values)?),
            v1::Comparison::Greater => Test::Greater(one_of(values)?),
            v1::Comparison::GreaterOrEqual => Test::GreaterOrEqual(one_of(values)?),
            v1::Comparison::In => Test::In(values),
            v1::Comparison::Absent => none_of(&values, Test::Absent)?,
            v1::Comparison::Exists => none_of(&values, Test::Exists)?,
            v1::Comparison::Version => none_of(&values, Test::Version(timestamp))?,
        };
        let read_as = if read_as.is_empty() { ValueType::Bytes } else { ValueType::parse(&read_as)? };
        Ok(Self { family: FamilyName::new(&family)?, qualifier, read_as, test })
    }
}

fn one_of(values: Vec<Bytes>) -> Result<Bytes, Error> {
    let count = values.len();
    let [value] = <[Bytes; 1]>::try_from(values)
        .map_err(|_| invalid(format!("a comparison takes one value, this one has {count}; IN takes several")))?;
    Ok(value)
}

fn none_of(values: &[Bytes], test: Test) -> Result<Test, Error> {
    if values.is_empty() {
        return Ok(test);
    }
    Err(invalid(format!("a test for ABSENT, EXISTS or VERSION takes no values, this one has {}", values.len())))
}

impl From<&ReadModifyWrite> for v1::ReadModifyWrite {
    fn from(rmw: &ReadModifyWrite) -> Self {
        let what = match &rmw.what {
            ReadModifyWriteKind::Increment(by) => v1::read_modify_write::What::Increment(*by),
            ReadModifyWriteKind::Append(value) => v1::read_modify_write::What::Append(value.clone()),
            ReadModifyWriteKind::DeleteNewest => v1::read_modify_write::What::DeleteNewest(true),
        };
        Self { family: rmw.family.as_str().to_owned(), qualifier: rmw.qualifier.clone(), what: Some(what) }
    }
}

impl TryFrom<v1::ReadModifyWrite> for ReadModifyWrite {
    type Error = Error;

    /// The result is checked.
    fn try_from(rmw: v1::ReadModifyWrite) -> Result<Self, Error> {
        let what = match rmw.what {
            Some(v1::read_modify_write::What::Increment(by)) => ReadModifyWriteKind::Increment(by),
            Some(v1::read_modify_write::What::Append(value)) => ReadModifyWriteKind::Append(value),
            Some(v1::read_modify_write::What::DeleteNewest(true)) => ReadModifyWriteKind::DeleteNewest,
            Some(v1::read_modify_write::What::DeleteNewest(false)) | None => {
                let what =
                    "a read-modify-write is neither an increment, nor an append, nor a delete of a newest version";
                return Err(invalid(what.to_owned()));
            }
        };
        let rmw = Self { family: FamilyName::new(&rmw.family)?, qualifier: rmw.qualifier, what };
        rmw.check()?;
        Ok(rmw)
    }
}

impl From<Returns> for v1::Returns {
    fn from(returns: Returns) -> Self {
        match returns {
            Returns::Nothing => Self::Nothing,
            Returns::Old => Self::Old,
            Returns::New => Self::New,
        }
    }
}

/// Which cells a mutation returns, from its number on the wire.
///
/// # Errors
/// [`Error::Invalid`] for an unknown number.
pub fn returns(number: i32) -> Result<Returns, Error> {
    match v1::Returns::try_from(number) {
        Ok(v1::Returns::Nothing) => Ok(Returns::Nothing),
        Ok(v1::Returns::Old) => Ok(Returns::Old),
        Ok(v1::Returns::New) => Ok(Returns::New),
        Err(_) => Err(invalid(format!("returns {number} is not one of 0 to 2"))),
    }
}

/// The outcome of the `row`-th row of a request, with its cells packed or, if `messages` is set, as messages.
#[must_use]
pub fn row_result(row: u32, outcome: RowOutcome, messages: bool) -> v1::RowResult {
    let RowOutcome { condition_failed, cells, stamp } = outcome;
    let messages = if messages { cell_messages(cells.iter()) } else { Vec::new() };
    let cells = if messages.is_empty() { cells.into_bytes() } else { Bytes::new() };
    v1::RowResult { row, condition_failed, cells, messages, stamp }
}

/// The index of the row in the request, and its outcome.
///
/// # Errors
/// [`Error::Invalid`] when its cells are malformed.
pub fn row_outcome(result: v1::RowResult) -> Result<(u32, RowOutcome), Error> {
    let v1::RowResult { row, condition_failed, cells, messages, stamp } = result;
    let cells = if cells.is_empty() { pack_messages(&messages)? } else { PackedCells::validate(cells)? };
    Ok((row, RowOutcome { condition_failed, cells, stamp }))
}

/// The size of a condition in a message, in bytes.
#[must_use]
pub fn condition_bytes(condition: &v1::Condition) -> usize {
    prost::Message::encoded_len(condition)
}

#[cfg(test)]
mod tests {
    use terrane_types::CellRef;

    use super::*;

    fn column(test: Test) -> Condition {
        let column = ColumnTest::new("f".parse().unwrap(), "q", test).reading_as(ValueType::Text);
        Condition::Column(column)
    }

    #[test]
    fn conditions_come_back_as_they_went() {
        let value = || Bytes::from_static(b"v");
        let tests = vec![
            column(Test::Equal(value())),
            column(Test::NotEqual(value())),
            column(Test::Less(value())),
            column(Test::LessOrEqual(value())),
            column(Test::Greater(value())),
            column(Test::GreaterOrEqual(value())),
            column(Test::Absent),
            column(Test::Exists),
            column(Test::In(vec![value(), value()])),
            column(Test::Version(77)),
        ];
        let condition = Condition::Any(vec![Condition::All(tests), Condition::Any(Vec::new())]);
        assert_eq!(Condition::try_from(v1::Condition::from(&condition)).unwrap(), condition);
    }

    #[test]
    fn a_test_with_too_many_values_or_none_is_refused() {
        let test = v1::ColumnTest { family: "f".into(), ..v1::ColumnTest::default() };
        let refused = ColumnTest::try_from(test.clone()).unwrap_err().to_string();
        assert!(refused.contains("takes one value, this one has 0"), "{refused}");
        let exists = v1::ColumnTest { comparison: 7, values: vec![Bytes::new()], ..test.clone() };
        assert!(ColumnTest::try_from(exists).unwrap_err().to_string().contains("takes no values"));
        let unknown = v1::ColumnTest { comparison: 10, ..test };
        assert!(ColumnTest::try_from(unknown).unwrap_err().to_string().contains("0 to 9"));
        assert!(Condition::try_from(v1::Condition { kind: None }).is_err());
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let deep = (0..20).fold(column(Test::Exists), |inner, _| Condition::All(vec![inner]));
        assert!(Condition::try_from(v1::Condition::from(&deep)).unwrap_err().to_string().contains("deeper than 8"));
    }

    #[test]
    fn read_modify_writes_and_outcomes_come_back_as_they_went() {
        let kinds = [
            ReadModifyWriteKind::Increment(-5),
            ReadModifyWriteKind::Append("more".into()),
            ReadModifyWriteKind::DeleteNewest,
        ];
        for what in kinds {
            let rmw = ReadModifyWrite { family: "f".parse().unwrap(), qualifier: "q".into(), what };
            assert_eq!(ReadModifyWrite::try_from(v1::ReadModifyWrite::from(&rmw)).unwrap(), rmw);
        }
        let cells = PackedCells::from_cells([CellRef::put(b"f", b"q", 5, b"v")]).unwrap();
        let outcome = RowOutcome { condition_failed: true, cells, stamp: 9 };
        for messages in [false, true] {
            let result = row_result(3, outcome.clone(), messages);
            assert_eq!(result.messages.is_empty(), !messages);
            assert_eq!(row_outcome(result).unwrap(), (3, outcome.clone()));
        }
    }
}
