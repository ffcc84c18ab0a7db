//! HBase's clients: workers that increment, append and check-and-mutate through the port for them, whose operations must
//! count exactly once although they number nothing and often lose their answers; and a client that splits, flushes and
//! compacts regions meanwhile.
//!
//! A worker drops its connection now and then right after a call was sent, and tries again with the same nonce, as HBase's
//! own client does. An operation of more than one try is known to be applied, and its answer may be what others made of the
//! row since. Every second worker sends no nonces, as many clients do: it tries again what was refused, and nothing else.
//!
//! Beside them, rows are written as a whole and read in batches ([`views`]).

mod views;

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use futures::future::join_all;
use terrane_client::{Error, Get, TableSpec};
use terrane_hbase::proto::mutation_proto::MutationType;
use terrane_hbase_client::{Change, Column, HbaseClient, Outcome};
use terrane_oracle::Fate;
use terrane_oracle::ledger::{Begun, Ledger, token};
use terrane_types::TableName;

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, LAST_PATIENCE, OPERATOR, Play, READER, Scenario, TABLE, WORKER_HOSTS, below, patiently, pause, sized,
};
use crate::context::Context;
use crate::nodes::hbase_address;
use crate::plan::Plan;
use crate::trace;

const WORKERS_PER_HOST: usize = 2;

const ROWS: usize = 24;
const PAUSE_MS: u64 = 120;

const FAMILY: &[u8] = b"f";
const COUNTER: Column<'_> = (FAMILY, b"n");
const LIST: Column<'_> = (FAMILY, b"l");
const PADDING: Column<'_> = (FAMILY, b"p");
const REGISTER: Column<'_> = (FAMILY, b"v");

/// Acknowledged operations without which a run shows little.
const OPERATIONS_MIN: u64 = 60;

/// The scenario.
#[derive(Clone, Default)]
pub struct Hbase {
    ledger: Rc<RefCell<Ledger>>,
}

impl Scenario for Hbase {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(work(host, index, shared.clone()))));
        }
        clients.push((READER, Box::pin(work(READER, WORKER_HOSTS.len(), shared.clone()))));
        clients.push((CAPTIVE, Box::pin(work(CAPTIVE, WORKER_HOSTS.len(), shared))));
        clients.push((OPERATOR, Box::pin(maintain(TABLE, || row(below(ROWS)), context.clone()))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let acknowledged = context.state.acknowledged();
        // While builds are mixed, nonces are not recorded, and workers wait.
        (acknowledged < OPERATIONS_MIN).then(|| format!("only {acknowledged} operations were acknowledged"))
    }
}

type Shared = play::Shared<Hbase>;

impl Shared {
    fn ledger(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }
}

fn row(number: usize) -> Vec<u8> {
    format!("row{number:02}").into_bytes()
}

/// The ledger's name of a column of a row.
fn object(row: &[u8], (_, qualifier): Column<'_>) -> Vec<u8> {
    [row, b"/", qualifier].concat()
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?.family("f", &[("versions", "1")])?;
    sized(spec, plan, ROWS, row)
}

async fn work(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let client = shared.create_table(index, spec).await?;
    let name: TableName = TABLE.parse().map_err(Error::Invalid)?;
    let servers: Vec<String> = shared.context.plan.server_hosts().iter().map(|server| hbase_address(server)).collect();
    let workers = (0..WORKERS_PER_HOST).map(|worker| {
        let mut client = HbaseClient::new(client.clone(), name.clone(), servers.clone());
        if worker > 0 {
            client = client.without_nonces();
        }
        Worker { who: format!("{host}.{worker}"), client, shared: shared.clone() }.run()
    });
    let viewer = HbaseClient::new(client.clone(), name.clone(), servers.clone());
    let views = async {
        match host {
            READER => views::read(READER, viewer, shared.clone()).await,
            CAPTIVE => Ok(()),
            _ => views::write(viewer, shared.clone()).await,
        }
    };
    futures::future::join(join_all(workers), views).await.1
}

/// Makes one operation after another.
struct Worker {
    who: String,
    client: HbaseClient,
    shared: Shared,
}

impl Worker {
    async fn run(mut self) {
        while !self.shared.context.state.is_over() {
            pause(PAUSE_MS).await;
            let row = row(below(ROWS));
            match below(4) {
                0 => self.increment(&row).await,
                1 => self.append(&row).await,
                2 => self.together(&row).await,
                _ => self.replace(&row).await,
            }
        }
    }

    /// Records what is known of an operation from the outcome of its call; the answer, if it is this operation's own.
    fn ended<T>(&mut self, begun: &[(&Begun, &[u8])], outcome: Result<Outcome<T>, String>) -> Option<T> {
        match outcome {
            Ok(Outcome { answer, was_retried: false }) => {
                self.shared.context.state.acknowledge();
                Some(answer)
            }
            Ok(_) => {
                self.shared.context.state.acknowledge();
                self.ended_with(begun, Fate::Applied);
                None
            }
            Err(why) => {
                for (_, object) in begun {
                    trace::note(format_args!("{} got no answer for {}: {why}", self.who, object.escape_ascii()));
                }
                self.ended_with(begun, Fate::Unknown);
                None
            }
        }
    }

    /// Records operations whose results are not known.
    fn ended_with(&self, begun: &[(&Begun, &[u8])], fate: Fate) {
        for (begun, object) in begun {
            if let Err(violation) = self.shared.ledger().end(begun, fate) {
                self.shared.fail(&self.who, object, violation);
            }
        }
    }

    /// Changes a row, and sometimes loses the first answer.
    async fn mutate(
        &mut self,
        row: &[u8],
        changes: &[Change<'_>],
        condition: Option<(Column<'_>, Vec<u8>)>,
    ) -> Result<Outcome<terrane_hbase::proto::MutateResponse>, String> {
        if below(4) == 0 {
            self.client.lose_next_answer();
        }
        let state = self.shared.context.state.clone();
        self.client.mutate(row, changes, condition, || state.is_over()).await
    }

    async fn increment(&mut self, row: &[u8]) {
        let counter = object(row, COUNTER);
        let begun = self.shared.ledger().begin(&counter);
        let change = Change { kind: MutationType::Increment, column: COUNTER, value: 1_u64.to_be_bytes().to_vec() };
        let outcome = self.mutate(row, &[change], None).await;
        let Some(answer) = self.ended(&[(&begun, &counter)], outcome) else { return };
        let value = answer.result.and_then(|result| result.cell.into_iter().next()?.value);
        self.shared.judge(&self.who, &counter, self.shared.ledger().incremented(&begun, number(value.as_deref())));
    }

    async fn append(&mut self, row: &[u8]) {
        let list = object(row, LIST);
        let begun = self.shared.ledger().begin(&list);
        let change = Change { kind: MutationType::Append, column: LIST, value: token(begun.operation).to_vec() };
        let outcome = self.mutate(row, &[change], None).await;
        let Some(answer) = self.ended(&[(&begun, &list)], outcome) else { return };
        let value = answer.result.and_then(|result| result.cell.into_iter().next()?.value).unwrap_or_default();
        self.shared.judge(&self.who, &list, self.shared.ledger().appended(&begun, &value));
    }

    /// A put, an increment and an append in one `RowMutations`.
    async fn together(&mut self, row: &[u8]) {
        let (counter, list) = (object(row, COUNTER), object(row, LIST));
        let counted = self.shared.ledger().begin(&counter);
        let appended = self.shared.ledger().begin_also(&counted, &list);
        let padding = vec![b'p'; self.shared.context.plan.value_bytes];
        let change = |kind, column, value| vec![Change { kind, column, value }];
        let mutations = [
            change(MutationType::Put, PADDING, padding),
            change(MutationType::Increment, COUNTER, 1_u64.to_be_bytes().to_vec()),
            change(MutationType::Append, LIST, token(counted.operation).to_vec()),
        ];
        if below(4) == 0 {
            self.client.lose_next_answer();
        }
        let state = self.shared.context.state.clone();
        let outcome = self.client.mutate_row(row, &mutations, || state.is_over()).await;
        let outcome = outcome.and_then(|outcome| {
            let refused = outcome.answer.region_action_result.iter().find_map(|result| result.exception.clone());
            match refused {
                Some(refused) => Err(refused.name),
                None => Ok(outcome),
            }
        });
        let ended = self.ended(&[(&counted, &counter), (&appended, &list)], outcome);
        let Some(answer) = ended else { return };
        let results = answer.region_action_result.into_iter().flat_map(|result| result.result_or_exception);
        let cells: Vec<_> = results.filter_map(|result| result.result).flat_map(|result| result.cell).collect();
        let value = |(_, qualifier): Column<'_>| {
            let cell = cells.iter().find(|cell| cell.qualifier.as_deref() == Some(qualifier));
            cell.and_then(|cell| cell.value.clone())
        };
        let verdict = self.shared.ledger().incremented(&counted, number(value(COUNTER).as_deref()));
        self.shared.judge(&self.who, &counter, verdict);
        self.shared.judge(&self.who, &list, self.shared.ledger().appended(&appended, &value(LIST).unwrap_or_default()));
    }

    /// Reads a register and replaces its value unless it has changed.
    async fn replace(&mut self, row: &[u8]) {
        let register = object(row, REGISTER);
        let reading = self.shared.ledger().begin_read(&register);
        let state = self.shared.context.state.clone();
        let Ok(found) = self.client.get(row, REGISTER, || state.is_over()).await else { return };
        let before = number(found.as_deref());
        self.shared.judge(&self.who, &register, self.shared.ledger().read_register(&reading, before));
        let begun = self.shared.ledger().begin_replacing(&register, before);
        let value = token(begun.operation).to_vec();
        let change = Change { kind: MutationType::Put, column: REGISTER, value };
        let condition = (REGISTER, if before == 0 { Vec::new() } else { token(before).to_vec() });
        match self.mutate(row, &[change], Some(condition)).await {
            // A try that was answered after another one says the truth, too: what did not hold took no effect.
            Ok(Outcome { answer, .. }) => {
                self.shared.context.state.acknowledge();
                let verdict = if answer.processed() {
                    self.shared.ledger().replaced(&begun)
                } else {
                    self.shared.ledger().end(&begun, Fate::Refused)
                };
                self.shared.judge(&self.who, &register, verdict);
            }
            Err(why) => {
                trace::note(format_args!("{} got no answer for {}: {why}", self.who, register.escape_ascii()));
                self.ended_with(&[(&begun, &register)], Fate::Unknown);
            }
        }
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    // A number of another length becomes an impossible value, which the ledger rejects.
    value.map_or(0, |value| value.try_into().map_or(u64::MAX, u64::from_be_bytes))
}

/// Reads and checks every row after all writes.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    for row in (0..ROWS).map(row) {
        let found = patiently(async || table.get(Get::new(&row)).await).await?;
        let value = |(_, qualifier): Column<'_>| {
            found.as_ref().and_then(|found| found.value("f", qualifier).map(<[u8]>::to_vec))
        };
        let judge = |column, verdict| shared.judge(host, &object(&row, column), verdict);
        judge(COUNTER, shared.ledger().final_counter(&object(&row, COUNTER), number(value(COUNTER).as_deref())));
        judge(LIST, shared.ledger().final_list(&object(&row, LIST), &value(LIST).unwrap_or_default()));
        judge(REGISTER, shared.ledger().final_register(&object(&row, REGISTER), number(value(REGISTER).as_deref())));
    }
    trace::note(format_args!("{host} read {ROWS} rows"));
    Ok(())
}
