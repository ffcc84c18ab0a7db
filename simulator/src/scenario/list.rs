//! A big linked list, as HBase and Accumulo test themselves with: writers put nodes under random keys, in many regions,
//! and each node refers to one whose write was acknowledged before. Walkers follow the references meanwhile.
//!
//! Half of the writers put batches of nodes, the others use a batch writer. The nodes of a batch are spread over all regions,
//! or neighbours in one region; such a call takes several requests to the region, one after another. The content of a node never changes, so it can be
//! written again after an error.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use terrane_client::{BatchWriter, Error, Get, Put, RowData, Scan, Table, TableSpec, WriterOptions};
use terrane_oracle::Verdict;
use terrane_oracle::linked::{Key, Nodes, shown};
use terrane_types::KeyRange;

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, LAST_PATIENCE, PATIENCE, Play, Scenario, TABLE, all_rows, below, open_table,
    passed, passes, patiently, pause, share_of_numbers, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace;
use crate::verdict::Failure;

const FAMILY: &str = "f";
const REFERENCE: &str = "r";
const PADDING: &str = "p";

const WRITERS_PER_HOST: usize = 3;
/// Nodes that a writer writes at once; each refers to one of the batch before.
const BATCH: usize = 10;
const WRITER_PAUSE_MS: u64 = 1_000;
/// Nodes whose keys share so many first bytes are in one region, but for rare splits between them.
const SHARED_BYTES: usize = 3;
const WALKERS_PER_HOST: usize = 2;
const WALKER_PAUSE_MS: u64 = 200;
/// Most references that a walk follows.
const STEPS_MAX: usize = 8;
/// Acknowledged nodes and steps of walks without which a run shows little.
const NODES_MIN: u64 = 400;
const STEPS_MIN: u64 = 200;

/// The scenario.
#[derive(Clone, Default)]
pub struct List {
    nodes: Rc<RefCell<Nodes>>,
    steps: Rc<Cell<u64>>,
}

impl Scenario for List {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        vec![
            ("w1", Box::pin(write_batches(shared.clone()))),
            ("w2", Box::pin(write_through_writers(shared.clone()))),
            ("r1", Box::pin(walk_all_the_time("r1", PATIENCE, shared.clone()))),
            ("r2", Box::pin(maintain(TABLE, || some_key().to_vec(), context.clone()))),
            (CAPTIVE, Box::pin(walk_all_the_time(CAPTIVE, CAPTIVE_PATIENCE, shared))),
        ]
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, _: &Context) -> Option<String> {
        let (nodes, steps) = (self.nodes.borrow().acknowledged(), self.steps.get());
        let enough = nodes >= NODES_MIN && steps >= STEPS_MIN;
        (!enough).then(|| format!("only {nodes} nodes and {steps} steps of at least {NODES_MIN} and {STEPS_MIN}"))
    }
}

type Shared = play::Shared<List>;

impl Shared {
    /// As the others' `judge`, with the key as the trace shows it.
    fn judge_node(&self, who: &str, key: &[u8], verdict: Verdict) {
        self.context.state.checked();
        if let Err(violation) = verdict {
            let about = key.iter().map(|byte| format!("{byte:02x}")).collect();
            self.context.state.fail(Failure { what: format!("{who}: {violation}"), about: vec![about] });
        }
    }
}

fn some_key() -> Key {
    terrane_env::rand::u64().to_be_bytes()
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?.family(FAMILY, &[])?;
    sized(spec, plan, plan.first_regions, |region| share_of_numbers(region, plan))
}

/// What a node refers to; no value ends the list.
fn put(key: &Key, refers_to: Option<Key>, plan: &Plan) -> Put {
    let padding: Vec<u8> = key.iter().copied().cycle().take(plan.value_bytes).collect();
    let put = Put::new(key).set(FAMILY, PADDING, padding);
    refers_to.into_iter().fold(put, |put, refers_to| put.set(FAMILY, REFERENCE, refers_to))
}

/// The key of a node and what it refers to; its padding must be its own.
fn node_in(row: &RowData) -> Result<(Key, Option<Key>), String> {
    let unreadable = || format!("{row:?} is no node");
    let key = Key::try_from(&row.row()[..]).map_err(|_| unreadable())?;
    let padding = row.value(FAMILY, PADDING).unwrap_or_default();
    let is_own = !padding.is_empty() && key.iter().cycle().zip(padding).all(|(one, other)| one == other);
    let reference = row.value(FAMILY, REFERENCE).map(Key::try_from).transpose();
    reference.ok().filter(|_| is_own).map(|reference| (key, reference)).ok_or_else(unreadable)
}

async fn write_batches(shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(0, spec).await?, TABLE).await?;
    let writers = (0..WRITERS_PER_HOST).map(|writer| {
        let writer =
            Writer { who: format!("w1.{writer}"), table: table.clone(), shared: shared.clone(), batches: None };
        writer.run()
    });
    join_all(writers).await.into_iter().collect()
}

async fn write_through_writers(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let options = WriterOptions::default().batch_rows(BATCH - 1).batches_in_flight(2);
    let writers = (0..WRITERS_PER_HOST).map(|writer| {
        let batches = Some(table.writer(options));
        Writer { who: format!("w2.{writer}"), table: table.clone(), shared: shared.clone(), batches }.run()
    });
    join_all(writers).await.into_iter().collect()
}

/// Writes one batch of nodes after another.
struct Writer {
    who: String,
    table: Table,
    shared: Shared,
    batches: Option<BatchWriter>,
}

impl Writer {
    async fn run(self) -> Result<(), Error> {
        let mut before: Vec<Key> = Vec::new();
        while !self.shared.context.state.is_over() {
            before = self.write(&before).await?;
            pause(WRITER_PAUSE_MS).await;
        }
        Ok(())
    }

    /// Writes a batch of nodes until all are acknowledged. Each refers to one of the batch before, so no reference is
    /// written before its node was acknowledged.
    async fn write(&self, before: &[Key]) -> Result<Vec<Key>, Error> {
        let refers_to = |at: usize| before.get((at + 1) % BATCH).copied();
        let (common, shared) = (some_key(), if below(2) == 0 { 0 } else { SHARED_BYTES });
        let unused = |at: usize| (self.unused_key(&common[..shared], refers_to(at)), refers_to(at));
        let keys: Vec<(Key, Option<Key>)> = (0..BATCH).map(unused).collect();
        let mut left = keys.clone();
        while !left.is_empty() {
            let failed = match &self.batches {
                Some(batches) => self.flush(batches, &left).await,
                None => self.send(&left).await,
            };
            let failed = match failed {
                Ok(failed) => failed,
                Err(error) if passes(&error) => continue,
                Err(error) => return Err(error),
            };
            for (key, _) in left.iter().filter(|(key, _)| !failed.contains(&key.to_vec())) {
                trace::note(format_args!("{} wrote {}", self.who, shown(key)));
                self.shared.nodes.borrow_mut().acknowledge(key);
                self.shared.context.state.acknowledge();
            }
            left.retain(|(key, _)| failed.contains(&key.to_vec()));
        }
        Ok(keys.into_iter().map(|(key, _)| key).collect())
    }

    fn unused_key(&self, start: &[u8], refers_to: Option<Key>) -> Key {
        loop {
            let mut key = some_key();
            key[..start.len()].copy_from_slice(start);
            if self.shared.nodes.borrow_mut().attempt(key, refers_to) {
                return key;
            }
        }
    }

    /// Sends nodes in one call; returns those that are not acknowledged.
    async fn send(&self, nodes: &[(Key, Option<Key>)]) -> Result<Vec<Vec<u8>>, Error> {
        let plan = &self.shared.context.plan;
        let puts = nodes.iter().map(|(key, refers_to)| put(key, *refers_to, plan).into()).collect();
        let failed = self.table.mutate_many(puts).await?.into_iter().filter_map(Result::err).collect();
        Self::rows_of(failed)
    }

    /// Writes nodes through a batch writer; returns those that are not acknowledged.
    async fn flush(&self, batches: &BatchWriter, nodes: &[(Key, Option<Key>)]) -> Result<Vec<Vec<u8>>, Error> {
        for (key, refers_to) in nodes {
            batches.put(put(key, *refers_to, &self.shared.context.plan)).await?;
        }
        match batches.flush().await {
            Ok(_) => Ok(Vec::new()),
            Err(failed) => Self::rows_of(failed.rows),
        }
    }

    fn rows_of(failed: Vec<terrane_client::RowError>) -> Result<Vec<Vec<u8>>, Error> {
        let row = |failed: terrane_client::RowError| {
            if passes(&failed.error) { Ok(failed.row.to_vec()) } else { Err(failed.error) }
        };
        failed.into_iter().map(row).collect()
    }
}

async fn walk_all_the_time(host: &'static str, patience: Duration, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?.with_timeout(patience);
    let walkers = (0..WALKERS_PER_HOST).map(|walker| {
        let walker = Walker { who: format!("{host}.{walker}"), table: table.clone(), shared: shared.clone() };
        async move {
            let act = async || passed(format_args!("{} stops", walker.who), walker.walk().await);
            walker.shared.until_over(WALKER_PAUSE_MS, act).await
        }
    });
    join_all(walkers).await.into_iter().collect()
}

/// Follows references from one node to the next.
struct Walker {
    who: String,
    table: Table,
    shared: Shared,
}

impl Walker {
    /// Walks from some acknowledged node. Every node that it reaches was acknowledged before, so it must exist.
    async fn walk(&self) -> Result<(), Error> {
        let mut next = self.shared.nodes.borrow().some_acknowledged(&some_key());
        let by_scan = below(3) == 0;
        for _ in 0..STEPS_MAX {
            let Some(key) = next else { break };
            let row = if by_scan { self.first_from(&key).await? } else { self.table.get(Get::new(key)).await? };
            let found = row.as_ref().map(node_in).transpose();
            let verdict = found.and_then(|found| {
                let found = found.filter(|(there, _)| *there == key).map(|(_, refers_to)| refers_to);
                next = found.flatten();
                self.shared.nodes.borrow().found(&key, found)
            });
            self.shared.judge_node(&self.who, &key, verdict);
            self.shared.steps.set(self.shared.steps.get() + 1);
        }
        trace::note(format_args!("{} walked", self.who));
        Ok(())
    }

    /// The first row of a scan that starts at a node is that node.
    async fn first_from(&self, key: &Key) -> Result<Option<RowData>, Error> {
        self.table.ceiling(key).await
    }
}

/// Reads all nodes after all writes, and counts them.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    let mut there = BTreeMap::new();
    let rows = patiently(async || all_rows(&table, Scan::all()).await).await?;
    for row in &rows {
        match node_in(row) {
            Ok((key, refers_to)) => drop(there.insert(key, refers_to)),
            Err(violation) => shared.judge_node(host, row.row(), Err(violation)),
        }
    }
    shared.judge_node(host, b"", shared.nodes.borrow().all(&there));
    let counted = patiently(async || table.count(KeyRange::all()).await).await?;
    let lengths = [rows.len() as u64, there.len() as u64, counted];
    let same = lengths.iter().all(|length| *length == lengths[0]);
    let differ = || Err(format!("scanned, distinct and counted {lengths:?} nodes"));
    shared.judge_node(host, b"", if same { Ok(()) } else { differ() });
    trace::note(format_args!("{host} read {lengths:?} nodes"));
    Ok(())
}
