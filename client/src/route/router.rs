//! From a row to the server that hosts it, and back with what the refusals taught.
//!
//! The warm path takes two short read locks and no master. Everything that can go wrong comes together in
//! [`Router::recover`]: it feeds the location cache, asks [`crate::route::retry`] what to do, waits and asks a master where need
//! be. Locks are never held across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use terrane_proto::convert::GroupLocation;
use terrane_proto::v1::{reply, request};
use terrane_proto::{PACKED_FORMAT, v1};
use terrane_types::{ClusterId, Error as Wire, GroupId, RegionDescriptor, RegionId, ServerId};
use tokio::time::Instant;

use crate::error::Error;
use crate::route::budget::{Bucket, RetryBudget};
use crate::route::counters::Counting;
use crate::route::hedge::Hedging;
use crate::route::lanes::{Lanes, Load};
use crate::route::locator::{Locator, Tried};
use crate::route::masters::{Kind, Masters, timed};
use crate::route::numbers::{Operations, Ticket, UnderWay};
use crate::route::observe::{Metrics, Observer};
use crate::route::progress::Progress;
use crate::route::retry::{RetryAction, decide};
use crate::route::search::Searches;
use crate::route::sessions::Sessions;
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::peer::Peer;
use crate::wire::session::Session;

/// Regions asked of a master at once: a scan over fifty regions looks up once.
const LOCATE_REGIONS: u32 = 256;
/// Rounds over all members of a group without a leader, for each question to a master; and how long that is waited for.
const ROUNDS_PER_LOOKUP: u32 = 4;
const BRIEF_LOOKUP: Duration = Duration::from_millis(500);

/// How long a master may take where the cache still has a place to try: the members of a group may elect a leader while no
/// master is up.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(300);

/// Which region of a table is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Position<'a> {
    /// The one that holds this row.
    Row(&'a [u8]),
    /// The one with the last rows before this bound; empty: of the table.
    Before(&'a [u8]),
}

/// Where a request goes.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) server: ServerId,
    pub(crate) session: Arc<Session>,
    pub(crate) region: RegionDescriptor,
    /// Whether the server was asked because it leads, or because someone has to be asked.
    leads: bool,
}

/// The location cache, the sessions and the masters of one client.
pub(crate) struct Router {
    pub(crate) cluster: ClusterId,
    pub(crate) masters: Masters,
    pub(crate) counting: Counting,
    locator: RwLock<Locator>,
    sessions: Sessions,
    searches: Searches,
    pub(crate) lanes: Lanes,
    /// Held while a master is asked, so that a thousand callers in need of the map ask once.
    lookup: tokio::sync::Mutex<()>,
    /// Answers of masters so far; tells those who waited for `lookup` that somebody else has asked.
    lookups_done: AtomicU64,
    /// The numbers of this client's operations.
    pub(crate) operations: Operations,
    pub(crate) observer: Observer,
    pub(crate) hedging: Option<Hedging>,
    retries: Bucket,
    began: Instant,
    boot: u64,
}

impl Router {
    pub(crate) fn new(
        cluster: ClusterId,
        masters: Masters,
        boot: u64,
        budget: RetryBudget,
        hedging: Option<Hedging>,
        metrics: Option<Arc<dyn Metrics>>,
    ) -> Self {
        Self {
            cluster,
            masters,
            counting: Counting::default(),
            locator: RwLock::default(),
            sessions: Sessions::default(),
            searches: Searches::default(),
            lanes: Lanes::default(),
            lookup: tokio::sync::Mutex::default(),
            lookups_done: AtomicU64::new(0),
            operations: Operations::new(),
            observer: Observer::new(metrics),
            hedging,
            retries: Bucket::new(budget),
            began: Instant::now(),
            boot,
        }
    }

    /// The hello of unary calls and scans to a region server.
    pub(crate) fn hello_to(&self, server: ServerId) -> v1::Hello {
        self.peer(server).hello()
    }

    const fn peer(&self, server: ServerId) -> Peer {
        Peer { cluster: self.cluster, server, boot: self.boot }
    }

    /// Where to send next for `position`; [`Failure::NoPlace`] when the cache does not know.
    pub(crate) fn place(&self, target: &Target, position: Position<'_>, tried: &[Tried]) -> Result<Place, Failure> {
        self.place_by(target, position, tried, Locator::candidate)
    }

    /// Where to send what any member may answer; `spread` chooses among equals.
    pub(crate) fn place_of_any(
        &self,
        target: &Target,
        position: Position<'_>,
        tried: &[Tried],
        spread: u64,
    ) -> Result<Place, Failure> {
        self.place_by(target, position, tried, |locator, group, tried| locator.any_member(group, tried, spread))
    }

    fn place_by(
        &self,
        target: &Target,
        position: Position<'_>,
        tried: &[Tried],
        choose: impl for<'a> Fn(&'a Locator, GroupId, &[Tried]) -> Option<(ServerId, &'a str)>,
    ) -> Result<Place, Failure> {
        let region = {
            let locator = self.locator.read();
            let region = find(&locator, target, position).ok_or(Failure::NoPlace)?;
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

    /// The first choice takes no requests at once: opens a session, or passes over members that are away.
    fn place_around(
        &self,
        region: RegionDescriptor,
        tried: &[Tried],
        choose: impl for<'a> Fn(&'a Locator, GroupId, &[Tried]) -> Option<(ServerId, &'a str)>,
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

    /// Whether the leader of a group is known, may be sent to, and did not refuse this call since the last news.
    fn knows_leader(&self, group: GroupId, tried: &[Tried]) -> bool {
        let locator = self.locator.read();
        locator.leader_at(group).is_some_and(|(server, address)| {
            !tried.contains(&(group, server)) && self.sessions.ready(server, address).is_some()
        })
    }

    /// One request that writes under operation numbers. Its body is made when it is about to be queued, with the server's
    /// cluster time.
    pub(crate) async fn attempt_write(
        &self,
        target: &Target,
        place: &Place,
        ticket: &Ticket,
        progress: &Progress,
        body: impl FnOnce(u64) -> request::Body,
    ) -> Result<reply::Body, Failure> {
        self.sent();
        let _turn = self.lanes.enter(place.region.group, Load::Writes, progress.deadline()).await?;
        if place.session.clock_is_in_doubt() {
            Box::pin(place.session.mend_clock(progress.try_until())).await?;
        }
        let room = place.session.room(progress.deadline()).await?;
        let until = progress.try_until();
        let header = v1::RequestHeader {
            client_id: ticket.client_id(),
            lowest_unsettled: ticket.lowest_unsettled(),
            under_way: ticket.under_way(place.region.region.0).map(on_wire),
            ..self.header(target, &place.region, until)
        };
        // Whoever has room knows the hello.
        let now_ms = place.session.cluster_time_ms().unwrap_or_default();
        let answered = place.session.call(room, header, body(now_ms), until).await?;
        target.saw_schema_version(answered.schema_version);
        Ok(answered.body)
    }

    /// Pays for one request more than was asked for.
    pub(crate) fn may_retry(&self) -> bool {
        self.retries.spend(self.began.elapsed())
    }

    pub(crate) fn sent(&self) {
        self.counting.requests.add();
        self.retries.earn();
    }

    pub(crate) fn header(&self, target: &Target, region: &RegionDescriptor, until: Instant) -> v1::RequestHeader {
        let left = until.saturating_duration_since(Instant::now());
        v1::RequestHeader {
            format: PACKED_FORMAT,
            table: target.table.0,
            region: region.region.0,
            epoch: region.epoch.0,
            schema_version: target.schema_version(),
            deadline_ms: u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1),
            ..v1::RequestHeader::default()
        }
    }

    /// A server answered as only a leader does: worth knowing when nobody knew who leads.
    pub(crate) fn answered(&self, place: &Place) {
        if !place.leads {
            self.locator.write().answered(place.region.group, place.server);
        }
        if self.searches.is_any() {
            self.searches.found(place.region.group);
        }
    }

    /// After a failed try: learns from it, waits, asks a master where need be. An error ends the call.
    pub(crate) async fn recover(
        &self,
        target: &Target,
        position: Position<'_>,
        place: Option<&Place>,
        failure: Failure,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        if let Some(place) = place {
            self.learn(target, place, &failure, progress);
        }
        let applied_maybe = progress.applied_maybe();
        self.settle(target, position, failure, applied_maybe, progress).await
    }

    /// The rest of recovering, after the cache has learnt: decides, waits, asks a master where need be.
    pub(crate) async fn settle(
        &self,
        target: &Target,
        position: Position<'_>,
        failure: Failure,
        applied_maybe: bool,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        progress.failed(failure.clone());
        let jitter = terrane_env::rand::u64();
        let action = decide(&failure, progress.risk, applied_maybe, progress.tries_like(&failure), jitter);
        if action == RetryAction::GiveUp {
            return Err(progress.in_truth(failure.into_error(progress.risk.write)));
        }
        if failure.costs_a_retry() && !self.may_retry() {
            return Err(progress.overspent());
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
                located.map_err(|error| progress.in_truth(error))
            }
            RetryAction::Search { .. } => self.search(target, position, true, progress).await,
            _ if failure.is_hop() => self.search(target, position, false, progress).await,
            _ => Ok(()),
        }
    }

    /// No member that was asked leads the group of `position`: waits for others to find the leader, or looks for it.
    /// `exhausted`: all members were asked.
    async fn search(
        &self,
        target: &Target,
        position: Position<'_>,
        exhausted: bool,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let Some(group) = find(&self.locator.read(), target, position).map(|region| region.group) else {
            return Ok(());
        };
        if self.knows_leader(group, &progress.tried) {
            progress.scout = None;
            if self.searches.is_any() {
                self.searches.found(group);
            }
            return Ok(());
        }
        let mut fresh = exhausted;
        if progress.scout.is_none() {
            let is_known = || self.knows_leader(group, &progress.tried);
            progress.scout = self.searches.join(group, progress.deadline(), is_known).await;
            // The others have looked meanwhile.
            fresh |= progress.scout.is_none();
        }
        if fresh {
            progress.tried.retain(|(tried, _)| *tried != group);
        }
        if exhausted && progress.rounds.is_multiple_of(ROUNDS_PER_LOOKUP) {
            return self.look_up_briefly(target, position, progress).await;
        }
        Ok(())
    }

    /// The group may be elsewhere by now: asks a master, but does not depend on its answer.
    async fn look_up_briefly(
        &self,
        target: &Target,
        position: Position<'_>,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let located = tokio::time::timeout(BRIEF_LOOKUP, self.locate(target, position, progress)).await;
        match located {
            Ok(Err(error)) if error.is_not_found() => Err(progress.in_truth(error)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "no master tells where a group is");
                Ok(())
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Whether a failed row of a call over many is to be told to the caller now.
    pub(crate) fn gives_up(failure: &Failure, applied_maybe: bool, progress: &Progress) -> bool {
        decide(failure, progress.risk, applied_maybe, progress.tries_like(failure).max(1), 0) == RetryAction::GiveUp
    }

    /// Feeds the location cache with what a failure said about the map.
    pub(crate) fn learn(&self, target: &Target, place: &Place, failure: &Failure, progress: &mut Progress) {
        let load = progress.load();
        let tried = &mut progress.tried;
        match failure {
            Failure::Refused(Wire::StaleEpoch { region, current }) => {
                self.counting.redirects.add();
                current.iter().for_each(|region| target.saw_schema_version(region.schema_version));
                let named = if *region == RegionId(0) { place.region.region } else { *region };
                self.locator.write().stale_epoch(target.table, named, current.clone());
            }
            Failure::Refused(Wire::NotLeader { group, term, leader, address, members }) => {
                self.counting.redirects.add();
                let location = told(*group, *term, *leader, address.as_deref(), members, place);
                // Fresh news of a leader are worth a second question even to a server that refused before.
                tried.retain(|(group, server)| *group != place.region.group || Some(*server) != *leader);
                tried.push((place.region.group, place.server));
                self.locator.write().not_leader(place.server, location);
            }
            Failure::Refused(Wire::Uncertain { not_tried: true }) => place.session.doubt_clock(),
            Failure::Lost(_)
            | Failure::NotSent(_)
            | Failure::Refused(Wire::Uncertain { .. } | Wire::DeadlineExceeded) => {
                tried.push((place.region.group, place.server));
                self.locator.write().silent(place.region.group, place.server);
            }
            Failure::Refused(Wire::SchemaChanged { version, .. }) => target.saw_schema_version(*version),
            Failure::Refused(Wire::Busy { retry_after } | Wire::LogFull { retry_after, .. }) => {
                self.lanes.refused(place.region.group, load, *retry_after);
            }
            Failure::Refused(Wire::NotFound { .. }) => {
                self.locator.write().forget_region(target.table, place.region.region);
            }
            Failure::Refused(Wire::Unavailable { .. }) => tried.push((place.region.group, place.server)),
            Failure::Refused(_) | Failure::Decided(_) | Failure::NoPlace | Failure::Leaderless | Failure::Queued => {}
        }
    }

    /// Asks a master for the map around `position`. Where the map is known and no master answers, the members of its groups
    /// are asked again.
    async fn locate(&self, target: &Target, position: Position<'_>, progress: &mut Progress) -> Result<(), Error> {
        let before = self.lookups_done.load(Ordering::Acquire);
        let Ok(_asking) = tokio::time::timeout_at(progress.deadline(), self.lookup.lock()).await else {
            return Err(progress.timeout());
        };
        if self.lookups_done.load(Ordering::Acquire) != before && self.knows(target, position) {
            return Ok(());
        }
        self.counting.master_lookups.add();
        let (key, reverse) = match position {
            Position::Row(row) => (row, false),
            Position::Before(end) => (end, true),
        };
        let request = v1::LocateRequest {
            hello: Some(self.masters.hello(Some(self.cluster))),
            table: target.table.0,
            key: Bytes::copy_from_slice(key),
            limit: LOCATE_REGIONS,
            reverse,
        };
        let left = progress.deadline().saturating_duration_since(Instant::now());
        let known = self.knows(target, position);
        let left = if known { left.min(ANSWER_WAIT_MAX) } else { left };
        let answered = self
            .masters
            .call(Kind::Read, left, |mut master, left| {
                let request = timed(request.clone(), left);
                async move { master.locate(request).await }
            })
            .await;
        match answered {
            Ok(reply) => self.learn_map(target, reply),
            Err(Error::Unreachable { .. } | Error::Unavailable { .. } | Error::Timeout { .. }) if known => {
                tracing::debug!("no master answers; the servers that are known are asked again");
            }
            Err(error) => return Err(target.is_gone(error)),
        }
        self.lookups_done.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn learn_map(&self, target: &Target, reply: v1::LocateReply) {
        target.saw_schema_version(reply.schema_version);
        let mut locator = self.locator.write();
        for group in reply.groups {
            locator.learn_group(group.into());
        }
        for region in reply.regions {
            match RegionDescriptor::try_from(region) {
                Ok(region) if region.table == target.table => {
                    locator.learn_region(region);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "a master described a region that cannot be"),
            }
        }
    }

    fn knows(&self, target: &Target, position: Position<'_>) -> bool {
        let locator = self.locator.read();
        find(&locator, target, position).is_some_and(|region| locator.candidate(region.group, &[]).is_some())
    }

    /// Refuses new calls, waits for those under way, and ends all sessions.
    pub(crate) async fn close(&self) {
        self.observer.close().await;
        self.sessions.clear();
    }

    /// Forgets where the regions of a table are, after it was dropped.
    pub(crate) fn forget_table(&self, target: &Target) {
        self.locator.write().forget_table(target.table);
    }
}

fn on_wire(under_way: UnderWay) -> v1::UnderWay {
    let UnderWay { below, ranges } = under_way;
    v1::UnderWay { below, ranges: ranges.into_iter().flat_map(|(first, last)| [first, last]).collect() }
}

fn find<'a>(locator: &'a Locator, target: &Target, position: Position<'_>) -> Option<&'a RegionDescriptor> {
    match position {
        Position::Row(row) => locator.find(target.table, row),
        Position::Before(end) => locator.find_before(target.table, end),
    }
}

/// What a `NotLeader` says about its group, in the cache's words. Its leader's address may come apart from the members.
fn told(
    group: GroupId,
    term: u64,
    leader: Option<ServerId>,
    address: Option<&str>,
    members: &[(ServerId, String)],
    place: &Place,
) -> GroupLocation {
    let group = if group == GroupId(0) { place.region.group } else { group };
    let mut members = members.to_vec();
    if let (Some(leader), Some(address)) = (leader, address)
        && !members.is_empty()
        && !members.iter().any(|(server, _)| *server == leader)
    {
        members.push((leader, address.to_owned()));
    }
    GroupLocation { group, leader, term, members }
}
