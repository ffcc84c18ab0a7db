//! Orders to region servers: the only place that has their channels, finds a group's leader and knows what can be
//! retried.
//!
//! Every order is idempotent (by group, replica, region or table id), so it can be sent again whenever its outcome is
//! unknown. Each call has a deadline; a round asks each member about once, and the caller waits between rounds.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1::{self, region_server_client::RegionServerClient};
use terrane_proto::{MESSAGE_BYTES_MAX, error};
use terrane_types::{
    Error, GroupId, RegionDescriptor, RegionEpoch, RegionId, ReplicaId, ServerId, TableId, TableSchema,
};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::catalog::groups::GroupEntry;
use crate::journal::Journal;
use crate::observed::Observed;

/// Timeout of one call; a change of tables waits for a quorum to sync.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Redirects followed in one round, so that two servers that redirect to each other cannot loop.
const REDIRECTS_MAX: usize = 4;

type Client = RegionServerClient<Channel>;

/// An order to a group to change its tables.
#[derive(Clone, Debug, Default)]
pub struct TableOrder {
    /// The schema to store or update.
    pub schema: Option<TableSchema>,
    /// Regions to create.
    pub create: Vec<RegionDescriptor>,
    /// The table to drop.
    pub drop: Option<TableId>,
}

/// The calls to region servers.
pub struct Orders {
    journal: Journal,
    observed: Arc<Observed>,
    identity: Identity,
    /// One channel per server, replaced when its address changes.
    channels: Mutex<BTreeMap<ServerId, (String, Channel)>>,
}

impl Orders {
    /// The calls of this master.
    pub const fn new(journal: Journal, observed: Arc<Observed>, identity: Identity) -> Self {
        Self { journal, observed, identity, channels: Mutex::new(BTreeMap::new()) }
    }

    /// Creates a replica of a group on a server.
    pub async fn create_group(
        &self,
        group: GroupId,
        entry: &GroupEntry,
        replica: ReplicaId,
        server: ServerId,
    ) -> Result<(), Error> {
        let address = |server: ServerId| self.journal.read(|catalog| catalog.servers().address(server));
        let member = |(replica, server): (&ReplicaId, &ServerId)| v1::GroupMember {
            replica: replica.0,
            server: server.0,
            address: address(*server),
        };
        let request = v1::CreateGroupRequest {
            hello: Some(self.hello(server)),
            group: group.0,
            replica: replica.0,
            members: entry.members.iter().map(member).collect(),
            lead: server == entry.planned_leader,
        };
        let mut client = self.client(server)?;
        answer(client.create_group(request)).await.map(|_| ())
    }

    /// Changes tables by one entry in the group's log, through its leader.
    pub async fn change_tables(&self, group: GroupId, order: &TableOrder) -> Result<(), Error> {
        let request = v1::ChangeTablesRequest {
            hello: None,
            group: group.0,
            schema: order.schema.as_ref().map(Into::into),
            create: order.create.iter().map(Into::into).collect(),
            drop: order.drop.map_or(0, |table| table.0),
        };
        self.at_leader(group, |mut client, hello| {
            let request = v1::ChangeTablesRequest { hello: Some(hello), ..request.clone() };
            async move { answer(client.change_tables(request)).await }
        })
        .await
        .map(|_| ())
    }

    /// Splits a region, near its middle if `at` is empty; returns the daughters.
    pub async fn split(
        &self,
        group: GroupId,
        region: RegionId,
        epoch: RegionEpoch,
        at: bytes::Bytes,
    ) -> Result<Vec<v1::RegionDescriptor>, Error> {
        let reply = self.at_leader(group, |mut client, hello| {
            let (region, epoch, at) = (region.0, epoch.0, at.clone());
            let request = v1::SplitRequest { hello: Some(hello), region, epoch, at };
            async move { answer(client.split(request)).await }
        });
        Ok(reply.await?.daughters)
    }

    /// Merges two neighbouring regions of a group; returns the merged one.
    pub async fn merge(&self, one: &RegionDescriptor, other: &RegionDescriptor) -> Result<RegionDescriptor, Error> {
        let reply = self.at_leader(one.group, |mut client, hello| {
            let request = v1::MergeRequest {
                hello: Some(hello),
                region: one.region.0,
                epoch: one.epoch.0,
                other: other.region.0,
                other_epoch: other.epoch.0,
            };
            async move { answer(client.merge(request)).await }
        });
        let missing = || Error::Internal { message: "a merge was answered without its region".to_owned() };
        reply.await?.region.ok_or_else(missing)?.try_into()
    }

    /// Calls the members of a group, the likely leader first, until the leader answers.
    async fn at_leader<T, F>(&self, group: GroupId, call: impl Fn(Client, v1::Hello) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut to_ask = self.members_to_ask(group)?;
        let mut redirects = 0;
        let mut last = None;
        while let Some(server) = to_ask.pop_front() {
            let answer = match self.client(server) {
                Ok(client) => call(client, self.hello(server)).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(reply) => {
                    self.observed.with(|observed| observed.inventory.hint_leader(group, server));
                    return Ok(reply);
                }
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    if let Error::NotLeader { leader: Some(leader), .. } = &error
                        && redirects < REDIRECTS_MAX
                        && *leader != server
                    {
                        redirects += 1;
                        to_ask.retain(|other| other != leader);
                        to_ask.push_front(*leader);
                    }
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| unavailable(format!("no member of group {group} could be reached"))))
    }

    fn members_to_ask(&self, group: GroupId) -> Result<VecDeque<ServerId>, Error> {
        let entry = self.journal.read(|catalog| catalog.groups().get(group).cloned());
        let entry = entry.ok_or_else(|| Error::NotFound { what: format!("group {group}") })?;
        let (leader, mut members) = self.observed.with(|observed| {
            let mut members: Vec<ServerId> = entry.members.values().copied().collect();
            members
                .sort_by_key(|server| (!observed.liveness.is_live(*server), *server != entry.planned_leader, *server));
            (observed.leader(group), members)
        });
        members.retain(|server| Some(*server) != leader);
        Ok(leader.into_iter().chain(members).collect())
    }

    fn client(&self, server: ServerId) -> Result<Client, Error> {
        let address = self.journal.read(|catalog| catalog.servers().get(server).map(|known| known.address.clone()));
        let address = address.ok_or_else(|| Error::NotFound { what: format!("server {server}") })?;
        let mut channels = self.channels.lock();
        let channel = match channels.get(&server) {
            Some((known, channel)) if *known == address => channel.clone(),
            _ => {
                let channel = terrane_env::net::channel(&address)
                    .map_err(|error| unavailable(format!("server {server} registered an invalid address: {error}")))?;
                channels.insert(server, (address, channel.clone()));
                channel
            }
        };
        Ok(Client::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    fn hello(&self, server: ServerId) -> v1::Hello {
        hello::ours(Some(self.identity.cluster), server, self.identity.server, self.identity.boot)
    }
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Error> {
    match tokio::time::timeout(CALL_TIME_MAX, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(error::from_status(&status)),
        Err(_) => Err(Error::DeadlineExceeded),
    }
}

/// Whether the order is invalid, so that neither a retry nor another member can help.
pub fn is_final(error: &Error) -> bool {
    matches!(error, Error::Invalid(_) | Error::Unsupported { .. } | Error::StaleEpoch { .. } | Error::ReadOnly { .. })
}

fn unavailable(message: String) -> Error {
    Error::Unavailable { message, retry_after: RETRY_AFTER }
}
