//! Decides where groups and new regions go. Pure functions of the present state; `procedures` carries the plans out.
//!
//! Groups: there are a set number for every live server (4 by default), which leads as many. The replicas of a group are on distinct
//! servers, and followers are spread so that all servers have about the same number. Regions: a new region goes to the
//! leader with the fewest regions and there to the group with the fewest, so that adjacent regions get different
//! leaders.

use std::collections::BTreeMap;

use terrane_types::{GroupId, ServerId};

use crate::catalog::groups::GroupPlan;

/// The input of the plan of groups.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Servers that can get replicas, ascending.
    pub live: Vec<ServerId>,
    /// The existing groups.
    pub groups: Vec<GroupPlan>,
    /// Replicas of each group.
    pub replication: usize,
    /// Groups that each server leads.
    pub led_by_each: usize,
}

/// The groups to create; none while fewer servers are live than a group needs.
pub fn plan_groups(fleet: &Fleet) -> Vec<GroupPlan> {
    if fleet.replication == 0 || fleet.live.len() < fleet.replication {
        return Vec::new();
    }
    let mut replicas: BTreeMap<ServerId, usize> = BTreeMap::new();
    let mut led: BTreeMap<ServerId, usize> = BTreeMap::new();
    for group in &fleet.groups {
        *led.entry(group.leader).or_default() += 1;
        group.servers.iter().for_each(|server| *replicas.entry(*server).or_default() += 1);
    }
    // Count the groups that each server will lead first; else the last servers of a round would look empty.
    for server in &fleet.live {
        let to_lead = fleet.led_by_each.saturating_sub(led.get(server).copied().unwrap_or(0));
        *replicas.entry(*server).or_default() += to_lead;
    }
    // Groups stay when servers go, and their leaderships spread over whichever servers there are: a server that takes the place
    // of another one needs none of its own. Groups without a live member serve no client.
    let serving = fleet.groups.iter().filter(|group| group.servers.iter().any(|server| fleet.live.contains(server)));
    let room = (fleet.live.len() * fleet.led_by_each).saturating_sub(serving.count());
    let mut planned = Vec::new();
    for round in 0..fleet.led_by_each {
        for (place, leader) in fleet.live.iter().enumerate() {
            if led.get(leader).copied().unwrap_or(0) > round {
                continue;
            }
            let servers = members(fleet, place, round, &replicas);
            servers[1..].iter().for_each(|server| *replicas.entry(*server).or_default() += 1);
            *led.entry(*leader).or_default() += 1;
            planned.push(GroupPlan { leader: *leader, servers });
        }
    }
    planned.truncate(room);
    planned
}

/// The leader, and the other servers with the fewest replicas. Ties are broken around the ring, from another place in
/// each round, so that one leader's groups do not all have the same followers.
fn members(fleet: &Fleet, place: usize, round: usize, replicas: &BTreeMap<ServerId, usize>) -> Vec<ServerId> {
    let count = fleet.live.len();
    let mut others: Vec<(usize, usize, ServerId)> = (1..count)
        .map(|step| {
            let server = fleet.live[(place + step) % count];
            let turn = (step + count - 2 - round % (count - 1)) % (count - 1);
            (replicas.get(&server).copied().unwrap_or(0), turn, server)
        })
        .collect();
    others.sort_unstable();
    let followers = others.into_iter().map(|(_, _, server)| server).take(fleet.replication - 1);
    std::iter::once(fleet.live[place]).chain(followers).collect()
}

/// A group that can get new regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The group.
    pub group: GroupId,
    /// Its leader, or planned leader.
    pub leader: ServerId,
    /// The regions it has.
    pub regions: u64,
}

/// The group of each of `count` new regions, in key order; empty if there are no groups.
pub fn place_regions(count: usize, candidates: &[Candidate]) -> Vec<GroupId> {
    let mut candidates = candidates.to_vec();
    let mut per_leader: BTreeMap<ServerId, u64> = BTreeMap::new();
    for candidate in &candidates {
        *per_leader.entry(candidate.leader).or_default() += candidate.regions;
    }
    let mut placed = Vec::with_capacity(count);
    for _ in 0..count {
        let fewest = candidates
            .iter_mut()
            .min_by_key(|candidate| (per_leader.get(&candidate.leader), candidate.regions, candidate.group));
        let Some(candidate) = fewest else { return placed };
        candidate.regions += 1;
        *per_leader.entry(candidate.leader).or_default() += 1;
        placed.push(candidate.group);
    }
    placed
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::catalog::scripts::{Line, number};

    fn fleet(live: std::ops::RangeInclusive<u64>, replication: usize, led_by_each: usize) -> Fleet {
        Fleet { live: live.map(ServerId).collect(), groups: Vec::new(), replication, led_by_each }
    }

    fn table(groups: &[GroupPlan]) -> String {
        let line = |group: &GroupPlan| group.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        groups.iter().map(line).collect::<Vec<_>>().join(" | ")
    }

    fn replicas(groups: &[GroupPlan]) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        groups.iter().flat_map(|group| &group.servers).for_each(|server| *counts.entry(server.0).or_default() += 1);
        counts
    }

    /// `groups` plans for a fleet and prints each group's servers, the leader first; `keep groups` makes the planned
    /// groups those that exist. `place` places regions.
    #[test]
    fn plans() {
        terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/planner/testdata"), || {
            let mut existing = Vec::new();
            move |text, out| {
                let (keep, text) = text.strip_prefix("keep ").map_or((false, text), |rest| (true, rest));
                let line = Line::of(text);
                let count = |name| line.argument(name).map_or(0, |text| text.parse().unwrap());
                match line.words[0] {
                    "groups" => {
                        let mut fleet = fleet(1..=count("servers") as u64, count("replication"), count("each"));
                        let gone: Vec<u64> =
                            line.argument("gone").into_iter().flat_map(|gone| gone.split(',')).map(number).collect();
                        fleet.live.retain(|server| !gone.contains(&server.0));
                        let planned = plan_groups(&Fleet { groups: existing.clone(), ..fleet });
                        writeln!(out, "{}", if planned.is_empty() { "none".into() } else { table(&planned) }).unwrap();
                        existing.extend(planned.into_iter().filter(|_| keep));
                    }
                    "place" => {
                        let have: Vec<u64> =
                            line.argument("have").into_iter().flat_map(|have| have.split(',')).map(number).collect();
                        let groups = place_regions(count("count"), &candidates(&have));
                        let groups: Vec<String> = groups.iter().map(|group| format!("g{group}")).collect();
                        writeln!(out, "{}", if groups.is_empty() { "none".into() } else { groups.join(" ") }).unwrap();
                    }
                    other => panic!("no such command: {other}"),
                }
            }
        });
    }

    /// Groups 1, 2, ... with so many regions, led by servers 1, 2, 3, 1, ...
    fn candidates(regions: &[u64]) -> Vec<Candidate> {
        let candidate = |(number, regions): (u64, &u64)| Candidate {
            group: GroupId(number + 1),
            leader: ServerId(number % 3 + 1),
            regions: *regions,
        };
        (0..).zip(regions).map(candidate).collect()
    }

    #[test]
    fn replicas_are_spread_evenly() {
        for (servers, replication) in [(3, 3), (4, 3), (5, 3), (7, 5), (9, 1)] {
            let groups = plan_groups(&fleet(1..=servers, replication, 4));
            assert_eq!(groups.len() as u64, servers * 4);
            let counts = replicas(&groups);
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            assert!(most - least <= 1, "{servers} servers, {replication} replicas: {counts:?}");
        }
    }
}
