//! Collecting: which cells a flush, a compaction or a memtable may leave out, and no reader ever notices.
//!
//! What is collected is a part of the log: the cells of one row and family written between two moments, everything
//! older included (`covers_older`) or not. The replay is a machine whose state is the set of live cells, so a part of
//! the log may be replaced by a smaller one that takes **every** earlier state to the same state at the oldest
//! snapshot; all that comes later goes on from there alike. Cells above the oldest snapshot are therefore kept as they
//! are, and the rest (the *settled* cells) is made smaller.
//!
//! With everything older at hand the state is known: the live cells stay, the rest goes. Else a cell may go when all
//! its effect is known to be wiped out later in the part. A put or delete only ever touches cells of its own timestamp
//! and lower ones, so the effects of everything written before some moment are wiped out
//! - up to the timestamp of a later `DeleteColumn` or `DeleteFamily`, and
//! - below a timestamp that has `versions` puts of one *era* above it. Eras are the stretches between one-version
//!   deletes. Inside one the order of writing does not matter, so such puts surely push out all below them. Across
//!   one-version deletes this cannot be said: an older, unseen cell may have kept such a put out, and been deleted
//!   since.
//!
//! What is surely hidden (its timestamp put again, or deleted) and yet has effects that are not wiped out stays as a
//! *stub*, without its value.
//!
//! With `keep_deleted_cells` there are readers for whom deletes did not happen. What holds in stretches without any
//! delete holds for all of them; so there every delete ends an era, and no delete wipes anything out.

use super::replay::Replay;
use super::{CellMeta, FamilyMarkers, Fate, RulesHistory, WriteOrder, is_expired};
use crate::cell::CellKind;
use crate::schema::FamilyRules;

/// Decides what becomes of each cell of a family, row after row. Made once per flush or compaction and family.
#[derive(Clone, Debug)]
pub struct Collector {
    history: RulesHistory,
    /// Readers at and above this sequence number notice nothing.
    snapshot: u64,
    log_time_ms: i64,
    covers_older: bool,
    /// The rules at the snapshot.
    rules: FamilyRules,
    /// Whether no other rules follow, so that what is expired now stays expired.
    rules_are_last: bool,
    /// Whether protection by `min_versions` may ever have decided about a cell of the family.
    ever_guarded: bool,
    markers: FamilyMarkers,
    /// Whether columns of the row may come in parts, so that what the markers delete may stay.
    in_parts: bool,
    replay: Replay,
    eras: Eras,
    fates: Vec<Fate>,
    /// Which cells of the column live, for the check of a reduced column.
    live: Vec<(i64, u32, bool)>,
}

impl Collector {
    /// Collects for readers at `oldest_snapshot` and above. Cells expire up to `log_time_ms`, the stamp of the last
    /// applied entry and never a clock, so that all replicas agree and no reader's time is earlier. `covers_older` says
    /// that no older cell of these rows is anywhere but in what is handed over.
    #[must_use]
    pub fn new(history: &RulesHistory, oldest_snapshot: u64, log_time_ms: i64, covers_older: bool) -> Self {
        let at = history.index_at(oldest_snapshot);
        let changes = history.changes();
        Self {
            history: history.clone(),
            snapshot: oldest_snapshot,
            log_time_ms,
            covers_older,
            rules: changes[at].rules,
            rules_are_last: at + 1 == changes.len(),
            ever_guarded: changes[..=at].iter().any(|change| is_guarded(&change.rules)),
            markers: FamilyMarkers::default(),
            in_parts: false,
            replay: Replay::default(),
            eras: Eras::default(),
            fates: Vec::new(),
            live: Vec::new(),
        }
    }

    /// Begins a row: forgets the family markers of the one before.
    pub fn start_row(&mut self) {
        self.markers.clear();
        self.in_parts = false;
    }

    /// Begins a row of which [`Collector::column_in_parts`] may be asked: its family markers stay, unless later ones
    /// make them superfluous, because what they delete may stay as well.
    pub fn start_row_in_parts(&mut self) {
        self.markers.clear();
        self.in_parts = true;
    }

    /// The fate of each cell of a part of a column that is too large to be handed over whole: what has expired goes,
    /// the rest stays. All parts of the column, in storage order, are to be judged in this way.
    pub fn column_in_parts(&mut self, cells: &[CellMeta]) -> &[Fate] {
        debug_assert!(self.in_parts, "the row was begun as one that comes in parts");
        self.fates.clear();
        self.markers.take_from(cells, self.snapshot);
        let expires = self.rules.min_versions == 0;
        for cell in cells {
            // What an expired put may have pushed out, or a delete have deleted, lies below it and has expired too.
            let is_expired = expires && cell.sequence <= self.snapshot && self.is_expired_for_good(cell.timestamp);
            self.fates.push(if is_expired { Fate::Drop } else { Fate::Keep });
        }
        &self.fates
    }

    /// The fate of each cell of one column, given in storage order; the markers of the family, which have an empty
    /// qualifier, come with the first column of the row.
    pub fn column(&mut self, cells: &[CellMeta]) -> &[Fate] {
        self.fates.clear();
        self.fates.resize(cells.len(), Fate::Keep);
        self.markers.take_from(cells, self.snapshot);
        let Some(span) = self.span_of(cells) else {
            return &self.fates;
        };
        if let ([cell], false) = (cells, span.rules_change())
            && cell.kind == CellKind::Put
            && self.markers.is_empty()
        {
            // By far the most frequent column: one put, which a lone cell's protection keeps, if anything does.
            if self.rules.min_versions == 0 && self.is_expired_for_good(cell.timestamp) {
                self.fates[0] = Fate::Drop;
            }
            return &self.fates;
        }
        self.eras.begin(cells, &self.markers, self.snapshot, self.rules.keep_deleted_cells);
        // In a single era under the same rules, what the effects leave over is what lives.
        let replay_tells_more = span.rules_change() || self.eras.are_many();
        if !(replay_tells_more && self.reduce_to_live(cells, span)) {
            self.reduce_by_effects(cells, span);
        }
        self.judge_family_markers(cells);
        self.drop_expired_deletes(cells);
        &self.fates
    }

    /// The moments that the column's settled cells are from, the markers of the family included; `None` for none.
    fn span_of(&self, cells: &[CellMeta]) -> Option<Span> {
        let sequences = || cells.iter().map(|cell| cell.sequence).filter(|&sequence| sequence <= self.snapshot);
        let lowest = sequences().min()?;
        let highest = sequences().chain(self.markers.iter().map(|marker| marker.sequence)).max()?;
        let (first_rules, last_rules) = (self.history.index_at(lowest), self.history.index_at(highest));
        Some(Span { highest, first_rules, last_rules, rules: self.history.changes()[last_rules].rules })
    }

    /// Whether a cell of this timestamp is expired for every reader to come, protection aside.
    fn is_expired_for_good(&self, timestamp: i64) -> bool {
        self.rules_are_last && is_expired(&self.rules, timestamp, self.log_time_ms)
    }

    /// Whether protection, as the column's own span leaves it, is still the protection at the snapshot: a change of the
    /// rules gives it anew, by what lives then, and newer cells that are elsewhere decide about that.
    fn protection_stands(&self, span: Span) -> bool {
        self.history.index_at(self.snapshot) == span.last_rules
    }

    /// With everything older at hand: keeps what lives, drops the rest. Says no where that cannot be done.
    fn reduce_to_live(&mut self, cells: &[CellMeta], span: Span) -> bool {
        if !self.covers_older || self.rules.keep_deleted_cells {
            return false;
        }
        // Only up to the last cell at hand: changes of the rules after it may come after newer cells that are
        // elsewhere.
        self.replay.run(cells, &self.markers, &self.history, span.highest, |_, _| true);
        self.live.clear();
        self.live.extend(self.replay.live());
        if self.was_guarded_in(span) && !self.live_cells_alone_give_the_same(cells, span) {
            return false;
        }
        for (cell, fate) in cells.iter().zip(&mut self.fates) {
            if cell.sequence <= self.snapshot && !cell.kind.is_family_marker() {
                *fate = Fate::Drop;
            }
        }
        let protection_stands = self.protection_stands(span);
        for &(timestamp, index, protected) in &self.live {
            let unprotected = self.rules.min_versions == 0 || (protection_stands && !protected);
            if !(unprotected && self.is_expired_for_good(timestamp)) {
                self.fates[index as usize] = Fate::Keep;
            }
        }
        true
    }

    fn was_guarded_in(&self, span: Span) -> bool {
        let changes = &self.history.changes()[span.first_rules..=span.last_rules];
        changes.iter().any(|change| is_guarded(&change.rules))
    }

    /// Which cells `min_versions` protects depends on cells that are gone; so where it matters, the reduced column is
    /// replayed and compared. Markers of one version stay in such a family, the others go.
    fn live_cells_alone_give_the_same(&mut self, cells: &[CellMeta], span: Span) -> bool {
        let live = &self.live;
        let stays = |index: usize, cell: &CellMeta| {
            cell.kind == CellKind::DeleteFamilyVersion
                || live.iter().any(|&(_, kept, _)| cell.kind == CellKind::Put && kept as usize == index)
        };
        self.replay.run(cells, &self.markers, &self.history, span.highest, stays);
        self.replay.live().eq(self.live.iter().copied())
    }

    /// Without everything older: drops what has its effects wiped out, and makes stubs of what is surely hidden.
    fn reduce_by_effects(&mut self, cells: &[CellMeta], span: Span) {
        let mixed = span.rules_change();
        if !mixed {
            self.eras.find_floors(cells, &self.markers, self.snapshot, &span.rules);
        }
        let protection_stands = self.protection_stands(span);
        let wipes = !self.rules.keep_deleted_cells;
        let mut wiped = Wiped::new(&self.markers);
        let mut above = Above::default();
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence > self.snapshot || cell.kind.is_family_marker() {
                continue;
            }
            if above.timestamp != Some(cell.timestamp) {
                above = Above { timestamp: Some(cell.timestamp), ..Above::default() };
            }
            let era = self.eras.of(cell.order());
            let order = cell.order();
            let is_wiped = wipes && wiped.before(cell.timestamp) > Some(order);
            let is_below = cell.timestamp < self.eras.floor(era, cell.kind)
                || (cell.kind == CellKind::Put
                    && self.is_expired_for_good(cell.timestamp)
                    && (self.rules.min_versions == 0
                        || (protection_stands && cell.timestamp < self.eras.protected_floor(era))));
            let hidden = above.put.is_some() || (wipes && self.deleted_exactly(cell, above.delete));
            self.fates[index] = match cell.kind {
                _ if is_wiped || is_below => Fate::Drop,
                CellKind::Put if !mixed && above.put == Some(era) => Fate::Drop,
                CellKind::Put if hidden => Fate::Stub,
                // With everything older at hand its victims are all here, and all of them go.
                CellKind::DeleteColumn if wipes && self.covers_older => Fate::Drop,
                _ => Fate::Keep,
            };
            match cell.kind {
                CellKind::Put => above.put = Some(era),
                CellKind::Delete => above.delete = above.delete.max(Some(order)),
                CellKind::DeleteColumn => wiped.latest = wiped.latest.max(Some(order)),
                CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => {}
            }
        }
    }

    /// Whether a put is deleted by a later one-version delete of its own timestamp.
    fn deleted_exactly(&self, cell: &CellMeta, delete: Option<WriteOrder>) -> bool {
        let at = self.markers.exact.partition_point(|marker| marker.timestamp > cell.timestamp);
        let family = self.markers.exact[at..].iter().take_while(|marker| marker.timestamp == cell.timestamp);
        cell.kind == CellKind::Put
            && (delete > Some(cell.order()) || family.into_iter().any(|marker| marker.order() > cell.order()))
    }

    /// The markers of the family act on every column of the row, so what becomes of them must not depend on one column.
    fn judge_family_markers(&mut self, cells: &[CellMeta]) {
        if self.rules.keep_deleted_cells {
            return;
        }
        let mut latest: Option<WriteOrder> = None;
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence > self.snapshot || !cell.kind.is_family_marker() {
                continue;
            }
            let wiped = latest > Some(cell.order());
            let spent =
                self.covers_older && !self.in_parts && (cell.kind == CellKind::DeleteFamily || !self.ever_guarded);
            if wiped || spent {
                self.fates[index] = Fate::Drop;
            }
            if cell.kind == CellKind::DeleteFamily {
                latest = latest.max(Some(cell.order()));
            }
        }
    }

    /// A delete whose victims are all expired, itself being no younger than they, deletes nothing any more.
    fn drop_expired_deletes(&mut self, cells: &[CellMeta]) {
        if self.rules.min_versions > 0 {
            return;
        }
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence <= self.snapshot && cell.kind.is_delete() && self.is_expired_for_good(cell.timestamp) {
                self.fates[index] = Fate::Drop;
            }
        }
    }
}

fn is_guarded(rules: &FamilyRules) -> bool {
    rules.min_versions > 0 && rules.ttl_ms.is_some()
}

/// From when to when a column's settled cells were written.
#[derive(Clone, Copy, Debug)]
struct Span {
    highest: u64,
    /// Indices into the history of rules.
    first_rules: usize,
    last_rules: usize,
    /// The rules at its end.
    rules: FamilyRules,
}

impl Span {
    const fn rules_change(&self) -> bool {
        self.first_rules != self.last_rules
    }
}

/// What was seen at the timestamp reached, in a walk from later to earlier writes.
#[derive(Clone, Copy, Debug, Default)]
struct Above {
    timestamp: Option<i64>,
    /// The era of the last put.
    put: Option<usize>,
    /// The latest one-version delete.
    delete: Option<WriteOrder>,
}

/// The latest delete, in write order, that covers the timestamp reached in a walk down the timestamps.
struct Wiped<'a> {
    family: &'a [CellMeta],
    latest: Option<WriteOrder>,
}

impl<'a> Wiped<'a> {
    fn new(markers: &'a FamilyMarkers) -> Self {
        Self { family: &markers.up_to, latest: None }
    }

    fn before(&mut self, timestamp: i64) -> Option<WriteOrder> {
        while let [marker, rest @ ..] = self.family
            && marker.timestamp >= timestamp
        {
            self.latest = self.latest.max(Some(marker.order()));
            self.family = rest;
        }
        self.latest
    }
}

/// The stretches of a part of the log between deletes that make the order of writing matter.
#[derive(Clone, Debug, Default)]
struct Eras {
    /// The deletes that end an era, in write order.
    ends: Vec<WriteOrder>,
    eras: Vec<Era>,
}

/// One era, while the walk goes down the timestamps, and what it found.
#[derive(Clone, Copy, Debug)]
struct Era {
    /// The latest covering delete inside the era.
    deleted_before: Option<WriteOrder>,
    /// The timestamp of its last put, and how many timestamps have one.
    timestamp: Option<i64>,
    puts: u32,
    /// Below this timestamp everything written before the era's end, or that of an earlier era, is pushed out.
    floor: i64,
    /// The same for `min_versions`: below it nothing is protected.
    protected_floor: i64,
}

impl Era {
    const EMPTY: Self =
        Self { deleted_before: None, timestamp: None, puts: 0, floor: i64::MIN, protected_floor: i64::MIN };
}

impl Eras {
    fn begin(&mut self, cells: &[CellMeta], markers: &FamilyMarkers, snapshot: u64, every_delete: bool) {
        self.ends.clear();
        let ends_era = |cell: &&CellMeta| match cell.kind {
            CellKind::Delete | CellKind::DeleteFamilyVersion => true,
            CellKind::DeleteColumn | CellKind::DeleteFamily => every_delete,
            CellKind::Put => false,
        };
        let settled = cells.iter().filter(|cell| cell.sequence <= snapshot && !cell.kind.is_family_marker());
        self.ends.extend(settled.chain(markers.iter()).filter(ends_era).map(CellMeta::order));
        self.ends.sort_unstable();
        self.eras.clear();
        self.eras.resize(self.ends.len() + 1, Era::EMPTY);
    }

    fn are_many(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The era in which something was written. A delete that ends an era belongs to the one after it.
    fn of(&self, order: WriteOrder) -> usize {
        self.ends.partition_point(|end| *end <= order)
    }

    fn floor(&self, era: usize, kind: CellKind) -> i64 {
        debug_assert!(!kind.is_family_marker(), "family markers act on more columns than this one");
        self.eras[era].floor
    }

    fn protected_floor(&self, era: usize) -> i64 {
        self.eras[era].protected_floor
    }

    fn find_floors(&mut self, cells: &[CellMeta], markers: &FamilyMarkers, snapshot: u64, rules: &FamilyRules) {
        let mut family = &markers.up_to[..];
        for cell in cells.iter().filter(|cell| cell.sequence <= snapshot) {
            while let [marker, rest @ ..] = family
                && marker.timestamp >= cell.timestamp
            {
                self.note_delete(marker);
                family = rest;
            }
            match cell.kind {
                CellKind::Put => self.note_put(cell, rules),
                CellKind::DeleteColumn => self.note_delete(cell),
                _ => {}
            }
        }
        // What is written in an era is older than what the eras after it push out.
        for era in (1..self.eras.len()).rev() {
            let later = self.eras[era];
            let earlier = &mut self.eras[era - 1];
            earlier.floor = earlier.floor.max(later.floor);
            earlier.protected_floor = earlier.protected_floor.max(later.protected_floor);
        }
    }

    fn note_delete(&mut self, delete: &CellMeta) {
        let at = self.of(delete.order());
        let era = &mut self.eras[at];
        era.deleted_before = era.deleted_before.max(Some(delete.order()));
    }

    fn note_put(&mut self, put: &CellMeta, rules: &FamilyRules) {
        let at = self.of(put.order());
        let era = &mut self.eras[at];
        if era.timestamp == Some(put.timestamp) || era.deleted_before > Some(put.order()) {
            return;
        }
        era.timestamp = Some(put.timestamp);
        era.puts += 1;
        if era.puts == rules.versions {
            era.floor = put.timestamp;
        }
        if era.puts == rules.min_versions {
            era.protected_floor = put.timestamp;
        }
    }
}
