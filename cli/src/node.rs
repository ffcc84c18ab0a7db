//! One node: a master or a region server together with its console.
//!
//! `master` and `server` run one node per process; `dev` and `demo` run several in one process (`cluster`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use terrane_console::Console;
use terrane_env::budget::Budgets;
use terrane_master::{Master, MasterConfig};
use terrane_regionserver::{FlushProgress, RegionServer, ServerConfig};
use terrane_types::ServerId;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::UsedSetting;
use crate::console_source::ClusterSource;
use crate::failure::{Failure, chain};
use crate::hbase_ports::{BoundPorts, HbasePorts, ServedPorts};
use crate::logging;

/// Interval of progress lines while a stopping server flushes.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// A running master.
pub struct MasterNode {
    pub master: Arc<Master>,
    console: Option<Console>,
    hbase: Option<ServedPorts>,
}

/// A running region server.
pub struct ServerNode {
    /// `None` once it stops; until then the console asks it for readiness.
    server: Arc<RwLock<Option<RegionServer>>>,
    address: String,
    id: ServerId,
    refused: watch::Receiver<Option<String>>,
    console: Option<Console>,
    hbase: Option<ServedPorts>,
}

impl MasterNode {
    /// Starts a master, and a console if an address is given.
    /// Its pages show the settings of this process.
    pub async fn start(
        mut config: MasterConfig,
        console: Option<&str>,
        settings: Arc<[UsedSetting]>,
        hbase: Option<&HbasePorts>,
    ) -> Result<MasterNode, Failure> {
        let hbase = bind(hbase).await?;
        config.endpoints = hbase.as_ref().map(BoundPorts::endpoints).unwrap_or_default();
        let data = config.data_dir.display().to_string();
        let waits_for = others(&config.peers, &config.join);
        let started: Arc<OnceLock<Arc<Master>>> = Arc::default();
        let asked = Arc::clone(&started);
        let ready = move || match asked.get() {
            Some(master) => master.ready(),
            None => Err(format!("starting{waits_for}")),
        };
        let console = open_console(console, ready).await?;
        let master = Master::start(config).await;
        let master = Arc::new(master.map_err(|error| start_failure("master", &data, &error))?);
        publish(console.as_ref(), master.registry(), master.budgets());
        let address = master.address().to_owned();
        show(console.as_ref(), ClusterSource::new(address.clone(), format!("the master at {address}"), settings));
        started.get_or_init(|| Arc::clone(&master));
        let hbase = hbase.map(|bound| bound.serve_tables(&master));
        Ok(MasterNode { master, console, hbase })
    }

    /// The address of its console, if it has one.
    pub fn console(&self) -> Option<String> {
        self.console.as_ref().map(|console| console.address().to_string())
    }

    /// Where it serves HBase's clients, if it does.
    pub fn hbase(&self) -> Option<&ServedPorts> {
        self.hbase.as_ref()
    }

    pub async fn shutdown(self) {
        drop(self.hbase);
        self.master.shutdown().await;
        close_console(self.console).await;
    }
}

impl ServerNode {
    /// Starts a region server, and the console that its settings name.
    /// The pages show the settings of this process.
    pub async fn start(
        mut config: ServerConfig,
        settings: Arc<[UsedSetting]>,
        hbase: Option<HbasePorts>,
    ) -> Result<ServerNode, Failure> {
        let hbase = bind(hbase.as_ref()).await?;
        config.endpoints = hbase.as_ref().map(BoundPorts::endpoints).unwrap_or_default();
        let data = config.data_dir.display().to_string();
        let console = config.console.clone();
        let waits_for = others(&config.masters, &[]);
        let masters = config.masters.join(",");
        let server: Arc<RwLock<Option<RegionServer>>> = Arc::default();
        let has_started = Arc::new(AtomicBool::new(false));
        let (asked, started) = (Arc::clone(&server), Arc::clone(&has_started));
        let ready = move || match &*asked.read() {
            Some(server) => server.ready(),
            None if started.load(Ordering::Acquire) => Err("the server is stopping".to_owned()),
            None => Err(format!("starting{waits_for}")),
        };
        let console = open_console(console.as_deref(), ready).await?;
        let running = RegionServer::start(config).await;
        let running = running.map_err(|error| start_failure("region server", &data, &error))?;
        let (address, id) = (running.address().to_string(), running.server_id());
        let refused = running.refused();
        let hbase = hbase.map(|bound| bound.serve_data(&running));
        publish(console.as_ref(), running.registry(), running.budgets());
        show(console.as_ref(), ClusterSource::new(masters, format!("server {id} at {address}"), settings));
        *server.write() = Some(running);
        has_started.store(true, Ordering::Release);
        Ok(ServerNode { server, address, id, refused, console, hbase })
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its id in the cluster.
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// The address of its console, if it has one.
    pub fn console(&self) -> Option<String> {
        self.console.as_ref().map(|console| console.address().to_string())
    }

    /// Where it serves HBase's clients, if it does.
    pub fn hbase(&self) -> Option<&ServedPorts> {
        self.hbase.as_ref()
    }

    /// Returns the reason once a master permanently rejects the server; the process should then exit.
    pub async fn refused(&self) -> Failure {
        let mut refused = self.refused.clone();
        let reason = match refused.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // Registered: it can no longer be rejected.
            Err(_) => std::future::pending().await,
        };
        Failure::new(format!("the region server cannot continue: {reason}"))
    }

    /// Stops serving and flushes all memtables, with progress on standard error if it takes long.
    pub async fn shutdown(self) {
        drop(self.hbase);
        let server = self.server.write().take();
        if let Some(server) = server {
            let id = self.id;
            let mut said = Instant::now();
            let progress = move |progress: FlushProgress| {
                if said.elapsed() >= SAY_EVERY {
                    said = Instant::now();
                    let (flushed, regions) = (progress.flushed, progress.regions);
                    logging::say(&format!("server {id}: {flushed} of {regions} regions flushed"));
                }
            };
            server.shutdown(progress).await;
        }
        close_console(self.console).await;
    }
}

async fn bind(hbase: Option<&HbasePorts>) -> Result<Option<BoundPorts>, Failure> {
    match hbase {
        Some(ports) => ports.bind().await.map(Some),
        None => Ok(None),
    }
}

fn start_failure(role: &str, data: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(format!("cannot start the {role} with data in {data}: {}", chain(error)))
}

/// What a starting node may wait for.
fn others(addresses: &[String], more: &[String]) -> String {
    let others: Vec<&str> = addresses.iter().chain(more).map(String::as_str).collect();
    if others.is_empty() { String::new() } else { format!("; it may wait for a master at {}", others.join(", ")) }
}

/// Shows metrics on the console, and what the console's clients hold among the resources of its role.
fn publish(console: Option<&Console>, registry: Arc<Registry>, budgets: &Budgets) {
    if let Some(console) = console {
        console.publish(registry);
        console.budgets().for_each(|budget| budgets.add(budget));
    }
}

/// Shows the cluster on the console's pages.
fn show(console: Option<&Console>, source: ClusterSource) {
    if let Some(console) = console {
        console.show(Arc::new(source));
    }
}

async fn open_console(
    address: Option<&str>,
    ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
) -> Result<Option<Console>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let console = Console::start(address, Arc::new(ready)).await;
    console.map(Some).map_err(|error| Failure::new(chain(&error)))
}

/// Stops the console last, so that a supervisor sees the role stopping rather than gone.
async fn close_console(console: Option<Console>) {
    if let Some(console) = console {
        console.shutdown().await;
    }
}
