//! Merges of small neighbours that are in two groups: one moves next to the other, then the two become one.
//!
//! The leader of a group merges small neighbours by itself, but sees only the regions of its own group. The conditions here
//! are the same: small and quiet together, rested, and not a boundary that the table was created with. One pair at a time,
//! since nothing is urgent about it. A move for a merge remembers its partner, so the merge follows, whichever master leads.

use terrane_proto::v1;
use terrane_types::{RegionDescriptor, RegionId, SplitPolicy};

use super::shares;
use super::spread::{RegionStep, Spread};
use crate::catalog::Catalog;
use crate::catalog::moves::MoveEnd;
use crate::servers::observed::Observations;

/// Together they have at most this share of `region_size`, in percent: the default of region servers.
const SIZE_PERCENT: u64 = 25;
/// Rows and KiB per second that they are asked for together, at most: the default of region servers.
const UNITS_MAX: f64 = 5_000.0;
/// How long both must have existed in their present form.
fn rest_ms() -> u64 {
    terrane_env::limit!("seconds before regions of two groups merge", 600, 4..=20) * 1_000
}
/// For how long after its move a merge is tried.
const TRIED_FOR_MS: u64 = 600_000;

struct Neighbour<'a> {
    descriptor: &'a RegionDescriptor,
    shape: &'a v1::RegionShape,
    bytes: u64,
}

/// The move that brings two small neighbours together, if there are such and no other merge is under way.
pub fn plan(catalog: &Catalog, observed: &Observations, spread: &Spread, wall_ms: u64) -> Option<RegionStep> {
    let is_under_way = catalog.moves().iter().any(|(_, known)| known.merge_with.is_some());
    if spread.hold.is_some() || is_under_way || due(catalog, wall_ms).next().is_some() {
        return None;
    }
    let tables = catalog.tables().iter().filter(|table| table.schema.split_policy == SplitPolicy::Size);
    let pairs = tables.flat_map(|table| {
        let entries: Vec<_> = catalog.regions().of_table(table.schema.table).collect();
        let bytes_max = table.schema.region_size.saturating_mul(SIZE_PERCENT) / 100;
        let pairs = entries.windows(2).filter(|pair| pair.iter().all(|entry| !shares::rests(catalog, entry, wall_ms)));
        let pairs = pairs.filter_map(|pair| {
            let (left, right) = (neighbour(observed, &pair[0].descriptor)?, neighbour(observed, &pair[1].descriptor)?);
            step(spread, &left, &right, bytes_max).map(|step| (left.bytes + right.bytes, step))
        });
        pairs.collect::<Vec<_>>()
    });
    pairs.min_by_key(|(bytes, step)| (*bytes, step.region)).map(|(_, step)| step)
}

fn neighbour<'a>(observed: &'a Observations, descriptor: &'a RegionDescriptor) -> Option<Neighbour<'a>> {
    let view = observed.inventory.region(descriptor.group, descriptor.region)?;
    let is_current = view.descriptor.epoch == descriptor.epoch;
    Some(Neighbour { descriptor, shape: view.shape.as_ref().filter(|_| is_current)?, bytes: view.bytes })
}

fn step(spread: &Spread, left: &Neighbour<'_>, right: &Neighbour<'_>, bytes_max: u64) -> Option<RegionStep> {
    let is_rested = |one: &Neighbour<'_>| one.shape.age_ms >= rest_ms();
    let planned = |one: &Neighbour<'_>| (one.shape.planned_start.clone(), one.shape.planned_end.clone());
    let units = |one: &Neighbour<'_>| spread.regions.get(&one.descriptor.region).map_or(0.0, |share| share.units);
    let fits = left.descriptor.group != right.descriptor.group
        && planned(left) == planned(right)
        && is_rested(left)
        && is_rested(right)
        && left.bytes + right.bytes <= bytes_max
        && units(left) + units(right) <= UNITS_MAX;
    if !fits {
        return None;
    }
    let (moves, stays) = if left.bytes <= right.bytes { (left, right) } else { (right, left) };
    let ready = |one: &Neighbour<'_>| {
        let group = one.descriptor.group;
        spread.groups.get(&group).filter(|share| share.ready).map(|share| (group, share.leader))
    };
    let (from, to) = (ready(moves)?, ready(stays)?);
    let (region, stays) = (moves.descriptor.region, stays.descriptor.region);
    let why = format!(
        "it and region {stays} became small ({} KiB together) and are to merge",
        (left.bytes + right.bytes).div_ceil(1 << 10)
    );
    Some(RegionStep { region, epoch: moves.descriptor.epoch, from, to, merge_with: Some(stays), why })
}

/// The pairs that are together now and are to merge.
pub fn due(catalog: &Catalog, wall_ms: u64) -> impl Iterator<Item = (RegionDescriptor, RegionDescriptor)> {
    let recent = catalog.moves().ended().filter(move |ended| wall_ms < ended.ended_ms.saturating_add(TRIED_FOR_MS));
    recent.filter_map(|ended| {
        let MoveEnd::Moved(moved) = &ended.end else { return None };
        let now = |region: RegionId| catalog.regions().get(region).map(|entry| entry.descriptor.clone());
        let (one, other) = (now(moved.region)?, now(ended.merge_with?)?);
        // Neither has changed since.
        let is_whole = one.epoch == moved.epoch && one.group == other.group;
        let (left, right) = RegionDescriptor::in_order(&one, &other);
        (is_whole && left.range_with(right).is_ok()).then_some((one, other))
    })
}

#[cfg(test)]
mod tests;
