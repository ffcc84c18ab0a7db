//! A region server as a whole: how it starts, what runs in it, and how it stops.
//!
//! Start: check the settings, lock the directory, read its identity, listen, raise the boot number, register with a master (a
//! server that has an identity continues without one, see `joining`), open the engine, open the log (which starts the groups and
//! replays what the engine does not have), serve, report. Each step may fail, with an error that says what to do. Nothing changes
//! an existing directory before the identity is written. The registration tells who the server is and where; the masters count
//! it as live when it reports.
//!
//! Stop: hand leaderships over while everything is still served, redirect new requests to the new leaders, stop the
//! background work, flush every region, end the sessions, close the log and the engine, and only then stop serving peers,
//! which may still be answered until the end.

pub(crate) mod config;
pub(crate) mod identity;
mod parts;
pub(crate) mod start_error;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::StreamExt;
use terrane_engine::{Engine, Options};
use terrane_env::budget::Budgets;
use terrane_env::fs::{self, DirLock, Presence};
use terrane_env::net::{self, Intake, Listener};
use terrane_env::trace::Tracer;
use terrane_proto::hello::Identity as HelloIdentity;
use terrane_proto::{MESSAGE_BYTES_MAX, error, leadership, v1};
use terrane_raft::{Abstention, Factory, GroupSpec, GroupStatus, HostConfig, LogConfig, Weight};
use terrane_types::{ClusterId, GroupId, ServerId};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Request;
use tonic::service::interceptor::InterceptedService;

use self::parts::Parts;
use crate::background::flush_policy::FLUSHES_MAX;
use crate::background::signals::Signals;
use crate::edge::Edge;
use crate::edge::admission::Admission;
use crate::edge::page_token::PageSeal;
use crate::group::machine::GroupMachine;
use crate::group::machine::digest::GroupDigest;
use crate::group::proposal::GroupHost;
use crate::health::HealthIssues;
use crate::masters::Masters;
use crate::masters::addresses::{self, Addresses};
use crate::masters::description::Description;
use crate::masters::endpoints::Endpoints;
use crate::masters::joining;
use crate::masters::leadership::NewestLeadership;
use crate::masters::region_ids::RegionIdStock;
use crate::metrics::Metrics;
use crate::moves::peers::Peers;
use crate::region::orders::RegionOrders;
use crate::replicas::Replicas;
use crate::replicas::comparing::digesting::Digesting;
use crate::replicas::membership::{self, Membership};
use crate::replicas::mending::Mending;
use crate::server::config::ServerConfig;
use crate::server::identity::Identity;
use crate::server::start_error::StartError;
use crate::service::admin::AdminService;
use crate::service::data::DataService;
use crate::service::diagnostics::DiagnosticsService;
use crate::staging::Staging;
use crate::views::Views;

/// How long the handover of leaderships may take when the server stops.
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(500);
/// How long connections may take to end after everything is closed.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Progress of the flushes of a stopping server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushProgress {
    /// Regions flushed.
    pub flushed: usize,
    /// All regions.
    pub regions: usize,
}

/// A running region server.
pub struct RegionServer {
    address: SocketAddr,
    identity: HelloIdentity,
    replicas: Arc<Replicas>,
    metrics_registry: Arc<prometheus_client::registry::Registry>,
    host: Arc<GroupHost>,
    engine: Arc<Engine>,
    edge: Arc<Edge>,
    health: Arc<HealthIssues>,
    orders: Arc<RegionOrders>,
    endpoints: Arc<Endpoints>,
    budgets: Arc<Budgets>,
    /// Ends the background work and the reports.
    stop: CancellationToken,
    /// Ends the gRPC server, last of all.
    stop_serving: CancellationToken,
    background: Vec<JoinHandle<()>>,
    serving: JoinHandle<()>,
    refused: watch::Receiver<Option<String>>,
    /// So that a server dropped without a shutdown (a failing test) leaves no task behind that holds its port.
    _ends: [DropGuard; 4],
    _lock: DirLock,
}

/// Creates the state machines of groups over the engine.
struct Machines {
    engine: Arc<Engine>,
    staging: Arc<Staging>,
    replicas: Arc<Replicas>,
    signals: Arc<Signals>,
    metrics: Arc<Metrics>,
    tracer: Tracer,
}

impl Factory for Machines {
    type Machine = GroupMachine;

    fn open(&self, spec: &GroupSpec) -> Arc<GroupMachine> {
        let machine = GroupMachine::open(
            spec.group,
            self.engine.clone(),
            self.replicas.regions.clone(),
            self.signals.clone(),
            self.metrics.clone(),
            self.staging.clone(),
            self.tracer.clone(),
        );
        let machine = machine.unwrap_or_else(|error| {
            terrane_env::task::abort_process(&format!("{error}; start the build that wrote this directory"))
        });
        self.replicas.insert_machine(machine.clone());
        machine
    }
}

impl RegionServer {
    /// Starts a server.
    ///
    /// Boxed: an `async fn` is compiled by the crate that awaits it, so every binary would compile the whole server.
    pub fn start(config: ServerConfig) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::open_and_serve(config))
    }

    async fn open_and_serve(config: ServerConfig) -> Result<Self, StartError> {
        config.check().map_err(StartError::Settings)?;
        fs::check_occupant(&config.data_dir, fs::Occupant::Server).await?;
        let directory = |source| StartError::Directory { directory: config.data_dir.display().to_string(), source };
        fs::create_dir_durable(&config.data_dir).await.map_err(directory)?;
        let lock = DirLock::acquire(&config.data_dir).await?;
        let presence = lock.presence().await.map_err(directory)?;
        let engine_name = config.engine.to_string();
        let known = Identity::load(&config.data_dir, &engine_name, config.levels).await?;
        let listener = net::listen(&config.listen).await.map_err(StartError::Listen)?;
        let address = listener.local_addr().map_err(StartError::Listen)?;
        let advertised = advertised(&config, address)?;
        let mut masters = Masters::new(&config.masters)?;
        let joined = joining::join(&config, &mut masters, known, &advertised).await?;
        let identity = joined.identity;
        let addresses = Arc::new(Addresses::default());
        addresses.set(addresses::load(&config.data_dir).await);
        addresses.set([(identity.server, advertised.clone())]);
        addresses.set(joined.registered.iter().flat_map(|registered| registered.addresses.iter().cloned()));

        let options = Options::new(config.data_dir.join("engine"), config.engine, config.cache_bytes);
        let engine = Engine::open(options).await.map_err(StartError::Engine)?;
        let (metrics, metrics_registry) = Metrics::registered();
        let parts = Parts {
            replicas: Arc::new(Replicas::default()),
            signals: Arc::new(Signals::new(config.memtable_budget)),
            region_ids: Arc::new(RegionIdStock::default()),
            addresses,
            admission: Admission::new(config.memtable_budget),
            health: Arc::new(HealthIssues::default()),
            disk_free: Arc::default(),
            page_seal: Arc::new(PageSeal::default()),
            budgets: Arc::new(Budgets::default()),
            intake: Intake::new(config.intake),
            leadership: Arc::new(NewestLeadership::default()),
            endpoints: Arc::default(),
            mending: Arc::new(Mending::new(metrics.clone())),
            metrics,
        };
        parts.budgets.add(parts.admission.waiting().clone());
        parts.intake.budgets().for_each(|budget| parts.budgets.add(budget));
        let stop = CancellationToken::new();
        let staging = Staging::new(engine.clone(), stop.clone());
        let description = Description {
            address: advertised.clone(),
            console: config.console.clone().unwrap_or_default(),
            engine: config.engine.to_string(),
            zone: config.zone.clone().unwrap_or_default(),
        };
        // Before any of its replicas may stand for election.
        let recovered = joined.registered.iter().flat_map(|registered| registered.recovered.iter().copied()).collect();
        let host = open_host((&config, presence), identity, (advertised, recovered), &engine, &staging, &parts).await?;
        membership::remove_leftovers(&engine, &host).await.map_err(StartError::Engine)?;
        host.budgets().into_iter().for_each(|budget| parts.budgets.add(budget));
        let peers = Arc::new(Peers::new(identity, parts.addresses.clone()));
        staging.connect(peers.clone(), &host);
        let loads = parts.loads(&peers, &staging, (&host, &engine), &stop, config.bulk_rate);
        let edge = parts.edge(identity, &host, &config, loads.clone());
        let stop_serving = CancellationToken::new();
        let digesting = Arc::new(Digesting::new(parts.replicas.clone(), parts.metrics.clone(), stop.clone()));
        let comparer = parts.comparer(&peers, &host, &digesting, &stop, config.compare_every);
        let views = Arc::new(Views::new(host.clone(), parts.replicas.clone(), peers.clone(), stop.clone()));
        let departures = parts.departures(peers, &host, &engine, &staging, &stop);
        let membership = Arc::new(Membership {
            edge: edge.clone(),
            engine: engine.clone(),
            mending: parts.mending.clone(),
            changing: tokio::sync::Mutex::default(),
        });
        let orders = Arc::new(RegionOrders {
            edge: edge.clone(),
            region_ids: parts.region_ids.clone(),
            maintenance: parts.maintenance(&edge, &engine),
        });
        let admin = AdminService {
            identity,
            edge: edge.clone(),
            orders: orders.clone(),
            membership: membership.clone(),
            departures: departures.clone(),
            views: views.clone(),
            description,
            digesting: digesting.clone(),
        };
        let serving = serve(&edge, (admin, parts.leadership.clone()), &host, listener, stop_serving.clone()).await?;
        let pending = (joined.registered, joined.joining);
        let reporter = parts.reporter(&host, &engine, masters, (identity, &config.endpoints), joined.level, pending);
        let orphans = reporter.orphans.clone();
        let background = vec![
            terrane_env::task::spawn_named(
                "addresses",
                addresses::keep(parts.addresses.clone(), config.data_dir.clone(), stop.clone()),
            ),
            terrane_env::task::spawn_named("background", parts.background(&host, &engine, &config).run(stop.clone())),
            terrane_env::task::spawn_named("removals", membership.retry_removals(stop.clone())),
            terrane_env::task::spawn_named("report", reporter.run(stop.clone())),
            terrane_env::task::spawn_named("moves", departures.watch()),
            terrane_env::task::spawn_named("views", views.watch()),
            terrane_env::task::spawn_named("loads", loads.watch()),
            terrane_env::task::spawn_named("comparisons", comparer.watch()),
            terrane_env::task::spawn_named("orphans", orphans.watch(stop.clone())),
        ];
        let ends = [&edge.closing, &edge.ended, &stop, &stop_serving].map(|token| token.clone().drop_guard());
        let replicas = parts.replicas;
        Ok(Self {
            address,
            identity,
            replicas,
            metrics_registry,
            host,
            engine,
            edge,
            health: parts.health,
            orders,
            endpoints: parts.endpoints,
            budgets: parts.budgets,
            stop,
            stop_serving,
            background,
            serving,
            refused: joined.refused,
            _ends: ends,
            _lock: lock,
        })
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its id in the cluster.
    #[must_use]
    pub fn server_id(&self) -> ServerId {
        self.identity.server
    }

    /// Its cluster.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.identity.cluster
    }

    /// The data path, for another protocol in front of the same regions. A translator opens sessions on it and never names
    /// protobuf.
    #[must_use]
    pub fn data_path(&self) -> Arc<Edge> {
        self.edge.clone()
    }

    /// Its limited resources, which its status and metrics show. Other ports of the process add theirs.
    #[must_use]
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Orders about its regions, for the same purpose.
    #[must_use]
    pub fn region_orders(&self) -> Arc<RegionOrders> {
        self.orders.clone()
    }

    /// Where the masters and the other servers serve clients of other protocols, as far as this server knows.
    #[must_use]
    pub fn endpoints(&self) -> Arc<Endpoints> {
        self.endpoints.clone()
    }

    /// The number of its present life.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.identity.boot
    }

    /// Why a master refuses this server permanently; `None`: none does. With a reason, the process must end.
    #[must_use]
    pub fn refused(&self) -> watch::Receiver<Option<String>> {
        self.refused.clone()
    }

    /// Its metrics, for the console.
    #[must_use]
    pub fn registry(&self) -> Arc<prometheus_client::registry::Registry> {
        self.metrics_registry.clone()
    }

    /// The state of each group as this server sees it.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupStatus> {
        self.host.groups().iter().map(terrane_raft::Group::status).collect()
    }

    /// What each group's replica here holds, to compare it with the other replicas: see [`GroupDigest`]. It reads everything,
    /// and leaves out groups that are not complete yet after a restart. The error of a group hides no other group.
    pub async fn digests(&self) -> Vec<Result<GroupDigest, terrane_engine::Error>> {
        let mut digests = Vec::new();
        for machine in self.replicas.machines() {
            if !self.host.group(machine.group()).is_some_and(|group| group.has_replayed()) {
                continue;
            }
            digests.extend(machine.digest().await.transpose());
        }
        digests
    }

    /// Whether the server is ready, or why not.
    pub fn ready(&self) -> Result<(), String> {
        if self.edge.closing.is_cancelled() {
            return Err("the server is stopping".to_owned());
        }
        if let Some(why) = &*self.refused.borrow() {
            return Err(why.clone());
        }
        if let Some(why) = self.health.unreachable() {
            return Err(format!("the masters cannot reach this server at the address that it advertises: {why}"));
        }
        let headless = self.host.groups().into_iter().find(|group| group.status().leader.is_none());
        headless.map_or(Ok(()), |group| Err(format!("group {} has no known leader", group.id())))
    }

    /// Stops in order (see the module documentation). `progress` receives the progress of the flushes.
    ///
    /// Boxed for the same reason as [`RegionServer::start`].
    pub fn shutdown<'a>(self, progress: impl FnMut(FlushProgress) + Send + 'a) -> BoxFuture<'a, ()> {
        self.stop_in_order(Box::new(progress))
    }

    fn stop_in_order<'a>(self, progress: Box<dyn FnMut(FlushProgress) + Send + 'a>) -> BoxFuture<'a, ()> {
        Box::pin(self.stop_all(progress))
    }

    async fn stop_all(self, mut progress: Box<dyn FnMut(FlushProgress) + Send + '_>) {
        hand_over(&self.host).await;
        self.edge.closing.cancel();
        self.edge.tasks.close();
        tokio::time::timeout(GOODBYE_TIMEOUT, self.edge.tasks.wait()).await.ok();
        self.stop.cancel();
        for task in self.background {
            if let Err(error) = task.await {
                tracing::error!(%error, "a background task failed");
            }
        }
        flush_all(&self.replicas, &mut progress).await;
        self.edge.ended.cancel();
        self.edge.sessions.close();
        self.host.shutdown().await;
        let applying = self.replicas.machines().into_iter().map(|machine| async move { machine.stop_applying().await });
        tokio::time::timeout(GOODBYE_TIMEOUT, futures::future::join_all(applying)).await.ok();
        tokio::time::timeout(GOODBYE_TIMEOUT, self.edge.sessions.wait()).await.ok();
        self.engine.shutdown().await;
        self.stop_serving.cancel();
        let abort = self.serving.abort_handle();
        if tokio::time::timeout(GOODBYE_TIMEOUT, self.serving).await.is_err() {
            // A connection does not end. Nothing that it could use is open any more.
            abort.abort();
        }
    }
}

/// The address that others use.
fn advertised(config: &ServerConfig, address: SocketAddr) -> Result<String, StartError> {
    if let Some(advertise) = &config.advertise {
        return Ok(advertise.clone());
    }
    // The host name comes from the configuration, because others know it; the port comes from the bound socket.
    let host = config.listen.rsplit_once(':').map_or("", |(host, _)| host);
    let wildcard =
        host.is_empty() || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_unspecified());
    if wildcard {
        return Err(StartError::Advertise { listen: config.listen.clone() });
    }
    Ok(format!("{host}:{}", address.port()))
}

fn log_config(config: &ServerConfig) -> LogConfig {
    LogConfig {
        segment_bytes: config.segment_bytes,
        cache_bytes: config.log_cache_bytes,
        limit_bytes: config.log_limit,
        purge_budget_bytes: config.log_purge_budget,
    }
}

async fn open_host(
    (config, presence): (&ServerConfig, Presence),
    identity: HelloIdentity,
    (advertised, recovered): (String, BTreeMap<GroupId, u64>),
    engine: &Arc<Engine>,
    staging: &Arc<Staging>,
    parts: &Parts,
) -> Result<Arc<GroupHost>, StartError> {
    let mut host_config =
        HostConfig::new(config.data_dir.join("log"), identity.cluster, identity.server, identity.boot);
    (host_config.advertised, host_config.addresses) = (advertised, parts.addresses.clone());
    (host_config.presence, host_config.wall) = (Some(presence), config.clock.clone());
    (host_config.recovered, host_config.levels) = (recovered, config.levels);
    host_config.metrics = parts.metrics.raft.clone();
    host_config.log = log_config(config);
    let machines = Machines {
        engine: engine.clone(),
        staging: staging.clone(),
        replicas: parts.replicas.clone(),
        signals: parts.signals.clone(),
        metrics: parts.metrics.clone(),
        tracer: config.tracer.at("terrane.server", identity.server.0),
    };
    Ok(GroupHost::open(host_config, Arc::new(machines)).await?)
}

/// Serves everything on one port.
async fn serve(
    edge: &Arc<Edge>,
    (admin, newest): (AdminService, Arc<NewestLeadership>),
    host: &Arc<GroupHost>,
    listener: Listener,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, StartError> {
    let admin_identity = admin.identity;
    let data = v1::data_server::DataServer::new(DataService { identity: admin.identity, edge: edge.clone() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let admin = v1::region_server_server::RegionServerServer::new(admin)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let admin = InterceptedService::new(admin, move |request: Request<()>| {
        let admitted = newest.admit(leadership::of(request.metadata()));
        admitted.map(|()| request).map_err(|refused| error::status(&refused))
    });
    let diagnostics = DiagnosticsService { identity: admin_identity, edge: edge.clone() };
    let diagnostics = v1::diagnostics_server::DiagnosticsServer::new(diagnostics);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<v1::data_server::DataServer<DataService>>().await;
    let reflection = terrane_proto::reflection().map_err(|error| StartError::Reflection(error.to_string()))?;
    let router = net::server(&edge.intake)
        .add_service(health)
        .add_service(reflection)
        .add_service(data)
        .add_service(diagnostics)
        .add_service(admin)
        .add_service(host.peer_service());
    let incoming = listener.incoming(&edge.intake);
    let serving = async move {
        if let Err(error) = router.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await {
            tracing::error!(%error, "the gRPC server ended");
        }
    };
    Ok(terrane_env::task::spawn_named("serve", serving))
}

/// Hands every leadership to another member, and waits until the new leaders are known here.
async fn hand_over(host: &GroupHost) {
    let reason = "the server is stopping".to_owned();
    host.set_abstains("stopping", Some(Abstention { reason, weight: Weight::Firm }));
    let left = host.until_handed_over(HANDOVER_TIMEOUT).await;
    if !left.is_empty() {
        // The other members are down or stopping too. They elect a leader when they can.
        tracing::info!(groups = left.len(), "leaderships were not handed over in time");
    }
}

/// Flushes every region, a few at a time, and records the groups' state.
async fn flush_all(replicas: &Replicas, progress: &mut (impl FnMut(FlushProgress) + Send)) {
    let regions: Vec<_> = replicas
        .machines()
        .into_iter()
        .flat_map(|machine| machine.hosted().into_iter().map(move |hosted| (machine.clone(), hosted.region)))
        .collect();
    let total = regions.len();
    let flush = |(machine, region): (Arc<GroupMachine>, _)| async move {
        if let Err(error) = machine.flush(region).await {
            tracing::warn!(%region, %error, "cannot flush the region; its writes are in the log");
        }
    };
    let mut flushed = 0;
    let mut flushes = futures::stream::iter(regions.into_iter().map(flush)).buffer_unordered(FLUSHES_MAX);
    while flushes.next().await.is_some() {
        flushed += 1;
        progress(FlushProgress { flushed, regions: total });
    }
    for machine in replicas.machines() {
        if machine.is_dirty()
            && let Err(error) = machine.record().await
        {
            tracing::warn!(group = %machine.group(), %error, "cannot record the group's state; it is in the log");
        }
    }
}
