//! The replicas of this server: the state machine of each of its groups, and their regions by id. The edge looks up here
//! which region a request names.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use terrane_types::{Error, GroupId, RegionDescriptor, RegionEpoch, RegionId, TableId};

use crate::group::machine::GroupMachine;
use crate::hosted::{HostedRegion, HostedRegions};

/// A server's regions and the state machines that keep them.
#[derive(Default)]
pub struct Replicas {
    /// Shared with the state machines, which write it. They do not know the registry, or nobody would ever be dropped.
    pub regions: Arc<HostedRegions>,
    machines: RwLock<BTreeMap<GroupId, Arc<GroupMachine>>>,
}

impl Replicas {
    pub fn insert_machine(&self, machine: Arc<GroupMachine>) {
        self.machines.write().insert(machine.group(), machine);
    }

    pub fn machine(&self, group: GroupId) -> Option<Arc<GroupMachine>> {
        self.machines.read().get(&group).cloned()
    }

    pub fn machines(&self) -> Vec<Arc<GroupMachine>> {
        self.machines.read().values().cloned().collect()
    }

    /// The region that a request names, if it is here and of that table and epoch; else the refusal that redirects.
    pub fn find(&self, table: TableId, region: RegionId, epoch: RegionEpoch) -> Result<Arc<HostedRegion>, Error> {
        let Some(hosted) = self.regions.get(region) else {
            return Err(Error::StaleEpoch { region, current: self.successors(region) });
        };
        check_epoch(&hosted.state().descriptor, table, epoch)?;
        Ok(hosted)
    }

    /// What a region that is no longer here was split into, as far as any group here remembers.
    pub fn successors(&self, region: RegionId) -> Vec<RegionDescriptor> {
        self.machines()
            .iter()
            .map(|machine| machine.successors(region))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }
}

/// The epoch check: a request must name the region as it is now.
pub fn check_epoch(now: &RegionDescriptor, table: TableId, epoch: RegionEpoch) -> Result<(), Error> {
    if now.epoch != epoch || now.table != table {
        return Err(Error::StaleEpoch { region: now.region, current: vec![now.clone()] });
    }
    Ok(())
}
