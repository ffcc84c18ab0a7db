//! The HTTP endpoints of a node: the web console with its JSON API for people, and `/metrics`, `/healthz` and `/readyz`
//! for Prometheus and process supervisors.
//!
//! - The pages (`page`) and the API (`api`) show what a [`source::Source`] answers; `guard` protects both in a browser.
//! - `/healthz` returns 200 while the process can respond at all: a failure means "restart me".
//! - `/readyz` returns 200 when the role is serving, otherwise 503 with the reason as text: "send no traffic yet".
//! - `/metrics` returns the metrics of the node's registry and those of the process, in the format that the scraper accepts.
//!
//! The protocol is plain HTTP/1 over the `env` listener, so that it also runs in the simulator.

mod api;
mod counted;
mod exposition;
mod guard;
mod page;
mod process;
mod query;
mod shown;
pub mod source;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use terrane_env::budget::Budget;
use terrane_env::net::{self, Accepted, BudgetNames, Intake, IntakeLimits};
use terrane_env::task;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::shown::Shown;
use crate::source::Source;

/// How long a shutdown waits for responses; a client that keeps its connection open must not delay the process.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(1);
/// Concurrent connections; further ones are closed at once. A browser opens up to six, and each reads little.
const CONNECTIONS_MAX: u64 = 128;
/// Answers that have not been sent. The largest, a heat map or all metrics, has a few MiB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const BUDGETS: BudgetNames = BudgetNames {
    connections: "console_connections",
    // A connection has one request at a time, of a few KiB.
    calls: None,
    bodies: None,
    requests: None,
    answers: Some("console_answers"),
};
/// An idle connection is closed after this time; a client that polls once a minute reconnects.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The largest body of a request: a change of a setting is small.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Whether the role is serving; the error says what it waits for.
pub type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Why the endpoints did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The port could not be bound; the text says what to do.
    #[error("console: {0}")]
    Listen(#[source] std::io::Error),
}

/// The running endpoints of one node.
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<std::io::Result<()>>,
    pages: Arc<Pages>,
    shown: Arc<Shown>,
    intake: Arc<Intake>,
}

struct Pages {
    /// Empty until the role has started: probes are answered before.
    registry: OnceLock<Arc<Registry>>,
    ready: Ready,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("registry", &self.registry.get().is_some()).finish_non_exhaustive()
    }
}

impl Console {
    /// Binds `listen` (`HOST:PORT`) and starts serving: probes at once, metrics from [`Console::publish`] on. A role starts
    /// its console first, so that supervisors get an answer while it waits for others.
    ///
    /// Boxed: an `async fn` is compiled by the crate that awaits it, so every binary would compile the HTTP server.
    pub fn start(listen: &str, ready: Ready) -> Pin<Box<dyn Future<Output = Result<Console, Error>> + Send + '_>> {
        Box::pin(Self::bind_and_serve(listen, ready))
    }

    async fn bind_and_serve(listen: &str, ready: Ready) -> Result<Console, Error> {
        let listener = net::listen(listen).await.map_err(Error::Listen)?;
        let address = listener.local_addr().map_err(Error::Listen)?;
        let pages = Arc::new(Pages { registry: OnceLock::new(), ready });
        let shown = Arc::new(Shown::default());
        let limits =
            IntakeLimits { connections: CONNECTIONS_MAX, answer_bytes: ANSWER_BYTES_MAX, ..IntakeLimits::default() };
        let intake = Intake::named(BUDGETS, limits);
        let count = axum::middleware::map_response_with_state(Arc::clone(&intake), counted::count);
        let router = router(Arc::clone(&pages)).merge(site(Arc::clone(&shown), address)).layer(count);
        let (stop, mut stopped) = watch::channel(false);
        let signal = async move {
            // A console dropped without a shutdown ends the same way.
            stopped.wait_for(|stop| *stop).await.ok();
        };
        let serving = axum::serve(ConsoleListener { listener, address, intake: Arc::clone(&intake) }, router)
            .with_graceful_shutdown(signal);
        let serving = task::spawn_named("console", async move { serving.await });
        Ok(Console { address, stop, serving, pages, shown, intake })
    }

    /// Shows the metrics of this registry from now on. A second registry is ignored.
    pub fn publish(&self, registry: Arc<Registry>) {
        self.pages.registry.get_or_init(|| registry);
    }

    /// Shows this source on the pages and in the API from now on. A second source is ignored.
    pub fn show(&self, source: Arc<dyn Source>) {
        self.shown.attach(source);
    }

    /// What its clients may hold, for the status and metrics of the role.
    pub fn budgets(&self) -> impl Iterator<Item = Arc<Budget>> {
        self.intake.budgets()
    }

    /// The bound address; for port 0, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, completes running responses, and returns when the port is free.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        let mut serving = self.serving;
        if tokio::time::timeout(SHUTDOWN_PATIENCE, &mut serving).await.is_err() {
            serving.abort();
            // The result is only that it was aborted.
            serving.await.ok();
        }
    }
}

fn router(pages: Arc<Pages>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(pages)
}

/// The pages and the API. The guard is for their addresses only: scrapers and supervisors use any name of the machine.
fn site(shown: Arc<Shown>, address: SocketAddr) -> Router {
    page::router()
        .merge(api::router())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .route_layer(axum::middleware::from_fn_with_state(Arc::new(address), guard::guard))
        .fallback(page::no_such_page)
        .with_state(shown)
}

async fn metrics(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response {
    match pages.registry.get() {
        Some(registry) => exposition::respond(registry, &headers).await,
        None => (StatusCode::SERVICE_UNAVAILABLE, "starting: there are no metrics yet\n").into_response(),
    }
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(pages): State<Arc<Pages>>) -> Response {
    match (pages.ready)() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// The `env` listener as an axum listener.
struct ConsoleListener {
    listener: net::Listener,
    address: SocketAddr,
    intake: Arc<Intake>,
}

impl axum::serve::Listener for ConsoleListener {
    type Io = Accepted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Accepted, SocketAddr) {
        self.listener.accept_within(&self.intake, SILENCE_MAX).await
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[expect(clippy::disallowed_types, reason = "a raw client, to see the bytes of the responses")]
    type RawStream = tokio::net::TcpStream;

    async fn request(address: SocketAddr, path: &str) -> (u16, String) {
        let mut stream = RawStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: console\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    async fn console_with(registry: Registry, ready: Ready) -> Console {
        let console = Console::start("127.0.0.1:0", ready).await.unwrap();
        console.publish(Arc::new(registry));
        console
    }

    #[tokio::test]
    async fn metrics_show_the_registry() {
        let mut registry = Registry::with_prefix("terrane");
        let puts = Counter::<u64>::default();
        registry.register("puts", "Rows written", puts.clone());
        puts.inc_by(3);
        let console = console_with(registry, Arc::new(|| Ok(()))).await;
        let (status, body) = request(console.address(), "/metrics").await;
        assert_eq!(status, 200);
        assert!(body.contains("# HELP terrane_puts_total Rows written"), "{body}");
        assert!(body.contains("terrane_puts_total 3"), "{body}");
        console.shutdown().await;
    }

    #[tokio::test]
    async fn readiness_follows_the_role_and_gives_the_reason() {
        let serving = Arc::new(AtomicBool::new(false));
        let asked = serving.clone();
        let ready: Ready = Arc::new(move || {
            let waiting = || Err("waiting for a master at 127.0.0.1:7600".to_owned());
            if asked.load(Ordering::SeqCst) { Ok(()) } else { waiting() }
        });
        let console = console_with(Registry::default(), ready).await;
        let not_yet = request(console.address(), "/readyz").await;
        assert_eq!(not_yet, (503, "waiting for a master at 127.0.0.1:7600\n".to_owned()));
        assert_eq!(request(console.address(), "/healthz").await, (200, "ok\n".to_owned()));
        serving.store(true, Ordering::SeqCst);
        assert_eq!(request(console.address(), "/readyz").await, (200, "ready\n".to_owned()));
        assert_eq!(request(console.address(), "/nothing").await.0, 404);
        console.shutdown().await;
    }

    #[tokio::test]
    async fn probes_are_answered_before_there_are_metrics() {
        let console = Console::start("127.0.0.1:0", Arc::new(|| Err("starting".to_owned()))).await.unwrap();
        assert_eq!(request(console.address(), "/healthz").await.0, 200);
        assert_eq!(request(console.address(), "/readyz").await, (503, "starting\n".to_owned()));
        assert_eq!(request(console.address(), "/metrics").await.0, 503);
        console.publish(Arc::default());
        assert_eq!(request(console.address(), "/metrics").await.0, 200);
        console.shutdown().await;
    }

    #[tokio::test]
    async fn a_port_in_use_is_refused() {
        let first = console_with(Registry::default(), Arc::new(|| Ok(()))).await;
        let second = Console::start(&first.address().to_string(), Arc::new(|| Ok(()))).await;
        let message = second.unwrap_err().to_string();
        assert!(message.starts_with("console: ") && message.contains("in use"), "{message}");
        first.shutdown().await;
    }

    #[tokio::test]
    async fn shutdown_frees_the_port_even_with_a_client_that_stays() {
        let console = console_with(Registry::default(), Arc::new(|| Ok(()))).await;
        let address = console.address();
        let _idle = RawStream::connect(address).await.unwrap();
        console.shutdown().await;
        let again = Console::start(&address.to_string(), Arc::new(|| Ok(()))).await.unwrap();
        again.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_of_one_byte_a_second_is_ended_and_silence_too() {
        let console = console_with(Registry::default(), Arc::new(|| Ok(()))).await;
        let mut slow = RawStream::connect(console.address()).await.unwrap();
        let mut silent = RawStream::connect(console.address()).await.unwrap();
        let began = tokio::time::Instant::now();
        let mut bytes = b"GET /healthz HTTP/1.1\r\nHost: console\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
        let mut answer = [0; 1];
        loop {
            // A write to a connection that has ended fails at the second try.
            if slow.write_all(&[*bytes.next().unwrap()]).await.is_err() {
                break;
            }
            let ended = tokio::time::timeout(Duration::from_secs(1), slow.read(&mut answer)).await;
            if ended.is_ok() {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it goes on");
        }
        assert!(began.elapsed() >= net::GRACE);
        assert_eq!(request(console.address(), "/healthz").await.0, 200);
        let ended = tokio::time::timeout(2 * SILENCE_MAX, silent.read(&mut answer)).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))));
        console.shutdown().await;
    }

    #[tokio::test]
    async fn silent_connections_keep_no_one_out() {
        let console = console_with(Registry::default(), Arc::new(|| Ok(()))).await;
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent.push(RawStream::connect(console.address()).await.unwrap());
        }
        let began = tokio::time::Instant::now();
        assert_eq!(request(console.address(), "/healthz").await.0, 200);
        assert!(began.elapsed() < Duration::from_secs(1));
        let used: Vec<_> = console.budgets().map(|budget| budget.usage()).collect();
        assert!(used[0].name == "console_connections" && used[0].used <= used[0].limit, "{used:?}");
        console.shutdown().await;
    }

    #[tokio::test]
    async fn answers_that_are_not_read_are_counted() {
        let console = console_with(Registry::default(), Arc::new(|| Ok(()))).await;
        assert_eq!(request(console.address(), "/healthz").await.0, 200);
        let answers = console.budgets().last().unwrap().usage();
        assert!(answers.name == "console_answers" && answers.peak > 0 && answers.used == 0, "{answers:?}");
        console.shutdown().await;
    }
}
