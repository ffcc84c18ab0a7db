//! An engine and its model, driven by one log: applied once, and again from each region's point after the directory was
//! reopened.
//!
//! Steps that touch the disk come in two forms: `try_flush` and its like return the engine's error and may be tried
//! again; `flush` treats any error as a failure of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use terrane_engine::{
    BackendKind, DurablePoint, Engine, Error, GroupPoint, Options, Region, RegionSpec, Snapshot, SplitDaughter,
};
use terrane_types::schema::{Bloom, Compression, FamilyStorage};
use terrane_types::{FamilyName, FamilyRules, FamilySchema, GroupId, KeyRange, Projection, RegionId, TableId};

pub use super::home::{Home, Settings};
use super::model::{Change, ModelCell, RegionModel};
use super::scanning::{Scan, packed};

pub const GROUP: GroupId = GroupId(7);
pub const TABLE: TableId = TableId(5);

/// No store of these tests needs so many compactions until nothing is left to do.
const COMPACTIONS_MAX: usize = 200;

pub fn backends() -> Vec<BackendKind> {
    BackendKind::NAMES.iter().map(|name| name.parse().unwrap()).collect()
}

pub fn name(family: &str) -> FamilyName {
    FamilyName::new(family).unwrap()
}

pub fn range(start: &[u8], end: &[u8]) -> KeyRange {
    KeyRange::new(start.to_vec(), end.to_vec()).unwrap()
}

pub async fn open(dir: &Path, backend: BackendKind) -> Result<Arc<Engine>, Error> {
    Engine::open(Options::new(dir.to_owned(), backend, 8 << 20)).await
}

/// What the log says.
#[derive(Clone, Debug)]
pub enum Entry {
    Create { region: u64, range: KeyRange, families: Vec<(String, FamilyRules)> },
    Write { region: u64, cells: Vec<ModelCell> },
    Alter { family: String, rules: Option<FamilyRules> },
    Split { parent: u64, at: Vec<u8>, left: u64, right: u64 },
    Merge { left: u64, right: u64, into: u64 },
}

/// Everything known of an engine without querying it: what a crash does not take away.
#[derive(Clone)]
pub struct Known {
    /// With the stamp of each; the entry at position 0 has index 1.
    pub log: Vec<(Entry, u64)>,
    pub stamp: u64,
    pub models: BTreeMap<u64, RegionModel>,
    /// Points that flushes have recorded and that cover all of their regions.
    pub recorded: BTreeMap<u64, DurablePoint>,
    /// The last log index seen of each region's recorded point: it never goes back.
    pub acknowledged: BTreeMap<u64, u64>,
    /// New regions of splits and merges that are not known to be recorded: their points do not count yet.
    unrecorded_splits: BTreeSet<u64>,
    /// Splits that are recorded, and regions dropped: the log has nothing more to say about these.
    pub gone: BTreeSet<u64>,
    /// The state of the group as last acknowledged.
    group: Option<GroupPoint>,
    /// A state of the group that may or may not be recorded, because the call failed, and the region whose drop it
    /// belongs to.
    group_in_doubt: Option<(GroupPoint, Option<u64>)>,
}

pub struct World {
    pub dir: Home,
    pub backend: BackendKind,
    pub settings: Settings,
    pub engine: Option<Arc<Engine>>,
    pub known: Known,
    pub live: BTreeMap<u64, Arc<Region>>,
    pub held: Vec<(u64, Arc<Region>, Snapshot)>,
}

impl Known {
    /// What a crash must not take away, as text.
    pub fn promises(&self) -> String {
        let Self { log, acknowledged, gone, group, group_in_doubt, .. } = self;
        format!("{} {acknowledged:?} {gone:?} {group:?} {group_in_doubt:?}", log.len())
    }
}

impl std::ops::Deref for World {
    type Target = Known;

    fn deref(&self) -> &Known {
        &self.known
    }
}

impl std::ops::DerefMut for World {
    fn deref_mut(&mut self) -> &mut Known {
        &mut self.known
    }
}

impl World {
    pub async fn new(backend: BackendKind) -> Self {
        let mut world = Self::empty(Home::Temporary(tempfile::tempdir().unwrap()), backend, Settings::default());
        world.try_reopen().await.unwrap();
        world
    }

    /// A world in which nothing has happened, whose engine is not opened yet.
    pub fn empty(dir: Home, backend: BackendKind, settings: Settings) -> Self {
        let known = Known {
            log: Vec::new(),
            stamp: 100,
            models: BTreeMap::new(),
            recorded: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            unrecorded_splits: BTreeSet::new(),
            gone: BTreeSet::new(),
            group: None,
            group_in_doubt: None,
        };
        Self::of(known, dir, backend, settings)
    }

    /// What is known, and a directory that should contain it, not opened yet.
    pub fn of(known: Known, dir: Home, backend: BackendKind, settings: Settings) -> Self {
        Self { dir, backend, settings, engine: None, known, live: BTreeMap::new(), held: Vec::new() }
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

    /// A family as the entry at `index` defines it.
    fn schema(&self, index: u64, family: &str, rules: FamilyRules) -> FamilySchema {
        let mut storage = FamilyStorage::default();
        if self.settings.varied_storage {
            let pick = |salt: u64| usize::try_from((index + salt + family.len() as u64) % 3).unwrap();
            storage.compression = [Compression::None, Compression::Lz4, Compression::Zstd][pick(0)];
            storage.bloom = [Bloom::None, Bloom::Row, Bloom::RowCol][pick(index / 3)];
            storage.block_size = 1 << 10;
            storage.in_memory = pick(1) == 0;
        }
        FamilySchema { rules, storage, ..FamilySchema::new(name(family)) }
    }

    /// What is not recorded and must be set whenever a region is created or opened.
    fn set_up(&self, region: &Region) {
        region.set_history(self.settings.history);
        // Rows of one cell or of a few come in parts as well, which no reader may notice.
        region.set_part_bytes([1, 100, 600, usize::MAX][usize::try_from(region.id().0 % 4).unwrap()]);
        if let Some((region_bytes, flush_bytes)) = self.settings.sizes {
            region.set_sizes(region_bytes, flush_bytes);
        }
    }

    /// The engine's half of an entry.
    fn apply(&mut self, index: u64) {
        let (entry, stamp) = self.log[usize::try_from(index).unwrap() - 1].clone();
        match entry {
            Entry::Create { region, range, families } => {
                let families = families.iter().map(|(family, rules)| self.schema(index, family, *rules)).collect();
                let spec = RegionSpec { region: RegionId(region), table: TABLE, group: GROUP, range, families };
                let created = self.engine().create(spec, index);
                self.set_up(&created);
                self.live.insert(region, created);
            }
            Entry::Write { region, cells } => {
                let region = &self.live[&region];
                let sequence = region.sequence() + 1;
                assert_eq!(sequence, cells[0].sequence, "a replayed write has its old sequence number");
                region.advance(stamp);
                region.apply(index, sequence, &cells[0].row, &packed(&cells));
            }
            Entry::Alter { family, rules } => {
                for region in self.live.values().filter(|region| region.point().index < index) {
                    match rules {
                        Some(rules) => {
                            let family = self.schema(index, &family, rules);
                            region.set_family(region.sequence() + 1, stamp, &family);
                        }
                        None => region.remove_family(&name(&family)),
                    }
                    region.touch(index);
                }
            }
            Entry::Split { parent, at, left, right } => {
                let parent = self.live.remove(&parent).unwrap();
                // Log time is the entry's, also when it is applied again later.
                let point = DurablePoint { stamp, ..self.point(&parent, index) };
                let side = |region: u64| SplitDaughter { region: RegionId(region), point: point.clone() };
                let halves = self.engine().split(&parent, &at, side(left), side(right)).unwrap();
                for (id, half) in [(left, halves.0), (right, halves.1)] {
                    let inherited = half.take_handed_down();
                    self.held.extend(inherited.into_iter().map(|snapshot| (id, half.clone(), snapshot)));
                    self.live.insert(id, half);
                }
                self.unrecorded_splits.extend([left, right]);
            }
            Entry::Merge { left, right, into } => {
                let (left, right) = (self.live.remove(&left).unwrap(), self.live.remove(&right).unwrap());
                let sequence = left.sequence().max(right.sequence());
                let point = DurablePoint { stamp, sequence, ..self.point(&left, index) };
                let merged = SplitDaughter { region: RegionId(into), point };
                self.live.insert(into, self.engine().merge(&left, &right, merged).unwrap());
                self.unrecorded_splits.insert(into);
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
        let stamp = self.stamp;
        self.log.push((entry, stamp));
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

    /// Writes cells of one row; assigns their sequence numbers and positions.
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
            let model = self.known.models.get_mut(id).unwrap();
            let sequence = region.sequence() + 1;
            match rules {
                Some(rules) => {
                    let stamp = i64::try_from(self.known.stamp + 1).unwrap();
                    model.set_rules(family, Change { sequence, stamp, rules });
                }
                None => model.remove_family(family),
            }
        }
        self.append(Entry::Alter { family: family.to_owned(), rules });
    }

    pub async fn split(&mut self, parent: u64, at: &[u8]) -> (u64, u64) {
        self.try_split(parent, at).await.unwrap()
    }

    pub async fn try_split(&mut self, parent: u64, at: &[u8]) -> Result<(u64, u64), Error> {
        self.try_finish_split(parent).await?;
        let (left, right) = (self.next_region(), self.next_region() + 1);
        let halves = self.live[&parent].range().split(at).unwrap();
        for (id, range) in [(left, halves.0), (right, halves.1)] {
            let part = self.models[&parent].part(&range);
            self.models.insert(id, part);
        }
        self.append(Entry::Split { parent, at: at.to_vec(), left, right });
        Ok((left, right))
    }

    /// Merges two neighbours.
    pub async fn try_merge(&mut self, left: u64, right: u64) -> Result<u64, Error> {
        self.try_finish_split(left).await?;
        self.try_finish_split(right).await?;
        let into = self.next_region();
        let boundary = self.live[&right].range().start.clone();
        let model = self.models[&left].joined(&boundary, &self.models[&right]);
        self.models.insert(into, model);
        self.append(Entry::Merge { left, right, into });
        Ok(into)
    }

    pub async fn finish_split(&mut self, region: u64) {
        self.try_finish_split(region).await.unwrap();
    }

    pub async fn try_finish_split(&mut self, region: u64) -> Result<(), Error> {
        self.engine().finish_split(&self.live[&region]).await?;
        self.note_settled(region);
        Ok(())
    }

    pub fn freeze(&self, region: u64) {
        let region = &self.live[&region];
        region.freeze(self.point(region, self.index()));
    }

    pub async fn flush(&mut self, region: u64) {
        self.try_flush(region).await.unwrap();
    }

    pub async fn try_flush(&mut self, region: u64) -> Result<(), Error> {
        self.engine().flush(&self.live[&region]).await?;
        self.note_settled(region);
        Ok(())
    }

    /// Records all regions that are frozen and have no cells to write, together.
    pub async fn try_record_empty(&mut self) -> Result<(), Error> {
        let regions = self.live.values().cloned().collect();
        for region in self.engine().record_empty(GROUP, regions).await? {
            self.note_settled(region.0);
        }
        Ok(())
    }

    /// Carries out the most urgent compaction; returns whether there was one.
    pub async fn try_compact_one(&self) -> Result<bool, Error> {
        match self.engine().next_compaction() {
            Some(compaction) => self.engine().compact(compaction).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Compacts all of a region's files, and everything else there is to compact.
    pub async fn try_compact_all(&self, region: u64) -> Result<(), Error> {
        self.engine().request_compaction(&self.live[&region]);
        for _ in 0..COMPACTIONS_MAX {
            if !self.try_compact_one().await? {
                return Ok(());
            }
        }
        panic!("after {COMPACTIONS_MAX} compactions there are still more to do");
    }

    /// A region that was flushed does not come from an unrecorded split.
    fn note_settled(&mut self, region: u64) {
        if self.unrecorded_splits.remove(&region) {
            let splits: Vec<_> = self.log.iter().map(|(entry, _)| entry.clone()).collect();
            for entry in splits {
                if let Entry::Merge { left, right, into } = entry
                    && into == region
                {
                    self.gone.extend([left, right]);
                }
                if let Entry::Split { parent, left, right, .. } = entry
                    && (left == region || right == region)
                {
                    self.unrecorded_splits.remove(&left);
                    self.unrecorded_splits.remove(&right);
                    self.gone.insert(parent);
                }
            }
        }
        for (id, region) in &self.live {
            if self.known.unrecorded_splits.contains(id) {
                continue;
            }
            let point = region.point();
            // It was never flushed.
            if point.index == 0 {
                continue;
            }
            let before = self.known.acknowledged.insert(*id, point.index);
            assert!(before.is_none_or(|before| before <= point.index), "the point of region {id} went back");
            if region.unflushed_from().is_none() {
                self.known.recorded.insert(*id, point);
            }
        }
    }

    pub async fn drop_region(&mut self, region: u64) {
        self.try_drop_region(region).await.unwrap();
    }

    pub async fn try_drop_region(&mut self, region: u64) -> Result<(), Error> {
        // Readers of a dropped region are promised nothing, nor are those of a parent that it came from.
        let dropped = self.live[&region].range().clone();
        self.held.retain(|(_, held, _)| held.range().intersect(&dropped).is_none());
        let state = format!("dropped {region}").into_bytes().into();
        let point = GroupPoint { index: self.index(), state };
        self.group_in_doubt = Some((point.clone(), Some(region)));
        self.engine().drop_regions(&[RegionId(region)], GROUP, point.clone()).await?;
        (self.group, self.group_in_doubt) = (Some(point), None);
        self.live.remove(&region);
        self.note_settled(region);
        self.gone.insert(region);
        Ok(())
    }

    /// A drop of no region: it records the state of the group, and removes files that nothing needs.
    pub async fn try_drop_nothing(&mut self) -> Result<(), Error> {
        let point = GroupPoint { index: self.index(), state: bytes::Bytes::from_static(b"dropped nothing") };
        self.group_in_doubt = Some((point.clone(), None));
        self.engine().drop_regions(&[], GROUP, point.clone()).await?;
        (self.group, self.group_in_doubt) = (Some(point), None);
        Ok(())
    }

    pub async fn try_record_group(&mut self) -> Result<(), Error> {
        self.stamp += 1;
        let state = format!("at {}", self.stamp).into_bytes().into();
        let point = GroupPoint { index: self.index(), state };
        self.group_in_doubt = Some((point.clone(), None));
        self.engine().record_group(GROUP, point.clone()).await?;
        (self.group, self.group_in_doubt) = (Some(point), None);
        Ok(())
    }

    /// Repeats what failed and may have happened nevertheless, if there is such a thing.
    pub async fn end_doubt(&mut self) -> Result<(), Error> {
        if self.engine.is_none() {
            return self.try_reopen().await;
        }
        match &self.group_in_doubt {
            Some((_, Some(region))) => {
                let region = *region;
                self.try_drop_region(region).await
            }
            Some((_, None)) => self.try_record_group().await,
            None => Ok(()),
        }
    }

    /// Drops the engine without a shutdown and opens its directory again; then applies the log from every region's
    /// point.
    pub async fn reopen(&mut self) {
        self.try_reopen().await.unwrap();
    }

    /// As [`World::reopen`]. After an error nothing is open.
    pub async fn try_reopen(&mut self) -> Result<(), Error> {
        self.try_open().await?;
        self.check_what_was_found();
        self.replay();
        Ok(())
    }

    /// Opens the directory and applies nothing.
    pub async fn try_open(&mut self) -> Result<(), Error> {
        self.close();
        let (cache_bytes, open_files) = if self.settings.cramped { (4 << 10, 2) } else { (8 << 20, 64) };
        let options = Options::new(self.dir.path().to_owned(), self.backend, cache_bytes);
        self.engine = Some(Engine::open(Options { disk: self.dir.disk(), open_files, ..options }).await?);
        Ok(())
    }

    pub fn close(&mut self) {
        self.held.clear();
        self.live.clear();
        self.engine = None;
    }

    /// What was acknowledged is present, and what was dropped is not.
    fn check_what_was_found(&mut self) {
        let group = self.engine().group_point(GROUP);
        match self.group_in_doubt.take() {
            Some((point, dropped)) if group.as_ref() == Some(&point) => {
                self.group = Some(point);
                self.gone.extend(dropped);
            }
            _ => assert_eq!(group, self.group, "the state of the group"),
        }
        let opened: BTreeMap<u64, DurablePoint> =
            self.engine().regions().iter().map(|region| (region.id().0, region.point())).collect();
        let done = self.done(&opened.keys().copied().collect());
        for (id, point) in &opened {
            assert!(!done.contains(id), "region {id} was split or dropped, and it is there again");
            assert!(point.index <= self.index(), "region {id} is ahead of the log");
            assert_eq!(point.window, format!("window at {}", point.index), "region {id}");
            // Recorded, although the caller saw an error.
            if self.known.recorded.get(id).is_some_and(|recorded| recorded.index < point.index) {
                self.known.recorded.insert(*id, point.clone());
            }
        }
        for (id, acknowledged) in &self.acknowledged {
            let found = opened.get(id).map(|point| point.index);
            let kept = done.contains(id) || found.is_some_and(|found| found >= *acknowledged);
            assert!(kept, "region {id} was recorded at {acknowledged} and is found at {found:?}");
        }
    }

    /// Removes the regions that a recorded split or drop has replaced.
    fn done(&self, opened: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut done = self.gone.clone();
        for (entry, _) in self.log.iter().rev() {
            if let Entry::Split { parent, left, right, .. } = entry
                && [left, right].iter().any(|id| opened.contains(id) || done.contains(id))
            {
                done.insert(*parent);
            }
            if let Entry::Merge { left, right, into } = entry
                && (opened.contains(into) || done.contains(into))
            {
                done.extend([left, right]);
            }
        }
        done
    }

    /// Applies what the regions' points do not cover.
    pub fn replay(&mut self) {
        self.live = self.engine().regions().into_iter().map(|region| (region.id().0, region)).collect();
        let opened: BTreeMap<u64, u64> = self.live.iter().map(|(id, region)| (*id, region.point().index)).collect();
        let done = self.done(&opened.keys().copied().collect());
        self.unrecorded_splits.clear();
        for region in self.live.values() {
            self.set_up(region);
        }
        for index in 1..=self.index() {
            let applies = match &self.log[usize::try_from(index).unwrap() - 1].0 {
                Entry::Create { region, .. } => !opened.contains_key(region) && !done.contains(region),
                Entry::Write { region, .. } | Entry::Split { parent: region, .. } => {
                    self.live.contains_key(region) && opened.get(region).is_none_or(|point| *point < index)
                }
                Entry::Merge { left, right, .. } => [left, right].iter().all(|region| {
                    self.live.contains_key(region) && opened.get(region).is_none_or(|point| *point < index)
                }),
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

    /// Holds a snapshot at an earlier sequence number, one that the region says can be read.
    pub fn hold_at(&mut self, region: u64, sequence: u64) {
        let handle = self.live[&region].clone();
        let snapshot = handle.snapshot_at(sequence).unwrap();
        self.held.push((region, handle, snapshot));
    }

    /// Compares all of a region at a snapshot with the model, row by row.
    pub fn check_all(&self) {
        self.try_check_all().unwrap();
    }

    /// As [`World::check_all`]; an error means that the disk could not be read.
    pub fn try_check_all(&self) -> Result<(), Error> {
        let projection = Projection::all().with_versions(9);
        for (id, region) in &self.live {
            let now = i64::try_from(self.stamp).unwrap();
            let scan = Scan { range: KeyRange::all(), reverse: false, projection: projection.clone(), now };
            let seen = scan.try_run(region, &region.snapshot(), usize::MAX)?;
            assert_eq!(seen, scan.expected(&self.models[id], region, region.sequence()), "region {id}");
        }
        Ok(())
    }
}
