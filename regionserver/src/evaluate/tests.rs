//! The leader's decisions against a plain model: random mixes of puts, deletes, increments, appends and conditions, with
//! entries landing late, coming back, or lost with the lead, and reads that need the disk.
//!
//! The model is the log: a list of all cells applied so far, read through the visibility rules. Whatever is evaluated
//! early, against the overlay, must be what is evaluated late, against the list, when the entry is applied.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use terrane_types::cell::{Cells, LATEST, pack};
use terrane_types::visibility::{CellMeta, Resolver, RulesHistory, View};
use terrane_types::{
    CellKind, CellRef, ColumnTest, Condition, FamilyName, FamilyRules, FamilySchema, PackedCells, ReadModifyWrite,
    ReadModifyWriteKind, Returns, TableName, Test, ValueType,
};

use super::overlay::{Column, Newest, Version};
use super::row::{Evaluated, Row};
use super::*;
use crate::operation::{Operation, WriteHeader};

const REGION: RegionId = RegionId(7);
const CLIENT: [u8; 16] = [3; 16];
const FAMILIES: [&str; 4] = ["one", "many", "ttl", "min"];

pub(super) fn schema() -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    let rules = [
        FamilyRules { versions: 1, ..FamilyRules::default() },
        FamilyRules { versions: 3, ..FamilyRules::default() },
        FamilyRules { versions: 2, ttl_ms: Some(40), ..FamilyRules::default() },
        FamilyRules { versions: 2, min_versions: 1, ttl_ms: Some(40), ..FamilyRules::default() },
    ];
    for (name, rules) in FAMILIES.into_iter().zip(rules) {
        schema.add_family(FamilySchema { rules, ..FamilySchema::new(name.parse().unwrap()) }).unwrap();
    }
    schema
}

/// Everything applied: row and cells of each mutation, its place being its sequence number.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) rows: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Of how many reads one needs the disk; 0: none.
    pub(super) cold: AtomicU32,
    reads: AtomicU32,
}

impl Applied {
    /// The visible versions of a row's columns, newest first.
    fn versions(&self, row: &[u8], now_ms: i64) -> BTreeMap<Column, Vec<Version>> {
        let rows = self.rows.lock();
        let mut cells = BTreeMap::<&[u8], BTreeMap<&[u8], Vec<(CellMeta, &[u8])>>>::new();
        for (sequence, (_, mutation)) in (1..).zip(&*rows).filter(|(_, (of, _))| of == row) {
            for (position, cell) in (0..).zip(Cells::new(mutation)) {
                let meta = CellMeta::new(cell.timestamp, sequence, position, cell.kind);
                cells.entry(cell.family).or_default().entry(cell.qualifier).or_default().push((meta, cell.value));
            }
        }
        let mut versions = BTreeMap::new();
        for (family, columns) in cells {
            let rules = RulesHistory::new(overlay::rules_of(&schema(), family));
            let mut resolver = Resolver::new(&rules, View { versions: 9, ..View::latest(rows.len() as u64, now_ms) });
            resolver.start_row();
            for (qualifier, mut column) in columns {
                column.sort_by_key(|(meta, _)| std::cmp::Reverse((meta.timestamp, meta.sequence, meta.position)));
                let metas: Vec<CellMeta> = column.iter().map(|(meta, _)| *meta).collect();
                let shown = resolver.column(&metas).iter().map(|at| column[*at as usize]);
                let of = |(meta, value): (CellMeta, &[u8])| Version {
                    timestamp: meta.timestamp,
                    value: Bytes::copy_from_slice(value),
                    ttl_ms: None,
                };
                let shown: Vec<Version> = shown.map(of).collect();
                if !shown.is_empty() {
                    versions.insert(Column::new(family, qualifier), shown);
                }
            }
        }
        versions
    }

    fn newest(&self, row: &[u8], column: &Column, now_ms: i64) -> Newest {
        self.versions(row, now_ms).get(column).and_then(|versions| versions.first().cloned())
    }

    fn packed(&self, row: &[u8], projection: &Projection, now_ms: i64) -> Vec<u8> {
        let mut out = Vec::new();
        if projection.raw {
            let rows = self.rows.lock();
            let stored = rows.iter().filter(|(of, _)| of == row).flat_map(|(_, cells)| Cells::new(cells));
            let asked = stored.filter(|cell| projection.selects(cell.family, cell.qualifier));
            asked.filter(|cell| cell.timestamp >= projection.time_min).for_each(|cell| pack(&mut out, cell));
            return out;
        }
        for (column, versions) in self.versions(row, now_ms) {
            if projection.selects(column.family(), column.qualifier()) {
                let times = projection.time_min..projection.time_max;
                let shown = versions.iter().filter(|version| times.contains(&version.timestamp));
                for version in shown.take(projection.versions as usize) {
                    pack(
                        &mut out,
                        CellRef::put(column.family(), column.qualifier(), version.timestamp, &version.value),
                    );
                }
            }
        }
        out
    }
}

impl Columns for Applied {
    fn read(
        &self,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error> {
        let (read, cold) = (self.reads.fetch_add(1, Ordering::Relaxed), self.cold.load(Ordering::Relaxed));
        if patience == Patience::MemoryOnly && cold > 0 && read.is_multiple_of(cold) {
            return Err(terrane_engine::Error::NeedsDisk);
        }
        out.extend_from_slice(&self.packed(row, projection, now_ms));
        Ok(())
    }

    fn read_tombstones(
        &self,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error> {
        let mut stored = Vec::new();
        self.read(row, projection, now_ms, patience, &mut stored)?;
        Cells::new(&stored).filter(|cell| cell.kind.is_delete()).for_each(|cell| pack(out, cell));
        Ok(())
    }

    fn failure(&self, error: terrane_engine::Error) -> Error {
        Error::Internal { message: error.to_string() }
    }
}

#[derive(Clone, Debug)]
struct RowSpec {
    row: u8,
    cells: Vec<(CellKind, usize, u8, i64, u8)>,
    request: Option<Box<RowRequest>>,
}

#[derive(Clone, Debug)]
enum Step {
    Submit {
        rows: Vec<RowSpec>,
        atomic: bool,
    },
    /// Sends an earlier operation again.
    Retry(usize),
    /// Packs up to so many operations into an entry, at so much later a stamp.
    Pack(usize, u64),
    Land,
    /// What is in flight has no effect, and is packed again.
    ComeBack,
    NewTerm,
}

/// An entry in flight: its stamp, and writes as they were proposed and as they are logged.
struct Entry {
    ordinal: u64,
    stamp: u64,
    operations: Vec<(Arc<Write>, Bytes)>,
}

struct World {
    applied: Arc<Applied>,
    columns: Arc<dyn Columns>,
    schema: TableSchema,
    window: Window,
    evaluator: Evaluator,
    queue: VecDeque<Arc<Write>>,
    in_flight: VecDeque<Entry>,
    submitted: Vec<Arc<Write>>,
    next_number: u64,
    term: u64,
    ordinal: u64,
    landed: u64,
    stamp: u64,
    until_landed: bool,
    /// What each number was answered the first time it was applied.
    answers: BTreeMap<u64, Option<Bytes>>,
}

impl World {
    fn new(cold: u32) -> Self {
        let applied = Arc::new(Applied::default());
        applied.cold.store(cold, Ordering::Relaxed);
        Self {
            columns: applied.clone(),
            applied,
            schema: schema(),
            window: Window::default(),
            evaluator: Evaluator::default(),
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            submitted: Vec::new(),
            next_number: 1,
            term: 1,
            ordinal: 1,
            landed: 0,
            stamp: 1_000,
            until_landed: false,
            answers: BTreeMap::new(),
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Submit { rows, atomic } => self.submit(&rows, atomic),
            Step::Retry(which) if !self.submitted.is_empty() => {
                let again = self.submitted[which % self.submitted.len()].clone();
                self.queue.push_back(again);
            }
            Step::Retry(_) => {}
            Step::Pack(count, later) => self.pack(count, later).await,
            Step::Land => self.land(),
            Step::ComeBack => self.come_back(),
            Step::NewTerm => {
                self.come_back();
                (self.term, self.ordinal, self.landed) = (self.term + 1, 1, 0);
            }
        }
    }

    fn submit(&mut self, rows: &[RowSpec], atomic: bool) {
        let header = WriteHeader { atomic, ..WriteHeader::plain(REGION.0, 1, 0, CLIENT) };
        let (mut checked, mut seen) = (Vec::new(), BTreeSet::new());
        for spec in rows {
            if atomic && !seen.insert(spec.row) {
                continue;
            }
            let mut cells = Vec::new();
            for (kind, family, qualifier, timestamp, value) in &spec.cells {
                let family = FAMILIES[family % FAMILIES.len()].as_bytes();
                let qualifier = if kind.is_family_tombstone() { Vec::new() } else { vec![b'p' + qualifier] };
                let value = if *kind == CellKind::Put { value_of(*value) } else { Vec::new() };
                let cell = CellRef {
                    family,
                    qualifier: &qualifier,
                    timestamp: *timestamp,
                    kind: *kind,
                    tags: &[],
                    value: &value,
                };
                pack(&mut cells, cell);
            }
            checked.push(CheckedRow {
                operation: self.next_number,
                first_try_ms: self.stamp,
                row: vec![b'r', spec.row].into(),
                cells: PackedCells::validate(cells.into()).unwrap(),
                request: spec.request.clone(),
            });
            self.next_number += 1;
        }
        let write = Arc::new(Write::new(header, checked));
        self.submitted.push(write.clone());
        self.queue.push_back(write);
    }

    /// What a proposer does.
    async fn pack(&mut self, count: usize, later: u64) {
        if self.in_flight.len() >= 2 || (self.until_landed && !self.in_flight.is_empty()) {
            return;
        }
        self.until_landed = false;
        self.stamp += later;
        let mut operations = Vec::<(Arc<Write>, Bytes)>::new();
        let mut asked = 0;
        while operations.len() < count
            && let Some(next) = self.queue.front().cloned()
        {
            asked += 1;
            assert!(asked < 100, "prepared over and over");
            let alone = self.in_flight.is_empty() && operations.is_empty();
            let packing =
                Packing { term: self.term, ordinal: self.ordinal, stamp: self.stamp, landed: self.landed, alone };
            let mut entry = Vec::new();
            match self.prepare(&packing, &next, &mut entry) {
                Prepared::Packed => {
                    self.queue.pop_front();
                    operations.push((next, entry.into()));
                }
                Prepared::WhenLanded => {
                    assert!(!alone, "nothing will ever land");
                    self.until_landed = true;
                    break;
                }
                Prepared::NeedsDisk(reading) => {
                    reading.await;
                    if !operations.is_empty() {
                        break;
                    }
                    if self.stamp.is_multiple_of(2) {
                        self.land();
                    }
                    self.stamp += 1;
                }
                Prepared::Later => {
                    // Others pass it, and time does.
                    self.queue.rotate_left(1);
                    if !operations.is_empty() {
                        break;
                    }
                    self.stamp += 1;
                }
                Prepared::PackedAlone | Prepared::Refused(_) => panic!("not the answer to a write"),
            }
        }
        if !operations.is_empty() {
            self.in_flight.push_back(Entry { ordinal: self.ordinal, stamp: self.stamp, operations });
            self.ordinal += 1;
        }
    }

    fn prepare(&mut self, packing: &Packing, write: &Write, entry: &mut Vec<u8>) -> Prepared<Reply> {
        let target = Target { columns: &self.columns, schema: &self.schema };
        match self.evaluator.look_up(packing, Some(&self.window), write) {
            Numbers::InFlight => Prepared::WhenLanded,
            Numbers::Plain => self.evaluator.pack_plain(packing, write, Some(&target), entry),
            Numbers::Each(known) => self.evaluator.pack(packing, write, &target, known, entry),
        }
    }

    fn come_back(&mut self) {
        for entry in std::mem::take(&mut self.in_flight).into_iter().rev() {
            for (submitted, _) in entry.operations.into_iter().rev() {
                self.queue.push_front(submitted);
            }
        }
        self.ordinal = self.landed + 1;
        self.until_landed = false;
        self.evaluator.forget();
    }

    /// Applies the oldest entry, and holds what was decided of each row against the list.
    fn land(&mut self) {
        let Some(entry) = self.in_flight.pop_front() else { return };
        for (submitted, logged) in &entry.operations {
            self.apply(submitted, logged, entry.stamp);
        }
        self.landed = entry.ordinal;
    }

    fn apply(&mut self, submitted: &Write, logged: &Bytes, stamp: u64) {
        let Ok(Operation::Write(write)) = Operation::decode(logged.clone()) else { panic!("not a write") };
        let rows = submitted.rows();
        let atomic = submitted.header.atomic;
        let expected: Vec<_> = if atomic {
            let all: Vec<_> = rows.iter().map(|row| self.evaluate(row, stamp)).collect();
            let failed = all.iter().any(|one| !matches!(one, Evaluated::Applied { .. }));
            all.into_iter().map(|one| (one, failed)).collect()
        } else {
            Vec::new()
        };
        let mut numbers = Vec::new();
        let mut noting = self.window.update(CLIENT, 0, stamp);
        let logged: Vec<_> = write.map(Result::unwrap).collect();
        for row in &logged {
            let fresh = !row.untracked;
            assert!(!fresh || noting.applied(row.operation, row.result.as_ref()), "number {} twice", row.operation);
            numbers.push(fresh);
        }
        drop(noting);
        assert_eq!(logged.len(), rows.len());
        for (at, (row, submitted)) in logged.iter().zip(rows).enumerate() {
            if !numbers[at] {
                let first = self.answers.get(&row.operation).expect("said to be applied before, and never was");
                assert_eq!(&row.result, first, "another answer than the first");
                continue;
            }
            assert!(self.answers.insert(row.operation, row.result.clone()).is_none(), "{} twice", row.operation);
            let (evaluated, failed) = match expected.get(at) {
                Some((evaluated, failed)) => (evaluated, *failed),
                None => (&self.evaluate(submitted, stamp), false),
            };
            if failed {
                assert!(row.cells.is_empty() && row.result.is_some(), "a part of an atomic batch was applied");
                continue;
            }
            let result = row.result.clone().map(|result| RowResult::decode(result).unwrap());
            let apart = matches!(&result, Some(RowResult { kind: ResultKind::Invalid { what }, .. }) if what.contains("send the two apart"));
            if apart {
                assert!(rows[..at].iter().any(|before| before.row == row.row));
                continue;
            }
            let mut cells = evaluated.cells().to_vec();
            terrane_types::cell::stamp_in_place(&mut cells, i64::try_from(stamp).unwrap());
            assert_eq!(Cells::new(&row.cells).collect::<Vec<_>>(), Cells::new(&cells).collect::<Vec<_>>());
            assert_eq!(result, evaluated.result(stamp));
            if row.cells.is_empty() {
                continue;
            }
            self.applied.rows.lock().push((row.row.to_vec(), row.cells.to_vec()));
            self.check_new(submitted, &row.cells, result, stamp);
        }
    }

    /// The row evaluated against the list.
    fn evaluate(&self, submitted: &CheckedRow, stamp: u64) -> Evaluated {
        let Some(request) = submitted.request.as_deref() else {
            return Evaluated::plain(submitted);
        };
        let stamp = i64::try_from(stamp).unwrap();
        let needs = Needs::of(submitted, request);
        let newest = |column: &Column| (column.clone(), self.applied.newest(&submitted.row, column, stamp));
        let columns: BTreeMap<Column, Newest> = needs.columns.iter().map(newest).collect();
        let whole = needs.whole.map(|projection| self.applied.packed(&submitted.row, &projection, stamp));
        let row = Row {
            row: submitted,
            request,
            columns: &columns,
            whole: whole.as_deref(),
            judged: None,
            merged: None,
            turned: None,
            covering: None,
            schema: &self.schema,
            stamp,
        };
        row.evaluate()
    }

    /// What was returned as new is what a reader sees now, except where that depends on cells that had expired.
    fn check_new(&self, submitted: &CheckedRow, cells: &[u8], result: Option<RowResult>, stamp: u64) {
        let asks_new = submitted.request.as_deref().is_some_and(|request| request.returns == Returns::New);
        let Some(RowResult { kind: ResultKind::Applied { returned }, .. }) = result else { return };
        if !asks_new {
            return;
        }
        let now_ms = i64::try_from(stamp).unwrap();
        let expires = |family: &[u8]| overlay::rules_of(&self.schema, family).ttl_ms.is_some();
        let returned: Vec<_> = Cells::new(&returned).filter(|cell| !expires(cell.family)).collect();
        let mut seen = Vec::new();
        let visible = self.applied.versions(&submitted.row, now_ms);
        for (column, versions) in &visible {
            let named = Cells::new(cells).any(|cell| {
                cell.family == column.family()
                    && (cell.kind.is_family_tombstone() || cell.qualifier == column.qualifier())
            });
            if named && !expires(column.family()) {
                let version = &versions[0];
                seen.push(CellRef::put(column.family(), column.qualifier(), version.timestamp, &version.value));
            }
        }
        assert_eq!(returned, seen);
    }
}

/// Some are counters, some are not.
fn value_of(value: u8) -> Vec<u8> {
    if value.is_multiple_of(4) { vec![value; 3] } else { i64::from(value).to_be_bytes().to_vec() }
}

fn cells() -> impl Strategy<Value = Vec<(CellKind, usize, u8, i64, u8)>> {
    let kind = prop_oneof![
        6 => Just(CellKind::Put),
        1 => Just(CellKind::Delete),
        1 => Just(CellKind::DeleteColumn),
        1 => Just(CellKind::DeleteFamily),
        1 => Just(CellKind::DeleteFamilyVersion),
    ];
    let timestamp = prop_oneof![1 => Just(LATEST), 1 => 990..1_100i64];
    let cell =
        (kind, 0..4usize, 0..2u8, timestamp, any::<u8>()).prop_map(|(kind, family, qualifier, timestamp, value)| {
            let exact = matches!(kind, CellKind::Delete | CellKind::DeleteFamilyVersion);
            (kind, family, qualifier, if exact && timestamp == LATEST { 1_000 } else { timestamp }, value)
        });
    proptest::collection::vec(cell, 1..3)
}

fn test() -> impl Strategy<Value = Condition> {
    let test = prop_oneof![
        Just(Test::Absent),
        Just(Test::Exists),
        (1..9u8).prop_map(|value| Test::Greater(i64::from(value).to_be_bytes().to_vec().into())),
        (990..1_100i64).prop_map(Test::Version),
    ];
    (test, 0..4usize, 0..2u8).prop_map(|(test, family, qualifier)| {
        let family = FamilyName::new(FAMILIES[family]).unwrap();
        Condition::Column(ColumnTest::new(family, vec![b'p' + qualifier], test).reading_as(ValueType::I64))
    })
}

fn request() -> impl Strategy<Value = RowRequest> {
    let condition = proptest::option::of(prop_oneof![
        test(),
        proptest::collection::vec(test(), 2).prop_map(Condition::All),
        proptest::collection::vec(test(), 2).prop_map(Condition::Any),
    ]);
    let what = prop_oneof![
        3 => (-3..5i64).prop_map(ReadModifyWriteKind::Increment),
        1 => Just(ReadModifyWriteKind::Increment(i64::MAX)),
        1 => Just(ReadModifyWriteKind::Append("x".into())),
    ];
    let rmw = proptest::option::of((what, 0..4usize, 2..4u8).prop_map(|(what, family, qualifier)| ReadModifyWrite {
        family: FamilyName::new(FAMILIES[family]).unwrap(),
        qualifier: vec![b'p' + qualifier].into(),
        what,
    }));
    let returns = prop_oneof![Just(Returns::Nothing), Just(Returns::Old), Just(Returns::New)];
    (condition, rmw, returns, any::<bool>()).prop_map(|(condition, rmw, returns, return_found)| RowRequest {
        condition,
        read_modify_writes: rmw.into_iter().collect(),
        returns,
        return_found,
        ttl_ms: None,
        extras: Default::default(),
    })
}

fn row() -> impl Strategy<Value = RowSpec> {
    let request = prop_oneof![1 => Just(None), 3 => request().prop_map(RowRequest::boxed)];
    (0..3u8, cells(), request, any::<bool>()).prop_map(|(row, cells, request, bare)| {
        let read_modify_writes = request.as_ref().is_some_and(|request| !request.read_modify_writes.is_empty());
        RowSpec { row, cells: if bare && read_modify_writes { Vec::new() } else { cells }, request }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (proptest::collection::vec(row(), 1..3), proptest::bool::weighted(0.2))
            .prop_map(|(rows, atomic)| Step::Submit { rows, atomic }),
        2 => any::<usize>().prop_map(Step::Retry),
        6 => (1..5usize, 0..8u64).prop_map(|(count, later)| Step::Pack(count, later)),
        4 => Just(Step::Land),
        1 => Just(Step::ComeBack),
        1 => Just(Step::NewTerm),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_decided_early_is_what_is_decided_late(steps in steps(), cold in 0..4u32) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(cold);
            for step in steps {
                world.step(step).await;
            }
            // What is left is applied in the end.
            while !world.queue.is_empty() || !world.in_flight.is_empty() {
                world.pack(3, 1).await;
                world.land();
            }
        });
    }
}
