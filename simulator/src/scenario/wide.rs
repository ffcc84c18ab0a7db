//! Wide rows and large values: rows of hundreds of KiB in columns of 1 to 64 KiB, in a cluster whose log segments,
//! memtables and caches are smaller than a row. Reads return them in many parts.
//!
//! To the model, a row is a range of columns: columns are put and deleted by the one writer of the row, and a read of some
//! columns has to show them in order, once each ([`terrane_oracle::rows`]). Every mutation also writes the same number
//! into the row's first and last column, which every read of both must show equal, in whatever parts it arrives. A list
//! per row grows by appends ([`terrane_oracle::ledger`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use terrane_client::{Error, TableSpec};
use terrane_oracle::ledger::Ledger;
use terrane_oracle::rows::Rows;

use super::maintenance::maintain;
use super::play::{self, CAPTIVE, PATIENCE, Play, Scenario, TABLE, WORKER_HOSTS, below, open_table, sized};
use crate::context::Context;
use crate::plan::Plan;

mod reader;
mod writer;

const FAMILY: &str = "f";
const LISTS: &str = "l";
const LIST: &str = "list";
const ROWS: usize = 6;
const COLUMNS: usize = 20;
/// The row's first and last column, which are written together with any other.
const FIRST: &str = "a-first";
const LAST: &str = "z-last";
/// The size of an appended part; its first bytes are the operation's token.
const PART_BYTES: usize = 2 << 10;

/// Longer than elsewhere, because rows are large.
const CAPTIVE_PATIENCE: Duration = Duration::from_millis(500);
const WRITES_MIN: u64 = 100;
const READS_MIN: u64 = 50;

/// The scenario.
#[derive(Clone, Default)]
pub struct Wide {
    columns: Rc<RefCell<Rows>>,
    lists: Rc<RefCell<Ledger>>,
    reads: Rc<Cell<u64>>,
}

impl Scenario for Wide {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(write(host, index, shared.clone()))));
        }
        clients.push(("r1", Box::pin(reader::read_all_the_time("r1", PATIENCE, shared.clone()))));
        clients.push(("r2", Box::pin(read_and_maintain(shared.clone()))));
        clients.push((CAPTIVE, Box::pin(reader::read_all_the_time(CAPTIVE, CAPTIVE_PATIENCE, shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(reader::read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let (writes, reads) = (context.state.acknowledged(), self.reads.get());
        let enough = writes >= WRITES_MIN && reads >= READS_MIN;
        (!enough).then(|| format!("only {writes} writes and {reads} reads of at least {WRITES_MIN} and {READS_MIN}"))
    }
}

type Shared = play::Shared<Wide>;

fn row(at: usize) -> Vec<u8> {
    format!("row-{at}").into_bytes()
}

/// All columns of a row in order, without its list.
fn columns() -> impl Iterator<Item = String> {
    let between = (0..COLUMNS).map(|column| format!("c{column:02}"));
    std::iter::once(FIRST.to_owned()).chain(between).chain(std::iter::once(LAST.to_owned()))
}

/// The model's name of a column.
fn object(row: &[u8], column: impl AsRef<[u8]>) -> Vec<u8> {
    [row, b"/", column.as_ref()].concat()
}

/// A value of this size: its number, and then one byte over and over.
fn value(column: &str, number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![filler(column.as_bytes(), number); bytes.max(8)];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// The number of a value; `None` if it was never written so.
fn number_in(column: &[u8], value: &[u8]) -> Option<u64> {
    let (number, rest) = value.split_first_chunk().map(|(number, rest)| (u64::from_be_bytes(*number), rest))?;
    let filler = filler(column, number);
    rest.iter().all(|&byte| byte == filler).then_some(number)
}

fn filler(column: &[u8], number: u64) -> u8 {
    let sum = column.iter().fold(number, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    u8::try_from(sum % 251).expect("below 251")
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let compression = ["none", "lz4", "zstd"][usize::try_from(plan.seed % 3).expect("below 3")];
    let block_size = ["1KiB", "16KiB"][usize::try_from(plan.seed / 3 % 2).expect("below 2")];
    let spec = TableSpec::new(TABLE)?
        .family(FAMILY, &[("versions", "1"), ("compression", compression), ("block_size", block_size)])?
        .family(LISTS, &[("versions", "1")])?;
    sized(spec, plan, ROWS, row)
}

async fn write(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    if index == 0 {
        let all = (0..ROWS).flat_map(|at| columns().map(move |column| object(&row(at), column)));
        all.for_each(|column| shared.columns.borrow_mut().know(&column));
    }
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    let writers = (index..ROWS)
        .step_by(WORKER_HOSTS.len())
        .map(|at| writer::Writer::new(format!("{host}.{at}"), table.clone(), row(at), shared.clone()).run());
    join_all(writers).await.into_iter().collect()
}

async fn read_and_maintain(shared: Shared) -> Result<(), Error> {
    let maintained = maintain(TABLE, || row(1 + below(ROWS - 1)), shared.context.clone());
    let (read, maintained) = futures::join!(reader::read_all_the_time("r2", PATIENCE, shared), maintained);
    read.and(maintained)
}
