//! One row per line: `{"row":"…","cells":[{"column":"f:q","timestamp":1234,"value":"…"}]}`.
//!
//! Strings are escaped twice: first with `\xHH`, as everywhere, which turns any bytes into ASCII text, then as JSON.
//! `get` and `scan` print rows in the same format under `--json`, so their output can be imported.

use serde::{Deserialize, Serialize};
use terrane_types::escape;

use super::{LineError, Parsed, Record, cell_from_text, column_text, row_from_text};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRow<'a> {
    #[serde(borrow)]
    row: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    cells: Vec<JsonCell<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonCell<'a> {
    #[serde(borrow)]
    column: std::borrow::Cow<'a, str>,
    /// If missing, the server assigns it; `export` always writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    #[serde(borrow)]
    value: std::borrow::Cow<'a, str>,
}

/// Parses one row.
pub fn parse(line: &[u8]) -> Result<Parsed, LineError> {
    let read: JsonRow<'_> =
        serde_json::from_slice(line).map_err(|error| LineError::new(format!("not a row as JSON: {error}")))?;
    if read.cells.is_empty() {
        return Err(LineError::new("the row has no cells"));
    }
    let row = row_from_text(&read.row)?;
    let cells: Result<Vec<_>, LineError> =
        read.cells.iter().map(|cell| cell_from_text(&cell.column, cell.timestamp, &cell.value)).collect();
    Ok(Parsed::Record(Record { row, cells: cells? }))
}

/// Writes one row, without a line end.
pub fn write(record: &Record) -> String {
    let cell = |cell: &super::RecordCell| JsonCell {
        column: column_text(&cell.family, &cell.qualifier).into(),
        timestamp: cell.timestamp,
        value: escape(&cell.value).into(),
    };
    let row = JsonRow { row: escape(&record.row).into(), cells: record.cells.iter().map(cell).collect() };
    serde_json::to_string(&row).expect("strings and numbers are always JSON")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::RecordCell;
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
        assert_eq!(write(&sample()), line);
        assert_eq!(parse(line.as_bytes()), Ok(Parsed::Record(sample())));
    }

    #[test]
    fn json_escapes_and_order_of_fields_do_not_matter() {
        let line = "{ \"cells\": [{\"value\": \"\\u0022v\\u0022\\\\x00\", \"timestamp\": 1234, \"column\": \"f:q\"}], \"row\": \"k\\\\\\\\1\" }";
        assert_eq!(parse(line.as_bytes()), Ok(Parsed::Record(sample())));
    }

    #[test]
    fn a_cell_may_leave_its_timestamp_to_the_server() {
        let Ok(Parsed::Record(record)) = parse(br#"{"row":"r","cells":[{"column":"f:","value":""}]}"#) else {
            panic!("not read")
        };
        assert_eq!(record.cells[0].timestamp, None);
        assert!(record.cells[0].qualifier.is_empty());
    }

    #[test]
    fn malformed_lines_are_refused() {
        let cases = [
            ("{", "not a row"),
            (r#"{"row":"r"}"#, "cells"),
            (r#"{"row":"r","cells":[]}"#, "no cells"),
            (r#"{"row":"","cells":[{"column":"f:q","timestamp":1,"value":"v"}]}"#, "row key"),
            (r#"{"row":"r","cells":[{"column":"q","timestamp":1,"value":"v"}]}"#, "family:qualifier"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":-5,"value":"v"}]}"#, "timestamp"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":1.5,"value":"v"}]}"#, "not a row"),
            (r#"{"row":"r","cells":[{"column":"f:q","timestamp":1,"valeu":"v"}]}"#, "valeu"),
            (r#"{"row":"r\\x","cells":[{"column":"f:q","timestamp":1,"value":"v"}]}"#, "row key"),
        ];
        for (line, named) in cases {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(error.to_string().contains(named), "{line}: {error}");
        }
    }
}
