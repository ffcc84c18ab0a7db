//! A whole cluster in this process: its masters and region servers, with all data under one directory.
//!
//! `dev` runs it until a signal arrives, `demo` until the demo ends. Each node has its own subdirectory, so that it can
//! later be started as a separate process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select_all, try_join_all};
use terrane_client::Client;
use terrane_env::fs::{Occupant, check_occupant};
use terrane_master::MasterConfig;
use terrane_regionserver::ServerConfig;
use tokio::time::Instant;

use crate::config::UsedSetting;
use crate::failure::{During, Failure};
use crate::hbase_ports::{HbasePorts, ServedPorts};
use crate::logging;
use crate::node::{MasterNode, ServerNode};

/// The numbers of masters that make sense.
pub const MASTERS: [u32; 3] = [1, 3, 5];
/// Most servers in one process: more would need ports beyond those between servers and consoles.
pub const SERVERS_MAX: u32 = 10;
/// With fewer servers, data has a single copy.
pub const SERVERS_FOR_REPLICATION: u32 = 3;
/// Offsets of the ports of consoles and servers.
const CONSOLE_OFFSET: u16 = 10;
const SERVER_OFFSET: u16 = 100;
/// Distance of the last port from the first.
pub const PORTS_SPAN: u16 = SERVER_OFFSET + 2 * CONSOLE_OFFSET;
/// How long to wait until all groups have leaders; far longer than needed.
const LEADERS_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often to check for leaders.
const LEADERS_LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often servers report to the master; cheap, since they share a process.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// The ports of a cluster, always on the loopback address.
#[derive(Clone, Copy, Debug)]
pub enum Ports {
    /// The first port; the others, including consoles, follow at fixed offsets.
    From(u16),
    /// Any free ports, and no consoles.
    Free,
}

/// The configuration of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub data: PathBuf,
    pub masters: u32,
    pub servers: u32,
    pub ports: Ports,
    /// What all servers have, apart from their directories and addresses.
    pub server: ServerConfig,
    /// The settings of the process, for its consoles.
    pub settings: Arc<[UsedSetting]>,
    /// Whether HBase's clients are served, at HBase's own ports.
    pub hbase: bool,
    /// How long their scanners wait for the next call.
    pub scanner_lease: Duration,
}

/// HBase's ports, which its clients know: those of the first master, the first region server and ZooKeeper.
const HBASE_MASTER: u16 = 16_000;
const HBASE_SERVER: u16 = 16_020;
const ZOOKEEPER: u16 = 2_181;

impl ClusterPlan {
    /// Replicas of every region.
    pub fn replication(&self) -> u32 {
        if self.servers < SERVERS_FOR_REPLICATION { 1 } else { SERVERS_FOR_REPLICATION }
    }

    /// The directory of a master; a single one has no number.
    fn master_directory(&self, index: u16) -> String {
        if self.masters == 1 { "master".to_owned() } else { format!("master-{}", index + 1) }
    }

    fn master(&self, index: u16) -> MasterConfig {
        let peers = if self.masters == 1 { Vec::new() } else { self.master_addresses() };
        MasterConfig {
            data_dir: self.data.join(self.master_directory(index)),
            listen: self.ports.address(index),
            peers,
            replication: self.replication(),
            report_every: REPORT_EVERY,
            groups_per_server: self.groups_per_server(),
            ..MasterConfig::default()
        }
    }

    /// Every address that its processes listen on.
    pub fn addresses(&self) -> Vec<String> {
        let servers = u16::try_from(self.servers).expect("the number of servers was checked");
        let masters = self.master_indexes().flat_map(|index| [index, CONSOLE_OFFSET + index]);
        let servers = (0..servers).map(|index| SERVER_OFFSET + index).flat_map(|port| [port, CONSOLE_OFFSET + port]);
        masters.chain(servers).map(|offset| self.ports.address(offset)).collect()
    }

    /// The addresses at which it serves HBase's clients, if it does.
    pub fn hbase_addresses(&self) -> Vec<String> {
        let masters = self.master_indexes().filter_map(|index| self.hbase_of_master(index));
        let servers = u16::try_from(self.servers).expect("the number of servers was checked");
        let servers = (0..servers).filter_map(|index| self.hbase_of_server(index));
        masters.chain(servers).flat_map(|ports| [Some(ports.listen), ports.zookeeper]).flatten().collect()
    }

    fn master_indexes(&self) -> std::ops::Range<u16> {
        0..u16::try_from(self.masters).expect("the number of masters was checked")
    }

    fn master_addresses(&self) -> Vec<String> {
        self.master_indexes().map(|index| self.ports.address(index)).collect()
    }

    /// As many groups as the server's share of the processors can keep busy. A log entry costs the same however full it
    /// is, and the servers of one process share the processors that a single server would have for itself.
    fn groups_per_server(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let servers = usize::try_from(self.servers).expect("32 bits fit a length").max(1);
        (processors / servers).clamp(1, MasterConfig::default().groups_per_server)
    }

    fn server(&self, index: u16, masters: &[String]) -> ServerConfig {
        ServerConfig {
            data_dir: self.data.join(server_directory(index)),
            listen: self.ports.address(SERVER_OFFSET + index),
            console: self.ports.console(SERVER_OFFSET + CONSOLE_OFFSET + index),
            masters: masters.to_vec(),
            ..self.server.clone()
        }
    }

    fn hbase_of_master(&self, index: u16) -> Option<HbasePorts> {
        self.hbase.then(|| HbasePorts {
            listen: format!("127.0.0.1:{}", HBASE_MASTER + index),
            zookeeper: Some(format!("127.0.0.1:{}", ZOOKEEPER + index)),
            ..HbasePorts::default()
        })
    }

    fn hbase_of_server(&self, index: u16) -> Option<HbasePorts> {
        self.hbase.then(|| HbasePorts {
            listen: format!("127.0.0.1:{}", HBASE_SERVER + index),
            scanner_lease: self.scanner_lease,
            ..HbasePorts::default()
        })
    }

    /// The groups of a new cluster; an existing cluster keeps those it has.
    fn groups_expected(&self, is_new: bool) -> usize {
        let servers = usize::try_from(self.servers).expect("32 bits fit a length");
        if is_new { servers * self.groups_per_server() } else { 1 }
    }

    /// Whether the directory is empty. Rejects a directory with more servers than configured: some groups would lack a
    /// majority.
    async fn check_directory(&self) -> Result<bool, Failure> {
        let checked = check_occupant(&self.data, Occupant::Cluster).await;
        checked.map_err(|occupied| Failure::new(occupied.to_string()))?;
        let names = match terrane_env::fs::list(&self.data).await {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
            Err(error) => {
                return Err(Failure::new(format!("cannot read the directory {}: {error}", self.data.display())));
            }
        };
        let masters = if names.iter().any(|name| name == "master") {
            1
        } else {
            names.iter().filter(|name| name.starts_with("master-")).count()
        };
        if masters > 0 && masters != usize::try_from(self.masters).expect("32 bits fit a length") {
            return Err(Failure::new(format!(
                "{} contains a cluster with {masters} masters, but {} are configured",
                self.data.display(),
                self.masters
            ))
            .advise(format!("use --masters {masters}, or another directory with --data")));
        }
        let there = (0..u16::MAX).take_while(|&index| names.contains(&server_directory(index))).count();
        if there > usize::try_from(self.servers).expect("32 bits fit a length") {
            return Err(Failure::new(format!(
                "{} contains the data of {there} servers, but only {} are configured",
                self.data.display(),
                self.servers
            ))
            .advise(format!("use --servers {there}, or another directory with --data")));
        }
        Ok(there == 0)
    }
}

fn server_directory(index: u16) -> String {
    format!("server-{}", index + 1)
}

impl Ports {
    fn address(self, offset: u16) -> String {
        match self {
            Ports::From(base) => format!("127.0.0.1:{}", base + offset),
            Ports::Free => "127.0.0.1:0".to_owned(),
        }
    }

    fn console(self, offset: u16) -> Option<String> {
        match self {
            Ports::From(_) => Some(self.address(offset)),
            Ports::Free => None,
        }
    }
}

/// A running cluster.
pub struct Cluster {
    masters: Vec<MasterNode>,
    servers: Vec<ServerNode>,
}

impl Cluster {
    /// Starts all nodes and waits until tables can be created and used.
    pub async fn start(plan: &ClusterPlan) -> Result<Cluster, Failure> {
        let is_new = plan.check_directory().await?;
        // In parallel: the masters of a new cluster need each other.
        let masters = try_join_all(plan.master_indexes().map(async |index| {
            let console = plan.ports.console(CONSOLE_OFFSET + index);
            let hbase = plan.hbase_of_master(index);
            MasterNode::start(plan.master(index), console.as_deref(), plan.settings.clone(), hbase.as_ref()).await
        }))
        .await?;
        let count = u16::try_from(plan.servers).expect("the number of servers was checked");
        let addresses: Vec<String> = masters.iter().map(|node| node.master.address().to_owned()).collect();
        let starts = (0..count).map(|index| {
            ServerNode::start(plan.server(index, &addresses), plan.settings.clone(), plan.hbase_of_server(index))
        });
        let servers = if is_new {
            // One after another, so that server ids follow the ports.
            let mut servers = Vec::new();
            for start in starts {
                servers.push(start.await?);
            }
            servers
        } else {
            // In parallel: each replays its log and none waits for another.
            try_join_all(starts).await?
        };
        let cluster = Cluster { masters, servers };
        cluster.wait_for_leaders(plan.groups_expected(is_new)).await?;
        Ok(cluster)
    }

    /// The addresses of the masters, as clients take them.
    pub fn masters(&self) -> String {
        let addresses: Vec<&str> = self.masters.iter().map(|node| node.master.address()).collect();
        addresses.join(",")
    }

    /// The addresses of the region servers.
    pub fn server_addresses(&self) -> Vec<String> {
        self.servers.iter().map(|node| node.address().to_owned()).collect()
    }

    /// Where HBase's clients find the cluster, if they are served: the ZooKeeper's addresses, those of the masters and those
    /// of the servers.
    pub fn hbase(&self) -> Option<String> {
        let of = |ports: Vec<&str>| ports.join(",");
        let masters: Option<Vec<&ServedPorts>> = self.masters.iter().map(MasterNode::hbase).collect();
        let servers: Option<Vec<&ServedPorts>> = self.servers.iter().map(ServerNode::hbase).collect();
        let (masters, servers) = (masters?, servers?);
        let zookeeper = of(masters.iter().filter_map(|ports| ports.zookeeper()).collect());
        let masters = of(masters.iter().map(|ports| ports.advertised()).collect());
        let servers = of(servers.iter().map(|ports| ports.advertised()).collect());
        Some(format!("hbase={servers} hbase-masters={masters} zookeeper={zookeeper}"))
    }

    /// The address of the first master's console, if it has one.
    pub fn console(&self) -> Option<String> {
        self.masters.first().and_then(MasterNode::console)
    }

    /// Returns once the master permanently rejects all servers. One that was decommissioned does not end the others.
    pub async fn refused(&self) -> Failure {
        let mut accepted: Vec<_> = self.servers.iter().map(|node| Box::pin(node.refused())).collect();
        loop {
            let (failure, _, others) = select_all(accepted).await;
            if others.is_empty() {
                return failure;
            }
            logging::say(&failure.to_string());
            accepted = others;
        }
    }

    /// Stops the servers, which flush their memtables, then the masters.
    pub async fn shutdown(self) {
        join_all(self.servers.into_iter().map(ServerNode::shutdown)).await;
        join_all(self.masters.into_iter().map(MasterNode::shutdown)).await;
    }

    /// Waits until the master knows this many groups and a leader for each. A table could be created with fewer, but
    /// its regions would then share those.
    async fn wait_for_leaders(&self, groups: usize) -> Result<(), Failure> {
        let client = Client::builder().masters(&self.masters()).timeout(LEADERS_WAIT_MAX).build().await?;
        let deadline = Instant::now() + LEADERS_WAIT_MAX;
        loop {
            let status = client.admin().status().await.during("get the cluster's status")?;
            let made = usize::try_from(status.groups).expect("32 bits fit a length");
            if status.waiting_for.is_empty() && made >= groups && status.groups_without_leader == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Failure::new(format!(
                    "the cluster did not start: {} of {} groups have no leader; {}",
                    status.groups_without_leader, status.groups, status.waiting_for
                )));
            }
            // The master has no call that waits for this; polling is cheap within one process.
            tokio::time::sleep(LEADERS_LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(data: PathBuf, servers: u32) -> ClusterPlan {
        ClusterPlan {
            data,
            masters: 1,
            servers,
            ports: Ports::From(7600),
            server: ServerConfig { log_limit: 1 << 20, ..ServerConfig::default() },
            settings: Arc::default(),
            hbase: false,
            scanner_lease: terrane_hbase::data::SCANNER_LEASE_DEFAULT,
        }
    }

    #[test]
    fn parts_listen_on_the_promised_ports() {
        let plan = plan(PathBuf::from("d"), 3);
        assert_eq!(plan.master(0).listen, "127.0.0.1:7600");
        assert_eq!(plan.ports.console(CONSOLE_OFFSET).as_deref(), Some("127.0.0.1:7610"));
        let server = plan.server(2, &["m:1".to_owned()]);
        assert_eq!((server.listen.as_str(), server.console.as_deref()), ("127.0.0.1:7702", Some("127.0.0.1:7712")));
        assert_eq!(server.data_dir, PathBuf::from("d/server-3"));
        assert_eq!((server.masters, server.log_limit), (vec!["m:1".to_owned()], 1 << 20));
    }

    #[test]
    fn three_masters_name_each_other() {
        let plan = ClusterPlan { masters: 3, ..plan(PathBuf::from("d"), 3) };
        let last = plan.master(2);
        assert_eq!((last.listen.as_str(), last.data_dir), ("127.0.0.1:7602", PathBuf::from("d/master-3")));
        assert_eq!(last.peers, ["127.0.0.1:7600", "127.0.0.1:7601", "127.0.0.1:7602"]);
    }

    #[tokio::test]
    async fn a_directory_with_another_number_of_masters_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        terrane_env::fs::create_dir_all(&directory.path().join("master")).await.expect("made");
        let single = plan(directory.path().to_owned(), 3);
        assert!(single.check_directory().await.expect("the same number"));
        let refused = ClusterPlan { masters: 3, ..single }.check_directory().await.expect_err("more");
        assert!(refused.to_string().contains("a cluster with 1 masters"), "{refused}");
    }

    #[test]
    fn few_servers_keep_a_single_copy() {
        let replication = |servers| plan(PathBuf::new(), servers).replication();
        assert_eq!([1, 2, 3, 10].map(replication), [1, 1, 3, 3]);
    }

    #[tokio::test]
    async fn a_directory_of_more_servers_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["master", "server-1", "server-2", "server-3"] {
            terrane_env::fs::create_dir_all(&directory.path().join(name)).await.expect("made");
        }
        let check = async |servers| plan(directory.path().to_owned(), servers).check_directory().await;
        assert!(!check(3).await.expect("the same number"));
        assert!(!check(4).await.expect("one more"));
        assert!(check(1).await.expect_err("fewer").to_string().contains("data of 3 servers"));
        assert!(plan(directory.path().join("new"), 1).check_directory().await.expect("not there yet"));
    }
}
