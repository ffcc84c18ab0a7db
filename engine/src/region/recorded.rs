//! The parts of a region's life that change its manifest record: flushes, compactions, ingests, merges.
//!
//! Each change of the record holds [`Recording`], so that records reach the manifest in the order of what they say.

use terrane_env::sync::atomic::Ordering;
use terrane_env::sync::is_planted;
use terrane_types::FamilyName;

use super::{Frozen, Region};
use crate::Error;
use crate::compaction::Job;
use crate::levels::{Levels, RegionFiles};
use crate::manifest::{Families, FamilyRecord, RegionRecord};
use crate::point::DurablePoint;

/// The right to change a region's record. A daughter whose split is not recorded is covered by its parent's.
pub(crate) struct Recording<'a>(
    #[allow(dead_code, reason = "held until it is dropped")] tokio::sync::MutexGuard<'a, ()>,
);

/// What a flush writes.
pub(crate) struct FlushInput {
    /// Oldest first, never empty.
    pub(crate) frozen: Vec<Frozen>,
    pub(crate) files: RegionFiles,
    /// Readers need nothing below this sequence number.
    pub(crate) oldest_snapshot: u64,
}

impl FlushInput {
    /// What the flush records: the last frozen point.
    pub(crate) fn last(&self) -> &Frozen {
        self.frozen.last().expect("a flush begins with something frozen")
    }

    /// Whether no cell is to be written: only the point moves.
    pub(crate) fn is_empty(&self) -> bool {
        self.frozen.iter().all(|frozen| frozen.memtables.values().all(|memtables| memtables.is_empty()))
    }
}

/// A store as recorded, for the choice of its next compaction.
pub(crate) struct RecordedStore {
    pub(crate) name: FamilyName,
    pub(crate) family: FamilyRecord,
    pub(crate) files: Levels,
    pub(crate) busy: Vec<Job>,
}

impl Region {
    /// Waits until no other change of the record is under way.
    pub(crate) async fn lock_record(&self) -> Recording<'_> {
        Recording(self.recording.lock().await)
    }

    /// The right to change the record, unless another change of it is under way.
    pub(crate) fn try_lock_record(&self) -> Option<Recording<'_>> {
        self.recording.try_lock().ok().map(Recording)
    }

    /// The record of the region with these files, as of `point`.
    pub(crate) fn record(&self, point: DurablePoint, families: Families, files: &RegionFiles) -> RegionRecord {
        let records = |levels: &Levels| levels.iter().map(|file| (*file.record).clone()).collect();
        RegionRecord {
            region: self.id(),
            table: self.table(),
            range: self.range().clone(),
            point,
            families,
            files: files.iter().map(|(name, levels)| (name.clone(), records(levels))).collect(),
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.state.read().retired
    }

    /// No flush, compaction or ingest of this region is recorded any more.
    pub(crate) fn retire(&self, _held: &Recording<'_>) {
        self.state.write().retired = true;
    }

    fn unless_retired<T>(&self, get: impl FnOnce(&super::State) -> T) -> Result<T, Error> {
        let state = self.state.read();
        if state.retired {
            return Err(Error::Retired { region: self.id() });
        }
        Ok(get(&state))
    }

    /// Everything frozen, to be flushed; `None` when nothing is, or the region is retired.
    pub(crate) fn begin_flush(&self) -> Option<FlushInput> {
        let state = self.state.read();
        let last = state.frozen.last().filter(|_| !state.retired)?;
        // Under the lock: a split after this passes the limit of collection on to the daughters, which get the result.
        let oldest_snapshot = self.snapshots.begin_collection(last.point.stamp);
        Some(FlushInput { frozen: state.frozen.clone(), files: state.files(), oldest_snapshot })
    }

    /// What a daughter inherited from its parent, to be flushed with the split.
    pub(crate) fn begin_inherited_flush(&self) -> FlushInput {
        let (inherited, files) = {
            let state = self.state.read();
            (state.frozen[0].clone(), state.files())
        };
        let oldest_snapshot = self.snapshots.begin_collection(inherited.point.stamp);
        FlushInput { frozen: vec![inherited], files, oldest_snapshot }
    }

    /// Readers find the files instead of the flushed memtables, from one moment to the next. Returns whether the region
    /// was split before that moment.
    pub(crate) fn install(&self, _held: &Recording<'_>, flushed: &FlushInput, files: RegionFiles) -> bool {
        let mut state = self.state.write();
        state.frozen.drain(..flushed.frozen.len());
        if is_planted("memtables leave before their files come") {
            state.refresh();
            drop(state);
            state = self.state.write();
        }
        state.set_files(files);
        let last = flushed.last();
        state.set_point(last.point.clone(), last.families.clone());
        state.refresh();
        self.unrecorded.store(false, Ordering::Release);
        state.retired
    }

    /// Notes that a flush begins to write cells that no record names. Returns whether an earlier one may have left some.
    pub(crate) fn mark_unrecorded(&self, _held: &Recording<'_>) -> bool {
        self.unrecorded.swap(true, Ordering::AcqRel)
    }

    /// The files as recorded, with the point they are of.
    pub(crate) fn recorded_files(&self) -> Result<(DurablePoint, RegionFiles), Error> {
        self.unless_retired(|state| (state.point.clone(), state.files()))
    }

    /// The families as they are now, and the files.
    pub(crate) fn families_and_files(&self) -> Result<(Families, RegionFiles), Error> {
        self.unless_retired(|state| (state.families(), state.files()))
    }

    /// Everything recorded.
    pub(crate) fn recorded(&self) -> Result<(DurablePoint, Families, RegionFiles), Error> {
        self.unless_retired(|state| (state.point.clone(), state.recorded.clone(), state.files()))
    }

    /// A family's files and rules as recorded; `None` where the family is gone, or not recorded yet.
    pub(crate) fn recorded_store(&self, name: &FamilyName) -> Option<(DurablePoint, FamilyRecord, Levels)> {
        let state = self.state.read();
        let (store, family) = (state.stores.get(name)?, state.recorded.get(name)?);
        Some((state.point.clone(), family.clone(), store.files.clone()))
    }

    /// The stores that have files and are recorded, with the compactions that run on them; none of a retired region.
    pub(crate) fn recorded_stores(&self) -> (DurablePoint, Vec<RecordedStore>) {
        let state = self.state.read();
        let busy = self.compactions.busy();
        let stores = state.stores.iter().filter(|(_, store)| !state.retired && !store.files.is_empty());
        let recorded = stores.filter_map(|(name, store)| {
            let family = state.recorded.get(name)?.clone();
            let busy = busy.get(name).cloned().unwrap_or_default();
            Some(RecordedStore { name: name.clone(), family, files: store.files.clone(), busy })
        });
        (state.point.clone(), recorded.collect())
    }

    /// Readers find these files, which a compaction has recorded. Returns whether the region was split before that.
    pub(crate) fn install_compacted(&self, _held: &Recording<'_>, files: RegionFiles) -> bool {
        let mut state = self.state.write();
        state.set_files(files);
        state.refresh();
        state.retired
    }

    /// Readers find these files, which an ingest has recorded as of `point`.
    pub(crate) fn install_ingested(&self, _held: &Recording<'_>, point: DurablePoint, files: RegionFiles) {
        let mut state = self.state.write();
        state.set_files(files);
        let (families, sequence) = (state.families(), point.sequence);
        state.set_point(point, families);
        state.refresh();
        drop(state);
        self.snapshots.publish(sequence, false);
    }

    /// Closes the past of the region to new snapshots, as of a log time, for a collection up to the returned number.
    pub(crate) fn begin_collection(&self, log_time_ms: u64) -> u64 {
        self.snapshots.begin_collection(log_time_ms)
    }

    /// Up to where a collection could begin as of a log time.
    pub(crate) fn oldest_snapshot(&self, log_time_ms: u64) -> u64 {
        self.snapshots.oldest(log_time_ms)
    }
}
