//! Health issues by kind, as a metric.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::Description;
use crate::issue::IssueKind;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: &'static str,
}

/// How many issues there are of each kind.
#[derive(Debug, Default)]
pub struct IssueCounts(Family<Labels, Gauge>);

impl IssueCounts {
    /// Publishes the kinds of all present issues. Kinds without any are shown as 0, so that a rule never lacks its series.
    pub fn publish(&self, present: impl IntoIterator<Item = IssueKind>) {
        let present: Vec<IssueKind> = present.into_iter().collect();
        for kind in IssueKind::ALL {
            let count = present.iter().filter(|present| *present == kind).count();
            self.0.get_or_create(&Labels { kind: kind.name() }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Exposes them.
    pub fn register(&self, described: &'static Description, registry: &mut Registry) {
        described.register(registry, self.0.clone());
    }
}
