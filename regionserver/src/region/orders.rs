//! Orders about single regions: splits and merges, flushes and compactions, and what the server knows of the regions it leads.
//!
//! The gRPC service and other protocols in front of the same regions translate to these calls. An order names a region that this
//! server leads; a follower redirects to the leader.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::{Error, GroupId, RegionCounts, RegionDescriptor, RegionEpoch, RegionId, TableSchema};

use crate::background::maintenance::Maintenance;
use crate::edge::Edge;
use crate::edge::error_mapping::{require_leader, stopping};
use crate::group::proposal::Group;
use crate::masters::region_ids::RegionIdStock;
use crate::region::{merge, split};
use crate::replicas::hosted::HostedRegion;

/// The orders of one server.
pub struct RegionOrders {
    pub(crate) edge: Arc<Edge>,
    pub(crate) region_ids: Arc<RegionIdStock>,
    pub(crate) maintenance: Maintenance,
}

/// A region that this server leads.
#[derive(Clone, Debug)]
pub struct LedRegion {
    /// The region.
    pub descriptor: RegionDescriptor,
    /// Its table's schema.
    pub schema: Arc<TableSchema>,
    /// The term in which the server leads it.
    pub term: u64,
    /// What was requested of it, and what it occupies.
    pub counts: RegionCounts,
    /// Whether an ordered compaction is still to be finished.
    pub is_compacting: bool,
    /// Whether it can be split now, as far as is known.
    pub is_splittable: bool,
}

/// What this server has counted of a region.
pub(crate) fn counts_of(hosted: &HostedRegion) -> RegionCounts {
    let requested = hosted.load.total();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    RegionCounts {
        rows_read: requested.rows_read,
        rows_written: requested.rows_written,
        memtable_bytes: hosted.engine.memtable_bytes(),
        file_bytes: hosted.engine.file_bytes(),
        files: count(hosted.engine.file_count()),
        families: count(hosted.state().schema.families.len()),
    }
}

impl RegionOrders {
    /// The regions that this server leads.
    #[must_use]
    pub fn regions(&self) -> Vec<LedRegion> {
        let mut regions = Vec::new();
        for group in self.edge.host.groups() {
            let status = group.status();
            let machine = self.edge.replicas.machine(status.group).filter(|_| status.is_leader);
            let hosted = machine.map(|machine| machine.hosted()).unwrap_or_default();
            regions.extend(hosted.iter().map(|hosted| led(hosted, status.term)));
        }
        regions
    }

    /// A region that this server leads.
    ///
    /// # Errors
    /// A redirect.
    pub fn region(&self, region: RegionId) -> Result<LedRegion, Error> {
        let hosted = self.hosted(region, RegionEpoch(0))?;
        let group = self.group(hosted.group)?;
        Ok(led(&hosted, group.status().term))
    }

    /// Writes what is in the region's memtables to files; returns whether there was anything.
    ///
    /// # Errors
    /// A redirect, or why it failed.
    pub async fn flush(&self, region: RegionId) -> Result<bool, Error> {
        let hosted = self.hosted(region, RegionEpoch(0))?;
        self.group(hosted.group)?;
        let machine = self.edge.replicas.machine(hosted.group).ok_or_else(stopping)?;
        let is_filled = hosted.engine.memtable_bytes() > 0;
        machine.flush(region).await.map_err(|error| hosted.read_error(error))?;
        self.maintenance.signals.request_compaction();
        Ok(is_filled)
    }

    /// Begins to rewrite all files of the region here into their deepest level. [`LedRegion::is_compacting`] says when it is
    /// done.
    ///
    /// # Errors
    /// A redirect, or why the flush before it failed.
    pub async fn compact(&self, region: RegionId) -> Result<(), Error> {
        self.flush(region).await?;
        let hosted = self.hosted(region, RegionEpoch(0))?;
        self.maintenance.engine.request_compaction(&hosted.engine);
        self.maintenance.signals.request_compaction();
        Ok(())
    }

    /// Where the region would be split near its middle; `None`: nowhere.
    ///
    /// # Errors
    /// A redirect.
    pub async fn split_point(&self, region: RegionId) -> Result<Option<Bytes>, Error> {
        let hosted = self.hosted(region, RegionEpoch(0))?;
        self.group(hosted.group)?;
        Ok(split::find_boundary(&hosted).await)
    }

    /// Splits a region, near its middle if no boundary is given. An epoch of 0 is not checked.
    ///
    /// # Errors
    /// A redirect, or why it was not split.
    pub async fn split(
        &self,
        region: RegionId,
        epoch: RegionEpoch,
        at: Option<Bytes>,
    ) -> Result<Vec<RegionDescriptor>, Error> {
        let hosted = self.hosted(region, epoch)?;
        let group = self.group(hosted.group)?;
        split::split(&hosted, &group, at, &self.region_ids, &self.edge.addresses).await
    }

    /// Merges two neighbours of one group. An epoch of 0 is not checked.
    ///
    /// # Errors
    /// A redirect, or why they were not merged.
    pub async fn merge(
        &self,
        (one, one_epoch): (RegionId, RegionEpoch),
        (other, other_epoch): (RegionId, RegionEpoch),
    ) -> Result<RegionDescriptor, Error> {
        let (one, other) = (self.hosted(one, one_epoch)?, self.hosted(other, other_epoch)?);
        let group = self.group(one.group)?;
        merge::merge(&one, &other, &group, &self.region_ids, &self.edge.addresses).await
    }

    /// A region that an order names, at its epoch unless that is 0.
    fn hosted(&self, region: RegionId, epoch: RegionEpoch) -> Result<Arc<HostedRegion>, Error> {
        if self.edge.closing.is_cancelled() {
            return Err(stopping());
        }
        let hosted = self.edge.replicas.regions.get(region);
        let hosted =
            hosted.ok_or_else(|| Error::StaleEpoch { region, current: self.edge.replicas.successors(region) })?;
        let now = hosted.state().descriptor.clone();
        if epoch != RegionEpoch(0) && now.epoch != epoch {
            return Err(Error::StaleEpoch { region, current: vec![now] });
        }
        Ok(hosted)
    }

    /// A group that this server leads. A follower names the leader.
    pub(crate) fn group(&self, id: GroupId) -> Result<Group, Error> {
        let group = self.edge.host.group(id).ok_or_else(|| Error::NotFound { what: format!("group {id}") })?;
        require_leader(&group, &self.edge.addresses)?;
        Ok(group)
    }
}

fn led(hosted: &HostedRegion, term: u64) -> LedRegion {
    let state = hosted.state();
    LedRegion {
        descriptor: state.descriptor.clone(),
        schema: state.schema.clone(),
        term,
        counts: counts_of(hosted),
        is_compacting: hosted.engine.compaction_progress().wanted,
        is_splittable: hosted.is_in_manifest() && !hosted.is_changing() && !hosted.is_stuck(),
    }
}
