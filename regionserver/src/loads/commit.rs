//! The leader's part in a load after its files are built: it has the members fetch them, and proposes the load.
//!
//! A commit may take longer than a client waits for one answer, so it is a task of its own: a client that asks again finds
//! it under way, or learns what became of it. It may be asked any number of times, also after the leader changed: what
//! counts is the operation number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use terrane_engine::Engine;
use terrane_proto::v1;
use terrane_types::{Error, GroupId, Invalid, RegionId, ServerId};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::runs::{Part, PartsHere, RunId, Runs, Sealed};
use crate::edge::error_mapping::{propose_error, require_leader, stopping};
use crate::group::proposal::{Group, GroupHost, Proposal};
use crate::masters::addresses::Addresses;
use crate::moves::peers::{CALL_TIMEOUT, PAUSES, Peers, answer};
use crate::operation::{Load, StagingId};
use crate::replicas::Replicas;
use crate::replicas::hosted::HostedRegion;
use crate::staging::sweep::sweep;
use crate::staging::transfer::later;
use crate::staging::{FileSet, Staging, StagingProgress};
use crate::window::{ClientId, NO_CLIENT};

/// How long a server fetches before it says how far it has come.
const STAGE_TIME: Duration = Duration::from_millis(500);
/// How long a member may make no progress.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long other members may take once a majority has all files. One that lacks them fetches them when it applies the load,
/// and applies nothing else meanwhile.
const OTHERS_MAX: Duration = Duration::from_secs(1);
/// How long a caller waits for the end of a commit before it is told to ask again.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// By how much the time of a load may be ahead of this server's and still be a server's.
const AHEAD_MAX_MS: u64 = 2_000;
/// Runs that a run may have been cut from.
const OPERATIONS_MAX: usize = 64;
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The request to take a run in.
#[derive(Clone, Debug)]
pub struct Commit {
    pub client: ClientId,
    pub lowest_unsettled: u64,
    pub run: RunId,
    pub parts: u32,
    /// Its number, after those of the runs it was cut from.
    pub operations: Vec<u64>,
    pub first_try_ms: u64,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The rows are in the region, now or before.
    Loaded,
    /// It is under way.
    Pending,
    /// This server has so many parts of the run, and not all.
    Missing { parts: u32 },
}

type Outcome = Result<Committed, Error>;
type Pending = Shared<BoxFuture<'static, Outcome>>;

/// The bulk loads of this server.
pub struct Loads {
    pub runs: Runs,
    pub staging: Arc<Staging>,
    pub engine: Arc<Engine>,
    pub host: Arc<GroupHost>,
    pub replicas: Arc<Replicas>,
    pub addresses: Arc<Addresses>,
    pub peers: Arc<Peers>,
    pub stop: CancellationToken,
    pub under_way: UnderWay,
}

/// The commits that have begun and whose outcome no caller has heard.
#[derive(Default)]
pub struct UnderWay(Mutex<BTreeMap<(ClientId, RunId), Pending>>);

impl Loads {
    /// Takes a part of a run for a region that this server leads.
    pub async fn add(
        &self,
        client: ClientId,
        part: Part,
        hosted: &HostedRegion,
        group: &Group,
    ) -> Result<PartsHere, Error> {
        self.check(client, group)?;
        // Not the time of the group's log, which may be far ahead after its clocks were off: the load goes to other groups, too,
        // and a delete there would not hide its cells.
        self.runs.add(client, part, &hosted.state(), self.host.time_ms()).await
    }

    /// Takes a run into its region, which this server leads. Answers after a while whether or not that is done.
    pub async fn commit(
        self: &Arc<Self>,
        commit: Commit,
        hosted: &Arc<HostedRegion>,
        group: &Group,
        deadline: Duration,
    ) -> Outcome {
        self.check(commit.client, group)?;
        if commit.operations.is_empty() || commit.operations.len() > OPERATIONS_MAX || commit.operations.contains(&0) {
            let what = format!("a commit of a bulk load names 1 to {OPERATIONS_MAX} operation numbers");
            return Err(Error::Invalid(Invalid { what }));
        }
        let id = (commit.client, commit.run);
        let pending = {
            let mut under_way = self.under_way.0.lock();
            under_way.entry(id).or_insert_with(|| self.begin(commit, hosted, group)).clone()
        };
        let Ok(outcome) = tokio::time::timeout(ANSWER_WITHIN.min(deadline / 2), pending).await else {
            return Ok(Committed::Pending);
        };
        self.under_way.0.lock().remove(&id);
        match &outcome {
            Ok(Committed::Loaded) => self.runs.end(id.0, id.1, true).await,
            // A run that was refused is of no more use. After any other error the client may commit it again.
            Err(
                Error::StaleEpoch { .. }
                | Error::SchemaChanged { .. }
                | Error::ReadOnly { .. }
                | Error::Disabled { .. }
                | Error::Invalid(_),
            ) => self.runs.end(id.0, id.1, false).await,
            Ok(Committed::Pending | Committed::Missing { .. }) | Err(_) => {}
        }
        outcome
    }

    /// A client needs an id and numbers; and files can only be taken in by an engine that has files.
    fn check(&self, client: ClientId, group: &Group) -> Result<(), Error> {
        if client == NO_CLIENT {
            return Err(Error::Invalid(Invalid::new("a bulk load needs a client id")));
        }
        require_leader(group, &self.addresses)?;
        self.check_engine()
    }

    fn check_engine(&self) -> Result<(), Error> {
        if self.engine.can_ingest() {
            return Ok(());
        }
        let feature = format!("bulk loads (the engine of server {} has no store files; use puts)", self.peers.server());
        Err(Error::Unsupported { feature })
    }

    fn begin(self: &Arc<Self>, commit: Commit, hosted: &Arc<HostedRegion>, group: &Group) -> Pending {
        let (sender, outcome) = oneshot::channel();
        let (loads, hosted, group) = (self.clone(), hosted.clone(), group.clone());
        terrane_env::task::spawn_named("load", async move {
            let stop = loads.stop.clone();
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => Err(stopping()),
                outcome = loads.carry_out(&commit, &hosted, &group) => outcome,
            };
            // A caller that has gone away asks again.
            sender.send(outcome).ok();
        });
        outcome.map(|outcome| outcome.unwrap_or_else(|_| Err(stopping()))).boxed().shared()
    }

    async fn carry_out(&self, commit: &Commit, hosted: &HostedRegion, group: &Group) -> Outcome {
        let load = |sealed: Sealed| Load {
            region: hosted.region,
            epoch: hosted.state().descriptor.epoch,
            schema_version: sealed.schema_version,
            client: commit.client,
            lowest_unsettled: commit.lowest_unsettled,
            operations: commit.operations.clone(),
            first_try_ms: commit.first_try_ms,
            staging: sealed.staging,
            source: self.peers.server(),
            files: sealed.files,
        };
        let Some(run) = self.runs.get(commit.client, commit.run) else {
            let nothing = Sealed { staging: StagingId([0; 16]), schema_version: 0, timestamp_ms: 0, files: Vec::new() };
            let machine = self.replicas.machine(hosted.group);
            let is_here = machine.is_some_and(|machine| machine.has_load(&load(nothing)));
            return Ok(if is_here { Committed::Loaded } else { Committed::Missing { parts: 0 } });
        };
        let sealed = match self.runs.seal(&run, commit.parts).await? {
            Ok(sealed) => sealed,
            Err(parts) => return Ok(Committed::Missing { parts }),
        };
        // Another group's leader named the time, by a clock that may be ahead of this group's. A time far ahead is the client's
        // own, and there is no waiting for it.
        let is_near = sealed.timestamp_ms <= self.host.time_ms() + AHEAD_MAX_MS;
        let least_stamp = if is_near { sealed.timestamp_ms } else { 0 };
        let load = load(sealed);
        self.stage_everywhere(group, &load).await?;
        terrane_env::buggify_pause!("a load is proposed late").await;
        self.flush(hosted.group, hosted.region).await;
        if terrane_env::buggify!("a load is proposed again later") {
            // As after a call that was given up while its proposal waited.
            let (group, load) = (group.clone(), load.clone());
            terrane_env::task::spawn_named("late load", async move {
                tokio::time::sleep(Duration::from_millis(terrane_env::rand::range(0..2_000))).await;
                drop(group.propose(Proposal::Load { load, least_stamp }).await);
            });
        }
        match group.propose(Proposal::Load { load, least_stamp }).await {
            Ok(reply) => reply.applied().map(|_| Committed::Loaded),
            Err(error) => Err(propose_error(error, group, &self.addresses)),
        }
    }

    /// What is in memory of the region has to be in files before the load: the less that is, the shorter the load takes.
    async fn flush(&self, group: GroupId, region: RegionId) {
        let Some(machine) = self.replicas.machine(group) else { return };
        if let Err(error) = machine.flush(region).await {
            tracing::debug!(%region, %error, "a region was not flushed before a load; the load flushes it");
        }
    }

    /// Has the members fetch the files, until a majority of the voters has them.
    async fn stage_everywhere(&self, group: &Group, load: &Load) -> Result<(), Error> {
        let status = group.status();
        let mut encoded = Vec::new();
        load.encode(&mut encoded);
        let encoded = Bytes::from(encoded);
        let voters: BTreeSet<ServerId> = status
            .members
            .iter()
            .filter(|(replica, _)| status.voters.contains(replica))
            .map(|(_, server)| *server)
            .collect();
        let servers: BTreeSet<ServerId> = status.members.values().copied().collect();
        let stage = |server: ServerId| {
            let encoded = encoded.clone();
            async move { (server, self.stage_at(server, group.id(), encoded, load).await) }
        };
        let mut asked: FuturesUnordered<_> = servers.into_iter().map(stage).collect();
        let mut staged = 0;
        // Each member ends by itself.
        let mut until = None;
        let mut failed = None;
        loop {
            let next = match until {
                Some(until) => timeout_at(until, asked.next()).await.unwrap_or(None),
                None => asked.next().await,
            };
            let Some((server, outcome)) = next else { break };
            match outcome {
                Ok(()) => staged += usize::from(voters.contains(&server)),
                // Its engine has no files: it could never apply the load.
                Err(error @ (Error::Unsupported { .. } | Error::Invalid(_))) => return Err(error),
                Err(error) => failed = Some(error),
            }
            if staged > voters.len() / 2 && until.is_none() {
                until = Some(Instant::now() + OTHERS_MAX);
            }
        }
        if staged > voters.len() / 2 {
            return Ok(());
        }
        Err(failed.unwrap_or_else(|| later(format!("no majority of group {} has the files", group.id()))))
    }

    /// Has one member fetch the files.
    async fn stage_at(&self, server: ServerId, group: GroupId, load: Bytes, of: &Load) -> Result<(), Error> {
        let own = self.peers.server();
        if server == own {
            let progress = self.staging.stage(FileSet::Load(of), &[], STAGE_TIME).await?;
            return if progress.is_staged { Ok(()) } else { Err(later("the files of a load are gone".to_owned())) };
        }
        let (mut bytes, mut moved_at, mut pause) = (0, Instant::now(), PAUSES.0);
        loop {
            let request = v1::StageLoadRequest {
                hello: self.peers.hello(server),
                group: group.0,
                load: load.clone(),
                source_address: self.addresses.get(own).unwrap_or_default(),
            };
            let reply = match self.peers.client(server) {
                Ok(mut client) => answer(client.stage_load(request), CALL_TIMEOUT).await,
                Err(error) => Err(error),
            };
            let failed = match reply {
                Ok(reply) if reply.staged => return Ok(()),
                Ok(reply) => {
                    if reply.bytes > bytes {
                        (bytes, moved_at, pause) = (reply.bytes, Instant::now(), PAUSES.0);
                    }
                    later(format!("server {server} is too slow in fetching the files of a load"))
                }
                Err(error @ (Error::Unsupported { .. } | Error::Invalid(_))) => return Err(error),
                Err(error) => error,
            };
            if moved_at.elapsed() >= PATIENCE {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// Fetches the files of a load for the leader of a group, and says how far that is.
    pub async fn stage(&self, request: v1::StageLoadRequest) -> Result<v1::StageLoadReply, Error> {
        let group = GroupId(request.group);
        if self.replicas.machine(group).is_none() {
            return Err(Error::NotFound { what: format!("group {group} on server {}", self.peers.server()) });
        }
        self.check_engine()?;
        if terrane_env::buggify!("a member fetches the files of a load only when it applies it", 2) {
            return Err(later("this server fetches nothing at present".to_owned()));
        }
        let load = Load::decode(request.load).map_err(|error| Error::Invalid(Invalid::new(error.to_string())))?;
        if !request.source_address.is_empty() {
            self.addresses.set([(load.source, request.source_address)]);
        }
        let progress = self.staging.stage(FileSet::Load(&load), &[load.source], STAGE_TIME).await?;
        let StagingProgress { is_staged: staged, bytes } = progress;
        if staged {
            self.flush(group, load.region).await;
        }
        Ok(v1::StageLoadReply { staged, bytes })
    }

    /// Gives up runs and commits of which nothing is heard, and sweeps the staging room, until the server stops.
    pub async fn watch(self: Arc<Self>) {
        let seconds = terrane_env::limit!("seconds between sweeps of staged files", SWEEP_INTERVAL.as_secs(), 1..=3);
        let mut turn = tokio::time::interval(Duration::from_secs(seconds));
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                _ = turn.tick() => {}
            }
            self.runs.sweep().await;
            self.under_way.0.lock().retain(|_, pending| pending.peek().is_none());
            sweep(&self.staging, &self.host, &self.replicas).await;
        }
    }
}
