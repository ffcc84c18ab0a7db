//! After a failed try: learns from it, decides what is next, waits, and looks the map up at a master if need be.

use std::sync::atomic::Ordering;
use std::time::Duration;

use terrane_proto::convert::GroupLocation;
use terrane_types::{Error as Wire, GroupId, RegionId, ServerId};
use tokio::time::Instant;

use super::{Place, Position, Router};
use crate::error::Error;
use crate::route::progress::Progress;
use crate::route::retry::{RetryAction, decide};
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::master_calls::Map;

/// Regions in one look-up: a scan over fifty regions needs one.
const LOCATE_REGIONS: u32 = 256;
/// Rounds over all members of a leaderless group for each look-up at a master, and how long the look-up may take.
const ROUNDS_PER_LOOKUP: u32 = 4;
const BRIEF_LOOKUP: Duration = Duration::from_millis(500);

/// How long a look-up may take when the cache knows a place to try: the members of a group may elect a leader while no master
/// is up.
const KNOWN_LOOKUP: Duration = Duration::from_millis(300);
/// How long it may take at first when a server denied that place: the second master is asked meanwhile, and one that is about to lead
/// answers. It doubles each time, because a master that takes longer must still get to say where the region went.
const DENIED_LOOKUP: Duration = Duration::from_millis(700);
const DENIED_DOUBLINGS: u32 = 3;
/// After this time without a guess, the next look-up is short again.
const GUESSES_FORGOTTEN: Duration = Duration::from_secs(15);

/// Look-ups of denied regions, of all calls, that no master answered in time.
#[derive(Debug, Default)]
pub(super) struct UnansweredLookups {
    in_a_row: u32,
    last: Option<Instant>,
}

impl UnansweredLookups {
    /// How long the next one may take.
    fn lookup(&self) -> Duration {
        let is_recent = self.last.is_some_and(|last| last.elapsed() < GUESSES_FORGOTTEN);
        DENIED_LOOKUP * (1 << if is_recent { self.in_a_row.min(DENIED_DOUBLINGS) } else { 0 })
    }

    fn made(&mut self) {
        let is_recent = self.last.is_some_and(|last| last.elapsed() < GUESSES_FORGOTTEN);
        self.in_a_row = if is_recent { self.in_a_row + 1 } else { 1 };
        self.last = Some(Instant::now());
    }
}

impl Router {
    /// Prepares the next try after a failed one. An error ends the call. `applied_maybe`: an earlier try may have been
    /// applied.
    pub(super) async fn recover(
        &self,
        target: &Target,
        position: Position<'_>,
        place: Option<Place>,
        failure: Failure,
        applied_maybe: bool,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        if let Some(place) = &place {
            self.learn(target, place, &failure, progress);
        }
        progress.failed(failure.clone());
        let jitter = terrane_env::rand::u64();
        let action = decide(&failure, progress.risk, applied_maybe, progress.tries_of_kind(&failure), jitter);
        if action == RetryAction::GiveUp {
            return Err(progress.with_doubt(failure.into_error(progress.risk.write)));
        }
        if failure.costs_a_retry() && !self.may_retry() {
            return Err(progress.budget_spent());
        }
        if !matches!(failure, Failure::NoPlace | Failure::Leaderless) {
            self.counting.retries.add();
        }
        if let RetryAction::Relocate { .. } = action {
            progress.tried.clear();
        }
        progress.wait(action.wait()).await?;
        match action {
            RetryAction::Relocate { .. } => {
                let located = self.locate(target, position, progress).await;
                located.map_err(|error| progress.with_doubt(error))
            }
            RetryAction::Search { .. } => self.search(target, position, true, progress).await,
            _ if failure.is_hop() => self.search(target, position, false, progress).await,
            _ => Ok(()),
        }
    }

    /// No member that was tried leads the group of `position`: waits until another call finds the leader, or looks for it.
    /// `exhausted`: all members were tried.
    async fn search(
        &self,
        target: &Target,
        position: Position<'_>,
        exhausted: bool,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let Some(group) = self.group_at(target, position) else { return Ok(()) };
        if self.knows_leader(group, &progress.tried) {
            progress.scout = None;
            if self.searches.is_any() {
                self.searches.found(group);
            }
            return Ok(());
        }
        let mut start_over = exhausted;
        if progress.scout.is_none() {
            let is_known = || self.knows_leader(group, &progress.tried);
            progress.scout = self.searches.join(group, progress.deadline(), is_known).await;
            // Without a scout's right, this call has waited while others searched.
            start_over |= progress.scout.is_none();
        }
        if start_over {
            progress.tried.retain(|(tried, _)| *tried != group);
        }
        if exhausted && progress.rounds.is_multiple_of(ROUNDS_PER_LOOKUP) {
            return self.look_up_briefly(target, position, progress).await;
        }
        Ok(())
    }

    /// The group may have moved: looks the map up, but does not depend on the answer.
    async fn look_up_briefly(
        &self,
        target: &Target,
        position: Position<'_>,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let located = tokio::time::timeout(BRIEF_LOOKUP, self.locate(target, position, progress)).await;
        match located {
            Ok(Err(error)) if error.is_not_found() => Err(progress.with_doubt(error)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "no master answered where a group is");
                Ok(())
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Whether a failed row of a call over many is given up now.
    pub(crate) fn gives_up(failure: &Failure, applied_maybe: bool, progress: &Progress) -> bool {
        decide(failure, progress.risk, applied_maybe, progress.tries_of_kind(failure).max(1), 0) == RetryAction::GiveUp
    }

    /// Updates the location cache with what a failure says about the map.
    pub(crate) fn learn(&self, target: &Target, place: &Place, failure: &Failure, progress: &mut Progress) {
        let load = progress.load();
        let tried = &mut progress.tried;
        let (group, server) = (place.region.group, place.server);
        match failure {
            Failure::Refused(Wire::StaleEpoch { region, current }) => {
                self.counting.redirects.add();
                current.iter().for_each(|region| target.saw_schema_version(region.schema_version));
                let named = if *region == RegionId(0) { place.region.region } else { *region };
                let asked = (named, place.region.epoch);
                self.locator.write().stale_epoch(server, target.table, asked, current.clone());
            }
            Failure::Refused(Wire::NotLeader { group: named, term, leader, address, members }) => {
                self.counting.redirects.add();
                let location = location_of(*named, *term, *leader, address.as_deref(), members, group);
                // Fresh news of a leader are worth a second try even at a server that refused before.
                tried.retain(|(tried, server)| *tried != group || Some(*server) != *leader);
                tried.push((group, server));
                self.locator.write().not_leader(server, location);
            }
            Failure::Refused(Wire::Uncertain { not_tried: true }) => place.session.doubt_clock(),
            Failure::Lost(_)
            | Failure::NotSent(_)
            | Failure::Refused(Wire::Uncertain { .. } | Wire::DeadlineExceeded) => {
                tried.push((group, server));
                self.locator.write().silent(group, server);
            }
            Failure::Refused(Wire::SchemaChanged { version, .. }) => target.saw_schema_version(*version),
            Failure::Refused(Wire::Busy { retry_after } | Wire::LogFull { retry_after, .. }) => {
                self.lanes.refused(group, load, *retry_after);
            }
            Failure::Refused(Wire::NotFound { .. }) => {
                let asked = (place.region.region, place.region.epoch);
                self.locator.write().denied(server, target.table, asked);
            }
            Failure::Refused(Wire::Unavailable { .. }) => tried.push((group, server)),
            Failure::Refused(_) | Failure::Decided(_) | Failure::NoPlace | Failure::Leaderless | Failure::Queued => {}
        }
    }

    /// Looks the map around `position` up at a master. If no master answers, the next try goes to the last known members, even if one
    /// denied the region: a restarted server may be about to serve it.
    async fn locate(&self, target: &Target, position: Position<'_>, progress: &mut Progress) -> Result<(), Error> {
        let before = self.lookups_done();
        let Ok(mut guesses) = tokio::time::timeout_at(progress.deadline(), self.lookup.lock()).await else {
            return Err(progress.timeout());
        };
        if self.lookups_done() != before && self.knows(target, position) {
            progress.tried.extend(self.locator.read().deniers(target.table, position));
            return Ok(());
        }
        self.counting.master_lookups.add();
        let (key, reverse) = match position {
            Position::Row(row) => (row, false),
            Position::Before(end) => (end, true),
        };
        let left = progress.deadline().saturating_duration_since(Instant::now());
        let has_cached_place = self.has_cached_place(target, position);
        let brief = if self.knows(target, position) { KNOWN_LOOKUP } else { guesses.lookup() };
        let left = if has_cached_place { left.min(brief) } else { left };
        // Masters start with the region that holds `key`: the one before a bound is the second if a region starts there.
        let regions_min = if reverse { 2 } else { 1 };
        let regions_max = terrane_env::limit!("regions in a look-up", LOCATE_REGIONS, 1..=3).max(regions_min);
        match self.masters.locate(target.table, key, reverse, regions_max, left).await {
            Ok(map) => {
                *guesses = UnansweredLookups::default();
                self.learn_map(target, map);
            }
            Err(error @ (Error::Unreachable { .. } | Error::Unavailable { .. } | Error::Timeout { .. }))
                if has_cached_place =>
            {
                tracing::debug!(%error, "no master answers; the known servers are tried again");
                guesses.made();
                self.locator.write().restore(target.table);
                progress.tried.extend(self.locator.read().deniers(target.table, position));
                progress.without_master(error);
            }
            Err(error) => return Err(target.is_gone(error)),
        }
        self.lookups_done.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn learn_map(&self, target: &Target, map: Map) {
        target.saw_schema_version(map.schema_version);
        let mut locator = self.locator.write();
        for group in map.groups {
            locator.learn_group(group);
        }
        for region in map.regions {
            if region.table == target.table {
                locator.learn_region(region);
            }
        }
    }
}

/// What a `NotLeader` says about its group, as the cache takes it. The leader's address may be given separately from the members.
fn location_of(
    group: GroupId,
    term: u64,
    leader: Option<ServerId>,
    address: Option<&str>,
    members: &[(ServerId, String)],
    group_of_request: GroupId,
) -> GroupLocation {
    let group = if group == GroupId(0) { group_of_request } else { group };
    let mut members = members.to_vec();
    if let (Some(leader), Some(address)) = (leader, address)
        && !members.is_empty()
        && !members.iter().any(|(server, _)| *server == leader)
    {
        members.push((leader, address.to_owned()));
    }
    GroupLocation { group, leader, term, members }
}
