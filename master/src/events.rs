//! What happened in the cluster, as text: splits, merges, moves, elections, drains, deaths and returns of servers, changes of
//! tables. And how long groups were without a leader. Without I/O or a clock of its own.
//!
//! Most of it happens without a master: regions split and groups elect on their own. So [`Events::look`] compares what the
//! catalog and the reports say with what they said at the last look, twice a second; elections are taken from the report
//! that brings the new leader. The reason of a move is in the catalog; of a split or merge, the event says how large and how
//! busy the regions were.
//!
//! Invariants: the newest [`EVENTS_MAX`] events and [`FAILOVERS_MAX`] failovers are kept, in memory only. A master that begins
//! to lead begins without any, and what it sees first is not an event.

use std::collections::{BTreeMap, VecDeque};

use terrane_types::{GroupId, RegionDescriptor, RegionId, ServerId, TableId, escape};

use crate::catalog::Catalog;
use crate::inventory::Election;
use crate::liveness::{Moment, ServerState};
use crate::observed::Observations;

/// The most events that are kept.
pub const EVENTS_MAX: usize = 2_000;
/// The most failovers that are kept.
pub const FAILOVERS_MAX: usize = 1_000;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A region server.
    Server(ServerId),
    /// A table, by name.
    Table(String),
    /// A region.
    Region(RegionId),
    /// A log group.
    Group(GroupId),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Numbers events in their order.
    pub number: u64,
    /// In milliseconds since 1970.
    pub time_ms: u64,
    /// `split`, `merge`, `move`, `election`, `failover`, `server`, `master`, `drain` or `table`.
    pub kind: &'static str,
    /// What happened.
    pub what: String,
    /// Why; empty if it is not known.
    pub reason: String,
    /// What it happened to.
    pub places: Vec<Place>,
}

/// A group that lost its leader with the leader's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// When the former leader was last heard of, in milliseconds since 1970.
    pub time_ms: u64,
    /// The group.
    pub group: GroupId,
    /// Its regions.
    pub regions: usize,
    /// The server that led.
    pub from: ServerId,
    /// The server that leads now.
    pub to: Option<ServerId>,
    /// Why, as text.
    pub reason: String,
    /// From the last report of the former leader to the first one of the next; `None` while there is none.
    pub blackout_ms: Option<u64>,
}

/// What the last look saw.
#[derive(Debug, Default)]
struct Before {
    regions: BTreeMap<RegionId, RegionDescriptor>,
    tables: BTreeMap<TableId, (String, u64)>,
    servers: BTreeMap<ServerId, ServerState>,
    draining: BTreeMap<ServerId, bool>,
}

/// The events that a leading master has seen.
#[derive(Debug, Default)]
pub struct Events {
    since_ms: Option<u64>,
    next: u64,
    events: VecDeque<Event>,
    failovers: VecDeque<Failover>,
    before: Option<Before>,
}

impl Events {
    /// Since when events are known, in milliseconds since 1970.
    pub const fn since_ms(&self) -> Option<u64> {
        self.since_ms
    }

    /// This master begins to lead in this term.
    pub fn lead(&mut self, wall_ms: u64, address: &str, term: u64) {
        *self = Self { since_ms: Some(wall_ms), ..Self::default() };
        self.note(
            wall_ms,
            "master",
            format!("the master at {address} leads"),
            format!("elected in term {term}"),
            Vec::new(),
        );
    }

    fn note(&mut self, time_ms: u64, kind: &'static str, what: String, reason: String, places: Vec<Place>) {
        self.next += 1;
        self.events.push_back(Event { number: self.next, time_ms, kind, what, reason, places });
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// The events before a number (0: all), newest first.
    pub fn newest(&self, before: u64, limit: usize) -> Vec<Event> {
        let wanted = |event: &&Event| before == 0 || event.number < before;
        self.events.iter().rev().filter(wanted).take(limit).cloned().collect()
    }

    /// The failovers that have ended, newest first, after those that last.
    pub fn failovers(&self, catalog: &Catalog, observed: &Observations, now: Moment, wall_ms: u64) -> Vec<Failover> {
        let lasting = catalog.groups().iter().filter_map(|(group, entry)| {
            let from = observed.inventory.leader(group)?;
            let missed = entry.is_open() && observed.liveness.is_missed(from, now);
            missed.then(|| {
                self.failover(
                    catalog,
                    observed,
                    Election { group, from: Some(from), to: from, term: 0 },
                    (now, wall_ms),
                )
            })
        });
        let lasting = lasting.flatten().map(|failover| Failover { to: None, blackout_ms: None, ..failover });
        lasting.chain(self.failovers.iter().rev().cloned()).collect()
    }

    fn failover(
        &self,
        catalog: &Catalog,
        observed: &Observations,
        seen: Election,
        at: (Moment, u64),
    ) -> Option<Failover> {
        let from = seen.from?;
        let quiet = u64::try_from(observed.liveness.quiet_for(from, at.0).as_millis()).unwrap_or(u64::MAX);
        Some(Failover {
            time_ms: at.1.saturating_sub(quiet),
            group: seen.group,
            regions: catalog.regions().iter().filter(|entry| entry.descriptor.group == seen.group).count(),
            from,
            to: Some(seen.to),
            reason: format!("server {from} no longer answered"),
            blackout_ms: Some(quiet),
        })
    }

    /// A report brought other leaders.
    pub fn elected(&mut self, catalog: &Catalog, observed: &Observations, elections: &[Election], at: (Moment, u64)) {
        if self.since_ms.is_none() {
            return;
        }
        for seen in elections {
            let Some(from) = seen.from.filter(|from| *from != seen.to) else { continue };
            let (group, to) = (seen.group, seen.to);
            let places = vec![Place::Group(group), Place::Server(from), Place::Server(to)];
            let what = format!("server {to} leads group {group} after server {from}, in term {}", seen.term);
            let state = observed.liveness.state(from);
            let draining = catalog.servers().drain(from).is_some();
            let overdue = observed.liveness.quiet_for(from, at.0) > OVERDUE_AFTER;
            if state == ServerState::Silent || (state == ServerState::Live && overdue) {
                if let Some(failover) = self.failover(catalog, observed, *seen, at) {
                    let reason = failover.reason.clone();
                    self.failovers.push_back(failover);
                    while self.failovers.len() > FAILOVERS_MAX {
                        self.failovers.pop_front();
                    }
                    self.note(at.1, "failover", what, reason, places);
                }
                continue;
            }
            let reason = match state {
                ServerState::Stopped => format!("server {from} stopped"),
                _ if draining => format!("server {from} is drained"),
                _ => String::new(),
            };
            let kind = if reason.is_empty() { "election" } else { "handover" };
            self.note(at.1, kind, what, reason, places);
        }
    }

    /// Compares the present with the last look.
    pub fn look(&mut self, catalog: &Catalog, observed: &Observations, wall_ms: u64) {
        let present = Before {
            regions: catalog
                .regions()
                .iter()
                .map(|entry| (entry.descriptor.region, entry.descriptor.clone()))
                .collect(),
            tables: catalog
                .tables()
                .iter()
                .map(|table| (table.schema.table, (table.schema.name.to_string(), table.schema.version)))
                .collect(),
            servers: catalog.servers().iter().map(|(server, _)| (server, observed.liveness.state(server))).collect(),
            draining: catalog.servers().iter().map(|(id, _)| (id, catalog.servers().drain(id).is_some())).collect(),
        };
        let before = self.before.replace(Before::default());
        if let Some(before) = before {
            self.compare_regions(catalog, observed, &before, &present, wall_ms);
            self.compare_tables(&before, &present, wall_ms);
            self.compare_servers(catalog, &before, &present, wall_ms);
        }
        self.before = Some(present);
    }

    fn compare_regions(
        &mut self,
        catalog: &Catalog,
        seen: &Observations,
        before: &Before,
        present: &Before,
        wall_ms: u64,
    ) {
        let lived = |table: &TableId| before.tables.contains_key(table) && present.tables.contains_key(table);
        let gone: Vec<&RegionDescriptor> = before
            .regions
            .values()
            .filter(|old| !present.regions.contains_key(&old.region) && lived(&old.table))
            .collect();
        let born: Vec<&RegionDescriptor> = present
            .regions
            .values()
            .filter(|new| !before.regions.contains_key(&new.region) && lived(&new.table))
            .collect();
        let name = |table: TableId| present.tables.get(&table).map_or_else(String::new, |(name, _)| name.clone());
        for old in &gone {
            let daughters: Vec<_> = born.iter().filter(|new| new.table == old.table && is_within(new, old)).collect();
            let [left, .., right] = daughters[..] else { continue };
            let (one, other) = (left.region, right.region);
            let at = daughters.iter().map(|new| &new.range.start).find(|start| **start != old.range.start);
            let at = at.map_or_else(String::new, |at| format!(" at {}", escape(at)));
            let what = format!("region {} of {} split into {one} and {other}{at}", old.region, name(old.table));
            let places = vec![Place::Table(name(old.table)), Place::Region(one), Place::Region(other)];
            self.note(
                wall_ms,
                "split",
                what,
                shape(seen, &daughters.iter().map(|new| **new).collect::<Vec<_>>()),
                places,
            );
        }
        for new in &born {
            let parents: Vec<_> = gone.iter().filter(|old| old.table == new.table && is_within(old, new)).collect();
            let [left, .., right] = parents[..] else { continue };
            let what = format!(
                "regions {} and {} of {} merged into {}",
                left.region,
                right.region,
                name(new.table),
                new.region
            );
            let places = vec![Place::Table(name(new.table)), Place::Region(new.region)];
            self.note(wall_ms, "merge", what, shape(seen, &[new]), places);
        }
        for new in present.regions.values() {
            let Some(old) = before.regions.get(&new.region).filter(|old| old.group != new.group) else { continue };
            let (from, to) = (old.group, new.group);
            let what = format!("region {} of {} moved from group {from} to group {to}", new.region, name(new.table));
            let places =
                vec![Place::Table(name(new.table)), Place::Region(new.region), Place::Group(from), Place::Group(to)];
            let why = catalog.moves().of_region(new.region).map_or_else(String::new, |(_, known)| known.why.clone());
            self.note(wall_ms, "move", what, why, places);
        }
    }

    fn compare_tables(&mut self, before: &Before, present: &Before, wall_ms: u64) {
        for (table, (name, version)) in &present.tables {
            let what = match before.tables.get(table) {
                None => format!("table {name} was created"),
                Some((_, old)) if old != version => {
                    format!("table {name} was altered: its schema has version {version}")
                }
                Some(_) => continue,
            };
            self.note(wall_ms, "table", what, String::new(), vec![Place::Table(name.clone())]);
        }
        for (table, (name, _)) in &before.tables {
            if !present.tables.contains_key(table) {
                self.note(wall_ms, "table", format!("table {name} was dropped"), String::new(), Vec::new());
            }
        }
    }

    fn compare_servers(&mut self, catalog: &Catalog, before: &Before, present: &Before, wall_ms: u64) {
        for (server, state) in &present.servers {
            let address = catalog.servers().address(*server);
            let (what, reason) = match (before.servers.get(server), state) {
                (None, _) => (format!("server {server} at {address} joined"), ""),
                (Some(old), new) if old == new => continue,
                (_, ServerState::Live) => (format!("server {server} at {address} reports again"), ""),
                (_, ServerState::Silent) => {
                    (format!("server {server} at {address} is silent"), "its reports are overdue")
                }
                (_, ServerState::Stopped) => (format!("server {server} at {address} stopped"), "it announced its stop"),
            };
            self.note(wall_ms, "server", what, reason.to_owned(), vec![Place::Server(*server)]);
        }
        for server in before.servers.keys().filter(|server| !present.servers.contains_key(server)) {
            let reason = "decommissioned by an administrator".to_owned();
            self.note(wall_ms, "server", format!("server {server} left the cluster"), reason, Vec::new());
        }
        for (server, drains) in &present.draining {
            if before.draining.get(server).is_some_and(|drained| drained != drains) {
                let what = if *drains { "is drained" } else { "is no longer drained" };
                let reason = "asked by an administrator".to_owned();
                self.note(wall_ms, "drain", format!("server {server} {what}"), reason, vec![Place::Server(*server)]);
            }
        }
    }
}

/// A leader whose report is later than this did not hand over: the next one was elected without it.
const OVERDUE_AFTER: std::time::Duration = std::time::Duration::from_millis(900);

fn is_within(inner: &RegionDescriptor, outer: &RegionDescriptor) -> bool {
    let ends = outer.range.end.is_empty() || (!inner.range.end.is_empty() && inner.range.end <= outer.range.end);
    inner.range.start >= outer.range.start && ends
}

/// How large and how busy regions are, as their leaders report them.
fn shape(observed: &Observations, regions: &[&RegionDescriptor]) -> String {
    let seen = regions.iter().filter_map(|region| observed.inventory.region(region.group, region.region));
    let (bytes, rows) = seen.fold((0_u64, 0_u64), |(bytes, rows), view| {
        (bytes + view.bytes, rows + view.load.rows_read + view.load.rows_written)
    });
    format!("{} MiB and {rows} rows per second in it", bytes >> 20)
}

#[cfg(test)]
mod tests;
