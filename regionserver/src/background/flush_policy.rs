//! Which regions are flushed next: a pure decision over sizes, made at every turn of the background task.
//!
//! In this order: regions whose flush is requested (the log is to be purged, or a split is to be recorded), regions whose
//! memtable reached its table's flush size, and, when all memtables together near the server's budget, the largest ones,
//! because one large flush frees more than many small files would.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Flushes in flight at once. They share one disk; two keep it busy while one of them computes.
pub const FLUSHES_MAX: usize = 2;

/// Share of the memtable budget, in percent, above which the largest memtables are flushed early.
const PRESSURE_PERCENT: u64 = 60;

/// What the decision knows of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<K> {
    /// What distinguishes the region from the others.
    pub region: K,
    /// All of its bytes in memory.
    pub memtable_bytes: u64,
    /// Those of them that no flush has frozen yet.
    pub active_bytes: u64,
    pub flush_size: u64,
    /// Something waits for this flush.
    pub requested: bool,
}

/// The regions to flush now, most urgent first. `running` are being flushed already; those of them that are `waiting` for an
/// entry to be applied have frozen nothing yet and take no slot.
#[must_use]
pub fn choose<K: Copy + Ord>(
    candidates: &[Candidate<K>],
    running: &BTreeSet<K>,
    waiting: &BTreeSet<K>,
    budget: u64,
) -> Vec<K> {
    let total: u64 = candidates.iter().map(|candidate| candidate.memtable_bytes).sum();
    let pressed = total > budget / 100 * PRESSURE_PERCENT;
    let mut wanted: Vec<&Candidate<K>> = candidates
        .iter()
        .filter(|candidate| !running.contains(&candidate.region))
        .filter(|candidate| candidate.requested || candidate.is_full() || (pressed && candidate.memtable_bytes > 0))
        .collect();
    wanted.sort_by_key(|candidate| {
        (!candidate.requested, !candidate.is_full(), Reverse(candidate.memtable_bytes), candidate.region)
    });
    let slots = FLUSHES_MAX.saturating_sub(running.difference(waiting).count());
    wanted.iter().take(slots).map(|candidate| candidate.region).collect()
}

impl<K> Candidate<K> {
    fn is_full(&self) -> bool {
        self.active_bytes > 0 && self.active_bytes >= self.flush_size
    }
}

#[cfg(test)]
mod script_tests;
