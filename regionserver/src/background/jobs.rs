//! Bookkeeping of background jobs: which ones run, which ones pause after a failure, and what is done periodically.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// The pause after a first failure, doubled with each further one up to the maximum.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The jobs of one kind: at most one per key, with a pause after each failure.
pub(super) struct Jobs<K> {
    pub(super) running: BTreeSet<K>,
    pub(super) backoffs: Backoffs<K>,
}

impl<K> Default for Jobs<K> {
    fn default() -> Self {
        Self { running: BTreeSet::new(), backoffs: Backoffs::default() }
    }
}

impl<K: Ord> Jobs<K> {
    /// Whether a job may start: none runs for this key, and the key does not pause after a failure.
    pub(super) fn may_start(&self, key: &K, now: Instant) -> bool {
        !self.running.contains(key) && !self.backoffs.holds(key, now)
    }

    /// A job ended.
    pub(super) fn finish(&mut self, key: K, succeeded: bool, now: Instant) {
        self.running.remove(&key);
        if succeeded {
            self.backoffs.succeeded(&key);
        } else {
            self.backoffs.failed(key, now);
        }
    }
}

/// Keys that pause after a failure, each with the end of its pause and the length of it.
pub(super) struct Backoffs<K>(BTreeMap<K, (Instant, Duration)>);

impl<K> Default for Backoffs<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Backoffs<K> {
    fn failed(&mut self, key: K, now: Instant) {
        let pause = self.0.get(&key).map_or(RETRY_MIN, |(_, pause)| (*pause * 2).min(RETRY_MAX));
        self.0.insert(key, (now + pause, pause));
    }

    fn succeeded(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Whether the key still pauses.
    pub(super) fn holds(&self, key: &K, now: Instant) -> bool {
        self.0.get(key).is_some_and(|(until, _)| *until > now)
    }

    /// Drops keys whose last failure is so long ago that the next one counts as a first, and keys that no longer exist.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, (until, _)| now < *until + RETRY_MAX);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Something that is done once per interval, and first at once.
pub(super) struct Periodic {
    interval: Duration,
    last: Option<Instant>,
}

impl Periodic {
    pub(super) fn every(interval: Duration) -> Self {
        Self { interval, last: None }
    }

    /// Whether it is due. If so, the next time is one interval from `now`.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now >= last + self.interval);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// How many times its own duration lies between a look at all regions and the next one.
const REST_FACTOR: u32 = 9;

/// Keeps the looks at all regions to a tenth of a processor. A look costs by the number of regions, and what calls for one may
/// happen once per region: without this, the work would grow with the square of that number.
#[derive(Default)]
pub(super) struct Pace {
    /// When the next look may begin, and whether one was put off until then.
    next: Option<Instant>,
    is_owed: bool,
}

impl Pace {
    /// Whether a look may begin now. If not, it is owed.
    pub(super) fn may_look(&mut self, now: Instant) -> bool {
        self.is_owed = self.next.is_some_and(|next| now < next);
        !self.is_owed
    }

    /// A look has ended.
    pub(super) fn looked(&mut self, began: Instant, ended: Instant) {
        self.next = Some(ended + (ended - began) * REST_FACTOR);
    }

    /// When the look that is owed may begin, if one is.
    fn owed(&self) -> Option<Instant> {
        self.next.filter(|_| self.is_owed)
    }

    /// Returns when the look that is owed may begin; never if none is.
    pub(super) async fn until_owed(&self) {
        match self.owed() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod script_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_take_a_tenth_of_the_time_and_one_that_is_put_off_is_owed() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert!(pace.may_look(at(0)) && pace.owed().is_none());
        pace.looked(at(0), at(2));
        assert!(!pace.may_look(at(19)), "nine times 2 ms have not passed");
        assert_eq!(pace.owed(), Some(at(20)));
        assert!(pace.may_look(at(20)) && pace.owed().is_none());
        pace.looked(at(20), at(20));
        assert!(pace.may_look(at(20)), "a look that costs nothing puts nothing off");
    }
}
