//! Regions that leave: the leader of their group drives each move, from the master's order to the end.
//!
//! The order names the move, and is repeated until it is over: it starts the move, learns how far it is, and cancels it. A move
//! lives in this process until the region is frozen, and in the group's log from then on ([`Departures::watch`] finds it
//! there). Whatever happens before costs only what was copied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use terrane_engine::{Engine, RegionCopy};
use terrane_proto::v1;
use terrane_types::{Error, GroupId, Invalid, MoveId, RegionDescriptor, RegionEpoch, RegionId, ServerId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::arrivals::{Arrivals, LocalFiles, Staging, read_part};
use super::peers::{CALL_TIMEOUT, Peers, answer};
use crate::error_mapping::{not_leader, propose_error};
use crate::group::state::Arrival;
use crate::hosted::{ChangeGuard, HostedRegion};
use crate::operation::{Adopt, Depart, Destination, Freeze, Refuse, Source, Unfreeze};
use crate::proposal::{Group, GroupHost, Proposal};
use crate::replicas::Replicas;
use crate::reply::Reply;

/// Rounds of copying before the region is frozen, whatever is left.
const ROUNDS_MAX: usize = 10;
/// The region is frozen once no more than this is to be flushed and copied.
const REST_BYTES: u64 = 1 << 20;
/// How long the files may take after the freeze. Then the move is undone: requests have waited long enough.
const REST_TIME_MAX: Duration = Duration::from_secs(3);
/// How long the other group may take to adopt the region before it is asked to refuse it.
const ADOPT_TIME_MAX: Duration = Duration::from_secs(5);
/// The pause before a call or a proposal is repeated: it grows from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// How long a server fetches before it says how far it has come.
const STAGE_TIME: Duration = Duration::from_secs(2);
/// How often frozen regions without a driver are looked for, and files of finished moves.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// How long the end of a move is remembered for the next order.
const REMEMBER: Duration = Duration::from_secs(600);

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Copying,
    Frozen,
    Moved,
    Undone,
}

#[derive(Clone, Debug)]
struct Progress {
    stage: Stage,
    detail: String,
    copied: u64,
    bytes: u64,
    region: Option<RegionDescriptor>,
    ended: Option<Instant>,
}

/// One move that this server drives.
struct Departure {
    id: MoveId,
    hosted: Arc<HostedRegion>,
    group: Group,
    to: GroupId,
    /// The servers of the other group, as the master named them last.
    servers: Mutex<Vec<ServerId>>,
    /// What the other group's members fetch.
    copy: Mutex<Option<Arc<RegionCopy>>>,
    progress: Mutex<Progress>,
    cancelled: CancellationToken,
}

/// The moves of regions that leave, and the edge of those that come in.
pub struct Departures {
    pub engine: Arc<Engine>,
    pub host: Arc<GroupHost>,
    pub replicas: Arc<Replicas>,
    pub addresses: Arc<crate::addresses::Addresses>,
    pub peers: Arc<Peers>,
    pub arrivals: Arc<Arrivals>,
    pub stop: CancellationToken,
    pub moves: Moves,
}

/// The moves under way and those that ended of late.
#[derive(Default)]
pub struct Moves(Mutex<BTreeMap<MoveId, Arc<Departure>>>);

/// Why a move ends here.
enum End {
    /// Another server leads the group now, or this one stops. What is frozen is the next leader's.
    Elsewhere,
    /// Nothing has changed.
    Undone(String),
    /// The region is to be unfrozen, unless it was adopted.
    GiveUp(String),
}

impl Departures {
    /// Looks for frozen regions that nothing drives, and for files that nothing needs, until `stop`.
    pub async fn watch(self: Arc<Self>) {
        let mut turn = tokio::time::interval(WATCH_INTERVAL);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut swept = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                _ = turn.tick() => {}
            }
            self.resume();
            self.moves.0.lock().retain(|_, departure| !departure.is_forgotten());
            if swept.elapsed() >= SWEEP_INTERVAL {
                swept = Instant::now();
                self.arrivals.sweep(|id| self.needs(id)).await;
            }
        }
    }

    /// Whether a group here may still need the files of a move; `None` if none knows of it.
    fn needs(&self, id: MoveId) -> Option<bool> {
        self.replicas.machines().iter().find_map(|machine| match machine.arrival(id)? {
            Arrival::Refused => Some(false),
            Arrival::Adopted { index, .. } => Some(self.host.group(machine.group())?.first_index() <= index),
        })
    }

    /// Drives the frozen regions that this server leads.
    fn resume(self: &Arc<Self>) {
        for hosted in self.replicas.regions.all() {
            let state = hosted.state();
            let Some(moving) = &state.moving else { continue };
            let Some(group) = self.host.group(hosted.group).filter(|group| group.status().is_leader) else { continue };
            if self.moves.0.lock().get(&moving.id).is_none_or(|known| known.progress.lock().ended.is_some()) {
                tracing::info!(region = %hosted.region, to = %moving.group, "asking what became of a move");
                self.start(&hosted, group, moving.clone(), None);
            }
        }
    }

    /// The master's order: starts a move, and says how far it is.
    pub fn order(self: &Arc<Self>, request: &v1::MoveRegionRequest) -> Result<v1::MoveRegionReply, Error> {
        let (id, region, to) = (MoveId(request.r#move), RegionId(request.region), GroupId(request.to_group));
        self.addresses.set(request.members.iter().map(|member| (ServerId(member.server), member.address.clone())));
        let servers: Vec<ServerId> = request.members.iter().map(|member| ServerId(member.server)).collect();
        if let Some(known) = self.moves.0.lock().get(&id).filter(|known| !known.left_for_another()) {
            *known.servers.lock() = servers;
            if request.cancel {
                known.cancelled.cancel();
            }
            return Ok(known.reply());
        }
        let Some(hosted) = self.replicas.regions.get(region).filter(|hosted| hosted.group != to) else {
            return self.departed(id, region);
        };
        let group = self.led(hosted.group)?;
        let state = hosted.state();
        let now = state.descriptor.clone();
        if now.epoch != RegionEpoch(request.epoch) {
            return Err(Error::StaleEpoch { region, current: vec![now] });
        }
        if let Some(moving) = &state.moving {
            if moving.id != id {
                return Err(Invalid::new(format!("region {region} moves to group {} already", moving.group)).into());
            }
            return Ok(self.start(&hosted, group, moving.clone(), None).reply());
        }
        if request.cancel {
            let detail = "it was cancelled before it began".to_owned();
            return Ok(v1::MoveRegionReply { state: v1::MoveState::Undone.into(), detail, ..Default::default() });
        }
        if !self.engine.can_copy_groups() {
            let what = format!("the engine of server {} cannot copy single regions", self.peers.server());
            return Err(Invalid::new(what).into());
        }
        let guard = hosted.begin_change("move")?;
        Ok(self.start(&hosted, group, Destination { id, group: to, servers }, Some(guard)).reply())
    }

    /// The answer for a region that is not here: by the note that it left, if it did.
    fn departed(&self, id: MoveId, region: RegionId) -> Result<v1::MoveRegionReply, Error> {
        let left = self.replicas.machines().iter().find_map(|machine| machine.departed(region));
        match left.filter(|(by, _)| *by == id) {
            Some((_, adopted)) => Ok(v1::MoveRegionReply {
                state: v1::MoveState::Moved.into(),
                region: Some((&adopted).into()),
                ..Default::default()
            }),
            None => Err(Error::StaleEpoch { region, current: self.replicas.successors(region) }),
        }
    }

    /// A group that this server leads. A follower names the leader.
    fn led(&self, id: GroupId) -> Result<Group, Error> {
        let group = self.host.group(id).ok_or_else(|| Error::NotFound { what: format!("group {id}") })?;
        let status = group.status();
        if status.is_leader {
            return Ok(group);
        }
        Err(not_leader(&group, status.term, status.leader.map(|(_, server)| server), &self.addresses))
    }

    /// Starts driving a move: from the beginning with a guard, from the freeze without.
    fn start(
        self: &Arc<Self>,
        hosted: &Arc<HostedRegion>,
        group: Group,
        to: Destination,
        guard: Option<ChangeGuard>,
    ) -> Arc<Departure> {
        let (stage, detail) = match guard {
            Some(_) => (Stage::Copying, "its files are being copied".to_owned()),
            None => (Stage::Frozen, format!("group {} is asked what became of it", to.group)),
        };
        let progress = Progress { stage, detail, copied: 0, bytes: 0, region: None, ended: None };
        let departure = Arc::new(Departure {
            id: to.id,
            hosted: hosted.clone(),
            group,
            to: to.group,
            servers: Mutex::new(to.servers),
            copy: Mutex::default(),
            progress: Mutex::new(progress),
            cancelled: CancellationToken::new(),
        });
        self.moves.0.lock().insert(to.id, departure.clone());
        let (departures, driven) = (self.clone(), departure.clone());
        terrane_env::task::spawn_named("move", async move {
            let stop = departures.stop.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = departures.drive(&driven, guard) => {}
            }
        });
        departure
    }

    async fn drive(&self, departure: &Departure, guard: Option<ChangeGuard>) {
        let begun = match &guard {
            Some(_) => self.hand_over(departure).await,
            None => Err(End::GiveUp("the leader of its group changed".to_owned())),
        };
        let ended = match begun {
            Err(End::GiveUp(why)) => self.give_up(departure, why).await,
            other => other,
        };
        let ended = match ended {
            Ok(adopted) => self.leave(departure, adopted).await,
            Err(end) => Err(end),
        };
        *departure.copy.lock() = None;
        let mut progress = departure.progress.lock();
        progress.ended = Some(Instant::now());
        match ended {
            Ok(()) => {
                progress.stage = Stage::Moved;
                progress.detail.clear();
            }
            Err(End::Undone(why) | End::GiveUp(why)) => {
                tracing::info!(region = %departure.hosted.region, to = %departure.to, why, "a move was undone");
                (progress.stage, progress.detail) = (Stage::Undone, why);
            }
            Err(End::Elsewhere) => progress.detail = ELSEWHERE.to_owned(),
        }
    }

    /// Copies the region, freezes it, and has the other group adopt it.
    async fn hand_over(&self, departure: &Departure) -> Result<RegionDescriptor, End> {
        let _compactions = departure.hosted.engine.hold_compactions();
        for _ in 0..ROUNDS_MAX {
            let contents = self.copy(departure).await.map_err(End::Undone)?;
            self.stage_everywhere(departure, &contents, None).await.map_err(End::Undone)?;
            if departure.hosted.engine.memtable_bytes() <= REST_BYTES {
                break;
            }
        }
        let state = departure.hosted.state();
        let to = Destination { id: departure.id, group: departure.to, servers: departure.servers.lock().clone() };
        let freeze = Freeze { region: departure.hosted.region, epoch: state.descriptor.epoch, to };
        match self.propose(departure, || Proposal::Freeze(freeze.clone())).await? {
            Reply::Applied { .. } => {}
            refused => return Err(End::Undone(refusal(refused))),
        }
        departure.set_stage(Stage::Frozen, "the rest is being copied");
        terrane_env::buggify_pause!("a frozen region waits").await;
        let contents = if terrane_env::planted!("a move leaves the rest behind") {
            departure.copied().ok_or_else(|| End::GiveUp("nothing was copied".to_owned()))?
        } else {
            self.copy(departure).await.map_err(End::GiveUp)?
        };
        let rest = self.stage_everywhere(departure, &contents, Some(REST_TIME_MAX));
        rest.await.map_err(End::GiveUp)?;
        departure.set_stage(Stage::Frozen, "the other group takes it in");
        self.adopted(departure, contents).await
    }

    /// Flushes the region and takes a copy of it, from which the others fetch.
    async fn copy(&self, departure: &Departure) -> Result<Bytes, String> {
        let (group, region) = (departure.hosted.group, departure.hosted.region);
        let machine = self.replicas.machine(group).ok_or("the group left this server")?;
        machine.flush(region).await.map_err(|error| error.to_string())?;
        let copy = self.engine.copy_region(group, region).await.map_err(|error| error.to_string())?;
        let copy = copy.ok_or("the region left this server")?;
        let contents = Bytes::from(copy.contents().encode());
        departure.progress.lock().bytes = copy.contents().files().iter().map(|file| file.size).sum();
        *departure.copy.lock() = Some(Arc::new(copy));
        Ok(contents)
    }

    /// Has the members of the other group fetch everything, until a majority has: within `patience`, or for as long as some
    /// of them makes progress.
    async fn stage_everywhere(
        &self,
        departure: &Departure,
        contents: &Bytes,
        patience: Option<Duration>,
    ) -> Result<(), String> {
        let began = Instant::now();
        let (mut copied, mut moved_at, mut pause) = (0, Instant::now(), PAUSES.0);
        loop {
            let servers = departure.servers.lock().clone();
            let all = join_all(servers.iter().map(|server| self.stage_at(departure, *server, contents))).await;
            if all.iter().any(|answer| matches!(answer, Ok(reply) if reply.refused)) {
                return Err(format!("group {} refused it", departure.to));
            }
            let staged = all.iter().filter(|answer| matches!(answer, Ok(reply) if reply.staged)).count();
            let most = all.iter().flatten().map(|reply| reply.bytes).max().unwrap_or(0);
            departure.progress.lock().copied = most;
            if staged > servers.len() / 2 {
                return Ok(());
            }
            if departure.cancelled.is_cancelled() {
                return Err("it was cancelled".to_owned());
            }
            if most > copied {
                (copied, moved_at, pause) = (most, Instant::now(), PAUSES.0);
            }
            let waited =
                patience.map_or_else(|| moved_at.elapsed() >= 6 * CALL_TIMEOUT, |most| began.elapsed() >= most);
            if waited {
                let failed = all.into_iter().find_map(|answer| answer.err().map(|error| error.to_string()));
                let why = failed.unwrap_or_else(|| "they were too slow".to_owned());
                return Err(format!("a majority of group {} did not get its files: {why}", departure.to));
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    async fn stage_at(
        &self,
        departure: &Departure,
        server: ServerId,
        contents: &Bytes,
    ) -> Result<v1::StageRegionReply, Error> {
        let source = self.peers.server();
        let request = v1::StageRegionRequest {
            hello: self.peers.hello(server),
            r#move: departure.id.0,
            to_group: departure.to.0,
            contents: contents.clone(),
            source: source.0,
            source_address: self.addresses.get(source).unwrap_or_default(),
            source_boot: self.peers.source().boot,
        };
        if server == source {
            return self.stage(request).await;
        }
        let mut client = self.peers.client(server)?;
        answer(client.stage_region(request)).await
    }

    /// Has the other group adopt the region.
    async fn adopted(&self, departure: &Departure, contents: Bytes) -> Result<RegionDescriptor, End> {
        let began = Instant::now();
        let request =
            v1::AdoptRegionRequest { hello: None, r#move: departure.id.0, to_group: departure.to.0, contents };
        let servers = departure.servers.lock().clone();
        loop {
            let adopted = self.at_leader(departure.to, &servers, |client, hello| {
                let request = v1::AdoptRegionRequest { hello, ..request.clone() };
                async move {
                    match client {
                        Some(mut client) => answer(client.adopt_region(request)).await,
                        None => self.adopt(request).await,
                    }
                }
            });
            match adopted.await {
                Ok(v1::AdoptRegionReply { region: Some(region), .. }) => {
                    return region.try_into().map_err(|error: Error| End::GiveUp(error.to_string()));
                }
                Ok(reply) => return Err(End::GiveUp(reply.refused)),
                Err(error) if began.elapsed() >= ADOPT_TIME_MAX => return Err(End::GiveUp(error.to_string())),
                Err(Error::Invalid(invalid)) => return Err(End::GiveUp(invalid.what)),
                Err(_) => tokio::time::sleep(PAUSES.0).await,
            }
        }
    }

    /// Has the other group refuse the move. If it has adopted the region before, that stands; otherwise the region is unfrozen.
    async fn give_up(&self, departure: &Departure, why: String) -> Result<RegionDescriptor, End> {
        departure.set_stage(Stage::Frozen, &format!("it is being undone: {why}"));
        let request = v1::RefuseMoveRequest { hello: None, r#move: departure.id.0, to_group: departure.to.0 };
        let mut pause = PAUSES.0;
        while !terrane_env::planted!("a move is undone without asking") {
            let servers = departure.servers.lock().clone();
            let refused = self.at_leader(departure.to, &servers, |client, hello| {
                let request = v1::RefuseMoveRequest { hello, ..request };
                async move {
                    match client {
                        Some(mut client) => answer(client.refuse_move(request)).await,
                        None => self.refuse(request).await,
                    }
                }
            });
            match refused.await {
                Ok(v1::RefuseMoveReply { adopted: Some(region) }) => {
                    return region.try_into().map_err(|_| End::Elsewhere);
                }
                Ok(_) => break,
                Err(error) => {
                    let detail = format!("group {} has to say whether it took the region in: {error}", departure.to);
                    departure.set_stage(Stage::Frozen, &detail);
                }
            }
            if !departure.group.status().is_leader {
                return Err(End::Elsewhere);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
        let unfreeze = Unfreeze { region: departure.hosted.region, id: departure.id };
        self.propose(departure, || Proposal::Unfreeze(unfreeze)).await?;
        Err(End::Undone(why))
    }

    /// The other group has the region: redirects requests to it, and drops the region once a majority has taken it in.
    async fn leave(&self, departure: &Departure, adopted: RegionDescriptor) -> Result<(), End> {
        departure.hosted.set_adopted(adopted.clone());
        {
            let mut progress = departure.progress.lock();
            progress.region = Some(adopted.clone());
        }
        let mut pause = PAUSES.0;
        while !self.is_held(departure).await && !terrane_env::planted!("a region is dropped before others have it") {
            departure.set_stage(Stage::Frozen, "a majority of the other group has to take it in");
            if !departure.group.status().is_leader {
                return Err(End::Elsewhere);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
        terrane_env::buggify_pause!("an adopted region is dropped late").await;
        let depart = Depart { id: departure.id, adopted };
        self.propose(departure, || Proposal::Depart(depart.clone())).await.map(drop)
    }

    /// Whether a majority of the other group has taken the region in.
    async fn is_held(&self, departure: &Departure) -> bool {
        let servers = departure.servers.lock().clone();
        let nothing = Bytes::new();
        let all = join_all(servers.iter().map(|server| self.stage_at(departure, *server, &nothing))).await;
        let held = all.iter().filter(|answer| matches!(answer, Ok(reply) if reply.adopted)).count();
        held > servers.len() / 2
    }

    /// Proposes to the group that the region leaves, until the outcome is known.
    async fn propose(&self, departure: &Departure, proposal: impl Fn() -> Proposal) -> Result<Reply, End> {
        let mut pause = PAUSES.0;
        loop {
            match departure.group.propose(proposal()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    let error = propose_error(error, &departure.group, &self.addresses);
                    if matches!(error, Error::NotLeader { .. }) || self.stop.is_cancelled() {
                        return Err(End::Elsewhere);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// As [`Peers::at_leader`]; `None` stands for this server.
    async fn at_leader<T, F>(
        &self,
        group: GroupId,
        servers: &[ServerId],
        call: impl Fn(Option<super::peers::Client>, Option<v1::Hello>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        if self.host.group(group).is_some_and(|group| group.status().is_leader) {
            return call(None, self.peers.hello(self.peers.server())).await;
        }
        let others: Vec<ServerId> = servers.iter().copied().filter(|server| *server != self.peers.server()).collect();
        self.peers.at_leader(group, &others, |client, hello| call(Some(client), hello)).await
    }

    /// Fetches the files of a region that comes in, and says how far that is. Without contents, only the latter.
    pub async fn stage(&self, request: v1::StageRegionRequest) -> Result<v1::StageRegionReply, Error> {
        let (id, group) = (MoveId(request.r#move), GroupId(request.to_group));
        let source = Source { server: ServerId(request.source), boot: request.source_boot };
        let not_here = || Error::NotFound { what: format!("group {group} on server {}", self.peers.server()) };
        let machine = self.replicas.machine(group).ok_or_else(not_here)?;
        match machine.arrival(id) {
            Some(Arrival::Adopted { .. }) => {
                return Ok(v1::StageRegionReply { staged: true, adopted: true, ..Default::default() });
            }
            Some(Arrival::Refused) => return Ok(v1::StageRegionReply { refused: true, ..Default::default() }),
            None if request.contents.is_empty() => return Ok(v1::StageRegionReply::default()),
            None => {}
        }
        self.addresses.set([(source.server, request.source_address)]);
        let holders = [source.server];
        let staging = self.arrivals.stage((id, source), &request.contents, &holders, STAGE_TIME);
        let Staging { staged, bytes } = staging.await?;
        Ok(v1::StageRegionReply { staged, bytes, ..Default::default() })
    }

    /// Takes a region into a group that this server leads.
    pub async fn adopt(&self, request: v1::AdoptRegionRequest) -> Result<v1::AdoptRegionReply, Error> {
        let (id, group) = (MoveId(request.r#move), self.led(GroupId(request.to_group))?);
        let machine = self.replicas.machine(group.id());
        let is_decided = machine.is_some_and(|machine| machine.arrival(id).is_some());
        let hello = request.hello.as_ref();
        let source =
            hello.map(|hello| Source { server: ServerId(hello.own_server), boot: hello.boot }).unwrap_or_default();
        if !is_decided && !self.arrivals.has(id, source, &request.contents).await {
            let message = "the region's files are not here yet".to_owned();
            return Err(Error::Unavailable { message, retry_after: PAUSES.0 });
        }
        let contents = terrane_engine::RegionContents::decode(&request.contents);
        let least_stamp = contents.map_or(0, |contents| contents.point().stamp);
        let adopt = Adopt { id, source, contents: request.contents };
        match group.propose(Proposal::Adopt { adopt, least_stamp }).await {
            Ok(Reply::Adopted { region }) => {
                Ok(v1::AdoptRegionReply { region: Some((&region).into()), refused: String::new() })
            }
            Ok(refused) => Ok(v1::AdoptRegionReply { region: None, refused: refusal(refused) }),
            Err(error) => Err(propose_error(error, &group, &self.addresses)),
        }
    }

    /// Refuses a move into a group that this server leads, unless the region was adopted.
    pub async fn refuse(&self, request: v1::RefuseMoveRequest) -> Result<v1::RefuseMoveReply, Error> {
        let (id, group) = (MoveId(request.r#move), self.led(GroupId(request.to_group))?);
        match group.propose(Proposal::Refuse(Refuse { id })).await {
            Ok(Reply::Adopted { region }) => Ok(v1::RefuseMoveReply { adopted: Some((&region).into()) }),
            Ok(Reply::Refused { .. }) => Ok(v1::RefuseMoveReply::default()),
            Ok(other) => Err(Error::Internal { message: refusal(other) }),
            Err(error) => Err(propose_error(error, &group, &self.addresses)),
        }
    }

    /// Reads a part of a file of a move, of a region that leaves or one that came in.
    pub async fn read(
        &self,
        (id, source): (MoveId, Source),
        file: u64,
        offset: u64,
        length: usize,
    ) -> Result<Bytes, Error> {
        let departure = self.moves.0.lock().get(&id).filter(|_| source == self.peers.source()).cloned();
        let copy = departure.and_then(|departure| departure.copy.lock().clone());
        match copy.as_ref().and_then(|copy| copy.path(file)) {
            Some(path) => read_part(path.clone(), offset, length).await,
            None => self.arrivals.read((id, source), file, offset, length).await,
        }
    }
}

impl LocalFiles for Departures {
    fn read_local(
        &self,
        of: (MoveId, Source),
        file: u64,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'_, Result<Bytes, Error>> {
        Box::pin(self.read(of, file, offset, length))
    }
}

/// The detail of a move that another server goes on with.
const ELSEWHERE: &str = "another server leads the group now";

impl Departure {
    fn set_stage(&self, stage: Stage, detail: &str) {
        let mut progress = self.progress.lock();
        (progress.stage, progress.detail) = (stage, detail.to_owned());
    }

    /// What was copied last.
    fn copied(&self) -> Option<Bytes> {
        self.copy.lock().as_ref().map(|copy| Bytes::from(copy.contents().encode()))
    }

    fn left_for_another(&self) -> bool {
        let progress = self.progress.lock();
        progress.ended.is_some() && !matches!(progress.stage, Stage::Moved | Stage::Undone)
    }

    fn is_forgotten(&self) -> bool {
        self.left_for_another() || self.progress.lock().ended.is_some_and(|ended| ended.elapsed() >= REMEMBER)
    }

    fn reply(&self) -> v1::MoveRegionReply {
        let progress = self.progress.lock().clone();
        let state = match progress.stage {
            Stage::Copying => v1::MoveState::Copying,
            Stage::Frozen => v1::MoveState::Frozen,
            Stage::Moved => v1::MoveState::Moved,
            Stage::Undone => v1::MoveState::Undone,
        };
        v1::MoveRegionReply {
            state: state.into(),
            detail: progress.detail,
            copied_bytes: progress.copied,
            bytes: progress.bytes,
            region: progress.region.as_ref().map(Into::into),
        }
    }
}

fn refusal(reply: Reply) -> String {
    match reply {
        Reply::Refused { why } => why,
        other => other.applied().map_or_else(|error| error.to_string(), |_| "it was refused".to_owned()),
    }
}
