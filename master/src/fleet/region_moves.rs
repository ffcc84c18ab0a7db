//! What an administrator asks about where a region is: moves to a server, and what has to move before a merge.
//!
//! A region is where its group's leader is, so a move to a server is one into a group which that server leads, or has a
//! replica of and can lead. Everything that cannot work is refused at once, with what would.

use terrane_proto::v1;
use terrane_types::states::MoveStage;
use terrane_types::{Error, GroupId, Invalid, RegionDescriptor, RegionId, ServerId};
use tokio::time::Instant;

use super::intents::resolve;
use super::world::{Condition, GroupView, World};
use crate::catalog::moves::{MoveEnd, MoveId, MovePlan, MoveReason};
use crate::catalog::tables::TableState;
use crate::catalog::{Catalog, CatalogEdit, Outcome};
use crate::context::{MasterContext, Subject};

fn invalid(what: String) -> Error {
    Error::Invalid(Invalid::new(what))
}

/// Begins to move a region to a server. A region that an administrator already moves there keeps its move.
pub async fn begin(context: &MasterContext, region: RegionId, server: &str) -> Result<v1::BeginMoveReply, Error> {
    let world = super::world(context);
    let (server, address, known) = context.journal.read(|catalog| {
        let server = resolve(catalog.servers(), server)?;
        let known =
            catalog.regions().get(region).map(|entry| entry.descriptor.clone()).ok_or_else(|| unknown(region))?;
        Ok::<_, Error>((server, catalog.servers().address(server), known))
    })?;
    let reply = |id: MoveId, to: GroupId| v1::BeginMoveReply {
        r#move: id.0,
        server: server.0,
        address: address.clone(),
        from_group: known.group.0,
        to_group: to.0,
    };
    if let Some((id, to)) = context.journal.read(|catalog| moving_to(catalog, &world, region, server)) {
        return Ok(reply(id, to));
    }
    let plan = context.journal.read(|catalog| plan(catalog, &world, &known, server))?;
    let id = record(context, &plan).await?;
    tracing::info!(%region, %server, to = %plan.to, "an administrator moves a region");
    Ok(reply(id, plan.to))
}

/// Records the intent to move a region.
pub async fn record(context: &MasterContext, plan: &MovePlan) -> Result<MoveId, Error> {
    match context.journal.record(&CatalogEdit::BeginMove(plan.clone())).await? {
        Outcome::Move(id) => Ok(id),
        outcome => Err(Error::Internal { message: format!("beginning a move returned {outcome:?}") }),
    }
}

fn unknown(region: RegionId) -> Error {
    Error::NotFound { what: format!("region {region} (`terrane admin regions` lists them)") }
}

/// The move of this region to this server that an administrator has begun: the answer to its request may have been lost.
fn moving_to(catalog: &Catalog, world: &World, region: RegionId, server: ServerId) -> Option<(MoveId, GroupId)> {
    let (id, known) = catalog.moves().of_region(region)?;
    let leader = world.groups.get(&known.to).and_then(|group| group.leader);
    let is_same = known.reason == MoveReason::Operator && known.lead.or(leader) == Some(server);
    is_same.then_some((id, known.to))
}

/// The move of a region to a server.
pub fn plan(catalog: &Catalog, world: &World, region: &RegionDescriptor, server: ServerId) -> Result<MovePlan, Error> {
    refuse_changing(catalog, region)?;
    refuse_target(world, server)?;
    let (id, own) = (region.region, region.group);
    match world.groups.get(&own).and_then(|group| group.leader) {
        None => {
            return Err(invalid(format!(
                "group {own}, which region {id} is in, has no leader; move it when `terrane admin groups` shows one"
            )));
        }
        Some(leader) if leader == server => return Err(invalid(format!("region {id} is on server {server} already"))),
        Some(_) => {}
    }
    let (to, lead) =
        destination(catalog, world, own, server).ok_or_else(|| invalid(no_group(world, region, server)))?;
    let why = format!("an administrator moves it to server {server}");
    let (region, epoch, reason) = (id, region.epoch, MoveReason::Operator);
    Ok(MovePlan { region, epoch, to, lead: lead.then_some(server), reason, why, merge_with: None })
}

/// Refuses a region that another operation changes.
fn refuse_changing(catalog: &Catalog, region: &RegionDescriptor) -> Result<(), Error> {
    refuse_moving_in(catalog, region)?;
    match catalog.tables().get(region.table) {
        Some(table) if table.state == TableState::Enabled => Ok(()),
        Some(table) => Err(invalid(format!(
            "table {} is {}; move its regions when `terrane admin procedures` no longer lists it",
            table.schema.name,
            table.state.name()
        ))),
        None => Err(unknown(region.region)),
    }
}

fn refuse_moving_in(catalog: &Catalog, region: &RegionDescriptor) -> Result<(), Error> {
    match catalog.moves().of_region(region.region) {
        None => Ok(()),
        Some((id, known)) => Err(invalid(format!(
            "region {} is moving to group {}; wait until that has ended, or undo it with `terrane admin cancel move-{id}`",
            region.region, known.to
        ))),
    }
}

/// Refuses to split or merge a region that moves.
pub fn refuse_moving(context: &MasterContext, region: &RegionDescriptor) -> Result<(), Error> {
    context.journal.read(|catalog| refuse_moving_in(catalog, region))
}

fn refuse_target(world: &World, server: ServerId) -> Result<(), Error> {
    let others: Vec<String> =
        world.eligible().iter().filter(|other| **other != server).map(ToString::to_string).collect();
    let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
    let view = world.servers.get(&server);
    if view.is_some_and(|view| view.draining) {
        return Err(invalid(format!(
            "server {server} is being drained; end that with `terrane admin undrain {server}`, or choose another server: \
             {others}"
        )));
    }
    if view.is_none_or(|view| view.condition != Condition::Live) {
        return Err(invalid(format!("server {server} does not report; start it, or choose another server: {others}")));
    }
    Ok(())
}

/// The group on a server that a region moves to, and whether its leadership has to be handed over: one that the server
/// leads, then one that it could lead; of these, one whose members are not changing, with the fewest regions.
fn destination(catalog: &Catalog, world: &World, own: GroupId, server: ServerId) -> Option<(GroupId, bool)> {
    let regions = catalog.regions_per_group();
    let can = |(group, view): &(&GroupId, &GroupView)| {
        **group != own && view.leader.is_some() && view.has_majority() && view.ready.contains(&server)
    };
    let candidates = world.groups.iter().filter(can);
    let best = candidates.min_by_key(|(group, view)| {
        (view.leader != Some(server), !view.busy.is_empty(), regions.get(group).copied(), **group)
    });
    best.map(|(group, view)| (*group, view.leader != Some(server)))
}

fn no_group(world: &World, region: &RegionDescriptor, server: ServerId) -> String {
    let (id, own) = (region.region, region.group);
    let has_another = |server: &ServerId| {
        let mut others = world.groups.iter().filter(|(group, _)| **group != own);
        others.any(|(_, view)| view.leader.is_some() && view.has_majority() && view.ready.contains(server))
    };
    let others: Vec<String> =
        world.eligible().iter().filter(|other| has_another(other)).map(ToString::to_string).collect();
    let instead = match others.is_empty() {
        true => String::new(),
        false => format!(", or choose another server: {}", others.join(", ")),
    };
    let on_server: Vec<_> = world.groups.iter().filter(|(_, group)| group.members.contains_key(&server)).collect();
    let only_own = on_server.first().filter(|(group, _)| on_server.len() == 1 && **group == own);
    match only_own.and_then(|(_, group)| group.leader) {
        Some(leader) => format!(
            "server {server} has a replica of no group but {own}, which region {id} is in and server {leader} leads; drain \
             server {leader} to hand over what it leads{instead}"
        ),
        None => format!(
            "server {server} has no replica of a group that is caught up and has a leader; wait until `terrane admin \
             groups` shows one{instead}"
        ),
    }
}

/// How far a move is, or how it ended.
pub fn follow(context: &MasterContext, id: MoveId) -> Result<v1::FollowMoveReply, Error> {
    let progress = context.move_progress(id);
    let waits_for = context.wait(Subject::Move(id));
    context.journal.read(|catalog| {
        if let Some(known) = catalog.moves().get(id) {
            let state = if progress.frozen { MoveStage::Frozen } else { MoveStage::Copying };
            let undoing = known.cancelled.as_ref().map(|why| format!("it is being undone: {why}"));
            return Ok(v1::FollowMoveReply {
                state: state.name().to_owned(),
                detail: undoing
                    .or_else(|| waits_for.map(|what| format!("waits for {what}")))
                    .unwrap_or(progress.detail),
                copied_bytes: progress.copied_bytes,
                bytes: progress.bytes,
                region: None,
            });
        }
        let ended = catalog.moves().end_of(id).ok_or_else(|| Error::NotFound { what: format!("move {id}") })?;
        Ok(match &ended.end {
            MoveEnd::Moved(region) => v1::FollowMoveReply {
                state: MoveStage::Moved.name().to_owned(),
                region: Some(region.into()),
                ..v1::FollowMoveReply::default()
            },
            MoveEnd::Undone(why) => v1::FollowMoveReply {
                state: MoveStage::Undone.name().to_owned(),
                detail: why.clone(),
                ..v1::FollowMoveReply::default()
            },
        })
    })
}

/// Moves the smaller of two neighbours into the group of the other, so that they can be merged.
pub async fn bring_together(
    context: &MasterContext,
    one: &RegionDescriptor,
    other: &RegionDescriptor,
    deadline: Instant,
) -> Result<(), Error> {
    let id = match context.journal.read(|catalog| moving_together(catalog, one, other)) {
        Some(id) => id,
        None => {
            let bytes = |region: &RegionDescriptor| {
                let seen = |observed: &mut crate::servers::observed::Observations| {
                    observed.inventory.region(region.group, region.region).map_or(0, |view| view.bytes)
                };
                context.observed.with(seen)
            };
            let (moved, stays) = if bytes(one) <= bytes(other) { (one, other) } else { (other, one) };
            context.journal.read(|catalog| {
                refuse_changing(catalog, stays)?;
                refuse_changing(catalog, moved)
            })?;
            let why = format!("it is to be merged with region {}", stays.region);
            let (region, epoch, to) = (moved.region, moved.epoch, stays.group);
            let plan = MovePlan { region, epoch, to, lead: None, reason: MoveReason::Merge, why, merge_with: None };
            record(context, &plan).await?
        }
    };
    let ended = || context.journal.read(|catalog| catalog.moves().end_of(id).map(|ended| ended.end.clone()));
    match context.journal.wait_until(deadline, ended).await {
        Some(MoveEnd::Moved(_)) => Ok(()),
        Some(MoveEnd::Undone(why)) => {
            Err(invalid(format!("the regions are in groups {} and {}, and {why}", one.group, other.group)))
        }
        None => {
            let message = format!(
                "one region still moves into the group of the other (move-{id}); merge them when `terrane admin procedures` \
                 no longer lists it"
            );
            Err(Error::InProgress { message, retry_after: super::LOOK_EVERY })
        }
    }
}

/// The move that an earlier try of this merge has begun.
fn moving_together(catalog: &Catalog, one: &RegionDescriptor, other: &RegionDescriptor) -> Option<MoveId> {
    let towards = |moved: &RegionDescriptor, stays: &RegionDescriptor| {
        let found = catalog.moves().of_region(moved.region);
        found.filter(|(_, known)| known.reason == MoveReason::Merge && known.to == stays.group).map(|(id, _)| id)
    };
    towards(one, other).or_else(|| towards(other, one))
}
