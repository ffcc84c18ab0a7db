//! Counts, rates and latencies of a benchmark.
//!
//! An operation is one call, however many rows it has, and counts only if it was acknowledged; failed calls are counted
//! separately and record no latency. Latencies are kept in histograms with three significant digits, one per shard of
//! workers, so that recording rarely waits for a lock. A reporter drains the shards every second; the totals are the
//! sum of the drained intervals.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use terrane_client::Client;

use crate::output::{grouped, rate};

/// Histograms shared by the workers; few, since each takes some hundred KiB.
const SHARDS: usize = 16;
/// Longest latency that is distinguished: an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// Significant digits of latencies.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Where workers record their calls.
pub struct Recorder {
    shards: Vec<Mutex<Interval>>,
}

/// The calls of an interval, or of the whole run.
#[derive(Clone)]
pub struct Interval {
    pub operations: u64,
    pub rows: u64,
    pub errors: u64,
    latencies_us: Histogram<u64>,
}

impl Interval {
    /// An interval without calls.
    pub fn empty() -> Interval {
        let latencies_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS)
            .expect("the bounds are constants that a histogram accepts");
        Interval { operations: 0, rows: 0, errors: 0, latencies_us }
    }

    /// Adds another interval.
    pub fn add(&mut self, other: &Interval) {
        self.operations += other.operations;
        self.rows += other.rows;
        self.errors += other.errors;
        self.latencies_us.add(&other.latencies_us).expect("both histograms have the same bounds");
    }

    /// The quantile of the latencies in microseconds; 0 without calls.
    pub fn quantile_us(&self, share: f64) -> u64 {
        if self.operations == 0 { 0 } else { self.latencies_us.value_at_quantile(share) }
    }

    /// The mean of the latencies in microseconds; 0 without calls.
    pub fn mean_us(&self) -> f64 {
        self.latencies_us.mean()
    }

    fn clear(&mut self) {
        self.operations = 0;
        self.rows = 0;
        self.errors = 0;
        self.latencies_us.reset();
    }
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder { shards: (0..SHARDS).map(|_| Mutex::new(Interval::empty())).collect() }
    }

    /// Records an acknowledged call of this worker with its number of rows.
    pub fn acknowledged(&self, worker: usize, rows: u64, latency: Duration) {
        let mut shard = self.shards[worker % SHARDS].lock();
        shard.operations += 1;
        shard.rows += rows;
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        shard.latencies_us.saturating_record(latency_us.max(1));
    }

    /// Records rows of a call that is still running.
    pub fn progressed(&self, worker: usize, rows: u64) {
        self.shards[worker % SHARDS].lock().rows += rows;
    }

    /// Records a failed call of this worker.
    pub fn failed(&self, worker: usize) {
        self.shards[worker % SHARDS].lock().errors += 1;
    }

    /// Takes what was recorded since the last call.
    pub fn drain(&self) -> Interval {
        let mut total = Interval::empty();
        for shard in &self.shards {
            let mut shard = shard.lock();
            total.add(&shard);
            shard.clear();
        }
        total
    }
}

/// The line for one second.
pub fn second_text(second: u64, interval: &Interval, elapsed: Duration) -> String {
    format!(
        "{second:>4} s  {:>10} calls/s  {:>10} rows/s  p50 {:>8} µs  p99 {:>8} µs  {} errors",
        grouped(rate(interval.operations, elapsed) as u64),
        grouped(rate(interval.rows, elapsed) as u64),
        grouped(interval.quantile_us(0.5)),
        grouped(interval.quantile_us(0.99)),
        interval.errors
    )
}

/// What the client counted, for a look at retries and redirects.
pub fn counters_text(client: &Client) -> String {
    let counters = client.counters();
    format!(
        "client: {} requests, {} retries, {} redirects, {} lookups at the master",
        grouped(counters.requests),
        grouped(counters.retries),
        grouped(counters.redirects),
        grouped(counters.master_lookups)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_acknowledged_calls_count() {
        let recorder = Recorder::new();
        for worker in 0..100 {
            recorder.acknowledged(worker, 10, Duration::from_micros(worker as u64 + 1));
        }
        recorder.failed(3);
        recorder.failed(19);
        let interval = recorder.drain();
        assert_eq!((interval.operations, interval.rows, interval.errors), (100, 1000, 2));
        assert_eq!(interval.quantile_us(0.5), 50);
        assert_eq!(interval.quantile_us(0.99), 99);
        assert_eq!(interval.quantile_us(1.0), 100);
        assert_eq!(recorder.drain().operations, 0, "what was drained is not counted twice");
    }

    #[test]
    fn totals_are_the_sum_of_the_intervals() {
        let recorder = Recorder::new();
        let mut total = Interval::empty();
        for latency_us in [100, 200, 300] {
            recorder.acknowledged(0, 1, Duration::from_micros(latency_us));
            total.add(&recorder.drain());
        }
        assert_eq!(total.operations, 3);
        assert_eq!(total.quantile_us(0.5), 200);
        assert_eq!(total.quantile_us(0.999), 300);
    }

    #[test]
    fn extreme_latencies_are_kept_in_bounds() {
        let recorder = Recorder::new();
        recorder.acknowledged(0, 1, Duration::ZERO);
        recorder.acknowledged(0, 1, Duration::from_secs(100_000));
        let interval = recorder.drain();
        assert_eq!(interval.operations, 2);
        assert_eq!(interval.quantile_us(0.1), 1);
        assert!(interval.quantile_us(1.0) >= LATENCY_US_MAX);
    }
}
