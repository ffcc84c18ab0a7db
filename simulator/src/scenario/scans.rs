//! Scans: readers that scan, page, count and sum up, against writers that overwrite, delete and put rows.
//!
//! The table declares its key, so that the rows of a group stay in one region. A group has rows that exist all the time
//! and are overwritten, rows that come and go, and two twins that are written atomically. The first kind must be in every
//! result exactly once and in order, the second is judged by the changes in flight ([`terrane_oracle::rows`]), and a
//! snapshot scan must show two equal twins. Every row has one writer. Numbers are timestamps too, so that a late second
//! application of a put changes nothing; a row whose deletion or re-creation has an unknown outcome is left alone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::future::join_all;
use terrane_client::{Delete, Error, Put, RowMutation, Table, TableSpec};
use terrane_oracle::rows::{Change, Rows};
use terrane_types::KeyRange;

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, PATIENCE, Play, Scenario, TABLE, WORKER_HOSTS, below, create_table, open_table, passes, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};

mod last_reading;
mod pager;
mod scanner;

const FAMILY: &str = "f";
/// Columns: the number of the change, the kind of the row, and bytes that follow from row and number.
const NUMBER: &str = "n";
const KIND: &str = "k";
const PADDING: &str = "p";

const GROUPS: usize = 14;
/// The rows of a group by name. The first letter is the kind: fixed, churning or twin.
const NAMES: [&str; 12] =
    ["fixed", "twin", "churn", "churn", "fixed", "churn", "churn", "fixed", "churn", "churn", "twin", "fixed"];

const WRITERS_PER_HOST: usize = 3;
const WRITERS: usize = WORKER_HOSTS.len() * WRITERS_PER_HOST;
const WRITER_PAUSE_MS: u64 = 140;
/// Most rows of one batch.
const BATCH_MAX: usize = 6;

/// Results without which a run shows little.
const WRITES_MIN: u64 = 200;
const SCANS_MIN: u64 = 50;
const SNAPSHOTS_MIN: u64 = 20;
const PAGES_MIN: u64 = 10;

/// The scenario.
#[derive(Clone, Default)]
pub struct Scans {
    model: Rc<RefCell<Rows>>,
    done: Rc<Done>,
}

/// What readers did.
#[derive(Default)]
struct Done {
    scans: Cell<u64>,
    /// Snapshot scans that showed twins.
    snapshots: Cell<u64>,
    /// Pages that continued at a token.
    pages: Cell<u64>,
}

fn count(one: &Cell<u64>) {
    one.set(one.get() + 1);
}

impl Scenario for Scans {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(write(host, index, shared.clone()))));
        }
        clients.push(("r1", Box::pin(scanner::scan_all_the_time("r1", shared.clone()))));
        clients.push(("r2", Box::pin(page_and_maintain(shared.clone()))));
        clients.push((CAPTIVE, Box::pin(scanner::be_captive(shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(last_reading::read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let Done { scans, snapshots, pages } = &*self.done;
        let there = [context.state.acknowledged(), scans.get(), snapshots.get(), pages.get()];
        let wanted = [WRITES_MIN, SCANS_MIN, SNAPSHOTS_MIN, PAGES_MIN];
        let enough = there.iter().zip(wanted).all(|(there, wanted)| *there >= wanted);
        (!enough).then(|| format!("writes, scans, snapshots and pages: only {there:?} of at least {wanted:?}"))
    }
}

type Shared = play::Shared<Scans>;

/// What happens to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    /// It exists all the time.
    Fixed,
    /// It comes and goes.
    Churn,
    /// As fixed, and equal to the other twin of its group.
    Twin,
}

impl RowKind {
    const fn name(self) -> &'static str {
        match self {
            RowKind::Fixed => "fixed",
            RowKind::Churn => "churn",
            RowKind::Twin => "twin",
        }
    }

    fn of(row: &[u8]) -> RowKind {
        [RowKind::Fixed, RowKind::Twin]
            .into_iter()
            .find(|kind| row.ends_with(kind.name().as_bytes()))
            .unwrap_or(RowKind::Churn)
    }
}

/// The start of a group's rows.
fn group_start(group: usize) -> Vec<u8> {
    u32::try_from(group).expect("few groups").to_be_bytes().to_vec()
}

/// The rows of a group, in order.
fn rows_of(group: usize) -> impl Iterator<Item = Vec<u8>> {
    let row =
        move |(at, name): (usize, &&str)| [&group_start(group)[..], format!("{at:02}-{name}").as_bytes()].concat();
    NAMES.iter().enumerate().map(row)
}

fn rows_of_kind(group: usize, kind: RowKind) -> Vec<Vec<u8>> {
    rows_of(group).filter(|row| RowKind::of(row) == kind).collect()
}

/// The rows of some groups.
fn groups(from: usize, to: usize) -> KeyRange {
    KeyRange { start: group_start(from).into(), end: group_start(to).into() }
}

/// Bytes that follow from row and number, so that a mixture of two writes is detected.
fn padding(row: &[u8], number: u64, bytes: usize) -> Vec<u8> {
    let shift = u8::try_from(number % 251).expect("below 251");
    row.iter().cycle().map(|byte| byte.wrapping_add(shift)).take(bytes).collect()
}

fn put(row: &[u8], number: u64, plan: &Plan) -> Put {
    let timestamp = i64::try_from(number).expect("few writes");
    Put::new(row)
        .set_at(FAMILY, NUMBER, timestamp, number.to_be_bytes())
        .set_at(FAMILY, KIND, timestamp, RowKind::of(row).name())
        .set_at(FAMILY, PADDING, timestamp, padding(row, number, plan.value_bytes))
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let history = ["none", "none", "3s"][usize::try_from(plan.seed % 3).expect("below 3")];
    let spec = TableSpec::new(TABLE)?
        .family(FAMILY, &[("versions", "1")])?
        .key("group:u32, what:tail")?
        .set("atomic", "1")?
        .set("history", history)?;
    sized(spec, plan, GROUPS, group_start)
}

async fn write(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let client = shared.context.connect(PATIENCE).await?;
    if index == 0 {
        create_table(&client, &spec(&shared.context.plan)?).await?;
        (0..GROUPS).flat_map(rows_of).for_each(|row| shared.model.borrow_mut().know(&row));
    }
    if index > 0 {
        shared.context.state.until_ready().await;
    }
    let table = open_table(&client, TABLE).await?;
    if index == 0 {
        let first = Writer {
            who: format!("{host}.first"),
            table: table.clone(),
            groups: (0..GROUPS).collect(),
            shared: shared.clone(),
        };
        first.write_first().await?;
        shared.context.state.ready();
    }
    let writers = (0..WRITERS_PER_HOST).map(|task| {
        let mine = index * WRITERS_PER_HOST + task;
        let groups = (0..GROUPS).filter(|group| group % WRITERS == mine).collect();
        Writer { who: format!("{host}.{task}"), table: table.clone(), groups, shared: shared.clone() }.run()
    });
    join_all(writers).await.into_iter().collect()
}

async fn page_and_maintain(shared: Shared) -> Result<(), Error> {
    let some_row = || group_start(1 + below(GROUPS - 1));
    let maintained = maintain(TABLE, some_row, shared.context.clone());
    let (paged, scanned, maintained) = futures::join!(
        pager::page_all_the_time("r2", shared.clone()),
        scanner::scan_all_the_time("r2", shared),
        maintained
    );
    paged.and(scanned).and(maintained)
}

/// The only writer of its groups.
struct Writer {
    who: String,
    table: Table,
    groups: Vec<usize>,
    shared: Shared,
}

impl Writer {
    /// Writes the rows that exist all the time.
    async fn write_first(&self) -> Result<(), Error> {
        let groups = self.groups.iter().map(|&group| async move {
            self.write_twins(group).await?;
            self.write_together(&rows_of_kind(group, RowKind::Fixed)).await
        });
        join_all(groups).await.into_iter().collect()
    }

    async fn run(self) -> Result<(), Error> {
        let churning = self.groups.iter().flat_map(|&group| rows_of_kind(group, RowKind::Churn));
        let mut churning: Vec<(Vec<u8>, bool)> = churning.map(|row| (row, false)).collect();
        let act = async || {
            let group = self.groups[below(self.groups.len())];
            match below(8) {
                0..=2 => self.write_twins(group).await?,
                3 => {
                    let mut rows: Vec<_> =
                        self.groups.iter().flat_map(|&group| rows_of_kind(group, RowKind::Fixed)).collect();
                    rows.drain(..below(rows.len()));
                    rows.truncate(BATCH_MAX);
                    self.write_together(&rows).await?;
                }
                _ if churning.is_empty() => {}
                _ => {
                    let at = below(churning.len());
                    let (row, exists) = &mut churning[at];
                    let change = if *exists && below(3) > 0 { Change::Delete } else { Change::Put };
                    if self.change(row, change).await? {
                        *exists = change == Change::Put;
                    } else {
                        churning.swap_remove(at);
                    }
                }
            }
            Ok(())
        };
        self.shared.until_over(WRITER_PAUSE_MS, act).await
    }

    fn attempt(&self, row: &[u8], change: Change) -> u64 {
        self.shared.model.borrow_mut().attempt(row, change)
    }

    fn acknowledge(&self, row: &[u8], number: u64) {
        trace::note(format_args!("{} wrote {}={number}", self.who, row.escape_ascii()));
        self.shared.model.borrow_mut().acknowledge(row, number);
        self.shared.context.state.acknowledge();
    }

    /// Puts or deletes a row. Returns whether the outcome is known; if not, the row must be left alone.
    async fn change(&self, row: &[u8], change: Change) -> Result<bool, Error> {
        let number = self.attempt(row, change);
        loop {
            let done = match change {
                Change::Put => self.table.put(put(row, number, &self.shared.context.plan)).await,
                Change::Delete => self.table.delete(Delete::new(row)).await,
            };
            match done {
                Ok(()) => {
                    self.acknowledge(row, number);
                    return Ok(true);
                }
                Err(error) if error.is_uncertain() => {
                    trace::note(format_args!("{} leaves {}: {}", self.who, row.escape_ascii(), chain(&error)));
                    return Ok(false);
                }
                Err(error) if error.is_retry_safe() => {
                    trace::note(format_args!("{} tries again: {}", self.who, chain(&error)))
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the next number to both twins of a group, atomically, until it is acknowledged.
    async fn write_twins(&self, group: usize) -> Result<(), Error> {
        let rows = rows_of_kind(group, RowKind::Twin);
        let numbers: Vec<u64> = rows.iter().map(|row| self.attempt(row, Change::Put)).collect();
        let puts = rows.iter().zip(&numbers).map(|(row, number)| put(row, *number, &self.shared.context.plan).into());
        let puts: Vec<RowMutation> = puts.collect();
        while let Err(error) = self.table.atomic(puts.clone()).await {
            if !passes(&error) {
                return Err(error);
            }
        }
        rows.iter().zip(numbers).for_each(|(row, number)| self.acknowledge(row, number));
        Ok(())
    }

    /// Overwrites several rows in one call, not atomically; those that failed until they are acknowledged.
    async fn write_together(&self, rows: &[Vec<u8>]) -> Result<(), Error> {
        let mut left: Vec<(&Vec<u8>, u64)> = rows.iter().map(|row| (row, self.attempt(row, Change::Put))).collect();
        while !left.is_empty() {
            let puts = left.iter().map(|(row, number)| put(row, *number, &self.shared.context.plan).into()).collect();
            let outcomes = match self.table.mutate_many(puts).await {
                Ok(outcomes) => outcomes,
                Err(error) if passes(&error) => continue,
                Err(error) => return Err(error),
            };
            let mut failed = Vec::new();
            for ((row, number), outcome) in left.into_iter().zip(outcomes) {
                match outcome {
                    Ok(_) => self.acknowledge(row, number),
                    Err(one) if passes(&one.error) => failed.push((row, number)),
                    Err(one) => return Err(one.error),
                }
            }
            left = failed;
        }
        Ok(())
    }
}
