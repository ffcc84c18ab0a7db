//! Tasks of a simulated host: everything runs on one thread, in simulated time.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{IoLoop, run_to_end};
use crate::delay;

/// The longest pause before a blocking step...
const PAUSE_BEFORE_MAX: Duration = Duration::from_millis(10);
/// ...and after it.
const PAUSE_AFTER_MAX: Duration = Duration::from_millis(20);

/// Runs the loop that owns a disk as a task of this host, so that a crash of the host ends it.
pub fn spawn_io_loop<F>(name: &'static str, future: F) -> IoLoop
where
    F: Future<Output = ()> + Send + 'static,
{
    let (done_sender, done) = oneshot::channel();
    // The task itself is not joined: a panic in any task fails the simulation.
    drop(super::spawn_named(name, async move {
        future.await;
        done_sender.send(()).ok();
    }));
    IoLoop { done }
}

/// Runs a step soon; nothing else happens on any host while it runs.
pub async fn run_blocking<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_io(async move { step() }).await
}

/// Runs a read on behalf of a caller, as [`run_blocking`] does.
pub async fn run_read<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_blocking(step).await
}

/// Runs a step made of [`crate::fs`] calls between two random pauses. Once it has begun it ends, even if the caller gives up:
/// in production it runs on another thread.
pub async fn run_io<T, F>(step: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    tokio::time::sleep(delay::random_pause(Duration::ZERO, PAUSE_BEFORE_MAX)).await;
    let value = run_to_end(step).await;
    tokio::time::sleep(delay::random_pause(Duration::ZERO, PAUSE_AFTER_MAX)).await;
    value
}

/// Ends the process of this host if the harness allows it ([`crate::sim::allow_exits`]), and otherwise fails the run.
pub fn abort_process(message: &str) -> ! {
    crate::sim::exit_process(message)
}

/// Never returns: simulated hosts end by crashes only.
pub async fn shutdown_signal() {
    std::future::pending().await
}
