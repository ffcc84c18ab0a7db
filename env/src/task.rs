//! Loops that own a disk, work that blocks, and the ways a process ends.
//!
//! In production, blocking work leaves the runtime's threads. The simulation has one thread, so the work runs inline,
//! between two random pauses in which other hosts act and crashes strike; split long work into several steps for that
//! reason. Never wait on a condition variable or a `std` channel inside such work: in the simulation nothing else would run.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument;

#[cfg(all(feature = "interleave", not(feature = "sim")))]
mod interleaved;
#[cfg(not(any(feature = "interleave", feature = "sim")))]
mod real;
#[cfg(feature = "sim")]
mod simulated;

#[cfg(all(feature = "interleave", not(feature = "sim")))]
pub use interleaved::{abort_process, run_blocking, run_io, run_read, run_to_end, shutdown_signal, spawn_io_loop};
#[cfg(all(feature = "server", not(any(feature = "interleave", feature = "sim"))))]
pub use real::shutdown_signal;
#[cfg(not(any(feature = "interleave", feature = "sim")))]
pub use real::{abort_process, run_blocking, run_io, run_read, spawn_io_loop};
#[cfg(feature = "sim")]
pub use simulated::{abort_process, run_blocking, run_io, run_read, shutdown_signal, spawn_io_loop};

/// A handle that waits for the end of a loop started by [`spawn_io_loop`]. Dropping it does not stop the loop.
#[derive(Debug)]
pub struct IoLoop {
    done: tokio::sync::oneshot::Receiver<()>,
}

impl IoLoop {
    /// Returns when the loop has ended and released what it owned.
    pub async fn join(self) {
        // An error means that the sender was dropped: the loop has ended too.
        self.done.await.ok();
    }
}

/// Runs a future to its end, even if the caller gives up: for steps that must all happen or none, such as a record on disk and
/// what it changes in memory.
#[cfg(any(not(feature = "interleave"), feature = "sim"))]
pub async fn run_to_end<T, F>(future: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    joined(tokio::spawn(future)).await
}

/// The value of a task. Its panic is the caller's.
#[cfg(any(not(feature = "interleave"), feature = "sim"))]
async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, or the simulated host crashes: this task will not be polled again.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Spawns a task whose log lines carry `name`. Keep the handle: a task that is never joined hides its panic.
pub fn spawn_named<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.instrument(tracing::debug_span!("task", name)))
}

#[cfg(all(test, not(any(feature = "interleave", feature = "sim"))))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_io_loop_drains_its_queue_and_is_joined() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<u32>(4);
        let (total_sender, total) = tokio::sync::oneshot::channel();
        let running = spawn_io_loop("adder", async move {
            let mut sum = 0;
            while let Some(number) = receiver.recv().await {
                sum += number;
            }
            total_sender.send((sum, std::thread::current().name().map(str::to_owned))).unwrap();
        });
        for number in 1..=100 {
            sender.send(number).await.unwrap();
        }
        drop(sender);
        running.join().await;
        assert_eq!(total.await.unwrap(), (5_050, Some("adder".to_owned())));
    }

    #[tokio::test]
    async fn blocking_work_leaves_the_runtime_thread() {
        let here = std::thread::current().id();
        let there = run_blocking(|| std::thread::current().id()).await;
        assert_ne!(here, there);
    }

    #[tokio::test]
    async fn file_work_leaves_the_runtime_thread() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let here = std::thread::current().id();
        let there = run_io(async move {
            crate::fs::write_durable(&path, b"x").await.unwrap();
            std::thread::current().id()
        })
        .await;
        assert_ne!(here, there);
    }

    #[tokio::test]
    #[should_panic(expected = "boom")]
    async fn a_panic_in_blocking_work_reaches_the_caller() {
        run_blocking(|| panic!("boom")).await
    }

    #[tokio::test]
    async fn spawn_named_answers_the_value() {
        assert_eq!(spawn_named("answer", async { 42 }).await.unwrap(), 42);
    }

    #[tokio::test]
    async fn blocked_reads_do_not_delay_flushes() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let stopped = std::sync::Arc::new(std::sync::Mutex::new(stopped));
        // More than may run at a time.
        let reads: Vec<_> = (0..100)
            .map(|_| {
                let stopped = stopped.clone();
                tokio::spawn(run_read(move || stopped.lock().unwrap().recv().is_err()))
            })
            .collect();
        assert_eq!(run_blocking(|| 7).await, 7, "a flush does not wait for reads");
        drop(stop);
        for read in reads {
            assert!(read.await.unwrap());
        }
    }
}
