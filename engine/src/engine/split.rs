//! Splits: in memory at once, in the manifest with the flush of what the daughters inherited.

use std::sync::Arc;

use terrane_env::task;

use super::flush::Flushed;
use super::{BoxFuture, Engine};
use crate::Error;
use crate::manifest::Record;
use crate::region::{FlushInput, Region, SplitDaughter};

/// A split that is not recorded in the manifest yet.
pub(super) struct PendingSplit {
    pub(super) parent: Arc<Region>,
    pub(super) left: Arc<Region>,
    pub(super) right: Arc<Region>,
    /// Whether it is recorded; held while it is being recorded.
    recorded: tokio::sync::Mutex<bool>,
}

impl Engine {
    /// Splits a region at `at`, in memory: both daughters take its files and frozen memtables by reference and serve at
    /// once. The parent is retired.
    ///
    /// # Errors
    /// [`Error::SplitPending`] when the parent itself comes from a split that is not recorded yet (see
    /// [`Engine::finish_split`]), [`Error::BadBoundary`], or [`Error::Retired`].
    pub fn split(
        &self,
        parent: &Arc<Region>,
        at: &[u8],
        left: SplitDaughter,
        right: SplitDaughter,
    ) -> Result<(Arc<Region>, Arc<Region>), Error> {
        if self.is_split_pending(parent) {
            return Err(Error::SplitPending { region: parent.id() });
        }
        parent.split(at, left, right, |left, right| self.register_split(parent, left, right))
    }

    fn register_split(&self, parent: &Arc<Region>, left: &Arc<Region>, right: &Arc<Region>) {
        let split = Arc::new(PendingSplit {
            parent: Arc::clone(parent),
            left: Arc::clone(left),
            right: Arc::clone(right),
            recorded: tokio::sync::Mutex::new(false),
        });
        let mut regions = self.regions.lock();
        let mut pending = self.pending_splits.lock();
        regions.remove(&parent.id());
        for region in [left, right] {
            regions.insert(region.id(), Arc::clone(region));
            pending.insert(region.id(), Arc::clone(&split));
        }
    }

    /// Whether the region comes from a split that is not recorded yet.
    pub(super) fn is_split_pending(&self, region: &Region) -> bool {
        self.pending_splits.lock().contains_key(&region.id())
    }

    /// Records the split that a region came from, when that is still to be done.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub fn finish_split<'a>(self: &'a Arc<Self>, region: &'a Arc<Region>) -> BoxFuture<'a, Result<(), Error>> {
        let (engine, region) = (Arc::clone(self), Arc::clone(region));
        Box::pin(task::run_to_end(async move { engine.finish_split_here(&region).await }))
    }

    pub(super) async fn finish_split_here(&self, region: &Arc<Region>) -> Result<(), Error> {
        let pending = self.pending_splits.lock().get(&region.id()).cloned();
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
        let held = split.parent.lock_record().await;
        self.remove_unrecorded(&split.parent, &held).await?;
        let left = self.write_inherited(&split.left).await?;
        let right = match self.write_inherited(&split.right).await {
            Ok(right) => right,
            Err(error) => {
                self.release(&left.1.made);
                return Err(error);
            }
        };
        let record_of = |region: &Region, (input, flushed): &(FlushInput, Flushed)| {
            let last = input.last();
            region.record(last.point.clone(), last.families.clone(), &flushed.files)
        };
        terrane_env::buggify_pause!("a split waits before its record").await;
        let daughters = Box::new([record_of(&split.left, &left), record_of(&split.right, &right)]);
        if let Err(error) = self.append(Record::Split { parent: split.parent.id(), daughters }).await {
            self.backend.in_doubt(&left.1.made);
            self.backend.in_doubt(&right.1.made);
            return Err(error);
        }
        self.release(&left.1.made);
        self.release(&right.1.made);
        for (region, (input, flushed)) in [(&split.left, left), (&split.right, right)] {
            region.install(&held, &input, flushed.files);
        }
        *recorded = true;
        self.pending_splits.lock().retain(|_, waiting| waiting.parent.id() != split.parent.id());
        self.clean_up().await;
        Ok(())
    }

    /// Writes what a daughter inherited from its parent.
    async fn write_inherited(&self, region: &Arc<Region>) -> Result<(FlushInput, Flushed), Error> {
        let mut input = region.begin_inherited_flush();
        let flushed = self.write_frozen(region, &mut input).await?;
        Ok((input, flushed))
    }

    /// The parent was split while its flush was being recorded: its daughters get the files.
    pub(super) fn hand_down(&self, parent: &Region) {
        let split = self.pending_splits.lock().values().find(|split| split.parent.id() == parent.id()).cloned();
        if let Some(split) = split {
            parent.hand_down([&split.left, &split.right]);
        }
    }
}
