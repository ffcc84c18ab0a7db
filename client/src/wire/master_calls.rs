//! The calls to a master, typed: each method translates the request and the reply.
//!
//! The futures are boxed because an `async fn` is compiled by every crate that awaits it, with the whole gRPC call in it.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use terrane_proto::convert::GroupLocation;
use terrane_proto::{hello, v1};
use terrane_types::states::{DrainState, GroupState, MasterState, RegionState, ServerState, TableState};
use terrane_types::{ClusterId, NamespaceName, RegionDescriptor, RegionId, ServerId, TableId, TableSchema};

use crate::api::admin::info::{
    ClusterStatus, GroupInfo, MasterInfo, ProcessVersions, RegionInfo, RegionLoad, ResourceUsage, ServerInfo, TableInfo,
};
use crate::api::admin::spec::{TableChange, TableSpec};
use crate::error::Error;
use crate::wire::masters::{Kind, Masters};
use crate::wire::scan::RegionScan;
use crate::wire::scan_stream::ScanStream;

/// A part of the map of regions.
pub(crate) struct Map {
    pub(crate) regions: Vec<RegionDescriptor>,
    pub(crate) groups: Vec<GroupLocation>,
    pub(crate) schema_version: u64,
}

/// Sends `$request` with the method `$method` of the generated client.
macro_rules! ask {
    ($masters:expr, $kind:expr, $timeout:expr, $method:ident, $request:expr) => {{
        let request = $request;
        $masters
            .call($kind, $timeout, |mut master, left| {
                let request = timed(request.clone(), left);
                async move { master.$method(request).await }
            })
            .await
    }};
}

mod fleet;
mod past;

/// A request that tells the master how long its caller waits.
fn timed<T>(message: T, left: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(left);
    request
}

impl Masters {
    /// The id of the cluster; checks that it is the expected one, if one is expected.
    pub(crate) fn identify(
        &self,
        expected: Option<ClusterId>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<ClusterId, Error>> {
        Box::pin(async move {
            let reply = ask!(self, Kind::Read, timeout, identify, self.hello_to(expected))?;
            hello::cluster_of(&reply.cluster_id)?.ok_or_else(|| Error::internal("the master does not know its cluster"))
        })
    }

    /// The regions of a table from the one that holds `key`, ascending or with `reverse` descending, at most `limit`. In
    /// reverse, an empty key is the end of the table.
    pub(crate) fn locate<'a>(
        &'a self,
        table: TableId,
        key: &'a [u8],
        reverse: bool,
        limit: u32,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Map, Error>> {
        Box::pin(async move {
            let (hello, key) = (self.hello(), Bytes::copy_from_slice(key));
            let request = v1::LocateRequest { hello, table: table.0, key, limit, reverse };
            let v1::LocateReply { regions, groups, schema_version, masters } =
                ask!(self, Kind::Read, timeout, locate, request)?;
            self.learn(&masters);
            let region = |region| match RegionDescriptor::try_from(region) {
                Ok(region) => Some(region),
                Err(error) => {
                    tracing::warn!(%error, "a master sent an invalid region descriptor");
                    None
                }
            };
            Ok(Map {
                regions: regions.into_iter().filter_map(region).collect(),
                groups: groups.into_iter().map(GroupLocation::from).collect(),
                schema_version,
            })
        })
    }

    /// Opens a scan of the meta table.
    pub(crate) fn scan_meta(&self, scan: RegionScan, timeout: Duration) -> BoxFuture<'_, Result<ScanStream, Error>> {
        Box::pin(async move {
            let call = v1::ScanCall { hello: self.hello(), header: None, body: Some(scan.into_wire()) };
            // The stream has no deadline of its own; each wait for a block has.
            let opened = self.call(Kind::Read, timeout, |mut master, _left| {
                let call = call.clone();
                async move { master.scan_meta(call).await }
            });
            opened.await.map(ScanStream)
        })
    }

    pub(crate) fn create_table(&self, spec: TableSpec, timeout: Duration) -> BoxFuture<'_, Result<TableInfo, Error>> {
        Box::pin(async move {
            let request = v1::CreateTableRequest {
                hello: self.hello(),
                schema: Some((&spec.schema).into()),
                split_at: spec.split_at,
                request_id: request_id(),
            };
            table_info(ask!(self, Kind::Once, timeout, create_table, request)?)
        })
    }

    pub(crate) fn alter_table<'a>(
        &'a self,
        name: &'a str,
        change: TableChange,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<TableInfo, Error>> {
        Box::pin(async move {
            let families = change.families.into_iter().map(|family| v1::FamilyChange {
                name: family.name,
                add: family.add,
                attributes: family.attributes.into_iter().collect(),
            });
            let request = v1::AlterTableRequest {
                hello: self.hello(),
                name: name.to_owned(),
                set: change.set.into_iter().collect(),
                families: families.collect(),
                drop_families: change.drop_families,
                request_id: request_id(),
            };
            table_info(ask!(self, Kind::Once, timeout, alter_table, request)?)
        })
    }

    pub(crate) fn drop_table<'a>(&'a self, name: &'a str, timeout: Duration) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let request = v1::DropTableRequest { hello: self.hello(), name: name.to_owned(), request_id: request_id() };
            ask!(self, Kind::Once, timeout, drop_table, request).map(drop)
        })
    }

    pub(crate) fn truncate_table<'a>(
        &'a self,
        name: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<TableInfo, Error>> {
        Box::pin(async move {
            let request =
                v1::TruncateTableRequest { hello: self.hello(), name: name.to_owned(), request_id: request_id() };
            table_info(ask!(self, Kind::Once, timeout, truncate_table, request)?)
        })
    }

    /// The tables of a namespace; empty: of all.
    pub(crate) fn list_tables(
        &self,
        namespace: String,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Vec<TableInfo>, Error>> {
        Box::pin(async move {
            let request = v1::ListTablesRequest { hello: self.hello(), namespace };
            let reply: v1::ListTablesReply = ask!(self, Kind::Read, timeout, list_tables, request)?;
            reply.tables.into_iter().map(table_info).collect()
        })
    }

    pub(crate) fn describe_table<'a>(
        &'a self,
        name: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<TableInfo, Error>> {
        Box::pin(async move {
            let request = v1::DescribeTableRequest { hello: self.hello(), name: name.to_owned() };
            table_info(ask!(self, Kind::Read, timeout, describe_table, request)?)
        })
    }

    pub(crate) fn create_namespace(&self, name: NamespaceName, timeout: Duration) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let request = self.namespace_request(&name);
            ask!(self, Kind::Once, timeout, create_namespace, request).map(drop)
        })
    }

    pub(crate) fn drop_namespace(&self, name: NamespaceName, timeout: Duration) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let request = self.namespace_request(&name);
            ask!(self, Kind::Once, timeout, drop_namespace, request).map(drop)
        })
    }

    fn namespace_request(&self, name: &NamespaceName) -> v1::NamespaceRequest {
        v1::NamespaceRequest { hello: self.hello(), name: name.to_string(), request_id: request_id() }
    }

    pub(crate) fn list_namespaces(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<NamespaceName>, Error>> {
        Box::pin(async move {
            let request = v1::ClusterRequest { hello: self.hello() };
            let reply: v1::ListNamespacesReply = ask!(self, Kind::Read, timeout, list_namespaces, request)?;
            reply.names.iter().map(|name| Ok(NamespaceName::new(name)?)).collect()
        })
    }

    pub(crate) fn servers(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<ServerInfo>, Error>> {
        Box::pin(async move {
            let request = v1::ClusterRequest { hello: self.hello() };
            let reply: v1::ListServersReply = ask!(self, Kind::Read, timeout, list_servers, request)?;
            Ok(reply.servers.into_iter().map(server_info).collect())
        })
    }

    pub(crate) fn groups(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<GroupInfo>, Error>> {
        Box::pin(async move {
            let request = v1::ClusterRequest { hello: self.hello() };
            let reply: v1::ListGroupsReply = ask!(self, Kind::Read, timeout, list_groups, request)?;
            Ok(reply.groups.into_iter().map(group_info).collect())
        })
    }

    /// The regions of a table; empty: of all.
    pub(crate) fn regions(&self, table: String, timeout: Duration) -> BoxFuture<'_, Result<Vec<RegionInfo>, Error>> {
        Box::pin(async move {
            let request = v1::ListRegionsRequest { hello: self.hello(), table };
            let reply: v1::ListRegionsReply = ask!(self, Kind::Read, timeout, list_regions, request)?;
            reply.regions.into_iter().map(region_info).collect()
        })
    }

    pub(crate) fn status(&self, timeout: Duration) -> BoxFuture<'_, Result<ClusterStatus, Error>> {
        Box::pin(async move {
            let request = v1::ClusterRequest { hello: self.hello() };
            let reply: v1::StatusReply = ask!(self, Kind::Read, timeout, status, request)?;
            Ok(ClusterStatus {
                cluster: hello::cluster_of(&reply.cluster_id)?.unwrap_or_default(),
                replication: reply.replication,
                servers: reply.servers.into_iter().map(server_info).collect(),
                tables: reply.tables,
                regions: reply.regions,
                groups: reply.groups,
                groups_without_leader: reply.groups_without_leader,
                issues: reply.issues.into_iter().map(Into::into).collect(),
                waiting_for: reply.waiting_for,
                catalog_index: reply.catalog_index,
                masters: reply.masters.into_iter().map(master_info).collect(),
                feature_level: reply.feature_level,
                level_waits_for: reply.level_waits_for,
            })
        })
    }

    /// Splits a region at a row, or near its middle if `at` is empty; returns the daughters.
    pub(crate) fn split(
        &self,
        region: RegionId,
        at: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Vec<RegionDescriptor>, Error>> {
        Box::pin(async move {
            let request = v1::SplitRegionRequest { hello: self.hello(), region: region.0, at };
            let reply: v1::SplitRegionReply = ask!(self, Kind::Change, timeout, split_region, request)?;
            reply.daughters.into_iter().map(|daughter| Ok(daughter.try_into()?)).collect()
        })
    }

    /// Merges two neighbouring regions; returns the merged one.
    pub(crate) fn merge(
        &self,
        one: RegionId,
        other: RegionId,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<RegionDescriptor, Error>> {
        Box::pin(async move {
            let request = v1::MergeRegionsRequest { hello: self.hello(), region: one.0, other: other.0 };
            let reply: v1::MergeRegionsReply = ask!(self, Kind::Change, timeout, merge_regions, request)?;
            let region =
                reply.region.ok_or_else(|| Error::internal("the master answered a merge without its region"))?;
            Ok(region.try_into()?)
        })
    }
}

/// An id for one change: masters make the change once, however often the request arrives.
fn request_id() -> Bytes {
    let halves = [terrane_env::rand::u64(), terrane_env::rand::u64()];
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}

fn table_info(reply: v1::TableReply) -> Result<TableInfo, Error> {
    let schema = reply.schema.ok_or_else(|| Error::internal("the master described a table without a schema"))?;
    let schema = TableSchema::try_from(schema)?;
    Ok(TableInfo { schema, state: TableState::named(&reply.state), regions: reply.regions, bytes: reply.bytes })
}

fn server_info(info: v1::ServerInfo) -> ServerInfo {
    ServerInfo {
        server: ServerId(info.server),
        address: info.address,
        console: info.console,
        state: ServerState::named(&info.state),
        leaders: info.leaders,
        replicas: info.replicas,
        regions: info.regions,
        engine: info.engine,
        log_bytes: info.log_bytes,
        log_limit: info.log_limit,
        log_held_by: info.log_held_by,
        memtable_bytes: info.memtable_bytes,
        store_bytes: info.store_bytes,
        disk_free_bytes: info.disk_free_bytes,
        since_report: Duration::from_millis(info.since_report_ms),
        zone: info.zone,
        drain: Some(info.drain).filter(|drain| !drain.is_empty()).map(|drain| DrainState::named(&drain)),
        replaced_in: info.replaced_in_ms.map(Duration::from_millis),
        issues: info.issues.into_iter().map(Into::into).collect(),
        resources: info.resources.into_iter().map(resource_usage).collect(),
        versions: info.versions.map(process_versions),
    }
}

fn master_info(info: v1::MasterInfo) -> MasterInfo {
    let v1::MasterInfo { address, state, term, applied, lag, endpoints, versions, resources } = info;
    let endpoints = endpoints.into_iter().map(Into::into).collect();
    let state = MasterState::named(&state);
    let (versions, resources) = (versions.map(process_versions), resources.into_iter().map(resource_usage).collect());
    MasterInfo { address, state, term, applied, lag, endpoints, versions, resources }
}

fn process_versions(said: v1::Versions) -> ProcessVersions {
    let formats = said.formats.into_iter().map(|format| (format.name, format.oldest..=format.newest));
    ProcessVersions {
        build: said.build,
        level: said.level,
        oldest_level: said.oldest_level,
        protocol: said.protocol_min..=said.protocol_max,
        formats: formats.collect(),
    }
}

fn resource_usage(usage: v1::ResourceUsage) -> ResourceUsage {
    let v1::ResourceUsage { name, bytes, used, peak, limit, refused } = usage;
    ResourceUsage { name, is_bytes: bytes, used, peak, limit, refused }
}

fn group_info(info: v1::GroupInfo) -> GroupInfo {
    let location = GroupLocation::from(info.location.unwrap_or_default());
    GroupInfo {
        group: location.group,
        leader: location.leader,
        term: location.term,
        members: location.members,
        replicas: info.replicas,
        regions: info.regions,
        applied: info.applied,
        state: GroupState::named(&info.state),
        compared_regions: info.compared_regions,
        compared_ms: info.compared_ms,
    }
}

fn region_info(info: v1::RegionInfo) -> Result<RegionInfo, Error> {
    let descriptor =
        info.descriptor.ok_or_else(|| Error::internal("the master listed a region without its descriptor"))?;
    Ok(RegionInfo {
        descriptor: descriptor.try_into()?,
        table: info.table,
        leader: info.leader,
        bytes: info.bytes,
        state: RegionState::named(&info.state),
        servers: info.servers,
        load: info
            .load
            .map(|load| RegionLoad { rows_read: load.rows_read, rows_written: load.rows_written, bytes: load.bytes })
            .unwrap_or_default(),
    })
}
