//! What the planner of region moves looks at: built from the catalog and from what is observed.

use terrane_types::{RegionId, ServerId};

use super::loads::LoadAverages;
use super::spread::{GroupShare, RegionShare, Spread};
use super::world::{Condition, World};
use crate::catalog::Catalog;
use crate::catalog::regions::RegionEntry;
use crate::catalog::tables::TableState;
use crate::servers::observed::Observations;

/// A region that was split, merged or created so short a time ago is not moved yet: its size and load are not known.
const FRESH_MS: u64 = 10_000;

/// How long a region rests after a move for balance was made or undone.
fn rest_ms() -> u64 {
    terrane_env::limit!("seconds that a region rests after a move", 300, 5..=60) * 1_000
}

/// The regions with their groups as in this world.
pub fn spread(catalog: &Catalog, observed: &Observations, loads: &LoadAverages, world: &World, wall_ms: u64) -> Spread {
    let servers: Vec<ServerId> = world.eligible();
    let groups = world.groups.iter().filter_map(|(group, view)| {
        let ready = view.busy.is_empty() && view.has_majority();
        Some((*group, GroupShare { leader: view.leader?, ready }))
    });
    let region = |entry: &RegionEntry| {
        let known = &entry.descriptor;
        let moving = catalog.moves().of_region(known.region).map(|(_, moving)| moving.to);
        let view = observed.inventory.region(known.group, known.region);
        let share = RegionShare {
            table: known.table,
            epoch: known.epoch,
            group: moving.unwrap_or(known.group),
            bytes: view.map_or(0, |view| view.bytes),
            units: loads.of(known.region).unwrap_or(0.0),
            pinned: moving.is_some() || is_fresh(catalog, entry, wall_ms),
            rests: has_moved(catalog, known.region, wall_ms),
        };
        (known.region, share)
    };
    let mut spread = Spread {
        servers,
        groups: groups.collect(),
        regions: catalog.regions().iter().map(region).collect(),
        tables: catalog.tables().iter().map(|table| (table.schema.table, table.schema.name.to_string())).collect(),
        hold: hold(world),
        ..Spread::default()
    };
    for (_, known) in catalog.moves().iter() {
        for group in [known.region.group, known.to] {
            if let Some(leader) = spread.groups.get(&group).map(|group| group.leader) {
                *spread.moving.entry(leader).or_default() += 1;
            }
        }
    }
    spread
}

/// Whether a region is left as it is for now.
pub fn rests(catalog: &Catalog, entry: &RegionEntry, wall_ms: u64) -> bool {
    is_fresh(catalog, entry, wall_ms) || has_moved(catalog, entry.descriptor.region, wall_ms)
}

/// Whether a region, or its table, was changed a moment ago.
fn is_fresh(catalog: &Catalog, entry: &RegionEntry, wall_ms: u64) -> bool {
    let table = catalog.tables().get(entry.descriptor.table);
    table.is_none_or(|table| table.state != TableState::Enabled) || wall_ms < entry.since_ms.saturating_add(FRESH_MS)
}

/// Whether a region's last move ended so recently that it rests.
fn has_moved(catalog: &Catalog, region: RegionId, wall_ms: u64) -> bool {
    let ended = catalog.moves().ended().rev().find(|ended| ended.region == region);
    ended.is_some_and(|ended| wall_ms < ended.ended_ms.saturating_add(rest_ms()))
}

/// Why no region may move now: where leaderships are about to go, the shares of servers say nothing.
fn hold(world: &World) -> Option<String> {
    let replicas = world.replicas();
    let has_replicas = |server: &ServerId| replicas.get(server).is_some_and(|count| *count > 0);
    for (server, view) in world.servers.iter().filter(|(server, _)| has_replicas(server)) {
        match view.condition {
            Condition::Live if view.draining => return Some(format!("server {server} is being drained")),
            Condition::Live if !view.settled => return Some(format!("server {server} has just joined or failed")),
            Condition::Live => {}
            Condition::Away(_) => return Some(format!("server {server} is away")),
            Condition::Lost => return Some(format!("server {server} is being replaced")),
        }
    }
    let leaderless = world.groups.iter().find(|(_, view)| view.leader.is_none());
    leaderless.map(|(group, _)| format!("group {group} has no leader"))
}
