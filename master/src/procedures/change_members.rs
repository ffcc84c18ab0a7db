//! Carries out changes of members: sends the order of the next step or records it, and looks again.

use std::collections::BTreeSet;
use std::time::Duration;

use terrane_types::{Error, GroupId, ReplicaId};

use super::member_change::{Advance, Known, Next, next};
use super::{RETRY_FIRST, RETRY_MAX};
use crate::backoff::Backoff;
use crate::catalog::CatalogEdit;
use crate::catalog::changes::MemberChange;
use crate::catalog::groups::GroupEntry;
use crate::context::{MasterContext, Subject};
use crate::history::chronicle;
use crate::servers::observed::now;

/// Drives the journaled change of a group's members to its end.
pub async fn perform(context: &MasterContext, group: GroupId) -> Result<(), Error> {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let mut run = Run::default();
    loop {
        let Some((entry, step)) = decide(context, group, &mut run) else { return Ok(()) };
        terrane_env::buggify_pause!("a change of members waits between two steps").await;
        context.leadership.confirm().await?;
        let waits_for = match &step {
            Next::Wait { what } => Some(what.clone()),
            step => match carry_out(context, group, &entry, step, &mut run).await {
                Ok(()) if run.made.contains(step) => Some(format!("{}, once more", describe(group, step))),
                Ok(()) => {
                    run.made.push(step.clone());
                    None
                }
                Err(error) => {
                    if let Next::Transfer { to } = step {
                        run.declined.insert(*to);
                    }
                    Some(format!("{}: {error}", describe(group, step)))
                }
            },
        };
        match waits_for {
            None => {
                context.end_wait(Subject::Members(group));
                backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
            }
            Some(what) => {
                context.begin_wait(Subject::Members(group), what);
                tokio::time::sleep(backoff.next_wait()).await;
            }
        }
    }
}

/// What one run of a change remembers. Bounded by the steps that a change has.
#[derive(Default)]
struct Run {
    /// The steps that were made. One that is made again had no lasting effect: a leadership was given back, for example.
    made: Vec<Next>,
    /// The members that did not take over the leadership when ordered to.
    declined: BTreeSet<ReplicaId>,
    /// How far the new replica got.
    advance: Advance,
    /// The members as the leader named them after it last confirmed a change of the voters.
    named: Option<Vec<ReplicaId>>,
}

fn decide(context: &MasterContext, group: GroupId, run: &mut Run) -> Option<(GroupEntry, Next)> {
    context.journal.read(|catalog| {
        let entry = catalog.groups().get(group)?;
        let change: MemberChange = entry.change?;
        context.observed.with(|observed| {
            let live: BTreeSet<_> = entry.servers().into_iter().filter(|id| observed.liveness.is_live(*id)).collect();
            let present =
                change.add.and_then(|(_, server)| Some(observed.inventory.replicas(server)?.get(&group)?.replica));
            let damaged = observed.inventory.damaged(group);
            let view = observed.inventory.group(group);
            let advanced = change.add.map(|(replica, _)| {
                let member = view.and_then(|view| view.member(replica));
                run.advance.look(member, now())
            });
            let known = Known {
                leader: observed.leader(group),
                view,
                live: &live,
                joined: change.add.is_some_and(|(replica, _)| present == Some(replica)),
                present,
                damaged: &damaged,
                target_quiet_for: change
                    .add
                    .map(|(_, server)| observed.liveness.away_for(server, now()))
                    .unwrap_or_default(),
                stuck_for: advanced.unwrap_or(Duration::ZERO),
                declined: &run.declined,
                named: run.named.as_deref(),
            };
            Some((entry.clone(), next(group, entry, &known)?))
        })
    })
}

async fn carry_out(
    context: &MasterContext,
    group: GroupId,
    entry: &GroupEntry,
    step: &Next,
    run: &mut Run,
) -> Result<(), Error> {
    let version = entry.version;
    let record = |edit: CatalogEdit| async move { context.journal.record(&edit).await.map(drop) };
    match step {
        Next::Join { replica, server, discard } => {
            context.orders.join_group(group, entry, *replica, *server, *discard).await?;
            context.observed.with(|observed| observed.inventory.note_replica(*server, group, *replica));
        }
        Next::Learn { replica, server } => {
            context.orders.add_learner(group, *replica, *server).await?;
        }
        Next::Vote { promote, remove } => {
            let members = context.orders.change_voters(group, *promote, *remove).await?;
            // A leader that has just lost its leadership names none.
            run.named = Some(members).filter(|members| !members.is_empty());
        }
        Next::Transfer { to } => {
            let (server, reason) = (entry.server_of(*to), entry.change.map_or("", |change| change.reason.name()));
            let why = format!("the members of the group change ({reason}), and the leader leaves");
            server.iter().for_each(|server| chronicle::hands_over(context, group, *server, &why));
            context.orders.transfer_leader(group, *to).await?;
            server.iter().for_each(|server| chronicle::handed_over(context, group, *server));
        }
        Next::Recover { replica, server } => {
            context.orders.recover_replica(group, entry, *replica, *server).await?;
        }
        Next::Promote => record(CatalogEdit::PromoteMember { group, version }).await?,
        Next::Undo { why } => {
            tracing::info!(%group, why, "a change of members is undone");
            record(CatalogEdit::UndoMembers { group, version }).await?;
        }
        Next::End { members } => {
            tracing::info!(%group, ?members, "the members of a group have changed");
            record(CatalogEdit::EndMembers { group, version, members: members.clone() }).await?;
        }
        Next::Wait { .. } => {}
    }
    Ok(())
}

fn describe(group: GroupId, step: &Next) -> String {
    match step {
        Next::Join { server, .. } => format!("server {server}, to create a replica of group {group}"),
        Next::Learn { server, .. } => format!("the leader of group {group}, to add server {server}"),
        Next::Vote { .. } => format!("the leader of group {group}, to change its voters"),
        Next::Transfer { to } => format!("the leader of group {group}, to hand over to replica {to}"),
        Next::Recover { server, .. } => format!("server {server}, to recover group {group}"),
        Next::Promote | Next::Undo { .. } | Next::End { .. } | Next::Wait { .. } => "the catalog".to_owned(),
    }
}
