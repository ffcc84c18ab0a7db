//! Threads and signals of the operating system.

use std::future::Future;

use tokio::sync::{Semaphore, oneshot};

use super::IoLoop;

/// Blocking steps (flushes, checksums, snapshot builds) under way in the process; more wait their turn. Bounds both
/// threads and the memory of half-done work. State of the process, not of a node, so it may be static.
const BLOCKING_STEPS_MAX: usize = 8;
static BLOCKING_STEPS: Semaphore = Semaphore::const_new(BLOCKING_STEPS_MAX);
/// Reads that wait for the disk on behalf of callers, counted apart: callers may ask for any number of them, and what makes
/// writes durable must not wait behind them.
const BLOCKING_READS_MAX: usize = 8;
static BLOCKING_READS: Semaphore = Semaphore::const_new(BLOCKING_READS_MAX);

/// Runs the loop that owns a disk (log writer, manifest writer) on a thread of its own.
///
/// Inside, only [`crate::fs`] and tokio's channels may be awaited: there is no runtime, hence no timer and no socket.
/// When the loop panics the process is aborted: what it owned is in an unknown state and nobody may go on as if it were not.
pub fn spawn_io_loop<F>(name: &'static str, future: F) -> IoLoop
where
    F: Future<Output = ()> + Send + 'static,
{
    let (done_sender, done) = oneshot::channel();
    let body = move || {
        let guard = AbortOnPanic { name };
        futures::executor::block_on(future);
        drop(guard);
        // Nobody has to be waiting for the end.
        done_sender.send(()).ok();
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        abort_process(&format!("cannot start the thread {name}: {error}"));
    }
    IoLoop { done }
}

struct AbortOnPanic {
    name: &'static str,
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort_process(&format!("the loop {} panicked", self.name));
        }
    }
}

/// Runs a step that computes or blocks for long, off the runtime's threads; at most a few at a time in the process.
pub async fn run_blocking<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_with_permit(&BLOCKING_STEPS, step).await
}

/// Runs a read that a caller asked for, off the runtime's threads; at most a few at a time in the process, whatever else is
/// under way. Keep it to a slice of some milliseconds: others wait for their turn.
pub async fn run_read<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_with_permit(&BLOCKING_READS, step).await
}

async fn run_with_permit<T, F>(permits: &'static Semaphore, step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let permit = permits.acquire().await.expect("the semaphore is never closed");
    let joined = tokio::task::spawn_blocking(move || {
        // Held by the step itself: a caller that gives up does not make room for more than the bound.
        let _permit = permit;
        step()
    })
    .await;
    match joined {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going away and this task with it: it will not be polled again.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Runs a step made of [`crate::fs`] calls off the runtime's threads, under the same bound as [`run_blocking`].
pub async fn run_io<T, F>(step: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    run_blocking(move || futures::executor::block_on(step)).await
}

/// Says why on standard error and ends the process at once, without destructors: what follows a failed write or sync of
/// the log, where nothing this process still believes may reach anybody.
pub fn abort_process(message: &str) -> ! {
    tracing::error!("{message}");
    eprintln!("terrane: aborting: {message}");
    std::process::abort()
}

/// Returns when the user (Ctrl-C) or the system (SIGTERM) asks the process to stop.
pub async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    match (interrupt, terminate) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                biased;
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(%error, "cannot listen for signals; only a kill stops this process");
            std::future::pending().await
        }
    }
}
