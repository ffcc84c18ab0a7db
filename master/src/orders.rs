//! Orders to region servers: the only place that has their channels, finds a group's leader and knows what can be
//! retried.
//!
//! Every order is idempotent (by group, replica, region or table id), so it can be sent again whenever its outcome is
//! unknown. Each is stamped with the number of the leadership that gives it, so that servers refuse what a master orders that
//! was paused while another one was elected. Each call has a deadline; a round asks each member about once, and the caller waits between rounds.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::hello::{self, Identity};
use terrane_proto::leadership;
use terrane_proto::v1::{self, region_server_client::RegionServerClient};
use terrane_proto::{MESSAGE_BYTES_MAX, error};
use terrane_raft::RECOVERY_TERMS;
use terrane_types::{
    ClusterId, Error, GroupId, RegionDescriptor, RegionEpoch, RegionId, ReplicaId, ServerId, TableId, TableSchema,
};
use tokio::time::Instant;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::catalog::groups::GroupEntry;
use crate::catalog::moves::MoveId;
use crate::journal::Journal;
use crate::servers::inventory::MemberSeen;
use crate::servers::liveness::NoAnswer;
use crate::servers::observed::Observed;

/// Timeout of one call; a change of tables waits for a quorum to sync.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// Timeout of a change of members, which also waits for a learner to get the last entries.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Timeout of a look at a replica.
const INSPECT_TIME_MAX: Duration = Duration::from_secs(2);
/// Timeout of a look at a server whose report is late: a person waits for the answer.
const LOOK_TIME_MAX: Duration = Duration::from_millis(250);
/// Timeout of the question who answers at an address.
const IDENTIFY_TIME_MAX: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Redirects followed in one round, so that two servers that redirect to each other cannot loop.
const REDIRECTS_MAX: usize = 4;

type Client = RegionServerClient<InterceptedService<Channel, Stamp>>;

/// Stamps calls with the number of the leadership that gives the order.
#[derive(Clone, Copy)]
struct Stamp(u64);

impl Interceptor for Stamp {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        leadership::stamp(request.metadata_mut(), self.0);
        Ok(request)
    }
}

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
    /// The number of this master's present leadership, or of its last one; 0: it has never led.
    leadership: AtomicU64,
    /// One channel per server, replaced when its address changes.
    channels: Mutex<BTreeMap<ServerId, (String, Channel)>>,
}

impl Orders {
    /// The calls of this master.
    pub const fn new(journal: Journal, observed: Arc<Observed>, identity: Identity) -> Self {
        Self { journal, observed, identity, leadership: AtomicU64::new(0), channels: Mutex::new(BTreeMap::new()) }
    }

    /// Orders are of this leadership from now on. Those that were decided in an earlier one have ended.
    pub fn lead(&self, number: u64) {
        self.leadership.store(number, Ordering::Relaxed);
    }

    /// The number of this master's present leadership, or of its last one; 0: it has never led.
    pub fn leadership(&self) -> u64 {
        self.leadership.load(Ordering::Relaxed)
    }

    /// Creates a replica of a group on a server. `lead`: it starts the group's first election. Returns whether the replica did
    /// all that was ordered: of one that is to lead, that a majority has the group's first entry.
    pub async fn create_group(
        &self,
        group: GroupId,
        entry: &GroupEntry,
        (replica, server): (ReplicaId, ServerId),
        lead: bool,
    ) -> Result<bool, Error> {
        let (mut client, hello) = self.called(server)?;
        let (group, replica, members) = (group.0, replica.0, self.members(entry));
        let created =
            answer(client.create_group(v1::CreateGroupRequest { hello, group, replica, members, lead })).await;
        self.judged(server, created).map(|reply| !reply.leaderless)
    }

    /// Creates the replica that is to join a group, in place of a damaged one that the server discards first.
    pub async fn join_group(
        &self,
        group: GroupId,
        entry: &GroupEntry,
        replica: ReplicaId,
        server: ServerId,
        discard: Option<ReplicaId>,
    ) -> Result<(), Error> {
        let (mut client, hello) = self.called(server)?;
        let (group, replica, members) = (group.0, replica.0, self.members(entry));
        let discard = discard.map_or(0, |replica| replica.0);
        answer(client.join_group(v1::JoinGroupRequest { hello, group, replica, members, discard })).await.map(drop)
    }

    /// Adds a replica to a group as a learner.
    pub async fn add_learner(&self, group: GroupId, replica: ReplicaId, server: ServerId) -> Result<(), Error> {
        let learner = Some(self.member(replica, server));
        self.change_members(v1::ChangeMembersRequest { group: group.0, learner, ..Default::default() }).await.map(drop)
    }

    /// Changes the voters of a group by one joint change; returns its members after it.
    pub async fn change_voters(
        &self,
        group: GroupId,
        promote: Option<ReplicaId>,
        remove: Option<ReplicaId>,
    ) -> Result<Vec<ReplicaId>, Error> {
        let id = |replica: Option<ReplicaId>| replica.map_or(0, |replica| replica.0);
        let (promote, remove) = (id(promote), id(remove));
        let request = v1::ChangeMembersRequest { group: group.0, promote, remove, ..Default::default() };
        self.change_members(request).await
    }

    async fn change_members(&self, request: v1::ChangeMembersRequest) -> Result<Vec<ReplicaId>, Error> {
        let group = GroupId(request.group);
        let reply = self.at_leader(group, |mut client, hello| {
            let request = v1::ChangeMembersRequest { hello, ..request.clone() };
            async move { answer_within(CHANGE_TIME_MAX, client.change_members(request)).await }
        });
        let members: Vec<MemberSeen> = reply.await?.members.into_iter().map(Into::into).collect();
        let replicas = members.iter().map(|member| member.replica).collect();
        if !members.is_empty() {
            self.observed.with(|observed| observed.inventory.note_members(group, members));
        }
        Ok(replicas)
    }

    /// Hands the leadership of a group to another of its voters.
    pub async fn transfer_leader(&self, group: GroupId, to: ReplicaId) -> Result<(), Error> {
        self.at_leader(group, |mut client, hello| {
            let request = v1::TransferLeaderRequest { hello, group: group.0, to_replica: to.0 };
            async move { answer(client.transfer_leader(request)).await }
        })
        .await
        .map(|_| ())
    }

    /// Flushes a server's replicas of a table; returns once they are flushed.
    pub async fn flush_table(&self, server: ServerId, table: TableId, deadline: Instant) -> Result<(), Error> {
        let (mut client, hello) = self.called(server)?;
        let flushed = async {
            let request = v1::MaintainTableRequest { hello, table: table.0 };
            let mut progress = client.flush_table(request).await.map_err(|status| refusal(&status))?.into_inner();
            while let Some(progress) = progress.message().await.map_err(|status| refusal(&status))? {
                if progress.done {
                    return match progress.failures.into_iter().next() {
                        Some(failure) => Err(Error::Internal { message: format!("on server {server}, {failure}") }),
                        None => Ok(()),
                    };
                }
            }
            Err(unavailable(format!("server {server} ended before the flush was done")))
        };
        tokio::time::timeout_at(deadline, flushed).await.unwrap_or(Err(Error::DeadlineExceeded))
    }

    /// What a server's replica of a group has.
    pub async fn inspect_replica(&self, server: ServerId, group: GroupId) -> Result<v1::InspectReplicaReply, Error> {
        let (mut client, hello) = self.called(server)?;
        let request = v1::InspectReplicaRequest { hello, group: group.0 };
        answer_within(INSPECT_TIME_MAX, client.inspect_replica(request)).await
    }

    /// Asks the process at a server's address whether it is the server, in this boot.
    ///
    /// # Errors
    /// What answers there, for people.
    pub async fn identify(&self, server: ServerId, boot: u64) -> Result<(), NoAnswer> {
        let nothing = |why| NoAnswer { why, by_another: false };
        let address = self.journal.read(|catalog| catalog.servers().address(server));
        let channel = terrane_env::net::channel(&address).map_err(|invalid| nothing(invalid.to_string()))?;
        // Without the stamp of a leadership: every master asks.
        let hello = hello::ours(Some(self.identity.cluster), server, self.identity.server, self.identity.boot);
        let mut client = RegionServerClient::new(channel);
        let reply =
            tokio::time::timeout(IDENTIFY_TIME_MAX, client.identify(v1::IdentifyRequest { hello: Some(hello) }));
        match reply.await {
            Ok(Ok(reply)) if reply.get_ref().boot == boot => Ok(()),
            Ok(Ok(reply)) => {
                let other = reply.get_ref().boot;
                let why = format!(
                    "another process of server {server} answers there (boot {other}; boot {boot} reports): its directory may have been copied"
                );
                Err(nothing(why))
            }
            Ok(Err(status)) => {
                let refusal = error::from_status(&status);
                let by_another = matches!(refusal, Error::WrongCluster { .. });
                Err(NoAnswer { why: stranger(&refusal, self.identity.cluster), by_another })
            }
            Err(_) => Err(nothing(format!("nothing answers there within {} s", IDENTIFY_TIME_MAX.as_secs()))),
        }
    }

    /// Looks at the outcome of an order: a server that could not be reached is called, to see whether its address leads to it.
    fn judged<T>(&self, server: ServerId, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(
            Error::Unavailable { .. } | Error::DeadlineExceeded | Error::WrongCluster { .. } | Error::Internal { .. },
        ) = outcome
        {
            self.observed.with(|observed| observed.liveness.suspect(server));
            self.observed.wake_caller();
        }
        outcome
    }

    /// Whether a server answers at all, within the short time that a person waits for the status.
    pub async fn answers(&self, server: ServerId) -> bool {
        let Ok((mut client, hello)) = self.called(server) else { return false };
        // No server has a replica of group 0; that it says so is the answer.
        let look = client.inspect_replica(v1::InspectReplicaRequest { hello, group: 0 });
        !matches!(answer_within(LOOK_TIME_MAX, look).await, Err(Error::Unavailable { .. } | Error::DeadlineExceeded))
    }

    /// Makes a replica the only member of its group.
    pub async fn recover_replica(
        &self,
        group: GroupId,
        entry: &GroupEntry,
        replica: ReplicaId,
        server: ServerId,
    ) -> Result<(), Error> {
        let seen = self.observed.with(|observed| observed.inventory.group(group).map_or(0, |view| view.term));
        let (mut client, hello) = self.called(server)?;
        let request = v1::RecoverReplicaRequest {
            hello,
            group: group.0,
            replica: replica.0,
            // A second recovery is ahead of the first by as much again.
            above_term: seen.saturating_add(entry.version.saturating_mul(RECOVERY_TERMS)),
            members: entry.members.keys().map(|member| member.0).collect(),
        };
        answer_within(CHANGE_TIME_MAX, client.recover_replica(request)).await.map(drop)
    }

    /// Removes a server's replica of a group.
    pub async fn remove_replica(&self, server: ServerId, group: GroupId, replica: ReplicaId) -> Result<(), Error> {
        let ((mut client, hello), group, replica) = (self.called(server)?, group.0, replica.0);
        answer(client.remove_replica(v1::RemoveReplicaRequest { hello, group, replica })).await.map(drop)
    }

    fn member(&self, replica: ReplicaId, server: ServerId) -> v1::GroupMember {
        let address = self.journal.read(|catalog| catalog.servers().address(server));
        v1::GroupMember { replica: replica.0, server: server.0, address }
    }

    fn members(&self, entry: &GroupEntry) -> Vec<v1::GroupMember> {
        entry.members.iter().map(|(replica, server)| self.member(*replica, *server)).collect()
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
            let request = v1::ChangeTablesRequest { hello, ..request.clone() };
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
            let request = v1::SplitRequest { hello, region, epoch, at };
            async move { answer(client.split(request)).await }
        });
        Ok(reply.await?.daughters)
    }

    /// Merges two neighbouring regions of a group; returns the merged one.
    pub async fn merge(&self, one: &RegionDescriptor, other: &RegionDescriptor) -> Result<RegionDescriptor, Error> {
        let reply = self.at_leader(one.group, |mut client, hello| {
            let request = v1::MergeRequest {
                hello,
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

    /// Orders the leader of a region's group to move the region into another group, or to undo that; returns how far it is.
    pub async fn move_region(
        &self,
        id: MoveId,
        region: &RegionDescriptor,
        to: GroupId,
        (cancel, as_before): (bool, bool),
    ) -> Result<v1::MoveRegionReply, Error> {
        let entry = self.journal.read(|catalog| catalog.groups().get(to).cloned());
        let entry = entry.ok_or_else(|| Error::NotFound { what: format!("group {to}") })?;
        let request = v1::MoveRegionRequest {
            hello: None,
            r#move: id.0,
            region: region.region.0,
            epoch: region.epoch.0,
            to_group: to.0,
            members: self.members(&entry),
            cancel,
            as_before,
        };
        self.at_members(region.group, |mut client, hello| {
            let request = v1::MoveRegionRequest { hello, ..request.clone() };
            async move { answer(client.move_region(request)).await }
        })
        .await
        .map(|(_, reply)| reply)
    }

    /// Calls the members of a group, the likely leader first, until the leader answers.
    async fn at_leader<T, F>(&self, group: GroupId, call: impl Fn(Client, Option<v1::Hello>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (server, reply) = self.at_members(group, call).await?;
        self.observed.with(|observed| observed.inventory.hint_leader(group, server));
        Ok(reply)
    }

    /// The same for what another member may answer as well, so that an answer says nothing of the leader.
    async fn at_members<T, F>(
        &self,
        group: GroupId,
        call: impl Fn(Client, Option<v1::Hello>) -> F,
    ) -> Result<(ServerId, T), Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut to_ask = self.members_to_ask(group)?;
        let mut redirects = 0;
        let mut last = None;
        while let Some(server) = to_ask.pop_front() {
            let answer = match self.called(server) {
                Ok((client, hello)) => self.judged(server, call(client, hello).await),
                Err(error) => Err(error),
            };
            match answer {
                Ok(reply) => return Ok((server, reply)),
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
            let mut members: Vec<ServerId> = entry.servers().into_iter().collect();
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
        Ok(Client::new(InterceptedService::new(channel, Stamp(self.leadership())))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// What every call to a server needs: a client, and this master's hello.
    fn called(&self, server: ServerId) -> Result<(Client, Option<v1::Hello>), Error> {
        let hello = hello::ours(Some(self.identity.cluster), server, self.identity.server, self.identity.boot);
        Ok((self.client(server)?, Some(hello)))
    }
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Error> {
    answer_within(CALL_TIME_MAX, call).await
}

async fn answer_within<T>(time: Duration, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Error> {
    match tokio::time::timeout(time, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(refusal(&status)),
        Err(_) => Err(Error::DeadlineExceeded),
    }
}

/// Why an order was refused. For the client that asked for it, a server in the place of the one that was called is not there:
/// the caller is in the right cluster, and may ask again.
fn refusal(status: &Status) -> Error {
    match error::from_status(status) {
        Error::WrongCluster { expected, actual, server } if expected == actual => {
            unavailable(format!("server {server} answers at the address of the server that was called"))
        }
        Error::WrongCluster { expected, server, .. } => unavailable(format!(
            "server {server} of cluster {expected} answers at the address of the server that was called"
        )),
        error => error,
    }
}

/// Whether the order is invalid, so that neither a retry nor another member can help.
pub fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::Invalid(_)
            | Error::Unsupported { .. }
            | Error::StaleEpoch { .. }
            | Error::ReadOnly { .. }
            | Error::Disabled { .. }
    )
}

/// What answered in a server's place, for people.
fn stranger(answer: &Error, own: ClusterId) -> String {
    match answer {
        Error::WrongCluster { expected, actual, server } if expected == actual => {
            format!("server {server} of this cluster answers there")
        }
        Error::WrongCluster { actual, server, .. } if *actual != own => {
            format!("server {server} of another cluster, {actual}, answers there")
        }
        Error::Unavailable { message, .. } => format!("nothing answers there: {message}"),
        other => format!("what answers there is no region server of this cluster: {other}"),
    }
}

fn unavailable(message: String) -> Error {
    Error::Unavailable { message, retry_after: RETRY_AFTER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_at_the_address_is_a_server_that_is_not_there() {
        for theirs in [1, 2] {
            let wrong = Error::WrongCluster {
                expected: ClusterId([theirs; 16]),
                actual: ClusterId([1; 16]),
                server: ServerId(5),
            };
            let refused = refusal(&error::status(&wrong));
            assert!(
                matches!(&refused, Error::Unavailable { message, .. } if message.contains("server 5")),
                "{refused}"
            );
        }
        let read_only = Error::ReadOnly { what: "table t".to_owned() };
        assert_eq!(refusal(&error::status(&read_only)), read_only);
    }
}
