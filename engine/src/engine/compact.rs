//! Carrying compactions out: which store is next, its rewrite in small steps, and the one record that puts it into force.
//!
//! - `stores`: the stores of a region as the picker sees them.
//! - `change`: what a compaction changes about the files of a family.
//!
//! # Order of things
//! - A job is picked and its files marked busy before the next one is picked, so that no two jobs work on the same cells.
//!   Dropping a [`Compaction`] gives it up.
//! - A rewrite reads its input files, which never change, while writes, flushes and reads continue. Between two steps it
//!   waits for its share of the disk ([`Pacing`](crate::compaction::Pacing)), and looks whether the engine is stopping.
//! - Outputs are synced, with their names, before the record. The record says what the files are from then on; it is
//!   written under the region's [`Recording`](crate::region::Recording), on top of what flushes have recorded meanwhile. A
//!   region that was split while its files were rewritten keeps the old ones: its daughters hold them.
//! - Cells are collected as of the recorded point, its rules and its log time: after a crash the log continues from there,
//!   and no reader wants to see less than that.

mod change;
mod stores;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrane_env::{task, time};
use terrane_types::FamilyName;

use self::change::Change;
use self::stores::{older_than, policy_of, sources_of, trees};
use super::{BoxFuture, Engine};
use crate::Error;
use crate::backend::{FamilyKey, FamilyWriter, WriterTarget};
use crate::collecting::Collecting;
use crate::compaction::{CompactionTotals, Debt, Job, Plan, Rewrite, debt, pick, pick_major, pressure};
use crate::levels::FileRef;
use crate::manifest::Record;
use crate::merging_cursor::MergingCursor;
use crate::region::Region;
use crate::source::Reading;

/// Bytes that one step reads before it waits for its share of the disk and lets others have the thread.
const STEP_BYTES: u64 = 1 << 20;

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
        self.region.compactions.release(&self.family, &self.job);
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

impl Engine {
    /// Requests a compaction of all of a region into its deepest level. It leaves out what is in memory: flush first.
    pub fn request_compaction(&self, region: &Region) {
        region.compactions.request(region.file_bytes(), self.has_levels());
    }

    /// How hard writers should be held back, in thousandths, as of the last [`Engine::next_compaction`]: 0 while compaction
    /// keeps up, 1000 where it is hopelessly behind.
    #[must_use]
    pub fn pressure(&self) -> u32 {
        self.pressure.load(Ordering::Relaxed)
    }

    /// What compactions have done, and what waits for them as of the last [`Engine::next_compaction`].
    #[must_use]
    pub fn compaction_totals(&self) -> CompactionTotals {
        *self.totals.lock()
    }

    /// Sets how many bytes of the disk are free for compactions. Unlimited until this is called.
    pub fn set_compaction_headroom(&self, bytes: u64) {
        self.headroom.set(bytes);
    }

    /// The bytes that the smallest of the compactions waiting for disk space needs, as of the last
    /// [`Engine::next_compaction`]; `None` when none waits.
    #[must_use]
    pub fn compaction_waits_for(&self) -> Option<u64> {
        self.headroom.awaited()
    }

    fn has_levels(&self) -> bool {
        self.backend.lsm().is_some()
    }

    /// The most urgent compaction that is not running; `None` when there is nothing to do, or when all of it is in the way
    /// of what is running.
    pub fn next_compaction(&self) -> Option<Compaction> {
        if !self.has_levels() {
            return None;
        }
        let mut best: Option<(u64, Compaction)> = None;
        let mut debts: Vec<Debt> = Vec::new();
        self.headroom.begin_search();
        for region in self.regions() {
            // A split is recorded first, or the region's files would be recorded under two names.
            if self.is_split_pending(&region) || region.compactions.is_held() {
                continue;
            }
            let wanted = region.compactions.is_wanted();
            let mut has_work = false;
            for (family, tree, policy) in trees(&region) {
                debts.push(debt(&tree, &policy));
                let (plan, score) = if wanted { (pick_major(&tree, &policy), u64::MAX) } else { pick(&tree, &policy) };
                has_work |= plan != Plan::Idle;
                let Some(job) = plan.job().filter(|_| self.headroom.admits(&plan, &tree)) else { continue };
                if best.as_ref().is_some_and(|(other, _)| *other >= score) {
                    continue;
                }
                // Before the one that it replaces is dropped.
                if !region.compactions.claim(&family, job.clone()) {
                    continue;
                }
                best = Some((score, Compaction { region: region.clone(), family, plan, job }));
            }
            if wanted && !has_work {
                region.compactions.finish_request();
            }
        }
        self.pressure.store(pressure(&debts, 0, 1), Ordering::Relaxed);
        self.totals.lock().bytes_pending = debts.iter().map(|debt| debt.pending_bytes).sum();
        best.map(|(_, compaction)| compaction)
    }

    /// Carries a compaction out. One that has become pointless, because its region was split or dropped, ends without a
    /// change, as does a running one when the engine stops.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corruption`]: nothing was recorded, the region reads as before, and trying again is safe.
    pub fn compact(self: &Arc<Self>, compaction: Compaction) -> BoxFuture<'_, Result<(), Error>> {
        let engine = Arc::clone(self);
        Box::pin(task::run_to_end(async move {
            let compacted = engine.carry_out(&compaction).await;
            engine.cleaned_up_after(compacted).await
        }))
    }

    async fn carry_out(&self, compaction: &Compaction) -> Result<(), Error> {
        let Compaction { region, family, plan, .. } = compaction;
        let change = match plan {
            Plan::Idle | Plan::Wait => return Ok(()),
            Plan::Move { file, to_level, .. } => {
                Change { moved: Some((*file, *to_level)), to_level: *to_level, ..Change::default() }
            }
            Plan::Drop { files } => Change { gone: files.iter().copied().collect(), ..Change::default() },
            Plan::Rewrite(rewrite) => match self.rewrite(region, family, rewrite).await? {
                Some(made) => {
                    let gone = rewrite.inputs.iter().map(|&(_, id)| id).collect();
                    Change { gone, moved: None, made, to_level: rewrite.to_level }
                }
                None => return Ok(()),
            },
        };
        tracing::debug!(region = %region.id(), %family, ?plan, files = change.made.len(), "compacted");
        self.record_compaction(region, family, change).await
    }

    /// Rewrites the inputs as new files; `None` when the engine is stopping or the inputs are gone.
    async fn rewrite(
        &self,
        region: &Arc<Region>,
        name: &FamilyName,
        rewrite: &Rewrite,
    ) -> Result<Option<Vec<FileRef>>, Error> {
        let Some((point, family, levels)) = region.recorded_store(name) else { return Ok(None) };
        let inputs: BTreeSet<u64> = rewrite.inputs.iter().map(|&(_, id)| id).collect();
        let Some(mut sources) = sources_of(&levels, &inputs) else { return Ok(None) };
        if terrane_env::planted!("a compaction leaves out an input") {
            sources.pop();
        }
        let older = older_than(&levels, &inputs, rewrite.to_level);
        let oldest_snapshot = region.begin_collection(point.stamp).min(point.sequence);
        let log_time = i64::try_from(point.stamp).unwrap_or(i64::MAX);
        let policy = policy_of(region, &family, point.stamp, oldest_snapshot);
        let writer = self.backend.store().writer(WriterTarget {
            key: FamilyKey { group: point.group, table: region.table(), family: name },
            storage: family.storage,
            prefix: region.prefix(),
            level: u8::try_from(rewrite.to_level).expect("there are a handful of levels"),
            file_bytes: if rewrite.to_level == 0 { u64::MAX } else { policy.file_bytes },
            collected: if older.is_empty() { (oldest_snapshot, log_time) } else { (0, 0) },
        })?;
        let bounds = region.bounds().clone();
        let cursors = sources.into_iter().map(|source| source.cursor(&bounds, false, Reading::BULK));
        // Opening the cursors reads, so that is a step by itself.
        let rows = task::run_blocking({
            let cursors: Vec<_> = cursors.collect::<Result<_, _>>()?;
            let part_bytes = region.part_bytes();
            move || {
                let merge = MergingCursor::new(cursors, false);
                Collecting::new(merge, &family, oldest_snapshot, log_time, older, part_bytes)
            }
        })
        .await;
        let Some(runner) = self.run(region, Runner { rows, writer }).await? else { return Ok(None) };
        let made = task::run_io(async move { runner.writer.finish(&bounds).await }).await?;
        if let Err(error) = self.backend.sync(!made.is_empty()).await {
            self.release(&made);
            return Err(error);
        }
        let written = made.iter().map(|file| file.record.size).sum::<u64>();
        self.totals.lock().bytes_written += written;
        Ok(Some(made))
    }

    /// Runs a rewrite step by step to its end; `None` when it was given up.
    async fn run(&self, region: &Region, mut runner: Runner) -> Result<Option<Runner>, Error> {
        let mut done = 0;
        loop {
            let (stepped, more) = task::run_io(runner.step()).await?;
            runner = stepped;
            let (_, bytes) = runner.rows.seen();
            let step = bytes - done;
            done = bytes;
            self.totals.lock().bytes_read += step;
            region.compactions.note_read(step);
            if !more {
                return Ok(Some(runner));
            }
            if self.is_stopping() || region.is_retired() {
                task::run_io(runner.writer.abandon()).await;
                return Ok(None);
            }
            if let Err(full) = self.headroom.check() {
                task::run_io(runner.writer.abandon()).await;
                return Err(full);
            }
            self.wait_for_share(step).await;
        }
    }

    /// Waits until the disk's budget covers what was just read, and about as much to be written.
    async fn wait_for_share(&self, bytes: u64) {
        let wait_ns = self.pacing.lock().take(time::now_ns(), bytes * 2, self.pressure());
        if wait_ns > 0 {
            tokio::time::sleep(Duration::from_nanos(wait_ns)).await;
        }
    }

    /// Puts a change of a family's files into force with one record.
    async fn record_compaction(&self, region: &Arc<Region>, family: &FamilyName, change: Change) -> Result<(), Error> {
        let held = region.lock_record().await;
        let recorded = region.recorded().ok().filter(|_| !self.is_split_pending(region));
        let changed = recorded.and_then(|(point, families, files)| {
            let files = change.applied_to(files, family)?;
            let record = region.record(point, families, &files);
            Some((files, record))
        });
        let Some((files, record)) = changed else {
            self.release(&change.made);
            drop(held);
            self.clean_up().await;
            return Ok(());
        };
        terrane_env::buggify_pause!("a compaction waits before its record").await;
        // After an error a restart may or may not find the record, so until that is known the new files stay, and the old.
        let appended = self.append(Record::Region(record)).await;
        appended.inspect_err(|_| self.backend.in_doubt(&change.made))?;
        self.release(&change.made);
        let of_family = files.into_iter().filter(|(name, _)| name == family).collect();
        let was_split = region.install_compacted(&held, of_family);
        drop(held);
        if was_split {
            // Split while the record was written: the daughters hold the old files, which only their own record will name, so
            // the files must not go before it is written.
            return Ok(());
        }
        self.totals.lock().compactions += 1;
        self.clean_up().await;
        Ok(())
    }
}

/// A running rewrite.
struct Runner {
    rows: Collecting,
    writer: Box<dyn FamilyWriter>,
}

impl Runner {
    /// Continues for about [`STEP_BYTES`]; returns whether there is more.
    async fn step(mut self) -> Result<(Self, bool), Error> {
        let (_, begun) = self.rows.seen();
        while self.rows.row().is_some() {
            if self.rows.seen().1 - begun
                >= terrane_env::limit!("bytes of a step of a compaction", STEP_BYTES, 64..=4096)
            {
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
