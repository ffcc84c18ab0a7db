//! All replicas of a server process.

use std::pin::Pin;
use std::sync::Arc;

use terrane_proto::v1;
use terrane_types::{GroupId, ServerId};
use tonic::{Request, Response, Status, Streaming};

use crate::{Error, Factory, Group, GroupSpec, HostConfig, LogStatus, OpenError};

/// All replicas of a server process.
pub struct GroupHost {
    config: HostConfig,
}

impl GroupHost {
    /// Recovers the shared log under `config.dir` and starts the groups recorded in it.
    pub async fn open(config: HostConfig, factory: Arc<dyn Factory>) -> Result<Arc<GroupHost>, OpenError> {
        drop(factory);
        Ok(Arc::new(GroupHost { config }))
    }

    /// Makes the local replica of a group, durably; doing it twice is doing it once. `lead` starts the first election.
    pub async fn create_group(&self, spec: GroupSpec, lead: bool) -> Result<(), Error> {
        drop((spec, lead));
        Err(Error::Stopped)
    }

    /// The local replica of a group.
    pub fn group(&self, id: GroupId) -> Option<Group> {
        let _ = id;
        None
    }

    /// All local replicas, by group id.
    pub fn groups(&self) -> Vec<Group> {
        Vec::new()
    }

    /// Where servers are reached; looked up whenever a link is opened. Later addresses replace earlier ones.
    pub fn set_addresses(&self, addresses: impl IntoIterator<Item = (ServerId, String)>) {
        drop(addresses.into_iter());
    }

    /// The service that peers connect to, for the server's router.
    pub fn peer_service(self: &Arc<Self>) -> v1::peer_server::PeerServer<PeerService> {
        v1::peer_server::PeerServer::new(PeerService {})
    }

    /// How the shared log stands.
    pub fn log_status(&self) -> LogStatus {
        LogStatus { limit: self.config.log.limit_bytes, ..LogStatus::default() }
    }

    /// Stops all groups and waits until everything queued for the log is synced.
    pub async fn shutdown(&self) {}
}

/// The accepting end of peer links.
pub struct PeerService {}

#[tonic::async_trait]
impl v1::peer_server::Peer for PeerService {
    type LinkStream = Pin<Box<dyn futures::Stream<Item = Result<v1::PeerMessage, Status>> + Send>>;

    async fn link(&self, _: Request<Streaming<v1::PeerMessage>>) -> Result<Response<Self::LinkStream>, Status> {
        Err(Status::unavailable("not open yet"))
    }
}
