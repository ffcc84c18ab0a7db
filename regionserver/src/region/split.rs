//! Splits a region: finds a boundary, takes two region ids from the stock, and proposes the split.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_env::task::run_blocking;
use terrane_types::{Error, Invalid, RegionDescriptor, range};

use super::boundary::{boundary, check_boundary};
use crate::edge::error_mapping::propose_error;
use crate::group::proposal::{Group, Proposal};
use crate::group::reply::Reply;
use crate::masters::addresses::Addresses;
use crate::masters::region_ids::RegionIdStock;
use crate::operation::Split;
use crate::replicas::hosted::HostedRegion;

/// How long a caller waits when no region ids are in stock.
const NO_IDS_RETRY: Duration = Duration::from_millis(500);

/// Searches a boundary near the middle. `None`: there is none.
pub async fn find_boundary(hosted: &Arc<HostedRegion>) -> Option<Bytes> {
    let (region, state) = (hosted.engine.clone(), hosted.state());
    // The engine may have to read indexes or many keys.
    let found = run_blocking(move || region.split_point(&|row| boundary(row, &state))).await;
    found.map(Bytes::from)
}

/// Splits a region that this server leads, at `at` or near the middle.
pub async fn split(
    hosted: &Arc<HostedRegion>,
    group: &Group,
    at: Option<Bytes>,
    stock: &RegionIdStock,
    addresses: &Addresses,
) -> Result<Vec<RegionDescriptor>, Error> {
    let _guard = hosted.begin_change("split")?;
    let state = hosted.state();
    let at = match at {
        Some(at) => {
            range::check_boundary(&at)?;
            state.descriptor.range.split(&at)?;
            check_boundary(&at, &state)?;
            at
        }
        None => find_boundary(hosted).await.ok_or_else(|| unsplittable(hosted))?,
    };
    let Some((left, right)) = stock.take_two() else {
        let message = "no region ids are in stock because the master has not answered recently".to_owned();
        return Err(Error::Unavailable { message, retry_after: NO_IDS_RETRY });
    };
    let split = Split { region: hosted.region, epoch: state.descriptor.epoch, left, right, at };
    let reply = group.propose(Proposal::Split(split)).await;
    match reply.map_err(|error| propose_error(error, group, addresses))? {
        Reply::Split { daughters } => Ok(daughters),
        refused => Err(super::write::refusal(refused)),
    }
}

fn unsplittable(hosted: &HostedRegion) -> Error {
    let bytes = hosted.engine.size_bytes();
    hosted.set_unsplittable(bytes.max(1));
    let what =
        format!("region {} cannot be split: it is empty, a single row, or a single atomic key prefix", hosted.region);
    Error::Invalid(Invalid { what })
}
