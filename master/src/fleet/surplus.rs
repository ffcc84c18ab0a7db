//! Groups beyond those that the servers need are emptied, one at a time, and removed.
//!
//! Groups are made for the servers that there are, and stay when a server goes. A cluster that has shrunk, or that was made with
//! more groups per server, has more of them than it needs: each costs heartbeats, elections and replicas.
//!
//! The regions of a surplus group move to other groups, like in any move. The group is removed from the catalog when nothing is left
//! in it: no region in the map, no move from or to it, and no region on any of its members, as all of them have reported for a
//! while. Its replicas are strays from then on, and are removed as such.
//!
//! Nothing of this is journaled but the moves and the removal. Which group is emptied follows from the catalog, so the next master
//! continues with what the map then shows.
//!
//! Invariants: a group is removed only while the catalog has no region in it, which the edit checks again; nothing happens while
//! a server is away or drained, a group changes or has a member that is behind, a table changes, or builds are mixed.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::{GroupId, ServerId};

use super::spread::{RegionStep, Spread};
use super::world::World;
use crate::catalog::Catalog;
use crate::catalog::groups::{GroupEntry, GroupState};
use crate::catalog::tables::TableState;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// Moves out of a surplus group at a time: what clients ask for goes first.
const MOVES_MAX: usize = 2;

/// The part of the time of calm for which every member must have reported that it has no region of the group: half a minute of
/// ten.
const EMPTY_PART: u32 = 20;

/// A group that is being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retiring {
    /// The group.
    pub group: GroupId,
    /// The regions that it had at the beginning.
    pub regions: usize,
    /// When that was.
    pub since: Moment,
    /// Since when nothing is left in it.
    empty_since: Option<Moment>,
}

/// What the leading master knows of surplus groups.
#[derive(Clone, Debug, Default)]
pub struct Surplus {
    calm_since: Option<Moment>,
    /// It has begun, and goes on until there are as many groups as are wanted.
    is_shrinking: bool,
    retiring: Option<Retiring>,
    /// Why nothing happens, if something should.
    held: Option<String>,
}

/// What is looked at.
pub struct Sight<'a> {
    /// The catalog.
    pub catalog: &'a Catalog,
    /// What is observed.
    pub observed: &'a Observations,
    /// Servers and groups.
    pub world: &'a World,
    /// Regions and groups.
    pub spread: &'a Spread,
    /// Groups that each server is to lead.
    pub each: usize,
    /// For so long no server may have come or gone before a group is emptied.
    pub calm: Duration,
    /// Whether processes of several builds run.
    pub mixed_builds: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// These regions leave.
    Move(Vec<RegionStep>),
    /// The group is empty.
    Remove(GroupId),
}

impl Surplus {
    /// The group that is being emptied: it gets no regions.
    pub fn retiring(&self) -> Option<Retiring> {
        self.retiring
    }

    /// Why it is not emptied just now.
    pub fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    /// Decides what to do at this time.
    pub fn look(&mut self, sight: &Sight<'_>, now: Moment) -> Next {
        let total = sight.catalog.groups().len();
        let wanted = sight.world.eligible().len() * sight.each;
        self.held = instability(sight);
        if self.held.is_some() {
            self.calm_since = None;
            return Next::Nothing;
        }
        let calm_for = now.since(*self.calm_since.get_or_insert(now));
        // One server that comes and goes makes no difference.
        let begins = total >= wanted + sight.each;
        if wanted == 0 || total <= wanted || (!self.is_shrinking && !begins) {
            (self.is_shrinking, self.retiring) = (false, None);
            return Next::Nothing;
        }
        if calm_for < sight.calm {
            self.held = Some("servers have come or gone lately".to_owned());
            return Next::Nothing;
        }
        self.held = pause(sight);
        if self.held.is_some() {
            return Next::Nothing;
        }
        self.is_shrinking = true;
        let known = self.retiring.filter(|retiring| sight.catalog.groups().get(retiring.group).is_some());
        let Some(mut retiring) = known.or_else(|| choose(sight, now)) else { return Next::Nothing };
        let next = empty(sight, &mut retiring, now);
        self.retiring = Some(retiring);
        next
    }
}

/// Why the cluster is not at rest: what is surplus may be needed again.
fn instability(sight: &Sight<'_>) -> Option<String> {
    let Sight { world, .. } = sight;
    if let Some((server, _)) = world.servers.iter().find(|(_, view)| !view.is_eligible()) {
        return Some(format!("server {server} is away or drained"));
    }
    sight.mixed_builds.then(|| "processes of several builds run".to_owned())
}

/// Why nothing may happen for the moment.
fn pause(sight: &Sight<'_>) -> Option<String> {
    let Sight { catalog, world, spread, .. } = sight;
    if let Some(hold) = &spread.hold {
        return Some(hold.clone());
    }
    let is_whole = |entry: &GroupEntry, group: &GroupId| {
        let view = world.groups.get(group).filter(|view| view.busy.is_empty() && view.leader.is_some());
        entry.state == GroupState::Open && view.is_some_and(|view| view.ready.len() == view.members.len())
    };
    if let Some((group, _)) = catalog.groups().iter().find(|(group, entry)| !is_whole(entry, group)) {
        return Some(format!("group {group} is changing, or a member of it is behind"));
    }
    let changing = catalog.tables().iter().find(|table| table.state != TableState::Enabled);
    changing.map(|table| format!("table {} is {}", table.schema.name, table.state.name()))
}

/// The group that is emptied next: the one with the fewest regions, and of these the newest.
fn choose(sight: &Sight<'_>, now: Moment) -> Option<Retiring> {
    let regions = sight.catalog.regions_per_group();
    let count = |group: &GroupId| usize::try_from(regions.get(group).copied().unwrap_or(0)).unwrap_or(usize::MAX);
    let group = sight.catalog.groups().iter().map(|(group, _)| group);
    let group = group.min_by_key(|group| (count(group), std::cmp::Reverse(*group)))?;
    Some(Retiring { group, regions: count(&group), since: now, empty_since: None })
}

fn empty(sight: &Sight<'_>, retiring: &mut Retiring, now: Moment) -> Next {
    let group = retiring.group;
    let moving = sight.catalog.moves().iter().filter(|(_, known)| known.region.group == group || known.to == group);
    let under_way = moving.count();
    let left = sight.catalog.regions().iter().filter(|entry| entry.descriptor.group == group).count();
    if left > 0 {
        retiring.empty_since = None;
        let steps = leave(sight, group, MOVES_MAX.saturating_sub(under_way));
        return if steps.is_empty() { Next::Nothing } else { Next::Move(steps) };
    }
    if under_way > 0 || !is_empty_everywhere(sight, group) {
        retiring.empty_since = None;
        return Next::Nothing;
    }
    let empty_since = *retiring.empty_since.get_or_insert(now);
    if now.since(empty_since) >= sight.calm / EMPTY_PART { Next::Remove(group) } else { Next::Nothing }
}

/// Whether every member reports that it has no region of the group, not even one that is about to leave.
fn is_empty_everywhere(sight: &Sight<'_>, group: GroupId) -> bool {
    let Some(entry) = sight.catalog.groups().get(group) else { return false };
    entry.members.iter().all(|(replica, server)| {
        let seen = sight.observed.inventory.replicas(*server).and_then(|replicas| replicas.get(&group));
        seen.is_some_and(|seen| seen.replica == *replica && seen.regions == Some(0))
    })
}

/// The next regions to leave a group, each for the server with the fewest regions and there for the group with the fewest.
fn leave(sight: &Sight<'_>, group: GroupId, room: usize) -> Vec<RegionStep> {
    let spread = sight.spread;
    let Some(own) = spread.groups.get(&group).filter(|own| own.ready) else { return Vec::new() };
    let mut of_groups: BTreeMap<GroupId, usize> = BTreeMap::new();
    let mut of_servers: BTreeMap<ServerId, usize> = BTreeMap::new();
    for region in spread.regions.values() {
        *of_groups.entry(region.group).or_default() += 1;
        if let Some(known) = spread.groups.get(&region.group) {
            *of_servers.entry(known.leader).or_default() += 1;
        }
    }
    let mut steps = Vec::new();
    let leaving = spread.regions.iter().filter(|(_, region)| region.group == group && !region.pinned && !region.rests);
    for (region, known) in leaving.take(room) {
        of_servers.entry(own.leader).and_modify(|count| *count -= 1);
        let others = spread.groups.iter().filter(|(other, share)| **other != group && share.ready);
        let best = others.min_by_key(|(other, share)| {
            let on_server = of_servers.get(&share.leader).copied().unwrap_or(0);
            (on_server, of_groups.get(*other).copied().unwrap_or(0), **other)
        });
        let Some((to, share)) = best else { break };
        *of_servers.entry(share.leader).or_default() += 1;
        *of_groups.entry(*to).or_default() += 1;
        let why = format!("group {group} is surplus: there are {} groups", sight.catalog.groups().len());
        let (from, to) = ((group, own.leader), (*to, share.leader));
        steps.push(RegionStep { region: *region, epoch: known.epoch, from, to, merge_with: None, why });
    }
    steps
}
