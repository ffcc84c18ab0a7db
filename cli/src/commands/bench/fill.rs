//! Fills a table for workloads that read, with progress.

use std::time::Duration;

use terrane_client::Table;
use terrane_types::KeyRange;
use tokio::time::{Instant, interval_at};

use super::measure::{check_joined, start};
use super::run::Run;
use super::stats::Interval;
use super::tally::numbers;
use super::workload::{FILL_BATCH, FILL_IN_FLIGHT, Workload};
use crate::args::bench::BenchFlags;
use crate::failure::{During, Failure};
use crate::output::grouped;
use crate::progress::Progress;

/// Interval of progress updates.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// Fills a table if it is empty.
pub async fn fill_if_empty(table: &Table, flags: &BenchFlags, rows: u64) -> Result<(), Failure> {
    let first = table.first(KeyRange::all()).await.during(format!("read table {}", flags.table))?;
    if first.is_some() { Ok(()) } else { fill(Workload::Load, table, flags, rows).await }
}

/// Fills a table if no row has its number in the column for it.
pub async fn fill_with_numbers(table: &Table, flags: &BenchFlags) -> Result<(), Failure> {
    if numbers(table).await? > 0 { Ok(()) } else { fill(Workload::LoadNumbers, table, flags, flags.rows).await }
}

async fn fill(workload: Workload, table: &Table, flags: &BenchFlags, rows: u64) -> Result<(), Failure> {
    eprintln!("filling table {} with {} rows", flags.table, grouped(rows));
    let fill =
        BenchFlags { rows, batch: Some(FILL_BATCH), in_flight: Some(FILL_IN_FLIGHT), seconds: None, ..flags.clone() };
    let run = Run::new(workload, table, &fill);
    let mut workers = start(&run);
    let mut progress = Progress::over_rows("fill", rows);
    let mut looks = interval_at(Instant::now(), SHOWN_EVERY);
    let mut total = Interval::empty();
    while !workers.is_empty() {
        tokio::select! {
            biased;
            joined = workers.join_next() => check_joined(joined)?,
            _ = looks.tick() => {
                total.add(&run.recorder.drain());
                progress.update(total.rows, total.rows);
            }
        }
    }
    total.add(&run.recorder.drain());
    if total.errors > 0 {
        let failed = Failure::new(format!("{} calls failed", total.errors));
        return Err(failed.during(format!("fill table {}", flags.table)));
    }
    Ok(())
}
