//! The measurement: workers that each keep one call in flight, for a while.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrane_env::task::shutdown_signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::calls::Worker;
use super::cpu::cpu_time;
use super::run::Run;
use super::stats::{Interval, second_text};
use super::workload::Workload;
use crate::failure::Failure;
use crate::output::Output;

/// How long a worker pauses after a failed call, so that it does not flood a struggling cluster.
pub const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// How long a measurement lasts by default.
pub const SECONDS_DEFAULT: Duration = Duration::from_secs(10);

/// Starts the workers of a run.
pub fn start(run: &Run) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for number in 0..run.in_flight {
        workers.spawn(work(Worker::new(run.clone(), number)));
    }
    workers
}

async fn work(mut worker: Worker) {
    let run = worker.run.clone();
    while !run.stop.load(Ordering::Relaxed) {
        let Some(call) = worker.choose() else { return };
        let asked = Instant::now();
        match worker.call(call).await {
            // Calls answered after the end do not count.
            Ok(_) if run.stop.load(Ordering::Relaxed) => {}
            Ok(rows) => {
                run.recorder.acknowledged(worker.number, rows, asked.elapsed());
                if let Some(row) = worker.row {
                    run.gaps.acknowledged(row, run.started.elapsed());
                }
            }
            Err(error) => {
                run.failed(worker.number, &error);
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
        if run.workload == Workload::FullScan && !run.repeats {
            return;
        }
    }
}

pub fn check_joined(joined: Option<Result<(), tokio::task::JoinError>>) -> Result<(), Failure> {
    match joined {
        Some(Err(error)) => Err(Failure::new(format!("a worker of the load generator panicked: {error}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

/// The result of a run.
pub struct Measured {
    pub total: Interval,
    pub elapsed: Duration,
    pub cpu: Option<Duration>,
    /// The longest time without an acknowledged call in any range of rows, for single-row calls.
    pub longest_gap: Option<Duration>,
    /// Ctrl-C ended it early. What was measured until then counts.
    pub interrupted: bool,
}

/// Runs the workers for the requested time, or until `load` has written all rows; prints a line per second.
pub async fn measure(run: &Run, seconds: Option<Duration>, json: bool) -> Result<Measured, Failure> {
    let cpu_before = cpu_time().await;
    let started = Instant::now();
    let end = match (seconds, run.workload) {
        (Some(seconds), _) => Some(started + seconds),
        (None, workload) if workload.ends() => None,
        (None, _) => Some(started + SECONDS_DEFAULT),
    };
    let mut workers = start(run);
    let mut seconds = interval_at(started + Duration::from_secs(1), Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut total, mut second, mut line_at) = (Interval::empty(), 0, started);
    let (mut interrupt, mut interrupted) = (pin!(shutdown_signal()), false);
    while !workers.is_empty() {
        tokio::select! {
            biased;
            () = sleep_until(end) => break,
            () = &mut interrupt => {
                interrupted = true;
                break;
            }
            _ = seconds.tick() => {
                let interval = run.recorder.drain();
                second += 1;
                progress_line(json, &second_text(second, &interval, line_at.elapsed()))?;
                line_at = Instant::now();
                total.add(&interval);
            }
            joined = workers.join_next() => check_joined(joined)?,
        }
    }
    // Relaxed is enough: a worker that sees it late makes one more call, which does not count.
    run.stop.store(true, Ordering::Relaxed);
    let elapsed = started.elapsed();
    let longest_gap = run.workload.is_of_one_row(run.batch).then(|| run.gaps.longest(run.started.elapsed()));
    total.add(&run.recorder.drain());
    let cpu = cpu_time().await.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    if run.workload.is_checked() {
        while let Some(joined) = workers.join_next().await {
            check_joined(Some(joined))?;
        }
        // Calls that failed after the end belong to the run, too.
        total.errors += run.recorder.drain().errors;
    }
    workers.abort_all();
    Ok(Measured { total, elapsed, cpu, longest_gap, interrupted })
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Prints an intermediate line: on standard output, or under `--json` on standard error.
pub fn progress_line(json: bool, line: &str) -> Result<(), Failure> {
    if json {
        eprintln!("{line}");
        return Ok(());
    }
    let mut output = Output::new(false);
    output.line(line)?;
    output.flush()
}
