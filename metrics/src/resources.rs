//! How much of each limited resource a process uses, as metrics.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::Description;

/// The limited resource a metric is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    /// Its name, as in `docs/design/bounds.md`.
    resource: &'static str,
}

/// How full a resource is.
#[derive(Clone, Copy, Debug)]
pub struct ResourceUse {
    /// Its name.
    pub name: &'static str,
    /// The amount taken now.
    pub used: u64,
    /// The largest amount taken at a time.
    pub peak: u64,
    /// The amount that may be taken.
    pub limit: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// How much of each limited resource is in use.
#[derive(Debug, Default)]
pub struct Resources {
    used: Family<Labels, Gauge>,
    peak: Family<Labels, Gauge>,
    limit: Family<Labels, Gauge>,
    rejections: Family<Labels, Counter>,
}

impl Resources {
    /// Publishes the present usage.
    pub fn publish(&self, usages: impl IntoIterator<Item = ResourceUse>) {
        for usage in usages {
            let labels = Labels { resource: usage.name };
            let set = |family: &Family<Labels, Gauge>, number| {
                family.get_or_create(&labels).set(i64::try_from(number).unwrap_or(i64::MAX));
            };
            set(&self.used, usage.used);
            set(&self.peak, usage.peak);
            set(&self.limit, usage.limit);
            self.rejections.get_or_create(&labels).inner().store(usage.refused, Ordering::Relaxed);
        }
    }

    /// Registers them as used, peak, limit and rejections.
    pub fn register(&self, described: [&'static Description; 4], registry: &mut Registry) {
        let [used, peak, limit, rejections] = described;
        for (described, family) in [(used, &self.used), (peak, &self.peak), (limit, &self.limit)] {
            described.register(registry, family.clone());
        }
        rejections.register(registry, self.rejections.clone());
    }
}
