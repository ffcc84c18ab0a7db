//! Splits and merges regions by order: checks the order, passes it to the leader of the region's group, and notes in the map what
//! came of it.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::{Error, RegionDescriptor, RegionId, range};
use tokio::time::Instant;

use crate::context::MasterContext;
use crate::fleet::region_moves;
use crate::servers::membership::Membership;

/// The calls that change the shape of regions.
pub struct RegionCalls {
    context: Arc<MasterContext>,
    membership: Arc<Membership>,
}

impl RegionCalls {
    /// The calls on this context.
    pub const fn new(context: Arc<MasterContext>, membership: Arc<Membership>) -> Self {
        Self { context, membership }
    }

    /// A region of the map.
    fn region(&self, region: RegionId) -> Result<RegionDescriptor, Error> {
        let known =
            self.context.journal.read(|catalog| catalog.regions().get(region).map(|entry| entry.descriptor.clone()));
        known.ok_or_else(|| Error::NotFound { what: format!("region {region}") })
    }

    /// Splits a region, near its middle if `at` is empty; returns the daughters.
    pub async fn split(&self, region: RegionId, at: Bytes) -> Result<Vec<RegionDescriptor>, Error> {
        if !at.is_empty() {
            range::check_boundary(&at)?;
        }
        let region = self.region(region)?;
        region_moves::refuse_moving(&self.context, &region)?;
        let daughters = self.context.orders.split(region.group, region.region, region.epoch, at).await?;
        let daughters: Vec<RegionDescriptor> =
            daughters.into_iter().map(TryInto::try_into).collect::<Result<_, Error>>()?;
        // The leader will report them, too, but the caller may read the map right after this call.
        self.membership.index_regions(&daughters).await?;
        Ok(daughters)
    }

    /// Merges two neighbours, in either order. Of two groups, one region moves first.
    pub async fn merge(&self, region: RegionId, other: RegionId, deadline: Instant) -> Result<RegionDescriptor, Error> {
        let both = || Ok::<_, Error>((self.region(region)?, self.region(other)?));
        let (mut one, mut other) = both()?;
        let (left, right) = RegionDescriptor::in_order(&one, &other);
        left.range_with(&RegionDescriptor { group: left.group, ..right.clone() })?;
        if one.group != other.group {
            region_moves::bring_together(&self.context, &one, &other, deadline).await?;
            (one, other) = both()?;
        }
        region_moves::refuse_moving(&self.context, &one)?;
        region_moves::refuse_moving(&self.context, &other)?;
        let merged = self.context.orders.merge(&one, &other).await?;
        // As after a split.
        self.membership.index_regions(std::slice::from_ref(&merged)).await?;
        Ok(merged)
    }
}
