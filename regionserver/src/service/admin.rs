//! The service `RegionServer`: commands from the master and from administrators.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use terrane_env::net::peer_of;
use terrane_proto::hello::Identity;
use terrane_proto::{error, hello, v1};
use terrane_raft::GroupSpec;
use terrane_types::{
    Error, GroupId, Invalid, MoveId, RegionDescriptor, RegionEpoch, RegionId, ReplicaId, ServerId, TableId, TableSchema,
};
use tonic::{Request, Response, Status};

use crate::background::maintenance::Progress;
use crate::edge::Edge;
use crate::edge::error_mapping::{propose_error, stopping};
use crate::group::proposal::Proposal;
use crate::masters::description::Description;
use crate::moves::departures::Departures;
use crate::operation::{ChangeTables, ComparisonId, Source, StagingId};
use crate::region::orders::RegionOrders;
use crate::replicas::comparing;
use crate::replicas::comparing::digesting::Digesting;
use crate::replicas::membership::{self, Membership, raft_error};
use crate::staging::transfer::FilePart;
use crate::views::Views;

/// How long the order to start a group's first election waits for its outcome; it is repeated after that.
const FIRST_ELECTION_MAX: Duration = Duration::from_millis(500);

/// The edge for commands.
pub struct AdminService {
    pub identity: Identity,
    pub edge: Arc<Edge>,
    pub orders: Arc<RegionOrders>,
    pub membership: Arc<Membership>,
    pub description: Description,
    pub departures: Arc<Departures>,
    pub digesting: Arc<Digesting>,
    pub views: Arc<Views>,
}

type ProgressStream = Pin<Box<dyn Stream<Item = Result<v1::MaintainTableProgress, Status>> + Send>>;

#[tonic::async_trait]
impl v1::region_server_server::RegionServer for AdminService {
    async fn create_group(
        &self,
        request: Request<v1::CreateGroupRequest>,
    ) -> Result<Response<v1::CreateGroupReply>, Status> {
        let created = self.make_group(request.into_inner()).await;
        created.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn join_group(&self, request: Request<v1::JoinGroupRequest>) -> Result<Response<v1::JoinGroupReply>, Status> {
        let joined = self.join(request.into_inner()).await;
        joined.map(|()| Response::new(v1::JoinGroupReply {})).map_err(|error| error::status(&error))
    }

    async fn change_members(
        &self,
        request: Request<v1::ChangeMembersRequest>,
    ) -> Result<Response<v1::ChangeMembersReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let members = self.membership.change(&request).await.map_err(|error| error::status(&error))?;
        let members = members.iter().map(membership::member_progress).collect();
        Ok(Response::new(v1::ChangeMembersReply { members }))
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let handed_over = self.membership.transfer(GroupId(request.group), ReplicaId(request.to_replica)).await;
        handed_over.map(|()| Response::new(v1::TransferLeaderReply {})).map_err(|error| error::status(&error))
    }

    async fn remove_replica(
        &self,
        request: Request<v1::RemoveReplicaRequest>,
    ) -> Result<Response<v1::RemoveReplicaReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let removed = self.membership.remove(GroupId(request.group), ReplicaId(request.replica)).await;
        removed.map(|()| Response::new(v1::RemoveReplicaReply {})).map_err(|error| error::status(&error))
    }

    async fn describe_server(
        &self,
        request: Request<v1::DescribeServerRequest>,
    ) -> Result<Response<v1::DescribeServerReply>, Status> {
        let hello = request.into_inner().hello;
        hello::check_cluster(hello.as_ref(), self.identity, true).map_err(|error| error::status(&error))?;
        Ok(Response::new(self.description.describe(self.identity, &self.edge, &self.orders.region_ids)))
    }

    async fn identify(&self, request: Request<v1::IdentifyRequest>) -> Result<Response<v1::IdentifyReply>, Status> {
        let hello = request.into_inner().hello;
        hello::check_called(hello.as_ref(), self.identity).map_err(|error| error::status(&error))?;
        let Identity { cluster, server, boot } = self.identity;
        let cluster_id = Bytes::copy_from_slice(&cluster.0);
        Ok(Response::new(v1::IdentifyReply { cluster_id, server: server.0, boot }))
    }

    async fn inspect_replica(
        &self,
        request: Request<v1::InspectReplicaRequest>,
    ) -> Result<Response<v1::InspectReplicaReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let found = self.membership.inspect(GroupId(request.group)).map_err(|error| error::status(&error))?;
        Ok(Response::new(membership::inspection(found)))
    }

    async fn recover_replica(
        &self,
        request: Request<v1::RecoverReplicaRequest>,
    ) -> Result<Response<v1::RecoverReplicaReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let recovered = self.membership.recover(&request).await;
        recovered.map(|()| Response::new(v1::RecoverReplicaReply {})).map_err(|error| error::status(&error))
    }

    async fn change_tables(
        &self,
        request: Request<v1::ChangeTablesRequest>,
    ) -> Result<Response<v1::ChangeTablesReply>, Status> {
        let applied = self.change(request.into_inner()).await;
        let reply = applied.map(|applied| Response::new(v1::ChangeTablesReply { applied }));
        reply.map_err(|error| error::status(&error))
    }

    type FlushTableStream = ProgressStream;
    type CompactTableStream = ProgressStream;

    async fn flush_table(
        &self,
        request: Request<v1::MaintainTableRequest>,
    ) -> Result<Response<Self::FlushTableStream>, Status> {
        let peer = peer_of(request.extensions());
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        tracing::info!(target: "audit", action = "flush table", subject = request.table, peer, outcome = "begun");
        Ok(Response::new(Box::pin(encode_progress(self.orders.maintenance.clone().flush(TableId(request.table))))))
    }

    async fn compact_table(
        &self,
        request: Request<v1::MaintainTableRequest>,
    ) -> Result<Response<Self::CompactTableStream>, Status> {
        let peer = peer_of(request.extensions());
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        tracing::info!(target: "audit", action = "compact table", subject = request.table, peer, outcome = "begun");
        Ok(Response::new(Box::pin(encode_progress(self.orders.maintenance.clone().compact(TableId(request.table))))))
    }

    async fn split(&self, request: Request<v1::SplitRequest>) -> Result<Response<v1::SplitReply>, Status> {
        let daughters = self.split_region(request.into_inner()).await.map_err(|error| error::status(&error))?;
        let daughters = daughters.iter().map(v1::RegionDescriptor::from).collect();
        Ok(Response::new(v1::SplitReply { daughters }))
    }

    async fn merge(&self, request: Request<v1::MergeRequest>) -> Result<Response<v1::MergeReply>, Status> {
        let region = self.merge_regions(request.into_inner()).await.map_err(|error| error::status(&error))?;
        Ok(Response::new(v1::MergeReply { region: Some((&region).into()) }))
    }

    async fn move_region(
        &self,
        request: Request<v1::MoveRegionRequest>,
    ) -> Result<Response<v1::MoveRegionReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        self.departures.order(&request).map(Response::new).map_err(|error| error::status(&error))
    }

    async fn stage_region(
        &self,
        request: Request<v1::StageRegionRequest>,
    ) -> Result<Response<v1::StageRegionReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        self.departures.stage(request).await.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn keep_views(&self, request: Request<v1::KeepViewsRequest>) -> Result<Response<v1::KeepViewsReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        self.views.keep(&request);
        Ok(Response::new(v1::KeepViewsReply {}))
    }

    async fn adopt_region(
        &self,
        request: Request<v1::AdoptRegionRequest>,
    ) -> Result<Response<v1::AdoptRegionReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        self.departures.adopt(request).await.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn refuse_move(
        &self,
        request: Request<v1::RefuseMoveRequest>,
    ) -> Result<Response<v1::RefuseMoveReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        self.departures.refuse(request).await.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn read_moved_file(
        &self,
        request: Request<v1::ReadMovedFileRequest>,
    ) -> Result<Response<v1::ReadMovedFileReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let part = FilePart { file: request.file, offset: request.offset, length: request.length };
        let source = Source { server: ServerId(request.source), boot: request.source_boot };
        let read = self.departures.staging.read_moved(MoveId(request.r#move), source, part).await;
        read.map(|data| Response::new(v1::ReadMovedFileReply { data })).map_err(|error| error::status(&error))
    }

    async fn stage_load(&self, request: Request<v1::StageLoadRequest>) -> Result<Response<v1::StageLoadReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        self.edge.loads.stage(request).await.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn read_loaded_file(
        &self,
        request: Request<v1::ReadLoadedFileRequest>,
    ) -> Result<Response<v1::ReadLoadedFileReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let staging: Result<[u8; 16], _> = request.staging[..].try_into();
        let staging = staging.map_err(|_| error::status(&Invalid::new("a staging id has 16 bytes").into()))?;
        let part = FilePart { file: request.file, offset: request.offset, length: request.length };
        let read = self.edge.loads.staging.read_loaded(StagingId(staging), part).await;
        read.map(|data| Response::new(v1::ReadLoadedFileReply { data })).map_err(|error| error::status(&error))
    }

    async fn digest_region(
        &self,
        request: Request<v1::DigestRegionRequest>,
    ) -> Result<Response<v1::DigestRegionReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let id = comparison_id(&request.comparison).map_err(|error| error::status(&error))?;
        let digested = self.digesting.ask(GroupId(request.group), RegionId(request.region), id);
        Ok(Response::new(comparing::reply(digested)))
    }

    async fn end_comparison(
        &self,
        request: Request<v1::EndComparisonRequest>,
    ) -> Result<Response<v1::EndComparisonReply>, Status> {
        let request = request.into_inner();
        self.check(request.hello.as_ref()).map_err(|error| error::status(&error))?;
        let id = comparison_id(&request.comparison).map_err(|error| error::status(&error))?;
        let machine = self.edge.replicas.machine(GroupId(request.group));
        if let (Some(machine), Some(expected)) = (machine, request.expected) {
            let expected = (comparing::received(expected), request.sure);
            machine.end_comparison(RegionId(request.region), id, expected, request.compared_ms);
        }
        Ok(Response::new(v1::EndComparisonReply {}))
    }
}

fn comparison_id(bytes: &[u8]) -> Result<ComparisonId, Error> {
    let id = bytes.try_into().map_err(|_| Invalid::new("the id of a comparison has 16 bytes"))?;
    Ok(ComparisonId(id))
}

impl AdminService {
    fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Error> {
        hello::check_called(hello, self.identity)?;
        if self.edge.closing.is_cancelled() { Err(stopping()) } else { Ok(()) }
    }

    async fn make_group(&self, request: v1::CreateGroupRequest) -> Result<v1::CreateGroupReply, Error> {
        self.check(request.hello.as_ref())?;
        let (members, addresses) = membership::members(request.members);
        let replica = ReplicaId(request.replica);
        if members.get(&replica) != Some(&self.identity.server) {
            let what = format!("replica {replica} of group {} is not a member on this server", request.group);
            return Err(Error::Invalid(Invalid { what }));
        }
        self.edge.addresses.set(addresses);
        let group = GroupId(request.group);
        let spec = GroupSpec { group, replica, members };
        self.edge.host.create_group(spec, request.lead).await.map_err(raft_error)?;
        let mut leaderless = false;
        if request.lead {
            // What is applied is committed: from then on, a majority can elect a leader without this server.
            let begun = match self.edge.host.group(group) {
                Some(group) => group.wait_for(|status| status.applied > 0, FIRST_ELECTION_MAX).await,
                None => None,
            };
            leaderless = begun.is_none();
        }
        Ok(v1::CreateGroupReply { leaderless })
    }

    async fn join(&self, request: v1::JoinGroupRequest) -> Result<(), Error> {
        self.check(request.hello.as_ref())?;
        let (mut members, addresses) = membership::members(request.members);
        if members.is_empty() {
            let what = format!("a replica that joins group {} needs its members", request.group);
            return Err(Error::Invalid(Invalid { what }));
        }
        let replica = ReplicaId(request.replica);
        members.insert(replica, self.identity.server);
        self.edge.addresses.set(addresses);
        let discard = (request.discard != 0).then_some(ReplicaId(request.discard));
        self.membership.join(GroupSpec { group: GroupId(request.group), replica, members }, discard).await
    }

    async fn change(&self, request: v1::ChangeTablesRequest) -> Result<u64, Error> {
        self.check(request.hello.as_ref())?;
        let group = self.orders.group(GroupId(request.group))?;
        let change = self.decode_change(request)?;
        let reply = group.propose(Proposal::ChangeTables(Box::new(change))).await;
        reply.map_err(|error| propose_error(error, &group, &self.edge.addresses))?.applied()?;
        Ok(group.status().applied)
    }

    /// A creation always carries the schema it was requested under, so that replaying it needs nothing else.
    fn decode_change(&self, request: v1::ChangeTablesRequest) -> Result<ChangeTables, Error> {
        let create = request.create.into_iter().map(RegionDescriptor::try_from).collect::<Result<Vec<_>, _>>()?;
        create.iter().try_for_each(|region| region.range.check_region())?;
        let schema = match request.schema {
            Some(schema) => {
                let schema = TableSchema::try_from(schema)?;
                schema.check()?;
                Some(schema)
            }
            None => create.first().and_then(|first| self.known_schema(GroupId(request.group), first.table)),
        };
        if let Some(stray) =
            create.iter().find(|region| Some(region.table) != schema.as_ref().map(|schema| schema.table))
        {
            let what = format!("the creation of region {} lacks the schema of its table {}", stray.region, stray.table);
            return Err(Error::Invalid(Invalid { what }));
        }
        Ok(ChangeTables { schema, create, drop: (request.drop != 0).then_some(TableId(request.drop)) })
    }

    fn known_schema(&self, group: GroupId, table: TableId) -> Option<TableSchema> {
        let schema = self.edge.replicas.machine(group)?.table(table)?;
        Some((*schema).clone())
    }

    async fn split_region(&self, request: v1::SplitRequest) -> Result<Vec<RegionDescriptor>, Error> {
        self.check(request.hello.as_ref())?;
        let at = (!request.at.is_empty()).then_some(request.at);
        self.orders.split(RegionId(request.region), RegionEpoch(request.epoch), at).await
    }

    async fn merge_regions(&self, request: v1::MergeRequest) -> Result<RegionDescriptor, Error> {
        self.check(request.hello.as_ref())?;
        let one = (RegionId(request.region), RegionEpoch(request.epoch));
        self.orders.merge(one, (RegionId(request.other), RegionEpoch(request.other_epoch))).await
    }
}

fn encode_progress(
    progress: impl Stream<Item = Result<Progress, Error>>,
) -> impl Stream<Item = Result<v1::MaintainTableProgress, Status>> {
    let message = |progress: Progress| v1::MaintainTableProgress {
        regions: progress.regions,
        regions_done: progress.regions_done,
        bytes: progress.bytes,
        bytes_done: progress.bytes_done,
        failures: progress.failures,
        done: progress.done,
    };
    progress.map(move |progress| progress.map(message).map_err(|error| error::status(&error)))
}
