//! The health issues that a report finds in the state of groups, of the log and of the limited resources. Those of jobs that fail
//! are in `health`.

use parking_lot::Mutex;
use terrane_metrics::{ResourceUse, ResourceWatch};
use terrane_raft::{GroupStatus, LogStatus, MemberProgress};
use terrane_types::{GroupId, Issue, IssueKind, Place, ReplicaId};

/// Writes that are held back harder than this, in thousandths...
const PRESSURE_MIN: u32 = 500;
/// ...for so long are an issue.
const PRESSED_FOR_MS: u64 = 30_000;

/// What has to be seen for a while before it is an issue.
#[derive(Debug, Default)]
pub struct Lasting {
    resources: Mutex<ResourceWatch>,
    pressed_since: Mutex<Option<u64>>,
}

impl Lasting {
    /// The issues at this time, which does not go back.
    pub fn look(&self, now_ms: u64, usages: &[ResourceUse], pressure: u32) -> Vec<Issue> {
        let mut issues = self.resources.lock().look(now_ms, usages);
        let mut since = self.pressed_since.lock();
        if pressure <= PRESSURE_MIN {
            *since = None;
        } else if now_ms.saturating_sub(*since.get_or_insert(now_ms)) >= PRESSED_FOR_MS {
            let pressed =
                IssueKind::WritesHeldBack.issue("holds writes back because flushes or compactions lag behind");
            issues.push(pressed.then("look at its disk, add servers, or write less"));
        }
        issues
    }
}

/// The health issue of a replica that stopped: its group has one member less until the server is restarted.
pub fn stopped_replica(status: &GroupStatus) -> Option<Issue> {
    let why = status.failed.as_ref()?;
    let failed = format!("replica {} of group {} stopped permanently: {why}", status.replica, status.group);
    let next = "restart this server, which says what to do if that does not help";
    Some(IssueKind::ReplicaFailed.issue(failed).at(Place::Group(status.group)).then(next))
}

/// The health issue of a replica that applies nothing: its group has one member less that could serve.
pub fn stuck_replica(status: &GroupStatus) -> Option<Issue> {
    let why = status.stuck.as_ref()?;
    let stuck = format!("replica {} of group {} is behind: {why}", status.replica, status.group);
    Some(IssueKind::ReplicaStuck.issue(stuck).at(Place::Group(status.group)))
}

/// The health issue of a replica whose log is damaged. The master replaces it.
pub fn damaged_log(status: &GroupStatus, what: &str) -> Issue {
    let damaged = format!("replica {} of group {} is damaged: {what}", status.replica, status.group);
    IssueKind::Damage.issue(damaged).at(Place::Group(status.group)).then("it is replaced by a copy of the group")
}

/// The members that answer and get no copy all the same. Those that do not answer are servers that are away, which is another
/// issue.
pub fn failing_copies(status: &GroupStatus, members: &[MemberProgress]) -> Vec<Issue> {
    let answers = |replica| members.iter().any(|member| member.replica == replica && member.alive);
    let failing = status.copies_failing.iter().filter(|(replica, _)| answers(*replica));
    let issue = |(replica, why): &(ReplicaId, String)| {
        let group = status.group;
        let what = format!("replica {replica} of group {group} needs a copy of the group and does not get one: {why}");
        IssueKind::CopyFails.issue(what).at(Place::Group(group))
    };
    failing.map(issue).collect()
}

/// The health issues of the shared log.
pub fn log_issues(log: &LogStatus) -> Vec<Issue> {
    let refused = |(group, held_by): &(GroupId, String)| {
        let what = format!(
            "group {group} rejects writes on this server because its share of the log is full; held by {held_by}"
        );
        IssueKind::LogFull.issue(what).at(Place::Group(*group))
    };
    log.refusing.iter().map(refused).chain(log.trouble.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_share_of_the_log_and_its_other_problems_are_health_issues() {
        let log = LogStatus {
            refusing: vec![(GroupId(3), "server 2, which is behind".to_owned())],
            trouble: Some(IssueKind::LogCopying.issue("entries could not be copied")),
            ..LogStatus::default()
        };
        let issues = log_issues(&log);
        assert!(issues[0].what.contains("group 3") && issues[0].what.contains("server 2"), "{issues:?}");
        assert_eq!(issues[1..], [IssueKind::LogCopying.issue("entries could not be copied")]);
        assert!(log_issues(&LogStatus::default()).is_empty());
    }

    #[test]
    fn writes_that_are_held_back_for_a_while_are_an_issue() {
        let lasting = Lasting::default();
        assert!(lasting.look(0, &[], 501).is_empty());
        assert!(lasting.look(29_999, &[], 1_000).is_empty());
        assert_eq!(lasting.look(30_000, &[], 501)[0].kind, IssueKind::WritesHeldBack);
        assert!(lasting.look(31_000, &[], 500).is_empty());
        assert!(lasting.look(60_500, &[], 501).is_empty(), "it ended in between");
    }
}
