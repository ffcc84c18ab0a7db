//! Hostile connections: bytes that are no HTTP/2, connections that say nothing, calls that promise a body and never send it,
//! and connections that break in the middle of a frame; and the same at the port for HBase's clients.

use futures::future::join_all;
use prost::Message as _;
use terrane_client::Error;
use terrane_hbase::proto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turmoil::net::TcpStream;

use super::Shared;
use crate::nodes::hbase_address;
use crate::plan::master_address;
use crate::scenario::play::{CAPTIVE, below, pause};

const CLIENTS: usize = 3;
/// Longest time that a connection is kept open without the rest of its call.
const HELD_MS: u64 = 1_000;
/// How long it may take to open a connection and send what begins it.
const OPEN_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// Longest pause between two connections of one client.
const PAUSE_MS: u64 = 500;
/// What begins every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types and flags of HTTP/2 frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;
/// Length of a message that is promised.
const PROMISED_BYTES: u32 = 100_000;

/// Connects until the faults are over.
pub async fn connect_all_the_time(shared: Shared) -> Result<(), Error> {
    shared.context.state.until_ready().await;
    let clients = (0..CLIENTS).map(|client| {
        let (who, shared) = (format!("{CAPTIVE}.{client}"), shared.clone());
        async move {
            while !shared.is_over() {
                let (act, outcome) = open_and_misuse(&shared).await;
                shared.act(&who, act, outcome.map_or_else(|error| error.kind().to_string(), |()| "ok".to_owned()));
                pause(PAUSE_MS).await;
            }
        }
    });
    join_all(clients).await;
    Ok(())
}

async fn open_and_misuse(shared: &Shared) -> (&'static str, std::io::Result<()>) {
    let hosts = shared.context.plan.server_hosts();
    if below(3) == 0 {
        let (act, bytes) = some_bytes_of_hbase();
        return (act, send_and_hold(&hbase_address(hosts[below(hosts.len())]), &bytes).await);
    }
    let server = format!("{}:7700", hosts[below(hosts.len())]);
    let address = if below(5) == 0 { master_address(shared.context.plan.master_hosts()[0]) } else { server };
    let (act, bytes) = some_bytes();
    (act, send_and_hold(&address, &bytes).await)
}

/// Sends bytes, takes what comes for a while, and breaks the connection. A server that is down never answers.
async fn send_and_hold(address: &str, bytes: &[u8]) -> std::io::Result<()> {
    let opened = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        std::io::Result::Ok(stream)
    };
    let mut stream = tokio::time::timeout(OPEN_MAX, opened).await??;
    let mut answer = [0; 4_096];
    let held = std::time::Duration::from_millis(terrane_env::rand::range(0..HELD_MS));
    let reading = async { while stream.read(&mut answer).await.is_ok_and(|bytes| bytes > 0) {} };
    let _ends_or_not = tokio::time::timeout(held, reading).await;
    Ok(())
}

fn some_bytes() -> (&'static str, Vec<u8>) {
    let call = [&[][..], PREFACE, &frame(SETTINGS, 0, 0, &[]), &headers(1)].concat();
    match below(8) {
        0 => ("a silent connection", Vec::new()),
        1 => {
            ("bytes that are no HTTP/2", (0..below(3_000)).map(|_| terrane_env::rand::u64().to_le_bytes()[0]).collect())
        }
        2 => ("half a preface", PREFACE[..below(PREFACE.len())].to_vec()),
        3 => ("a call without a body", call),
        4..=6 => {
            let length = PROMISED_BYTES.to_be_bytes();
            let begun = [&[0][..], &length, &[b'x'; 10]].concat();
            ("a call with a part of its body", [&call[..], &frame(DATA, 0, 1, &begun)].concat())
        }
        _ => {
            let whole = [&call[..], &frame(DATA, 0, 1, &vec![b'x'; 1_000])].concat();
            let at = below(whole.len());
            ("a connection that breaks within a frame", whole[..at].to_vec())
        }
    }
}

fn some_bytes_of_hbase() -> (&'static str, Vec<u8>) {
    let header = proto::ConnectionHeader {
        service_name: Some("ClientService".to_owned()),
        user_info: Some(proto::UserInformation { effective_user: "hostile".to_owned(), real_user: None }),
        ..proto::ConnectionHeader::default()
    };
    let opened = [&b"HBas\x00\x50"[..], &behind_length(&header.encode_to_vec())].concat();
    let call = proto::RequestHeader {
        call_id: Some(1),
        method_name: Some("Multi".to_owned()),
        request_param: Some(true),
        ..proto::RequestHeader::default()
    };
    let call = [call.encode_length_delimited_to_vec(), vec![b'x'; below(200_000)]].concat();
    match below(6) {
        0 => ("a silent connection for HBase's clients", Vec::new()),
        1 => ("a part of a header of HBase's clients", opened[..below(opened.len())].to_vec()),
        2 => ("an idle connection for HBase's clients", opened),
        3 => ("a malformed call of HBase's clients", [opened, behind_length(&call)].concat()),
        _ => {
            let call = behind_length(&call);
            let part = &call[..below(call.len())];
            ("a part of a call of HBase's clients", [&opened, part].concat())
        }
    }
}

fn behind_length(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).expect("short").to_be_bytes()[..], bytes].concat()
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a gRPC call. Its fields are literals that are not indexed; `:method: POST` and `:scheme: http` are in the
/// static table.
fn headers(stream: u32) -> Vec<u8> {
    let path =
        ["/terrane.v1.Data/Mutate", "/terrane.v1.Data/Session", "/terrane.v1.Data/Scan", "/no.such/Call"][below(4)];
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")][..], text.as_bytes()].concat();
    let field = |name: &str, value: &str| [vec![0], text(name), text(value)].concat();
    let fields = [
        vec![0x83, 0x86, 0x04],
        text(path),
        vec![0x01],
        text("server"),
        field("content-type", "application/grpc"),
        field("te", "trailers"),
    ];
    frame(HEADERS, END_HEADERS, stream, &fields.concat())
}
