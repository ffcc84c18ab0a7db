//! The calls to a master, typed: each method translates the request and the reply.
//!
//! The futures are boxed because an `async fn` is compiled by every crate that awaits it, with the whole gRPC call in it.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use terrane_proto::convert::GroupLocation;
use terrane_proto::{hello, v1};
use terrane_types::admin::cluster::{ClusterStatus, GroupInfo, RegionInfo, ServerInfo, TableInfo};
use terrane_types::{ClusterId, NamespaceName, RegionDescriptor, RegionId, TableId};

use crate::api::admin::spec::{TableChange, TableSpec};
use crate::error::Error;
use crate::wire::masters::{Kind, Masters};
use crate::wire::scan::RegionScan;
use crate::wire::scan_stream::ScanStream;

/// The answer to a call.
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A part of the map of regions.
pub(crate) struct Map {
    pub(crate) regions: Vec<RegionDescriptor>,
    pub(crate) groups: Vec<GroupLocation>,
    pub(crate) schema_version: u64,
}

/// Sends `$request` with the method `$method` of the generated client, and reads the reply.
macro_rules! ask {
    ($masters:expr, $kind:ident, $timeout:expr, $method:ident, $request:expr, |$reply:pat_param| $read:expr) => {{
        let request = $request;
        Box::pin(async move {
            let answer = $masters.call(Kind::$kind, $timeout, |mut master, left| {
                let request = timed(request.clone(), left);
                async move { master.$method(request).await }
            });
            let $reply = answer.await?;
            $read
        })
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

/// The plain types of messages.
fn decode_all<M, T: From<M>>(messages: Vec<M>) -> Vec<T> {
    messages.into_iter().map(Into::into).collect()
}

impl Masters {
    /// The id of the cluster; checks that it is the expected one, if one is expected.
    pub(crate) fn identify(&self, expected: Option<ClusterId>, timeout: Duration) -> Answer<'_, ClusterId> {
        ask!(self, Read, timeout, identify, self.hello_to(expected), |reply| {
            hello::cluster_of(&reply.cluster_id)?.ok_or_else(|| Error::internal("the master does not know its cluster"))
        })
    }

    /// The regions of a table from the one that holds `key`, ascending or with `reverse` descending, at most `limit`. In
    /// reverse, an empty key is the end of the table.
    pub(crate) fn locate(
        &self,
        table: TableId,
        key: &[u8],
        reverse: bool,
        limit: u32,
        timeout: Duration,
    ) -> Answer<'_, Map> {
        let (hello, key) = (self.hello(), Bytes::copy_from_slice(key));
        let request = v1::LocateRequest { hello, table: table.0, key, limit, reverse };
        ask!(self, Read, timeout, locate, request, |reply| {
            let v1::LocateReply { regions, groups, schema_version, masters } = reply;
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
                groups: decode_all(groups),
                schema_version,
            })
        })
    }

    /// Opens a scan of the meta table.
    pub(crate) fn scan_meta(&self, scan: RegionScan, timeout: Duration) -> Answer<'_, ScanStream> {
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

    pub(crate) fn create_table(&self, spec: TableSpec, timeout: Duration) -> Answer<'_, TableInfo> {
        let TableSpec { schema, split_at } = spec;
        let (hello, schema, request_id) = (self.hello(), Some((&schema).into()), request_id());
        let request = v1::CreateTableRequest { hello, schema, split_at, request_id };
        ask!(self, Once, timeout, create_table, request, |reply| Ok(reply.try_into()?))
    }

    pub(crate) fn alter_table(&self, name: &str, change: TableChange, timeout: Duration) -> Answer<'_, TableInfo> {
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
        ask!(self, Once, timeout, alter_table, request, |reply| Ok(reply.try_into()?))
    }

    pub(crate) fn drop_table(&self, name: &str, timeout: Duration) -> Answer<'_, ()> {
        let request = v1::DropTableRequest { hello: self.hello(), name: name.to_owned(), request_id: request_id() };
        ask!(self, Once, timeout, drop_table, request, |_| Ok(()))
    }

    pub(crate) fn truncate_table(&self, name: &str, timeout: Duration) -> Answer<'_, TableInfo> {
        let request = v1::TruncateTableRequest { hello: self.hello(), name: name.to_owned(), request_id: request_id() };
        ask!(self, Once, timeout, truncate_table, request, |reply| Ok(reply.try_into()?))
    }

    /// The tables of a namespace; empty: of all.
    pub(crate) fn list_tables(&self, namespace: String, timeout: Duration) -> Answer<'_, Vec<TableInfo>> {
        let request = v1::ListTablesRequest { hello: self.hello(), namespace };
        ask!(self, Read, timeout, list_tables, request, |reply| {
            reply.tables.into_iter().map(|table| Ok(table.try_into()?)).collect()
        })
    }

    pub(crate) fn describe_table(&self, name: &str, timeout: Duration) -> Answer<'_, TableInfo> {
        let request = v1::DescribeTableRequest { hello: self.hello(), name: name.to_owned() };
        ask!(self, Read, timeout, describe_table, request, |reply| Ok(reply.try_into()?))
    }

    pub(crate) fn create_namespace(&self, name: NamespaceName, timeout: Duration) -> Answer<'_, ()> {
        ask!(self, Once, timeout, create_namespace, self.namespace_request(&name), |_| Ok(()))
    }

    pub(crate) fn drop_namespace(&self, name: NamespaceName, timeout: Duration) -> Answer<'_, ()> {
        ask!(self, Once, timeout, drop_namespace, self.namespace_request(&name), |_| Ok(()))
    }

    fn namespace_request(&self, name: &NamespaceName) -> v1::NamespaceRequest {
        v1::NamespaceRequest { hello: self.hello(), name: name.to_string(), request_id: request_id() }
    }

    pub(crate) fn list_namespaces(&self, timeout: Duration) -> Answer<'_, Vec<NamespaceName>> {
        ask!(self, Read, timeout, list_namespaces, self.cluster_request(), |reply| {
            reply.names.iter().map(|name| Ok(NamespaceName::new(name)?)).collect()
        })
    }

    /// The request of a call without parameters.
    fn cluster_request(&self) -> v1::ClusterRequest {
        v1::ClusterRequest { hello: self.hello() }
    }

    pub(crate) fn servers(&self, timeout: Duration) -> Answer<'_, Vec<ServerInfo>> {
        ask!(self, Read, timeout, list_servers, self.cluster_request(), |reply| Ok(decode_all(reply.servers)))
    }

    pub(crate) fn groups(&self, timeout: Duration) -> Answer<'_, Vec<GroupInfo>> {
        ask!(self, Read, timeout, list_groups, self.cluster_request(), |reply| Ok(decode_all(reply.groups)))
    }

    /// The regions of a table; empty: of all.
    pub(crate) fn regions(&self, table: String, timeout: Duration) -> Answer<'_, Vec<RegionInfo>> {
        let request = v1::ListRegionsRequest { hello: self.hello(), table };
        ask!(self, Read, timeout, list_regions, request, |reply| {
            reply.regions.into_iter().map(|region| Ok(region.try_into()?)).collect()
        })
    }

    pub(crate) fn status(&self, timeout: Duration) -> Answer<'_, ClusterStatus> {
        ask!(self, Read, timeout, status, self.cluster_request(), |reply| Ok(reply.try_into()?))
    }

    /// Splits a region at a row, or near its middle if `at` is empty; returns the daughters.
    pub(crate) fn split(&self, region: RegionId, at: Bytes, timeout: Duration) -> Answer<'_, Vec<RegionDescriptor>> {
        let request = v1::SplitRegionRequest { hello: self.hello(), region: region.0, at };
        ask!(self, Change, timeout, split_region, request, |reply| {
            reply.daughters.into_iter().map(|daughter| Ok(daughter.try_into()?)).collect()
        })
    }

    /// Merges two neighbouring regions; returns the merged one.
    pub(crate) fn merge(&self, one: RegionId, other: RegionId, timeout: Duration) -> Answer<'_, RegionDescriptor> {
        let request = v1::MergeRegionsRequest { hello: self.hello(), region: one.0, other: other.0 };
        ask!(self, Change, timeout, merge_regions, request, |reply| {
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
