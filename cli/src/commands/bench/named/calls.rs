//! The calls of `bench run`.
//!
//! A worker chooses and makes one call after the other. What does not change from call to call (names, values, the shares
//! of operations) is made once, so that a call costs little more than the client library itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrane_client::{Error, Get, KeyRange, LatestPer, PageToken, Put, RowMutation, RowStream, Scan, Table};

use super::distribution::Chooser;
use super::inserts::Inserts;
use super::layout::{COUNT, FAMILY, RECORD_KEY_BYTES, Values, point_key, record_key, series_range};
use super::spec::{Kind, Operations, Spec};
use crate::args::bench::run::Operation;
use crate::random::Random;

/// Leading bytes of a point's key that its series has.
const SERIES_BYTES: u32 = 8;

/// What all workers of a run share.
pub struct Shared {
    pub table: Table,
    pub spec: Spec,
    operations: Operations,
    values: Values,
    /// The names of the columns.
    fields: Vec<String>,
    inserts: Inserts,
    /// The time of the next new point, in microseconds: the run's start and the number of points since.
    next_time_us: AtomicU64,
    /// Reads that found no row.
    pub missing: AtomicU64,
}

impl Shared {
    pub fn new(table: Table, spec: Spec) -> Shared {
        Shared {
            operations: Operations::new(&spec.mix),
            values: Values::new(spec.seed, spec.field_bytes),
            fields: (0..spec.fields).map(|field| format!("field{field}")).collect(),
            inserts: Inserts::new(spec.rows),
            next_time_us: AtomicU64::new(terrane_env::time::wall_ms().saturating_mul(1_000)),
            missing: AtomicU64::new(0),
            table,
            spec,
        }
    }

    /// A row with all columns, for filling a table.
    pub fn full_row(&self, key: &[u8], random: &mut Random) -> RowMutation {
        if self.spec.kind == Kind::Counters {
            return RowMutation::new(key).set(FAMILY, COUNT, 0_i64);
        }
        let row = RowMutation::new(key);
        self.fields.iter().fold(row, |row, field| row.set(FAMILY, field, self.values.draw(random)))
    }

    fn next_time_us(&self) -> i64 {
        // The number orders nothing else.
        self.next_time_us.fetch_add(1, Ordering::Relaxed).cast_signed()
    }
}

/// One worker.
pub struct Worker {
    shared: Arc<Shared>,
    choices: Choices,
    /// The page after the last one that was read, and of which series.
    next_page: Option<(u64, PageToken)>,
}

/// What a worker draws. It is apart from what all share, which counts no reference per call that way.
struct Choices {
    random: Random,
    chooser: Chooser,
}

impl Choices {
    /// The number of a row or series.
    fn choose(&mut self, shared: &Shared) -> u64 {
        let choices = match shared.spec.kind {
            Kind::Records => shared.inserts.readable(),
            Kind::Counters | Kind::Series { .. } => shared.spec.choices(),
        };
        self.chooser.choose(&mut self.random, choices)
    }

    /// The key of a record.
    fn record(&mut self, shared: &Shared) -> [u8; RECORD_KEY_BYTES] {
        record_key(self.choose(shared))
    }

    /// A put of one column, as YCSB updates.
    fn one_field(&mut self, shared: &Shared, key: &[u8]) -> Put {
        let field = self.random.below(shared.fields.len() as u64);
        let field = &shared.fields[usize::try_from(field).expect("an index of a list")];
        Put::new(key).set(FAMILY, field, shared.values.draw(&mut self.random))
    }

    /// A new point of any series.
    fn point(&mut self, shared: &Shared) -> RowMutation {
        let key = point_key(self.choose(shared), shared.next_time_us());
        shared.full_row(&key, &mut self.random)
    }
}

impl Worker {
    pub fn new(shared: &Arc<Shared>, chooser: Chooser, number: usize) -> Worker {
        // Adjacent seeds would give overlapping streams; the generator's own output does not.
        let seed = Random::new(shared.spec.seed).draw() ^ Random::new(number as u64).draw();
        let choices = Choices { random: Random::new(seed), chooser };
        Worker { shared: Arc::clone(shared), choices, next_page: None }
    }

    /// The operation of the next call.
    pub fn choose(&mut self) -> Operation {
        self.shared.operations.draw(&mut self.choices.random)
    }

    /// Makes a call and returns how many rows it read or wrote.
    pub async fn call(&mut self, operation: Operation) -> Result<u64, Error> {
        let (shared, choices) = (&*self.shared, &mut self.choices);
        let (table, spec) = (&shared.table, &shared.spec);
        let rows = match operation {
            Operation::Read => u64::from(table.get(Get::new(choices.record(shared))).await?.is_some()),
            Operation::Update => {
                let key = choices.record(shared);
                return table.put(choices.one_field(shared, &key)).await.map(|()| 1);
            }
            Operation::ReadModifyWrite => {
                let key = choices.record(shared);
                let found = table.get(Get::new(key)).await?.is_some();
                table.put(choices.one_field(shared, &key)).await?;
                u64::from(found)
            }
            Operation::Increment => {
                return table.increment(choices.record(shared), FAMILY, COUNT, 1).await.map(|_| 1);
            }
            Operation::Insert if spec.kind == Kind::Records => {
                let record = shared.inserts.begin();
                let inserted = table.mutate(shared.full_row(&record_key(record), &mut choices.random)).await;
                shared.inserts.end(record);
                return inserted.map(|_| 1);
            }
            Operation::Insert => return table.mutate(choices.point(shared)).await.map(|_| 1),
            Operation::Ingest => {
                let points = (0..spec.batch).map(|_| choices.point(shared)).collect();
                return match table.mutate_many(points).await?.into_iter().find_map(Result::err) {
                    Some(row) => Err(row.error),
                    None => Ok(spec.batch),
                };
            }
            Operation::Scan if spec.kind == Kind::Records => {
                let start = choices.record(shared).to_vec().into();
                let limit = 1 + choices.random.below(spec.scan_rows);
                read(table.scan(Scan::range(KeyRange { start, end: Vec::new().into() }).limit(limit)).await?).await?
            }
            Operation::Scan => {
                let scan = Scan::range(series_range(choices.choose(shared), 1));
                read(table.scan(scan.limit(spec.scan_rows)).await?).await?
            }
            Operation::Page => self.page().await?,
            Operation::Latest => {
                let scan = Scan::range(series_range(choices.choose(shared), spec.scan_rows));
                read(table.scan(scan.latest(LatestPer::bytes(SERIES_BYTES), 1)).await?).await?
            }
        };
        if rows == 0 {
            self.shared.missing.fetch_add(1, Ordering::Relaxed);
        }
        Ok(rows)
    }

    /// The first page of a series, or every other time the page after the last one.
    async fn page(&mut self) -> Result<u64, Error> {
        let (shared, choices) = (&*self.shared, &mut self.choices);
        let next = self.next_page.take().filter(|_| choices.random.below(2) == 0);
        let series = next.as_ref().map_or_else(|| choices.choose(shared), |(series, _)| *series);
        let request = shared.table.page(Scan::range(series_range(series, 1))).limit(shared.spec.scan_rows);
        let page = request.after(next.map(|(_, token)| token)).await?;
        self.next_page = page.next.map(|token| (series, token));
        Ok(page.rows.len() as u64)
    }
}

/// Reads all rows and counts them.
async fn read(mut rows: RowStream) -> Result<u64, Error> {
    let mut count = 0;
    while let Some(row) = rows.next().await {
        row?;
        count += 1;
    }
    Ok(count)
}
