//! The replay itself, for columns where no shortcut gives the same result: one-version tombstones, changed rules, or
//! tombstones that some readers ignore.

use std::collections::{BTreeMap, BTreeSet};

use super::mortal::MortalCells;
use super::{CellMeta, FamilyTombstones, RulesChange, RulesHistory, is_expired};
use crate::cell::CellKind;
use crate::schema::{FamilyRules, KeepDeleted};

/// A cell or family tombstone, with its place in write order.
#[derive(Clone, Copy, Debug)]
struct Event {
    cell: CellMeta,
    /// The cell's index in its column; unused for family tombstones.
    index: u32,
}

/// The tombstones that a reader ignores: under `keep_deleted_cells`, those at or above its `time_max`, back to the
/// sequence number since which the attribute has been set without interruption.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    pub(super) since: u64,
    pub(super) time_max: i64,
    /// The rules at the reader's moment, and its time, if expired tombstones are not ignored.
    pub(super) expires: Option<(FamilyRules, i64)>,
}

impl Unseen {
    /// What a reader at `sequence` and this time ignores; `None` if it sees every tombstone.
    pub(super) fn of(history: &RulesHistory, sequence: u64, time_max: i64, now_ms: i64) -> Option<Self> {
        let (last, earlier) = history.changes()[..=history.index_at(sequence)].split_last()?;
        if !last.rules.keep_deleted_cells.keeps() {
            return None;
        }
        let held = earlier.iter().rev().take_while(|change| change.rules.keep_deleted_cells == KeepDeleted::Yes);
        let since = held.last().map_or(last.sequence, |change| change.sequence);
        let expires = (last.rules.keep_deleted_cells == KeepDeleted::Ttl).then_some((last.rules, now_ms));
        Some(Self { since, time_max, expires })
    }

    pub(super) fn hides(&self, delete: &CellMeta) -> bool {
        let has_expired = |(rules, now_ms): &(FamilyRules, i64)| is_expired(rules, delete.timestamp, *now_ms);
        delete.sequence >= self.since
            && delete.timestamp >= self.time_max
            && !self.expires.as_ref().is_some_and(has_expired)
    }
}

/// The state of a column after the log up to some sequence number. Its buffers are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    events: Vec<Event>,
    /// Live cells by timestamp, with their index.
    live: BTreeMap<i64, u32>,
    /// Timestamps of the live cells that `min_versions` protects.
    protected: BTreeSet<i64>,
    /// Instead of these, where a put has a time to live of its own; and their list at the end.
    mortal: MortalCells,
    mortals: Vec<(i64, u32, bool)>,
    is_mortal: bool,
}

impl Replay {
    /// Replays the cells and family tombstones that `takes` accepts, and the changes of the rules, up to `sequence`.
    pub(super) fn run(
        &mut self,
        cells: &[CellMeta],
        tombstones: &FamilyTombstones,
        history: &RulesHistory,
        sequence: u64,
        takes: impl Fn(usize, &CellMeta) -> bool,
    ) {
        self.collect_events(cells, tombstones, sequence, takes);
        self.live.clear();
        self.protected.clear();
        self.mortal.clear();
        self.mortals.clear();
        self.is_mortal = self.events.iter().any(|event| event.cell.is_mortal());
        let (first, later) = history.changes().split_first().expect("a history has at least one change");
        let mut rules = first.rules;
        let mut changes = later.iter().take_while(|change| change.sequence <= sequence).peekable();
        let events = std::mem::take(&mut self.events);
        for event in &events {
            while let Some(change) = changes.next_if(|change| change.sequence <= event.cell.sequence) {
                self.change_rules(&rules, change);
                rules = change.rules;
            }
            self.apply(event, &rules);
        }
        for change in changes {
            self.change_rules(&rules, change);
            rules = change.rules;
        }
        self.events = events;
        self.mortal.list(&mut self.mortals);
    }

    fn collect_events(
        &mut self,
        cells: &[CellMeta],
        tombstones: &FamilyTombstones,
        sequence: u64,
        takes: impl Fn(usize, &CellMeta) -> bool,
    ) {
        self.events.clear();
        let event = |cell: &CellMeta, index: usize| Event {
            cell: *cell,
            index: u32::try_from(index).expect("a column in memory has far fewer than 2^32 cells"),
        };
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence <= sequence && !cell.kind.is_family_tombstone() && takes(index, cell) {
                self.events.push(event(cell, index));
            }
        }
        for tombstone in tombstones.iter() {
            if tombstone.sequence <= sequence && takes(usize::MAX, tombstone) {
                self.events.push(event(tombstone, 0));
            }
        }
        self.events.sort_unstable_by_key(|event| event.cell.order());
    }

    fn apply(&mut self, event: &Event, rules: &FamilyRules) {
        let CellMeta { timestamp, kind, .. } = event.cell;
        match kind {
            CellKind::Put if self.is_mortal => self.mortal.put(&event.cell, event.index, rules),
            CellKind::Put => self.put(timestamp, event.index, rules),
            CellKind::Delete | CellKind::DeleteFamilyVersion => {
                self.live.remove(&timestamp);
                self.protected.remove(&timestamp);
                self.mortal.delete_at(timestamp);
            }
            CellKind::DeleteColumn | CellKind::DeleteFamily => {
                while self.live.first_entry().is_some_and(|lowest| *lowest.key() <= timestamp) {
                    self.push_out_lowest();
                }
                self.mortal.delete_up_to(timestamp);
            }
        }
    }

    fn put(&mut self, timestamp: i64, index: u32, rules: &FamilyRules) {
        self.live.insert(timestamp, index);
        if rules.min_versions > 0 {
            self.protected.insert(timestamp);
            if self.protected.len() > rules.min_versions as usize {
                self.protected.pop_first();
            }
        }
        if self.live.len() > rules.versions as usize {
            self.push_out_lowest();
        }
    }

    fn push_out_lowest(&mut self) {
        if let Some((timestamp, _)) = self.live.pop_first() {
            self.protected.remove(&timestamp);
        }
    }

    fn change_rules(&mut self, old: &FamilyRules, change: &RulesChange) {
        self.mortal.change_rules(old, change);
        let protected = &self.protected;
        self.live.retain(|timestamp, _| !is_expired(old, *timestamp, change.stamp_ms) || protected.contains(timestamp));
        while self.live.len() > change.rules.versions as usize {
            self.live.pop_first();
        }
        let top = self.live.keys().rev().take(change.rules.min_versions as usize);
        self.protected = top.copied().collect();
    }

    /// Whether the cell with this timestamp and index is live.
    pub(super) fn is_live(&self, timestamp: i64, index: u32) -> bool {
        self.live.get(&timestamp) == Some(&index)
            || self.mortals.iter().any(|(_, mortal, _)| self.is_mortal && *mortal == index)
    }

    /// Live cells from the newest down: timestamp, index, and whether `min_versions` protects the cell.
    pub(super) fn live(&self) -> impl Iterator<Item = (i64, u32, bool)> {
        let live = self.live.iter().rev();
        let live = live.map(|(&timestamp, &index)| (timestamp, index, self.protected.contains(&timestamp)));
        // One of the two is empty.
        self.mortals.iter().copied().chain(live)
    }
}
