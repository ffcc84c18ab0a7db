//! Splits of regions that outgrew their table's region size, proposed by the leader of the region's group.

use terrane_types::SplitPolicy;
use tokio::time::Instant;

use super::{Background, Finished, InFlight};
use crate::edge::error_mapping::stopping;
use crate::region::split;
use crate::replicas::hosted::HostedRegion;

/// Splits in flight at once, by size or load: each freezes a memtable, and their manifest records are written one after another.
pub(super) const SPLITS_MAX: usize = 4;
/// A region that had no boundary is looked at again once it has grown by this share, in percent.
const UNSPLITTABLE_GROWTH_PERCENT: u64 = 25;

impl Background {
    /// Starts splits of regions that are too large and led by this server.
    pub(super) fn start_splits(&self, in_flight: &mut InFlight) {
        let now = Instant::now();
        for hosted in self.replicas.regions.all() {
            if in_flight.splits.running.len() >= SPLITS_MAX {
                // The next turn comes when one of them ends.
                return;
            }
            let may_start = in_flight.splits.may_start(&hosted.region, now) && hosted.is_in_manifest();
            if !may_start || !SizeCheck::of(&hosted).wants_split() {
                continue;
            }
            let Some(group) = self.host.group(hosted.group) else { continue };
            if group.status().is_leader {
                in_flight.splits.running.insert(hosted.region);
                let (ids, addresses) = (self.region_ids.clone(), self.addresses.clone());
                let stop = in_flight.stop.clone();
                in_flight.push(async move {
                    let done = tokio::select! {
                        biased;
                        // A leader without a quorum would wait indefinitely. The log says what became of the split.
                        () = stop.cancelled() => Err(stopping()),
                        done = split::split(&hosted, &group, None, &ids, &addresses) => done.map(drop),
                    };
                    Finished::Split(hosted.region, done)
                });
            }
        }
    }
}

/// What decides whether a region is split by size.
#[derive(Clone, Copy, Debug)]
struct SizeCheck {
    policy: SplitPolicy,
    region_size: u64,
    bytes: u64,
    /// The size at which no boundary was found; 0: none was looked for.
    unsplittable_bytes: u64,
}

impl SizeCheck {
    fn of(hosted: &HostedRegion) -> Self {
        let schema = &hosted.state().schema;
        Self {
            policy: schema.split_policy,
            region_size: schema.region_size,
            bytes: hosted.engine.size_bytes(),
            unsplittable_bytes: hosted.unsplittable_bytes(),
        }
    }

    /// Whether the region is over its table's size, in a table whose regions split by size, and is not known to have no
    /// boundary at about its present size.
    fn wants_split(&self) -> bool {
        let Self { policy, region_size, bytes, unsplittable_bytes } = *self;
        let retry_above = unsplittable_bytes + unsplittable_bytes / 100 * UNSPLITTABLE_GROWTH_PERCENT;
        policy == SplitPolicy::Size && bytes >= region_size && (unsplittable_bytes == 0 || bytes > retry_above)
    }
}

#[cfg(test)]
mod tests;
