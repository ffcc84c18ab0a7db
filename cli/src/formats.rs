//! The four text formats that `import` reads; `export` writes two of them.
//!
//! Everything here is pure: a parser takes the bytes of a line and returns a record or an error. Files, compression,
//! line numbers and the handling of bad lines belong to the `import` command. Lines are bytes rather than text, since
//! weather files contain whatever their stations typed.
//!
//! Invariants:
//! - A parsed record is within all limits of rows, columns, timestamps and values, so a bad line is found here, where
//!   its number is known, and not by a server a thousand lines later.
//! - `tsv` and `jsonl` read back exactly the cells they wrote.

pub mod jsonl;
pub mod ncdc;
pub mod stations;
pub mod tsv;

use bytes::Bytes;
use terrane_types::limits::{QUALIFIER_BYTES_MAX, ROW_BYTES_MAX, TIMESTAMP_MAX, VALUE_BYTES_MAX};
use terrane_types::{FamilyName, escape};

/// A row to write, or a row that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The row key.
    pub row: Bytes,
    /// Its cells, at least one.
    pub cells: Vec<RecordCell>,
}

/// A cell of a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordCell {
    /// The family's name.
    pub family: Bytes,
    /// The qualifier; may be empty.
    pub qualifier: Bytes,
    /// Milliseconds; `None` lets the server assign it.
    pub timestamp: Option<i64>,
    /// The value.
    pub value: Bytes,
}

/// The content of a well-formed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A row to write.
    Record(Record),
    /// Nothing to write: a missing reading, or a station without fields.
    Skipped,
}

/// Why a line is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError(String);

impl LineError {
    fn new(what: impl Into<String>) -> LineError {
        LineError(what.into())
    }
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LineError {}

/// The formats, by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The National Climatic Data Center's fixed-width hourly records.
    Ncdc,
    /// The fixed-width list of its stations.
    Stations,
    /// One cell per line, tab-separated.
    Tsv,
    /// One row per line, as JSON.
    Jsonl,
}

impl Format {
    /// Parses one line, given without its line end.
    pub fn parse(self, line: &[u8]) -> Result<Parsed, LineError> {
        match self {
            Format::Ncdc => ncdc::parse(line),
            Format::Stations => stations::parse(line),
            Format::Tsv => tsv::parse(line),
            Format::Jsonl => jsonl::parse(line),
        }
    }

    /// The family of every record, if the format fixes it.
    pub fn fixed_family(self) -> Option<&'static str> {
        match self {
            Format::Ncdc => Some(ncdc::FAMILY),
            Format::Stations => Some(stations::FAMILY),
            Format::Tsv | Format::Jsonl => None,
        }
    }

    /// The declaration of the keys, if the format fixes them.
    pub fn key_parts(self) -> Option<&'static str> {
        match self {
            Format::Ncdc => Some(ncdc::KEY_PARTS),
            Format::Stations => Some(stations::KEY_PARTS),
            Format::Tsv | Format::Jsonl => None,
        }
    }
}

/// The 12 bytes that name a station, `USAF-WBAN`.
///
/// Both numbers are letters or digits: newer lists number stations like `A00002`.
fn station_key(usaf: &[u8], wban: &[u8]) -> Result<Vec<u8>, LineError> {
    for (name, part) in [("USAF", usaf), ("WBAN", wban)] {
        if !part.iter().all(u8::is_ascii_alphanumeric) {
            return Err(LineError::new(format!(
                "the {name} number {:?} must consist of letters and digits",
                escape(part)
            )));
        }
    }
    let mut key = Vec::with_capacity(usaf.len() + 1 + wban.len());
    key.extend_from_slice(usaf);
    key.push(b'-');
    key.extend_from_slice(wban);
    Ok(key)
}

/// Parses the fields that `tsv` and `jsonl` share and checks all limits.
fn cell_from_text(column: &str, timestamp: Option<i64>, value: &str) -> Result<RecordCell, LineError> {
    let Some((family, qualifier)) = column.split_once(':') else {
        return Err(LineError::new(format!("the column {column:?} is not `family:qualifier`")));
    };
    FamilyName::new(family).map_err(|error| LineError::new(error.to_string()))?;
    let qualifier = bytes_from_text("qualifier", qualifier, QUALIFIER_BYTES_MAX)?;
    let value = bytes_from_text("value", value, VALUE_BYTES_MAX)?;
    if let Some(timestamp) = timestamp {
        check_timestamp(timestamp)?;
    }
    Ok(RecordCell { family: Bytes::copy_from_slice(family.as_bytes()), qualifier, timestamp, value })
}

fn row_from_text(text: &str) -> Result<Bytes, LineError> {
    let row = bytes_from_text("row key", text, ROW_BYTES_MAX)?;
    if row.is_empty() {
        return Err(LineError::new(format!("the row key is empty; rows have 1 to {ROW_BYTES_MAX} bytes")));
    }
    Ok(row)
}

fn bytes_from_text(what: &str, text: &str, bytes_max: usize) -> Result<Bytes, LineError> {
    let bytes = terrane_types::unescape(text).map_err(|error| LineError::new(format!("{what}: {error}")))?;
    if bytes.len() > bytes_max {
        return Err(LineError::new(format!("the {what} has {} bytes; at most {bytes_max} are allowed", bytes.len())));
    }
    Ok(bytes.into())
}

fn check_timestamp(timestamp: i64) -> Result<(), LineError> {
    if (0..=TIMESTAMP_MAX).contains(&timestamp) {
        return Ok(());
    }
    Err(LineError::new(format!("the timestamp {timestamp} is outside 0 to {TIMESTAMP_MAX}")))
}

/// `family:qualifier` with the qualifier escaped, as all commands print a column.
pub fn column_text(family: &[u8], qualifier: &[u8]) -> String {
    let mut text = escape(family);
    text.push(':');
    text.push_str(&escape(qualifier));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awkward_record() -> Record {
        let every_byte: Vec<u8> = (0..=255).collect();
        let cell = |qualifier: &[u8], timestamp, value: &[u8]| RecordCell {
            family: Bytes::from_static(b"f"),
            qualifier: Bytes::copy_from_slice(qualifier),
            timestamp: Some(timestamp),
            value: Bytes::copy_from_slice(value),
        };
        Record {
            row: every_byte.clone().into(),
            cells: vec![
                cell(b"", 0, b""),
                cell(b"a:b\t\n\"\\x41", 1_700_000_000_000, &every_byte),
                cell("é".as_bytes(), TIMESTAMP_MAX, br"\xZZ\\"),
            ],
        }
    }

    #[test]
    fn jsonl_reads_back_what_it_wrote() {
        let record = awkward_record();
        let line = jsonl::write(&record);
        assert!(!line.contains(char::is_control), "{line}");
        assert_eq!(Format::Jsonl.parse(line.as_bytes()), Ok(Parsed::Record(record)));
    }

    #[test]
    fn tsv_reads_back_what_it_wrote() {
        let record = awkward_record();
        let mut cells = Vec::new();
        for cell in &record.cells {
            let line = tsv::write(&record.row, cell);
            assert_eq!(line.matches(char::is_control).count(), 3, "three tabs: {line}");
            let Ok(Parsed::Record(read)) = Format::Tsv.parse(line.as_bytes()) else { panic!("{line} is not read") };
            assert_eq!(read.row, record.row);
            cells.extend(read.cells);
        }
        assert_eq!(cells, record.cells);
    }

    #[test]
    fn limits_are_checked_by_the_parser() {
        let long_row = format!("{}\tf:q\t1\tv", "r".repeat(ROW_BYTES_MAX + 1));
        let longest_row = format!("{}\tf:q\t1\tv", "r".repeat(ROW_BYTES_MAX));
        assert!(Format::Tsv.parse(longest_row.as_bytes()).is_ok());
        let error = Format::Tsv.parse(long_row.as_bytes()).expect_err("too long");
        assert!(error.to_string().contains("32768") && error.to_string().contains("32767"), "{error}");
        let long_qualifier = format!("r\tf:{}\t1\tv", "q".repeat(QUALIFIER_BYTES_MAX + 1));
        assert!(Format::Tsv.parse(long_qualifier.as_bytes()).is_err());
        let long_value = format!("r\tf:q\t1\t{}", "v".repeat(VALUE_BYTES_MAX + 1));
        assert!(Format::Tsv.parse(long_value.as_bytes()).is_err());
    }
}
