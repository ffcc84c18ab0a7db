//! Reads: the cells of a column that a view shows.
//!
//! Most columns hold one put, and most others only puts and deletes of everything below a timestamp. There the replay
//! ends with the top `versions` of what no later delete covers, whatever the order of writing (proof: a push-out needs
//! live cells above, and a delete that ends their lives covers everything below them as well). One walk over the cells
//! in storage order finds these, and nothing is allocated. Only one-version deletes, which can take a cell away from
//! above one that it had pushed out, and changes of the rules need the replay.

use super::replay::{Replay, Unseen};
use super::{CellMeta, FamilyMarkers, RulesHistory, View, WriteOrder, is_expired};
use crate::cell::CellKind;
use crate::schema::FamilyRules;

/// Finds what a view shows of each column of a family, row after row. Made once per read and family.
#[derive(Clone, Debug)]
pub struct Resolver {
    history: RulesHistory,
    view: View,
    /// The rules at the view's moment, and since which sequence number they have held.
    rules: FamilyRules,
    rules_since: u64,
    unseen: Option<Unseen>,
    markers: FamilyMarkers,
    replay: Replay,
    visible: Vec<u32>,
}

/// What a column holds, as far as it decides how the column is resolved.
struct Contents {
    puts: usize,
    deletes: bool,
    one_version_deletes: bool,
    family_markers: bool,
    lowest_sequence: u64,
}

impl Contents {
    fn of(cells: &[CellMeta], sequence: u64) -> Self {
        let mut contents = Self {
            puts: 0,
            deletes: false,
            one_version_deletes: false,
            family_markers: false,
            lowest_sequence: u64::MAX,
        };
        for cell in cells.iter().filter(|cell| cell.sequence <= sequence) {
            contents.lowest_sequence = contents.lowest_sequence.min(cell.sequence);
            match cell.kind {
                CellKind::Put => contents.puts += 1,
                CellKind::Delete => contents.one_version_deletes = true,
                CellKind::DeleteColumn => contents.deletes = true,
                CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => contents.family_markers = true,
            }
        }
        contents
    }
}

impl Resolver {
    /// Reads a family with this history of rules as `view` says.
    #[must_use]
    pub fn new(history: &RulesHistory, view: View) -> Self {
        let change = history.changes()[history.index_at(view.sequence)];
        Self {
            history: history.clone(),
            view,
            rules: change.rules,
            rules_since: change.sequence,
            unseen: Unseen::of(history, view.sequence, view.time_max),
            markers: FamilyMarkers::default(),
            replay: Replay::default(),
            visible: Vec::new(),
        }
    }

    /// Begins a row: forgets the family markers of the one before.
    pub fn start_row(&mut self) {
        self.markers.clear();
    }

    /// The indices of the cells that are seen, newest first. `cells` are all cells of one column in storage order; the
    /// markers of the family, which have an empty qualifier, come with the first column of the row.
    ///
    /// What is seen at and above some timestamp depends on nothing below it: puts push out, and deletes delete, at
    /// their own timestamp and below. So the cells down to some timestamp may be handed over by themselves.
    pub fn column(&mut self, cells: &[CellMeta]) -> &[u32] {
        self.visible.clear();
        let contents = Contents::of(cells, self.view.sequence);
        if contents.family_markers {
            self.markers.take_from(cells, self.view.sequence);
        }
        if contents.puts == 0 {
            return &self.visible;
        }
        let undeleted = !contents.deletes && !contents.one_version_deletes && self.markers.is_empty();
        let one_version_deletes = contents.one_version_deletes || !self.markers.exact.is_empty();
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
        &self.visible
    }

    /// Whether the first cell of a row, in storage order, says by itself that its column shows something: then nothing
    /// else of the row has to be read to know that the row is there. `false` says nothing.
    ///
    /// What hides a cell lies before it: markers of its family and deletes at its timestamp or above. (A delete at its
    /// timestamp that lies behind it was written before it.) And no version above it is left that could have pushed it
    /// out.
    #[must_use]
    pub fn first_shows(&self, first: &CellMeta) -> bool {
        first.kind == CellKind::Put
            && (self.rules_since..=self.view.sequence).contains(&first.sequence)
            && (self.view.time_min..self.view.time_max).contains(&first.timestamp)
            && !is_expired(&self.rules, first.timestamp, self.view.now_ms)
    }

    /// Puts and deletes of everything below a timestamp, under rules that have not changed since.
    fn walk(&mut self, cells: &[CellMeta]) {
        let view = self.view;
        let mut family = self.markers.up_to.iter().filter(|marker| !hidden(self.unseen, marker)).peekable();
        // The latest delete, in write order, that covers the timestamp reached: what was written before it is gone.
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
            if timestamp_above == Some(cell.timestamp) {
                continue; // An older put of the same version, replaced by the one before.
            }
            timestamp_above = Some(cell.timestamp);
            while let Some(marker) = family.next_if(|marker| marker.timestamp >= cell.timestamp) {
                deleted_before = deleted_before.max(marker.order());
                any_delete = true;
            }
            if any_delete && deleted_before > cell.order() {
                continue;
            }
            live += 1;
            let past_ttl = live > self.rules.min_versions && is_expired(&self.rules, cell.timestamp, view.now_ms);
            if live > self.rules.versions || past_ttl || cell.timestamp < view.time_min {
                break; // Cells below are pushed out, expired or too old as well.
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

    /// Whether the column's only put, which no delete touches, ended its life at a change of the rules.
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
        self.replay.run(cells, &self.markers, &self.history, view.sequence, happened);
        let rules = self.rules;
        let shown = self
            .replay
            .live()
            .filter(|&(timestamp, _, protected)| protected || !is_expired(&rules, timestamp, view.now_ms))
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
