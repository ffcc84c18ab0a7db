//! Servers against clients that announce large bodies, stall, cancel and send garbage. A test binary of its own, since
//! it counts allocations.

use std::alloc::System;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use cap::Cap;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::{hello, v1};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_types::ServerId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

#[expect(clippy::disallowed_types, reason = "a raw client, to send what no client of ours sends")]
type RawStream = tokio::net::TcpStream;

/// The header of a message of 39 MiB.
const PROMISE: [u8; 5] = [0, 0x02, 0x70, 0, 0];

async fn one_server() -> Result<(Cluster, String)> {
    let cluster =
        Cluster::start(Settings { servers: 1, replication: 1, groups_per_server: 1, ..Settings::default() }).await?;
    let address = cluster.server(0).context("it runs")?.address().to_string();
    Ok((cluster, address))
}

/// An HTTP/2 connection driven by a task.
async fn connect(address: &str) -> Result<SendRequest<Bytes>> {
    let (client, connection) = h2::client::handshake(RawStream::connect(address).await?).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn call(client: SendRequest<Bytes>, path: &str) -> Result<(ResponseFuture, SendStream<Bytes>)> {
    let mut client = client.ready().await?;
    let request = http::Request::post(format!("http://server{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(())?;
    Ok(client.send_request(request, false)?)
}

/// The gRPC status of a response: in its headers if it has no body, otherwise in its trailers.
async fn status(response: ResponseFuture) -> Result<String> {
    let (head, mut body): (_, RecvStream) = response.await?.into_parts();
    let told = |headers: &http::HeaderMap| {
        headers.get("grpc-status").map(|status| String::from_utf8_lossy(status.as_bytes()).into_owned())
    };
    if let Some(status) = told(&head.headers) {
        return Ok(status);
    }
    while let Some(data) = body.data().await {
        let bytes = data?.len();
        body.flow_control().release_capacity(bytes)?;
    }
    let trailers = body.trailers().await?.context("an answer ends with trailers")?;
    told(&trailers).context("an answer has a status")
}

const METHODS: [&str; 4] =
    ["/terrane.v1.Data/Get", "/terrane.v1.Data/Session", "/terrane.v1.Peer/Link", "/terrane.v1.RegionServer/Split"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promised_bodies_take_no_memory_until_they_arrive() -> Result<()> {
    let (mut cluster, address) = one_server().await?;
    let before = ALLOCATOR.allocated();
    let (mut clients, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let client = connect(&address).await?;
        for number in 0..100 {
            let (response, mut body) = call(client.clone(), METHODS[number % METHODS.len()]).await?;
            body.send_data(Bytes::from_static(&PROMISE), false)?;
            calls.push((response, body));
        }
        clients.push(client);
    }
    // Requests are read in order: once these are answered, the server has seen all announcements.
    for client in clients {
        let (response, mut body) = call(client, METHODS[0]).await?;
        body.send_data(Bytes::from_static(&[0, 0, 0, 0, 0]), true)?;
        status(response).await?;
    }
    let taken = ALLOCATOR.allocated().saturating_sub(before);
    ensure!(taken < 200 << 20, "{} promises of 39 MiB made the process take {taken} bytes", calls.len());
    drop(calls);
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_messages_are_the_callers_mistake() -> Result<()> {
    let (mut cluster, address) = one_server().await?;
    let client = connect(&address).await?;
    let invalid = (tonic::Code::InvalidArgument as i32).to_string();
    for path in ["/terrane.v1.Data/Get", "/terrane.v1.Data/Mutate", "/terrane.v1.RegionServer/Split"] {
        let (response, mut body) = call(client.clone(), path).await?;
        body.send_data(Bytes::from_static(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff]), true)?;
        assert_eq!(status(response).await?, invalid, "{path}");
    }
    let master = connect(cluster.masters()).await?;
    let (response, mut body) = call(master, "/terrane.v1.Master/ListTables").await?;
    body.send_data(Bytes::from_static(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff]), true)?;
    assert_eq!(status(response).await?, invalid, "master");
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_sends_garbage_is_told_so() -> Result<()> {
    let (mut cluster, address) = one_server().await?;
    let client = cluster.client().await?;
    let ours = hello::ours(Some(client.cluster_id()), ServerId(0), ServerId(0), 1);
    let first = v1::SessionRequest { body: Some(v1::session_request::Body::Hello(ours)) };
    // A second hello is invalid.
    let requests = futures::stream::iter([first.clone(), first]);
    let mut service = DataClient::new(terrane_env::net::channel(&address)?);
    let mut answers = service.session(requests).await?.into_inner();
    let greeted = answers.message().await?.and_then(|message| message.body);
    ensure!(matches!(greeted, Some(v1::session_reply::Body::Hello(_))), "{greeted:?}");
    let refused = answers.message().await.expect_err("a second hello is no batch");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    cluster.stop_all().await;
    Ok(())
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A server that was suspended for a while receives calls together with their cancellations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_cancelled_while_the_server_stood_still_do_not_cost_the_connection() -> Result<()> {
    let (mut cluster, address) = one_server().await?;
    // POST, http, a path and an authority, encoded by HPACK.
    let mut headers = vec![0x83, 0x86, 0x04, 20];
    headers.extend_from_slice(b"/terrane.v1.Data/Get");
    headers.extend_from_slice(&[0x01, 1, b's']);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    let cancelled = 1000;
    for number in 0..cancelled {
        bytes.extend(frame(HEADERS, END_HEADERS, 2 * number + 1, &headers));
        bytes.extend(frame(RST_STREAM, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let last = 2 * cancelled + 1;
    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, last, &headers));
    let mut stream = RawStream::connect(&address).await?;
    stream.write_all(&bytes).await?;
    let answered = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.context("the server closed the connection")?;
            let [l0, l1, l2, kind, _, s0, s1, s2, s3] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
            stream.read_exact(&mut payload).await?;
            ensure!(kind != GOAWAY, "the server ends the connection: {}", String::from_utf8_lossy(&payload));
            if kind == HEADERS && u32::from_be_bytes([s0, s1, s2, s3]) == last {
                return Ok(());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), answered).await??;
    cluster.stop_all().await;
    Ok(())
}
