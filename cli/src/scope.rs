//! What the commands of one shell session share: the connection, and how rows are shown.
//!
//! A command line of its own has no scope: it connects, runs and ends. The shell runs its commands within one, so that the
//! first of them connects and the others use its client, with its map of regions.

use std::sync::Arc;
use std::time::Duration;

use terrane_client::Client;
use terrane_client::trace::Tracer;
use tokio::sync::OnceCell;

use crate::failure::Failure;

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
pub async fn connect(masters: &str, timeout: Duration, tracer: Tracer) -> Result<Client, Failure> {
    let build = || async { Ok(Client::builder().masters(masters).timeout(timeout).tracer(tracer).build().await?) };
    match SCOPE.try_with(Clone::clone) {
        Ok(scope) if scope.masters == masters => scope.client.get_or_try_init(build).await.cloned(),
        Ok(_) | Err(_) => build().await,
    }
}
