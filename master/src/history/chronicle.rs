//! Feeds the load history, the events and the ended procedures from the catalog and the reports, and answers calls from them.
//!
//! All are pure (`load_history`, `events`, `procedure_history`); time comes from `env` here. Locks are taken in the order catalog, observations,
//! past, and none is held across a wait.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use terrane_proto::v1;
use terrane_types::{Error, GroupId, KeyRange, ServerId, TableId, TableName};

use crate::catalog::Catalog;
use crate::catalog::moves::MoveId;
use crate::context::{MasterContext, Past, Subject};
use crate::history::events::EVENTS_MAX;
use crate::history::load_history::{HeatRequest, LoadHistory, MINUTES, RegionRates};
use crate::history::procedure_history::{ProcedureHistory, Work};
use crate::servers::inventory::Election;
use crate::servers::liveness::Moment;
use crate::servers::observed::{Observations, now};

/// How often the master looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// For how long the load of a report counts: three reports.
const REPORT_COUNTS_FOR: Duration = Duration::from_millis(1_500);
const MINUTE_MS: u64 = 60_000;
/// Rows of a map unless the caller wants fewer or more.
const ROWS_DEFAULT: u32 = 1_000;
/// Events of an answer unless the caller wants fewer.
const EVENTS_DEFAULT: u32 = 1_000;

/// This master begins to lead in this term: nothing that was seen before counts.
pub fn begin(context: &MasterContext, term: u64) {
    let wall_ms = terrane_env::time::wall_ms();
    let mut past = context.past.lock();
    past.loads = LoadHistory::default();
    past.procedures = ProcedureHistory::default();
    past.events.lead(wall_ms, &context.fleet.owner, term);
}

/// Looks again and again while this master leads. Never returns. Nothing else runs in this loop, because what happens
/// between two looks is known only as far as the last reports tell it.
pub async fn watch(context: &MasterContext) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        look(context);
    }
}

/// Notes the present loads, and what has changed since the last look.
fn look(context: &MasterContext) {
    let (now, wall_ms) = (now(), terrane_env::time::wall_ms());
    context.journal.read(|catalog| {
        context.observed.with(|observed| {
            let rates = rates(catalog, observed, now);
            let Past { loads, events, .. } = &mut *context.past.lock();
            loads.look(now, wall_ms, &rates);
            events.look(catalog, observed, wall_ms);
        });
    });
}

/// Tells about a procedure under way, at a time in milliseconds since 1970.
pub type Describe = fn(&MasterContext, &Catalog, &Observations, Work, u64) -> Option<v1::ProcedureInfo>;

/// Notes which procedures have begun and ended, and which tables have changed. Called after every change of the catalog, so
/// that none is too short to be seen.
pub fn catalog_changed(context: &MasterContext, intents: fn(&Catalog) -> Vec<Subject>, describe: Describe) {
    let wall_ms = terrane_env::time::wall_ms();
    context.journal.read(|catalog| {
        context.observed.with(|observed| {
            let describe = |work| describe(context, catalog, observed, work, wall_ms);
            let Past { procedures, events, .. } = &mut *context.past.lock();
            procedures.look(catalog, intents(catalog), wall_ms, describe);
            events.look_at_tables(catalog, wall_ms);
        });
    });
}

/// Answers the procedures that have ended, newest first.
pub fn ended_procedures(context: &MasterContext) -> Vec<v1::EndedProcedure> {
    let past = context.past.lock();
    past.procedures.newest().cloned().map(Into::into).collect()
}

/// Other servers lead groups than before.
pub fn elected(context: &MasterContext, elections: &[Election]) {
    let at = (now(), terrane_env::time::wall_ms());
    context.journal.read(|catalog| {
        context.observed.with(|observed| context.past.lock().events.elected(catalog, observed, elections, at));
    });
}

/// The leader of a group is about to be ordered to hand over to a server, for this reason.
pub fn hands_over(context: &MasterContext, group: GroupId, to: ServerId, why: &str) {
    context.past.lock().events.ordered(group, to, why, now());
}

/// The leader of a group has followed the order to hand over.
pub fn handed_over(context: &MasterContext, group: GroupId, to: ServerId) {
    let election = context.observed.with(|observed| observed.inventory.handed_over(group, to));
    elected(context, election.as_slice());
}

/// A move begins, or continues under this master.
pub fn moving(context: &MasterContext, id: MoveId) {
    context.journal.read(|catalog| {
        if let Some(known) = catalog.moves().get(id) {
            context.past.lock().events.moving(id, known);
        }
    });
}

/// The rates that leaders report. What a leader said that has been quiet since is not its load any more.
fn rates(catalog: &Catalog, observed: &Observations, now: Moment) -> BTreeMap<TableId, Vec<RegionRates>> {
    let mut tables: BTreeMap<TableId, Vec<RegionRates>> = BTreeMap::new();
    for known in catalog.regions().iter().map(|entry| &entry.descriptor) {
        let leader = observed.inventory.leader(known.group);
        let counts = leader.is_some_and(|leader| observed.liveness.quiet_for(leader, now) <= REPORT_COUNTS_FOR);
        let seen = observed.inventory.region(known.group, known.region).filter(|_| counts);
        let load = seen.map(|seen| seen.load).unwrap_or_default();
        let rates = [load.rows_read, load.rows_written, load.bytes];
        tables.entry(known.table).or_default().push(RegionRates { start: known.range.start.clone(), rates });
    }
    tables
}

/// Answers the load of a table, or of the cluster.
pub fn load(context: &MasterContext, request: v1::LoadHistoryRequest) -> Result<v1::LoadHistoryReply, Error> {
    let now_ms = terrane_env::time::wall_ms();
    let (what, range) = (request.measure() as usize, KeyRange::new(request.start, request.end)?);
    if request.table.is_empty() {
        let past = context.past.lock();
        let minute = |known: crate::history::load_history::ClusterMinute| {
            let [reads, writes, bytes] = known.counts;
            v1::LoadMinute { minute_ms: known.minute * MINUTE_MS, reads, writes, bytes }
        };
        let wanted = |known: &v1::LoadMinute| {
            known.minute_ms >= request.from_ms && (request.to_ms == 0 || known.minute_ms < request.to_ms)
        };
        return Ok(v1::LoadHistoryReply {
            known_from_ms: past.loads.known_from_ms().unwrap_or(0),
            minutes: past.loads.cluster().into_iter().map(minute).filter(wanted).collect(),
            now_ms,
            ..v1::LoadHistoryReply::default()
        });
    }
    let name = TableName::new(&request.table)?;
    let size = |given: u32, most: u32| usize::try_from(if given == 0 { most } else { given }).unwrap_or(1);
    let wanted = HeatRequest {
        what,
        first: request.from_ms / MINUTE_MS,
        end: if request.to_ms == 0 { u64::MAX } else { request.to_ms.div_ceil(MINUTE_MS) },
        range,
        columns_max: size(request.columns_max, u32::try_from(MINUTES).unwrap_or(1)).min(MINUTES),
        rows_max: size(request.rows_max, ROWS_DEFAULT),
    };
    context.journal.read(|catalog| {
        let missing = || Error::NotFound { what: format!("table {name}") };
        let table = catalog.tables().named(&name.to_string()).ok_or_else(missing)?.schema.table;
        let past = context.past.lock();
        let known_from_ms = past.loads.known_from_ms().unwrap_or(0);
        let Some(heat) = past.loads.heat(table, &wanted) else {
            return Ok(v1::LoadHistoryReply { known_from_ms, now_ms, ..v1::LoadHistoryReply::default() });
        };
        drop(past);
        let row = |(range, counts): (KeyRange, Vec<u64>)| v1::LoadRow {
            region: region_at(catalog, table, &range.start),
            start: range.start,
            end: range.end,
            counts,
        };
        Ok(v1::LoadHistoryReply {
            known_from_ms,
            from_ms: heat.first * MINUTE_MS,
            step_ms: heat.step * MINUTE_MS,
            columns: u32::try_from(heat.columns).unwrap_or(u32::MAX),
            rows: heat.rows.into_iter().map(row).collect(),
            minutes: Vec::new(),
            now_ms,
        })
    })
}

fn region_at(catalog: &Catalog, table: TableId, key: &Bytes) -> u64 {
    catalog.regions().up_from(table, key, 1).first().map_or(0, |entry| entry.descriptor.region.0)
}

/// Answers events.
pub fn events(context: &MasterContext, request: &v1::ListEventsRequest) -> v1::ListEventsReply {
    let limit = if request.limit == 0 { EVENTS_DEFAULT } else { request.limit };
    let past = context.past.lock();
    let newest = past.events.newest(request.before, usize::try_from(limit).unwrap_or(EVENTS_MAX));
    v1::ListEventsReply {
        events: newest.into_iter().map(Into::into).collect(),
        known_from_ms: past.events.since_ms().unwrap_or(0),
    }
}

/// Answers failovers.
pub fn failovers(context: &MasterContext) -> v1::ListFailoversReply {
    let (now, wall_ms) = (now(), terrane_env::time::wall_ms());
    context.journal.read(|catalog| {
        context.observed.with(|observed| {
            let past = context.past.lock();
            let failovers = past.events.failovers(catalog, observed, now, wall_ms);
            v1::ListFailoversReply {
                failovers: failovers.into_iter().map(Into::into).collect(),
                known_from_ms: past.events.since_ms().unwrap_or(0),
            }
        })
    })
}

#[cfg(test)]
mod tests;
