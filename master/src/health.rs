//! What is wrong with this master and, while it leads, with the cluster, as last seen (`crate::monitor`).
//!
//! A disk is read and findings of the check stand for a while, so `status` and the metrics show what was seen within the last
//! seconds instead of looking themselves.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_metrics::{ResourceUse, ResourceWatch};
use terrane_proto::v1;
use terrane_types::{Issue, IssueKind};

use crate::servers::liveness::Moment;

/// Below this share of the disk, and this many bytes, a master's disk is nearly full...
const LOW_PERCENT: u64 = 10;
const LOW_BYTES: u64 = 1 << 30;
/// ...and below these it is full: a few segments of the log and a checkpoint.
const FULL_PERCENT: u64 = 2;
const FULL_BYTES: u64 = 64 << 20;
/// A finding of the check that stands for so long is a health issue: reports are late, and members change.
const STANDS_AFTER: Duration = Duration::from_secs(120);
/// Findings that are listed; the check itself shows all of them.
const FINDINGS_LISTED_MAX: usize = 4;

/// Free bytes and size of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSize {
    /// The bytes that are free.
    pub free: u64,
    /// All bytes.
    pub size: u64,
}

/// What was last seen.
#[derive(Debug, Default)]
pub struct Health {
    own: Mutex<Vec<Issue>>,
    standing: Mutex<Vec<Issue>>,
    seen: Mutex<Seen>,
    resources: Mutex<ResourceWatch>,
}

/// What the metrics show.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The kinds of all issues of this master, and of the cluster if it leads; those that servers report themselves are not
    /// among them.
    pub kinds: Vec<IssueKind>,
    /// Standing findings of the check, by kind.
    pub findings: BTreeMap<String, usize>,
    /// Groups by the copies that they have, if those are too few.
    pub short: BTreeMap<usize, usize>,
    /// The disk of the data directory.
    pub disk: Option<DiskSize>,
}

impl Health {
    /// The issues of this master itself.
    pub fn own(&self) -> Vec<Issue> {
        self.own.lock().clone()
    }

    /// The issues of the cluster that have to stand for a while, as the leader sees them.
    pub fn standing(&self) -> Vec<Issue> {
        self.standing.lock().clone()
    }

    /// What the metrics show.
    pub fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// Records what is wrong with this master itself.
    pub fn set_own(&self, issues: Vec<Issue>) {
        let mut own = self.own.lock();
        for issue in issues.iter().filter(|issue| own.iter().all(|known| known.kind != issue.kind)) {
            tracing::warn!("{}", issue.what);
        }
        *own = issues;
    }

    /// Records what stands of the cluster.
    pub fn set_standing(&self, issues: Vec<Issue>) {
        *self.standing.lock() = issues;
    }

    /// Records what the metrics show.
    pub fn set_seen(&self, seen: Seen) {
        *self.seen.lock() = seen;
    }

    /// The issues of limited resources at this time.
    pub fn resources(&self, now: Moment, usages: &[ResourceUse]) -> Vec<Issue> {
        self.resources.lock().look(now.0, usages)
    }
}

/// What the sizes of a master's disk mean.
pub fn disk_issue(directory: &Path, DiskSize { free, size }: DiskSize) -> Option<Issue> {
    let below = |percent: u64, bytes: u64| free < (size / 100).saturating_mul(percent).min(bytes);
    let (kind, word) = if below(FULL_PERCENT, FULL_BYTES) {
        (IssueKind::DiskFull, "full")
    } else if below(LOW_PERCENT, LOW_BYTES) {
        (IssueKind::DiskLow, "nearly full")
    } else {
        return None;
    };
    let what = format!("the disk of {} is {word}: {} MiB are free", directory.display(), free >> 20);
    Some(kind.issue(what).then("free some space, or this master ends when it cannot write"))
}

/// The findings of the check, and since when they stand.
#[derive(Debug, Default)]
pub struct StandingFindings(BTreeMap<(String, String), Moment>);

impl StandingFindings {
    /// The findings that have stood for a while, of those of this time.
    pub fn look(&mut self, found: Vec<v1::CheckFinding>, now: Moment) -> Vec<v1::CheckFinding> {
        let before = std::mem::take(&mut self.0);
        let mut standing = Vec::new();
        for finding in found {
            let key = (finding.kind.clone(), finding.what.clone());
            let since = before.get(&key).copied().unwrap_or(now);
            self.0.insert(key, since);
            if now.since(since) >= STANDS_AFTER {
                standing.push(finding);
            }
        }
        standing
    }
}

/// The health issues of standing findings, without those that are issues of other kinds, with more about them.
pub fn finding_issues(standing: &[v1::CheckFinding]) -> Vec<Issue> {
    let is_known = |finding: &&v1::CheckFinding| IssueKind::ALL.iter().any(|kind| kind.about().finding == finding.kind);
    let others = || standing.iter().filter(|finding| !is_known(finding));
    let stands = format!("for over {} s `terrane admin check` has found", STANDS_AFTER.as_secs());
    let issue = |what: String| IssueKind::Check.issue(format!("{stands} {what}"));
    let listed = others().take(FINDINGS_LISTED_MAX).map(|finding| issue(format!("that {}", finding.what)));
    let more = others().count().saturating_sub(FINDINGS_LISTED_MAX);
    listed.chain((more > 0).then(|| issue(format!("{more} more")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: &str, what: &str) -> v1::CheckFinding {
        v1::CheckFinding { kind: kind.to_owned(), what: what.to_owned() }
    }

    #[test]
    fn a_disk_is_nearly_full_before_it_is_full() {
        let issue = |free, size| disk_issue(Path::new("/m"), DiskSize { free, size }).map(|issue| issue.kind);
        assert_eq!(issue(2 << 30, 1000 << 30), None);
        assert_eq!(issue((1 << 30) - 1, 1000 << 30), Some(IssueKind::DiskLow));
        assert_eq!(issue((64 << 20) - 1, 1000 << 30), Some(IssueKind::DiskFull));
        assert_eq!(issue(100 << 20, 500 << 20), None, "a small disk");
        assert_eq!(issue(40 << 20, 500 << 20), Some(IssueKind::DiskLow));
        assert_eq!(issue(0, 500 << 20), Some(IssueKind::DiskFull));
    }

    #[test]
    fn a_finding_is_an_issue_once_it_stands() {
        let mut findings = StandingFindings::default();
        let found = || vec![finding("map", "one"), finding("leader", "two")];
        assert!(findings.look(found(), Moment(0)).is_empty());
        assert!(findings.look(found(), Moment(119_999)).is_empty());
        let standing = findings.look(found(), Moment(120_000));
        assert_eq!(standing.len(), 2);
        let issues = finding_issues(&standing);
        assert_eq!(issues.len(), 1, "the lack of a leader is one anyway: {issues:?}");
        assert!(issues[0].what.ends_with("has found that one"), "{issues:?}");
        assert!(findings.look(Vec::new(), Moment(121_000)).is_empty());
        assert!(findings.look(found(), Moment(130_000)).is_empty(), "it was gone in between");
        let many: Vec<_> = (0..6).map(|number| finding("map", &number.to_string())).collect();
        assert!(finding_issues(&many)[4].what.ends_with("2 more"));
    }
}
