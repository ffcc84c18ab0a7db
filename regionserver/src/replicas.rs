//! The replicas of this server: the state machine of each of its groups, and their regions by id. The edge looks up here
//! which region a request names.

pub(crate) mod comparing;
pub(crate) mod hosted;
pub(crate) mod membership;
pub(crate) mod mending;
pub(crate) mod orphans;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use terrane_types::{Error, GroupId, RegionDescriptor, RegionEpoch, RegionId, TableId};

use crate::group::machine::GroupMachine;
use crate::replicas::hosted::{HostedRegion, HostedRegions};

/// The state machines of a server, and the regions that they keep.
#[derive(Default)]
pub struct Replicas {
    /// Shared with the state machines, which write it. They do not know `Replicas`: such a cycle would never be freed.
    pub regions: Arc<HostedRegions>,
    machines: RwLock<BTreeMap<GroupId, Arc<GroupMachine>>>,
}

impl Replicas {
    pub fn insert_machine(&self, machine: Arc<GroupMachine>) {
        self.machines.write().insert(machine.group(), machine);
    }

    pub fn remove_machine(&self, group: GroupId) {
        self.machines.write().remove(&group);
    }

    pub fn machine(&self, group: GroupId) -> Option<Arc<GroupMachine>> {
        self.machines.read().get(&group).cloned()
    }

    pub fn machines(&self) -> Vec<Arc<GroupMachine>> {
        self.machines.read().values().cloned().collect()
    }

    /// Whether damage was found in the group's replica.
    pub fn is_damaged(&self, group: GroupId) -> bool {
        self.machine(group).is_some_and(|machine| machine.is_damaged())
    }

    /// The region that a request names, if it is here and at that epoch. Otherwise an error that redirects the caller.
    pub fn find(&self, table: TableId, region: RegionId, epoch: RegionEpoch) -> Result<Arc<HostedRegion>, Error> {
        let found = self.regions.get(region);
        if found.is_none()
            && terrane_env::planted!("a split region is answered by its first daughter")
            && let Some(first) = self.successors(region).first().and_then(|first| self.regions.get(first.region))
        {
            return Ok(first);
        }
        let Some(hosted) = found else {
            return Err(Error::StaleEpoch { region, current: self.successors(region) });
        };
        check_epoch(&hosted.state().descriptor, table, epoch)?;
        hosted.check_resting()?;
        Ok(hosted)
    }

    /// The regions that a region became, as far as any group here knows. Of a region that moved, the group that it left knows
    /// less than the one that it came to: there it may have been split or merged since.
    pub fn successors(&self, region: RegionId) -> Vec<RegionDescriptor> {
        let known = self.machines();
        let known = known.iter().map(|machine| machine.successors(region));
        known.max_by_key(|found| found.iter().map(|region| region.epoch).max()).unwrap_or_default()
    }
}

/// Checks that a request names the region's present epoch.
pub fn check_epoch(now: &RegionDescriptor, table: TableId, epoch: RegionEpoch) -> Result<(), Error> {
    if now.epoch != epoch || now.table != table {
        return Err(Error::StaleEpoch { region: now.region, current: vec![now.clone()] });
    }
    Ok(())
}
