//! Flushes: what is frozen of a region goes to the backend, then one manifest record says so, then the memory is let go.
//!
//! # What else may happen meanwhile
//! - Writes, reads and freezes of the region go on: a flush works on what was frozen when it began. Compactions run too;
//!   whoever records something of the region holds `Region::recording` meanwhile.
//! - A split of the region takes microseconds and waits for nobody. A flush that finds the region split when it is about
//!   to record leaves its cells to the daughters; one that is split while its record is written hands down what it
//!   flushed. Recording the split waits for that flush, so the parent's record never comes after the split's.
//! - A crash, or an error. Files that were not recorded go at the next start. Cells in sled trees have no file of their own
//!   to go with: `Region::unrecorded` remembers that there may be some, and the next flush removes them first. They could
//!   not stay: a flush with everything older at hand drops deletes together with what they deleted, and cells of an
//!   earlier attempt would come back to life.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrane_env::task;
use terrane_types::FamilyName;

use crate::Error;
use crate::backend::{FamilyWriter, WriterTarget};
use crate::collecting::{Collecting, Older};
use crate::engine::{Engine, PendingSplit};
use crate::file::{FileRef, Levels};
use crate::manifest::{Record, RegionRecord};
use crate::memtable::Memtable;
use crate::merge::Merge;
use crate::reading::{Reading, Source};
use crate::region::{Files, Frozen, Region, State};
use crate::source::Bounds;

/// How flushes and compactions read.
pub(crate) const BULK: Reading =
    Reading { blocking: true, sequential: true, fills_cache: false, time_min: i64::MIN, prefix: None };

impl Engine {
    /// Writes what is frozen of a region, records its last frozen point, and lets the memtables go. With nothing frozen
    /// it does nothing. A split that the region came from is recorded first.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing was recorded, the cells are still in memory, and trying again is safe.
    pub async fn flush(&self, region: &Arc<Region>) -> Result<(), Error> {
        self.settle(region).await?;
        let flushed = self.flush_settled(region).await;
        self.cleaned_up_after(flushed).await
    }

    async fn flush_settled(&self, region: &Arc<Region>) -> Result<(), Error> {
        let _recording = region.recording.lock().await;
        let (frozen, files, collected) = {
            let state = region.state.read();
            let Some(last) = state.frozen.last().filter(|_| !state.retired) else { return Ok(()) };
            // Under the lock: a split after it tells the daughters, who get what is flushed here, how far was collected.
            let collected = region.snapshots.begin_collection(last.point.stamp);
            (state.frozen.clone(), state.files(), collected)
        };
        self.remove_unrecorded(region).await?;
        let flushed = self.write_frozen(region, &frozen, files, collected).await?;
        if region.state.read().retired {
            // Split meanwhile: the daughters hold the same memtables and record them with the split.
            self.settled(&flushed.made);
            self.clean_up().await;
            return Ok(());
        }
        let last = frozen.last().expect("frozen is not empty: checked under the lock");
        // After an error a restart may find the record or not, so until then the files stay.
        let appended = self.append(Record::Region(record_of(region, last, &flushed.files))).await;
        appended.inspect_err(|_| self.backend.in_doubt(&flushed.made))?;
        self.settled(&flushed.made);
        if install(region, &frozen, flushed.files) {
            self.hand_down(region);
        }
        if flushed.rewrote {
            self.clean_up().await;
        }
        Ok(())
    }

    /// What fails leaves files that nobody will name. On a full disk it is tried again and again, so they go at once.
    pub(crate) async fn cleaned_up_after(&self, done: Result<(), Error>) -> Result<(), Error> {
        if done.is_err() {
            self.clean_up().await;
        }
        done
    }

    /// Removes what nobody names. That it fails is nobody's failure: what was recorded is recorded, and the files go with the
    /// next clean-up, at the latest when the engine is opened again.
    pub(crate) async fn clean_up(&self) {
        if let Err(error) = self.remove_unnamed().await {
            tracing::warn!("files that nobody names could not be removed: {error}");
        }
    }

    /// The manifest names these files now, or nobody will ever have it name them: then they go with the next clean-up.
    pub(crate) fn settled(&self, made: &[FileRef]) {
        made.iter().for_each(|file| self.backend.settled(file.record.id));
    }

    /// Records the split that a region came from, when that is still to be done.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub async fn settle(&self, region: &Arc<Region>) -> Result<(), Error> {
        let pending = self.pending.lock().get(&region.id()).cloned();
        let Some(split) = pending else { return Ok(()) };
        let recorded = self.record_split(&split).await;
        self.cleaned_up_after(recorded).await
    }

    async fn record_split(&self, split: &PendingSplit) -> Result<(), Error> {
        let mut recorded = split.recorded.lock().await;
        if *recorded {
            return Ok(());
        }
        // A flush of the parent that began before the split ends first, one way or the other.
        let _recording = split.parent.recording.lock().await;
        self.remove_unrecorded(&split.parent).await?;
        let left = self.write_daughter(&split.left).await?;
        let right = match self.write_daughter(&split.right).await {
            Ok(right) => right,
            Err(error) => {
                self.settled(&left.1.made);
                return Err(error);
            }
        };
        let record = Record::Split {
            parent: split.parent.id(),
            daughters: Box::new([
                record_of(&split.left, &left.0, &left.1.files),
                record_of(&split.right, &right.0, &right.1.files),
            ]),
        };
        if let Err(error) = self.append(record).await {
            self.backend.in_doubt(&left.1.made);
            self.backend.in_doubt(&right.1.made);
            return Err(error);
        }
        self.settled(&left.1.made);
        self.settled(&right.1.made);
        for (region, (frozen, flushed)) in [(&split.left, left), (&split.right, right)] {
            install(region, &[frozen], flushed.files);
        }
        *recorded = true;
        self.pending.lock().retain(|_, waiting| waiting.parent.id() != split.parent.id());
        self.clean_up().await;
        Ok(())
    }

    /// Writes what a daughter took over from its parent.
    async fn write_daughter(&self, region: &Arc<Region>) -> Result<(Frozen, Flushed), Error> {
        let (frozen, files) = {
            let state = region.state.read();
            (state.frozen[0].clone(), state.files())
        };
        let collected = region.snapshots.begin_collection(frozen.point.stamp);
        let flushed = self.write_frozen(region, std::slice::from_ref(&frozen), files, collected).await?;
        Ok((frozen, flushed))
    }

    /// The parent was split while its flush was being recorded: what the daughters took is in a file now.
    fn hand_down(&self, parent: &Region) {
        let split = self.pending.lock().values().find(|split| split.parent.id() == parent.id()).cloned();
        let Some(split) = split else { return };
        let from = parent.state.read();
        for daughter in [&split.left, &split.right] {
            let mut state = daughter.state.write();
            state.set_files(parts_of(&from, daughter.bounds()));
            let (tables, bytes) = inheritance(&from);
            // The first is what came from the parent, until the split is recorded.
            state.frozen[0].tables = tables;
            state.frozen[0].bytes = bytes;
            state.refresh();
        }
    }

    /// Removes cells of flushes that were never recorded, and notes that another begins. The caller holds `recording`.
    async fn remove_unrecorded(&self, region: &Region) -> Result<(), Error> {
        if !region.unrecorded.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let point = region.point();
        self.backend
            .remove_above(point.group, region.table(), region.families(), region.bounds().clone(), point.sequence)
            .await
    }

    /// Removes files that neither the manifest nor a flush or compaction under way knows.
    pub(crate) async fn remove_unnamed(&self) -> Result<(), Error> {
        {
            let manifest = self.manifest.lock().await;
            // What is known to be in doubt here was so before this look: a whole manifest was written since then.
            if !manifest.is_in_doubt() {
                self.backend.doubt_is_over();
            }
        }
        // In this order: what is no longer spared was settled before the look at the manifest.
        let spared = self.backend.spared();
        let named = self.manifest.lock().await.contents().files();
        let backend = Arc::clone(&self.backend);
        task::run_io(async move { backend.retain(named, spared).await }).await?;
        self.checkpoints.clean_up(&self.disk).await
    }

    /// Collects frozen memtables for readers at `collected` and above, and hands what is left to the backend; answers the
    /// region's files as they are then.
    async fn write_frozen(
        &self,
        region: &Region,
        frozen: &[Frozen],
        mut files: Files,
        collected: u64,
    ) -> Result<Flushed, Error> {
        let last = frozen.last().expect("whoever flushes has something frozen");
        let point = last.point.clone();
        let oldest_snapshot = collected.min(point.sequence);
        let log_time = i64::try_from(point.stamp).unwrap_or(i64::MAX);
        let mut flushed = Flushed { files: Files::new(), made: Vec::new(), rewrote: false };
        for (name, family) in &last.families {
            let levels = files.remove(name).unwrap_or_default();
            // Newest first, as everywhere.
            let tables = frozen.iter().rev().flat_map(|frozen| frozen.tables.get(name)).flatten().cloned();
            let mut sources: Vec<Arc<dyn Source>> = tables.map(|table| table as Arc<dyn Source>).collect();
            if sources.is_empty() {
                flushed.files.insert(name.clone(), levels);
                continue;
            }
            let rewrites = self.backend.rewrites(levels.level0.len() + 1);
            let mut older = Older::default();
            if rewrites {
                sources.extend(levels.sources());
            } else {
                older = older_than_memtables(&levels);
            }
            let writer = self.backend.writer(WriterTarget {
                group: point.group,
                table: region.table(),
                family: name,
                storage: family.storage,
                prefix: region.prefix(),
                level: 0,
                file_bytes: u64::MAX,
                collected: (0, 0),
            });
            let work = FamilyFlush {
                sources,
                bounds: region.bounds().clone(),
                family: family.clone(),
                oldest_snapshot,
                log_time,
                older,
                part_bytes: region.part_bytes(),
            };
            let made = match task::run_io(async move { work.run(writer?).await }).await {
                Ok(made) => made,
                Err(error) => {
                    self.settled(&flushed.made);
                    return Err(error);
                }
            };
            flushed.made.extend(made.iter().cloned());
            flushed.rewrote |= rewrites;
            let before = if rewrites { Levels::default() } else { levels };
            flushed.files.insert(name.clone(), self.backend.with_files(before, made, region.bounds()));
        }
        if let Err(error) = self.backend.sync(!flushed.made.is_empty()).await {
            self.settled(&flushed.made);
            return Err(error);
        }
        Ok(flushed)
    }
}

/// What a flush has written.
struct Flushed {
    /// All files of the region.
    files: Files,
    /// Those that are new.
    made: Vec<FileRef>,
    /// Whether older ones were written anew and may go.
    rewrote: bool,
}

/// One family's part of a flush.
struct FamilyFlush {
    sources: Vec<Arc<dyn Source>>,
    bounds: Bounds,
    family: crate::manifest::FamilyRecord,
    oldest_snapshot: u64,
    log_time: i64,
    older: Older,
    part_bytes: usize,
}

impl FamilyFlush {
    async fn run(self, mut writer: FamilyWriter) -> Result<Vec<FileRef>, Error> {
        let cursors = self.sources.into_iter().map(|source| source.cursor(&self.bounds, false, BULK));
        let merge = Merge::new(cursors.collect::<Result<_, _>>()?, false);
        let Self { family, oldest_snapshot, log_time, older, part_bytes, .. } = self;
        let mut rows = Collecting::new(merge, &family, oldest_snapshot, log_time, older, part_bytes);
        while rows.row().is_some() {
            let within_row = rows.is_within_row();
            if writer.has_work(within_row) {
                writer.work(within_row).await?;
            }
            rows.next(|cell| writer.add(cell))?;
        }
        writer.finish(&self.bounds).await
    }
}

/// Everything on disk is older than a memtable.
fn older_than_memtables(levels: &Levels) -> Older {
    let mut older = Older::default();
    let ends = |file: &FileRef| (file.record.first_row.to_vec(), file.record.last_row.to_vec());
    levels.level0.iter().for_each(|file| older.add_sorted(vec![ends(file)]));
    levels.below.iter().for_each(|level| older.add_sorted(level.iter().map(ends).collect()));
    older
}

/// Everything that a region has in memory, as its daughters take it over, with about the bytes of each one's half.
pub(crate) fn inheritance(parent: &State) -> (BTreeMap<FamilyName, Vec<Arc<Memtable>>>, u64) {
    let mut tables: BTreeMap<FamilyName, Vec<Arc<Memtable>>> = BTreeMap::new();
    // Newest first, as everywhere.
    for (family, memtables) in parent.frozen.iter().rev().flat_map(|frozen| &frozen.tables) {
        tables.entry(family.clone()).or_default().extend(memtables.iter().cloned());
    }
    (tables, parent.frozen.iter().map(|frozen| frozen.bytes).sum::<u64>() / 2)
}

/// A region's files as a daughter takes them over.
pub(crate) fn parts_of(parent: &State, bounds: &Bounds) -> Files {
    parent.stores.iter().map(|(name, store)| (name.clone(), store.files.within(bounds))).collect()
}

impl PendingSplit {
    pub(crate) fn new(parent: &Arc<Region>, left: &Arc<Region>, right: &Arc<Region>) -> Self {
        Self {
            parent: Arc::clone(parent),
            left: Arc::clone(left),
            right: Arc::clone(right),
            recorded: tokio::sync::Mutex::new(false),
        }
    }
}

fn record_of(region: &Region, frozen: &Frozen, files: &Files) -> RegionRecord {
    region_record(region, frozen.point.clone(), frozen.families.clone(), files)
}

pub(crate) fn region_record(
    region: &Region,
    point: crate::point::DurablePoint,
    families: crate::region::Families,
    files: &Files,
) -> RegionRecord {
    let records = |levels: &Levels| levels.iter().map(|file| (*file.record).clone()).collect();
    RegionRecord {
        region: region.id(),
        table: region.table(),
        range: region.range().clone(),
        point,
        families,
        files: files.iter().map(|(name, levels)| (name.clone(), records(levels))).collect(),
    }
}

/// Lets flushed memtables go and the files come in, at one moment for readers. Answers whether the region was split before
/// that moment.
fn install(region: &Region, flushed: &[Frozen], files: Files) -> bool {
    let mut state = region.state.write();
    state.frozen.drain(..flushed.len());
    state.set_files(files);
    let last = flushed.last().expect("whoever flushes has something frozen");
    state.point = last.point.clone();
    state.recorded = last.families.clone();
    state.refresh();
    region.unrecorded.store(false, Ordering::Release);
    state.retired
}
