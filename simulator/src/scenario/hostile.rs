//! Hostile clients beside normal ones: requests at and over every limit, malformed, cancelled, or never finished, on the
//! client's interface, on the wire and on the bare connection.
//!
//! Each gets success or an error that says what is wrong, never an internal one. What is accepted can be read, also after a
//! restart of all. The rows of normal clients stay linearizable, and their writes continue. Hostile clients keep to rows of
//! their own: what a key may be, they may write. There are few of them, because what one act shows, a hundred do not show
//! better.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::future::join_all;
use terrane_client::{Error, Get, Put, RowData, Table, TableSpec};
use terrane_oracle::rows::{Change, Rows};

use super::play::{
    self, CAPTIVE, LAST_PATIENCE, PATIENCE, Play, Scenario, TABLE, below, open_table, passed, passes, patiently, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};
use crate::verdict::Failure;

mod calls;
mod connections;
mod requests;

const FAMILY: &str = "f";
const NUMBER: &str = "n";
/// The rows of normal clients; those of hostile ones start with [`HOSTILE_PREFIX`].
const ROWS: usize = 60;
const HOSTILE_PREFIX: &[u8] = b"z-";

const WRITERS: usize = 5;
const READERS: usize = 3;
const WRITER_PAUSE_MS: u64 = 300;
const READER_PAUSE_MS: u64 = 400;
/// Regions are larger than in other scenarios, because a single key may be as large as the smallest region.
const REGION_SIZES: u64 = 16;
/// Longest pause between two hostile acts of one client.
const HOSTILE_PAUSE_MS: u64 = 800;

/// Normal writes and hostile acts without which a run shows little.
const WRITES_MIN: u64 = 100;
const ACTS_MIN: u64 = 80;

/// The sizes of the qualifier and the value of a row.
type Sizes = (usize, usize);

/// The scenario.
#[derive(Clone, Default)]
pub struct Hostile {
    rows: Rc<RefCell<Rows>>,
    writes: Rc<Cell<u64>>,
    /// Hostile acts by kind and outcome.
    acts: Rc<RefCell<BTreeMap<(&'static str, String), u64>>>,
    /// Rows at limits that were acknowledged.
    accepted: Rc<RefCell<BTreeMap<Vec<u8>, Sizes>>>,
}

impl Scenario for Hostile {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        vec![
            ("w1", Box::pin(write_rows(shared.clone()))),
            ("r1", Box::pin(read_rows(shared.clone()))),
            ("w2", Box::pin(calls::call_all_the_time("w2", shared.clone()))),
            ("r2", Box::pin(requests::request_all_the_time("r2", shared.clone()))),
            (CAPTIVE, Box::pin(connections::connect_all_the_time(shared))),
        ]
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, _: &Context) -> Option<String> {
        let (writes, acts) = (self.writes.get(), self.acts.borrow().values().sum::<u64>());
        let enough = writes >= WRITES_MIN && acts >= ACTS_MIN;
        (!enough).then(|| {
            format!("only {writes} normal writes and {acts} hostile acts of at least {WRITES_MIN} and {ACTS_MIN}")
        })
    }
}

type Shared = play::Shared<Hostile>;

impl Shared {
    /// Whether a server has a damaged disk, and so may find damage.
    fn has_damage(&self) -> bool {
        self.context.state.degraded().is_some()
    }

    /// Records a hostile act and its outcome.
    fn act(&self, who: &str, act: &'static str, outcome: String) {
        trace::note(format_args!("{who} {act}: {outcome}"));
        self.context.state.checked();
        *self.acts.borrow_mut().entry((act, outcome)).or_default() += 1;
    }

    fn fail_act(&self, who: &str, what: impl std::fmt::Display) {
        self.context.state.fail(Failure { what: format!("{who}: {what}"), about: vec![who.to_owned()] });
    }
}

/// A key of hostile clients with this many bytes, at least as many as their prefix has.
fn hostile_row(bytes: usize) -> Vec<u8> {
    let drawn = terrane_env::rand::u64().to_be_bytes();
    HOSTILE_PREFIX.iter().copied().chain(drawn.into_iter().cycle()).take(bytes).collect()
}

fn normal_row(at: usize) -> Vec<u8> {
    format!("row-{at:03}").into_bytes()
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?.family(FAMILY, &[("versions", "1")])?;
    Ok(sized(spec, plan, ROWS, normal_row)?.region_size(plan.region_size * REGION_SIZES))
}

/// Normal clients that put ascending numbers, each into its own rows.
async fn write_rows(shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(0, spec).await?, TABLE).await?;
    let writers = (0..WRITERS).map(|writer| {
        let (table, shared) = (table.clone(), shared.clone());
        async move {
            let rows: Vec<Vec<u8>> = (writer..ROWS).step_by(WRITERS).map(normal_row).collect();
            let act = async || write_row(&table, &rows[below(rows.len())], &shared).await;
            shared.until_over(WRITER_PAUSE_MS, act).await
        }
    });
    join_all(writers).await.into_iter().collect()
}

async fn write_row(table: &Table, row: &[u8], shared: &Shared) -> Result<(), Error> {
    let number = shared.rows.borrow_mut().attempt(row, Change::Put);
    let timestamp = i64::try_from(number).expect("few writes");
    let padding = vec![b'p'; shared.context.plan.value_bytes];
    let put = Put::new(row).set_at(FAMILY, NUMBER, timestamp, number.to_be_bytes()).set(FAMILY, "padding", padding);
    while let Err(error) = table.put(put.clone()).await {
        if !passes(&error) {
            return Err(error);
        }
        trace::note(format_args!("w1 did not write {}={number}: {}", row.escape_ascii(), chain(&error)));
    }
    trace::note(format_args!("w1 wrote {}={number}", row.escape_ascii()));
    shared.rows.borrow_mut().acknowledge(row, number);
    shared.writes.set(shared.writes.get() + 1);
    shared.context.state.acknowledge();
    Ok(())
}

async fn read_rows(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let readers = (0..READERS).map(|reader| {
        let (who, table, shared) = (format!("r1.{reader}"), table.clone(), shared.clone());
        async move {
            let act = async || {
                let done = read_row(&who, &table, &normal_row(below(ROWS)), &shared).await;
                passed(format_args!("{who} did not read"), done)
            };
            shared.until_over(READER_PAUSE_MS, act).await
        }
    });
    join_all(readers).await.into_iter().collect()
}

async fn read_row(who: &str, table: &Table, row: &[u8], shared: &Shared) -> Result<(), Error> {
    let read = shared.rows.borrow().begin_read(row);
    let found = table.get(Get::new(row)).await?;
    let number = found.as_ref().map(|found: &RowData| found.read::<u64>(FAMILY, NUMBER)).transpose()?.flatten();
    shared.judge_read(who, shared.rows.borrow_mut().end_read(&read, number.unwrap_or_default()));
    Ok(())
}

/// Reads all rows of normal clients after all writes, and the whole table with all that hostile clients have left.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    for row in (0..ROWS).map(normal_row) {
        patiently(async || read_row(host, &table, &row, &shared).await).await?;
    }
    calls::read_own_rows(host, &table, &shared).await
}
