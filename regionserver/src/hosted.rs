//! The regions that live here, by id, and the state machines of their groups: what the edge looks requests up in.
//!
//! State machines write it while they apply, in log order; the edge only reads. A request keeps the [`HostedRegion`] it found:
//! when the region is split meanwhile, a read goes on over the parent's frozen cells, which are the state of a moment
//! within the read's own time, and a write is refused when it is applied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use terrane_engine::Patience;
use terrane_types::{Error, GroupId, Projection, RegionId};

use crate::error_mapping::engine_error;
use crate::evaluate::Columns;
use crate::group::region_state::RegionState;
use crate::region::damage::Damage;
use crate::region::held_snapshots::HeldSnapshots;

/// A living region.
pub struct HostedRegion {
    pub region: RegionId,
    pub group: GroupId,
    pub engine: Arc<terrane_engine::Region>,
    /// Log index of the durable point the region was opened with; entries up to it are in its files.
    pub opened_at: u64,
    /// As of the last applied entry. Replaced as a whole, so that a reader sees one moment.
    state: RwLock<Arc<RegionState>>,
    /// Whether the entry that made the region, a creation or a split, is on disk here. Until then it is not split (again):
    /// applying that would have to wait for the disk.
    settled: AtomicBool,
    /// The size at which no boundary was found, 0 when none was looked for: it is looked for again when the region has
    /// grown, not at every turn.
    unsplittable_bytes: AtomicU64,
    /// Moments of rows that readers have a part of.
    pub held_snapshots: HeldSnapshots,
    /// What of its files was found damaged.
    damage: Damage,
    /// Whether the active memtables are known to be over the flush size, so that crossing it is told once.
    full: AtomicBool,
}

impl HostedRegion {
    pub fn new(state: RegionState, engine: Arc<terrane_engine::Region>, opened_at: u64) -> Arc<Self> {
        Arc::new(Self {
            region: state.descriptor.region,
            group: state.descriptor.group,
            engine,
            opened_at,
            state: RwLock::new(Arc::new(state)),
            settled: AtomicBool::new(true),
            unsplittable_bytes: AtomicU64::new(0),
            held_snapshots: HeldSnapshots::default(),
            damage: Damage::default(),
            full: AtomicBool::new(false),
        })
    }

    /// Notes that no record on disk names the region yet, or that one does now.
    pub fn set_in_manifest(&self, settled: bool) {
        self.settled.store(settled, Ordering::Relaxed);
    }

    pub fn is_in_manifest(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// What a read's error means to the caller. Damage is remembered.
    pub fn read_error(&self, error: terrane_engine::Error) -> Error {
        self.note_damage(&error);
        engine_error(error)
    }

    /// Remembers what an error says about damage, if it does.
    pub fn note_damage(&self, error: &terrane_engine::Error) {
        if self.damage.note(error) {
            tracing::error!(region = %self.region, %error, "the region is damaged");
        }
    }

    /// The damages of the region, a sentence each.
    pub fn damages(&self) -> Vec<String> {
        self.damage.sentences(&format!("region {} of table {}", self.region, self.state().schema.name))
    }

    /// Notes whether the active memtables are over the flush size; true when they have just come over it.
    pub fn note_full(&self, full: bool) -> bool {
        self.full.swap(full, Ordering::Relaxed) != full && full
    }

    pub fn state(&self) -> Arc<RegionState> {
        self.state.read().clone()
    }

    /// The version of the table's schema as of the last applied entry.
    pub fn schema_version(&self) -> u64 {
        self.state.read().schema.version
    }

    /// Puts the region under a newer schema.
    pub fn set_state(&self, state: RegionState) {
        let mut current = self.state.write();
        let (before, after) = (&current.descriptor, &state.descriptor);
        assert!(
            after.region == before.region
                && after.epoch >= before.epoch
                && after.schema_version >= before.schema_version,
            "the state of region {} regressed from epoch {} and schema {} to {} and {}",
            before.region,
            before.epoch,
            before.schema_version,
            after.epoch,
            after.schema_version
        );
        *current = Arc::new(state);
    }

    /// Remembers that a region of this size has no boundary to split at.
    pub fn set_unsplittable(&self, bytes: u64) {
        self.unsplittable_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn unsplittable_bytes(&self) -> u64 {
        self.unsplittable_bytes.load(Ordering::Relaxed)
    }

    /// Whether it is over its table's size and known to have no boundary. Compaction may have made it small again since: the
    /// daughter of a split counts files of its parent until then.
    pub fn is_stuck(&self) -> bool {
        self.unsplittable_bytes() > 0 && self.engine.size_bytes() >= self.state().schema.region_size
    }
}

/// How the leader of the region's group reads what it evaluates with.
impl Columns for HostedRegion {
    fn read(
        &self,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error> {
        self.engine.get(&self.engine.snapshot(), row, projection, now_ms, patience, out).map(drop)
    }

    fn failure(&self, error: terrane_engine::Error) -> Error {
        self.read_error(error)
    }
}

/// The living regions of a server, by id. Its lock is held for a look-up or an insert only, never across an await.
#[derive(Default)]
pub struct HostedRegions {
    living: RwLock<BTreeMap<RegionId, Arc<HostedRegion>>>,
}

impl HostedRegions {
    pub fn insert(&self, hosted: Arc<HostedRegion>) {
        self.living.write().insert(hosted.region, hosted);
    }

    pub fn remove(&self, region: RegionId) {
        self.living.write().remove(&region);
    }

    pub fn get(&self, region: RegionId) -> Option<Arc<HostedRegion>> {
        self.living.read().get(&region).cloned()
    }

    pub fn all(&self) -> Vec<Arc<HostedRegion>> {
        self.living.read().values().cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.living.read().len()
    }
}
