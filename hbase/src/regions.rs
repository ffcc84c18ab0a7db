//! `AdminService` and `ClientMetaService` of a region server: its regions described, flushed, compacted and split, and how the
//! rest of the cluster is found through it.
//!
//! Masters order regions opened and closed by means of their own; those calls are refused.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use terrane_env::time::wall_ms;
use terrane_regionserver::{Endpoints, LedRegion, RegionOrders};
use terrane_types::{ClusterId, Error, RegionId, ServerId, escape};

use crate::PROTOCOL;
use crate::connection::Service;
use crate::discovery::{BOOTSTRAP_NODES_MAX, Discovery};
use crate::exception::{Context, Exception, NOT_SERVING_REGION, TABLE_NOT_ENABLED, TIMEOUT};
use crate::frame::{Call, decode_parameter};
use crate::load::region_load;
use crate::meta::{news_order, region_info};
use crate::place::Place;
use crate::proto;
use crate::proto::get_region_info_response::CompactionState;
use crate::region_name::{named, parse, region_name, table_name};
use crate::serve::{Answer, Calls, Outcome};

/// How long a call waits if its client does not say.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(60);

/// What a region server knows about the cluster.
pub(crate) fn discovery(cluster: ClusterId, known: &Endpoints) -> Discovery {
    let masters = known.masters(PROTOCOL);
    let leader = masters.iter().find(|master| master.leads).and_then(|master| Place::of(&master.endpoint));
    Discovery {
        cluster: Some(cluster),
        active_master: leader.clone(),
        masters: masters.iter().filter_map(|master| Place::of(&master.endpoint)).collect(),
        meta: leader,
        servers: known.servers(PROTOCOL).iter().take(BOOTSTRAP_NODES_MAX).filter_map(Place::of).collect(),
    }
}

/// The exception of an error about a region whose present epoch is known, if it is: a redirect names the leader's place.
pub(crate) fn exception(
    error: &Error,
    repeatable: bool,
    known: &Endpoints,
    epoch: Option<terrane_types::RegionEpoch>,
) -> Exception {
    let term = if let Error::NotLeader { term, .. } = error { *term } else { 0 };
    let moved = |server: ServerId| Some((Place::of(&known.server(PROTOCOL, server)?)?, news_order(epoch?, term)));
    Exception::of(error, &Context { repeatable, master: false, place: &moved })
}

/// The calls of one connection.
pub(crate) struct RegionCalls {
    pub cluster: ClusterId,
    pub orders: Arc<RegionOrders>,
    pub endpoints: Arc<Endpoints>,
    pub own: Place,
    pub service: Service,
    /// The caller, for the audit stream.
    pub peer: String,
}

impl Calls for RegionCalls {
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        async move {
            if self.service == Service::ClientMeta {
                return discovery(self.cluster, &self.endpoints).answer(&call.method);
            }
            let wait = call.timeout.unwrap_or(DEADLINE_DEFAULT);
            let late = |_| Err(Exception::new(TIMEOUT, "the server did not finish in time, and may continue"));
            tokio::time::timeout(wait, self.administer(call)).await.unwrap_or_else(late)
        }
        .boxed()
    }
}

impl RegionCalls {
    async fn administer(&self, call: Call) -> Outcome {
        let parameter = call.parameter;
        match call.method.as_str() {
            "GetServerInfo" => {
                let server_info = proto::ServerInfo { server_name: self.own.to_proto(), webui_port: None };
                Ok(Answer::of(&proto::GetServerInfoResponse { server_info }))
            }
            "GetOnlineRegion" => Ok(Answer::of(&proto::GetOnlineRegionResponse {
                region_info: self.orders.regions().iter().filter(|region| is_online(region)).map(info).collect(),
            })),
            "GetRegionInfo" => self.describe(decode_parameter(parameter)?).await,
            "GetRegionLoad" => Ok(self.load(&decode_parameter(parameter)?)),
            "FlushRegion" => self.flush(decode_parameter(parameter)?).await,
            "CompactRegion" => self.compact(decode_parameter(parameter)?).await,
            // Settings are read at the start; there are none to be read again.
            "UpdateConfiguration" => Ok(Answer::of(&proto::Nothing {})),
            "CompactionSwitch" => {
                let request: proto::SwitchRequest = decode_parameter(parameter)?;
                if !request.on {
                    return Err(Exception::bad_request("compactions cannot be switched off: reads depend on them"));
                }
                Ok(Answer::of(&proto::SwitchResponse { previous: Some(true) }))
            }
            "GetSlowLogResponses" | "GetLargeLogResponses" | "GetSpaceQuotaSnapshots" => {
                Ok(Answer::of(&proto::Nothing {}))
            }
            "ClearSlowLogsResponses" => Ok(Answer::of(&proto::IsEnabledResponse { enabled: false })),
            other => Err(refused(other)),
        }
    }

    /// The region that a specifier names, if this server leads it.
    fn region(&self, wanted: &proto::RegionSpecifier) -> Result<LedRegion, Exception> {
        let found = match parse(&wanted.value) {
            // A redirect says where its leader is.
            Some(parts) => Some(self.orders.region(parts.region).map_err(|error| self.failed(&error, None))?),
            None => self.orders.regions().into_iter().find(|region| is_named(wanted, region)),
        };
        found.filter(|region| is_named(wanted, region)).ok_or_else(|| {
            let text = format!("region {} is not served here", escape(&wanted.value));
            Exception::new(NOT_SERVING_REGION, text)
        })
    }

    /// The same, of a table that is enabled. HBase's clients wait for a region that is not online, so they are told why at once.
    fn online_region(&self, wanted: &proto::RegionSpecifier) -> Result<LedRegion, Exception> {
        let region = self.region(wanted)?;
        match is_online(&region) {
            true => Ok(region),
            false => Err(Exception::new(TABLE_NOT_ENABLED, region.schema.name.to_string())),
        }
    }

    fn failed(&self, error: &Error, region: Option<&LedRegion>) -> Exception {
        exception(error, true, &self.endpoints, region.map(|region| region.descriptor.epoch))
    }

    async fn describe(&self, request: proto::GetRegionInfoRequest) -> Outcome {
        let region = self.region(&request.region)?;
        let best_split_row = match request.best_split_row() {
            true => {
                self.orders.split_point(region.descriptor.region).await.map_err(|e| self.failed(&e, Some(&region)))?
            }
            false => None,
        };
        let state = if region.is_compacting { CompactionState::Major } else { CompactionState::None };
        Ok(Answer::of(&proto::GetRegionInfoResponse {
            region_info: info(&region),
            compaction_state: request.compaction_state().then_some(state.into()),
            splittable: Some(region.is_splittable),
            mergeable: Some(region.is_splittable),
            best_split_row,
        }))
    }

    fn load(&self, request: &proto::GetRegionLoadRequest) -> Answer {
        let wanted = |region: &LedRegion| {
            is_online(region) && request.table_name.as_ref().is_none_or(|name| *name == table_name(&region.schema.name))
        };
        let regions = self.orders.regions().into_iter().filter(wanted);
        let region_loads = regions.map(|region| region_load(name(&region), &region.counts));
        Answer::of(&proto::GetRegionLoadResponse { region_loads: region_loads.collect() })
    }

    /// A region is flushed as a whole.
    async fn flush(&self, request: proto::FlushRegionRequest) -> Outcome {
        let region = self.online_region(&request.region)?;
        let flushed = self.orders.flush(region.descriptor.region).await;
        self.note("flush region", region.descriptor.region, &flushed);
        let flushed = flushed.map_err(|error| self.failed(&error, Some(&region)))?;
        Ok(Answer::of(&proto::FlushRegionResponse {
            last_flush_time: wall_ms(),
            flushed: Some(flushed),
            wrote_flush_wal_marker: request.write_flush_wal_marker.map(|_| false),
        }))
    }

    /// Every compaction that is asked for rewrites all files, and is answered once it has been ordered.
    async fn compact(&self, request: proto::CompactRegionRequest) -> Outcome {
        let region = self.online_region(&request.region)?;
        let ordered = self.orders.compact(region.descriptor.region).await;
        self.note("compact region", region.descriptor.region, &ordered);
        ordered.map_err(|error| self.failed(&error, Some(&region)))?;
        Ok(Answer::of(&proto::Nothing {}))
    }

    fn note<T>(&self, action: &'static str, subject: RegionId, result: &Result<T, Error>) {
        let outcome = result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        tracing::info!(target: "audit", action, %subject, peer = self.peer, outcome);
    }
}

fn name(region: &LedRegion) -> Bytes {
    region_name(&region.schema.name, &region.descriptor.range.start, region.descriptor.region)
}

/// Whether HBase would say that a server has it open.
fn is_online(region: &LedRegion) -> bool {
    !region.schema.disabled
}

fn is_named(wanted: &proto::RegionSpecifier, region: &LedRegion) -> bool {
    named(wanted, region.descriptor.region, || name(region))
}

fn info(region: &LedRegion) -> proto::RegionInfo {
    region_info(&region.schema.name, region.descriptor.region, &region.descriptor.range)
}

fn refused(method: &str) -> Exception {
    let why = match method {
        "OpenRegion" | "CloseRegion" | "WarmupRegion" | "ExecuteProcedures" | "UpdateFavoredNodes" => {
            "regions are opened and closed by the masters alone".to_owned()
        }
        "ReplicateWALEntry" | "Replay" | "ReplicateToReplica" => {
            "replication between clusters is not supported".to_owned()
        }
        "StopServer" => "processes are stopped where they run, with SIGTERM".to_owned(),
        "RollWALWriter" => "the log is divided by size and not on request".to_owned(),
        "GetStoreFile" | "GetCachedFilesList" => "store files are not those of HBase".to_owned(),
        "ClearCompactionQueues" | "ClearRegionBlockCache" => "nothing is cleared on request".to_owned(),
        other => format!("AdminService has no method {other:?} here"),
    };
    Exception::bad_request(&why)
}

#[cfg(test)]
mod tests {
    use terrane_types::{GroupId, RegionEpoch};

    use super::*;

    #[test]
    fn a_server_that_no_master_has_answered_knows_its_cluster_only() {
        let known = discovery(ClusterId([1; 16]), &Endpoints::default());
        assert!(known.answer("GetClusterId").is_ok());
        for unknown in ["GetActiveMaster", "GetMasters", "GetMetaRegionLocations", "GetBootstrapNodes"] {
            assert!(known.answer(unknown).is_err_and(|refused| !refused.do_not_retry), "{unknown}");
        }
        assert!(known.answer("GetWeather").is_err_and(|refused| refused.do_not_retry));
    }

    #[test]
    fn a_redirect_to_a_server_without_a_known_place_has_the_client_look_again() {
        let error = Error::NotLeader {
            group: GroupId(1),
            term: 3,
            leader: Some(ServerId(2)),
            address: None,
            members: Vec::new(),
        };
        let refused = exception(&error, true, &Endpoints::default(), Some(RegionEpoch(1)));
        assert!(refused.class.ends_with("NotServingRegionException"));
    }

    #[test]
    fn orders_of_hbase_masters_are_refused_for_good() {
        for method in ["OpenRegion", "CloseRegion", "StopServer", "ReplicateWALEntry", "NoSuchMethod"] {
            assert!(refused(method).do_not_retry, "{method}");
        }
    }
}
