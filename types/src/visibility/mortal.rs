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
        let mut above = LongestLived::default();
        for cell in &mut self.live {
            cell.protected &= !above.cover(cell.timestamp, cell.expires_ms, rules.min_versions);
            if cell.protected {
                above.note(cell.timestamp, cell.expires_ms, rules.min_versions);
            }
        }
    }

    fn push_out(&mut self, rules: &FamilyRules) {
        let mut above = LongestLived::default();
        self.live.retain(|cell| {
            let stays = !above.cover(cell.timestamp, cell.expires_ms, rules.versions);
            if stays {
                above.note(cell.timestamp, cell.expires_ms, rules.versions);
            }
            stays
        });
    }

    /// Live cells from the newest down: timestamp, index, and whether `min_versions` protects the cell.
    pub(super) fn list(&self, out: &mut Vec<(i64, u32, bool)>) {
        debug_assert!(self.live.is_sorted_by_key(|cell| Reverse((cell.timestamp, cell.order))), "{:?}", self.live);
        out.extend(self.live.iter().map(|cell| (cell.timestamp, cell.index, cell.protected)));
    }
}

/// The puts that a walk down the timestamps of a column has met: when the longest-lived of each timestamp expires.
#[derive(Clone, Debug, Default)]
pub(super) struct LongestLived {
    timestamp: Option<i64>,
    /// The longest-lived put of the current timestamp.
    here: Option<i64>,
    /// Of the timestamps above, descending; only as many as count.
    expire_ms: Vec<i64>,
}

impl LongestLived {
    /// Whether so many timestamps above have a put that does not expire before this one.
    pub(super) fn cover(&mut self, timestamp: i64, expires_ms: i64, count: u32) -> bool {
        self.move_to(timestamp, count);
        match (count as usize).checked_sub(1) {
            Some(last) => self.expire_ms.get(last).is_some_and(|above| *above >= expires_ms),
            None => true,
        }
    }

    /// The walk meets a put.
    pub(super) fn note(&mut self, timestamp: i64, expires_ms: i64, count: u32) {
        self.move_to(timestamp, count);
        self.here = self.here.max(Some(expires_ms));
    }

    fn move_to(&mut self, timestamp: i64, count: u32) {
        if self.timestamp == Some(timestamp) {
            return;
        }
        self.timestamp = Some(timestamp);
        if let Some(expires_ms) = self.here.take() {
            let at = self.expire_ms.partition_point(|above| *above >= expires_ms);
            if at < count as usize {
                self.expire_ms.insert(at, expires_ms);
                self.expire_ms.truncate(count as usize);
            }
        }
    }
}
