//! Merges of neighbours that shrank, by the leader of their group.
//!
//! Merged regions must not split again soon, and regions that split a moment ago do not merge: the two are small together,
//! quiet together, and have rested. Boundaries that a table was created with stay (see
//! [`RegionState::planned`](crate::group::region_state::RegionState)): a table that was split in advance waits for its load.

use std::sync::Arc;
use std::time::Duration;

use terrane_types::{GroupId, KeyRange, RegionId, SplitPolicy, TableId};
use tokio::time::Instant;

use super::{Background, Finished, InFlight};
use crate::background::shape_limits::ShapeLimits;
use crate::edge::error_mapping::stopping;
use crate::region::merge;
use crate::replicas::hosted::HostedRegion;

/// How often regions to merge are looked for.
pub(super) const MERGE_INTERVAL: Duration = Duration::from_secs(5);

/// A region that this server leads, as far as the decision goes.
#[derive(Clone, Debug)]
struct Candidate {
    region: RegionId,
    table: TableId,
    group: GroupId,
    range: KeyRange,
    planned: KeyRange,
    policy: SplitPolicy,
    region_size: u64,
    bytes: u64,
    /// Units of load per second.
    load: u64,
    age: Duration,
    /// Nothing else is under way, and no reader would have to start over.
    is_free: bool,
}

impl Candidate {
    fn of(hosted: &HostedRegion, now_ns: u64) -> Self {
        let state = hosted.state();
        let is_free = hosted.is_in_manifest() && !hosted.is_changing() && !hosted.engine.is_being_read();
        Self {
            region: hosted.region,
            table: state.descriptor.table,
            group: hosted.group,
            range: state.descriptor.range.clone(),
            planned: state.planned.clone(),
            policy: state.schema.split_policy,
            region_size: state.schema.region_size,
            bytes: hosted.engine.size_bytes(),
            load: hosted.load.average().units(),
            age: hosted.age(now_ns),
            is_free,
        }
    }

    /// Whether this region and its neighbour with the higher rows become one.
    fn merges_with(&self, right: &Self, limits: &ShapeLimits) -> bool {
        let is_neighbour = self.table == right.table
            && self.group == right.group
            && !self.range.end.is_empty()
            && self.range.end == right.range.start;
        let may_merge = |one: &Self| one.is_free && one.policy == SplitPolicy::Size && one.age >= limits.merge_rest;
        let is_small = (self.bytes + right.bytes).saturating_mul(100)
            <= self.region_size.saturating_mul(limits.merge_size_percent);
        let is_quiet =
            (self.load + right.load).saturating_mul(100) <= limits.split_load.saturating_mul(limits.merge_load_percent);
        let is_within_plan = self.planned == right.planned;
        is_neighbour && is_within_plan && may_merge(self) && may_merge(right) && is_small && is_quiet
    }
}

/// The two neighbours to merge next: the smallest together. `candidates` are sorted by table and first row.
fn choose(candidates: &[Candidate], limits: &ShapeLimits) -> Option<(RegionId, RegionId)> {
    let pairs = candidates.windows(2).filter(|pair| pair[0].merges_with(&pair[1], limits));
    let smallest = pairs.min_by_key(|pair| pair[0].bytes + pair[1].bytes)?;
    Some((smallest[0].region, smallest[1].region))
}

impl Background {
    /// Starts a merge of two regions that this server leads, if there are such. One runs at a time.
    pub(super) fn start_merges(&self, in_flight: &mut InFlight) {
        let now = Instant::now();
        if !in_flight.merge_turn.is_due(now) || !in_flight.merges.running.is_empty() {
            return;
        }
        // A merge makes every replica write files, while the group's writes wait: not on a disk that is full or stalls.
        if self.host.abstains().is_some() {
            return;
        }
        let now_ns = terrane_env::time::now_ns();
        let mut led = self.replicas.regions.all();
        led.retain(|hosted| {
            let is_led = || self.host.group(hosted.group).is_some_and(|group| group.status().is_leader);
            in_flight.merges.may_start(&hosted.region, now) && is_led()
        });
        let mut candidates: Vec<Candidate> = led.iter().map(|hosted| Candidate::of(hosted, now_ns)).collect();
        candidates.sort_by(|a, b| (a.table, &a.range.start).cmp(&(b.table, &b.range.start)));
        let Some((left, right)) = choose(&candidates, &self.shape) else { return };
        let find = |region| led.iter().find(|hosted: &&Arc<HostedRegion>| hosted.region == region).cloned();
        let (Some(left), Some(right)) = (find(left), find(right)) else { return };
        let Some(group) = self.host.group(left.group) else { return };
        let bytes = left.engine.size_bytes() + right.engine.size_bytes();
        tracing::info!(left = %left.region, right = %right.region, bytes, "two regions that became small are merged");
        in_flight.merges.running.insert(left.region);
        let (ids, addresses) = (self.region_ids.clone(), self.addresses.clone());
        let stop = in_flight.stop.clone();
        in_flight.push(async move {
            let done = tokio::select! {
                biased;
                () = stop.cancelled() => Err(stopping()),
                done = merge::merge(&left, &right, &group, &ids, &addresses) => done.map(drop),
            };
            Finished::Merge(left.region, done)
        });
    }
}

#[cfg(test)]
mod tests;
