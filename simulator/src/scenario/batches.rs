//! Batches: rows, and pairs of rows, that are written and deleted as a whole must always be seen as a whole; rows with
//! several versions must show exactly those that a model has.
//!
//! As in HBase's `AcidGuarantees`, every write of a group gives all columns of two families one new value, or deletes all
//! of them, and every read demands that they agree. Pairs are written by atomic batches, some of which have conditions that
//! contradict each other; single rows are also written by calls that are not atomic. In addition, the values of each
//! group must be linearizable, and families with three versions are compared with a model.

mod groups;
mod owned;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::future::{join_all, try_join};
use terrane_client::{Error, Get, RowData, Table, TableSpec};
use terrane_oracle::linearizability::{History, Op, Outcome};
use terrane_oracle::versions;

use super::maintenance::maintain;
use super::places::{Places, Row};
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, IMPATIENCE, OPERATOR, PATIENCE, Play, READER, Scenario, TABLE, WORKER_HOSTS,
    below, open_table, patiently, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace;

const WORKERS_PER_HOST: usize = 2;
const WRITERS_PER_HOST: usize = 2;

/// Longest pauses between two operations.
const WORKER_PAUSE_MS: u64 = 160;
const WRITER_PAUSE_MS: u64 = 250;
const READER_PAUSE_MS: u64 = 200;

/// A group is replaced after so many operations, or so many with unknown outcomes.
const OPERATIONS_MAX: usize = 300;
const UNKNOWN_MAX: usize = 12;
/// A row with versions is replaced after so many writes, or one with an unknown outcome.
const WRITES_MAX: usize = 60;

/// Less shows little.
const ACKNOWLEDGED_MIN: u64 = 150;
const RESULTS_MIN: usize = 300;

/// The scenario.
#[derive(Clone, Default)]
pub struct Batches {
    book: Rc<RefCell<Book>>,
    gave_up: Rc<Cell<bool>>,
}

/// What was done and seen.
struct Book {
    groups: Places,
    history: History,
    /// The last value that some client gave a group under a condition.
    newest: BTreeMap<Row, Vec<u8>>,
    owned: Places,
    rows: BTreeMap<Row, versions::Row>,
}

impl Default for Book {
    fn default() -> Book {
        Book {
            groups: Places::new(groups::PLACES, groups::name, OPERATIONS_MAX, UNKNOWN_MAX),
            history: History::default(),
            newest: BTreeMap::new(),
            owned: Places::new(owned::PLACES, owned::key, WRITES_MAX, 1),
            rows: BTreeMap::new(),
        }
    }
}

impl Book {
    /// The model of a row with versions.
    fn row(&mut self, row: Row) -> &mut versions::Row {
        self.rows.entry(row).or_insert_with(owned::new_row)
    }
}

type Shared = play::Shared<Batches>;

impl Shared {
    fn worker(&self, who: String, table: Table) -> groups::Worker {
        // Eight columns share what one has in other scenarios.
        let padding = vec![b'p'; self.context.plan.value_bytes / 8];
        let shared = self.clone();
        groups::Worker { who, table, shared, padding, writes: true, pause_ms: WORKER_PAUSE_MS }
    }

    fn reader(&self, who: String, table: Table) -> owned::Reader {
        owned::Reader { who, table, shared: self.clone(), pause_ms: READER_PAUSE_MS }
    }
}

impl Scenario for Batches {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(work(host, index, shared.clone()))));
        }
        clients.push((READER, Box::pin(read(shared.clone()))));
        let some_row = || if below(2) == 0 { groups::name(below(groups::PLACES), below(3)) } else { some_owned() };
        clients.push((OPERATOR, Box::pin(maintain(TABLE, some_row, context.clone()))));
        clients.push((CAPTIVE, Box::pin(be_captive(shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let (acknowledged, results) = (context.state.acknowledged(), self.book.borrow().history.known());
        if acknowledged < ACKNOWLEDGED_MIN || results < RESULTS_MIN {
            return Some(format!("only {acknowledged} operations with {results} results were acknowledged"));
        }
        self.gave_up.get().then(|| "the search for an order gave up".to_owned())
    }
}

fn some_owned() -> Vec<u8> {
    // Without the tail of the key: a split does not separate rows with one number.
    owned::key(below(owned::PLACES), below(3))[..4].to_vec()
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?
        .family("f", &[("versions", "1")])?
        .family("g", &[("versions", "1")])?
        .family("v", &[("versions", &owned::VERSIONS.to_string())])?
        .key("number:u32, side:tail")?
        .set("atomic", "1")?;
    sized(spec, plan, groups::PLACES, |place| groups::name(place, 0))
}

async fn work(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    let workers = (0..WORKERS_PER_HOST).map(|number| {
        let patience = if number == 0 { IMPATIENCE } else { PATIENCE };
        shared.worker(format!("{host}.{number}"), table.clone().with_timeout(patience)).run()
    });
    let owners = WORKER_HOSTS.len() * WRITERS_PER_HOST;
    let writers = (0..WRITERS_PER_HOST).map(|number| {
        let mine = index * WRITERS_PER_HOST + number;
        let places = (0..owned::PLACES).filter(|place| place % owners == mine).collect();
        let reader = shared.reader(format!("{host}.writer{number}"), table.clone());
        owned::Writer { reader, places, pause_ms: WRITER_PAUSE_MS }.run()
    });
    let (worked, wrote) = futures::join!(join_all(workers), join_all(writers));
    worked.into_iter().chain(wrote).collect()
}

async fn read(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let groups = groups::Worker { writes: false, ..shared.worker(READER.to_owned(), table.clone()) };
    try_join(groups.run(), shared.reader(READER.to_owned(), table).run()).await.map(drop)
}

/// Clients of the isolated leader. The reader has its own location cache, so that a writer that looks for another leader
/// does not make it do so.
async fn be_captive(shared: Shared) -> Result<(), Error> {
    let (reading, writing) = (shared.context.connect(PATIENCE).await?, shared.context.connect(PATIENCE).await?);
    shared.context.state.until_ready().await;
    let read_from = open_table(&reading, TABLE).await?.with_timeout(CAPTIVE_PATIENCE);
    let patience = shared.context.plan.patience_with_disks(CAPTIVE_PATIENCE);
    let write_to = open_table(&writing, TABLE).await?.with_timeout(patience);
    let reader = shared.reader(CAPTIVE.to_owned(), read_from);
    try_join(shared.worker(CAPTIVE.to_owned(), write_to).run(), reader.run()).await.map(drop)
}

/// Reads all groups and rows after all writes, also the replaced ones, and judges the whole history.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let worker = shared.worker(host.to_owned(), table.clone());
    let groups = shared.book.borrow().groups.rows();
    for group in 0..groups {
        let name = shared.book.borrow().groups.key(group).to_vec();
        let rows = groups::rows_of(&name);
        let id = shared.book.borrow_mut().history.begin(host, &name, Op::Read, trace::now());
        let found = patiently(async || table.get_many(rows.iter().map(Get::new)).await).await?;
        worker.check_alike(&name, found.iter().map(Option::as_ref));
        let seen = worker.seen(&name, found.first().and_then(|row: &Option<RowData>| row.as_ref()));
        shared.book.borrow_mut().history.end(id, Outcome::Read(seen), trace::now());
        shared.context.state.checked();
    }
    let reader = shared.reader(host.to_owned(), table);
    let rows = shared.book.borrow().owned.rows();
    for row in 0..rows {
        patiently(async || reader.read_all(row).await).await?;
    }
    trace::note(format_args!("{host} read {groups} groups and {rows} rows"));
    shared.judge_history(host, &shared.book.borrow().history, &shared.gave_up);
    Ok(())
}
