//! Records of group state: schemas, dropped tables and forwarding of split regions.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Background, Finished, InFlight};
use crate::group::machine::GroupMachine;

impl Background {
    /// Records the state of groups that changed.
    pub(super) fn start_records(&self, in_flight: &mut InFlight) {
        for machine in self.replicas.machines() {
            start(in_flight, machine);
        }
    }
}

fn start(in_flight: &mut InFlight, machine: Arc<GroupMachine>) {
    let group = machine.group();
    if in_flight.records.may_start(&group, Instant::now()) && machine.is_dirty() {
        in_flight.records.running.insert(group);
        in_flight.push(async move { Finished::Record(group, machine.record().await) });
    }
}
