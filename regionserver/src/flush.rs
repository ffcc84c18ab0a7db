//! Which region is flushed next: a plain decision over sizes, made anew at every turn of the housekeeping.
//!
//! In order: regions that something waits for (the log wants to be purged, a split wants to be recorded), regions whose
//! memtable passed its table's flush size, and, when all memtables together near the server's budget, the largest, since
//! one large flush frees more than many small files would.

use std::collections::BTreeSet;

use terrane_types::RegionId;

/// Flushes under way at once. They share one disk; two keep it busy while one of them computes.
pub const FLUSHES_MAX: usize = 2;

/// Share of the memtable budget, in percent, at which the largest memtables are flushed before their time.
const PRESSURE_PERCENT: u64 = 60;

/// What a decision knows of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub region: RegionId,
    /// All of its bytes in memory, and those of them that no flush has taken up yet.
    pub memtable_bytes: u64,
    pub active_bytes: u64,
    pub flush_size: u64,
    /// Something waits for this flush.
    pub awaited: bool,
}

/// The regions to flush now, most urgent first. `busy` are being flushed already.
#[must_use]
pub fn choose(candidates: &[Candidate], busy: &BTreeSet<RegionId>, budget: u64) -> Vec<RegionId> {
    let total: u64 = candidates.iter().map(|candidate| candidate.memtable_bytes).sum();
    let pressed = total > budget / 100 * PRESSURE_PERCENT;
    let mut wanted: Vec<&Candidate> = candidates
        .iter()
        .filter(|candidate| !busy.contains(&candidate.region))
        .filter(|candidate| candidate.awaited || candidate.is_full() || (pressed && candidate.memtable_bytes > 0))
        .collect();
    wanted.sort_by_key(|candidate| {
        (!candidate.awaited, !candidate.is_full(), std::cmp::Reverse(candidate.memtable_bytes), candidate.region)
    });
    let room = FLUSHES_MAX.saturating_sub(busy.len());
    wanted.iter().take(room).map(|candidate| candidate.region).collect()
}

impl Candidate {
    fn is_full(&self) -> bool {
        self.active_bytes > 0 && self.active_bytes >= self.flush_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(region: u64, memtable_bytes: u64) -> Candidate {
        Candidate {
            region: RegionId(region),
            memtable_bytes,
            active_bytes: memtable_bytes,
            flush_size: 100,
            awaited: false,
        }
    }

    fn chosen(candidates: &[Candidate], budget: u64) -> Vec<u64> {
        choose(candidates, &BTreeSet::new(), budget).iter().map(|region| region.0).collect()
    }

    #[test]
    fn nothing_is_flushed_without_need() {
        assert!(chosen(&[candidate(1, 99), candidate(2, 0)], 1000).is_empty());
    }

    #[test]
    fn full_memtables_are_flushed_largest_first() {
        assert_eq!(chosen(&[candidate(1, 100), candidate(2, 300), candidate(3, 200)], 10_000), [2, 3]);
    }

    #[test]
    fn under_pressure_the_largest_go_though_none_is_full() {
        assert_eq!(chosen(&[candidate(1, 30), candidate(2, 40), candidate(3, 0)], 100), [2, 1]);
    }

    #[test]
    fn what_is_awaited_goes_first_even_when_empty() {
        let awaited = Candidate { awaited: true, ..candidate(9, 0) };
        assert_eq!(chosen(&[candidate(1, 500), awaited], 10_000), [9, 1]);
    }

    #[test]
    fn flushes_under_way_take_up_the_room() {
        let busy = BTreeSet::from([RegionId(1)]);
        let candidates = [candidate(1, 500), candidate(2, 300), candidate(3, 200)];
        assert_eq!(choose(&candidates, &busy, 10_000), [RegionId(2)]);
    }
}
