//! `bench ends`: first, last, floor and ceiling against gets.
//!
//! Each kind of call runs alone for a slice of the time, gets first, in several rounds. Mixed calls would wait in one
//! queue and look alike; slices far apart would compare different states of the machine.

use std::time::Duration;

use serde::Serialize;
use terrane_client::Table;

use super::calls::Shared;
use super::measure::{Measured, Plan, SECONDS_DEFAULT, measure, progress_line};
use super::spec::Spec;
use super::stats::Interval;
use super::tally::Finding;
use crate::args::bench::BenchFlags;
use crate::args::bench::run::Known;
use crate::failure::Failure;
use crate::output::{grouped, rate};

const KINDS: [Known; 5] = [Known::Get, Known::First, Known::Last, Known::Floor, Known::Ceiling];
const ROUNDS: u32 = 3;
/// The start of each slice, which does not count: locations are looked up and blocks are cached.
const WARM_UP: Duration = Duration::from_millis(100);

/// One kind of call.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    operations: u64,
    rate: f64,
    p50_us: u64,
    p99_us: u64,
    /// Gets in the time of one call of this kind.
    ratio: f64,
}

/// The results that `ends` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Ends {
    get: Kind,
    first: Kind,
    last: Kind,
    floor: Kind,
    ceiling: Kind,
    /// The largest of the four ratios.
    ratio: f64,
}

impl Finding for Ends {
    fn text(&self) -> Option<String> {
        let kinds = [("first", &self.first), ("last", &self.last), ("floor", &self.floor), ("ceiling", &self.ceiling)];
        let ratios = kinds.map(|(name, kind)| format!("{name} {:.2}", kind.ratio)).join(", ");
        Some(format!("gets in the time of one call: {ratios} (get: {} calls/s)", grouped(self.get.rate as u64)))
    }
}

/// Calls of one kind in all rounds.
struct Slices {
    total: Interval,
    elapsed: Duration,
}

/// Measures all kinds; returns the measurement of all but the gets, and the comparison.
pub async fn run(table: &Table, flags: &BenchFlags) -> Result<(Measured, Ends), Failure> {
    let slices = ROUNDS * u32::try_from(KINDS.len()).expect("five");
    let slice = flags.seconds.unwrap_or(SECONDS_DEFAULT) / slices;
    let plan = Plan { rate: None, warm_up: WARM_UP.min(slice), seconds: Some(slice) };
    let mut all = KINDS.map(|_| Slices { total: Interval::empty(), elapsed: Duration::ZERO });
    let (mut cpu, mut interrupted) = (Duration::ZERO, false);
    'rounds: for round in 1..=ROUNDS {
        for (kind, sum) in KINDS.into_iter().zip(&mut all) {
            let shared = Shared::new(table.clone(), Spec::of_rows(kind, flags));
            let measured = measure(&shared, plan, |_, _, _| Ok(())).await?;
            let calls = grouped(rate(measured.calls.total.operations, measured.elapsed) as u64);
            let p50 = grouped(measured.calls.total.quantile_us(0.5));
            let line = format!("round {round}  {:<8} {calls:>10} calls/s  p50 {p50:>8} µs", kind.name());
            progress_line(flags.connection.json, &line)?;
            sum.total.add(&measured.calls.total);
            sum.elapsed += measured.elapsed;
            interrupted = measured.interrupted;
            if interrupted {
                break 'rounds;
            }
            if kind != Known::Get {
                cpu += measured.client_cpu;
            }
        }
    }
    let (mut total, mut elapsed) = (Interval::empty(), Duration::ZERO);
    for kind in &all[1..] {
        total.add(&kind.total);
        elapsed += kind.elapsed;
    }
    let measured = Measured::of_total(total, elapsed, cpu, interrupted);
    let gets = rate(all[0].total.operations, all[0].elapsed);
    let [get, first, last, floor, ceiling] = [0, 1, 2, 3, 4].map(|kind| compared(&all[kind], gets));
    let ratio = [&first, &last, &floor, &ceiling].map(|kind| kind.ratio).into_iter().fold(0.0, f64::max);
    Ok((measured, Ends { get, first, last, floor, ceiling, ratio }))
}

fn compared(slices: &Slices, gets: f64) -> Kind {
    let of_kind = rate(slices.total.operations, slices.elapsed);
    let ratio = if of_kind > 0.0 { gets / of_kind } else { 0.0 };
    Kind {
        operations: slices.total.operations,
        rate: (of_kind * 10.0).round() / 10.0,
        p50_us: slices.total.quantile_us(0.5),
        p99_us: slices.total.quantile_us(0.99),
        ratio: (ratio * 1_000.0).round() / 1_000.0,
    }
}
