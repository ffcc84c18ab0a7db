//! The sweep of the staging room: what the groups here know of staged files.

use terrane_types::MoveId;

use super::Staging;
use super::retention::{Claim, LogRange, Logs, Mark};
use crate::group::proposal::GroupHost;
use crate::group::state::Arrival;
use crate::replicas::Replicas;

/// Removes files that no member needs any more. The first sweep of a process also finds the marks that an earlier one left.
pub async fn sweep(staging: &Staging, host: &GroupHost, replicas: &Replicas) {
    // Before the claims: a log that is purged meanwhile keeps its files until the next sweep.
    let logs = host.groups().into_iter().map(|group| {
        let status = group.status();
        let range = LogRange { first: group.first_index(), last: status.last_index, applied: status.applied };
        (group.id(), range)
    });
    let logs: Logs = logs.collect();
    staging.sweep(&logs, |id| claim(replicas, &logs, id)).await;
}

/// What the groups here know of a move.
fn claim(replicas: &Replicas, logs: &Logs, id: MoveId) -> Claim {
    let claim = replicas.machines().iter().find_map(|machine| match machine.arrival(id)? {
        Arrival::Refused => Some(Claim::Refused),
        // A group that has no log yet, or none any more, says nothing.
        Arrival::Adopted { index, .. } => {
            let group = machine.group();
            logs.contains_key(&group).then_some(Claim::Taken(Mark { group, index }))
        }
    });
    claim.unwrap_or(Claim::Unknown)
}
