//! Procedures: journaled intents, driven to their end.
//!
//! An intent is a state in the catalog (`creating`, `altering`, `dropping`; a group `creating`), recorded before anything
//! is ordered. The driver looks at the catalog after each change, starts a procedure for every intent that has none, and
//! knows nothing else: so a master that was restarted goes on by the same path as one that was not, and whoever asked for
//! the change only waits for the catalog to show its end.
//!
//! Invariants: one procedure at a time per table and per group, so a drop is ordered only after an unfinished create has
//! said its last word; every order is idempotent; a procedure ends by an edit, or by the process ending.

mod alter_table;
mod create_groups;
mod create_table;
mod drop_table;
mod turns;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use terrane_types::{Error, GroupId, TableId, TableSchema};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::catalog::groups::GroupState;
use crate::catalog::tables::{TableEntry, TableState};
use crate::journal::Journal;
use crate::observed::Observed;
use crate::orders::{Orders, TableOrder, is_final};
use crate::procedures::turns::UNFINISHED_MAX;

/// Failures of creates that are remembered for whoever waits for them.
const FAILURES_MAX: usize = 256;
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// What an intent is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Group(GroupId),
    Table(TableId),
}

/// What procedures work with.
pub struct Desk {
    /// The catalog and its log.
    pub journal: Journal,
    /// What is seen and not written down.
    pub observed: Arc<Observed>,
    /// The way to the servers.
    pub orders: Orders,
    /// Groups that each server is to lead.
    pub groups_per_server: usize,
    /// Why a create was undone, by table.
    failures: Mutex<BTreeMap<TableId, Error>>,
    /// What each running procedure waits for, for `status`.
    waits: Mutex<BTreeMap<Subject, String>>,
    /// A procedure began to wait, which makes room for another.
    waiting: Notify,
}

impl Desk {
    /// A desk with nothing on it.
    pub fn new(journal: Journal, observed: Arc<Observed>, orders: Orders, groups_per_server: usize) -> Self {
        let (failures, waits) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::new()));
        Self { journal, observed, orders, groups_per_server, failures, waits, waiting: Notify::new() }
    }

    /// Why a table's create was undone; told once.
    pub fn take_failure(&self, table: TableId) -> Option<Error> {
        self.failures.lock().remove(&table)
    }

    /// Refuses a change of a table while too many are unfinished.
    pub fn admit_change(&self) -> Result<(), Error> {
        let is_unfinished = |table: &&TableEntry| table.state != TableState::Enabled;
        let unfinished = self.journal.read(|catalog| catalog.tables().iter().filter(is_unfinished).count());
        if unfinished >= UNFINISHED_MAX { Err(Error::Busy { retry_after: RETRY_MAX }) } else { Ok(()) }
    }

    /// Notes what a procedure waits for.
    fn wait(&self, subject: Subject, what: String) {
        if self.waits.lock().insert(subject, what).is_none() {
            self.waiting.notify_one();
        }
    }

    /// What running procedures wait for.
    pub fn waits(&self) -> Vec<String> {
        self.waits.lock().values().cloned().collect()
    }

    /// What the procedure on a table waits for.
    pub fn wait_of(&self, table: TableId) -> Option<String> {
        self.waits.lock().get(&Subject::Table(table)).cloned()
    }

    fn fail(&self, table: TableId, error: Error) {
        let mut failures = self.failures.lock();
        failures.insert(table, error);
        if failures.len() > FAILURES_MAX {
            failures.pop_first();
        }
    }

    /// Intents without an end yet.
    fn intents(&self) -> Vec<Subject> {
        self.journal.read(|catalog| {
            let groups = catalog.groups().iter().filter(|(_, group)| group.state == GroupState::Creating);
            let tables = catalog.tables().iter().filter(|table| table.state != TableState::Enabled);
            groups
                .map(|(group, _)| Subject::Group(group))
                .chain(tables.map(|table| Subject::Table(table.schema.table)))
                .collect()
        })
    }

    async fn perform(&self, subject: Subject) {
        let ended = match subject {
            Subject::Group(group) => create_groups::perform(self, group).await,
            Subject::Table(table) => self.perform_table(table).await,
        };
        if let Err(error) = ended {
            tracing::warn!(?subject, %error, "a procedure was interrupted; it is taken up again");
            self.wait(subject, error.to_string());
            // It begins anew when this returns, and what stopped it may well last.
            tokio::time::sleep(RETRY_MAX).await;
        }
        self.waits.lock().remove(&subject);
    }

    async fn perform_table(&self, table: TableId) -> Result<(), Error> {
        let state = self.journal.read(|catalog| catalog.tables().get(table).map(|entry| entry.state));
        match state {
            Some(TableState::Creating) => create_table::perform(self, table).await,
            Some(TableState::Altering) => alter_table::perform(self, table).await,
            Some(TableState::Dropping) => drop_table::perform(self, table).await,
            Some(TableState::Enabled) | None => Ok(()),
        }
    }

    /// The table's schema while it is in this state.
    fn schema_in(&self, table: TableId, state: TableState) -> Option<TableSchema> {
        self.journal.read(|catalog| {
            catalog.tables().get(table).filter(|entry| entry.state == state).map(|entry| entry.schema.clone())
        })
    }

    /// Sends each group its order until all have it, or one says that it never will. Goes on only while `wanted` holds,
    /// and answers whether it did to the end.
    async fn order_all(
        &self,
        table: TableId,
        mut orders: BTreeMap<GroupId, TableOrder>,
        wanted: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        while wanted() {
            let answers = join_all(
                orders.iter().map(|(group, order)| async { (*group, self.orders.change_tables(*group, order).await) }),
            );
            let mut waiting = None;
            for (group, answer) in answers.await {
                match answer {
                    Ok(()) => drop(orders.remove(&group)),
                    Err(error) if is_final(&error) => return Err(error),
                    Err(error) => waiting = Some(format!("group {group}: {error}")),
                }
            }
            let Some(waiting) = waiting else { return Ok(true) };
            self.wait(Subject::Table(table), waiting);
            tokio::time::sleep(backoff.next_wait()).await;
        }
        Ok(false)
    }
}

/// Starts what has no procedure yet, until told to stop. What runs then is dropped where it waits: the journal has it.
pub async fn drive(desk: Arc<Desk>, stop: CancellationToken) {
    let mut running = Running::default();
    let mut changes = desk.journal.changes();
    while !stop.is_cancelled() {
        changes.borrow_and_update();
        create_groups::plan(&desk).await;
        desk.intents().into_iter().for_each(|subject| running.start(&desk, subject));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = running.one_ended() => {}
            () = desk.waiting.notified() => {}
            _ = changes.changed() => {}
        }
    }
    running.tasks.shutdown().await;
}

/// The procedures that run.
#[derive(Default)]
struct Running {
    tasks: JoinSet<()>,
    /// What each task works on; looked up only, so its order is nobody's concern.
    subjects: HashMap<tokio::task::Id, Subject>,
}

impl Running {
    fn start(&mut self, desk: &Arc<Desk>, subject: Subject) {
        if turns::may_start(subject, self.subjects.values(), &desk.waits.lock()) {
            let desk = Arc::clone(desk);
            let task = self.tasks.spawn(async move { desk.perform(subject).await });
            self.subjects.insert(task.id(), subject);
        }
    }

    /// Waits until one has ended, by a bug even: its intent then gets another try. Never returns while none runs.
    async fn one_ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "a procedure broke off");
                error.id()
            }
            None => std::future::pending().await,
        };
        self.subjects.remove(&id);
    }
}
