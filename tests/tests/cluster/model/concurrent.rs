//! Concurrent clients: counters, lists and registers in regions that split, checked by the ledger.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use futures::future::try_join_all;
use parking_lot::Mutex;
use terrane_client::{Get, Returns, RowData, RowMutation, Table, column};
use terrane_oracle::Fate;
use terrane_oracle::ledger::{Ledger, Operation, token};
use terrane_oracle::model::draw::{Draw, GROUPS, group_start};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;

use super::{grouped_table, split, with_seeds};
use crate::with_engine;

const WRITERS: u64 = 16;
const OPERATIONS_EACH: usize = 60;
/// Few rows, so that several writers compete for each.
const ROWS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_of_few_rows_count_exactly_while_regions_split() -> Result<()> {
    with_seeds(0..1, async |seed| {
        let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
        let client = cluster.client().await?;
        let table = grouped_table(&client, "many").await?;
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let writers = (0..WRITERS).map(|writer| {
            let draw = Draw::new(seed.wrapping_mul(WRITERS).wrapping_add(writer), 0..GROUPS);
            tokio::spawn(Writer { table: table.clone(), ledger: Arc::clone(&ledger), draw }.run())
        });
        let writers: Vec<_> = writers.collect();
        for group in 1..GROUPS {
            split(&client.admin(), "many", &group_start(group)).await?;
        }
        for writer in try_join_all(writers).await? {
            writer?;
        }
        for number in 0..ROWS {
            let found = table.get(Get::new(row(number))).await?;
            let mut ledger = ledger.lock();
            told(number, ledger.final_counter(&object(number, "n"), counter_in(found.as_ref())))?;
            told(number, ledger.final_list(&object(number, "l"), value_in(found.as_ref(), "l")))?;
            told(number, ledger.final_register(&object(number, "v"), register_in(found.as_ref())))?;
        }
        let (applied, refused, unknown) = ledger.lock().counts();
        println!("{applied} applied, {refused} refused");
        anyhow::ensure!(unknown == 0, "{unknown} operations are unknown, and nothing was lost");
        cluster.stop_all().await;
        Ok(())
    })
    .await
}

fn row(number: usize) -> Vec<u8> {
    group_start(number * GROUPS / ROWS + 1)
}

fn object(number: usize, column: &str) -> Vec<u8> {
    [&row(number)[..], column.as_bytes()].concat()
}

fn told(number: usize, verdict: Result<(), String>) -> Result<()> {
    verdict.map_err(|violation| anyhow!("row {number} {violation}"))
}

fn value_in<'a>(row: Option<&'a RowData>, qualifier: &str) -> &'a [u8] {
    row.and_then(|row| row.value("f", qualifier)).unwrap_or_default()
}

fn counter_in(row: Option<&RowData>) -> u64 {
    value_in(row, "n").try_into().map_or(0, u64::from_be_bytes)
}

fn register_in(row: Option<&RowData>) -> Operation {
    value_in(row, "v").try_into().map_or(0, u64::from_be_bytes)
}

struct Writer {
    table: Table,
    ledger: Arc<Mutex<Ledger>>,
    draw: Draw,
}

impl Writer {
    async fn run(mut self) -> Result<()> {
        for _ in 0..OPERATIONS_EACH {
            let number = self.draw.below(ROWS);
            match self.draw.below(3) {
                0 => self.increment(number).await?,
                1 => self.append(number).await?,
                _ => self.replace(number).await?,
            }
        }
        Ok(())
    }

    async fn increment(&self, number: usize) -> Result<()> {
        let begun = self.ledger.lock().begin(&object(number, "n"));
        let value = self.table.increment(row(number), "f", "n", 1).await?;
        told(number, self.ledger.lock().incremented(&begun, u64::try_from(value)?))
    }

    async fn append(&self, number: usize) -> Result<()> {
        let begun = self.ledger.lock().begin(&object(number, "l"));
        let value = self.table.append(row(number), "f", "l", token(begun.operation)).await?;
        told(number, self.ledger.lock().appended(&begun, &value))
    }

    async fn replace(&self, number: usize) -> Result<()> {
        let found = self.table.get(Get::new(row(number)).column("f", "v")).await?;
        let before = register_in(found.as_ref());
        let begun = self.ledger.lock().begin_replacing(&object(number, "v"), before);
        let there = column("f", "v");
        let condition = if before == 0 { there.is_absent() } else { there.equals(token(before)) };
        let mutation = RowMutation::new(row(number)).set("f", "v", token(begun.operation)).returning(Returns::Old);
        let outcome = self.table.mutate(mutation.when(condition)).await?;
        let mut ledger = self.ledger.lock();
        if !outcome.held {
            return told(number, ledger.end(&begun, Fate::Refused));
        }
        told(number, ledger.replaced(&begun))?;
        let old = register_in(outcome.row.as_ref());
        anyhow::ensure!(old == before, "{before} was replaced, and {old} returned as what was there");
        Ok(())
    }
}
