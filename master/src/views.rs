//! Read-only calls: locations for clients, lists and the status for users.
//!
//! Replies are built from the catalog and the observed state at the time of the call, in memory.

mod groups;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use terrane_proto::v1;
use terrane_types::states::{self, DrainState, RegionState, ServerState};
use terrane_types::{Error, GroupId, IssueKind, NamespaceName, RegionDescriptor, ServerId, TableId, TableName};

use self::groups::group_info;
use crate::catalog::Catalog;
use crate::catalog::regions::RegionEntry;
use crate::catalog::servers::Registration;
use crate::catalog::tables::{TableEntry, TableState};
use crate::context::MasterContext;
use crate::fleet::intents::resolve;
use crate::fleet::world::{Condition, condition};
use crate::fleet::{self, check, planner, recovery, repair, restart};
use crate::issues::{Reported, health_issues, leaderless};
use crate::masters_view::MastersView;
use crate::meta::{MetaBlock, MetaScan};
use crate::servers::observed::{Observations, now};
use crate::tables::schemas;
use crate::tables::waiting_for;

/// Default and largest number of regions in the reply to a lookup.
const LOCATE_DEFAULT: usize = 256;
const LOCATE_MAX: usize = 4_096;

/// The read-only calls of one master.
pub struct Views {
    context: Arc<MasterContext>,
}

impl Views {
    /// The read-only calls on this context.
    pub const fn new(context: Arc<MasterContext>) -> Self {
        Self { context }
    }

    fn look<T>(&self, look: impl FnOnce(&Catalog, &Observations) -> T) -> T {
        self.context.journal.read(|catalog| self.context.observed.with(|observed| look(catalog, observed)))
    }

    /// A table by name.
    pub fn table(&self, name: &TableName) -> Result<v1::TableReply, Error> {
        if name.is_meta() {
            let regions = self.context.journal.read(|catalog| catalog.regions().len());
            let schema = Some((&schemas::meta()).into());
            let state = TableState::Enabled.name().to_owned();
            return Ok(v1::TableReply { schema, state, regions: count(regions), bytes: 0 });
        }
        self.look(|catalog, observed| {
            catalog.tables().named(&name.to_string()).map(|entry| table(catalog, observed, entry))
        })
        .ok_or_else(|| Error::NotFound { what: format!("table {name}") })
    }

    /// The tables of a namespace, or all tables, by name.
    pub fn tables(&self, namespace: Option<&NamespaceName>) -> Result<Vec<v1::TableReply>, Error> {
        self.look(|catalog, observed| {
            let Some(namespace) = namespace else {
                return Ok(catalog.tables().iter().map(|entry| table(catalog, observed, entry)).collect());
            };
            if !catalog.namespaces().contains(namespace) {
                return Err(Error::NotFound { what: format!("namespace {namespace}") });
            }
            Ok(catalog.tables().in_namespace(namespace).map(|entry| table(catalog, observed, entry)).collect())
        })
    }

    /// All namespaces, sorted.
    pub fn namespaces(&self) -> Vec<String> {
        let names = self.context.journal.read(|catalog| catalog.namespaces().list());
        names.iter().map(ToString::to_string).collect()
    }

    /// The locations of a table's regions, starting with the one that contains the key.
    pub fn locate(&self, request: &v1::LocateRequest) -> Result<v1::LocateReply, Error> {
        let table = TableId(request.table);
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let limit = if limit == 0 { LOCATE_DEFAULT } else { limit.min(LOCATE_MAX) };
        self.look(|catalog, observed| {
            let entry = catalog.tables().get(table).filter(|entry| entry.state != TableState::Dropping);
            let entry = entry.ok_or_else(|| Error::NotFound { what: format!("table {table}") })?;
            let regions = if request.reverse {
                catalog.regions().down_from(table, &request.key, limit)
            } else {
                catalog.regions().up_from(table, &request.key, limit)
            };
            let descriptors = || regions.iter().map(|region| &region.descriptor);
            Ok(v1::LocateReply {
                regions: descriptors().map(Into::into).collect(),
                groups: locations(catalog, observed, descriptors()),
                schema_version: entry.schema.version,
                masters: self.context.journal.peers().addresses(),
            })
        })
    }

    /// All servers.
    pub fn servers(&self) -> Vec<v1::ServerInfo> {
        let fleet = &self.context.fleet;
        let servers = self.look(|catalog, observed| servers(catalog, observed, fleet.replace_after(catalog)));
        self.with_versions(servers)
    }

    fn with_versions(&self, mut servers: Vec<v1::ServerInfo>) -> Vec<v1::ServerInfo> {
        for server in &mut servers {
            server.versions = self.context.versions.of(ServerId(server.server));
        }
        servers
    }

    /// All groups.
    pub fn groups(&self) -> Vec<v1::GroupInfo> {
        self.look(|catalog, observed| {
            let counts = catalog.regions().per_group();
            catalog
                .groups()
                .iter()
                .map(|(group, entry)| group_info(catalog, observed, group, entry, &counts, now()))
                .collect()
        })
    }

    /// The regions of a table, or of all tables.
    pub fn regions(&self, table: Option<&TableName>) -> Result<Vec<v1::RegionInfo>, Error> {
        self.look(|catalog, observed| {
            let Some(name) = table else {
                let known = catalog.regions().iter().filter(|region| is_listed(observed, region));
                return Ok(known.map(|region| region_info(catalog, observed, region)).collect());
            };
            let entry = catalog.tables().named(&name.to_string());
            let entry = entry.ok_or_else(|| Error::NotFound { what: format!("table {name}") })?;
            let regions = catalog.regions().of_table(entry.schema.table);
            Ok(regions.map(|region| region_info(catalog, observed, region)).collect())
        })
    }

    /// The state of the cluster and its health issues.
    pub fn status(&self, MastersView { masters, issues: of_masters, waits }: MastersView) -> v1::StatusReply {
        let obstacles = planner::obstacles(&fleet::world(&self.context));
        let catalog_index = self.context.journal.applied();
        let feature_level = self.context.journal.read(Catalog::level);
        let next = fleet::levels::next(feature_level, &fleet::levels::processes(&self.context, &masters));
        self.look(|catalog, observed| {
            let replace_after = self.context.fleet.replace_after(catalog);
            let leaderless = leaderless(catalog, observed, now());
            let mut issues = health_issues(catalog, observed, &leaderless, now(), replace_after, Reported::Included);
            issues.extend(of_masters);
            issues.extend(obstacles.iter().map(|what| IssueKind::Placement.issue(what.as_str())));
            issues.extend(self.context.health.standing());
            let waiting = waiting_for(catalog, observed).into_iter().chain(waits);
            let lost = recovery::without_majority(catalog, observed, now()).len();
            let seen = repair::Sight::of(catalog, observed, now(), replace_after, lost);
            let repair = self.context.repair.lock().info(&seen, &obstacles, now());
            v1::StatusReply {
                cluster_id: bytes::Bytes::copy_from_slice(&catalog.cluster().0),
                replication: catalog.replication(),
                servers: self.with_versions(servers(catalog, observed, replace_after)),
                tables: count(catalog.tables().len()),
                regions: count(catalog.regions().len()),
                groups: count(catalog.groups().len()),
                groups_without_leader: count(leaderless.len()),
                issues: issues.into_iter().map(Into::into).collect(),
                waiting_for: waiting.collect::<Vec<_>>().join("; "),
                catalog_index,
                masters,
                feature_level,
                level_waits_for: next.map(|next| next.waits_for).unwrap_or_default(),
                replace_after_ms: u64::try_from(replace_after.as_millis()).unwrap_or(u64::MAX),
                replace_after_is_set: catalog.replace_after().is_some(),
                repair,
            }
        })
    }

    /// Whether servers can be stopped: the named one, or each.
    pub fn restart_check(&self, name: &str) -> Result<v1::RestartCheckReply, Error> {
        self.look(|catalog, observed| {
            let named = if name.is_empty() { None } else { Some(resolve(catalog.servers(), name)?) };
            let asked = catalog.servers().iter().filter(|(server, _)| named.is_none_or(|named| named == *server));
            let verdict = |(server, known): (ServerId, &Registration)| v1::RestartVerdict {
                server: server.0,
                address: known.address.clone(),
                obstacles: restart::obstacles(catalog, observed, server),
            };
            Ok(v1::RestartCheckReply { servers: asked.map(verdict).collect() })
        })
    }

    /// Compares the catalog, the groups and the servers.
    pub fn check(&self) -> v1::CheckClusterReply {
        self.look(|catalog, observed| check::check(catalog, observed, now()))
    }

    /// Rows of the meta table.
    pub fn scan_meta(&self, scan: &MetaScan) -> Result<Vec<MetaBlock>, Error> {
        Ok(self.look(|catalog, observed| crate::meta::scan(catalog, observed, scan))?)
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn table(catalog: &Catalog, observed: &Observations, entry: &TableEntry) -> v1::TableReply {
    let regions = || catalog.regions().of_table(entry.schema.table);
    v1::TableReply {
        schema: Some((&entry.schema).into()),
        state: match entry.state {
            TableState::Enabled if entry.schema.disabled => states::TableState::Disabled,
            state => state.shown(),
        }
        .name()
        .to_owned(),
        regions: count(catalog.regions().count(entry.schema.table)),
        bytes: regions().map(|region| region_bytes(observed, region)).sum(),
    }
}

/// Regions of the map are listed, whether or not their leaders have reported them to this master.
fn is_listed(observed: &Observations, region: &RegionEntry) -> bool {
    let RegionDescriptor { group, region, .. } = region.descriptor;
    !terrane_env::planted!("a region without a report is not listed")
        || observed.inventory.region(group, region).is_some()
}

fn region_bytes(observed: &Observations, region: &RegionEntry) -> u64 {
    let region = &region.descriptor;
    observed.inventory.region(region.group, region.region).map_or(0, |view| view.bytes)
}

fn locations<'a>(
    catalog: &Catalog,
    observed: &Observations,
    regions: impl Iterator<Item = &'a RegionDescriptor>,
) -> Vec<v1::GroupLocation> {
    let groups: std::collections::BTreeSet<GroupId> = regions.map(|region| region.group).collect();
    let known = groups.into_iter().filter_map(|group| catalog.groups().get(group).map(|entry| (group, entry)));
    known.map(|(group, entry)| (&observed.location(catalog, group, entry)).into()).collect()
}

fn servers(catalog: &Catalog, observed: &Observations, replace_after: Duration) -> Vec<v1::ServerInfo> {
    let counts = catalog.regions().per_group();
    let info = |(server, known)| {
        let info = server_info(catalog, observed, server, known, &counts);
        v1::ServerInfo { replaced_in_ms: replaced_in_ms(catalog, observed, server, replace_after), ..info }
    };
    catalog.servers().iter().map(info).collect()
}

/// When the replicas of a server that is not live are replaced; `None` if it is live or has none.
fn replaced_in_ms(
    catalog: &Catalog,
    observed: &Observations,
    server: ServerId,
    replace_after: Duration,
) -> Option<u64> {
    let left = match condition(catalog, &observed.liveness, server, now(), replace_after) {
        Condition::Live => return None,
        Condition::Away(left) => left,
        Condition::Lost => Duration::ZERO,
    };
    (catalog.groups().replicas_on(server) > 0).then(|| u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}

fn server_info(
    catalog: &Catalog,
    observed: &Observations,
    server: ServerId,
    known: &Registration,
    regions_per_group: &BTreeMap<GroupId, u64>,
) -> v1::ServerInfo {
    let state = observed.liveness.state(server);
    let load = observed.inventory.load(server).cloned().unwrap_or_default();
    let led: Vec<GroupId> =
        if state == ServerState::Live { observed.inventory.led_by(server).collect() } else { Vec::new() };
    let regions: u64 = led.iter().filter_map(|group| regions_per_group.get(group)).sum();
    v1::ServerInfo {
        server: server.0,
        address: known.address.clone(),
        console: known.console.clone(),
        state: state.name().to_owned(),
        leaders: count(led.len()),
        replicas: count(catalog.groups().replicas_on(server)),
        regions: u32::try_from(regions).unwrap_or(u32::MAX),
        engine: known.engine.clone(),
        boot: observed.liveness.boot(server),
        log_bytes: load.log_bytes,
        log_limit: load.log_limit,
        log_held_by: load.log_held_by,
        issues: match state {
            ServerState::Stopped => Vec::new(),
            _ => load.issues.into_iter().map(Into::into).collect(),
        },
        memtable_bytes: load.memtable_bytes,
        store_bytes: load.store_bytes,
        disk_free_bytes: load.disk_free_bytes,
        resources: load.resources,
        zone: known.zone.clone(),
        drain: catalog.drain_state(server).map_or("", DrainState::name).to_owned(),
        replaced_in_ms: None,
        versions: None,
        since_report_ms: u64::try_from(observed.liveness.quiet_for(server, now()).as_millis()).unwrap_or(u64::MAX),
    }
}

fn region_info(catalog: &Catalog, observed: &Observations, entry: &RegionEntry) -> v1::RegionInfo {
    let region = &entry.descriptor;
    let table = catalog.tables().get(region.table);
    let address = |server: ServerId| catalog.servers().address(server);
    let members = catalog.groups().get(region.group).into_iter().flat_map(|group| group.members.values().copied());
    let view = observed.inventory.region(region.group, region.region);
    let state = match table.map(|table| table.state) {
        Some(TableState::Creating) => RegionState::Creating,
        Some(TableState::Dropping) => RegionState::Dropping,
        _ => view.map_or(RegionState::Open, |view| view.state),
    };
    v1::RegionInfo {
        descriptor: Some(region.into()),
        table: table.map_or_else(String::new, |table| table.schema.name.to_string()),
        leader: observed.leader(region.group).map_or_else(String::new, address),
        bytes: view.map_or(0, |view| view.bytes),
        state: state.name().to_owned(),
        servers: members.map(address).collect(),
        load: view.map(|view| view.load),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tests::full;
    use crate::issues::tests::observed;

    #[test]
    fn lists_show_leaders_and_their_reports() {
        let (catalog, observed) = (full(), observed());
        let region = region_info(&catalog, &observed, catalog.regions().iter().next().unwrap());
        assert_eq!((region.leader.as_str(), region.bytes, region.state.as_str()), ("a:1", 100, "unsplittable"));
        let servers = servers(&catalog, &observed, Duration::from_secs(300));
        let shown =
            |info: &v1::ServerInfo| (info.server, info.state.clone(), info.leaders, info.replicas, info.regions);
        assert_eq!(shown(&servers[0]), (1, "live".to_owned(), 1, 1, 4));
        assert_eq!(shown(&servers[1]), (2, "silent".to_owned(), 0, 0, 0));
        let entry = catalog.groups().get(GroupId(1)).unwrap();
        let group = group_info(
            &catalog,
            &observed,
            GroupId(1),
            entry,
            &catalog.regions().per_group(),
            crate::servers::liveness::Moment(2_000),
        );
        assert_eq!((group.applied, group.regions, group.location.unwrap().term), (9, 4, 3));
    }

    #[test]
    fn the_last_complaint_of_a_stopped_server_is_not_listed() {
        let mut observed = observed();
        let said = |observed: &Observations| servers(&full(), observed, Duration::from_secs(300))[0].issues.clone();
        assert_eq!(said(&observed)[0].what, "a file is damaged");
        observed.liveness.stopped(ServerId(1));
        assert!(said(&observed).is_empty());
    }
}
