//! `terrane-lab history`: single-row reads and writes whose results are known, with scans beside them.
//!
//! Each worker alternates between writing a row of its own and reading any row, and one more task scans the whole table
//! again and again. Every answer is checked against the calls made before, and at the end every row once more: no acknowledged
//! write is lost, none is applied twice, no read goes back in time, and no scan skips or repeats a row. Gaps are kept
//! per region, since `cargo xtask failover` runs this while it kills processes: as a program of its own, so that the load
//! and the driver do not take time from each other.
//!
//! `rows` says what the table has; what a row may contain is judged by `terrane_oracle::counted_rows`; `waits` says how long clients waited, and
//! `report` what is printed.

mod report;
mod rows;
mod waits;

use std::pin::pin;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, value_parser};
use parking_lot::Mutex;
use terrane_client::{Client, Error, Get, Scan, Table};
use terrane_env::task::shutdown_signal;
use terrane_lab::process::cpu;
use terrane_lab::{Cluster, Load};
use terrane_oracle::Fate;
use terrane_oracle::counted_rows::{Content, CountedRows};
use tokio::task::JoinSet;
use tokio::time::{self, Instant, MissedTickBehavior, interval_at};

use self::report::{Calls, Report, second_line};
use self::rows::{content, key, mutation, number};
use self::waits::{Kind, Waits};
use crate::chaos::with_causes;
use crate::dice::Dice;

/// Most rows: what is known of them is in memory, and every row is scanned several times.
const ROWS_MAX: u64 = 1_000_000;
/// What tells a driver that the load begins.
const MEASURING: &str = "measuring";
/// Pause between two scans, so that they take a small part of the load.
const PAUSE_AFTER_SCAN: Duration = Duration::from_millis(250);
/// How long a worker pauses after a failed call, so that it does not flood a struggling cluster.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// Failed calls that are printed; further ones are only counted.
const ERRORS_SHOWN_MAX: u64 = 5;

/// Write and read single rows and scan them, and check every answer: nothing lost, doubled, stale or skipped.
#[derive(Args)]
pub struct Flags {
    /// Addresses of the masters.
    #[arg(long, value_name = "HOST:PORT,...", env = "TERRANE_MASTERS", default_value = "127.0.0.1:7600")]
    masters: String,
    /// The table's name, or `namespace:name`; created if missing. Nothing else may write to it.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    table: String,
    /// Number of distinct rows: at least one for each call in flight.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u64).range(1..=ROWS_MAX))]
    rows: u64,
    /// Concurrent calls.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// Reads and writes per second over all calls in flight (default: as many as are answered).
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// How long to measure.
    #[arg(long, value_name = "S", default_value = "10s", value_parser = duration)]
    seconds: Duration,
    /// Number of regions of a new table, and of ranges whose gaps are kept.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = value_parser!(u32).range(1..=10_000))]
    regions: u32,
    /// Print one JSON object on standard output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Timeout of one call, including retries, such as 500ms, 30s or 2m.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    timeout: Duration,
}

/// A duration as commands of `terrane` take it.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let seconds = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => bail!("write 500ms, 30s or 2m"),
    };
    let number: f64 = number.parse().context("write 500ms, 30s or 2m")?;
    Ok(Duration::try_from_secs_f64(number * seconds)?)
}

/// Starts this program as a load on a cluster, and waits until it measures.
pub fn load(cluster: &Cluster, flags: &[&str]) -> anyhow::Result<Load> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["history", "--json", "--masters", &cluster.master_list()]).args(flags);
    let mut load = Load::start(&mut command)?;
    load.await_message(MEASURING)?;
    Ok(load)
}

/// What the tasks of one run share.
struct Shared {
    table: Table,
    in_flight: usize,
    /// The time between two calls of a worker; `None`: it calls as soon as it has an answer.
    turn_every: Option<Duration>,
    rows: u64,
    started: Instant,
    stop: AtomicBool,
    /// One lock, held for moments: a call takes a thousand times as long.
    state: Mutex<State>,
}

struct State {
    rows: CountedRows,
    waits: Waits,
    /// The calls since the last line was printed.
    calls: Calls,
    scans: u64,
    longest_call: Duration,
    errors_shown: u64,
}

/// What a run measured, besides what the shared state has.
struct Measured {
    total: Calls,
    elapsed: Duration,
    cpu: Option<Duration>,
    /// Ctrl-C ended it early. What was measured until then counts.
    interrupted: bool,
}

/// Runs for the requested time, checks the table, and prints a report.
pub fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    ensure!(
        flags.rows >= u64::from(flags.in_flight),
        "there must be a row for each call in flight: choose --rows and --in-flight accordingly"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the client")?;
    runtime.block_on(play(flags))
}

async fn play(flags: &Flags) -> anyhow::Result<ExitCode> {
    let client = Client::builder().masters(&flags.masters).timeout(flags.timeout).build().await?;
    let table = rows::open_or_create(&client, &flags.table, flags.rows, flags.regions).await?;
    let found = rows::write_missing(&table, flags.rows).await?;
    let in_flight = usize::try_from(flags.in_flight).expect("32 bits fit");
    let shared = Arc::new(Shared {
        table,
        in_flight,
        turn_every: flags.rate.map(|rate| Duration::from_secs_f64(in_flight as f64 / f64::from(rate))),
        rows: flags.rows,
        started: Instant::now(),
        stop: AtomicBool::new(false),
        state: Mutex::new(State {
            rows: CountedRows::new(found),
            waits: Waits::new(flags.rows, flags.regions),
            calls: Calls::none(),
            scans: 0,
            longest_call: Duration::ZERO,
            errors_shown: 0,
        }),
    });
    eprintln!("{MEASURING}");
    let measured = measure(&shared, flags).await?;
    check_at_end(&shared).await?;
    let counters = client.counters();
    eprintln!(
        "client: {} requests, {} retries, {} redirects, {} lookups at the master",
        counters.requests, counters.retries, counters.redirects, counters.master_lookups
    );
    Report::new(&shared.state.lock(), &measured).print(&measured, flags.json);
    // It has a report and no success.
    if measured.interrupted {
        return Ok(ExitCode::from(130));
    }
    let state = shared.state.lock();
    let findings = &state.rows.findings;
    let first = findings.first.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
    ensure!(
        findings.violations == 0,
        "{} violations: {first}\nunless another program writes these rows, this is a bug: please report it",
        findings.violations
    );
    Ok(ExitCode::SUCCESS)
}

async fn measure(shared: &Arc<Shared>, flags: &Flags) -> anyhow::Result<Measured> {
    let cpu_before = cpu(std::process::id());
    let mut tasks = JoinSet::new();
    for number in 0..shared.in_flight {
        tasks.spawn(Arc::clone(shared).work(number));
    }
    tasks.spawn(Arc::clone(shared).scan_repeatedly());
    let end = shared.started + flags.seconds;
    let mut ticks = interval_at(shared.started + Duration::from_secs(1), Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut total, mut second, mut line_at) = (Calls::none(), 0, shared.started);
    let (mut interrupt, mut interrupted) = (pin!(shutdown_signal()), false);
    // Calls in flight at the end belong to the run: one that never succeeds is what the run looks for.
    while !tasks.is_empty() {
        tokio::select! {
            biased;
            () = time::sleep_until(end), if !shared.is_over() => shared.stop.store(true, Ordering::Relaxed),
            () = &mut interrupt, if !interrupted => {
                interrupted = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
            _ = ticks.tick() => {
                let calls = shared.take_calls();
                second += 1;
                second_line(second, &calls, line_at.elapsed(), flags.json);
                line_at = Instant::now();
                total.add(&calls);
            }
            joined = tasks.join_next() => joined.transpose().map(drop).context("a worker panicked")?,
        }
    }
    total.add(&shared.take_calls());
    let elapsed = shared.now();
    let cpu = cpu(std::process::id()).ok().zip(cpu_before.ok()).map(|(after, before)| after.saturating_sub(before));
    Ok(Measured { total, elapsed, cpu, interrupted })
}

impl Shared {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Relaxed is enough: a task that sees the end late makes one more call.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn take_calls(&self) -> Calls {
        std::mem::replace(&mut self.state.lock().calls, Calls::none())
    }

    async fn work(self: Arc<Self>, worker: usize) {
        let mut dice = Dice::new(worker as u64);
        let rows = usize::try_from(self.rows).expect("a million rows fit");
        let mut kind = if worker.is_multiple_of(2) { Kind::Write } else { Kind::Read };
        let mut turns = self.turns(worker);
        loop {
            if let Some(turns) = &mut turns {
                turns.tick().await;
            }
            if self.is_over() {
                return;
            }
            // Each worker writes rows that no other does.
            let row = match kind {
                Kind::Write => dice.below(rows / self.in_flight) * self.in_flight + worker,
                Kind::Read => dice.below(rows),
            };
            self.call(kind, row as u64).await;
            kind = kind.other();
        }
    }

    async fn call(&self, kind: Kind, row: u64) {
        let asked = self.now();
        self.state.lock().waits.asked(row, kind, asked);
        let outcome = match kind {
            Kind::Write => self.write(row).await,
            Kind::Read => self.read(row).await,
        };
        if let Err(error) = outcome {
            self.state.lock().waits.failed(row, kind);
            self.failed(error);
            time::sleep(PAUSE_AFTER_ERROR).await;
            return;
        }
        let answered = self.now();
        let took = answered.saturating_sub(asked);
        let mut state = self.state.lock();
        state.waits.answered(row, kind, answered);
        state.calls.answered(took);
        state.longest_call = state.longest_call.max(took);
    }

    /// When a worker calls: in turn with the others, not all at once. A turn that comes while the worker still waits for an
    /// answer is not made up for.
    fn turns(&self, worker: usize) -> Option<time::Interval> {
        let every = self.turn_every?;
        let first = self.started + every.mul_f64(worker as f64 / self.in_flight as f64);
        let mut turns = interval_at(first, every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(turns)
    }

    async fn write(&self, row: u64) -> Result<(), Error> {
        let number = self.state.lock().rows.begin_write(row);
        let written = self.table.mutate(mutation(row, number)).await;
        let (fate, outcome) = match written {
            Ok(_) | Err(Error::ResultLost) => (Fate::Applied, Ok(())),
            Err(error) if error.is_uncertain() => (Fate::Unknown, Err(error)),
            Err(error) => (Fate::Refused, Err(error)),
        };
        self.state.lock().rows.end_write(row, number, fate);
        outcome
    }

    async fn read(&self, row: u64) -> Result<(), Error> {
        let least = self.state.lock().rows.begin_read(row);
        let found = self.table.get(Get::new(key(row))).await?;
        self.state.lock().rows.end_read(row, least, found.as_ref().and_then(content));
        Ok(())
    }

    async fn scan_repeatedly(self: Arc<Self>) {
        while !self.is_over() {
            match self.scan().await {
                Ok(()) => self.state.lock().scans += 1,
                Err(error) => self.failed(error),
            }
            time::sleep(PAUSE_AFTER_SCAN).await;
        }
    }

    /// One scan of the whole table: every row once, in order, none older than when the scan began.
    async fn scan(&self) -> Result<(), Error> {
        let least: Vec<Content> = {
            let rows = &mut self.state.lock().rows;
            (0..self.rows).map(|row| rows.begin_read(row)).collect()
        };
        let mut stream = self.table.scan(Scan::all()).await?;
        let mut next = 0;
        while let Some(row) = stream.next().await {
            let row = row?;
            let rows = &mut self.state.lock().rows;
            if number(row.row()) == Some(next) && next < self.rows {
                let least = least[usize::try_from(next).expect("below the number of rows")];
                rows.end_read(next, least, content(&row));
                next += 1;
                continue;
            }
            let found = String::from_utf8_lossy(row.row());
            rows.findings.add(|| format!("a scan returned row {found} in place of row {next}"));
            return Ok(());
        }
        if next != self.rows {
            let what = || format!("a scan ended before row {next} of {}", self.rows);
            self.state.lock().rows.findings.add(what);
        }
        Ok(())
    }

    /// Counts a failed call, and prints the first few.
    fn failed(&self, error: Error) {
        let mut state = self.state.lock();
        state.calls.errors += 1;
        state.errors_shown += 1;
        if state.errors_shown <= ERRORS_SHOWN_MAX {
            eprintln!("a call failed: {}", with_causes(error));
        }
    }
}

/// Reads every row after the last call: by a scan, and each with a get of its own.
async fn check_at_end(shared: &Shared) -> anyhow::Result<()> {
    shared.scan().await.context("scanning the table at the end")?;
    let rows: Vec<u64> = (0..shared.rows).collect();
    for rows in rows.chunks(rows::BATCH) {
        let found = shared.table.get_many(rows.iter().map(|row| Get::new(key(*row)))).await;
        let found = found.context("reading the rows at the end")?;
        let known = &mut shared.state.lock().rows;
        for (row, found) in rows.iter().zip(&found) {
            known.check_at_end(*row, found.as_ref().and_then(content));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = ["500ms", "1.5", "30s", "2m"].map(|text| duration(text).unwrap().as_secs_f64());
        assert_eq!(seconds, [0.5, 1.5, 30.0, 120.0]);
        assert!(["", "s", "-1", "1 day"].iter().all(|text| duration(text).is_err()));
    }
}
