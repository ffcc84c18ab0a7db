//! Flushes: measures the memtables and starts the flushes that the policy picks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use terrane_types::{GroupId, RegionId};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::flush_policy::{self, Candidate, FLUSHES_MAX};
use super::{Background, Finished, InFlight};
use crate::group::machine::FlushNeed;

/// A flush that could not freeze its region within this time waits for an entry, and takes no slot meanwhile.
const FREEZE_MAX: Duration = Duration::from_millis(100);

/// The flushes in flight: which of them wait for an entry, and the slots of those that write.
pub(super) struct Flushing {
    waits: BTreeMap<(GroupId, RegionId), Arc<AtomicBool>>,
    slots: Arc<Semaphore>,
}

impl Default for Flushing {
    fn default() -> Self {
        Self { waits: BTreeMap::new(), slots: Arc::new(Semaphore::new(FLUSHES_MAX)) }
    }
}

impl Flushing {
    fn begin(&mut self, region: (GroupId, RegionId)) -> Arc<AtomicBool> {
        self.waits.entry(region).or_default().clone()
    }

    pub(super) fn end(&mut self, region: &(GroupId, RegionId)) {
        self.waits.remove(region);
    }

    fn waiting(&self) -> BTreeSet<(GroupId, RegionId)> {
        let waits = self.waits.iter().filter(|(_, waits)| waits.load(Ordering::Relaxed));
        waits.map(|(region, _)| *region).collect()
    }
}

impl Background {
    /// Starts the flushes that are due, and passes the size of the memtables on to those that hold writes back by it.
    pub(super) fn start_flushes(&self, in_flight: &mut InFlight) {
        let now = Instant::now();
        let requested = self.signals.requested_flushes();
        let mut machines = BTreeMap::new();
        let mut candidates = Vec::new();
        let mut total = 0;
        let waiting = in_flight.flushing.waiting();
        let waits: BTreeSet<GroupId> = waiting.iter().map(|(group, _)| *group).collect();
        for machine in self.replicas.machines() {
            for need in machine.flush_needs() {
                total += need.memtable_bytes;
                let region = (machine.group(), need.region);
                // Another flush of the group would wait for the same entry.
                if !in_flight.flushes.backoffs.holds(&region, now) && !waits.contains(&region.0) {
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
        let running = &in_flight.flushes.running;
        for region in flush_policy::choose(&candidates, running, &waiting, self.memtable_budget) {
            let Some(machine) = machines.remove(&region) else { continue };
            self.signals.flush_begins(region.1);
            in_flight.flushes.running.insert(region);
            let (waits, slots) = (in_flight.flushing.begin(region), in_flight.flushing.slots.clone());
            let signals = self.signals.clone();
            in_flight.push(async move {
                let freeze = machine.freeze_for_flush(region.1);
                tokio::pin!(freeze);
                let frozen = match tokio::time::timeout(FREEZE_MAX, freeze.as_mut()).await {
                    Ok(frozen) => frozen,
                    Err(_) => {
                        waits.store(true, Ordering::Relaxed);
                        signals.wake();
                        let frozen = freeze.await;
                        waits.store(false, Ordering::Relaxed);
                        frozen
                    }
                };
                let Some(hosted) = frozen else { return Finished::Flush(region, Ok(())) };
                // More may have frozen their regions than may write.
                let _slot = slots.acquire().await;
                Finished::Flush(region, machine.flush_frozen(&hosted).await)
            });
        }
    }
}
