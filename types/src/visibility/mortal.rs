//! The live cells of a column in which some puts have a time to live of their own: *mortal* cells.
//!
//! A mortal cell hides others only while it lives, so it must not push out what outlives it. Of two puts the one above, by
//! timestamp and then by write order, *covers* the other if it does not expire before it. At one timestamp, a later put
//! replaces those that it covers. A cell is pushed out once `versions` live cells with other timestamps above it cover it,
//! and loses the protection of `min_versions` once as many protected ones do. If no cell is mortal, these are the rules of
//! every column.
//!
//! Covering is transitive. So what a cell pushed out is covered by whatever pushes that cell out, and has expired when the
//! cell has: a mortal cell can be dropped once it has expired, without anything else of its column.

use std::cmp::Reverse;

use super::{CellMeta, FamilyRules, RulesChange, WriteOrder, is_expired};

/// A live cell.
#[derive(Clone, Copy, Debug)]
struct Live {
    timestamp: i64,
    order: WriteOrder,
    expires_ms: i64,
    index: u32,
    protected: bool,
}

/// The live cells, the highest timestamp and the latest write first.
#[derive(Clone, Debug, Default)]
pub(super) struct MortalCells {
    live: Vec<Live>,
}

impl MortalCells {
    pub(super) fn clear(&mut self) {
        self.live.clear();
    }

    pub(super) fn put(&mut self, put: &CellMeta, index: u32, rules: &FamilyRules) {
        let CellMeta { timestamp, expires_ms, .. } = *put;
        let order = put.order();
        self.live.retain(|cell| cell.timestamp != timestamp || cell.expires_ms > expires_ms);
        let at = self.live.partition_point(|cell| (cell.timestamp, cell.order) > (timestamp, order));
        self.live.insert(at, Live { timestamp, order, expires_ms, index, protected: true });
        self.protect(rules);
        self.push_out(rules);
    }

    /// Deletes what has exactly this timestamp.
    pub(super) fn delete_at(&mut self, timestamp: i64) {
        self.live.retain(|cell| cell.timestamp != timestamp);
    }

    /// Deletes everything up to this timestamp.
    pub(super) fn delete_up_to(&mut self, timestamp: i64) {
        self.live.retain(|cell| cell.timestamp > timestamp);
    }

    pub(super) fn change_rules(&mut self, old: &FamilyRules, change: &RulesChange) {
        self.live.retain(|cell| cell.protected || !is_expired(old, cell.timestamp, change.stamp_ms));
        self.push_out(&change.rules);
        self.live.iter_mut().for_each(|cell| cell.protected = true);
        self.protect(&change.rules);
    }

    /// Takes the protection away from cells that have lost it.
    fn protect(&mut self, rules: &FamilyRules) {
        for at in 0..self.live.len() {
            let protected = self.live[at].protected && self.covering(at, true) < rules.min_versions as usize;
            self.live[at].protected = protected;
        }
    }

    fn push_out(&mut self, rules: &FamilyRules) {
        let mut at = 0;
        while at < self.live.len() {
            if self.covering(at, false) >= rules.versions as usize {
                self.live.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// How many timestamps above a cell's own have a live cell, or a protected one, that covers it.
    fn covering(&self, at: usize, protected: bool) -> usize {
        let cell = self.live[at];
        let covers = |above: &&Live| above.expires_ms >= cell.expires_ms && (above.protected || !protected);
        let mut above: Vec<i64> = self.live[..at].iter().filter(covers).map(|above| above.timestamp).collect();
        above.retain(|timestamp| *timestamp != cell.timestamp);
        above.dedup();
        above.len()
    }

    /// Live cells from the newest down: timestamp, index, and whether `min_versions` protects the cell.
    pub(super) fn list(&self, out: &mut Vec<(i64, u32, bool)>) {
        debug_assert!(self.live.is_sorted_by_key(|cell| Reverse((cell.timestamp, cell.order))), "{:?}", self.live);
        out.extend(self.live.iter().map(|cell| (cell.timestamp, cell.index, cell.protected)));
    }
}
