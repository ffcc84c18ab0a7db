//! The task door: loops that own a disk, work that would block, and the ways a process ends.
//!
//! In production blocking work leaves the runtime's threads; in the simulation there is one thread, so it runs inline,
//! between two random pauses in which other hosts act and crashes strike. Cut long work into several steps for that
//! reason. Never wait on a condition variable or a `std` channel inside any of it: in the simulation nobody else would run.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument;

#[cfg(not(feature = "sim"))]
mod real;
#[cfg(feature = "sim")]
mod simulated;

#[cfg(not(feature = "sim"))]
pub use real::{abort_process, run_blocking, run_io, run_read, shutdown_signal, spawn_io_loop};
#[cfg(feature = "sim")]
pub use simulated::{abort_process, run_blocking, run_io, run_read, shutdown_signal, spawn_io_loop};

/// Waits for the end of a loop that [`spawn_io_loop`] started. Dropping it lets the loop go on.
#[derive(Debug)]
pub struct IoLoop {
    done: tokio::sync::oneshot::Receiver<()>,
}

impl IoLoop {
    /// Returns when the loop has ended and released what it owned.
    pub async fn join(self) {
        // An error means that the sender went away without a word, which is an end as well.
        self.done.await.ok();
    }
}

/// Spawns a task whose log lines carry `name`. The caller keeps the handle: a task that nobody joins hides its panic.
pub fn spawn_named<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.instrument(tracing::debug_span!("task", name)))
}

#[cfg(all(test, not(feature = "sim")))]
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
    async fn reads_that_wait_for_the_disk_leave_room_for_what_makes_writes_durable() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let stopped = std::sync::Arc::new(std::sync::Mutex::new(stopped));
        // As many as may ever run, and more that wait.
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
