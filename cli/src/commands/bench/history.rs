//! `bench history`: single-row reads and writes whose results are known, with scans beside them.
//!
//! Each worker alternates between writing a row of its own and reading any row, and one more task scans the whole table
//! again and again. Every answer is checked against the ledger, and at the end every row once more: no acknowledged
//! write is lost, none is applied twice, no read goes back in time, and no scan skips or repeats a row. Gaps are kept
//! per region, since `cargo xtask failover` runs this while it kills processes.
//!
//! `ledger` says what a row may contain, `waits` how long clients waited; both are plain values.

mod ledger;
mod waits;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use terrane_client::{Error, Get, RowData, RowMutation, Scan, Table};
use terrane_env::task::shutdown_signal;
use tokio::task::JoinSet;
use tokio::time::{self, Instant, MissedTickBehavior, interval_at};

use self::ledger::{Content, Ledger};
use self::waits::{Kind, Waits};
use super::cpu::cpu_time;
use super::keys::{COUNTER, Choices, FAMILY, KEY_BYTES, STATE, key};
use super::measure::{Measured, PAUSE_AFTER_ERROR, SECONDS_DEFAULT, check_joined, progress_line};
use super::stats::{Interval, Recorder, second_text};
use super::workload::Workload;
use crate::args::bench::BenchFlags;
use crate::failure::{During, Failure, chain};
use crate::output::{duration_text, grouped};

/// Most rows: the ledger is in memory, and every row is scanned several times.
const ROWS_MAX: u64 = 1_000_000;
/// Rows per call while missing rows are written.
const FILL_BATCH: usize = 500;
/// Pause between two scans, so that they take a small part of the load.
const PAUSE_AFTER_SCAN: Duration = Duration::from_millis(250);
/// Failed calls that are printed; further ones are only counted.
const ERRORS_SHOWN_MAX: u64 = 5;

/// The results that `history` adds to the summary.
#[derive(Debug, Serialize)]
pub struct History {
    /// Whole scans during the run.
    scans: u64,
    /// Answers that contradict the calls made before.
    violations: u64,
    /// The longest time without any answer while calls waited.
    silence_ms: f64,
    /// The longest call that succeeded.
    longest_call_ms: f64,
    /// For each of the table's first regions, the longest time without an answer while calls to it waited.
    gaps_ms: Vec<f64>,
    #[serde(skip)]
    first_violations: Vec<String>,
}

impl History {
    pub fn text(&self) -> String {
        let silence = duration_text(Duration::from_secs_f64(self.silence_ms / 1e3));
        let longest = duration_text(Duration::from_secs_f64(self.longest_call_ms / 1e3));
        format!(
            "history: {} violations, {} scans; longest call {longest}, longest time without any answer {silence}",
            grouped(self.violations),
            grouped(self.scans)
        )
    }

    /// Fails if an answer contradicted the calls made before.
    pub fn check(&self) -> Result<(), Failure> {
        if self.violations == 0 {
            return Ok(());
        }
        let what = format!("{} violations: {}", grouped(self.violations), self.first_violations.join("; "));
        Err(Failure::new(what).advise("unless another program writes these rows, this is a bug: please report it"))
    }
}

/// What the tasks of one run share.
struct Shared {
    table: Table,
    ledger: Ledger,
    waits: Waits,
    recorder: Recorder,
    in_flight: usize,
    /// The time between two calls of a worker; `None`: it calls as soon as it has an answer.
    turn_every: Option<Duration>,
    rows: u64,
    started: Instant,
    stop: AtomicBool,
    scans: AtomicU64,
    longest_call_us: AtomicU64,
    errors_shown: AtomicU64,
}

/// Runs the workload for the requested time and checks the table. With a rate, in calls per second, workers wait for
/// their turns; a turn that comes while a worker still waits for an answer is not made up for.
pub async fn run(table: &Table, flags: &BenchFlags, rate: Option<u32>) -> Result<(Measured, History), Failure> {
    let in_flight = usize::try_from(flags.in_flight.unwrap_or(Workload::Get.in_flight_default())).expect("32 bits fit");
    if flags.rows > ROWS_MAX || flags.rows < in_flight as u64 {
        let what = format!("history needs a row for each call in flight, and at most {} rows", grouped(ROWS_MAX));
        return Err(Failure::usage(what).advise("choose --rows and --in-flight accordingly"));
    }
    write_missing(table, flags.rows).await?;
    let found = contents(table, flags.rows).await?;
    let shared = Arc::new(Shared {
        table: table.clone(),
        ledger: Ledger::new(found),
        waits: Waits::new(flags.rows, flags.regions),
        recorder: Recorder::new(),
        in_flight,
        turn_every: rate.map(|rate| Duration::from_secs_f64(in_flight as f64 / f64::from(rate))),
        rows: flags.rows,
        started: Instant::now(),
        stop: AtomicBool::new(false),
        scans: AtomicU64::new(0),
        longest_call_us: AtomicU64::new(0),
        errors_shown: AtomicU64::new(0),
    });
    // `cargo xtask failover` waits for this line.
    eprintln!("measuring");
    let measured = measure(&shared, flags).await?;
    check_at_end(&shared).await?;
    Ok((measured, shared.history()))
}

async fn measure(shared: &Arc<Shared>, flags: &BenchFlags) -> Result<Measured, Failure> {
    let cpu_before = cpu_time().await;
    let mut tasks = JoinSet::new();
    for number in 0..shared.in_flight {
        tasks.spawn(Arc::clone(shared).work(number));
    }
    tasks.spawn(Arc::clone(shared).scan_repeatedly());
    let end = shared.started + flags.seconds.unwrap_or(SECONDS_DEFAULT);
    let mut ticks = interval_at(shared.started + Duration::from_secs(1), Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut total, mut second, mut line_at) = (Interval::empty(), 0, shared.started);
    let (mut interrupt, mut interrupted) = (pin!(shutdown_signal()), false);
    // Calls in flight at the end belong to the run: one that never succeeds is what the run looks for.
    while !tasks.is_empty() {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(end), if !shared.is_over() => shared.stop.store(true, Ordering::Relaxed),
            () = &mut interrupt, if !interrupted => {
                interrupted = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
            _ = ticks.tick() => {
                let interval = shared.recorder.drain();
                second += 1;
                progress_line(flags.connection.json, &second_text(second, &interval, line_at.elapsed()))?;
                line_at = Instant::now();
                total.add(&interval);
            }
            joined = tasks.join_next() => check_joined(joined)?,
        }
    }
    total.add(&shared.recorder.drain());
    let elapsed = shared.now();
    let cpu = cpu_time().await.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    let longest_gap = shared.waits.gaps(elapsed).into_iter().max();
    Ok(Measured { total, elapsed, cpu, longest_gap, interrupted })
}

impl Shared {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Relaxed is enough: a task that sees the end late makes one more call.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    async fn work(self: Arc<Self>, worker: usize) {
        let mut choices = Choices::new(worker, self.rows, 0);
        let mut writes = worker.is_multiple_of(2);
        let mut turns = self.turns(worker);
        loop {
            if let Some(turns) = &mut turns {
                turns.tick().await;
            }
            if self.is_over() {
                return;
            }
            let (kind, row) = if writes {
                (Kind::Write, choices.row_of(worker, self.in_flight))
            } else {
                (Kind::Read, choices.row())
            };
            writes = !writes;
            let asked = self.now();
            self.waits.asked(row, kind, asked);
            let outcome = match kind {
                Kind::Write => self.write(row).await,
                Kind::Read => self.read(row).await,
            };
            if let Err(error) = outcome {
                self.waits.failed(row, kind);
                self.failed(worker, &error);
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
            let answered = self.now();
            self.waits.answered(row, kind, answered);
            let took = answered.saturating_sub(asked);
            self.recorder.acknowledged(worker, 1, took);
            let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.longest_call_us.fetch_max(took, Ordering::Relaxed);
        }
    }

    /// When a worker calls: in turn with the others, not all at once.
    fn turns(&self, worker: usize) -> Option<time::Interval> {
        let every = self.turn_every?;
        let first = self.started + every.mul_f64(worker as f64 / self.in_flight as f64);
        let mut turns = interval_at(first, every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(turns)
    }

    async fn write(&self, row: u64) -> Result<(), Error> {
        let number = self.ledger.begin_write(row);
        let write = mutation(row, number);
        match self.table.mutate(write).await {
            Ok(_) | Err(Error::ResultLost) => {
                self.ledger.acknowledged(row, number);
                Ok(())
            }
            Err(error) => {
                self.ledger.failed(row, number, super::tally::may_be_applied(&error));
                Err(error)
            }
        }
    }

    async fn read(&self, row: u64) -> Result<(), Error> {
        let least = self.ledger.begin_read(row);
        let found = self.table.get(Get::new(key(row))).await?;
        self.ledger.read(row, least, found.as_ref().and_then(content));
        Ok(())
    }

    async fn scan_repeatedly(self: Arc<Self>) {
        while !self.is_over() {
            match self.scan().await {
                Ok(()) => _ = self.scans.fetch_add(1, Ordering::Relaxed),
                Err(error) => self.failed(self.in_flight, &error),
            }
            tokio::time::sleep(PAUSE_AFTER_SCAN).await;
        }
    }

    /// One scan of the whole table: every row once, in order, none older than when the scan began.
    async fn scan(&self) -> Result<(), Error> {
        let least: Vec<Content> = (0..self.rows).map(|row| self.ledger.begin_read(row)).collect();
        let mut stream = self.table.scan(Scan::all()).await?;
        let mut next = 0;
        while let Some(row) = stream.next().await {
            let row = row?;
            let found = number(row.row());
            if found == Some(next) && next < self.rows {
                let least = least[usize::try_from(next).expect("below the number of rows")];
                self.ledger.read(next, least, content(&row));
                next += 1;
                continue;
            }
            let found = String::from_utf8_lossy(row.row());
            self.ledger.violated(format!("a scan returned row {found} in place of row {next}"));
            return Ok(());
        }
        if next != self.rows {
            self.ledger.violated(format!("a scan ended before row {next} of {}", self.rows));
        }
        Ok(())
    }

    /// Counts a failed call, and prints the first few.
    fn failed(&self, worker: usize, error: &Error) {
        self.recorder.failed(worker);
        if self.errors_shown.fetch_add(1, Ordering::Relaxed) < ERRORS_SHOWN_MAX {
            eprintln!("a call failed: {}", chain(error));
        }
    }

    fn history(&self) -> History {
        let end = self.now();
        let (violations, first_violations) = self.ledger.violations();
        History {
            scans: self.scans.load(Ordering::Relaxed),
            violations,
            silence_ms: milliseconds(self.waits.silence(end)),
            longest_call_ms: self.longest_call_us.load(Ordering::Relaxed) as f64 / 1e3,
            gaps_ms: self.waits.gaps(end).into_iter().map(milliseconds).collect(),
            first_violations,
        }
    }
}

/// Reads every row after the last call: by a scan, and each with a get of its own.
async fn check_at_end(shared: &Shared) -> Result<(), Failure> {
    shared.scan().await.during("scan the table at the end")?;
    let mut next = 0;
    while next < shared.rows {
        let rows: Vec<u64> = (next..shared.rows).take(FILL_BATCH).collect();
        let gets = rows.iter().map(|row| Get::new(key(*row)));
        let found = shared.table.get_many(gets).await.during("read the rows at the end")?;
        for (row, found) in rows.iter().zip(&found) {
            shared.ledger.check_at_end(*row, found.as_ref().and_then(content));
        }
        next += rows.len() as u64;
    }
    Ok(())
}

/// Gives the rows that are missing their first write.
async fn write_missing(table: &Table, rows: u64) -> Result<(), Failure> {
    let mut missing: Vec<u64> = Vec::new();
    for (row, found) in (0..).zip(read_all(table, rows).await?) {
        if found.is_none() {
            missing.push(row);
        }
    }
    for batch in missing.chunks(FILL_BATCH) {
        let writes: Vec<RowMutation> = batch.iter().map(|row| mutation(*row, 1)).collect();
        let outcomes = table.mutate_many(writes).await.during("write the rows")?;
        for outcome in outcomes {
            outcome.map_err(|row| row.error).during("write the rows")?;
        }
    }
    Ok(())
}

async fn contents(table: &Table, rows: u64) -> Result<Vec<Content>, Failure> {
    let found = read_all(table, rows).await?;
    let missing = || Failure::new("a row that was written a moment ago is missing");
    found.into_iter().map(|found| found.ok_or_else(missing)).collect()
}

/// The contents of rows 0 and up, by a scan.
async fn read_all(table: &Table, rows: u64) -> Result<Vec<Option<Content>>, Failure> {
    let mut found = vec![None; usize::try_from(rows).expect("a million rows fit")];
    let mut stream = table.scan(Scan::all()).await.during("scan the table")?;
    while let Some(row) = stream.next().await {
        let row = row.during("scan the table")?;
        let Some(slot) = number(row.row()).and_then(|row| found.get_mut(usize::try_from(row).ok()?)) else {
            return Err(Failure::new("the table has rows of other programs").advise("choose another with --table"));
        };
        *slot = content(&row);
    }
    Ok(found)
}

/// Write number `number` of a row.
fn mutation(row: u64, number: u64) -> RowMutation {
    RowMutation::new(key(row)).set(FAMILY, STATE, number.to_be_bytes()).increment(FAMILY, COUNTER, 1)
}

fn content(row: &RowData) -> Option<Content> {
    let eight = |qualifier: &str| row.value(FAMILY, qualifier)?.try_into().ok().map(u64::from_be_bytes);
    Some(Content { state: eight(STATE)?, count: eight(COUNTER)? })
}

/// The number of a row from its key.
fn number(row: &[u8]) -> Option<u64> {
    let text = str::from_utf8(row).ok().filter(|text| text.len() == KEY_BYTES)?;
    text.parse().ok()
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_give_their_numbers() {
        assert_eq!(number(&key(1_234)), Some(1_234));
        assert_eq!(number(b"1234"), None);
        assert_eq!(number(&[b'x'; KEY_BYTES]), None);
    }
}
