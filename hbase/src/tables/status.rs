//! The status of the cluster: servers with their load, regions without a leader, masters, and counts of regions per table.
//!
//! A client names the parts that it wants, and gets these.

use std::collections::{BTreeMap, HashMap};

use terrane_env::time::wall_ms;
use terrane_master::edge::{Map, Region, Server};
use terrane_types::{MasterEndpoint, ServerId, TableId, TableName};
use tokio::time::Instant;

use super::{TableCalls, exception};
use crate::discovery::cluster_id_text;
use crate::load::{mebibytes, region_load};
use crate::meta::region_info;
use crate::place::Place;
use crate::proto;
use crate::proto::get_cluster_status_request::Option as Part;
use crate::region_name::{region_name, specifier, table_name};
use crate::serve::{Answer, Outcome};

/// The release of HBase whose protocol is spoken.
const HBASE_VERSION: &str = "2.6.4";
/// The first release that calls the servers in field 14 decommissioned.
const DECOMMISSIONED_FROM: u32 = 3;

impl TableCalls {
    pub(super) async fn status(&self, request: &proto::GetClusterStatusRequest, until: Instant) -> Outcome {
        let map = self.master.map(until).await?;
        let edge = &self.master.edge;
        let servers = edge.all_servers(until).await.map_err(|error| exception(&error))?;
        let parts = Parts(&request.options);
        let masters = if parts.has(Part::BackupMasters) { edge.masters().await } else { Vec::new() };
        let facts = Facts { map: &map, servers: &servers, masters: &masters, now_ms: wall_ms() };
        let is_new = self.opened.version.is_some_and(|(major, _)| major >= DECOMMISSIONED_FROM);
        let mut cluster_status = facts.render(&parts, is_new);
        if parts.has(Part::ClusterId) {
            cluster_status.cluster_id = Some(proto::ClusterId { cluster_id: cluster_id_text(edge.cluster()) });
        }
        if parts.has(Part::Master) {
            cluster_status.master = Some(self.master.own.to_proto());
        }
        if parts.has(Part::BalancerOn) {
            cluster_status.balancer_on = Some(edge.is_balancing());
        }
        Ok(Answer::of(&proto::GetClusterStatusResponse { cluster_status }))
    }
}

/// The parts that are wanted; none named: all.
struct Parts<'a>(&'a [i32]);

impl Parts<'_> {
    fn has(&self, part: Part) -> bool {
        self.0.is_empty() || self.0.contains(&part.into())
    }
}

/// What a status is rendered from.
struct Facts<'a> {
    map: &'a Map,
    servers: &'a [Server],
    masters: &'a [MasterEndpoint],
    now_ms: u64,
}

impl Facts<'_> {
    fn render(&self, parts: &Parts<'_>, is_new: bool) -> proto::ClusterStatus {
        let mut status = proto::ClusterStatus::default();
        let live = || self.servers.iter().filter(|server| server.is_live);
        if parts.has(Part::HbaseVersion) {
            status.hbase_version = Some(proto::HBaseVersionFileContent { version: HBASE_VERSION.to_owned() });
        }
        if parts.has(Part::LiveServers) {
            let mut led = self.regions_by_leader();
            let load = |server: &Server| led.remove(&server.place.server).unwrap_or_default();
            status.live_servers = self.live_servers(live(), load);
        }
        if parts.has(Part::ServersName) {
            status.servers_name = live().filter_map(name).collect();
        }
        if parts.has(Part::DeadServers) {
            status.dead_servers = self.servers.iter().filter(|server| !server.is_live).filter_map(name).collect();
        }
        if parts.has(Part::UnknownServers) && is_new {
            status.other_servers = live().filter(|server| server.drains).filter_map(name).collect();
        }
        if parts.has(Part::BackupMasters) {
            let others = self.masters.iter().filter(|master| !master.leads);
            let places = others.filter_map(|master| Place::of(&master.endpoint));
            status.backup_masters = places.map(|place| place.to_proto()).collect();
        }
        if parts.has(Part::RegionsInTransition) {
            status.regions_in_transition = self.leaderless().map(|(table, region)| transition(table, region)).collect();
        }
        if parts.has(Part::TableToRegionsCount) {
            status.table_region_states_count = self.counts();
        }
        status
    }

    fn tables(&self) -> HashMap<TableId, (&TableName, bool)> {
        let tables = self.map.tables.iter().map(|table| &table.schema);
        tables.map(|schema| (schema.table, (&schema.name, schema.disabled))).collect()
    }

    fn regions_by_leader(&self) -> HashMap<ServerId, Vec<(&TableName, &Region)>> {
        let tables = self.tables();
        let mut led: HashMap<ServerId, Vec<(&TableName, &Region)>> = HashMap::new();
        for region in &self.map.regions {
            let table = tables.get(&region.descriptor.table).filter(|(_, disabled)| !disabled);
            if let (Some(leader), Some((table, _))) = (region.leader, table) {
                led.entry(leader).or_default().push((table, region));
            }
        }
        led
    }

    fn live_servers<'f>(
        &self,
        servers: impl Iterator<Item = &'f Server>,
        mut led: impl FnMut(&Server) -> Vec<(&'f TableName, &'f Region)>,
    ) -> Vec<proto::LiveServerInfo> {
        let info = |server: &'f Server| {
            let led = led(server);
            let total = led.iter().map(|(_, region)| region.counts.rows_read + region.counts.rows_written).sum();
            let loads = led.iter().map(|(table, region)| {
                let descriptor = &region.descriptor;
                region_load(region_name(table, &descriptor.range.start, descriptor.region), &region.counts)
            });
            let report_end_ms = self.now_ms.saturating_sub(server.since_report_ms);
            let (used, limit) = server.memory;
            let server_load = proto::ServerLoad {
                number_of_requests: Some(led.iter().map(|(_, region)| region.requests_per_second).sum()),
                total_number_of_requests: Some(total),
                used_heap_mb: Some(mebibytes(used)),
                max_heap_mb: Some(mebibytes(limit)),
                region_loads: loads.collect(),
                report_start_time: Some(report_end_ms),
                report_end_time: Some(report_end_ms),
            };
            Some(proto::LiveServerInfo { server: name(server)?, server_load })
        };
        servers.filter_map(info).collect()
    }

    /// The regions of enabled tables that no server leads.
    fn leaderless(&self) -> impl Iterator<Item = (&TableName, &Region)> {
        let tables = self.tables();
        let without = self.map.regions.iter().filter(|region| region.leader.is_none());
        without.filter_map(move |region| match tables.get(&region.descriptor.table) {
            Some((table, false)) => Some((*table, region)),
            _ => None,
        })
    }

    fn counts(&self) -> Vec<proto::TableRegionStatesCount> {
        let tables = self.tables();
        let mut counts: BTreeMap<&TableName, proto::RegionStatesCount> =
            tables.values().map(|(name, _)| (*name, proto::RegionStatesCount::default())).collect();
        for region in &self.map.regions {
            let Some((name, disabled)) = tables.get(&region.descriptor.table) else { continue };
            let Some(count) = counts.get_mut(name) else { continue };
            count.total_regions += 1;
            match region.leader {
                _ if *disabled => count.closed_regions += 1,
                Some(_) => count.open_regions += 1,
                None => count.regions_in_transition += 1,
            }
        }
        let entry = |(table, region_states_count): (&TableName, _)| proto::TableRegionStatesCount {
            table_name: table_name(table),
            region_states_count,
        };
        counts.into_iter().map(entry).collect()
    }
}

fn name(server: &Server) -> Option<proto::ServerName> {
    Place::of(&server.place.endpoint).map(|place| place.to_proto())
}

fn transition(table: &TableName, region: &Region) -> proto::RegionInTransition {
    let descriptor = &region.descriptor;
    proto::RegionInTransition {
        spec: specifier(region_name(table, &descriptor.range.start, descriptor.region)),
        region_state: proto::RegionState {
            region_info: region_info(table, descriptor.region, &descriptor.range),
            state: proto::region_state::State::Opening.into(),
            stamp: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use terrane_master::edge::Table;
    use terrane_types::{
        Endpoint, GroupId, KeyRange, RegionCounts, RegionDescriptor, RegionEpoch, RegionId, ServerEndpoint, TableSchema,
    };

    use super::*;
    use crate::PROTOCOL;

    fn endpoint(address: String, start_code: u64) -> Endpoint {
        Endpoint { protocol: PROTOCOL.to_owned(), address, start_code }
    }

    fn server(id: u64, is_live: bool) -> Server {
        let place = ServerEndpoint { server: ServerId(id), endpoint: endpoint(format!("h{id}:16020"), 10 + id) };
        Server { place, is_live, drains: id == 2, memory: (1 << 20, 4 << 20), since_report_ms: 40 }
    }

    fn table(id: u64, name: &str, disabled: bool) -> Table {
        let schema = TableSchema { table: TableId(id), disabled, ..TableSchema::new(name.parse().unwrap()) };
        Table { schema, is_changing: false, is_altering: false }
    }

    fn region(id: u64, table: u64, leader: Option<u64>) -> Region {
        Region {
            descriptor: RegionDescriptor {
                region: RegionId(id),
                table: TableId(table),
                range: KeyRange::all(),
                epoch: RegionEpoch(1),
                group: GroupId(1),
                schema_version: 1,
            },
            leader: leader.map(ServerId),
            term: 3,
            counts: RegionCounts { rows_read: 5, rows_written: 6, ..RegionCounts::default() },
            requests_per_second: 2,
        }
    }

    fn render(options: &[Part], is_new: bool) -> proto::ClusterStatus {
        let map = Map {
            tables: vec![table(1, "t", false), table(2, "off", true)],
            regions: vec![region(1, 1, Some(1)), region(2, 1, None), region(3, 2, Some(1))],
            servers: Vec::new(),
            namespaces: Vec::new(),
        };
        let servers = [server(1, true), server(2, true), server(3, false)];
        let master = |address: &str, leads| MasterEndpoint { endpoint: endpoint(address.to_owned(), 7), leads };
        let masters = [master("m1:16000", true), master("m2:16000", false)];
        let options: Vec<i32> = options.iter().map(|part| (*part).into()).collect();
        let facts = Facts { map: &map, servers: &servers, masters: &masters, now_ms: 1_000 };
        facts.render(&Parts(&options), is_new)
    }

    #[test]
    fn a_status_without_named_parts_has_all_of_them() {
        let status = render(&[], false);
        let (live, load) = (&status.live_servers[0].server, &status.live_servers[0].server_load);
        assert_eq!((live.host_name.as_str(), live.start_code), ("h1", Some(11)));
        assert_eq!((load.total_number_of_requests, load.number_of_requests), (Some(11), Some(2)));
        assert_eq!((load.used_heap_mb, load.max_heap_mb, load.report_end_time), (Some(1), Some(4), Some(960)));
        assert_eq!(load.region_loads.len(), 1, "regions of disabled tables are closed");
        assert_eq!(status.dead_servers[0].host_name, "h3");
        assert_eq!(status.backup_masters[0].host_name, "m2");
        assert_eq!(status.regions_in_transition.len(), 1);
        let counts: Vec<_> = status
            .table_region_states_count
            .iter()
            .map(|table| (&table.table_name.qualifier[..], &table.region_states_count))
            .map(|(name, count)| (name, count.open_regions, count.closed_regions, count.regions_in_transition))
            .collect();
        assert_eq!(counts, [(&b"off"[..], 0, 1, 0), (b"t", 1, 0, 1)]);
        assert!(status.other_servers.is_empty(), "HBase 2 reads unknown servers there");
    }

    #[test]
    fn only_the_parts_that_are_named_are_there() {
        let status = render(&[Part::ServersName], false);
        assert_eq!(status.servers_name.len(), 2);
        assert!(status.live_servers.is_empty() && status.hbase_version.is_none() && status.dead_servers.is_empty());
        let status = render(&[Part::UnknownServers], true);
        assert_eq!(status.other_servers[0].host_name, "h2");
    }
}
