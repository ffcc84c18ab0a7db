//! Where groups and new regions go. Pure: what there is comes in, what is wanted comes out; `procedures` does it.
//!
//! Groups: every live server is to lead a set number of groups (4 unless told otherwise); each has its replicas on
//! distinct servers, and the followers are spread so that all servers hold about as many. Regions: a new region goes to
//! the leader with the fewest, and of its groups to the one with the fewest; neighbours thus land on different leaders.

use std::collections::BTreeMap;

use terrane_types::{GroupId, ServerId};

use crate::catalog::groups::GroupPlan;

/// What the groups are planned from.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Servers that may get replicas, ascending.
    pub live: Vec<ServerId>,
    /// The groups there are: planned leader and servers of each.
    pub groups: Vec<GroupPlan>,
    /// Replicas of each group.
    pub replication: usize,
    /// Groups that each server is to lead.
    pub led_by_each: usize,
}

/// The groups still to be made; none while fewer servers are live than a group needs.
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
    // What each is still to lead is counted beforehand, else the last in a round would be taken for the emptiest.
    for server in &fleet.live {
        let to_lead = fleet.led_by_each.saturating_sub(led.get(server).copied().unwrap_or(0));
        *replicas.entry(*server).or_default() += to_lead;
    }
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
    planned
}

/// The leader and, of the others, those with the fewest replicas. Ties go round the ring, begun elsewhere in each round,
/// so that one leader's groups do not all share the same followers.
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

/// A group that may take new regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The group.
    pub group: GroupId,
    /// The server that leads it, or was meant to.
    pub leader: ServerId,
    /// Regions it has already.
    pub regions: u64,
}

/// The group of each of `count` new regions, in key order. Empty when there is no group.
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
    use super::*;

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

    #[test]
    fn golden_tables_of_groups() {
        assert_eq!(table(&plan_groups(&fleet(1..=1, 1, 4))), "1 | 1 | 1 | 1");
        assert_eq!(table(&plan_groups(&fleet(1..=3, 3, 2))), "1 2 3 | 2 1 3 | 3 1 2 | 1 3 2 | 2 1 3 | 3 2 1");
        assert_eq!(table(&plan_groups(&fleet(1..=5, 3, 1))), "1 2 3 | 2 4 5 | 3 1 4 | 4 5 1 | 5 2 3");
        assert_eq!(table(&plan_groups(&fleet(1..=2, 3, 4))), "");
        assert_eq!(table(&plan_groups(&fleet(1..=3, 0, 4))), "");
    }

    #[test]
    fn every_server_leads_its_number_and_replicas_are_even() {
        for (servers, replication) in [(3, 3), (4, 3), (5, 3), (7, 5), (9, 1)] {
            let groups = plan_groups(&fleet(1..=servers, replication, 4));
            assert_eq!(groups.len() as u64, servers * 4);
            let counts = replicas(&groups);
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            assert!(most - least <= 1, "{servers} servers, {replication} replicas: {counts:?}");
        }
    }

    #[test]
    fn a_server_that_comes_later_gets_its_groups_and_nothing_else_changes() {
        let mut fleet = fleet(1..=3, 3, 4);
        fleet.groups = plan_groups(&fleet);
        assert_eq!(table(&plan_groups(&fleet)), "");
        fleet.live.push(ServerId(4));
        let added = plan_groups(&fleet);
        assert_eq!(added.len(), 4);
        assert!(added.iter().all(|group| group.leader == ServerId(4) && group.servers.len() == 3));
    }

    #[test]
    fn golden_tables_of_regions() {
        let candidates = |regions: &[u64]| -> Vec<Candidate> {
            let candidate = |(number, regions): (usize, &u64)| {
                let number = number as u64;
                Candidate { group: GroupId(number + 1), leader: ServerId(number % 3 + 1), regions: *regions }
            };
            regions.iter().enumerate().map(candidate).collect()
        };
        let placed = |count, regions: &[u64]| {
            place_regions(count, &candidates(regions)).iter().map(|group| group.0).collect::<Vec<_>>()
        };
        assert_eq!(placed(7, &[0, 0, 0, 0, 0, 0]), [1, 2, 3, 4, 5, 6, 1]);
        assert_eq!(placed(3, &[5, 0, 0, 0, 0, 0]), [2, 3, 5], "leader 1 has enough");
        assert_eq!(placed(2, &[9, 9, 9, 0, 9, 9]), [4, 4], "the emptiest leader, then its emptiest group");
        assert_eq!(placed(3, &[]), [0; 0]);
    }
}
