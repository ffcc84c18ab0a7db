//! The measurement: a warm-up, then the measured time, in a closed or an open loop.
//!
//! In a closed loop each worker asks again as soon as it has an answer, and a call counts if it was answered within the
//! measured time. In an open loop calls are due at fixed times; a call counts if it was due within the measured time, and
//! those in flight at its end are awaited, so that the slowest calls are not the ones that are left out.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use terrane_client::Error;
use terrane_env::task::shutdown_signal;
use terrane_env::time::process_cpu_ns;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::calls::{Shared, Worker};
use super::distribution::Chooser;
use super::gaps::Gaps;
use super::pace::Pace;
use super::schedule::Schedule;
use super::stats::{Interval, Recorder};
use crate::args::bench::run::Operation;
use crate::failure::{Failure, chain};
use crate::output::Output;

/// How long a mix of numbered rows is measured by default.
pub const SECONDS_DEFAULT: Duration = Duration::from_secs(10);
/// Failed calls that are printed; further ones are only counted.
const ERRORS_SHOWN_MAX: u64 = 5;
/// How long a worker pauses after a failed call, so that it does not flood a struggling cluster.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// How long calls in flight are awaited after the end of an open loop.
const AWAITED_MAX: Duration = Duration::from_secs(30);
/// The shortest part of a second at the end that is shown as one.
const SECOND_MIN: Duration = Duration::from_millis(500);

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Calls per second; `None`: a closed loop.
    pub rate: Option<f64>,
    pub warm_up: Duration,
    /// `None`: until the workers have no call left.
    pub seconds: Option<Duration>,
}

/// The calls of a second, or of the whole run, by operation in the order of the mix.
#[derive(Clone)]
pub struct Calls {
    pub total: Interval,
    pub by_operation: Vec<Interval>,
}

/// The result of a run.
pub struct Measured {
    pub calls: Calls,
    /// In an open loop: how long calls waited after they were due, until they were made.
    pub delays: Option<Interval>,
    /// In an open loop: calls that were due and not made at the end.
    pub backlog: u64,
    pub elapsed: Duration,
    pub client_cpu: Duration,
    /// Reads that found no row.
    pub missing: u64,
    /// The longest time without an acknowledged call in any range of rows, for calls of one row.
    pub longest_gap: Option<Duration>,
    /// Ctrl-C ended it early. What was measured until then counts.
    pub interrupted: bool,
}

/// What the workers share beside the mix.
struct Run {
    operations: Vec<Operation>,
    recorders: Vec<Recorder>,
    delays: Recorder,
    gaps: Option<Gaps>,
    pace: Option<Arc<Pace>>,
    measured_from: Instant,
    stop: AtomicBool,
    errors_shown: AtomicU64,
}

impl Calls {
    fn empty(operations: usize) -> Calls {
        Calls { total: Interval::empty(), by_operation: vec![Interval::empty(); operations] }
    }

    fn add(&mut self, other: &Calls) {
        self.total.add(&other.total);
        for (sum, more) in self.by_operation.iter_mut().zip(&other.by_operation) {
            sum.add(more);
        }
    }
}

impl Measured {
    /// The measurement of calls that are not told apart.
    pub fn of_total(total: Interval, elapsed: Duration, client_cpu: Duration, interrupted: bool) -> Measured {
        let calls = Calls { total, by_operation: Vec::new() };
        Measured { calls, delays: None, backlog: 0, elapsed, client_cpu, missing: 0, longest_gap: None, interrupted }
    }
}

impl Run {
    fn new(shared: &Shared, plan: Plan) -> Run {
        let operations = shared.spec.operations();
        Run {
            recorders: operations.iter().map(|_| Recorder::new()).collect(),
            delays: Recorder::new(),
            gaps: shared.spec.is_of_one_row().then(|| Gaps::new(shared.spec.rows, shared.spec.regions)),
            pace: plan.rate.map(|rate| Pace::start(Schedule::new(rate))),
            measured_from: Instant::now() + plan.warm_up,
            stop: AtomicBool::new(false),
            errors_shown: AtomicU64::new(0),
            operations,
        }
    }

    fn drain(&self) -> Calls {
        let by_operation: Vec<Interval> = self.recorders.iter().map(Recorder::drain).collect();
        let mut total = Interval::empty();
        by_operation.iter().for_each(|interval| total.add(interval));
        Calls { total, by_operation }
    }

    /// Relaxed is enough: a worker that sees the end late makes one more call, which does not count.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn end(&self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.pace.as_ref().map_or(0, |pace| pace.stop())
    }

    fn delays_of(&self, worker: usize, due: Instant) {
        if due >= self.measured_from {
            self.delays.acknowledged(worker, 0, due.elapsed());
        }
    }

    /// Prints one of the first failed calls.
    fn show(&self, error: &Error) {
        if self.errors_shown.fetch_add(1, Ordering::Relaxed) < ERRORS_SHOWN_MAX {
            eprintln!("a call failed: {}", chain(error));
        }
    }
}

/// Runs the mix. `show` gets the calls of each second that is over, with its number and length.
pub async fn measure(
    shared: &Arc<Shared>,
    plan: Plan,
    mut show: impl FnMut(u64, &Calls, Duration) -> Result<(), Failure>,
) -> Result<Measured, Failure> {
    let run = Arc::new(Run::new(shared, plan));
    let mut workers = start(&run, shared);
    let started = run.measured_from;
    let mut interrupt = pin!(shutdown_signal());
    let mut interrupted = tokio::select! {
        biased;
        () = &mut interrupt => true,
        () = tokio::time::sleep_until(started) => false,
    };
    let cpu_before = process_cpu_ns();
    let mut seconds = interval_at(started + Duration::from_secs(1), Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut calls, mut second, mut shown_elapsed) = (Calls::empty(run.operations.len()), 0, Duration::ZERO);
    let mut end = pin!(sleep_until(plan.seconds.map(|seconds| started + seconds)));
    while !interrupted && !workers.is_empty() {
        tokio::select! {
            biased;
            () = &mut interrupt => interrupted = true,
            // Before the end, so that a run of whole seconds shows the last one.
            _ = seconds.tick() => {
                let now = run.drain();
                second += 1;
                let at = started.elapsed();
                show(second, &now, at - shown_elapsed)?;
                shown_elapsed = at;
                calls.add(&now);
            }
            () = &mut end => break,
            joined = workers.join_next() => check_joined(joined)?,
        }
    }
    let backlog = run.end();
    let elapsed = Instant::now().saturating_duration_since(started);
    let client_cpu = Duration::from_nanos(process_cpu_ns().saturating_sub(cpu_before));
    if shared.spec.is_checked() {
        all_answered(&mut workers).await?;
    } else if plan.rate.is_some() && !interrupted {
        let late = || Failure::new(format!("calls were not answered within {} s", AWAITED_MAX.as_secs()));
        tokio::time::timeout(AWAITED_MAX, all_answered(&mut workers)).await.map_err(|_| late())??;
    }
    workers.abort_all();
    let last = run.drain();
    if elapsed >= shown_elapsed + SECOND_MIN {
        show(second + 1, &last, elapsed - shown_elapsed)?;
    }
    calls.add(&last);
    Ok(Measured {
        calls,
        delays: plan.rate.map(|_| run.delays.drain()),
        backlog,
        elapsed,
        client_cpu,
        missing: shared.missing.load(Ordering::Relaxed),
        longest_gap: run.gaps.as_ref().map(|gaps| gaps.longest(elapsed)),
        interrupted,
    })
}

fn start(run: &Arc<Run>, shared: &Arc<Shared>) -> JoinSet<()> {
    let chooser = Chooser::new(shared.spec.distribution, shared.spec.choices());
    let mut workers = JoinSet::new();
    for number in 0..shared.spec.in_flight {
        workers.spawn(work(Arc::clone(run), Worker::new(shared, chooser.clone(), number), number));
    }
    workers
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn all_answered(workers: &mut JoinSet<()>) -> Result<(), Failure> {
    while let Some(joined) = workers.join_next().await {
        check_joined(Some(joined))?;
    }
    Ok(())
}

fn check_joined(joined: Option<Result<(), JoinError>>) -> Result<(), Failure> {
    match joined {
        Some(Err(error)) => Err(Failure::new(format!("a worker of the load generator panicked: {error}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

async fn work(run: Arc<Run>, mut worker: Worker, number: usize) {
    let mut begun = Instant::now();
    loop {
        let due = match &run.pace {
            // The time of the last answer: the choice of a call takes less than a microsecond, reading a clock about as long.
            None if run.is_over() => return,
            None => begun,
            Some(pace) => {
                let Some(due) = pace.next().await else { return };
                run.delays_of(number, due);
                due
            }
        };
        let Some(operation) = worker.choose() else { return };
        let at = run.operations.iter().position(|known| *known == operation);
        let recorder = &run.recorders[at.expect("it was drawn from these")];
        let progress = |rows| {
            recorder.progressed(number, rows);
            !run.is_over()
        };
        let outcome = worker.call(operation, progress).await;
        begun = Instant::now();
        let is_measured = due >= run.measured_from;
        match outcome {
            // Calls of the warm-up do not count, nor in a closed loop those answered after the end.
            Ok(rows) if is_measured && (run.pace.is_some() || !run.is_over()) => {
                recorder.acknowledged(number, rows, begun - due);
                if let Some(gaps) = &run.gaps {
                    gaps.acknowledged(worker.row(), begun - run.measured_from);
                }
            }
            Ok(_) => {}
            Err(error) => {
                // Those that fail after the end count if they are awaited.
                if is_measured {
                    recorder.failed(number);
                }
                run.show(&error);
                // An open loop keeps its rate, whatever fails.
                if run.pace.is_none() {
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                    begun = Instant::now();
                }
            }
        }
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
