//! The network: listeners for servers, channels for clients, and the transport settings that both ends share.
//!
//! Keep-alive is on at both ends. Without it, a connection whose packets are silently dropped hangs its streams forever
//! (simulated TCP never retransmits, real TCP gives up after a quarter of an hour), and no RPC deadline helps a stream that
//! stays open. Addresses are `HOST:PORT` text everywhere; names are resolved at each connect, so a server that restarts
//! under another address is found again.
//!
//! What a port accepts is limited by one rule for all protocols: `Intake` counts it, `connection` and `unfinished` say which
//! connections and messages give way, and for gRPC the layer of `server` (`gate`) enforces the limits. Ports are behind
//! the feature `server`: a program that only calls others, such as one with the client library, compiles none of it.

#[cfg(feature = "server")]
mod arriving;
#[cfg(feature = "server")]
mod connection;
#[cfg(feature = "server")]
mod gate;
#[cfg(feature = "server")]
mod intake;
#[cfg(feature = "server")]
mod port;
#[cfg(feature = "sim")]
mod simulated;
#[cfg(feature = "server")]
mod unfinished;

use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};

#[cfg(feature = "server")]
pub use self::arriving::RATE_MIN;
#[cfg(feature = "server")]
pub use self::connection::{Answering, Call, ConnectInfo, Connection, build_answer, peer_of};
#[cfg(feature = "server")]
pub use self::gate::Gate;
#[cfg(feature = "server")]
pub use self::intake::{BudgetNames, Intake, IntakeLimits};
#[cfg(all(feature = "server", not(feature = "sim")))]
pub use self::port::resolve;
#[cfg(feature = "server")]
pub use self::port::{
    Accepted, CALL_WINDOW_BYTES, CALLS_WINDOW_BYTES, Listener, Outbound, Router, STREAMS_PER_CONNECTION_MAX, Server,
    connect_to, listen, server,
};
#[cfg(feature = "server")]
pub use self::unfinished::{Ended, GRACE, Unfinished};

#[cfg(feature = "sim")]
use simulated::TcpStream;
#[cfg(not(feature = "sim"))]
use tokio::net::TcpStream;

/// HTTP/2 window of one answer at the client: two of the largest batches common in scans fit.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// HTTP/2 window of a connection at the client: four full streams fit.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Largest HTTP/2 frame: blocks of cells need few frames, and a ping still waits only briefly.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// Longest time to wait for a TCP connection.
#[cfg(not(feature = "sim"))]
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection that was silent for this long is pinged...
#[cfg(not(feature = "sim"))]
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// ...and closed if no answer comes within this time. Generous: a process starved of CPU is not dead.
#[cfg(not(feature = "sim"))]
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(6);

/// How long a connection may have no call, for protocols without pings. HBase's own clients close theirs after two minutes.
#[cfg(not(feature = "sim"))]
pub const IDLE_MAX: Duration = Duration::from_secs(600);

/// Longest time to wait for a TCP connection.
#[cfg(feature = "sim")]
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Short, because the simulation never retransmits lost segments: only a new connection helps.
#[cfg(feature = "sim")]
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(500);
/// Short for the same reason: nothing tells of a client that is gone.
#[cfg(feature = "sim")]
pub const IDLE_MAX: Duration = Duration::from_secs(5);
/// Short as well: simulated processes are never starved of CPU.
#[cfg(feature = "sim")]
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_millis(500);

/// An address that is not `HOST:PORT`.
#[derive(Debug, thiserror::Error)]
#[error("{address:?} is not an address: give HOST:PORT, for example 127.0.0.1:7600")]
pub struct InvalidAddress {
    /// The text as given.
    pub address: String,
}

/// A connection that was silent for this long is probed by TCP...
#[cfg(all(feature = "server", not(feature = "sim")))]
const TCP_KEEP_ALIVE_IDLE: Duration = Duration::from_secs(30);
/// ...at this interval; by default the kernel gives up after nine probes.
#[cfg(all(feature = "server", not(feature = "sim")))]
const TCP_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Ends connections whose other end is gone, also for protocols that have no pings. A socket that refuses still works.
#[cfg(all(feature = "server", not(feature = "sim")))]
fn keep_alive(stream: &TcpStream) {
    let probes = socket2::TcpKeepalive::new().with_time(TCP_KEEP_ALIVE_IDLE).with_interval(TCP_KEEP_ALIVE_INTERVAL);
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_keepalive(&probes) {
        tracing::debug!(%error, "cannot set TCP keep-alive");
    }
}

/// Simulated connections have no probes.
#[cfg(all(feature = "server", feature = "sim"))]
const fn keep_alive(_: &TcpStream) {}

/// Frames are already batched where that pays, so Nagle's delay only costs. A socket that refuses the option still works.
fn prefer_latency(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

/// A channel to `address` (`HOST:PORT`). It connects at the first call and reconnects whenever the connection is lost.
///
/// Calls have no default deadline: each caller sets one.
pub fn channel(address: &str) -> Result<Channel, InvalidAddress> {
    let invalid = || InvalidAddress { address: address.to_owned() };
    check_host_and_port(address).ok_or_else(invalid)?;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| invalid())?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX);
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(connect)))
}

fn check_host_and_port(address: &str) -> Option<()> {
    let authority: http::uri::Authority = address.parse().ok()?;
    let plain = !address.contains('@') && !authority.host().is_empty();
    (plain && authority.port_u16().is_some()).then_some(())
}

async fn connect(uri: http::Uri) -> io::Result<TokioIo<TcpStream>> {
    let authority = uri.authority().ok_or_else(|| io::Error::other("the channel's address names no host"))?;
    let stream = TcpStream::connect(authority.as_str()).await?;
    prefer_latency(&stream);
    Ok(TokioIo::new(stream))
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_checked_before_anything_is_sent() {
        for wrong in [
            "",
            "host",
            ":7600",
            "host:",
            "host:port",
            "host:70000",
            "a b:1",
            "user@host:1",
            "http://host:1",
            "host:1/path",
        ] {
            let error = channel(wrong).err().unwrap_or_else(|| panic!("{wrong:?} was accepted"));
            assert!(error.to_string().contains("HOST:PORT"));
        }
        for right in ["127.0.0.1:7600", "localhost:1", "[::1]:7600", "server-1.example:7700"] {
            channel(right).unwrap();
        }
    }
}
