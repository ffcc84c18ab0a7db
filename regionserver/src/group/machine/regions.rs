//! Applies what entries say about tables and regions: creating, altering, dropping, splitting, merging.

use std::time::Duration;

use terrane_engine::{DurablePoint, Region, RegionSpec, SplitDaughter};
use terrane_env::task::abort_process;
use terrane_raft::AppliedEntry;
use terrane_types::{RegionId, TableSchema};
use tokio::time::Instant;

use super::{GroupMachine, Inner};
use crate::group::region_state::RegionState;
use crate::group::reply::Reply;
use crate::operation::{ChangeTables, Merge, Split};
use crate::region::bloom_prefix::row_prefix;
use crate::replicas::hosted::HostedRegion;
use crate::window::Window;

/// How long a split, merge or load waits for space on a full disk before the process ends, to be started again by its supervisor, and
/// how often it tries meanwhile.
pub(super) const FULL_DISK_PATIENCE: Duration = Duration::from_secs(60);
pub(super) const FULL_DISK_RETRY: Duration = Duration::from_millis(100);

/// A daughter takes over one part in so many of its parent's load.
const SHARE_OF_A_DAUGHTER: u64 = 2;

impl GroupMachine {
    pub(super) fn change_tables(&self, inner: &mut Inner, entry: &AppliedEntry, change: &ChangeTables) {
        let is_recorded = entry.index <= inner.recorded;
        let changes = inner.state.change_tables(change, is_recorded);
        // Many new regions are put in the manifest together, when the group's state is recorded next.
        let has_many = changes.created.len() > 1 && !is_recorded;
        for created in changes.created {
            let region = self.engine.create(region_spec(&created), entry.index);
            set_attributes(&region, &created.schema);
            let hosted = HostedRegion::new(created, region, 0);
            hosted.set_in_manifest(false);
            inner.hosted.insert(hosted.region, hosted.clone());
            self.regions.insert(hosted.clone());
            if !has_many {
                self.signals.request_flush(hosted.region);
            }
        }
        for (region, before) in changes.altered {
            inner.alter(region, entry, &before);
        }
        for region in changes.dropped {
            inner.discard(region);
            self.regions.remove(region, self.group);
        }
        inner.mark_dirty(entry.index);
        self.signals.wake();
    }

    /// Waits until the splits or merges that these regions came from are on disk: a region is not split or merged before
    /// that. On a full disk it waits for space, and with it the group: what frees space (compactions, dropped tables)
    /// concerns others.
    pub(super) async fn finish_origins(&self, parents: &[RegionId], index: u64) {
        for region in parents {
            let parent = self.inner.lock().hosted.get(region).cloned();
            let Some(parent) = parent.filter(|parent| parent.opened_at < index) else { continue };
            let began = Instant::now();
            while let Err(error) = self.engine.finish_split(&parent.engine).await {
                if !error.is_disk_full() || began.elapsed() > FULL_DISK_PATIENCE {
                    abort_process(&format!(
                        "cannot split or merge region {region}, because its files cannot be written: {error}"
                    ));
                }
                tokio::time::sleep(FULL_DISK_RETRY).await;
            }
        }
    }

    pub(super) fn split(&self, inner: &mut Inner, entry: &AppliedEntry, split: &Split) -> Result<Reply, Reply> {
        let Some(parent) = inner.hosted.get(&split.region).cloned() else {
            let refusal = inner.state.stale(split.region);
            // After a restart the daughters may be on disk already, but not yet the record that they came from this region.
            if inner.state.note_split(split) {
                inner.mark_dirty(entry.index);
            }
            return Err(refusal);
        };
        if entry.index <= parent.opened_at {
            // The region is on disk as it was after this entry, so the entry was refused.
            return Err(inner.state.stale(split.region));
        }
        let (left, right) = inner.state.split(split)?;
        let window = inner.windows.remove(&split.region).unwrap_or_default();
        let recorded = window.encode();
        let daughter = |state: &RegionState| SplitDaughter {
            region: state.descriptor.region,
            point: DurablePoint {
                group: self.group,
                index: entry.index,
                sequence: parent.engine.sequence(),
                stamp: entry.stamp,
                descriptor: state.encode(),
                window: recorded.clone(),
            },
        };
        let halves = self.engine.split(&parent.engine, &split.at, daughter(&left), daughter(&right));
        let (left_half, right_half) = halves.unwrap_or_else(|error| {
            abort_process(&format!("cannot split region {}: {error}", split.region));
        });
        let daughters = vec![left.descriptor.clone(), right.descriptor.clone()];
        inner.hosted.remove(&split.region);
        for (state, half) in [(left, left_half), (right, right_half)] {
            let hosted = HostedRegion::new(state, half, 0);
            hosted.set_in_manifest(false);
            hosted.load.inherit(&parent.load, SHARE_OF_A_DAUGHTER);
            if terrane_env::planted!("a split's load is counted for both daughters") {
                hosted.load.inherit(&parent.load, SHARE_OF_A_DAUGHTER);
            }
            // A retry of what was applied to the parent goes to either of the two.
            if !terrane_env::planted!("a split forgets the window") {
                inner.windows.insert(hosted.region, window.clone());
            }
            // Readers of the parent find their snapshot here if they come soon.
            hosted.hold_handed_down();
            hosted.continue_from(&parent);
            inner.hosted.insert(hosted.region, hosted.clone());
            self.regions.insert(hosted.clone());
            self.signals.request_flush(hosted.region);
        }
        // Only now: a request always finds the parent or the daughters, never a gap.
        self.regions.remove(split.region, self.group);
        inner.mark_dirty(entry.index);
        self.metrics.splits.inc();
        Ok(Reply::Split { daughters })
    }
}

impl GroupMachine {
    pub(super) fn merge(&self, inner: &mut Inner, entry: &AppliedEntry, merge: &Merge) -> Result<Reply, Reply> {
        let hosted = |region| inner.hosted.get(&region).cloned().ok_or(region);
        let (left, right) = match (hosted(merge.left), hosted(merge.right)) {
            (Ok(left), Ok(right)) => (left, right),
            (Err(gone), _) | (_, Err(gone)) => {
                let refusal = inner.state.stale(gone);
                // As with a split: the merged region may be on disk already, but not where it came from.
                if inner.state.note_merge(merge) {
                    inner.mark_dirty(entry.index);
                }
                return Err(refusal);
            }
        };
        if let Some(later) = [&left, &right].into_iter().find(|parent| entry.index <= parent.opened_at) {
            // The region is on disk as it was after this entry, so the entry was refused.
            return Err(inner.state.stale(later.region));
        }
        let state = inner.state.merge(merge)?;
        let [mut of_left, of_right] =
            [merge.left, merge.right].map(|region| inner.windows.remove(&region).unwrap_or_default());
        if !terrane_env::planted!("a merge forgets the window of one side") {
            of_left = Window::united(of_left, of_right);
        }
        let into = SplitDaughter {
            region: merge.into,
            point: DurablePoint {
                group: self.group,
                index: entry.index,
                // Above the numbers of both sides, so that later writes act after theirs.
                sequence: left.engine.sequence().max(right.engine.sequence()),
                stamp: entry.stamp,
                descriptor: state.encode(),
                window: of_left.encode(),
            },
        };
        let region = self.engine.merge(&left.engine, &right.engine, into).unwrap_or_else(|error| {
            abort_process(&format!("cannot merge regions {} and {}: {error}", merge.left, merge.right));
        });
        set_attributes(&region, &state.schema);
        let descriptor = state.descriptor.clone();
        let hosted = HostedRegion::new(state, region, 0);
        hosted.set_in_manifest(false);
        [&left, &right].iter().for_each(|parent| hosted.load.inherit(&parent.load, 1));
        inner.windows.insert(merge.into, of_left);
        inner.hosted.insert(merge.into, hosted.clone());
        self.regions.insert(hosted);
        // Only now: a request always finds a parent or the merged region, never a gap.
        for parent in [merge.left, merge.right] {
            inner.hosted.remove(&parent);
            self.regions.remove(parent, self.group);
        }
        self.signals.request_flush(merge.into);
        inner.mark_dirty(entry.index);
        self.metrics.merges.inc();
        Ok(Reply::Merged { region: descriptor })
    }
}

impl Inner {
    /// Gives a region its new schema: families, rules, how files are written. A change of what readers see takes a sequence
    /// number, as a write does.
    pub(super) fn alter(&mut self, region: RegionId, entry: &AppliedEntry, before: &TableSchema) {
        let (Some(hosted), Some(state)) = (self.hosted.get(&region), self.state.region(region)) else {
            return;
        };
        let next = hosted.engine.sequence() + 1;
        let mut changes_views = false;
        for family in &state.schema.families {
            let known = before.families.iter().find(|known| known.name == family.name);
            if known.is_none_or(|known| known.rules != family.rules || known.storage != family.storage) {
                hosted.engine.set_family(next, entry.stamp, family);
                changes_views |= known.is_none_or(|known| known.rules != family.rules);
            }
        }
        for gone in before.families.iter().filter(|known| state.schema.family(known.name.as_bytes()).is_none()) {
            if !terrane_env::planted!("a dropped family keeps its cells") {
                hosted.engine.remove_family(&gone.name);
            }
        }
        if changes_views {
            hosted.engine.advance(entry.stamp);
            hosted.engine.take_sequence(next);
        }
        set_attributes(&hosted.engine, &state.schema);
        hosted.engine.touch(entry.index);
        hosted.set_state(state.clone());
    }
}

/// Sets the attributes of a table that the engine does not record. A split or merge passes them on.
pub(super) fn set_attributes(region: &Region, schema: &TableSchema) {
    region.set_prefix(row_prefix(schema));
    region.set_history(schema.history_ms);
    region.set_sizes(schema.region_size, schema.flush_size);
}

fn region_spec(state: &RegionState) -> RegionSpec {
    RegionSpec {
        region: state.descriptor.region,
        table: state.descriptor.table,
        group: state.descriptor.group,
        range: state.descriptor.range.clone(),
        families: state.schema.families.clone(),
    }
}
