//! What the commands of one shell session share: the connection, and how rows are shown.
//!
//! A command line of its own has no scope: it connects, runs and ends. The shell runs its commands within one, so that the
//! first of them connects and the others use its client, with its map of regions.

use std::sync::Arc;
use std::time::Duration;

use terrane_client::Client;
use terrane_client::trace::{TraceContext, Tracer};
use tokio::sync::OnceCell;

use crate::args::client::Tracing;
use crate::failure::Failure;
use crate::trace_export;

/// Names the trace that a command belongs to, if no flag does.
const TRACEPARENT: &str = "TRACEPARENT";

/// The scope of a session.
#[derive(Clone, Default)]
pub struct Scope {
    /// The masters that the session's client belongs to.
    pub masters: String,
    pub client: Arc<OnceCell<Client>>,
    /// Show each row of a table as lines of `NAME value`.
    pub as_records: bool,
}

tokio::task_local! {
    static SCOPE: Scope;
}

/// Runs a command within the scope.
pub async fn within<T>(scope: Scope, command: impl Future<Output = T>) -> T {
    SCOPE.scope(scope, command).await
}

/// Whether tables are shown as records.
pub fn as_records() -> bool {
    SCOPE.try_with(|scope| scope.as_records).unwrap_or(false)
}

/// Connects to these masters; within their scope, once.
pub async fn connect(masters: &str, timeout: Duration, tracing: &Tracing) -> Result<Client, Failure> {
    let build = || async {
        let tracer = tracer(tracing)?;
        Ok(Client::builder().masters(masters).timeout(timeout).tracer(tracer).build().await?)
    };
    match SCOPE.try_with(Clone::clone) {
        Ok(scope) if scope.masters == masters => scope.client.get_or_try_init(build).await.cloned(),
        Ok(_) | Err(_) => build().await,
    }
}

/// What the flags say about traces.
fn tracer(flags: &Tracing) -> Result<Tracer, Failure> {
    // The standard has malformed contexts from outside ignored: the variable may be for another program.
    let inherited = || std::env::var(TRACEPARENT).ok().and_then(|text| TraceContext::from_traceparent(&text).ok())?;
    let around = flags.traceparent.map_or_else(inherited, |given| given.0);
    let share = flags.trace_share.unwrap_or(1.0);
    let tracer = match &flags.otlp_endpoint {
        Some(endpoint) => trace_export::start(endpoint, "terrane", share)?,
        None => Tracer::default(),
    };
    Ok(match around {
        Some(context) => tracer.inside(context),
        None if tracer.records() && share >= 1.0 => trace_export::within_one_trace(&tracer),
        None => tracer,
    })
}
