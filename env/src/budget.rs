//! Budgets: named limits on what a node holds at a time, with a count of how much of each is used.
//!
//! Every queue, cache and batch of a server is limited (docs/design/bounds.md has the list). A [`Budget`] is such a limit in
//! one place: whatever takes from it holds a [`Share`] and returns it on drop, so an error path cannot leak. A node keeps its
//! budgets in one [`Budgets`] list, which `/metrics` and `terrane status` read.
//!
//! Invariants:
//! - `used` never exceeds `limit`, except for one share larger than the whole limit, which is granted alone: refusing it
//!   would refuse it for ever. [`Budget::set_used`] reports what is counted elsewhere, and [`Budget::take`] counts what
//!   exists already: both may show more.
//! - Counts are relaxed atomics. They guard memory; they order nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of memory or disk.
    Bytes,
    /// Things: connections, streams, operations, snapshots, threads.
    Count,
}

/// A named limit and how much of it is used.
#[derive(Debug)]
pub struct Budget {
    name: &'static str,
    unit: Unit,
    limit: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    refused: AtomicU64,
}

/// A part of a budget; returned when dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    amount: u64,
}

/// How full a budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The name under which metrics and status show it: lower case, words joined by `_`.
    pub name: &'static str,
    /// What is counted.
    pub unit: Unit,
    /// What is taken now.
    pub used: u64,
    /// The most that was taken at a time since the start.
    pub peak: u64,
    /// What may be taken.
    pub limit: u64,
    /// Requests for a share that were refused since the start.
    pub refused: u64,
}

impl Budget {
    /// An unused budget.
    pub fn new(name: &'static str, unit: Unit, limit: u64) -> Arc<Budget> {
        let zero = || AtomicU64::new(0);
        Arc::new(Budget { name, unit, limit: AtomicU64::new(limit), used: zero(), peak: zero(), refused: zero() })
    }

    /// Takes `amount`; `None` when that would exceed the limit. A share larger than the limit is granted while nothing else
    /// is taken.
    #[must_use]
    pub fn try_take(self: &Arc<Budget>, amount: u64) -> Option<Share> {
        let mut share = Share { budget: self.clone(), amount: 0 };
        share.grow(amount).then_some(share)
    }

    /// Takes `amount` in any case: for what exists already and has only to be counted.
    #[must_use]
    pub fn take(self: &Arc<Budget>, amount: u64) -> Share {
        let used = self.used.fetch_add(amount, Ordering::Relaxed).saturating_add(amount);
        self.peak.fetch_max(used, Ordering::Relaxed);
        Share { budget: self.clone(), amount }
    }

    /// Reports what is used, for a resource that is counted elsewhere.
    pub fn set_used(&self, used: u64) {
        self.used.store(used, Ordering::Relaxed);
        self.peak.fetch_max(used, Ordering::Relaxed);
    }

    /// Changes the limit. What is taken beyond a lower one stays until it is returned.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts a refusal that was decided elsewhere.
    pub fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// What is taken now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What may be taken.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        Usage {
            name: self.name,
            unit: self.unit,
            used: self.used(),
            peak: self.peak.load(Ordering::Relaxed),
            limit: self.limit(),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

impl Share {
    /// Takes `more` in addition; false when that would exceed the limit, and then nothing changes.
    pub fn grow(&mut self, more: u64) -> bool {
        let budget = &self.budget;
        let used = budget.used.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        if used > budget.limit() && used > self.amount.saturating_add(more) {
            budget.used.fetch_sub(more, Ordering::Relaxed);
            budget.count_refusal();
            return false;
        }
        budget.peak.fetch_max(used, Ordering::Relaxed);
        self.amount += more;
        true
    }

    /// Returns all but `amount`.
    pub fn shrink_to(&mut self, amount: u64) {
        let excess = self.amount.saturating_sub(amount);
        self.budget.used.fetch_sub(excess, Ordering::Relaxed);
        self.amount -= excess;
    }

    /// What it holds.
    pub fn amount(&self) -> u64 {
        self.amount
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// The budgets of a node, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Budgets {
    all: RwLock<Vec<Arc<Budget>>>,
}

impl Budgets {
    /// Shows a budget from now on. One of the same name is replaced.
    pub fn add(&self, budget: Arc<Budget>) {
        let mut all = self.all.write();
        match all.iter_mut().find(|known| known.name == budget.name) {
            Some(known) => *known = budget,
            None => all.push(budget),
        }
    }

    /// Makes a budget and shows it.
    pub fn make(&self, name: &'static str, unit: Unit, limit: u64) -> Arc<Budget> {
        let budget = Budget::new(name, unit, limit);
        self.add(budget.clone());
        budget
    }

    /// Shows a resource that is counted elsewhere.
    pub fn sample(&self, name: &'static str, unit: Unit, used: u64, limit: u64) {
        let known = self.all.read().iter().find(|known| known.name == name).cloned();
        let budget = known.unwrap_or_else(|| self.make(name, unit, limit));
        budget.set_limit(limit);
        budget.set_used(used);
    }

    /// How full each is.
    pub fn usage(&self) -> Vec<Usage> {
        self.all.read().iter().map(|budget| budget.usage()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_the_limit_and_are_returned() {
        let budget = Budget::new("answers", Unit::Bytes, 10);
        let first = budget.try_take(7).unwrap();
        assert!(budget.try_take(4).is_none());
        let second = budget.try_take(3).unwrap();
        drop(first);
        assert_eq!((budget.used(), second.amount()), (3, 3));
        drop(second);
        let usage = budget.usage();
        assert_eq!((usage.used, usage.peak, usage.refused), (0, 10, 1));
    }

    #[test]
    fn a_share_larger_than_the_limit_is_granted_alone() {
        let budget = Budget::new("answers", Unit::Bytes, 10);
        let large = budget.try_take(25).unwrap();
        assert!(budget.try_take(1).is_none());
        drop(large);
        let small = budget.try_take(1).unwrap();
        assert!(budget.try_take(25).is_none());
        drop(small);
    }

    #[test]
    fn a_share_grows_within_the_limit_and_shrinks() {
        let budget = Budget::new("bodies", Unit::Bytes, 10);
        let mut share = budget.try_take(2).unwrap();
        let other = budget.try_take(2).unwrap();
        assert!(share.grow(6));
        assert!(!share.grow(1));
        assert_eq!((share.amount(), budget.used()), (8, 10));
        share.shrink_to(1);
        assert_eq!(budget.used(), 3);
        drop(other);
        assert!(share.grow(100), "alone, a share may exceed the limit");
        drop(share);
        assert_eq!(budget.used(), 0);
    }
}
