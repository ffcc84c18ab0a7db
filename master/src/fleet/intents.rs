//! What an administrator asks of the fleet: drains, removals, replication, balancing, cancellations. Everything that
//! cannot work is refused at once, with what would.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_proto::v1;
use terrane_raft::MemberProgress;
use terrane_types::{Error, GroupId, Invalid, ServerId, TableId};

use super::listing;
use super::planner::{self, Step};
use super::spread::{RegionStep, ServerShare, Spread};
use super::world::{Condition, World};
use crate::catalog::changes::{ChangeReason, ChangeState};
use crate::catalog::masters::{MasterSet, MastersEdit};
use crate::catalog::moves::MoveId;
use crate::catalog::servers::Servers;
use crate::catalog::tables::{TableEntry, TableState};
use crate::catalog::{Catalog, CatalogEdit, REPLICATIONS};
use crate::context::MasterContext;
use crate::procedures::masters_change;

/// The server that an administrator names by its number or address.
pub fn resolve(servers: &Servers, name: &str) -> Result<ServerId, Error> {
    let by_number = name.parse().map(ServerId).ok().filter(|server| servers.get(*server).is_some());
    // Of two servers that were registered at an address, the newer one is there now.
    let by_address = servers.iter().filter(|(_, known)| known.address == name).map(|(server, _)| server).last();
    by_number.or(by_address).ok_or_else(|| {
        let known: Vec<String> =
            servers.iter().map(|(server, known)| format!("{server} ({})", known.address)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::NotFound { what: format!("server {name} (known: {known})") }
    })
}

fn invalid(what: String) -> Error {
    Error::Invalid(Invalid::new(what))
}

/// Begins or ends a drain, or removes a server.
pub async fn change_server(
    context: &MasterContext,
    name: &str,
    change: v1::ServerChange,
) -> Result<v1::ChangeServerReply, Error> {
    let world = super::world(context);
    let (server, address, edit) = context.journal.read(|catalog| {
        let server = resolve(catalog.servers(), name)?;
        let address = catalog.servers().address(server);
        let edit = match change {
            v1::ServerChange::Drain => {
                check_drain(&world, server)?;
                CatalogEdit::DrainServer { server, drain: true }
            }
            v1::ServerChange::Undrain => {
                check_undrain(catalog, server)?;
                CatalogEdit::DrainServer { server, drain: false }
            }
            v1::ServerChange::Decommission => {
                check_decommission(catalog, &world, server)?;
                CatalogEdit::RemoveServer { server }
            }
        };
        Ok::<_, Error>((server, address, edit))
    })?;
    context.journal.record(&edit).await?;
    tracing::info!(%server, ?change, "an administrator has changed what is intended for a server");
    let count = |counts: BTreeMap<ServerId, usize>| {
        u32::try_from(counts.get(&server).copied().unwrap_or(0)).unwrap_or(u32::MAX)
    };
    let (replicas, leaders) = (count(world.replicas()), count(world.leaders()));
    Ok(v1::ChangeServerReply { server: server.0, address, replicas, leaders })
}

/// Refuses a drain that cannot end, because too few servers would be left.
pub fn check_drain(world: &World, server: ServerId) -> Result<(), Error> {
    if world.is(server, |view| view.draining) {
        return Ok(());
    }
    let left = world.eligible().into_iter().filter(|other| *other != server).count();
    let wanted = world.replication;
    if left >= wanted {
        return Ok(());
    }
    let missing = wanted - left;
    let fewer = REPLICATIONS.iter().rev().find(|fewer| usize::try_from(**fewer).is_ok_and(|fewer| fewer <= left));
    let or_fewer = fewer
        .map_or_else(String::new, |fewer| format!(", or keep fewer copies with `terrane admin replication {fewer}`"));
    Err(invalid(format!(
        "draining server {server} would leave {left} live servers for {wanted} copies of everything; start {missing} more \
         first{or_fewer}"
    )))
}

fn check_undrain(catalog: &Catalog, server: ServerId) -> Result<(), Error> {
    match catalog.servers().drain(server) {
        Some(_) => Ok(()),
        None => Err(invalid(format!("server {server} is not being drained"))),
    }
}

/// Refuses to remove a server that has replicas, or one that would get some again.
pub fn check_decommission(catalog: &Catalog, world: &World, server: ServerId) -> Result<(), Error> {
    let replicas = catalog.groups().replicas_on(server);
    if replicas > 0 && world.is(server, |view| view.condition == Condition::Lost) {
        return Err(invalid(format!(
            "server {server} is lost and {replicas} of its replicas are still to be replaced on other servers; decommission \
             it when `terrane admin servers` shows none of them"
        )));
    }
    if replicas > 0 {
        return Err(invalid(format!(
            "server {server} still has {replicas} replicas; drain it first with `terrane admin drain {server}`, and \
             decommission it when `terrane admin servers` shows it as drained"
        )));
    }
    if world.is(server, |view| !view.draining && view.condition == Condition::Live) {
        return Err(invalid(format!(
            "server {server} is live and not drained, so it would get replicas; drain it first with `terrane admin drain \
             {server}`"
        )));
    }
    Ok(())
}

/// Changes how many replicas each group is to have; the planner does the rest.
pub async fn set_replication(context: &MasterContext, replication: u32) -> Result<v1::SetReplicationReply, Error> {
    let world = super::world(context);
    check_replication(&world, replication)?;
    let (before, groups) = context.journal.read(|catalog| (catalog.replication(), catalog.groups().len()));
    if before != replication {
        context.journal.record(&CatalogEdit::SetReplication { replication }).await?;
    }
    Ok(v1::SetReplicationReply { before, groups: u32::try_from(groups).unwrap_or(u32::MAX) })
}

/// Refuses a number of copies that is not supported, or that needs more servers than there are.
pub fn check_replication(world: &World, replication: u32) -> Result<(), Error> {
    if !REPLICATIONS.contains(&replication) {
        return Err(invalid(format!(
            "the replication can be 1, 3 or 5, not {replication}: an even number of copies survives no more failures than \
             one less"
        )));
    }
    let (wanted, have) = (usize::try_from(replication).unwrap_or(usize::MAX), world.eligible().len());
    if wanted > have && wanted > world.replication {
        let missing = wanted - have;
        return Err(invalid(format!(
            "{replication} copies need {replication} live servers that are not drained, and there are {have}; start \
             {missing} more first"
        )));
    }
    Ok(())
}

/// Changes how long a server may be away before its replicas are replaced; 0: as masters were started.
pub async fn set_replace_after(context: &MasterContext, after_ms: u64) -> Result<v1::SetReplaceAfterReply, Error> {
    let least = context.fleet.replace_after_min;
    if after_ms > 0 && Duration::from_millis(after_ms) < least {
        return Err(invalid(format!(
            "replace-after cannot be {after_ms} ms: a server counts as silent only after {} ms; set at least that",
            least.as_millis()
        )));
    }
    let present = || {
        let after = context.journal.read(|catalog| context.fleet.replace_after(catalog));
        u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
    };
    let before_ms = present();
    context.journal.record(&CatalogEdit::SetReplaceAfter { after_ms }).await?;
    Ok(v1::SetReplaceAfterReply { before_ms, after_ms: present() })
}

/// Shows the plan of balancing, begins it, or switches it on or off.
pub async fn balance(context: &MasterContext, mode: v1::BalanceMode) -> Result<v1::BalanceReply, Error> {
    match mode {
        v1::BalanceMode::On => drop(context.journal.record(&CatalogEdit::SetBalancing { on: true }).await?),
        v1::BalanceMode::Off => drop(context.journal.record(&CatalogEdit::SetBalancing { on: false }).await?),
        v1::BalanceMode::DryRun | v1::BalanceMode::Now => {}
    }
    let on = context.journal.read(Catalog::is_balancing);
    let world = super::world(context);
    // Switched off, only repairs and drains would be made.
    let (steps, after) = planner::plan(&world, mode != v1::BalanceMode::Off);
    let (_, present, _) = super::plan_moves(context, &world);
    let (moves, _, spread) = super::plan_moves(context, &after);
    let moves = if mode == v1::BalanceMode::Off { Vec::new() } else { moves };
    let shown = steps.iter().map(balance_step).chain(moves.iter().map(region_step));
    let reply = v1::BalanceReply {
        on,
        steps: shown.collect(),
        shares: context.journal.read(|catalog| shares(catalog, (&world, &present), (&after, &spread))),
        obstacles: planner::obstacles(&world),
    };
    if mode == v1::BalanceMode::Now {
        super::balance_now(context).await;
    }
    Ok(reply)
}

fn balance_step(step: &Step) -> v1::BalanceStep {
    v1::BalanceStep { action: step.describe(), reason: step.why.clone(), group: step.group.0 }
}

fn region_step(step: &RegionStep) -> v1::BalanceStep {
    v1::BalanceStep { action: step.describe(), reason: step.why.clone(), group: step.from.0.0 }
}

fn shares(catalog: &Catalog, before: (&World, &Spread), after: (&World, &Spread)) -> Vec<v1::BalanceShare> {
    let ((before, present), (after, spread)) = (before, after);
    let (regions, regions_after) = (present.shares(), spread.shares());
    let (leaders, replicas) = (before.leaders(), before.replicas());
    let (leaders_after, replicas_after) = (after.leaders(), after.replicas());
    let count = |counts: &BTreeMap<ServerId, usize>, server: ServerId| {
        u32::try_from(counts.get(&server).copied().unwrap_or(0)).unwrap_or(u32::MAX)
    };
    let of = |shares: &BTreeMap<ServerId, ServerShare>, server: ServerId| {
        let share = shares.get(&server).cloned().unwrap_or_default();
        (u32::try_from(share.regions).unwrap_or(u32::MAX), share.bytes, share.rounded_units())
    };
    let share = |server: ServerId, address: &str| v1::BalanceShare {
        server: server.0,
        address: address.to_owned(),
        leaders: count(&leaders, server),
        replicas: count(&replicas, server),
        leaders_after: count(&leaders_after, server),
        replicas_after: count(&replicas_after, server),
        regions: of(&regions, server).0,
        bytes: of(&regions, server).1,
        load: of(&regions, server).2,
        regions_after: of(&regions_after, server).0,
        bytes_after: of(&regions_after, server).1,
        load_after: of(&regions_after, server).2,
    };
    catalog.servers().iter().map(|(server, known)| share(server, &known.address)).collect()
}

/// Undoes a procedure, if that is possible and it would not begin again at once.
pub async fn cancel(context: &MasterContext, id: &str) -> Result<(), Error> {
    if let Some(id) = id.strip_prefix("move-").and_then(|number| number.parse().ok()).map(MoveId)
        && context.move_progress(id).frozen
    {
        return Err(invalid(format!("the region of move-{id} is being handed over, which ends by itself in a moment")));
    }
    if id == "masters" {
        let members = context.journal.group().members();
        context.journal.read(|catalog| refuse_made(catalog.masters(), &members))?;
    }
    let edit = context.journal.read(|catalog| cancellation(catalog, id))?;
    context.journal.record(&edit).await.map(drop)
}

/// Refuses to undo a change of the masters when the new set votes already.
fn refuse_made(set: &MasterSet, members: &[MemberProgress]) -> Result<(), Error> {
    if masters_change::is_made(set, members) {
        return Err(invalid(
            "the new set of masters votes already, so the change is made, and it ends by itself; to go back, name the former \
             masters with `terrane admin set-masters`"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The edit that undoes a procedure.
pub fn cancellation(catalog: &Catalog, id: &str) -> Result<CatalogEdit, Error> {
    let unknown = || Error::NotFound { what: format!("procedure {id} (`terrane admin procedures` lists them)") };
    if id == "masters" {
        let set = catalog.masters();
        set.change.as_ref().ok_or_else(unknown)?;
        // If the new set votes by the time that this is recorded, the change is made all the same.
        return Ok(CatalogEdit::Masters(MastersEdit::Undo { version: set.version }));
    }
    let mut parts = id.split('-');
    let kind = parts.next().ok_or_else(unknown)?;
    let number: u64 = parts.next().and_then(|number| number.parse().ok()).ok_or_else(unknown)?;
    // The others name one change by this number alone.
    if parts.next().is_some() && !matches!(kind, "table" | "drop" | "members") {
        return Err(unknown());
    }
    match kind {
        "drain" => {
            let server = ServerId(number);
            catalog.servers().drain(server).ok_or_else(unknown)?;
            Ok(CatalogEdit::DrainServer { server, drain: false })
        }
        "table" | "drop" => {
            let table = TableId(number);
            let is_it = |entry: &&TableEntry| entry.state != TableState::Enabled && listing::table_id(entry) == id;
            let entry = catalog.tables().get(table).filter(is_it);
            let (state, name) = entry.map(|entry| (entry.state, &entry.schema.name)).ok_or_else(unknown)?;
            if state == TableState::Creating {
                return Ok(CatalogEdit::DropTable { table });
            }
            Err(invalid(format!(
                "table {name} is {}, and groups may have followed already; it ends by itself, and can be altered again then",
                state.name()
            )))
        }
        "move" => {
            let id = MoveId(number);
            catalog.moves().get(id).ok_or_else(unknown)?;
            Ok(CatalogEdit::CancelMove { id, why: "an administrator cancelled it".to_owned() })
        }
        "members" => cancel_members(catalog, GroupId(number), id).and_then(|edit| edit.ok_or_else(unknown)),
        "group" => Err(invalid(format!("group {number} is being created and has no data; it ends by itself"))),
        _ => Err(unknown()),
    }
}

/// Undoes a change of members that nothing asks for any more.
fn cancel_members(catalog: &Catalog, group: GroupId, id: &str) -> Result<Option<CatalogEdit>, Error> {
    let Some(entry) = catalog.groups().get(group) else { return Ok(None) };
    let Some(change) = entry.change.filter(|_| listing::members_id(group, entry) == id) else { return Ok(None) };
    if change.state != ChangeState::Joining {
        return Err(invalid(format!("the members of group {group} are {}, which ends by itself", change.state.name())));
    }
    let instead = match change.reason {
        ChangeReason::Lost => "the server that does not report keeps its replica if it is back in time",
        ChangeReason::Drain => "end the drain first: `terrane admin undrain SERVER`",
        ChangeReason::Balance if catalog.is_balancing() => "switch balancing off first: `terrane admin balance off`",
        ChangeReason::Replication => "set the replication back: `terrane admin replication N`",
        ChangeReason::Damaged => "the replica has damaged files",
        ChangeReason::Balance | ChangeReason::LostMajority => "",
    };
    let wanted = match change.reason {
        ChangeReason::Drain => {
            let server = change.remove.and_then(|replica| entry.members.get(&replica));
            server.is_some_and(|server| catalog.servers().drain(*server).is_some())
        }
        ChangeReason::Balance => catalog.is_balancing(),
        ChangeReason::Lost | ChangeReason::Replication | ChangeReason::Damaged | ChangeReason::LostMajority => true,
    };
    if wanted {
        return Err(invalid(format!("it would begin again at once; {instead}")));
    }
    Ok(Some(CatalogEdit::UndoMembers { group, version: entry.version }))
}
