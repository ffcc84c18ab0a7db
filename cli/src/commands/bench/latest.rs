//! `bench latest`: the first row of every prefix in one call, against gets of the same rows.
//!
//! Each round reads the same rows in three ways, so that all see the same state of the machine: the latest rows, gets
//! in one call, and single gets with `--in-flight` calls in flight. All three must return the same rows.

use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use terrane_client::{Get, LatestPer, RowData, Table};
use terrane_env::task::shutdown_signal;
use terrane_env::time::process_cpu_ns;
use tokio::time::Instant;

use super::layout::PREFIX_BYTES;
use super::measure::{Measured, SECONDS_DEFAULT, progress_line};
use super::spec::Spec;
use super::stats::{Interval, Recorder};
use super::tally::Finding;
use crate::args::bench::BenchFlags;
use crate::args::bench::run::Known;
use crate::failure::{During, Failure};
use crate::output::{duration_text, grouped};

/// The results that `latest` adds to the summary. Times are medians.
#[derive(Debug, Serialize)]
pub struct Latest {
    prefixes: usize,
    /// The same rows by gets in one call.
    get_many_us: u64,
    /// The same rows by single gets.
    gets_us: u64,
    /// Time of the latest rows divided by that of the gets in one call.
    ratio: f64,
    /// Time of the latest rows divided by that of the single gets.
    ratio_gets: f64,
}

impl Finding for Latest {
    fn text(&self) -> Option<String> {
        let us = |us| duration_text(Duration::from_micros(us));
        Some(format!(
            "{} prefixes: gets of the same rows take {} in one call (ratio {:.2}), {} as single calls (ratio {:.2})",
            grouped(self.prefixes as u64),
            us(self.get_many_us),
            self.ratio,
            us(self.gets_us),
            self.ratio_gets
        ))
    }
}

/// Measures for the requested time; the measurement is that of the latest rows.
pub async fn run(table: &Table, flags: &BenchFlags) -> Result<(Measured, Latest), Failure> {
    let in_flight = Spec::of_rows(Known::Get, flags).in_flight;
    let end = Instant::now() + flags.seconds.unwrap_or(SECONDS_DEFAULT);
    let [latest, many, single] = [(); 3].map(|()| Recorder::new());
    let expected = latest_rows(table).await?;
    let gets = || expected.iter().map(|row| Get::new(row.row()));
    let (mut elapsed, mut cpu) = (Duration::ZERO, Duration::ZERO);
    let mut interrupt = pin!(shutdown_signal());
    let mut interrupted;
    loop {
        let (asked, cpu_before) = (Instant::now(), process_cpu_ns());
        let rows = latest_rows(table).await?;
        let took = asked.elapsed();
        elapsed += took;
        cpu += Duration::from_nanos(process_cpu_ns().saturating_sub(cpu_before));
        latest.acknowledged(0, rows.len() as u64, took);
        same(&rows, &expected)?;

        let asked = Instant::now();
        let found = table.get_many(gets()).await.during("get the same rows")?;
        many.acknowledged(0, found.len() as u64, asked.elapsed());
        let found: Vec<RowData> = found.into_iter().flatten().collect();
        same(&found, &expected)?;

        let asked = Instant::now();
        let calls = gets().map(|get| table.get(get).into_future());
        let found: Vec<Option<RowData>> =
            futures::stream::iter(calls).buffered(in_flight).try_collect().await.during("get the same rows")?;
        single.acknowledged(0, found.len() as u64, asked.elapsed());

        let line = format!("latest {} of {} prefixes", duration_text(took), grouped(rows.len() as u64));
        progress_line(flags.connection.json, &line)?;
        interrupted = futures::poll!(&mut interrupt).is_ready();
        if interrupted || Instant::now() >= end {
            break;
        }
    }
    let [total, many, single] = [latest.drain(), many.drain(), single.drain()];
    let (get_many_us, gets_us) = (many.quantile_us(0.5), single.quantile_us(0.5));
    let compared = Latest {
        prefixes: expected.len(),
        get_many_us,
        gets_us,
        ratio: ratio(&total, get_many_us),
        ratio_gets: ratio(&total, gets_us),
    };
    Ok((Measured::of_total(total, elapsed, cpu, interrupted), compared))
}

async fn latest_rows(table: &Table) -> Result<Vec<RowData>, Failure> {
    let bytes = u32::try_from(PREFIX_BYTES).expect("a short prefix");
    let mut stream = table.latest(LatestPer::bytes(bytes)).await.during("read the latest rows")?;
    let mut rows = Vec::new();
    while let Some(row) = stream.next().await {
        rows.push(row.during("read the latest rows")?);
    }
    Ok(rows)
}

/// The comparison is meaningless if the rows differ. Values may change meanwhile; keys must not.
fn same(rows: &[RowData], expected: &[RowData]) -> Result<(), Failure> {
    if rows.iter().map(RowData::row).eq(expected.iter().map(RowData::row)) {
        return Ok(());
    }
    Err(Failure::new(format!("{} rows were read, {} were expected", rows.len(), expected.len()))
        .advise("choose a table without concurrent writers"))
}

fn ratio(latest: &Interval, gets_us: u64) -> f64 {
    let ratio = latest.quantile_us(0.5) as f64 / gets_us.max(1) as f64;
    (ratio * 1_000.0).round() / 1_000.0
}
