//! Compactions, one at a time: the engine chooses the most urgent one of a region that does not pause after a failure.

use tokio::time::Instant;

use super::{Background, Finished, InFlight};

/// Compactions of pausing regions that are skipped in one search for one that may run.
const SKIPPED_MAX: usize = 64;

impl Background {
    /// Starts the most urgent compaction, unless one runs. The search itself updates the pressure on writers, so it is made
    /// also while a compaction runs.
    pub(super) fn start_compaction(&self, in_flight: &mut InFlight) {
        if !self.signals.take_compaction() && in_flight.compactions.backoffs.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut skipped = Vec::new();
        let mut next = self.engine.next_compaction();
        self.admission.set_compaction_pressure(self.engine.pressure());
        while let Some(compaction) = next.take_if(|next| in_flight.compactions.backoffs.holds(&next.region().id(), now))
        {
            if skipped.len() == SKIPPED_MAX {
                break;
            }
            // While it is held it counts as running, so the engine offers the next one.
            skipped.push(compaction);
            next = self.engine.next_compaction();
        }
        let Some(compaction) = next else { return };
        if !in_flight.compactions.running.is_empty() {
            // It is found again when the running one ends.
            return;
        }
        let (engine, region) = (self.engine.clone(), compaction.region().id());
        in_flight.compactions.running.insert(region);
        in_flight.push(async move { Finished::Compaction(region, engine.compact(compaction).await) });
    }
}
