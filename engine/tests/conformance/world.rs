//! An engine and its model, driven by one log: applied once, and again from each region's point after the directory was
//! opened anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use terrane_engine::{
    BackendKind, CellPosition, DurablePoint, Engine, GroupPoint, Options, Patience, Region, RegionSpec, RowScanner,
    ScanSpec, Snapshot, SplitDaughter, Step,
};
use terrane_types::{
    CellRef, FamilyName, FamilyRules, FamilySchema, GroupId, KeyRange, PackedCells, PackedRows, Projection, RegionId,
    TableId,
};

use crate::model::{Change, ModelCell, RegionModel, Seen};

pub const GROUP: GroupId = GroupId(7);
pub const TABLE: TableId = TableId(5);

pub fn backends() -> Vec<BackendKind> {
    BackendKind::NAMES.iter().map(|name| name.parse().unwrap()).collect()
}

pub fn name(family: &str) -> FamilyName {
    FamilyName::new(family).unwrap()
}

pub fn range(start: &[u8], stop: &[u8]) -> KeyRange {
    KeyRange::new(start.to_vec(), stop.to_vec()).unwrap()
}

pub async fn open(dir: &Path, backend: BackendKind) -> Result<Arc<Engine>, terrane_engine::Error> {
    Engine::open(Options::new(dir.to_owned(), backend, 8 << 20)).await
}

pub fn spec(region: u64, range: KeyRange, families: &[(&str, FamilyRules)]) -> RegionSpec {
    let families =
        families.iter().map(|(family, rules)| FamilySchema { rules: *rules, ..FamilySchema::new(name(family)) });
    RegionSpec { region: RegionId(region), table: TABLE, group: GROUP, range, families: families.collect() }
}

/// What the log says.
#[derive(Clone, Debug)]
pub enum Entry {
    Create { region: u64, range: KeyRange, families: Vec<(String, FamilyRules)> },
    Write { region: u64, cells: Vec<ModelCell> },
    Alter { family: String, rules: Option<FamilyRules> },
    Split { parent: u64, at: Vec<u8>, left: u64, right: u64 },
}

pub struct World {
    pub dir: tempfile::TempDir,
    pub backend: BackendKind,
    pub engine: Option<Arc<Engine>>,
    /// With the stamp of each; the entry at position 0 has index 1.
    pub log: Vec<(Entry, u64)>,
    pub stamp: u64,
    pub live: BTreeMap<u64, Arc<Region>>,
    pub models: BTreeMap<u64, RegionModel>,
    /// Points that flushes have recorded.
    pub recorded: BTreeMap<u64, DurablePoint>,
    /// Splits that are recorded, and regions dropped: what the log says about these is done with.
    pub gone: BTreeSet<u64>,
    pub held: Vec<(u64, Arc<Region>, Snapshot)>,
}

impl World {
    pub async fn new(backend: BackendKind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Some(open(dir.path(), backend).await.unwrap());
        Self {
            dir,
            backend,
            engine,
            log: Vec::new(),
            stamp: 100,
            live: BTreeMap::new(),
            models: BTreeMap::new(),
            recorded: BTreeMap::new(),
            gone: BTreeSet::new(),
            held: Vec::new(),
        }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        self.engine.as_ref().unwrap()
    }

    pub fn index(&self) -> u64 {
        self.log.len() as u64
    }

    fn next_region(&self) -> u64 {
        self.models.keys().next_back().map_or(1, |last| last + 1)
    }

    /// The engine's half of an entry.
    fn apply(&mut self, index: u64) {
        let (entry, stamp) = self.log[usize::try_from(index).unwrap() - 1].clone();
        match entry {
            Entry::Create { region, range, families } => {
                let families: Vec<_> = families.iter().map(|(name, rules)| (name.as_str(), *rules)).collect();
                let created = self.engine().create(spec(region, range, &families), index);
                self.live.insert(region, created);
            }
            Entry::Write { region, cells } => {
                let region = &self.live[&region];
                let sequence = region.sequence() + 1;
                assert_eq!(sequence, cells[0].sequence, "a replayed write has its old sequence number");
                region.apply(index, sequence, &cells[0].row, &packed(&cells));
            }
            Entry::Alter { family, rules } => {
                for region in self.live.values().filter(|region| region.point().index < index) {
                    match rules {
                        Some(rules) => {
                            let family = FamilySchema { rules, ..FamilySchema::new(name(&family)) };
                            region.set_family(region.sequence() + 1, stamp, &family);
                        }
                        None => region.remove_family(&name(&family)),
                    }
                    region.touch(index);
                }
            }
            Entry::Split { parent, at, left, right } => {
                let parent = self.live.remove(&parent).unwrap();
                let side = |region: u64| SplitDaughter { region: RegionId(region), point: self.point(&parent, index) };
                let halves = self.engine().split(&parent, &at, side(left), side(right)).unwrap();
                self.live.insert(left, halves.0);
                self.live.insert(right, halves.1);
            }
        }
    }

    pub fn point(&self, region: &Region, index: u64) -> DurablePoint {
        DurablePoint {
            group: GROUP,
            index,
            sequence: region.sequence(),
            stamp: self.stamp,
            descriptor: format!("region {}", region.id()).into(),
            window: format!("window at {index}").into(),
        }
    }

    fn append(&mut self, entry: Entry) {
        self.stamp += 1;
        self.log.push((entry, self.stamp));
        self.apply(self.index());
    }

    pub fn create(&mut self, range: KeyRange, families: &[(&str, FamilyRules)]) -> u64 {
        let region = self.next_region();
        let families: Vec<_> = families.iter().map(|(name, rules)| ((*name).to_owned(), *rules)).collect();
        let mut model = RegionModel::default();
        for (family, rules) in &families {
            model.set_rules(family, Change { sequence: 0, stamp: 0, rules: *rules });
        }
        self.models.insert(region, model);
        self.append(Entry::Create { region, range, families });
        region
    }

    /// Writes cells of one row; their sequence numbers and positions are given here.
    pub fn write(&mut self, region: u64, mut cells: Vec<ModelCell>) {
        let sequence = self.live[&region].sequence() + 1;
        for (position, cell) in cells.iter_mut().enumerate() {
            (cell.sequence, cell.position) = (sequence, position);
        }
        let model = self.models.get_mut(&region).unwrap();
        model.cells.extend(cells.iter().filter(|cell| model.families.contains_key(&cell.family)).cloned());
        self.append(Entry::Write { region, cells });
    }

    pub fn alter(&mut self, family: &str, rules: Option<FamilyRules>) {
        for (id, region) in &self.live {
            let model = self.models.get_mut(id).unwrap();
            let sequence = region.sequence() + 1;
            match rules {
                Some(rules) => {
                    let stamp = i64::try_from(self.stamp + 1).unwrap();
                    model.set_rules(family, Change { sequence, stamp, rules });
                }
                None => model.remove_family(family),
            }
        }
        self.append(Entry::Alter { family: family.to_owned(), rules });
    }

    pub async fn split(&mut self, parent: u64, at: &[u8]) -> (u64, u64) {
        self.settle(parent).await;
        let (left, right) = (self.next_region(), self.next_region() + 1);
        let halves = self.live[&parent].range().split(at).unwrap();
        for (id, range) in [(left, halves.0), (right, halves.1)] {
            let part = self.models[&parent].part(&range);
            self.models.insert(id, part);
        }
        self.append(Entry::Split { parent, at: at.to_vec(), left, right });
        (left, right)
    }

    pub async fn settle(&mut self, region: u64) {
        self.engine().settle(&self.live[&region]).await.unwrap();
        self.note_recorded();
    }

    pub fn freeze(&self, region: u64) {
        let region = &self.live[&region];
        region.freeze(self.point(region, self.index()));
    }

    pub async fn flush(&mut self, region: u64) {
        self.engine().flush(&self.live[&region]).await.unwrap();
        self.note_recorded();
    }

    /// Takes over what the engine says is recorded: a settled daughter names its parent as gone.
    fn note_recorded(&mut self) {
        for (entry, _) in &self.log {
            let Entry::Split { parent, left, right, .. } = entry else { continue };
            let settled = |id: &u64| self.live.get(id).is_some_and(|region| region.unflushed_from().is_none());
            if settled(left) || settled(right) || self.gone.contains(left) || self.gone.contains(right) {
                self.gone.insert(*parent);
            }
        }
        for (id, region) in &self.live {
            if region.unflushed_from().is_none() {
                self.recorded.insert(*id, region.point());
            }
        }
    }

    pub async fn drop_region(&mut self, region: u64) {
        // Of a dropped region nothing is promised to readers, nor to those of a parent that it came from.
        let dropped = self.live[&region].range().clone();
        self.held.retain(|(_, held, _)| held.range().intersect(&dropped).is_none());
        let point = GroupPoint { index: self.index(), state: bytes::Bytes::from_static(b"dropped") };
        self.engine().drop_regions(&[RegionId(region)], GROUP, point).await.unwrap();
        self.live.remove(&region);
        self.gone.insert(region);
        self.note_recorded();
    }

    /// Closes the engine without a word and opens its directory again; then applies the log from every region's point.
    pub async fn reopen(&mut self) {
        self.held.clear();
        self.live.clear();
        drop(self.engine.take());
        self.engine = Some(open(self.dir.path(), self.backend).await.unwrap());
        self.replay();
    }

    /// Applies what the regions' points do not cover.
    pub fn replay(&mut self) {
        self.live = self.engine().regions().into_iter().map(|region| (region.id().0, region)).collect();
        let opened: BTreeMap<u64, u64> = self.live.iter().map(|(id, region)| (*id, region.point().index)).collect();
        let mut done = self.gone.clone();
        for (entry, _) in self.log.iter().rev() {
            if let Entry::Split { parent, left, right, .. } = entry
                && [left, right].iter().any(|id| opened.contains_key(id) || done.contains(id))
            {
                done.insert(*parent);
            }
        }
        for index in 1..=self.index() {
            let applies = match &self.log[usize::try_from(index).unwrap() - 1].0 {
                Entry::Create { region, .. } => !opened.contains_key(region) && !done.contains(region),
                Entry::Write { region, .. } | Entry::Split { parent: region, .. } => {
                    self.live.contains_key(region) && opened.get(region).is_none_or(|point| *point < index)
                }
                Entry::Alter { .. } => true,
            };
            if applies {
                self.apply(index);
            }
        }
    }

    pub fn hold(&mut self, region: u64) {
        let handle = self.live[&region].clone();
        let snapshot = handle.snapshot();
        self.held.push((region, handle, snapshot));
    }

    /// All of a region at a snapshot, row by row, compared with the model.
    pub fn check_all(&self) {
        let projection = Projection::all().with_versions(9);
        for (id, region) in &self.live {
            let now = i64::try_from(self.stamp).unwrap();
            let scan = Scan { range: KeyRange::all(), reverse: false, projection: projection.clone(), now };
            let seen = scan.run(region, &region.snapshot(), usize::MAX);
            assert_eq!(seen, scan.expected(&self.models[id], region, region.sequence()), "region {id}");
        }
    }
}

pub fn packed(cells: &[ModelCell]) -> PackedCells {
    let cells = cells.iter().map(|cell| CellRef {
        family: cell.family.as_bytes(),
        qualifier: &cell.qualifier,
        timestamp: cell.timestamp,
        kind: cell.kind,
        tags: &[],
        value: &cell.value,
    });
    PackedCells::from_cells(cells).unwrap()
}

pub fn seen_of(cells: &PackedCells) -> Vec<Seen> {
    let seen = |cell: CellRef<'_>| {
        let family = String::from_utf8(cell.family.to_vec()).unwrap();
        (family, cell.qualifier.to_vec(), cell.timestamp, cell.value.to_vec())
    };
    cells.iter().map(seen).collect()
}

/// A scan of both sides.
pub struct Scan {
    pub range: KeyRange,
    pub reverse: bool,
    pub projection: Projection,
    pub now: i64,
}

impl Scan {
    pub fn begin(
        &self,
        region: &Region,
        sequence: u64,
        range: KeyRange,
        from_cell: Option<CellPosition>,
    ) -> RowScanner {
        let spec =
            ScanSpec { range, reverse: self.reverse, projection: self.projection.clone(), now_ms: self.now, from_cell };
        region.scan(region.snapshot_at(sequence).unwrap(), spec)
    }

    /// Runs the scan; each part of a row that is cut is followed by a new scan from its last cell.
    pub fn run(&self, region: &Region, snapshot: &Snapshot, bytes_max: usize) -> Vec<(Vec<u8>, Vec<Seen>)> {
        let spec = ScanSpec {
            range: self.range.clone(),
            reverse: self.reverse,
            projection: self.projection.clone(),
            now_ms: self.now,
            from_cell: None,
        };
        let mut scanner = region.scan(region.snapshot_at(snapshot.sequence()).unwrap(), spec);
        let mut rows: Vec<(Vec<u8>, Vec<Seen>)> = Vec::new();
        let mut continues = false;
        loop {
            let mut block = Vec::new();
            let step = scanner.next(&mut block, bytes_max, Patience::MayBlock).unwrap();
            let mut row_of_block = None;
            for packed in PackedRows::new(block.into()) {
                let packed = packed.unwrap();
                let row = packed.row.as_bytes().to_vec();
                let cells = seen_of(&packed.cells);
                row_of_block = Some(row.clone());
                match rows.last_mut() {
                    Some((last, earlier)) if continues => {
                        assert_eq!(*last, row, "a row goes on");
                        earlier.extend(cells);
                    }
                    _ => rows.push((row, cells)),
                }
            }
            continues = false;
            match step {
                Step::Row | Step::Hidden => {}
                Step::Part { position } => {
                    continues = true;
                    let row = row_of_block.unwrap();
                    let rest = if self.reverse {
                        range(&self.range.start, &KeyRange::row(&row).stop)
                    } else {
                        range(&row, &self.range.stop)
                    };
                    scanner = self.begin(region, snapshot.sequence(), rest, Some(position));
                }
                Step::End => return rows,
            }
        }
    }

    pub fn expected(&self, model: &RegionModel, region: &Region, sequence: u64) -> Vec<(Vec<u8>, Vec<Seen>)> {
        let Some(range) = self.range.intersect(region.range()) else { return Vec::new() };
        let mut rows: Vec<_> = model
            .rows(&range)
            .into_iter()
            .map(|row| {
                let seen = model.read(&row, &self.projection, sequence, self.now);
                (row, seen)
            })
            .filter(|(_, seen)| !seen.is_empty())
            .collect();
        if self.reverse {
            rows.reverse();
        }
        rows
    }
}
