//! Tasks of a test of interleavings: a step runs on the thread of its caller, and other threads may run before and after it.

use std::future::Future;

use tokio::sync::oneshot;

use super::IoLoop;
use crate::sync::point;

/// Runs the loop on a thread of the test.
pub fn spawn_io_loop<F>(_name: &'static str, future: F) -> IoLoop
where
    F: Future<Output = ()> + Send + 'static,
{
    let (done_sender, done) = oneshot::channel();
    shuttle::thread::spawn(move || {
        shuttle::future::block_on(future);
        // The handle may have been dropped.
        done_sender.send(()).ok();
    });
    IoLoop { done }
}

/// Runs a step.
pub async fn run_blocking<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_io(async move { step() }).await
}

/// Runs a read on behalf of a caller.
pub async fn run_read<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_blocking(step).await
}

/// Runs a step made of [`crate::fs`] calls.
pub async fn run_io<T, F>(step: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    point();
    let value = step.await;
    point();
    value
}

/// Runs a future to its end: no test gives one up.
pub async fn run_to_end<T, F>(future: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    future.await
}

/// Fails the test.
pub fn abort_process(message: &str) -> ! {
    panic!("a process aborted itself: {message}")
}

/// Never returns.
pub async fn shutdown_signal() {
    std::future::pending().await
}
