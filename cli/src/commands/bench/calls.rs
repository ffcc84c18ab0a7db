//! The calls of a mix: how they are chosen and made.
//!
//! A worker chooses and makes one call after the other. What does not change from call to call (names, values, the shares
//! of operations) is made once, so that a call costs little more than the client library itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrane_client::{
    Error, Get, Invalid, KeyRange, LatestPer, MutationOutcome, Number, PageToken, Put, RowMutation, RowStream, Scan,
    Table, ValueType, column,
};

use super::distribution::{Chooser, row_of, scan_start, stream};
use super::inserts::Inserts;
use super::layout::{COUNT, FAMILY, Key, NUMBER, QUALIFIER, STATE, Values, filled_key, point_key, series_range};
use super::spec::{Kind, Operations, Spec};
use super::tally::Tally;
use crate::args::bench::run::{Known, Operation};
use crate::random::Random;

/// Leading bytes of a point's key that its series has.
const SERIES_BYTES: u32 = 8;
/// Rows of a full scan between two reports: few enough for a line per second, enough to keep reports cheap.
const ROWS_PER_REPORT: u64 = 4_096;
/// Trailing digits cut off a key to get the prefix whose first or last row is read: 100 rows share it.
const END_DIGITS: usize = 2;

/// What all workers of a run share.
pub struct Shared {
    pub table: Table,
    pub spec: Spec,
    operations: Operations,
    values: Values,
    /// The names of the columns.
    fields: Vec<String>,
    inserts: Inserts,
    /// The first row of the next batch of a load.
    next_row: AtomicU64,
    /// The time of the next new point, in microseconds: the run's start and the number of points since.
    next_time_us: AtomicU64,
    /// Reads that found no row.
    pub missing: AtomicU64,
    pub tally: Tally,
}

impl Shared {
    pub fn new(table: Table, spec: Spec) -> Arc<Shared> {
        let field = |field| if spec.kind == Kind::Numbered { QUALIFIER.to_owned() } else { format!("field{field}") };
        Arc::new(Shared {
            operations: Operations::new(&spec.mix),
            values: Values::new(spec.seed, spec.field_bytes),
            fields: (0..spec.fields).map(field).collect(),
            inserts: Inserts::new(spec.rows),
            next_row: AtomicU64::new(0),
            next_time_us: AtomicU64::new(terrane_env::time::wall_ms().saturating_mul(1_000)),
            missing: AtomicU64::new(0),
            tally: Tally::default(),
            table,
            spec,
        })
    }

    /// A row with all columns.
    fn full_row(&self, key: impl AsRef<[u8]>, random: &mut Random) -> RowMutation {
        let row = RowMutation::new(key);
        if self.spec.kind == Kind::Counters {
            return row.set(FAMILY, COUNT, 0_i64);
        }
        self.fields.iter().fold(row, |row, field| row.set(FAMILY, field, self.values.draw(random)))
    }

    /// A row that a table is filled with.
    fn filled_row(&self, row: u64, random: &mut Random) -> RowMutation {
        let filled = self.full_row(filled_key(&self.spec, row), random);
        if self.spec.known == Known::Sum { filled.set(FAMILY, NUMBER, row.to_be_bytes()) } else { filled }
    }

    /// The next rows of a load; `None` once all are written.
    fn rows_to_load(&self) -> Option<Range<u64>> {
        let Spec { rows, batch, .. } = self.spec;
        // The number orders nothing else.
        let first = self.next_row.fetch_add(batch, Ordering::Relaxed);
        (first < rows).then(|| first..rows.min(first + batch))
    }

    fn next_time_us(&self) -> i64 {
        // The number orders nothing else.
        self.next_time_us.fetch_add(1, Ordering::Relaxed).cast_signed()
    }

    fn missed(&self) {
        self.missing.fetch_add(1, Ordering::Relaxed);
    }
}

/// One worker.
pub struct Worker {
    shared: Arc<Shared>,
    choices: Choices,
    number: usize,
    /// The page after the last one that was read, and of which series.
    next_page: Option<(u64, PageToken)>,
    /// The rows of the next call of a load.
    to_load: Range<u64>,
    has_scanned: bool,
    /// The state that `cas` last set in each row.
    states: BTreeMap<u64, u64>,
}

/// What a worker draws. It is apart from what all share, which counts no reference per call that way.
struct Choices {
    random: Random,
    chooser: Chooser,
    /// The last row or series.
    chosen: u64,
}

impl Choices {
    /// The number of a row or series.
    fn choose(&mut self, shared: &Shared) -> u64 {
        let choices = match shared.spec.kind {
            Kind::Records => shared.inserts.readable(),
            Kind::Counters | Kind::Series { .. } | Kind::Numbered => shared.spec.choices(),
        };
        self.chosen = self.chooser.choose(&mut self.random, choices);
        self.chosen
    }

    /// The key of a row.
    fn key(&mut self, shared: &Shared) -> Key {
        Key::new(shared.spec.kind, self.choose(shared))
    }

    /// A put of one column, as YCSB updates.
    fn one_field(&mut self, shared: &Shared) -> Put {
        let key = self.key(shared);
        self.put(shared, key)
    }

    fn put(&mut self, shared: &Shared, key: Key) -> Put {
        let field = self.random.below(shared.fields.len() as u64);
        let field = &shared.fields[usize::try_from(field).expect("an index of a list")];
        Put::new(key).set(FAMILY, field, shared.values.draw(&mut self.random))
    }

    /// A new point of any series.
    fn point(&mut self, shared: &Shared) -> RowMutation {
        let key = point_key(self.choose(shared), shared.next_time_us());
        shared.full_row(key, &mut self.random)
    }

    fn scan(&mut self, shared: &Shared) -> Scan {
        let Spec { kind, rows, scan_rows, reverse, .. } = shared.spec;
        let range = |start: &[u8], end: &[u8]| KeyRange { start: start.to_vec().into(), end: end.to_vec().into() };
        match kind {
            Kind::Records | Kind::Counters => {
                let start = self.key(shared);
                Scan::range(range(start.as_ref(), &[])).limit(1 + self.random.below(scan_rows))
            }
            Kind::Series { .. } => Scan::range(series_range(self.choose(shared), 1)).limit(scan_rows),
            Kind::Numbered => {
                let first = scan_start(&mut self.random, rows, scan_rows);
                let scan = if reverse {
                    Scan::range(range(&[], Key::new(kind, first.saturating_add(scan_rows)).as_ref())).reverse()
                } else {
                    Scan::range(range(Key::new(kind, first).as_ref(), &[]))
                };
                scan.limit(scan_rows)
            }
        }
    }

    /// The keys that share a prefix with a random row.
    fn end_range(&mut self, shared: &Shared) -> KeyRange {
        let key = self.key(shared);
        let digits = key.as_ref();
        KeyRange::prefix(&digits[..digits.len() - END_DIGITS])
    }

    /// A key between a random row and the next one, so that its neighbours have to be searched.
    fn between_rows(&mut self, shared: &Shared) -> Vec<u8> {
        let mut between = self.key(shared).as_ref().to_vec();
        between.push(b'5');
        between
    }
}

impl Worker {
    pub fn new(shared: &Arc<Shared>, chooser: Chooser, number: usize) -> Worker {
        let choices = Choices { random: stream(shared.spec.seed, number), chooser, chosen: 0 };
        Worker {
            shared: Arc::clone(shared),
            choices,
            number,
            next_page: None,
            to_load: 0..0,
            has_scanned: false,
            states: BTreeMap::new(),
        }
    }

    /// The operation of the next call; `None` if a load or a full scan is done.
    pub fn choose(&mut self) -> Option<Operation> {
        let operation = self.shared.operations.draw(&mut self.choices.random);
        match operation {
            Operation::Load => self.to_load = self.shared.rows_to_load()?,
            Operation::FullScan if self.has_scanned && !self.shared.spec.repeats => return None,
            Operation::FullScan => self.has_scanned = true,
            _ => {}
        }
        Some(operation)
    }

    /// The row of the last call, if it was of one row.
    pub fn row(&self) -> u64 {
        self.choices.chosen
    }

    /// Makes a call and returns how many rows it read or wrote. A full scan takes minutes, so it reports its rows with
    /// `progress` as they arrive, which says whether to go on; it returns those not reported.
    pub async fn call(&mut self, operation: Operation, progress: impl Fn(u64) -> bool) -> Result<u64, Error> {
        let (shared, choices) = (&*self.shared, &mut self.choices);
        let (table, spec) = (&shared.table, &shared.spec);
        let is_single = spec.batch == 1;
        let rows = match operation {
            Operation::Read if is_single => u64::from(table.get(Get::new(choices.key(shared))).await?.is_some()),
            Operation::Read => {
                let gets: Vec<Get> = (0..spec.batch).map(|_| Get::new(choices.key(shared))).collect();
                table.get_many(gets).await?.iter().flatten().count() as u64
            }
            Operation::Update if is_single => return table.put(choices.one_field(shared)).await.map(|()| 1),
            Operation::Update => {
                let puts = (0..spec.batch).map(|_| choices.one_field(shared).into()).collect();
                return write(table, puts).await;
            }
            Operation::ReadModifyWrite => return self.read_modify_write().await,
            Operation::Increment if is_single => {
                let counted = table.increment(choices.key(shared), FAMILY, COUNT, 1).await;
                shared.tally.incremented(counted.as_ref().map(|_| ()));
                return counted.map(|_| 1);
            }
            Operation::Increment => return self.increment_many().await,
            Operation::CompareAndSet => return self.compare_and_set().await,
            Operation::Insert if spec.kind == Kind::Records => {
                let record = shared.inserts.begin();
                let row = shared.full_row(Key::new(spec.kind, record), &mut choices.random);
                let inserted = table.mutate(row).await;
                shared.inserts.end(record);
                return inserted.map(|_| 1);
            }
            Operation::Insert => return table.mutate(choices.point(shared)).await.map(|_| 1),
            Operation::Ingest => return write(table, (0..spec.batch).map(|_| choices.point(shared)).collect()).await,
            Operation::Load => {
                let rows = self.to_load.clone().map(|row| shared.filled_row(row, &mut choices.random));
                return write(table, rows.collect()).await;
            }
            Operation::FullScan => return full_scan(shared, progress).await,
            Operation::Scan => read(table.scan(choices.scan(shared)).await?).await?,
            Operation::Page => self.page().await?,
            Operation::Latest => {
                let scan = Scan::range(series_range(choices.choose(shared), spec.scan_rows));
                read(table.scan(scan.latest(LatestPer::bytes(SERIES_BYTES), 1)).await?).await?
            }
            Operation::Count => table.count(KeyRange::all()).await?,
            Operation::Sum => {
                let numbers = table.aggregate(FAMILY, NUMBER, ValueType::I64).await?;
                shared.tally.summed(numbers.count(), numbers.sum().and_then(Number::as_i128).unwrap_or(0));
                numbers.count()
            }
            Operation::First => u64::from(table.first(choices.end_range(shared)).await?.is_some()),
            Operation::Last => u64::from(table.last(choices.end_range(shared)).await?.is_some()),
            Operation::Floor => u64::from(table.floor(choices.between_rows(shared)).await?.is_some()),
            Operation::Ceiling => u64::from(table.ceiling(choices.between_rows(shared)).await?.is_some()),
        };
        if rows == 0 {
            self.shared.missed();
        }
        Ok(rows)
    }

    async fn read_modify_write(&mut self) -> Result<u64, Error> {
        let (shared, choices) = (&*self.shared, &mut self.choices);
        let key = choices.key(shared);
        let found = shared.table.get(Get::new(key)).await?.is_some();
        shared.table.put(choices.put(shared, key)).await?;
        if !found {
            shared.missed();
        }
        Ok(u64::from(found))
    }

    /// Of numbered rows, the page after `--offset` rows. Of series the first page of one, or every other time the page after
    /// the last one.
    async fn page(&mut self) -> Result<u64, Error> {
        let (shared, choices) = (&*self.shared, &mut self.choices);
        let Spec { kind, scan_rows, offset, .. } = shared.spec;
        if kind == Kind::Numbered {
            return Ok(shared.table.page(Scan::all()).offset(offset).limit(scan_rows).await?.rows.len() as u64);
        }
        let next = self.next_page.take().filter(|_| choices.random.below(2) == 0);
        let series = next.as_ref().map_or_else(|| choices.choose(shared), |(series, _)| *series);
        let request = shared.table.page(Scan::range(series_range(series, 1))).limit(scan_rows);
        let page = request.after(next.map(|(_, token)| token)).await?;
        self.next_page = page.next.map(|token| (series, token));
        Ok(page.rows.len() as u64)
    }

    async fn increment_many(&mut self) -> Result<u64, Error> {
        let (shared, choices) = (&*self.shared, &mut self.choices);
        let counter = |_| RowMutation::new(choices.key(shared)).increment(FAMILY, COUNT, 1);
        let counters = (0..shared.spec.batch).map(counter).collect();
        let outcomes = match shared.table.mutate_many(counters).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                // Any number of them may have been applied.
                (0..shared.spec.batch).for_each(|_| shared.tally.incremented(Err(&error)));
                return Err(error);
            }
        };
        let mut failed = None;
        for outcome in outcomes {
            shared.tally.incremented(outcome.as_ref().map(|_| ()).map_err(|row| &row.error));
            failed = failed.or(outcome.err());
        }
        match failed {
            Some(row) => Err(row.error),
            None => Ok(shared.spec.batch),
        }
    }

    /// Sets the next state of a row if it has the state set last. The worker learns what earlier runs left in the row
    /// from the first condition that fails; after that it is the only writer, and a failed condition means that a write
    /// was lost or applied twice.
    async fn compare_and_set(&mut self) -> Result<u64, Error> {
        let (shared, Spec { kind, rows, in_flight, .. }) = (&*self.shared, &self.shared.spec);
        let row = row_of(&mut self.choices.random, *rows, self.number, *in_flight);
        let known = self.states.get(&row).copied();
        let column = column(FAMILY, STATE);
        let condition = match known {
            Some(state) => column.equals(state.to_be_bytes()),
            None => column.is_absent(),
        };
        let next = known.map_or(0, |state| state.wrapping_add(1));
        let set = RowMutation::new(Key::new(*kind, row)).set(FAMILY, STATE, next.to_be_bytes());
        let outcome = match shared.table.mutate(set.when(condition).return_found()).await {
            Ok(outcome) => outcome,
            Err(error) => {
                // It may have been applied: the row's state has to be learnt again.
                self.states.remove(&row);
                return Err(error);
            }
        };
        if outcome.held {
            self.states.insert(row, next);
            return Ok(1);
        }
        let is_own = *rows >= *in_flight as u64;
        shared.tally.refused(known.is_some() && is_own);
        match state_of(&outcome)? {
            Some(state) => self.states.insert(row, state),
            None => self.states.remove(&row),
        };
        Ok(1)
    }
}

/// Writes the rows and counts them.
async fn write(table: &Table, rows: Vec<RowMutation>) -> Result<u64, Error> {
    let count = rows.len() as u64;
    match table.mutate_many(rows).await?.into_iter().find_map(Result::err) {
        Some(row) => Err(row.error),
        None => Ok(count),
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

/// Reads the whole table and counts the rows that were not reported.
async fn full_scan(shared: &Shared, progress: impl Fn(u64) -> bool) -> Result<u64, Error> {
    let scan = if shared.spec.reverse { Scan::all().reverse() } else { Scan::all() };
    let (mut rows, mut count) = (shared.table.scan(scan).await?, 0);
    while let Some(row) = rows.next().await {
        row?;
        count += 1;
        if count == ROWS_PER_REPORT {
            if !progress(count) {
                break;
            }
            count = 0;
        }
    }
    Ok(count)
}

fn state_of(outcome: &MutationOutcome) -> Result<Option<u64>, Error> {
    let Some(value) = outcome.row.as_ref().and_then(|row| row.value(FAMILY, STATE)) else { return Ok(None) };
    match value.try_into() {
        Ok(bytes) => Ok(Some(u64::from_be_bytes(bytes))),
        Err(_) => Err(Error::Invalid(Invalid::new(format!(
            "column {FAMILY}:{STATE} has {} bytes, not 8: another program writes it; choose another table",
            value.len()
        )))),
    }
}
