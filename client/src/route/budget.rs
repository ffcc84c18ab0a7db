//! The retry budget: how much of a client's load may be retries.
//!
//! Callers that an overloaded server refuses try again, and together they can keep it overloaded. So a client pays for retries
//! from one bucket, which fills by a share of its requests and by a little each second. When the bucket is empty, calls fail,
//! and callers decide what can wait.
//!
//! The budget covers only retries that load a working server and are not bounded otherwise. Retries at a busy server are
//! bounded by its lanes ([`crate::route::lanes`]). Redirects, look-ups at a master and requests that were never sent are
//! free: thousands of calls follow a failover whatever the budget.

use std::time::Duration;

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many retries a client may add to its load.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// Retries earned by a hundred requests. 20 by default.
    pub percent: u32,
    /// Retries earned each second in addition. 10 by default.
    pub per_second: u32,
    /// The most retries that can be saved up, and what a new client starts with. 10,000 by default: enough for everything in
    /// flight when a server dies.
    pub saved_max: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { percent: 20, per_second: 10, saved_max: 10_000 }
    }
}

impl RetryBudget {
    /// The same budget with this many retries for a hundred requests.
    #[must_use]
    pub const fn percent(mut self, percent: u32) -> Self {
        self.percent = percent;
        self
    }

    /// The same budget with this many retries each second.
    #[must_use]
    pub const fn per_second(mut self, retries: u32) -> Self {
        self.per_second = retries;
        self
    }

    /// The same budget with at most this many retries saved up.
    #[must_use]
    pub const fn saved_max(mut self, retries: u32) -> Self {
        self.saved_max = retries;
        self
    }
}

/// The bucket. Requests are counted without a lock; only retries look at the sum.
#[derive(Debug)]
pub(crate) struct Bucket {
    budget: RetryBudget,
    requests: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Hundredths of a retry.
    saved: u64,
    /// Requests that have been credited.
    requests: u64,
    /// The time up to which seconds have been credited.
    paid_until: Duration,
}

const WHOLE: u64 = 100;

impl Bucket {
    pub(crate) fn new(budget: RetryBudget) -> Self {
        let saved = u64::from(budget.saved_max) * WHOLE;
        let state = Mutex::new(State { saved, requests: 0, paid_until: Duration::ZERO });
        Self { budget, requests: AtomicU64::new(0), state }
    }

    /// A request was sent.
    pub(crate) fn deposit(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Pays for one retry, `now` after the client started; false when the bucket is empty.
    pub(crate) fn spend(&self, now: Duration) -> bool {
        let mut state = self.state.lock();
        let requests = self.requests.load(Ordering::Relaxed);
        let by_requests = (requests - state.requests).saturating_mul(u64::from(self.budget.percent));
        state.requests = requests;
        let millis = u64::try_from(now.saturating_sub(state.paid_until).as_millis()).unwrap_or(u64::MAX);
        // Whole milliseconds are credited, so that many small steps lose nothing.
        state.paid_until += Duration::from_millis(millis);
        let by_time = millis.saturating_mul(u64::from(self.budget.per_second)) * WHOLE / 1000;
        let most = u64::from(self.budget.saved_max) * WHOLE;
        state.saved = state.saved.saturating_add(by_requests).saturating_add(by_time).min(most);
        let paid = state.saved >= WHOLE;
        if paid {
            state.saved -= WHOLE;
        }
        paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend_all(bucket: &Bucket, now: Duration) -> u32 {
        (0..100_000).take_while(|_| bucket.spend(now)).count() as u32
    }

    #[test]
    fn the_saved_retries_are_spent_and_then_a_share_of_the_requests() {
        let bucket = Bucket::new(RetryBudget::default().saved_max(50));
        assert_eq!(spend_all(&bucket, Duration::ZERO), 50);
        (0..100).for_each(|_| bucket.deposit());
        assert_eq!(spend_all(&bucket, Duration::ZERO), 20);
        (0..1_000_000).for_each(|_| bucket.deposit());
        assert_eq!(spend_all(&bucket, Duration::ZERO), 50, "no more than the bucket holds");
    }

    #[test]
    fn time_fills_the_bucket_too() {
        let bucket = Bucket::new(RetryBudget::default().percent(0).saved_max(1000));
        spend_all(&bucket, Duration::ZERO);
        assert_eq!(spend_all(&bucket, Duration::from_millis(2_500)), 25);
        assert_eq!(spend_all(&bucket, Duration::from_secs(1000)), 1000, "no more than the bucket holds");
    }
}
