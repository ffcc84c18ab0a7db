//! Runs the workloads on one store.
//!
//! The order matters: batches are written to a separate store; then one store is loaded, drained, compacted, read, closed
//! and reopened, and finally overwritten while it compacts. Warm reads run twice with the same choices; the second run
//! counts.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use terrane_env::time;

use crate::data::{self, KEY_BYTES, Key, ROW_BYTES, Rows, VALUE_BYTES};
use crate::machine::disk_bytes;
use crate::meter::{Latencies, Stopwatch};
use crate::report::Measurement;
use crate::{Compaction, Contender, Error, Options, Settings, Subject, SubjectError, Workload};

/// Rows of a sorted batch.
const BATCH_ROWS: u64 = 1_000;
/// Rows of a scan.
const SCAN_ROWS: u64 = 100;
/// Operations between checks of the clock, for workloads that do not time each operation.
const LOOK_EVERY: u64 = 256;
/// Interval between checks whether a store is compacting: long enough that the checks cost nothing.
const ASK_EVERY_NS: u64 = 5_000_000;
/// Rows overwritten in a store that offers no manual compaction.
const OVERWRITES: u64 = 200_000;

/// Independent streams of random choices, so that no two workloads request the same rows.
#[derive(Clone, Copy)]
enum Stream {
    Gets = 1,
    Absent,
    Scans,
    ReverseScans,
    Overwrites,
}

/// Nanoseconds it takes to generate a key and a value; every figure includes them.
pub(crate) fn making_cost(rows: &Rows) -> f64 {
    const MADE: u64 = 200_000;
    let mut value = [0; VALUE_BYTES];
    let mut watch = Stopwatch::started();
    for place in 0..MADE {
        let number = rows.number(place % rows.count());
        rows.value(number, 0, &mut value);
        std::hint::black_box((data::key(number), &value));
    }
    watch.stop();
    let made = u32::try_from(MADE).expect("the count is a small constant");
    watch.spent().thread_seconds * 1e9 / f64::from(made)
}

/// The state of one store between workloads.
pub(crate) struct Runner<'a> {
    scope: Scope<'a>,
    dir: PathBuf,
    store: Option<Box<dyn Subject>>,
}

/// What a workload needs besides the store.
#[derive(Clone, Copy)]
struct Scope<'a> {
    options: &'a Options,
    contender: &'a Contender,
    rows: &'a Rows,
    /// Number of rows inserted: a prefix of the insertion order.
    loaded: u64,
}

impl Scope<'_> {
    fn bound(&self, operations: u64) -> Bound {
        let until_ns = time::now_ns().saturating_add(self.options.seconds.saturating_mul(1_000_000_000));
        Bound { operations, until_ns }
    }

    fn measurement(&self, workload: Workload, watch: &Stopwatch, operations: u64, rows: u64) -> Measurement {
        Measurement::new(self.contender.name, workload, watch.spent(), operations, rows)
    }

    /// Row number of the `draw`-th choice among the inserted rows.
    fn chosen(&self, stream: Stream, draw: u64) -> u64 {
        self.rows.number(self.rows.choice(stream as u64, draw, self.loaded))
    }
}

impl<'a> Runner<'a> {
    pub(crate) fn new(options: &'a Options, contender: &'a Contender, rows: &'a Rows, dir: &Path) -> Self {
        Self { scope: Scope { options, contender, rows, loaded: 0 }, dir: dir.join("rows"), store: None }
    }

    /// Runs a workload. Returns nothing for one that the options exclude.
    pub(crate) fn run(&mut self, workload: Workload) -> Result<Option<Measurement>, Error> {
        let measured = match workload {
            Workload::Batches => self.batches(),
            Workload::Inserts => self.inserts(),
            Workload::Drain => self.drain(),
            Workload::Compact if self.scope.options.compaction == Compaction::Settled => return Ok(None),
            Workload::Compact => self.compact(),
            Workload::Gets => self.gets(workload, Stream::Gets, true),
            Workload::AbsentGets => self.gets(workload, Stream::Absent, false),
            Workload::Scans => self.scans(workload, Stream::Scans, false),
            Workload::ReverseScans => self.scans(workload, Stream::ReverseScans, true),
            Workload::FullScan => self.full_scan(),
            Workload::Reopen => self.reopen(),
            Workload::PutsInCompaction => self.puts_in_compaction(),
        };
        match measured {
            Ok(measured) => Ok(Some(measured)),
            Err(Failure::Subject(source)) => {
                Err(Error::Subject { subject: self.scope.contender.name, workload, source })
            }
            Err(Failure::Wrong(what)) => Err(Error::Wrong { subject: self.scope.contender.name, workload, what }),
            Err(Failure::Io(doing, cause)) => Err(Error::Io { doing, cause }),
        }
    }

    /// Closes the store.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let Some(store) = self.store.take() else { return Ok(()) };
        store.close().map_err(|source| Error::Subject {
            subject: self.scope.contender.name,
            workload: Workload::PutsInCompaction,
            source,
        })
    }

    fn open(&self, dir: &Path) -> Result<Box<dyn Subject>, Failure> {
        make_dir(dir)?;
        let settings = Settings {
            cache_bytes: self.scope.options.cache_mib << 20,
            write_buffer_bytes: self.scope.options.write_buffer_mib << 20,
        };
        Ok((self.scope.contender.open)(dir, &settings)?)
    }

    /// Times only the calls. The processor time of the whole process also covers the time between them, because background
    /// work runs then.
    fn batches(&mut self) -> Result<Measurement, Failure> {
        let scope = self.scope;
        let dir = self.dir.with_file_name("batches");
        let mut store = self.open(&dir)?;
        let batches = scope.options.batch_rows.min(scope.rows.count()) / BATCH_ROWS;
        let mut numbers = Vec::new();
        let mut batch: Vec<(Vec<u8>, Vec<u8>)> = vec![(vec![0; KEY_BYTES], vec![0; VALUE_BYTES]); cast(BATCH_ROWS)];
        let mut value = [0; VALUE_BYTES];
        let (mut watch, mut latencies) = (Stopwatch::default(), Latencies::new());
        let done = scope.bound(batches).run_timed(|at| {
            numbers.clear();
            numbers.extend((at * BATCH_ROWS..(at + 1) * BATCH_ROWS).map(|place| scope.rows.number(place)));
            numbers.sort_unstable();
            for (number, row) in numbers.iter().zip(&mut batch) {
                scope.rows.value(*number, 0, &mut value);
                row.0.copy_from_slice(&data::key(*number));
                row.1.copy_from_slice(&value);
            }
            watch.start();
            let before = time::now_ns();
            store.put_batch(&batch)?;
            latencies.record(time::now_ns() - before);
            watch.stop();
            Ok(ControlFlow::Continue(()))
        })?;
        let mut measured = scope.measurement(Workload::Batches, &watch, done, done * BATCH_ROWS);
        measured.latency = latencies.spread();
        measured.complete = done == batches;
        store.close()?;
        remove_dir(&dir)?;
        Ok(measured)
    }

    fn inserts(&mut self) -> Result<Measurement, Failure> {
        let scope = self.scope;
        let mut store = self.open(&self.dir)?;
        let mut puts = Puts::new();
        let mut value = [0; VALUE_BYTES];
        let mut watch = Stopwatch::started();
        let done = scope.bound(scope.rows.count()).run_timed(|place| {
            let number = scope.rows.number(place);
            scope.rows.value(number, 0, &mut value);
            puts.put(&mut *store, &data::key(number), &value)?;
            Ok(ControlFlow::Continue(()))
        })?;
        watch.stop();
        self.scope.loaded = done;
        self.store = Some(store);
        let mut measured = scope.measurement(Workload::Inserts, &watch, done, done);
        puts.note(&mut measured);
        measured.complete = done == scope.rows.count();
        if done == 0 {
            return Err(Failure::Wrong("no row was inserted in the time there was".to_owned()));
        }
        Ok(measured)
    }

    fn drain(&mut self) -> Result<Measurement, Failure> {
        let mut watch = Stopwatch::started();
        store(&mut self.store).drain()?;
        watch.stop();
        self.with_disk(self.scope.measurement(Workload::Drain, &watch, 1, self.scope.loaded))
    }

    fn compact(&mut self) -> Result<Measurement, Failure> {
        let mut watch = Stopwatch::started();
        store(&mut self.store).compact()?;
        watch.stop();
        self.with_disk(self.scope.measurement(Workload::Compact, &watch, 1, self.scope.loaded))
    }

    fn with_disk(&self, mut measured: Measurement) -> Result<Measurement, Failure> {
        let bytes = disk_bytes(&self.dir).map_err(|cause| Failure::Io("look at the store's files", cause))?;
        measured.disk_bytes = Some(bytes);
        measured.data_bytes = Some(self.scope.loaded * ROW_BYTES);
        Ok(measured)
    }

    fn gets(&mut self, workload: Workload, stream: Stream, present: bool) -> Result<Measurement, Failure> {
        let scope = self.scope;
        let store = store(&mut self.store);
        let key_of = if present { data::key } else { data::absent_key };
        let mut latencies = Latencies::new();
        let mut watch = Stopwatch::default();
        let mut done = 0;
        for measured in [false, true] {
            watch = Stopwatch::started();
            done = scope.bound(scope.options.gets).run(|draw| {
                let key: Key = key_of(scope.chosen(stream, draw));
                let before = time::now_ns();
                let found = store.get(&key)?;
                if measured {
                    latencies.record(time::now_ns() - before);
                }
                if found != present {
                    let verb = if found { "found" } else { "did not find" };
                    return Err(Failure::Wrong(format!("{verb} {}", key.escape_ascii())));
                }
                Ok(())
            })?;
            watch.stop();
        }
        let mut measured = scope.measurement(workload, &watch, done, done);
        measured.latency = latencies.spread();
        measured.complete = done == scope.options.gets;
        Ok(measured)
    }

    fn scans(&mut self, workload: Workload, stream: Stream, reverse: bool) -> Result<Measurement, Failure> {
        let scope = self.scope;
        let store = store(&mut self.store);
        let (count, all) = (scope.rows.count(), scope.loaded == scope.rows.count());
        let mut latencies = Latencies::new();
        let (mut watch, mut done, mut rows) = (Stopwatch::default(), 0, 0);
        for measured in [false, true] {
            watch = Stopwatch::started();
            rows = 0;
            done = scope.bound(scope.options.scans).run(|draw| {
                // Start where 100 rows remain, so that every scan has its full length.
                let start = scope.rows.choice(stream as u64, draw, count - SCAN_ROWS + 1);
                let start = if reverse { start + SCAN_ROWS - 1 } else { start };
                let before = time::now_ns();
                let seen = store.scan(&data::key(start), cast(SCAN_ROWS), reverse)?;
                if measured {
                    latencies.record(time::now_ns() - before);
                }
                if all && seen != cast(SCAN_ROWS) {
                    return Err(Failure::Wrong(format!(
                        "a scan from row {start} returned {seen} rows instead of {SCAN_ROWS}"
                    )));
                }
                rows += seen as u64;
                Ok(())
            })?;
            watch.stop();
        }
        let mut measured = scope.measurement(workload, &watch, done, rows);
        measured.latency = latencies.spread();
        measured.complete = done == scope.options.scans;
        Ok(measured)
    }

    fn full_scan(&mut self) -> Result<Measurement, Failure> {
        let scope = self.scope;
        let store = store(&mut self.store);
        let (mut watch, mut rows) = (Stopwatch::default(), 0);
        for _ in ["warm", "measured"] {
            watch = Stopwatch::started();
            rows = store.scan(&data::key(0), usize::MAX, false)? as u64;
            watch.stop();
        }
        if rows != scope.loaded {
            return Err(Failure::Wrong(format!("a full scan returned {rows} rows instead of {}", scope.loaded)));
        }
        Ok(scope.measurement(Workload::FullScan, &watch, 1, rows))
    }

    fn reopen(&mut self) -> Result<Measurement, Failure> {
        if let Some(store) = self.store.take() {
            store.close()?;
        }
        let key = data::key(self.scope.rows.number(self.scope.loaded - 1));
        let mut watch = Stopwatch::started();
        let opened = self.open(&self.dir)?;
        let found = opened.get(&key)?;
        watch.stop();
        self.store = Some(opened);
        if !found {
            return Err(Failure::Wrong("a drained row is gone after closing and opening".to_owned()));
        }
        Ok(self.scope.measurement(Workload::Reopen, &watch, 1, self.scope.loaded))
    }

    /// Runs until the compaction ends or every row has been overwritten once, on average.
    fn puts_in_compaction(&mut self) -> Result<Measurement, Failure> {
        let scope = self.scope;
        let store = store(&mut self.store);
        let started = store.start_compaction()?;
        let most = if started { scope.loaded } else { scope.loaded.min(OVERWRITES) };
        let mut puts = Puts::new();
        let mut value = [0; VALUE_BYTES];
        let mut seen_compacting = false;
        let mut watch = Stopwatch::started();
        let done = scope.bound(most).run_timed(|draw| {
            let number = scope.chosen(Stream::Overwrites, draw);
            scope.rows.value(number, draw + 1, &mut value);
            puts.put(&mut *store, &data::key(number), &value)?;
            seen_compacting |= puts.compacting;
            Ok(if started && seen_compacting && !puts.compacting {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        watch.stop();
        let mut measured = scope.measurement(Workload::PutsInCompaction, &watch, done, done);
        puts.note(&mut measured);
        Ok(measured)
    }
}

/// Put latencies, with those during a compaction recorded separately.
struct Puts {
    all: Latencies,
    in_compaction: Latencies,
    /// As of the last check.
    compacting: bool,
    asked_ns: u64,
}

impl Puts {
    fn new() -> Self {
        Self { all: Latencies::new(), in_compaction: Latencies::new(), compacting: false, asked_ns: 0 }
    }

    fn put(&mut self, store: &mut dyn Subject, key: &[u8], value: &[u8]) -> Result<(), SubjectError> {
        let before = time::now_ns();
        if before - self.asked_ns > ASK_EVERY_NS {
            self.asked_ns = before;
            self.compacting = store.compacting();
        }
        let before = time::now_ns();
        store.put(key, value)?;
        let took = time::now_ns() - before;
        self.all.record(took);
        if self.compacting {
            self.in_compaction.record(took);
        }
        Ok(())
    }

    fn note(&self, measured: &mut Measurement) {
        measured.latency = self.all.spread();
        measured.in_compaction = self.in_compaction.spread();
    }
}

/// A limit in operations and in time.
struct Bound {
    operations: u64,
    until_ns: u64,
}

impl Bound {
    /// Runs operations 0, 1, ... and returns how many ran.
    fn run(self, mut operation: impl FnMut(u64) -> Result<(), Failure>) -> Result<u64, Failure> {
        for at in 0..self.operations {
            if at % LOOK_EVERY == 0 && time::now_ns() > self.until_ns {
                return Ok(at);
            }
            operation(at)?;
        }
        Ok(self.operations)
    }

    /// The same for operations that may stall or end early: checks the clock before each.
    fn run_timed(self, mut operation: impl FnMut(u64) -> Result<ControlFlow<()>, Failure>) -> Result<u64, Failure> {
        for at in 0..self.operations {
            if time::now_ns() > self.until_ns {
                return Ok(at);
            }
            if operation(at)?.is_break() {
                return Ok(at + 1);
            }
        }
        Ok(self.operations)
    }
}

/// A failure inside a workload, before the store and workload are attached to it.
enum Failure {
    Subject(SubjectError),
    Wrong(String),
    Io(&'static str, std::io::Error),
}

impl From<SubjectError> for Failure {
    fn from(error: SubjectError) -> Self {
        Self::Subject(error)
    }
}

fn store(store: &mut Option<Box<dyn Subject>>) -> &mut dyn Subject {
    &mut **store.as_mut().expect("inserts come before everything that needs their store, and a failure ends the run")
}

fn cast(rows: u64) -> usize {
    usize::try_from(rows).expect("rows of a batch and of a scan are small constants")
}

#[allow(clippy::disallowed_methods, reason = "the benchmark's own directories, never simulated")]
fn make_dir(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|cause| Failure::Io("make the store's directory", cause))
}

#[allow(clippy::disallowed_methods, reason = "the benchmark's own directories, never simulated")]
fn remove_dir(dir: &Path) -> Result<(), Failure> {
    fs::remove_dir_all(dir).map_err(|cause| Failure::Io("remove the store's directory", cause))
}
