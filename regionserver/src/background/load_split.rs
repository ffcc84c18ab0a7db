//! Splits of regions for their load, by the leader of the region's group: the boundary halves the load, not the bytes.
//!
//! [`Watch`] decides when: the load has to stay high for several seconds. [`choose_unasked`] decides where, from rows sampled in
//! that time. A region whose load is on one row, on one atomic key prefix, or on keys that grow is not split, because one side
//! would keep all of it; `terrane status` says why.

use std::sync::Arc;

use terrane_types::SplitPolicy;
use terrane_types::escape::escape;
use tokio::time::Instant;

use super::split::SPLITS_MAX;
use super::{Background, Finished, InFlight};
use crate::background::shape_limits::ShapeLimits;
use crate::edge::error_mapping::stopping;
use crate::region::boundary::boundary;
use crate::region::load_boundary::{Choice, choose_unasked};
use crate::region::split;
use crate::replicas::hosted::HostedRegion;

/// Turns until a region whose load could not be spread is looked at again.
const RECHECK_TURNS: u32 = 30;

/// How long a region's load has been high.
#[derive(Debug, Default)]
pub(super) struct Watch {
    turns_above: u32,
    /// Turns until the next decision, after one that found no boundary.
    pause: u32,
}

/// What a turn of a watch leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The load is low: no rows are sampled.
    Rest,
    /// The load is high, or was a moment ago: rows are sampled.
    Sample,
    /// It has been high for long enough.
    Decide,
}

impl Watch {
    /// One turn, once per second, at this load.
    pub(super) fn turn(&mut self, units: u64, limits: &ShapeLimits) -> Step {
        if units < limits.split_load / 4 * 3 {
            *self = Self::default();
            return Step::Rest;
        }
        if units >= limits.split_load {
            self.turns_above += 1;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return Step::Sample;
        }
        match self.turns_above {
            0 => Step::Rest,
            above if above < limits.split_seconds => Step::Sample,
            _ => Step::Decide,
        }
    }

    /// The load cannot be spread as it is now, or the split failed.
    pub(super) fn postpone(&mut self) {
        self.pause = RECHECK_TURNS;
    }
}

impl Background {
    /// Measures the load of every region, once per second, and starts splits of those that this server leads and whose load
    /// has been high for long enough.
    pub(super) fn start_load_splits(&self, in_flight: &mut InFlight) {
        if !in_flight.load_turn.is_due(Instant::now()) {
            return;
        }
        let now_ns = terrane_env::time::now_ns();
        let regions = self.replicas.regions.all();
        in_flight.watches.retain(|region, _| self.replicas.regions.get(*region).is_some());
        for hosted in regions {
            let units = hosted.load.turn(now_ns).units();
            let is_led = || self.host.group(hosted.group).is_some_and(|group| group.status().is_leader);
            // Most regions are quiet, and cost no more than this.
            let is_watched = in_flight.watches.contains_key(&hosted.region);
            if !is_watched && units < self.shape.split_load {
                continue;
            }
            let watch = in_flight.watches.entry(hosted.region).or_default();
            let may_split = hosted.state().schema.split_policy == SplitPolicy::Size && is_led();
            let step = if may_split { watch.turn(units, &self.shape) } else { Step::Rest };
            hosted.load.set_sampling(step != Step::Rest);
            match step {
                Step::Rest => {
                    hosted.set_hot_spot(None);
                    in_flight.watches.remove(&hosted.region);
                }
                Step::Sample => {}
                Step::Decide => self.split_for_load(in_flight, &hosted, units, now_ns),
            }
        }
    }

    fn split_for_load(&self, in_flight: &mut InFlight, hosted: &Arc<HostedRegion>, units: u64, now_ns: u64) {
        let free = hosted.is_in_manifest() && !hosted.is_changing() && hosted.age(now_ns) >= self.shape.split_rest;
        let full = in_flight.splits.running.len() >= SPLITS_MAX;
        if full || !free || !in_flight.splits.may_start(&hosted.region, Instant::now()) {
            return;
        }
        let (region, state) = (hosted.region, hosted.state());
        let grows = hosted.load.hot(now_ns).grows;
        let choice = choose_unasked(grows, &hosted.load.samples(), |row| boundary(row, &state));
        let hot_spot = match choice {
            Choice::Unknown => return,
            Choice::At(at, heavier) => {
                let Some(group) = self.host.group(hosted.group) else { return };
                tracing::info!(%region, units, heavier, at = %escape(&at), "the region is split for its load");
                hosted.set_hot_spot(None);
                in_flight.splits.running.insert(region);
                let (ids, addresses) = (self.region_ids.clone(), self.addresses.clone());
                let (hosted, stop) = (hosted.clone(), in_flight.stop.clone());
                in_flight.push(async move {
                    let done = tokio::select! {
                        biased;
                        () = stop.cancelled() => Err(stopping()),
                        done = split::split(&hosted, &group, Some(at.into()), &ids, &addresses) => done.map(drop),
                    };
                    Finished::Split(hosted.region, done)
                });
                return;
            }
            Choice::HotRow(row, percent) => format!("{percent} % of it on row {}", escape(&row)),
            Choice::Growing => "on keys that grow".to_owned(),
            Choice::Nowhere => "on rows that no boundary may separate".to_owned(),
        };
        let sentence = format!(
            "region {region} of table {} has a load of {units} rows and KiB per second, {hot_spot}: a split would not spread it",
            state.schema.name
        );
        if hosted.set_hot_spot(Some(sentence.clone())) {
            tracing::warn!("{sentence}");
        }
        if let Some(watch) = in_flight.watches.get_mut(&region) {
            watch.postpone();
        }
    }
}

#[cfg(test)]
mod tests;
