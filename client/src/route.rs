//! From a row to the server that hosts it, and back with what the refusals taught.
//!
//! The warm path takes two short read locks and no master. Everything that can go wrong comes together in
//! [`Router::recover`]: it feeds the location cache, asks [`crate::retry`] what to do, waits and asks a master where need
//! be. Locks are never held across an await.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use terrane_proto::convert::GroupLocation;
use terrane_proto::v1::{reply, request};
use terrane_proto::{PACKED_FORMAT, v1};
use terrane_types::{ClusterId, Error as Wire, GroupId, RegionDescriptor, RegionId, ServerId};
use tokio::time::Instant;

use crate::budget::{Bucket, RetryBudget};
use crate::counters::Counting;
use crate::deadline::Progress;
use crate::error::Error;
use crate::hedge::Hedging;
use crate::locator::{Locator, Tried};
use crate::masters::{Kind, Masters, timed};
use crate::numbers::{Operations, Ticket};
use crate::observe::{Metrics, Observer};
use crate::retry::{Failure, RetryAction, decide};
use crate::session::{Peer, Session};
use crate::table::Target;

/// Regions asked of a master at once: a scan over fifty regions looks up once.
const LOCATE_REGIONS: u32 = 256;

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
    sessions: RwLock<BTreeMap<ServerId, Arc<Session>>>,
    /// Held while a session is opened, so that callers which find none open one together.
    opening: Mutex<()>,
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
            sessions: RwLock::default(),
            opening: Mutex::default(),
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
        self.place_by(target, position, |locator, group| locator.candidate(group, tried))
    }

    /// Where to send what any member may answer; `spread` chooses among equals.
    pub(crate) fn place_of_any(
        &self,
        target: &Target,
        position: Position<'_>,
        tried: &[Tried],
        spread: u64,
    ) -> Result<Place, Failure> {
        self.place_by(target, position, |locator, group| locator.any_member(group, tried, spread))
    }

    fn place_by(
        &self,
        target: &Target,
        position: Position<'_>,
        choose: impl for<'a> Fn(&'a Locator, GroupId) -> Option<(ServerId, &'a str)>,
    ) -> Result<Place, Failure> {
        let (region, server, address, leads) = {
            let locator = self.locator.read();
            let region = find(&locator, target, position).ok_or(Failure::NoPlace)?;
            let (server, address) = choose(&locator, region.group).ok_or(Failure::NoPlace)?;
            if let Some(session) = self.session_if_open(server, address) {
                let leads = locator.leader(region.group) == Some(server);
                return Ok(Place { server, session, region: region.clone(), leads });
            }
            (region.clone(), server, address.to_owned(), locator.leader(region.group) == Some(server))
        };
        let session = self.open_session(server, &address)?;
        Ok(Place { server, session, region, leads })
    }

    fn session_if_open(&self, server: ServerId, address: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.read();
        let session = sessions.get(&server)?;
        (session.address() == address && !session.is_broken()).then(|| Arc::clone(session))
    }

    fn open_session(&self, server: ServerId, address: &str) -> Result<Arc<Session>, Failure> {
        let _opening = self.opening.lock();
        if let Some(session) = self.session_if_open(server, address) {
            return Ok(session);
        }
        self.counting.sessions_opened.add();
        let session = Session::open(address, self.peer(server))?;
        self.sessions.write().insert(server, Arc::clone(&session));
        Ok(session)
    }

    /// One request that writes under operation numbers. Its body is made when it is about to be queued, with the server's
    /// cluster time.
    pub(crate) async fn attempt_write(
        &self,
        target: &Target,
        place: &Place,
        ticket: &Ticket,
        until: Instant,
        body: impl FnOnce(u64) -> request::Body,
    ) -> Result<reply::Body, Failure> {
        self.sent();
        if place.session.clock_is_in_doubt() {
            Box::pin(place.session.mend_clock(until)).await?;
        }
        let room = place.session.room(until).await?;
        let header = v1::RequestHeader {
            client_id: ticket.client_id(),
            lowest_unsettled: ticket.lowest_unsettled(),
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
            self.learn(target, place, &failure, &mut progress.tried);
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
        let action = decide(&failure, progress.risk, applied_maybe, progress.tries, jitter);
        if action == RetryAction::GiveUp {
            return Err(progress.in_truth(failure.into_error(progress.risk.write)));
        }
        if failure.costs_a_retry() && !self.may_retry() {
            return Err(progress.overspent());
        }
        if !matches!(failure, Failure::NoPlace) {
            self.counting.retries.add();
        }
        if let RetryAction::Relocate { .. } = action {
            progress.tried.clear();
        }
        progress.wait(action.wait()).await?;
        if let RetryAction::Relocate { .. } = action {
            let located = self.locate(target, position, progress).await;
            located.map_err(|error| progress.in_truth(error))?;
        }
        Ok(())
    }

    /// Whether a failed row of a call over many is to be told to the caller now.
    pub(crate) fn gives_up(failure: &Failure, applied_maybe: bool, progress: &Progress) -> bool {
        decide(failure, progress.risk, applied_maybe, progress.tries.max(1), 0) == RetryAction::GiveUp
    }

    /// Feeds the location cache with what a failure said about the map.
    pub(crate) fn learn(&self, target: &Target, place: &Place, failure: &Failure, tried: &mut Vec<Tried>) {
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
            Failure::Refused(Wire::NotFound { .. }) => {
                self.locator.write().forget_region(target.table, place.region.region);
            }
            Failure::Refused(Wire::Unavailable { .. }) => tried.push((place.region.group, place.server)),
            Failure::Refused(_) | Failure::Decided(_) | Failure::NoPlace => {}
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
            Position::Before(stop) => (stop, true),
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
        self.sessions.write().clear();
    }

    /// Forgets where the regions of a table are, after it was dropped.
    pub(crate) fn forget_table(&self, target: &Target) {
        self.locator.write().forget_table(target.table);
    }
}

fn find<'a>(locator: &'a Locator, target: &Target, position: Position<'_>) -> Option<&'a RegionDescriptor> {
    match position {
        Position::Row(row) => locator.find(target.table, row),
        Position::Before(stop) => locator.find_before(target.table, stop),
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
