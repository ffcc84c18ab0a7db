//! The health issues of a cluster, as `status` and the console show them.

use terrane_client::ClusterStatus;
use terrane_metrics::issue::paired;
use terrane_metrics::{Issue, IssueKind};

/// All health issues: what new tables and procedures wait for, then the issues of servers, groups and regions.
pub fn health_issues(status: &ClusterStatus) -> Vec<Issue> {
    let waiting = Some(&status.waiting_for).filter(|waiting| !waiting.is_empty());
    let waiting = waiting.map(|what| IssueKind::Waiting.issue(what.as_str()));
    waiting.into_iter().chain(paired(status.troubles.clone(), &status.trouble_kinds)).collect()
}
