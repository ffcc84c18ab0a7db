//! Runs a test under many interleavings of its threads, each of which can be repeated exactly.
//!
//! Two schedulers share the work. The random one chooses at every point among all threads; PCT runs the thread of the
//! highest priority and changes priorities at a few random points, which reaches what needs one thread to be very late.
//! Both draw from a fixed seed, so a run of the suite is the same every time.
//!
//! docs/testing.md says how to write a test and how to replay a failure.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};

pub use shuttle::future::block_on;
pub use shuttle::thread::{JoinHandle, spawn};

use crate::sync::plant;

/// Schedules of each scheduler by default. [`FULL`] asks for [`FULL_FACTOR`] times as many.
const RANDOM: usize = 500;
const PCT: usize = 500;
const FULL_FACTOR: usize = 20;
/// Set to `1`: more schedules.
const FULL: &str = "TERRANE_FULL";
/// Set to a schedule as a failure printed it: only this one runs.
const SCHEDULE: &str = "TERRANE_SCHEDULE";
/// The seed of both schedulers.
const SEED: u64 = 0x7e44_a9e5;
/// Times that PCT changes priorities within a schedule.
const PCT_DEPTH: usize = 4;
/// Bytes of a thread's stack: tests run unoptimised code over a whole engine.
const STACK_BYTES: usize = 1 << 20;
/// Steps after which a schedule counts as a livelock.
const STEPS_MAX: usize = 200_000;

/// Runs `test` under many schedules. The first failure ends it; standard error then has the schedule.
pub fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_all(test))) {
        eprintln!("{SCHEDULE}=<the failing schedule, without quotes and line breaks> replays it, for this test alone");
        resume_unwind(panic);
    }
}

fn run_all(test: impl Fn() + Send + Sync + Clone + 'static) {
    if let Ok(schedule) = std::env::var(SCHEDULE) {
        return run(ReplayScheduler::new_from_encoded(&schedule), test);
    }
    let factor = if std::env::var(FULL).is_ok_and(|full| full == "1") { FULL_FACTOR } else { 1 };
    run(PctScheduler::new_from_seed(SEED, PCT_DEPTH, PCT * factor), test.clone());
    run(RandomScheduler::new_from_seed(SEED, RANDOM * factor), test);
}

/// Runs `test` with a mistake planted, and fails unless one of the schedules finds it.
pub fn finds(mistake: &'static str, test: impl Fn() + Send + Sync + Clone + 'static) {
    plant(Some(mistake));
    let found = catch_unwind(AssertUnwindSafe(|| run_all(test)));
    plant(None);
    match found {
        Ok(()) => panic!("no schedule finds the planted mistake {mistake:?}"),
        // A replayed schedule is run to see how it fails.
        Err(panic) if std::env::var(SCHEDULE).is_ok() => resume_unwind(panic),
        Err(_) => {}
    }
}

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(test);
}
