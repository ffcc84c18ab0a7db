//! The rules against a plain replay, and collecting against not collecting.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::schema::KeepDeleted;

/// A cell with its column (0 is the empty qualifier, where family tombstones are), and whether its value is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    column: u8,
    meta: CellMeta,
    masked: bool,
}

/// What a reader sees: column and cell, columns ascending, newest first.
type Seen = Vec<(u8, i64, u64, u32)>;

/// The replay as the module's words tell it, with nothing clever in it.
mod oracle {
    use super::*;

    #[derive(Clone)]
    struct Live {
        meta: CellMeta,
        protected: bool,
    }

    /// Whether one live cell hides another for as long as that lives.
    fn covers(upper: &CellMeta, lower: &CellMeta) -> bool {
        (upper.timestamp, upper.order()) > (lower.timestamp, lower.order()) && upper.expires_ms >= lower.expires_ms
    }

    /// The timestamps above a cell with a cell that covers it.
    fn covering<'a>(live: impl Iterator<Item = &'a Live>, lower: &CellMeta) -> usize {
        let above = live.filter(|upper| covers(&upper.meta, lower) && upper.meta.timestamp > lower.timestamp);
        above.map(|upper| upper.meta.timestamp).collect::<std::collections::BTreeSet<_>>().len()
    }

    pub(super) fn seen(cells: &[Stored], history: &RulesHistory, view: View) -> Seen {
        (0..3).flat_map(|column| seen_in_column(cells, history, view, column)).collect()
    }

    fn seen_in_column(cells: &[Stored], history: &RulesHistory, view: View, column: u8) -> Seen {
        let mut events: Vec<CellMeta> = cells
            .iter()
            .filter(|cell| cell.column == column || cell.meta.kind.is_family_tombstone())
            .map(|cell| cell.meta)
            .filter(|meta| meta.sequence <= view.sequence && happened(meta, history, view))
            .collect();
        events.sort_by_key(CellMeta::order);
        let changes: Vec<_> = history.changes().iter().filter(|change| change.sequence <= view.sequence).collect();

        let mut live: Vec<Live> = Vec::new();
        let mut in_force = 0;
        let moments = (0..=view.sequence).filter(|moment| {
            changes.iter().any(|change| change.sequence == *moment)
                || events.iter().any(|event| event.sequence == *moment)
        });
        for moment in moments {
            if moment > 0 && changes.iter().any(|change| change.sequence == moment) {
                change_rules(&mut live, &changes[in_force].rules, changes[in_force + 1]);
                in_force += 1;
            }
            for event in events.iter().filter(|event| event.sequence == moment) {
                apply(&mut live, event, &changes[in_force].rules);
            }
        }
        let rules = changes[in_force].rules;
        live.retain(|cell| cell.meta.expires_ms >= view.now_ms);
        live.sort_by_key(|cell| std::cmp::Reverse((cell.meta.timestamp, cell.meta.order())));
        live.dedup_by_key(|cell| cell.meta.timestamp);
        live.truncate(rules.versions as usize);
        let protected = live.iter_mut().filter(|cell| cell.protected);
        protected.skip(rules.min_versions as usize).for_each(|cell| cell.protected = false);
        live.iter()
            .filter(|cell| cell.protected || !expired(&rules, cell.meta.timestamp, view.now_ms))
            .filter(|cell| cell.meta.timestamp >= view.time_min && cell.meta.timestamp < view.time_max)
            .take(view.versions as usize)
            .map(|cell| (column, cell.meta.timestamp, cell.meta.sequence, cell.meta.position))
            .collect()
    }

    fn happened(meta: &CellMeta, history: &RulesHistory, view: View) -> bool {
        let so_far: Vec<_> = history.changes().iter().filter(|change| change.sequence <= view.sequence).collect();
        let (last, earlier) = so_far.split_last().expect("a history begins with rules");
        let held = earlier.iter().rev().take_while(|change| change.rules.keep_deleted_cells == KeepDeleted::Yes);
        let since = held.last().map_or(last.sequence, |change| change.sequence);
        let is_kept = match last.rules.keep_deleted_cells {
            KeepDeleted::No => false,
            KeepDeleted::Yes => true,
            KeepDeleted::Ttl => !expired(&last.rules, meta.timestamp, view.now_ms),
        };
        !(meta.kind.is_delete() && is_kept && meta.sequence >= since && view.time_max <= meta.timestamp)
    }

    pub(super) fn expired(rules: &FamilyRules, timestamp: i64, now_ms: i64) -> bool {
        matches!(rules.ttl_ms, Some(ttl) if now_ms - timestamp > ttl as i64)
    }

    fn apply(live: &mut Vec<Live>, event: &CellMeta, rules: &FamilyRules) {
        match event.kind {
            CellKind::Put => {
                live.retain(|cell| cell.meta.timestamp != event.timestamp || !covers(event, &cell.meta));
                live.push(Live { meta: *event, protected: true });
                protect(live, rules);
                push_out(live, rules);
            }
            CellKind::Delete | CellKind::DeleteFamilyVersion => {
                live.retain(|cell| cell.meta.timestamp != event.timestamp);
            }
            CellKind::DeleteColumn | CellKind::DeleteFamily => {
                live.retain(|cell| cell.meta.timestamp > event.timestamp);
            }
        }
    }

    fn change_rules(live: &mut Vec<Live>, old: &FamilyRules, change: &RulesChange) {
        live.retain(|cell| cell.protected || !expired(old, cell.meta.timestamp, change.stamp_ms));
        push_out(live, &change.rules);
        live.iter_mut().for_each(|cell| cell.protected = true);
        protect(live, &change.rules);
    }

    fn push_out(live: &mut Vec<Live>, rules: &FamilyRules) {
        let all = live.clone();
        live.retain(|cell| covering(all.iter(), &cell.meta) < rules.versions as usize);
    }

    fn protect(live: &mut [Live], rules: &FamilyRules) {
        let all: Vec<Live> = live.iter().filter(|cell| cell.protected).cloned().collect();
        for cell in live {
            cell.protected &= covering(all.iter(), &cell.meta) < rules.min_versions as usize;
        }
    }
}

/// The cells of each column in storage order.
fn columns(cells: &[Stored]) -> BTreeMap<u8, Vec<Stored>> {
    let mut columns: BTreeMap<u8, Vec<Stored>> = BTreeMap::new();
    for cell in cells {
        columns.entry(cell.column).or_default().push(*cell);
    }
    for column in columns.values_mut() {
        column.sort_by_key(|cell| std::cmp::Reverse((cell.meta.timestamp, cell.meta.order())));
    }
    columns
}

fn metas(column: &[Stored]) -> Vec<CellMeta> {
    column.iter().map(|cell| cell.meta).collect()
}

fn resolve(cells: &[Stored], history: &RulesHistory, view: View) -> Seen {
    let mut resolver = Resolver::new(history, view);
    let mut seen = Seen::new();
    for row in 0..2 {
        // The second row shows that nothing of the first is left over.
        seen.clear();
        resolver.start_row();
        for (at, (column, cells)) in columns(cells).into_iter().enumerate() {
            if at == 0 && resolver.first_shows(&cells[0].meta) {
                assert!(
                    !resolver.column(&metas(&cells)).is_empty(),
                    "{view:?} does not show the column of {:?}",
                    cells[0]
                );
                resolver.start_row();
            }
            let mut before = resolver.clone();
            let visible = resolver.column(&metas(&cells));
            for &index in visible {
                let cell = cells[index as usize];
                assert!(!cell.masked, "row {row}: {cell:?} is seen by {view:?} without its value");
                seen.push((column, cell.meta.timestamp, cell.meta.sequence, cell.meta.position));
            }
            check_parts_of_column(&before, view, &metas(&cells), visible);
            if at > 0 {
                check_head_of_column(&mut before, &metas(&cells), visible);
            }
        }
    }
    seen
}

/// What is seen of a column that is passed timestamp by timestamp, or cell by cell, is what is seen of the whole.
fn check_parts_of_column(resolver: &Resolver, view: View, column: &[CellMeta], visible: &[u32]) {
    let is_between = |end: usize| end == column.len() || column[end - 1].timestamp != column[end].timestamp;
    for cuts_timestamps in [false, true] {
        if cuts_timestamps && view.raw {
            continue;
        }
        let (mut seen, mut from, mut is_settled, mut resolver) = (Vec::new(), 0, false, resolver.clone());
        resolver.begin_column();
        for end in (1..=column.len()).filter(|&end| cuts_timestamps || is_between(end)) {
            let part = resolver.column_part(&column[from..end]);
            assert!(!is_settled || part.is_empty(), "{part:?} of {column:?} is below what settled it");
            seen.extend(part.iter().map(|index| from as u32 + index));
            is_settled |= resolver.is_settled();
            from = end;
        }
        assert_eq!(seen, visible, "{column:?} in parts");
    }
}

/// What is seen of a column down to some timestamp is what is seen where the column ends there.
fn check_head_of_column(resolver: &mut Resolver, column: &[CellMeta], visible: &[u32]) {
    for end in (1..column.len()).filter(|&end| column[end - 1].timestamp != column[end].timestamp) {
        let head: Vec<u32> = visible.iter().copied().filter(|&index| (index as usize) < end).collect();
        assert_eq!(resolver.column(&column[..end]), head, "the first {end} of {column:?}");
        if resolver.is_settled() {
            assert_eq!(head, visible, "the first {end} of {column:?} settle it");
        }
    }
}

/// What is left of a row; `in_parts` is a column that is too large to be judged whole.
fn collect(cells: &[Stored], collector: &mut Collector, in_parts: Option<u8>) -> Vec<Stored> {
    let mut kept = Vec::new();
    match in_parts {
        Some(_) => collector.start_row_in_parts(),
        None => collector.start_row(),
    }
    for (column, cells) in columns(cells) {
        let fates = if in_parts == Some(column) {
            metas(&cells).chunks(2).flat_map(|part| collector.column_in_parts(part).to_vec()).collect()
        } else {
            collector.column(&metas(&cells)).to_vec()
        };
        for (cell, fate) in cells.iter().zip(fates) {
            match fate {
                Fate::Keep => kept.push(*cell),
                Fate::Mask => {
                    assert_eq!(cell.meta.kind, CellKind::Put, "only a put has a value to lose");
                    kept.push(Stored { masked: true, meta: CellMeta { is_bare: true, ..cell.meta }, ..*cell });
                }
                Fate::Drop => {}
            }
        }
    }
    kept
}

#[derive(Clone, Debug)]
enum Step {
    Mutate(Vec<(u8, i64, CellKind, Option<i64>)>),
    Alter(FamilyRules),
    Wait(i64),
    Flush,
    Compact { first: usize, count: usize },
    Release(u64),
}

/// A region in small: what was ever written, and what flushes and compactions have left of it.
struct World {
    all: Vec<Stored>,
    history: RulesHistory,
    sequence: u64,
    stamp_ms: i64,
    snapshot: u64,
    /// Files from old to new; the last is the memtable.
    files: Vec<Vec<Stored>>,
}

impl World {
    fn new(rules: FamilyRules) -> Self {
        Self {
            all: Vec::new(),
            history: RulesHistory::new(rules),
            sequence: 0,
            stamp_ms: 0,
            snapshot: 0,
            files: vec![Vec::new()],
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Mutate(cells) => self.mutate(cells),
            Step::Alter(rules) => {
                self.sequence += 1;
                self.history.push(RulesChange { sequence: self.sequence, stamp_ms: self.stamp_ms, rules: *rules });
            }
            Step::Wait(ms) => self.stamp_ms += ms,
            Step::Flush => {
                self.compact(self.files.len() - 1, 1);
                self.files.push(Vec::new());
            }
            Step::Compact { first, count } => {
                let files = self.files.len() - 1;
                if files > 0 {
                    let first = first % files;
                    self.compact(first, (*count).clamp(1, files - first));
                }
            }
            Step::Release(by) => self.snapshot = (self.snapshot + by).min(self.sequence),
        }
    }

    fn mutate(&mut self, cells: &[(u8, i64, CellKind, Option<i64>)]) {
        self.sequence += 1;
        for (position, &(column, timestamp, kind, ttl)) in (0..).zip(cells) {
            let column = if kind.is_family_tombstone() { 0 } else { column };
            let ttl = ttl.filter(|_| kind == CellKind::Put);
            let expires_ms = ttl.map_or(i64::MAX, |ttl| timestamp + ttl);
            let meta = CellMeta { expires_ms, ..CellMeta::new(timestamp, self.sequence, position, kind) };
            let cell = Stored { column, meta, masked: false };
            self.all.push(cell);
            self.files.last_mut().expect("the memtable").push(cell);
        }
    }

    fn compact(&mut self, first: usize, count: usize) {
        let cells: Vec<Stored> = self.files.drain(first..first + count).flatten().collect();
        let mut collector = Collector::new(&self.history, self.snapshot, self.stamp_ms, first == 0);
        // Now and then one of the columns comes in parts; 3 is no column.
        let in_parts = [None, Some(0), None, Some(1), Some(3)][usize::try_from(self.sequence % 5).expect("below 5")];
        self.files.insert(first, collect(&cells, &mut collector, in_parts));
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let stored: Vec<Stored> = self.files.iter().flatten().copied().collect();
        for sequence in self.snapshot..=self.sequence {
            for view in views(sequence, self.stamp_ms) {
                self.check_raw(&stored, View { raw: true, ..view })?;
                let expected = oracle::seen(&self.all, &self.history, view);
                prop_assert_eq!(&resolve(&self.all, &self.history, view), &expected, "before collecting, {:?}", view);
                prop_assert_eq!(
                    &resolve(&stored, &self.history, view),
                    &expected,
                    "collected, {:?}\nall {:#?}\nstored {:#?}\n{:?}",
                    view,
                    self.all,
                    stored,
                    self.history
                );
            }
        }
        Ok(())
    }
}

impl World {
    /// A raw reader sees all that was written until it is collected, and always what other readers see; no masked puts, and none
    /// that have outlived a time to live of their own.
    fn check_raw(&self, stored: &[Stored], view: View) -> Result<(), TestCaseError> {
        let all = resolve(&self.all, &self.history, view);
        let left = resolve(stored, &self.history, view);
        let expired = |meta: &CellMeta| meta.expires_ms < view.now_ms;
        let in_times = |cell: &&Stored| (view.time_min..view.time_max).contains(&cell.meta.timestamp);
        let written = self.all.iter().filter(|cell| cell.meta.sequence <= view.sequence);
        let written = written.filter(in_times).filter(|cell| !expired(&cell.meta));
        for cell in written {
            let replaces = |seen: &&(u8, i64, u64, u32)| {
                let found =
                    self.all.iter().find(|other| other.column == seen.0 && other.meta.order() == (seen.2, seen.3));
                let found = found.expect("what is seen was written").meta;
                seen.0 == cell.column
                    && (found.timestamp, found.kind) == (cell.meta.timestamp, cell.meta.kind)
                    && found.order() >= cell.meta.order()
            };
            let is_seen = all.iter().any(|seen| replaces(&seen));
            let column_puts = all.iter().filter(|seen| seen.0 == cell.column).count();
            prop_assert!(is_seen || column_puts >= view.versions as usize, "{:?} is missing in {:?}", cell, view);
        }
        let plain = oracle::seen(&self.all, &self.history, View { raw: false, versions: 9, ..view });
        if view.versions == 9 {
            for seen in plain {
                // Of two puts of one timestamp, only one of which outlives its time, it shows the later one.
                let is_listed = left.iter().any(|listed| (listed.0, listed.1) == (seen.0, seen.1));
                prop_assert!(is_listed, "{:?} is missing in {:?}, {:?}", seen, view, left);
            }
        }
        Ok(())
    }
}

fn views(sequence: u64, stamp_ms: i64) -> Vec<View> {
    let mut views = Vec::new();
    for now_ms in [stamp_ms, stamp_ms + 2, stamp_ms + 50] {
        for (versions, time_min, time_max) in [(1, 0, i64::MAX), (9, 0, i64::MAX), (9, 2, 5), (2, 0, 3)] {
            views.push(View { sequence, now_ms, versions, time_min, time_max, raw: false });
        }
    }
    views
}

fn kind() -> impl Strategy<Value = CellKind> {
    prop_oneof![
        8 => Just(CellKind::Put),
        2 => Just(CellKind::Delete),
        1 => Just(CellKind::DeleteColumn),
        1 => Just(CellKind::DeleteFamily),
        1 => Just(CellKind::DeleteFamilyVersion),
    ]
}

fn ttl() -> impl Strategy<Value = Option<i64>> {
    proptest::option::weighted(0.25, 0i64..6)
}

fn keep_deleted() -> impl Strategy<Value = KeepDeleted> {
    prop_oneof![8 => Just(KeepDeleted::No), 1 => Just(KeepDeleted::Yes), 2 => Just(KeepDeleted::Ttl)]
}

fn rules() -> impl Strategy<Value = FamilyRules> {
    (1u32..4, 0u32..3, proptest::option::of(1u64..8), keep_deleted()).prop_map(
        |(versions, min_versions, ttl_ms, keep_deleted_cells)| FamilyRules {
            versions,
            min_versions: min_versions.min(versions),
            ttl_ms,
            keep_deleted_cells,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => proptest::collection::vec((0u8..3, 0i64..7, kind(), ttl()), 1..4).prop_map(Step::Mutate),
        1 => rules().prop_map(Step::Alter),
        2 => (1i64..4).prop_map(Step::Wait),
        3 => Just(Step::Flush),
        3 => (0usize..4, 1usize..4).prop_map(|(first, count)| Step::Compact { first, count }),
        3 => (1u64..6).prop_map(Step::Release),
    ]
}

proptest! {
    #[test]
    fn collecting_changes_nothing_for_any_reader(
        rules in rules(),
        steps in proptest::collection::vec(step(), 1..24),
    ) {
        let mut world = World::new(rules);
        for step in &steps {
            world.step(step);
            world.check()?;
        }
    }
}

fn put(timestamp: i64, sequence: u64) -> CellMeta {
    CellMeta::new(timestamp, sequence, 0, CellKind::Put)
}

fn delete(kind: CellKind, timestamp: i64, sequence: u64) -> CellMeta {
    CellMeta::new(timestamp, sequence, 0, kind)
}

fn versions(versions: u32) -> RulesHistory {
    RulesHistory::new(FamilyRules { versions, ..FamilyRules::default() })
}

fn seen(history: &RulesHistory, view: View, cells: &[CellMeta]) -> Vec<u32> {
    let mut resolver = Resolver::new(history, view);
    resolver.start_row();
    resolver.column(cells).to_vec()
}

fn fates(collector: &mut Collector, cells: &[CellMeta]) -> Vec<Fate> {
    collector.start_row();
    collector.column(cells).to_vec()
}

#[test]
fn a_delete_hides_only_what_was_written_before_it() {
    let cells = [put(5, 3), delete(CellKind::DeleteColumn, 5, 2), put(5, 1)];
    assert_eq!(seen(&versions(3), View { versions: 3, ..View::latest(9, 9) }, &cells), [0]);
    assert_eq!(seen(&versions(3), View::latest(2, 9), &cells), [0; 0]);
    assert_eq!(seen(&versions(3), View::latest(1, 9), &cells), [2]);
}

#[test]
fn what_was_pushed_out_stays_out_when_the_pusher_is_deleted() {
    let cells = [delete(CellKind::Delete, 9, 3), put(9, 2), put(5, 1)];
    assert_eq!(seen(&versions(1), View::latest(9, 9), &cells), [0; 0]);
    // With two versions the older one was never pushed out.
    assert_eq!(seen(&versions(2), View::latest(9, 9), &cells), [2]);
}

#[test]
fn within_one_mutation_the_later_position_wins() {
    let at = |position: u32, meta: CellMeta| CellMeta { position, ..meta };
    let delete_then_put = [at(1, put(5, 1)), at(0, delete(CellKind::DeleteColumn, 5, 1))];
    assert_eq!(seen(&versions(1), View::latest(1, 9), &delete_then_put), [0]);
    let put_then_delete = [at(1, delete(CellKind::DeleteColumn, 5, 1)), at(0, put(5, 1))];
    assert_eq!(seen(&versions(1), View::latest(1, 9), &put_then_delete), [0; 0]);
    let put_twice = [at(1, put(5, 1)), at(0, put(5, 1))];
    assert_eq!(seen(&versions(3), View { versions: 3, ..View::latest(1, 9) }, &put_twice), [0]);
}

#[test]
fn a_lower_number_of_versions_hides_for_good() {
    let mut history = versions(3);
    let lower = FamilyRules { versions: 1, ..FamilyRules::default() };
    history.push(RulesChange { sequence: 3, stamp_ms: 0, rules: lower });
    history.push(RulesChange { sequence: 4, stamp_ms: 0, rules: FamilyRules { versions: 3, ..lower } });
    let cells = [put(9, 2), put(5, 1)];
    let view = |sequence| View { versions: 9, ..View::latest(sequence, 9) };
    assert_eq!(seen(&history, view(2), &cells), [0, 1]);
    assert_eq!(seen(&history, view(3), &cells), [0]);
    assert_eq!(seen(&history, view(4), &cells), [0]);
}

#[test]
fn min_versions_outlive_the_ttl() {
    let rules = FamilyRules { versions: 3, min_versions: 1, ttl_ms: Some(10), ..FamilyRules::default() };
    let cells = [put(9, 2), put(5, 1)];
    let view = |now_ms| View { versions: 9, ..View::latest(9, now_ms) };
    let history = RulesHistory::new(rules);
    assert_eq!(seen(&history, view(15), &cells), [0, 1]);
    assert_eq!(seen(&history, view(16), &cells), [0]);
    assert_eq!(seen(&history, view(1_000), &cells), [0]);
}

#[test]
fn keep_deleted_cells_shows_them_to_readers_of_the_past() {
    let rules = FamilyRules { versions: 3, keep_deleted_cells: KeepDeleted::Yes, ..FamilyRules::default() };
    let history = RulesHistory::new(rules);
    let cells = [delete(CellKind::DeleteColumn, 8, 2), put(5, 1)];
    assert_eq!(seen(&history, View { time_max: 8, ..View::latest(9, 9) }, &cells), [1]);
    assert_eq!(seen(&history, View { time_max: 9, ..View::latest(9, 9) }, &cells), [0; 0]);
    assert_eq!(seen(&history, View::latest(9, 9), &cells), [0; 0]);
}

#[test]
fn a_hot_cell_is_collected_to_one() {
    let cells: Vec<CellMeta> = (1..=100).rev().map(|sequence| put(sequence as i64, sequence)).collect();
    let mut collector = Collector::new(&versions(1), 100, 0, false);
    let fates = fates(&mut collector, &cells);
    assert_eq!(fates[0], Fate::Keep);
    assert!(fates[1..].iter().all(|fate| *fate == Fate::Drop), "{fates:?}");
}

#[test]
fn what_a_snapshot_needs_is_kept() {
    let cells = [put(9, 3), put(8, 2), put(7, 1)];
    let mut collector = Collector::new(&versions(1), 2, 0, false);
    assert_eq!(fates(&mut collector, &cells), [Fate::Keep, Fate::Keep, Fate::Drop]);
}

#[test]
fn a_hidden_put_stays_masked_until_everything_older_is_in_the_input() {
    let cells = [delete(CellKind::Delete, 9, 2), put(9, 1)];
    let mut part = Collector::new(&versions(1), 2, 0, false);
    assert_eq!(fates(&mut part, &cells), [Fate::Keep, Fate::Mask]);
    let mut whole = Collector::new(&versions(1), 2, 0, true);
    assert_eq!(fates(&mut whole, &cells), [Fate::Drop, Fate::Drop]);
}

#[test]
fn a_delete_of_a_column_stays_while_something_older_may_be_elsewhere() {
    let cells = [delete(CellKind::DeleteColumn, 9, 3), put(8, 2), delete(CellKind::DeleteColumn, 7, 1)];
    let mut part = Collector::new(&versions(1), 3, 0, false);
    assert_eq!(fates(&mut part, &cells), [Fate::Keep, Fate::Drop, Fate::Drop]);
    let mut whole = Collector::new(&versions(1), 3, 0, true);
    assert_eq!(fates(&mut whole, &cells), [Fate::Drop, Fate::Drop, Fate::Drop]);
}

#[test]
fn expired_cells_go_by_log_time() {
    let history = RulesHistory::new(FamilyRules { ttl_ms: Some(10), ..FamilyRules::default() });
    assert_eq!(fates(&mut Collector::new(&history, 1, 15, false), &[put(5, 1)]), [Fate::Keep]);
    assert_eq!(fates(&mut Collector::new(&history, 1, 16, false), &[put(5, 1)]), [Fate::Drop]);
}

#[test]
fn old_versions_under_min_versions_are_collected() {
    let rules = FamilyRules { versions: 100, min_versions: 1, ttl_ms: Some(10), ..FamilyRules::default() };
    let history = RulesHistory::new(rules);
    let cells = [put(7, 3), put(6, 2), put(5, 1)];
    for covers_older in [false, true] {
        let mut collector = Collector::new(&history, 3, 1_000, covers_older);
        assert_eq!(fates(&mut collector, &cells), [Fate::Keep, Fate::Drop, Fate::Drop]);
    }
}

#[test]
fn a_history_leaves_out_what_changes_nothing() {
    let mut history = versions(1);
    history.push(RulesChange { sequence: 5, stamp_ms: 1, rules: history.current() });
    assert_eq!(history.changes().len(), 1);
    history.push(RulesChange { sequence: 6, stamp_ms: 2, rules: FamilyRules { versions: 2, ..history.current() } });
    history.push(RulesChange { sequence: 6, stamp_ms: 2, rules: FamilyRules { versions: 3, ..history.current() } });
    assert_eq!(history.changes().len(), 2);
    assert_eq!((history.at(5).versions, history.at(6).versions), (1, 3));
    assert_eq!(RulesHistory::from_changes(history.changes()), Some(history.clone()));
    assert_eq!(RulesHistory::from_changes(&history.changes()[1..]), None);
    assert_eq!(RulesHistory::from_changes(&[]), None);
}
