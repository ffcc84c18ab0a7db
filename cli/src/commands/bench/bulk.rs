//! `bench bulk`: the rows of `bench load`, loaded as store files.
//!
//! The whole load is one operation. Afterwards its rows are counted, outside of the measured time: all must be there.

use std::time::Duration;

use serde::Serialize;
use terrane_client::{BulkOptions, BulkSummary, KeyRange, Put, Table};
use terrane_env::time::process_cpu_ns;
use tokio::time::Instant;

use super::distribution::stream;
use super::layout::{FAMILY, Key, QUALIFIER, Values};
use super::measure::{Measured, progress_line};
use super::spec::Kind;
use super::stats::Recorder;
use super::tally::Finding;
use crate::args::bench::BenchFlags;
use crate::failure::{During, Failure};
use crate::output::grouped;

/// Rows between two lines of progress.
const ROWS_PER_LINE: u64 = 1_000_000;

/// The results that `bulk` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Bulk {
    runs: u64,
    regions: u64,
    bytes: u64,
    /// The rows of the load that a count found afterwards.
    counted: u64,
    /// The rows of the load.
    #[serde(skip)]
    loaded: u64,
}

impl Finding for Bulk {
    fn text(&self) -> Option<String> {
        let (runs, regions, bytes) = (grouped(self.runs), grouped(self.regions), grouped(self.bytes));
        Some(format!("{bytes} bytes in {runs} runs into {regions} regions; {} rows counted", grouped(self.counted)))
    }

    /// Every row is there, and no other.
    fn check(&self) -> Result<(), Failure> {
        if self.counted == self.loaded {
            return Ok(());
        }
        let (loaded, counted) = (grouped(self.loaded), grouped(self.counted));
        Err(Failure::new(format!("{loaded} rows were loaded into the table, and {counted} are there")))
    }
}

pub async fn run(table: &Table, flags: &BenchFlags) -> Result<(Measured, Bulk), Failure> {
    if flags.batch.is_some() || flags.seconds.is_some() {
        return Err(Failure::usage("bulk loads all rows in runs of a region; omit --batch and --seconds"));
    }
    let mut options = BulkOptions::default().ascending(true);
    if let Some(in_flight) = flags.in_flight {
        options = options.runs_in_flight(in_flight as usize);
    }
    let (cpu_before, began) = (process_cpu_ns(), Instant::now());
    let loaded = load(table, flags, options).await.during(format!("load table {}", flags.table))?;
    let elapsed = began.elapsed();
    let cpu = Duration::from_nanos(process_cpu_ns().saturating_sub(cpu_before));
    let recorder = Recorder::new();
    recorder.acknowledged(0, loaded.rows, elapsed);
    let key = |row| Key::new(Kind::Numbered, row).as_ref().to_vec();
    let range = KeyRange::new(key(0), key(flags.rows))?;
    let counted = table.count(range).await.during(format!("count the rows of table {}", flags.table))?;
    let BulkSummary { runs, regions, bytes, .. } = loaded;
    let measured = Measured::of_total(recorder.drain(), elapsed, cpu, false);
    Ok((measured, Bulk { runs, regions, bytes, counted, loaded: flags.rows }))
}

async fn load(table: &Table, flags: &BenchFlags, options: BulkOptions) -> Result<BulkSummary, terrane_client::Error> {
    let (mut random, values) = (stream(1, 0), Values::new(1, flags.value_bytes as usize));
    let mut loader = table.bulk_load(options);
    for row in 0..flags.rows {
        let put = Put::new(Key::new(Kind::Numbered, row)).set(FAMILY, QUALIFIER, values.draw(&mut random));
        loader.put(put).await?;
        if (row + 1) % ROWS_PER_LINE == 0 {
            let line = format!("{} rows read", grouped(row + 1));
            progress_line(flags.connection.json, &line).ok();
        }
    }
    loader.finish().await
}
