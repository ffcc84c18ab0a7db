//! One view of everything that is unfinished: changes of tables, new groups, changes of members, moves of regions, drains.

use std::time::Duration;

use terrane_proto::v1;
use terrane_raft::MemberProgress;
use terrane_types::admin::procedures::{ProcedureKind, ProcedureState};
use terrane_types::{GroupId, ServerId, TableId};

use crate::catalog::Catalog;
use crate::catalog::changes::ChangeState;
use crate::catalog::groups::{GroupEntry, GroupState};
use crate::catalog::moves::MoveId;
use crate::catalog::servers::Drain;
use crate::catalog::tables::{TableEntry, TableState};
use crate::context::{MasterContext, Subject};
use crate::fleet::surplus::Retiring;
use crate::history::procedure_history::Work;
use crate::masters::numbers::Peer;
use crate::procedures::{intents, masters_change, member_change};
use crate::servers::observed::{Observations, now};

/// All unfinished procedures: those of groups, tables, members and regions, then drains.
pub fn procedures(context: &MasterContext) -> Vec<v1::ProcedureInfo> {
    let wall_ms = terrane_env::time::wall_ms();
    let obstacles = super::planner::obstacles(&super::world(context));
    context.journal.read(|catalog| {
        context.observed.with(|observed| {
            let subjects = intents(catalog).into_iter();
            let listed = subjects.filter_map(|subject| procedure(context, catalog, observed, subject, wall_ms));
            let drains = catalog.servers().drains().filter_map(|(server, drain)| {
                drain_info(catalog, server, drain, &obstacles, &context.fleet.owner, wall_ms)
            });
            let surplus = surplus_info(context, catalog);
            listed.chain(drains).chain(surplus).collect()
        })
    })
}

/// One unfinished procedure.
pub fn describe(
    context: &MasterContext,
    catalog: &Catalog,
    observed: &Observations,
    work: Work,
    wall_ms: u64,
) -> Option<v1::ProcedureInfo> {
    match work {
        Work::Intent(subject) => procedure(context, catalog, observed, subject, wall_ms),
        Work::Drain(server) => {
            let drain = catalog.servers().drain(server)?;
            drain_info(catalog, server, drain, &[], &context.fleet.owner, wall_ms)
        }
    }
}

fn procedure(
    context: &MasterContext,
    catalog: &Catalog,
    observed: &Observations,
    subject: Subject,
    wall_ms: u64,
) -> Option<v1::ProcedureInfo> {
    let (known_for, steps) = context.progress(subject);
    let blank = v1::ProcedureInfo {
        owner: context.fleet.owner.clone(),
        since_ms: millis(known_for),
        steps_done: steps.0,
        steps: steps.1,
        waits_for: context.wait(subject).unwrap_or_default(),
        ..v1::ProcedureInfo::default()
    };
    match subject {
        Subject::Group(group) => {
            let state = match catalog.groups().get(group)?.state {
                GroupState::Creating => ProcedureState::Creating,
                GroupState::Partial => ProcedureState::Partial,
                GroupState::Open => return None,
            };
            let (id, subject) = (format!("group-{group}"), format!("group {group}"));
            Some(v1::ProcedureInfo { id, subject, ..described(ProcedureKind::CreateGroup, state, blank) })
        }
        Subject::Table(table) => Some(table_info(catalog, table, blank)?),
        Subject::Members(group) => members_info(catalog, observed, group, blank, wall_ms),
        Subject::Move(id) => move_info(context, catalog, id, blank, wall_ms),
        Subject::Masters => masters_info(catalog, &context.journal.group().members(), blank, wall_ms),
    }
}

/// A procedure of this kind that is so far.
fn described(kind: ProcedureKind, state: ProcedureState, of: v1::ProcedureInfo) -> v1::ProcedureInfo {
    v1::ProcedureInfo { kind: kind.name().to_owned(), state: state.name().to_owned(), ..of }
}

/// The id of the change that a table is in. It names the version of the schema, so that no later change of the table has it.
pub fn table_id(entry: &TableEntry) -> String {
    let what = if entry.state == TableState::Dropping { "drop" } else { "table" };
    format!("{what}-{}-{}", entry.schema.table, entry.schema.version)
}

/// The id of the change that a group's members are in. It names the version of the members, so that no later change has it.
pub fn members_id(group: GroupId, entry: &GroupEntry) -> String {
    format!("members-{group}-{}", entry.version)
}

fn table_info(catalog: &Catalog, table: TableId, blank: v1::ProcedureInfo) -> Option<v1::ProcedureInfo> {
    let entry = catalog.tables().get(table)?;
    let (kind, state) = match entry.state {
        TableState::Creating => (ProcedureKind::CreateTable, ProcedureState::Creating),
        TableState::Altering => (ProcedureKind::AlterTable, ProcedureState::Altering),
        TableState::Dropping => (ProcedureKind::DropTable, ProcedureState::Dropping),
        TableState::Enabled => return None,
    };
    Some(v1::ProcedureInfo {
        id: table_id(entry),
        subject: format!("table {}", entry.schema.name),
        cancellable: entry.state == TableState::Creating,
        ..described(kind, state, blank)
    })
}

fn members_info(
    catalog: &Catalog,
    observed: &Observations,
    group: GroupId,
    blank: v1::ProcedureInfo,
    wall_ms: u64,
) -> Option<v1::ProcedureInfo> {
    let entry = catalog.groups().get(group)?;
    let change = entry.change?;
    let (steps_done, steps) = member_change::progress(entry, observed.inventory.group(group));
    let old = change.remove.and_then(|replica| entry.members.get(&replica).copied());
    let (kind, subject) = match (change.add, change.remove) {
        (Some((replica, server)), _) if change.state == ChangeState::Recovering => {
            (ProcedureKind::RecoverGroup, format!(" from replica {replica} on server {server}"))
        }
        (Some((_, new)), Some(_)) => (ProcedureKind::ReplaceReplica, from_to(old, Some(new))),
        (Some((_, new)), None) => (ProcedureKind::AddReplica, from_to(old, Some(new))),
        (None, _) => (ProcedureKind::RemoveReplica, from_to(old, None)),
    };
    Some(v1::ProcedureInfo {
        id: members_id(group, entry),
        subject: format!("group {group}{subject}"),
        reason: change.reason.name().to_owned(),
        steps_done,
        steps,
        since_ms: wall_ms.saturating_sub(change.since_ms),
        cancellable: change.state == ChangeState::Joining,
        ..described(kind, change.state.shown(), blank)
    })
}

fn move_info(
    context: &MasterContext,
    catalog: &Catalog,
    id: MoveId,
    blank: v1::ProcedureInfo,
    wall_ms: u64,
) -> Option<v1::ProcedureInfo> {
    const STEPS: u32 = 3;
    let known = catalog.moves().get(id)?;
    let progress = context.move_progress(id);
    let (state, steps_done) = match (&known.cancelled, progress.frozen) {
        (Some(_), _) => (ProcedureState::Undoing, 0),
        (None, true) => (ProcedureState::Frozen, 2),
        (None, false) => {
            (ProcedureState::Copying, u32::from(progress.bytes > 0 && progress.copied_bytes >= progress.bytes))
        }
    };
    let (region, from, to) = (known.region.region, known.region.group, known.to);
    Some(v1::ProcedureInfo {
        id: format!("move-{id}"),
        subject: format!("region {region} from group {from} to {to}"),
        reason: format!("{}: {}", known.reason.name(), known.cancelled.as_ref().unwrap_or(&known.why)),
        steps_done,
        steps: STEPS,
        since_ms: wall_ms.saturating_sub(known.since_ms),
        cancellable: known.cancelled.is_none() && !progress.frozen,
        bytes: progress.bytes,
        copied_bytes: progress.copied_bytes,
        detail: progress.detail,
        ..described(ProcedureKind::MoveRegion, state, blank)
    })
}

fn masters_info(
    catalog: &Catalog,
    members: &[MemberProgress],
    blank: v1::ProcedureInfo,
    wall_ms: u64,
) -> Option<v1::ProcedureInfo> {
    let set = catalog.masters();
    let change = set.change.as_ref()?;
    let list = |peers: &[Peer]| peers.iter().map(|peer| peer.address.as_str()).collect::<Vec<_>>().join(",");
    let state = if change.undo { ProcedureState::Undoing } else { ProcedureState::Changing };
    Some(v1::ProcedureInfo {
        id: "masters".to_owned(),
        subject: format!("from {} to {}", list(&set.present), list(&set.after())),
        since_ms: wall_ms.saturating_sub(change.since_ms),
        cancellable: !change.undo && !masters_change::is_made(set, members),
        ..described(ProcedureKind::ChangeMasters, state, blank)
    })
}

fn from_to(from: Option<ServerId>, to: Option<ServerId>) -> String {
    let from = from.map_or_else(String::new, |server| format!(" from server {server}"));
    let to = to.map_or_else(String::new, |server| format!(" to server {server}"));
    from + &to
}

fn drain_info(
    catalog: &Catalog,
    server: ServerId,
    drain: Drain,
    obstacles: &[String],
    owner: &str,
    wall_ms: u64,
) -> Option<v1::ProcedureInfo> {
    let left = u32::try_from(catalog.groups().replicas_on(server)).unwrap_or(u32::MAX);
    (left > 0).then(|| v1::ProcedureInfo {
        id: format!("drain-{server}"),
        subject: format!("server {server} ({})", catalog.servers().address(server)),
        owner: owner.to_owned(),
        steps: drain.replicas.max(left),
        steps_done: drain.replicas.saturating_sub(left),
        since_ms: wall_ms.saturating_sub(drain.since_ms),
        waits_for: obstacles.first().cloned().unwrap_or_default(),
        cancellable: true,
        ..described(ProcedureKind::DrainServer, ProcedureState::Draining, v1::ProcedureInfo::default())
    })
}

/// The surplus group that is being emptied.
fn surplus_info(context: &MasterContext, catalog: &Catalog) -> Option<v1::ProcedureInfo> {
    let surplus = context.surplus.lock();
    let Retiring { group, regions, since, .. } = surplus.retiring()?;
    let left = catalog.regions().iter().filter(|entry| entry.descriptor.group == group).count();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let state = if left > 0 { ProcedureState::Emptying } else { ProcedureState::Empty };
    Some(v1::ProcedureInfo {
        id: format!("surplus-{group}"),
        subject: format!("group {group}"),
        reason: format!("surplus: there are {} groups", catalog.groups().len()),
        owner: context.fleet.owner.clone(),
        steps: count(regions.max(left)),
        steps_done: count(regions.saturating_sub(left)),
        since_ms: millis(now().since(since)),
        waits_for: surplus.held().unwrap_or_default().to_owned(),
        ..described(ProcedureKind::RemoveGroup, state, v1::ProcedureInfo::default())
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
