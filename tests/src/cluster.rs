//! A whole cluster in this process: a master and region servers on free loopback ports, with real files.
//!
//! Each node can be stopped and restarted individually, on the same port and directory, like a process. Only `kill -9`
//! is missing here; the simulator and the tests with real processes cover it. A node that starts takes its configuration
//! from [`Settings`], which tests may change meanwhile (to a smaller log limit, for example).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use prometheus_client::registry::Registry;
use terrane_client::{Client, ClientBuilder};
use terrane_env::time::WallClock;
use terrane_master::{Master, MasterConfig};
use terrane_oracle::numbers;
use terrane_regionserver::{BackendKind, RegionServer, ServerConfig, ShapeLimits};
use terrane_types::states::ServerState;

use crate::eventually::eventually;
use crate::log_lines;

/// How long to wait for leaders; far longer than needed.
const LEADERS_WITHIN: Duration = Duration::from_secs(90);
/// How often servers report; often, so that tests see an up-to-date map.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// The settings of a cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    pub servers: usize,
    pub replication: u32,
    pub groups_per_server: usize,
    pub engine: BackendKind,
    pub memtable_budget: u64,
    pub log_limit: u64,
    pub log_purge_budget: u64,
    pub segment_bytes: u64,
    /// How often servers report.
    pub report_every: Duration,
    /// How long a server may be away before its replicas are replaced.
    pub replace_after: Duration,
    /// How long no server may have come or gone before surplus groups are removed.
    pub surplus_after: Duration,
    /// When regions are split for their load and merged.
    pub shape: ShapeLimits,
    /// Requests that take longer are kept.
    pub slow_request: Duration,
    /// The time in which a server compares the replicas of all regions that it leads.
    pub compare_every: Duration,
    /// Texts of errors that the test causes; any other line of level ERROR fails it.
    pub expected_errors: &'static [&'static str],
}

impl Default for Settings {
    /// Three servers with small files, since tests write little and log segments are preallocated.
    fn default() -> Self {
        Self {
            servers: 3,
            replication: 3,
            groups_per_server: 2,
            engine: BackendKind::default(),
            memtable_budget: 64 << 20,
            log_limit: 1 << 30,
            log_purge_budget: 64 << 20,
            segment_bytes: 4 << 20,
            report_every: REPORT_EVERY,
            replace_after: MasterConfig::default().replace_after,
            surplus_after: MasterConfig::default().surplus_after,
            shape: ShapeLimits::default(),
            slow_request: ServerConfig::default().slow_request,
            compare_every: ServerConfig::default().compare_every,
            expected_errors: &[],
        }
    }
}

/// A cluster whose nodes are running or stopped.
pub struct Cluster {
    /// The settings of nodes that start from now on.
    pub settings: Settings,
    master: Part<Master>,
    servers: Vec<Part<RegionServer>>,
    clocks: Vec<WallClock>,
    directory: tempfile::TempDir,
}

/// A node: its address once it has run, and the node itself while it runs.
struct Part<T> {
    address: Option<String>,
    running: Option<T>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { address: None, running: None }
    }
}

impl<T> Part<T> {
    /// The previous port, or any free port the first time.
    fn listen(&self) -> String {
        self.address.clone().unwrap_or_else(|| "127.0.0.1:0".to_owned())
    }

    fn runs(&mut self, address: String, running: T) {
        self.address = Some(address);
        self.running = Some(running);
    }
}

impl Drop for Cluster {
    /// Fails the test if a node has logged an error that it does not expect. The directory of nodes that still run stays.
    fn drop(&mut self) {
        // A node whose directory is deleted ends the process, and with it the tests beside a test that fails.
        let runs = self.master.running.is_some() || self.servers.iter().any(|server| server.running.is_some());
        self.directory.disable_cleanup(runs);
        // Outside of the runtime it is not known whose errors they are; a test that fails anyway has said why.
        if std::thread::panicking() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let errors = log_lines::take_unexpected_errors(self.settings.expected_errors);
        assert!(errors.is_empty(), "unexpected errors were logged: {errors:#?}");
    }
}

impl Cluster {
    /// Starts all nodes and waits until every group has a leader.
    ///
    /// # Errors
    /// If a node does not start, or a group gets no leader.
    pub async fn start(settings: Settings) -> Result<Self> {
        log_lines::keep();
        let directory = tempfile::tempdir()?;
        let servers = (0..settings.servers).map(|_| Part::default()).collect();
        let clocks = (0..settings.servers).map(|_| WallClock::default()).collect();
        let mut cluster = Self { settings, master: Part::default(), servers, clocks, directory };
        cluster.start_all().await?;
        Ok(cluster)
    }

    /// Starts all stopped nodes and waits until every group has a leader.
    ///
    /// # Errors
    /// As for [`Cluster::start`].
    pub async fn start_all(&mut self) -> Result<()> {
        if self.master.running.is_none() {
            self.start_master().await?;
        }
        let stopped: Vec<usize> = (0..self.servers.len()).filter(|&index| self.server(index).is_none()).collect();
        // In parallel: a group elects a leader once a majority of its members runs.
        let started = try_join_all(stopped.iter().map(|&index| RegionServer::start(self.server_config(index)))).await?;
        for (index, server) in stopped.into_iter().zip(started) {
            self.servers[index].runs(server.address().to_string(), server);
        }
        self.wait_for_leaders().await
    }

    /// Stops everything cleanly, servers first, one after another.
    pub async fn stop_all(&mut self) {
        let servers: Vec<RegionServer> = self.servers.iter_mut().filter_map(|part| part.running.take()).collect();
        futures::future::join_all(servers.into_iter().map(|server| server.shutdown(|_| {}))).await;
        self.stop_master().await;
    }

    /// # Errors
    /// If the master does not start.
    pub async fn start_master(&mut self) -> Result<()> {
        let config = MasterConfig {
            data_dir: self.master_dir(),
            listen: self.master.listen(),
            replication: self.settings.replication,
            groups_per_server: self.settings.groups_per_server,
            report_every: self.settings.report_every,
            replace_after: self.settings.replace_after,
            surplus_after: self.settings.surplus_after,
            ..MasterConfig::default()
        };
        let master = Master::start(config).await.context("start the master")?;
        self.master.runs(master.address().to_owned(), master);
        Ok(())
    }

    /// The master's data directory.
    #[must_use]
    pub fn master_dir(&self) -> PathBuf {
        self.directory.path().join("master")
    }

    pub async fn stop_master(&mut self) {
        if let Some(master) = self.master.running.take() {
            master.shutdown().await;
        }
    }

    /// # Errors
    /// If the server does not start.
    pub async fn start_server(&mut self, index: usize) -> Result<()> {
        ensure!(self.server(index).is_none(), "server {index} is running");
        let server = RegionServer::start(self.server_config(index)).await;
        let server = server.with_context(|| format!("start server {index}"))?;
        self.servers[index].runs(server.address().to_string(), server);
        Ok(())
    }

    /// Starts a server more; returns its index.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn add_server(&mut self) -> Result<usize> {
        self.servers.push(Part::default());
        self.clocks.push(WallClock::default());
        let index = self.servers.len() - 1;
        self.start_server(index).await?;
        // It serves; the master counts it as live once it has called it.
        let address = self.server_address(index).to_string();
        let admin = self.client().await?.admin();
        let is_live = async || {
            let servers = admin.servers().await?;
            let is_live = servers.iter().any(|server| server.address == address && server.state == ServerState::Live);
            ensure!(is_live, "{servers:?}");
            Ok(())
        };
        eventually("the new server is live", LEADERS_WITHIN, is_live).await?;
        Ok(index)
    }

    /// Adds a server that advertises an address which is not its own; returns its index.
    ///
    /// # Errors
    /// As for [`Cluster::start`].
    pub async fn add_server_advertising(&mut self, address: &str) -> Result<usize> {
        self.servers.push(Part::default());
        self.clocks.push(WallClock::default());
        let index = self.servers.len() - 1;
        let config = ServerConfig { advertise: Some(address.to_owned()), ..self.server_config(index) };
        let server = RegionServer::start(config).await?;
        self.servers[index].runs(server.address().to_string(), server);
        Ok(index)
    }

    /// Starts a server on a foreign directory.
    ///
    /// # Errors
    /// The expected refusal.
    pub async fn start_server_over(&mut self, index: usize, data_dir: &Path) -> Result<()> {
        let config = ServerConfig { data_dir: data_dir.to_owned(), ..self.server_config(index) };
        let server = RegionServer::start(config).await?;
        self.servers[index].runs(server.address().to_string(), server);
        Ok(())
    }

    /// Stops everything and starts another cluster on the same ports, with empty directories.
    ///
    /// # Errors
    /// As for [`Cluster::start`].
    pub async fn replaced(mut self) -> Result<Self> {
        self.stop_all().await;
        self.directory = tempfile::tempdir()?;
        self.start_all().await?;
        Ok(self)
    }

    pub async fn stop_server(&mut self, index: usize) {
        if let Some(server) = self.servers[index].running.take() {
            server.shutdown(|_| {}).await;
        }
    }

    /// Stops one server after another, and calls `check` with its index while it is down.
    ///
    /// # Errors
    /// If the check fails, or a server does not start again.
    pub async fn without_each(&mut self, mut check: impl AsyncFnMut(usize) -> Result<()>) -> Result<()> {
        for index in 0..self.servers.len() {
            self.stop_server(index).await;
            check(index).await.with_context(|| format!("server {index} is down"))?;
            self.start_server(index).await?;
            self.wait_for_leaders().await?;
        }
        Ok(())
    }

    /// The server, while it runs.
    #[must_use]
    pub fn server(&self, index: usize) -> Option<&RegionServer> {
        self.servers[index].running.as_ref()
    }

    /// A server's wall clock, which survives restarts.
    #[must_use]
    pub fn clock(&self, index: usize) -> &WallClock {
        &self.clocks[index]
    }

    /// The present or last address of a server.
    #[must_use]
    pub fn server_address(&self, index: usize) -> SocketAddr {
        let address = self.servers[index].address.as_deref().expect("all servers have been started");
        address.parse().expect("a server has a socket address")
    }

    /// The present or last address of the master.
    #[must_use]
    pub fn masters(&self) -> &str {
        self.master.address.as_deref().expect("the master is started first")
    }

    /// The master's metrics, while it runs.
    #[must_use]
    pub fn master_registry(&self) -> Option<Arc<Registry>> {
        self.master.running.as_ref().map(Master::registry)
    }

    /// A metric of a running server; 0 if it is not exposed.
    #[must_use]
    pub fn number(&self, index: usize, name: &str) -> f64 {
        let numbers = self.server(index).map(|server| numbers::read(&server.registry())).unwrap_or_default();
        numbers.get(name).copied().unwrap_or_default()
    }

    /// A metric summed over the running servers.
    #[must_use]
    pub fn total(&self, name: &str) -> f64 {
        (0..self.servers.len()).map(|index| self.number(index, name)).sum()
    }

    /// Settings of a client of this cluster.
    #[must_use]
    pub fn client_builder(&self) -> ClientBuilder {
        Client::builder().masters(self.masters())
    }

    /// A client of this cluster.
    ///
    /// # Errors
    /// If no master responds.
    pub async fn client(&self) -> Result<Client> {
        Ok(self.client_builder().build().await?)
    }

    /// Waits until the master knows a running leader of every group.
    ///
    /// # Errors
    /// If that takes too long.
    pub async fn wait_for_leaders(&self) -> Result<()> {
        let client = self.client().await?;
        let least = self.settings.servers * self.settings.groups_per_server;
        eventually("a leader for every group", LEADERS_WITHIN, async || {
            let status = client.admin().status().await?;
            ensure!(status.waiting_for.is_empty(), "the cluster waits for {}", status.waiting_for);
            ensure!(status.groups as usize >= least, "{} of {least} groups exist", status.groups);
            ensure!(status.groups_without_leader == 0, "{} groups have no leader", status.groups_without_leader);
            Ok(())
        })
        .await
    }

    fn server_config(&self, index: usize) -> ServerConfig {
        ServerConfig {
            data_dir: self.data_dir(index),
            listen: self.servers[index].listen(),
            masters: vec![self.masters().to_owned()],
            engine: self.settings.engine,
            memtable_budget: self.settings.memtable_budget,
            log_limit: self.settings.log_limit,
            log_purge_budget: self.settings.log_purge_budget,
            segment_bytes: self.settings.segment_bytes,
            shape: self.settings.shape.clone(),
            slow_request: self.settings.slow_request,
            compare_every: self.settings.compare_every,
            clock: self.clocks[index].clone(),
            ..ServerConfig::default()
        }
    }

    /// A server's data directory.
    #[must_use]
    pub fn data_dir(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("server-{}", index + 1))
    }
}
