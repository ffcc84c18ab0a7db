//! openraft's network: each call becomes a frame on one of the links to the member's server.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption, RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use parking_lot::Mutex;
use terrane_types::{GroupId, ReplicaId, ServerId};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::copies::sending::{NotSent, Target};
use crate::copies::share::Copies;
use crate::leadership::handover::{DECLINED, Handovers};
use crate::members::applying::Members;
use crate::members::followers::Followers;
use crate::members::lagging::{DAMAGED_ENTRY, LOG_FULL};
use crate::peer::{Call, Lane, Link, Message, Peers};
use crate::proposals::adapter::StateAt;
use crate::proposals::erased::Machine;
use crate::reads::completeness::LeaderBound;
use crate::runtime::VOTE_MAX;
use crate::types::{LogId, Member, Types, Vote};

/// Concurrent appends of a group to one member.
const APPENDS_IN_FLIGHT_MAX: usize = 16;

/// How long an append of entries may take. openraft's own limit (a heartbeat interval) suits heartbeats; with it, a follower
/// whose disk is busy would be sent the same entries again and again.
const APPEND_DEADLINE: Duration = Duration::from_secs(2);

/// What the connections of one group share.
pub(crate) struct Network {
    pub(crate) peers: Arc<Peers>,
    pub(crate) group: GroupId,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) followers: Arc<Followers>,
    pub(crate) handovers: Arc<Mutex<Handovers>>,
    pub(crate) leading: Arc<LeaderBound>,
    /// What all copies share that this process sends.
    pub(crate) copies: Arc<Copies>,
}

/// Creates the connections of one group.
pub(crate) struct Connections(pub(crate) Arc<Network>);

/// The connection to one member.
pub(crate) struct Connection {
    network: Arc<Network>,
    appends: Link,
    votes: Link,
    server: ServerId,
    replica: ReplicaId,
    /// Whether appends through this connection are heartbeats.
    heartbeats: bool,
    /// A copy through this connection, which openraft opens for the copy, was not sent.
    copy_failed: bool,
}

impl Connections {
    fn connection(&self, replica: ReplicaId, member: &Member, heartbeats: bool) -> Connection {
        let network = self.0.clone();
        Connection {
            appends: network.peers.link(member.server, Lane::Appends),
            votes: network.peers.link(member.server, Lane::Votes),
            network,
            server: member.server,
            replica,
            heartbeats,
            copy_failed: false,
        }
    }
}

impl RaftNetworkFactory<Types> for Connections {
    type Network = Connection;

    async fn new_client(&mut self, replica: ReplicaId, member: &Member) -> Connection {
        self.connection(replica, member, false)
    }

    async fn new_heartbeat_client(&mut self, replica: ReplicaId, member: &Member) -> Connection {
        self.connection(replica, member, true)
    }
}

/// How long a member is left alone after a copy to it failed, at first and at most.
const COPY_PAUSE: Duration = Duration::from_secs(1);
const COPY_PAUSE_MAX: Duration = Duration::from_secs(3);

/// How long a member that refused entries is left alone.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

type PendingReply = Option<oneshot::Receiver<Message>>;

impl Connection {
    /// Queues a call. Calls reach the peer in order.
    fn send(&self, link: &Link, message: Message, within: Duration) -> PendingReply {
        link.call(Call { group: self.network.group, replica: self.replica, message, deadline: Instant::now() + within })
    }

    fn note_refusal(&self, why: &str) {
        if why.contains(LOG_FULL) {
            self.network.followers.refused_by.note(self.replica, why);
        }
        if why.contains(DAMAGED_ENTRY) {
            self.network.machine.note_damage(&format!("member {} refuses it: {why}", self.replica));
        }
    }

    async fn ask(&self, message: Message, within: Duration) -> Result<Message, Unreachable<Types>> {
        reply(self.send(&self.votes, message, within)).await
    }
}

async fn reply(replied: PendingReply) -> Result<Message, Unreachable<Types>> {
    let Some(replied) = replied else {
        return Err(Unreachable::from_string("too many calls are queued for this peer"));
    };
    match replied.await {
        Ok(Message::Failed(what)) => Err(Unreachable::from_string(what)),
        Ok(message) => Ok(message),
        Err(_) => Err(Unreachable::from_string("no reply")),
    }
}

fn unexpected<E: From<Unreachable<Types>>>() -> E {
    Unreachable::<Types>::from_string("the peer's reply does not match the request").into()
}

type AppendResult = Result<StreamAppendResult<Types>, RPCError<Types>>;

/// Whether an answer names a vote for the leader that asked, in a later term than it leads. A leader that resigns votes for another
/// member ([`crate::leadership`]), which may have been cut off and lead an earlier term. openraft takes a vote for itself for its
/// own, so it never hears of this one; another member names the later leader.
fn is_for(vote: &Vote, own: &Vote) -> bool {
    vote.leader_id.voted_for == own.leader_id.voted_for && vote.leader_id.term > own.leader_id.term
}

fn foreign_vote_error() -> Unreachable<Types> {
    Unreachable::from_string("it has voted for this member in a later term, which this member never asked for")
}

/// An append that was sent.
struct Appending {
    vote: Vote,
    /// The entry before those that were sent, and the last of them.
    prev: Option<LogId>,
    last: Option<LogId>,
}

impl Appending {
    /// Waits for the answer, and notes what it says of the member.
    async fn answered(self, replied: PendingReply, replica: ReplicaId, members: &Members) -> AppendResult {
        let Message::Appended(outcome, applying) = reply(replied).await? else { return Err(unexpected()) };
        members.heard(replica, applying);
        match (&outcome, self.prev) {
            // Without a previous entry nothing can conflict, and openraft relies on that.
            (AppendEntriesResponse::Conflict, None) => return Err(unexpected()),
            (AppendEntriesResponse::Conflict, Some(prev)) if members.has_lost(replica, &self.vote, prev) => {
                return Err(Unreachable::<Types>::from_string("it has lost entries that it had acknowledged").into());
            }
            (AppendEntriesResponse::Success, _) => self.acknowledged(members, replica, self.last),
            (AppendEntriesResponse::PartialSuccess(last), _) => self.acknowledged(members, replica, *last),
            (AppendEntriesResponse::HigherVote(vote), _) if is_for(vote, &self.vote) => {
                return Err(foreign_vote_error().into());
            }
            (AppendEntriesResponse::Conflict | AppendEntriesResponse::HigherVote(_), _) => {}
        }
        Ok(outcome.into_stream_result(self.prev, self.last))
    }

    fn acknowledged(&self, members: &Members, replica: ReplicaId, last: Option<LogId>) {
        if let Some(last) = last {
            members.acknowledged(replica, &self.vote, last, Instant::now());
        }
    }
}

impl NetStreamAppend<Types> for Connection {
    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, AppendResult>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        let connection: &'s Connection = self;
        let (link, within) = if connection.heartbeats {
            (&connection.votes, option.soft_ttl())
        } else {
            (&connection.appends, APPEND_DEADLINE)
        };
        // The call is queued when the request is taken from the stream, so requests are sent in order; only the waits
        // overlap.
        let replies = requests.map(move |request| {
            let prev = request.prev_log_id;
            let last = request.entries.last().map(|entry| entry.log_id).or(prev);
            let appending = Appending { vote: request.vote, prev, last };
            // Heartbeats are frequent enough to carry the bounds.
            let bound = if connection.heartbeats { connection.network.leading.bound() } else { None };
            let replied = connection.send(link, Message::Append(request, bound), within);
            async move {
                let appended =
                    appending.answered(replied, connection.replica, &connection.network.followers.applied).await;
                terrane_env::buggify_pause!("a leader hears late of an answer").await;
                if let Err(RPCError::Unreachable(error)) = &appended {
                    connection.note_refusal(&error.to_string());
                }
                appended
            }
        });
        let in_flight_max = terrane_env::limit!("appends in flight to a member", APPENDS_IN_FLIGHT_MAX, 1..=3);
        let replies: BoxStream<'s, AppendResult> = replies.buffered(in_flight_max).boxed();
        futures::future::ready(Ok(replies)).boxed()
    }
}

impl NetVote<Types> for Connection {
    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.ask(Message::Vote(request), VOTE_MAX).await? {
            Message::Voted(reply) => Ok(reply),
            _ => Err(unexpected()),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.ask(Message::PreVote(request), option.soft_ttl()).await? {
            Message::Voted(reply) => Ok(reply),
            _ => Err(unexpected()),
        }
    }
}

impl NetTransferLeader<Types> for Connection {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let asked = self.ask(Message::Transfer(request), option.soft_ttl()).await;
        if let Err(error) = &asked
            && error.to_string().contains(DECLINED)
        {
            self.network.handovers.lock().declined(self.replica, Instant::now());
        }
        match asked? {
            Message::Transferred(reply) => Ok(reply),
            _ => Err(unexpected()),
        }
    }
}

impl NetBackoff<Types> for Connection {
    fn backoff(&self) -> Option<Backoff> {
        // Each attempt at a copy looks at the whole group, here and there.
        if self.copy_failed {
            let pauses = std::iter::successors(Some(COPY_PAUSE), |pause| Some((*pause * 2).min(COPY_PAUSE_MAX)));
            return Some(Backoff::new(pauses));
        }
        // Otherwise as configured.
        let refused = self.network.followers.refused_by.by().contains(&self.replica);
        refused.then(|| Backoff::new(std::iter::repeat(REFUSED_PAUSE)))
    }
}

impl NetSnapshot<Types> for Connection {
    type SnapshotData = StateAt;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<Types, StateAt>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let target = Target {
            group: self.network.group,
            replica: self.replica,
            // Opened with the first copy: most members never need one.
            link: &self.network.peers.link(self.server, Lane::Copies),
            machine: self.network.machine.as_ref(),
            copies: &self.network.copies,
            sending: &self.network.followers.sending,
        };
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = target.send(vote, snapshot.snapshot.mark) => match sent {
                Ok(answer) if is_for(&answer, &vote) => Err(foreign_vote_error().into()),
                Ok(vote) => {
                    self.network.followers.failing_copies.succeeded(self.replica);
                    Ok(SnapshotResponse::new(vote))
                }
                Err(NotSent::NoTurn) => {
                    self.copy_failed = true;
                    Err(Unreachable::<Types>::from_string("this server sends other copies").into())
                }
                Err(NotSent::Failed(what)) => {
                    self.copy_failed = true;
                    if self.network.followers.failing_copies.failed(self.replica, &what) {
                        tracing::info!(group = %self.network.group, replica = %self.replica, what, "a copy was not sent; trying again");
                    }
                    Err(Unreachable::<Types>::from_string(what).into())
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::applying::Applying;

    #[tokio::test]
    async fn a_vote_that_a_leader_never_asked_for_does_not_reach_openraft() {
        let answered = |vote: Vote| async move {
            let (sender, replied) = oneshot::channel();
            let message = Message::Appended(AppendEntriesResponse::HigherVote(vote), Applying::default());
            sender.send(message).expect("the receiver lives");
            let appending = Appending { vote: Vote::new(2, ReplicaId(9)), prev: None, last: None };
            appending.answered(Some(replied), ReplicaId(8), &Members::default()).await
        };
        assert!(answered(Vote::new(4, ReplicaId(9))).await.is_err(), "a vote for itself");
        assert!(answered(Vote::new(3, ReplicaId(8))).await.is_ok(), "the vote of a later leader");
    }
}
