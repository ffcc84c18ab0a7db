//! The formats that `import` reads, of which `export` writes some.
//!
//! Everything here is pure: a parser takes the bytes of some lines, or a batch of Parquet records, and returns a record
//! or an error for each. Files, compression and the handling of bad lines belong to the `import` command. Lines are bytes
//! rather than text, since weather files contain whatever their stations typed.
//!
//! Two kinds of formats meet here. In some every record says which cells it has (`jsonl`, `tsv`, and the layout `cells`
//! of `csv` and `parquet`): they are exact. In the others a record is a row of fields, and a [`mapping::Mapping`] says
//! what each field is: `tsv` and `jsonl` with `--columns`, `csv` and `parquet`.
//!
//! Invariants:
//! - A parsed record is within all limits of rows, columns, timestamps and values, so a bad line is found here, where
//!   its number is known, and not by a server a thousand lines later.
//! - `tsv`, `jsonl` and the layout `cells` of `csv` and `parquet` read back exactly the cells they wrote.

pub mod csv;
mod delimited;
mod field;
pub mod jsonl;
pub mod mapping;
pub mod ncdc;
mod objects;
pub mod parquet;
pub mod stations;
pub mod tsv;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use terrane_types::limits::{QUALIFIER_BYTES_MAX, ROW_BYTES_MAX, TIMESTAMP_MAX, VALUE_BYTES_MAX};
use terrane_types::{FamilyName, Invalid, Time, escape, escape_family};

pub use csv::Csv;
pub use delimited::Delimited;
pub use objects::Objects;

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

/// One record of an input: a line, a record of a CSV file, or a record of a Parquet file.
#[derive(Debug, PartialEq, Eq)]
pub struct Item {
    /// The line where it begins, or the record's number; counted from 1.
    pub line: u64,
    /// Where it is in the parsed bytes, with its line end; empty if the format has no lines.
    pub raw: Range<usize>,
    /// What it says.
    pub parsed: Result<Parsed, LineError>,
}

impl Item {
    /// A line that is longer than any record, whose bytes are gone.
    pub fn too_long(line: u64) -> Item {
        Item { line, raw: 0..0, parsed: Err(LineError::new("the line is longer than any valid record")) }
    }
}

/// The formats, by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The National Climatic Data Center's fixed-width hourly records.
    Ncdc,
    /// The fixed-width list of its stations.
    Stations,
    /// One cell per line, tab-separated; with --columns one row per line, as HBase's ImportTsv reads it.
    Tsv,
    /// One row per line, as JSON; with --columns a plain object per line.
    Jsonl,
    /// Comma-separated with a header line that names columns.
    Csv,
    /// An Apache Parquet file of flat columns.
    Parquet,
}

impl Format {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Ncdc => "ncdc",
            Format::Stations => "stations",
            Format::Tsv => "tsv",
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
        }
    }

    /// The family of every record, if the format fixes it.
    pub fn fixed_family(self) -> Option<&'static str> {
        match self {
            Format::Ncdc => Some(ncdc::FAMILY),
            Format::Stations => Some(stations::FAMILY),
            _ => None,
        }
    }

    /// A column of numbers, with its type as `--column` takes it, so that values are shown as numbers.
    pub fn typed_column(self) -> Option<&'static str> {
        (self == Format::Ncdc).then_some(ncdc::TYPED_COLUMN)
    }

    /// The declaration of the keys, if the format fixes them.
    pub fn key_parts(self) -> Option<&'static str> {
        match self {
            Format::Ncdc => Some(ncdc::KEY_PARTS),
            Format::Stations => Some(stations::KEY_PARTS),
            _ => None,
        }
    }
}

/// What the text of an input consists of.
#[derive(Clone, Debug)]
pub enum TextFormat {
    /// NCDC records.
    Ncdc,
    /// Stations.
    Stations,
    /// A cell a line.
    Tsv,
    /// A row a line, in JSON. What the table declares replaces bytes that are left out.
    Jsonl(jsonl::Declared),
    /// A row a line, as a plain JSON object whose fields a mapping names.
    Objects(Objects),
    /// A row a line, in fields that a mapping names.
    Delimited(Delimited),
    /// CSV.
    Csv(Csv),
}

impl TextFormat {
    /// What the user may want to know before rows are written.
    pub fn notes(&self) -> &[String] {
        match self {
            TextFormat::Delimited(delimited) => delimited.notes(),
            TextFormat::Csv(csv) => csv.notes(),
            TextFormat::Objects(objects) => objects.notes(),
            TextFormat::Ncdc | TextFormat::Stations | TextFormat::Tsv | TextFormat::Jsonl(_) => &[],
        }
    }

    /// Parses one line, given without its line end. A record of a CSV file may be several lines.
    pub fn parse(&self, line: &[u8]) -> Result<Parsed, LineError> {
        match self {
            TextFormat::Ncdc => ncdc::parse(line),
            TextFormat::Stations => stations::parse(line),
            TextFormat::Tsv => tsv::parse(line),
            TextFormat::Jsonl(declared) => jsonl::parse(line, declared),
            TextFormat::Objects(objects) => objects.parse(line),
            TextFormat::Delimited(delimited) => delimited.parse(line),
            TextFormat::Csv(csv) => {
                let item = csv.parse_block(line, 1).into_iter().next();
                item.map_or(Ok(Parsed::Skipped), |item| item.parsed)
            }
        }
    }

    /// Parses complete lines, of which the first has this number. Empty lines are left out.
    pub fn parse_block(&self, bytes: &[u8], first_line: u64) -> Vec<Item> {
        if let TextFormat::Csv(csv) = self {
            return csv.parse_block(bytes, first_line);
        }
        let mut items = Vec::new();
        let mut start = 0;
        for line in first_line.. {
            if start == bytes.len() {
                break;
            }
            let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at + 1);
            let text = without_line_end(&bytes[start..end]);
            if !text.is_empty() {
                items.push(Item { line, raw: start..end, parsed: self.parse(text) });
            }
            start = end;
        }
        items
    }
}

/// A line without `\n` or `\r\n`.
fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// How the text of a field is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backslashes {
    /// They begin escapes: `\xHH` and `\\`.
    Escape,
    /// They are characters like others, as most programs write them.
    Literal,
}

impl Backslashes {
    /// The text with escapes that means this field.
    pub fn escaped(self, field: &str) -> Cow<'_, str> {
        match self {
            Backslashes::Literal if field.contains('\\') => Cow::Owned(field.replace('\\', r"\\")),
            Backslashes::Literal | Backslashes::Escape => Cow::Borrowed(field),
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
    let family: FamilyName = family.parse().map_err(|error: Invalid| LineError::new(error.to_string()))?;
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
    check_length(what, bytes.len(), bytes_max)?;
    Ok(bytes.into())
}

fn check_length(what: &str, length: usize, bytes_max: usize) -> Result<(), LineError> {
    if length > bytes_max {
        return Err(LineError::new(format!("the {what} has {length} bytes; at most {bytes_max} are allowed")));
    }
    Ok(())
}

/// A timestamp as a text has it: milliseconds since 1970, or a date.
fn timestamp_from_text(text: &str) -> Result<i64, LineError> {
    let time = Time::parse(text).map_err(|refused| LineError::new(format!("the timestamp {refused}")))?;
    check_timestamp(time.millis())?;
    Ok(time.millis())
}

/// A timestamp as it is written, as a date or a number. One that is missing, which no export has, is 0.
fn timestamp_text(timestamp: Option<i64>, as_date: bool) -> String {
    let timestamp = timestamp.unwrap_or(0);
    if as_date { Time::from_millis(timestamp).to_string() } else { timestamp.to_string() }
}

fn check_timestamp(timestamp: i64) -> Result<(), LineError> {
    if (0..=TIMESTAMP_MAX).contains(&timestamp) {
        return Ok(());
    }
    Err(LineError::new(format!("the timestamp {timestamp} is outside 0 to {TIMESTAMP_MAX}")))
}

/// `family:qualifier` with both escaped, as all commands print a column.
pub fn column_text(family: &[u8], qualifier: &[u8]) -> String {
    let mut text = escape_family(family);
    text.push(':');
    text.push_str(&escape(qualifier));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn awkward_record() -> Record {
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
                RecordCell { family: "é, \"=".into(), ..cell(b"q", 5, b"v") },
            ],
        }
    }

    #[test]
    fn jsonl_reads_back_what_it_wrote() {
        let record = awkward_record();
        let line = jsonl::write_plain(&record);
        assert!(!line.contains(char::is_control), "{line}");
        assert_eq!(TextFormat::Jsonl(jsonl::Declared::default()).parse(line.as_bytes()), Ok(Parsed::Record(record)));
    }

    #[test]
    fn tsv_reads_back_what_it_wrote() {
        let record = awkward_record();
        let mut cells = Vec::new();
        for cell in &record.cells {
            let line = tsv::write(&record.row, cell, false);
            assert_eq!(line.matches(char::is_control).count(), 3, "three tabs: {line}");
            let Ok(Parsed::Record(read)) = TextFormat::Tsv.parse(line.as_bytes()) else { panic!("{line} is not read") };
            assert_eq!(read.row, record.row);
            assert_eq!(
                TextFormat::Tsv.parse(tsv::write(&record.row, cell, true).as_bytes()),
                Ok(Parsed::Record(read.clone()))
            );
            cells.extend(read.cells);
        }
        assert_eq!(cells, record.cells);
    }

    #[test]
    fn lines_keep_their_numbers_and_places() {
        let bytes = b"a\tf:q\t1\tv\r\n\r\nbad\n\nb\tf:q\t1\tv";
        let items = TextFormat::Tsv.parse_block(bytes, 7);
        let lines: Vec<(u64, bool)> = items.iter().map(|item| (item.line, item.parsed.is_ok())).collect();
        assert_eq!(lines, [(7, true), (9, false), (11, true)]);
        assert_eq!(&bytes[items[1].raw.clone()], b"bad\n");
        assert_eq!(&bytes[items[2].raw.clone()], b"b\tf:q\t1\tv");
    }

    #[test]
    fn limits_are_checked_by_the_parser() {
        let long_row = format!("{}\tf:q\t1\tv", "r".repeat(ROW_BYTES_MAX + 1));
        let longest_row = format!("{}\tf:q\t1\tv", "r".repeat(ROW_BYTES_MAX));
        assert!(TextFormat::Tsv.parse(longest_row.as_bytes()).is_ok());
        let error = TextFormat::Tsv.parse(long_row.as_bytes()).expect_err("too long");
        assert!(error.to_string().contains("32768") && error.to_string().contains("32767"), "{error}");
        let long_qualifier = format!("r\tf:{}\t1\tv", "q".repeat(QUALIFIER_BYTES_MAX + 1));
        assert!(TextFormat::Tsv.parse(long_qualifier.as_bytes()).is_err());
        let long_value = format!("r\tf:q\t1\t{}", "v".repeat(VALUE_BYTES_MAX + 1));
        assert!(TextFormat::Tsv.parse(long_value.as_bytes()).is_err());
    }
}
