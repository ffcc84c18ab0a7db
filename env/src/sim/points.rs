//! Which fault points fire, which limits are small, and which bug is planted.
//!
//! Whether a point is active and whether a limit is small depends on the seed and the name alone, not on the order in which
//! code reaches them: a new point in the code does not change the others.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rand::RngCore;

use super::{rng_of, with_state};

/// One in so many fault points is active in a run.
const POINTS_PER_ACTIVE: u64 = 4;
/// An active point fires once in at least 2 passes, and at most in so many more.
const RATES: u64 = 50;
/// One in so many limits is small in a run with small limits.
const LIMITS_PER_SMALL: u64 = 3;

/// Things compared by `witness!`; beyond this the oldest by name and number are forgotten.
const WITNESSED_MAX: usize = 1 << 19;

/// The points of a run.
#[derive(Default)]
pub(super) struct Points {
    faults: bool,
    small: bool,
    points: BTreeMap<&'static str, Point>,
    /// The limits read so far; `None` for those that keep the production value.
    limits: BTreeMap<&'static str, Option<u64>>,
    /// The planted bug, if any.
    planted: Option<String>,
    /// The sums of `tally!`.
    tallies: BTreeMap<&'static str, u64>,
    /// What was seen first of everything that must be the same everywhere, if that is compared.
    witnessed: Option<BTreeMap<(&'static str, [u64; 2]), u64>>,
}

#[derive(Default)]
struct Point {
    /// It fires once in so many passes; 0 means never. Not drawn while fault points are off.
    one_in: Option<u64>,
    /// The harness has set the rate.
    aimed: bool,
    reached: u64,
    fired: u64,
}

/// Turns the fault points of `buggify!` and `buggify_pause!` on or off. They start off.
pub fn set_fault_points(on: bool) {
    with_state(|state| state.points.faults = on);
}

/// Makes the named fault point fire once in so many passes (0: never), whatever the seed drew.
pub fn aim_fault_point(name: &'static str, one_in: u64) {
    with_state(|state| {
        let point = state.points.points.entry(name).or_default();
        (point.one_in, point.aimed) = (Some(one_in), true);
    });
}

/// Each fault point that was reached: how often, and how often it fired.
pub fn fault_points() -> BTreeMap<&'static str, (u64, u64)> {
    with_state(|state| {
        let points = state.points.points.iter().filter(|(_, point)| point.reached > 0);
        points.map(|(name, point)| (*name, (point.reached, point.fired))).collect()
    })
}

/// Whether limits of `limit!` may be small in this run. Call it before the first limit is read. It starts off.
pub fn set_small_limits(on: bool) {
    with_state(|state| {
        state.points.small = on;
        state.points.limits.clear();
    });
}

/// Makes the named limit this small, whatever the seed drew. Call it after [`set_small_limits`], with a value of its range.
pub fn aim_limit(name: &'static str, value: u64) {
    with_state(|state| state.points.limits.insert(name, Some(value)));
}

/// The limits that are small in this run, as far as they were read.
pub fn small_limits() -> BTreeMap<&'static str, u64> {
    with_state(|state| {
        let limits = state.points.limits.iter();
        limits.filter_map(|(name, limit)| limit.map(|limit| (*name, limit))).collect()
    })
}

/// Switches the named bug on (see [`crate::planted!`]).
pub fn plant(name: &str) {
    with_state(|state| state.points.planted = Some(name.to_owned()));
}

/// Makes `witness!` compare from now on. It starts off, because what is compared belongs to one cluster.
pub fn compare_witnesses() {
    with_state(|state| state.points.witnessed = Some(BTreeMap::new()));
}

pub(crate) fn compares_witnesses() -> bool {
    with_state(|state| state.points.witnessed.is_some())
}

/// What was seen first; `is` if nothing was.
pub(crate) fn first_witness(name: &'static str, of: [u64; 2], is: u64) -> u64 {
    with_state(|state| {
        let Some(witnessed) = &mut state.points.witnessed else { return is };
        let first = *witnessed.entry((name, of)).or_insert(is);
        if witnessed.len() > WITNESSED_MAX {
            witnessed.pop_first();
        }
        first
    })
}

pub(crate) fn add_to_tally(name: &'static str, more: u64) {
    with_state(|state| *state.points.tallies.entry(name).or_default() += more);
}

/// A sum of `tally!`; 0 if nothing was added yet.
pub fn tally_of(name: &str) -> u64 {
    with_state(|state| state.points.tallies.get(name).copied().unwrap_or(0))
}

pub(crate) fn bug_is_planted(name: &'static str) -> bool {
    with_state(|state| state.points.planted.as_deref() == Some(name))
}

pub(crate) fn fault_point(name: &'static str) -> bool {
    with_state(|state| {
        let (seed, faults) = (state.seed, state.points.faults);
        let point = state.points.points.entry(name).or_default();
        point.reached += 1;
        if !faults && !point.aimed {
            return false;
        }
        let one_in = *point.one_in.get_or_insert_with(|| {
            let mut rng = rng_of(seed, name);
            let active = rng.next_u64().is_multiple_of(POINTS_PER_ACTIVE);
            if active { 2 + rng.next_u64() % RATES } else { 0 }
        });
        let fires = one_in != 0 && state.rng.next_u64().is_multiple_of(one_in);
        point.fired += u64::from(fires);
        fires
    })
}

/// The small value of a limit in this run, if it is small.
pub(crate) fn small_limit(name: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
    with_state(|state| {
        if let Some(limit) = state.points.limits.get(name) {
            return *limit;
        }
        if !state.points.small {
            return None;
        }
        let mut rng = rng_of(state.seed, name);
        let width = range.end().saturating_sub(*range.start()).saturating_add(1);
        let small = rng.next_u64().is_multiple_of(LIMITS_PER_SMALL);
        let limit = small.then(|| range.start() + rng.next_u64() % width);
        state.points.limits.insert(name, limit);
        limit
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seed;

    fn passes(from: u64) -> Vec<bool> {
        seed(from);
        set_fault_points(true);
        (0..200).map(|_| fault_point("a") | fault_point("b")).collect()
    }

    #[test]
    fn a_seed_fires_the_same_points_twice() {
        (0..16).for_each(|seed| assert_eq!(passes(seed), passes(seed)));
    }

    #[test]
    fn fault_points_fire_in_some_runs_only_and_are_counted() {
        let firing = (0..64).filter(|s| passes(*s).contains(&true)).count();
        assert!(firing > 4 && firing < 60, "{firing} of 64 runs fired");
        seed(1);
        aim_fault_point("b", 1);
        assert!(fault_point("b") && !fault_point("a"));
        assert_eq!(fault_points(), BTreeMap::from([("a", (1, 0)), ("b", (1, 1))]));
    }

    #[test]
    fn only_the_bug_that_was_planted_is_made() {
        seed(1);
        assert!(!bug_is_planted("a"));
        plant("a");
        assert!(bug_is_planted("a") && !bug_is_planted("b"));
    }

    #[test]
    fn what_differs_from_its_first_witness_ends_the_run() {
        let see = |leader: u64| std::panic::catch_unwind(|| crate::witness!("the leader of a term", [1, 2], leader));
        seed(1);
        assert!(see(5).is_ok() && see(6).is_ok(), "nothing is compared yet");
        compare_witnesses();
        assert!(see(5).is_ok() && see(5).is_ok());
        assert!(see(6).is_err());
        crate::witness!("the leader of a term", [1, 3], 6);
    }

    #[test]
    fn a_tally_adds_up_and_starts_over_with_the_seed() {
        seed(1);
        crate::tally!("rows", 2);
        crate::tally!("rows", 3);
        assert_eq!((tally_of("rows"), tally_of("bytes")), (5, 0));
        seed(1);
        assert_eq!(tally_of("rows"), 0);
    }

    #[test]
    fn limits_are_small_in_some_runs_and_the_same_for_a_whole_run() {
        let limit = || crate::limit!("a queue", 1_000_usize, 2..=5);
        let drawn = |from| {
            seed(from);
            set_small_limits(true);
            assert_eq!(limit(), limit());
            limit()
        };
        let small = (0..64).map(drawn).filter(|limit| *limit != 1_000).collect::<Vec<_>>();
        assert!(small.len() > 8 && small.len() < 40, "{} of 64 runs have a small limit", small.len());
        assert!((2..=5).all(|value| small.contains(&value)) && small.iter().all(|value| (2..=5).contains(value)));
        seed(1);
        assert_eq!(limit(), 1_000, "limits start as in production");
        assert!(small_limits().is_empty());
        aim_limit("a queue", 3);
        assert_eq!(limit(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_takes_time_only_when_it_fires() {
        seed(1);
        let before = tokio::time::Instant::now();
        crate::buggify_pause!("a pause").await;
        assert_eq!(before.elapsed().as_millis(), 0);
        aim_fault_point("a pause", 1);
        crate::buggify_pause!("a pause").await;
        assert!(before.elapsed().as_millis() >= 1);
    }
}
