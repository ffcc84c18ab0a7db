//! Streams that announce large messages and send almost nothing, over hand-written HTTP/2: no client library would do it.
//!
//! A gRPC message starts with a byte and a four-byte length; a server that reserves that length runs out of memory after a
//! few megabytes of input.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, let_it_run};

use super::http2::{END_HEADERS, FRAME_DATA, FRAME_HEADERS, FRAME_SETTINGS, frame, headers};
use super::{Bench, Verdict};

const STREAMS: u32 = 10_000;
const STREAMS_PER_CONNECTION: u32 = 1_000;
/// The length each stream announces, below the largest message that a server accepts.
const PROMISED_BYTES: u32 = 39 << 20;
const SENT_BYTES: usize = 64;
/// The limit: less than the streams would need if one in a hundred got its memory.
const MEMORY_MAX: u64 = 400 << 20;

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
