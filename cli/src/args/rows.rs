//! The arguments of what reads and writes rows.

use clap::{Args, ValueEnum};
use terrane_filter::Filter;
use terrane_types::{Condition, TableName};

use super::client::{Connection, RangeFlags};
use super::condition::condition;
use super::values::{Column, Escaped, TypedColumn, full_column};

/// Which rows and cells a read returns, and how recent they must be.
#[derive(Clone, Debug, Default, Args)]
pub struct ReadFlags {
    /// Return only what passes this filter: "i32(data:airtemp) > 100 and prefix(row, '0290')". See docs/filters.md.
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<Filter>,
    /// Which writes the read is guaranteed to see.
    #[arg(long, value_name = "HOW", default_value = "linearizable")]
    pub consistency: Consistency,
}

/// The read consistency of the client library, as words of the command line. The aliases are the words of earlier versions.
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
    /// The row key; `\xHH` stands for a byte.
    #[arg(allow_hyphen_values = true)]
    pub row: Escaped,
    /// The column, `family:qualifier`.
    #[arg(value_parser = full_column)]
    pub column: Column,
    /// The value; `\xHH` stands for a byte.
    #[arg(allow_hyphen_values = true)]
    pub value: Escaped,
    /// The cell's timestamp in milliseconds (default: the server's).
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub timestamp: Option<i64>,
    /// Only if this holds of the row: "not exists(f:owner) or i64(f:lease) < 5"; exit status 3 when it does not.
    #[arg(long = "if", value_name = "CONDITION", value_parser = condition)]
    pub condition: Option<Condition>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Increment {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The row key; `\xHH` stands for a byte.
    #[arg(allow_hyphen_values = true)]
    pub row: Escaped,
    /// The counter's column, `family:qualifier`; its cell is a 64-bit big-endian integer, and counts as 0 when absent.
    #[arg(value_parser = full_column)]
    pub column: Column,
    /// How much to add; a negative number subtracts.
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    pub by: i64,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Get {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The row key; `\xHH` stands for a byte.
    #[arg(allow_hyphen_values = true)]
    pub row: Escaped,
    /// Columns (`family:qualifier`) or whole families to read (default: all).
    pub columns: Vec<Column>,
    /// How many versions of each column to read.
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
    /// The row key; `\xHH` stands for a byte.
    #[arg(allow_hyphen_values = true)]
    pub row: Escaped,
    /// The column to delete with all its versions, or a whole family (default: the whole row).
    pub column: Option<Column>,
    /// Only if this holds of the row: "f:owner = 'me'"; exit status 3 when it does not.
    #[arg(long = "if", value_name = "CONDITION", value_parser = condition)]
    pub condition: Option<Condition>,
    #[command(flatten)]
    pub connection: Connection,
}

/// Which cells of the rows are read.
#[derive(Debug, Args)]
pub struct CellFlags {
    /// A column (`family:qualifier`) or whole family to read; may be given several times (default: all).
    #[arg(long = "column", value_name = "COLUMN", num_args = 1..)]
    pub columns: Vec<Column>,
    /// How many versions of each column to read.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub versions: u32,
}

#[derive(Debug, Args)]
pub struct Scan {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    #[command(flatten)]
    pub range: RangeFlags,
    /// From the last row of the range to the first.
    #[arg(long)]
    pub reverse: bool,
    /// Skip so many rows first.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub offset: u64,
    /// End after so many rows.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub cells: CellFlags,
    #[command(flatten)]
    pub read: ReadFlags,
    /// Show each region as it was at one moment.
    #[arg(long)]
    pub snapshot: bool,
    /// End with a line {"after":"…"}: what to give to --after for the next page, null when nothing follows.
    #[arg(long)]
    pub token: bool,
    /// Go on where the page that printed this token ended; range, direction and filter must be the same.
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

/// What is calculated from a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Calculation {
    /// The sum of the values; 0 of none.
    Sum,
    /// The least value; exit status 3 when there is none.
    Min,
    /// The greatest value; exit status 3 when there is none.
    Max,
    /// The mean of the values; exit status 3 when there is none.
    Avg,
    /// How many values there are.
    Count,
}

#[derive(Debug, Args)]
pub struct Aggregate {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// What to calculate.
    pub what: Calculation,
    /// The column and the type its values are read as, big-endian: i32, i64, u32, u64 or f64.
    #[arg(value_name = "TYPE(COLUMN)")]
    pub column: TypedColumn,
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
    /// Rows belong together that share so many leading parts of the table's declared key.
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "prefix_bytes",
        conflicts_with = "prefix_bytes",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub parts: Option<u32>,
    /// Rows belong together that share so many leading bytes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefix_bytes: Option<u32>,
    /// How many rows of each prefix.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: u32,
    /// The last rows of each prefix, from the last prefix to the first.
    #[arg(long)]
    pub reverse: bool,
    #[command(flatten)]
    pub range: RangeFlags,
    /// End after so many rows, all prefixes together.
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
