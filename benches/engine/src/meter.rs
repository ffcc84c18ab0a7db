//! Clocks and histograms: wall time, processor time and latency.

use hdrhistogram::Histogram;
use serde::Serialize;
use terrane_env::time;

/// Longer latencies are recorded as this: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Wall time and processor time, of all threads and of this one. Can be stopped and restarted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch {
    since: Reading,
    total: Reading,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    wall_ns: u64,
    process_ns: u64,
    thread_ns: u64,
}

impl Reading {
    fn now() -> Self {
        Self { wall_ns: time::now_ns(), process_ns: time::process_cpu_ns(), thread_ns: time::thread_cpu_ns() }
    }
}

/// Time spent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) seconds: f64,
    /// Processor time of the whole process.
    pub(crate) process_seconds: f64,
    /// Processor time of the calling thread.
    pub(crate) thread_seconds: f64,
}

impl Stopwatch {
    pub(crate) fn started() -> Self {
        let mut watch = Self::default();
        watch.start();
        watch
    }

    pub(crate) fn start(&mut self) {
        self.since = Reading::now();
    }

    pub(crate) fn stop(&mut self) {
        let now = Reading::now();
        self.total.wall_ns += now.wall_ns - self.since.wall_ns;
        self.total.process_ns += now.process_ns - self.since.process_ns;
        self.total.thread_ns += now.thread_ns - self.since.thread_ns;
    }

    /// Time spent between starts and stops.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            seconds: seconds(self.total.wall_ns),
            process_seconds: seconds(self.total.process_ns),
            thread_seconds: seconds(self.total.thread_ns),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The distribution of latencies.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// Maximum, in microseconds.
    pub max_us: f64,
}

/// Collects latencies.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_max(LATENCY_NS_MAX, 3);
        Self(histogram.expect("three digits up to ten minutes are within what a histogram can hold"))
    }

    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// The distribution; `None` without samples.
    pub(crate) fn spread(&self) -> Option<Latency> {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Latency {
            count: self.0.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(self.0.max()),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_what_was_recorded() {
        let mut latencies = Latencies::new();
        assert!(latencies.spread().is_none());
        (1..=1_000).for_each(|n| latencies.record(n * 1_000));
        let spread = latencies.spread().unwrap();
        assert_eq!(spread.count, 1_000);
        assert!((spread.p50_us - 500.0).abs() < 1.0 && (spread.p999_us - 999.0).abs() < 1.0, "{spread:?}");
        assert!((spread.max_us - 1_000.0).abs() < 1.0, "{spread:?}");
    }

    #[test]
    fn what_was_spent_adds_up_over_starts() {
        let mut watch = Stopwatch::started();
        watch.stop();
        let first = watch.spent();
        watch.start();
        assert!((0..1_000_000u64).fold(0u64, |sum, n| std::hint::black_box(sum ^ n)) < u64::MAX);
        watch.stop();
        let both = watch.spent();
        assert!(both.seconds > first.seconds && both.thread_seconds > first.thread_seconds);
    }
}
