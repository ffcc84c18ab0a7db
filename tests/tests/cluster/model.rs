//! The whole data model: random sequences of all writes and reads through real servers, while regions split, flush and
//! compact, compared with a plain model (`terrane_oracle::model::plain`).
//!
//! First, one client writes and reads in turn, so that every result must equal the model's. Then many clients
//! increment, append and check-and-mutate concurrently, and the result must be exact (`terrane_oracle::ledger`).
//!
//! A failure names its seed; `TERRANE_SEED` runs only that one.

mod concurrent;
mod hbase;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use terrane_client::{
    Admin, Client, Delete, Error, Get, KeyRange, LatestPer, Number, RowData, Scan, Table, TableSpec, ValueType,
};
use terrane_oracle::model::draw::{Draw, FAMILIES, GROUPS, group_start};
use terrane_oracle::model::plain::{self, Change, Decision, Model, Rows, Seen, Selection};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;
use tokio::task::JoinSet;

use self::requests::{get_of, mutation_of, scan_of};
use crate::{all_rows, with_engine};

const SEEDS: std::ops::Range<u64> = 0..2;
const STEPS: usize = 400;
/// One step in this many also splits, flushes or compacts.
const BESIDE_ONE_IN: usize = 12;
const REGIONS_MAX: usize = 14;

/// Runs the test with each seed, and names the seed of a failure.
async fn with_seeds<F: Future<Output = Result<()>>>(seeds: std::ops::Range<u64>, run: impl Fn(u64) -> F) -> Result<()> {
    let only = std::env::var("TERRANE_SEED").ok().map(|seed| seed.parse().expect("TERRANE_SEED is a number"));
    for seed in only.map_or(seeds, |seed| seed..seed + 1) {
        println!("TERRANE_SEED={seed}");
        run(seed).await.with_context(|| format!("TERRANE_SEED={seed}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_result_equals_the_plain_models_while_regions_split() -> Result<()> {
    with_seeds(SEEDS, async |seed| {
        let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
        let client = cluster.client().await?;
        let mut world = World::new(&client, seed).await?;
        for step in 0..STEPS {
            world.step().await.with_context(|| format!("step {step}"))?;
        }
        world.rest().await;
        world.check_all().await.context("at the end")?;
        cluster.stop_all().await;
        cluster.start_all().await?;
        world.check_all().await.context("after a restart of everything")?;
        cluster.stop_all().await;
        Ok(())
    })
    .await
}

/// A table, its model, and the maintenance of its regions meanwhile.
struct World {
    table: Table,
    admin: Admin,
    model: Model,
    draw: Draw,
    beside: JoinSet<()>,
}

/// A table whose rows of one group can be written atomically.
async fn grouped_table(client: &Client, name: &str) -> Result<Table> {
    let mut spec = TableSpec::new(name)?.key("group:u32, rest:tail")?.set("atomic", "1")?;
    for (family, versions) in FAMILIES {
        spec = spec.family(family, &[("versions", &versions.to_string())])?;
    }
    client.admin().create_table(spec.split_at(&group_start(GROUPS / 2))).await?;
    Ok(client.table(name).await?)
}

impl World {
    async fn new(client: &Client, seed: u64) -> Result<World> {
        let table = grouped_table(client, "model").await?;
        let (model, draw) = (Model::new(&FAMILIES), Draw::new(seed, 0..GROUPS));
        Ok(World { table, admin: client.admin(), model, draw, beside: JoinSet::new() })
    }

    async fn step(&mut self) -> Result<()> {
        if self.draw.one_in(BESIDE_ONE_IN) {
            let (admin, choice, at) = (self.admin.clone(), self.draw.below(3), group_start(self.draw.group()));
            self.beside.spawn(async move { meddle(&admin, choice, &at).await });
        }
        match self.draw.below(20) {
            0..=7 => self.write().await.context("a mutation"),
            8 => self.write_many().await.context("a batch"),
            9 | 10 => self.write_atomically().await.context("an atomic batch"),
            11 | 12 => self.get().await.context("a get"),
            13 | 14 => self.scan().await.context("a scan"),
            15 => self.ends().await.context("ends and neighbours"),
            16 => self.latest().await.context("latest rows"),
            17 => self.numbers().await.context("count and aggregate"),
            18 => self.pages().await.context("pages"),
            _ => self.delete_row().await.context("the delete of a row"),
        }
    }

    async fn rest(&mut self) {
        while self.beside.join_next().await.is_some() {}
    }

    async fn write(&mut self) -> Result<()> {
        let change = self.draw.change();
        let decision = self.model.decide(&change);
        let outcome = self.table.mutate(mutation_of(&change)).await;
        self.judge(&change, decision, outcome)
    }

    /// Compares the outcome of a change with the expected one, and applies it to the model.
    fn judge(
        &mut self,
        change: &Change,
        decision: Decision,
        outcome: Result<terrane_client::MutationOutcome, Error>,
    ) -> Result<()> {
        match (decision, outcome) {
            (Decision::Applied, Ok(outcome)) if outcome.held => {
                let answered = self.model.apply(change, i64::try_from(outcome.stamp_ms)?);
                let got = outcome.row.as_ref().map(seen_in).unwrap_or_default();
                ensure!(got == answered, "{change:?} answered {got:?}, not {answered:?}");
            }
            (Decision::NotHeld(found), Ok(outcome)) if !outcome.held => {
                let got = outcome.row.as_ref().map(seen_in).unwrap_or_default();
                ensure!(got == found, "{change:?} found {got:?}, not {found:?}");
            }
            (Decision::Refused, Err(error)) if error.is_invalid() => {}
            (decision, outcome) => anyhow::bail!("{change:?} should have been {decision:?}, not {outcome:?}"),
        }
        Ok(())
    }

    /// Independent row mutations; those of the same row in the given order.
    async fn write_many(&mut self) -> Result<()> {
        let mut changes: Vec<Change> = (0..=self.draw.below(8)).map(|_| self.draw.change()).collect();
        // A batch that has a row twice is refused if one mutation deletes; then repeat it with each row once.
        if changes.iter().any(|change| change.events.iter().any(|event| event.kind != plain::Kind::Put)) {
            let mut rows = BTreeSet::new();
            changes.retain(|change| rows.insert(change.row.clone()));
        }
        let outcomes = self.table.mutate_many(changes.iter().map(mutation_of).collect()).await?;
        for (change, outcome) in changes.iter().zip(outcomes) {
            let decision = self.model.decide(change);
            self.judge(change, decision, outcome.map_err(|failed| failed.error))?;
        }
        Ok(())
    }

    async fn write_atomically(&mut self) -> Result<()> {
        let changes = self.draw.atomic_changes();
        let decisions: Vec<Decision> = changes.iter().map(|change| self.model.decide(change)).collect();
        let outcome = self.table.atomic(changes.iter().map(mutation_of).collect()).await;
        let refused = decisions.contains(&Decision::Refused);
        let all_held = !decisions.iter().any(|decision| matches!(decision, Decision::NotHeld(_)));
        match outcome {
            Err(error) => ensure!(refused && error.is_invalid(), "{changes:?} failed: {error}"),
            Ok(outcome) if outcome.held => {
                ensure!(all_held && !refused, "{changes:?} was applied, not {decisions:?}");
                for ((change, decision), row) in changes.iter().zip(decisions).zip(outcome.rows) {
                    self.judge(change, decision, Ok(row))?;
                }
            }
            Ok(outcome) => {
                ensure!(!all_held && !refused, "{changes:?} was not applied: {outcome:?}");
                for (decision, row) in decisions.iter().zip(&outcome.rows) {
                    let found = row.row.as_ref().map(seen_in).unwrap_or_default();
                    let expected = if let Decision::NotHeld(found) = decision { &found[..] } else { &[] };
                    ensure!(!row.held && found == expected, "{decision:?} was answered {row:?}");
                }
            }
        }
        Ok(())
    }

    async fn delete_row(&mut self) -> Result<()> {
        let change = self.draw.delete_of_a_row();
        let outcome = self.table.mutate(Delete::new(&change.row)).await;
        self.judge(&change, Decision::Applied, outcome)
    }

    async fn get(&mut self) -> Result<()> {
        let rows: Vec<Vec<u8>> = (0..=self.draw.below(4)).map(|_| self.draw.row()).collect();
        let selection = self.draw.selection();
        let gets: Vec<Get> = rows.iter().map(|row| get_of(row, &selection)).collect();
        let found = if let [get] = &gets[..] {
            vec![self.table.get(get.clone()).await?]
        } else {
            self.table.get_many(gets.clone()).await?
        };
        for (row, found) in rows.iter().zip(&found) {
            let (got, expected) = (found.as_ref().map(seen_in).unwrap_or_default(), self.model.read(row, &selection));
            ensure!(got == expected, "{} reads {got:?}, not {expected:?} ({selection:?})", row.escape_ascii());
        }
        let there = self.table.exists(gets[0].clone()).await?;
        ensure!(there == found[0].is_some(), "{} exists: {there}", rows[0].escape_ascii());
        Ok(())
    }

    async fn scan(&mut self) -> Result<()> {
        let (from, to) = self.draw.range();
        let (selection, reverse) = (self.draw.selection(), self.draw.one_in(2));
        let (offset, limit) = (self.draw.below(6), self.draw.below(12));
        let mut scan = scan_of(&selection, &from, &to).offset(offset as u64).block_bytes(self.draw.block_bytes());
        if limit > 0 {
            scan = scan.limit(limit as u64);
        }
        let mut expected = self.model.scan(&from, &to, &selection);
        if reverse {
            scan = scan.reverse();
            expected.reverse();
        }
        let limit = if limit > 0 { limit } else { usize::MAX };
        let expected: Rows = expected.into_iter().skip(offset).take(limit).collect();
        same_rows(&all_rows(&self.table, scan.clone()).await?, &expected).with_context(|| format!("{scan:?}"))
    }

    async fn ends(&mut self) -> Result<()> {
        let ((from, to), pivot) = (self.draw.range(), self.draw.row());
        let (plain, range) = (Selection::default(), key_range(&from, &to));
        let within = self.model.scan(&from, &to, &plain);
        let all = self.model.scan(b"", b"", &plain);
        let table = &self.table;
        let below = |row: &&(Vec<u8>, Vec<Seen>)| row.0 < pivot;
        let above = |row: &&(Vec<u8>, Vec<Seen>)| row.0 > pivot;
        let is = |row: &&(Vec<u8>, Vec<Seen>)| row.0 == pivot;
        let answers = [
            ("first", table.first(range.clone()).await?, within.first()),
            ("last", table.last(range).await?, within.last()),
            ("lower", table.lower(&pivot).await?, all.iter().rfind(below)),
            ("higher", table.higher(&pivot).await?, all.iter().find(above)),
            ("floor", table.floor(&pivot).await?, all.iter().rfind(|row| below(row) || is(row))),
            ("ceiling", table.ceiling(&pivot).await?, all.iter().find(|row| above(row) || is(row))),
        ];
        for (what, found, expected) in answers {
            let found: Vec<RowData> = found.into_iter().collect();
            let expected: Rows = expected.into_iter().cloned().collect();
            same_rows(&found, &expected).with_context(|| format!("{what} of {}", pivot.escape_ascii()))?;
        }
        Ok(())
    }

    async fn latest(&mut self) -> Result<()> {
        let ((from, to), rows, reverse) = (self.draw.range(), 1 + self.draw.below(3), self.draw.one_in(2));
        let selection = self.draw.selection();
        let per = if self.draw.one_in(2) { LatestPer::parts(1) } else { LatestPer::bytes(4) };
        let mut scan = scan_of(&selection, &from, &to).latest(per, u32::try_from(rows)?);
        let mut all = self.model.scan(&from, &to, &selection);
        if reverse {
            scan = scan.reverse();
            all.reverse();
        }
        let mut of_group: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut counted = |row: &Vec<u8>| {
            let count = of_group.entry(row[..4].to_vec()).or_default();
            *count += 1;
            *count
        };
        let expected: Rows = all.into_iter().filter(|(row, _)| counted(row) <= rows).collect();
        same_rows(&all_rows(&self.table, scan.clone()).await?, &expected).with_context(|| format!("{scan:?}"))
    }

    async fn numbers(&mut self) -> Result<()> {
        let ((from, to), selection) = (self.draw.range(), self.draw.selection());
        let scan = scan_of(&selection, &from, &to);
        let counted = self.table.count(scan.clone()).await?;
        let expected = self.model.scan(&from, &to, &selection).len();
        ensure!(counted == expected as u64, "{scan:?} counts {counted} of {expected}");

        let (family, qualifier) = self.draw.counter();
        let column = Selection { columns: vec![plain::Columns::One(family, qualifier)], ..Selection::default() };
        let rows = self.model.scan(&from, &to, &column);
        let values: Option<Vec<i64>> =
            rows.iter().map(|(_, cells)| Some(i64::from_be_bytes(cells[0].3[..].try_into().ok()?))).collect();
        let range = key_range(&from, &to);
        let aggregate = self.table.aggregate(family, qualifier, ValueType::I64).range(range).await;
        match (values, aggregate) {
            (None, Err(error)) => ensure!(error.is_invalid(), "a column that is no number: {error}"),
            (Some(values), Ok(aggregate)) => {
                let integer = |value: Option<&i64>| value.map(|value| Number::Integer(i128::from(*value)));
                let sum: i128 = values.iter().copied().map(i128::from).sum();
                let sum = (!values.is_empty()).then_some(Number::Integer(sum));
                let got = (aggregate.count(), aggregate.sum(), aggregate.min(), aggregate.max());
                let expected = (values.len() as u64, sum, integer(values.iter().min()), integer(values.iter().max()));
                ensure!(got == expected, "{got:?}, not {expected:?}");
            }
            (values, aggregate) => anyhow::bail!("{aggregate:?} of {values:?}"),
        }
        Ok(())
    }

    async fn pages(&mut self) -> Result<()> {
        let ((from, to), selection, reverse) = (self.draw.range(), self.draw.selection(), self.draw.one_in(2));
        let mut expected = self.model.scan(&from, &to, &selection);
        let mut scan = scan_of(&selection, &from, &to).limit(1 + self.draw.below(6) as u64);
        if reverse {
            scan = scan.reverse();
            expected.reverse();
        }
        let (mut rows, mut next) = (Vec::new(), None);
        loop {
            let page = next.map_or(scan.clone(), |token| scan.clone().after(token));
            let page = self.table.page(page).await?;
            rows.extend(page.rows);
            match page.next {
                Some(token) => next = Some(token.to_string().parse()?),
                None => break,
            }
        }
        same_rows(&rows, &expected).with_context(|| format!("{scan:?}"))
    }

    async fn check_all(&self) -> Result<()> {
        let selection = Selection { versions: 10, ..Selection::default() };
        let expected = self.model.scan(b"", b"", &selection);
        same_rows(&all_rows(&self.table, Scan::all().versions(10)).await?, &expected)
    }
}

/// Maintenance of the regions during reads and writes.
async fn meddle(admin: &Admin, choice: usize, at: &[u8]) {
    // Errors are fine: a region may be split during a flush, or gone before its split. The model decides whether it
    // matters.
    let done = match choice {
        0 => admin.flush_table("model", |_| {}).await.map(drop),
        1 => admin.compact_table("model", |_| {}).await.map(drop),
        _ => split(admin, "model", at).await,
    };
    if let Err(error) = done {
        println!("maintenance: {error}");
    }
}

async fn split(admin: &Admin, table: &str, at: &[u8]) -> Result<(), Error> {
    let regions = admin.regions(Some(table)).await?;
    let there = regions.iter().find(|region| region.descriptor.range.contains(at));
    match there.filter(|region| region.descriptor.range.start != at && regions.len() < REGIONS_MAX) {
        Some(region) => admin.split(region.descriptor.region, Some(at)).await.map(drop),
        None => Ok(()),
    }
}

fn key_range(from: &[u8], to: &[u8]) -> KeyRange {
    KeyRange::new(from.to_vec(), to.to_vec()).expect("drawn in order")
}

fn seen_in(row: &RowData) -> Vec<Seen> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    row.cells().map(|cell| (text(cell.family), text(cell.qualifier), cell.timestamp, cell.value.to_vec())).collect()
}

fn same_rows(found: &[RowData], expected: &Rows) -> Result<()> {
    let found: Rows = found.iter().map(|row| (row.row().to_vec(), seen_in(row))).collect();
    let differ = found.iter().zip(expected).find(|(found, expected)| found != expected);
    ensure!(differ.is_none(), "the first difference is {differ:?} (found, expected)");
    ensure!(found.len() == expected.len(), "{} rows were found, not {}", found.len(), expected.len());
    Ok(())
}
