//! The layout `rows` as CSV: the key, then the newest version of each column, typed as the table declares.

use bytes::Bytes;
use terrane_types::{KeyDeclaration, ValueType, escape};

use crate::formats::csv::quoted;
use crate::formats::{Record, column_text};

/// A column of the export.
pub type ExportColumn = (Bytes, Bytes, Option<ValueType>);

/// Makes lines of rows.
pub struct CsvRows {
    key: Option<KeyDeclaration>,
    columns: Vec<ExportColumn>,
}

impl CsvRows {
    /// Lines with the parts of this key, or the row, and these columns; times as dates or as numbers.
    pub fn new(key: Option<KeyDeclaration>, columns: Vec<ExportColumn>, dates: bool) -> CsvRows {
        if dates {
            return CsvRows { key, columns };
        }
        let stored = |(family, qualifier, kind): ExportColumn| (family, qualifier, kind.map(ValueType::as_stored));
        CsvRows { key: key.map(|key| key.as_stored()), columns: columns.into_iter().map(stored).collect() }
    }

    /// The header line.
    pub fn header(&self) -> String {
        let mut names: Vec<String> = match &self.key {
            Some(key) => key.text_parts().iter().map(|part| part.name.clone()).collect(),
            None => vec!["row".to_owned()],
        };
        names.extend(self.columns.iter().map(|(family, qualifier, _)| column_text(family, qualifier)));
        names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(",")
    }

    /// The line of a row; a row that is no key of the table, or a value of another type, is an error.
    pub fn line(&self, record: &Record) -> Result<String, String> {
        let row = || escape(&record.row);
        let mut fields: Vec<String> = match &self.key {
            Some(key) => {
                let parts = key.decode(&record.row);
                let parts = parts.map_err(|error| format!("row {} is not a key of the table: {error}", row()))?;
                parts.iter().map(|part| quoted(part)).collect()
            }
            None => vec![quoted(&row())],
        };
        for (family, qualifier, kind) in &self.columns {
            let cell = record.cells.iter().find(|cell| cell.family == *family && cell.qualifier == *qualifier);
            fields.push(match cell {
                // An empty value is quoted; no value is not.
                Some(cell) => {
                    let text = kind.unwrap_or_default().text(&cell.value);
                    quoted(&text.map_err(|error| {
                        // Without a declaration, or of a row that is no key, the bytes.
                        let row = self.key.as_ref().map_or_else(row, |key| key.shown(&record.row));
                        format!("row {row}, column {}: {error}", column_text(family, qualifier))
                    })?)
                }
                None => String::new(),
            });
        }
        Ok(fields.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::RecordCell;

    fn record(row: Bytes, cells: &[(&'static str, &[u8])]) -> Record {
        let cell = |(qualifier, value): &(&'static str, &[u8])| RecordCell {
            family: "d".into(),
            qualifier: (*qualifier).into(),
            timestamp: Some(1),
            value: Bytes::copy_from_slice(value),
        };
        Record { row, cells: cells.iter().map(cell).collect() }
    }

    #[test]
    fn times_are_written_as_asked() {
        let key = KeyDeclaration::parse("user:u64, time:desc time").expect("a key");
        let columns = vec![(Bytes::from("d"), Bytes::from("seen"), Some(ValueType::Time))];
        let row = key.encode(&["7", "2026-01-31"]).expect("a row").into_bytes();
        let record = record(row, &[("seen", &86_400_250i64.to_be_bytes())]);
        let line = |dates| CsvRows::new(Some(key.clone()), columns.clone(), dates).line(&record);
        assert_eq!(line(true).as_deref(), Ok("7,2026-01-31T00:00:00Z,1970-01-02T00:00:00.250Z"));
        assert_eq!(line(false).as_deref(), Ok("7,1769817600000,86400250"));
    }

    #[test]
    fn a_line_has_the_parts_of_the_key_and_the_newest_values() {
        let key = KeyDeclaration::parse("name:text, time:desc i64").expect("a key");
        let column = |qualifier: &'static str, kind| (Bytes::from("d"), Bytes::from(qualifier), kind);
        let columns = vec![column("count", Some(ValueType::I64)), column("a,b", None)];
        let rows = CsvRows::new(Some(key.clone()), columns.clone(), false);
        assert_eq!(rows.header(), r#"name,time,d:count,"d:a,b""#);
        let row = key.encode(&["Li, Wei", "-5"]).expect("a row").into_bytes();
        let cells = [("a,b", &b""[..]), ("count", &7i64.to_be_bytes()), ("count", &6i64.to_be_bytes())];
        assert_eq!(rows.line(&record(row.clone(), &cells)).as_deref(), Ok(r#""Li, Wei",-5,7,"""#));
        assert_eq!(rows.line(&record(row.clone(), &[])).as_deref(), Ok(r#""Li, Wei",-5,,"#));
        let error = rows.line(&record(row, &[("count", b"abc")])).expect_err("three bytes");
        assert!(error.contains("row name='Li, Wei',time=-5, column d:count") && error.contains("8 bytes"), "{error}");
        assert!(rows.line(&record("r".into(), &[])).expect_err("no key").contains("row r is not a key"));
        let bytes = CsvRows::new(None, columns, true);
        assert_eq!(bytes.line(&record("r\"\n".into(), &[("a,b", b" ")])).as_deref(), Ok(r#""r""\x0A",," ""#));
    }
}
