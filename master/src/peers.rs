//! The masters of the cluster and the calls among them, besides the log of their group.
//!
//! The number of a master, which follows from its place in the sorted list, is both its replica and its server id in
//! group 0. A master that takes the place of one whose directory was lost gets a new number of that place
//! (`identity::numbered`), so its address follows from its number, too. These ids are not the catalog's: group 0 has a
//! log and links of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1::master_peers_client::MasterPeersClient;
use terrane_proto::{v1, versions};
use terrane_raft::{AddressBook, GroupSpec};
use terrane_types::versions::Levels;
use terrane_types::{Error, GroupId, ReplicaId, ServerId};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::identity::{numbered, place_of};

/// Deadline of a call, and of one that changes the members of the group.
const CALL_MAX: Duration = Duration::from_millis(500);
const REPLACE_MAX: Duration = Duration::from_secs(15);

/// All masters of the cluster.
pub struct Peers {
    identity: Identity,
    /// The number of this master.
    own: u64,
    levels: Levels,
    addresses: Vec<String>,
    channels: Mutex<BTreeMap<usize, Channel>>,
    /// For the links of group 0.
    book: Arc<AddressBook>,
}

impl Peers {
    /// The masters at these addresses, of which this process has the number `own` and works at these levels.
    pub fn new(identity: Identity, own: u64, levels: Levels, addresses: Vec<String>) -> Self {
        let peers = Self { identity, own, levels, addresses, channels: Mutex::default(), book: Arc::default() };
        let founders = (0..peers.addresses.len()).map(|place| numbered(place, 0));
        // At the place of this master, the founder may be a replica that it replaces.
        peers.learn(founders.filter(|number| *number == own || place_of(*number) != place_of(own)).map(server));
        peers
    }

    /// The replicas of group 0 at its founding, and the one of this process.
    pub fn group(&self) -> GroupSpec {
        let founders = (0..self.addresses.len()).map(|place| numbered(place, 0));
        let members = founders.chain([self.own]).map(|number| (ReplicaId(number), server(number))).collect();
        GroupSpec { group: GroupId::MASTER, replica: ReplicaId(self.own), members }
    }

    /// Whether this master took part in the founding, so that it begins with the group.
    pub fn is_founder(&self) -> bool {
        self.own == numbered(self.own_place(), 0)
    }

    /// The addresses of the links of group 0.
    pub fn book(&self) -> Arc<AddressBook> {
        Arc::clone(&self.book)
    }

    /// Adds the addresses of members of group 0.
    pub fn learn(&self, members: impl Iterator<Item = ServerId>) {
        let known = members.filter_map(|member| Some((member, self.address(member)?)));
        self.book.set(known.collect::<Vec<_>>());
    }

    /// Forgets the members that left: their addresses belong to their successors now.
    pub fn forget_all_but(&self, members: &BTreeSet<ServerId>) {
        let left = self.book.all().into_keys().filter(|known| !members.contains(known));
        left.for_each(|server| self.book.forget(server));
    }

    fn address(&self, member: ServerId) -> Option<String> {
        self.addresses.get(place_of(member.0)).cloned()
    }

    /// The addresses, sorted.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The number of this master.
    pub const fn own(&self) -> u64 {
        self.own
    }

    /// The place of this master.
    pub fn own_place(&self) -> usize {
        place_of(self.own)
    }

    /// Whether this is the only master.
    pub const fn is_single(&self) -> bool {
        self.addresses.len() == 1
    }

    /// What a caller gets from a master that does not lead in this term: the leader, if it is known.
    pub fn redirect(&self, term: u64, leader: Option<ServerId>) -> Error {
        let leader = leader.filter(|leader| leader.0 != self.own);
        let address = leader.and_then(|leader| self.address(leader));
        Error::NotLeader { group: GroupId::MASTER, term, leader, address, members: Vec::new() }
    }

    /// The read index of the leader, see [`terrane_raft::ReadPoint`]. `None` if it does not answer or does not lead.
    pub async fn read_index(&self, leader: ServerId) -> Option<u64> {
        let (mut client, hello) = (self.client(place_of(leader.0))?, self.hello());
        let reply = answer(client.read_index(v1::ReadIndexRequest { hello })).await?;
        Some(reply.index)
    }

    /// How another master stands; `None` if it does not answer.
    pub async fn state(&self, place: usize) -> Option<v1::MasterStateReply> {
        let (mut client, hello) = (self.client(place)?, self.hello());
        answer(client.master_state(v1::MasterStateRequest { hello })).await
    }

    /// Asks the other masters for the next step of taking the place of a lost master, until the leader has made it.
    pub async fn replace(&self, master: u64) -> Option<v1::ReplaceReply> {
        let place = u32::try_from(self.own_place()).ok()?;
        for other in (0..self.addresses.len()).filter(|other| *other != self.own_place()) {
            let mut client = self.client(other)?;
            let request = v1::ReplaceRequest { hello: self.hello(), place, master };
            match tokio::time::timeout(REPLACE_MAX, client.replace(request)).await {
                Ok(Ok(reply)) => return Some(reply.into_inner()),
                Ok(Err(status)) => tracing::debug!(place = other, error = status.message(), "not replaced yet"),
                Err(_) => {}
            }
        }
        None
    }

    fn client(&self, place: usize) -> Option<MasterPeersClient<Channel>> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&place) {
            return Some(MasterPeersClient::new(channel.clone()));
        }
        // The list was checked when the settings were.
        let channel = terrane_env::net::channel(self.addresses.get(place)?).ok()?;
        channels.insert(place, channel.clone());
        Some(MasterPeersClient::new(channel))
    }

    fn hello(&self) -> Option<v1::Hello> {
        let Identity { cluster, boot, .. } = self.identity;
        Some(versions::at_level(hello::ours(Some(cluster), ServerId(0), server(self.own), boot), self.levels))
    }

    /// Checks the hello of another master.
    pub fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Error> {
        hello::check_cluster(hello, self.identity, false)
    }
}

const fn server(number: u64) -> ServerId {
    ServerId(number)
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Option<T> {
    tokio::time::timeout(CALL_MAX, call).await.ok()?.ok().map(Response::into_inner)
}
