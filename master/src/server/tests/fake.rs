//! Fake region servers: they keep the orders they get, and respond as the test says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_proto::v1::region_server_server::{RegionServer, RegionServerServer};
use terrane_proto::{error, hello, v1};
use terrane_types::{Error, GroupId, ServerId};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// How the fake servers respond to a change of tables.
#[derive(Clone, Debug, Default)]
pub enum Mood {
    #[default]
    Willing,
    /// Temporarily unavailable.
    Away,
    /// Permanently refuses.
    Refusing,
    /// Redirects to another server.
    Follows(u64),
}

/// The orders that the servers of a test received.
pub struct Ordered {
    pub mood: Mutex<BTreeMap<u64, Mood>>,
    pub groups: Mutex<Vec<(u64, v1::CreateGroupRequest)>>,
    pub tables: Mutex<Vec<(u64, v1::ChangeTablesRequest)>>,
    pub moves: Mutex<Vec<v1::MoveRegionRequest>>,
    /// What every order to move a region is answered.
    pub moving: Mutex<Result<v1::MoveRegionReply, Error>>,
    /// The boot number that the servers answer with.
    pub boot: Mutex<u64>,
    /// The servers whose groups elect no leader.
    pub leaderless: Mutex<BTreeSet<u64>>,
}

impl Default for Ordered {
    fn default() -> Self {
        Self {
            mood: Mutex::default(),
            groups: Mutex::default(),
            tables: Mutex::default(),
            moves: Mutex::default(),
            moving: Mutex::new(Err(Error::Unsupported { feature: "moves of regions".into() })),
            boot: Mutex::new(1),
            leaderless: Mutex::default(),
        }
    }
}

struct FakeServer {
    server: u64,
    ordered: Arc<Ordered>,
}

fn without_replicas() -> Status {
    error::status(&Error::NotFound { what: "a replica on a fake server".to_owned() })
}

#[tonic::async_trait]
impl RegionServer for FakeServer {
    async fn create_group(
        &self,
        request: Request<v1::CreateGroupRequest>,
    ) -> Result<Response<v1::CreateGroupReply>, Status> {
        let request = request.into_inner();
        let leaderless = request.lead && self.ordered.leaderless.lock().contains(&self.server);
        self.ordered.groups.lock().push((self.server, request));
        Ok(Response::new(v1::CreateGroupReply { leaderless }))
    }

    async fn identify(&self, request: Request<v1::IdentifyRequest>) -> Result<Response<v1::IdentifyReply>, Status> {
        let hello = request.into_inner().hello.unwrap_or_default();
        let cluster = hello::cluster_of(&hello.cluster_id).map_err(|error| error::status(&error))?.unwrap_or_default();
        let here = hello::Identity { cluster, server: ServerId(self.server), boot: 1 };
        hello::check_called(Some(&hello), here).map_err(|error| error::status(&error))?;
        let boot = *self.ordered.boot.lock();
        Ok(Response::new(v1::IdentifyReply { cluster_id: hello.cluster_id, server: self.server, boot }))
    }

    async fn change_tables(
        &self,
        request: Request<v1::ChangeTablesRequest>,
    ) -> Result<Response<v1::ChangeTablesReply>, Status> {
        let request = request.into_inner();
        let mood = self.ordered.mood.lock().get(&self.server).cloned().unwrap_or_default();
        let refusal = match mood {
            Mood::Willing => {
                self.ordered.tables.lock().push((self.server, request));
                return Ok(Response::new(v1::ChangeTablesReply { applied: 1 }));
            }
            Mood::Away => Error::Unavailable { message: "away".into(), retry_after: Duration::from_millis(1) },
            Mood::Refusing => Error::Unsupported { feature: "this schema".into() },
            Mood::Follows(leader) => Error::NotLeader {
                group: GroupId(request.group),
                term: 1,
                leader: Some(ServerId(leader)),
                address: None,
                members: Vec::new(),
            },
        };
        Err(error::status(&refusal))
    }

    type FlushTableStream = futures::stream::Empty<Result<v1::MaintainTableProgress, Status>>;
    type CompactTableStream = futures::stream::Empty<Result<v1::MaintainTableProgress, Status>>;

    async fn flush_table(
        &self,
        _request: Request<v1::MaintainTableRequest>,
    ) -> Result<Response<Self::FlushTableStream>, Status> {
        Ok(Response::new(futures::stream::empty()))
    }

    async fn compact_table(
        &self,
        _request: Request<v1::MaintainTableRequest>,
    ) -> Result<Response<Self::CompactTableStream>, Status> {
        Ok(Response::new(futures::stream::empty()))
    }

    async fn split(&self, request: Request<v1::SplitRequest>) -> Result<Response<v1::SplitReply>, Status> {
        let request = request.into_inner();
        let daughter = |region: u64, start: &'static str, end: &'static str| v1::RegionDescriptor {
            region,
            table: 1,
            start: Bytes::from_static(start.as_bytes()),
            end: Bytes::from_static(end.as_bytes()),
            epoch: request.epoch + 1,
            group: self.ordered.tables.lock()[0].1.group,
            schema_version: 1,
        };
        Ok(Response::new(v1::SplitReply { daughters: vec![daughter(500, "", "k"), daughter(501, "k", "")] }))
    }

    async fn move_region(
        &self,
        request: Request<v1::MoveRegionRequest>,
    ) -> Result<Response<v1::MoveRegionReply>, Status> {
        let request = request.into_inner();
        let reply = self.ordered.moving.lock().clone();
        self.ordered.moves.lock().push(request);
        reply.map(Response::new).map_err(|refused| error::status(&refused))
    }

    async fn merge(&self, request: Request<v1::MergeRequest>) -> Result<Response<v1::MergeReply>, Status> {
        let request = request.into_inner();
        let region = v1::RegionDescriptor {
            region: 600,
            table: 1,
            start: Bytes::new(),
            end: Bytes::new(),
            epoch: request.epoch.max(request.other_epoch) + 1,
            group: self.ordered.tables.lock()[0].1.group,
            schema_version: 1,
        };
        Ok(Response::new(v1::MergeReply { region: Some(region) }))
    }

    terrane_proto::unserved! { without_replicas() =>
        join_group(JoinGroupRequest) -> v1::JoinGroupReply;
        change_members(ChangeMembersRequest) -> v1::ChangeMembersReply;
        transfer_leader(TransferLeaderRequest) -> v1::TransferLeaderReply;
        remove_replica(RemoveReplicaRequest) -> v1::RemoveReplicaReply;
        describe_server(DescribeServerRequest) -> v1::DescribeServerReply;
        inspect_replica(InspectReplicaRequest) -> v1::InspectReplicaReply;
        recover_replica(RecoverReplicaRequest) -> v1::RecoverReplicaReply;
    }

    terrane_proto::unserved! { Status::unimplemented("not part of the fake") =>
        stage_region(StageRegionRequest) -> v1::StageRegionReply;
        keep_views(KeepViewsRequest) -> v1::KeepViewsReply;
        adopt_region(AdoptRegionRequest) -> v1::AdoptRegionReply;
        refuse_move(RefuseMoveRequest) -> v1::RefuseMoveReply;
        read_moved_file(ReadMovedFileRequest) -> v1::ReadMovedFileReply;
        stage_load(StageLoadRequest) -> v1::StageLoadReply;
        read_loaded_file(ReadLoadedFileRequest) -> v1::ReadLoadedFileReply;
        digest_region(DigestRegionRequest) -> v1::DigestRegionReply;
        end_comparison(EndComparisonRequest) -> v1::EndComparisonReply;
    }
}

/// Serves a fake server until `stop`; returns its address.
pub async fn serve_fake(server: u64, ordered: &Arc<Ordered>, stop: &CancellationToken) -> String {
    let listener = terrane_env::net::listen("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let fake = FakeServer { server, ordered: Arc::clone(ordered) };
    let stop = stop.clone();
    let intake = terrane_env::net::Intake::new(terrane_env::net::IntakeLimits::default());
    tokio::spawn(async move {
        terrane_env::net::server(&intake)
            .add_service(RegionServerServer::new(fake))
            .serve_with_incoming_shutdown(listener.incoming(&intake), stop.cancelled_owned())
            .await
    });
    address
}

/// The registration of a new server.
pub fn registration(address: String) -> v1::RegisterRequest {
    v1::RegisterRequest {
        hello: Some(hello::ours(None, ServerId(0), ServerId(0), 1)),
        address,
        engine: "memory".into(),
        boot: 1,
        region_ids_wanted: 10,
        ..v1::RegisterRequest::default()
    }
}
