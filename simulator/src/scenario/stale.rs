//! Stale reads beside linearizable and strict ones, from members of a group that lag, are isolated, or have just restarted.
//!
//! A stale answer must include every write that was acknowledged before its `as_of_ms`
//! ([`staleness`](terrane_oracle::staleness)). Each key has one writer, and the number of a write is its timestamp, so that a
//! late second application of a write changes nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{join_all, try_join, try_join3};
use terrane_client::{AsOf, Client, Consistency, Error, Get, KeyRange, Put, RowData, Scan, Table, TableSpec};
use terrane_oracle::rows::{Change, Reading, Rows};
use terrane_oracle::staleness::Acknowledgements;

use super::cluster_clock::ClusterClock;
use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, PATIENCE, Play, READER, Scenario, TABLE, WORKER_HOSTS, below, open_table, passed,
    passes, patiently, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};

const KEYS: usize = 24;
const WRITERS_PER_HOST: usize = 3;
/// Reads with hedging, and changes regions.
const HEDGER: &str = "r2";
const READERS: usize = 3;

/// Longest pauses between two calls.
const WRITER_PAUSE_MS: u64 = 150;
const READER_PAUSE_MS: u64 = 120;
/// How often the last reading looks whether stale answers have become new enough.
const FRESH_EVERY: Duration = Duration::from_millis(100);

/// Less shows little.
const WRITES_MIN: u64 = 150;
const STALE_MIN: u64 = 100;

/// The scenario.
#[derive(Clone, Default)]
pub struct Stale {
    rows: Rc<RefCell<Rows>>,
    acknowledgements: Rc<RefCell<Acknowledgements>>,
    clock: ClusterClock,
    /// Stale answers, and those that lacked an acknowledged write.
    stale: Rc<Cell<u64>>,
    old: Rc<Cell<u64>>,
}

impl Scenario for Stale {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(write(host, index, shared.clone()))));
        }
        clients.push((READER, Box::pin(read(shared.clone()))));
        clients.push((HEDGER, Box::pin(hedge(shared.clone()))));
        clients.push((CAPTIVE, Box::pin(be_captive(shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let acknowledged = context.state.acknowledged();
        if acknowledged < WRITES_MIN {
            return Some(format!("only {acknowledged} writes were acknowledged"));
        }
        let (stale, old) = (self.stale.get(), self.old.get());
        (stale < STALE_MIN || old == 0).then(|| format!("only {stale} stale answers, {old} of them old"))
    }
}

type Shared = play::Shared<Stale>;

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?.family("f", &[("versions", "1")])?;
    sized(spec, plan, KEYS, key)
}

fn key(number: usize) -> Vec<u8> {
    format!("key-{number:02}").into_bytes()
}

async fn write(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    let writers = WORKER_HOSTS.len() * WRITERS_PER_HOST;
    let tasks = (0..WRITERS_PER_HOST).map(|task| {
        let mine = index * WRITERS_PER_HOST + task;
        let who = format!("{host}.{task}");
        let writer = Writer { who, table: table.clone(), shared: shared.clone() };
        writer.run((0..KEYS).filter(|number| number % writers == mine).map(key).collect())
    });
    join_all(tasks).await.into_iter().collect()
}

/// Writes some keys, one after another; their only writer.
struct Writer {
    who: String,
    table: Table,
    shared: Shared,
}

impl Writer {
    async fn run(self, keys: Vec<Vec<u8>>) -> Result<(), Error> {
        self.shared.until_over(WRITER_PAUSE_MS, async || self.write(&keys[below(keys.len())]).await).await
    }

    /// Writes the next number to a key, retrying until it is acknowledged.
    async fn write(&self, key: &[u8]) -> Result<(), Error> {
        let number = self.shared.rows.borrow_mut().attempt(key, Change::Put);
        let timestamp = i64::try_from(number).expect("few writes");
        let padding = vec![b'p'; self.shared.context.plan.value_bytes];
        let put = Put::new(key).set_at("f", "n", timestamp, number.to_string()).set_at("f", "p", timestamp, padding);
        while let Err(error) = self.table.put(put.clone()).await {
            if !passes(&error) {
                return Err(error);
            }
            trace::note(format_args!("{} did not write {}={number}: {}", self.who, key.escape_ascii(), chain(&error)));
        }
        trace::note(format_args!("{} wrote {}={number}", self.who, key.escape_ascii()));
        self.shared.rows.borrow_mut().acknowledge(key, number);
        if let Some(latest_ms) = self.shared.clock.latest_ms(&self.shared.context) {
            self.shared.acknowledgements.borrow_mut().add(key, number, latest_ms);
        }
        self.shared.context.state.acknowledge();
        Ok(())
    }
}

async fn read(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let readers = (0..READERS).map(|reader| {
        let who = format!("{READER}.{reader}");
        Reader { who, table: table.clone(), shared: shared.clone() }.run()
    });
    join_all(readers).await.into_iter().collect()
}

async fn hedge(shared: Shared) -> Result<(), Error> {
    let client = loop {
        match Client::builder()
            .masters(&shared.context.plan.masters().join(","))
            .timeout(PATIENCE)
            .hedge_reads(true)
            .build()
            .await
        {
            Err(error) if passes(&error) => {}
            done => break done?,
        }
    };
    shared.context.state.until_ready().await;
    let table = open_table(&client, TABLE).await?;
    let context = shared.context.clone();
    let reader = Reader { who: HEDGER.to_owned(), table, shared };
    try_join(reader.run(), maintain(TABLE, || key(below(KEYS)), context)).await.map(drop)
}

/// Clients of the isolated leader, each with its own location cache, so that nothing makes a reader look elsewhere while it
/// is answered.
async fn be_captive(shared: Shared) -> Result<(), Error> {
    let clients = join_all((0..3).map(|_| shared.context.connect(PATIENCE))).await;
    shared.context.state.until_ready().await;
    let patience = shared.context.plan.patience_with_disks(CAPTIVE_PATIENCE);
    let mut tables = Vec::new();
    for client in clients {
        tables.push(open_table(&client?, TABLE).await?.with_timeout(patience));
    }
    let [one, other, third] = <[Table; 3]>::try_from(tables).expect("as many tables as clients");
    let reader = |table, number| {
        let who = format!("{CAPTIVE}.{number}");
        Reader { who, table, shared: shared.clone() }
    };
    let writer = Writer { who: CAPTIVE.to_owned(), table: third, shared: shared.clone() };
    try_join3(reader(one, 0).run_stale(), reader(other, 1).run(), writer.run(vec![b"captive".to_vec()])).await.map(drop)
}

/// Reads in several ways and has every result checked.
struct Reader {
    who: String,
    table: Table,
    shared: Shared,
}

impl Reader {
    /// Reads at all levels until the faults are over.
    async fn run(self) -> Result<(), Error> {
        let act = async || {
            let key = key(below(KEYS));
            let done = match below(10) {
                0 => self.get(&key, Consistency::Strict).await,
                1 | 2 => self.get(&key, Consistency::Linearizable).await,
                3 => self.scan_stale().await,
                4 => self.get_many_stale().await,
                5 => self.exists_stale(&key).await,
                _ => self.get_stale(&key).await.map(drop),
            };
            passed(format_args!("{} did not read", self.who), done)
        };
        self.shared.until_over(READER_PAUSE_MS, act).await
    }

    /// Only reads stale until the faults are over.
    async fn run_stale(self) -> Result<(), Error> {
        let act = async || {
            let done = self.get_stale(&key(below(KEYS))).await.map(drop);
            passed(format_args!("{} did not read", self.who), done)
        };
        self.shared.until_over(READER_PAUSE_MS, act).await
    }

    async fn get(&self, key: &[u8], level: Consistency) -> Result<(), Error> {
        let read = self.shared.rows.borrow().begin_read(key);
        let row = self.table.get(Get::new(key)).consistency(level).await?;
        self.end_read(&read, self.number_in(key, row.as_ref()));
        Ok(())
    }

    fn end_read(&self, read: &Reading, got: u64) {
        self.shared.judge_read(&self.who, self.shared.rows.borrow_mut().end_read(read, got));
    }

    /// Returns the answer's number and time.
    async fn get_stale(&self, key: &[u8]) -> Result<(u64, u64), Error> {
        let found = self.table.get(Get::new(key)).consistency(Consistency::Stale).with_as_of().await?;
        let (got, as_of_ms) = (self.number_in(key, found.value.as_ref()), self.time_of(key, &found));
        self.judge(key, got, as_of_ms);
        Ok((got, as_of_ms))
    }

    async fn get_many_stale(&self) -> Result<(), Error> {
        let keys: Vec<Vec<u8>> = (0..4).map(|_| key(below(KEYS))).collect();
        let gets = self.table.get_many(keys.iter().map(Get::new));
        let found = gets.consistency(Consistency::Stale).with_as_of().await?;
        let as_of_ms = self.time_of(&keys[0], &found);
        for (key, row) in keys.iter().zip(&found.value) {
            self.judge(key, self.number_in(key, row.as_ref()), as_of_ms);
        }
        Ok(())
    }

    async fn exists_stale(&self, key: &[u8]) -> Result<(), Error> {
        let found = self.table.exists(Get::new(key)).consistency(Consistency::Stale).with_as_of().await?;
        let as_of_ms = self.time_of(key, &found);
        // No key is ever deleted.
        if !found.value {
            self.judge(key, 0, as_of_ms);
        }
        Ok(())
    }

    async fn scan_stale(&self) -> Result<(), Error> {
        let scan = Scan::range(KeyRange::prefix(b"key-")).consistency(Consistency::Stale).block_bytes(512);
        let mut stream = self.table.scan(if below(2) == 0 { scan.reverse() } else { scan }).await?;
        let mut rows: BTreeMap<Vec<u8>, RowData> = BTreeMap::new();
        while let Some(row) = stream.next().await {
            let row = row?;
            rows.insert(row.row().to_vec(), row);
        }
        let Some(as_of_ms) = stream.as_of_ms() else {
            self.fail(b"", "a stale scan does not say as of when".to_owned());
            return Ok(());
        };
        for key in (0..KEYS).map(key) {
            self.judge(&key, self.number_in(&key, rows.get(&key)), as_of_ms);
        }
        Ok(())
    }

    fn time_of<T>(&self, key: &[u8], answer: &AsOf<T>) -> u64 {
        answer.as_of_ms.unwrap_or_else(|| {
            self.fail(key, "a stale answer does not say as of when".to_owned());
            0
        })
    }

    /// Judges a stale answer.
    fn judge(&self, key: &[u8], got: u64, as_of_ms: u64) {
        trace::note(format_args!("{} read {}={got} as of {as_of_ms}", self.who, key.escape_ascii()));
        self.shared.context.state.checked();
        self.shared.stale.set(self.shared.stale.get() + 1);
        let acknowledgements = self.shared.acknowledgements.borrow();
        if got < acknowledgements.newest_before(key, u64::MAX) {
            self.shared.old.set(self.shared.old.get() + 1);
        }
        // Without a clock the answer means nothing.
        if let Some(latest_ms) = self.shared.clock.latest_ms(&self.shared.context) {
            if let Err(violation) = acknowledgements.judge(key, got, as_of_ms) {
                self.fail(key, violation.what);
            }
            if as_of_ms > latest_ms {
                self.fail(key, format!("reads as of {as_of_ms}, which is later than {latest_ms}"));
            }
        }
        if let Err(violation) = self.shared.rows.borrow().judge_stale(key, got) {
            self.fail(key, violation.what);
        }
    }

    /// The write that a row shows.
    fn number_in(&self, key: &[u8], row: Option<&RowData>) -> u64 {
        let Some(row) = row else { return 0 };
        let shown = row.versions("f", b"n").next();
        let number = shown.and_then(|(timestamp, value)| {
            let number: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
            (i64::try_from(number).ok() == Some(timestamp)).then_some(number)
        });
        let padding = row.versions("f", b"p").next();
        let whole = padding.is_some_and(|(timestamp, value)| {
            i64::try_from(number.unwrap_or_default()).ok() == Some(timestamp)
                && value.len() == self.shared.context.plan.value_bytes
        });
        match number {
            Some(number) if whole => number,
            _ => {
                self.fail(key, format!("was never written so: {row:?}"));
                0
            }
        }
    }

    fn fail(&self, key: &[u8], what: String) {
        self.shared.fail(&self.who, key, what);
    }
}

/// Reads every key after all writes, linearizably, and stale until the answers have become as new as they must.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let reader = Reader { who: host.to_owned(), table: shared.table(PATIENCE).await?, shared };
    let began_ms = terrane_env::time::wall_ms();
    for key in (0..KEYS).map(key).chain([b"captive".to_vec()]) {
        patiently(async || reader.get(&key, Consistency::Linearizable).await).await?;
        // If they never become that new, the run is stuck.
        while patiently(async || reader.get_stale(&key).await).await?.1 <= began_ms {
            tokio::time::sleep(FRESH_EVERY).await;
        }
    }
    trace::note(format_args!("{host} read {KEYS} keys"));
    Ok(())
}
