//! What a run prints: a line per second, and at its end a report, as text or as one JSON object.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{Measured, State};

/// Longest latency that is distinguished: an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// The calls of an interval, or of the whole run.
pub struct Calls {
    answered: u64,
    pub errors: u64,
    latencies_us: Histogram<u64>,
}

impl Calls {
    pub fn none() -> Self {
        let latencies_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("a histogram accepts these bounds");
        Self { answered: 0, errors: 0, latencies_us }
    }

    pub fn answered(&mut self, latency: Duration) {
        self.answered += 1;
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies_us.saturating_record(latency_us.max(1));
    }

    pub fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.errors += other.errors;
        self.latencies_us.add(&other.latencies_us).expect("both histograms have the same bounds");
    }

    fn rate(&self, elapsed: Duration) -> f64 {
        self.answered as f64 / elapsed.as_secs_f64().max(f64::EPSILON)
    }

    fn quantile_us(&self, share: f64) -> u64 {
        if self.answered == 0 { 0 } else { self.latencies_us.value_at_quantile(share) }
    }
}

/// Prints the line of a second: under `--json` on standard error.
pub fn second_line(second: u64, calls: &Calls, elapsed: Duration, json: bool) {
    let line = format!(
        "{second:>4} s  {:>10.0} calls/s  p50 {:>8} µs  p99 {:>8} µs  {} errors",
        calls.rate(elapsed),
        calls.quantile_us(0.5),
        calls.quantile_us(0.99),
        calls.errors
    );
    if json { eprintln!("{line}") } else { println!("{line}") }
}

/// The figures of a run. The first fields are those of every workload of `terrane bench`.
#[derive(Debug, Serialize)]
pub struct Report {
    workload: &'static str,
    operations: u64,
    rows: u64,
    seconds: f64,
    rate: f64,
    rows_rate: f64,
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
    errors: u64,
    longest_gap_ms: f64,
    /// Whole scans during the run.
    scans: u64,
    /// Answers that contradict the calls made before.
    violations: u64,
    /// The longest time without any answer while calls waited.
    silence_ms: f64,
    /// The longest call that succeeded.
    longest_call_ms: f64,
    /// For each of the table's first regions, the longest time without an answer while calls to it waited.
    gaps_ms: Vec<f64>,
}

impl Report {
    pub fn new(state: &State, measured: &Measured) -> Self {
        let Measured { total, elapsed, .. } = measured;
        let gaps = state.waits.gaps(*elapsed);
        let rate = rounded(total.rate(*elapsed), 10.0);
        Self {
            workload: "history",
            operations: total.answered,
            rows: total.answered,
            seconds: rounded(elapsed.as_secs_f64(), 1_000.0),
            rate,
            rows_rate: rate,
            p50_us: total.quantile_us(0.5),
            p99_us: total.quantile_us(0.99),
            p999_us: total.quantile_us(0.999),
            errors: total.errors,
            longest_gap_ms: milliseconds(gaps.iter().copied().max().unwrap_or_default()),
            scans: state.scans,
            violations: state.rows.findings.violations,
            silence_ms: milliseconds(state.waits.silence(*elapsed)),
            longest_call_ms: milliseconds(state.longest_call),
            gaps_ms: gaps.into_iter().map(milliseconds).collect(),
        }
    }

    pub fn print(&self, measured: &Measured, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("a report has only numbers and text"));
            return;
        }
        if let Some(cpu) = measured.cpu.filter(|_| self.rows > 0) {
            let per_row = cpu.as_secs_f64() * 1e6 / self.rows as f64;
            let cores = cpu.as_secs_f64() / measured.elapsed.as_secs_f64().max(f64::EPSILON);
            println!("client CPU: {per_row:.2} µs per row, {cores:.2} cores");
        }
        println!("longest gap between acknowledged calls in any region: {:.1} ms", self.longest_gap_ms);
        println!(
            "history: {} violations, {} scans; longest call {:.1} ms, longest time without any answer {:.1} ms",
            self.violations, self.scans, self.longest_call_ms, self.silence_ms
        );
        println!(
            "history: {} calls in {:.2} s: {:.0} calls/s; p50 {} µs, p99 {} µs, p99.9 {} µs; {} errors",
            self.operations, self.seconds, self.rate, self.p50_us, self.p99_us, self.p999_us, self.errors
        );
    }
}

fn rounded(number: f64, steps: f64) -> f64 {
    (number * steps).round() / steps
}

fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3, 10.0)
}
