//! The health issues that a master finds in the catalog and in what is observed: a pure function of both.

use std::time::Duration;

use terrane_types::states::{RegionState, ServerState};
use terrane_types::{GroupId, Issue, IssueKind, Place, ServerId};

use crate::catalog::Catalog;
use crate::catalog::groups::GroupEntry;
use crate::fleet::world::{Condition, condition};
use crate::fleet::{copies, recovery};
use crate::servers::inventory::ServerLoad;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// A log above this share of its limit that is held back is a health issue.
const LOG_ISSUE_PERCENT: u64 = 50;

/// What to do with the issues that servers report of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// They are listed with the others.
    Included,
    /// They are left out: the servers count them in their own metrics.
    LeftOut,
}

/// Open groups without a known leader that a majority follows.
pub fn leaderless(catalog: &Catalog, observed: &Observations, now: Moment) -> Vec<GroupId> {
    let open = catalog.groups().iter().filter(|(_, entry)| entry.is_open());
    let lacks = |(group, entry): &(GroupId, &GroupEntry)| {
        observed.leader(*group).is_none() || recovery::lacks_majority(observed, *group, entry, now).is_some()
    };
    open.filter(lacks).map(|(group, _)| group).collect()
}

/// The health issues: groups without a majority, then servers, groups, and regions.
pub fn health_issues(
    catalog: &Catalog,
    observed: &Observations,
    leaderless: &[GroupId],
    now: Moment,
    replace_after: Duration,
    reported: Reported,
) -> Vec<Issue> {
    let mut issues = Vec::new();
    let lost = recovery::without_majority(catalog, observed, now);
    let issue = |(group, live): &(GroupId, _)| {
        Some(recovery::lost_majority(catalog, *group, catalog.groups().get(*group)?, live))
    };
    issues.extend(lost.iter().filter_map(issue));
    for (server, known) in catalog.servers().iter() {
        let condition = condition(catalog, &observed.liveness, server, now, replace_after);
        let countdown = countdown(condition, catalog.groups().replicas_on(server));
        let at = At { server, address: &known.address, countdown: &countdown };
        server_issues(observed, &at, now, reported, &mut issues);
    }
    for group in leaderless.iter().filter(|group| lost.iter().all(|(lost, _)| lost != *group)) {
        let cause = catalog.groups().get(*group).and_then(|entry| slow_voters(observed, entry)).unwrap_or_default();
        let what = format!("group {group} has no leader: its regions are unavailable until one is elected{cause}");
        issues.push(IssueKind::Leaderless.issue(what).at(Place::Group(*group)));
    }
    issues.extend(copies::issues(&copies::short(catalog, observed, now), catalog.replication()));
    for region in catalog.regions().iter().map(|entry| &entry.descriptor) {
        let view = observed.inventory.region(region.group, region.region);
        if let Some(view) = view.filter(|view| view.state == RegionState::Unsplittable) {
            let (region, bytes) = (region.region, view.bytes);
            let what = format!("region {region} exceeds its size ({bytes} bytes) but has no row to split at");
            issues.push(IssueKind::Unsplittable.issue(what).at(Place::Region(region)));
        }
    }
    issues
}

/// What holds an election up, if so many members have slow disks that a majority needs the vote of one.
fn slow_voters(observed: &Observations, entry: &GroupEntry) -> Option<String> {
    let says_so = |server: &&ServerId| {
        let load = observed.inventory.load(**server);
        load.is_some_and(|load| load.issues.iter().any(|issue| issue.kind == IssueKind::DiskSlow))
    };
    let slow: Vec<String> = entry.members.values().filter(says_so).map(ToString::to_string).collect();
    let decides = 2 * slow.len() >= entry.members.len() && !slow.is_empty();
    decides.then(|| format!("; its votes wait for slow syncs of the log on servers {}", slow.join(", ")))
}

/// What happens to the replicas of a server that is not live.
fn countdown(condition: Condition, replicas: usize) -> String {
    match condition {
        Condition::Live => String::new(),
        _ if replicas == 0 => ", and has no replicas".to_owned(),
        Condition::Away(left) if left.as_secs() < 60 => format!("; replaced in {} s", left.as_secs()),
        Condition::Away(left) => format!("; replaced in {} min {} s", left.as_secs() / 60, left.as_secs() % 60),
        Condition::Lost => format!("; its {replicas} replicas are being replaced"),
    }
}

/// A server, and what happens to its replicas.
struct At<'a> {
    server: ServerId,
    address: &'a str,
    countdown: &'a str,
}

fn server_issues(observed: &Observations, of: &At<'_>, now: Moment, reported: Reported, issues: &mut Vec<Issue>) {
    let At { server, address, countdown } = *of;
    let place = Place::Server(server);
    let mut add = |kind: IssueKind, what: String, next: &str| {
        let issue = kind.issue(format!("server {server} ({address}) {what}")).at(place.clone()).then(next);
        issues.push(issue);
    };
    let state = observed.liveness.state(server);
    match state {
        ServerState::Silent if terrane_env::planted!("a silent server is not reported") => {}
        ServerState::Silent if observed.liveness.is_missed(server, now) => {
            let quiet = observed.liveness.quiet_for(server, now).as_secs();
            add(IssueKind::ServerSilent, format!("has not reported for {quiet} s{countdown}"), "");
        }
        ServerState::Unreachable => {
            let why = observed.liveness.unreachable_because(server).unwrap_or("it does not answer there");
            // A server that cannot be reached often has no replicas, which is no news.
            let countdown = if countdown.starts_with(';') { countdown } else { "" };
            let next =
                format!("start it with --advertise HOST:PORT that leads to it, or open the way to it{countdown}");
            add(IssueKind::ServerUnreachable, format!("reports and cannot be reached at that address: {why}"), &next);
        }
        ServerState::Stopped => add(IssueKind::ServerStopped, format!("was stopped{countdown}"), ""),
        ServerState::Silent | ServerState::Live => {}
    }
    // What a stopped server complained of ended with it.
    if state == ServerState::Stopped {
        return;
    }
    if let Some(off_ms) = observed.liveness.clock_issue(server) {
        let direction = if off_ms < 0 { "behind" } else { "ahead of" };
        let what = format!("has a clock {} ms {direction} the master's: correct the wrong one", off_ms.abs());
        add(IssueKind::ClockWrong, what, "");
    }
    let Some(load) = observed.inventory.load(server) else { return };
    if let Some(held) = log_issue(load) {
        add(IssueKind::LogHeld, held, "");
    }
    if reported == Reported::LeftOut {
        return;
    }
    // Of a silent server it may be why, and it is no news.
    let says = if observed.liveness.is_missed(server, now) { "reported before that" } else { "reports" };
    let reporter = format!("server {server} ({address}) {says}");
    issues.extend(load.issues.iter().map(|issue| issue.clone().reported(&reporter, place.clone())));
}

fn log_issue(load: &ServerLoad) -> Option<String> {
    let high = load.log_bytes.saturating_mul(100) >= load.log_limit.saturating_mul(LOG_ISSUE_PERCENT);
    (high && load.log_limit > 0 && !load.log_held_by.is_empty()).then(|| {
        format!("uses {} of {} bytes for its log, held back by {}", load.log_bytes, load.log_limit, load.log_held_by)
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::catalog::tests::full;
    use crate::servers::inventory::{GroupSeen, Inventory, RegionSeen, Report};
    use crate::servers::liveness::Liveness;

    /// Server 1 of the full catalog leads its group in term 3 and reports its first region as unsplittable.
    pub fn observed() -> Observations {
        let mut liveness = Liveness::new(Duration::from_secs(3), Moment(0));
        liveness.live(ServerId(1), 1, Moment(1)).unwrap();
        let mut inventory = Inventory::default();
        let descriptor = full().regions().iter().next().unwrap().descriptor.clone();
        inventory.absorb(Report {
            server: ServerId(1),
            groups: vec![GroupSeen {
                group: GroupId(1),
                term: 3,
                leader: Some(ServerId(1)),
                applied: 9,
                ..GroupSeen::default()
            }],
            regions: vec![RegionSeen { state: RegionState::Unsplittable, ..RegionSeen::open(descriptor, 100, 3) }],
            load: ServerLoad { issues: vec![IssueKind::Damage.issue("a file is damaged")], ..ServerLoad::default() },
        });
        Observations { liveness, inventory }
    }

    fn issues(observed: &Observations, now: Moment) -> Vec<String> {
        let catalog = full();
        let leaderless = leaderless(&catalog, observed, now);
        let found = health_issues(&catalog, observed, &leaderless, now, Duration::from_secs(300), Reported::Included);
        found.iter().map(Issue::text).collect()
    }

    #[test]
    fn servers_and_regions_report_their_issues() {
        assert_eq!(
            issues(&observed(), Moment(2_000)),
            [
                "server 1 (a:1) reports: a file is damaged",
                "region 1 exceeds its size (100 bytes) but has no row to split at",
            ]
        );
    }

    #[test]
    fn a_silent_server_and_its_groups_are_issues() {
        let mut observed = observed();
        observed.liveness.clock(ServerId(1), -700);
        observed.liveness.tick(Moment(9_001));
        let issues = issues(&observed, Moment(9_001));
        assert!(issues[0].starts_with("group 1 has lost its majority"), "{}", issues[0]);
        assert_eq!(issues[1], "server 1 (a:1) has not reported for 9 s; replaced in 4 min 51 s");
        assert!(issues[2].contains("700 ms behind the master's"), "{}", issues[2]);
        assert!(
            issues.iter().any(|what| what == "server 2 (b:1) has not reported for 9 s, and has no replicas"),
            "never reported"
        );
    }

    #[test]
    fn the_last_complaint_of_a_server_that_is_gone_is_no_news() {
        let mut observed = observed();
        let of_server_1 = |observed: &Observations, now| {
            let mut found = issues(observed, now);
            found.retain(|issue| issue.starts_with("server 1 "));
            found
        };
        assert_eq!(of_server_1(&observed, Moment(2_000)), ["server 1 (a:1) reports: a file is damaged"]);
        observed.liveness.tick(Moment(9_001));
        let silent = of_server_1(&observed, Moment(9_001));
        assert_eq!(silent[1], "server 1 (a:1) reported before that: a file is damaged");
        observed.liveness.stopped(ServerId(1));
        let stopped = of_server_1(&observed, Moment(9_002));
        assert!(stopped.len() == 1 && stopped[0].contains("was stopped"), "{stopped:?}");
    }

    #[test]
    fn a_group_whose_votes_wait_for_slow_disks_says_so() {
        let mut observed = observed();
        let report = |issue: Issue| Report {
            server: ServerId(1),
            groups: vec![GroupSeen { group: GroupId(1), term: 4, leader: None, applied: 9, ..GroupSeen::default() }],
            regions: Vec::new(),
            load: ServerLoad { issues: vec![issue], ..ServerLoad::default() },
        };
        observed.inventory.absorb(report(IssueKind::DiskSlow.issue("every sync takes 350 ms or more")));
        let of_group = |observed: &Observations| {
            let of_group = |what: &String| what.starts_with("group 1 has no leader");
            issues(observed, Moment(2_000)).into_iter().find(of_group).unwrap()
        };
        assert!(of_group(&observed).ends_with("slow syncs of the log on servers 1"), "{}", of_group(&observed));
        observed.inventory.absorb(report(IssueKind::Damage.issue("a file is damaged")));
        assert!(of_group(&observed).ends_with("until one is elected"), "{}", of_group(&observed));
    }

    #[test]
    fn a_large_log_that_is_held_back_is_an_issue() {
        let load = |log_bytes, held: &str| ServerLoad {
            log_bytes,
            log_limit: 1_000,
            log_held_by: held.into(),
            ..ServerLoad::default()
        };
        assert_eq!(log_issue(&load(499, "server 3")), None);
        assert_eq!(log_issue(&load(900, "")), None);
        assert_eq!(
            log_issue(&load(900, "server 3")).unwrap(),
            "uses 900 of 1000 bytes for its log, held back by server 3"
        );
    }

    #[test]
    fn what_servers_report_can_be_left_out() {
        let (catalog, observed, now) = (full(), observed(), Moment(2_000));
        let found = health_issues(&catalog, &observed, &[], now, Duration::from_secs(300), Reported::LeftOut);
        assert!(found.iter().all(|issue| issue.kind != IssueKind::Damage), "{found:?}");
        assert!(found.iter().any(|issue| issue.kind == IssueKind::Unsplittable), "{found:?}");
    }
}
