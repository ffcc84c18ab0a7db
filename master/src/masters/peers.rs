//! The masters of the cluster and the calls among them, besides the log of their group.
//!
//! The number of a master is both its replica and its server id in group 0 (`numbers`). Its address follows from the place
//! that its number contains: the catalog has the present masters once they were changed online, and before that they are
//! those of the founding. These ids are not the catalog's: group 0 has a log and links of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1::master_peers_client::MasterPeersClient;
use terrane_proto::{error, v1, versions};
use terrane_raft::{AddressBook, GroupSpec};
use terrane_types::versions::Levels;
use terrane_types::{ClusterId, Error, GroupId, ReplicaId, ServerId};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::masters::numbers::{Peer, numbered, place_of};

/// Deadline of a call, and of one that changes the members of the group.
const CALL_MAX: Duration = Duration::from_millis(500);
const REPLACE_MAX: Duration = Duration::from_secs(15);
/// Deadline of a call to a process that may not be a master.
const JOIN_MAX: Duration = Duration::from_secs(2);

/// The answer to one that takes the place of a lost master.
pub enum Replaced {
    /// The leader has made this step.
    Step(v1::ReplaceReply),
    /// The leader knows no such place.
    Refused(String),
    /// No leader answers, or it will later.
    NotNow,
}

/// All masters of the cluster.
pub struct Peers {
    identity: Identity,
    /// The number of this master.
    own: u64,
    levels: Levels,
    /// The members of group 0 when this master's replica was created.
    first: Vec<u64>,
    /// The addresses of the present masters, by place.
    addresses: RwLock<BTreeMap<usize, String>>,
    /// By address.
    channels: Mutex<BTreeMap<String, Channel>>,
    /// For the links of group 0.
    book: Arc<AddressBook>,
}

impl Peers {
    /// The masters at the start of this process, which has the number `own` and works at these levels. Its replica was created among `first`.
    pub fn new(identity: Identity, own: u64, levels: Levels, first: &[Peer], present: &[Peer]) -> Self {
        let peers = Self {
            identity,
            own,
            levels,
            first: first.iter().map(|peer| peer.number).collect(),
            addresses: RwLock::default(),
            channels: Mutex::default(),
            book: Arc::default(),
        };
        peers.set(present);
        // At the place of this master, the first one may be a replica that it replaces.
        let others = |peer: &&Peer| peer.number == own || peer.place() != place_of(own);
        peers.learn(present.iter().filter(others).map(|peer| server(peer.number)));
        peers
    }

    /// Takes over the present masters and those that are being added. A set without this master is from before it was
    /// added.
    pub fn set(&self, present: &[Peer]) {
        if present.iter().all(|peer| peer.place() != self.own_place()) {
            return;
        }
        let addresses: BTreeMap<usize, String> =
            present.iter().map(|peer| (peer.place(), peer.address.clone())).collect();
        let known = *self.addresses.read() == addresses;
        if !known {
            self.channels.lock().retain(|address, _| addresses.values().any(|present| present == address));
            *self.addresses.write() = addresses;
        }
    }

    /// The members of group 0 when this master's replica was created, and that replica.
    pub fn group(&self) -> GroupSpec {
        let numbers = self.first.iter().copied().chain([self.own]);
        let members = numbers.map(|number| (ReplicaId(number), server(number))).collect();
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
        self.address_at(place_of(member.0))
    }

    /// The address of the master at a place.
    pub fn address_at(&self, place: usize) -> Option<String> {
        self.addresses.read().get(&place).cloned()
    }

    /// The addresses of all masters, by place.
    pub fn places(&self) -> BTreeMap<usize, String> {
        self.addresses.read().clone()
    }

    /// The addresses of all masters, sorted.
    pub fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self.addresses.read().values().cloned().collect();
        addresses.sort();
        addresses
    }

    /// The cluster.
    pub const fn cluster(&self) -> ClusterId {
        self.identity.cluster
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
    pub fn is_single(&self) -> bool {
        self.addresses.read().len() == 1
    }

    /// The places of the other masters.
    pub fn other_places(&self) -> Vec<usize> {
        self.addresses.read().keys().copied().filter(|place| *place != self.own_place()).collect()
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
        self.ask_state(self.client(place)?).await
    }

    /// The same of a master at an address that another one named.
    pub async fn state_at(&self, address: &str) -> Option<v1::MasterStateReply> {
        self.ask_state(MasterPeersClient::new(terrane_env::net::channel(address).ok()?)).await
    }

    async fn ask_state(&self, mut client: MasterPeersClient<Channel>) -> Option<v1::MasterStateReply> {
        answer(client.master_state(v1::MasterStateRequest { hello: self.hello() })).await
    }

    /// Asks the other masters for the next step of taking the place of a lost master, until the leader has answered.
    pub async fn replace(&self, master: u64) -> Replaced {
        let place = u32::try_from(self.own_place()).expect("a place is small");
        let address = self.address_at(self.own_place()).unwrap_or_default();
        for other in self.other_places() {
            let Some(mut client) = self.client(other) else { continue };
            let request = v1::ReplaceRequest { hello: self.hello(), place, master, address: address.clone() };
            match tokio::time::timeout(REPLACE_MAX, client.replace(request)).await {
                Ok(Ok(reply)) => return Replaced::Step(reply.into_inner()),
                Ok(Err(status)) => {
                    tracing::debug!(place = other, error = status.message(), "not replaced yet");
                    if let Error::NotFound { what } = error::from_status(&status) {
                        return Replaced::Refused(format!("there is no {what}"));
                    }
                }
                Err(_) => {}
            }
        }
        Replaced::NotNow
    }

    /// Asks the process at an address what it is, or makes it the master with a number among these.
    ///
    /// # Errors
    /// Why there is no answer: what the process has refused, or that none listens there.
    pub async fn join(&self, address: &str, number: u64, masters: &[Peer]) -> Result<v1::JoinReply, String> {
        let channel = terrane_env::net::channel(address).map_err(|invalid| invalid.to_string())?;
        let mut client = MasterPeersClient::new(channel);
        let cluster_id = Bytes::copy_from_slice(&self.identity.cluster.0);
        let masters = masters.iter().map(wire).collect();
        let call = client.join(v1::JoinRequest { cluster_id, number, masters });
        match tokio::time::timeout(JOIN_MAX, call).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(status.message().to_owned()),
            Err(_) => Err(format!("no answer within {} s", JOIN_MAX.as_secs())),
        }
    }

    fn client(&self, place: usize) -> Option<MasterPeersClient<Channel>> {
        let address = self.address_at(place)?;
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&address) {
            return Some(MasterPeersClient::new(channel.clone()));
        }
        // It was checked with the settings, or before it was recorded.
        let channel = terrane_env::net::channel(&address).ok()?;
        channels.insert(address, channel.clone());
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

/// A master as other processes are told.
pub fn wire(peer: &Peer) -> v1::MasterPeer {
    v1::MasterPeer { number: peer.number, address: peer.address.clone() }
}

/// Masters as another process named them.
pub fn from_wire(masters: Vec<v1::MasterPeer>) -> Vec<Peer> {
    masters.into_iter().map(|v1::MasterPeer { number, address }| Peer { number, address }).collect()
}

const fn server(number: u64) -> ServerId {
    ServerId(number)
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Option<T> {
    tokio::time::timeout(CALL_MAX, call).await.ok()?.ok().map(Response::into_inner)
}
