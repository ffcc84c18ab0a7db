//! Records edits in group 0's log and gives access to the resulting catalog.
//!
//! Only the leader records. Any master reads: after [`Journal::barrier`] the catalog here has every change that was
//! acknowledged before the call, since a follower asks the leader up to where that is and waits until it has applied it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use terrane_raft::{GroupStatus, ProposeError};
use terrane_types::{Error, Invalid, ServerId};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::backoff::Backoff;
use crate::catalog::{Catalog, CatalogEdit, Outcome, Refusal};
use crate::machine::CatalogMachine;
use crate::masters::numbers::place_of;
use crate::masters::peers::Peers;

/// How long an edit may wait until this master leads its group, which takes one election after its start.
const LEADING_WAIT_MAX: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(200);
/// How long a look-up waits until the catalog is up to date, and how often it tries while no leader answers.
const BARRIER_MAX: Duration = Duration::from_millis(600);
const BARRIER_RETRY: Duration = Duration::from_millis(20);

/// The host of group 0, and the handle to it, with the catalog's types.
pub type GroupHost = terrane_raft::GroupHost<CatalogEdit, Outcome>;
pub type Group = terrane_raft::Group<CatalogEdit, Outcome>;

/// The catalog and its log.
#[derive(Clone)]
pub struct Journal {
    group: Group,
    machine: Arc<CatalogMachine>,
    peers: Arc<Peers>,
}

impl Journal {
    /// The journal of this group, whose state machine is `machine` and whose members are the masters `peers`.
    pub const fn new(group: Group, machine: Arc<CatalogMachine>, peers: Arc<Peers>) -> Self {
        Self { group, machine, peers }
    }

    /// The masters.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Group 0.
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Takes over the masters that the catalog has, and makes sure that the links to all members of group 0 can open, and
    /// none to former ones.
    pub fn learn_members(&self) {
        let present = self.read(|catalog| catalog.masters().all());
        if !present.is_empty() {
            self.peers.set(&present);
        }
        let status = self.group.status();
        // Without a log, its members are those that it was told when it joined.
        if status.last_index > 0 {
            let members: BTreeSet<ServerId> = status.members.into_values().collect();
            self.peers.learn(members.iter().copied());
            self.peers.forget_all_but(&members);
        }
    }

    /// How group 0 stands, as seen from here.
    pub fn group_status(&self) -> GroupStatus {
        self.group.status()
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
            // Retry only what was certainly not proposed, so that one request cannot take two ids. A known leader is the
            // one to ask.
            let may_retry = matches!(error, ProposeError::NotLeader { leader: None, .. } | ProposeError::Busy);
            let wait = backoff.next_wait();
            if !may_retry || Instant::now() + wait > give_up {
                return Err(self.propose_error(error));
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

    /// Whether the masters have a leader and the cluster is bootstrapped.
    pub fn ready(&self) -> Result<(), String> {
        let status = self.group.status();
        if self.peers.is_single() && !status.is_leader {
            return Err("this master does not lead the catalog's group yet".into());
        }
        if status.leader.is_none() {
            return Err("no master leads; a majority of them must run".into());
        }
        self.read(|catalog| catalog.bootstrap().map(|_| ())).ok_or_else(|| "the cluster is not bootstrapped yet".into())
    }

    /// Waits until the catalog here has every change that was acknowledged before this call.
    ///
    /// # Errors
    /// A redirect if no leader could be asked in time.
    pub async fn barrier(&self) -> Result<(), Error> {
        if terrane_env::planted!("a master looks up without asking the leader") {
            return Ok(());
        }
        let up_to_date = async {
            while !self.try_barrier().await {
                tokio::time::sleep(BARRIER_RETRY).await;
            }
        };
        tokio::time::timeout(BARRIER_MAX, up_to_date).await.map_err(|_| self.redirect())
    }

    async fn try_barrier(&self) -> bool {
        let status = self.group.status();
        match status.leader {
            None => false,
            Some((replica, _)) if replica == status.replica => self.leader_barrier().await.is_ok(),
            Some((_, leader)) => {
                let Some(index) = self.peers.read_index(leader).await else { return false };
                terrane_env::buggify_pause!("a master applies late what it must answer from").await;
                self.group.wait_for(|status| status.applied >= index, BARRIER_MAX).await.is_some()
            }
        }
    }

    /// Waits until this master, as the leader, has applied everything acknowledged before this call.
    ///
    /// # Errors
    /// A redirect if it does not lead.
    pub async fn leader_barrier(&self) -> Result<(), Error> {
        self.read_index().await.map(|_| ())
    }

    /// The read index, see [`terrane_raft::ReadPoint`], for a follower.
    ///
    /// # Errors
    /// A redirect if this master does not lead.
    pub async fn read_index(&self) -> Result<u64, Error> {
        let point = self.group.read_barrier().await.map_err(|error| self.propose_error(error))?;
        Ok(point.index)
    }

    /// The redirect to the present leader; without one if none is known.
    pub fn redirect(&self) -> Error {
        let status = self.group.status();
        self.peers.redirect(status.term, status.leader.map(|(_, server)| server))
    }

    /// The address of the present leader, if it is known.
    pub fn leader_address(&self) -> Option<String> {
        let (_, leader) = self.group.status().leader?;
        self.peers.address_at(place_of(leader.0))
    }

    /// A redirect as soon as another master leads, or one without a leader after a time.
    pub async fn leader_elsewhere(&self, within: Duration) -> Error {
        let own = self.group.status().replica;
        self.group.wait_for(|status| status.leader.is_some_and(|(leader, _)| leader != own), within).await;
        self.redirect()
    }

    /// Waits until this master is elected; returns the term.
    pub async fn until_elected(&self, within: Duration) -> Option<u64> {
        self.group.wait_for(|status| status.is_leader, within).await.map(|status| status.term)
    }

    /// Waits for a time; returns early with false when this master no longer leads in this term.
    pub async fn still_leads(&self, term: u64, within: Duration) -> bool {
        self.group.wait_for(|status| !(status.is_leader && status.term == term), within).await.is_none()
    }

    /// Writes the catalog's checkpoint.
    pub async fn write_checkpoint(&self) {
        self.machine.write_checkpoint().await;
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

    fn propose_error(&self, error: ProposeError) -> Error {
        match error {
            ProposeError::NotLeader { term, leader } => self.peers.redirect(term, leader.map(|(_, server)| server)),
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
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::AlreadyExists(what) => Error::AlreadyExists { what },
        Refusal::NotFound(what) => Error::NotFound { what },
        Refusal::Invalid(what) => Error::Invalid(Invalid::new(what)),
        Refusal::Changed(what) => Error::Unavailable { message: format!("{what}; retry"), retry_after: RETRY_MAX },
    }
}
