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
    /// The parts of a column that were passed so far.
    parts: Parts,
}

/// What the rest of a column depends on, of the parts of it that were passed so far.
#[derive(Clone, Debug, Default)]
struct Parts {
    contents: Contents,
    walked: Walked,
    /// Their cells, for a column that turns out to need the replay: without what a tombstone of the column or the family covers,
    /// which never concerned anything that this tombstone does not delete as well.
    cells: Vec<CellMeta>,
    /// Versions that a raw reader was shown, and whether any of them may have lost its value.
    listed: u32,
    is_bare: bool,
}

/// How far a column was walked, to go on from there.
#[derive(Clone, Copy, Debug, Default)]
struct Walked {
    /// The latest tombstone, in write order, that covers the timestamp reached: what was written before it is deleted.
    deleted_before: Option<WriteOrder>,
    timestamp_above: Option<i64>,
    live: u32,
    shown: u32,
    /// Family tombstones that were passed.
    family_tombstones: usize,
    /// Nothing below is shown.
    is_over: bool,
}

/// The properties of a column that decide how it is resolved.
#[derive(Clone, Copy, Debug)]
struct Contents {
    puts: usize,
    deletes: bool,
    one_version_deletes: bool,
    family_tombstones: bool,
    lowest_sequence: u64,
}

impl Default for Contents {
    fn default() -> Self {
        Self {
            puts: 0,
            deletes: false,
            one_version_deletes: false,
            family_tombstones: false,
            lowest_sequence: u64::MAX,
        }
    }
}

impl Contents {
    fn of(cells: &[CellMeta], sequence: u64) -> Self {
        let mut contents = Self::default();
        contents.add(cells, sequence);
        contents
    }

    fn add(&mut self, cells: &[CellMeta], sequence: u64) {
        for cell in cells.iter().filter(|cell| cell.sequence <= sequence) {
            self.lowest_sequence = self.lowest_sequence.min(cell.sequence);
            match cell.kind {
                CellKind::Put => self.puts += 1,
                CellKind::Delete => self.one_version_deletes = true,
                CellKind::DeleteColumn => self.deletes = true,
                CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => self.family_tombstones = true,
            }
        }
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
            parts: Parts::default(),
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
        self.resolve(cells, contents);
        &self.visible
    }

    /// Begins a column that comes in parts.
    pub fn begin_column(&mut self) {
        let mut cells = std::mem::take(&mut self.parts.cells);
        cells.clear();
        self.parts = Parts { cells, ..Parts::default() };
    }

    /// As [`Resolver::column`] for the next part of a column, with indices in this part. For a raw view, parts are cut between two
    /// timestamps. What was resolved with earlier parts is not resolved again, unless the column needs the replay.
    pub fn column_part(&mut self, part: &[CellMeta]) -> &[u32] {
        self.visible.clear();
        self.tombstones.take_from(part, self.view.sequence);
        let mut parts = std::mem::take(&mut self.parts);
        parts.contents.add(part, self.view.sequence);
        self.is_settled = parts.walked.is_over;
        if !parts.walked.is_over {
            self.resolve_part(&mut parts, part);
            parts.walked.is_over = self.is_settled;
        }
        self.parts = parts;
        &self.visible
    }

    fn resolve_part(&mut self, parts: &mut Parts, part: &[CellMeta]) {
        let before = parts.cells.len();
        if self.is_walked(&parts.contents) && !self.view.raw {
            parts.walked = self.walk(part, parts.walked, |kept| parts.cells.push(*kept));
            return;
        }
        parts.cells.extend_from_slice(part);
        if self.view.raw {
            parts.is_bare |= part.iter().any(|cell| self.may_have_lost_its_value(cell));
            let (from, listed) = if parts.is_bare { (0, 0) } else { (before, parts.listed) };
            parts.listed = self.list_stored(&parts.cells, from, listed, parts.is_bare);
        } else {
            self.resolve(&parts.cells, parts.contents);
        }
        self.visible.retain(|&index| index as usize >= before);
        self.visible.iter_mut().for_each(|index| *index -= index_of(before));
    }

    /// Whether a walk over the cells in storage order finds what is visible.
    fn is_walked(&self, contents: &Contents) -> bool {
        let one_version_deletes = contents.one_version_deletes || !self.tombstones.exact.is_empty();
        contents.lowest_sequence >= self.rules_since && !one_version_deletes
    }

    fn resolve(&mut self, cells: &[CellMeta], contents: Contents) {
        if self.view.raw {
            let is_bare = cells.iter().any(|cell| self.may_have_lost_its_value(cell));
            self.list_stored(cells, 0, 0, is_bare);
            return;
        }
        if contents.puts == 0 {
            return;
        }
        let undeleted = !contents.deletes && !contents.one_version_deletes && self.tombstones.is_empty();
        let same_rules = contents.lowest_sequence >= self.rules_since;
        if self.is_walked(&contents) {
            self.walk(cells, Walked::default(), |_| {});
        } else if contents.puts == 1 && undeleted && !same_rules {
            if !self.expired_under_earlier_rules(cells) {
                self.walk(cells, Walked::default(), |_| {});
            }
        } else {
            self.run_replay(cells);
        }
        self.is_settled |= self.visible.len() >= self.view.versions as usize;
    }

    /// Whether a stored put may have lost its value.
    fn may_have_lost_its_value(&self, cell: &CellMeta) -> bool {
        cell.kind == CellKind::Put && cell.is_bare && cell.sequence <= self.view.sequence
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
    /// family's time to live has expired is still stored; a put that has outlived its own was never to be seen again. It begins at
    /// `at`, behind so many versions, and returns how many there are then. `is_bare`: a put without a value may have lost it, and a
    /// reader of a live put sees the value that was written.
    fn list_stored(&mut self, cells: &[CellMeta], mut at: usize, mut versions: u32, is_bare: bool) -> u32 {
        let view = self.view;
        let in_view = |cell: &CellMeta| cell.sequence <= view.sequence;
        if is_bare {
            self.replay.run(cells, &self.tombstones, &self.history, view.sequence, |_, _| true);
        }
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
        versions
    }

    /// Resolves puts and tombstones that cover everything below a timestamp, under unchanged rules, after the part of the column that
    /// was walked. Hands what concerns cells below to `keep`.
    fn walk(&mut self, cells: &[CellMeta], mut walked: Walked, mut keep: impl FnMut(&CellMeta)) -> Walked {
        let view = self.view;
        let family = &self.tombstones.up_to;
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence > view.sequence {
                continue;
            }
            match cell.kind {
                CellKind::Put => {}
                CellKind::DeleteColumn if !hidden(self.unseen, cell) => {
                    if walked.deleted_before < Some(cell.order()) {
                        walked.deleted_before = Some(cell.order());
                        keep(cell);
                    }
                    continue;
                }
                _ => continue,
            }
            if cell.has_died(view.now_ms) {
                keep(cell);
                continue;
            }
            if walked.timestamp_above == Some(cell.timestamp) {
                keep(cell);
                continue; // An older put of the same version, replaced by the previous one.
            }
            walked.timestamp_above = Some(cell.timestamp);
            while let Some(tombstone) = family.get(walked.family_tombstones)
                && tombstone.timestamp >= cell.timestamp
            {
                if !hidden(self.unseen, tombstone) {
                    walked.deleted_before = walked.deleted_before.max(Some(tombstone.order()));
                }
                walked.family_tombstones += 1;
            }
            if walked.deleted_before > Some(cell.order()) {
                continue;
            }
            keep(cell);
            walked.live += 1;
            let past_ttl =
                walked.live > self.rules.min_versions && is_expired(&self.rules, cell.timestamp, view.now_ms);
            if walked.live > self.rules.versions || past_ttl || cell.timestamp < view.time_min {
                walked.is_over = true;
                break; // All cells below are also pushed out, expired or too old.
            }
            if cell.timestamp < view.time_max {
                self.visible.push(index_of(index));
                walked.shown += 1;
                if walked.shown >= view.versions {
                    walked.is_over = true;
                    break;
                }
            }
        }
        self.is_settled = walked.is_over;
        walked
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
