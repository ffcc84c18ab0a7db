//! Places and health issues. Those of later builds may be of kinds that this one does not know.

use terrane_types::{GroupId, Issue, IssueKind, Place, RegionId, ServerId, Severity};

use crate::v1;
use crate::v1::place::Place as Wire;

impl From<Place> for v1::Place {
    fn from(place: Place) -> Self {
        let place = match place {
            Place::Server(server) => Wire::Server(server.0),
            Place::Table(name) => Wire::Table(name),
            Place::Region(region) => Wire::Region(region.0),
            Place::Group(group) => Wire::Group(group.0),
            Place::Master(address) => Wire::Master(address),
            Place::Setting(name) => Wire::Setting(name),
        };
        Self { place: Some(place) }
    }
}

/// What something is about; `None` for a kind of place that this build does not know.
pub fn place(place: v1::Place) -> Option<Place> {
    Some(match place.place? {
        Wire::Server(server) => Place::Server(ServerId(server)),
        Wire::Table(name) => Place::Table(name),
        Wire::Region(region) => Place::Region(RegionId(region)),
        Wire::Group(group) => Place::Group(GroupId(group)),
        Wire::Master(address) => Place::Master(address),
        Wire::Setting(name) => Place::Setting(name),
    })
}

impl From<Issue> for v1::HealthIssue {
    fn from(issue: Issue) -> Self {
        Self {
            kind: issue.kind.name().to_owned(),
            severity: issue.severity.label().to_owned(),
            place: issue.place.map(Into::into),
            what: issue.what,
            next: issue.next,
        }
    }
}

impl From<v1::HealthIssue> for Issue {
    fn from(issue: v1::HealthIssue) -> Self {
        let kind = IssueKind::named(&issue.kind);
        Self {
            kind,
            severity: Severity::labelled(&issue.severity).unwrap_or(kind.about().severity),
            place: issue.place.and_then(place),
            what: issue.what,
            next: issue.next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issue_of_a_later_build_keeps_its_severity_place_and_advice() {
        let full = IssueKind::DiskFull.issue("it is full").at(Place::Server(ServerId(2))).then("add a disk");
        let sent = v1::HealthIssue::from(full.clone());
        assert_eq!(Issue::from(sent.clone()), full);
        let later = Issue::from(v1::HealthIssue { kind: "of a later build".to_owned(), ..sent });
        assert_eq!(later, Issue { kind: IssueKind::Other, ..full });
    }
}
