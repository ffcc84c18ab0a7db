//! Repeats executions of one format, and reports the first one that fails.
//!
//! An execution is a function of its seed and the corpus. A panic is caught, and the input is kept in a file. A watcher
//! ends the process if one execution takes longer than [`EXECUTION_MAX`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use terrane_types::fuzzing::Format;

use crate::{checks, corpus};

/// An execution that takes longer hangs.
pub const EXECUTION_MAX: Duration = Duration::from_secs(5);
/// Between two looks at the running execution, and between two lines of progress.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// When to stop with a format.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Executions at most.
    pub executions: u64,
    /// Time at most.
    pub time: Duration,
}

/// What became of the executions of one format.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many there were.
    pub executions: u64,
    /// How long they took.
    pub time: Duration,
    /// The first failure.
    pub failure: Option<Failure>,
}

/// An execution that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the execution.
    pub case: u64,
    /// The input, if the execution got as far as choosing it.
    pub input: Option<Vec<u8>>,
    /// The panic's message and place.
    pub what: String,
}

impl Failure {
    /// The failure with the command that repeats it. Keeps the input in a file.
    #[must_use]
    pub fn report(&self, format: &str) -> String {
        let kept = self.input.as_ref().map(|input| corpus::keep_failure(format, input));
        let command = match kept {
            Some(Ok(file)) => format!("cargo xtask fuzz --target {format} --replay {}", file.display()),
            Some(Err(error)) => {
                format!("cargo xtask fuzz --target {format} --case {} (its input is not kept: {error})", self.case)
            }
            None => format!("cargo xtask fuzz --target {format} --case {}", self.case),
        };
        format!("{format}: case {} fails: {}\n  repeat it with: {command}", self.case, self.what)
    }
}

/// The execution that runs now, for the watcher and for the hook of panics.
struct Running {
    format: &'static str,
    case: u64,
    input: Option<Vec<u8>>,
    panic: String,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { format: "", case: 0, input: None, panic: String::new() });
/// Milliseconds since the watcher began at which the execution started; 0: none runs.
static STARTED_MS: AtomicU64 = AtomicU64::new(0);

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the watcher, and keeps messages of panics instead of printing them. Once in a process.
pub fn watch() {
    std::panic::set_hook(Box::new(|info| {
        running().panic = info.to_string();
    }));
    let begun = Instant::now();
    thread::spawn(move || {
        let mut seen = (0, Duration::ZERO);
        loop {
            thread::park_timeout(LOOK_EVERY);
            let started = STARTED_MS.load(Ordering::Relaxed);
            if started != seen.0 {
                seen = (started, begun.elapsed());
            } else if started != 0 && begun.elapsed() > seen.1 + EXECUTION_MAX {
                let running = running();
                let what = format!("it runs longer than {} s", EXECUTION_MAX.as_secs());
                let failure = Failure { case: running.case, input: running.input.clone(), what };
                println!("{}", failure.report(running.format));
                process::exit(1);
            }
        }
    });
}

/// Runs one execution.
///
/// # Errors
/// The failure.
pub fn run_case(format: &'static Format, case: u64, corpus: &[Vec<u8>]) -> Result<(), Failure> {
    guarded(format.name, case, |announce| checks::execute(format, case, corpus, announce))
}

/// Checks the format on these bytes.
///
/// # Errors
/// The failure.
pub fn run_bytes(format: &'static Format, bytes: &[u8]) -> Result<(), Failure> {
    guarded(format.name, 0, |announce| {
        announce(bytes);
        checks::any(format, bytes);
    })
}

/// Runs `execution` with a function that announces its input, and catches its panic.
///
/// # Errors
/// The failure.
pub fn guarded(format: &'static str, case: u64, execution: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Result<(), Failure> {
    {
        let mut running = running();
        (running.format, running.case, running.input) = (format, case, None);
    }
    // Any value that differs from the last one tells the watcher that another execution began.
    STARTED_MS.fetch_add(1, Ordering::Relaxed);
    let mut announce = |bytes: &[u8]| running().input.get_or_insert_default().clone_from(&bytes.to_vec());
    let ended = catch_unwind(AssertUnwindSafe(|| execution(&mut announce)));
    ended.map_err(|panic| {
        let mut running = running();
        let said = std::mem::take(&mut running.panic);
        let plain =
            panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        let what = if said.is_empty() { plain.unwrap_or_default() } else { said };
        Failure { case, input: running.input.take(), what }
    })
}

/// Repeats executions of a format until the amount is reached or one fails.
pub fn run(format: &'static Format, seed: u64, amount: Amount, corpus: &[Vec<u8>]) -> Outcome {
    let (begun, mut said) = (Instant::now(), Instant::now());
    let mut executions = 0;
    let mut failure = None;
    while executions < amount.executions && begun.elapsed() < amount.time && failure.is_none() {
        failure = run_case(format, seed.wrapping_add(executions), corpus).err();
        executions += 1;
        if said.elapsed() > PROGRESS_EVERY {
            println!("{}: {executions} executions, {} s", format.name, begun.elapsed().as_secs());
            said = Instant::now();
        }
    }
    STARTED_MS.store(0, Ordering::Relaxed);
    Outcome { executions, time: begun.elapsed(), failure }
}
