//! A server that only answers: a master with one table, and a region server that acknowledges every mutation without
//! reading it.
//!
//! Requests are decoded only as far as their ids, so that the server uses as little of the machine as possible; protobuf
//! skips the other fields.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use terrane_proto::convert::GroupLocation;
use terrane_proto::{MESSAGE_BYTES_MAX, v1};
use terrane_types::{
    FamilyName, FamilySchema, GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, ServerId, TableId, TableName,
    TableSchema,
};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const CLUSTER: [u8; 16] = [1; 16];
const SERVER: u64 = 1;
const TABLE: TableId = TableId(1);
/// Regions of the table; each starts at its number as two bytes.
pub const REGIONS: u16 = 64;

/// A session request with only the fields that the null server reads.
#[derive(Clone, PartialEq, prost::Message)]
struct NullRequest {
    #[prost(message, optional, tag = "1")]
    hello: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    batch: Option<NullBatch>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NullBatch {
    #[prost(message, repeated, tag = "1")]
    requests: Vec<Id>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Id {
    #[prost(uint64, tag = "1")]
    id: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Empty {}

/// Serves until the process ends; `told` receives the bound address.
pub async fn serve(address: &str, told: impl FnOnce(&str)) -> anyhow::Result<()> {
    let listener = terrane_env::net::listen(address).await?;
    let address = listener.local_addr()?.to_string();
    told(&address);
    let master = NullMaster { address };
    let intake = terrane_env::net::Intake::new(terrane_env::net::IntakeLimits::default());
    let router = terrane_env::net::server(&intake).add_service(NullData).add_service(master);
    router.serve_with_incoming(listener.incoming(&intake)).await?;
    Ok(())
}

type Answer = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

#[derive(Clone)]
struct NullData;

impl NamedService for NullData {
    const NAME: &'static str = "terrane.v1.Data";
}

impl Service<http::Request<Body>> for NullData {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        Box::pin(async move {
            let codec = ProstCodec::<v1::SessionReply, NullRequest>::default();
            let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
            Ok(grpc.streaming(Session, request).await)
        })
    }
}

struct Session;

impl StreamingService<NullRequest> for Session {
    type Response = v1::SessionReply;
    type ResponseStream = BoxStream<'static, Result<v1::SessionReply, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<NullRequest>>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(Replies(request.into_inner()).boxed())) })
    }
}

/// Answers each message as it arrives.
struct Replies(Streaming<NullRequest>);

impl Stream for Replies {
    type Item = Result<v1::SessionReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context).map(|request| request.map(|request| request.map(answer)))
    }
}

fn answer(request: NullRequest) -> v1::SessionReply {
    let body = match request.batch {
        None => v1::session_reply::Body::Hello(hello(SERVER)),
        Some(batch) => {
            let reply = |request: Id| {
                let done = v1::MutateReply { stamp: 1, ..v1::MutateReply::default() };
                let body = Some(v1::reply::Body::Mutate(done));
                v1::Reply { id: request.id, body, ..v1::Reply::default() }
            };
            v1::session_reply::Body::Batch(v1::ReplyBatch { replies: batch.requests.into_iter().map(reply).collect() })
        }
    };
    v1::SessionReply { body: Some(body) }
}

fn hello(server: u64) -> v1::HelloReply {
    v1::HelloReply {
        cluster_id: Bytes::copy_from_slice(&CLUSTER),
        server,
        boot: 1,
        version: 1,
        feature_level: 1,
        cluster_time_ms: terrane_env::time::wall_ms(),
    }
}

#[derive(Clone)]
struct NullMaster {
    /// Its own address, which is also the region server's.
    address: String,
}

impl NamedService for NullMaster {
    const NAME: &'static str = "terrane.v1.Master";
}

impl Service<http::Request<Body>> for NullMaster {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let address = self.address.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/terrane.v1.Master/Identify" => unary(request, hello(0)).await,
                "/terrane.v1.Master/DescribeTable" => unary(request, table()).await,
                "/terrane.v1.Master/Locate" => unary(request, map(&address)).await,
                _ => Status::unimplemented("not part of the null server").into_http(),
            })
        })
    }
}

/// Answers a call without reading the request.
async fn unary<T: prost::Message + Default + Clone + 'static>(
    request: http::Request<Body>,
    reply: T,
) -> http::Response<Body> {
    Grpc::new(ProstCodec::<T, Empty>::default()).unary(Always(reply), request).await
}

struct Always<T>(T);

impl<T: Clone + Send + 'static> UnaryService<Empty> for Always<T> {
    type Response = T;
    type Future = std::future::Ready<Result<Response<T>, Status>>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        std::future::ready(Ok(Response::new(self.0.clone())))
    }
}

fn table() -> v1::TableReply {
    let mut schema = TableSchema::new(TableName::new("null").expect("a name"));
    schema.table = TABLE;
    schema.version = 1;
    schema.add_family(FamilySchema::new(FamilyName::new("f").expect("a name"))).expect("the first family");
    v1::TableReply { schema: Some((&schema).into()), state: "enabled".to_owned(), regions: 1, bytes: 0 }
}

fn map(address: &str) -> v1::LocateReply {
    let region = |number: u16| {
        let bound = |number: u16| match number {
            0 | REGIONS => Bytes::new(),
            inner => Bytes::copy_from_slice(&inner.to_be_bytes()),
        };
        let descriptor = RegionDescriptor {
            region: RegionId(u64::from(number) + 1),
            table: TABLE,
            range: KeyRange { start: bound(number), end: bound(number + 1) },
            epoch: RegionEpoch(1),
            group: GroupId(1),
            schema_version: 1,
        };
        (&descriptor).into()
    };
    let group = GroupLocation {
        group: GroupId(1),
        leader: Some(ServerId(SERVER)),
        term: 1,
        members: vec![(ServerId(SERVER), address.to_owned())],
    };
    v1::LocateReply {
        regions: (0..REGIONS).map(region).collect(),
        groups: vec![(&group).into()],
        schema_version: 1,
        masters: Vec::new(),
    }
}
