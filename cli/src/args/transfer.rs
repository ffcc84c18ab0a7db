//! The arguments of import and export.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use terrane_types::{Invalid, TableName};

use super::client::{Connection, RangeFlags, Raw, TimeForm};
use super::values::{Column, full_column};
use crate::formats::Format;

#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub struct Import {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The format of the files.
    #[arg(long, value_name = "FORMAT", help_heading = "Format")]
    pub format: Format,
    /// What the fields are, for tsv, csv, jsonl and parquet: in order (`ROW,d:a,TIMESTAMP,d:b`), or by the file's own names
    /// (`id=ROW,clicks=d:count`), as always in jsonl. ROW is the key, a part's name or KEY.PART a part of it, `-` skips a field.
    #[arg(long, value_name = "MAPPING", allow_hyphen_values = true, help_heading = "Format")]
    pub columns: Option<String>,
    /// What separates fields, one ASCII character or \t (default: a tab in tsv, a comma in csv).
    #[arg(long, value_name = "CHARACTER", value_parser = separator, allow_hyphen_values = true, help_heading = "Format")]
    pub separator: Option<u8>,
    /// The first line of a CSV file is a record; --columns says what its fields are.
    #[arg(long, requires = "columns", help_heading = "Format")]
    pub no_header: bool,
    /// Take backslashes as they are, in csv and in tsv with --columns. Without it \xHH is a byte and \\ a backslash.
    #[arg(long, help_heading = "Format")]
    pub no_escapes: bool,
    /// Take keys and values as bytes with escapes, whatever the table declares.
    #[arg(long, help_heading = "Format")]
    pub raw: bool,
    /// Load rows as store files that the servers build: several times as fast for many rows. The rows of a region appear all
    /// at once. Needs the engine lsm.
    #[arg(long)]
    pub bulk: bool,
    /// Stop at the first malformed line with exit status 1 instead of skipping and counting it.
    #[arg(long, help_heading = "Malformed lines")]
    pub strict: bool,
    /// Exit with status 1 if more lines than this are malformed. The others are imported all the same.
    #[arg(long, value_name = "N", help_heading = "Malformed lines")]
    pub max_malformed: Option<u64>,
    /// Write malformed lines to this file, unchanged; it is replaced.
    #[arg(long, value_name = "FILE", help_heading = "Malformed lines")]
    pub rejects: Option<PathBuf>,
    /// Keep in this file how far the import is. Started again with the same flags, it continues there, and nothing is
    /// written twice.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// How many files are read at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub parallel: u16,
    /// The files, plain or gzipped; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub connection: Connection,
}

const IMPORT_EXAMPLES: &str = "Examples:
  terrane import clicks --format csv clicks.csv
  terrane import clicks --format tsv --columns HBASE_ROW_KEY,d:page,HBASE_TS_KEY part-*.gz
  terrane import clicks --format jsonl --columns id=ROW,clicks=d:count clicks.jsonl
  terrane import clicks --format parquet --columns id=ROW,clicks=d:count clicks.parquet
  terrane import clicks --format csv --bulk clicks-*.csv.gz
  terrane import clicks --format csv --state import.state --rejects bad.csv clicks.csv";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One row per line, as JSON.
    Jsonl,
    /// One cell per line, tab-separated.
    Tsv,
    /// Comma-separated with a header line.
    Csv,
    /// An Apache Parquet file; needs --out.
    Parquet,
}

/// What one record of an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// A cell, with its timestamp: import reads back exactly the same cells.
    Cells,
    /// A row with the newest version of chosen columns, typed as the table declares.
    Rows,
}

#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub struct Export {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The output format.
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub format: ExportFormat,
    /// One record per cell or per row, for csv (default: rows) and parquet (default: cells).
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<Layout>,
    /// A column of the layout rows; can be repeated (default: all columns whose type the table declares).
    #[arg(long = "column", value_name = "COLUMN", value_parser = full_column, value_delimiter = ',')]
    pub columns: Vec<Column>,
    /// Write to this file, which appears when it is complete (default: standard output).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub range: RangeFlags,
    #[command(flatten)]
    pub raw: Raw,
    /// Write times in tsv and csv as dates, which are in UTC, or raw, as milliseconds since 1970 (default). Import reads both;
    /// jsonl has milliseconds, and parquet a TIMESTAMP where the table declares a time.
    #[arg(long, value_name = "FORM", default_value = "raw", hide_default_value = true)]
    pub time: TimeForm,
    /// Maximum number of versions per column (default: all that the table keeps).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub versions: Option<u32>,
    #[command(flatten)]
    pub connection: Connection,
}

const EXPORT_EXAMPLES: &str = "Examples:
  terrane export clicks > clicks.jsonl
  terrane export clicks --format csv --column d:page --column d:count > clicks.csv
  terrane export clicks --format parquet --out clicks.parquet
  terrane export clicks --format parquet --layout rows --out counts.parquet";

/// One ASCII character that cannot be part of an escape, a quote or a line end.
fn separator(text: &str) -> Result<u8, Invalid> {
    match text {
        r"\t" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'\\' | b'"' | b'\n' | b'\r') => Ok(*byte),
            _ => Err(Invalid::new(format!(
                "{text:?} is not one ASCII character; a quote, a backslash and a line end cannot separate fields"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_one_character() {
        assert_eq!(
            ["\t", r"\t", ";", "|", ","].map(|text| separator(text).ok()),
            [Some(b'\t'), Some(b'\t'), Some(b';'), Some(b'|'), Some(b',')]
        );
        for bad in ["", ",,", "\"", "\\", "\n", "é"] {
            assert!(separator(bad).is_err(), "{bad:?}");
        }
    }
}
