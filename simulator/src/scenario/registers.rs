//! Registers: many clients read, write, delete, add to, and check and mutate a few registers; what they return must be
//! linearizable per register.
//!
//! Unlike in the other scenarios, several clients write each key blindly, so that the order of their writes can only be
//! found by a search ([`linearizability`](terrane_oracle::linearizability)). Written values are unique, and reads return
//! timestamps too, which the conditions on versions test. The rows are few and hot, and the regions change meanwhile.

mod book;
mod worker;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::future::join_all;
use terrane_client::{Error, Get, Table, TableSpec};
use terrane_oracle::linearizability::{Op, Outcome};

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, IMPATIENCE, OPERATOR, PATIENCE, Play, READER, Scenario, TABLE, WORKER_HOSTS,
    below, open_table, patiently, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace;
use book::{Book, NUMBER, PLACES, TEXT, key};
use worker::{Worker, seen};

const WORKERS_PER_HOST: usize = 3;
const READERS: usize = 2;
const CAPTIVES: usize = 2;

/// Longest pauses between two operations.
const WORKER_PAUSE_MS: u64 = 150;
const READER_PAUSE_MS: u64 = 160;

/// Less shows little.
const OPERATIONS_MIN: u64 = 150;
const RESULTS_MIN: usize = 300;

/// The scenario.
#[derive(Clone, Default)]
pub struct Registers {
    book: Rc<RefCell<Book>>,
    gave_up: Rc<Cell<bool>>,
}

type Shared = play::Shared<Registers>;

impl Scenario for Registers {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(work(host, index, shared.clone()))));
        }
        clients.push((READER, Box::pin(read(shared.clone()))));
        let some_row = || key(below(PLACES), below(3));
        clients.push((OPERATOR, Box::pin(maintain(TABLE, some_row, context.clone()))));
        clients.push((CAPTIVE, Box::pin(be_captive(shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let (acknowledged, results) = (context.state.acknowledged(), self.book.borrow().history.known());
        if acknowledged < OPERATIONS_MIN || results < RESULTS_MIN {
            return Some(format!("only {acknowledged} operations with {results} results were acknowledged"));
        }
        self.gave_up.get().then(|| "the search for an order gave up".to_owned())
    }
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?.family("f", &[("versions", "1")])?.family("g", &[("versions", "1")])?;
    sized(spec, plan, PLACES, |place| key(place, 0))
}

fn worker(who: String, table: Table, shared: Shared) -> Worker {
    let padding = vec![b'p'; shared.context.plan.value_bytes];
    Worker { who, table, shared, padding, writes: true, pause_ms: WORKER_PAUSE_MS }
}

async fn work(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    let workers = (0..WORKERS_PER_HOST).map(|number| {
        let patience = if number == 0 { IMPATIENCE } else { PATIENCE };
        worker(format!("{host}.{number}"), table.clone().with_timeout(patience), shared.clone()).run()
    });
    join_all(workers).await.into_iter().collect()
}

async fn read(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let readers = (0..READERS).map(|number| {
        let reader = worker(format!("{READER}.{number}"), table.clone(), shared.clone());
        Worker { writes: false, pause_ms: READER_PAUSE_MS, ..reader }.run()
    });
    join_all(readers).await.into_iter().collect()
}

/// Clients of the isolated leader; one of them only reads. Each has its own location cache, so that a writer that looks for
/// another leader does not make the reader do so.
async fn be_captive(shared: Shared) -> Result<(), Error> {
    let captives = (0..CAPTIVES).map(async |number| {
        let table = shared.table(PATIENCE).await?.with_timeout(CAPTIVE_PATIENCE);
        let captive = worker(format!("{CAPTIVE}.{number}"), table, shared.clone());
        Worker { writes: number > 0, ..captive }.run().await
    });
    join_all(captives).await.into_iter().collect()
}

/// Reads all registers after all writes, also those of retired rows, and judges their whole histories.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let rows = shared.book.borrow().places.rows();
    let reads = {
        let mut book = shared.book.borrow_mut();
        let places = (0..rows).flat_map(|row| [(row, NUMBER), (row, TEXT)]);
        places.map(|place| (place, book.begin(host, place, Op::Read))).collect::<Vec<_>>()
    };
    let keys: Vec<Vec<u8>> = (0..rows).map(|row| shared.book.borrow().places.key(row).to_vec()).collect();
    let found = patiently(async || table.get_many(keys.iter().map(Get::new)).await).await?;
    for ((row, column), id) in reads {
        let outcome = Outcome::Read(seen(found[row].as_ref(), column));
        shared.book.borrow_mut().end(id, (row, column), outcome);
        shared.context.state.checked();
    }
    trace::note(format_args!("{host} read {rows} rows"));
    shared.judge_history(host, &shared.book.borrow().history, &shared.gave_up);
    Ok(())
}
