//! `bench`: load on a table, measured. A line per second and a summary.
//!
//! A fixed number of workers each keep one call in flight; what is measured is the time from asking to the answer, as a
//! client sees it. Calls are counted when they are acknowledged within the measured time. The table is made when absent,
//! and `get` and `scan` fill it first when it is empty, so that what they ask for exists. `bench engine` has no cluster: it
//! compares the storage engines alone.

mod engine;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use terrane_client::{Client, Get, Put, RowMutation, Scan, Table, TableSpec};
use terrane_types::KeyRange;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::connect;
use crate::args::bench::{Bench, BenchFlags};
use crate::bench::stats::{Interval, Recorder, Summary, second_text};
use crate::bench::workload::{Choices, FAMILY, QUALIFIER, key, split_points};
use crate::failure::{During, Failure, chain};
use crate::output::{Output, grouped};
use crate::progress::Progress;

/// Rows of one call and calls in flight while a table is filled.
const FILL_BATCH: u32 = 1_000;
const FILL_IN_FLIGHT: u32 = 8;
/// Failed calls that are shown; of the rest only the number is told.
const ERRORS_SHOWN_MAX: u64 = 5;
/// How long a worker rests after a failed call, so that a cluster in trouble is not also flooded.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// Rows of a full scan after which they are recorded: few enough for a line each second, too many to cost anything.
const ROWS_PER_RECORD: usize = 4_096;
/// How long a measurement lasts unless told otherwise.
const SECONDS_DEFAULT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Put,
    Get,
    Scan,
    FullScan,
    Load,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Put => "put",
            Workload::Get => "get",
            Workload::Scan => "scan",
            Workload::FullScan => "fullscan",
            Workload::Load => "load",
        }
    }

    fn batch_default(self) -> u32 {
        match self {
            Workload::Put | Workload::Get | Workload::FullScan => 1,
            Workload::Scan => 100,
            Workload::Load => FILL_BATCH,
        }
    }

    fn in_flight_default(self) -> u32 {
        match self {
            Workload::Load => FILL_IN_FLIGHT,
            Workload::FullScan => 1,
            Workload::Put | Workload::Get | Workload::Scan => 64,
        }
    }

    /// Whether it ends by itself, and with it the measurement, unless it is to last for some time.
    fn ends(self) -> bool {
        matches!(self, Workload::Load | Workload::FullScan)
    }
}

pub async fn run(args: Bench) -> Result<(), Failure> {
    let (workload, reverse, flags) = match args {
        Bench::Put(flags) => (Workload::Put, false, flags),
        Bench::Get(flags) => (Workload::Get, false, flags),
        Bench::Scan(scan) => (Workload::Scan, scan.reverse, scan.flags),
        Bench::Fullscan(scan) => (Workload::FullScan, scan.reverse, scan.flags),
        Bench::Load(flags) => (Workload::Load, false, flags),
        Bench::Engine(args) => return engine::run(args).await,
    };
    let client = connect(&flags.connection).await?;
    let table = open_or_create(&client, &flags).await?;
    if table.schema().family(FAMILY.as_bytes()).is_none() {
        return Err(Failure::new(format!("table {} has no family {FAMILY}, which bench writes to", flags.table))
            .advise("choose another with --table; an absent one is made"));
    }
    if matches!(workload, Workload::Get | Workload::Scan | Workload::FullScan) {
        fill_if_empty(&table, &flags).await?;
    }
    let run = Run { reverse, ..Run::new(workload, &table, &flags) };
    let measured = measure(run, &flags).await?;
    eprintln!("{}", counters_text(&client));
    report(workload, &flags, &measured)
}

async fn open_or_create(client: &Client, flags: &BenchFlags) -> Result<Table, Failure> {
    let name = flags.table.to_string();
    match client.table(&name).await {
        Err(error) if error.is_not_found() => {}
        found => return found.during(format!("open table {name}")),
    }
    eprintln!("creating table {name} with {} regions", flags.regions);
    let mut spec = TableSpec::new(&name)?.family(FAMILY, &[])?;
    for row in split_points(flags.rows, flags.regions) {
        spec = spec.split_at(&row);
    }
    client.admin().create_table(spec).await.during(format!("create table {name}"))?;
    client.table(&name).await.during(format!("open table {name}"))
}

async fn fill_if_empty(table: &Table, flags: &BenchFlags) -> Result<(), Failure> {
    let during = || format!("fill table {}", flags.table);
    if table.first(KeyRange::all()).await.during(during())?.is_some() {
        return Ok(());
    }
    eprintln!("filling table {} with {} rows", flags.table, grouped(flags.rows));
    let fill = BenchFlags { batch: Some(FILL_BATCH), in_flight: Some(FILL_IN_FLIGHT), seconds: None, ..flags.clone() };
    let run = Run::new(Workload::Load, table, &fill);
    let mut workers = run.start();
    let mut progress = Progress::over_rows("fill", flags.rows);
    let mut seconds = interval_at(Instant::now(), Duration::from_millis(200));
    let mut total = Interval::empty();
    while !workers.is_empty() {
        tokio::select! {
            biased;
            joined = workers.join_next() => joined_well(joined)?,
            _ = seconds.tick() => {
                total.add(&run.recorder.drain());
                progress.update(total.rows, total.rows);
            }
        }
    }
    total.add(&run.recorder.drain());
    if total.errors > 0 {
        return Err(Failure::new(format!("{} calls failed", total.errors)).during(during()));
    }
    Ok(())
}

fn joined_well(joined: Option<Result<(), tokio::task::JoinError>>) -> Result<(), Failure> {
    match joined {
        Some(Err(error)) => Err(Failure::new(format!("a worker of the load generator ended early: {error}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

/// What the workers of one measurement share.
#[derive(Clone)]
struct Run {
    workload: Workload,
    table: Table,
    rows: u64,
    batch: u64,
    in_flight: usize,
    value_bytes: usize,
    /// Scans go from the last row to the first.
    reverse: bool,
    /// A full scan is made over and over, until the time is over.
    repeats: bool,
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
    /// The first row of the next batch of `load`.
    next_row: Arc<AtomicU64>,
    errors_shown: Arc<AtomicU64>,
}

impl Run {
    fn new(workload: Workload, table: &Table, flags: &BenchFlags) -> Run {
        let in_flight = flags.in_flight.unwrap_or_else(|| workload.in_flight_default());
        Run {
            workload,
            table: table.clone(),
            rows: flags.rows,
            batch: u64::from(flags.batch.unwrap_or_else(|| workload.batch_default())),
            in_flight: usize::try_from(in_flight).expect("32 bits fit a length"),
            value_bytes: usize::try_from(flags.value_bytes).expect("32 bits fit a length"),
            reverse: false,
            repeats: flags.seconds.is_some(),
            recorder: Arc::new(Recorder::new()),
            stop: Arc::new(AtomicBool::new(false)),
            next_row: Arc::new(AtomicU64::new(0)),
            errors_shown: Arc::new(AtomicU64::new(0)),
        }
    }

    fn start(&self) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        for worker in 0..self.in_flight {
            workers.spawn(self.clone().work(worker));
        }
        workers
    }

    async fn work(self, worker: usize) {
        let mut choices = Choices::new(worker, self.rows, self.value_bytes);
        while !self.stop.load(Ordering::Relaxed) {
            let Some(call) = self.choose(&mut choices) else { return };
            let asked = Instant::now();
            match self.call(call, worker).await {
                // What is answered after the end was not done within the measured time.
                Ok(_) if self.stop.load(Ordering::Relaxed) => {}
                Ok(rows) => self.recorder.acknowledged(worker, rows, asked.elapsed()),
                Err(error) => {
                    self.failed(worker, &error);
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
            if self.workload == Workload::FullScan && !self.repeats {
                return;
            }
        }
    }

    /// The next call, or `None` when `load` has written all rows. Values are made before the clock starts.
    fn choose(&self, choices: &mut Choices) -> Option<Call> {
        let put = |row: u64, choices: &mut Choices| Put::new(key(row)).set(FAMILY, QUALIFIER, choices.value());
        Some(match self.workload {
            Workload::Put if self.batch == 1 => {
                let row = choices.row();
                Call::Put(put(row, choices))
            }
            Workload::Put => {
                let rows: Vec<u64> = (0..self.batch).map(|_| choices.row()).collect();
                Call::PutMany(rows.into_iter().map(|row| put(row, choices).into()).collect())
            }
            Workload::Load => {
                // Only handed out here, and no other memory depends on it.
                let first = self.next_row.fetch_add(self.batch, Ordering::Relaxed);
                if first >= self.rows {
                    return None;
                }
                let rows = first..self.rows.min(first + self.batch);
                Call::PutMany(rows.map(|row| put(row, choices).into()).collect())
            }
            Workload::Get if self.batch == 1 => Call::Get(Get::new(key(choices.row()))),
            Workload::Get => Call::GetMany((0..self.batch).map(|_| Get::new(key(choices.row()))).collect()),
            Workload::Scan => {
                let first = choices.scan_start(self.batch);
                let (start, stop) = if self.reverse {
                    (Vec::new(), key(first.saturating_add(self.batch)).to_vec())
                } else {
                    (key(first).to_vec(), Vec::new())
                };
                let range = KeyRange { start: start.into(), stop: stop.into() };
                Call::Scan(self.directed(Scan::range(range)).limit(self.batch))
            }
            Workload::FullScan => Call::FullScan(self.directed(Scan::range(KeyRange::all()))),
        })
    }

    fn directed(&self, scan: Scan) -> Scan {
        if self.reverse { scan.reverse() } else { scan }
    }

    /// Makes the call and answers how many rows it wrote or read, those aside that it has already recorded.
    async fn call(&self, call: Call, worker: usize) -> Result<u64, terrane_client::Error> {
        let rows = match call {
            Call::Put(put) => self.table.put(put).await.map(|()| 1)?,
            Call::PutMany(puts) => {
                let count = puts.len();
                let outcomes = self.table.mutate_many(puts).await?;
                match outcomes.into_iter().find_map(Result::err) {
                    Some(row) => return Err(row.error),
                    None => count,
                }
            }
            Call::Get(get) => usize::from(self.table.get(get).await?.is_some()),
            Call::GetMany(gets) => self.table.get_many(gets).await?.iter().flatten().count(),
            Call::Scan(scan) => {
                let mut stream = self.table.scan(scan).await?;
                let mut count = 0;
                while let Some(row) = stream.next().await {
                    row?;
                    count += 1;
                }
                count
            }
            Call::FullScan(scan) => {
                let mut stream = self.table.scan(scan).await?;
                let mut count = 0;
                while let Some(row) = stream.next().await {
                    row?;
                    count += 1;
                    if count == ROWS_PER_RECORD {
                        if self.stop.load(Ordering::Relaxed) {
                            break;
                        }
                        // A line a second is wanted, and the call may take minutes.
                        self.recorder.progressed(worker, std::mem::take(&mut count) as u64);
                    }
                }
                count
            }
        };
        Ok(u64::try_from(rows).expect("lengths in memory fit 64 bits"))
    }

    fn failed(&self, worker: usize, error: &terrane_client::Error) {
        self.recorder.failed(worker);
        if self.errors_shown.fetch_add(1, Ordering::Relaxed) < ERRORS_SHOWN_MAX {
            eprintln!("a call failed: {}", chain(error));
        }
    }
}

enum Call {
    Put(Put),
    PutMany(Vec<RowMutation>),
    Get(Get),
    GetMany(Vec<Get>),
    Scan(Scan),
    FullScan(Scan),
}

/// What a run came to.
struct Measured {
    total: Interval,
    elapsed: Duration,
    cpu: Option<Duration>,
}

/// Runs the workers for the time asked for, or until `load` has written all rows, with a line each second.
async fn measure(run: Run, flags: &BenchFlags) -> Result<Measured, Failure> {
    let cpu_before = cpu_time().await;
    let started = Instant::now();
    let end = match (flags.seconds, run.workload) {
        (Some(seconds), _) => Some(started + seconds),
        (None, workload) if workload.ends() => None,
        (None, _) => Some(started + SECONDS_DEFAULT),
    };
    let mut workers = run.start();
    let mut seconds = interval_at(started + Duration::from_secs(1), Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut total, mut second, mut line_at) = (Interval::empty(), 0, started);
    while !workers.is_empty() {
        tokio::select! {
            biased;
            () = sleep_until(end) => break,
            _ = seconds.tick() => {
                let interval = run.recorder.drain();
                second += 1;
                second_line(flags.connection.json, &second_text(second, &interval, line_at.elapsed()))?;
                line_at = Instant::now();
                total.add(&interval);
            }
            joined = workers.join_next() => joined_well(joined)?,
        }
    }
    // Relaxed is enough: a worker that sees it late makes one call more, which then does not count.
    run.stop.store(true, Ordering::Relaxed);
    let elapsed = started.elapsed();
    total.add(&run.recorder.drain());
    let cpu = cpu_time().await.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    workers.abort_all();
    Ok(Measured { total, elapsed, cpu })
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// The line of one second: standard output for people, but nothing except the summary there under `--json`.
fn second_line(json: bool, line: &str) -> Result<(), Failure> {
    if json {
        eprintln!("{line}");
        return Ok(());
    }
    let mut output = Output::new(false);
    output.line(line)?;
    output.flush()
}

fn report(workload: Workload, flags: &BenchFlags, measured: &Measured) -> Result<(), Failure> {
    let summary = Summary::new(workload.name(), &measured.total, measured.elapsed);
    let mut output = Output::new(flags.connection.json);
    if output.is_json() {
        output.object(&summary)?;
        return output.flush();
    }
    if let Some(cpu) = measured.cpu.filter(|_| measured.total.rows > 0) {
        let per_row = cpu.as_secs_f64() * 1e6 / measured.total.rows as f64;
        let cores = cpu.as_secs_f64() / measured.elapsed.as_secs_f64().max(f64::EPSILON);
        output.line(&format!("this process used {per_row:.2} µs of CPU per row, {cores:.2} cores"))?;
    }
    output.line(&summary.text())?;
    output.flush()
}

fn counters_text(client: &Client) -> String {
    let counters = client.counters();
    format!(
        "client: {} requests, {} retries, {} redirects, {} look-ups at the master",
        grouped(counters.requests),
        grouped(counters.retries),
        grouped(counters.redirects),
        grouped(counters.master_lookups)
    )
}

/// CPU time of this process so far, where the system tells.
async fn cpu_time() -> Option<Duration> {
    let stat = terrane_env::fs::read("/proc/self/stat".as_ref()).await.ok()?;
    cpu_time_of(&String::from_utf8_lossy(&stat))
}

/// Reads user and system time, the 14th and 15th field; the second, in parentheses, may hold blanks. They are in ticks, a
/// hundredth of a second on every Linux.
fn cpu_time_of(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_a_name_with_blanks() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100";
        assert_eq!(cpu_time_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu_time_of(""), None);
        assert_eq!(cpu_time_of("1 (x) S 1"), None);
    }

    #[tokio::test]
    async fn a_linux_process_knows_its_cpu_time() {
        if cfg!(target_os = "linux") {
            assert!(cpu_time().await.is_some());
        }
    }
}
