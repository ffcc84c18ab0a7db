//! What happened in the cluster, as text: splits, merges, moves, elections, drains, deaths and returns of servers, changes of
//! tables. And how long groups were without a leader. Without I/O or a clock of its own.
//!
//! Most of it happens without a master: regions split and groups elect on their own. So [`Events::look`] compares what the
//! catalog and the reports say with what they said at the last look, twice a second; elections are taken from the report
//! that brings the new leader, or from the order that it followed. Between two looks a region may split twice, or split and
//! merge. What the looks compare are therefore the boundaries between regions: each one that appears is a split, and each one
//! that disappears a merge. Moves are compared by their ids, as they end.
//!
//! Reasons: a move's is in the catalog while it is unfinished; an election's is what is known of the former leader, or the
//! order; of a split or merge, the event says how large and how busy the regions were at the last look.
//!
//! Invariants: each event is noted once, however often it is reported. The newest [`EVENTS_MAX`] events and
//! [`FAILOVERS_MAX`] failovers are kept, in memory only. A master that begins to lead begins without any, and what it sees
//! first is not an event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use terrane_types::admin::past::{EventInfo, EventKind, Failover};
use terrane_types::states::DrainState::{self, Drained, Draining};
use terrane_types::states::ServerState;
use terrane_types::{GroupId, KeyDeclaration, Place, RegionDescriptor, RegionId, ServerId, TableId, escape};

use crate::catalog::Catalog;
use crate::catalog::moves::{EndedMove, MoveEnd, MoveId, RegionMove};
use crate::catalog::tables::TableState;
use crate::servers::inventory::Election;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// The most events that are kept.
pub const EVENTS_MAX: usize = 2_000;
/// The most failovers that are kept.
pub const FAILOVERS_MAX: usize = 1_000;

/// A region at a look.
#[derive(Debug)]
struct RegionThen {
    descriptor: RegionDescriptor,
    /// Its size and its rows per second, as its leader reported them.
    shape: Option<(u64, u64)>,
}

/// What the last look saw.
#[derive(Debug, Default)]
struct Before {
    regions: BTreeMap<RegionId, RegionThen>,
    /// The ended moves that the catalog remembered.
    ended: BTreeSet<MoveId>,
    tables: BTreeMap<TableId, String>,
    /// The declared keys of tables, by whose parts boundaries are shown.
    keys: BTreeMap<TableId, KeyDeclaration>,
    servers: BTreeMap<ServerId, ServerState>,
    boots: BTreeMap<ServerId, u64>,
    /// Why servers cannot be reached.
    unreachable: BTreeMap<ServerId, String>,
    drains: BTreeMap<ServerId, Option<DrainState>>,
}

/// An order to hand over a leadership.
#[derive(Debug)]
struct Ordered {
    to: ServerId,
    why: String,
    at: Moment,
}

/// The events that a leading master has seen.
#[derive(Debug, Default)]
pub struct Events {
    since_ms: Option<u64>,
    next: u64,
    events: VecDeque<EventInfo>,
    failovers: VecDeque<Failover>,
    before: Option<Before>,
    /// The newest table of each name with the version of its schema, at the last look at tables.
    tables: Option<BTreeMap<String, (TableId, u64)>>,
    /// The unfinished moves, each with its region as it was and why it moves: an ended move does not say so any more.
    moving: BTreeMap<MoveId, (RegionDescriptor, String)>,
    /// The last order to each group's leader to hand over, until that group has another leader.
    ordered: BTreeMap<GroupId, Ordered>,
    /// The servers that have joined and were not live yet.
    joining: BTreeSet<ServerId>,
    /// When each server was last seen with another boot number.
    restarted_ms: BTreeMap<ServerId, u64>,
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
            EventKind::Master,
            format!("the master at {address} leads"),
            format!("elected in term {term}"),
            Vec::new(),
        );
    }

    fn note(&mut self, time_ms: u64, kind: EventKind, what: String, reason: String, places: Vec<Place>) {
        self.next += 1;
        self.events.push_back(EventInfo { number: self.next, time_ms, kind, what, reason, places });
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// The events before a number (0: all), newest first.
    pub fn newest(&self, before: u64, limit: usize) -> Vec<EventInfo> {
        let wanted = |event: &&EventInfo| before == 0 || event.number < before;
        self.events.iter().rev().filter(wanted).take(limit).cloned().collect()
    }

    /// The failovers that have ended, newest first, after those that last.
    pub fn failovers(&self, catalog: &Catalog, observed: &Observations, now: Moment, wall_ms: u64) -> Vec<Failover> {
        let lasting = catalog.groups().iter().filter_map(|(group, entry)| {
            let from = observed.inventory.last_leader(group)?;
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
        let regions = catalog.regions().iter().filter(|entry| entry.descriptor.group == seen.group);
        Some(Failover {
            time_ms: at.1.saturating_sub(quiet),
            group: seen.group,
            regions: u32::try_from(regions.count()).unwrap_or(u32::MAX),
            from,
            to: Some(seen.to),
            reason: format!("server {from} no longer answered"),
            blackout_ms: Some(quiet),
        })
    }

    /// The leader of a group is about to be ordered to hand over to a server, for this reason.
    pub fn ordered(&mut self, group: GroupId, to: ServerId, why: &str, at: Moment) {
        self.ordered.insert(group, Ordered { to, why: why.to_owned(), at });
    }

    /// A move begins, or continues under this master.
    pub fn moving(&mut self, id: MoveId, known: &RegionMove) {
        self.moving.entry(id).or_insert_with(|| (known.region.clone(), known.why.clone()));
    }

    /// A report brought other leaders, or an order was followed.
    pub fn elected(&mut self, catalog: &Catalog, observed: &Observations, elections: &[Election], at: (Moment, u64)) {
        if self.since_ms.is_none() {
            return;
        }
        for seen in elections {
            let ordered = self.ordered.remove(&seen.group);
            let Some(from) = seen.from.filter(|from| *from != seen.to) else { continue };
            let (group, to) = (seen.group, seen.to);
            let places = vec![Place::Group(group), Place::Server(from), Place::Server(to)];
            let term = if seen.term == 0 { String::new() } else { format!(", in term {}", seen.term) };
            let what = format!("server {to} leads group {group} after server {from}{term}");
            let state = observed.liveness.state(from);
            let overdue = observed.liveness.quiet_for(from, at.0) > OVERDUE_AFTER;
            // One that was started again is silent until it serves; whether it was missed before is another matter.
            let is_starting = state == ServerState::Silent && !observed.liveness.is_missed(from, at.0);
            let is_heard = state == ServerState::Live || is_starting;
            let is_late = (state == ServerState::Silent && !is_starting) || (is_heard && overdue);
            if let Some(failover) = self.failover(catalog, observed, *seen, at).filter(|_| is_late) {
                let reason = failover.reason.clone();
                self.failovers.push_back(failover);
                while self.failovers.len() > FAILOVERS_MAX {
                    self.failovers.pop_front();
                }
                self.note(at.1, EventKind::Failover, what, reason, places);
                continue;
            }
            let followed = |order: &Ordered| order.to == to && at.0.since(order.at) < FOLLOWED_WITHIN;
            let ordered = ordered.filter(followed).map(|order| order.why);
            let draining = catalog.servers().drain(from).is_some();
            let restarted = self.has_restarted(observed, from, at.1);
            let (kind, reason) = match (state, ordered) {
                (ServerState::Stopped, _) => (EventKind::Handover, format!("server {from} stopped")),
                (_, Some(why)) => (EventKind::Handover, why),
                (_, None) if draining => (EventKind::Handover, format!("server {from} is drained")),
                (_, None) if restarted => (EventKind::Election, format!("server {from} was started again")),
                (_, None) => {
                    (EventKind::Election, format!("server {from} gave up the leadership, or lost it; it still reports"))
                }
            };
            let forgets = terrane_env::planted!("an election loses its reason");
            self.note(at.1, kind, what, if forgets { String::new() } else { reason }, places);
        }
    }

    /// Whether a server runs under another boot number than at the last look, or did a moment ago.
    fn has_restarted(&self, observed: &Observations, server: ServerId, wall_ms: u64) -> bool {
        let before = self.before.as_ref().and_then(|before| before.boots.get(&server)).copied().unwrap_or(0);
        let lately = |at: &u64| wall_ms.saturating_sub(*at) < RESTARTED_LATELY_MS;
        (before != 0 && before != observed.liveness.boot(server)) || self.restarted_ms.get(&server).is_some_and(lately)
    }

    /// Compares the present with the last look.
    pub fn look(&mut self, catalog: &Catalog, observed: &Observations, wall_ms: u64) {
        let mut present = Before {
            regions: catalog.regions().iter().map(|entry| seen_now(&entry.descriptor, observed)).collect(),
            ended: catalog.moves().ended().map(|ended| ended.id).collect(),
            tables: catalog.tables().iter().map(|table| (table.schema.table, table.schema.name.to_string())).collect(),
            keys: keys_of(catalog),
            servers: catalog.servers().iter().map(|(server, _)| (server, observed.liveness.state(server))).collect(),
            boots: catalog.servers().iter().map(|(server, _)| (server, observed.liveness.boot(server))).collect(),
            unreachable: catalog
                .servers()
                .iter()
                .filter_map(|(id, _)| Some((id, observed.liveness.unreachable_because(id)?.to_owned())))
                .collect(),
            drains: catalog.servers().iter().map(|(id, _)| (id, catalog.drain_state(id))).collect(),
        };
        catalog.moves().iter().for_each(|(id, known)| self.moving(id, known));
        let before = self.before.take();
        if before.is_none() {
            self.look_at_tables(catalog, wall_ms);
        }
        if let Some(before) = &before {
            present.fill_shapes(before);
            // A region does not split while it moves, but may as soon as it has.
            self.compare_groups(catalog, before, &present, wall_ms);
            self.compare_regions(before, &present, wall_ms);
            self.look_at_tables(catalog, wall_ms);
            self.compare_servers(catalog, before, &present, wall_ms);
        }
        self.moving.retain(|id, _| catalog.moves().get(*id).is_some());
        let again = terrane_env::planted!("an event is listed again at every look");
        self.before = before.filter(|_| again).or(Some(present));
    }

    fn compare_regions(&mut self, before: &Before, present: &Before, wall_ms: u64) {
        let changed = |known: &RegionThen, other: &Before| !other.regions.contains_key(&known.descriptor.region);
        let gone = before.regions.values().filter(|known| changed(known, present));
        let born = present.regions.values().filter(|known| changed(known, before));
        let tables: BTreeSet<TableId> = gone.chain(born).map(|known| known.descriptor.table).collect();
        for table in tables {
            let Some(name) = before.tables.get(&table).and(present.tables.get(&table)) else { continue };
            let key = present.keys.get(&table);
            self.compare_boundaries((name, key), &before.boundaries(table), &present.boundaries(table), wall_ms);
        }
    }

    fn compare_boundaries(
        &mut self,
        (table, key): (&str, Option<&KeyDeclaration>),
        before: &Boundaries<'_>,
        present: &Boundaries<'_>,
        wall_ms: u64,
    ) {
        let shown = |at: &[u8]| key.map_or_else(|| escape(at), |key| key.shown(at));
        let listed = if terrane_env::planted!("one split of a look is listed") { 1 } else { usize::MAX };
        for (at, right) in present.iter().filter(|(at, _)| !before.contains_key(*at)).take(listed) {
            let parent = before.range::<Bytes, _>(..*at).next_back();
            let left = present.range::<Bytes, _>(..*at).next_back();
            let (Some((_, parent)), Some((_, left))) = (parent, left) else { continue };
            let (parent_id, one, other) = (parent.id(), left.id(), right.id());
            let what = format!("region {parent_id} of {table} split into {one} and {other} at {}", shown(at));
            let places = vec![Place::Table(table.to_owned()), Place::Region(one), Place::Region(other)];
            self.note(wall_ms, EventKind::Split, what, shape("it", &[parent]), places);
        }
        for (at, right) in before.iter().filter(|(at, _)| !present.contains_key(*at)) {
            let left = before.range::<Bytes, _>(..*at).next_back();
            let merged = present.range::<Bytes, _>(..*at).next_back();
            let (Some((_, left)), Some((_, merged))) = (left, merged) else { continue };
            let (one, other, into) = (left.id(), right.id(), merged.id());
            let what = format!("regions {one} and {other} of {table} merged into {into} at {}", shown(at));
            let places = vec![Place::Table(table.to_owned()), Place::Region(into)];
            self.note(wall_ms, EventKind::Merge, what, shape("they", &[left, right]), places);
        }
        for (at, new) in present {
            let is_same = |old: &&&RegionThen| old.descriptor.range == new.descriptor.range && old.id() != new.id();
            let Some(old) = before.get(at).filter(is_same) else { continue };
            let (one, other) = (old.id(), new.id());
            let what =
                format!("region {other} of {table} took the place of {one}: it split, and its parts merged again");
            let places = vec![Place::Table(table.to_owned()), Place::Region(other)];
            self.note(wall_ms, EventKind::Merge, what, shape("it", &[old]), places);
        }
    }

    /// Moves that ended, and regions in other groups that no move explains: a rebuilt catalog may not know it.
    fn compare_groups(&mut self, catalog: &Catalog, before: &Before, present: &Before, wall_ms: u64) {
        let moves = catalog.moves();
        let ended: Vec<&EndedMove> = moves.ended().filter(|ended| !before.ended.contains(&ended.id)).collect();
        let name = |table: &TableId| {
            let known = present.tables.get(table).or_else(|| before.tables.get(table));
            known.cloned().unwrap_or_else(|| format!("table {table}"))
        };
        for EndedMove { id, region, to, end, .. } in &ended {
            let (from, why) = match self.moving.remove(id) {
                Some((from, why)) => (Some(from), why),
                None => (before.regions.get(region).map(|known| known.descriptor.clone()), String::new()),
            };
            let table = from.as_ref().map_or_else(|| "a dropped table".to_owned(), |from| name(&from.table));
            let group = from.as_ref().map(|from| from.group);
            let source = group.map_or_else(String::new, |group| format!(" from group {group}"));
            let (what, reason) = match end {
                MoveEnd::Moved(_) => (format!("region {region} of {table} moved{source} to group {to}"), why),
                MoveEnd::Undone(undone) => {
                    (format!("the move of region {region} of {table}{source} to group {to} was undone"), undone.clone())
                }
            };
            let places = [Place::Table(table), Place::Region(*region)].into_iter();
            let places = places.chain(group.map(Place::Group)).chain([Place::Group(*to)]);
            self.note(wall_ms, EventKind::Move, what, reason, places.collect());
        }
        for RegionThen { descriptor: new, .. } in present.regions.values() {
            let Some(old) = before.regions.get(&new.region).filter(|old| old.descriptor.group != new.group) else {
                continue;
            };
            if moves.of_region(new.region).is_some() || ended.iter().any(|ended| ended.region == new.region) {
                continue;
            }
            let (region, from, to, table) = (new.region, old.descriptor.group, new.group, name(&new.table));
            let what = format!("region {region} of {table} moved from group {from} to group {to}");
            let places = vec![Place::Table(table), Place::Region(region), Place::Group(from), Place::Group(to)];
            self.note(
                wall_ms,
                EventKind::Move,
                what,
                "its new leader reports it; no move is recorded".to_owned(),
                places,
            );
        }
    }

    /// Compares the tables with the last look at them. A table that was truncated stays in the catalog, under the name of the
    /// one that took its place, until a procedure has removed it: so it is told from one that was dropped.
    pub fn look_at_tables(&mut self, catalog: &Catalog, wall_ms: u64) {
        if self.since_ms.is_none() {
            return;
        }
        let mut present = BTreeMap::new();
        for entry in catalog.tables().iter() {
            let name = entry.schema.name.to_string();
            let table = entry.schema.table;
            let is_known =
                |known: &BTreeMap<_, (TableId, u64)>| known.get(&name).is_some_and(|(known, _)| *known == table);
            // What is left of a truncated table may outlive the table that took its place.
            if entry.state != TableState::Dropping || self.tables.as_ref().is_none_or(is_known) {
                present.insert(name, (table, entry.schema.version));
            }
        }
        let Some(before) = self.tables.replace(present.clone()) else { return };
        let mut note = |name: &str, what: &str, exists: bool| {
            let places = if exists { vec![Place::Table(name.to_owned())] } else { Vec::new() };
            self.note(wall_ms, EventKind::Table, format!("table {name} {what}"), String::new(), places);
        };
        for (name, (table, version)) in &present {
            match before.get(name) {
                None => note(name, "was created", true),
                Some((old, _)) if old != table && catalog.tables().get(*old).is_some() => {
                    note(name, "was truncated", true);
                }
                Some((old, _)) if old != table => {
                    note(name, "was dropped", false);
                    note(name, "was created", true);
                }
                Some((_, old)) if old != version => {
                    note(name, &format!("was altered: its schema has version {version}"), true);
                }
                Some(_) => {}
            }
        }
        for name in before.keys().filter(|name| !present.contains_key(*name)) {
            note(name, "was dropped", false);
        }
    }

    fn compare_servers(&mut self, catalog: &Catalog, before: &Before, present: &Before, wall_ms: u64) {
        for (server, state) in &present.servers {
            let address = catalog.servers().address(*server);
            let why = present.unreachable.get(server).map_or("", String::as_str);
            let boot = |look: &Before| look.boots.get(server).copied().unwrap_or(0);
            let restarted = boot(before) != 0 && boot(before) != boot(present);
            if restarted {
                self.restarted_ms.insert(*server, wall_ms);
            }
            let (what, reason) = match (before.servers.get(server), state) {
                (None, state) => {
                    if *state != ServerState::Live {
                        self.joining.insert(*server);
                    }
                    (format!("server {server} at {address} joined"), "")
                }
                // It serves now, as one that joins is expected to.
                (Some(_), ServerState::Live) if self.joining.remove(server) => continue,
                (Some(ServerState::Live), ServerState::Live | ServerState::Silent) if restarted => {
                    (format!("server {server} at {address} was started again"), "another process registered")
                }
                (Some(old), new) if old == new => continue,
                (_, ServerState::Live) if restarted => {
                    (format!("server {server} at {address} reports again"), "it was started again")
                }
                (_, ServerState::Live) => (format!("server {server} at {address} reports again"), ""),
                (_, ServerState::Silent) => {
                    (format!("server {server} at {address} is silent"), "its reports are overdue")
                }
                (_, ServerState::Unreachable) => (format!("server {server} at {address} is unreachable"), why),
                (_, ServerState::Stopped) => (format!("server {server} at {address} stopped"), "it announced its stop"),
            };
            if before.servers.contains_key(server) {
                self.joining.remove(server);
            }
            self.note(wall_ms, EventKind::Server, what, reason.to_owned(), vec![Place::Server(*server)]);
        }
        self.restarted_ms.retain(|server, _| present.servers.contains_key(server));
        self.joining.retain(|server| present.servers.contains_key(server));
        for server in before.servers.keys().filter(|server| !present.servers.contains_key(server)) {
            let reason = "decommissioned by an administrator".to_owned();
            self.note(wall_ms, EventKind::Server, format!("server {server} left the cluster"), reason, Vec::new());
        }
        for (server, state) in &present.drains {
            let (what, reason) = match (before.drains.get(server).copied(), *state) {
                (Some(None), Some(Draining)) => ("is being drained", "asked by an administrator"),
                (Some(None), Some(Drained)) => ("is drained", "asked by an administrator; it has no replicas"),
                (Some(Some(Draining)), Some(Drained)) => ("is drained", "its last replica is on another server"),
                (Some(Some(_)), None) => ("is no longer drained", "asked by an administrator"),
                _ => continue,
            };
            let places = vec![Place::Server(*server)];
            self.note(wall_ms, EventKind::Drain, format!("server {server} {what}"), reason.to_owned(), places);
        }
    }
}

/// A leader whose report is later than this did not hand over: the next one was elected without it.
const OVERDUE_AFTER: std::time::Duration = std::time::Duration::from_millis(900);

/// A leader that changes later after an order did not follow it.
const FOLLOWED_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);
/// A leader that was started again lost its leaderships by that, even if a report says so only later.
const RESTARTED_LATELY_MS: u64 = 10_000;

/// The regions of a table by their first keys.
type Boundaries<'a> = BTreeMap<&'a Bytes, &'a RegionThen>;

/// The declared keys of all tables.
fn keys_of(catalog: &Catalog) -> BTreeMap<TableId, KeyDeclaration> {
    catalog.tables().iter().filter_map(|table| Some((table.schema.table, table.schema.key.clone()?))).collect()
}

impl Before {
    fn boundaries(&self, table: TableId) -> Boundaries<'_> {
        let own = self.regions.values().filter(|known| known.descriptor.table == table);
        own.map(|known| (&known.descriptor.range.start, known)).collect()
    }

    /// A leader reports half of a split at first, and then no longer says how large the parent is.
    fn fill_shapes(&mut self, before: &Self) {
        for (region, known) in self.regions.iter_mut().filter(|(_, known)| known.shape.is_none()) {
            known.shape = before.regions.get(region).and_then(|known| known.shape);
        }
    }
}

impl RegionThen {
    const fn id(&self) -> RegionId {
        self.descriptor.region
    }
}

fn seen_now(descriptor: &RegionDescriptor, observed: &Observations) -> (RegionId, RegionThen) {
    let view = observed.inventory.region(descriptor.group, descriptor.region);
    let shape = view.map(|view| (view.bytes, view.load.rows_read + view.load.rows_written));
    (descriptor.region, RegionThen { descriptor: descriptor.clone(), shape })
}

/// How large and how busy regions were, as their leaders reported them.
fn shape(who: &str, regions: &[&RegionThen]) -> String {
    let seen = regions.iter().filter_map(|region| region.shape);
    match seen.reduce(|(bytes, rows), (more, and)| (bytes + more, rows + and)) {
        Some((bytes, rows)) => format!("{who} had {} MiB and {rows} rows per second", bytes >> 20),
        None => format!("no report said before how large and busy {who} had become"),
    }
}

#[cfg(test)]
mod tests;
