//! The sweep of the staging room: what the groups here know of staged files, looked at now and then.

use std::sync::Arc;
use std::time::Duration;

use terrane_types::MoveId;
use tokio_util::sync::CancellationToken;

use super::Staging;
use super::retention::{Claim, LogRange, Logs, Mark};
use crate::group::proposal::GroupHost;
use crate::group::state::Arrival;
use crate::replicas::Replicas;

const INTERVAL: Duration = Duration::from_secs(30);

/// Removes files that no member needs any more, until `stop`. The first look is at once: it also finds the marks that an
/// earlier process left.
pub async fn watch(staging: Arc<Staging>, host: Arc<GroupHost>, replicas: Arc<Replicas>, stop: CancellationToken) {
    let seconds = terrane_env::limit!("seconds between sweeps of staged files", INTERVAL.as_secs(), 1..=3);
    let mut turn = tokio::time::interval(Duration::from_secs(seconds));
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = turn.tick() => {}
        }
        let logs = host.groups().into_iter().map(|group| {
            let status = group.status();
            let range = LogRange { first: group.first_index(), last: status.last_index, applied: status.applied };
            (group.id(), range)
        });
        let logs: Logs = logs.collect();
        staging.sweep(&logs, |id| claim(&replicas, &logs, id)).await;
    }
}

/// What the groups here know of a move.
fn claim(replicas: &Replicas, logs: &Logs, id: MoveId) -> Claim {
    let claims = replicas.machines().into_iter().filter_map(|machine| match machine.arrival(id)? {
        Arrival::Refused => Some(Claim::Refused),
        // A group that has no log yet, or none any more, says nothing.
        Arrival::Adopted { index, .. } => {
            let group = machine.group();
            logs.contains_key(&group).then_some(Claim::Taken(Mark { group, index }))
        }
    });
    claims.into_iter().next().unwrap_or(Claim::Unknown)
}
