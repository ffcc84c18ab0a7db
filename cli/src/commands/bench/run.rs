//! What the workers of one measurement share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrane_client::{Error, Table};
use tokio::time::Instant;

use super::gaps::Gaps;
use super::stats::Recorder;
use super::tally::Tally;
use super::workload::Workload;
use crate::args::bench::BenchFlags;
use crate::failure::chain;

/// Failed calls that are printed; further ones are only counted.
const ERRORS_SHOWN_MAX: u64 = 5;

/// One measurement: its parameters and counters.
#[derive(Clone)]
pub struct Run {
    pub workload: Workload,
    pub table: Table,
    pub rows: u64,
    pub batch: u64,
    pub in_flight: usize,
    pub value_bytes: usize,
    /// Rows that a page skips.
    pub offset: u64,
    /// Whether scans read from the last row to the first.
    pub reverse: bool,
    /// Whether a full scan is repeated until the time is over.
    pub repeats: bool,
    pub recorder: Arc<Recorder>,
    pub stop: Arc<AtomicBool>,
    /// The first row of the next batch of `load`.
    pub next_row: Arc<AtomicU64>,
    pub errors_shown: Arc<AtomicU64>,
    pub tally: Arc<Tally>,
    pub gaps: Arc<Gaps>,
    pub started: Instant,
}

impl Run {
    pub fn new(workload: Workload, table: &Table, flags: &BenchFlags) -> Run {
        let in_flight = flags.in_flight.unwrap_or_else(|| workload.in_flight_default());
        Run {
            workload,
            table: table.clone(),
            rows: flags.rows,
            batch: u64::from(flags.batch.unwrap_or_else(|| workload.batch_default())),
            in_flight: usize::try_from(in_flight).expect("32 bits fit a length"),
            value_bytes: usize::try_from(flags.value_bytes).expect("32 bits fit a length"),
            offset: 0,
            reverse: false,
            repeats: flags.seconds.is_some(),
            recorder: Arc::new(Recorder::new()),
            stop: Arc::new(AtomicBool::new(false)),
            next_row: Arc::new(AtomicU64::new(0)),
            errors_shown: Arc::new(AtomicU64::new(0)),
            tally: Arc::new(Tally::default()),
            gaps: Arc::new(Gaps::new(flags.rows, flags.regions)),
            started: Instant::now(),
        }
    }

    /// Counts a failed call, and prints the first few.
    pub fn failed(&self, worker: usize, error: &Error) {
        self.recorder.failed(worker);
        if self.errors_shown.fetch_add(1, Ordering::Relaxed) < ERRORS_SHOWN_MAX {
            eprintln!("a call failed: {}", chain(error));
        }
    }
}
