//! Reads: which cells of a column a view shows.
//!
//! Most columns hold one put, and most others hold only puts and tombstones that cover everything below a timestamp.
//! For these the replay ends with the top `versions` cells that no later tombstone covers, whatever the order of
//! writing. (Proof: a push-out needs live cells above, and a tombstone that deletes those covers everything below them
//! as well.) One walk over the cells in storage order finds them without allocating. Only two cases need the replay:
//! one-version tombstones, which can delete a cell above one that it had pushed out, and changed rules.

use super::replay::{Replay, Unseen};
use super::{CellMeta, FamilyTombstones, RulesHistory, View, WriteOrder, is_expired};
use crate::cell::CellKind;
use crate::schema::FamilyRules;

/// Finds what a view shows of each column of a family, row by row. Created once per read and family.
#[derive(Clone, Debug)]
pub struct Resolver {
    history: RulesHistory,
    view: View,
    /// The rules at the view's moment, and the sequence number since which they hold.
    rules: FamilyRules,
    rules_since: u64,
    unseen: Option<Unseen>,
    tombstones: FamilyTombstones,
    replay: Replay,
    visible: Vec<u32>,
    /// Nothing of the column below the cells that were passed last is visible.
    is_settled: bool,
}

/// The properties of a column that decide how it is resolved.
struct Contents {
    puts: usize,
    deletes: bool,
    one_version_deletes: bool,
    family_tombstones: bool,
    lowest_sequence: u64,
}

impl Contents {
    fn of(cells: &[CellMeta], sequence: u64) -> Self {
        let mut contents = Self {
            puts: 0,
            deletes: false,
            one_version_deletes: false,
            family_tombstones: false,
            lowest_sequence: u64::MAX,
        };
        for cell in cells.iter().filter(|cell| cell.sequence <= sequence) {
            contents.lowest_sequence = contents.lowest_sequence.min(cell.sequence);
            match cell.kind {
                CellKind::Put => contents.puts += 1,
                CellKind::Delete => contents.one_version_deletes = true,
                CellKind::DeleteColumn => contents.deletes = true,
                CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => contents.family_tombstones = true,
            }
        }
        contents
    }
}

impl Resolver {
    /// A resolver for a family with this history of rules.
    #[must_use]
    pub fn new(history: &RulesHistory, view: View) -> Self {
        let change = history.changes()[history.index_at(view.sequence)];
        Self {
            history: history.clone(),
            view,
            rules: change.rules,
            rules_since: change.sequence,
            unseen: Unseen::of(history, view.sequence, view.time_max, view.now_ms),
            tombstones: FamilyTombstones::default(),
            replay: Replay::default(),
            visible: Vec::new(),
            is_settled: false,
        }
    }

    /// Starts a row: clears the family tombstones of the previous one.
    pub fn start_row(&mut self) {
        self.tombstones.clear();
    }

    /// The indices of the visible cells, newest first. `cells` are all cells of one column in storage order; family
    /// tombstones, which have an empty qualifier, come with the first column of the row.
    ///
    /// What is visible at and above a timestamp does not depend on anything below it, because puts and tombstones act
    /// only at their own timestamp and below. So a caller may pass only the cells down to some timestamp.
    pub fn column(&mut self, cells: &[CellMeta]) -> &[u32] {
        self.visible.clear();
        self.is_settled = false;
        let contents = Contents::of(cells, self.view.sequence);
        if contents.family_tombstones {
            self.tombstones.take_from(cells, self.view.sequence);
        }
        if self.view.raw {
            self.list_stored(cells);
            return &self.visible;
        }
        if contents.puts == 0 {
            return &self.visible;
        }
        let undeleted = !contents.deletes && !contents.one_version_deletes && self.tombstones.is_empty();
        let one_version_deletes = contents.one_version_deletes || !self.tombstones.exact.is_empty();
        let same_rules = contents.lowest_sequence >= self.rules_since;
        if same_rules && !one_version_deletes {
            self.walk(cells);
        } else if contents.puts == 1 && undeleted && !same_rules {
            if !self.expired_under_earlier_rules(cells) {
                self.walk(cells);
            }
        } else {
            self.run_replay(cells);
        }
        self.is_settled |= self.visible.len() >= self.view.versions as usize;
        &self.visible
    }

    /// Whether nothing of the column below the lowest timestamp that was last passed to [`Resolver::column`] is visible: the rest
    /// of the column need not be read, unless it holds tombstones of the family. `false` means unknown.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether the first cell of a row, in storage order, is enough to know that its column shows something: then
    /// nothing else of the row has to be read to know that the row exists. `false` means unknown.
    ///
    /// Whatever hides a cell precedes it: family tombstones, and tombstones at its timestamp or above. (A tombstone at
    /// its timestamp that follows it was written before it.) And no version above it exists that could have pushed it
    /// out.
    #[must_use]
    pub fn first_shows(&self, first: &CellMeta) -> bool {
        first.kind == CellKind::Put
            && (self.rules_since..=self.view.sequence).contains(&first.sequence)
            && (self.view.time_min..self.view.time_max).contains(&first.timestamp)
            && !is_expired(&self.rules, first.timestamp, self.view.now_ms)
            && !first.has_died(self.view.now_ms)
    }

    /// Lists what is stored, of each timestamp the tombstones first and one cell of each kind. Versions count puts. What the
    /// family's time to live has expired is still stored; a put that has outlived its own was never to be seen again.
    fn list_stored(&mut self, cells: &[CellMeta]) {
        let view = self.view;
        let in_view = |cell: &CellMeta| cell.sequence <= view.sequence;
        // A put without a value may have lost it, and a reader of a live put sees the value that was written.
        if cells.iter().any(|cell| cell.kind == CellKind::Put && cell.is_bare && in_view(cell)) {
            self.replay.run(cells, &self.tombstones, &self.history, view.sequence, |_, _| true);
        }
        let (mut at, mut versions) = (0, 0);
        while at < cells.len() {
            let timestamp = cells[at].timestamp;
            let mut newest: [Option<usize>; CellKind::WIDEST_FIRST.len()] = Default::default();
            while let Some(cell) = cells.get(at).filter(|cell| cell.timestamp == timestamp) {
                let place = &mut newest[cell.kind as usize];
                if in_view(cell) && !cell.has_died(view.now_ms) && place.is_none() {
                    *place = Some(at);
                }
                at += 1;
            }
            if timestamp < view.time_min {
                self.is_settled = true;
                break;
            }
            if timestamp >= view.time_max {
                continue;
            }
            let is_whole = |put: &usize| !cells[*put].is_bare || self.replay.is_live(timestamp, index_of(*put));
            let put = newest[CellKind::Put as usize].filter(is_whole);
            newest[CellKind::Put as usize] = put;
            versions += u32::from(put.is_some());
            let is_over = versions > view.versions;
            if is_over {
                newest[CellKind::Put as usize] = None;
            }
            let listed = CellKind::WIDEST_FIRST.into_iter().filter_map(|kind| newest[kind as usize]);
            self.visible.extend(listed.map(index_of));
            if is_over {
                self.is_settled = true;
                break;
            }
        }
    }

    /// Resolves puts and tombstones that cover everything below a timestamp, under unchanged rules.
    fn walk(&mut self, cells: &[CellMeta]) {
        let view = self.view;
        let mut family = self.tombstones.up_to.iter().filter(|tombstone| !hidden(self.unseen, tombstone)).peekable();
        // The latest tombstone, in write order, that covers the timestamp reached: what was written before it is
        // deleted.
        let mut deleted_before: WriteOrder = (0, 0);
        let mut any_delete = false;
        let mut timestamp_above = None;
        let mut live = 0u32;
        let mut shown = 0u32;
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence > view.sequence {
                continue;
            }
            match cell.kind {
                CellKind::Put => {}
                CellKind::DeleteColumn if !hidden(self.unseen, cell) => {
                    deleted_before = deleted_before.max(cell.order());
                    any_delete = true;
                    continue;
                }
                _ => continue,
            }
            if cell.has_died(view.now_ms) {
                continue;
            }
            if timestamp_above == Some(cell.timestamp) {
                continue; // An older put of the same version, replaced by the previous one.
            }
            timestamp_above = Some(cell.timestamp);
            while let Some(tombstone) = family.next_if(|tombstone| tombstone.timestamp >= cell.timestamp) {
                deleted_before = deleted_before.max(tombstone.order());
                any_delete = true;
            }
            if any_delete && deleted_before > cell.order() {
                continue;
            }
            live += 1;
            let past_ttl = live > self.rules.min_versions && is_expired(&self.rules, cell.timestamp, view.now_ms);
            if live > self.rules.versions || past_ttl || cell.timestamp < view.time_min {
                self.is_settled = true;
                break; // All cells below are also pushed out, expired or too old.
            }
            if cell.timestamp < view.time_max {
                self.visible.push(index_of(index));
                shown += 1;
                if shown >= view.versions {
                    break;
                }
            }
        }
    }

    /// Whether the column's only put, which no tombstone covers, expired at a change of the rules.
    fn expired_under_earlier_rules(&self, cells: &[CellMeta]) -> bool {
        let is_put = |cell: &&CellMeta| cell.kind == CellKind::Put && cell.sequence <= self.view.sequence;
        let Some(put) = cells.iter().find(is_put) else {
            return true;
        };
        let changes = self.history.changes();
        let written_under = self.history.index_at(put.sequence);
        let read_under = self.history.index_at(self.view.sequence);
        changes[written_under..=read_under]
            .windows(2)
            .any(|pair| pair[0].rules.min_versions == 0 && is_expired(&pair[0].rules, put.timestamp, pair[1].stamp_ms))
    }

    fn run_replay(&mut self, cells: &[CellMeta]) {
        let view = self.view;
        let unseen = self.unseen;
        let happened = |_: usize, cell: &CellMeta| !(cell.kind.is_delete() && hidden(unseen, cell));
        self.replay.run(cells, &self.tombstones, &self.history, view.sequence, happened);
        let rules = self.rules;
        let (mut above, mut versions, mut protections) = (None, 0, 0);
        let alive = self.replay.live().filter(|&(_, index, _)| !cells[index as usize].has_died(view.now_ms));
        let shown = alive
            .filter(|&(timestamp, _, _)| above.replace(timestamp) != Some(timestamp))
            .filter(|&(timestamp, _, protected)| {
                versions += 1;
                protections += u32::from(protected);
                let is_protected = protected && protections <= rules.min_versions;
                versions <= rules.versions && (is_protected || !is_expired(&rules, timestamp, view.now_ms))
            })
            .filter(|&(timestamp, _, _)| (view.time_min..view.time_max).contains(&timestamp))
            .take(view.versions as usize);
        self.visible.extend(shown.map(|(_, index, _)| index));
    }
}

fn hidden(unseen: Option<Unseen>, delete: &CellMeta) -> bool {
    unseen.is_some_and(|unseen| unseen.hides(delete))
}

fn index_of(index: usize) -> u32 {
    u32::try_from(index).expect("a column in memory has far fewer than 2^32 cells")
}
