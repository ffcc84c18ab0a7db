//! Makes groups: plans them when servers come, and tells their members.

use std::collections::BTreeMap;

use futures::future::join_all;
use terrane_types::{Error, GroupId, ReplicaId, ServerId};

use super::{Desk, RETRY_FIRST, RETRY_MAX, Subject};
use crate::backoff::Backoff;
use crate::catalog::CatalogEdit;
use crate::catalog::groups::{GroupEntry, GroupPlan, GroupState};
use crate::planner::{Fleet, plan_groups};

/// Records the intent of whatever groups are still to be made.
pub async fn plan(desk: &Desk) {
    let (expected, groups) = desk.journal.read(|catalog| {
        let live = desk.observed.with(|sight| {
            catalog.servers().iter().map(|(server, _)| server).filter(|id| sight.liveness.is_live(*id)).collect()
        });
        let known = catalog.groups().iter().map(|(_, group)| GroupPlan {
            leader: group.planned_leader,
            servers: group.members.values().copied().collect(),
        });
        let fleet = Fleet {
            live,
            groups: known.collect(),
            replication: usize::try_from(catalog.replication()).unwrap_or(0),
            led_by_each: desk.groups_per_server,
        };
        (catalog.next_group(), plan_groups(&fleet))
    });
    if groups.is_empty() {
        return;
    }
    let count = groups.len();
    match desk.journal.record(&CatalogEdit::AddGroups { expected, groups }).await {
        Ok(_) => tracing::info!(count, "groups are being made"),
        // The next change of the catalog, or of who is live, plans again.
        Err(error) => tracing::warn!(%error, "groups could not be planned"),
    }
}

/// Tells every member of a group; the one that is to lead it last, since its election needs a quorum of the others.
pub async fn perform(desk: &Desk, group: GroupId) -> Result<(), Error> {
    let entry = desk.journal.read(|catalog| catalog.groups().get(group).cloned());
    let Some(entry) = entry.filter(|entry| entry.state == GroupState::Creating) else { return Ok(()) };
    let leads = |(_, server): &(&ReplicaId, &ServerId)| **server == entry.planned_leader;
    let (leader, followers): (BTreeMap<_, _>, BTreeMap<_, _>) = entry.members.iter().partition(leads);
    let quorum = entry.members.len() / 2 + 1;
    let mut told = Told { desk, group, entry: &entry, backoff: Backoff::new(RETRY_FIRST, RETRY_MAX) };
    let rest = told.tell(followers, quorum - 1).await;
    told.tell(leader, 1).await;
    let everyone = rest.len();
    told.tell(rest, everyone).await;
    desk.journal.record(&CatalogEdit::OpenGroup { group }).await.map(|_| ())
}

struct Told<'a> {
    desk: &'a Desk,
    group: GroupId,
    entry: &'a GroupEntry,
    backoff: Backoff,
}

impl<'a> Told<'a> {
    /// Tells these members, again and again, until `enough` of them have answered; the others are returned.
    async fn tell(
        &mut self,
        mut members: BTreeMap<&'a ReplicaId, &'a ServerId>,
        enough: usize,
    ) -> BTreeMap<&'a ReplicaId, &'a ServerId> {
        let left_max = members.len() - enough;
        loop {
            let (desk, group, entry) = (self.desk, self.group, self.entry);
            let answers = join_all(members.iter().map(|(replica, server)| async {
                (*replica, desk.orders.create_group(group, entry, **replica, **server).await)
            }));
            let mut waiting = String::new();
            for (replica, answer) in answers.await {
                match answer {
                    Ok(()) => drop(members.remove(replica)),
                    Err(error) => waiting = format!("group {group} on server {}: {error}", entry.members[replica]),
                }
            }
            if members.len() <= left_max {
                return members;
            }
            desk.wait(Subject::Group(group), waiting);
            tokio::time::sleep(self.backoff.next_wait()).await;
        }
    }
}
