//! Streams that announce large messages and send almost nothing, over hand-written HTTP/2: no client library would do it.
//!
//! A gRPC message starts with a byte and a four-byte length; a server that reserves that length runs out of memory after a
//! few megabytes of input.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::cluster::{Cluster, let_it_run};
use super::{Bench, Verdict};

const STREAMS: u32 = 10_000;
const STREAMS_PER_CONNECTION: u32 = 1_000;
/// The length each stream announces, below the largest message that a server accepts.
const PROMISED_BYTES: u32 = 39 << 20;
const SENT_BYTES: usize = 64;
/// The limit: less than the streams would need if one in a hundred got its memory.
const MEMORY_MAX: u64 = 400 << 20;

/// Bytes of a frame that every server takes.
const FRAME_BYTES: usize = 16 << 10;
const FRAME_DATA: u8 = 0;
const FRAME_HEADERS: u8 = 1;
const FRAME_SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let cluster = Cluster::start(&bench.terrane, &[])?;
    cluster.succeed(&["table", "create", "t", "--family", "f"])?;
    cluster.succeed(&["put", "t", "a", "f:q", "v"])?;
    let mut growths = Vec::new();
    let targets = [
        (&cluster.servers[0], &cluster.addresses[0], "/terrane.v1.Data/Mutate"),
        (&cluster.servers[1], &cluster.addresses[1], "/terrane.v1.Data/Session"),
        (&cluster.masters[0], &cluster.master_addresses[0], "/terrane.v1.Master/Locate"),
    ];
    for (role, address, path) in targets {
        role.reset_peak()?;
        let (before, _) = role.memory()?;
        let mut sent = 0;
        let mut connections = Vec::new();
        for _ in 0..STREAMS / STREAMS_PER_CONNECTION {
            // The server may close such connections.
            let Ok((connection, bytes)) = open(address, path) else { continue };
            sent += bytes;
            connections.push(connection);
        }
        let_it_run(Duration::from_secs(3));
        let (_, peak) = role.memory()?;
        let growth = peak.saturating_sub(before);
        growths.push(format!("{path}: {} kB sent, {} MiB more", sent / 1000, growth >> 20));
        ensure!(growth < MEMORY_MAX, "{}", growths.join("; "));
        let answered = cluster.json(&["count", "t"])?;
        ensure!(answered["count"] == 1, "the cluster does not serve other clients meanwhile: {answered}");
    }
    Ok(Verdict::Held(growths.join("; ")))
}

/// Opens a connection with its streams; returns it and the bytes sent.
fn open(address: &str, path: &str) -> anyhow::Result<(TcpStream, usize)> {
    let mut connection = TcpStream::connect(address).context("connecting")?;
    connection.set_write_timeout(Some(Duration::from_secs(5))).context("a time limit")?;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, FRAME_SETTINGS, 0, 0, &[]);
    frame(&mut bytes, FRAME_SETTINGS, 1, 0, &[]);
    let headers = headers(address, path);
    let mut message = vec![0];
    message.extend_from_slice(&PROMISED_BYTES.to_be_bytes());
    message.resize(5 + SENT_BYTES, b'x');
    for stream in 0..STREAMS_PER_CONNECTION {
        let id = 2 * stream + 1;
        frame(&mut bytes, FRAME_HEADERS, END_HEADERS, id, &headers);
        frame(&mut bytes, FRAME_DATA, 0, id, &message);
    }
    connection.write_all(&bytes).context("sending")?;
    let mut reader = connection.try_clone().context("a second handle")?;
    // Discard what the server sends, so that its buffers do not fill up.
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while matches!(reader.read(&mut buffer), Ok(read) if read > 0) {}
    });
    Ok((connection, bytes.len()))
}

/// The beginning of a call on a connection of its own: a message that announces so many bytes, of which some come.
pub fn begun_call(address: &str, path: &str, announced: usize, some: &[u8]) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, FRAME_SETTINGS, 0, 0, &[]);
    frame(&mut bytes, FRAME_HEADERS, END_HEADERS, 1, &headers(address, path));
    let announced = u32::try_from(announced).unwrap_or(u32::MAX).to_be_bytes();
    frame(&mut bytes, FRAME_DATA, 0, 1, &[&[0][..], &announced].concat());
    for part in some.chunks(FRAME_BYTES) {
        frame(&mut bytes, FRAME_DATA, 0, 1, part);
    }
    bytes
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Literal fields without indexing (RFC 7541, 6.2.2), which need no table on either side.
fn headers(address: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", address),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap_or(0));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
