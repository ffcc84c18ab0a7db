//! The network door: listeners for servers, channels for clients, and the transport settings both ends share.
//!
//! Keep-alive is on at both ends. Without it a connection whose packets are silently dropped hangs its streams for ever
//! (simulated TCP never retransmits, real TCP gives up after a quarter of an hour), and no RPC deadline can mend a stream
//! that stays open. Addresses are `HOST:PORT` text everywhere; names are resolved at each connect, so a server that comes
//! back under another address is found again.
//!
//! What a port takes in is limited: [`Intake`] counts it, and the layer of [`server`] (`gate`) sees to it.

mod gate;
mod intake;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};
use tower::layer::util::{Identity, Stack};

pub use gate::Gate;
pub use intake::{Intake, IntakeLimits};
use intake::{Line, PREFACE_MAX};

#[cfg(not(feature = "sim"))]
use tokio::net::{TcpListener, TcpStream};
#[cfg(feature = "sim")]
use turmoil::net::{TcpListener, TcpStream};

/// HTTP/2 window of one answer at the client: two batches of the largest size common in scans may be under way.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// HTTP/2 window of a connection at the client: four streams may be full at once.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// HTTP/2 window of one call at the server...
pub const CALL_WINDOW_BYTES: u32 = 1 << 20;
/// ...and of all calls of a connection: what a server holds for a connection whose calls it does not read.
pub const CALLS_WINDOW_BYTES: u32 = 2 << 20;
/// Calls under way on one connection; further ones wait at the client.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 1024;
/// Calls of one connection that were cancelled before the server saw them. More end the connection. A server that was
/// stopped for a while finds all calls that timed out meanwhile, a few generations of them, so the bound is a multiple.
const CANCELLED_UNSEEN_MAX: usize = 4 * STREAMS_PER_CONNECTION_MAX as usize;
/// Calls of one connection that the server itself ended because of what was sent.
const RESET_BY_SERVER_MAX: usize = STREAMS_PER_CONNECTION_MAX as usize;
/// Bytes of the headers of one call.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// The first bytes of every HTTP/2 connection.
const PREFACE_BYTES: usize = 24;
/// Largest HTTP/2 frame: blocks of cells travel in few frames, and a ping still waits for little.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// Longest time to wait for a TCP connection.
#[cfg(not(feature = "sim"))]
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection that was silent for so long is asked for a sign of life...
#[cfg(not(feature = "sim"))]
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// ...and is closed when none comes within this time. Generous: a process starved of CPU is not dead.
#[cfg(not(feature = "sim"))]
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(6);

/// Longest time to wait for a TCP connection.
#[cfg(feature = "sim")]
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Short, as lost segments are never sent again in the simulation: only a new connection heals them.
#[cfg(feature = "sim")]
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(500);
/// Short as well: simulated processes are never starved of CPU.
#[cfg(feature = "sim")]
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a listener rests after an accept failed for lack of descriptors or memory: there is nothing to wait for.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// An address that is not `HOST:PORT`.
#[derive(Debug, thiserror::Error)]
#[error("{address:?} is not an address: give HOST:PORT, for example 127.0.0.1:7600")]
pub struct InvalidAddress {
    /// The text as it was given.
    pub address: String,
}

/// A bound port.
pub struct Listener {
    listener: TcpListener,
}

/// Binds `address` (`HOST:PORT`; port 0 takes a free one, see [`Listener::local_addr`]).
///
/// A port whose last owner has just died can be bound at once (`SO_REUSEADDR`); one that is still served cannot, and the
/// error says so. A simulated host owns all its addresses, so there only the port counts.
pub async fn listen(address: &str) -> io::Result<Listener> {
    let bound = TcpListener::bind(bind_address(address)?.as_str()).await;
    match bound {
        Ok(listener) => Ok(Listener { listener }),
        Err(error) => Err(explain_bind(address, error)),
    }
}

#[cfg(not(feature = "sim"))]
fn bind_address(address: &str) -> io::Result<String> {
    Ok(address.to_owned())
}

#[cfg(feature = "sim")]
fn bind_address(address: &str) -> io::Result<String> {
    let port = address.rsplit_once(':').map(|(_, port)| port).unwrap_or("");
    let port: u16 = port.parse().map_err(|_| {
        let address = address.to_owned();
        io::Error::new(io::ErrorKind::InvalidInput, InvalidAddress { address })
    })?;
    Ok(format!("0.0.0.0:{port}"))
}

fn explain_bind(address: &str, error: io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "cannot listen on {address}: the port is in use by another process; stop that process or choose another port"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("cannot listen on {address}: this machine has no such address")
        }
        io::ErrorKind::PermissionDenied => {
            format!("cannot listen on {address}: not permitted; ports below 1024 need privileges")
        }
        _ => format!("cannot listen on {address}: {error}"),
    };
    io::Error::new(error.kind(), text)
}

impl Listener {
    /// The address bound, with the port that was taken when 0 was asked for.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection and its peer. Failures that concern one connection only, or pass by themselves, are waited out.
    pub async fn accept(&self) -> (Accepted, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => return (Accepted::new(stream), peer),
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; trying again");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// The next connection for which `intake` has room; others are closed at once. One that sends nothing for `silence` is
    /// closed.
    pub async fn accept_within(&self, intake: &Intake, silence: Duration) -> (Accepted, SocketAddr) {
        loop {
            let (mut accepted, peer) = self.accept().await;
            if let Some(line) = intake.connect() {
                accepted.line = Some(line);
                accepted.patience =
                    Some(Patience { silence, preface: None, timer: Box::pin(tokio::time::sleep(silence)) });
                return (accepted, peer);
            }
        }
    }

    /// All connections from now on, as far as `intake` has room for them, in the form that tonic serves. Never ends by
    /// itself.
    pub fn incoming(self, intake: &Arc<Intake>) -> impl Stream<Item = io::Result<Accepted>> + Send + 'static {
        let intake = intake.clone();
        async_stream::stream! {
            loop {
                let (mut accepted, _) = self.accept_within(&intake, PREFACE_MAX).await;
                if let Some(patience) = &mut accepted.patience {
                    patience.preface = Some(PREFACE_BYTES);
                }
                yield Ok(accepted);
            }
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// One accepted connection.
pub struct Accepted {
    stream: TcpStream,
    line: Option<Arc<Line>>,
    patience: Option<Patience>,
}

/// How long is waited for the next bytes of a connection.
struct Patience {
    silence: Duration,
    /// Bytes that must come; then keep-alive sees to the rest. None: each silence is bounded.
    preface: Option<usize>,
    timer: Pin<Box<Sleep>>,
}

impl Accepted {
    fn new(stream: TcpStream) -> Accepted {
        prefer_latency(&stream);
        Accepted { stream, line: None, patience: None }
    }

    /// Whether the server wants the connection to end; if not, the reader is woken when it does.
    fn check_open(&self, cx: &Context<'_>) -> io::Result<()> {
        let Some(line) = &self.line else { return Ok(()) };
        line.watch(cx.waker());
        if line.is_closed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn has_read(&mut self, bytes: usize) {
        let Some(patience) = &mut self.patience else { return };
        match &mut patience.preface {
            Some(preface) if *preface > bytes => *preface -= bytes,
            Some(_) => self.patience = None,
            None => patience.timer.as_mut().reset(Instant::now() + patience.silence),
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(patience) = &mut self.patience else { return Poll::Pending };
        patience.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Frames are already batched where that pays, so Nagle's waiting only costs. A socket that refuses still works.
fn prefer_latency(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

/// A gRPC server under construction, see [`server`].
pub type Server = tonic::transport::Server<Stack<Gate, Identity>>;
/// Its services.
pub type Router = tonic::transport::server::Router<Stack<Gate, Identity>>;

/// What the calls of a connection know of it.
#[derive(Clone)]
pub struct ConnectInfo {
    line: Option<Arc<Line>>,
}

impl Connected for Accepted {
    type ConnectInfo = ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        ConnectInfo { line: self.line.clone() }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check_open(cx)?;
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Pending => self.poll_silence(cx),
            done => {
                self.has_read(buffer.filled().len() - before);
                done
            }
        }
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.line.as_ref().is_some_and(|line| line.is_closed()) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A channel to `address` (`HOST:PORT`). It connects at the first call, and again whenever the connection was lost.
///
/// Calls have no deadline of their own: each caller sets one.
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

/// A gRPC server with the settings that match [`channel`] and the limits of `intake`; add services and serve it with
/// `serve_with_incoming_shutdown(listener.incoming(intake), signal)`.
pub fn server(intake: &Arc<Intake>) -> Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .initial_stream_window_size(CALL_WINDOW_BYTES)
        .initial_connection_window_size(CALLS_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_pending_accept_reset_streams(Some(CANCELLED_UNSEEN_MAX))
        .http2_max_local_error_reset_streams(Some(RESET_BY_SERVER_MAX))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .layer(Gate::new(intake))
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;
    use tonic::body::Body;
    use tonic::service::Routes;
    use tower::ServiceExt;

    #[tokio::test]
    async fn a_call_goes_from_channel_to_listener_and_back() {
        let listener = listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let intake = Intake::new(IntakeLimits::default());
        let router = server(&intake).add_routes(Routes::default());
        let serving = tokio::spawn(router.serve_with_incoming_shutdown(listener.incoming(&intake), async {
            stopped.await.ok();
        }));

        let call = http::Request::post(format!("http://{address}/nobody.Here/Call")).body(Body::empty()).unwrap();
        let answer = channel(&address.to_string()).unwrap().oneshot(call).await.unwrap();
        let code = tonic::Status::from_header_map(answer.headers()).unwrap().code();
        assert_eq!(code, tonic::Code::Unimplemented, "an empty server knows no call");

        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_port_in_use_is_refused_with_what_to_do() {
        let first = listen("127.0.0.1:0").await.unwrap();
        let address = first.local_addr().unwrap().to_string();
        let error = listen(&address).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address) && error.to_string().contains("choose another port"), "{error}");
        drop(first);
        listen(&address).await.unwrap();
    }

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

    #[tokio::test]
    async fn a_silent_port_is_an_error_not_a_hang() {
        let listener = listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let call = http::Request::post(format!("http://{address}/nobody.Here/Call")).body(Body::empty()).unwrap();
        channel(&address).unwrap().oneshot(call).await.unwrap_err();
    }
}
