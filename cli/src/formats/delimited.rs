//! One row per line, in fields between separators, as HBase's ImportTsv reads it.
//!
//! There are no quotes: a separator or a line end in a value is written as an escape, unless backslashes are literal. An
//! empty field writes no cell.

use super::field::Field;
use super::mapping::Mapping;
use super::{Backslashes, LineError, Parsed};

/// Lines of fields.
#[derive(Clone, Debug)]
pub struct Delimited {
    mapping: Mapping,
    separator: char,
    backslashes: Backslashes,
}

impl Delimited {
    /// Fields in this order, between ASCII separators.
    pub fn new(mapping: Mapping, separator: u8, backslashes: Backslashes) -> Delimited {
        Delimited { mapping, separator: char::from(separator), backslashes }
    }

    /// The notes of the mapping.
    pub fn notes(&self) -> &[String] {
        self.mapping.notes()
    }

    /// Parses one line, given without its line end.
    pub fn parse(&self, line: &[u8]) -> Result<Parsed, LineError> {
        let text =
            std::str::from_utf8(line).map_err(|_| LineError::new("the line is not UTF-8; escape bytes as \\xHH"))?;
        let fields = text.split(self.separator);
        let count = fields.clone().count();
        if count != self.mapping.len() {
            let expected = self.mapping.len();
            return Err(LineError::new(format!("the line has {count} fields instead of {expected}")));
        }
        match self.backslashes {
            Backslashes::Escape => self.mapping.record(fields.map(field_of)),
            Backslashes::Literal => {
                let escaped: Vec<_> = fields.map(|field| Backslashes::Literal.escaped(field)).collect();
                self.mapping.record(escaped.iter().map(|text| field_of(text)))
            }
        }
    }
}

fn field_of(text: &str) -> Field<'_> {
    if text.is_empty() { Field::Blank } else { Field::Text(text) }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{Columns, Names, tests::schema};
    use super::*;

    fn delimited(columns: &str, separator: u8) -> Delimited {
        let schema = schema(None);
        let Ok(Columns::Ordered(words)) = Columns::parse(columns) else { panic!("named") };
        Delimited::new(
            Mapping::ordered(&words, &Names::new(&schema, false)).expect("a mapping"),
            separator,
            Backslashes::Escape,
        )
    }

    #[test]
    fn backslashes_can_be_taken_as_they_are() {
        let tabs = Delimited { backslashes: Backslashes::Literal, ..delimited("ROW,d:a", b'\t') };
        let Ok(Parsed::Record(record)) = tabs.parse(br"\x41	C:\new") else { panic!("not read") };
        assert_eq!((&record.row[..], &record.cells[0].value[..]), (&br"\x41"[..], &br"C:\new"[..]));
    }

    #[test]
    fn a_line_is_a_row_and_empty_fields_write_nothing() {
        let tabs = delimited("HBASE_ROW_KEY,d:a,HBASE_TS_KEY,d:count", b'\t');
        let Ok(Parsed::Record(record)) = tabs.parse(b"k\\x09\t\t7\t5") else { panic!("not read") };
        assert_eq!((&record.row[..], record.cells.len(), record.cells[0].timestamp), (&b"k\t"[..], 1, Some(7)));
        assert_eq!(tabs.parse(b"k\t\t7\t"), Ok(Parsed::Skipped));
        let Ok(Parsed::Record(record)) = delimited("d:a,ROW", b'|').parse(b"a\tb|k") else { panic!("not read") };
        assert_eq!((&record.row[..], &record.cells[0].value[..]), (&b"k"[..], &b"a\tb"[..]));
    }

    #[test]
    fn malformed_lines_are_refused() {
        let tabs = delimited("ROW,d:count,TIMESTAMP", b'\t');
        for (line, named) in [
            (&b"k\t1"[..], "2 fields instead of 3"),
            (b"k\t1\t2\t3", "4 fields instead of 3"),
            (b"\t1\t2", "row key"),
            (b"k\tx\t2", "column d:count: \"x\" is not an integer"),
            (b"k\t1\tnow", "timestamp \"now\""),
            (b"k\t1\t-1", "timestamp"),
            (b"k\xff\t1\t2", "UTF-8"),
            (b"k\\q\t1\t2", "row key"),
        ] {
            let error = tabs.parse(line).expect_err("malformed").to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
