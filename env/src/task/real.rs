//! Threads and signals of the operating system.

use std::future::Future;

use tokio::sync::{Semaphore, oneshot};

use super::{IoLoop, joined};

/// Blocking steps (flushes, checksums, snapshot builds) that run at a time in the process; more wait. Bounds both the
/// threads and the memory of unfinished work. It belongs to the process, not to a node, so it may be static.
const BLOCKING_STEPS_MAX: usize = 8;
static BLOCKING_STEPS: Semaphore = Semaphore::const_new(BLOCKING_STEPS_MAX);
/// Disk reads on behalf of callers that run at a time. Counted separately: callers may request any number of reads, and the
/// steps that make writes durable must not wait for them.
const BLOCKING_READS_MAX: usize = 8;
static BLOCKING_READS: Semaphore = Semaphore::const_new(BLOCKING_READS_MAX);

/// Runs the loop that owns a disk (log writer, manifest writer) on its own thread.
///
/// The loop may await only [`crate::fs`] and tokio's channels: the thread has no runtime, hence no timers and no sockets.
/// If the loop panics, the process aborts: what the loop owned is in an unknown state, and nothing may continue as if it
/// were not.
pub fn spawn_io_loop<F>(name: &'static str, future: F) -> IoLoop
where
    F: Future<Output = ()> + Send + 'static,
{
    let (done_sender, done) = oneshot::channel();
    let body = move || {
        let guard = AbortOnPanic { name };
        futures::executor::block_on(future);
        drop(guard);
        // The handle may have been dropped.
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

/// Runs a step that computes or blocks for long, off the runtime's threads. At most a few run at a time.
pub async fn run_blocking<T, F>(step: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    run_with_permit(&BLOCKING_STEPS, step).await
}

/// Runs a read on behalf of a caller, off the runtime's threads. At most a few run at a time, whatever else
/// runs. Keep each to a few milliseconds: other reads wait for their turn.
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
    let step = tokio::task::spawn_blocking(move || {
        // Held by the step itself: a caller that gives up does not free the permit while the step still runs.
        let _permit = permit;
        step()
    });
    joined(step).await
}

/// Runs a step made of [`crate::fs`] calls off the runtime's threads, under the same bound as [`run_blocking`].
pub async fn run_io<T, F>(step: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    run_blocking(move || futures::executor::block_on(step)).await
}

/// Reports the reason on standard error and ends the process at once, without destructors. Used after a failed write or sync
/// of the log, when the process can no longer trust its own state and must not send anything more.
pub fn abort_process(message: &str) -> ! {
    tracing::error!("{message}");
    crate::log_control::last_words(message);
    std::process::abort()
}

/// Returns when the user (Ctrl-C) or the system (SIGTERM) asks the process to stop.
#[cfg(feature = "server")]
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
