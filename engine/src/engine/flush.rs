//! Flushes: the frozen memtables of a region go to the backend, then one manifest record says so, then the memory is freed.
//!
//! # What may happen meanwhile
//! - Writes, reads and freezes of the region continue: a flush works on what was frozen when it began. Compactions run too;
//!   whatever changes the region's record holds [`Recording`] meanwhile.
//! - A split of the region takes microseconds and waits for nothing. A flush that finds the region split when it is about
//!   to record leaves its cells to the daughters; one that is overtaken while its record is written hands down what it
//!   flushed. Recording the split waits for that flush, so the parent's record never comes after the split's.
//! - A crash, or an error. Unrecorded files are removed at the next start. Cells in sled trees have no file to go with:
//!   the region notes that there may be some, and the next flush removes them first. They could not stay: a flush that has
//!   everything older present drops tombstones together with what they deleted, and cells of an earlier attempt would come
//!   back to life.

use std::sync::Arc;

use terrane_env::task;
use terrane_types::{FamilyName, GroupId, RegionId};

use super::{BoxFuture, Engine};
use crate::Error;
use crate::backend::{FamilyKey, FamilyWriter, WriterTarget};
use crate::cells::Cell;
use crate::collecting::{Collecting, OlderFiles};
use crate::levels::{FileRef, Levels, RegionFiles};
use crate::manifest::{FamilyRecord, Record};
use crate::merging_cursor::MergingCursor;
use crate::region::{FlushInput, Frozen, Recording, Region};
use crate::row_range::RowRange;
use crate::source::{Reading, Source};

impl Engine {
    /// Writes what is frozen of a region, records its last frozen point, and frees the memtables. With nothing frozen it
    /// does nothing. If the region came from a split that is not recorded, that is recorded first.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing was recorded, the cells are still in memory, and trying again is safe.
    pub fn flush<'a>(self: &'a Arc<Self>, region: &'a Arc<Region>) -> BoxFuture<'a, Result<(), Error>> {
        let (engine, region) = (Arc::clone(self), Arc::clone(region));
        Box::pin(task::run_to_end(async move { engine.flush_here(&region).await }))
    }

    /// Records the frozen points of several regions of one group that have no cells to write, such as those of a new table, in
    /// one step. [`Engine::flush`] would take a manifest record and a sync for each. Returns the regions that are recorded: those
    /// with cells, from a split or merge that is not recorded yet, or whose record is being changed are left to `flush`.
    ///
    /// # Errors
    /// [`Error::Io`]; trying again is safe.
    pub fn record_empty<'a>(
        self: &'a Arc<Self>,
        group: GroupId,
        regions: Vec<Arc<Region>>,
    ) -> BoxFuture<'a, Result<Vec<RegionId>, Error>> {
        let engine = Arc::clone(self);
        Box::pin(task::run_to_end(async move { engine.record_empty_here(group, &regions).await }))
    }

    async fn record_empty_here(&self, group: GroupId, regions: &[Arc<Region>]) -> Result<Vec<RegionId>, Error> {
        let mut ready = Vec::new();
        for region in regions.iter().filter(|region| !self.is_split_pending(region)) {
            // Many are held at a time, so none is waited for: a merge may hold another one of them and wait for this one.
            let Some(held) = region.try_lock_record() else { continue };
            let Some(mut input) = region.begin_flush().filter(FlushInput::is_empty) else { continue };
            self.remove_unrecorded(region, &held).await?;
            let families = &input.frozen.last().expect("a flush begins with something frozen").families;
            input.files.retain(|name, _| families.contains_key(name));
            ready.push((region, held, input));
        }
        ready.retain(|(region, ..)| !region.is_retired());
        if ready.is_empty() {
            return Ok(Vec::new());
        }
        let record = |region: &Region, input: &FlushInput| {
            let last = input.last();
            region.record(last.point.clone(), last.families.clone(), &input.files)
        };
        let records = ready.iter().map(|(region, _, input)| record(region, input)).collect();
        self.append_regions(group, records).await?;
        let mut recorded = Vec::new();
        for (region, held, mut input) in ready {
            let files = std::mem::take(&mut input.files);
            if region.install(&held, &input, files) {
                self.hand_down(region);
            }
            recorded.push(region.id());
        }
        Ok(recorded)
    }

    pub(super) async fn flush_here(&self, region: &Arc<Region>) -> Result<(), Error> {
        self.finish_split_here(region).await?;
        let flushed = self.flush_frozen(region).await;
        self.cleaned_up_after(flushed).await
    }

    async fn flush_frozen(&self, region: &Arc<Region>) -> Result<(), Error> {
        let held = region.lock_record().await;
        let Some(mut input) = region.begin_flush() else { return Ok(()) };
        self.remove_unrecorded(region, &held).await?;
        let flushed = self.write_frozen(region, &mut input).await?;
        if region.is_retired() {
            // Split meanwhile: the daughters hold the same memtables and record them with the split.
            self.release(&flushed.made);
            self.clean_up().await;
            return Ok(());
        }
        let last = input.last();
        let record = region.record(last.point.clone(), last.families.clone(), &flushed.files);
        terrane_env::buggify_pause!("a flush waits before its record").await;
        // After an error a restart may or may not find the record, so until that is known the files stay.
        let appended = self.append(Record::Region(record)).await;
        appended.inspect_err(|_| self.backend.in_doubt(&flushed.made))?;
        self.release(&flushed.made);
        if region.install(&held, &input, flushed.files) {
            self.hand_down(region);
        }
        if flushed.rewrote {
            self.clean_up().await;
        }
        Ok(())
    }

    /// Removes cells of flushes that were never recorded, and notes that another begins.
    pub(super) async fn remove_unrecorded(&self, region: &Region, held: &Recording<'_>) -> Result<(), Error> {
        if !region.mark_unrecorded(held) {
            return Ok(());
        }
        let point = region.point();
        let (families, bounds) = (region.families(), region.bounds().clone());
        self.backend.store().remove(point.group, region.table(), families, bounds, Some(point.sequence)).await
    }

    /// Collects frozen memtables for the readers there may be, and hands what is left to the backend. Returns the region's
    /// files as they are afterwards.
    pub(super) async fn write_frozen(&self, region: &Region, input: &mut FlushInput) -> Result<FlushOutput, Error> {
        let mut files = std::mem::take(&mut input.files);
        let mut flushed = FlushOutput { files: RegionFiles::new(), made: Vec::new(), rewrote: false };
        for (name, family) in &input.last().families {
            let levels = files.remove(name).unwrap_or_default();
            if let Err(error) = self.write_family(region, input, name, family, levels, &mut flushed).await {
                self.release(&flushed.made);
                return Err(error);
            }
        }
        if let Err(error) = self.backend.sync(!flushed.made.is_empty()).await {
            self.release(&flushed.made);
            return Err(error);
        }
        Ok(flushed)
    }

    async fn write_family(
        &self,
        region: &Region,
        input: &FlushInput,
        name: &FamilyName,
        family: &FamilyRecord,
        levels: Levels,
        flushed: &mut FlushOutput,
    ) -> Result<(), Error> {
        let mut sources = memtables_of(&input.frozen, name);
        if sources.is_empty() {
            flushed.files.insert(name.clone(), levels);
            return Ok(());
        }
        let point = &input.last().point;
        let rewrites = self.backend.store().rewrites(levels.level0.len() + 1);
        let mut older = OlderFiles::default();
        if rewrites {
            sources.extend(levels.sources());
        } else {
            older = older_than_memtables(&levels);
        }
        let writer = self.backend.store().writer(WriterTarget {
            key: FamilyKey { group: point.group, table: region.table(), family: name },
            storage: family.storage,
            prefix: region.prefix(),
            level: 0,
            file_bytes: u64::MAX,
            collected: (0, 0),
        });
        let own_clock = terrane_env::planted!("a flush expires by the server's clock");
        let log_time = if own_clock { terrane_env::time::wall_ms() } else { point.stamp };
        let work = FamilyFlush {
            sources,
            bounds: region.bounds().clone(),
            family: family.clone(),
            oldest_snapshot: input.oldest_snapshot.min(point.sequence),
            log_time: i64::try_from(log_time).unwrap_or(i64::MAX),
            older,
            part_bytes: region.part_bytes(),
        };
        let made = task::run_io(async move { work.run(writer?).await }).await?;
        flushed.made.extend(made.iter().cloned());
        flushed.rewrote |= rewrites;
        let before = if rewrites { Levels::default() } else { levels };
        let files = self.backend.store().with_files(before, made, region.bounds());
        flushed.files.insert(name.clone(), files);
        Ok(())
    }
}

/// What a flush has written.
pub(super) struct FlushOutput {
    /// All files of the region.
    pub(super) files: RegionFiles,
    /// The new ones among them.
    pub(super) made: Vec<FileRef>,
    /// Whether older files were rewritten and may go.
    rewrote: bool,
}

/// One family's part of a flush.
struct FamilyFlush {
    sources: Vec<Arc<dyn Source>>,
    bounds: RowRange,
    family: FamilyRecord,
    oldest_snapshot: u64,
    log_time: i64,
    older: OlderFiles,
    part_bytes: usize,
}

impl FamilyFlush {
    async fn run(self, mut writer: Box<dyn FamilyWriter>) -> Result<Vec<FileRef>, Error> {
        let cursors = self.sources.into_iter().map(|source| source.cursor(&self.bounds, false, Reading::BULK));
        let merge = MergingCursor::new(cursors.collect::<Result<_, _>>()?, false);
        let Self { family, oldest_snapshot, log_time, older, part_bytes, .. } = self;
        let mut rows = Collecting::new(merge, &family, oldest_snapshot, log_time, older, part_bytes);
        let mut column = Vec::new();
        while rows.row().is_some() {
            let within_row = rows.is_within_row();
            if writer.has_work(within_row) {
                writer.work(within_row).await?;
            }
            rows.next(|cell| {
                let keeps_one = terrane_env::planted!("a flush keeps one version of a column");
                if !keeps_one || !continues(&mut column, &cell) {
                    writer.add(cell);
                }
            })?;
        }
        writer.finish(&self.bounds).await
    }
}

/// Whether a cell is of the column of the last one, which this replaces.
fn continues(last: &mut Vec<u8>, cell: &Cell<'_>) -> bool {
    let column = [cell.row, b"\0", cell.qualifier].concat();
    let again = *last == column;
    *last = column;
    again
}

/// The frozen memtables of a family, newest first.
fn memtables_of(frozen: &[Frozen], family: &FamilyName) -> Vec<Arc<dyn Source>> {
    let memtables = frozen.iter().rev().flat_map(|frozen| frozen.memtables.get(family)).flatten().cloned();
    memtables.map(|memtable| memtable as Arc<dyn Source>).collect()
}

/// Everything on disk is older than a memtable. Also where nothing is, tombstones stay until a compaction: HBase's clients may
/// write what they cover later, and find them.
fn older_than_memtables(levels: &Levels) -> OlderFiles {
    let mut older = OlderFiles::unknown();
    let ends = |file: &FileRef| (file.record.first_row.to_vec(), file.record.last_row.to_vec());
    levels.level0.iter().for_each(|file| older.add_sorted(vec![ends(file)]));
    levels.below.iter().for_each(|level| older.add_sorted(level.iter().map(ends).collect()));
    older
}
