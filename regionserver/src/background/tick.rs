//! Keeps log time moving in groups with cells that expire: an empty entry per minute where nothing is written, and flushes
//! that record the new log time. Compactions decide what has expired by the recorded time.

use std::time::Duration;

use super::{Background, Finished, InFlight};
use crate::group::proposal::Proposal;
use tokio::time::Instant;

/// How often quiet groups with cells that expire write an empty entry.
pub(super) const TICK_INTERVAL: Duration = Duration::from_secs(60);

impl Background {
    /// Advances log time where it is due.
    pub(super) fn start_ticks(&self, in_flight: &mut InFlight) {
        if !in_flight.tick.is_due(Instant::now()) {
            return;
        }
        let interval = u64::try_from(TICK_INTERVAL.as_millis()).expect("a minute fits");
        for machine in self.replicas.machines() {
            let (advancing, signals) = (machine.clone(), self.signals.clone());
            in_flight.push(async move {
                for region in advancing.advance_log_time(interval).await {
                    signals.request_flush(region);
                }
                Finished::Tick
            });
            let Some(group) = self.host.group(machine.group()) else { continue };
            let quiet = machine.log_time() + interval <= group.time_ms(0);
            if quiet && machine.has_expiring_cells() && group.status().is_leader {
                let stop = in_flight.stop.clone();
                in_flight.push(async move {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        // If it fails, the next leader tries again in a minute.
                        _ = group.propose(Proposal::Tick) => {}
                    }
                    Finished::Tick
                });
            }
        }
    }
}
