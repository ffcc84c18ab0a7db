//! Decides where replicas and leaderships go. A pure function from a [`World`] to steps, each with its reason.
//!
//! Steps are planned one at a time, each on the world that the ones before lead to. In this order: replicas of lost
//! servers are replaced, then damaged ones; groups get as many replicas as asked; draining servers hand over leaderships, then replicas; and
//! with balancing, the members of a group get distinct zones, and leaderships and replicas spread until every server has
//! within 10 % of its share.
//!
//! Invariants: a step of repair or drain leads to another world in which it is not needed; a step of balancing makes the
//! spread more even or a path to that shorter, so every plan ends; no step is planned for a group without a ready majority,
//! and none puts two replicas of a group on one server. A damaged replica makes way on its own server only if no other
//! server can take the new one, and only while a majority of the members is ready without it and whole: until the new one
//! has its copy, the group has a replica less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use terrane_types::{GroupId, ServerId};

use super::world::{Condition, GroupView, Unfit, World};
use crate::catalog::changes::ChangeReason;

/// Steps of one plan; what is left over is planned again when these are made.
const STEPS_MAX: usize = 4_096;

/// What is done to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A replica joins, leaves, or is replaced.
    Members {
        /// The server that gets a replica.
        add: Option<ServerId>,
        /// The server whose replica leaves.
        remove: Option<ServerId>,
        /// Why.
        reason: ChangeReason,
    },
    /// The leadership goes from one member to another.
    Transfer {
        /// The present leader.
        from: ServerId,
        /// The next leader.
        to: ServerId,
    },
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The group.
    pub group: GroupId,
    /// What is done.
    pub action: Action,
    /// Why, for people.
    pub why: String,
}

impl Step {
    /// What is done, for people.
    pub fn describe(&self) -> String {
        let group = self.group;
        match self.action {
            Action::Transfer { from, to } => format!("leadership of group {group} from server {from} to {to}"),
            Action::Members { add: Some(to), remove: Some(from), .. } if to == from => {
                format!("another replica of group {group} on server {to} in place of its present one")
            }
            Action::Members { add: Some(to), remove: Some(from), .. } => {
                format!("replica of group {group} from server {from} to {to}")
            }
            Action::Members { add: Some(to), .. } => format!("new replica of group {group} on server {to}"),
            Action::Members { remove, .. } => {
                let from = remove.map_or_else(String::new, |server| format!(" on server {server}"));
                format!("no more replica of group {group}{from}")
            }
        }
    }
}

/// The plan for a world, and the world that it leads to. Without `balance`, only what safety and intents ask for.
pub fn plan(world: &World, balance: bool) -> (Vec<Step>, World) {
    let mut after = world.clone();
    let mut steps = Vec::new();
    while steps.len() < STEPS_MAX {
        let Some(step) = next(&after, balance) else { break };
        apply(&mut after, &step);
        steps.push(step);
    }
    (steps, after)
}

fn next(world: &World, balance: bool) -> Option<Step> {
    let needed = replace_lost(world)
        .or_else(|| replace_damaged(world))
        .or_else(|| match_replication(world))
        .or_else(|| drain_leader(world))
        .or_else(|| drain_replica(world));
    if !balance {
        return needed;
    }
    needed.or_else(|| separate_zones(world)).or_else(|| spread_replicas(world)).or_else(|| spread_leaders(world))
}

/// The world after a step.
fn apply(world: &mut World, step: &Step) {
    let Some(group) = world.groups.get_mut(&step.group) else { return };
    match step.action {
        Action::Transfer { to, .. } => group.leader = Some(to),
        Action::Members { add, remove, .. } => {
            if let Some(server) = remove {
                group.members.remove(&server);
                group.ready.remove(&server);
                group.unfit.remove(&server);
            }
            if let Some(server) = add {
                group.members.insert(server, None);
                group.ready.insert(server);
            }
            if group.leader == remove {
                group.leader = group.ready.first().copied();
            }
        }
    }
}

/// The transfers to make now: those that drains ask for and, with `balance`, up to `balance_max` that spread leaderships
/// over the servers that can lead now, not those that a plan gives replicas to.
pub fn transfers(world: &World, balance: bool, balance_max: usize) -> Vec<Step> {
    let mut after = world.clone();
    let mut steps = Vec::new();
    let mut spread = 0;
    while steps.len() < STEPS_MAX {
        let due = drain_leader(&after).or_else(|| {
            let may_spread = balance && spread < balance_max;
            spread += 1;
            spread_leaders(&after).filter(|_| may_spread)
        });
        let Some(step) = due else { break };
        apply(&mut after, &step);
        steps.push(step);
    }
    steps
}

/// The changes of members of a plan that may begin now: one per group, and on each server at most `per_server`, as the
/// source or as the target of a copy. The others wait until these have ended.
pub fn admitted(world: &World, steps: &[Step], per_server: usize) -> Vec<Step> {
    let mut busy: BTreeMap<ServerId, usize> = BTreeMap::new();
    world.groups.values().flat_map(|group| &group.busy).for_each(|server| *busy.entry(*server).or_default() += 1);
    let mut seen = BTreeSet::new();
    let mut admitted = Vec::new();
    for step in steps.iter().filter(|step| seen.insert(step.group)) {
        let Action::Members { add, .. } = step.action else { continue };
        let Some(group) = world.groups.get(&step.group).filter(|group| group.busy.is_empty()) else { continue };
        let involved: BTreeSet<ServerId> = add.into_iter().chain(group.leader).collect();
        let copies = add.is_some();
        if copies && involved.iter().any(|server| busy.get(server).is_some_and(|count| *count >= per_server)) {
            continue;
        }
        involved.into_iter().for_each(|server| *busy.entry(server).or_default() += 1);
        admitted.push(step.clone());
    }
    admitted
}

/// What keeps groups from having as many replicas as asked, or a server from being drained; one sentence per cause.
pub fn obstacles(world: &World) -> Vec<String> {
    let mut causes: BTreeMap<String, Vec<GroupId>> = BTreeMap::new();
    for (group, view) in &world.groups {
        if let Some(cause) = obstacle(world, *group, view) {
            causes.entry(cause).or_default().push(*group);
        }
    }
    causes.into_iter().map(|(cause, groups)| format!("{}: {cause}", named(&groups))).collect()
}

/// The first few groups of a list, for people.
pub(super) fn named(groups: &[GroupId]) -> String {
    const NAMED_MAX: usize = 8;
    let shown: Vec<String> = groups.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match groups.len() {
        1 => format!("group {}", shown.concat()),
        count if count > NAMED_MAX => format!("groups {} and {} more", shown.join(", "), count - NAMED_MAX),
        _ => format!("groups {}", shown.join(", ")),
    }
}

fn obstacle(world: &World, id: GroupId, group: &GroupView) -> Option<String> {
    let is_lost = |server: &&ServerId| world.is(**server, |view| view.condition == Condition::Lost);
    let is_draining = |server: &&ServerId| world.is(**server, |view| view.draining);
    let lost = group.members.keys().find(is_lost);
    if let Some(server) = group.unfit.keys().next().filter(|_| lost.is_none() && group.busy.is_empty()) {
        if group.members.len() == 1 {
            return Some(format!(
                "the only replica, on server {server}, has damaged files, and no other has what they held; restore the rows \
                 from another source"
            ));
        }
        let stays = group.has_majority() && replacement_of_damaged(world, id, group).is_none();
        return stays.then(|| {
            format!(
                "the replica on server {server} has damaged files; it is replaced when another server can take one, or a \
                 majority of the others is whole and caught up"
            )
        });
    }
    let wants = lost.or_else(|| group.members.keys().find(is_draining));
    let is_missing = group.members.len() < world.replication;
    if wants.is_none() && !is_missing {
        return None;
    }
    if lost.is_some() && !group.has_majority() {
        return Some("no majority of its replicas is live and caught up, so none can be replaced yet".to_owned());
    }
    let what = wants.map_or_else(
        || format!("fewer than {} replicas", world.replication),
        |server| format!("the replica on server {server} has to be replaced"),
    );
    let nowhere = target(world, id, group, None).is_none();
    nowhere.then(|| format!("{what}, and every live server that is not drained has one already; start another server"))
}

/// Groups whose members can change now.
fn changeable(world: &World) -> impl Iterator<Item = (GroupId, &GroupView)> {
    let can = |(_, group): &(&GroupId, &GroupView)| group.busy.is_empty() && group.leader.is_some();
    world.groups.iter().filter(can).filter(|(_, group)| group.has_majority()).map(|(group, view)| (*group, view))
}

/// Groups that can be balanced now: changeable ones all of whose members' servers are there. A group that lacks one is repaired
/// first. A new server has room for one replica of it, and the missing one may have no other place to go.
fn balanceable(world: &World) -> impl Iterator<Item = (GroupId, &GroupView)> {
    let is_there = |server: &ServerId| world.is(*server, |view| view.condition == Condition::Live);
    changeable(world).filter(move |(_, group)| group.members.keys().all(is_there))
}

/// The server that gets a replica of the group, in place of the one on `without`: first another zone than those of the
/// other members, then the fewest replicas.
fn target(world: &World, id: GroupId, group: &GroupView, without: Option<ServerId>) -> Option<ServerId> {
    let replicas = world.replicas();
    let zones: BTreeSet<&str> = group
        .members
        .keys()
        .filter(|server| Some(**server) != without)
        .map(|server| world.zone(*server))
        .filter(|zone| !zone.is_empty())
        .collect();
    let fits = world.eligible().into_iter().filter(|server| !group.members.contains_key(server));
    // Ties are broken differently for each group, so that a lost server's replicas spread over the others.
    let turn = |server: ServerId| (server.0.wrapping_add(id.0)) % (world.servers.len() as u64 + 1);
    fits.min_by_key(|server| {
        (zones.contains(world.zone(*server)), replicas.get(server).copied().unwrap_or(0), turn(*server), *server)
    })
}

fn members_step(
    group: GroupId,
    add: Option<ServerId>,
    remove: Option<ServerId>,
    reason: ChangeReason,
    why: String,
) -> Step {
    Step { group, action: Action::Members { add, remove, reason }, why }
}

fn replace_lost(world: &World) -> Option<Step> {
    changeable(world).find_map(|(id, group)| {
        let lost = group.members.keys().find(|server| world.is(**server, |view| view.condition == Condition::Lost))?;
        // A group that is to have fewer replicas loses this one first; see `match_replication`.
        if group.members.len() > world.replication {
            return None;
        }
        let to = target(world, id, group, Some(*lost))?;
        let why =
            format!("server {lost} does not report; server {to} has the fewest replicas of those that can take it");
        Some(members_step(id, Some(to), Some(*lost), ChangeReason::Lost, why))
    })
}

fn replace_damaged(world: &World) -> Option<Step> {
    changeable(world).find_map(|(id, group)| {
        // A group that is to have fewer replicas loses this one first; see `match_replication`.
        if group.members.len() > world.replication {
            return None;
        }
        let (from, to) = replacement_of_damaged(world, id, group)?;
        let why = format!("the replica on server {from} has damaged files, or is gone");
        Some(members_step(id, Some(to), Some(from), ChangeReason::Damaged, why))
    })
}

/// A damaged member, and the server that gets its replacement. The copy comes from a leader that is whole.
fn replacement_of_damaged(world: &World, id: GroupId, group: &GroupView) -> Option<(ServerId, ServerId)> {
    group.leader.filter(|leader| !group.unfit.contains_key(leader))?;
    group.unfit.iter().find_map(|(from, unfit)| {
        if let Some(to) = target(world, id, group, Some(*from)) {
            return Some((*from, to));
        }
        let is_safe = group.whole().count() > group.members.len() / 2;
        let can_take = *unfit == Unfit::Discardable && world.is(*from, |view| view.is_eligible());
        (is_safe && can_take).then_some((*from, *from))
    })
}

fn match_replication(world: &World) -> Option<Step> {
    let wanted = world.replication;
    changeable(world).find_map(|(id, group)| {
        let have = group.members.len();
        let why = format!("it has {have} of {wanted} replicas");
        if have < wanted {
            let to = target(world, id, group, None)?;
            return Some(members_step(id, Some(to), None, ChangeReason::Replication, why));
        }
        if have == wanted || wanted == 0 {
            return None;
        }
        let replicas = world.replicas();
        let leave = group.members.keys().copied().max_by_key(|server| {
            let view = world.servers.get(server);
            let is_lost = view.is_none_or(|view| view.condition == Condition::Lost);
            let is_draining = view.is_none_or(|view| view.draining);
            let leads = group.leader == Some(*server);
            let ready = group.ready.contains(server);
            let is_unfit = group.unfit.contains_key(server);
            (is_lost, is_unfit, !ready, is_draining, !leads, replicas.get(server).copied(), *server)
        })?;
        Some(members_step(id, None, Some(leave), ChangeReason::Replication, why))
    })
}

fn drain_leader(world: &World) -> Option<Step> {
    let leaders = world.leaders();
    world.groups.iter().find_map(|(id, group)| {
        let from = group.leader.filter(|leader| world.is(*leader, |view| view.draining))?;
        let others = group.whole().filter(|server| world.is(*server, |view| view.is_eligible()));
        let to =
            others.min_by_key(|server| (leaders.get(server).copied(), *server != group.planned_leader, *server))?;
        let action = Action::Transfer { from, to };
        Some(Step { group: *id, action, why: format!("server {from} is being drained") })
    })
}

fn drain_replica(world: &World) -> Option<Step> {
    changeable(world).find_map(|(id, group)| {
        let from = group.members.keys().copied().find(|server| world.is(*server, |view| view.draining))?;
        let to = target(world, id, group, Some(from))?;
        let why = format!("server {from} is being drained");
        Some(members_step(id, Some(to), Some(from), ChangeReason::Drain, why))
    })
}

/// A group of which two members share a zone, while a server of a zone without a member could take one of them.
fn separate_zones(world: &World) -> Option<Step> {
    balanceable(world).find_map(|(id, group)| {
        let mut members: BTreeMap<&str, Vec<ServerId>> = BTreeMap::new();
        for server in group.members.keys().filter(|server| !world.zone(**server).is_empty()) {
            members.entry(world.zone(*server)).or_default().push(*server);
        }
        let shared = members.iter().find(|(_, servers)| servers.len() > 1);
        let (zone, servers) = shared?;
        let from = servers.iter().copied().find(|server| group.leader != Some(*server))?;
        let to = target(world, id, group, Some(from))?;
        if world.zone(to).is_empty() || members.contains_key(world.zone(to)) {
            return None;
        }
        let why = format!("two of its replicas are in zone {zone}, none in zone {}", world.zone(to));
        Some(members_step(id, Some(to), Some(from), ChangeReason::Balance, why))
    })
}

/// By how much the counts of two servers may differ: 10 % of the share, and 1 in any case, since counts are whole.
fn tolerance(total: usize, servers: usize) -> usize {
    (total / servers.max(1) / 10).max(1)
}

/// The pairs of servers of which one has too many and the other too few, the most uneven first.
pub(super) fn uneven(counts: &BTreeMap<ServerId, usize>, among: &[ServerId]) -> Vec<(ServerId, ServerId)> {
    let of = |server: &ServerId| counts.get(server).copied().unwrap_or(0);
    let tolerance = tolerance(among.iter().map(of).sum(), among.len());
    let pairs = among.iter().flat_map(|more| among.iter().map(move |fewer| (*more, *fewer)));
    let mut pairs: Vec<_> = pairs.filter(|(more, fewer)| of(more).saturating_sub(of(fewer)) > tolerance).collect();
    pairs.sort_by_key(|(more, fewer)| (std::cmp::Reverse(of(more)), of(fewer), *more, *fewer));
    pairs
}

fn spread_replicas(world: &World) -> Option<Step> {
    let counts = world.replicas();
    let pairs = uneven(&counts, &world.eligible());
    pairs.into_iter().find_map(|(from, to)| {
        let moves = balanceable(world)
            .filter(|(_, group)| group.members.contains_key(&from) && !group.members.contains_key(&to))
            .filter(|(_, group)| keeps_zones(world, group, from, to));
        // The leader's replica costs a transfer more; of the others, the smallest costs the least.
        let (id, _) = moves.min_by_key(|(id, group)| (group.leader == Some(from), group.bytes, *id))?;
        let why = format!("server {from} has {} replicas, server {to} has {}", counts[&from], counts[&to]);
        Some(members_step(id, Some(to), Some(from), ChangeReason::Balance, why))
    })
}

/// Whether a move leaves the members in no fewer zones.
fn keeps_zones(world: &World, group: &GroupView, from: ServerId, to: ServerId) -> bool {
    let mut stay = group.members.keys().filter(|server| **server != from);
    let zone = world.zone(to);
    zone == world.zone(from) || (!zone.is_empty() && stay.all(|server| world.zone(*server) != zone))
}

/// Moves a leadership towards the server with the fewest. No group may have members on both ends, so the shortest chain
/// of transfers is looked for; its last link is the step.
fn spread_leaders(world: &World) -> Option<Step> {
    let counts = world.leaders();
    let among: Vec<ServerId> =
        world.eligible().into_iter().filter(|server| world.is(*server, |view| view.settled)).collect();
    let mut tried = BTreeSet::new();
    uneven(&counts, &among).into_iter().find_map(|(most, fewest)| {
        let (group, from, to) = tried.insert(most).then(|| last_link(world, &among, &counts, most))??;
        let why = format!("server {most} leads {} groups, server {fewest} leads {}", counts[&most], counts[&fewest]);
        Some(Step { group, action: Action::Transfer { from, to }, why })
    })
}

/// The last transfer of the shortest chain from a server to one that leads at least two groups fewer.
fn last_link(
    world: &World,
    among: &[ServerId],
    counts: &BTreeMap<ServerId, usize>,
    most: ServerId,
) -> Option<(GroupId, ServerId, ServerId)> {
    let enough = counts[&most].saturating_sub(2);
    let mut reached: BTreeMap<ServerId, Option<(GroupId, ServerId)>> = BTreeMap::from([(most, None)]);
    let mut queue = VecDeque::from([most]);
    while let Some(server) = queue.pop_front() {
        if let Some((group, leader)) = reached.get(&server).copied().flatten()
            && counts[&server] <= enough
        {
            return Some((group, leader, server));
        }
        let mut hops: Vec<(bool, GroupId, ServerId)> = led_by(world, server)
            .flat_map(|(id, group)| group.whole().map(move |to| (to != group.planned_leader, id, to)))
            .filter(|(_, _, to)| among.contains(to))
            .collect();
        hops.sort_unstable();
        for (_, group, to) in hops {
            reached.entry(to).or_insert_with(|| {
                queue.push_back(to);
                Some((group, server))
            });
        }
    }
    None
}

/// The groups that a server leads and whose members are not changing.
fn led_by(world: &World, server: ServerId) -> impl Iterator<Item = (GroupId, &GroupView)> {
    let is_led = move |(_, group): &(&GroupId, &GroupView)| group.leader == Some(server) && group.busy.is_empty();
    world.groups.iter().filter(is_led).map(|(group, view)| (*group, view))
}

#[cfg(test)]
mod tests;
