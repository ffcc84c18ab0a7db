//! What the components of a master share: the catalog's journal, what is observed, the way to the servers, and what the
//! running procedures wait for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use terrane_types::{Error, GroupId, TableId};
use tokio::sync::Notify;

use crate::catalog::tables::{TableEntry, TableState};
use crate::journal::Journal;
use crate::leadership::Leadership;
use crate::observed::Observed;
use crate::orders::Orders;

/// Unfinished changes of tables that are accepted; also the most procedures of one kind.
pub const UNFINISHED_MAX: usize = 1_024;
/// Failures of creates that are kept for the callers that wait for them.
const FAILURES_MAX: usize = 256;
/// When a caller whose change was refused should try again.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a procedure works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A group that is being created.
    Group(GroupId),
    /// A table that is being created, altered or dropped.
    Table(TableId),
}

/// The shared parts of one master.
pub struct MasterContext {
    /// The catalog and its log.
    pub journal: Journal,
    /// Whether this master leads.
    pub leadership: Leadership,
    /// What is seen of the servers and not written down.
    pub observed: Arc<Observed>,
    /// Calls to the region servers.
    pub orders: Orders,
    /// Groups that each server is to lead.
    pub groups_per_server: usize,
    /// Why a create was undone, by table.
    failures: Mutex<BTreeMap<TableId, Error>>,
    /// What each running procedure waits for, for `status`.
    waits: Mutex<BTreeMap<Subject, String>>,
    /// Notified when a procedure begins to wait, so that another may start.
    waiting: Notify,
}

impl MasterContext {
    /// A context without procedures.
    pub fn new(journal: Journal, observed: Arc<Observed>, orders: Orders, groups_per_server: usize) -> Self {
        let (failures, waits) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::new()));
        let leadership = Leadership::new(journal.clone());
        Self { journal, leadership, observed, orders, groups_per_server, failures, waits, waiting: Notify::new() }
    }

    /// Why a table's create was undone; returned once.
    pub fn take_failure(&self, table: TableId) -> Option<Error> {
        self.failures.lock().remove(&table)
    }

    /// Keeps the reason why a create was undone, for the caller that waits for it.
    pub fn keep_failure(&self, table: TableId, error: Error) {
        let mut failures = self.failures.lock();
        failures.insert(table, error);
        if failures.len() > FAILURES_MAX {
            failures.pop_first();
        }
    }

    /// Refuses a change of a table while too many are unfinished.
    pub fn admit_change(&self) -> Result<(), Error> {
        let is_unfinished = |table: &&TableEntry| table.state != TableState::Enabled;
        let unfinished = self.journal.read(|catalog| catalog.tables().iter().filter(is_unfinished).count());
        if unfinished >= UNFINISHED_MAX { Err(Error::Busy { retry_after: BUSY_RETRY_AFTER }) } else { Ok(()) }
    }

    /// Records what a procedure waits for.
    pub fn begin_wait(&self, subject: Subject, what: String) {
        if self.waits.lock().insert(subject, what).is_none() {
            self.waiting.notify_one();
        }
    }

    /// The procedure on this subject has ended.
    pub fn end_wait(&self, subject: Subject) {
        self.waits.lock().remove(&subject);
    }

    /// Returns when another procedure has begun to wait.
    pub async fn another_waits(&self) {
        self.waiting.notified().await;
    }

    /// What the running procedures wait for, by subject.
    pub fn waits_by_subject(&self) -> MutexGuard<'_, BTreeMap<Subject, String>> {
        self.waits.lock()
    }

    /// What the running procedures wait for.
    pub fn waits(&self) -> Vec<String> {
        self.waits.lock().values().cloned().collect()
    }

    /// The procedures were aborted: another master resumes them.
    pub fn forget_procedures(&self) {
        self.waits.lock().clear();
        self.failures.lock().clear();
    }

    /// What the procedure on a table waits for.
    pub fn wait_of(&self, table: TableId) -> Option<String> {
        self.waits.lock().get(&Subject::Table(table)).cloned()
    }
}
