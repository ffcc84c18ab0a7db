//! The calls of each workload: how they are chosen, made and counted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use terrane_client::{Error, Get, Invalid, MutationOutcome, Put, RowMutation, RowStream, Scan, ValueType, column};
use terrane_types::KeyRange;

use super::keys::{COUNTER, Choices, FAMILY, NUMBER, QUALIFIER, STATE, key};
use super::run::Run;
use super::workload::Workload;

/// Rows of a full scan between two records: few enough for a line per second, enough to keep recording cheap.
const ROWS_PER_RECORD: u64 = 4_096;
/// Trailing digits cut off a key to get the prefix whose first or last row is read: 100 rows share it.
const END_DIGITS: usize = 2;

/// A call that has been chosen but not made.
pub enum Call {
    Put(Put),
    PutMany(Vec<RowMutation>),
    Get(Get),
    GetMany(Vec<Get>),
    Scan(Scan),
    FullScan(Scan),
    Incr(u64),
    IncrMany(Vec<RowMutation>),
    Cas(u64),
    Page,
    Count,
    Sum,
    First(KeyRange),
    Last(KeyRange),
    Floor(Vec<u8>),
    Ceiling(Vec<u8>),
}

/// One worker: the calls it chooses, and what it knows about its own rows.
pub struct Worker {
    pub run: Run,
    pub number: usize,
    choices: Choices,
    /// The row of the last chosen call, if it is a single row.
    pub row: Option<u64>,
    /// The state that `cas` last set in each row.
    states: BTreeMap<u64, u64>,
}

impl Worker {
    pub fn new(run: Run, number: usize) -> Worker {
        let choices = Choices::new(number, run.rows, run.value_bytes);
        Worker { run, number, choices, row: None, states: BTreeMap::new() }
    }

    /// The next call; `None` once `load` has written all rows. Values are generated before the clock starts.
    pub fn choose(&mut self) -> Option<Call> {
        let batch = self.run.batch;
        Some(match self.run.workload {
            Workload::Put if batch == 1 => {
                let row = self.chosen_row();
                Call::Put(self.put(row))
            }
            Workload::Put => {
                let rows: Vec<u64> = (0..batch).map(|_| self.choices.row()).collect();
                Call::PutMany(rows.into_iter().map(|row| self.put(row).into()).collect())
            }
            Workload::Load => {
                let rows = self.rows_to_load()?;
                Call::PutMany(rows.map(|row| self.put(row).into()).collect())
            }
            Workload::LoadNumbers => {
                let rows = self.rows_to_load()?;
                let numbered = |row: u64| self.put(row).set(FAMILY, NUMBER, row.to_be_bytes()).into();
                Call::PutMany(rows.map(numbered).collect())
            }
            Workload::Get if batch == 1 => Call::Get(Get::new(key(self.chosen_row()))),
            Workload::Get => Call::GetMany((0..batch).map(|_| Get::new(key(self.choices.row()))).collect()),
            Workload::Scan => Call::Scan(self.scan()),
            Workload::FullScan => Call::FullScan(self.directed(Scan::all())),
            Workload::Incr if batch == 1 => Call::Incr(self.chosen_row()),
            Workload::Incr => {
                let counter = |row: u64| RowMutation::new(key(row)).increment(FAMILY, COUNTER, 1);
                Call::IncrMany((0..batch).map(|_| counter(self.choices.row())).collect())
            }
            Workload::Cas => Call::Cas(self.choices.row_of(self.number, self.run.in_flight)),
            Workload::Page => Call::Page,
            Workload::Count => Call::Count,
            Workload::Sum => Call::Sum,
            Workload::First => Call::First(self.end_range()),
            Workload::Last => Call::Last(self.end_range()),
            Workload::Floor => Call::Floor(self.between_rows()),
            Workload::Ceiling => Call::Ceiling(self.between_rows()),
        })
    }

    fn chosen_row(&mut self) -> u64 {
        *self.row.insert(self.choices.row())
    }

    fn put(&mut self, row: u64) -> Put {
        Put::new(key(row)).set(FAMILY, QUALIFIER, self.choices.value())
    }

    fn rows_to_load(&self) -> Option<Range<u64>> {
        // The counter is only used here and orders no other memory.
        let first = self.run.next_row.fetch_add(self.run.batch, Ordering::Relaxed);
        (first < self.run.rows).then(|| first..self.run.rows.min(first + self.run.batch))
    }

    fn scan(&mut self) -> Scan {
        let batch = self.run.batch;
        let first = self.choices.scan_start(batch);
        let (start, end) = if self.run.reverse {
            (Vec::new(), key(first.saturating_add(batch)).to_vec())
        } else {
            (key(first).to_vec(), Vec::new())
        };
        self.directed(Scan::range(KeyRange { start: start.into(), end: end.into() })).limit(batch)
    }

    fn directed(&self, scan: Scan) -> Scan {
        if self.run.reverse { scan.reverse() } else { scan }
    }

    fn end_range(&mut self) -> KeyRange {
        let key = key(self.choices.row());
        KeyRange::prefix(&key[..key.len() - END_DIGITS])
    }

    /// A key between a random row and the next one, so that its neighbours have to be searched.
    fn between_rows(&mut self) -> Vec<u8> {
        let mut between = key(self.choices.row()).to_vec();
        between.push(b'5');
        between
    }

    /// Makes the call and returns how many rows it wrote or read, except those already recorded.
    pub async fn call(&mut self, call: Call) -> Result<u64, Error> {
        let table = &self.run.table;
        Ok(match call {
            Call::Put(put) => table.put(put).await.map(|()| 1)?,
            Call::PutMany(puts) => {
                let count = puts.len();
                match table.mutate_many(puts).await?.into_iter().find_map(Result::err) {
                    Some(row) => return Err(row.error),
                    None => count as u64,
                }
            }
            Call::Get(get) => u64::from(table.get(get).await?.is_some()),
            Call::GetMany(gets) => table.get_many(gets).await?.iter().flatten().count() as u64,
            Call::Scan(scan) => self.counted(table.scan(scan).await?, false).await?,
            Call::FullScan(scan) => self.counted(table.scan(scan).await?, true).await?,
            Call::Incr(row) => {
                let counted = table.increment(key(row), FAMILY, COUNTER, 1).await;
                self.run.tally.incremented(counted.as_ref().map(|_| ()));
                counted.map(|_| 1)?
            }
            Call::IncrMany(counters) => self.increment_many(counters).await?,
            Call::Cas(row) => self.compare_and_set(row).await?,
            Call::Page => {
                let page = table.page(Scan::all()).offset(self.run.offset).limit(self.run.batch);
                page.await?.rows.len() as u64
            }
            Call::Count => table.count(KeyRange::all()).await?,
            Call::Sum => {
                let numbers = table.aggregate(FAMILY, NUMBER, ValueType::I64).await?;
                let sum = numbers.sum().and_then(terrane_client::Number::as_i128).unwrap_or(0);
                self.run.tally.summed(numbers.count(), sum);
                numbers.count()
            }
            Call::First(range) => u64::from(table.first(range).await?.is_some()),
            Call::Last(range) => u64::from(table.last(range).await?.is_some()),
            Call::Floor(row) => u64::from(table.floor(row).await?.is_some()),
            Call::Ceiling(row) => u64::from(table.ceiling(row).await?.is_some()),
        })
    }

    /// Counts the rows of a stream. A long one takes minutes, so its rows are recorded as they arrive.
    async fn counted(&self, mut stream: RowStream, is_long: bool) -> Result<u64, Error> {
        let mut count = 0;
        while let Some(row) = stream.next().await {
            row?;
            count += 1;
            if is_long && count == ROWS_PER_RECORD {
                if self.run.stop.load(Ordering::Relaxed) {
                    break;
                }
                self.run.recorder.progressed(self.number, std::mem::take(&mut count));
            }
        }
        Ok(count)
    }

    async fn increment_many(&self, counters: Vec<RowMutation>) -> Result<u64, Error> {
        let count = counters.len();
        let outcomes = match self.run.table.mutate_many(counters).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                // Any number of them may have been applied.
                (0..count).for_each(|_| self.run.tally.incremented(Err(&error)));
                return Err(error);
            }
        };
        let mut failed = None;
        for outcome in outcomes {
            self.run.tally.incremented(outcome.as_ref().map(|_| ()).map_err(|row| &row.error));
            failed = failed.or(outcome.err());
        }
        match failed {
            Some(row) => Err(row.error),
            None => Ok(count as u64),
        }
    }

    /// Sets the next state of a row if it has the state set last. The worker learns what earlier runs left in the row
    /// from the first condition that fails; after that it is the only writer, and a failed condition means that a write
    /// was lost or applied twice.
    async fn compare_and_set(&mut self, row: u64) -> Result<u64, Error> {
        let known = self.states.get(&row).copied();
        let column = column(FAMILY, STATE);
        let condition = match known {
            Some(state) => column.equals(state.to_be_bytes()),
            None => column.is_absent(),
        };
        let next = known.map_or(0, |state| state.wrapping_add(1));
        let set = RowMutation::new(key(row)).set(FAMILY, STATE, next.to_be_bytes()).when(condition).return_found();
        let outcome = match self.run.table.mutate(set).await {
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
        let is_own = self.run.rows >= self.run.in_flight as u64;
        self.run.tally.refused(known.is_some() && is_own);
        match state_of(&outcome)? {
            Some(state) => self.states.insert(row, state),
            None => self.states.remove(&row),
        };
        Ok(1)
    }
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
