//! Starts and stops a master: opens its directory, serves, founds the cluster or resumes it, and shuts down.
//!
//! The port serves before the catalog is open: the masters of a new cluster found it by asking each other, and their
//! group elects a leader through it.

pub(crate) mod config;
pub(crate) mod identity;
pub(crate) mod start_error;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use terrane_env::budget::Budgets;
use terrane_env::fs::{self, DirLock, Presence};
use terrane_env::net::{Intake, IntakeLimits};
use terrane_proto::hello::Identity as Hello;
use terrane_proto::{MESSAGE_BYTES_MAX, v1};
use terrane_raft::{Abstention, HostConfig, PeerService, Weight};
use terrane_types::{ClusterId, GroupId, ServerId};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::catalog::checkpoint::Checkpoint;
use crate::catalog::{Bootstrap, Catalog};
use crate::context::{FleetSettings, MasterContext};
use crate::edge::Edge;
use crate::journal::{Group, GroupHost, Journal};
use crate::leadership::deferred::Deferred;
use crate::leadership::leading;
use crate::machine::{CatalogMachine, MasterFactory};
use crate::masters::enrolment::enrol;
use crate::masters::joining::Joining;
use crate::masters::numbers::place_of;
use crate::masters::peer_calls::PeerCalls;
use crate::masters::peers::Peers;
use crate::masters::rebuild;
use crate::masters::replacing;
use crate::metrics::Metrics;
use crate::monitor;
use crate::orders::Orders;
use crate::server::config::MasterConfig;
use crate::server::identity::Identity;
use crate::server::start_error::StartError;
use crate::servers::callbacks;
use crate::servers::membership::Membership;
use crate::servers::observed::Observed;
use crate::service::MasterService;
use crate::service::diagnostics::DiagnosticsService;
use crate::versions::Versions;

/// How long the start of a single master waits for group 0's election; far longer than it takes.
const LEAD_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long the start of one of several masters waits for a leader. Without one it serves what it can.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(5);
/// The masters of a new cluster start an election each in turn, should the one before be gone.
const FIRST_ELECTION_AFTER: Duration = Duration::from_secs(2);
/// How long a leader that stops waits until another master leads.
const HANDOVER_MAX: Duration = Duration::from_secs(1);
/// How long a shutdown waits for running calls.
const CALLS_END_MAX: Duration = Duration::from_secs(2);
/// How often a start looks whether the masters are ready.
const READY_LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often liveness is checked and gauges are set.
const TICK: Duration = Duration::from_millis(500);
/// The log of group 0 is small: a table takes a few hundred bytes.
const SEGMENT_BYTES: u64 = 4 << 20;
const LOG_CACHE_BYTES: u64 = 8 << 20;
/// Changes of members with copies from or to one server at a time: more would not be faster, and would delay its clients.
const CHANGES_PER_SERVER: usize = 2;
const LOG_BUDGET_BYTES: u64 = 16 << 20;

/// A running master.
pub struct Master {
    address: String,
    identity: Identity,
    context: Arc<MasterContext>,
    membership: Arc<Membership>,
    machine: Arc<CatalogMachine>,
    host: Arc<GroupHost>,
    registry: Arc<Registry>,
    intake: Arc<Intake>,
    stop_calls: CancellationToken,
    stop: CancellationToken,
    running: Mutex<Option<Running>>,
}

/// What a shutdown stops, in this order.
struct Running {
    serving: JoinHandle<()>,
    background: JoinSet<()>,
    /// Last, so that no other process opens the directory while this one still writes to it.
    lock: DirLock,
}

impl Master {
    /// Opens the directory, creates the cluster at the first start, and serves. The master is ready when this returns.
    ///
    /// Boxed, because an `async fn` is compiled by the crate that awaits it: every binary would compile the whole
    /// master.
    pub fn start(config: MasterConfig) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::open_and_serve(config))
    }

    async fn open_and_serve(config: MasterConfig) -> Result<Self, StartError> {
        config.check().map_err(StartError::Settings)?;
        fs::check_occupant(&config.data_dir, fs::Occupant::Master).await?;
        make_dir(&config.data_dir).await?;
        let lock = DirLock::acquire(&config.data_dir).await?;
        // Bound before the catalog is opened: a port in use fails at once, and the bootstrap needs the address.
        let listener = terrane_env::net::listen(&config.listen).await.map_err(StartError::Listen)?;
        let port = listener.local_addr().map_err(StartError::Listen)?.port();
        let address = config.advertised(port);
        let port = Port::new(PeerCalls::new(Joining::new(&address, &config.join, config.levels)));
        let stop_calls = CancellationToken::new();
        // For a start that is given up.
        let guard = stop_calls.clone().drop_guard();
        let serving = serve(listener, &port, stop_calls.clone()).await?;
        let presence =
            lock.presence().await.map_err(|source| StartError::Io { path: config.data_dir.clone(), source })?;
        match Self::open((&config, presence), address, &port).await {
            Ok((mut master, background)) => {
                guard.disarm();
                master.stop_calls = stop_calls;
                master.running = Mutex::new(Some(Running { serving, background, lock }));
                Ok(master)
            }
            Err(error) => {
                // At once, so that the port is free when this returns.
                serving.abort();
                serving.await.ok();
                Err(error)
            }
        }
    }

    /// Opens everything behind the port, and serves it there.
    async fn open(
        (config, presence): (&MasterConfig, Presence),
        address: String,
        port: &Port,
    ) -> Result<(Self, JoinSet<()>), StartError> {
        let address = address.as_str();
        let identity = enrol(config, address, &port.calls).await?;
        let catalog = open_catalog((config, presence), &identity, address).await?;
        let host = Arc::clone(&catalog.0);
        let opened = Self::open_with(catalog, config, identity, address, port).await;
        if opened.is_err() {
            // Otherwise what watches its directory goes on, and ends the process when the directory is removed.
            host.shutdown().await;
        }
        opened
    }

    async fn open_with(
        (host, group, machine, peers): OpenCatalog,
        config: &MasterConfig,
        identity: Identity,
        address: &str,
        port: &Port,
    ) -> Result<(Self, JoinSet<()>), StartError> {
        let hello = Hello { cluster: identity.cluster, server: ServerId::default(), boot: identity.boot };
        port.peer.begin(host.peer_service());
        let journal = Journal::new(group.clone(), Arc::clone(&machine), Arc::clone(&peers));
        journal.learn_members();
        let observed = Arc::new(Observed::new(config.silent_after()));
        let orders = Orders::new(journal.clone(), Arc::clone(&observed), hello);
        let fleet = FleetSettings {
            owner: address.to_owned(),
            replace_after_default: config.replace_after,
            replace_after_min: config.silent_after(),
            surplus_after: config.surplus_after,
            changes_per_server: CHANGES_PER_SERVER,
        };
        let groups_per_server = config.groups_per_server;
        let versions = Versions::new(config.levels);
        let endpoints = config.endpoints.clone();
        let context =
            MasterContext::new(journal.clone(), observed, orders, groups_per_server, fleet, versions, endpoints);
        let context = Arc::new(context);
        port.calls.begin(Arc::clone(&context));
        first_election(&host, &group, &peers).await?;
        let bootstrap = bootstrap(config, &identity, address, &journal, &group).await?;
        let catalog_dir = config.data_dir.join("catalog");
        let rebuilt = rebuild::load(&catalog_dir).await;
        let rebuilt = rebuilt.map_err(|source| StartError::Io { path: catalog_dir.join(rebuild::NAME), source })?;

        let membership = Arc::new(Membership::new(Arc::clone(&context), hello, config.report_every));
        let (intake, budgets) = (Arc::clone(&port.intake), Arc::clone(&context.budgets));
        intake.budgets().for_each(|budget| budgets.add(budget));
        let ((metrics, registry), stop) = (Metrics::new(Arc::clone(&host), budgets), CancellationToken::new());
        let mut background = background(&context, bootstrap, rebuilt, &machine, &membership, &metrics, &stop);
        background.spawn(monitor::run(Arc::clone(&context), Arc::clone(&host), config.data_dir.clone()));
        port.diagnostics.begin(v1::diagnostics_server::DiagnosticsServer::new(DiagnosticsService::new(hello)));
        port.begin(MasterService::new(hello, Arc::clone(&context), Arc::clone(&membership), metrics));
        until_led(config, &context).await?;
        warn_of_other_peers(config, &context.journal);
        port.health.set_serving::<v1::master_server::MasterServer<MasterService>>().await;
        tracing::info!(cluster = %identity.cluster, address, boot = identity.boot, "master is serving");
        let (stop_calls, running) = (CancellationToken::new(), Mutex::default());
        let address = address.to_owned();
        Ok((
            Self { address, identity, context, membership, machine, host, registry, intake, stop_calls, stop, running },
            background,
        ))
    }

    /// The address that others use.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The id of its cluster.
    pub const fn cluster_id(&self) -> ClusterId {
        self.identity.cluster
    }

    /// Its metrics.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// Its calls, for another protocol in front of the same catalog. Servers and masters that serve that protocol are told
    /// by this name of it.
    pub fn edge(&self, protocol: &'static str) -> Edge {
        let (context, membership) = (Arc::clone(&self.context), Arc::clone(&self.membership));
        Edge::new(protocol, self.identity.cluster, context, membership, Arc::clone(&self.intake))
    }

    /// Its limited resources, which its metrics show. Other ports of the process add theirs.
    pub fn budgets(&self) -> &Budgets {
        &self.context.budgets
    }

    /// Whether it is ready, or why not.
    pub fn ready(&self) -> Result<(), String> {
        self.context.journal.ready()
    }

    /// Whether it leads the masters.
    pub fn leads(&self) -> bool {
        self.context.leadership.holds()
    }

    /// Returns when this master is no master of the cluster any more: the process should end.
    pub async fn removed(&self) {
        self.context.leadership.removed().await;
    }

    /// Stops calls and procedures, writes a checkpoint and releases the directory. A second call does nothing.
    ///
    /// Boxed for the same reason as [`Master::start`].
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop_all())
    }

    async fn stop_all(&self) {
        let Some(Running { mut serving, mut background, lock }) = self.running.lock().take() else { return };
        if !self.context.journal.peers().is_single() {
            // While it still serves: the others take over at once, not after an election timeout.
            let reason = "the master is stopping".to_owned();
            self.host.set_abstains("stopping", Some(Abstention { reason, weight: Weight::Firm }));
            self.host.until_handed_over(HANDOVER_MAX).await;
        }
        self.stop.cancel();
        self.stop_calls.cancel();
        if tokio::time::timeout(CALLS_END_MAX, &mut serving).await.is_err() {
            // A client that keeps its connection open must not keep the process alive.
            serving.abort();
        }
        background.shutdown().await;
        self.machine.write_checkpoint().await;
        self.host.shutdown().await;
        drop(lock);
    }
}

/// A master that is dropped without a shutdown stops as if it were killed.
impl Drop for Master {
    fn drop(&mut self) {
        self.stop.cancel();
        self.stop_calls.cancel();
    }
}

async fn make_dir(path: &std::path::Path) -> Result<(), StartError> {
    fs::create_dir_durable(path).await.map_err(|source| StartError::Io { path: path.to_owned(), source })
}

/// The masters as this one knows them now, and as it knew them when its replica was created.
fn masters_of(
    config: &MasterConfig,
    identity: &Identity,
    address: &str,
    catalog: &Catalog,
) -> Result<Peers, StartError> {
    let hello = Hello { cluster: identity.cluster, server: ServerId::default(), boot: identity.boot };
    let first = identity.first_masters(address);
    let recorded = catalog.masters().all();
    let mut present = if recorded.is_empty() { first.clone() } else { recorded };
    let place = place_of(identity.number);
    if present.iter().all(|peer| peer.place() != place || peer.number < identity.number) {
        // A catalog from before this master was added.
        present.retain(|peer| peer.place() != place || identity.met.is_empty());
        present.extend(identity.met.iter().find(|peer| peer.number == identity.number).cloned());
    }
    match present.iter().find(|peer| peer.place() == place) {
        // Its place is free, or another master's.
        None => return Err(StartError::Replaced { directory: config.data_dir.clone() }),
        Some(own) if own.number > identity.number => {
            return Err(StartError::Replaced { directory: config.data_dir.clone() });
        }
        Some(own) if own.address != address => {
            let own = &own.address;
            return Err(StartError::Settings(format!(
                "the other masters reach this one at {own}, but it was started as {address}; start it with that address, or \
                 set --advertise {own}"
            )));
        }
        Some(_) => {}
    }
    Ok(Peers::new(hello, identity.number, config.levels, &first, &present))
}

/// The recorded masters count, whatever the settings say.
fn warn_of_other_peers(config: &MasterConfig, journal: &Journal) {
    let (given, masters) = (config.sorted_peers(), journal.peers().addresses());
    if !given.is_empty() && given != masters {
        tracing::warn!(
            "ignoring --peers {}: the masters of this cluster are {}; change them with `terrane admin set-masters`",
            given.join(","),
            masters.join(",")
        );
    }
}

type OpenCatalog = (Arc<GroupHost>, Group, Arc<CatalogMachine>, Arc<Peers>);

/// Opens checkpoint and log.
async fn open_catalog(
    (config, presence): (&MasterConfig, Presence),
    identity: &Identity,
    address: &str,
) -> Result<OpenCatalog, StartError> {
    let (catalog_dir, log_dir) = (config.data_dir.join("catalog"), config.data_dir.join("log"));
    make_dir(&catalog_dir).await?;
    make_dir(&log_dir).await?;
    let checkpoint = Checkpoint::load(&catalog_dir).await?;
    check_cluster(config, identity, &checkpoint.catalog)?;
    if let Some(why) = config.levels.outgrown(checkpoint.catalog.level()) {
        return Err(StartError::Level { directory: config.data_dir.clone(), why });
    }
    let peers = Arc::new(masters_of(config, identity, address, &checkpoint.catalog)?);
    let machine = CatalogMachine::new(catalog_dir, checkpoint, config.levels);
    let own = ServerId(identity.number);
    let mut host = HostConfig::new(log_dir, identity.cluster, own, identity.boot);
    (host.log.segment_bytes, host.log.cache_bytes) = (SEGMENT_BYTES, LOG_CACHE_BYTES);
    (host.log.purge_budget_bytes, host.presence) = (LOG_BUDGET_BYTES, Some(presence));
    // A single master too: others may be added.
    (host.advertised, host.levels) = (address.to_owned(), config.levels);
    host.addresses = peers.book();
    let host = GroupHost::open(host, Arc::new(MasterFactory(Arc::clone(&machine)))).await?;
    let created = match peers.is_founder() {
        true => host.create_group(peers.group(), false).await,
        false => host.join_group(peers.group()).await,
    };
    created.map_err(|error| failed(&error))?;
    let group = host.group(GroupId::MASTER).ok_or_else(|| failed(&"its group does not exist"))?;
    Ok((host, group, machine, peers))
}

fn failed(what: &dyn std::fmt::Display) -> StartError {
    StartError::Catalog(what.to_string())
}

/// Starts group 0, unless it was started before. The first master does so at once, so that elections do not collide.
async fn first_election(host: &Arc<GroupHost>, group: &Group, peers: &Peers) -> Result<(), StartError> {
    if !peers.is_founder() {
        return Ok(());
    }
    let turn = FIRST_ELECTION_AFTER * u32::try_from(peers.own_place()).unwrap_or(0);
    if group.wait_for(|status| status.last_index > 0 || status.leader.is_some(), turn).await.is_none() {
        host.create_group(peers.group(), true).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn check_cluster(config: &MasterConfig, identity: &Identity, catalog: &Catalog) -> Result<(), StartError> {
    match catalog.bootstrap() {
        Some(recorded) if recorded.cluster != identity.cluster => {
            let (catalog, stamp) = (recorded.cluster, identity.cluster);
            Err(StartError::Mixed { directory: config.data_dir.clone(), catalog, stamp })
        }
        _ => Ok(()),
    }
}

/// What the first leader records. A single master leads before it serves.
async fn bootstrap(
    config: &MasterConfig,
    identity: &Identity,
    address: &str,
    journal: &Journal,
    group: &Group,
) -> Result<Bootstrap, StartError> {
    let peers = match &identity.founder {
        Some(founder) => founder.peers.clone(),
        None => config.bootstrap_peers(address),
    };
    if journal.peers().is_single() {
        let leads = group.wait_for(|status| status.is_leader, LEAD_WAIT_MAX).await;
        leads.ok_or_else(|| failed(&"its group elected no leader"))?;
        // A read barrier makes sure that the entries from before this start are applied.
        group.read_barrier().await.map_err(|error| failed(&error))?;
        journal.read(|catalog| check_cluster(config, identity, catalog))?;
    }
    Ok(Bootstrap { cluster: identity.cluster, peers, replication: config.replication })
}

/// Waits until the masters can administer the cluster. One of several serves without that, too, unless another directory
/// has replaced its own.
async fn until_led(config: &MasterConfig, context: &MasterContext) -> Result<(), StartError> {
    let journal = &context.journal;
    let led = async {
        tokio::select! {
            biased;
            () = context.leadership.gained() => {}
            _ = journal.leader_elsewhere(LEADER_WAIT_MAX) => {}
        }
        while let Err(why) = journal.ready() {
            tracing::debug!(why, "waiting for the masters");
            tokio::time::sleep(READY_LOOK_EVERY).await;
        }
    };
    let is_led = tokio::time::timeout(LEADER_WAIT_MAX, led).await.is_ok();
    if !context.leadership.holds() && replacing::was_removed(journal).await {
        return Err(StartError::Replaced { directory: config.data_dir.clone() });
    }
    if is_led {
        return Ok(());
    }
    tracing::warn!("no master leads yet; clients find their data, and nothing can be administered meanwhile");
    Ok(())
}

fn background(
    context: &Arc<MasterContext>,
    bootstrap: Bootstrap,
    rebuilt: Option<bytes::Bytes>,
    machine: &Arc<CatalogMachine>,
    membership: &Arc<Membership>,
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (leader, stopped) = (Arc::clone(context), stop.clone());
    tasks.spawn(async move {
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = leading::run(leader, bootstrap, rebuilt) => {}
        }
    });
    if !context.journal.peers().is_founder() {
        tasks.spawn(replacing::until_voter(Arc::clone(context)));
    }
    let member = Arc::clone(context);
    tasks.spawn(async move {
        replacing::until_removed(Arc::clone(&member)).await;
        tracing::warn!("this master was removed from the cluster; it ends, and its directory is not needed any more");
        member.leadership.set_removed();
    });
    let caller = Arc::clone(context);
    tasks.spawn(async move { callbacks::drive(&caller).await });
    let writer = Arc::clone(machine);
    tasks.spawn(async move { writer.write_checkpoints().await });
    let (context, membership, metrics) = (Arc::clone(context), Arc::clone(membership), Arc::clone(metrics));
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            membership.tick();
            context.journal.learn_members();
            metrics.observe(&context);
        }
    });
    tasks
}

/// What the port serves.
struct Port {
    calls: PeerCalls,
    peer: Deferred<v1::peer_server::PeerServer<PeerService>>,
    master: Deferred<v1::master_server::MasterServer<MasterService>>,
    diagnostics: Deferred<v1::diagnostics_server::DiagnosticsServer<DiagnosticsService>>,
    health: HealthReporter,
    intake: Arc<Intake>,
}

impl Port {
    fn new(calls: PeerCalls) -> Self {
        Self {
            calls,
            peer: Deferred::default(),
            master: Deferred::default(),
            diagnostics: Deferred::default(),
            health: HealthReporter::new(),
            intake: Intake::new(IntakeLimits { message_bytes: MESSAGE_BYTES_MAX, ..IntakeLimits::default() }),
        }
    }

    fn begin(&self, service: MasterService) {
        let service = v1::master_server::MasterServer::new(service)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        self.master.begin(service);
    }
}

async fn serve(
    listener: terrane_env::net::Listener,
    port: &Port,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, StartError> {
    port.health.set_not_serving::<v1::master_server::MasterServer<MasterService>>().await;
    let reflection = terrane_proto::reflection().map_err(|error| failed(&error))?;
    let intake = Arc::clone(&port.intake);
    let router = terrane_env::net::server(&intake)
        .add_service(port.master.clone())
        .add_service(port.peer.clone())
        .add_service(port.diagnostics.clone())
        .add_service(v1::master_peers_server::MasterPeersServer::new(port.calls.clone()))
        .add_service(HealthServer::new(HealthService::from_health_reporter(port.health.clone())))
        .add_service(reflection);
    Ok(terrane_env::task::spawn_named("master-calls", async move {
        let served = router.serve_with_incoming_shutdown(listener.incoming(&intake), stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "the master has stopped serving");
        }
    }))
}

#[cfg(test)]
mod tests;
