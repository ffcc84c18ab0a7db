//! Listeners, and the gRPC server that serves their connections.
//!
//! A connection carries the limits of its port with it: [`Intake`] may end it at any time, and until its client has spoken
//! HTTP/2, its silence is limited too.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use tower::layer::util::{Identity, Stack};

use super::connection::{ConnectInfo, Connection};
use super::gate::Gate;
use super::intake::{Intake, PREFACE_MAX};
use super::unfinished::{GRACE, due};
use super::{FRAME_BYTES_MAX, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, keep_alive, prefer_latency};

#[cfg(feature = "sim")]
use super::InvalidAddress;
#[cfg(feature = "sim")]
use super::simulated::{TcpListener, TcpStream};
#[cfg(not(feature = "sim"))]
use tokio::net::{TcpListener, TcpStream};

/// HTTP/2 window of one call at the server...
pub const CALL_WINDOW_BYTES: u32 = 1 << 20;
/// ...and of all calls of a connection: the most a server buffers for a connection whose calls it does not read.
pub const CALLS_WINDOW_BYTES: u32 = 2 << 20;
/// Concurrent calls on one connection; more wait at the client.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 1024;
/// Calls of one connection that may be cancelled before the server reads them; more end the connection. A server that was
/// paused finds several generations of calls that timed out meanwhile, so the bound is a multiple.
const CANCELLED_UNSEEN_MAX: usize = 4 * STREAMS_PER_CONNECTION_MAX as usize;
/// Calls of one connection that the server may reset because of invalid input; more end the connection.
const RESET_BY_SERVER_MAX: usize = STREAMS_PER_CONNECTION_MAX as usize;
/// Largest headers of one call.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// The first bytes of every HTTP/2 connection.
const PREFACE_BYTES: usize = 24;
/// How long a listener pauses after an accept failed for lack of descriptors or memory: no event announces the end of that.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A bound port.
pub struct Listener {
    listener: TcpListener,
}

/// Binds `address` (`HOST:PORT`; port 0 picks a free one, see [`Listener::local_addr`]).
///
/// A port whose last owner has just died can be bound at once (`SO_REUSEADDR`); a port that is still served cannot, and the
/// error says so. A simulated host owns all its addresses, so only the port counts there.
pub async fn listen(address: &str) -> io::Result<Listener> {
    let bound = TcpListener::bind(bind_address(address)?.as_str()).await;
    match bound {
        Ok(listener) => Ok(Listener { listener }),
        Err(error) => Err(explain_bind(address, error)),
    }
}

/// Whether the host of an address has an IP address now; the error says why not. Connections do not need it: they resolve
/// names themselves.
///
/// # Errors
/// The resolver's answer, or that the name has no address.
#[cfg(not(feature = "sim"))]
pub async fn resolve(address: &str) -> io::Result<()> {
    let mut found = tokio::net::lookup_host(address).await?;
    found.next().map(drop).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
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

/// A connection to a port, for protocols of their own.
pub struct Outbound {
    stream: TcpStream,
}

/// Connects to `address` (`HOST:PORT`).
///
/// # Errors
/// Those of the network.
pub async fn connect_to(address: &str) -> io::Result<Outbound> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Outbound { stream })
}

impl AsyncRead for Outbound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Outbound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Listener {
    /// The bound address, with the actual port if port 0 was requested.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection and its peer. Skips failures of a single connection and waits out temporary ones.
    pub async fn accept(&self) -> (Accepted, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let mut accepted = Accepted::new(stream);
                    accepted.peer = Some(peer);
                    return (accepted, peer);
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// The next connection that `intake` admits; others are closed at once. The server of its protocol limits its silence.
    pub async fn accept_admitted(&self, intake: &Intake) -> (Accepted, Arc<Connection>, SocketAddr) {
        loop {
            let (mut accepted, peer) = self.accept().await;
            if let Some(connection) = intake.connect() {
                accepted.connection = Some(connection.clone());
                return (accepted, connection, peer);
            }
        }
    }

    /// The next connection that `intake` admits, for a protocol of requests and answers in turn. It is closed when it sends
    /// nothing for `silence`, when a request arrives too slowly, and when nothing of an answer is taken for [`GRACE`].
    pub async fn accept_within(&self, intake: &Intake, silence: Duration) -> (Accepted, SocketAddr) {
        let (mut accepted, _, peer) = self.accept_admitted(intake).await;
        accepted.pace = Some(Pace::new(silence));
        (accepted, peer)
    }

    /// All connections from now on that `intake` admits, in the form that tonic serves. Never ends.
    pub fn incoming(self, intake: &Arc<Intake>) -> impl Stream<Item = io::Result<Accepted>> + Send + 'static {
        let intake = intake.clone();
        async_stream::stream! {
            loop {
                let (mut accepted, _, _) = self.accept_admitted(&intake).await;
                accepted.pace = Some(Pace { preface: Some(PREFACE_BYTES), ..Pace::new(PREFACE_MAX) });
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
    connection: Option<Arc<Connection>>,
    /// The other end, once it was accepted.
    peer: Option<SocketAddr>,
    pace: Option<Pace>,
}

/// Limits how long a connection may take.
struct Pace {
    /// The wait for the next bytes.
    silence: Duration,
    /// Bytes that must still come before keep-alive takes over. `None`: every silence is limited.
    preface: Option<usize>,
    timer: Pin<Box<Sleep>>,
    /// When the request that arrives began, and how many bytes of it have come. It ends with the first bytes of its answer.
    request: Option<(Instant, u64)>,
    /// Runs while nothing of an answer is taken.
    unread: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    fn new(silence: Duration) -> Pace {
        Pace { silence, preface: None, timer: Box::pin(tokio::time::sleep(silence)), request: None, unread: None }
    }

    fn has_read(&mut self, bytes: usize) -> io::Result<()> {
        let now = Instant::now();
        self.timer.as_mut().reset(now + self.silence);
        let (began, received) = self.request.get_or_insert((now, 0));
        *received += bytes as u64;
        if now > due(*began, *received) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Something of an answer was taken, or nothing for too long.
    fn writes(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            (self.request, self.unread) = (None, None);
            return written;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(tokio::time::sleep(GRACE)));
        unread.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Accepted {
    fn new(stream: TcpStream) -> Accepted {
        prefer_latency(&stream);
        keep_alive(&stream);
        Accepted { stream, connection: None, peer: None, pace: None }
    }

    /// Fails if the server wants the connection to end; otherwise wakes the reader when it does.
    fn check_open(&self, cx: &Context<'_>) -> io::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        connection.watch(cx.waker());
        if connection.is_closed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn has_read(&mut self, bytes: usize) -> io::Result<()> {
        let Some(pace) = &mut self.pace else { return Ok(()) };
        match &mut pace.preface {
            Some(preface) if *preface > bytes => *preface -= bytes,
            Some(_) => self.pace = None,
            None => return pace.has_read(bytes),
        }
        Ok(())
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(pace) = &mut self.pace else { return Poll::Pending };
        pace.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn writes(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &mut self.pace {
            Some(pace) if pace.preface.is_none() => pace.writes(cx, written),
            _ => written,
        }
    }
}

/// A gRPC server under construction, see [`server`].
pub type Server = tonic::transport::Server<Stack<Gate, Identity>>;
/// Its services.
pub type Router = tonic::transport::server::Router<Stack<Gate, Identity>>;

impl Connected for Accepted {
    type ConnectInfo = ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        ConnectInfo { connection: self.connection.clone(), peer: self.peer }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check_open(cx)?;
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Pending => self.poll_silence(cx),
            done => {
                self.has_read(buffer.filled().len() - before)?;
                done
            }
        }
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.connection.as_ref().is_some_and(|connection| connection.is_closed()) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.writes(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.writes(cx, written)
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

/// A gRPC server with the settings that match [`channel`](super::channel) and the limits of `intake`; add services and serve
/// it with `serve_with_incoming_shutdown(listener.incoming(intake), signal)`.
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
    use tonic::body::Body;
    use tonic::service::Routes;
    use tower::ServiceExt;

    use super::*;
    use crate::net::{IntakeLimits, channel};

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

        let call = http::Request::post(format!("http://{address}/no.Such/Call")).body(Body::empty()).unwrap();
        let answer = channel(&address.to_string()).unwrap().oneshot(call).await.unwrap();
        let code = tonic::Status::from_header_map(answer.headers()).unwrap().code();
        assert_eq!(code, tonic::Code::Unimplemented, "an empty server knows no call");

        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_error_for_a_port_in_use_says_what_to_do() {
        let first = listen("127.0.0.1:0").await.unwrap();
        let address = first.local_addr().unwrap().to_string();
        let error = listen(&address).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address) && error.to_string().contains("choose another port"), "{error}");
        drop(first);
        listen(&address).await.unwrap();
    }

    #[tokio::test]
    async fn a_silent_port_is_an_error_not_a_hang() {
        let listener = listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let call = http::Request::post(format!("http://{address}/no.Such/Call")).body(Body::empty()).unwrap();
        channel(&address).unwrap().oneshot(call).await.unwrap_err();
    }
}
