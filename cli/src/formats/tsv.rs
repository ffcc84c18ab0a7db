//! One cell per line: `row TAB column TAB timestamp TAB value`, each escaped, so that a tab in a field is `\x09`.

use bytes::Bytes;
use terrane_types::escape;

use super::{
    LineError, Parsed, Record, RecordCell, cell_from_text, column_text, row_from_text, timestamp_from_text,
    timestamp_text,
};

/// Parses one cell.
pub fn parse(line: &[u8]) -> Result<Parsed, LineError> {
    let text = std::str::from_utf8(line).map_err(|_| LineError::new("the line is not UTF-8; escape bytes as \\xHH"))?;
    let fields: Vec<&str> = text.split('\t').collect();
    let [row, column, timestamp, value] = fields[..] else {
        return Err(LineError::new(format!(
            "the line has {} fields instead of four: row, column, timestamp and value, separated by tabs",
            fields.len()
        )));
    };
    let row = row_from_text(row)?;
    let cell = cell_from_text(column, Some(timestamp_from_text(timestamp)?), value)?;
    Ok(Parsed::Record(Record { row, cells: vec![cell] }))
}

/// Writes one cell, without a line end.
pub fn write(row: &Bytes, cell: &RecordCell, dates: bool) -> String {
    let column = column_text(&cell.family, &cell.qualifier);
    format!("{}\t{column}\t{}\t{}", escape(row), timestamp_text(cell.timestamp, dates), escape(&cell.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line() {
        let line = "a\\x09b\tf:q\\x00:r\t12\t\\\\v\\xFF";
        let cell = RecordCell {
            family: "f".into(),
            qualifier: Bytes::from_static(b"q\0:r"),
            timestamp: Some(12),
            value: Bytes::from_static(b"\\v\xff"),
        };
        let row = Bytes::from_static(b"a\tb");
        assert_eq!(write(&row, &cell, false), line);
        assert_eq!(write(&row, &cell, true), line.replace("12", "1970-01-01T00:00:00.012Z"));
        assert_eq!(parse(line.as_bytes()), Ok(Parsed::Record(Record { row, cells: vec![cell] })));
    }

    #[test]
    fn malformed_lines_are_refused() {
        let cases = [
            ("r\tf:q\t1", "3 fields"),
            ("r\tf:q\t1\tv\tw", "5 fields"),
            ("\tf:q\t1\tv", "row key"),
            ("r\tfq\t1\tv", "family:qualifier"),
            ("r\tf/:q\t1\tv", "not the name of a family"),
            ("r\tf:q\tnow\tv", "the timestamp \"now\" is not a time"),
            ("r\tf:q\t2026-13-01\tv", "there is no month 13"),
            ("r\tf:q\t1969-12-31\tv", "outside 0 to"),
            ("r\tf:q\t-1\tv", "timestamp"),
            ("r\tf:q\t9223372036854775807\tv", "timestamp"),
            ("r\\x0\tf:q\t1\tv", "row key"),
            ("r\tf:\\q\t1\tv", "qualifier"),
            ("r\tf:q\t1\tv\\", "value"),
        ];
        for (line, named) in cases {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(error.to_string().contains(named), "{line:?}: {error}");
        }
        assert!(parse(b"r\xff\tf:q\t1\tv").is_err());
    }
}
