//! All replicas of a server process: opens them, creates new ones, and stops them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use openraft::errors::{InitializeError, RaftError};
use openraft::{Config, SnapshotPolicy};
use parking_lot::Mutex;
use terrane_env::budget::Budget;
use terrane_proto::hello::Identity;
use terrane_proto::v1;
use terrane_types::versions::FEATURE_LEVEL_OLDEST;
use terrane_types::{GroupId, Issue, IssueKind, ReplicaId, ServerId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::copies::COPIES_AT_ONCE;
use crate::copies::share::Copies;
use crate::copies::turns::Turns;
use crate::groups::group_view::GroupView;
use crate::groups::registry::Registry;
use crate::groups::replica::{Replica, ReplicaParts, Shared};
use crate::leadership::abstain;
use crate::leadership::abstention::Abstention;
use crate::log::{GroupLog, SharedLog, spill};
use crate::peer::network::{Connections, Network};
use crate::peer::service::{PeerService, Receiver};
use crate::peer::{Headroom, Peers};
use crate::proposals::adapter::{Adapter, AppliedState, Raft};
use crate::proposals::erased::Machine;
use crate::proposals::proposer::Proposer;
use crate::proposals::submission::Queue;
use crate::retention::purge;
use crate::time::clock::Clocks;
use crate::time::probe;
use crate::types::{Member, scope, spawn, until_stopped};
use crate::{BoxFuture, Error, GroupSpec, HostConfig, LogStatus, Metrics, OpenError};

/// Pause between the starts of two recorded groups: elections that all begin at the same moment only disturb each other.
const START_PAUSE: Duration = Duration::from_millis(2);

/// How often a log without space for its next segment tries again to allocate it.
const ALLOCATION_RETRY: Duration = Duration::from_millis(500);

/// Opens the state machine of a group replica.
pub(crate) type OpenMachine = dyn Fn(&GroupSpec) -> Arc<dyn Machine> + Send + Sync;

/// All replicas of a server process, whatever is proposed to them; see [`crate::GroupHost`].
pub struct Host {
    config: HostConfig,
    raft_config: Arc<Config>,
    open_machine: Box<OpenMachine>,
    shared: Shared,
    peers: Arc<Peers>,
    groups: Arc<Registry>,
    /// Bytes of peers' requests in progress.
    headroom: Arc<Headroom>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Groups are created one at a time: checking whether one exists and recording it must not interleave.
    creating: tokio::sync::Mutex<()>,
}

impl Host {
    /// See [`crate::GroupHost::open`]. Boxed, so that its body is compiled in this crate only.
    pub(crate) fn open(
        config: HostConfig,
        open_machine: Box<OpenMachine>,
    ) -> BoxFuture<'static, Result<Host, OpenError>> {
        Box::pin(Host::recover(config, open_machine))
    }

    async fn recover(config: HostConfig, open_machine: Box<OpenMachine>) -> Result<Host, OpenError> {
        let raft_config = raft_config(&config)?;
        let log = SharedLog::open(config.dir.clone(), &config.log).await?;
        log.sync_times().count_in(config.metrics.log_sync.clone());
        let identity = Identity { cluster: config.cluster, server: config.server, boot: config.boot };
        let clocks = Clocks::new(config.server, config.wall.clone());
        let host = Host {
            raft_config,
            open_machine,
            peers: Arc::new(Peers::new(
                identity,
                config.advertised.clone(),
                config.addresses.clone(),
                clocks.clone(),
                config.metrics.clone(),
            )),
            shared: Shared {
                log,
                lease_clock: Arc::default(),
                clocks,
                abstentions: Arc::default(),
                copies: Copies::new(),
                incoming_turns: Turns::new(COPIES_AT_ONCE),
                level: Arc::new(AtomicU32::new(FEATURE_LEVEL_OLDEST)),
                newest_level: config.levels.newest,
            },
            groups: Arc::new(Registry::new()),
            headroom: Headroom::new(),
            stop: watch::channel(false).0,
            tasks: Mutex::default(),
            creating: tokio::sync::Mutex::new(()),
            config,
        };
        let (log, abstentions) = (host.shared.log.clone(), host.shared.abstentions.clone());
        for recorded in log.groups() {
            let group = recorded.group();
            host.start(recorded, true).await.map_err(|what| OpenError::Group { group, what })?;
            tokio::time::sleep(START_PAUSE).await;
        }
        host.watch_presence().await;
        host.keep_until_stopped(purge::run(host.groups.clone(), log.clone(), host.peers.clone()));
        host.keep_until_stopped(spill::run(log.clone()));
        host.keep_until_stopped(retry_allocations(log.clone()));
        host.keep_until_stopped(abstain::run(host.groups.clone(), abstentions, log));
        let (groups, peers, clocks) = (host.groups.clone(), host.peers.clone(), host.shared.clocks.clone());
        host.keep_until_stopped(probe::run(groups, peers, clocks, host.config.server));
        Ok(host)
    }

    /// Ends the process when its data directory is deleted or replaced: an open log takes entries on, and syncs them to nowhere.
    async fn watch_presence(&self) {
        let Some(mut presence) = self.config.presence.clone() else { return };
        if let Err(error) = presence.add(&self.config.dir).await {
            tracing::warn!(%error, "cannot watch {}", self.config.dir.display());
        }
        let log = self.shared.log.clone();
        self.keep_until_stopped(async move {
            let gone = presence.until_gone(move || Some(log.newest_file())).await;
            terrane_env::task::abort_process(&gone.to_string());
        });
    }

    fn keep_until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stopped = self.stop.subscribe();
        self.keep(async move {
            tokio::select! {
                biased;
                () = until_stopped(&mut stopped) => {}
                () = task => {}
            }
        });
    }

    fn keep(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(spawn(task));
    }

    /// See [`crate::GroupHost::create_group`], which never drops this future half-way.
    pub(crate) async fn create_group(&self, spec: GroupSpec, lead: bool) -> Result<(), Error> {
        if spec.members.get(&spec.replica) != Some(&self.config.server) {
            let (replica, server) = (spec.replica, self.config.server);
            return Err(Error::Invalid { what: format!("replica {replica} is not the member on server {server}") });
        }
        let _creating = self.creating.lock().await;
        if *self.stop.borrow() {
            return Err(Error::Stopped);
        }
        let replica = match self.groups.get(spec.group) {
            Some(replica) if *replica.view.spec() == spec => replica,
            Some(_) => return Err(Error::Exists { group: spec.group }),
            None => {
                let log = self.shared.log.create(spec).await.ok_or(Error::Stopped)?;
                self.start(log, false).await.map_err(|what| Error::Invalid { what })?
            }
        };
        if lead { initialize(&replica).await } else { Ok(()) }
    }

    /// See [`crate::GroupHost::join_group`], which never drops this future half-way.
    pub(crate) async fn join_group(&self, spec: GroupSpec) -> Result<(), Error> {
        match self.groups.get(spec.group) {
            // Its members may have changed since it joined.
            Some(local) if local.view.replica() == spec.replica => Ok(()),
            _ => self.create_group(spec, false).await,
        }
    }

    /// See [`crate::GroupHost::remove_group`], which never drops this future half-way.
    pub(crate) async fn remove_group(&self, group: GroupId, replica: ReplicaId) -> Result<(), Error> {
        let _creating = self.creating.lock().await;
        if *self.stop.borrow() {
            return Err(Error::Stopped);
        }
        let Some(local) = self.groups.get(group).filter(|local| local.view.replica() == replica) else { return Ok(()) };
        self.groups.remove(group);
        // Nothing may follow the removal in the log.
        local.stop().await;
        // A request for the replica may be on its way to it: nothing may arrive in a directory that nothing names any more.
        local.incoming.close().await;
        self.shared.log.remove(local.view.log()).await.ok_or(Error::Stopped)
    }

    async fn start(&self, log: Arc<GroupLog>, restarted: bool) -> Result<Arc<Replica>, String> {
        let machine = (self.open_machine)(log.spec());
        let applied_state = Arc::new(AppliedState::new(log.purged(), self.config.levels.newest));
        let found_to = log.ends().1.map_or(0, |last| last.index);
        let network = Arc::new(Network {
            peers: self.peers.clone(),
            group: log.group(),
            machine: machine.clone(),
            followers: Arc::default(),
            handovers: Arc::default(),
            leading: Arc::default(),
            copies: self.shared.copies.clone(),
        });
        let raft = self.open_raft(&log, applied_state.clone(), network.clone(), restarted).await?;
        let recovered_term = self.config.recovered.get(&log.group()).copied().unwrap_or(0);
        let (shared_log, followers) = (self.shared.log.clone(), network.followers.clone());
        let view = GroupView::new(raft.metrics(), applied_state, log, shared_log, followers, recovered_term);
        // A group of one has made no promise to another member, and need not wait for a timeout either.
        let alone = view.is_alone(&view.metrics());
        let bound = restarted && !alone;
        let stuck_after = u64::try_from(self.config.stuck_after.as_millis()).unwrap_or(u64::MAX);
        let stuck_after = terrane_env::limit!("milliseconds without applying", stuck_after, 2_000..=5_000);
        let parts = ReplicaParts {
            view: Arc::new(view),
            raft,
            machine: machine.clone(),
            handovers: network.handovers.clone(),
            found_to,
            promised: Duration::from_millis(if bound { self.config.election_max_ms } else { 0 }),
            stuck_after: Duration::from_millis(stuck_after),
        };
        let (queue, inbox) = Queue::new();
        let replica = Arc::new(Replica::new(&self.shared, parts, queue));
        let announces = Arc::downgrade(&replica.stale_reads);
        network.leading.set(move || announces.upgrade()?.leading_bound());
        self.keep(Proposer::new(replica.clone(), machine, inbox, self.config.metrics.clone()).run());
        let is_lost = replica.view.is_lost();
        if restarted && alone && !is_lost {
            replica.raft.runtime_config().elect(true);
        }
        if is_lost {
            replica.warn_of_loss();
        } else if bound {
            self.keep(campaign_later(replica.clone()));
        } else if alone && replica.view.log().first_index().is_some() {
            replica.raft.trigger().elect(false).await.map_err(|error| error.to_string())?;
        }
        self.groups.add(replica.clone());
        Ok(replica)
    }

    async fn open_raft(
        &self,
        log: &Arc<GroupLog>,
        applied_state: Arc<AppliedState>,
        network: Arc<Network>,
        restarted: bool,
    ) -> Result<Raft, String> {
        let store = || self.shared.log.store(log);
        let machine = network.machine.clone();
        let adapter = Adapter::new(machine, applied_state, log.clone(), store(), self.config.metrics.clone());
        let mut config = Config::clone(&self.raft_config);
        // Until its membership is known, which only the log tells: it may have grown since the group was created.
        config.enable_elect = !restarted;
        let raft = Raft::new(log.spec().replica, Arc::new(config), Connections(network), store(), adapter);
        // The caller may be a request handler, which has no seed in the simulator.
        scope(terrane_env::rand::u64(), raft).await.map_err(|error| error.to_string())
    }

    /// Files in the log's directory that the log does not know, with their lengths. One that is being made may be among them.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub async fn unnamed_files(&self) -> std::io::Result<Vec<(PathBuf, u64)>> {
        self.shared.log.unnamed_files().await
    }

    /// The groups whose replica was removed, also before the start. What their state machines have left is the caller's to
    /// remove; [`Host::forget_removed`] ends that.
    pub fn removed_groups(&self) -> Vec<GroupId> {
        self.shared.log.removed()
    }

    /// Nothing is left of the removed replica of a group.
    pub fn forget_removed(&self, group: GroupId) {
        self.shared.log.forget(group);
    }

    /// Tells the local replica that its group was recovered after it had lost its majority, and has reached this term. If the
    /// recovery has lost the replica, it takes part no more, until a restart.
    pub fn note_recovered(&self, group: GroupId, term: u64) {
        if let Some(local) = self.groups.get(group) {
            local.note_recovered(term);
        }
    }

    /// The local replica of a group.
    pub(crate) fn replica(&self, id: GroupId) -> Option<Arc<Replica>> {
        self.groups.get(id)
    }

    /// All local replicas, by group id.
    pub(crate) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.groups.all()
    }

    /// Sets or clears (`None`) this server's reason about one subject not to lead. While any reason holds, the server hands
    /// over its leaderships and does not stand for election; [`Weight`](crate::Weight) defines the exceptions. Returns at
    /// once; [`Host::until_handed_over`] waits for the effect.
    pub fn set_abstains(&self, about: &'static str, reason: Option<Abstention>) {
        self.shared.abstentions.set(about, reason);
    }

    /// The weightiest reason why this server should lead nothing at present.
    pub fn abstains(&self) -> Option<Abstention> {
        self.shared.abstentions.weightiest()
    }

    /// What is wrong with this server's clock, for people: a sentence without its full stop.
    pub fn clock_trouble(&self) -> Option<String> {
        let groups = self.groups.all();
        if let Some(off) = groups.iter().find_map(|replica| replica.time.reason()) {
            return Some(off);
        }
        let alone = groups.iter().any(|replica| replica.view.servers().len() == 1);
        let jump = self.shared.clocks.jumped_ms().filter(|_| alone)?;
        let direction = if jump < 0 { "back" } else { "ahead" };
        let jump = jump.unsigned_abs();
        Some(format!(
            "its clock was set {jump} ms {direction} while it ran: correct the clock, or restart the server if it is right"
        ))
    }

    /// The median time of all known servers; this server's own while it knows too few others.
    pub fn time_ms(&self) -> u64 {
        let groups = self.groups.all();
        let servers: BTreeSet<_> = groups.iter().flat_map(|replica| replica.view.servers().to_vec()).collect();
        let bounds = self.shared.clocks.bounds(&servers.into_iter().collect::<Vec<_>>());
        bounds.map_or_else(|| self.shared.clocks.wall_ms(), |bounds| self.shared.clocks.within(bounds))
    }

    /// This server's wall clock, right or wrong.
    pub fn wall_ms(&self) -> u64 {
        self.shared.clocks.wall_ms()
    }

    /// Waits until every group that this server leads now has another known leader, or until `within` has passed. Returns the
    /// groups that have none.
    pub async fn until_handed_over(&self, within: Duration) -> Vec<GroupId> {
        let led = self
            .groups
            .all()
            .into_iter()
            .filter(|group| group.view.leads() && !group.view.is_alone(&group.view.metrics()));
        let waits = led.map(|group| async move {
            let own = group.view.replica();
            let elsewhere = |status: &crate::GroupStatus| status.leader.is_some_and(|(leader, _)| leader != own);
            group.wait_for(elsewhere, within).await.is_none().then_some(group.view.group())
        });
        futures::future::join_all(waits).await.into_iter().flatten().collect()
    }

    /// Records the addresses of servers that the master reports. Links look them up when they open.
    pub fn set_addresses(&self, addresses: impl IntoIterator<Item = (ServerId, String)>) {
        self.config.addresses.set(addresses);
    }

    /// The service that peers connect to, for the server's router.
    pub fn peer_service(&self) -> v1::peer_server::PeerServer<PeerService> {
        let identity = Identity { cluster: self.config.cluster, server: self.config.server, boot: self.config.boot };
        let receiver = Receiver {
            identity,
            groups: self.groups.clone(),
            addresses: self.config.addresses.clone(),
            headroom: self.headroom.clone(),
            clocks: self.shared.clocks.clone(),
            abstentions: self.shared.abstentions.clone(),
            metrics: self.config.metrics.clone(),
            stopped: self.stop.subscribe(),
        };
        v1::peer_server::PeerServer::new(PeerService::new(receiver))
            .max_decoding_message_size(terrane_proto::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(terrane_proto::MESSAGE_BYTES_MAX)
    }

    /// Refuses entries with operations from other leaders, for this reason: the rest of the disk is reserved for work that
    /// frees space. `None` accepts them again. Proposals here are the caller's to refuse: it knows which ones free space.
    pub fn set_disk_reserved(&self, reason: Option<String>) {
        self.shared.log.set_reserved(reason);
    }

    /// Why the log has no disk space for its next segment, while that is so. It then refuses entries by itself.
    pub fn log_lacks_space(&self) -> Option<String> {
        self.shared.log.lacks_space()
    }

    /// The limits on the memory that peers cause this process to use.
    pub fn budgets(&self) -> [Arc<Budget>; 2] {
        [self.headroom.budget(), self.peers.budget()]
    }

    /// The status of the shared log.
    pub fn log_status(&self) -> LogStatus {
        let totals = self.shared.log.totals();
        let full = self.shared.log.full();
        let pressed = full || totals.held_files > 0 || !self.shared.log.holders().is_empty();
        let holder = |(group, refusal)| Some((group, self.groups.get(group)?.retention.refusal(&refusal)));
        LogStatus {
            bytes: totals.all_bytes(),
            limit: self.shared.log.limit_bytes(),
            full,
            refusing: self.shared.log.refusals().into_iter().filter_map(holder).collect(),
            held_by: if pressed { self.shared.log.held_by() } else { None },
            trouble: self.log_trouble(),
            held_files: totals.held_files,
            held_bytes: totals.held_bytes,
            segments: totals.segments,
            syncs: totals.syncs,
            entries: totals.entries,
            written: totals.written,
        }
    }

    fn log_trouble(&self) -> Option<Issue> {
        let slow = self.shared.abstentions.about(abstain::LOG_DISK);
        let slow = slow.map(|what| IssueKind::DiskSlow.issue(what));
        let slow = slow.or_else(|| self.shared.log.sync_times().slowness());
        slow.or_else(|| self.shared.log.spill_trouble().map(|what| IssueKind::LogCopying.issue(what)))
    }

    /// What this host counts.
    pub fn metrics(&self) -> &Metrics {
        &self.config.metrics
    }

    /// Tells the host the feature level of the cluster: what only builds of a level read is not written below it.
    pub fn note_level(&self, level: u32) {
        self.shared.level.fetch_max(level, Ordering::Relaxed);
    }

    /// Shows the present state of groups and log in the metrics of the configuration.
    pub fn publish_metrics(&self) {
        let groups: Vec<_> = self.groups.all().iter().map(|replica| replica.status()).collect();
        self.config.metrics.publish(&groups, &self.log_status());
        let peers: BTreeSet<_> = groups.iter().flat_map(|group| group.members.values().copied()).collect();
        let error_ms = self
            .shared
            .clocks
            .error_ms(&peers.into_iter().collect::<Vec<_>>())
            .or_else(|| self.shared.clocks.jumped_ms());
        self.config.metrics.set_clock_error(error_ms.unwrap_or(0));
    }

    /// Stops all groups and waits until everything queued for the log is synced.
    pub async fn shutdown(&self) {
        self.shared.log.stop_waiting();
        let _creating = self.creating.lock().await;
        self.stop.send_replace(true);
        for replica in self.groups.all() {
            replica.stop().await;
        }
        self.peers.close();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.await.ok();
        }
        self.shared.log.close().await;
    }
}

/// Makes the log retry a failed allocation of its next segment. Never returns.
async fn retry_allocations(log: Arc<SharedLog>) {
    loop {
        tokio::time::sleep(ALLOCATION_RETRY).await;
        log.retry_allocation();
    }
}

/// Starts the first election of a new group, unless it has had one.
async fn initialize(replica: &Replica) -> Result<(), Error> {
    let members: BTreeMap<_, _> =
        replica.view.spec().members.iter().map(|(id, server)| (*id, Member { server: *server })).collect();
    match replica.raft.initialize(members).await {
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        Err(RaftError::APIError(error)) => Err(Error::Invalid { what: error.to_string() }),
        Err(RaftError::Fatal(_)) => Err(Error::Stopped),
    }
}

/// Allows a restarted replica to stand for election once no leader can count on its old promise any more.
async fn campaign_later(replica: Arc<Replica>) {
    let mut stopped = replica.stopped();
    tokio::select! {
        biased;
        () = until_stopped(&mut stopped) => {}
        () = replica.election.until_free() => drop(replica.leadership.reconsider()),
    }
}

fn raft_config(host: &HostConfig) -> Result<Arc<Config>, OpenError> {
    let config = Config {
        cluster_name: "terrane".to_owned(),
        heartbeat_interval: host.heartbeat_ms,
        election_timeout_min: host.election_min_ms,
        election_timeout_max: host.election_max_ms,
        enable_pre_vote: Some(true),
        // With the default, a leader that lost its unsynced tail in a power cut would resume in the same term and give the
        // same log ids to other entries.
        enable_leader_restore: Some(false),
        // `retention.rs` decides about purging, by means of the "snapshot".
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        purge_batch_size: 1,
        api_channel_size: Some(1024),
        notification_channel_size: Some(4096),
        // The core waits while this is full. A replica whose state machine waits for another member still votes and appends.
        state_machine_channel_size: Some(65_536),
        max_append_entries: Some(4096),
        backoff: "50ms".to_owned(),
        // A leader hands over only when ordered to, which is when it stops reading under its lease.
        removed_leader_step_down: openraft::StepDownPolicy::Never,
        ..Config::default()
    };
    let config = config.validate().map_err(|error| OpenError::Settings { what: error.to_string() })?;
    assert_eq!(config.enable_leader_restore, Some(false), "leadership must never survive a restart");
    Ok(Arc::new(config))
}
