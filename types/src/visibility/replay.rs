//! The replay itself, for columns where no shortcut gives the same result: one-version tombstones, changed rules, or
//! tombstones that some readers ignore.

use std::collections::{BTreeMap, BTreeSet};

use super::{CellMeta, FamilyTombstones, RulesChange, RulesHistory, WriteOrder, is_expired};
use crate::cell::CellKind;
use crate::schema::FamilyRules;

/// A cell or family tombstone, with its place in write order.
#[derive(Clone, Copy, Debug)]
struct Event {
    order: WriteOrder,
    timestamp: i64,
    kind: CellKind,
    /// The cell's index in its column; unused for family tombstones.
    index: u32,
}

/// The tombstones that a reader ignores: under `keep_deleted_cells`, those at or above its `time_max`, back to the
/// sequence number since which the attribute has been set without interruption.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    pub(super) since: u64,
    pub(super) time_max: i64,
}

impl Unseen {
    /// What a reader at `sequence` ignores; `None` if it sees every tombstone.
    pub(super) fn of(history: &RulesHistory, sequence: u64, time_max: i64) -> Option<Self> {
        let changes = &history.changes()[..=history.index_at(sequence)];
        let held = changes.iter().rev().take_while(|change| change.rules.keep_deleted_cells);
        held.last().map(|change| Self { since: change.sequence, time_max })
    }

    pub(super) const fn hides(&self, delete: &CellMeta) -> bool {
        delete.sequence >= self.since && delete.timestamp >= self.time_max
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
        let (first, later) = history.changes().split_first().expect("a history has at least one change");
        let mut rules = first.rules;
        let mut changes = later.iter().take_while(|change| change.sequence <= sequence).peekable();
        let events = std::mem::take(&mut self.events);
        for event in &events {
            while let Some(change) = changes.next_if(|change| change.sequence <= event.order.0) {
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
            order: cell.order(),
            timestamp: cell.timestamp,
            kind: cell.kind,
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
        self.events.sort_unstable_by_key(|event| event.order);
    }

    fn apply(&mut self, event: &Event, rules: &FamilyRules) {
        match event.kind {
            CellKind::Put => self.put(event.timestamp, event.index, rules),
            CellKind::Delete | CellKind::DeleteFamilyVersion => {
                self.live.remove(&event.timestamp);
                self.protected.remove(&event.timestamp);
            }
            CellKind::DeleteColumn | CellKind::DeleteFamily => {
                while self.live.first_entry().is_some_and(|lowest| *lowest.key() <= event.timestamp) {
                    self.push_out_lowest();
                }
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
        let protected = &self.protected;
        self.live.retain(|timestamp, _| !is_expired(old, *timestamp, change.stamp_ms) || protected.contains(timestamp));
        while self.live.len() > change.rules.versions as usize {
            self.live.pop_first();
        }
        let top = self.live.keys().rev().take(change.rules.min_versions as usize);
        self.protected = top.copied().collect();
    }

    /// Live cells from the newest down: timestamp, index, and whether `min_versions` protects the cell.
    pub(super) fn live(&self) -> impl Iterator<Item = (i64, u32, bool)> {
        self.live.iter().rev().map(|(&timestamp, &index)| (timestamp, index, self.protected.contains(&timestamp)))
    }
}
