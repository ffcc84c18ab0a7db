//! Tasks of a simulated host: everything runs on one thread, in simulated time.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;

use super::IoLoop;
use crate::sim;

/// The longest pause before a blocking step...
const PAUSE_BEFORE_MAX: Duration = Duration::from_millis(10);
/// ...and after it.
const PAUSE_AFTER_MAX: Duration = Duration::from_millis(20);

/// Runs the loop that owns a disk as a task of this host, so that it ends with it in a crash.
pub fn spawn_io_loop<F>(name: &'static str, future: F) -> IoLoop
where
    F: Future<Output = ()> + Send + 'static,
{
    let (done_sender, done) = oneshot::channel();
    // Nobody joins the task itself: a panic in any task ends the simulation with a verdict.
    drop(super::spawn_named(name, async move {
        future.await;
        done_sender.send(()).ok();
    }));
    IoLoop { done }
}

/// Runs a step at some moment soon; nothing else happens on any host while it runs.
pub async fn run_blocking<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_io(async move { step() }).await
}

/// Runs a read that a caller asked for, as [`run_blocking`] does.
pub async fn run_read<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_blocking(step).await
}

/// Runs a step made of [`crate::fs`] calls between two random pauses.
pub async fn run_io<T, F>(step: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    tokio::time::sleep(sim::random_pause(Duration::ZERO, PAUSE_BEFORE_MAX)).await;
    let value = step.await;
    tokio::time::sleep(sim::random_pause(Duration::ZERO, PAUSE_AFTER_MAX)).await;
    value
}

/// Ends the run: a process that aborts itself without a planted disk failure is a finding.
pub fn abort_process(message: &str) -> ! {
    panic!("a process aborted itself: {message}")
}

/// Nobody presses Ctrl-C in the simulation; hosts end by crashes.
pub async fn shutdown_signal() {
    std::future::pending().await
}
