//! Collecting: which cells a flush, a compaction or a memtable may drop without any reader noticing.
//!
//! The input is a part of the log: the cells of one row and family written between two moments, with everything older
//! (`covers_older`) or without. The replay is a state machine whose state is the set of live cells. A part of the log
//! may therefore be replaced by a smaller one that takes **every** earlier state to the same state at the oldest
//! snapshot; later writes continue from the same state. So cells above the oldest snapshot are kept unchanged, and the
//! rest (the *old* cells) is reduced.
//!
//! With everything older in the input, the state is known: live cells are kept, the rest is dropped. Otherwise a cell
//! may be dropped if its whole effect is undone later in the part. A put or tombstone acts only on cells at its own
//! timestamp and below, so the effects of everything written before some moment are undone
//! - up to the timestamp of a later `DeleteColumn` or `DeleteFamily`, and
//! - below a timestamp that has `versions` puts of one *era* above it. Eras are the periods between one-version
//!   tombstones. Within an era the order of writing does not matter, so such puts certainly push out everything below
//!   them. Across one-version tombstones this is uncertain: an older cell outside the input may have kept such a put
//!   out, and been deleted since.
//!
//! A put that is certainly hidden (its timestamp was put again or deleted) but whose effects are not undone is kept as
//! a *masked put*, without its value.
//!
//! Where some puts have a time to live of their own, a put is evidence only against what expires no later, and the cell that
//! it is evidence against may outlive the others above it. A put whose own time is over goes at once: whatever it hid has
//! expired as well.
//!
//! With `keep_deleted_cells`, some readers ignore tombstones. What holds in periods without any tombstone holds for all
//! readers; so there every tombstone ends an era, and no tombstone undoes anything.

use super::mortal::LongestLived;
use super::replay::Replay;
use super::{CellMeta, FamilyTombstones, Fate, RulesHistory, WriteOrder, is_expired};
use crate::cell::CellKind;
use crate::schema::{FamilyRules, KeepDeleted};

/// Decides the fate of each cell of a family, row by row. Created once per flush or compaction and family.
#[derive(Clone, Debug)]
pub struct Collector {
    history: RulesHistory,
    /// Readers at and above this sequence number see no difference.
    snapshot: u64,
    log_time_ms: i64,
    covers_older: bool,
    /// The rules at the snapshot.
    rules: FamilyRules,
    /// Whether these rules are the last, so that what is expired now stays expired.
    rules_are_last: bool,
    /// Whether some readers ignore tombstones of the column at hand.
    keeps: bool,
    /// Whether `min_versions` can ever have protected a cell of the family.
    ever_guarded: bool,
    tombstones: FamilyTombstones,
    /// Whether columns of the row may come in parts, so that cells that the family tombstones delete may be kept.
    in_parts: bool,
    replay: Replay,
    eras: Eras,
    fates: Vec<Fate>,
    /// The live cells of the column, to verify a reduced column.
    live: Vec<(i64, u32, bool)>,
}

impl Collector {
    /// Collects for readers at `oldest_snapshot` and above. Cells expire by `log_time_ms`, the stamp of the last
    /// applied entry and never a clock, so that all replicas agree and no reader's time is earlier. `covers_older`
    /// states that the input contains every older cell of these rows.
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
            keeps: false,
            ever_guarded: changes[..=at].iter().any(|change| is_guarded(&change.rules)),
            tombstones: FamilyTombstones::default(),
            in_parts: false,
            replay: Replay::default(),
            eras: Eras::default(),
            fates: Vec::new(),
            live: Vec::new(),
        }
    }

    /// Starts a row: clears the family tombstones of the previous one.
    pub fn start_row(&mut self) {
        self.tombstones.clear();
        self.in_parts = false;
    }

    /// Starts a row that may use [`Collector::column_in_parts`]. Its family tombstones are kept, unless later ones make
    /// them superfluous, because cells that they delete may be kept as well.
    pub fn start_row_in_parts(&mut self) {
        self.tombstones.clear();
        self.in_parts = true;
    }

    /// The fate of each cell in a part of a column that is too large to be passed whole: expired cells are dropped, the
    /// rest is kept. Pass all parts of the column this way, in storage order.
    pub fn column_in_parts(&mut self, cells: &[CellMeta]) -> &[Fate] {
        debug_assert!(self.in_parts, "the row was started with start_row_in_parts");
        self.fates.clear();
        self.tombstones.take_from(cells, self.snapshot);
        let expires = self.rules.min_versions == 0;
        for cell in cells {
            // Whatever an expired put pushed out, or an expired tombstone deleted, lies below it and has expired too.
            let is_expired = cell.sequence <= self.snapshot
                && (cell.has_died(self.log_time_ms) || (expires && self.is_expired_for_good(cell.timestamp)));
            self.fates.push(if is_expired { Fate::Drop } else { Fate::Keep });
        }
        &self.fates
    }

    /// The fate of each cell of one column, given in storage order; family tombstones, which have an empty qualifier,
    /// come with the first column of the row.
    pub fn column(&mut self, cells: &[CellMeta]) -> &[Fate] {
        self.fates.clear();
        self.fates.resize(cells.len(), Fate::Keep);
        self.tombstones.take_from(cells, self.snapshot);
        let Some(span) = self.span_of(cells) else {
            return &self.fates;
        };
        if let ([cell], false) = (cells, span.rules_change())
            && cell.kind == CellKind::Put
            && self.tombstones.is_empty()
        {
            // By far the most frequent column: one put, which is kept unless it is expired and not protected.
            if cell.has_died(self.log_time_ms)
                || (self.rules.min_versions == 0 && self.is_expired_for_good(cell.timestamp))
            {
                self.fates[0] = Fate::Drop;
            }
            return &self.fates;
        }
        self.keeps = self.keeps_deleted(cells);
        self.eras.begin(cells, &self.tombstones, self.snapshot, self.keeps);
        // In a single era under the same rules, the cells whose effects are not undone are the live ones.
        let replay_tells_more = span.rules_change() || self.eras.are_many();
        if !(replay_tells_more && self.reduce_to_live(cells, span)) {
            self.reduce_by_effects(cells, span);
        }
        self.judge_family_tombstones(cells);
        self.drop_expired_deletes(cells);
        self.drop_dead_puts(cells);
        &self.fates
    }

    /// The period in which the column's old cells and family tombstones were written; `None` without any.
    fn span_of(&self, cells: &[CellMeta]) -> Option<Span> {
        let sequences = || cells.iter().map(|cell| cell.sequence).filter(|&sequence| sequence <= self.snapshot);
        let lowest = sequences().min()?;
        let highest = sequences().chain(self.tombstones.iter().map(|tombstone| tombstone.sequence)).max()?;
        let (first_rules, last_rules) = (self.history.index_at(lowest), self.history.index_at(highest));
        Some(Span { highest, first_rules, last_rules, rules: self.history.changes()[last_rules].rules })
    }

    /// Whether some reader ignores a tombstone that concerns the column.
    fn keeps_deleted(&self, cells: &[CellMeta]) -> bool {
        match self.rules.keep_deleted_cells {
            KeepDeleted::No => false,
            KeepDeleted::Yes => true,
            KeepDeleted::Ttl => {
                let of_column = cells.iter().filter(|cell| cell.sequence <= self.snapshot && cell.kind.is_delete());
                !of_column.chain(self.tombstones.iter()).all(|delete| self.is_expired_for_good(delete.timestamp))
            }
        }
    }

    /// Whether a cell with this timestamp is expired for every future reader, protection aside.
    fn is_expired_for_good(&self, timestamp: i64) -> bool {
        self.rules_are_last && is_expired(&self.rules, timestamp, self.log_time_ms)
    }

    /// Whether the protection at the end of the column's span is still that at the snapshot. A change of the rules
    /// reassigns it to the cells live then, which depends on newer cells outside the input.
    fn protection_stands(&self, span: Span) -> bool {
        self.history.index_at(self.snapshot) == span.last_rules
    }

    /// With everything older in the input: keeps live cells, drops the rest. Returns `false` if that is not possible.
    fn reduce_to_live(&mut self, cells: &[CellMeta], span: Span) -> bool {
        if !self.covers_older || self.keeps {
            return false;
        }
        // Only up to the last cell in the input: later changes of the rules may follow newer cells outside it.
        self.replay.run(cells, &self.tombstones, &self.history, span.highest, |_, _| true);
        self.live.clear();
        self.live.extend(self.replay.live());
        if self.was_guarded_in(span) && !self.live_cells_alone_give_the_same(cells, span) {
            return false;
        }
        for (cell, fate) in cells.iter().zip(&mut self.fates) {
            if cell.sequence <= self.snapshot && !cell.kind.is_family_tombstone() {
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

    /// Which cells `min_versions` protects depends on dropped cells; where it matters, the reduced column is replayed
    /// and compared. Such a family keeps its one-version tombstones and drops the others.
    fn live_cells_alone_give_the_same(&mut self, cells: &[CellMeta], span: Span) -> bool {
        let live = &self.live;
        let stays = |index: usize, cell: &CellMeta| {
            cell.kind == CellKind::DeleteFamilyVersion
                || live.iter().any(|&(_, kept, _)| cell.kind == CellKind::Put && kept as usize == index)
        };
        self.replay.run(cells, &self.tombstones, &self.history, span.highest, stays);
        self.replay.live().eq(self.live.iter().copied())
    }

    /// Without everything older: drops cells whose effects are undone, and masks puts that are certainly hidden.
    fn reduce_by_effects(&mut self, cells: &[CellMeta], span: Span) {
        let mixed = span.rules_change();
        if !mixed {
            self.eras.find_floors(cells, &self.tombstones, self.snapshot, &span.rules);
        }
        let protection_stands = self.protection_stands(span);
        let wipes = !self.keeps;
        let mut wiped = Wiped::new(&self.tombstones);
        let mut above = Above::default();
        // Evidence against mortal puts, in a column of one era.
        let mut mortals = LongestLived::default();
        let is_one_era = !mixed && !self.eras.are_many();
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence > self.snapshot || cell.kind.is_family_tombstone() {
                continue;
            }
            if above.timestamp != Some(cell.timestamp) {
                above = Above { timestamp: Some(cell.timestamp), ..Above::default() };
            }
            let era = self.eras.of(cell.order());
            let order = cell.order();
            let is_wiped = wipes && wiped.before(cell.timestamp) > Some(order);
            let is_below = cell.timestamp < self.eras.floor(era, cell.kind)
                || (is_one_era
                    && cell.is_mortal()
                    && mortals.cover(cell.timestamp, cell.expires_ms, span.rules.versions))
                || (cell.kind == CellKind::Put
                    && self.is_expired_for_good(cell.timestamp)
                    && (self.rules.min_versions == 0
                        || (protection_stands && cell.timestamp < self.eras.protected_floor(era))));
            let hidden =
                (above.put.is_some() && above.covers(cell)) || (wipes && self.deleted_exactly(cell, above.delete));
            self.fates[index] = match cell.kind {
                _ if is_wiped || is_below => Fate::Drop,
                CellKind::Put if !mixed && above.put == Some(era) && above.covers(cell) => Fate::Drop,
                CellKind::Put if hidden => Fate::Mask,
                // With everything older in the input, all cells it deletes are here and are dropped.
                CellKind::DeleteColumn if wipes && self.covers_older => Fate::Drop,
                _ => Fate::Keep,
            };
            match cell.kind {
                CellKind::Put => {
                    if !is_wiped {
                        mortals.note(cell.timestamp, cell.expires_ms, span.rules.versions);
                    }
                    above.note_put(cell, era);
                }
                CellKind::Delete => above.delete = above.delete.max(Some(order)),
                CellKind::DeleteColumn => wiped.latest = wiped.latest.max(Some(order)),
                CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => {}
            }
        }
    }

    /// Whether a later one-version tombstone deletes the put.
    fn deleted_exactly(&self, cell: &CellMeta, delete: Option<WriteOrder>) -> bool {
        let at = self.tombstones.exact.partition_point(|tombstone| tombstone.timestamp > cell.timestamp);
        let family = self.tombstones.exact[at..].iter().take_while(|tombstone| tombstone.timestamp == cell.timestamp);
        cell.kind == CellKind::Put
            && (delete > Some(cell.order()) || family.into_iter().any(|tombstone| tombstone.order() > cell.order()))
    }

    /// Family tombstones act on every column of the row, so their fate must not depend on one column.
    fn judge_family_tombstones(&mut self, cells: &[CellMeta]) {
        // In other columns of the row, what they delete may be kept.
        if self.rules.keep_deleted_cells.keeps() {
            return;
        }
        let mut latest: Option<WriteOrder> = None;
        for (index, cell) in cells.iter().enumerate() {
            if cell.sequence > self.snapshot || !cell.kind.is_family_tombstone() {
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

    /// A put whose own time is over is not seen again, and neither is what it hid.
    fn drop_dead_puts(&mut self, cells: &[CellMeta]) {
        for (fate, cell) in self.fates.iter_mut().zip(cells) {
            if cell.sequence <= self.snapshot && cell.has_died(self.log_time_ms) {
                *fate = Fate::Drop;
            }
        }
    }

    /// A tombstone that only covers expired cells, because it is expired itself, has no further effect.
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

/// The period in which a column's old cells were written.
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

/// What a walk from later to earlier writes has found at the current timestamp.
#[derive(Clone, Copy, Debug, Default)]
struct Above {
    timestamp: Option<i64>,
    /// The era of the last put that outlives those before it, and when that put expires.
    put: Option<usize>,
    put_expires_ms: i64,
    /// The latest one-version tombstone.
    delete: Option<WriteOrder>,
}

impl Above {
    /// Whether the put found replaces an earlier one.
    const fn covers(&self, put: &CellMeta) -> bool {
        self.put_expires_ms >= put.expires_ms
    }

    fn note_put(&mut self, put: &CellMeta, era: usize) {
        if self.put.is_none() || !self.covers(put) || self.put_expires_ms == put.expires_ms {
            (self.put, self.put_expires_ms) = (Some(era), put.expires_ms);
        }
    }
}

/// The latest tombstone, in write order, that covers the current timestamp of a walk down the timestamps.
struct Wiped<'a> {
    family: &'a [CellMeta],
    latest: Option<WriteOrder>,
}

impl<'a> Wiped<'a> {
    fn new(tombstones: &'a FamilyTombstones) -> Self {
        Self { family: &tombstones.up_to, latest: None }
    }

    fn before(&mut self, timestamp: i64) -> Option<WriteOrder> {
        while let [tombstone, rest @ ..] = self.family
            && tombstone.timestamp >= timestamp
        {
            self.latest = self.latest.max(Some(tombstone.order()));
            self.family = rest;
        }
        self.latest
    }
}

/// The periods of a part of the log between tombstones that make the order of writing matter.
#[derive(Clone, Debug, Default)]
struct Eras {
    /// The tombstones that end an era, in write order.
    ends: Vec<WriteOrder>,
    eras: Vec<Era>,
}

/// One era during a walk down the timestamps, and what the walk has found.
#[derive(Clone, Copy, Debug)]
struct Era {
    /// The latest covering tombstone in the era.
    deleted_before: Option<WriteOrder>,
    /// The timestamp of its last put, and how many timestamps have one.
    timestamp: Option<i64>,
    puts: u32,
    /// Below this timestamp, everything written before the end of the era is pushed out.
    floor: i64,
    /// Below this timestamp, `min_versions` protects nothing.
    protected_floor: i64,
}

impl Era {
    const EMPTY: Self =
        Self { deleted_before: None, timestamp: None, puts: 0, floor: i64::MIN, protected_floor: i64::MIN };
}

impl Eras {
    fn begin(&mut self, cells: &[CellMeta], tombstones: &FamilyTombstones, snapshot: u64, every_delete: bool) {
        self.ends.clear();
        let ends_era = |cell: &&CellMeta| match cell.kind {
            CellKind::Delete | CellKind::DeleteFamilyVersion => true,
            CellKind::DeleteColumn | CellKind::DeleteFamily => every_delete,
            CellKind::Put => false,
        };
        let old = cells.iter().filter(|cell| cell.sequence <= snapshot && !cell.kind.is_family_tombstone());
        self.ends.extend(old.chain(tombstones.iter()).filter(ends_era).map(CellMeta::order));
        self.ends.sort_unstable();
        self.eras.clear();
        self.eras.resize(self.ends.len() + 1, Era::EMPTY);
    }

    fn are_many(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The era of a write. A tombstone that ends an era belongs to the next one.
    fn of(&self, order: WriteOrder) -> usize {
        self.ends.partition_point(|end| *end <= order)
    }

    fn floor(&self, era: usize, kind: CellKind) -> i64 {
        debug_assert!(!kind.is_family_tombstone(), "family tombstones act on more columns than this one");
        self.eras[era].floor
    }

    fn protected_floor(&self, era: usize) -> i64 {
        self.eras[era].protected_floor
    }

    fn find_floors(&mut self, cells: &[CellMeta], tombstones: &FamilyTombstones, snapshot: u64, rules: &FamilyRules) {
        let mut family = &tombstones.up_to[..];
        for cell in cells.iter().filter(|cell| cell.sequence <= snapshot) {
            while let [tombstone, rest @ ..] = family
                && tombstone.timestamp >= cell.timestamp
            {
                self.note_delete(tombstone);
                family = rest;
            }
            match cell.kind {
                CellKind::Put => self.note_put(cell, rules),
                CellKind::DeleteColumn => self.note_delete(cell),
                _ => {}
            }
        }
        // Writes of an era are also pushed out by the eras after it.
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
        if put.is_mortal() {
            return; // It is evidence only against others that are.
        }
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
