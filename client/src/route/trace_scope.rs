//! The trace that the calls of a task belong to.
//!
//! It is a property of the task and not of a handle: an open table is shared by requests of many traces.

use terrane_env::trace::TraceContext;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// Runs a future whose calls belong to a trace: their spans are parts of `context.span`.
///
/// It covers the calls that the future makes itself, also those that it joins. Tasks that it spawns, a [`crate::BatchWriter`] and a
/// bulk load among them, work for many callers and belong to no trace.
///
/// ```no_run
/// use terrane_client::Table;
/// use terrane_client::trace::{BadTrace, TraceContext, traced};
///
/// # async fn run(table: Table, traceparent: &str) -> Result<(), Box<dyn std::error::Error>> {
/// // From the header `traceparent` of the request that this program serves. `None`: that trace is not recorded.
/// let row = match TraceContext::from_traceparent(traceparent)? {
///     Some(context) => traced(context, async { table.get("user-1").await }).await?,
///     None => table.get("user-1").await?,
/// };
/// # Ok(()) }
/// ```
pub async fn traced<F: Future>(context: TraceContext, future: F) -> F::Output {
    CURRENT.scope(context, future).await
}

/// Runs a closure whose calls belong to a trace, like [`traced`], for programs that use [`crate::blocking`].
pub fn traced_blocking<T>(context: TraceContext, calls: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(context, calls)
}

/// The trace of the task that asks.
pub(crate) fn current() -> Option<TraceContext> {
    CURRENT.try_with(|context| *context).ok()
}
