//! Groups of one or two rows that always show one value in all their columns, or none: the writes and reads of them.
//!
//! A write puts one value into every column of every row of a group, or deletes all of them, by one mutation or one atomic
//! batch. So a group is one register, whichever row shows it, and its history must be linearizable.

use std::collections::BTreeMap;

use terrane_client::{Delete, Error, Get, MutationOutcome, Returns, RowData, RowMutation, Scan, Table, column};
use terrane_oracle::Fate;
use terrane_oracle::linearizability::{Cell, Condition, Op, OpId, Outcome, Seen};

use super::Shared;
use crate::scenario::places::Row;
use crate::scenario::play::{all_rows, below};
use crate::trace;

/// Places of groups; those with lower numbers than [`PAIRS`] have two rows.
pub const PLACES: usize = 6;
pub const PAIRS: usize = 3;
/// Groups at a place over time.
const GROUPS_PER_PLACE: usize = 10_000;

const FAMILIES: [&str; 2] = ["f", "g"];
const QUALIFIERS: [&str; 4] = ["a", "b", "c", "d"];
/// Starts a value that must never be seen.
const POISON: &[u8] = b"poison.";

/// The name of a group: the number that its rows start with.
pub fn name(place: usize, earlier: usize) -> Vec<u8> {
    u32::try_from(place * GROUPS_PER_PLACE + earlier).expect("few groups").to_be_bytes().to_vec()
}

/// The rows of a group.
pub fn rows_of(name: &[u8]) -> Vec<Vec<u8>> {
    let number = name.try_into().map_or(0, u32::from_be_bytes) as usize;
    let sides: &[&[u8]] = if number / GROUPS_PER_PLACE < PAIRS { &[b"left", b"right"] } else { &[b"single"] };
    sides.iter().map(|side| [name, side].concat()).collect()
}

/// Makes one operation after another.
pub struct Worker {
    pub who: String,
    pub table: Table,
    pub shared: Shared,
    pub padding: Vec<u8>,
    /// Readers write nothing.
    pub writes: bool,
    pub pause_ms: u64,
}

/// An operation of a group.
struct Call {
    group: Row,
    name: Vec<u8>,
    id: OpId,
}

impl Worker {
    /// Works until the faults are over.
    pub async fn run(self) -> Result<(), Error> {
        let act = async || match below(if self.writes { 20 } else { 6 }) {
            0..=2 => self.get().await,
            3 => self.get_many().await,
            4 | 5 => self.scan(below(2) == 0).await,
            6..=10 => self.write().await,
            11 | 12 => self.delete().await,
            13..=15 => self.write_if().await,
            16 | 17 => self.contradict().await,
            _ => self.write_many().await,
        };
        self.shared.until_over(self.pause_ms, act).await
    }

    fn some_group(&self) -> Row {
        self.shared.book.borrow().groups.row_at(below(PLACES))
    }

    fn name(&self, group: Row) -> Vec<u8> {
        self.shared.book.borrow().groups.key(group).to_vec()
    }

    fn begin(&self, group: Row, op: Op) -> Call {
        let name = self.name(group);
        let id = self.shared.book.borrow_mut().history.begin(&self.who, &name, op, trace::now());
        Call { group, name, id }
    }

    fn end(&self, call: &Call, outcome: Outcome) {
        trace::note(format_args!("{} {}: {outcome}", self.who, call.name.escape_ascii()));
        self.shared.context.state.checked();
        let mut book = self.shared.book.borrow_mut();
        book.groups.count(call.group, outcome == Outcome::Unknown);
        book.history.end(call.id, outcome, trace::now());
    }

    fn ended<T>(&self, outcome: Result<T, Error>) -> Result<Result<T, Fate>, Error> {
        match outcome {
            // The versions that a broken snapshot scan read may be gone.
            Err(Error::SnapshotTooOld) => Ok(Err(Fate::Refused)),
            outcome => self.shared.ended(&self.who, "groups", outcome),
        }
    }

    /// The answer of an update; if there is none, the update has ended.
    fn answered<T>(&self, call: &Call, outcome: Result<T, Error>, lost: Outcome) -> Result<Option<T>, Error> {
        match self.ended(outcome)? {
            Ok(answer) => return Ok(Some(answer)),
            Err(Fate::Applied) => self.end(call, lost),
            Err(fate) => self.end(call, fate.into()),
        }
        Ok(None)
    }

    /// What a row shows: one value in every column, or none.
    pub fn seen(&self, name: &[u8], row: Option<&RowData>) -> Seen {
        let row = row?;
        let first = row.cells().next()?;
        let cells = row.cells().map(|cell| (cell.family, cell.qualifier, cell.value, cell.timestamp));
        let wanted = all_columns()
            .map(|(family, qualifier)| (family.as_bytes(), qualifier.as_bytes(), first.value, first.timestamp));
        if !cells.eq(wanted) || first.value.starts_with(POISON) {
            self.shared.fail(&self.who, name, &format!("has a row that was never written: {row:?}"));
        }
        let value = first.value.strip_suffix(&self.padding[..]).unwrap_or(first.value);
        Some(Cell { value: value.to_vec(), version: Some(first.timestamp) })
    }

    async fn get(&self) -> Result<(), Error> {
        let call = self.begin(self.some_group(), Op::Read);
        let rows = rows_of(&call.name);
        let found = self.table.get(Get::new(&rows[below(rows.len())])).await;
        let Some(found) = self.answered(&call, found, Outcome::Refused)? else { return Ok(()) };
        self.end(&call, Outcome::Read(self.seen(&call.name, found.as_ref())));
        Ok(())
    }

    /// A read of each row of all groups in use.
    fn begin_reads(&self) -> Vec<(Vec<u8>, Call)> {
        let groups = self.shared.book.borrow().groups.in_use();
        let rows =
            groups.into_iter().flat_map(|group| rows_of(&self.name(group)).into_iter().map(move |row| (group, row)));
        rows.map(|(group, row)| (row, self.begin(group, Op::Read))).collect()
    }

    fn end_reads(&self, reads: &[(Vec<u8>, Call)], found: &BTreeMap<Vec<u8>, RowData>) {
        for (row, call) in reads {
            self.end(call, Outcome::Read(self.seen(&call.name, found.get(row))));
        }
    }

    fn drop_reads(&self, reads: &[(Vec<u8>, Call)]) {
        reads.iter().for_each(|(_, call)| self.end(call, Outcome::Refused));
    }

    async fn get_many(&self) -> Result<(), Error> {
        let reads = self.begin_reads();
        let found = self.table.get_many(reads.iter().map(|(row, _)| Get::new(row))).await;
        match self.ended(found)? {
            Ok(found) => self.end_reads(&reads, &by_key(found.into_iter().flatten())),
            Err(_) => self.drop_reads(&reads),
        }
        Ok(())
    }

    /// Scans all rows in small blocks. In a snapshot both rows of a pair are of one moment: no split separates them.
    async fn scan(&self, snapshot: bool) -> Result<(), Error> {
        let reads = self.begin_reads();
        let Ok(rows) = self.ended(self.scanned(snapshot).await)? else {
            self.drop_reads(&reads);
            return Ok(());
        };
        let found = by_key(rows.into_iter());
        for (_, call) in reads.iter().filter(|_| snapshot) {
            self.check_alike(&call.name, rows_of(&call.name).iter().map(|row| found.get(row)));
        }
        self.end_reads(&reads, &found);
        Ok(())
    }

    async fn scanned(&self, snapshot: bool) -> Result<Vec<RowData>, Error> {
        let scan = FAMILIES.iter().fold(Scan::all().block_bytes(256), |scan, family| scan.family(family));
        let scan = if snapshot { scan.snapshot() } else { scan };
        all_rows(&self.table, if below(3) == 0 { scan.reverse() } else { scan }).await
    }

    /// All rows of a group show the same at one moment.
    pub fn check_alike<'r>(&self, name: &[u8], rows: impl Iterator<Item = Option<&'r RowData>>) {
        let shown: Vec<Seen> = rows.map(|row| self.seen(name, row)).collect();
        if shown.iter().any(|one| *one != shown[0]) {
            self.shared.fail(&self.who, name, &format!("shows {shown:?} at one moment"));
        }
    }

    /// The mutations that give a group one value: sometimes after a deletion, which must not hide it.
    fn puts(&self, name: &[u8], value: &[u8]) -> Vec<RowMutation> {
        let value = self.padded(value);
        let deletes_first = below(5) == 0;
        let put = |row: Vec<u8>| {
            let mutation = if deletes_first { some_delete(&row) } else { RowMutation::new(&row) };
            all_columns().fold(mutation, |mutation, (family, qualifier)| mutation.set(family, qualifier, &value))
        };
        rows_of(name).into_iter().map(put).collect()
    }

    /// Sends the mutations of a group.
    async fn send(&self, mut mutations: Vec<RowMutation>) -> Result<Vec<MutationOutcome>, Error> {
        match mutations.pop() {
            Some(only) if mutations.is_empty() && below(2) == 0 => Ok(vec![self.table.mutate(only).await?]),
            last => Ok(self.table.atomic(mutations.into_iter().chain(last).collect()).await?.rows),
        }
    }

    async fn write(&self) -> Result<(), Error> {
        let value = fresh();
        let call = self.begin(self.some_group(), Op::put(value.clone()));
        let returns_old = below(2) == 0;
        let returns = if returns_old { Returns::Old } else { Returns::Nothing };
        let mutations = self.puts(&call.name, &value).into_iter().map(|mutation| mutation.returning(returns)).collect();
        let outcome = self.send(mutations).await;
        let Some(rows) = self.answered(&call, outcome, Outcome::applied())? else { return Ok(()) };
        let before = returns_old.then(|| {
            self.check_alike(&call.name, rows.iter().map(|row| row.row.as_ref()));
            self.seen(&call.name, rows[0].row.as_ref())
        });
        self.end(&call, Outcome::Applied { before, after: None, version: version(&rows[0]) });
        Ok(())
    }

    async fn delete(&self) -> Result<(), Error> {
        let call = self.begin(self.some_group(), Op::delete());
        let outcome = self.send(rows_of(&call.name).iter().map(|row| some_delete(row)).collect()).await;
        let Some(_) = self.answered(&call, outcome, Outcome::applied())? else { return Ok(()) };
        self.end(&call, Outcome::applied());
        Ok(())
    }

    /// Replaces the value that some client last wrote, if it is still there. One row is tested, all are written.
    async fn write_if(&self) -> Result<(), Error> {
        let (group, value) = (self.some_group(), fresh());
        let known = self.shared.book.borrow().newest.get(&group).cloned();
        let condition = known.clone().map_or(Condition::Absent, Condition::Equals);
        let call = self.begin(group, Op::put_if(condition, value.clone()));
        let (family, qualifier) = some_column();
        let test = match known {
            Some(value) => column(family, qualifier).equals(self.padded(&value)),
            None => column(family, qualifier).is_absent(),
        };
        let mut mutations = self.puts(&call.name, &value);
        let tested = mutations.pop().expect("a group has a row").when(test);
        mutations.push(tested);
        if below(2) == 0 {
            mutations.reverse();
        }
        let outcome = self.send(mutations).await;
        let Some(rows) = self.answered(&call, outcome, Outcome::Unknown)? else { return Ok(()) };
        if rows.iter().any(|row| row.held != rows[0].held) {
            self.shared.fail(&self.who, &call.name, "has a batch with a condition that held for some rows only");
        }
        if !rows[0].held {
            self.end(&call, Outcome::NotHeld { found: None });
            self.shared.book.borrow_mut().newest.remove(&group);
            return Ok(());
        }
        self.end(&call, Outcome::Applied { before: None, after: None, version: version(&rows[0]) });
        self.shared.book.borrow_mut().newest.insert(group, value);
        Ok(())
    }

    /// Two conditions that never hold both, on two rows that show the same: nothing of the batch may be applied.
    async fn contradict(&self) -> Result<(), Error> {
        let group = self.shared.book.borrow().groups.row_at(below(PAIRS));
        let name = self.name(group);
        let (family, qualifier) = some_column();
        let mut tests = vec![column(family, qualifier).is_absent(), column(family, qualifier).exists()];
        if below(2) == 0 {
            tests.reverse();
        }
        let value = [POISON, &fresh()].concat();
        let mutations = self.puts(&name, &value).into_iter().zip(tests);
        let outcome = self.table.atomic(mutations.map(|(mutation, test)| mutation.when(test)).collect()).await;
        if let Ok(outcome) = self.ended(outcome)?
            && outcome.held
        {
            self.shared.fail(&self.who, &name, "has a batch with two contradictory conditions that held");
        }
        Ok(())
    }

    /// Writes and deletes several single rows in one call, in which each is on its own.
    async fn write_many(&self) -> Result<(), Error> {
        let groups: Vec<Row> = {
            let book = self.shared.book.borrow();
            (0..=below(4)).map(|_| book.groups.row_at(PAIRS + below(PLACES - PAIRS))).collect()
        };
        let mut calls = Vec::new();
        let mut mutations = Vec::new();
        for group in groups {
            let name = self.name(group);
            let value = fresh();
            let (op, mutation) = if below(5) == 0 {
                (Op::delete(), rows_of(&name).iter().map(|row| some_delete(row)).collect())
            } else {
                (Op::put(value.clone()), self.puts(&name, &value))
            };
            calls.push(self.begin(group, op));
            mutations.extend(mutation);
        }
        let outcomes: Vec<Result<MutationOutcome, Error>> = match self.table.mutate_many(mutations).await {
            Ok(outcomes) => outcomes.into_iter().map(|outcome| outcome.map_err(|failed| failed.error)).collect(),
            Err(error) => vec![Err(error); calls.len()],
        };
        for (call, outcome) in calls.iter().zip(outcomes) {
            if self.answered(call, outcome, Outcome::applied())?.is_some() {
                self.end(call, Outcome::applied());
            }
        }
        Ok(())
    }

    /// A value as it is written.
    fn padded(&self, value: &[u8]) -> Vec<u8> {
        [value, &self.padding].concat()
    }
}

/// A value that was never written before.
fn fresh() -> Vec<u8> {
    format!("{:012x}.", terrane_env::rand::range(0..1 << 48)).into_bytes()
}

fn all_columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    FAMILIES.into_iter().flat_map(|family| QUALIFIERS.into_iter().map(move |qualifier| (family, qualifier)))
}

fn some_column() -> (&'static str, &'static str) {
    (FAMILIES[below(FAMILIES.len())], QUALIFIERS[below(QUALIFIERS.len())])
}

/// Deletes everything that a row shows: as a row, by families, or by columns.
fn some_delete(row: &[u8]) -> RowMutation {
    let delete = Delete::new(row);
    let delete = match below(3) {
        0 => delete,
        1 => FAMILIES.iter().fold(delete, |delete, family| delete.family(family)),
        _ => all_columns().fold(delete, |delete, (family, qualifier)| delete.column(family, qualifier)),
    };
    delete.into()
}

fn version(outcome: &MutationOutcome) -> Option<i64> {
    i64::try_from(outcome.stamp_ms).ok().filter(|stamp| *stamp != 0)
}

fn by_key(rows: impl Iterator<Item = RowData>) -> BTreeMap<Vec<u8>, RowData> {
    rows.map(|row| (row.row().to_vec(), row)).collect()
}
