//! The operations of the registers scenario, and what each returns.

use terrane_client::{
    Condition as Test, Consistency, Delete, Error, Get, MutationOutcome, Returns, RowData, RowMutation, Scan, Table,
    column,
};
use terrane_oracle::Fate;
use terrane_oracle::linearizability::{Cell, Change, Condition, Op, OpId, Outcome, Seen};

use super::Shared;
use super::book::{COLUMNS, NUMBER, PLACES, TEXT};
use crate::scenario::places::Row;
use crate::scenario::play::{all_rows, below};
use crate::trace;

/// Makes one operation after another.
pub struct Worker {
    pub who: String,
    pub table: Table,
    pub shared: Shared,
    pub padding: Vec<u8>,
    /// Readers write nothing.
    pub writes: bool,
    /// The longest pause between two operations.
    pub pause_ms: u64,
}

/// A call that concerns registers of one row.
struct Call {
    row: Row,
    key: Vec<u8>,
    operations: Vec<(usize, OpId)>,
    /// The newest timestamp of the row that some client knew when it began.
    stamp: i64,
}

impl Worker {
    /// Works until the faults are over.
    pub async fn run(self) -> Result<(), Error> {
        let act = async || match below(if self.writes { 24 } else { 7 }) {
            0..=3 => self.get().await,
            4 => self.get_many().await,
            5 | 6 => self.scan().await,
            7..=11 => self.write().await,
            12 => self.delete().await,
            13..=18 => self.write_if().await,
            _ => self.add().await,
        };
        self.shared.until_over(self.pause_ms, act).await
    }

    fn some_row(&self) -> Row {
        self.shared.book.borrow().places.row_at(below(PLACES))
    }

    /// A call with these operations begins.
    fn begin(&self, row: Row, operations: impl IntoIterator<Item = (usize, Op)>) -> Call {
        let mut book = self.shared.book.borrow_mut();
        let begun = operations.into_iter().map(|(column, op)| (column, book.begin(&self.who, (row, column), op)));
        let operations = begun.collect();
        Call { row, key: book.places.key(row).to_vec(), operations, stamp: book.stamp(row) }
    }

    /// The call ends with one outcome for each of its operations.
    fn end(&self, call: &Call, mut outcome: impl FnMut(usize) -> Outcome) {
        for (column, id) in &call.operations {
            let outcome = outcome(*column);
            let name = COLUMNS[*column].1;
            trace::note(format_args!("{} {}/{name}: {outcome}", self.who, call.key.escape_ascii()));
            self.shared.context.state.checked();
            self.shared.book.borrow_mut().end(*id, (call.row, *column), outcome);
        }
    }

    fn ended<T>(&self, call: &Call, outcome: Result<T, Error>) -> Result<Result<T, Fate>, Error> {
        self.shared.ended(&self.who, call.key.escape_ascii(), outcome)
    }

    /// The answer of an update without a condition; if there is none, the call has ended.
    fn answered(&self, call: &Call, outcome: Result<MutationOutcome, Error>) -> Result<Option<MutationOutcome>, Error> {
        match self.ended(call, outcome)? {
            Ok(outcome) => {
                self.check_stamp(call, &outcome);
                Ok(Some(outcome))
            }
            Err(fate) => {
                self.end(call, |_| fate.into());
                Ok(None)
            }
        }
    }

    /// The timestamp of a write is not older than one that was known when it was called.
    fn check_stamp(&self, call: &Call, outcome: &MutationOutcome) {
        if version(outcome).is_some_and(|version| version < call.stamp) {
            let what = format!("is stamped {}, and was stamped {} before", outcome.stamp_ms, call.stamp);
            self.shared.fail(&self.who, &call.key, &what);
        }
    }

    async fn get(&self) -> Result<(), Error> {
        let call = self.begin(self.some_row(), [NUMBER, TEXT].map(|column| (column, Op::Read)));
        let level = if below(6) == 0 { Consistency::Strict } else { Consistency::Linearizable };
        let found = self.table.get(Get::new(&call.key)).consistency(level).await;
        self.end_reads(&[call], found.map(Vec::from_iter))
    }

    async fn get_many(&self) -> Result<(), Error> {
        let calls = self.begin_reads();
        let found = self.table.get_many(calls.iter().map(|call| Get::new(&call.key))).await;
        self.end_reads(&calls, found.map(|found| found.into_iter().flatten().collect()))
    }

    /// Reads the rows by a scan, in blocks of about one row.
    async fn scan(&self) -> Result<(), Error> {
        let calls = self.begin_reads();
        let found = self.scanned().await;
        self.end_reads(&calls, found)
    }

    async fn scanned(&self) -> Result<Vec<RowData>, Error> {
        let scan = Scan::all().block_bytes(256);
        all_rows(&self.table, if below(3) == 0 { scan.reverse() } else { scan }).await
    }

    /// Reads of all rows in use begin.
    fn begin_reads(&self) -> Vec<Call> {
        let rows = self.shared.book.borrow().places.in_use();
        rows.into_iter().map(|row| self.begin(row, [NUMBER, TEXT].map(|column| (column, Op::Read)))).collect()
    }

    fn end_reads(&self, calls: &[Call], found: Result<Vec<RowData>, Error>) -> Result<(), Error> {
        let ended = self.ended(&calls[0], found)?;
        for call in calls {
            match &ended {
                Ok(rows) => {
                    let row = rows.iter().find(|row| row.row()[..] == call.key[..]);
                    self.end(call, |column| Outcome::Read(seen(row, column)));
                }
                Err(_) => self.end(call, |_| Outcome::Refused),
            }
        }
        Ok(())
    }

    /// Writes one register or both of a row, whatever is there.
    async fn write(&self) -> Result<(), Error> {
        let columns: &[usize] = match below(4) {
            0 => &[NUMBER, TEXT],
            1 | 2 => &[NUMBER],
            _ => &[TEXT],
        };
        let changes: Vec<(usize, Change)> =
            columns.iter().map(|column| (*column, Change::Put(fresh(*column)))).collect();
        let returns = if below(2) == 0 { Returns::Old } else { Returns::Nothing };
        self.update(self.some_row(), &changes, returns).await
    }

    /// Adds to a number or a text.
    async fn add(&self) -> Result<(), Error> {
        let change = if below(2) == 0 { (NUMBER, Change::Add(number())) } else { (TEXT, Change::Append(text())) };
        let returns = if below(3) == 0 { Returns::Nothing } else { Returns::New };
        self.update(self.some_row(), &[change], returns).await
    }

    async fn update(&self, row: Row, changes: &[(usize, Change)], returns: Returns) -> Result<(), Error> {
        let call = self.begin(row, changes.iter().map(|(column, change)| (*column, always(change))));
        let mutation = changes
            .iter()
            .fold(RowMutation::new(&call.key), |mutation, (column, change)| changing(mutation, *column, change));
        let mutation = if returns == Returns::Nothing { self.padded(mutation) } else { mutation.returning(returns) };
        let outcome = self.table.mutate(mutation).await;
        let Some(outcome) = self.answered(&call, outcome)? else { return Ok(()) };
        self.end(&call, |column| {
            let shown = seen(outcome.row.as_ref(), column);
            let before = (returns == Returns::Old).then(|| shown.clone());
            let after = (returns == Returns::New).then_some(shown);
            Outcome::Applied { before, after, version: version(&outcome) }
        });
        for (column, change) in changes {
            if let Change::Put(value) = change {
                let cell = Cell { value: value.clone(), version: version(&outcome) };
                self.shared.book.borrow_mut().learn((row, *column), Some(cell));
            }
        }
        Ok(())
    }

    /// Deletes one register, a family, or the whole row.
    async fn delete(&self) -> Result<(), Error> {
        let column = below(COLUMNS.len());
        let (family, qualifier) = COLUMNS[column];
        let kind = below(3);
        let columns: &[usize] = if kind == 0 { &[NUMBER, TEXT] } else { &[column] };
        let call = self.begin(self.some_row(), columns.iter().map(|column| (*column, Op::delete())));
        let delete = Delete::new(&call.key);
        let mutation: RowMutation = match kind {
            0 => delete.into(),
            1 => delete.family(family).into(),
            _ => delete.column(family, qualifier).into(),
        };
        let outcome = self.table.mutate(mutation).await;
        let Some(_) = self.answered(&call, outcome)? else { return Ok(()) };
        self.end(&call, |_| Outcome::applied());
        Ok(())
    }

    /// Replaces or deletes what a register is thought to hold. What was there is returned in any case.
    async fn write_if(&self) -> Result<(), Error> {
        let (row, column) = (self.some_row(), below(COLUMNS.len()));
        let newest = self.shared.book.borrow().newest((row, column));
        let condition = match newest {
            Some(Cell { version: Some(version), .. }) if below(3) == 0 => Condition::Version(version),
            Some(cell) => Condition::Equals(cell.value),
            None => Condition::Absent,
        };
        let change = if below(6) == 0 { Change::Delete } else { Change::Put(fresh(column)) };
        let test = test(column, &condition);
        let call = self.begin(row, [(column, Op::Update { condition, change: change.clone() })]);
        let mutation = changing(RowMutation::new(&call.key), column, &change).when(test);
        let outcome = self.table.mutate(mutation.returning(Returns::Old).return_found()).await;
        let outcome = match self.ended(&call, outcome)? {
            Ok(outcome) => outcome,
            Err(fate) => {
                // With a result lost, the condition may not have held.
                self.end(&call, |_| if fate == Fate::Applied { Outcome::Unknown } else { fate.into() });
                return Ok(());
            }
        };
        let found = Some(seen(outcome.row.as_ref(), column));
        if outcome.held {
            self.check_stamp(&call, &outcome);
            let version = if change == Change::Delete { None } else { version(&outcome) };
            self.end(&call, |_| Outcome::Applied { before: found.clone(), after: None, version });
        } else {
            self.end(&call, |_| Outcome::NotHeld { found: found.clone() });
        }
        Ok(())
    }

    /// With a column that is not checked, so that there is something to flush.
    fn padded(&self, mutation: RowMutation) -> RowMutation {
        mutation.set("g", "p", &self.padding)
    }
}

fn always(change: &Change) -> Op {
    Op::Update { condition: Condition::Always, change: change.clone() }
}

fn changing(mutation: RowMutation, column: usize, change: &Change) -> RowMutation {
    let (family, qualifier) = COLUMNS[column];
    match change {
        Change::Put(value) => mutation.set(family, qualifier, value),
        Change::Delete => {
            let delete = Delete::new(mutation.row()).column(family, qualifier);
            mutation.delete(delete)
        }
        Change::Add(amount) => mutation.increment(family, qualifier, *amount),
        Change::Append(bytes) => mutation.append(family, qualifier, bytes),
    }
}

fn test(at: usize, condition: &Condition) -> Test {
    let (family, qualifier) = COLUMNS[at];
    let tested = column(family, qualifier);
    match condition {
        Condition::Equals(value) => tested.equals(value),
        Condition::Version(version) => tested.version_is(*version),
        Condition::Absent => tested.is_absent(),
        Condition::Exists | Condition::Always => tested.exists(),
    }
}

/// What a row shows in a column.
pub fn seen(row: Option<&RowData>, column: usize) -> Seen {
    let (family, qualifier) = COLUMNS[column];
    let (version, value) = row?.versions(family, qualifier.as_bytes()).next()?;
    Some(Cell { value: value.to_vec(), version: Some(version) })
}

/// The timestamp of a write, if the server still knew it.
fn version(outcome: &MutationOutcome) -> Option<i64> {
    i64::try_from(outcome.stamp_ms).ok().filter(|stamp| *stamp != 0)
}

/// A value that was never written before.
fn fresh(column: usize) -> Vec<u8> {
    if column == NUMBER { number().to_be_bytes().to_vec() } else { text() }
}

/// Random, so that sums differ too; small, so that they do not overflow.
fn number() -> i64 {
    i64::try_from(terrane_env::rand::range(1..1 << 40)).expect("below 2^40")
}

fn text() -> Vec<u8> {
    format!("{:x}.", number()).into_bytes()
}
