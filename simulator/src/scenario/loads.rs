//! Bulk loads while regions split, merge and move, leaders change and servers crash: of each run a region takes in all rows
//! or none, and it takes effect once.
//!
//! The table keeps rows that share the first part of their key in one region, so the rows that a load brings under one such
//! part are a unit that no cut of a run ever divides. Readers look at units at one moment each. Some of the units that were
//! loaded are deleted right away: a load that took effect again would bring their rows back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use terrane_client::{BulkOptions, Delete, Error, Put, RowData, Scan, Table, TableSpec};
use terrane_oracle::loaded::{Phase, Unit, Units, shown};
use terrane_types::KeyRange;

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, LAST_PATIENCE, PATIENCE, Play, Scenario, TABLE, all_rows, below, open_table,
    passes, patiently, share_of_numbers, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};
use crate::verdict::Failure;

const FAMILIES: [&str; 2] = ["f", "g"];
const QUALIFIER: &str = "q";

/// Most units of one load, and rows of each unit.
const UNITS_MAX: usize = 16;
const ROWS: usize = 3;
const LOADER_PAUSE_MS: u64 = 1_500;
const READER_PAUSE_MS: u64 = 150;
const READERS_PER_HOST: usize = 2;
/// Acknowledged loads and reads without which a run shows little.
const LOADS_MIN: u64 = 2;
const READS_MIN: u64 = 100;

/// The scenario.
#[derive(Clone)]
pub struct Loads {
    units: Rc<RefCell<Units>>,
    loads: Rc<Cell<u64>>,
    reads: Rc<Cell<u64>>,
}

impl Default for Loads {
    fn default() -> Self {
        Self { units: Rc::new(RefCell::new(Units::new(ROWS))), loads: Rc::default(), reads: Rc::default() }
    }
}

impl Scenario for Loads {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        vec![
            ("w1", Box::pin(load_all_the_time("w1", shared.clone()))),
            ("w2", Box::pin(load_all_the_time("w2", shared.clone()))),
            ("r1", Box::pin(read_all_the_time("r1", PATIENCE, shared.clone()))),
            ("r2", Box::pin(maintain(TABLE, || some_unit().to_vec(), context.clone()))),
            (CAPTIVE, Box::pin(read_all_the_time(CAPTIVE, CAPTIVE_PATIENCE, shared))),
        ]
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, _: &Context) -> Option<String> {
        let (loads, reads) = (self.loads.get(), self.reads.get());
        let enough = loads >= LOADS_MIN && reads >= READS_MIN;
        (!enough).then(|| format!("only {loads} loads and {reads} reads of at least {LOADS_MIN} and {READS_MIN}"))
    }
}

type Shared = play::Shared<Loads>;

impl Shared {
    fn judge_unit(&self, who: &str, unit: &Unit, before: Option<Phase>, rows: usize) {
        self.context.state.checked();
        if let Err(violation) = self.units.borrow().found(unit, before, rows) {
            self.fail_unit(who, unit, &violation);
        }
    }

    fn fail_unit(&self, who: &str, unit: &Unit, what: &str) {
        self.context.state.fail(Failure { what: format!("{who}: {what}"), about: vec![shown(unit)] });
    }

    fn enter(&self, units: &[Unit], phase: Phase) {
        units.iter().for_each(|unit| self.units.borrow_mut().enter(*unit, phase));
    }
}

fn some_unit() -> Unit {
    terrane_env::rand::u64().to_be_bytes()
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?
        .family(FAMILIES[0], &[])?
        .family(FAMILIES[1], &[])?
        .key("unit:u64, row:tail")?
        .set("atomic", "1")?;
    sized(spec, plan, plan.first_regions, |region| share_of_numbers(region, plan))
}

fn key(unit: &Unit, row: usize) -> Vec<u8> {
    [&unit[..], format!("row {row}").as_bytes()].concat()
}

/// A row has the same value in both families, and one value for all rows of a load.
fn put(unit: &Unit, row: usize, load: u64, plan: &Plan) -> Put {
    let value: Vec<u8> = load.to_be_bytes().into_iter().cycle().take(plan.value_bytes.max(8)).collect();
    FAMILIES.into_iter().fold(Put::new(key(unit, row)), |put, family| put.set(family, QUALIFIER, &value))
}

/// What is wrong with the rows of a unit, which all come from one load.
fn disagreement(rows: &[RowData]) -> Option<String> {
    let values: Vec<_> =
        rows.iter().flat_map(|row| FAMILIES.map(|family| row.value(family, QUALIFIER).map(<[u8]>::to_vec))).collect();
    let differ = values.iter().any(|value| value.is_none() || *value != values[0]);
    differ.then(|| format!("has cells that differ: {rows:?}"))
}

async fn load_all_the_time(host: &'static str, shared: Shared) -> Result<(), Error> {
    let index = usize::from(host != "w1");
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    shared.until_over(LOADER_PAUSE_MS, async || load(host, &table, &shared).await).await
}

/// Loads some units, and deletes some of them.
async fn load(host: &str, table: &Table, shared: &Shared) -> Result<(), Error> {
    let number = terrane_env::rand::u64();
    let mut units: Vec<Unit> = (0..=below(UNITS_MAX)).map(|_| some_unit()).collect();
    units.retain(|unit| shared.units.borrow_mut().attempt(*unit));
    let names: Vec<String> = units.iter().map(shown).collect();
    trace::note(format_args!("{host} loads {names:?}"));
    let options = BulkOptions::default().timeout(PATIENCE).runs_in_flight(1 + below(3));
    let mut loader = table.bulk_load(options);
    let loaded = async {
        for row in 0..ROWS {
            for unit in &units {
                loader.put(put(unit, row, number, &shared.context.plan)).await?;
            }
        }
        loader.finish().await
    };
    match loaded.await {
        Ok(summary) => {
            trace::note(format_args!("{host} loaded {names:?}: {summary:?}"));
            shared.enter(&units, Phase::Loaded);
            shared.loads.set(shared.loads.get() + 1);
            shared.context.state.acknowledge();
        }
        Err(error) if passes(&error) => {
            trace::note(format_args!("{host} did not load {names:?}: {}", chain(&error)));
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    let (deleted, _) = units.split_at(units.len() / 2);
    for unit in deleted {
        shared.enter(&[*unit], Phase::Deleting);
        if delete(table, unit).await? {
            trace::note(format_args!("{host} deleted {}", shown(unit)));
            shared.enter(&[*unit], Phase::Deleted);
        }
    }
    Ok(())
}

/// Deletes the rows of a unit; returns whether all of it is acknowledged.
async fn delete(table: &Table, unit: &Unit) -> Result<bool, Error> {
    for row in 0..ROWS {
        match table.delete(Delete::new(key(unit, row))).await {
            Ok(()) => {}
            Err(error) if passes(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

async fn read_all_the_time(host: &'static str, patience: Duration, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?.with_timeout(patience);
    let readers = (0..READERS_PER_HOST).map(|reader| {
        let (who, table, shared) = (format!("{host}.{reader}"), table.clone(), shared.clone());
        async move {
            let act = async || match read(&who, &table, &shared).await {
                // A reader that took its time starts again.
                Err(error) if passes(&error) || matches!(error, Error::SnapshotTooOld) => {
                    trace::note(format_args!("{who} read nothing: {}", chain(&error)));
                    Ok(())
                }
                done => done,
            };
            shared.until_over(READER_PAUSE_MS, act).await
        }
    });
    join_all(readers).await.into_iter().collect()
}

/// Reads the rows of some unit at one moment.
async fn read(who: &str, table: &Table, shared: &Shared) -> Result<(), Error> {
    let unit = shared.units.borrow().some(&some_unit());
    let Some(unit) = unit else { return Ok(()) };
    let before = shared.units.borrow().phase(&unit);
    let rows = all_rows(table, Scan::range(KeyRange::prefix(&unit)).snapshot()).await?;
    trace::note(format_args!("{who} found {} rows of {}", rows.len(), shown(&unit)));
    shared.judge_unit(who, &unit, before, rows.len());
    if let Some(what) = disagreement(&rows) {
        shared.fail_unit(who, &unit, &format!("unit {} {what}", shown(&unit)));
    }
    shared.reads.set(shared.reads.get() + 1);
    Ok(())
}

/// Reads all units after all loads.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    let rows = patiently(async || all_rows(&table, Scan::all()).await).await?;
    let mut there: BTreeMap<Unit, usize> = shared.units.borrow().units().map(|unit| (*unit, 0)).collect();
    for row in &rows {
        let unit = row.row().first_chunk::<8>().copied().unwrap_or_default();
        *there.entry(unit).or_default() += 1;
    }
    for (unit, rows) in &there {
        let phase = shared.units.borrow().phase(unit);
        shared.judge_unit(host, unit, phase, *rows);
    }
    trace::note(format_args!("{host} read {} rows of {} units", rows.len(), there.len()));
    Ok(())
}
