//! Splits and merges: in memory at once, in the manifest with the flush of what the new regions inherited.

use std::sync::Arc;

use terrane_env::task;
use terrane_types::GroupId;
use tokio::sync::MutexGuard;

use super::flush::FlushOutput;
use super::{BoxFuture, Engine};
use crate::Error;
use crate::backend::FamilyKey;
use crate::manifest::Record;
use crate::region::{FlushInput, Recording, Region, SplitDaughter};

/// A split or a merge that is not recorded in the manifest yet.
pub(super) struct PendingSplit {
    change: Change,
    /// Whether it is recorded; held while it is being recorded.
    recorded: tokio::sync::Mutex<bool>,
}

enum Change {
    Split { parent: Arc<Region>, daughters: [Arc<Region>; 2] },
    Merge { parents: [Arc<Region>; 2], merged: Arc<Region> },
}

impl Change {
    /// What is replaced, in the order of its rows.
    fn parents(&self) -> &[Arc<Region>] {
        match self {
            Self::Split { parent, .. } => std::slice::from_ref(parent),
            Self::Merge { parents, .. } => parents,
        }
    }

    /// What it is replaced by, in the order of its rows.
    fn children(&self) -> &[Arc<Region>] {
        match self {
            Self::Split { daughters, .. } => daughters,
            Self::Merge { merged, .. } => std::slice::from_ref(merged),
        }
    }

    fn is_of(&self, parent: &Region) -> bool {
        self.parents().iter().any(|region| region.key() == parent.key())
    }
}

impl PendingSplit {
    /// What is replaced, in the order of its rows.
    pub(super) fn parents(&self) -> &[Arc<Region>] {
        self.change.parents()
    }

    /// Waits for a record of it that is being made, and keeps others from being made while the result lives. True in it says
    /// that it is recorded, or need not be.
    pub(super) async fn hold(&self) -> MutexGuard<'_, bool> {
        self.recorded.lock().await
    }
}

/// A new region with what it writes of its inheritance.
type InheritedFlush = (FlushInput, FlushOutput);

impl Engine {
    /// Splits a region at `at`, in memory: both daughters take its files and frozen memtables by reference and serve at
    /// once. The parent is retired.
    ///
    /// # Errors
    /// [`Error::SplitPending`] when the parent itself comes from a split or merge that is not recorded yet (see
    /// [`Engine::finish_split`]), [`Error::BadBoundary`], or [`Error::Retired`].
    pub fn split(
        &self,
        parent: &Arc<Region>,
        at: &[u8],
        left: SplitDaughter,
        right: SplitDaughter,
    ) -> Result<(Arc<Region>, Arc<Region>), Error> {
        self.unless_pending(parent)?;
        parent.split(at, left, right, |left, right| {
            let daughters = [Arc::clone(left), Arc::clone(right)];
            self.register(Change::Split { parent: Arc::clone(parent), daughters });
        })
    }

    /// Makes one region of two neighbours, in memory, as of `into.point`, whose sequence number is at least that of both: it
    /// takes the files and frozen memtables of both by reference and serves at once. Both parents are retired.
    ///
    /// # Errors
    /// [`Error::SplitPending`] when a parent itself comes from a split or merge that is not recorded yet (see
    /// [`Engine::finish_split`]), [`Error::NotMerged`], or [`Error::Retired`].
    pub fn merge(&self, left: &Arc<Region>, right: &Arc<Region>, into: SplitDaughter) -> Result<Arc<Region>, Error> {
        self.unless_pending(left)?;
        self.unless_pending(right)?;
        Region::merge(left, right, into, |merged| {
            let parents = [Arc::clone(left), Arc::clone(right)];
            self.register(Change::Merge { parents, merged: Arc::clone(merged) });
        })
    }

    fn register(&self, change: Change) {
        let pending = Arc::new(PendingSplit { change, recorded: tokio::sync::Mutex::new(false) });
        let mut regions = self.regions.lock();
        let mut all_pending = self.pending_splits.lock();
        for parent in pending.change.parents() {
            regions.remove(&parent.key());
        }
        for child in pending.change.children() {
            regions.insert(child.key(), Arc::clone(child));
            all_pending.insert(child.key(), Arc::clone(&pending));
        }
    }

    /// Whether the region comes from a split or merge that is not recorded yet.
    pub(super) fn is_split_pending(&self, region: &Region) -> bool {
        self.pending_splits.lock().contains_key(&region.key())
    }

    fn unless_pending(&self, region: &Region) -> Result<(), Error> {
        if self.is_split_pending(region) { Err(Error::SplitPending { region: region.id() }) } else { Ok(()) }
    }

    /// The splits and merges of a group that are not recorded yet.
    pub(super) fn pending_of(&self, group: GroupId) -> Vec<Arc<PendingSplit>> {
        let mut found: Vec<Arc<PendingSplit>> = Vec::new();
        for pending in self.pending_splits.lock().values() {
            let is_of_group = pending.change.children().iter().any(|child| child.point().group == group);
            if is_of_group && !found.iter().any(|known| Arc::ptr_eq(known, pending)) {
                found.push(Arc::clone(pending));
            }
        }
        found
    }

    /// A split or merge need not be recorded any more.
    pub(super) fn forget_pending(&self, pending: &PendingSplit) {
        let children = pending.change.children();
        self.pending_splits.lock().retain(|key, _| !children.iter().any(|child| child.key() == *key));
    }

    /// Records the split or merge that a region came from, when that is still to be done.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub fn finish_split<'a>(self: &'a Arc<Self>, region: &'a Arc<Region>) -> BoxFuture<'a, Result<(), Error>> {
        let (engine, region) = (Arc::clone(self), Arc::clone(region));
        Box::pin(task::run_to_end(async move { engine.finish_split_here(&region).await }))
    }

    pub(super) async fn finish_split_here(&self, region: &Arc<Region>) -> Result<(), Error> {
        let pending = self.pending_splits.lock().get(&region.key()).cloned();
        let Some(pending) = pending else { return Ok(()) };
        let recorded = self.record_pending(&pending).await;
        self.cleaned_up_after(recorded).await
    }

    async fn record_pending(&self, pending: &PendingSplit) -> Result<(), Error> {
        let mut recorded = pending.recorded.lock().await;
        if *recorded {
            return Ok(());
        }
        let change = &pending.change;
        // A flush of a parent that began before the change ends first, one way or the other.
        let mut held = Vec::with_capacity(2);
        for parent in change.parents() {
            let of_parent = parent.lock_record().await;
            self.remove_unrecorded(parent, &of_parent).await?;
            held.push(of_parent);
        }
        let mut inherited = Vec::with_capacity(2);
        for child in change.children() {
            match self.write_inherited(child).await {
                Ok(written) => inherited.push(written),
                Err(error) => {
                    inherited.iter().for_each(|(_, flushed)| self.release(&flushed.made));
                    return Err(error);
                }
            }
        }
        terrane_env::buggify_pause!("a split waits before its record").await;
        if let Err(error) = self.append(record_of(change, &inherited)).await {
            inherited.iter().for_each(|(_, flushed)| self.backend.in_doubt(&flushed.made));
            return Err(error);
        }
        let held: &Recording<'_> = held.first().expect("something is replaced");
        for (child, (input, flushed)) in change.children().iter().zip(inherited) {
            self.release(&flushed.made);
            child.install(held, &input, flushed.files);
        }
        *recorded = true;
        self.forget_pending(pending);
        self.clean_up().await;
        Ok(())
    }

    /// Writes what a new region inherited.
    async fn write_inherited(&self, region: &Arc<Region>) -> Result<InheritedFlush, Error> {
        let mut input = region.begin_inherited_flush();
        let mut flushed = self.write_frozen(region, &mut input).await?;
        if let Err(error) = self.separate(region, &mut flushed).await {
            self.release(&flushed.made);
            return Err(error);
        }
        Ok((input, flushed))
    }

    /// Gives further parts of a file that a merge brought together twice names of their own: files are known by id.
    async fn separate(&self, region: &Region, flushed: &mut FlushOutput) -> Result<(), Error> {
        let FlushOutput { files, made, .. } = flushed;
        let mut any = false;
        for (name, levels) in files {
            let key = FamilyKey { group: region.key().0, table: region.table(), family: name };
            for part in levels.doubles() {
                let linked = self.backend.store().linked(&part, key).await?;
                levels.replace(&part, linked.as_ref());
                made.extend(linked);
                any = true;
            }
        }
        self.backend.sync(any).await
    }

    /// The parent was split or merged while its flush was being recorded: the new regions get the files.
    pub(super) fn hand_down(&self, parent: &Region) {
        let pending = self.pending_splits.lock().values().find(|pending| pending.change.is_of(parent)).cloned();
        match pending.as_ref().map(|pending| &pending.change) {
            Some(Change::Split { daughters: [left, right], .. }) => parent.hand_down([left, right]),
            Some(Change::Merge { parents: [left, right], merged }) => merged.take_over(left, right),
            None => {}
        }
    }
}

fn record_of(change: &Change, inherited: &[InheritedFlush]) -> Record {
    let mut records = change.children().iter().zip(inherited).map(|(child, (input, flushed))| {
        let last = input.last();
        child.record(last.point.clone(), last.families.clone(), &flushed.files)
    });
    let mut next = || records.next().expect("each new region has written its inheritance");
    match change {
        Change::Split { parent, .. } => Record::Split { parent: parent.id(), daughters: Box::new([next(), next()]) },
        Change::Merge { parents: [left, right], .. } => {
            Record::Merge { parents: [left.id(), right.id()], region: Box::new(next()) }
        }
    }
}
