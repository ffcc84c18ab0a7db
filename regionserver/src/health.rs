//! The problems this server has right now. They are reported to the master and shown by `status` until they are resolved.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_types::{Issue, IssueKind, Place, RegionId};

/// Open issues: one of each kind for each place.
#[derive(Default)]
pub struct HealthIssues {
    open: Mutex<BTreeMap<(IssueKind, Option<Place>), Issue>>,
    /// Why the leading master cannot call this server. The master says so itself, so that it is no issue of the list.
    unreachable: Mutex<Option<String>>,
}

impl HealthIssues {
    /// Opens or updates an issue. Returns true if it is new, so that the caller logs it once.
    pub fn set(&self, issue: Issue) -> bool {
        self.open.lock().insert((issue.kind, issue.place.clone()), issue).is_none()
    }

    /// Closes the issue of this kind for this place. Returns true if it was open.
    pub fn clear(&self, kind: IssueKind, place: Option<Place>) -> bool {
        self.open.lock().remove(&(kind, place)).is_some()
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
        self.retain(|_, region| is_here(region));
    }

    /// Closes the issues of comparisons of regions that another server leads.
    pub fn retain_comparisons(&self, is_led: impl Fn(RegionId) -> bool) {
        self.retain(|kind, region| kind != IssueKind::ReplicasDiffer || is_led(region));
    }

    /// Keeps the issues of these regions, and all that are about none.
    fn retain(&self, stays: impl Fn(IssueKind, RegionId) -> bool) {
        self.open.lock().retain(|(kind, place), _| match place {
            Some(Place::Region(region)) => stays(*kind, *region),
            _ => true,
        });
    }

    /// The open issue of this kind for this place.
    pub fn get(&self, kind: IssueKind, place: Place) -> Option<Issue> {
        self.open.lock().get(&(kind, Some(place))).cloned()
    }

    /// All open issues.
    pub fn all(&self) -> Vec<Issue> {
        self.open.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(kind: IssueKind, region: u64) -> Issue {
        kind.issue("it fails").at(Place::Region(RegionId(region)))
    }

    #[test]
    fn issues_of_regions_that_are_gone_are_closed() {
        let (issues, full) = (HealthIssues::default(), IssueKind::DiskFull.issue("the disk is full"));
        for issue in [issue(IssueKind::Flush, 1), issue(IssueKind::Flush, 2), issue(IssueKind::Compaction, 1)] {
            issues.set(issue);
        }
        issues.set(full.clone());
        issues.retain_regions(|region| region == RegionId(2));
        assert_eq!(issues.all(), [full, issue(IssueKind::Flush, 2)]);
    }

    #[test]
    fn issues_of_comparisons_are_closed_where_another_server_leads() {
        let issues = HealthIssues::default();
        let [one, two] = [1, 2].map(|region| issue(IssueKind::ReplicasDiffer, region));
        for issue in [one, two.clone(), issue(IssueKind::Flush, 1)] {
            issues.set(issue);
        }
        issues.retain_comparisons(|region| region == RegionId(2));
        assert_eq!(issues.all(), [issue(IssueKind::Flush, 1), two]);
    }
}
