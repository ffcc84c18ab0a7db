//! Histograms of latencies that any thread may add to: two relaxed additions, no lock and no allocation.
//!
//! `prometheus-client` has a histogram of its own, behind a lock that every observation takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The upper bounds of the buckets, in nanoseconds. From the time of a read in memory to the patience of a client; three
/// per decade, so that a quantile read from them is off by a factor of two at most.
const BOUNDS_NS: [u64; 18] = [
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
const NS_PER_SECOND: f64 = 1e9;

/// A histogram of durations; cheap to clone, and clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// By bound; the last counts what is above all of them.
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    pub fn observe_ns(&self, ns: u64) {
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.counts.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    fn encode_counts(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        // The sum is read first: it then belongs to at most as many durations as the buckets count.
        let sum_ns = self.counts.sum_ns.load(Ordering::Relaxed);
        let mut buckets = [(f64::INFINITY, 0); BOUNDS_NS.len() + 1];
        for (shown, counted) in buckets.iter_mut().zip(&self.counts.buckets) {
            shown.1 = counted.load(Ordering::Relaxed);
        }
        for (shown, bound) in buckets.iter_mut().zip(BOUNDS_NS) {
            shown.0 = seconds(bound);
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(seconds(sum_ns), count, &buckets, None)
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.encode_counts(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// A histogram for each value of one label, all of which are known when the program is written.
#[derive(Clone, Debug)]
pub struct Histograms<const N: usize> {
    label: &'static str,
    values: [&'static str; N],
    each: [Histogram; N],
}

impl<const N: usize> Histograms<N> {
    /// One histogram for each of these values.
    #[must_use]
    pub fn new(label: &'static str, values: [&'static str; N]) -> Histograms<N> {
        Histograms { label, values, each: std::array::from_fn(|_| Histogram::default()) }
    }

    /// Counts a duration under the value at this place.
    pub fn observe_ns(&self, place: usize, ns: u64) {
        if let Some(histogram) = self.each.get(place) {
            histogram.observe_ns(ns);
        }
    }
}

impl<const N: usize> EncodeMetric for Histograms<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (value, histogram) in self.values.iter().zip(&self.each) {
            let labels = [(self.label, *value)];
            histogram.encode_counts(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Nanoseconds as seconds. Above 104 days of one sum, the last digits are rounded.
#[expect(clippy::cast_precision_loss, reason = "a sum is read by rates, to which the last digits make no difference")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn shown(metric: impl prometheus_client::registry::Metric) -> String {
        let mut registry = Registry::default();
        registry.register("wait_seconds", "Waits", metric);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn durations_count_in_the_first_bucket_that_is_not_below_them() {
        let histogram = Histogram::default();
        for ns in [0, 20_000, 20_001, 1_000_000, 60_000_000_000] {
            histogram.observe_ns(ns);
        }
        let text = shown(histogram.clone());
        for line in [
            r#"wait_seconds_bucket{le="0.00002"} 2"#,
            r#"wait_seconds_bucket{le="0.00005"} 3"#,
            r#"wait_seconds_bucket{le="0.001"} 4"#,
            r#"wait_seconds_bucket{le="10.0"} 4"#,
            r#"wait_seconds_bucket{le="+Inf"} 5"#,
            "wait_seconds_count 5",
            "wait_seconds_sum 60.001040001",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(histogram.count(), 5);
    }

    #[test]
    fn every_value_of_a_label_is_shown_from_the_start() {
        let histograms = Histograms::new("operation", ["get", "scan"]);
        histograms.observe_ns(1, 5);
        let text = shown(histograms);
        assert!(text.contains(r#"wait_seconds_count{operation="get"} 0"#), "{text}");
        assert!(text.contains(r#"wait_seconds_bucket{le="+Inf",operation="scan"} 1"#), "{text}");
    }

    #[test]
    fn no_observation_of_many_threads_is_lost() {
        let histogram = Histogram::default();
        #[expect(clippy::disallowed_methods, reason = "a test of real threads")]
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|ns| histogram.observe_ns(ns)));
            }
        });
        assert_eq!(histogram.count(), 40_000);
    }
}
