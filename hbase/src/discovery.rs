//! What clients learn about the cluster before they find a region: its id, its masters, and where `hbase:meta` is.
//!
//! Clients ask in one of two ways: the calls of `ClientMetaService`, or the nodes of a ZooKeeper ([`crate::zookeeper`]). Both
//! are rendered from one [`Discovery`], so that they cannot disagree. A client takes an empty answer for a failure and asks
//! another server, so a [`Discovery`] that lacks something answers with an exception instead.

use terrane_types::ClusterId;

use crate::answer::{Answer, Outcome};
use crate::exception::{Exception, PLEASE_HOLD};
use crate::place::Place;
use crate::proto;
use crate::region_name::meta_region_info;

/// Most servers in the answer to a client that asks for some to ask next time.
pub const BOOTSTRAP_NODES_MAX: usize = 16;

/// A cluster id as HBase writes it: a UUID.
#[must_use]
pub fn cluster_id_text(cluster: ClusterId) -> String {
    let digits = cluster.to_string();
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    groups.map(|group| digits[group].to_owned()).join("-")
}

/// What a process knows about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The cluster; `None` until this process has joined it.
    pub cluster: Option<ClusterId>,
    /// The master that leads.
    pub active_master: Option<Place>,
    /// All masters.
    pub masters: Vec<Place>,
    /// Where `hbase:meta` is read.
    pub meta: Option<Place>,
    /// Some region servers.
    pub servers: Vec<Place>,
}

impl Discovery {
    /// The answer to a call of `ClientMetaService`.
    ///
    /// # Errors
    /// [`Exception`] while it is not known, and for a method that does not exist.
    pub fn answer(&self, method: &str) -> Outcome {
        Ok(match method {
            "GetClusterId" => Answer::of(&self.cluster_id()?),
            "GetActiveMaster" => Answer::of(&self.active_master()?),
            "GetMasters" => Answer::of(&self.masters()?),
            "GetMetaRegionLocations" => Answer::of(&self.meta_locations()?),
            "GetBootstrapNodes" => Answer::of(&self.bootstrap_nodes()?),
            other => return Err(Exception::bad_request(&format!("ClientMetaService has no method {other:?} here"))),
        })
    }

    /// The answer to the probe that clients since 2.6 send before they connect.
    ///
    /// # Errors
    /// [`Exception`] while the cluster is not known.
    pub fn registry(&self) -> Result<proto::GetConnectionRegistryResponse, Exception> {
        Ok(proto::GetConnectionRegistryResponse { cluster_id: self.known_cluster()? })
    }

    /// The answer to `GetClusterId`.
    ///
    /// # Errors
    /// [`Exception`] while the cluster is not known.
    pub fn cluster_id(&self) -> Result<proto::GetClusterIdResponse, Exception> {
        Ok(proto::GetClusterIdResponse { cluster_id: Some(self.known_cluster()?) })
    }

    /// The answer to `GetActiveMaster`.
    ///
    /// # Errors
    /// [`Exception`] while no master is known to lead.
    pub fn active_master(&self) -> Result<proto::GetActiveMasterResponse, Exception> {
        let master = self.active_master.as_ref().ok_or_else(|| unknown("the leading master"))?;
        Ok(proto::GetActiveMasterResponse { server_name: Some(master.to_proto()) })
    }

    /// The answer to `GetMasters`.
    ///
    /// # Errors
    /// [`Exception`] while no master is known.
    pub fn masters(&self) -> Result<proto::GetMastersResponse, Exception> {
        if self.masters.is_empty() {
            return Err(unknown("the masters"));
        }
        let entry = |place: &Place| proto::GetMastersResponseEntry {
            server_name: place.to_proto(),
            is_active: self.active_master.as_ref() == Some(place),
        };
        Ok(proto::GetMastersResponse { master_servers: self.masters.iter().map(entry).collect() })
    }

    /// The answer to `GetMetaRegionLocations`.
    ///
    /// # Errors
    /// [`Exception`] while no process is known that serves `hbase:meta`.
    pub fn meta_locations(&self) -> Result<proto::GetMetaRegionLocationsResponse, Exception> {
        let meta = self.meta.as_ref().ok_or_else(|| unknown("the place of hbase:meta"))?;
        let location =
            proto::RegionLocation { region_info: meta_region_info(), server_name: Some(meta.to_proto()), seq_num: 0 };
        Ok(proto::GetMetaRegionLocationsResponse { meta_locations: vec![location] })
    }

    /// The answer to `GetBootstrapNodes`.
    ///
    /// # Errors
    /// [`Exception`] while no region server is known.
    pub fn bootstrap_nodes(&self) -> Result<proto::GetBootstrapNodesResponse, Exception> {
        if self.servers.is_empty() {
            return Err(unknown("the region servers"));
        }
        let servers = self.servers.iter().take(BOOTSTRAP_NODES_MAX);
        Ok(proto::GetBootstrapNodesResponse { server_name: servers.map(Place::to_proto).collect() })
    }

    fn known_cluster(&self) -> Result<String, Exception> {
        self.cluster.map(cluster_id_text).ok_or_else(|| unknown("the cluster's id"))
    }
}

fn unknown(what: &str) -> Exception {
    Exception::new(PLEASE_HOLD, format!("this process does not know {what} yet; ask again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str) -> Place {
        Place { host: host.to_owned(), port: 16_000, start_code: 5 }
    }

    #[test]
    fn what_is_not_known_is_an_exception_and_never_an_empty_answer() {
        let nothing = Discovery::default();
        assert_eq!(nothing.registry().unwrap_err().class, PLEASE_HOLD.name);
        assert!(nothing.cluster_id().is_err() && nothing.active_master().is_err() && nothing.masters().is_err());
        assert!(nothing.meta_locations().is_err() && nothing.bootstrap_nodes().is_err());
    }

    #[test]
    fn one_master_is_active_and_meta_is_where_it_is_read() {
        let (a, b) = (place("a"), place("b"));
        let cluster = ClusterId([0xab; 16]);
        let known = Discovery {
            cluster: Some(cluster),
            active_master: Some(b.clone()),
            masters: vec![a.clone(), b],
            meta: Some(a.clone()),
            servers: vec![a; 40],
        };
        let masters = known.masters().unwrap().master_servers;
        assert_eq!(masters.iter().map(|master| master.is_active).collect::<Vec<_>>(), [false, true]);
        assert_eq!(known.registry().unwrap().cluster_id, "abababab-abab-abab-abab-abababababab");
        let meta = known.meta_locations().unwrap().meta_locations;
        assert_eq!(meta[0].server_name.as_ref().unwrap().host_name, "a");
        assert_eq!(known.bootstrap_nodes().unwrap().server_name.len(), BOOTSTRAP_NODES_MAX);
    }
}
