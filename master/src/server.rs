//! Starts and stops a master: opens its directory, creates the cluster or resumes it, serves, and shuts down.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use terrane_env::fs::{self, DirLock, LockError};
use terrane_env::net::{Intake, IntakeLimits};
use terrane_proto::hello::Identity as Hello;
use terrane_proto::{MESSAGE_BYTES_MAX, v1};
use terrane_raft::{GroupSpec, HostConfig};
use terrane_types::{ClusterId, Error, GroupId, ReplicaId, ServerId};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::catalog::checkpoint::{Checkpoint, CheckpointError};
use crate::catalog::{Bootstrap, CatalogEdit};
use crate::config::MasterConfig;
use crate::context::MasterContext;
use crate::identity::{Identity, IdentityError};
use crate::journal::{Group, GroupHost, Journal};
use crate::machine::{CatalogMachine, MasterFactory};
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::observed::Observed;
use crate::orders::Orders;
use crate::procedures;
use crate::service::MasterService;

/// How long a start waits for group 0's election; far longer than it takes.
const LEAD_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long a shutdown waits for running calls.
const CALLS_END_MAX: Duration = Duration::from_secs(2);
/// How often liveness is checked and gauges are set.
const TICK: Duration = Duration::from_millis(500);
/// The log of group 0 is small: a table takes a few hundred bytes.
const SEGMENT_BYTES: u64 = 4 << 20;
const LOG_CACHE_BYTES: u64 = 8 << 20;
const LOG_BUDGET_BYTES: u64 = 16 << 20;
/// This master's replica in group 0; the ids of masters lie below those of the catalog, see `ids`.
const OWN_REPLICA: ReplicaId = ReplicaId(1);

/// Why a master did not start; each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is invalid.
    #[error("{0}")]
    Settings(String),
    /// Another process uses the directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The directory does not belong to this master.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The catalog's checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The catalog's log cannot be opened.
    #[error(transparent)]
    Log(#[from] terrane_raft::OpenError),
    /// `--peers` differs from the list that the cluster was created with.
    #[error(
        "this cluster was created with {}, but this start has {}; start the master with the original setting",
        named(recorded),
        named(given)
    )]
    Peers {
        /// The masters of the bootstrap.
        recorded: Vec<String>,
        /// The masters given at this start.
        given: Vec<String>,
    },
    /// Parts of the directory belong to different clusters.
    #[error("{} contains the catalog of cluster {catalog}, but its `master` file names cluster {stamp}; do not mix data directories", directory.display())]
    Mixed {
        /// The directory.
        directory: PathBuf,
        /// The catalog's cluster.
        catalog: ClusterId,
        /// The cluster of the `master` file.
        stamp: ClusterId,
    },
    /// The port could not be bound.
    #[error(transparent)]
    Listen(std::io::Error),
    /// A directory could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Group 0 did not start.
    #[error("the catalog did not start: {0}")]
    Catalog(String),
}

fn named(peers: &[String]) -> String {
    if peers.is_empty() { "a single master".to_owned() } else { format!("--peers {}", peers.join(",")) }
}

/// A running master.
pub struct Master {
    address: String,
    identity: Identity,
    journal: Journal,
    machine: Arc<CatalogMachine>,
    host: Arc<GroupHost>,
    registry: Arc<Registry>,
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
        make_dir(&config.data_dir).await?;
        let lock = DirLock::acquire(&config.data_dir).await?;
        let identity = Identity::begin(&config.data_dir).await?;
        // Bound before the catalog is opened: a port in use fails at once, and the bootstrap needs the address.
        let listener = terrane_env::net::listen(&config.listen).await.map_err(StartError::Listen)?;
        let port = listener.local_addr().map_err(StartError::Listen)?.port();
        let address = config.advertised(port);

        let (host, group, machine) = open_catalog(&config, &identity).await?;
        let journal = Journal::new(group, Arc::clone(&machine));
        bootstrap(&config, &identity, &address, &journal).await?;

        let hello = Hello { cluster: identity.cluster, server: ServerId::default(), boot: identity.boot };
        let observed = Arc::new(Observed::new(config.silent_after()));
        let orders = Orders::new(journal.clone(), Arc::clone(&observed), hello);
        let context = Arc::new(MasterContext::new(journal.clone(), observed, orders, config.groups_per_server));
        let membership = Arc::new(Membership::new(Arc::clone(&context), hello, config.report_every));
        let (metrics, registry) = Metrics::new();

        let (stop_calls, stop) = (CancellationToken::new(), CancellationToken::new());
        let background = background(&context, &machine, &membership, &metrics, &stop);
        let service = MasterService::new(hello, context, membership, metrics);
        let serving = serve(listener, service, stop_calls.clone()).await?;
        tracing::info!(cluster = %identity.cluster, address, boot = identity.boot, "master is serving");
        let running = Mutex::new(Some(Running { serving, background, lock }));
        Ok(Self { address, identity, journal, machine, host, registry, stop_calls, stop, running })
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

    /// Whether it is ready, or why not.
    pub fn ready(&self) -> Result<(), String> {
        self.journal.ready()
    }

    /// Stops calls and procedures, writes a checkpoint and releases the directory. A second call does nothing.
    ///
    /// Boxed for the same reason as [`Master::start`].
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop_all())
    }

    async fn stop_all(&self) {
        let Some(Running { mut serving, mut background, lock }) = self.running.lock().take() else { return };
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

/// Opens checkpoint and log, and waits until this master leads group 0 and has applied its log.
async fn open_catalog(
    config: &MasterConfig,
    identity: &Identity,
) -> Result<(Arc<GroupHost>, Group, Arc<CatalogMachine>), StartError> {
    let (catalog_dir, log_dir) = (config.data_dir.join("catalog"), config.data_dir.join("log"));
    make_dir(&catalog_dir).await?;
    make_dir(&log_dir).await?;
    let checkpoint = Checkpoint::load(&catalog_dir).await?;
    let machine = CatalogMachine::new(catalog_dir, checkpoint);
    let own = ServerId(identity.number);
    let mut host = HostConfig::new(log_dir, identity.cluster, own, identity.boot);
    (host.log.segment_bytes, host.log.cache_bytes) = (SEGMENT_BYTES, LOG_CACHE_BYTES);
    host.log.purge_budget_bytes = LOG_BUDGET_BYTES;
    let host = GroupHost::open(host, Arc::new(MasterFactory(Arc::clone(&machine)))).await?;
    let members = [(OWN_REPLICA, own)].into_iter().collect();
    let spec = GroupSpec { group: GroupId::MASTER, replica: OWN_REPLICA, members };
    let catalog = |what: &dyn std::fmt::Display| StartError::Catalog(what.to_string());
    host.create_group(spec, true).await.map_err(|error| catalog(&error))?;
    let group = host.group(GroupId::MASTER).ok_or_else(|| catalog(&"its group does not exist"))?;
    let leads = group.wait_for(|status| status.is_leader, LEAD_WAIT_MAX).await;
    leads.ok_or_else(|| catalog(&"its group elected no leader"))?;
    // A read barrier makes sure that the entries from before this start are applied.
    group.read_barrier().await.map_err(|error| catalog(&error))?;
    Ok((host, group, machine))
}

/// Bootstraps the cluster, or checks the settings against those it was created with.
async fn bootstrap(
    config: &MasterConfig,
    identity: &Identity,
    address: &str,
    journal: &Journal,
) -> Result<(), StartError> {
    let peers = config.bootstrap_peers(address);
    let Some(recorded) = journal.read(|catalog| catalog.bootstrap().cloned()) else {
        let bootstrap = Bootstrap { cluster: identity.cluster, peers, replication: config.replication };
        let recorded = journal.record(&CatalogEdit::Bootstrap(bootstrap)).await;
        return recorded.map(|_| ()).map_err(|error: Error| StartError::Catalog(error.to_string()));
    };
    if recorded.cluster != identity.cluster {
        let (catalog, stamp) = (recorded.cluster, identity.cluster);
        return Err(StartError::Mixed { directory: config.data_dir.clone(), catalog, stamp });
    }
    // Without --peers, the list in the catalog counts.
    if !config.peers.is_empty() && peers != recorded.peers {
        return Err(StartError::Peers { recorded: recorded.peers, given: config.peers.clone() });
    }
    if recorded.replication != config.replication {
        let (recorded, given) = (recorded.replication, config.replication);
        tracing::warn!(recorded, given, "ignoring another replication than the cluster was created with");
    }
    Ok(())
}

fn background(
    context: &Arc<MasterContext>,
    machine: &Arc<CatalogMachine>,
    membership: &Arc<Membership>,
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(procedures::drive(Arc::clone(context), stop.clone()));
    let writer = Arc::clone(machine);
    tasks.spawn(async move { writer.write_checkpoints().await });
    let (context, membership, metrics) = (Arc::clone(context), Arc::clone(membership), Arc::clone(metrics));
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            membership.tick();
            metrics.observe(&context);
        }
    });
    tasks
}

async fn serve(
    listener: terrane_env::net::Listener,
    service: MasterService,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, StartError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    let master = v1::master_server::MasterServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    health.set_serving::<v1::master_server::MasterServer<MasterService>>().await;
    let reflection = terrane_proto::reflection().map_err(|error| StartError::Catalog(error.to_string()))?;
    let intake = Intake::new(IntakeLimits { message_bytes: MESSAGE_BYTES_MAX, ..IntakeLimits::default() });
    let router =
        terrane_env::net::server(&intake).add_service(master).add_service(health_service).add_service(reflection);
    Ok(terrane_env::task::spawn_named("master-calls", async move {
        let served = router.serve_with_incoming_shutdown(listener.incoming(&intake), stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "the master has stopped serving");
        }
    }))
}

#[cfg(test)]
mod tests;
