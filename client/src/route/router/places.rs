//! From a row to the server that hosts it: the location cache says which, the sessions say whether it takes requests.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::{GroupId, RegionDescriptor, ServerId};

use super::{Attempt, Missed, Router};
use crate::consistency::Consistency;
use crate::error::Error;
use crate::route::locator::{Locator, Member, Position};
use crate::route::progress::Progress;
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::peer::Peer;
use crate::wire::session::Session;

/// Where a request goes.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) server: ServerId,
    pub(crate) session: Arc<Session>,
    pub(crate) region: RegionDescriptor,
    /// Whether the server was chosen as the known leader, and not because some member had to be tried.
    pub(super) leads: bool,
}

impl Router {
    const fn peer(&self, server: ServerId) -> Peer {
        Peer { cluster: self.cluster, server, boot: self.boot }
    }

    /// Where to send the next request about `position`; [`Failure::NoPlace`] when the cache does not know.
    pub(crate) fn place(&self, target: &Target, position: Position<'_>, tried: &[Member]) -> Result<Place, Failure> {
        self.place_by(target, position, tried, Locator::candidate)
    }

    /// Where to send a request that any member may answer; `spread` chooses among equals.
    pub(super) fn place_of_any(
        &self,
        target: &Target,
        position: Position<'_>,
        tried: &[Member],
        spread: u64,
    ) -> Result<Place, Failure> {
        self.place_by(target, position, tried, |locator, group, tried| locator.any_member(group, tried, spread))
    }

    /// Where to send the next read about `position`: linearizable reads go to the leader, stale ones to a random member.
    pub(crate) fn place_to_read(
        &self,
        target: &Target,
        position: Position<'_>,
        progress: &Progress,
        consistency: Consistency,
    ) -> Result<Place, Failure> {
        match consistency {
            Consistency::Linearizable | Consistency::Strict => self.place(target, position, &progress.tried),
            Consistency::Stale => self.place_of_any(target, position, &progress.tried, terrane_env::rand::u64()),
        }
    }

    fn place_by(
        &self,
        target: &Target,
        position: Position<'_>,
        tried: &[Member],
        choose: impl for<'a> Fn(&'a Locator, GroupId, &[Member]) -> Option<(ServerId, &'a str)>,
    ) -> Result<Place, Failure> {
        if terrane_env::buggify!("the map is looked up for no reason", 16) {
            return Err(Failure::NoPlace);
        }
        let region = {
            let locator = self.locator.read();
            let region = locator.find(target.table, position).ok_or(Failure::NoPlace)?;
            if let Some((server, address)) = choose(&locator, region.group, tried)
                && let Some(session) = self.sessions.ready(server, address)
            {
                let leads = locator.leader(region.group) == Some(server);
                return Ok(Place { server, session, region: region.clone(), leads });
            }
            if !locator.knows_members(region.group) {
                return Err(Failure::NoPlace);
            }
            region.clone()
        };
        self.place_around(region, tried, choose)
    }

    /// The first choice does not take requests at once: opens a session, or passes over members that are away.
    fn place_around(
        &self,
        region: RegionDescriptor,
        tried: &[Member],
        choose: impl for<'a> Fn(&'a Locator, GroupId, &[Member]) -> Option<(ServerId, &'a str)>,
    ) -> Result<Place, Failure> {
        let mut passed = tried.to_vec();
        loop {
            let (server, address, leads) = {
                let locator = self.locator.read();
                let (server, address) = choose(&locator, region.group, &passed).ok_or(Failure::Leaderless)?;
                (server, address.to_owned(), locator.leader(region.group) == Some(server))
            };
            if let Some(session) = self.sessions.reach(self.peer(server), &address, &self.counting.sessions_opened)? {
                return Ok(Place { server, session, region, leads });
            }
            if leads {
                self.locator.write().silent(region.group, server);
            }
            passed.push((region.group, server));
        }
    }

    /// Whether the leader of a group is known, takes requests, and has not refused this call since the last news.
    pub(super) fn knows_leader(&self, group: GroupId, tried: &[Member]) -> bool {
        let locator = self.locator.read();
        locator.leader_at(group).is_some_and(|(server, address)| {
            !tried.contains(&(group, server)) && self.sessions.ready(server, address).is_some()
        })
    }

    /// The group of the region that `position` is in, if the cache knows it.
    pub(super) fn group_at(&self, target: &Target, position: Position<'_>) -> Option<GroupId> {
        self.locator.read().find(target.table, position).map(|region| region.group)
    }

    /// Whether the cache knows the region at `position` and a member of its group.
    pub(super) fn knows(&self, target: &Target, position: Position<'_>) -> bool {
        let locator = self.locator.read();
        locator.find(target.table, position).is_some_and(|region| locator.knows_members(region.group))
    }

    /// Whether the cache knows where to try without a master; a denied region counts, too.
    pub(super) fn has_cached_place(&self, target: &Target, position: Position<'_>) -> bool {
        let locator = self.locator.read();
        locator.last_known(target.table, position).is_some_and(|region| locator.knows_members(region.group))
    }

    /// The regions from the one that holds `start` to the one that holds the last row before `end` (empty: the table's end),
    /// each with where it starts (the first: `start` itself) and the server that most likely answers for it.
    pub(crate) async fn regions_of(
        &self,
        target: &Target,
        start: &Bytes,
        end: &Bytes,
        mut progress: Progress,
    ) -> Result<Vec<(Bytes, Place)>, Error> {
        let mut walk = RegionWalk { regions: Vec::new(), at: start.clone(), end };
        self.call(target, &mut walk, &mut progress).await?;
        Ok(walk.regions)
    }
}

/// Visits the regions of a range in the cache. It sends nothing: a try misses where the cache has a gap.
struct RegionWalk<'a> {
    regions: Vec<(Bytes, Place)>,
    at: Bytes,
    end: &'a Bytes,
}

impl Attempt for RegionWalk<'_> {
    type Answer = ();

    async fn try_once(&mut self, router: &Router, target: &Target, progress: &mut Progress) -> Result<(), Box<Missed>> {
        loop {
            let place = router.place(target, Position::Row(&self.at), &progress.tried).map_err(Missed::nowhere)?;
            let next = place.region.range.end.clone();
            self.regions.push((std::mem::replace(&mut self.at, next), place));
            if self.at.is_empty() || (!self.end.is_empty() && self.at >= *self.end) {
                return Ok(());
            }
        }
    }

    fn position(&self) -> Position<'_> {
        Position::Row(&self.at)
    }
}
