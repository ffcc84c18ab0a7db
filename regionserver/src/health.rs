//! The problems this server has right now. They are reported to the master and shown by `status` until they are resolved.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_metrics::{Issue, IssueKind};
use terrane_types::RegionId;

/// Open issues by topic, one sentence each.
#[derive(Default)]
pub struct HealthIssues {
    open: Mutex<BTreeMap<String, Issue>>,
    /// Why the leading master cannot call this server. The master says so itself, so that it is no issue of the list.
    unreachable: Mutex<Option<String>>,
}

impl HealthIssues {
    /// Opens or updates an issue. Returns true if it is new, so that the caller logs it once.
    pub fn set(&self, kind: IssueKind, topic: &str, sentence: String) -> bool {
        self.open.lock().insert(topic.to_owned(), kind.issue(sentence)).is_none()
    }

    /// Closes an issue. Returns true if it was open.
    pub fn clear(&self, topic: &str) -> bool {
        self.open.lock().remove(topic).is_some()
    }

    /// The leading master cannot call this server. Returns true if that is new.
    pub fn set_unreachable(&self, why: String) -> bool {
        self.unreachable.lock().replace(why).is_none()
    }

    /// The leading master can call this server. Returns true if it could not before.
    pub fn clear_unreachable(&self) -> bool {
        self.unreachable.lock().take().is_some()
    }

    /// Why the leading master cannot call this server.
    pub fn unreachable(&self) -> Option<String> {
        self.unreachable.lock().clone()
    }

    /// Closes the issues of regions that are no longer here: nothing would resolve them.
    pub fn retain_regions(&self, is_here: impl Fn(RegionId) -> bool) {
        let concerns_gone = |topic: &str| {
            let region = topic.rsplit_once(REGION_OF_TOPIC).and_then(|(_, id)| id.parse().ok());
            region.is_some_and(|id| !is_here(RegionId(id)))
        };
        self.open.lock().retain(|topic, _| !concerns_gone(topic));
    }

    /// Closes the issues of comparisons of regions that another server leads.
    pub fn retain_comparisons(&self, is_led: impl Fn(RegionId) -> bool) {
        let region_of = |topic: &str| topic.strip_prefix(COMPARISON)?.strip_prefix(REGION_OF_TOPIC)?.parse().ok();
        self.open.lock().retain(|topic, _| region_of(topic).is_none_or(|id| is_led(RegionId(id))));
    }

    /// The sentence of an open issue.
    pub fn get(&self, topic: &str) -> Option<String> {
        self.open.lock().get(topic).map(|issue| issue.what.clone())
    }

    /// All open issues.
    pub fn all(&self) -> Vec<Issue> {
        self.open.lock().values().cloned().collect()
    }
}

/// Ends the topic of every issue of a region, before its id.
const REGION_OF_TOPIC: &str = " of region ";

/// Begins the topic of a comparison.
const COMPARISON: &str = "comparison";

/// The topic of replicas of a region that differ.
pub fn comparison_topic(region: RegionId) -> String {
    format!("{COMPARISON}{REGION_OF_TOPIC}{region}")
}

/// The topic of failed flushes of a region.
pub fn flush_topic(region: RegionId) -> String {
    format!("flush{REGION_OF_TOPIC}{region}")
}

/// The topic of failed compactions of a region.
pub fn compaction_topic(region: RegionId) -> String {
    format!("compaction{REGION_OF_TOPIC}{region}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issues_of_regions_that_are_gone_are_closed() {
        let issues = HealthIssues::default();
        for topic in [flush_topic(RegionId(1)), flush_topic(RegionId(2)), compaction_topic(RegionId(1))] {
            issues.set(IssueKind::Flush, &topic, topic.clone());
        }
        issues.set(IssueKind::DiskFull, "disk", "the disk is full".to_owned());
        issues.retain_regions(|region| region == RegionId(2));
        let left = [IssueKind::DiskFull.issue("the disk is full"), IssueKind::Flush.issue("flush of region 2")];
        assert_eq!(issues.all(), left);
    }

    #[test]
    fn issues_of_comparisons_are_closed_where_another_server_leads() {
        let issues = HealthIssues::default();
        for topic in [comparison_topic(RegionId(1)), comparison_topic(RegionId(2)), flush_topic(RegionId(1))] {
            issues.set(IssueKind::Other, &topic, topic.clone());
        }
        issues.retain_comparisons(|region| region == RegionId(2));
        let left = ["comparison of region 2", "flush of region 1"].map(|what| IssueKind::Other.issue(what));
        assert_eq!(issues.all(), left);
    }
}
