//! The regions with a replica on this server, by id: what requests are looked up in.
//!
//! State machines write here while they apply, in log order; the edge only reads. A request keeps the [`HostedRegion`] it
//! found. If the region is split meanwhile, a read continues over the parent's frozen cells, which are the state at a
//! moment within the read's own time, and a write is refused when it is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use terrane_engine::{Patience, RowRead};
use terrane_types::{
    Error, GroupId, Invalid, Issue, IssueKind, Onward, Place, Projection, RegionDescriptor, RegionEpoch, RegionId,
    ServerId,
};
use tokio::sync::Notify;

use crate::edge::error_mapping::engine_error;
use crate::evaluate::Columns;
use crate::group::region_state::RegionState;
use crate::group::reply::MOVING_RETRY;
use crate::region::comparison::Comparison;
use crate::region::damage::Damage;
use crate::region::held_snapshots::{HeldSnapshots, KeptViews};
use crate::region::load::LoadMeter;

/// The regions that a region is known to come from.
const PARENTS_MAX: usize = 8;

/// A region with a replica here.
pub struct HostedRegion {
    pub region: RegionId,
    pub group: GroupId,
    pub engine: Arc<terrane_engine::Region>,
    /// Log index of the durable point that the region was opened with. Entries up to it are in its files.
    pub opened_at: u64,
    /// The state as of the last applied entry. Replaced as a whole, so that a reader sees one moment.
    state: RwLock<Arc<RegionState>>,
    /// Whether the manifest names the region, which a creation or a split alone does not bring about. Until it does, the
    /// region is not split or merged (again): applying the split would have to wait for the disk.
    in_manifest: AtomicBool,
    /// The size at which no boundary was found; 0: none was looked for. The search is repeated once the region has grown,
    /// not at every turn.
    unsplittable_bytes: AtomicU64,
    /// What is requested of it here.
    pub load: LoadMeter,
    /// Snapshots of rows that readers have received in part.
    pub held_snapshots: HeldSnapshots,
    /// Its last comparison with the other replicas.
    pub comparison: Comparison,
    /// Damage found in its files.
    damage: Damage,
    /// Whether the active memtables are known to be over the flush size, so that crossing it is signalled once.
    full: AtomicBool,
    /// When this server made or opened the region in its present form (nanoseconds of the monotonic clock).
    since_ns: u64,
    /// Why its load cannot be spread by a split, as a sentence.
    hot_spot: Mutex<Option<String>>,
    /// A split, merge or move that this server has begun and whose outcome is not known yet.
    change: Mutex<Option<&'static str>>,
    /// Where the region is once another group has adopted it, as the leader knows it first.
    adopted: Mutex<Option<RegionDescriptor>>,
    /// Views of its leader that are kept here.
    kept_views: Mutex<Option<KeptViews>>,
    /// The regions that it comes from by splits, the nearest first: its sequence numbers continue theirs. Forgotten by a restart or
    /// a move.
    parents: Mutex<Vec<RegionId>>,
}

/// The right to change the shape or place of a region: one split, merge or move at a time.
pub struct ChangeGuard(Arc<HostedRegion>);

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        *self.0.change.lock() = None;
    }
}

impl HostedRegion {
    pub fn new(state: RegionState, engine: Arc<terrane_engine::Region>, opened_at: u64) -> Arc<Self> {
        Arc::new(Self {
            region: state.descriptor.region,
            group: state.descriptor.group,
            engine,
            opened_at,
            state: RwLock::new(Arc::new(state)),
            in_manifest: AtomicBool::new(true),
            unsplittable_bytes: AtomicU64::new(0),
            load: LoadMeter::since(terrane_env::time::now_ns()),
            held_snapshots: HeldSnapshots::default(),
            comparison: Comparison::default(),
            damage: Damage::default(),
            full: AtomicBool::new(false),
            since_ns: terrane_env::time::now_ns(),
            hot_spot: Mutex::default(),
            change: Mutex::default(),
            adopted: Mutex::default(),
            kept_views: Mutex::default(),
            parents: Mutex::default(),
        })
    }

    /// Holds the snapshots that came with the region, for readers of what it was before.
    pub fn hold_handed_down(&self) {
        for snapshot in self.engine.take_handed_down() {
            if terrane_env::planted!("a scan's read point is forgotten when its region moves") {
                continue;
            }
            self.held_snapshots.hand_over(snapshot, terrane_env::time::now_ns());
        }
    }

    /// The region comes from another one by a split.
    pub fn continue_from(&self, parent: &Self) {
        let mut parents = parent.parents.lock().clone();
        parents.insert(0, parent.region);
        parents.truncate(PARENTS_MAX);
        *self.parents.lock() = parents;
        *self.kept_views.lock() = *parent.kept_views.lock();
    }

    /// The regions whose sequence numbers mean the same here: itself, and those that it comes from by splits.
    pub fn numbered_as(&self) -> Vec<RegionId> {
        let parents = self.parents.lock();
        std::iter::once(self.region).chain(parents.iter().copied()).collect()
    }

    /// Keeps what readers at the leader `by` may still see: everything from `oldest` on.
    pub fn keep_views(&self, by: ServerId, oldest: u64, now_ns: u64) {
        let mut kept = self.kept_views.lock();
        *kept = Some(KeptViews::named_by(by, now_ns));
        self.engine.keep_from(Some(oldest));
    }

    /// Whether views of its leader are kept here.
    pub fn keeps_views(&self) -> bool {
        self.kept_views.lock().is_some()
    }

    /// Lets go what is kept, if its time is over, or if it was kept for this leader.
    pub fn let_views_go(&self, leader: Option<ServerId>, now_ns: u64) {
        let mut kept = self.kept_views.lock();
        if kept.is_some_and(|kept| kept.until_ns <= now_ns || Some(kept.by) == leader) {
            *kept = None;
            self.engine.keep_from(None);
        }
    }

    /// Begins a split, merge or move, which lasts until the guard is dropped.
    ///
    /// # Errors
    /// What is under way already.
    pub fn begin_change(self: &Arc<Self>, what: &'static str) -> Result<ChangeGuard, Invalid> {
        let mut change = self.change.lock();
        if let Some(under_way) = *change {
            let region = self.region;
            return Err(Invalid::new(format!(
                "a {under_way} of region {region} is under way; repeat this once it is done"
            )));
        }
        *change = Some(what);
        drop(change);
        Ok(ChangeGuard(self.clone()))
    }

    /// How long the region has existed here in its present form.
    pub fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.since_ns))
    }

    /// Records why the load of the region cannot be spread. Returns whether that is news.
    pub fn set_hot_spot(&self, why: Option<String>) -> bool {
        let mut hot_spot = self.hot_spot.lock();
        let is_news = hot_spot.is_none() && why.is_some();
        *hot_spot = why;
        is_news
    }

    /// The health issue of a region whose load cannot be spread.
    pub fn hot_row(&self) -> Option<Issue> {
        let why = self.hot_spot.lock().clone()?;
        Some(IssueKind::HotRow.issue(why).at(Place::Region(self.region)))
    }

    /// Whether a split, merge or move of the region is under way.
    pub fn is_changing(&self) -> bool {
        self.change.lock().is_some()
    }

    /// Records whether the manifest names the region.
    pub fn set_in_manifest(&self, in_manifest: bool) {
        self.in_manifest.store(in_manifest, Ordering::Relaxed);
    }

    pub fn is_in_manifest(&self) -> bool {
        self.in_manifest.load(Ordering::Relaxed)
    }

    /// Translates an engine error for the caller. Damage is recorded.
    pub fn read_error(&self, error: terrane_engine::Error) -> Error {
        self.note_damage(&error);
        engine_error(error)
    }

    /// Records the damage that an error reports, if any.
    pub fn note_damage(&self, error: &terrane_engine::Error) {
        if self.damage.note(error) {
            tracing::error!(region = %self.region, %error, "the region is damaged");
        }
    }

    /// Whether damage was found in its files.
    pub fn is_damaged(&self) -> bool {
        self.damage.is_any()
    }

    /// The health issues of its damage, one for each place in its files.
    pub fn damages(&self) -> Vec<Issue> {
        let sentences = self.damage.sentences(&format!("region {} of table {}", self.region, self.state().schema.name));
        let issue = |what| IssueKind::Damage.issue(what).at(Place::Region(self.region));
        sentences.into_iter().map(issue).collect()
    }

    /// Records whether the active memtables are over the flush size. Returns true when they have just crossed it.
    pub fn note_full(&self, full: bool) -> bool {
        self.full.swap(full, Ordering::Relaxed) != full && full
    }

    pub fn state(&self) -> Arc<RegionState> {
        self.state.read().clone()
    }

    fn epoch(&self) -> RegionEpoch {
        self.state.read().descriptor.epoch
    }

    /// The region in the group that has adopted it: nothing is answered here any more, and the caller is redirected.
    pub fn set_adopted(&self, elsewhere: RegionDescriptor) {
        *self.adopted.lock() = Some(elsewhere);
    }

    /// Refuses a request while the region moves, and redirects it once the other group has it.
    pub fn check_resting(&self) -> Result<(), Error> {
        if self.state.read().moving.is_none() {
            return Ok(());
        }
        match self.adopted.lock().clone() {
            Some(elsewhere) => Err(Error::StaleEpoch { region: self.region, current: vec![elsewhere] }),
            None => Err(Error::Moving { region: self.region, retry_after: MOVING_RETRY }),
        }
    }

    /// Refuses a read while the table is disabled. Asked after the read point: a replica that has just won the leadership may
    /// not have applied before that the table was enabled.
    pub fn check_enabled(&self) -> Result<(), Error> {
        let state = self.state();
        if state.schema.disabled && !terrane_env::planted!("a disabled table is read") {
            return Err(Error::Disabled { what: format!("table {}", state.schema.name) });
        }
        Ok(())
    }

    /// Whether reads of the table are confirmed by a quorum.
    pub fn reads_strictly(&self) -> bool {
        self.state.read().schema.strict_reads
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

    /// Records that the region has no boundary at this size.
    pub fn set_unsplittable(&self, bytes: u64) {
        self.unsplittable_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn unsplittable_bytes(&self) -> u64 {
        self.unsplittable_bytes.load(Ordering::Relaxed)
    }

    /// Whether it is over its table's region size and known to have no boundary. A compaction may have made it small again
    /// since: until then the daughter of a split counts its parent's files.
    pub fn is_stuck(&self) -> bool {
        self.unsplittable_bytes() > 0 && self.engine.size_bytes() >= self.state().schema.region_size
    }
}

/// How the leader of the region's group reads the columns that it evaluates requests against.
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

    fn read_tombstones(
        &self,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error> {
        let before = out.len();
        let read = RowRead { projection, now_ms, patience, bytes_max: usize::MAX };
        let walked = self.engine.walk_row(&self.engine.snapshot(), row, read, |cell| {
            if cell.kind.is_delete() {
                terrane_types::cell::pack(out, cell);
            }
            Onward::Cell
        });
        if walked.is_err() {
            out.truncate(before);
        }
        walked.map(drop)
    }

    fn failure(&self, error: terrane_engine::Error) -> Error {
        self.read_error(error)
    }
}

/// The regions with a replica on this server, by id. While a region moves, it may be here as one of both groups, of which
/// only the one with the higher epoch answers requests. The lock is held for a lookup or an insert only, never across an await.
#[derive(Default)]
pub struct HostedRegions {
    regions: RwLock<BTreeMap<(RegionId, GroupId), Arc<HostedRegion>>>,
    /// Groups whose regions or leader have changed since the masters were told. At most one entry per group of this server.
    changed: Mutex<BTreeSet<GroupId>>,
    news: Notify,
}

impl HostedRegions {
    pub fn insert(&self, hosted: Arc<HostedRegion>) {
        let group = hosted.group;
        self.regions.write().insert((hosted.region, group), hosted);
        self.note_change(group);
    }

    /// Notes that the masters should hear of a group: it has other regions, or another leader.
    pub fn note_change(&self, group: GroupId) {
        self.changed.lock().insert(group);
        self.news.notify_one();
    }

    /// Returns when a group has changed.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// The groups that have changed since the last call.
    pub fn take_changed(&self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.changed.lock())
    }

    pub fn remove(&self, region: RegionId, group: GroupId) {
        self.regions.write().remove(&(region, group));
    }

    pub fn get(&self, region: RegionId) -> Option<Arc<HostedRegion>> {
        let regions = self.regions.read();
        let mut found = regions.range((region, GroupId(0))..=(region, GroupId(u64::MAX))).map(|(_, hosted)| hosted);
        let first = found.next()?;
        Some(found.fold(first, |one, other| if other.epoch() > one.epoch() { other } else { one }).clone())
    }

    pub fn all(&self) -> Vec<Arc<HostedRegion>> {
        self.regions.read().values().cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.regions.read().len()
    }
}
