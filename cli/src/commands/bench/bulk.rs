//! `bench bulk`: the rows of `bench load`, loaded as store files.
//!
//! The whole load is one operation. Afterwards its rows are counted, outside of the measured time: all must be there.

use serde::Serialize;
use terrane_client::{BulkOptions, BulkSummary, KeyRange, Put, Table};
use tokio::time::Instant;

use super::cpu::cpu_time;
use super::keys::{Choices, FAMILY, QUALIFIER, key};
use super::measure::{Measured, progress_line};
use super::stats::Recorder;
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
}

impl Bulk {
    pub fn text(&self) -> String {
        let (runs, regions, bytes) = (grouped(self.runs), grouped(self.regions), grouped(self.bytes));
        format!("{bytes} bytes in {runs} runs into {regions} regions; {} rows counted", grouped(self.counted))
    }

    /// Every row is there, and no other.
    pub fn check(&self, flags: &BenchFlags) -> Result<(), Failure> {
        if self.counted == flags.rows {
            return Ok(());
        }
        let (loaded, counted) = (grouped(flags.rows), grouped(self.counted));
        Err(Failure::new(format!("{loaded} rows were loaded into table {}, and {counted} are there", flags.table)))
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
    let (recorder, cpu_before, began) = (Recorder::new(), cpu_time().await, Instant::now());
    let loaded = load(table, flags, options).await.during(format!("load table {}", flags.table))?;
    let elapsed = began.elapsed();
    recorder.acknowledged(0, loaded.rows, elapsed);
    let cpu = cpu_time().await.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    let range = KeyRange::new(key(0).to_vec(), key(flags.rows).to_vec())?;
    let counted = table.count(range).await.during(format!("count the rows of table {}", flags.table))?;
    let BulkSummary { runs, regions, bytes, .. } = loaded;
    let measured = Measured { total: recorder.drain(), elapsed, cpu, longest_gap: None, interrupted: false };
    Ok((measured, Bulk { runs, regions, bytes, counted }))
}

async fn load(table: &Table, flags: &BenchFlags, options: BulkOptions) -> Result<BulkSummary, terrane_client::Error> {
    let mut choices = Choices::new(0, flags.rows, flags.value_bytes as usize);
    let mut loader = table.bulk_load(options);
    for row in 0..flags.rows {
        loader.put(Put::new(key(row)).set(FAMILY, QUALIFIER, choices.value())).await?;
        if (row + 1) % ROWS_PER_LINE == 0 {
            let line = format!("{} rows read", grouped(row + 1));
            progress_line(flags.connection.json, &line).ok();
        }
    }
    loader.finish().await
}
