//! Health issues by kind, as a metric.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use terrane_types::IssueKind;

use crate::Description;

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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use terrane_types::IssueKind;

    use crate::Description;
    use crate::list::{self, master};

    const RULES: &str = include_str!("../../deploy/prometheus/alerts.yml");

    /// The alert rules by name: expression and severity.
    fn rules() -> BTreeMap<&'static str, (&'static str, &'static str)> {
        let after = |rule: &'static str, key: &str| {
            let line = rule.lines().find_map(|line| line.trim().strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key} in {rule}")).trim()
        };
        let rules = RULES.split("- alert: ").skip(1);
        let known = rules.map(|rule| {
            for part in ["summary: ", "description: "] {
                assert!(!after(rule, part).is_empty(), "{rule}");
            }
            (rule.lines().next().unwrap_or_default().trim(), (after(rule, "expr: "), after(rule, "severity: ")))
        });
        known.collect()
    }

    #[test]
    fn every_kind_of_issue_has_a_metric_and_an_alert() {
        let rules = rules();
        for kind in IssueKind::ALL {
            let about = kind.about();
            let (expr, severity) = rules.get(about.alert).unwrap_or_else(|| panic!("{kind:?} has no {}", about.alert));
            assert_eq!(*severity, about.severity.label(), "{kind:?} and its alert {}", about.alert);
            assert!(!about.metrics.is_empty(), "{kind:?} has no metric");
            for name in about.metrics {
                let metric = list::named(name).unwrap_or_else(|| panic!("{kind:?}: {name} is not listed"));
                let by_kind = format!("{}{{kind=\"{}\"}}", metric.name, about.name);
                let named = metric.samples().iter().any(|sample| expr.contains(sample.as_str()));
                let is_generic = metric.labels.contains(&"kind") && metric.name != master::CHECK_FINDINGS.name;
                assert!(
                    if is_generic { expr.contains(&by_kind) } else { named },
                    "{kind:?}: {} in {expr}",
                    metric.name
                );
            }
        }
    }

    #[test]
    fn alerts_read_metrics_that_exist_and_kinds_that_exist() {
        let listed: BTreeSet<String> = list::all().flat_map(Description::samples).collect();
        for (alert, (expr, _)) in rules() {
            let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for metric in words.filter(|word| word.starts_with("terrane_")) {
                assert!(listed.contains(metric), "{alert}: {metric} is not listed");
            }
            for kind in expr.split("kind=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(IssueKind::ALL.iter().any(|known| known.name() == kind), "{alert}: no issue is a {kind}");
            }
        }
    }
}
