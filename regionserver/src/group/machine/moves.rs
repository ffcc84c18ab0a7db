//! Applies what entries say about regions that move to another group, or come from one.
//!
//! An adoption is the only operation that needs files which are not here already. They were fetched and verified before it was
//! proposed, on a quorum at least; a replica without them fetches them first ([`super::files`]), and applies nothing else
//! meanwhile. The record of the manifest is written before the entry counts as applied, so a restart finds the whole region
//! or applies the entry again.

use terrane_engine::{DurablePoint, RegionContents, StagedRegion};
use terrane_env::task::abort_process;
use terrane_raft::AppliedEntry;
use terrane_types::{MoveId, RegionId};

use super::files::Retry;
use super::{GroupMachine, Inner, set_attributes};
use crate::group::region_state::RegionState;
use crate::group::reply::Reply;
use crate::group::state::{Arrival, Arriving};
use crate::operation::{Adopt, Depart, Freeze, Unfreeze};
use crate::replicas::hosted::HostedRegion;
use crate::staging::StagedFiles;
use crate::window::Window;

impl GroupMachine {
    pub(super) fn freeze_for_move(
        &self,
        inner: &mut Inner,
        entry: &AppliedEntry,
        freeze: &Freeze,
    ) -> Result<Option<Reply>, Reply> {
        let Some(hosted) = inner.later(freeze.region, entry.index) else {
            return Err(inner.state.stale(freeze.region));
        };
        let state = inner.state.freeze(freeze)?;
        hosted.engine.touch(entry.index);
        hosted.set_state(state);
        Ok(None)
    }

    pub(super) fn unfreeze(
        &self,
        inner: &mut Inner,
        entry: &AppliedEntry,
        unfreeze: &Unfreeze,
    ) -> Result<Option<Reply>, Reply> {
        let Some(hosted) = inner.later(unfreeze.region, entry.index) else { return Ok(None) };
        if let Some(state) = inner.state.unfreeze(unfreeze) {
            hosted.engine.touch(entry.index);
            hosted.set_state(state);
        }
        Ok(None)
    }

    pub(super) fn depart(
        &self,
        inner: &mut Inner,
        entry: &AppliedEntry,
        depart: &Depart,
    ) -> Result<Option<Reply>, Reply> {
        let region = depart.adopted.region;
        if inner.hosted.contains_key(&region) && inner.later(region, entry.index).is_none() {
            // It came back, and is on disk as it was after this entry.
            return Ok(None);
        }
        if inner.state.depart(depart)? {
            inner.discard(region);
            self.regions.remove(region, self.group);
            self.signals.wake();
        }
        inner.mark_dirty(entry.index);
        Ok(None)
    }

    /// Whether an adoption is to bring its region in now. Nothing changes.
    pub(super) fn adopts_now(&self, entry: &AppliedEntry, adopt: &Adopt) -> bool {
        let (contents, incoming) = self.incoming_region(entry, adopt);
        let inner = self.inner.lock();
        !inner.has_adopted(entry, contents.region())
            && matches!(inner.state.arriving(adopt.id, &incoming), Arriving::Comes(_))
    }

    /// What an adoption says of its region.
    fn incoming_region(&self, entry: &AppliedEntry, adopt: &Adopt) -> (RegionContents, RegionState) {
        let contents = RegionContents::decode(&adopt.contents);
        let incoming = contents.and_then(|contents| {
            let state = RegionState::decode(contents.point().descriptor.clone()).ok()?;
            Some((contents, state))
        });
        incoming.unwrap_or_else(|| {
            abort_process(&format!(
                "this build cannot read the region that entry {} of group {} adopts; start the build that wrote it",
                entry.index, self.group
            ))
        })
    }

    /// Adopts a region, or says why not. The boundary is held.
    pub(super) async fn adopt(&self, entry: &AppliedEntry, adopt: &Adopt, files: StagedFiles) -> Result<Reply, Retry> {
        let (contents, incoming) = self.incoming_region(entry, adopt);
        let arriving = {
            let mut inner = self.inner.lock();
            let region = contents.region();
            if inner.has_adopted(entry, region) {
                if inner.state.arrival(adopt.id).is_none() && !inner.state.has_forgotten(adopt.id) {
                    inner.state.note_adopted(adopt.id, region, entry.index);
                    inner.mark_dirty(entry.index);
                }
                Arriving::IsHere
            } else {
                inner.state.arriving(adopt.id, &incoming)
            }
        };
        let state = match arriving {
            Arriving::Comes(state) => state,
            Arriving::IsHere => return Ok(Reply::Adopted),
            Arriving::Forgotten => return Ok(Reply::Forgotten),
            Arriving::Refused(why) => {
                let mut inner = self.inner.lock();
                inner.state.refuse(adopt.id);
                inner.mark_dirty(entry.index);
                return Ok(Reply::Refused { why });
            }
        };
        let StagedFiles::Region(staged) = files else { return Err(Retry) };
        Ok(self.adopt_staged(entry, adopt, &contents, *state, *staged).await)
    }

    async fn adopt_staged(
        &self,
        entry: &AppliedEntry,
        adopt: &Adopt,
        contents: &RegionContents,
        state: RegionState,
        staged: StagedRegion,
    ) -> Reply {
        let was = contents.point();
        // The region may have left this group before, and its departure may not be recorded yet: that must not discard what
        // comes back.
        let _returning = self.returning.lock().await;
        let forgets = terrane_env::planted!("an adopted region forgets its window");
        let point = DurablePoint {
            group: self.group,
            index: entry.index,
            stamp: entry.stamp,
            descriptor: state.encode(),
            window: if forgets { Window::default().encode() } else { was.window.clone() },
            ..was.clone()
        };
        let window = Window::decode(point.window.clone());
        let (Ok(window), Ok(region)) = (window, self.engine.adopt_region(staged, point).await) else {
            abort_process(&format!("cannot adopt region {} of group {}", contents.region(), self.group));
        };
        set_attributes(&region, &state.schema);
        let id = state.descriptor.region;
        let hosted = HostedRegion::new(state.clone(), region, entry.index);
        hosted.hold_handed_down();
        let mut inner = self.inner.lock();
        // Only now: until it is on disk as it comes back, the log keeps what it lacks as it left.
        inner.discarded.remove(&id);
        inner.windows.insert(id, window);
        inner.hosted.insert(id, hosted.clone());
        let changes = inner.state.adopt(adopt.id, entry.index, state);
        self.regions.insert(hosted);
        for (region, before) in changes.altered {
            inner.alter(region, entry, &before);
        }
        inner.mark_dirty(entry.index);
        self.metrics.regions_adopted.inc();
        Reply::Adopted
    }

    /// What became of a move to this group, if that is decided here.
    pub fn arrival(&self, id: MoveId) -> Option<Arrival> {
        self.inner.lock().state.arrival(id)
    }

    /// Of a move whose outcome this replica has forgotten: whether the group has rows of its region. `None`: it is not forgotten.
    pub fn forgotten(&self, id: MoveId, was: &terrane_types::RegionDescriptor) -> Option<bool> {
        let inner = self.inner.lock();
        inner.state.has_forgotten(id).then(|| inner.state.has_rows_of(was))
    }

    /// Where a region went, and by which move.
    pub fn departed(&self, region: RegionId) -> Option<(MoveId, terrane_types::RegionDescriptor)> {
        self.inner.lock().state.departed(region)
    }
}

impl Inner {
    /// Whether what an adoption brings was taken in before a restart: what a record of the group's part covers is on disk, or has
    /// left.
    fn has_adopted(&self, entry: &AppliedEntry, region: RegionId) -> bool {
        entry.index <= self.recorded || self.hosted.contains_key(&region) && self.later(region, entry.index).is_none()
    }

    /// A region whose durable point does not cover an entry yet.
    fn later(&self, region: RegionId, index: u64) -> Option<std::sync::Arc<HostedRegion>> {
        self.hosted.get(&region).filter(|hosted| index > hosted.opened_at).cloned()
    }
}

/// Refuses a move, unless its region came in before.
pub(super) fn refuse_move(inner: &mut Inner, entry: &AppliedEntry, id: MoveId) -> Reply {
    inner.mark_dirty(entry.index);
    match inner.state.refuse(id) {
        Some(Arrival::Refused) => Reply::Refused { why: "the group that it comes from gave it up".to_owned() },
        Some(Arrival::Adopted { .. }) => Reply::Adopted,
        None => Reply::Forgotten,
    }
}
