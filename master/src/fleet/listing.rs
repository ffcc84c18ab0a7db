//! One view of everything that is unfinished: changes of tables, new groups, changes of members, moves of regions, drains.

use std::time::Duration;

use terrane_proto::v1;
use terrane_raft::MemberProgress;
use terrane_types::{GroupId, ServerId, TableId};

use crate::catalog::Catalog;
use crate::catalog::changes::{ChangeState, MemberChange};
use crate::catalog::groups::GroupEntry;
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
            let state = catalog.groups().get(group)?.state.name().to_owned();
            let (id, subject) = (format!("group-{group}"), format!("group {group}"));
            Some(v1::ProcedureInfo { id, kind: "create group".to_owned(), subject, state, ..blank })
        }
        Subject::Table(table) => Some(table_info(catalog, table, blank)?),
        Subject::Members(group) => members_info(catalog, observed, group, blank, wall_ms),
        Subject::Move(id) => move_info(context, catalog, id, blank, wall_ms),
        Subject::Masters => masters_info(catalog, &context.journal.group().members(), blank, wall_ms),
    }
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
    let kind = match entry.state {
        TableState::Creating => "create table",
        TableState::Altering => "alter table",
        TableState::Dropping => "drop table",
        TableState::Enabled => return None,
    };
    Some(v1::ProcedureInfo {
        id: table_id(entry),
        kind: kind.to_owned(),
        subject: format!("table {}", entry.schema.name),
        state: entry.state.name().to_owned(),
        cancellable: entry.state == TableState::Creating,
        ..blank
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
    if let Some((replica, server)) = change.add.filter(|_| change.state == ChangeState::Recovering) {
        return Some(v1::ProcedureInfo {
            id: members_id(group, entry),
            kind: "recover group".to_owned(),
            subject: format!("group {group} from replica {replica} on server {server}"),
            state: change.state.name().to_owned(),
            reason: change.reason.name().to_owned(),
            steps_done,
            steps,
            since_ms: wall_ms.saturating_sub(change.since_ms),
            ..blank
        });
    }
    let old = change.remove.and_then(|replica| entry.members.get(&replica).copied());
    Some(v1::ProcedureInfo {
        id: members_id(group, entry),
        kind: change_kind(&change).to_owned(),
        subject: format!("group {group}{}", from_to(old, change.add.map(|(_, server)| server))),
        state: change.state.name().to_owned(),
        reason: change.reason.name().to_owned(),
        steps_done,
        steps,
        since_ms: wall_ms.saturating_sub(change.since_ms),
        cancellable: change.state == ChangeState::Joining,
        ..blank
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
        (Some(_), _) => ("undoing", 0),
        (None, true) => ("frozen", 2),
        (None, false) => ("copying", u32::from(progress.bytes > 0 && progress.copied_bytes >= progress.bytes)),
    };
    let (region, from, to) = (known.region.region, known.region.group, known.to);
    Some(v1::ProcedureInfo {
        id: format!("move-{id}"),
        kind: "move region".to_owned(),
        subject: format!("region {region} from group {from} to {to}"),
        state: state.to_owned(),
        reason: format!("{}: {}", known.reason.name(), known.cancelled.as_ref().unwrap_or(&known.why)),
        steps_done,
        steps: STEPS,
        since_ms: wall_ms.saturating_sub(known.since_ms),
        cancellable: known.cancelled.is_none() && !progress.frozen,
        bytes: progress.bytes,
        copied_bytes: progress.copied_bytes,
        detail: progress.detail,
        ..blank
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
    Some(v1::ProcedureInfo {
        id: "masters".to_owned(),
        kind: "change masters".to_owned(),
        subject: format!("from {} to {}", list(&set.present), list(&set.after())),
        state: if change.undo { "undoing" } else { "changing" }.to_owned(),
        since_ms: wall_ms.saturating_sub(change.since_ms),
        cancellable: !change.undo && !masters_change::is_made(set, members),
        ..blank
    })
}

fn change_kind(change: &MemberChange) -> &'static str {
    match (change.add, change.remove) {
        (Some(_), Some(_)) => "replace replica",
        (Some(_), None) => "add replica",
        (None, _) => "remove replica",
    }
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
        kind: "drain server".to_owned(),
        subject: format!("server {server} ({})", catalog.servers().address(server)),
        owner: owner.to_owned(),
        state: "draining".to_owned(),
        steps: drain.replicas.max(left),
        steps_done: drain.replicas.saturating_sub(left),
        since_ms: wall_ms.saturating_sub(drain.since_ms),
        waits_for: obstacles.first().cloned().unwrap_or_default(),
        cancellable: true,
        ..v1::ProcedureInfo::default()
    })
}

/// The surplus group that is being emptied.
fn surplus_info(context: &MasterContext, catalog: &Catalog) -> Option<v1::ProcedureInfo> {
    let surplus = context.surplus.lock();
    let Retiring { group, regions, since, .. } = surplus.retiring()?;
    let left = catalog.regions().iter().filter(|entry| entry.descriptor.group == group).count();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Some(v1::ProcedureInfo {
        id: format!("surplus-{group}"),
        kind: "remove group".to_owned(),
        subject: format!("group {group}"),
        state: if left > 0 { "emptying" } else { "empty" }.to_owned(),
        reason: format!("surplus: there are {} groups", catalog.groups().len()),
        owner: context.fleet.owner.clone(),
        steps: count(regions.max(left)),
        steps_done: count(regions.saturating_sub(left)),
        since_ms: millis(now().since(since)),
        waits_for: surplus.held().unwrap_or_default().to_owned(),
        ..v1::ProcedureInfo::default()
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
