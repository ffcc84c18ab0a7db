//! When the use of a limited resource is a health issue: a pure decision over what was used, without a clock of its own.
//!
//! A moment at the limit is what a limit is for. It is an issue when requests are rejected at more than one a second, or when the
//! resource has been nearly used up for half a minute.

use std::collections::BTreeMap;

use terrane_types::{Issue, IssueKind};

use crate::ResourceUse;

/// Rejections are counted over this time.
const WINDOW_MS: u64 = 10_000;
/// As many rejections in that time are an issue.
const REJECTIONS_MIN: u64 = 10;
/// A resource that is used to this share, in percent...
const NEAR_PERCENT: u64 = 90;
/// ...for so long is an issue.
const NEAR_FOR_MS: u64 = 30_000;
/// Resources about which other issues say more: writes that are held back, and what holds the log back.
const SAID_OTHERWISE: [&str; 2] = ["memtables", "log"];

#[derive(Debug, Default)]
struct Seen {
    /// When the window began, and the rejections until then.
    window: Option<(u64, u64)>,
    /// The rejections in the last complete window.
    rejections: u64,
    /// Since when it is nearly used up.
    near_since: Option<u64>,
}

/// What was used before.
#[derive(Debug, Default)]
pub struct ResourceWatch {
    seen: BTreeMap<&'static str, Seen>,
}

impl ResourceWatch {
    /// The issues at this time, which does not go back.
    pub fn look(&mut self, now_ms: u64, usages: &[ResourceUse]) -> Vec<Issue> {
        usages.iter().flat_map(|usage| self.look_at(now_ms, usage)).collect()
    }

    fn look_at(&mut self, now_ms: u64, usage: &ResourceUse) -> Vec<Issue> {
        let ResourceUse { name, used, limit, refused, .. } = *usage;
        let seen = self.seen.entry(name).or_default();
        let (began, before) = *seen.window.get_or_insert((now_ms, refused));
        let current = refused.saturating_sub(before);
        if now_ms.saturating_sub(began) >= WINDOW_MS {
            (seen.window, seen.rejections) = (Some((now_ms, refused)), current);
        }
        let mut issues = Vec::new();
        let rejections = seen.rejections.max(current);
        if rejections >= REJECTIONS_MIN {
            issues.push(IssueKind::Rejections.issue(format!(
                "rejects requests: {rejections} in {} s because `{name}` was at its limit of {limit}",
                WINDOW_MS / 1000
            )));
        }
        let is_near = limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(NEAR_PERCENT);
        if !is_near || SAID_OTHERWISE.contains(&name) {
            seen.near_since = None;
            return issues;
        }
        if now_ms.saturating_sub(*seen.near_since.get_or_insert(now_ms)) >= NEAR_FOR_MS {
            issues.push(
                IssueKind::ResourceNearLimit
                    .issue(format!("has used `{name}` nearly up for {} s: {used} of {limit}", NEAR_FOR_MS / 1000)),
            );
        }
        issues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(used: u64, refused: u64) -> [ResourceUse; 1] {
        [ResourceUse { name: "connections", used, peak: used, limit: 100, refused }]
    }

    fn kinds(issues: &[Issue]) -> Vec<IssueKind> {
        issues.iter().map(|issue| issue.kind).collect()
    }

    #[test]
    fn rejections_are_an_issue_while_they_go_on() {
        let mut watch = ResourceWatch::default();
        assert!(watch.look(0, &usage(0, 500)).is_empty(), "they were before");
        assert!(watch.look(1_000, &usage(0, 509)).is_empty(), "few");
        let issues = watch.look(2_000, &usage(0, 510));
        assert_eq!(kinds(&issues), [IssueKind::Rejections]);
        assert!(issues[0].what.starts_with("rejects requests: 10 in 10 s because `connections`"), "{issues:?}");
        assert_eq!(kinds(&watch.look(10_000, &usage(0, 510))), [IssueKind::Rejections]);
        assert!(watch.look(20_000, &usage(0, 510)).is_empty(), "they have ended");
    }

    #[test]
    fn a_resource_is_nearly_used_up_for_a_while_before_it_is_an_issue() {
        let mut watch = ResourceWatch::default();
        assert!(watch.look(0, &usage(90, 0)).is_empty());
        assert!(watch.look(29_999, &usage(100, 0)).is_empty());
        assert_eq!(kinds(&watch.look(30_000, &usage(95, 0))), [IssueKind::ResourceNearLimit]);
        assert!(watch.look(31_000, &usage(89, 0)).is_empty());
        assert!(watch.look(60_000, &usage(95, 0)).is_empty(), "it was free in between");
        let memtables = [ResourceUse { name: "memtables", ..usage(100, 0)[0] }];
        watch.look(61_000, &memtables);
        assert!(watch.look(200_000, &memtables).is_empty(), "held back writes say so");
    }
}
