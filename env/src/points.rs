//! Points in production code at which the simulation changes something: fault points, pauses, small limits and planted
//! bugs. In production they cost nothing: each expands to a constant.
//!
//! Every macro calls a function of this crate, so that this crate's feature decides, not the caller's. Names are sentences
//! that say what happens; a run reports them with their counts (`sim::counts`).

/// A fault point: true when the simulation injects an unlucky but legal event here. Always false in production.
///
/// Use it for what real systems do rarely: a batch cut short, a cache eviction, a needless retry. With a number, as in
/// `buggify!("a link breaks", 64)`, it fires that many times more rarely: for what would stop everything if it happened at
/// every second pass.
#[macro_export]
macro_rules! buggify {
    ($name:literal) => {
        $crate::fault_point($name)
    };
    ($name:literal, $rarer:literal) => {
        $crate::fault_point($name) && $crate::rand::range(0..$rarer) == 0
    };
}

/// A fault point that delays: `buggify_pause!("name").await` takes some milliseconds when the simulation wants it to.
/// Returns at once in production.
///
/// Use it between two steps whose order matters, where a slow thread or a page fault could hold up a real process.
#[macro_export]
macro_rules! buggify_pause {
    ($name:literal) => {
        $crate::pause_point($name)
    };
}

/// A limit: `limit!("proposals in flight", 1_024, 2..=64)` is the constant 1,024 in production. In some simulated runs it is
/// a number from the range instead, the same one for the whole run.
///
/// Use it for queues, windows, caches and batches whose limit no run would reach otherwise. Any value of the range must be
/// legal. The number is unsigned, and not a constant under the feature `sim`: read it in a function.
#[macro_export]
macro_rules! limit {
    ($name:literal, $value:expr, $small:expr) => {
        $crate::limit($name, $value, $small)
    };
}

/// A change that the harness orders for one host, made once: `struck!("a cell changes", || is_the_row(..))` is true the first time
/// that the place is met after the order. In production the place is not looked at.
///
/// Unlike a fault point it is *not* legal: the harness orders it only where it is checked that the change is found.
#[macro_export]
macro_rules! struck {
    ($name:literal, $is_the_place:expr) => {
        $crate::is_struck($name, $is_the_place)
    };
}

/// A planted bug: true when the simulation runs with this bug switched on, to test whether it finds it. Always false in
/// production.
///
/// Unlike a fault point it is *not* legal: a run with it must fail. A run that passes is a bug of the harness.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::bug_is_planted($name)
    };
}

/// Something that must be the same wherever and whenever it is seen: `witness!("the leader of a term", [group, term],
/// leader)`. In a simulated run that compares, a different value ends the run. In production the value is not computed.
///
/// Use it where nodes must agree on something and do not tell each other.
#[macro_export]
macro_rules! witness {
    ($name:literal, $of:expr, $is:expr) => {
        $crate::witnessed($name, || ($of, $is))
    };
}

/// A sum that only the simulation keeps: `tally!("rows that clients sent", 3)`. A check compares it with what the system
/// under test says by itself. In production the number is not computed.
#[macro_export]
macro_rules! tally {
    ($name:literal, $more:expr) => {
        $crate::tallied($name, || $more)
    };
}

#[cfg(not(feature = "sim"))]
pub use production::{bug_is_planted, fault_point, is_struck, limit, pause_point, tallied, witnessed};
#[cfg(feature = "sim")]
pub use simulated::{bug_is_planted, fault_point, is_struck, limit, pause_point, tallied, witnessed};

#[cfg(not(feature = "sim"))]
mod production {
    use std::ops::RangeInclusive;

    /// What [`planted!`](crate::planted) expands to.
    #[inline(always)]
    pub const fn bug_is_planted(_name: &'static str) -> bool {
        false
    }

    /// What [`buggify!`](crate::buggify) expands to.
    #[inline(always)]
    pub const fn fault_point(_name: &'static str) -> bool {
        false
    }

    /// What [`buggify_pause!`](crate::buggify_pause) expands to.
    #[inline(always)]
    pub fn pause_point(_name: &'static str) -> std::future::Ready<()> {
        std::future::ready(())
    }

    /// What [`limit!`](crate::limit!) expands to.
    #[inline(always)]
    pub const fn limit<T: Copy>(_name: &'static str, value: T, _small: RangeInclusive<T>) -> T {
        value
    }

    /// What [`struck!`](crate::struck!) expands to.
    #[inline(always)]
    pub fn is_struck(_name: &'static str, _is_the_place: impl FnOnce() -> bool) -> bool {
        false
    }

    /// What [`tally!`](crate::tally!) expands to.
    #[inline(always)]
    pub fn tallied(_name: &'static str, _more: impl FnOnce() -> u64) {}

    /// What [`witness!`](crate::witness!) expands to.
    #[inline(always)]
    pub fn witnessed(_name: &'static str, _seen: impl FnOnce() -> ([u64; 2], u64)) {}
}

#[cfg(feature = "sim")]
mod simulated {
    use std::fmt::Debug;
    use std::ops::RangeInclusive;
    use std::time::Duration;

    use crate::{rand, sim};

    /// The longest ordinary pause of [`buggify_pause!`](crate::buggify_pause)...
    const PAUSE_MS_MAX: u64 = 10;
    /// ...and of the rare long one, of which there is one in so many: longer than a lease.
    const LONG_PAUSE_MS_MAX: u64 = 800;
    const PAUSES_PER_LONG: u64 = 20;

    /// What [`planted!`](crate::planted) expands to.
    pub fn bug_is_planted(name: &'static str) -> bool {
        sim::bug_is_planted(name)
    }

    /// What [`buggify!`](crate::buggify) expands to.
    pub fn fault_point(name: &'static str) -> bool {
        sim::fault_point(name)
    }

    /// What [`struck!`](crate::struck!) expands to.
    pub fn is_struck(name: &'static str, is_the_place: impl FnOnce() -> bool) -> bool {
        sim::is_ordered(name) && is_the_place() && sim::take_order(name)
    }

    /// What [`buggify_pause!`](crate::buggify_pause) expands to.
    pub async fn pause_point(name: &'static str) {
        if sim::reach_step(name) {
            tokio::time::sleep(sim::HOLD).await;
        }
        if sim::fault_point(name) {
            let long = rand::range(0..PAUSES_PER_LONG) == 0;
            let most = if long { LONG_PAUSE_MS_MAX } else { PAUSE_MS_MAX };
            tokio::time::sleep(Duration::from_millis(1 + rand::range(0..most))).await;
        }
    }

    /// What [`limit!`](crate::limit!) expands to.
    pub fn limit<T>(name: &'static str, value: T, small: RangeInclusive<T>) -> T
    where
        T: Copy + TryFrom<u64, Error: Debug> + TryInto<u64, Error: Debug>,
    {
        let wide = |number: T| number.try_into().expect("a limit is an unsigned number");
        sim::small_limit(name, wide(*small.start())..=wide(*small.end()))
            .map_or(value, |small| T::try_from(small).expect("the number is between two of this type"))
    }

    /// What [`tally!`](crate::tally!) expands to.
    pub fn tallied(name: &'static str, more: impl FnOnce() -> u64) {
        sim::add_to_tally(name, more());
    }

    /// What [`witness!`](crate::witness!) expands to.
    ///
    /// # Panics
    /// If it was something else before: the run has failed.
    pub fn witnessed(name: &'static str, seen: impl FnOnce() -> ([u64; 2], u64)) {
        if !sim::compares_witnesses() {
            return;
        }
        let (of, is) = seen();
        let first = sim::first_witness(name, of, is);
        assert!(first == is, "{name} {of:?} is {is:#x}, but it was {first:#x} when it was first seen");
    }
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    #[tokio::test]
    async fn production_has_no_faults_and_constant_limits() {
        const LIMIT: usize = crate::limit!("a limit", 1_024, 1..=2);
        assert_eq!(LIMIT, 1_024);
        assert!(!crate::buggify!("a fault") && !crate::planted!("a bug"));
        crate::buggify_pause!("a pause").await;
    }
}
