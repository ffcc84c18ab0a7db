//! The masters of the cluster and the calls among them, besides the log of their group.
//!
//! The place of a master in the sorted list is its number: its replica and server id in group 0 are the place plus one,
//! below the ids that the catalog hands out (`ids`).

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1;
use terrane_proto::v1::master_peers_client::MasterPeersClient;
use terrane_raft::GroupSpec;
use terrane_types::{Error, GroupId, ReplicaId, ServerId};
use tonic::transport::Channel;
use tonic::{Response, Status};

/// Deadline of a call.
const CALL_MAX: Duration = Duration::from_millis(500);

/// All masters of the cluster.
pub struct Peers {
    identity: Identity,
    /// The place of this master.
    own: usize,
    addresses: Vec<String>,
    channels: Mutex<BTreeMap<usize, Channel>>,
}

impl Peers {
    /// The masters at these addresses, of which this process is the one at place `own`.
    pub const fn new(identity: Identity, own: usize, addresses: Vec<String>) -> Self {
        Self { identity, own, addresses, channels: Mutex::new(BTreeMap::new()) }
    }

    /// The replicas of group 0, of which this process has one.
    pub fn group(&self) -> GroupSpec {
        let members = (0..self.addresses.len()).map(|place| (replica(place), server(place))).collect();
        GroupSpec { group: GroupId::MASTER, replica: replica(self.own), members }
    }

    /// The addresses, by server id in group 0.
    pub fn servers(&self) -> impl Iterator<Item = (ServerId, String)> {
        self.addresses.iter().enumerate().map(|(place, address)| (server(place), address.clone()))
    }

    /// The addresses, sorted.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The place of this master.
    pub const fn own(&self) -> usize {
        self.own
    }

    /// Whether this is the only master.
    pub const fn is_single(&self) -> bool {
        self.addresses.len() == 1
    }

    /// What a caller gets from a master that does not lead in this term: the leader, if it is known.
    pub fn redirect(&self, term: u64, leader: Option<ServerId>) -> Error {
        let leader = leader.filter(|leader| *leader != server(self.own));
        let address = self.servers().find(|(server, _)| Some(*server) == leader).map(|(_, address)| address);
        Error::NotLeader { group: GroupId::MASTER, term, leader, address, members: self.servers().collect() }
    }

    /// The read index of the leader, see [`terrane_raft::ReadPoint`]. `None` if it does not answer or does not lead.
    pub async fn read_index(&self, leader: ServerId) -> Option<u64> {
        let place = (0..self.addresses.len()).find(|place| server(*place) == leader)?;
        let (mut client, hello) = (self.client(place)?, self.hello());
        let reply = answer(client.read_index(v1::ReadIndexRequest { hello })).await?;
        Some(reply.index)
    }

    /// How another master stands; `None` if it does not answer.
    pub async fn state(&self, place: usize) -> Option<v1::MasterStateReply> {
        let (mut client, hello) = (self.client(place)?, self.hello());
        answer(client.master_state(v1::MasterStateRequest { hello })).await
    }

    fn client(&self, place: usize) -> Option<MasterPeersClient<Channel>> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&place) {
            return Some(MasterPeersClient::new(channel.clone()));
        }
        // The list was checked when the settings were.
        let channel = terrane_env::net::channel(&self.addresses[place]).ok()?;
        channels.insert(place, channel.clone());
        Some(MasterPeersClient::new(channel))
    }

    fn hello(&self) -> Option<v1::Hello> {
        let Identity { cluster, boot, .. } = self.identity;
        Some(hello::ours(Some(cluster), ServerId(0), server(self.own), boot))
    }

    /// Checks the hello of another master.
    pub fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Error> {
        hello::check_cluster(hello, self.identity, false)
    }
}

fn replica(place: usize) -> ReplicaId {
    ReplicaId(place as u64 + 1)
}

fn server(place: usize) -> ServerId {
    ServerId(place as u64 + 1)
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Option<T> {
    tokio::time::timeout(CALL_MAX, call).await.ok()?.ok().map(Response::into_inner)
}
