//! How many copies each group has: the members that would be there if another server failed.
//!
//! A copy counts if its server is there, it votes, and nothing in it is damaged or missing. What has not been reported to a new
//! leader yet counts as there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terrane_types::states::ServerState;
use terrane_types::{GroupId, Issue, IssueKind, Place, ReplicaId, ServerId};

use super::planner::named;
use crate::catalog::Catalog;
use crate::catalog::groups::GroupEntry;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// A copy that lacks entries for so long is an issue: by then it should have caught up.
const BEHIND_FOR: Duration = Duration::from_secs(60);

/// Open groups with fewer copies than the cluster keeps, by the copies that they have.
pub fn short(catalog: &Catalog, observed: &Observations, now: Moment) -> BTreeMap<usize, Vec<GroupId>> {
    let wanted = usize::try_from(catalog.replication()).unwrap_or(0);
    let mut short: BTreeMap<usize, Vec<GroupId>> = BTreeMap::new();
    for (group, entry) in catalog.groups().iter().filter(|(_, entry)| entry.is_open()) {
        let members = entry.members.iter();
        let have = members.filter(|(replica, server)| counts(observed, group, **replica, **server, now)).count();
        if have < wanted {
            short.entry(have).or_default().push(group);
        }
    }
    short
}

/// Whether a replica of a group counts as a copy.
fn counts(observed: &Observations, group: GroupId, replica: ReplicaId, server: ServerId, now: Moment) -> bool {
    let is_there = match observed.liveness.state(server) {
        ServerState::Live | ServerState::Unreachable => observed.inventory.replicas(server).is_none_or(|replicas| {
            let seen = replicas.get(&group);
            seen.is_some_and(|seen| (seen.replica == replica || seen.replica.0 == 0) && !seen.damaged)
        }),
        ServerState::Silent => !observed.liveness.is_missed(server, now),
        ServerState::Stopped => false,
    };
    let view = observed.inventory.group(group).filter(|_| observed.leader(group).is_some());
    let member = view.and_then(|view| view.member(replica));
    is_there && member.is_none_or(|member| member.voter && member.copied_bytes >= member.copy_bytes)
}

/// The health issues of these groups.
pub fn issues(short: &BTreeMap<usize, Vec<GroupId>>, wanted: u32) -> Vec<Issue> {
    let issue = |(have, groups): (&usize, &Vec<GroupId>)| {
        let (kind, next) = if *have <= 1 && wanted > 1 {
            (
                IssueKind::LastCopy,
                "bring back the servers with the others, or add servers: the loss of one more disk loses data",
            )
        } else {
            (IssueKind::FewCopies, "missing ones are made again once a server can take them")
        };
        let have_verb = if groups.len() == 1 { "has" } else { "have" };
        let issue = kind.issue(format!("{} {have_verb} {have} of {wanted} copies", named(groups))).then(next);
        match groups[..] {
            [group] => issue.at(Place::Group(group)),
            _ => issue,
        }
    };
    short.iter().map(issue).collect()
}

/// The copies that lack entries, and since when.
#[derive(Debug, Default)]
pub struct Behind(BTreeMap<(GroupId, ReplicaId), Moment>);

impl Behind {
    /// The issues of copies that have been behind for a while.
    pub fn look(&mut self, catalog: &Catalog, observed: &Observations, now: Moment) -> Vec<Issue> {
        let mut behind = BTreeSet::new();
        let mut issues = Vec::new();
        let open = |(_, entry): &(GroupId, &GroupEntry)| entry.is_open();
        for (group, entry) in catalog.groups().iter().filter(open) {
            let Some(view) = observed.inventory.group(group).filter(|_| observed.leader(group).is_some()) else {
                continue;
            };
            for (replica, server) in &entry.members {
                let lags = |member: &&crate::servers::inventory::MemberSeen| !view.is_caught_up(member);
                let Some(member) = view.member(*replica).filter(lags) else { continue };
                // That of a server that is away is no news.
                if !observed.liveness.is_live(*server) {
                    continue;
                }
                behind.insert((group, *replica));
                if now.since(*self.0.entry((group, *replica)).or_insert(now)) >= BEHIND_FOR {
                    let newest = view.members.iter().map(|member| member.matched).max().unwrap_or(0);
                    let behind = IssueKind::CopyBehind.issue(format!(
                        "replica {replica} of group {group} on server {server} has been behind its leader for {} s: it has applied {} of \
                         {newest} entries",
                        BEHIND_FOR.as_secs(),
                        member.reached()
                    ));
                    let next = "look at the disk and the network of that server";
                    issues.push(behind.at(Place::Group(group)).then(next));
                }
            }
        }
        self.0.retain(|copy, _| behind.contains(copy));
        issues
    }
}
