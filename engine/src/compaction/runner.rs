//! Carrying compactions out: which store is next, its rewrite in small steps, and the one record that puts it into force.
//!
//! # Order of things
//! - A job is picked and its files marked busy under one lock, so that no two jobs work on the same cells. Dropping a job
//!   gives it up.
//! - A rewrite reads the files of its inputs, which never change, beside writes, flushes and reads. Between two steps it
//!   waits for its share of the disk ([`Pacing`]), and looks whether the engine is asked to stop.
//! - Outputs are synced, with their names, before the record. The record says what the files are from then on; it is
//!   written under `Region::recording`, on top of whatever flushes have recorded meanwhile. A region that was split while
//!   its files were rewritten keeps the old ones: its daughters hold them.
//! - Cells are collected for the recorded point, its rules and its log time: after a crash the log goes on from there, and
//!   no reader comes who wants to see less than that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use terrane_env::{task, time};
use terrane_types::FamilyName;

use super::{Debt, FileSummary, Job, Plan, Policy, Rewrite, Tree, debt, pick, pick_major};
use crate::Error;
use crate::backend::{Backend, FamilyWriter, WriterTarget};
use crate::collecting::{Collecting, Older};
use crate::engine::Engine;
use crate::file::{FileRef, Levels};
use crate::flush::{BULK, region_record};
use crate::manifest::{FamilyRecord, FileRecord, Record};
use crate::merge::Merge;
use crate::reading::Source;
use crate::region::{Files, Region};

/// Bytes that one step reads before it waits for its share of the disk and lets others have the thread.
const STEP_BYTES: u64 = 1 << 20;

/// What a region knows of its compactions.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    busy: Mutex<BTreeMap<FamilyName, Vec<Job>>>,
    /// Somebody asked for all of the region to be compacted.
    wanted: AtomicBool,
    bytes_done: AtomicU64,
    bytes_total: AtomicU64,
}

/// How far the compaction that somebody asked for has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionProgress {
    /// Whether it is still to be finished.
    pub wanted: bool,
    /// Bytes of data read since it was asked for.
    pub bytes_done: u64,
    /// Bytes of data that the region's files held when it was asked for, or more when more came.
    pub bytes_total: u64,
}

/// One compaction that is to be carried out. Dropping it gives it up.
#[derive(Debug)]
pub struct Compaction {
    region: Arc<Region>,
    family: FamilyName,
    plan: Plan,
    job: Job,
}

impl Drop for Compaction {
    fn drop(&mut self) {
        let mut busy = self.region.compaction.busy.lock();
        if let Some(jobs) = busy.get_mut(&self.family)
            && let Some(at) = jobs.iter().position(|job| *job == self.job)
        {
            jobs.remove(at);
        }
    }
}

impl Compaction {
    /// The region that is compacted.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl std::fmt::Display for Compaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "compaction of family {} of region {}: {:?}", self.family, self.region.id(), self.plan)
    }
}

/// What an engine has done in compactions since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionTotals {
    /// Compactions carried out.
    pub compactions: u64,
    /// Bytes of data read.
    pub bytes_read: u64,
    /// Bytes of files written.
    pub bytes_written: u64,
    /// Bytes of data that wait to be compacted.
    pub bytes_pending: u64,
}

impl Region {
    /// How far the compaction that [`Engine::request_compaction`] asked for has come.
    #[must_use]
    pub fn compaction_progress(&self) -> CompactionProgress {
        let compaction = &self.compaction;
        let bytes_done = compaction.bytes_done.load(Ordering::Relaxed);
        CompactionProgress {
            wanted: compaction.wanted.load(Ordering::Relaxed),
            bytes_done,
            bytes_total: compaction.bytes_total.load(Ordering::Relaxed).max(bytes_done),
        }
    }
}

impl Engine {
    /// Asks for all of a region to be compacted into its deepest level. What is in memory is not part of it: flush first.
    pub fn request_compaction(&self, region: &Region) {
        let bytes = region.state.read().file_bytes();
        region.compaction.bytes_done.store(0, Ordering::Relaxed);
        region.compaction.bytes_total.store(bytes, Ordering::Relaxed);
        region.compaction.wanted.store(self.has_levels(), Ordering::Relaxed);
    }

    /// How hard writers are to be held back, in thousandths, as of the last [`Engine::next_compaction`]: 0 while
    /// compaction keeps up, 1000 where it is hopelessly behind.
    #[must_use]
    pub fn pressure(&self) -> u32 {
        self.pressure.load(Ordering::Relaxed)
    }

    /// What compactions have done, and what waits for them as of the last [`Engine::next_compaction`].
    #[must_use]
    pub fn compaction_totals(&self) -> CompactionTotals {
        *self.totals.lock()
    }

    fn has_levels(&self) -> bool {
        matches!(&*self.backend, Backend::Lsm(_))
    }

    /// The most urgent compaction that is not under way; `None` when there is nothing to do, or all of it is in the way of
    /// what is under way.
    pub fn next_compaction(&self) -> Option<Compaction> {
        if !self.has_levels() {
            return None;
        }
        let mut best: Option<(u64, Compaction)> = None;
        let mut debts: Vec<Debt> = Vec::new();
        self.compaction_room.search();
        for region in self.regions() {
            // What is not recorded yet is recorded first, or its files would be recorded under two names.
            if self.pending.lock().contains_key(&region.id()) {
                continue;
            }
            let wanted = region.compaction.wanted.load(Ordering::Relaxed);
            let mut has_work = false;
            for (family, tree, policy) in trees(&region) {
                debts.push(debt(&tree, &policy));
                let (plan, score) = if wanted { (pick_major(&tree, &policy), u64::MAX) } else { pick(&tree, &policy) };
                has_work |= plan != Plan::Idle;
                let Some(job) = plan.job().filter(|_| self.compaction_room.admits(&plan, &tree)) else { continue };
                if best.as_ref().is_some_and(|(other, _)| *other >= score) {
                    continue;
                }
                let compaction = Compaction { region: region.clone(), family: family.clone(), plan, job: job.clone() };
                // Before the one that it takes the place of is dropped.
                region.compaction.busy.lock().entry(family).or_default().push(job);
                best = Some((score, compaction));
            }
            if wanted && !has_work {
                region.compaction.wanted.store(false, Ordering::Relaxed);
            }
        }
        self.pressure.store(super::pressure(&debts, 0, 1), Ordering::Relaxed);
        self.totals.lock().bytes_pending = debts.iter().map(|debt| debt.pending_bytes).sum();
        best.map(|(_, compaction)| compaction)
    }

    /// Carries a compaction out. One that has become pointless, because its region was split or dropped, ends without a
    /// change, as does one under way when the engine is stopped.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corruption`]: nothing was recorded, the region reads as before, and trying again is safe.
    pub async fn compact(&self, compaction: Compaction) -> Result<(), Error> {
        let compacted = self.carry_out(&compaction).await;
        self.cleaned_up_after(compacted).await
    }

    async fn carry_out(&self, compaction: &Compaction) -> Result<(), Error> {
        let Compaction { region, family, plan, .. } = compaction;
        let change = match plan {
            Plan::Idle | Plan::Wait => return Ok(()),
            Plan::Move { file, to_level, .. } => {
                Change { gone: BTreeSet::new(), moved: Some((*file, *to_level)), made: Vec::new(), to_level: *to_level }
            }
            Plan::Drop { files } => {
                Change { gone: files.iter().copied().collect(), moved: None, made: Vec::new(), to_level: 0 }
            }
            Plan::Rewrite(rewrite) => match self.rewrite(region, family, rewrite).await? {
                Some(made) => Change {
                    gone: rewrite.inputs.iter().map(|&(_, id)| id).collect(),
                    moved: None,
                    made,
                    to_level: rewrite.to_level,
                },
                None => return Ok(()),
            },
        };
        tracing::debug!(region = %region.id(), %family, ?plan, files = change.made.len(), "compacted");
        self.record_compaction(region, family, change).await
    }

    /// Writes the inputs anew; `None` when the engine is being stopped or the inputs are gone.
    async fn rewrite(
        &self,
        region: &Arc<Region>,
        name: &FamilyName,
        rewrite: &Rewrite,
    ) -> Result<Option<Vec<FileRef>>, Error> {
        let (levels, point, family) = {
            let state = region.state.read();
            let (Some(store), Some(family)) = (state.stores.get(name), state.recorded.get(name)) else {
                return Ok(None);
            };
            (store.files.clone(), state.point.clone(), family.clone())
        };
        let inputs: BTreeSet<u64> = rewrite.inputs.iter().map(|&(_, id)| id).collect();
        let Some(sources) = sources_of(&levels, &inputs) else { return Ok(None) };
        let older = older_than(&levels, &inputs, rewrite.to_level);
        let settled = region.snapshots.begin_collection(point.stamp).min(point.sequence);
        let log_time = i64::try_from(point.stamp).unwrap_or(i64::MAX);
        let policy = policy_of(region, &family, point.stamp, settled);
        let collected = if older.is_empty() { (settled, log_time) } else { (0, 0) };
        let writer = self.backend.writer(WriterTarget {
            group: point.group,
            table: region.table(),
            family: name,
            storage: family.storage,
            prefix: region.prefix(),
            level: u8::try_from(rewrite.to_level).expect("there are a handful of levels"),
            file_bytes: if rewrite.to_level == 0 { u64::MAX } else { policy.file_bytes },
            collected,
        })?;
        let bounds = region.bounds().clone();
        let cursors = sources.into_iter().map(|source| source.cursor(&bounds, false, BULK));
        // Opening the cursors reads, so that is a step of its own.
        let rows = task::run_blocking({
            let cursors: Vec<_> = cursors.collect::<Result<_, _>>()?;
            let part_bytes = region.part_bytes();
            move || Collecting::new(Merge::new(cursors, false), &family, settled, log_time, older, part_bytes)
        })
        .await;
        let mut runner = Runner { rows, writer };
        let mut done = 0;
        loop {
            let (stepped, more) = task::run_io(runner.step()).await?;
            runner = stepped;
            let (_, bytes) = runner.rows.seen();
            self.note_read(region, bytes - done);
            let step = bytes - done;
            done = bytes;
            if !more {
                break;
            }
            if self.is_stopping() || region.state.read().retired {
                task::run_io(runner.writer.abandon()).await;
                return Ok(None);
            }
            if let Err(full) = self.compaction_room.check() {
                task::run_io(runner.writer.abandon()).await;
                return Err(full);
            }
            self.wait_for_share(step).await;
        }
        let made = task::run_io(async move { runner.writer.finish(&bounds).await }).await?;
        if let Err(error) = self.backend.sync(!made.is_empty()).await {
            self.settled(&made);
            return Err(error);
        }
        let written = made.iter().map(|file| file.record.size).sum::<u64>();
        self.totals.lock().bytes_written += written;
        Ok(Some(made))
    }

    fn note_read(&self, region: &Region, bytes: u64) {
        self.totals.lock().bytes_read += bytes;
        region.compaction.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits until the disk's budget has room for what was just read, and about as much to be written.
    async fn wait_for_share(&self, bytes: u64) {
        let wait_ns = self.pacing.lock().take(time::now_ns(), bytes * 2, self.pressure());
        if wait_ns > 0 {
            tokio::time::sleep(Duration::from_nanos(wait_ns)).await;
        }
    }

    /// Puts a change of a family's files into force with one record.
    async fn record_compaction(&self, region: &Arc<Region>, family: &FamilyName, change: Change) -> Result<(), Error> {
        let recording = region.recording.lock().await;
        let changed = {
            let state = region.state.read();
            let files = state.files();
            let valid = !state.retired && !self.pending.lock().contains_key(&region.id());
            valid.then(|| change.applied_to(files, family)).flatten().map(|files| {
                let record = region_record(region, state.point.clone(), state.recorded.clone(), &files);
                (files, record)
            })
        };
        let Some((files, record)) = changed else {
            self.settled(&change.made);
            drop(recording);
            self.clean_up().await;
            return Ok(());
        };
        // After an error a restart may find the record or not, so until then the new files stay, as the old ones do.
        let appended = self.append(Record::Region(record)).await;
        appended.inspect_err(|_| self.backend.in_doubt(&change.made))?;
        self.settled(&change.made);
        {
            let mut state = region.state.write();
            let of_family = files.into_iter().filter(|(name, _)| name == family).collect();
            state.set_files(of_family);
            state.refresh();
            if state.retired {
                // Split while the record was written: the daughters hold the old files, which only they name from now on.
                // Their own record will, so the files must not go before it is written.
                drop(state);
                drop(recording);
                return Ok(());
            }
        }
        drop(recording);
        self.totals.lock().compactions += 1;
        self.clean_up().await;
        Ok(())
    }
}

/// A rewrite under way.
struct Runner {
    rows: Collecting,
    writer: FamilyWriter,
}

impl Runner {
    /// Goes on for about [`STEP_BYTES`]; answers whether there is more.
    async fn step(mut self) -> Result<(Self, bool), Error> {
        let (_, begun) = self.rows.seen();
        while self.rows.row().is_some() {
            if self.rows.seen().1 - begun >= STEP_BYTES {
                return Ok((self, true));
            }
            let within_row = self.rows.is_within_row();
            if self.writer.has_work(within_row) {
                self.writer.work(within_row).await?;
            }
            self.rows.next(|cell| self.writer.add(cell))?;
        }
        Ok((self, false))
    }
}

/// What a compaction changes about a family's files.
struct Change {
    gone: BTreeSet<u64>,
    moved: Option<(u64, usize)>,
    made: Vec<FileRef>,
    to_level: usize,
}

impl Change {
    /// The region's files with the change; `None` when a file that it is about is not there any more.
    fn applied_to(&self, mut files: Files, family: &FamilyName) -> Option<Files> {
        let levels = files.get_mut(family)?;
        let there: BTreeSet<u64> = levels.iter().map(|file| file.record.id).collect();
        let moved = self.moved.iter().map(|(id, _)| id);
        if !self.gone.iter().chain(moved).all(|id| there.contains(id)) {
            return None;
        }
        let mut all: Vec<FileRef> = Vec::with_capacity(there.len() + self.made.len());
        // In level 0 the output takes the place of the oldest input.
        let mut made = (self.to_level == 0).then_some(&self.made);
        for file in levels.iter() {
            if self.gone.contains(&file.record.id) {
                all.extend(made.take().into_iter().flatten().cloned());
            } else if let Some((id, to_level)) = self.moved.filter(|(id, _)| *id == file.record.id) {
                let level = u8::try_from(to_level).expect("there are a handful of levels");
                debug_assert_eq!(id, file.record.id);
                let record = Arc::new(FileRecord { level, ..(*file.record).clone() });
                all.push(FileRef { record, source: Arc::clone(&file.source) });
            } else {
                all.push(file.clone());
            }
        }
        if self.to_level > 0 {
            all.extend(self.made.iter().cloned());
        }
        *levels = Levels::new(all);
        Some(files)
    }
}

/// What is merged, newest first; `None` when a file is not there any more.
fn sources_of(levels: &Levels, inputs: &BTreeSet<u64>) -> Option<Vec<Arc<dyn Source>>> {
    let is_input = |file: &&FileRef| inputs.contains(&file.record.id);
    let chosen = Levels {
        level0: levels.level0.iter().filter(is_input).cloned().collect(),
        below: levels.below.iter().map(|level| level.iter().filter(is_input).cloned().collect()).collect(),
    };
    (chosen.iter().count() == inputs.len()).then(|| chosen.sources())
}

/// Files that hold what was written before the inputs, and are not among them.
fn older_than(levels: &Levels, inputs: &BTreeSet<u64>, to_level: usize) -> Older {
    let mut older = Older::default();
    let ends = |file: &FileRef| (file.record.first_inside().to_vec(), file.record.last_row.to_vec());
    if to_level == 0 {
        let oldest = levels.level0.iter().position(|file| inputs.contains(&file.record.id)).unwrap_or(0);
        levels.level0[..oldest].iter().for_each(|file| older.add_sorted(vec![ends(file)]));
    }
    for level in levels.below.iter().skip(to_level) {
        older.add_sorted(level.iter().filter(|file| !inputs.contains(&file.record.id)).map(ends).collect());
    }
    older
}

/// The stores of a region as the picker sees them.
fn trees(region: &Region) -> Vec<(FamilyName, Tree, Policy)> {
    let state = region.state.read();
    if state.retired {
        return Vec::new();
    }
    let settled = region.snapshots.oldest(state.point.stamp).min(state.point.sequence);
    let busy = region.compaction.busy.lock();
    let mut trees = Vec::new();
    for (name, store) in &state.stores {
        let Some(family) = state.recorded.get(name).filter(|_| !store.files.is_empty()) else { continue };
        let busy = busy.get(name).cloned().unwrap_or_default();
        let summaries = |files: &[FileRef]| files.iter().map(|file| summary_of(&file.record)).collect();
        let tree = Tree {
            level0: summaries(&store.files.level0),
            levels: store.files.below.iter().map(|level| summaries(level)).collect(),
            busy,
        };
        trees.push((name.clone(), tree, policy_of(region, family, state.point.stamp, settled)));
    }
    trees
}

fn policy_of(region: &Region, family: &FamilyRecord, stamp: u64, settled: u64) -> Policy {
    let (region_bytes, flush_bytes) = region.sizes();
    let last = family.rules.changes().last().expect("a history begins with one change and none is taken away");
    let rules = last.rules;
    Policy {
        ttl: rules.ttl_ms.map(Duration::from_millis),
        log_time_ms: i64::try_from(stamp).unwrap_or(i64::MAX),
        rules_drop_expired: rules.ttl_ms.is_some() && rules.min_versions == 0 && last.sequence <= settled,
        settled_sequence: settled,
        rules_sequence: last.sequence,
        ..Policy::new(region_bytes, flush_bytes)
    }
}

fn summary_of(record: &FileRecord) -> FileSummary {
    let last_row = if record.bounds.contains(&record.last_row) {
        record.last_row.clone()
    } else {
        // The greatest row below the bound is not known; the bound itself lies outside, and errs on the safe side.
        bytes::Bytes::copy_from_slice(&record.bounds.stop)
    };
    FileSummary {
        id: record.id,
        bytes: record.bytes,
        first_row: bytes::Bytes::copy_from_slice(record.first_inside()),
        last_row,
        min_timestamp: record.timestamps.0,
        max_timestamp: record.timestamps.1,
        min_sequence: record.sequences.0,
        max_sequence: record.sequences.1,
        cells: record.cells,
        deletes: record.deletes,
        straddles: record.straddles(),
        collected_sequence: record.collected.0,
        collected_ms: record.collected.1,
    }
}
