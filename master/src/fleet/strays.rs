//! Replicas that no catalog lists, and new groups that cannot be created as planned.
//!
//! A replica leaves its group while its server is away; when the server is back, it reports the replica, and is ordered to
//! remove it. The catalog alone does not decide that: the group's leader must not name the replica either.
//!
//! After a rebuild of the catalog, this includes replicas that the lost catalog ordered: some had not joined yet, others had
//! already left.
//!
//! Invariant: a replica is never a member again after it was removed, so an old catalog or a late report can delay the
//! removal of a stray, but never makes a member one.

use std::time::Duration;

use terrane_types::{GroupId, ReplicaId, ServerId};

use crate::catalog::Catalog;
use crate::catalog::groups::GroupState;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// A new group is planned with other servers if one of its servers has not been live for so long.
const ABANDON_AFTER: Duration = Duration::from_secs(10);

/// What does not belong where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// A replica on a server that is no member of its group.
    Replica { group: GroupId, replica: ReplicaId, server: ServerId },
    /// A learner of a group that the catalog does not have.
    Member { group: GroupId, replica: ReplicaId },
    /// A group that was never opened, and a server of which does not report.
    Group { group: GroupId },
}

/// The strays as of the newest reports.
pub fn find(catalog: &Catalog, observed: &Observations, now: Moment) -> Vec<Stray> {
    let mut strays = Vec::new();
    for (server, _) in catalog.servers().iter().filter(|(server, _)| observed.liveness.is_live(*server)) {
        for (group, seen) in observed.inventory.replicas(server).into_iter().flatten() {
            let (group, replica) = (*group, seen.replica);
            if is_stray_replica(catalog, observed, server, group, replica) {
                strays.push(Stray::Replica { group, replica, server });
            }
        }
    }
    let regions = catalog.regions().per_group();
    for (group, entry) in catalog.groups().iter() {
        let is_gone = |server: &ServerId| {
            !observed.liveness.is_live(*server) && observed.liveness.away_for(*server, now) >= ABANDON_AFTER
        };
        if entry.state == GroupState::Creating && entry.members.values().any(is_gone) && !regions.contains_key(&group) {
            strays.push(Stray::Group { group });
        }
        if entry.change.is_some() || observed.leader(group).is_none() {
            continue;
        }
        let named = observed.inventory.group(group).into_iter().flat_map(|view| &view.members);
        let strangers = named.filter(|member| !member.voter && entry.server_of(member.replica).is_none());
        strays.extend(strangers.map(|member| Stray::Member { group, replica: member.replica }));
    }
    strays
}

fn is_stray_replica(
    catalog: &Catalog,
    observed: &Observations,
    server: ServerId,
    group: GroupId,
    replica: ReplicaId,
) -> bool {
    if replica.0 == 0 || group == GroupId::MASTER || !catalog.may_have_assigned(replica) {
        return false;
    }
    match catalog.groups().get(group) {
        // A group is removed if it was never opened, or when it is empty.
        None => catalog.has_assigned_group(group),
        Some(entry) if entry.server_of(replica) == Some(server) => {
            entry.change.is_some() && terrane_env::planted!("a replica is removed while its group changes")
        }
        Some(_) => {
            let view = observed.leader(group).and_then(|_| observed.inventory.group(group));
            view.is_some_and(|view| !view.members.is_empty() && view.member(replica).is_none())
        }
    }
}
