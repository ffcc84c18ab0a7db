//! Rows: clients put rows, and others get and scan them, also from an isolated leader.
//!
//! A row has two columns that are written together. `f:n` has the write's number as its value and timestamp: a late
//! second application of a write has no effect there, so every read of it is checked. `g:s` has the same number with a
//! timestamp from the server. It must equal the first column in every row whose writes all had known outcomes, because
//! row writes are atomic and stamps never go back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::rc::Rc;

use futures::future::join_all;
use terrane_client::trace::{SpanId, TraceContext, TraceId, traced};
use terrane_client::{Error, Get, KeyRange, Put, RowData, Scan, Table, TableSpec};
use terrane_oracle::rows::{self, Asked, Change};

use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, LAST_PATIENCE, PATIENCE, Play, Scenario, TABLE, WORKER_HOSTS, below, open_table,
    passed, passes, patiently, pause, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};

/// Number of rows that the writers put, and the prefix of their keys.
const ROWS: usize = 240;
const ROW_PREFIX: &str = "row-";
const READER_HOSTS: [&str; 2] = ["r1", "r2"];
/// Writers per host; each has its own keys.
const WRITERS_PER_HOST: usize = 4;
const READERS_PER_HOST: usize = 2;
/// Keys that the captive writes.
const CAPTIVE_KEYS: u64 = 16;
/// Readers on the captive's host, and their longest pause between two reads.
const CAPTIVE_READERS: usize = 2;
const CAPTIVE_PAUSE_MS: u64 = 60;

/// Longest pauses between two calls.
const WRITER_PAUSE_MS: u64 = 160;
const READER_PAUSE_MS: u64 = 120;
/// One of so many writes is traced.
const TRACED_ONE_IN: usize = 4;
const SCAN_LIMIT: u64 = 20;
/// One of so many reads is a scan of the whole table.
const FULL_SCAN_ONE_IN: usize = 64;
/// Acknowledged writes without which a run shows little.
const WRITES_MIN: u64 = 200;

/// The scenario.
#[derive(Clone, Default)]
pub struct Rows {
    rows: Rc<RefCell<rows::Rows>>,
    /// Keys with a write whose outcome was unknown for a while, so that it may have been applied twice.
    doubtful: Rc<RefCell<BTreeSet<Vec<u8>>>>,
}

impl Scenario for Rows {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(write_rows(host, index, shared.clone()))));
        }
        for host in READER_HOSTS {
            clients.push((host, Box::pin(read_rows(host, shared.clone()))));
        }
        clients.push((CAPTIVE, Box::pin(be_captive(shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let acknowledged = context.state.acknowledged();
        (acknowledged < WRITES_MIN).then(|| format!("only {acknowledged} writes were acknowledged"))
    }
}

type Shared = play::Shared<Rows>;

impl Shared {
    fn is_doubtful(&self, key: &[u8]) -> bool {
        self.doubtful.borrow().contains(key)
    }

    fn doubt(&self, key: &[u8]) {
        self.doubtful.borrow_mut().insert(key.to_vec());
    }

    fn acknowledge(&self, who: &str, key: &[u8], number: u64) {
        trace::note(format_args!("{who} wrote {}={number}", key.escape_ascii()));
        self.rows.borrow_mut().acknowledge(key, number);
        self.context.state.acknowledge();
    }
}

async fn write_rows(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    let writers = WORKER_HOSTS.len() * WRITERS_PER_HOST;
    let tasks = (0..WRITERS_PER_HOST).map(|task| {
        let mine = index * WRITERS_PER_HOST + task;
        let keys: Vec<Vec<u8>> = (0..ROWS).filter(|row| row % writers == mine).map(row_key).collect();
        Writer { who: format!("{host}.{task}"), table: table.clone(), shared: shared.clone() }.run(keys)
    });
    join_all(tasks).await.into_iter().collect()
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    // Not compressed: a damaged byte that is served shows as another value, and not as what does not decompress.
    let spec = TableSpec::new(TABLE)?
        .family("f", &[("versions", "1"), ("compression", "none")])?
        .family("g", &[("versions", "3")])?;
    sized(spec, plan, ROWS, row_key)
}

fn row_key(row: usize) -> Vec<u8> {
    format!("{ROW_PREFIX}{row:05}").into_bytes()
}

/// One sequence of writes; the only writer of its keys.
struct Writer {
    who: String,
    table: Table,
    shared: Shared,
}

impl Writer {
    /// Writes random keys until the faults are over; every key once to begin with.
    async fn run(self, keys: Vec<Vec<u8>>) -> Result<(), Error> {
        for key in &keys {
            self.write(key).await?;
        }
        self.shared.until_over(WRITER_PAUSE_MS, async || self.write(&keys[below(keys.len())]).await).await
    }

    /// Writes the next number to `key`, retrying until it is acknowledged.
    async fn write(&self, key: &[u8]) -> Result<(), Error> {
        let number = self.shared.rows.borrow_mut().attempt(key, Change::Put);
        let put = put(key, number, self.shared.context.plan.value_bytes);
        while let Err(error) = self.put(key, &put).await {
            if !passes(&error) {
                return Err(error);
            }
            if error.is_uncertain() {
                self.shared.doubt(key);
            }
            trace::note(format_args!("{} did not write {}={number}: {}", self.who, key.escape_ascii(), chain(&error)));
        }
        self.shared.acknowledge(&self.who, key, number);
        Ok(())
    }
}

impl Writer {
    /// Writes once; some of the writes are traced.
    async fn put(&self, key: &[u8], put: &Put) -> Result<(), Error> {
        let Some(context) = (below(TRACED_ONE_IN) == 0).then(begin_trace).flatten() else {
            return self.table.put(put.clone()).await.map(drop);
        };
        let traces = || self.shared.context.traces.lock().expect("checks do not panic");
        traces().begin(context.trace);
        let done = traced(context, self.table.put(put.clone()).into_future()).await;
        let seen = traces().verdict();
        let verdict = if done.is_ok() { seen.and(traces().acknowledged(context.trace)) } else { seen };
        if let Err(what) = verdict {
            self.shared.fail(&self.who, key, what);
        }
        done.map(drop)
    }
}

fn begin_trace() -> Option<TraceContext> {
    let trace = TraceId::new(u128::from_be_bytes(terrane_env::rand::bytes()))?;
    Some(TraceContext { trace, span: SpanId::new(terrane_env::rand::u64())? })
}

fn put(key: &[u8], number: u64, value_bytes: usize) -> Put {
    let timestamp = i64::try_from(number).expect("few writes");
    let text = number.to_string();
    Put::new(key).set_at("f", "n", timestamp, filled(key, number, value_bytes)).set("g", "s", text)
}

/// The number, followed by bytes derived from key and number, so that a wrong value is detected.
fn filled(key: &[u8], number: u64, value_bytes: usize) -> Vec<u8> {
    let mut value = format!("{number}:").into_bytes();
    let shift = u8::try_from(number % 251).expect("below 251");
    value.extend(key.iter().cycle().map(|byte| byte.wrapping_add(shift)).take(value_bytes));
    value
}

/// Reads keys of all writers.
async fn read_rows(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let tasks = (0..READERS_PER_HOST).map(|task| {
        let reader = Reader { who: format!("{host}.{task}"), table: table.clone(), shared: shared.clone() };
        async move { reader.shared.until_over(READER_PAUSE_MS, async || reader.read_something().await).await }
    });
    join_all(tasks).await.into_iter().collect()
}

/// Reads in several ways and has every result checked.
struct Reader {
    who: String,
    table: Table,
    shared: Shared,
}

impl Reader {
    async fn read_something(&self) -> Result<(), Error> {
        let done = match below(FULL_SCAN_ONE_IN) {
            0 => self.scan(KeyRange::all(), below(2) == 0, None).await.map(drop),
            1..=4 => self.scan(from(row_key(below(ROWS))), false, Some(SCAN_LIMIT)).await.map(drop),
            5..=8 => self.scan(until(row_key(below(ROWS))), true, Some(SCAN_LIMIT)).await.map(drop),
            _ => self.get(&row_key(below(ROWS))).await,
        };
        passed(format_args!("{} did not read", self.who), done)
    }

    /// Reads one row.
    async fn get(&self, key: &[u8]) -> Result<(), Error> {
        let read = self.shared.rows.borrow().begin_read(key);
        let row = self.table.get(Get::new(key)).await?;
        let got = row.as_ref().map_or(0, |row| self.number_in(row));
        trace::note(format_args!("{} read {}={got}", self.who, key.escape_ascii()));
        self.shared.judge_read(&self.who, self.shared.rows.borrow_mut().end_read(&read, got));
        Ok(())
    }

    /// Scans, checks every returned and every missing row, and returns the rows with their numbers.
    async fn scan(&self, range: KeyRange, reverse: bool, limit: Option<u64>) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let mut scan = Scan::range(range.clone());
        scan = if reverse { scan.reverse() } else { scan };
        scan = limit.map_or(scan.clone(), |limit| scan.limit(limit));
        let mut scanning = self.shared.rows.borrow().begin_scan(Asked { range, reverse, offset: 0, limit }, |_| true);
        let mut stream = self.table.scan(scan).await?;
        let mut rows: Vec<(Vec<u8>, u64)> = Vec::new();
        while let Some(row) = stream.next().await {
            let row = row?;
            let (key, got) = (row.row().to_vec(), self.number_in(&row));
            self.shared.judge_read(&self.who, self.shared.rows.borrow_mut().show(&mut scanning, &key, got));
            rows.push((key, got));
        }
        trace::note(format_args!("{} scanned {} rows, reverse {reverse}", self.who, rows.len()));
        let cut = limit.is_some_and(|limit| rows.len() as u64 >= limit);
        self.shared.judge_read(&self.who, self.shared.rows.borrow().end_scan(&scanning, !cut));
        Ok(rows)
    }

    /// The write that a row shows; its two columns and its padding must agree.
    fn number_in(&self, row: &RowData) -> u64 {
        let key = row.row();
        let value = row.value("f", "n").unwrap_or_default();
        let colon = value.iter().position(|&byte| byte == b':').unwrap_or_default();
        let number = std::str::from_utf8(&value[..colon]).ok().and_then(|digits| digits.parse().ok());
        let number = match number {
            Some(number) if filled(key, number, value.len() - colon - 1) == value => number,
            _ => {
                self.fail(key, format_args!("was never written: {row:?}"));
                return 0;
            }
        };
        let stamped = row.value("g", "s").unwrap_or_default();
        if stamped != number.to_string().as_bytes() && !self.shared.is_doubtful(key) {
            self.fail(key, format_args!("shows two writes in one row: {row:?}"));
        }
        number
    }

    fn fail(&self, key: &[u8], what: impl Display) {
        self.shared.fail(&self.who, key, what);
    }
}

fn from(start: Vec<u8>) -> KeyRange {
    KeyRange { start: start.into(), end: Default::default() }
}

fn until(end: Vec<u8>) -> KeyRange {
    KeyRange { start: Default::default(), end: end.into() }
}

/// Clients that keep calling the isolated leader. They must get correct results or errors.
///
/// Readers have their own location cache, so that nothing makes them look for another leader while this one responds.
async fn be_captive(shared: Shared) -> Result<(), Error> {
    let (reading, writing) = (shared.context.connect(PATIENCE).await?, shared.context.connect(PATIENCE).await?);
    shared.context.state.until_ready().await;
    let read_from = open_table(&reading, TABLE).await?.with_timeout(CAPTIVE_PATIENCE);
    let patience = shared.context.plan.patience_with_disks(CAPTIVE_PATIENCE);
    let write_to = open_table(&writing, TABLE).await?.with_timeout(patience);
    let readers = (0..CAPTIVE_READERS).map(|reader| {
        let who = format!("{CAPTIVE}.{reader}");
        read_on(Reader { who, table: read_from.clone(), shared: shared.clone() })
    });
    let (read, written) = futures::join!(join_all(readers), write_on(write_to, &shared));
    written?;
    read.into_iter().collect()
}

async fn read_on(reader: Reader) -> Result<(), Error> {
    while !reader.shared.is_over() {
        match reader.get(&row_key(below(ROWS))).await {
            Err(error) if !passes(&error) => return Err(error),
            Ok(()) | Err(_) => pause(CAPTIVE_PAUSE_MS).await,
        }
    }
    Ok(())
}

async fn write_on(table: Table, shared: &Shared) -> Result<(), Error> {
    let mut open: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    while !shared.is_over() {
        let key = format!("captive-{:02}", terrane_env::rand::range(0..CAPTIVE_KEYS)).into_bytes();
        // A write with an unknown outcome is retried before the key's next write, so that numbers stay in order.
        let number = *open.entry(key.clone()).or_insert_with(|| shared.rows.borrow_mut().attempt(&key, Change::Put));
        match table.put(put(&key, number, shared.context.plan.value_bytes)).await {
            Ok(()) => {
                shared.acknowledge(CAPTIVE, &key, number);
                open.remove(&key);
            }
            Err(error) if passes(&error) => shared.doubt(&key),
            Err(error) => return Err(error),
        }
        pause(READER_PAUSE_MS).await;
    }
    Ok(())
}

/// Reads all rows forwards and backwards, counts them, and compares: every acknowledged write must be there.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    let reader = Reader { who: host.to_owned(), table, shared };
    let forward = patiently(async || reader.scan(KeyRange::all(), false, None).await).await?;
    let mut backward = patiently(async || reader.scan(KeyRange::all(), true, None).await).await?;
    backward.reverse();
    let counted = patiently(async || reader.table.count(KeyRange::all()).await).await?;
    if let Some((one, other)) = forward.iter().zip(&backward).find(|(one, other)| one != other) {
        reader.fail(&one.0, format!("forwards {one:?}, backwards {other:?}, without writes in between"));
    }
    let lengths = [forward.len() as u64, backward.len() as u64, counted];
    let least = reader.shared.rows.borrow().certain_rows();
    if lengths.iter().any(|length| *length != lengths[0]) || lengths[0] < least {
        reader.fail(b"", format!("forwards, backwards and counted {lengths:?} rows; at least {least} exist"));
    }
    for (key, _) in forward.iter().step_by(7) {
        patiently(async || reader.get(key).await).await?;
    }
    trace::note(format_args!("{host} read {} rows", forward.len()));
    Ok(())
}
