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

    terrane_proto::unserved! { Status::unimplemented("not part of the fake") =>
        create_table(CreateTableRequest) -> v1::TableReply;
        alter_table(AlterTableRequest) -> v1::TableReply;
        create_namespace(NamespaceRequest) -> v1::Empty;
        drop_namespace(NamespaceRequest) -> v1::Empty;
        list_namespaces(ClusterRequest) -> v1::ListNamespacesReply;
        drop_table(DropTableRequest) -> v1::Empty;
        truncate_table(TruncateTableRequest) -> v1::TableReply;
        list_tables(ListTablesRequest) -> v1::ListTablesReply;
        scan_meta(ScanCall) -> Self::ScanMetaStream;
        list_servers(ClusterRequest) -> v1::ListServersReply;
        list_groups(ClusterRequest) -> v1::ListGroupsReply;
        list_regions(ListRegionsRequest) -> v1::ListRegionsReply;
        status(ClusterRequest) -> v1::StatusReply;
        split_region(SplitRegionRequest) -> v1::SplitRegionReply;
        merge_regions(MergeRegionsRequest) -> v1::MergeRegionsReply;
        begin_move(BeginMoveRequest) -> v1::BeginMoveReply;
        follow_move(FollowMoveRequest) -> v1::FollowMoveReply;
        load_history(LoadHistoryRequest) -> v1::LoadHistoryReply;
        list_events(ListEventsRequest) -> v1::ListEventsReply;
        list_failovers(ClusterRequest) -> v1::ListFailoversReply;
        list_procedures(ListProceduresRequest) -> v1::ListProceduresReply;
        cancel_procedure(CancelProcedureRequest) -> v1::Empty;
        change_server(ChangeServerRequest) -> v1::ChangeServerReply;
        balance(BalanceRequest) -> v1::BalanceReply;
        set_replication(SetReplicationRequest) -> v1::SetReplicationReply;
        set_replace_after(SetReplaceAfterRequest) -> v1::SetReplaceAfterReply;
        restart_check(RestartCheckRequest) -> v1::RestartCheckReply;
        set_masters(SetMastersRequest) -> v1::SetMastersReply;
        recover_group(RecoverGroupRequest) -> v1::RecoverGroupReply;
        check_cluster(ClusterRequest) -> v1::CheckClusterReply;
        register(RegisterRequest) -> v1::RegisterReply;
        report(ReportRequest) -> v1::ReportReply;
    }
}
