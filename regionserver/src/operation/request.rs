//! What is asked of a row besides its cells, on its way from the edge to whoever evaluates it in the same process.
//!
//! It is bytes only because the raft room carries operations without looking. It is neither logged nor sent, so this
//! layout may change freely, and what is read was written by [`Request::encode`] from checked values.

use bytes::Bytes;
use terrane_types::{
    ColumnTest, Condition, FamilyName, ReadModifyWrite, ReadModifyWriteKind, Returns, Test, ValueType,
};

use crate::record::{Malformed, Reader, put_count, put_long, put_short, put_u64};

/// What is asked of a row besides its cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Nothing of the row is applied unless it holds.
    pub condition: Option<Condition>,
    pub read_modify_writes: Vec<ReadModifyWrite>,
    pub returns: Returns,
    /// When the condition does not hold: answer the columns it names.
    pub return_found: bool,
}

const COLUMN: u8 = 0;
const ALL: u8 = 1;
const ANY: u8 = 2;

impl Request {
    /// Whether there is nothing to evaluate.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.condition.is_none() && self.read_modify_writes.is_empty() && self.returns == Returns::Nothing
    }

    /// The request's bytes.
    ///
    /// # Errors
    /// [`Malformed`] for a qualifier that is longer than any may be.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let returns = match self.returns {
            Returns::Nothing => 0,
            Returns::Old => 1,
            Returns::New => 2,
        };
        let mut out = vec![returns, u8::from(self.return_found), u8::from(self.condition.is_some())];
        if let Some(condition) = &self.condition {
            put_condition(&mut out, condition)?;
        }
        put_count(&mut out, self.read_modify_writes.len());
        for rmw in &self.read_modify_writes {
            put_column(&mut out, &rmw.family, &rmw.qualifier)?;
            match &rmw.what {
                ReadModifyWriteKind::Increment(by) => {
                    out.push(0);
                    out.extend_from_slice(&by.to_le_bytes());
                }
                ReadModifyWriteKind::Append(value) => {
                    out.push(1);
                    put_long(&mut out, value);
                }
            }
        }
        Ok(out)
    }

    pub fn decode(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(Bytes::copy_from_slice(record));
        let returns = match reader.u8()? {
            0 => Returns::Nothing,
            1 => Returns::Old,
            2 => Returns::New,
            _ => return Err(Malformed("a request returns something unknown")),
        };
        let return_found = reader.u8()? == 1;
        let condition = if reader.u8()? == 1 { Some(read_condition(&mut reader)?) } else { None };
        let count = reader.count(4)?;
        let read_modify_writes = (0..count).map(|_| read_one(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self { condition, read_modify_writes, returns, return_found })
    }
}

fn put_column(out: &mut Vec<u8>, family: &FamilyName, qualifier: &[u8]) -> Result<(), Malformed> {
    put_short(out, family.as_bytes())?;
    put_short(out, qualifier)
}

fn read_column(reader: &mut Reader) -> Result<(FamilyName, Bytes), Malformed> {
    let family = reader.short()?;
    let family = FamilyName::try_from(&family[..]).map_err(|_| Malformed("a request names no family"))?;
    Ok((family, reader.short()?))
}

fn read_one(reader: &mut Reader) -> Result<ReadModifyWrite, Malformed> {
    let (family, qualifier) = read_column(reader)?;
    let what = match reader.u8()? {
        0 => ReadModifyWriteKind::Increment(i64::from_le_bytes(reader.array()?)),
        1 => ReadModifyWriteKind::Append(reader.bytes()?),
        _ => return Err(Malformed("a read-modify-write of an unknown kind")),
    };
    Ok(ReadModifyWrite { family, qualifier, what })
}

fn put_condition(out: &mut Vec<u8>, condition: &Condition) -> Result<(), Malformed> {
    match condition {
        Condition::Column(column) => {
            out.push(COLUMN);
            put_test(out, column)
        }
        Condition::All(parts) => put_parts(out, ALL, parts),
        Condition::Any(parts) => put_parts(out, ANY, parts),
    }
}

fn put_parts(out: &mut Vec<u8>, kind: u8, parts: &[Condition]) -> Result<(), Malformed> {
    out.push(kind);
    put_count(out, parts.len());
    parts.iter().try_for_each(|part| put_condition(out, part))
}

fn read_condition(reader: &mut Reader) -> Result<Condition, Malformed> {
    match reader.u8()? {
        COLUMN => read_test(reader).map(Condition::Column),
        ALL => read_parts(reader).map(Condition::All),
        ANY => read_parts(reader).map(Condition::Any),
        _ => Err(Malformed("a condition of an unknown kind")),
    }
}

fn read_parts(reader: &mut Reader) -> Result<Vec<Condition>, Malformed> {
    let count = reader.count(1)?;
    (0..count).map(|_| read_condition(reader)).collect()
}

fn put_test(out: &mut Vec<u8>, column: &ColumnTest) -> Result<(), Malformed> {
    put_column(out, &column.family, &column.qualifier)?;
    put_short(out, column.read_as.name().as_bytes())?;
    let kind = match &column.test {
        Test::Equal(_) => 0,
        Test::NotEqual(_) => 1,
        Test::Less(_) => 2,
        Test::LessOrEqual(_) => 3,
        Test::Greater(_) => 4,
        Test::GreaterOrEqual(_) => 5,
        Test::Absent => 6,
        Test::Exists => 7,
        Test::In(_) => 8,
        Test::Version(_) => 9,
    };
    out.push(kind);
    match &column.test {
        Test::In(values) => {
            put_count(out, values.len());
            values.iter().for_each(|value| put_long(out, value));
        }
        Test::Version(timestamp) => put_u64(out, timestamp.cast_unsigned()),
        other => other.values().iter().for_each(|value| put_long(out, value)),
    }
    Ok(())
}

fn read_test(reader: &mut Reader) -> Result<ColumnTest, Malformed> {
    let (family, qualifier) = read_column(reader)?;
    let name = reader.short()?;
    let read_as = std::str::from_utf8(&name).ok().and_then(|name| ValueType::parse(name).ok());
    let read_as = read_as.ok_or(Malformed("a test reads values as an unknown type"))?;
    let test = match reader.u8()? {
        0 => Test::Equal(reader.bytes()?),
        1 => Test::NotEqual(reader.bytes()?),
        2 => Test::Less(reader.bytes()?),
        3 => Test::LessOrEqual(reader.bytes()?),
        4 => Test::Greater(reader.bytes()?),
        5 => Test::GreaterOrEqual(reader.bytes()?),
        6 => Test::Absent,
        7 => Test::Exists,
        8 => {
            let count = reader.count(4)?;
            Test::In((0..count).map(|_| reader.bytes()).collect::<Result<_, _>>()?)
        }
        9 => Test::Version(reader.u64()?.cast_signed()),
        _ => return Err(Malformed("a test of an unknown kind")),
    };
    Ok(ColumnTest { family, qualifier, read_as, test })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_went() {
        let family = || FamilyName::new("f").unwrap();
        let value = || Bytes::from_static(b"v");
        let tests = [
            Test::Equal(value()),
            Test::NotEqual(value()),
            Test::Less(value()),
            Test::LessOrEqual(value()),
            Test::Greater(value()),
            Test::GreaterOrEqual(value()),
            Test::Absent,
            Test::Exists,
            Test::In(vec![value(), Bytes::new()]),
            Test::Version(i64::MAX),
        ];
        let tests =
            tests.map(|test| Condition::Column(ColumnTest::new(family(), "q", test).reading_as(ValueType::Text)));
        let read_modify_writes = [ReadModifyWriteKind::Increment(-1), ReadModifyWriteKind::Append(value())];
        let rmw = |what| ReadModifyWrite { family: family(), qualifier: "q".into(), what };
        let request = Request {
            condition: Some(Condition::Any(vec![Condition::All(tests.to_vec()), Condition::All(Vec::new())])),
            read_modify_writes: read_modify_writes.into_iter().map(rmw).collect(),
            returns: Returns::New,
            return_found: true,
        };
        assert_eq!(Request::decode(&request.encode().unwrap()).unwrap(), request);
        assert_eq!(Request::decode(&Request::default().encode().unwrap()).unwrap(), Request::default());
        assert!(Request::default().is_plain() && !request.is_plain());
    }
}
