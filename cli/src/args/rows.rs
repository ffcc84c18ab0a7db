//! The arguments of the commands that read and write rows.

use clap::{Args, ValueEnum};
use terrane_filter::FilterTemplate;
use terrane_types::TableName;

use super::client::{Connection, RangeFlags, Raw, Times};
use super::condition::{condition, filter};
use super::values::{Column, NumberColumn, TableWord, TimeRange, full_column, timestamp};

/// Which rows and cells a read returns, and how recent they must be.
#[derive(Clone, Debug, Default, Args)]
pub struct ReadFlags {
    /// Return only versions with timestamps FROM <= t < TO; either side may be left out. A time is a date (2026-01-31,
    /// 2026-01-31T12:00Z; in UTC unless it has an offset), milliseconds since 1970, or relative to now (-1h).
    #[arg(long, value_name = "FROM..TO", allow_hyphen_values = true)]
    pub time_range: Option<TimeRange>,
    /// Return only rows and cells that pass this filter, such as "i32(data:airtemp) > 100 and prefix(row, '0290')" or
    /// "key(user) = 7 and d:count > 5" for declared keys and columns; see docs/filters.md.
    #[arg(long, value_name = "EXPR", value_parser = filter)]
    pub filter: Option<FilterTemplate>,
    /// Which writes the read is guaranteed to see.
    #[arg(long, value_name = "HOW", default_value = "linearizable")]
    pub consistency: Consistency,
    #[command(flatten)]
    pub raw: Raw,
    #[command(flatten)]
    pub times: Times,
}

/// The client library's read consistency. The hidden aliases are the names of earlier versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Consistency {
    /// Every write acknowledged before the read; the leader answers under its lease.
    #[default]
    #[value(alias = "leased")]
    Linearizable,
    /// Every write acknowledged before the read; the leader runs a quorum round first.
    Strict,
    /// Any replica answers with what it has applied, and says as of when that is complete.
    #[value(alias = "follower")]
    Stale,
}

impl From<Consistency> for terrane_client::Consistency {
    fn from(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Linearizable => Self::Linearizable,
            Consistency::Strict => Self::Strict,
            Consistency::Stale => Self::Stale,
        }
    }
}

#[derive(Debug, Args)]
pub struct Put {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The row key: its parts, as in `user=7,time=1000` or `7,1000`, or bytes with `\xHH` if the table declares no key.
    #[arg(allow_hyphen_values = true)]
    pub row: TableWord,
    /// The column, `family:qualifier`.
    #[arg(value_parser = full_column)]
    pub column: Column,
    /// The value, of the column's type if the table declares one; write a byte as `\xHH`.
    #[arg(allow_hyphen_values = true)]
    pub value: TableWord,
    /// The cell's timestamp: a date (2026-01-31, 2026-01-31T12:00Z; in UTC unless it has an offset), milliseconds since 1970,
    /// or relative to now (-1h) (default: assigned by the server).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = timestamp)]
    pub timestamp: Option<i64>,
    /// Write only if this condition holds for the row, such as "not exists(f:owner) or i64(f:lease) < 5"; otherwise
    /// exit with status 4.
    #[arg(long = "if", value_name = "CONDITION", value_parser = condition)]
    pub condition: Option<FilterTemplate>,
    #[command(flatten)]
    pub raw: Raw,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Increment {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The row key: its parts, as in `user=7,time=1000` or `7,1000`, or bytes with `\xHH` if the table declares no key.
    #[arg(allow_hyphen_values = true)]
    pub row: TableWord,
    /// The counter's column, `family:qualifier`. The cell holds a 64-bit big-endian integer; a missing cell counts as
    /// 0.
    #[arg(value_parser = full_column)]
    pub column: Column,
    /// The amount to add; may be negative.
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    pub by: i64,
    #[command(flatten)]
    pub raw: Raw,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Append {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The row key: its parts, as in `user=7,time=1000` or `7,1000`, or bytes with `\xHH` if the table declares no key.
    #[arg(allow_hyphen_values = true)]
    pub row: TableWord,
    /// The column, `family:qualifier`. A missing cell counts as empty.
    #[arg(value_parser = full_column)]
    pub column: Column,
    /// What to append; write a byte as `\xHH`.
    #[arg(allow_hyphen_values = true)]
    pub value: TableWord,
    #[command(flatten)]
    pub raw: Raw,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Get {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The row key: its parts, as in `user=7,time=1000` or `7,1000`, or bytes with `\xHH` if the table declares no key.
    #[arg(allow_hyphen_values = true)]
    pub row: TableWord,
    /// Columns (`family:qualifier`) or families to read (default: all).
    #[arg(value_delimiter = ',')]
    pub columns: Vec<Column>,
    /// Maximum number of versions per column.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub versions: u32,
    #[command(flatten)]
    pub read: ReadFlags,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Delete {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The row key: its parts, as in `user=7,time=1000` or `7,1000`, or bytes with `\xHH` if the table declares no key.
    #[arg(allow_hyphen_values = true)]
    pub row: TableWord,
    /// The column or family to delete, with all versions (default: the whole row).
    pub column: Option<Column>,
    /// Delete only if this condition holds for the row, such as "f:owner = 'me'"; otherwise exit with status 4.
    #[arg(long = "if", value_name = "CONDITION", value_parser = condition)]
    pub condition: Option<FilterTemplate>,
    #[command(flatten)]
    pub raw: Raw,
    #[command(flatten)]
    pub connection: Connection,
}

/// Which cells of the rows to read.
#[derive(Debug, Args)]
pub struct CellFlags {
    /// A column (`family:qualifier`) or family to read; can be repeated, or several with commas between them; write a comma
    /// in a qualifier as `\x2C` (default: all).
    #[arg(long = "column", value_name = "COLUMN", num_args = 1.., value_delimiter = ',')]
    pub columns: Vec<Column>,
    /// Maximum number of versions per column.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub versions: u32,
}

#[derive(Debug, Args)]
pub struct Scan {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    #[command(flatten)]
    pub range: RangeFlags,
    /// Read from the last row of the range to the first.
    #[arg(long)]
    pub reverse: bool,
    /// Skip this many rows.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub offset: u64,
    /// Return at most this many rows.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub cells: CellFlags,
    #[command(flatten)]
    pub read: ReadFlags,
    /// Read each region at one point in time.
    #[arg(long)]
    pub snapshot: bool,
    /// Print a last line {"after":"…"} with the token for --after of the next page, or null at the end of the range.
    #[arg(long)]
    pub token: bool,
    /// Continue after the page that printed this token; range, direction and filter must be the same.
    #[arg(long, value_name = "TOKEN")]
    pub after: Option<String>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Count {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    #[command(flatten)]
    pub range: RangeFlags,
    #[command(flatten)]
    pub read: ReadFlags,
    #[command(flatten)]
    pub connection: Connection,
}

/// What to compute from a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Calculation {
    /// The sum of the values; 0 if there are none.
    Sum,
    /// The minimum; exit with status 3 if there are no values.
    Min,
    /// The maximum; exit with status 3 if there are no values.
    Max,
    /// The average; exit with status 3 if there are no values.
    Avg,
    /// The number of values.
    Count,
}

#[derive(Debug, Args)]
pub struct Aggregate {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// What to compute.
    pub what: Calculation,
    /// The column and the big-endian type of its values: i32, i64, u32, u64, f64 or time. A column whose type the table declares
    /// needs none.
    #[arg(value_name = "TYPE(COLUMN)")]
    pub column: NumberColumn,
    #[command(flatten)]
    pub range: RangeFlags,
    #[command(flatten)]
    pub read: ReadFlags,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Latest {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// Group rows by this many leading parts of the table's declared key.
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "prefix_bytes",
        conflicts_with = "prefix_bytes",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub parts: Option<u32>,
    /// Group rows by this many leading bytes of the key.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefix_bytes: Option<u32>,
    /// Number of rows per prefix.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: u32,
    /// Read the last rows of each prefix, from the last prefix to the first.
    #[arg(long)]
    pub reverse: bool,
    #[command(flatten)]
    pub range: RangeFlags,
    /// Return at most this many rows in total.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub cells: CellFlags,
    #[command(flatten)]
    pub read: ReadFlags,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct FirstOrLast {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    #[command(flatten)]
    pub range: RangeFlags,
    #[command(flatten)]
    pub read: ReadFlags,
    #[command(flatten)]
    pub connection: Connection,
}
