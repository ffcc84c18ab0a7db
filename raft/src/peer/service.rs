//! The answering end of links: checks the hello, passes requests to the groups and sends their replies when they are ready.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use openraft::EntryPayload;
use openraft::errors::RaftError;
use openraft::raft::{AppendEntriesResponse, VoteResponse};
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1;
use terrane_types::{Error, GroupId, Invalid, ReplicaId, ServerId};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Lane;
use super::frame::{Frame, Message, Packer, Unpacker};
use super::headroom::{Headroom, HeadroomPermit};
use crate::AddressBook;
use crate::copies::receiving::Offered;
use crate::groups::registry::Registry;
use crate::groups::replica::Replica;
use crate::leadership::abstention::Abstentions;
use crate::leadership::handover::DECLINED;
use crate::log::{Role, SharedLog};
use crate::members::lagging::{DAMAGED_ENTRY, LOG_FULL};
use crate::members::lineage;
use crate::metrics::Metrics;
use crate::proposals::entry;
use crate::time::clock::Clocks;
use crate::types::{Entry, Types, Vote, spawn, until_stopped};

/// How long the first message of a stream may take.
const HELLO_DEADLINE: Duration = Duration::from_secs(2);

/// How long a request waits for a group that this server does not have yet. The members of a new group are created one after
/// another, and the first election would otherwise fail for a whole election timeout.
const UNKNOWN_GROUP_WAIT: Duration = Duration::from_millis(250);

/// Requests of one link in progress; above that nothing more is read from the link.
const RUNNING_MAX: usize = 4096;
/// Replies packed together.
const REPLIES_MAX: usize = 256;
/// Messages handed to the transport ahead of its flow control.
const MESSAGES_AHEAD_MAX: usize = 4;

/// Everything that requests need.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) identity: Identity,
    pub(crate) groups: Arc<Registry>,
    pub(crate) addresses: Arc<AddressBook>,
    pub(crate) headroom: Arc<Headroom>,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) abstentions: Arc<Abstentions>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopped: watch::Receiver<bool>,
}

/// The service that peers connect to.
#[derive(Clone)]
pub struct PeerService {
    receiver: Receiver,
}

impl PeerService {
    pub(crate) fn new(receiver: Receiver) -> PeerService {
        PeerService { receiver }
    }
}

type Outgoing = mpsc::Sender<Result<v1::PeerMessage, Status>>;

#[tonic::async_trait]
impl v1::peer_server::Peer for PeerService {
    type LinkStream = ReceiverStream<Result<v1::PeerMessage, Status>>;

    async fn link(&self, request: Request<Streaming<v1::PeerMessage>>) -> Result<Response<Self::LinkStream>, Status> {
        let incoming = request.into_inner();
        let (outgoing, messages) = mpsc::channel(MESSAGES_AHEAD_MAX);
        let receiver = self.receiver.clone();
        spawn(async move { receiver.serve(incoming, outgoing).await });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

impl Receiver {
    async fn serve(self, mut incoming: Streaming<v1::PeerMessage>, outgoing: Outgoing) {
        let first = tokio::time::timeout(HELLO_DEADLINE, incoming.message()).await;
        let Ok(Ok(Some(first))) = first else {
            return;
        };
        let (lane, peer) = (lane_of(&first), Peer::of(&first));
        let (answer, accepted) = match self.check(first) {
            Ok(reply) => (v1::peer_message::Body::Accepted(reply), true),
            Err(error) => {
                tracing::warn!(%error, "refusing a peer");
                (v1::peer_message::Body::Refused(terrane_proto::error::detail(&error)), false)
            }
        };
        let answered = outgoing.send(Ok(v1::PeerMessage { body: Some(answer) })).await.is_ok();
        // Frames of a refused peer are never read.
        if answered && accepted {
            self.answer(lane, peer, incoming, outgoing).await;
        }
    }

    fn check(&self, first: v1::PeerMessage) -> Result<v1::HelloReply, Error> {
        let Some(v1::peer_message::Body::Hello(v1::PeerHello { hello: Some(hello), address, .. })) = first.body else {
            let what = "the first message of a stream must be a hello".to_owned();
            return Err(Error::Invalid(Invalid { what }));
        };
        let reply = hello::check(&hello, self.identity, self.clocks.wall_ms())?;
        self.addresses.heard(ServerId(hello.own_server), hello.boot, &address);
        Ok(reply)
    }

    /// Answers requests until the peer closes the stream or the host stops.
    async fn answer(mut self, lane: Lane, peer: Peer, mut incoming: Streaming<v1::PeerMessage>, outgoing: Outgoing) {
        let mut unpacker = Unpacker::default();
        let mut stopped = self.stopped.clone();
        // First polled in the order of arrival, which keeps the appends of a group in order.
        let mut running: FuturesUnordered<BoxFuture<'static, Frame>> = FuturesUnordered::new();
        loop {
            let few = running.len() < terrane_env::limit!("requests of a link in progress", RUNNING_MAX, 4..=16);
            // Votes and heartbeats are small and must not wait.
            let reads = lane == Lane::Votes || unpacker.is_partial() || self.headroom.is_left();
            tokio::select! {
                biased;
                () = until_stopped(&mut stopped) => return,
                Some(reply) = running.next(), if !running.is_empty() => {
                    if !reply_with(reply, &mut running, &outgoing).await {
                        return;
                    }
                }
                () = self.headroom.wait(), if few && !reads => {}
                message = incoming.message(), if few && reads => {
                    let Ok(Some(message)) = message else {
                        return;
                    };
                    if !self.start(peer, message, &mut unpacker, &mut running) {
                        return;
                    }
                }
            }
        }
    }

    fn start(
        &mut self,
        peer: Peer,
        message: v1::PeerMessage,
        unpacker: &mut Unpacker,
        running: &mut FuturesUnordered<BoxFuture<'static, Frame>>,
    ) -> bool {
        let Some(v1::peer_message::Body::Frames(bytes)) = message.body else {
            return false;
        };
        match unpacker.feed(bytes) {
            Ok(frames) => {
                running.extend(frames.into_iter().map(|frame| self.begin(frame)));
                true
            }
            Err(error) => {
                self.metrics.unreadable_messages.inc();
                tracing::warn!(peer = %peer.server, %error, "a peer sent an unreadable message; closing its link");
                false
            }
        }
    }
}

impl Receiver {
    /// Starts to answer a request. Requests about the server itself wait for no group.
    fn begin(&self, frame: Frame) -> BoxFuture<'static, Frame> {
        if !matches!(frame.message, Message::Clock) {
            let taken = self.headroom.take(frame.message.bytes());
            return handle(self.groups.clone(), frame, taken).boxed();
        }
        let abstains = self.abstentions.weightiest().is_some();
        let message = Message::ClockReply { wall_ms: self.clocks.wall_ms(), abstains };
        futures::future::ready(Frame { message, ..frame }).boxed()
    }
}

/// Sends a reply together with the others that are ready.
async fn reply_with(
    first: Frame,
    running: &mut FuturesUnordered<BoxFuture<'static, Frame>>,
    outgoing: &Outgoing,
) -> bool {
    let mut packer = Packer::default();
    packer.push(&first);
    for _ in 1..REPLIES_MAX {
        let Some(Some(reply)) = running.next().now_or_never() else {
            break;
        };
        packer.push(&reply);
    }
    for frames in packer.finish() {
        let message = v1::PeerMessage { body: Some(v1::peer_message::Body::Frames(frames)) };
        if outgoing.send(Ok(message)).await.is_err() {
            return false;
        }
    }
    true
}

/// The lane that a stream was opened for; entries by default.
fn lane_of(first: &v1::PeerMessage) -> Lane {
    match &first.body {
        Some(v1::peer_message::Body::Hello(hello)) if hello.lane == Lane::Votes.wire() => Lane::Votes,
        Some(v1::peer_message::Body::Hello(hello)) if hello.lane == Lane::Copies.wire() => Lane::Copies,
        _ => Lane::Appends,
    }
}

/// What the other end of a stream has said of itself.
#[derive(Clone, Copy)]
struct Peer {
    server: ServerId,
}

impl Peer {
    fn of(first: &v1::PeerMessage) -> Self {
        let Some(v1::peer_message::Body::Hello(opened)) = &first.body else {
            return Self { server: ServerId(0) };
        };
        let server = ServerId(opened.hello.as_ref().map_or(0, |hello| hello.own_server));
        Self { server }
    }
}

async fn handle(groups: Arc<Registry>, frame: Frame, taken: HeadroomPermit) -> Frame {
    let Frame { call, group, replica, message } = frame;
    let message = match find(&groups, group, replica).await {
        Some(local) => ask(&local, message).await,
        None => Message::Failed(format!("replica {replica} of group {group} is not here")),
    };
    drop(taken);
    Frame { call, group, replica, message }
}

async fn find(groups: &Registry, group: GroupId, replica: ReplicaId) -> Option<Arc<Replica>> {
    let found = groups.get(group).filter(|local| local.view.replica() == replica);
    if found.is_some() {
        return found;
    }
    let appears = groups.wait_for(group);
    let found = tokio::time::timeout(UNKNOWN_GROUP_WAIT, appears).await.ok().flatten()?;
    (found.view.replica() == replica).then_some(found)
}

async fn ask(local: &Replica, message: Message) -> Message {
    if let Some(term) = sender_term(&message)
        && lineage::is_lost(term, local.view.log().voted_term().max(local.view.recovered_term()))
    {
        return Message::Failed("the group was recovered without this member".to_owned());
    }
    match message {
        Message::Append(request, bound) => {
            local.election.note_leader();
            if let Some(bound) = bound {
                local.stale_reads.note_bound(bound);
            }
            if let Some(reason) = refuses(local.view.shared_log(), &request.entries) {
                return Message::Failed(reason);
            }
            // Heartbeats are always accepted; they may carry what allows purging.
            if !request.entries.is_empty()
                && let Some(refusal) = local.view.shared_log().refusal(local.view.group(), Role::Follower)
            {
                return Message::Failed(format!("{LOG_FULL}, held by {}", local.retention.refusal(&refusal)));
            }
            if let Some(what) = damaged(&request.entries) {
                return Message::Failed(what);
            }
            answered(local.raft.append_entries(request).await, |reply| {
                Message::Appended(reply, local.applying.report())
            })
        }
        Message::Vote(request) | Message::PreVote(request)
            if !request.leadership_transfer && local.election.is_bound() =>
        {
            Message::Failed("this replica has just started and may still be bound by a promise to a leader".to_owned())
        }
        Message::Released(index) => {
            local.retention.note_released(index);
            Message::Appended(AppendEntriesResponse::Success, local.applying.report())
        }
        Message::Vote(request) if terrane_env::buggify!("a vote is refused for no reason", 8) => {
            Message::Failed(format!("this replica does not vote at the moment, asked for {}", request.vote))
        }
        Message::Vote(request) => {
            let wanted = request.vote;
            answered(local.raft.vote(request).await, |reply| Message::Voted(cast(wanted, reply)))
        }
        Message::PreVote(request) => answered(local.raft.pre_vote(request).await, Message::Voted),
        Message::Transfer(request)
            if *request.to_node_id() == local.view.replica() && local.leadership.declines().is_some() =>
        {
            let reason = local.leadership.declines().map(|abstention| abstention.reason).unwrap_or_default();
            Message::Failed(format!("{DECLINED}: {reason}"))
        }
        Message::Transfer(request) => {
            if *request.to_node_id() == local.view.replica() {
                local.leadership.note_handover();
            }
            match local.raft.handle_transfer_leader(request).await {
                Ok(reply) => Message::Transferred(reply),
                Err(error) => Message::Failed(error.to_string()),
            }
        }
        Message::Offer(offer) if offer.vote.leader_id.term < local.view.log().voted_term() => {
            Message::Failed("a leader of an earlier term offers a copy".to_owned())
        }
        Message::Offer(offer) => {
            local.election.note_leader();
            match local.incoming.offered(offer).await {
                Ok(Offered::Held(held)) => Message::Held(held),
                Ok(Offered::Installed) => Message::Installed(local.view.metrics().vote),
                Err(what) => Message::Failed(what),
            }
        }
        Message::Part(part) => {
            local.election.note_leader();
            local.incoming.part(part).await.map_or_else(Message::Failed, |()| Message::Taken)
        }
        Message::Install { offer, vote } => {
            let installed = local.incoming.install(&local.raft, local.view.replica(), offer, vote).await;
            installed.map_or_else(Message::Failed, Message::Installed)
        }
        Message::Clock => Message::Failed("a request about a server that was sent to a replica".to_owned()),
        Message::Appended(..)
        | Message::Voted(_)
        | Message::Transferred(_)
        | Message::Held(_)
        | Message::Taken
        | Message::Installed(_)
        | Message::ClockReply { .. }
        | Message::Failed(_) => Message::Failed("a reply where a request was expected".to_owned()),
    }
}

/// What is wrong with these entries, if they do not have the bytes that the leader packed. The message had the bytes that the
/// leader sent, so it is the leader's copy that is damaged, and no member may log it.
fn damaged(entries: &[Entry]) -> Option<String> {
    entries.iter().find_map(|logged| match &logged.payload {
        EntryPayload::Normal(packed) => {
            entry::verify(&packed.0).err().map(|error| format!("{DAMAGED_ENTRY} {}: {error}", logged.log_id))
        }
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    })
}

/// The term of the leader or candidate that sends a request, where a request says it.
fn sender_term(message: &Message) -> Option<u64> {
    let vote = match message {
        Message::Append(request, _) => &request.vote,
        Message::Vote(request) | Message::PreVote(request) => &request.vote,
        Message::Transfer(request) => request.from_leader(),
        Message::Offer(offer) => &offer.vote,
        Message::Install { vote, .. } => vote,
        _ => return None,
    };
    Some(vote.leader_id.term)
}

/// A refusal in the candidate's own term: this member has voted for another in it, or has the longer log.
fn cast(wanted: Vote, mut reply: VoteResponse<Types>) -> VoteResponse<Types> {
    let is_of_term = reply.vote.leader_id.term == wanted.leader_id.term;
    if is_of_term && terrane_env::planted!("a member votes twice in a term") {
        (reply.vote, reply.vote_granted) = (wanted, true);
    }
    reply
}

/// Why the log's disk does not permit these entries, if it does not. Entries without operations need next to no space, and
/// carry what a full log needs to be purged.
fn refuses(log: &SharedLog, entries: &[Entry]) -> Option<String> {
    let reason = log.space_refusal()?;
    let is_empty = |logged: &Entry| match &logged.payload {
        EntryPayload::Normal(packed) => entry::carries_nothing(&packed.0),
        EntryPayload::Blank | EntryPayload::Membership(_) => true,
    };
    (!entries.iter().all(is_empty)).then_some(reason)
}

fn answered<T>(outcome: Result<T, RaftError<Types>>, reply: impl FnOnce(T) -> Message) -> Message {
    outcome.map_or_else(|error| Message::Failed(error.to_string()), reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrane_types::versions::FEATURE_LEVEL;

    use crate::proposals::entry::{Header, Packer as EntryPacker, format_at};
    use crate::types::{Packed, log_id};

    fn entry(index: u64) -> Entry {
        let header = Header { ordinal: index, ..Header::default() };
        let packed = Packed(EntryPacker::new(header, 0, format_at(FEATURE_LEVEL)).finish());
        Entry { log_id: log_id(1, index), payload: EntryPayload::Normal(packed) }
    }

    #[test]
    fn an_entry_that_the_leader_sends_damaged_is_refused_by_name() {
        let sound = [entry(1), entry(2)];
        assert_eq!(damaged(&sound), None);
        let EntryPayload::Normal(packed) = entry(3).payload else { unreachable!("it is packed") };
        let mut bytes = packed.0.to_vec();
        bytes[9] ^= 1;
        let payload = EntryPayload::Normal(Packed(bytes.into()));
        let [first, second] = sound;
        let what = damaged(&[first, second, Entry { log_id: log_id(1, 3), payload }]).unwrap();
        assert!(what.starts_with(DAMAGED_ENTRY) && what.contains("checksum"), "{what}");
    }
}
