//! Merges two neighbours: checks them, takes a region id from the stock, and proposes the merge.

use std::sync::Arc;
use std::time::Duration;

use terrane_types::{Error, RegionDescriptor};

use crate::edge::error_mapping::propose_error;
use crate::group::proposal::{Group, Proposal};
use crate::group::reply::Reply;
use crate::masters::addresses::Addresses;
use crate::masters::region_ids::RegionIdStock;
use crate::operation::Merge;
use crate::replicas::hosted::HostedRegion;

/// How long a caller waits when no region ids are in stock.
const NO_IDS_RETRY: Duration = Duration::from_millis(500);

/// Merges two regions that this server leads, in either order.
pub async fn merge(
    one: &Arc<HostedRegion>,
    other: &Arc<HostedRegion>,
    group: &Group,
    stock: &RegionIdStock,
    addresses: &Addresses,
) -> Result<RegionDescriptor, Error> {
    let (of_one, of_other) = (one.state(), other.state());
    let (left, right) = RegionDescriptor::in_order(&of_one.descriptor, &of_other.descriptor);
    left.range_with(right)?;
    let _guards = [one.begin_change("merge")?, other.begin_change("merge")?];
    let Some(into) = stock.take_one() else {
        let message = "no region ids are in stock because the master has not answered recently".to_owned();
        return Err(Error::Unavailable { message, retry_after: NO_IDS_RETRY });
    };
    let merge =
        Merge { left: left.region, left_epoch: left.epoch, right: right.region, right_epoch: right.epoch, into };
    terrane_env::buggify_pause!("a merge is proposed late").await;
    let reply = group.propose(Proposal::Merge(merge)).await;
    match reply.map_err(|error| propose_error(error, group, addresses))? {
        Reply::Merged { region } => Ok(region),
        refused => Err(super::write::refusal(refused)),
    }
}
