//! The ports at which a process serves HBase's clients: bound before the process starts, so that a port in use fails at once
//! and its address can be told to the masters, and served once it runs.

use std::sync::Arc;
use std::time::Duration;

use terrane_env::net::{Listener, listen};
use terrane_env::time::wall_ms;
use terrane_hbase::data::{DataFront, SCANNER_LEASE_DEFAULT};
use terrane_hbase::place::Place;
use terrane_hbase::serve::{Front, serve};
use terrane_hbase::tables::TablesFront;
use terrane_hbase::{PROTOCOL, zookeeper};
use terrane_master::Master;
use terrane_regionserver::RegionServer;
use terrane_types::Endpoint;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::failure::Failure;

/// Where HBase's clients are served.
#[derive(Clone, Debug)]
pub struct HbasePorts {
    /// The address of HBase's RPC.
    pub listen: String,
    /// The address at which clients connect; `None`: the listen address.
    pub advertise: Option<String>,
    /// Of a master: the address that answers as a read-only ZooKeeper.
    pub zookeeper: Option<String>,
    /// Of a server: how long a scanner waits for its next call.
    pub scanner_lease: Duration,
}

impl Default for HbasePorts {
    fn default() -> Self {
        Self { listen: String::new(), advertise: None, zookeeper: None, scanner_lease: SCANNER_LEASE_DEFAULT }
    }
}

/// Ports that are bound and not served yet.
pub struct BoundPorts {
    rpc: Listener,
    place: Place,
    advertised: String,
    zookeeper: Option<Listener>,
    scanner_lease: Duration,
}

/// Ports that are served until this is dropped.
pub struct ServedPorts {
    advertised: String,
    zookeeper: Option<String>,
    _stop: DropGuard,
}

impl HbasePorts {
    /// Binds the ports.
    pub async fn bind(&self) -> Result<BoundPorts, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot serve HBase's clients: {error}"));
        let rpc = listen(&self.listen).await.map_err(failed)?;
        let port = rpc.local_addr().map_err(failed)?.port();
        // A host name is lost when binding.
        let host = self.listen.rsplit_once(':').map_or(self.listen.as_str(), |(host, _)| host);
        let advertised = self.advertise.clone().unwrap_or_else(|| format!("{host}:{port}"));
        let place = Place::at(&advertised, wall_ms());
        let place = place.ok_or_else(|| Failure::usage(format!("{advertised} is not HOST:PORT")))?;
        let zookeeper = match &self.zookeeper {
            Some(address) => Some(listen(address).await.map_err(failed)?),
            None => None,
        };
        Ok(BoundPorts { rpc, place, advertised, zookeeper, scanner_lease: self.scanner_lease })
    }
}

impl BoundPorts {
    /// What the process reports of them. The ZooKeeper is reached at the host of the RPC.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let at = |protocol: &str, address| Endpoint {
            protocol: protocol.to_owned(),
            address,
            start_code: self.place.start_code,
        };
        let port = |listener: &Listener| listener.local_addr().ok().map(|address| address.port());
        let zookeeper = self.zookeeper.as_ref().and_then(port).map(|port| format!("{}:{port}", self.place.host));
        let zookeeper = zookeeper.map(|address| at(zookeeper::PROTOCOL, address));
        [at(PROTOCOL, self.advertised.clone())].into_iter().chain(zookeeper).collect()
    }

    /// Serves a region server's data.
    pub fn serve_data(self, server: &RegionServer) -> ServedPorts {
        // The masters name it by its present life.
        let place = Place { start_code: server.boot(), ..self.place.clone() };
        let front = DataFront::new(server, place, self.scanner_lease);
        self.serve(Arc::new(front))
    }

    /// Serves a master's tables, and how they are found.
    pub fn serve_tables(self, master: &Master) -> ServedPorts {
        let front = TablesFront::new(master.edge(PROTOCOL), self.place.clone());
        self.serve(Arc::new(front))
    }

    fn serve(self, front: Arc<dyn Front>) -> ServedPorts {
        let stop = CancellationToken::new();
        terrane_env::task::spawn_named("hbase", serve(self.rpc, front.clone(), stop.clone()));
        let zookeeper = self.zookeeper.map(|listener| {
            let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
            terrane_env::task::spawn_named("zookeeper", zookeeper::serve(listener, front, stop.clone()));
            address
        });
        ServedPorts { advertised: self.advertised, zookeeper, _stop: stop.drop_guard() }
    }
}

impl ServedPorts {
    /// The address at which clients connect.
    pub fn advertised(&self) -> &str {
        &self.advertised
    }

    /// The address that answers as a ZooKeeper, if there is one.
    pub fn zookeeper(&self) -> Option<&str> {
        self.zookeeper.as_deref()
    }
}
