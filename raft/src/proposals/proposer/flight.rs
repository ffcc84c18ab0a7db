//! An entry in flight: it brings the outcome to the callers and to the proposer, exactly once.

use std::sync::Arc;

use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use tokio::sync::mpsc;

use super::backlog::EntryOutcome;
use crate::metrics::Metrics;
use crate::proposals::submission::Pending;
use crate::types::{Applied, Types};
use crate::{ProposeError, Timing};

/// An entry in flight.
pub(super) struct InFlightEntry {
    pub(super) ordinal: u64,
    /// What was packed into it.
    pub(super) proposals: Vec<Pending>,
    /// When it was packed, in nanoseconds of the monotonic clock.
    pub(super) packed_ns: u64,
    pub(super) metrics: Arc<Metrics>,
    /// Taken when the outcome is reported.
    pub(super) landed: Option<mpsc::Sender<EntryOutcome>>,
}

impl InFlightEntry {
    /// Runs where the outcome became known, as a rule in the task that applied the entry.
    pub(super) fn land(mut self, outcome: ClientWriteResult<Types>) {
        match outcome {
            Ok(response) => match response.data {
                Applied::Answered { mut answers, apply_ns } => {
                    let flight_ns = terrane_env::time::now_ns().saturating_sub(self.packed_ns);
                    let commit_ns = flight_ns.saturating_sub(apply_ns);
                    self.metrics.commit.observe_ns(commit_ns);
                    let packed_ns = self.packed_ns;
                    self.proposals.drain(..).for_each(|pending| {
                        let queue_ns = packed_ns.saturating_sub(pending.submitted_ns);
                        pending.answer(&mut answers, Timing { queue_ns, commit_ns, apply_ns });
                    });
                    self.report(EntryOutcome::Applied);
                }
                Applied::Skipped => self.return_proposals(false),
            },
            // Refused before it was appended.
            Err(ClientWriteError::ForwardToLeader(_)) => self.return_proposals(true),
            // It was appended and then gave way to another leader's log; it may have been committed all the same. The drop
            // reports that.
            Err(_) => {}
        }
    }

    fn return_proposals(&mut self, refused: bool) {
        let proposals = std::mem::take(&mut self.proposals);
        self.report(EntryOutcome::Back { ordinal: self.ordinal, proposals, refused });
    }

    fn report(&mut self, landed: EntryOutcome) {
        let Some(sender) = self.landed.take() else {
            return;
        };
        // The channel holds all that may be in flight, so this fails only when the proposer has ended.
        if let Err(error) = sender.try_send(landed)
            && let EntryOutcome::Back { proposals, .. } = error.into_inner()
        {
            proposals.into_iter().for_each(|pending| pending.fail(ProposeError::Stopped));
        }
    }
}

impl Drop for InFlightEntry {
    fn drop(&mut self) {
        for pending in self.proposals.drain(..) {
            pending.fail(ProposeError::Uncertain);
        }
        self.report(EntryOutcome::Lost);
    }
}
