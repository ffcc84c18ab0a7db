//! Whether this master leads.
//!
//! It leads from when `leading` has prepared it until another master leads, or a majority no longer confirms it. A
//! deposed leader may not know it yet. It cannot record anything, its orders are idempotent, and each round of orders
//! asks for confirmation first, so it stops within the lease.

pub(crate) mod deferred;
pub(crate) mod leading;

use std::time::Duration;

use terrane_types::Error;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::journal::Journal;

/// How often a leader makes sure that it still leads, and how long a majority may take to confirm it.
const CONFIRM_EVERY: Duration = Duration::from_millis(200);
const CONFIRM_MAX: Duration = Duration::from_secs(1);
/// How long a call waits while no master leads, which takes one election.
const ELECTION_WAIT_MAX: Duration = Duration::from_secs(2);

/// The leadership of this master.
pub struct Leadership {
    journal: Journal,
    /// The term in which this master leads and is ready to.
    term: watch::Sender<Option<u64>>,
    /// Whether this master is no master of the cluster any more.
    removed: watch::Sender<bool>,
}

impl Leadership {
    /// Not leading yet.
    pub fn new(journal: Journal) -> Self {
        Self { journal, term: watch::Sender::new(None), removed: watch::Sender::new(false) }
    }

    /// Whether this master leads.
    pub fn holds(&self) -> bool {
        self.term.borrow().is_some()
    }

    /// This master was removed from the cluster.
    pub fn set_removed(&self) {
        self.removed.send_replace(true);
    }

    /// Returns when this master was removed from the cluster.
    pub async fn removed(&self) {
        self.removed.subscribe().wait_for(|removed| *removed).await.ok();
    }

    /// Returns when this master leads.
    pub async fn gained(&self) {
        // The sender is in `self`.
        self.term.subscribe().wait_for(Option::is_some).await.ok();
    }

    /// Returns when this master does not lead.
    pub async fn lost(&self) {
        self.term.subscribe().wait_for(Option::is_none).await.ok();
    }

    /// Admits a call that only the leader answers. Waits for an election in progress, while its caller does.
    ///
    /// # Errors
    /// A redirect to the leader, or without one if none is known.
    pub async fn admit(&self, deadline: Instant) -> Result<(), Error> {
        if self.holds() {
            return Ok(());
        }
        let patience = deadline.saturating_duration_since(Instant::now()).min(ELECTION_WAIT_MAX);
        tokio::select! {
            biased;
            () = self.gained() => Ok(()),
            redirect = self.journal.leader_elsewhere(patience) => Err(redirect),
        }
    }

    /// Makes sure that this master still leads: under its lease, or by asking the other masters.
    ///
    /// # Errors
    /// A redirect.
    pub async fn confirm(&self) -> Result<(), Error> {
        match timeout(CONFIRM_MAX, self.journal.leader_barrier()).await {
            Ok(Ok(())) if self.holds() => Ok(()),
            _ => Err(self.journal.redirect()),
        }
    }

    /// This master leads in a term from now on; `None`: it does not lead.
    pub fn set(&self, term: Option<u64>) {
        self.term.send_replace(term);
    }

    /// Returns when another master leads, or when no majority confirms this one in its term.
    pub async fn until_deposed(&self, term: u64) {
        while self.journal.still_leads(term, CONFIRM_EVERY).await {
            match timeout(CONFIRM_MAX, self.journal.leader_barrier()).await {
                Ok(Ok(()) | Err(Error::Busy { .. })) => {}
                _ => break,
            }
        }
        terrane_env::buggify_pause!("a master learns late that it no longer leads").await;
    }
}
