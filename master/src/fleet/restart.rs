//! Whether a server can be stopped now: every group must keep a majority of voters that are live and caught up.

use terrane_types::{GroupId, ServerId};

use crate::catalog::Catalog;
use crate::catalog::groups::GroupEntry;
use crate::servers::observed::Observations;

/// What speaks against stopping a server, one sentence per group; empty: nothing.
pub fn obstacles(catalog: &Catalog, observed: &Observations, server: ServerId) -> Vec<String> {
    let on = catalog.groups().iter().filter(|(_, entry)| entry.servers().contains(&server));
    on.filter_map(|(group, entry)| obstacle(observed, group, entry, server)).collect()
}

fn obstacle(observed: &Observations, group: GroupId, entry: &GroupEntry, server: ServerId) -> Option<String> {
    if !entry.is_open() {
        return Some(format!("group {group} is being created"));
    }
    if observed.leader(group).is_none() {
        return Some(format!("group {group} has no leader"));
    }
    let view = observed.inventory.group(group)?;
    if view.members.is_empty() {
        return Some(format!("the leader of group {group} has not named its members yet"));
    }
    let voters = || view.members.iter().filter(|member| member.voter);
    if voters().count() == 1 && voters().all(|member| member.server == server) {
        return Some(format!("group {group} has its only replica there"));
    }
    let is_ready = |server: ServerId| observed.liveness.is_live(server);
    let stays = voters().filter(|member| member.server != server);
    let ready = stays.filter(|member| is_ready(member.server) && view.is_caught_up(member)).count();
    let needed = voters().count() / 2 + 1;
    if ready >= needed {
        return None;
    }
    let behind = voters()
        .filter(|member| member.server != server && !(is_ready(member.server) && view.is_caught_up(member)))
        .map(|member| member.server.to_string());
    let behind: Vec<String> = behind.collect();
    Some(format!(
        "group {group} would keep {ready} of the {needed} replicas that it needs: server {} is away or behind",
        behind.join(" and ")
    ))
}
