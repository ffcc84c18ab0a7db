//! Flushes: measures the memtables and starts the flushes that the policy picks.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::flush_policy::{self, Candidate};
use super::{Background, Finished, InFlight};
use crate::group::machine::FlushNeed;

impl Background {
    /// Starts the flushes that are due, and passes the size of the memtables on to those that hold writes back by it.
    pub(super) fn start_flushes(&self, in_flight: &mut InFlight) {
        let now = Instant::now();
        let requested = self.signals.requested_flushes();
        let mut machines = BTreeMap::new();
        let mut candidates = Vec::new();
        let mut total = 0;
        for machine in self.replicas.machines() {
            for need in machine.flush_needs() {
                total += need.memtable_bytes;
                let region = (machine.group(), need.region);
                if !in_flight.flushes.backoffs.holds(&region, now) {
                    let requested = requested.contains(&need.region);
                    let FlushNeed { memtable_bytes, active_bytes, flush_size, .. } = need;
                    candidates.push(Candidate { region, memtable_bytes, active_bytes, flush_size, requested });
                    machines.insert(region, machine.clone());
                }
            }
        }
        self.admission.set_memtable_bytes(total);
        self.signals.set_memtable_bytes(total);
        self.signals.retain_flushes(|region| self.replicas.regions.get(region).is_some());
        for region in flush_policy::choose(&candidates, &in_flight.flushes.running, self.memtable_budget) {
            let Some(machine) = machines.remove(&region) else { continue };
            self.signals.flush_begins(region.1);
            in_flight.flushes.running.insert(region);
            in_flight.push(async move { Finished::Flush(region, machine.flush(region.1).await) });
        }
    }
}
