//! Counters: workers whose operations must count exactly once, a reader, a worker on the captive host, and a client that
//! splits, flushes and compacts regions meanwhile.
//!
//! The table declares its key, so that rows of one group can be written atomically. Each group of rows has a plain
//! counter; a row with a counter and a list that change together; a register that is replaced by check-and-mutate; and
//! two lists that are only appended to together. Operations have some padding, so that there is something to flush.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use futures::future::join_all;
use terrane_client::{Error, Get, Returns, RowData, RowMutation, Scan, Table, TableSpec, column};
use terrane_oracle::ledger::{Begun, Ledger, Operation, token, tokens};
use terrane_oracle::{Fate, Verdict};

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, LAST_PATIENCE, OPERATOR, PATIENCE, Play, READER, Scenario, TABLE, WORKER_HOSTS,
    below, open_table, passed, passes, patiently, rows_by_key, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};

const WORKERS_PER_HOST: usize = 3;

/// Groups of rows, and the number of hot groups, which get half of all operations.
const GROUPS: usize = 24;
const HOT_GROUPS: usize = 3;
/// Most rows of one batch.
const BATCH_MAX: usize = 8;

/// Longest pauses between two calls.
const WORKER_PAUSE_MS: u64 = 120;
const READER_PAUSE_MS: u64 = 150;

const FAMILY: &str = "f";
const COUNTER: &str = "n";
const LIST: &str = "l";
const REGISTER: &str = "v";

/// Acknowledged operations without which a run shows little.
const OPERATIONS_MIN: u64 = 150;

/// The scenario.
#[derive(Clone, Default)]
pub struct Counters {
    ledger: Rc<RefCell<Ledger>>,
}

impl Scenario for Counters {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(work(host, index, shared.clone()))));
        }
        clients.push((READER, Box::pin(read(shared.clone()))));
        let some_row = || row(some_group(), "");
        clients.push((OPERATOR, Box::pin(maintain(TABLE, some_row, context.clone()))));
        clients.push((CAPTIVE, Box::pin(be_captive(shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let acknowledged = context.state.acknowledged();
        (acknowledged < OPERATIONS_MIN).then(|| format!("only {acknowledged} operations were acknowledged"))
    }
}

type Shared = play::Shared<Counters>;

impl Shared {
    fn ledger(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }
}

/// The rows of a group.
fn row(group: usize, name: &str) -> Vec<u8> {
    let group = u32::try_from(group).expect("few groups");
    [&group.to_be_bytes()[..], name.as_bytes()].concat()
}

/// The ledger's name of a column of a row.
fn object(row: &[u8], column: &str) -> Vec<u8> {
    [row, b"/", column.as_bytes()].concat()
}

/// A random group; hot ones more often.
fn some_group() -> usize {
    below(if below(2) == 0 { HOT_GROUPS } else { GROUPS })
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec =
        TableSpec::new(TABLE)?.family(FAMILY, &[("versions", "1")])?.key("group:u32, what:tail")?.set("atomic", "1")?;
    sized(spec, plan, GROUPS, |group| row(group, ""))
}

async fn work(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    let workers = (0..WORKERS_PER_HOST).map(|worker| {
        let who = format!("{host}.{worker}");
        Worker { who, table: table.clone(), shared: shared.clone(), padding: padding(&shared.context.plan) }
            .run(WORKER_PAUSE_MS)
    });
    join_all(workers).await.into_iter().collect()
}

/// A client of the isolated leader, with a short timeout.
async fn be_captive(shared: Shared) -> Result<(), Error> {
    let patience = shared.context.plan.patience_with_disks(CAPTIVE_PATIENCE);
    let table = shared.table(PATIENCE).await?.with_timeout(patience);
    let padding = padding(&shared.context.plan);
    Worker { who: CAPTIVE.to_owned(), table, shared, padding }.run(WORKER_PAUSE_MS).await
}

fn padding(plan: &Plan) -> Vec<u8> {
    vec![b'p'; plan.value_bytes]
}

/// Makes one operation after another.
struct Worker {
    who: String,
    table: Table,
    shared: Shared,
    padding: Vec<u8>,
}

impl Worker {
    async fn run(self, pause_ms: u64) -> Result<(), Error> {
        let act = async || {
            let group = some_group();
            match below(10) {
                0..=3 => self.increment(group).await,
                4 | 5 => self.increment_and_append(group).await,
                6 | 7 => self.replace(group).await,
                8 => self.append_to_both(group).await,
                _ => self.increment_many().await,
            }
        };
        self.shared.until_over(pause_ms, act).await
    }

    fn ended<T>(&self, what: &[u8], operation: Operation, outcome: Result<T, Error>) -> Result<Result<T, Fate>, Error> {
        let what = format!("{operation} of {}", what.escape_ascii());
        if outcome.is_ok() {
            trace::note(format_args!("{} did {what}", self.who));
        }
        self.shared.ended(&self.who, what, outcome)
    }

    /// The answer of a call; without one, the operations on these objects have ended.
    fn answer<T>(&self, begun: &[(&Begun, &[u8])], outcome: Result<T, Error>) -> Result<Option<T>, Error> {
        let (first, object) = begun[0];
        match self.ended(object, first.operation, outcome)? {
            Ok(answer) => Ok(Some(answer)),
            Err(fate) => {
                begun.iter().for_each(|(begun, object)| self.without_answer(begun, object, fate));
                Ok(None)
            }
        }
    }

    /// Records an operation without a result.
    fn without_answer(&self, begun: &Begun, object: &[u8], fate: Fate) {
        self.shared.judge(&self.who, object, self.shared.ledger().end(begun, fate));
    }

    async fn increment(&self, group: usize) -> Result<(), Error> {
        let row = row(group, "counter");
        let counter = object(&row, COUNTER);
        let begun = self.shared.ledger().begin(&counter);
        let outcome = self.table.mutate(increment(&row, &self.padding)).await;
        let Some(outcome) = self.answer(&[(&begun, &counter)], outcome)? else { return Ok(()) };
        let verdict = self.shared.ledger().incremented(&begun, counter_in(outcome.row.as_ref()));
        self.shared.judge(&self.who, &counter, verdict);
        Ok(())
    }

    /// Several independent counters in one call, some of them twice.
    async fn increment_many(&self) -> Result<(), Error> {
        let rows: Vec<Vec<u8>> = (0..=below(BATCH_MAX)).map(|_| row(some_group(), "counter")).collect();
        let counters: Vec<Vec<u8>> = rows.iter().map(|row| object(row, COUNTER)).collect();
        let begun: Vec<Begun> = counters.iter().map(|counter| self.shared.ledger().begin(counter)).collect();
        let mutations = rows.iter().map(|row| increment(row, &self.padding)).collect();
        let outcomes = match self.table.mutate_many(mutations).await {
            Ok(outcomes) => outcomes.into_iter().map(|outcome| outcome.map_err(|failed| failed.error)).collect(),
            Err(error) => vec![Err(error); rows.len()],
        };
        for ((outcome, begun), counter) in outcomes.into_iter().zip(&begun).zip(&counters) {
            let Some(outcome) = self.answer(&[(begun, counter)], outcome)? else { continue };
            let verdict = self.shared.ledger().incremented(begun, counter_in(outcome.row.as_ref()));
            self.shared.judge(&self.who, counter, verdict);
        }
        Ok(())
    }

    /// A counter and a list of one row, in one mutation.
    async fn increment_and_append(&self, group: usize) -> Result<(), Error> {
        let row = row(group, "mixed");
        let (counter, list) = (object(&row, COUNTER), object(&row, LIST));
        let counted = self.shared.ledger().begin(&counter);
        let appended = self.shared.ledger().begin_also(&counted, &list);
        let mutation = increment(&row, &self.padding).append(FAMILY, LIST, token(counted.operation));
        let outcome = self.table.mutate(mutation).await;
        let answer = self.answer(&[(&counted, &counter), (&appended, &list)], outcome)?;
        let Some(outcome) = answer else { return Ok(()) };
        let (value, appends) = (counter_in(outcome.row.as_ref()), list_in(outcome.row.as_ref()));
        self.shared.judge(&self.who, &counter, self.shared.ledger().incremented(&counted, value));
        self.shared.judge(&self.who, &list, self.shared.ledger().appended(&appended, &appends));
        self.shared.judge(&self.who, &row, changed_together(value, &appends));
        Ok(())
    }

    /// Reads a register and replaces its value unless it has changed.
    async fn replace(&self, group: usize) -> Result<(), Error> {
        let row = row(group, "register");
        let register = object(&row, REGISTER);
        let reading = self.shared.ledger().begin_read(&register);
        let Some(found) = self.read(self.table.get(Get::new(&row)).await)? else { return Ok(()) };
        let before = register_in(found.as_ref());
        self.shared.judge(&self.who, &register, self.shared.ledger().read_register(&reading, before));
        let reading = self.shared.ledger().begin_read(&register);
        let begun = self.shared.ledger().begin_replacing(&register, before);
        let tested = column(FAMILY, REGISTER);
        let condition = if before == 0 { tested.is_absent() } else { tested.equals(token(before)) };
        let mutation = RowMutation::new(&row).set(FAMILY, REGISTER, token(begun.operation)).when(condition);
        let ended = self.ended(&register, begun.operation, self.table.mutate(mutation.return_found()).await)?;
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(fate) => {
                // With a result lost, it is unknown whether the condition held.
                let fate = if fate == Fate::Applied { Fate::Unknown } else { fate };
                self.without_answer(&begun, &register, fate);
                return Ok(());
            }
        };
        if outcome.held {
            self.shared.judge(&self.who, &register, self.shared.ledger().replaced(&begun));
            return Ok(());
        }
        self.shared.judge(&self.who, &register, self.shared.ledger().end(&begun, Fate::Refused));
        let there = register_in(outcome.row.as_ref());
        let verdict = if there == before { Err(format!("has {before}, as was asked for")) } else { Ok(()) };
        let verdict = verdict.and_then(|()| self.shared.ledger().read_register(&reading, there));
        self.shared.judge(&self.who, &register, verdict);
        Ok(())
    }

    /// Appends to two rows atomically.
    async fn append_to_both(&self, group: usize) -> Result<(), Error> {
        let rows = ["left", "right"].map(|name| row(group, name));
        let [left, right] = [&rows[0], &rows[1]].map(|row| object(row, LIST));
        let begun_left = self.shared.ledger().begin(&left);
        let begun_right = self.shared.ledger().begin_also(&begun_left, &right);
        let append = |row: &Vec<u8>| {
            let mutation = RowMutation::new(row).append(FAMILY, LIST, token(begun_left.operation));
            mutation.set(FAMILY, "p", &self.padding).returning(Returns::New)
        };
        let outcome = self.table.atomic(rows.iter().map(append).collect()).await;
        let answer = self.answer(&[(&begun_left, &left), (&begun_right, &right)], outcome)?;
        let Some(outcome) = answer else { return Ok(()) };
        let lists: Vec<Vec<u8>> = outcome.rows.iter().map(|row| list_in(row.row.as_ref())).collect();
        self.shared.judge(&self.who, &left, self.shared.ledger().appended(&begun_left, &lists[0]));
        self.shared.judge(&self.who, &right, self.shared.ledger().appended(&begun_right, &lists[1]));
        let same =
            if lists[0] == lists[1] { Ok(()) } else { Err(format!("has not the lists of one moment: {lists:?}")) };
        self.shared.judge(&self.who, &left, same);
        Ok(())
    }

    /// The result of a read; `None` after a transient error.
    fn read<T>(&self, outcome: Result<T, Error>) -> Result<Option<T>, Error> {
        match outcome {
            Ok(found) => Ok(Some(found)),
            Err(error) if passes(&error) => {
                trace::note(format_args!("{} did not read: {}", self.who, chain(&error)));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn increment(row: &[u8], padding: &[u8]) -> RowMutation {
    RowMutation::new(row).increment(FAMILY, COUNTER, 1).set(FAMILY, "p", padding).returning(Returns::New)
}

fn counter_in(row: Option<&RowData>) -> u64 {
    let value = row.and_then(|row| row.value(FAMILY, COUNTER));
    // A counter of another length becomes an impossible value, which the ledger rejects.
    value.map_or(0, |value| value.try_into().map_or(u64::MAX, u64::from_be_bytes))
}

fn list_in(row: Option<&RowData>) -> Vec<u8> {
    row.and_then(|row| row.value(FAMILY, LIST)).unwrap_or_default().to_vec()
}

fn register_in(row: Option<&RowData>) -> Operation {
    let value = row.and_then(|row| row.value(FAMILY, REGISTER));
    value.map_or(0, |value| value.try_into().map_or(u64::MAX, u64::from_be_bytes))
}

fn changed_together(counter: u64, list: &[u8]) -> Verdict {
    let appends = tokens(list).map_or(0, |tokens| tokens.len() as u64);
    if counter == appends { Ok(()) } else { Err(format!("was incremented {counter} times and appended to {appends}")) }
}

/// Reads rows of all kinds, singly and by scans, while they change.
async fn read(shared: Shared) -> Result<(), Error> {
    let reader = Reader { who: READER.to_owned(), table: shared.table(PATIENCE).await?, shared };
    let act = async || {
        let group = some_group();
        let done = match below(6) {
            0 => reader.scan().await,
            1 | 2 => reader.counter(&row(group, "counter")).await,
            3 | 4 => reader.mixed(&row(group, "mixed")).await,
            _ => reader.pair(group).await,
        };
        passed(format_args!("{READER} did not read"), done)
    };
    reader.shared.until_over(READER_PAUSE_MS, act).await
}

struct Reader {
    who: String,
    table: Table,
    shared: Shared,
}

impl Reader {
    async fn counter(&self, row: &[u8]) -> Result<(), Error> {
        let counter = object(row, COUNTER);
        let reading = self.shared.ledger().begin_read(&counter);
        let found = self.table.get(Get::new(row)).await?;
        self.shared.judge(&self.who, &counter, self.shared.ledger().read_counter(&reading, counter_in(found.as_ref())));
        Ok(())
    }

    async fn mixed(&self, row: &[u8]) -> Result<(), Error> {
        let list = object(row, LIST);
        let reading = self.shared.ledger().begin_read(&list);
        let found = self.table.get(Get::new(row)).await?;
        let appends = list_in(found.as_ref());
        self.shared.judge(&self.who, &list, self.shared.ledger().read_list(&reading, &appends));
        self.shared.judge(&self.who, row, changed_together(counter_in(found.as_ref()), &appends));
        Ok(())
    }

    /// Reads both lists; the second is read later, so it cannot be shorter.
    async fn pair(&self, group: usize) -> Result<(), Error> {
        let mut longest = 0;
        for name in ["left", "right"] {
            let row = row(group, name);
            let list = object(&row, LIST);
            let reading = self.shared.ledger().begin_read(&list);
            let found = list_in(self.table.get(Get::new(&row)).await?.as_ref());
            self.shared.judge(&self.who, &list, self.shared.ledger().read_list(&reading, &found));
            let verdict = if found.len() < longest { Err("is shorter than its twin was".to_owned()) } else { Ok(()) };
            self.shared.judge(&self.who, &list, verdict);
            longest = found.len();
        }
        Ok(())
    }

    async fn scan(&self) -> Result<(), Error> {
        let rows: Vec<Vec<u8>> = (0..GROUPS).map(|group| row(group, "counter")).collect();
        let begin = |row: &Vec<u8>| self.shared.ledger().begin_read(&object(row, COUNTER));
        let readings: Vec<_> = rows.iter().map(begin).collect();
        let found = rows_by_key(&self.table, Scan::all()).await?;
        for (row, reading) in rows.iter().zip(&readings) {
            self.shared.judge(&self.who, row, self.shared.ledger().read_counter(reading, counter_in(found.get(row))));
        }
        Ok(())
    }
}

/// Reads and checks every row after all writes.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    for group in 0..GROUPS {
        let names = ["counter", "mixed", "register", "left", "right"];
        let rows: Vec<Vec<u8>> = names.iter().map(|name| row(group, name)).collect();
        let found = patiently(async || table.get_many(rows.iter().map(Get::new)).await).await?;
        let [counter, mixed, register, left, right] = [0, 1, 2, 3, 4].map(|index| found[index].as_ref());
        let judge = |index: usize, verdict| shared.judge(host, &rows[index], verdict);
        let name = |index: usize, column| object(&rows[index], column);
        judge(0, shared.ledger().final_counter(&name(0, COUNTER), counter_in(counter)));
        judge(1, shared.ledger().final_counter(&name(1, COUNTER), counter_in(mixed)));
        judge(1, shared.ledger().final_list(&name(1, LIST), &list_in(mixed)));
        judge(1, changed_together(counter_in(mixed), &list_in(mixed)));
        judge(2, shared.ledger().final_register(&name(2, REGISTER), register_in(register)));
        judge(3, shared.ledger().final_list(&name(3, LIST), &list_in(left)));
        judge(4, shared.ledger().final_list(&name(4, LIST), &list_in(right)));
        let same = list_in(left) == list_in(right);
        judge(3, if same { Ok(()) } else { Err("has not the list of its twin".to_owned()) });
    }
    trace::note(format_args!("{host} read {GROUPS} groups"));
    Ok(())
}
