//! Merging two neighbours into one region: their files by reference, each with the bounds it had.
//!
//! Sequence numbers are counted per region, and so are the moments at which rules changed. Regions whose families have had
//! the same rules from the beginning can be merged as they are; after a change the histories name different numbers, and
//! the cells of both sides cannot be judged by one history. Such regions are refused.

use std::sync::Arc;

use terrane_env::task;
use terrane_types::KeyRange;

use super::{BoxFuture, Engine};
use crate::Error;
use crate::manifest::Record;
use crate::region::{Region, SplitDaughter};

impl Engine {
    /// Makes one region of two neighbours, as of `into.point`, whose sequence number is at least that of both. Called between
    /// two writes by the code that applies the log, with everything before frozen under its own points; it is flushed first,
    /// and one manifest record does the rest.
    ///
    /// # Errors
    /// [`Error::NotMerged`] where they are not neighbours or have had different rules, [`Error::Retired`], or
    /// [`Error::Io`]: nothing has changed then, and trying again is safe.
    pub fn merge<'a>(
        self: &'a Arc<Self>,
        left: &'a Arc<Region>,
        right: &'a Arc<Region>,
        into: SplitDaughter,
    ) -> BoxFuture<'a, Result<Arc<Region>, Error>> {
        let (engine, left, right) = (Arc::clone(self), Arc::clone(left), Arc::clone(right));
        Box::pin(task::run_to_end(async move { engine.merge_here(&left, &right, into).await }))
    }

    async fn merge_here(
        &self,
        left: &Arc<Region>,
        right: &Arc<Region>,
        into: SplitDaughter,
    ) -> Result<Arc<Region>, Error> {
        let refused = |why| Error::NotMerged { left: left.id(), right: right.id(), why };
        if left.range().end.is_empty() || left.range().end != right.range().start || left.table() != right.table() {
            return Err(refused("they are not neighbours of one table"));
        }
        for region in [left, right] {
            self.flush_here(region).await?;
            // Frozen here, under the point of the merge, it would say after a crash that the merge is done.
            if region.unflushed_from().is_some() {
                return Err(refused("earlier writes are not frozen"));
            }
        }
        // In the order of their rows, here as everywhere two are locked.
        let (left_held, right_held) = (left.lock_record().await, right.lock_record().await);
        let (families, mut files) = left.families_and_files()?;
        let (right_families, right_files) = right.families_and_files()?;
        let same = families == right_families
            && families.values().all(|family| family.since == 0 && family.rules.changes().len() == 1);
        if !same {
            return Err(refused("the rules of a family have changed, or are not the same"));
        }
        for (name, levels) in right_files {
            if !files.entry(name).or_default().extend(&levels) {
                return Err(refused("they hold parts of one file at different levels; compact both"));
            }
        }
        let range = KeyRange::new(left.range().start.clone(), right.range().end.clone());
        let range = range.map_err(|_| refused("they are not neighbours of one table"))?;
        let region = Region::new(into.region, left.table(), range, families.clone(), into.point.clone(), files.clone());
        region.inherit_settings(left);
        let record = region.record(into.point, families, &files);
        self.append(Record::Merge { parents: [left.id(), right.id()], region: Box::new(record) }).await?;
        let region = Arc::new(region);
        left.retire(&left_held);
        right.retire(&right_held);
        self.replace_regions(&[left.id(), right.id()], &region);
        Ok(region)
    }
}
