//! The stores of a region as the picker sees them, and the picker's choice as files.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_types::FamilyName;

use crate::collecting::OlderFiles;
use crate::compaction::{FileSummary, Policy, Tree};
use crate::levels::{FileRef, Levels};
use crate::manifest::{FamilyRecord, FileRecord};
use crate::region::Region;
use crate::source::Source;

/// The stores of a region.
pub(super) fn trees(region: &Region) -> Vec<(FamilyName, Tree, Policy)> {
    let (point, stores) = region.recorded_stores();
    let oldest_snapshot = region.oldest_snapshot(point.stamp).min(point.sequence);
    let tree_of = |files: &Levels, busy| {
        let summaries = |files: &[FileRef]| files.iter().map(|file| summary_of(&file.record)).collect();
        let levels = files.below.iter().map(|level| summaries(level)).collect();
        Tree { level0: summaries(&files.level0), levels, busy }
    };
    let stores = stores.into_iter().map(|store| {
        let policy = policy_of(region, &store.family, point.stamp, oldest_snapshot);
        (store.name, tree_of(&store.files, store.busy), policy)
    });
    stores.collect()
}

pub(super) fn policy_of(region: &Region, family: &FamilyRecord, stamp: u64, oldest_snapshot: u64) -> Policy {
    let (region_bytes, flush_bytes) = region.sizes();
    let last = family.last_change();
    let rules = last.rules;
    Policy {
        ttl: rules.ttl_ms.map(Duration::from_millis),
        log_time_ms: i64::try_from(stamp).unwrap_or(i64::MAX),
        rules_drop_expired: rules.ttl_ms.is_some() && rules.min_versions == 0 && last.sequence <= oldest_snapshot,
        oldest_snapshot,
        rules_sequence: last.sequence,
        ..Policy::new(region_bytes, flush_bytes)
    }
}

fn summary_of(record: &FileRecord) -> FileSummary {
    let last_row = if record.bounds.contains(&record.last_row) {
        record.last_row.clone()
    } else {
        // The greatest row below the bound is not known; the bound itself lies outside, and errs on the safe side.
        Bytes::copy_from_slice(&record.bounds.end)
    };
    FileSummary {
        id: record.id,
        bytes: record.bytes,
        first_row: Bytes::copy_from_slice(record.first_inside()),
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

/// What is merged, newest first; `None` when a file is no longer there.
pub(super) fn sources_of(levels: &Levels, inputs: &BTreeSet<u64>) -> Option<Vec<Arc<dyn Source>>> {
    let is_input = |file: &&FileRef| inputs.contains(&file.record.id);
    let chosen = Levels {
        level0: levels.level0.iter().filter(is_input).cloned().collect(),
        below: levels.below.iter().map(|level| level.iter().filter(is_input).cloned().collect()).collect(),
    };
    (chosen.iter().count() == inputs.len()).then(|| chosen.sources())
}

/// Files that hold what was written before the inputs, and are not among them.
pub(super) fn older_than(levels: &Levels, inputs: &BTreeSet<u64>, to_level: usize) -> OlderFiles {
    let mut older = OlderFiles::default();
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
