//! The clients of the simulated cluster: writers, readers, and the captive, a client that only reaches an isolated
//! leader.
//!
//! A row has two columns that are written together. `f:n` has the write's number as its value and timestamp: a late
//! second application of a write has no effect there, so every read of it is checked. `g:s` has the same number with a
//! timestamp from the server. It must equal the first column in every row whose writes all had known outcomes, because
//! row writes are atomic and stamps never go back.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use terrane_client::{Client, Error, Get, KeyRange, Put, RowData, Scan, Table, TableSpec};

use super::nodes::MASTER;
use super::run_state::RunState;
use super::trace::{self, chain};
use crate::oracle::Read;
use crate::plan::{Plan, ROW_PREFIX, ROWS};

/// The table of the run.
pub const TABLE: &str = "t";
/// Writers per host; each has its own keys.
const WRITERS_PER_HOST: usize = 8;
const WRITER_HOSTS: [&str; 2] = ["w1", "w2"];
const READER_HOSTS: [&str; 2] = ["r1", "r2"];
const READERS_PER_HOST: usize = 3;
/// The host of the client that reaches the isolated leader.
pub const CAPTIVE: &str = "captive";
/// All client hosts.
pub const HOSTS: [&str; 5] = ["w1", "w2", "r1", "r2", CAPTIVE];
/// Keys that the captive writes.
const CAPTIVE_KEYS: u64 = 24;
/// Readers on the captive's host, and their longest pause between two reads.
const CAPTIVE_READERS: usize = 4;
const CAPTIVE_PAUSE_MS: u64 = 20;

const PATIENCE: Duration = Duration::from_secs(10);
/// Short, so that the captive calls often instead of waiting until everything is repaired.
const CAPTIVE_PATIENCE: Duration = Duration::from_millis(300);
/// Longest pauses between two calls.
const WRITER_PAUSE_MS: u64 = 10;
const READER_PAUSE_MS: u64 = 60;
const SCAN_LIMIT: u64 = 50;

/// Adds all clients to the simulation.
pub fn add(sim: &mut turmoil::Sim<'static>, plan: &Plan, state: &RunState) {
    for (index, host) in WRITER_HOSTS.into_iter().enumerate() {
        sim.client(host, watch(host, state.clone(), write_rows(host, index, plan.clone(), state.clone())));
    }
    for host in READER_HOSTS {
        sim.client(host, watch(host, state.clone(), read_rows(host, state.clone())));
    }
    sim.client(CAPTIVE, watch(CAPTIVE, state.clone(), be_captive(plan.clone(), state.clone())));
}

/// Runs a client; its error fails the run.
pub async fn watch(
    host: &'static str,
    state: RunState,
    client: impl Future<Output = Result<(), Error>>,
) -> turmoil::Result {
    if let Err(error) = client.await {
        state.fail(format_args!("{host}: {}", chain(&error)));
    }
    Ok(())
}

/// Connects, however long it takes: a run that never connects is stuck.
pub async fn connect(timeout: Duration) -> Result<Client, Error> {
    loop {
        let built = Client::builder().masters(MASTER).timeout(timeout).build().await;
        match built {
            Err(error) if passes(&error) => {}
            done => return done,
        }
    }
}

/// Opens the table, however long it takes.
pub async fn open_table(client: &Client) -> Result<Table, Error> {
    loop {
        match client.table(TABLE).await {
            Err(error) if passes(&error) => {}
            done => return done,
        }
    }
}

/// Whether an error may be transient. Any other error fails the run.
pub fn passes(error: &Error) -> bool {
    error.is_retry_safe() || error.is_uncertain()
}

async fn write_rows(host: &'static str, index: usize, plan: Plan, state: RunState) -> Result<(), Error> {
    let client = connect(PATIENCE).await?;
    if index == 0 {
        create_table(&client, &plan).await?;
        state.table_is_created();
    }
    state.table_created().await;
    let table = open_table(&client).await?;
    let writers = WRITER_HOSTS.len() * WRITERS_PER_HOST;
    let tasks = (0..WRITERS_PER_HOST).map(|task| {
        let mine = index * WRITERS_PER_HOST + task;
        let keys = shuffled((0..ROWS).filter(|row| row % writers == mine).map(row_key).collect());
        Writer { who: format!("{host}.{task}"), table: table.clone(), state: state.clone(), plan: plan.clone() }
            .run(keys)
    });
    join_all(tasks).await.into_iter().collect()
}

async fn create_table(client: &Client, plan: &Plan) -> Result<(), Error> {
    let spec = TableSpec::new(TABLE)?
        .family("f", &[("versions", "1")])?
        .family("g", &[("versions", "3")])?
        .region_size(plan.region_size)
        .set("flush_size", &format!("{}B", plan.flush_size))?;
    // Several initial regions, in several groups with several leaders: daughters stay in their parent's group.
    let first_regions = 1..plan.first_regions;
    let spec = first_regions.fold(spec, |spec, region| spec.split_at(&row_key(region * ROWS / plan.first_regions)));
    loop {
        match client.admin().create_table(spec.clone()).await {
            Err(error) if passes(&error) => trace::note(format_args!("table not created yet: {}", chain(&error))),
            Ok(_) | Err(Error::AlreadyExists { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn row_key(row: usize) -> Vec<u8> {
    let mut key = ROW_PREFIX.to_vec();
    key.extend_from_slice(format!("{row:05}").as_bytes());
    key
}

fn shuffled<T>(mut items: Vec<T>) -> Vec<T> {
    for last in (1..items.len()).rev() {
        items.swap(last, below(last + 1));
    }
    items
}

pub fn below(bound: usize) -> usize {
    let drawn = terrane_env::rand::range(0..bound as u64);
    usize::try_from(drawn).expect("below a length")
}

pub async fn pause(up_to_ms: u64) {
    tokio::time::sleep(Duration::from_millis(terrane_env::rand::range(0..up_to_ms))).await;
}

/// One sequence of writes; the only writer of its keys.
struct Writer {
    who: String,
    table: Table,
    state: RunState,
    plan: Plan,
}

impl Writer {
    /// Writes all keys, some repeatedly, and continues until the faults are over.
    async fn run(self, keys: Vec<Vec<u8>>) -> Result<(), Error> {
        for (written, key) in keys.iter().enumerate() {
            self.write(key).await?;
            if terrane_env::rand::range(0..u64::from(self.plan.overwrite_one_in)) == 0 {
                self.write(&keys[below(written + 1)]).await?;
            }
            pause(WRITER_PAUSE_MS).await;
        }
        while !self.state.is_over() {
            self.write(&keys[below(keys.len())]).await?;
            pause(WRITER_PAUSE_MS).await;
        }
        Ok(())
    }

    /// Writes the next number to `key`, retrying until it is acknowledged.
    async fn write(&self, key: &[u8]) -> Result<(), Error> {
        let number = self.state.attempt(key);
        let put = put(key, number, self.plan.value_bytes);
        while let Err(error) = self.table.put(put.clone()).await {
            if !passes(&error) {
                return Err(error);
            }
            if error.is_uncertain() {
                self.state.doubt(key);
            }
            trace::note(format_args!("{} did not write {}={number}: {}", self.who, key.escape_ascii(), chain(&error)));
        }
        self.state.acknowledge(&self.who, key, number);
        Ok(())
    }
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
async fn read_rows(host: &'static str, state: RunState) -> Result<(), Error> {
    let client = connect(PATIENCE).await?;
    state.table_created().await;
    let table = open_table(&client).await?;
    let tasks = (0..READERS_PER_HOST).map(|task| {
        let reader = Reader { who: format!("{host}.{task}"), table: table.clone(), state: state.clone() };
        async move {
            while !reader.state.is_over() {
                reader.read_something().await?;
                pause(READER_PAUSE_MS).await;
            }
            Ok(())
        }
    });
    join_all(tasks).await.into_iter().collect()
}

/// Reads in several ways and has every result checked.
pub struct Reader {
    pub who: String,
    pub table: Table,
    pub state: RunState,
}

impl Reader {
    async fn read_something(&self) -> Result<(), Error> {
        let done = match below(16) {
            0 => self.scan(KeyRange::all(), false, None).await.map(drop),
            1 => self.scan(KeyRange::all(), true, None).await.map(drop),
            2 => self.scan(from(row_key(below(ROWS))), false, Some(SCAN_LIMIT)).await.map(drop),
            3 => self.scan(until(row_key(below(ROWS))), true, Some(SCAN_LIMIT)).await.map(drop),
            _ => self.get(&row_key(below(ROWS))).await,
        };
        match done {
            Err(error) if passes(&error) => {
                trace::note(format_args!("{} did not read: {}", self.who, chain(&error)));
                Ok(())
            }
            done => done,
        }
    }

    /// Reads one row.
    pub async fn get(&self, key: &[u8]) -> Result<(), Error> {
        let read = self.state.begin_read(key);
        let row = self.table.get(Get::new(key)).await?;
        let got = row.as_ref().map_or(0, |row| self.number_in(row));
        trace::note(format_args!("{} read {}={got}", self.who, key.escape_ascii()));
        self.state.end_read(&self.who, read, got);
        Ok(())
    }

    /// Scans, checks every returned and every missing row, and returns the rows with their numbers.
    pub async fn scan(&self, range: KeyRange, reverse: bool, limit: Option<u64>) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let mut reads = self.state.begin_scan(&range);
        let mut scan = Scan::range(range.clone());
        scan = if reverse { scan.reverse() } else { scan };
        scan = limit.map_or(scan.clone(), |limit| scan.limit(limit));
        let mut stream = self.table.scan(scan).await?;
        let mut rows: Vec<(Vec<u8>, u64)> = Vec::new();
        while let Some(row) = stream.next().await {
            let row = row?;
            let (key, got) = (row.row().to_vec(), self.number_in(&row));
            let in_order = rows.last().is_none_or(|(last, _)| if reverse { key < *last } else { key > *last });
            if !in_order || !range.contains(&key) {
                self.state.fail(format_args!("{}: row {} is out of range or order", self.who, key.escape_ascii()));
            }
            let read = reads.remove(&key).unwrap_or_else(|| Read::of_unwritten(&key));
            self.state.end_read(&self.who, read, got);
            rows.push((key, got));
        }
        trace::note(format_args!("{} scanned {} rows, reverse {reverse}", self.who, rows.len()));
        let cut = limit.is_some_and(|limit| rows.len() as u64 >= limit);
        let reached = |key: &[u8]| match rows.last() {
            Some((last, _)) if cut => {
                if reverse {
                    key >= &last[..]
                } else {
                    key <= &last[..]
                }
            }
            _ => true,
        };
        for (key, read) in reads {
            if reached(&key) {
                self.state.end_read(&self.who, read, 0);
            }
        }
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
                self.state.fail(format_args!("{}: {row:?} was never written", self.who));
                return 0;
            }
        };
        let stamped = row.value("g", "s").unwrap_or_default();
        if stamped != number.to_string().as_bytes() && !self.state.is_doubtful(key) {
            self.state.fail(format_args!("{}: {row:?} shows two writes in one row", self.who));
        }
        number
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
async fn be_captive(plan: Plan, state: RunState) -> Result<(), Error> {
    let (reading, writing) = (connect(PATIENCE).await?, connect(PATIENCE).await?);
    state.table_created().await;
    let read_from = open_table(&reading).await?.with_timeout(CAPTIVE_PATIENCE);
    let write_to = open_table(&writing).await?.with_timeout(CAPTIVE_PATIENCE);
    let readers = (0..CAPTIVE_READERS).map(|reader| {
        let who = format!("{CAPTIVE}.{reader}");
        read_on(Reader { who, table: read_from.clone(), state: state.clone() })
    });
    let (read, written) = futures::join!(join_all(readers), write_on(write_to, &plan, &state));
    written?;
    read.into_iter().collect()
}

async fn read_on(reader: Reader) -> Result<(), Error> {
    while !reader.state.is_over() {
        if let Err(error) = reader.get(&row_key(below(ROWS))).await {
            refuse_unless_passing(&error)?;
        }
        pause(CAPTIVE_PAUSE_MS).await;
    }
    Ok(())
}

async fn write_on(table: Table, plan: &Plan, state: &RunState) -> Result<(), Error> {
    let mut open: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    while !state.is_over() {
        let key = format!("captive-{:02}", terrane_env::rand::range(0..CAPTIVE_KEYS)).into_bytes();
        // A write with an unknown outcome is retried before the key's next write, so that numbers stay in order.
        let number = *open.entry(key.clone()).or_insert_with(|| state.attempt(&key));
        match table.put(put(&key, number, plan.value_bytes)).await {
            Ok(()) => {
                state.acknowledge(CAPTIVE, &key, number);
                open.remove(&key);
            }
            Err(error) => {
                refuse_unless_passing(&error)?;
                state.doubt(&key);
            }
        }
        pause(READER_PAUSE_MS).await;
    }
    Ok(())
}

fn refuse_unless_passing(error: &Error) -> Result<(), Error> {
    if passes(error) { Ok(()) } else { Err(error.clone()) }
}
