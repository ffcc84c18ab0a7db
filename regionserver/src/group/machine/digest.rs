//! A digest of what a replica would answer, to compare replicas with each other.
//!
//! It covers the group's regions and every visible version of every cell at one applied index, judged by the log's time.
//! Replicas at the same index have the same digest, whatever they have flushed, compacted or collected, and whatever their
//! clocks say. Sequence numbers and files are not part of it.

use terrane_engine::{Error, RowScanner, ScanSpec};
use terrane_env::task::run_read;
use terrane_types::limits::VERSIONS_MAX;
use terrane_types::{GroupId, KeyRange, Projection};

use super::GroupMachine;
use crate::region::cell_digest::{CellDigest, Place, RegionDigest};

/// Bytes that are read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// What a replica's regions hold at an applied index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDigest {
    /// The group.
    pub group: GroupId,
    /// The index of the last entry applied.
    pub applied: u64,
    /// The checksum of regions and cells.
    pub digest: u32,
    /// The number of regions.
    pub regions: usize,
    /// The number of rows.
    pub rows: u64,
}

impl GroupMachine {
    /// The digest as of the last applied entry; `None` while an entry is applied, while entries are applied again after a
    /// restart, when regions or the group's state are ahead of it, and for a removed replica. It reads all rows: for tests,
    /// not for a server under load.
    pub async fn digest(&self) -> Result<Option<GroupDigest>, Error> {
        let Some((mut digest, scanners)) = self.begin_digest() else { return Ok(None) };
        for scanner in scanners {
            let before = digest.digest;
            let (crc, rows) = run_read(move || add_rows(scanner, before)).await?;
            (digest.digest, digest.rows) = (crc, digest.rows + rows);
        }
        Ok(Some(digest))
    }

    /// The index, the regions, and a scan of each, all as of one entry. It does not wait for an entry that is being applied:
    /// on a slow disk that takes long, and the other groups would wait with it.
    fn begin_digest(&self) -> Option<(GroupDigest, Vec<RowScanner>)> {
        let Ok(_boundary) = self.boundary.try_lock() else {
            let applied = self.inner.lock().applied;
            tracing::debug!(group = %self.group, applied, "no digest: an entry is being applied");
            return None;
        };
        let inner = self.inner.lock();
        // A copy of the group that was installed and restarted has the regions as of what it had recorded: they may have left
        // after the entry up to which it has applied.
        let is_ahead =
            inner.recorded > inner.applied || inner.hosted.values().any(|hosted| hosted.opened_at > inner.applied);
        if inner.is_removed || is_ahead {
            let (applied, recorded) = (inner.applied, inner.recorded);
            tracing::debug!(group = %self.group, applied, recorded, removed = inner.is_removed, "no digest: a part is ahead");
            return None;
        }
        let now_ms = i64::try_from(inner.stamp).unwrap_or(i64::MAX);
        let mut digest = 0;
        let scanners = inner.hosted.values().map(|hosted| {
            digest = crc32c::crc32c_append(digest, &hosted.state().descriptor.encode());
            let projection = Projection { versions: VERSIONS_MAX, ..Projection::all().with_ttl() };
            let spec = ScanSpec { fills_cache: false, ..ScanSpec::new(KeyRange::all(), projection, now_ms) };
            hosted.engine.scan(hosted.engine.snapshot(), spec)
        });
        let scanners: Vec<RowScanner> = scanners.collect();
        let digest =
            GroupDigest { group: self.group, applied: inner.applied, digest, regions: scanners.len(), rows: 0 };
        Some((digest, scanners))
    }
}

/// Adds the visible cells of all rows.
fn add_rows(mut scanner: RowScanner, crc: u32) -> Result<(u32, u64), Error> {
    let mut digest = CellDigest::after(crc);
    while digest.read(&mut scanner, BLOCK_BYTES)? != Place::End {}
    let RegionDigest { crc, rows, .. } = digest.digest();
    Ok((crc, rows))
}
