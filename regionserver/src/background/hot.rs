//! What is hot on this server: of each region that it leads, the hottest rows and the key at which a split would halve the load.
//!
//! Only leaders answer. They receive all writes and, unless a caller asks for less than the newest, all reads; so one server
//! speaks for a region, and the answers of all servers can be put together.

use std::cmp::Reverse;
use std::sync::Arc;

use terrane_types::TableId;

use crate::edge::Edge;
use crate::group::region_state::RegionState;
use crate::region::boundary::boundary;
use crate::region::hot_sampler::Hot;
use crate::region::load::Load;
use crate::region::load_boundary::{Choice, choose};
use crate::region::sample::Sample;
use crate::replicas::hosted::HostedRegion;

/// Regions in one answer.
pub const REGIONS_MAX: usize = 256;
/// A boundary of fewer key parts is easier to read, and worth this much less balance, in percent of the load.
const SHORTER_PERCENT: u64 = 5;

/// What is hot in a region.
pub struct HotRegion {
    pub state: Arc<RegionState>,
    pub load: Load,
    pub hot: Hot,
    /// Where a split would halve the load, and what the heavier side would keep, in percent.
    pub split: Option<(Vec<u8>, u64)>,
}

/// The busiest regions that this server leads, of one table or of all.
pub fn hot_regions(edge: &Edge, table: Option<TableId>) -> Vec<HotRegion> {
    let is_led = |hosted: &HostedRegion| edge.host.group(hosted.group).is_some_and(|group| group.status().is_leader);
    let wanted = |hosted: &Arc<HostedRegion>| table.is_none_or(|table| hosted.state().descriptor.table == table);
    let mut regions = edge.replicas.regions.all();
    regions.retain(|hosted| wanted(hosted) && is_led(hosted));
    regions.sort_by_key(|hosted| (Reverse(hosted.load.average().units()), hosted.region));
    regions.truncate(REGIONS_MAX);
    let now_ns = terrane_env::time::now_ns();
    let look = |hosted: &Arc<HostedRegion>| {
        let (state, hot) = (hosted.state(), hosted.load.hot(now_ns));
        // Where the load of a growing key was halved, none is any more.
        let split = if hot.grows { None } else { split_key(&hot.spread, &state) };
        HotRegion { split, load: hosted.load.average(), state, hot }
    };
    regions.iter().map(look).collect()
}

/// The key at which the sampled load is halved, if there is one: a boundary that a split accepts, of as few key parts as
/// balance allows.
fn split_key(spread: &[Sample], state: &RegionState) -> Option<(Vec<u8>, u64)> {
    let Choice::At(best, heavier) = choose(spread, |row| boundary(row, state)) else { return None };
    if let Some(key) = &state.schema.key {
        for parts in 1..u32::try_from(key.parts().len()).unwrap_or(u32::MAX) {
            let leading = |row: &[u8]| boundary(&row[..key.prefix_len(row, parts)?], state);
            match choose(spread, leading) {
                Choice::At(at, share) if share <= heavier + SHORTER_PERCENT => return Some((at, share)),
                _ => {}
            }
        }
    }
    Some((best, heavier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::boundary::check_boundary;
    use crate::region::boundary::tests::region;

    fn spread(rows: impl IntoIterator<Item = Vec<u8>>) -> Vec<Sample> {
        rows.into_iter().map(|row| Sample { row: row.into(), units: 1 }).collect()
    }

    fn row(user: u32, time: u32) -> Vec<u8> {
        [user.to_be_bytes(), time.to_be_bytes()].concat()
    }

    #[test]
    fn the_boundary_has_as_few_key_parts_as_balance_allows() {
        let region = region(b"", Some("user:u32, time:u32"), 0);
        let (at, heavier) = split_key(&spread((0..100).map(|number| row(number, 7))), &region).unwrap();
        assert_eq!((at, heavier), (50_u32.to_be_bytes().to_vec(), 50));
        // One user has all of it: only the time separates its rows.
        let (at, heavier) = split_key(&spread((0..100).map(|time| row(7, time))), &region).unwrap();
        assert_eq!((at, heavier), (row(7, 50), 50));
    }

    #[test]
    fn rows_that_stay_together_are_never_separated() {
        let atomic = region(b"", Some("user:u32, time:u32"), 1);
        assert_eq!(split_key(&spread((0..100).map(|time| row(7, time))), &atomic), None);
        let (at, _) = split_key(&spread((0..100).map(|number| row(number % 10, number))), &atomic).unwrap();
        assert!(at.len() == 4 && check_boundary(&at, &atomic).is_ok(), "{at:?}");
    }

    #[test]
    fn the_boundary_is_within_the_region_and_not_its_start() {
        let half_hot = || spread((0..100).map(|number| row(if number < 65 { 7 } else { number }, 0)));
        let (at, heavier) = split_key(&half_hot(), &region(&7_u32.to_be_bytes(), None, 0)).unwrap();
        assert!(at > row(7, 0) && heavier == 65, "{at:?} {heavier}");
        let region = region(&row(7, 0), Some("user:u32, time:u32"), 0);
        let (at, heavier) = split_key(&half_hot(), &region).unwrap();
        assert!(at > row(7, 0) && heavier == 65, "{at:?} {heavier}");
        assert_eq!(split_key(&spread((0..100).map(|_| row(7, 0))), &region), None);
    }

    #[test]
    fn few_samples_give_no_boundary() {
        assert_eq!(split_key(&spread((0..10).map(|number| row(number, 0))), &region(b"", None, 0)), None);
    }
}
