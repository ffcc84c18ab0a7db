//! What is said about a metric, and how it is registered.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{self, Metric, Registry};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bound, with a sum and a total count.
    Histogram,
}

/// What a metric counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things; the name says which.
    None,
    /// Seconds, also fractions.
    Seconds,
    /// Bytes.
    Bytes,
    /// A part of one.
    Ratio,
}

/// A metric as people read about it.
#[derive(Debug)]
pub struct Description {
    /// Its name, with the unit and without the suffix that its type adds to samples.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it is, in a sentence without a full stop.
    pub help: &'static str,
    /// What to do when it moves, in sentences.
    pub action: &'static str,
}

impl Description {
    pub(crate) const fn new(
        kind: Kind,
        name: &'static str,
        unit: Unit,
        help: &'static str,
        action: &'static str,
    ) -> Description {
        Description { name, kind, unit, labels: &[], help, action }
    }

    pub(crate) const fn labels(self, labels: &'static [&'static str]) -> Description {
        Description { labels, ..self }
    }

    /// The names that queries may use: `_total` for a counter; `_bucket`, `_sum` and `_count` for a histogram.
    #[must_use]
    pub fn samples(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_sum", "_count"],
        };
        suffixes.iter().map(|suffix| format!("{}{suffix}", self.name)).collect()
    }

    /// Exposes a metric under this description. The registry must have no prefix.
    pub fn register(&self, registry: &mut Registry, metric: impl Metric) {
        debug_assert!(
            matches!(
                (self.kind, metric.metric_type()),
                (Kind::Counter, MetricType::Counter)
                    | (Kind::Gauge, MetricType::Gauge)
                    | (Kind::Histogram, MetricType::Histogram)
            ),
            "{} is described as a {:?}",
            self.name,
            self.kind
        );
        match self.unit.suffix().and_then(|(suffix, unit)| Some((self.name.strip_suffix(suffix)?, unit))) {
            Some((stem, unit)) => registry.register_with_unit(stem, self.help, unit, metric),
            None => registry.register(self.name, self.help, metric),
        }
    }
}

impl Kind {
    /// Its name in the exposition formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

impl Unit {
    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::Ratio => "ratio",
        }
    }

    /// What a name with this unit ends with, and the exposition's word for it.
    fn suffix(self) -> Option<(&'static str, registry::Unit)> {
        match self {
            // The library's word for a ratio is not the suffix that Prometheus recommends.
            Unit::None | Unit::Ratio => None,
            Unit::Seconds => Some(("_seconds", registry::Unit::Seconds)),
            Unit::Bytes => Some(("_bytes", registry::Unit::Bytes)),
        }
    }
}
