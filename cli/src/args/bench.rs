//! The arguments of the load generator.

use std::time::Duration;

use clap::{Args, Subcommand};
use terrane_types::TableName;

use super::client::Connection;
use super::values::duration;

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Put random rows.
    Put(BenchFlags),
    /// Get random rows.
    Get(BenchFlags),
    /// Scan --batch rows from a random start.
    Scan(BenchScan),
    /// Read the whole table in order, each worker with one stream; ends with the table unless --seconds is given.
    Fullscan(BenchScan),
    /// Write --rows rows in big batches.
    Load(BenchFlags),
    /// Add 1 to random counters, of which there are --rows; ends with a check that they grew by what was acknowledged.
    Incr(BenchFlags),
    /// Compare a cell of a random row with what it should hold and set the next value.
    Cas(BenchFlags),
    /// Read --batch rows behind the first --offset rows of the table.
    Page(BenchPage),
    /// Count the rows of the table.
    Count(BenchFlags),
    /// Add up a column of the table, which holds the numbers of the rows; the sum is checked.
    Sum(BenchFlags),
    /// Read first, last, floor and ceiling of random places, and single rows in the same run to compare with.
    Ends(BenchFlags),
    /// Read the first row of every prefix that 1,000 rows share in one call, and the same rows by gets to compare with.
    Latest(BenchFlags),
}

#[derive(Clone, Debug, Args)]
pub struct BenchScan {
    /// From the last row to the first.
    #[arg(long)]
    pub reverse: bool,
    #[command(flatten)]
    pub flags: BenchFlags,
}

#[derive(Clone, Debug, Args)]
pub struct BenchPage {
    /// How many rows to pass over.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub offset: u64,
    #[command(flatten)]
    pub flags: BenchFlags,
}

#[derive(Clone, Debug, Args)]
pub struct BenchFlags {
    /// The table's name, or `namespace:name`; made when it is absent.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub table: TableName,
    /// How many different rows there are.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Bytes of each value.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=10_485_760))]
    pub value_bytes: u32,
    /// Calls in flight at once (default: 64; load: 8; fullscan, page, count, sum: 1).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: Option<u32>,
    /// Rows in one call (default: 1; page: 10; scan: 100; load: 1000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: Option<u32>,
    /// How long to measure (default: 10; load: until all rows are written; fullscan: until all rows are read).
    #[arg(long, value_name = "S", value_parser = duration)]
    pub seconds: Option<Duration>,
    /// Regions that a new table begins with.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub regions: u32,
    #[command(flatten)]
    pub connection: Connection,
}
