//! Merging two neighbours into one region: their files by reference, each with the bounds it had.
//!
//! Sequence numbers are counted by region, and so are the moments at which rules changed. Regions whose families have had
//! the same rules from the beginning can be merged as they are; after a change the histories name different numbers, and
//! cells of both sides cannot be judged by one of them. Such regions are refused.

use std::sync::Arc;

use terrane_types::KeyRange;

use crate::Error;
use crate::engine::{Engine, SplitDaughter};
use crate::flush::region_record;
use crate::manifest::Record;
use crate::region::{Files, Region};

impl Engine {
    /// Makes one region of two neighbours, as of `into.point`, whose sequence number is at least that of both. Called between
    /// two writes by whoever applies the log, with everything before frozen under points of its own; it is flushed first, and
    /// one manifest record does the rest.
    ///
    /// # Errors
    /// [`Error::NotMerged`] where they are no neighbours or have had different rules, [`Error::Retired`], or
    /// [`Error::Io`]: nothing has changed then, and trying again is safe.
    pub async fn merge(
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
            self.flush(region).await?;
            // Frozen here, under the point of the merge, it would say after a crash that the merge is done.
            if region.unflushed_from().is_some() {
                return Err(refused("what was written before is not frozen"));
            }
        }
        let _recording = (left.recording.lock().await, right.recording.lock().await);
        let (families, files) = {
            let (left_state, right_state) = (left.state.read(), right.state.read());
            if let Some(retired) = [(left, left_state.retired), (right, right_state.retired)].iter().find(|side| side.1)
            {
                return Err(Error::Retired { region: retired.0.id() });
            }
            let families = left_state.families();
            let same = families == right_state.families()
                && families.values().all(|family| family.since == 0 && family.rules.changes().len() == 1);
            if !same {
                return Err(refused("the rules of a family have changed, or are not the same"));
            }
            let mut files: Files = left_state.files();
            for (name, levels) in right_state.files() {
                if !files.entry(name).or_default().extend(&levels) {
                    return Err(refused("they hold parts of one file at different levels; compact both"));
                }
            }
            (families, files)
        };
        let range = KeyRange::new(left.range().start.clone(), right.range().end.clone());
        let range = range.map_err(|_| refused("they are not neighbours of one table"))?;
        let region = Region::new(into.region, left.table(), range, families.clone(), into.point.clone(), files.clone());
        region.set_prefix(left.prefix());
        let (region_bytes, flush_bytes) = left.sizes();
        region.set_sizes(region_bytes, flush_bytes);
        region.set_part_bytes(left.part_bytes());
        let record = region_record(&region, into.point, families, &files);
        self.append(Record::Merge { parents: [left.id(), right.id()], region: Box::new(record) }).await?;
        let region = Arc::new(region);
        for parent in [left, right] {
            parent.state.write().retired = true;
        }
        self.replace_regions(&[left.id(), right.id()], &region);
        Ok(region)
    }
}
