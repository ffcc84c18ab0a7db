//! Budgets: named limits on what a node holds at a time, each with a count of what is used.
//!
//! Every queue, cache and batch of a server is limited (docs/design/bounds.md lists the limits). A user of a [`Budget`] holds
//! a [`Share`] of it and returns the share on drop, so error paths cannot leak. A node keeps its budgets in one [`Budgets`]
//! list, which `/metrics` and `terrane status` read.
//!
//! Invariants:
//! - `used` never exceeds `limit`, except for a single share larger than the whole limit, which is granted while nothing
//!   else is taken: otherwise it would be refused forever. [`Budget::set_used`] reports what is counted elsewhere, and
//!   [`Budget::take`] counts what exists already: both may exceed the limit.
//! - Counts are relaxed atomics. They limit memory; they order nothing.

use std::sync::Arc;

use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::is_planted;

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of memory or disk.
    Bytes,
    /// Objects: connections, streams, operations, snapshots, threads.
    Count,
}

/// A named limit and its use.
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
    /// The name in metrics and status: lower case, words joined by `_`.
    pub name: &'static str,
    /// What is counted.
    pub unit: Unit,
    /// The amount taken now.
    pub used: u64,
    /// The largest amount taken at a time since the start.
    pub peak: u64,
    /// The amount that may be taken.
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

    /// Takes `amount`; `None` if that would exceed the limit. A share larger than the limit is granted while nothing else is
    /// taken.
    #[must_use]
    pub fn try_take(self: &Arc<Budget>, amount: u64) -> Option<Share> {
        let mut share = Share { budget: self.clone(), amount: 0 };
        share.grow(amount).then_some(share)
    }

    /// Takes `amount` unconditionally: for what exists already and only has to be counted.
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

    /// Changes the limit. Shares beyond a lower limit stay until they are returned.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts a refusal that was decided elsewhere.
    pub fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The amount taken now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The amount that may be taken.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The current figures.
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
    /// Takes `more` in addition. Returns false, and changes nothing, if that would exceed the limit.
    pub fn grow(&mut self, more: u64) -> bool {
        let budget = &self.budget;
        let alone = self.amount.saturating_add(more);
        let admitted = |used: u64| {
            let used = used.checked_add(more)?;
            (used <= budget.limit() || used <= alone).then_some(used)
        };
        let before = if is_planted("a limit is checked before it is taken") {
            admitted(budget.used()).map(|_| budget.used.fetch_add(more, Ordering::Relaxed)).ok_or(())
        } else {
            // In one step with the check: an amount added first and taken back would refuse others that fit meanwhile.
            budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admitted).map_err(drop)
        };
        let Ok(before) = before else {
            budget.count_refusal();
            return false;
        };
        budget.peak.fetch_max(before + more, Ordering::Relaxed);
        self.amount += more;
        true
    }

    /// Returns all but `amount`.
    pub fn shrink_to(&mut self, amount: u64) {
        let excess = self.amount.saturating_sub(amount);
        self.budget.used.fetch_sub(excess, Ordering::Relaxed);
        self.amount -= excess;
    }

    /// The amount it holds.
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
    /// Adds a budget to the list. It replaces one of the same name.
    pub fn add(&self, budget: Arc<Budget>) {
        let mut all = self.all.write();
        match all.iter_mut().find(|known| known.name == budget.name) {
            Some(known) => *known = budget,
            None => all.push(budget),
        }
    }

    /// Creates a budget and adds it to the list.
    pub fn make(&self, name: &'static str, unit: Unit, limit: u64) -> Arc<Budget> {
        let budget = Budget::new(name, unit, limit);
        self.add(budget.clone());
        budget
    }

    /// Reports the use of a resource that is counted elsewhere.
    pub fn sample(&self, name: &'static str, unit: Unit, used: u64, limit: u64) {
        let known = self.all.read().iter().find(|known| known.name == name).cloned();
        let budget = known.unwrap_or_else(|| self.make(name, unit, limit));
        budget.set_limit(limit);
        budget.set_used(used);
    }

    /// The current figures of each.
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
