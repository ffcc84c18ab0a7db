//! The arguments of the load generator.

pub mod run;

use std::time::Duration;

use clap::{Args, Subcommand};
use terrane_types::TableName;

use super::client::Connection;
use super::values::duration;
use run::{BenchCompare, BenchRun};

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Run a workload by name: YCSB's a to f, counters, pages, latest, timeseries; at a fixed rate with --rate.
    Run(Box<BenchRun>),
    /// Compare two reports of `bench run`, and say which differences exceed the noise.
    Compare(BenchCompare),
    /// Put random rows.
    Put(BenchFlags),
    /// Get random rows.
    Get(BenchFlags),
    /// Scan --batch rows from a random start row.
    Scan(BenchScan),
    /// Read the whole table in order, one stream per worker; without --seconds, once.
    Fullscan(BenchScan),
    /// Write --rows rows in large batches.
    Load(BenchFlags),
    /// Write --rows rows as store files (a bulk load), then count them.
    Bulk(BenchFlags),
    /// Increment --rows counters at random, then check that they grew by exactly the acknowledged increments.
    Incr(BenchFlags),
    /// Compare-and-set a cell of a random row, and check that no acknowledged write was lost.
    Cas(BenchFlags),
    /// Read a page of --batch rows after skipping --offset rows.
    Page(BenchPage),
    /// Count the rows of the table.
    Count(BenchFlags),
    /// Sum a numeric column of the table, and check the sum.
    Sum(BenchFlags),
    /// Compare first, last, floor and ceiling at random keys with gets in the same run.
    Ends(BenchFlags),
    /// Compare reading the first row of every 1,000-row prefix in one call with gets of the same rows.
    Latest(BenchFlags),
}

impl Bench {
    /// The threads that the command runs with, if it says so.
    pub fn threads(&self) -> Option<usize> {
        match self {
            Bench::Run(run) => Some(run.threads()),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct BenchScan {
    /// Read from the last row to the first.
    #[arg(long)]
    pub reverse: bool,
    #[command(flatten)]
    pub flags: BenchFlags,
}

#[derive(Clone, Debug, Args)]
pub struct BenchPage {
    /// Number of rows to skip.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub offset: u64,
    #[command(flatten)]
    pub flags: BenchFlags,
}

#[derive(Clone, Debug, Args)]
pub struct BenchFlags {
    /// The table's name, or `namespace:name`; created if missing.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub table: TableName,
    /// Number of distinct rows.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Size of each value in bytes.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=10_485_760))]
    pub value_bytes: u32,
    /// Concurrent calls (default: 64; load: 8; bulk: 4 runs of a region's rows; fullscan, page, count, sum: 1).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: Option<u32>,
    /// Rows per call (default: 1; page: 10; scan: 100; load: 1000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: Option<u32>,
    /// How long to measure (default: 10s; load: until all rows are written; fullscan: until all rows are read).
    #[arg(long, value_name = "S", value_parser = duration)]
    pub seconds: Option<Duration>,
    /// Number of regions of a new table.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub regions: u32,
    #[command(flatten)]
    pub connection: Connection,
}
