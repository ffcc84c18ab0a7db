//! Records edits in group 0's log and gives access to the resulting catalog.

use std::sync::Arc;
use std::time::Duration;

use terrane_raft::ProposeError;
use terrane_types::{Error, Invalid};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::backoff::Backoff;
use crate::catalog::{Catalog, CatalogEdit, Outcome, Refusal};
use crate::machine::CatalogMachine;

/// How long an edit may wait until this master leads its group, which takes one election after its start.
const LEADING_WAIT_MAX: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(200);

/// The host of group 0, and the handle to it, with the catalog's types.
pub type GroupHost = terrane_raft::GroupHost<CatalogEdit, Outcome>;
pub type Group = terrane_raft::Group<CatalogEdit, Outcome>;

/// The catalog and its log.
#[derive(Clone)]
pub struct Journal {
    group: Group,
    machine: Arc<CatalogMachine>,
}

impl Journal {
    /// The journal of this group, whose state machine is `machine`.
    pub const fn new(group: Group, machine: Arc<CatalogMachine>) -> Self {
        Self { group, machine }
    }

    /// Records an edit and waits until it is committed and applied. A refusal is an error.
    pub async fn record(&self, edit: &CatalogEdit) -> Result<Outcome, Error> {
        match self.propose(edit).await? {
            Outcome::Refused(refusal) => Err(refused(refusal)),
            outcome => Ok(outcome),
        }
    }

    async fn propose(&self, edit: &CatalogEdit) -> Result<Outcome, Error> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        let give_up = Instant::now() + LEADING_WAIT_MAX;
        loop {
            let error = match self.group.propose(edit.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            // Retry only what was certainly not proposed, so that one request cannot take two ids.
            let not_proposed = matches!(error, ProposeError::NotLeader { .. } | ProposeError::Busy);
            let wait = backoff.next_wait();
            if !not_proposed || Instant::now() + wait > give_up {
                return Err(propose_error(error));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the catalog; the closure must not wait.
    pub fn read<T>(&self, look: impl FnOnce(&Catalog) -> T) -> T {
        self.machine.read(look)
    }

    /// The index up to which the catalog has applied its log.
    pub fn applied(&self) -> u64 {
        self.machine.applied()
    }

    /// Whether this master leads group 0 and the cluster is bootstrapped.
    pub fn ready(&self) -> Result<(), String> {
        if !self.group.status().is_leader {
            return Err("this master does not lead the catalog's group yet".into());
        }
        self.read(|catalog| catalog.bootstrap().map(|_| ())).ok_or_else(|| "the cluster is not bootstrapped yet".into())
    }

    /// Why the last checkpoint could not be written, for `status`.
    pub fn checkpoint_issue(&self) -> Option<String> {
        self.machine.checkpoint_issue()
    }

    /// Changes whenever a waiting caller should look again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.machine.changes()
    }

    /// Wakes the callers of [`Journal::wait_until`] after observed state outside of the catalog has changed.
    pub fn nudge(&self) {
        self.machine.nudge();
    }

    /// Calls `look` at each change until it returns a value; `None` if the deadline passes first.
    pub async fn wait_until<T>(&self, deadline: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if let Some(answer) = look() {
                return Some(answer);
            }
            // An error means that the machine is gone because the process is ending.
            timeout_at(deadline, changes.changed()).await.ok()?.ok()?;
        }
    }
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::AlreadyExists(what) => Error::AlreadyExists { what },
        Refusal::NotFound(what) => Error::NotFound { what },
        Refusal::Invalid(what) => Error::Invalid(Invalid::new(what)),
        Refusal::Changed(what) => Error::Unavailable { message: format!("{what}; retry"), retry_after: RETRY_MAX },
    }
}

fn propose_error(error: ProposeError) -> Error {
    match error {
        ProposeError::Busy => Error::Busy { retry_after: RETRY_MAX },
        ProposeError::LogFull { held_by } => Error::LogFull { held_by, retry_after: RETRY_MAX },
        ProposeError::Uncertain => Error::Uncertain { not_tried: false },
        ProposeError::TooLarge { limit } => Error::Invalid(Invalid::new(format!(
            "the change does not fit into one log entry ({limit} bytes); split it into several"
        ))),
        other => Error::Unavailable {
            message: format!("the master cannot record the change: {other}"),
            retry_after: RETRY_MAX,
        },
    }
}
