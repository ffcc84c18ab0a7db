//! What a replica is compared with the others by: a digest of a region as of one entry.
//!
//! Replicas flush, compact and collect at different times, so what is digested must not depend on that: the cells that a read
//! shows at the entry's sequence number, judged by one time that is later than any log time by which cells are collected
//! meanwhile, under one schema. A replica that cannot keep to that says so and is not compared.

use std::sync::Arc;

use terrane_engine::{RowScanner, ScanSpec};
use terrane_env::time::now_ns;
use terrane_raft::AppliedEntry;
use terrane_types::limits::VERSIONS_MAX;
use terrane_types::{KeyRange, Projection, RegionId};

use super::{GroupMachine, Inner};
use crate::group::reply::Reply;
use crate::operation::{Compare, ComparisonId};
use crate::region::cell_digest::RegionDigest;
use crate::region::comparison::{Digested, Pin, READ_WITHIN};
use crate::replicas::hosted::HostedRegion;

/// Pins what a region holds as of an entry.
pub(super) fn pin_for_comparison(
    inner: &Inner,
    entry: &AppliedEntry,
    compare: &Compare,
) -> Result<Option<Reply>, Reply> {
    let hosted = inner.hosted.get(&compare.region).ok_or_else(|| inner.state.stale(compare.region))?;
    // A region that is ahead of the entry no longer knows what it held then.
    if entry.index > hosted.opened_at {
        let within_ms = u64::try_from(READ_WITHIN.as_millis()).unwrap_or(u64::MAX);
        let pin = Pin {
            snapshot: hosted.engine.snapshot(),
            // Not by the log time here: after a restart it may be that of a region which is ahead of the entry.
            now_ms: i64::try_from(entry.stamp.saturating_add(within_ms)).unwrap_or(i64::MAX),
            schema_version: hosted.state().schema.version,
        };
        hosted.comparison.pin(compare.id, pin, now_ns());
    }
    Ok(None)
}

impl GroupMachine {
    /// A region of this group with a replica here.
    pub fn hosted_region(&self, region: RegionId) -> Option<Arc<HostedRegion>> {
        self.inner.lock().hosted.get(&region).cloned()
    }

    /// Why what was read of a region since its snapshot was pinned is no digest of that snapshot, if so.
    pub fn outdated(&self, hosted: &Arc<HostedRegion>, pin: &Pin) -> Option<&'static str> {
        let inner = self.inner.lock();
        let is_same = inner.hosted.get(&hosted.region).is_some_and(|here| Arc::ptr_eq(here, hosted));
        let log_time = i64::try_from(inner.stamp).unwrap_or(i64::MAX);
        drop(inner);
        if !is_same {
            Some("the region was split, merged, moved or copied meanwhile")
        } else if hosted.state().schema.version != pin.schema_version {
            Some("the table was altered meanwhile")
        } else if log_time > pin.now_ms {
            Some("it took too long")
        } else {
            None
        }
    }

    /// A leader has compared the replicas, and most of them hold `expected`. A replica that differs is damaged, if `is_sure`.
    pub fn end_comparison(
        &self,
        region: RegionId,
        id: ComparisonId,
        (expected, is_sure): (RegionDigest, bool),
        now_ms: u64,
    ) {
        let Some(hosted) = self.hosted_region(region) else { return };
        let (Digested::Ready(own), _) = hosted.comparison.ask(id, now_ns()) else { return };
        if own == expected {
            hosted.comparison.note_equal(now_ms);
        } else if is_sure {
            self.set_damage(format!(
                "it differs from the other replicas in region {region} of table {}: it holds {own}, they hold {expected}",
                hosted.state().schema.name
            ));
        }
    }
}

/// Begins to read, after a row or from the first on, what a snapshot shows of a region.
pub fn scan_pinned(hosted: &HostedRegion, pin: &Pin, after: Option<&[u8]>) -> Option<RowScanner> {
    let start = after.map(|row| [row, &[0]].concat()).unwrap_or_default();
    let range = KeyRange { start: start.into(), ..KeyRange::all() };
    let projection = Projection { versions: VERSIONS_MAX, ..Projection::all().with_ttl() };
    let spec = ScanSpec { fills_cache: false, ..ScanSpec::new(range, projection, pin.now_ms) };
    let snapshot = hosted.engine.snapshot_at(pin.snapshot.sequence()).ok()?;
    Some(hosted.engine.scan(snapshot, spec))
}
