//! One row per line: `{"row":"…","cells":[{"column":"f:q","timestamp":1234,"value":"…"}]}`.
//!
//! Strings are escaped twice: first with `\xHH`, as everywhere, which turns any bytes into ASCII text, then as JSON.
//! `get` and `scan` print rows in the same format under `--json`, so their output can be imported. What they add for
//! readers in a table that declares its key or the types of columns, `key` and `typed`, may be there. Beside `row` and `value`
//! they are ignored; alone, `key` names the row and `typed` gives the value.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use terrane_types::limits::VALUE_BYTES_MAX;
use terrane_types::{KeyDeclaration, Time, ValueType, closest, escape};

use super::{LineError, Parsed, Record, RecordCell, cell_from_text, check_length, column_text, row_from_text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRow<'a> {
    /// May be missing if there is a `key`.
    #[serde(borrow, default)]
    row: Option<Cow<'a, str>>,
    /// The parts of a declared key; ignored beside a `row`.
    #[serde(default)]
    key: Option<Map<String, Value>>,
    #[serde(borrow)]
    cells: Vec<JsonCell<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonCell<'a> {
    #[serde(borrow)]
    column: Cow<'a, str>,
    /// Milliseconds or a date. If missing, the server assigns it; `export` always writes it, in milliseconds.
    #[serde(default, deserialize_with = "timestamp")]
    timestamp: Option<i64>,
    /// May be missing if there is a `typed`.
    #[serde(borrow, default)]
    value: Option<Cow<'a, str>>,
    /// The value by its column's type; ignored beside a `value`.
    #[serde(default)]
    typed: Option<Value>,
}

/// A timestamp: a number of milliseconds, or a text with a date.
fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written<'a> {
        Number(i64),
        Text(#[serde(borrow)] Cow<'a, str>),
    }
    let written = Option::<Written<'_>>::deserialize(deserializer).map_err(|_| {
        serde::de::Error::custom("a timestamp is an integer of milliseconds since 1970, or a date in quotes")
    })?;
    match written {
        None => Ok(None),
        Some(Written::Number(millis)) => Ok(Some(millis)),
        Some(Written::Text(text)) => match Time::parse(&text) {
            Ok(time) => Ok(Some(time.millis())),
            Err(refused) => Err(serde::de::Error::custom(format!("the timestamp {refused}"))),
        },
    }
}

/// What a table declares: lines may leave the bytes of a key or a value out.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// The key.
    pub key: Option<KeyDeclaration>,
    /// The types of columns, by family and qualifier.
    pub types: BTreeMap<(Bytes, Bytes), ValueType>,
}

/// Parses one row.
pub fn parse(line: &[u8], declared: &Declared) -> Result<Parsed, LineError> {
    let read: JsonRow<'_> = serde_json::from_slice(line)
        .map_err(|error| LineError::new(format!("not a row as JSON: {}", in_line(&error))))?;
    if read.cells.is_empty() {
        return Err(LineError::new("the row has no cells"));
    }
    let row = match (&read.row, &read.key) {
        (Some(row), _) => row_from_text(row)?,
        (None, Some(parts)) => row_from_parts(parts, declared.key.as_ref())?,
        (None, None) => return Err(LineError::new("not a row as JSON: it has neither the field `row` nor `key`")),
    };
    let cells: Result<Vec<_>, LineError> = read.cells.iter().map(|cell| cell_of(cell, declared)).collect();
    Ok(Parsed::Record(Record { row, cells: cells? }))
}

/// The error with its place in the line. The caller names the line, and not the first.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.replace(" at line 1 column ", " at character ")
}

fn cell_of(cell: &JsonCell<'_>, declared: &Declared) -> Result<RecordCell, LineError> {
    let column = &cell.column;
    let typed = match (&cell.value, &cell.typed) {
        (Some(value), _) => return cell_from_text(column, cell.timestamp, value),
        (None, Some(typed)) => typed,
        (None, None) => {
            return Err(LineError::new(format!("column {column} has neither the field `value` nor `typed`")));
        }
    };
    let mut read = cell_from_text(column, cell.timestamp, "")?;
    let Some(kind) = declared.types.get(&(read.family.clone(), read.qualifier.clone())) else {
        return Err(LineError::new(format!(
            "column {column} has `typed` but no `value`, and the table declares no type for it"
        )));
    };
    let value = text_of(typed).ok_or_else(|| {
        LineError::new(format!("column {column}: `typed` is neither a text, a number, true nor false"))
    })?;
    let bytes = kind.parse_text(&value).map_err(|error| LineError::new(format!("column {column}: {error}")))?;
    check_length("value", bytes.len(), VALUE_BYTES_MAX)?;
    read.value = bytes.into();
    Ok(read)
}

/// A scalar as the text that parts of keys and typed values are parsed from.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The row of a key whose parts are given by name.
fn row_from_parts(parts: &Map<String, Value>, key: Option<&KeyDeclaration>) -> Result<Bytes, LineError> {
    let Some(key) = key else {
        return Err(LineError::new("the row has a `key` but no `row`, and the table declares no key"));
    };
    let names: Vec<&str> = key.text_parts().iter().map(|part| part.name.as_str()).collect();
    if let Some(unknown) = parts.keys().find(|name| !names.contains(&name.as_str())) {
        let meant = closest(unknown, names.iter().copied());
        let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        return Err(LineError::new(format!("the key has no part {unknown:?}{meant}")));
    }
    let text = |name: &&str| match parts.get(*name) {
        Some(value) => text_of(value)
            .ok_or_else(|| LineError::new(format!("part {name} is neither a text, a number, true nor false"))),
        None => Err(LineError::new(format!("part {name} of the key is missing"))),
    };
    let texts = names.iter().map(text).collect::<Result<Vec<String>, LineError>>()?;
    Ok(key.encode(&texts).map_err(|error| LineError::new(error.to_string()))?.into_bytes())
}

/// A row as it is written.
#[derive(Serialize)]
struct WrittenRow<'a, K, T> {
    row: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a K>,
    cells: Vec<WrittenCell<T>>,
}

#[derive(Serialize)]
struct WrittenCell<T> {
    column: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    typed: Option<T>,
}

/// Writes one row, without a line end, with the parts of its key and the typed values of its cells where there are any.
pub fn write<K: Serialize, T: Serialize>(
    record: &Record,
    key: Option<&K>,
    typed: impl Fn(&RecordCell) -> Option<T>,
) -> String {
    let cell = |cell: &RecordCell| WrittenCell {
        column: column_text(&cell.family, &cell.qualifier),
        timestamp: cell.timestamp,
        value: escape(&cell.value),
        typed: typed(cell),
    };
    let row = WrittenRow { row: escape(&record.row), key, cells: record.cells.iter().map(cell).collect() };
    serde_json::to_string(&row).expect("strings and numbers are always JSON")
}

/// Writes one row of a table that declares nothing.
#[cfg(test)]
pub fn write_plain(record: &Record) -> String {
    write(record, None::<&()>, |_| None::<()>)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        let cell = RecordCell {
            family: "f".into(),
            qualifier: "q".into(),
            timestamp: Some(1234),
            value: Bytes::from_static(b"\"v\"\0"),
        };
        Record { row: Bytes::from_static(b"k\\1"), cells: vec![cell] }
    }

    #[test]
    fn a_row_has_the_promised_form() {
        let line = r#"{"row":"k\\\\1","cells":[{"column":"f:q","timestamp":1234,"value":"\"v\"\\x00"}]}"#;
        assert_eq!(write_plain(&sample()), line);
        assert_eq!(parse(line.as_bytes(), &Declared::default()), Ok(Parsed::Record(sample())));
    }

    #[test]
    fn json_escapes_and_order_of_fields_do_not_matter() {
        let line = "{ \"cells\": [{\"value\": \"\\u0022v\\u0022\\\\x00\", \"timestamp\": 1234, \"column\": \"f:q\"}], \"row\": \"k\\\\\\\\1\" }";
        assert_eq!(parse(line.as_bytes(), &Declared::default()), Ok(Parsed::Record(sample())));
    }

    #[test]
    fn a_cell_may_leave_its_timestamp_to_the_server() {
        let Ok(Parsed::Record(record)) =
            parse(br#"{"row":"r","cells":[{"column":"f:","value":""}]}"#, &Declared::default())
        else {
            panic!("not read")
        };
        assert_eq!(record.cells[0].timestamp, None);
        assert!(record.cells[0].qualifier.is_empty());
    }

    #[test]
    fn times_are_milliseconds_or_dates() {
        let column = (Bytes::from_static(b"f"), Bytes::from_static(b"q"));
        let key = KeyDeclaration::parse("user:u64, time:desc time").expect("a key");
        let declared = Declared { key: Some(key.clone()), types: BTreeMap::from([(column, ValueType::Time)]) };
        let read = |time: &str| {
            let line = format!(
                r#"{{"key":{{"user":7,"time":{time}}},"cells":[{{"column":"f:q","timestamp":{time},"typed":{time}}}]}}"#
            );
            match parse(line.as_bytes(), &declared) {
                Ok(Parsed::Record(record)) => record,
                other => panic!("{line}: {other:?}"),
            }
        };
        let record = read("1769853600000");
        assert_eq!(record, read(r#""2026-01-31T12:00+02:00""#));
        assert_eq!((record.cells[0].timestamp, record.cells[0].value.len()), (Some(1_769_853_600_000), 8));
        assert_eq!(key.line(&record.row).as_deref(), Ok("user=7,time=2026-01-31T10:00:00Z"));
    }

    #[test]
    fn malformed_lines_are_refused() {
        let cases = [
            ("{", "not a row as JSON: EOF while parsing an object at character 1"),
            (r#"{"row":"r"}"#, "cells"),
            (r#"{"cells":[{"column":"f:q","value":"v"}]}"#, "neither"),
            (r#"{"key":{"user":7},"cells":[{"column":"f:q","value":"v"}]}"#, "declares no key"),
            (r#"{"row":"r","kye":{},"cells":[{"column":"f:q","value":"v"}]}"#, "kye"),
            (r#"{"row":"r","cells":[]}"#, "no cells"),
            (r#"{"row":"","cells":[{"column":"f:q","timestamp":1,"value":"v"}]}"#, "row key"),
            (r#"{"row":"r","cells":[{"column":"q","timestamp":1,"value":"v"}]}"#, "family:qualifier"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":-5,"value":"v"}]}"#, "timestamp"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":1.5,"value":"v"}]}"#, "not a row"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":"2026-13-01","value":"v"}]}"#, "there is no month 13"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":"-5","value":"v"}]}"#, "outside 0 to"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":1,"valeu":"v"}]}"#, "valeu"),
            (r#"{"row":"r\\x","cells":[{"column":"f:q","timestamp":1,"value":"v"}]}"#, "row key"),
        ];
        for (line, named) in cases {
            let error = parse(line.as_bytes(), &Declared::default()).expect_err(line);
            assert!(error.to_string().contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn a_key_by_parts_names_the_row_and_typed_values_beside_bytes_are_ignored() {
        let key = KeyDeclaration::parse("user:u64, name:text").expect("a key");
        let declared = Declared { key: Some(key.clone()), types: BTreeMap::new() };
        let parsed = |line: &str| parse(line.as_bytes(), &declared);
        let row = key.encode(&["7", r"a\x00"]).expect("a row").into_bytes();
        let cells = r#""cells":[{"column":"f:q","timestamp":1,"value":"v","typed":5}]"#;
        for key in [r#"{"user":7,"name":"a\\x00"}"#, r#"{"name":"a\\x00","user":"7"}"#] {
            let Ok(Parsed::Record(record)) = parsed(&format!(r#"{{"key":{key},{cells}}}"#)) else { panic!("{key}") };
            assert_eq!(record.row, row);
            assert_eq!(&record.cells[0].value[..], b"v");
        }
        let Ok(Parsed::Record(record)) = parsed(&format!(r#"{{"row":"r","key":{{"user":7}},{cells}}}"#)) else {
            panic!("not read")
        };
        assert_eq!(record.row, "r", "the row in bytes counts");
        for (key, named) in [
            (r#"{"user":7}"#, "name of the key is missing"),
            (r#"{"usr":7,"name":"a"}"#, "did you mean user"),
            (r#"{"user":-7,"name":"a"}"#, "part user"),
            (r#"{"user":[7],"name":"a"}"#, "neither a text"),
        ] {
            let error = parsed(&format!(r#"{{"key":{key},{cells}}}"#)).expect_err(key);
            assert!(error.to_string().contains(named), "{key}: {error}");
        }
    }
    #[test]
    fn a_typed_value_alone_is_stored_as_its_columns_type() {
        let column = (Bytes::from_static(b"f"), Bytes::from_static(b"q"));
        let declared = Declared { key: None, types: BTreeMap::from([(column, ValueType::I64)]) };
        let parsed = |cell: &str| parse(format!(r#"{{"row":"r","cells":[{cell}]}}"#).as_bytes(), &declared);
        for typed in ["5", "\"5\""] {
            let Ok(Parsed::Record(record)) = parsed(&format!(r#"{{"column":"f:q","timestamp":1,"typed":{typed}}}"#))
            else {
                panic!("{typed}")
            };
            assert_eq!((&record.cells[0].value[..], record.cells[0].timestamp), (&5_i64.to_be_bytes()[..], Some(1)));
        }
        for (cell, named) in [
            (r#"{"column":"f:q"}"#, "neither the field `value` nor `typed`"),
            (r#"{"column":"f:q","typed":"five"}"#, "column f:q: \"five\" is not an integer"),
            (r#"{"column":"f:q","typed":[5]}"#, "neither a text"),
            (r#"{"column":"f:other","typed":5}"#, "declares no type"),
        ] {
            let error = parsed(cell).expect_err(cell);
            assert!(error.to_string().contains(named), "{cell}: {error}");
        }
    }
}
