//! The fake master: one table, its map, nothing else.

use futures::stream::BoxStream;
use terrane_proto::convert::GroupLocation;
use terrane_proto::v1::master_server::Master;
use terrane_proto::{error, hello, v1};
use terrane_types::{Error, ServerId};
use tonic::{Request, Response, Status};

use super::{Shared, World};

pub struct FakeMaster {
    pub world: Shared,
}

impl FakeMaster {
    fn check(&self, theirs: Option<&v1::Hello>) -> Result<(), Status> {
        hello::check_cluster(theirs, self.identity(), false).map_err(|refused| error::status(&refused))
    }

    fn identity(&self) -> hello::Identity {
        hello::Identity { cluster: self.world.lock().cluster, server: ServerId(0), boot: 1 }
    }
}

fn locations(world: &World) -> Vec<v1::GroupLocation> {
    let believed = world.groups.iter().map(|(group, now)| (*group, *world.master_believes.get(group).unwrap_or(now)));
    believed
        .map(|(group, (term, leader))| {
            let leader = Some(leader);
            v1::GroupLocation::from(&GroupLocation { group, leader, term, members: world.members() })
        })
        .collect()
}

fn not_here() -> Status {
    Status::unimplemented("not part of the fake")
}

#[tonic::async_trait]
impl Master for FakeMaster {
    type ScanMetaStream = BoxStream<'static, Result<v1::ScanBlock, Status>>;

    async fn identify(&self, request: Request<v1::Hello>) -> Result<Response<v1::HelloReply>, Status> {
        hello::check_cluster(Some(request.get_ref()), self.identity(), true)
            .map_err(|refused| error::status(&refused))?;
        let cluster = self.identity().cluster;
        let reply = v1::HelloReply { cluster_id: cluster.0.to_vec().into(), version: 1, ..v1::HelloReply::default() };
        Ok(Response::new(reply))
    }

    async fn describe_table(
        &self,
        request: Request<v1::DescribeTableRequest>,
    ) -> Result<Response<v1::TableReply>, Status> {
        self.check(request.get_ref().hello.as_ref())?;
        let world = self.world.lock();
        if request.get_ref().name != world.schema.name.to_string() {
            let what = format!("table {}", request.get_ref().name);
            return Err(error::status(&Error::NotFound { what }));
        }
        let schema = Some((&world.schema).into());
        Ok(Response::new(v1::TableReply { schema, state: "enabled".to_owned(), regions: 1, bytes: 0 }))
    }

    async fn locate(&self, request: Request<v1::LocateRequest>) -> Result<Response<v1::LocateReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref())?;
        let takes = self.world.lock().locate_takes;
        tokio::time::sleep(takes).await;
        let mut world = self.world.lock();
        world.locates += 1;
        let mut regions: Vec<_> = world.regions.clone();
        if request.reverse {
            regions.reverse();
            regions.retain(|region| request.key.is_empty() || region.range.start <= request.key);
        } else {
            regions.retain(|region| region.range.end.is_empty() || region.range.end > request.key);
        }
        regions.truncate(request.limit as usize);
        Ok(Response::new(v1::LocateReply {
            regions: regions.iter().map(Into::into).collect(),
            groups: locations(&world),
            schema_version: world.schema.version,
            masters: Vec::new(),
        }))
    }

    async fn create_table(&self, _: Request<v1::CreateTableRequest>) -> Result<Response<v1::TableReply>, Status> {
        Err(not_here())
    }

    async fn alter_table(&self, _: Request<v1::AlterTableRequest>) -> Result<Response<v1::TableReply>, Status> {
        Err(not_here())
    }

    async fn create_namespace(&self, _: Request<v1::NamespaceRequest>) -> Result<Response<v1::Empty>, Status> {
        Err(not_here())
    }

    async fn drop_namespace(&self, _: Request<v1::NamespaceRequest>) -> Result<Response<v1::Empty>, Status> {
        Err(not_here())
    }

    async fn list_namespaces(
        &self,
        _: Request<v1::ClusterRequest>,
    ) -> Result<Response<v1::ListNamespacesReply>, Status> {
        Err(not_here())
    }

    async fn drop_table(&self, _: Request<v1::DropTableRequest>) -> Result<Response<v1::Empty>, Status> {
        Err(not_here())
    }

    async fn truncate_table(&self, _: Request<v1::TruncateTableRequest>) -> Result<Response<v1::TableReply>, Status> {
        Err(not_here())
    }

    async fn list_tables(&self, _: Request<v1::ListTablesRequest>) -> Result<Response<v1::ListTablesReply>, Status> {
        Err(not_here())
    }

    async fn scan_meta(&self, _: Request<v1::ScanCall>) -> Result<Response<Self::ScanMetaStream>, Status> {
        Err(not_here())
    }

    async fn list_servers(&self, _: Request<v1::ClusterRequest>) -> Result<Response<v1::ListServersReply>, Status> {
        Err(not_here())
    }

    async fn list_groups(&self, _: Request<v1::ClusterRequest>) -> Result<Response<v1::ListGroupsReply>, Status> {
        Err(not_here())
    }

    async fn list_regions(&self, _: Request<v1::ListRegionsRequest>) -> Result<Response<v1::ListRegionsReply>, Status> {
        Err(not_here())
    }

    async fn status(&self, _: Request<v1::ClusterRequest>) -> Result<Response<v1::StatusReply>, Status> {
        Err(not_here())
    }

    async fn split_region(&self, _: Request<v1::SplitRegionRequest>) -> Result<Response<v1::SplitRegionReply>, Status> {
        Err(not_here())
    }

    async fn merge_regions(
        &self,
        _: Request<v1::MergeRegionsRequest>,
    ) -> Result<Response<v1::MergeRegionsReply>, Status> {
        Err(not_here())
    }

    async fn begin_move(&self, _: Request<v1::BeginMoveRequest>) -> Result<Response<v1::BeginMoveReply>, Status> {
        Err(not_here())
    }

    async fn follow_move(&self, _: Request<v1::FollowMoveRequest>) -> Result<Response<v1::FollowMoveReply>, Status> {
        Err(not_here())
    }

    async fn load_history(&self, _: Request<v1::LoadHistoryRequest>) -> Result<Response<v1::LoadHistoryReply>, Status> {
        Err(not_here())
    }

    async fn list_events(&self, _: Request<v1::ListEventsRequest>) -> Result<Response<v1::ListEventsReply>, Status> {
        Err(not_here())
    }

    async fn list_failovers(&self, _: Request<v1::ClusterRequest>) -> Result<Response<v1::ListFailoversReply>, Status> {
        Err(not_here())
    }

    async fn list_procedures(
        &self,
        _: Request<v1::ListProceduresRequest>,
    ) -> Result<Response<v1::ListProceduresReply>, Status> {
        Err(not_here())
    }

    async fn cancel_procedure(&self, _: Request<v1::CancelProcedureRequest>) -> Result<Response<v1::Empty>, Status> {
        Err(not_here())
    }

    async fn change_server(
        &self,
        _: Request<v1::ChangeServerRequest>,
    ) -> Result<Response<v1::ChangeServerReply>, Status> {
        Err(not_here())
    }

    async fn balance(&self, _: Request<v1::BalanceRequest>) -> Result<Response<v1::BalanceReply>, Status> {
        Err(not_here())
    }

    async fn set_replication(
        &self,
        _: Request<v1::SetReplicationRequest>,
    ) -> Result<Response<v1::SetReplicationReply>, Status> {
        Err(not_here())
    }

    async fn restart_check(
        &self,
        _: Request<v1::RestartCheckRequest>,
    ) -> Result<Response<v1::RestartCheckReply>, Status> {
        Err(not_here())
    }

    async fn set_masters(&self, _: Request<v1::SetMastersRequest>) -> Result<Response<v1::SetMastersReply>, Status> {
        Err(not_here())
    }

    async fn recover_group(
        &self,
        _: Request<v1::RecoverGroupRequest>,
    ) -> Result<Response<v1::RecoverGroupReply>, Status> {
        Err(not_here())
    }

    async fn check_cluster(&self, _: Request<v1::ClusterRequest>) -> Result<Response<v1::CheckClusterReply>, Status> {
        Err(not_here())
    }

    async fn register(&self, _: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterReply>, Status> {
        Err(not_here())
    }

    async fn report(&self, _: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        Err(not_here())
    }
}
