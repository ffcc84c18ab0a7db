//! The invariants of the cluster: compares the catalog, what leaders report of their groups, and what servers have.
//!
//! Reports are up to half a second old, so a finding right after a change may be gone at the next look; one that stays is
//! a defect.

use std::collections::BTreeMap;

use terrane_proto::v1;
use terrane_types::states::ServerState;
use terrane_types::{GroupId, ServerId};

use super::recovery;
use crate::catalog::Catalog;
use crate::catalog::groups::GroupEntry;
use crate::catalog::tables::TableState;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// Most findings that are returned; further ones are counted.
const FINDINGS_MAX: usize = 1_000;

/// The kinds of findings.
pub const KINDS: [&str; 12] = [
    "server", "copies", "replicas", "group", "damage", "members", "majority", "leader", "orphan", "map", "regions",
    "more",
];

/// What is wrong, a sentence each.
pub fn check(catalog: &Catalog, observed: &Observations, now: Moment) -> v1::CheckClusterReply {
    let mut findings = Findings::default();
    servers(catalog, observed, &mut findings);
    for (group, entry) in catalog.groups().iter() {
        group_members(catalog, observed, group, entry, &mut findings);
        group_leader(catalog, observed, group, entry, now, &mut findings);
    }
    replicas(catalog, observed, &mut findings);
    orphans(catalog, observed, &mut findings);
    tables(catalog, &mut findings);
    regions(catalog, observed, &mut findings);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    v1::CheckClusterReply {
        findings: findings.into_list(),
        tables: count(catalog.tables().len()),
        regions: count(catalog.regions().len()),
        groups: count(catalog.groups().len()),
        servers: count(catalog.servers().iter().len()),
    }
}

#[derive(Default)]
struct Findings {
    list: Vec<v1::CheckFinding>,
    more: usize,
}

impl Findings {
    fn add(&mut self, kind: &str, what: String) {
        debug_assert!(KINDS.contains(&kind), "{kind} is no kind of finding");
        if self.list.len() < FINDINGS_MAX {
            self.list.push(v1::CheckFinding { kind: kind.to_owned(), what });
        } else {
            self.more += 1;
        }
    }

    fn into_list(mut self) -> Vec<v1::CheckFinding> {
        if self.more > 0 {
            let what = format!("there are {} more findings", self.more);
            self.list.push(v1::CheckFinding { kind: "more".to_owned(), what });
        }
        self.list
    }
}

fn servers(catalog: &Catalog, observed: &Observations, findings: &mut Findings) {
    for (server, known) in catalog.servers().iter() {
        let state = observed.liveness.state(server);
        let replicas = catalog.groups().replicas_on(server);
        if state != ServerState::Live && replicas > 0 {
            let address = &known.address;
            findings.add(
                "server",
                format!("server {server} ({address}) is {} and should serve replicas: {replicas}", state.name()),
            );
        }
    }
}

fn group_members(
    catalog: &Catalog,
    observed: &Observations,
    group: GroupId,
    entry: &GroupEntry,
    findings: &mut Findings,
) {
    let (have, wanted) = (entry.members.len(), usize::try_from(catalog.replication()).unwrap_or(0));
    if have != wanted {
        let changing = if entry.change.is_some() { ", and its members are changing" } else { "" };
        findings.add("copies", format!("group {group} has {have} of {wanted} replicas{changing}"));
    }
    if !entry.is_open() {
        findings.add("group", format!("group {group} is still {}", entry.state.name()));
        return;
    }
    for (replica, server) in &entry.members {
        let Some(replicas) = observed.inventory.replicas(*server).filter(|_| observed.liveness.is_live(*server)) else {
            continue;
        };
        if replicas.get(&group).is_some_and(|seen| seen.replica == *replica && seen.damaged) {
            findings.add("damage", format!("replica {replica} of group {group} on server {server} has damaged files"));
        }
        match replicas.get(&group) {
            Some(seen) if seen.replica == *replica || seen.replica.0 == 0 => {}
            Some(seen) => {
                let other = seen.replica;
                let what = format!(
                    "server {server} has replica {other} of group {group}, but replica {replica} is its member"
                );
                findings.add("replicas", what);
            }
            None => findings.add("replicas", format!("server {server} lacks replica {replica} of group {group}")),
        }
    }
    let Some(view) = observed.inventory.group(group).filter(|view| !view.members.is_empty()) else { return };
    if entry.change.is_some() || observed.leader(group).is_none() {
        return;
    }
    let named: BTreeMap<_, _> = view.members.iter().map(|member| (member.replica, member)).collect();
    for (replica, server) in &entry.members {
        match named.get(replica) {
            None => findings.add(
                "members",
                format!("the leader of group {group} does not name replica {replica} on server {server} as a member"),
            ),
            Some(member) if !member.voter => {
                findings.add("members", format!("replica {replica} of group {group} on server {server} does not vote"));
            }
            Some(_) => {}
        }
    }
    for member in view.members.iter().filter(|member| !entry.members.contains_key(&member.replica)) {
        let (replica, server) = (member.replica, member.server);
        let what =
            format!("group {group} has a member that the catalog does not have: replica {replica} on server {server}");
        findings.add("members", what);
    }
}

fn group_leader(
    catalog: &Catalog,
    observed: &Observations,
    group: GroupId,
    entry: &GroupEntry,
    now: Moment,
    findings: &mut Findings,
) {
    if !entry.is_open() {
        return;
    }
    if let Some(live) = recovery::lacks_majority(observed, group, entry, now) {
        findings.add("majority", recovery::lost_majority(catalog, group, entry, &live).text());
    } else if observed.leader(group).is_none() {
        findings.add("leader", format!("group {group} has no leader"));
    }
    // Two leaders of different terms are one that does not know yet that it was deposed.
    let mut by_term: BTreeMap<u64, Vec<ServerId>> = BTreeMap::new();
    for (server, _) in catalog.servers().iter().filter(|(server, _)| observed.liveness.is_live(*server)) {
        let seen = observed.inventory.replicas(server).and_then(|replicas| replicas.get(&group));
        if let Some(seen) = seen.filter(|seen| seen.leader == Some(server)) {
            by_term.entry(seen.term).or_default().push(server);
        }
    }
    for (term, leaders) in by_term.iter().filter(|(_, leaders)| leaders.len() > 1) {
        let leaders: Vec<String> = leaders.iter().map(ToString::to_string).collect();
        findings.add("leader", format!("servers {} lead group {group} in the same term {term}", leaders.join(" and ")));
    }
}

/// Replicas that the catalog does not list.
fn replicas(catalog: &Catalog, observed: &Observations, findings: &mut Findings) {
    for (server, _) in catalog.servers().iter().filter(|(server, _)| observed.liveness.is_live(*server)) {
        for (group, seen) in observed.inventory.replicas(server).into_iter().flatten() {
            let replica = seen.replica;
            let entry = catalog.groups().get(*group);
            let is_listed = entry.is_some_and(|entry| entry.servers().contains(&server));
            if !is_listed {
                let what =
                    format!("server {server} has replica {replica} of group {group}, which the catalog does not list");
                findings.add("replicas", what);
            }
        }
    }
}

/// Files that nothing names, as the servers themselves have found.
fn orphans(catalog: &Catalog, observed: &Observations, findings: &mut Findings) {
    for (server, _) in catalog.servers().iter().filter(|(server, _)| observed.liveness.is_live(*server)) {
        let Some(orphans) = observed.inventory.load(server).and_then(|load| load.orphans.as_ref()) else { continue };
        let v1::OrphanFiles { files, bytes, first } = orphans;
        let what =
            format!("server {server} has {files} files with {bytes} bytes that nothing names, the first is {first}");
        findings.add("orphan", what);
    }
}

fn tables(catalog: &Catalog, findings: &mut Findings) {
    for entry in catalog.tables().iter() {
        let (table, name) = (entry.schema.table, &entry.schema.name);
        if !catalog.regions().covers_all_keys(table) {
            findings.add("map", format!("the regions of table {name} have a gap or an overlap"));
        }
        for region in catalog.regions().of_table(table).map(|region| &region.descriptor) {
            if catalog.groups().get(region.group).is_none() {
                let (region, group) = (region.region, region.group);
                findings
                    .add("map", format!("region {region} of table {name} is in group {group}, which does not exist"));
            }
        }
    }
}

/// Compares the map with the regions that leaders report.
fn regions(catalog: &Catalog, observed: &Observations, findings: &mut Findings) {
    for entry in catalog.regions().iter() {
        let known = &entry.descriptor;
        let (region, group) = (known.region, known.group);
        let is_creating = catalog.tables().get(known.table).is_none_or(|table| table.state != TableState::Enabled);
        if observed.leader(group).is_none() || is_creating {
            continue;
        }
        match observed.inventory.region(group, region).map(|view| &view.descriptor) {
            None => findings.add("regions", format!("the leader of group {group} does not report region {region}")),
            Some(seen) if (seen.epoch, &seen.range) != (known.epoch, &known.range) => findings.add(
                "regions",
                format!(
                    "region {region} is {} at epoch {} in the catalog, and {} at epoch {} in group {group}",
                    known.range, known.epoch, seen.range, seen.epoch
                ),
            ),
            Some(_) => {}
        }
    }
    for (group, _) in catalog.groups().iter().filter(|(group, _)| observed.leader(*group).is_some()) {
        let reported = observed.inventory.group(group).into_iter().flat_map(|view| view.regions());
        for (region, _) in reported.filter(|(region, _)| catalog.regions().get(*region).is_none()) {
            findings.add("regions", format!("group {group} has region {region}, which the catalog does not list"));
        }
    }
}
