//! Plans groups when servers join, and orders their members to create their replicas.

use futures::future::join_all;
use terrane_types::{Error, GroupId, ReplicaId, ServerId};

use super::group_creation::{GroupCreation, Phase};
use super::{RETRY_FIRST, RETRY_MAX};
use crate::backoff::Backoff;
use crate::catalog::CatalogEdit;
use crate::catalog::groups::{GroupEntry, GroupPlan, GroupState};
use crate::context::{MasterContext, Subject};
use crate::planner::{Fleet, plan_groups};

/// Records the intent to create the groups that are missing.
pub async fn plan(context: &MasterContext) {
    let (expected, groups) = context.journal.read(|catalog| {
        let live = context.observed.with(|observed| {
            let is_free = |id: &ServerId| observed.liveness.is_live(*id) && catalog.servers().drain(*id).is_none();
            catalog.servers().iter().map(|(server, _)| server).filter(is_free).collect()
        });
        let known = catalog.groups().iter().map(|(_, group)| GroupPlan {
            leader: group.planned_leader,
            servers: group.members.values().copied().collect(),
        });
        let fleet = Fleet {
            live,
            groups: known.collect(),
            replication: usize::try_from(catalog.replication()).unwrap_or(0),
            led_by_each: context.groups_per_server,
        };
        (catalog.next_group(), plan_groups(&fleet))
    });
    if groups.is_empty() {
        return;
    }
    let count = groups.len();
    match context.journal.record(&CatalogEdit::AddGroups { expected, groups }).await {
        Ok(_) => tracing::info!(count, "creating groups"),
        // The next change of the catalog, or of which servers are live, plans again.
        Err(error) => tracing::warn!(%error, "cannot record the plan of new groups; it is planned again"),
    }
}

/// Orders the members of a group, phase by phase, and opens the group.
pub async fn perform(context: &MasterContext, group: GroupId) -> Result<(), Error> {
    let Some((entry, mut creation)) = resume(context, group) else { return Ok(()) };
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    // If its members change, or it is abandoned, the driver starts over with what the catalog then says.
    while context.journal.read(|catalog| catalog.groups().get(group) == Some(&entry)) {
        let is_live = |replica: ReplicaId| {
            let server = entry.members.get(&replica).copied().unwrap_or_default();
            context.observed.with(|observed| observed.liveness.is_live(server))
        };
        creation.stand_in(entry.members.keys().copied(), is_live);
        let phase = creation.phase();
        if phase == Phase::Complete {
            return context.journal.record(&CatalogEdit::OpenGroup { group }).await.map(|_| ());
        }
        if entry.state == GroupState::Creating && creation.serves_without(is_live) {
            context.journal.record(&CatalogEdit::ServeGroup { group }).await?;
            continue;
        }
        terrane_env::buggify_pause!("a new group waits between two rounds").await;
        context.leadership.confirm().await?;
        let waiting = round(context, group, &entry, &mut creation, is_live).await;
        context.note_steps(Subject::Group(group), creation.missing(), entry.members.len());
        if creation.phase() == phase {
            context.begin_wait(Subject::Group(group), waiting);
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }
    Ok(())
}

/// The creation as the catalog asks for it. A member that joined a serving group later is not created a second time.
fn resume(context: &MasterContext, group: GroupId) -> Option<(GroupEntry, GroupCreation)> {
    let entry = context.journal.read(|catalog| catalog.groups().get(group).cloned())?;
    let mut creation = GroupCreation::resume(&entry)?;
    if entry.state == GroupState::Partial {
        context.observed.with(|observed| {
            for (replica, server) in &entry.members {
                let replicas = observed.inventory.replicas(*server);
                if replicas.is_some_and(|replicas| replicas.get(&group).is_some_and(|seen| seen.replica == *replica)) {
                    creation.created(*replica);
                }
            }
        });
    }
    Some((entry, creation))
}

/// Orders every member whose turn it is; returns one that did not follow, and why. Those whose servers are not live get their
/// orders when they are: a server that does not answer would hold up the others.
async fn round(
    context: &MasterContext,
    group: GroupId,
    entry: &GroupEntry,
    creation: &mut GroupCreation,
    is_live: impl Fn(ReplicaId) -> bool,
) -> String {
    let (next, away): (Vec<ReplicaId>, Vec<ReplicaId>) = creation.next().into_iter().partition(|next| is_live(*next));
    let next: Vec<(ReplicaId, bool)> = next.into_iter().map(|replica| (replica, creation.is_first(replica))).collect();
    let orders = next.into_iter().map(|(replica, lead)| async move {
        let at = (replica, entry.members[&replica]);
        (replica, context.orders.create_group(group, entry, at, lead).await)
    });
    let place = |replica: ReplicaId| {
        let server = entry.members[&replica];
        (server, context.journal.read(|catalog| catalog.servers().address(server)))
    };
    let mut waiting = String::new();
    if let Some((server, address)) = away.first().map(|replica| place(*replica)) {
        let state = context.observed.with(|observed| observed.liveness.state(server).name());
        waiting = format!("group {group} on server {server} ({address}), which is {state}");
    }
    for (replica, answer) in join_all(orders).await {
        let (server, address) = place(replica);
        match answer {
            Ok(true) => creation.created(replica),
            Ok(false) => {
                waiting = format!("group {group} has no leader yet; server {server} starts its first election")
            }
            Err(error) => waiting = format!("group {group} on server {server} ({address}): {error}"),
        }
    }
    waiting
}
