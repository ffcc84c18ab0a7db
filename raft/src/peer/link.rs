//! The calling end of a link: a bounded queue of calls, a stream that is reopened whenever it breaks, and the calls that wait
//! for their reply.
//!
//! A call ends in one of three ways: with a reply, at its deadline, or when its stream breaks. In the last two cases its
//! sender is dropped, which the caller notices at once. While the stream is being opened, calls wait; once an attempt has
//! failed, calls fail at once until the next attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_env::budget::{Budget, Share, Unit};
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1;
use terrane_types::versions::LEVEL_OF_CHECKSUMS;
use terrane_types::{GroupId, ReplicaId, ServerId};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::Lane;
use super::frame::{Frame, Message, Packer, Unpacker};
use crate::AddressBook;
use crate::metrics::Metrics;
use crate::time::clock::{Clocks, elapsed_ms};
use crate::types::{spawn, until_stopped};

/// Calls that may be queued; more fail at once.
const QUEUED_CALLS_MAX: usize = 4096;
/// Bytes of calls that may be queued on one link; more fail at once, unless the queue is empty.
const QUEUED_BYTES_MAX: u64 = 32 << 20;
/// Calls packed together.
const BATCH_CALLS_MAX: usize = 256;
/// Messages handed to the transport ahead of its flow control.
const MESSAGES_AHEAD_MAX: usize = 4;
/// How long opening a stream may take, including the hello.
const OPEN_DEADLINE: Duration = Duration::from_secs(2);
/// Pause after a failed attempt; doubles up to the maximum.
const BACKOFF_LEAST: Duration = Duration::from_millis(20);
const BACKOFF_MOST: Duration = Duration::from_millis(500);

/// Servers of this feature level understand [`Message::Clock`].
const CLOCK_LEVEL: u32 = 2;
/// Servers of this one receive copies of groups.
const COPY_LEVEL: u32 = 3;

/// A request on its route.
pub(crate) struct Call {
    pub(crate) group: GroupId,
    pub(crate) replica: ReplicaId,
    pub(crate) message: Message,
    pub(crate) deadline: Instant,
}

struct Queued {
    call: Call,
    reply: oneshot::Sender<Message>,
    /// Its shares of the budgets of this link and of all links. Returned when the call is handed to the transport.
    shares: [Share; 2],
}

/// A link's handle.
#[derive(Clone)]
pub(crate) struct Link {
    queue: mpsc::Sender<Queued>,
    /// Bytes queued on this link, and on all links.
    budgets: [Arc<Budget>; 2],
    closed: Arc<watch::Sender<bool>>,
}

impl Link {
    pub(super) fn open(route: Route, calls_of_all: Arc<Budget>) -> Link {
        let (queue, calls) = mpsc::channel(terrane_env::limit!("calls queued for a peer", QUEUED_CALLS_MAX, 16..=64));
        let (closed, mut close) = watch::channel(false);
        let mut caller = Caller { route, calls, next_call: 1, refused: None };
        spawn(async move {
            tokio::select! {
                biased;
                () = until_stopped(&mut close) => {}
                () = caller.run() => {}
            }
        });
        let of_link = Budget::new("peer_calls", Unit::Bytes, QUEUED_BYTES_MAX);
        Link { queue, budgets: [of_link, calls_of_all], closed: Arc::new(closed) }
    }

    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Queues a call, in order. `None` if the queue is full. The receiver fails if there is no reply.
    pub(crate) fn call(&self, call: Call) -> Option<oneshot::Receiver<Message>> {
        let (reply, replied) = oneshot::channel();
        let [of_link, of_all] = &self.budgets;
        let bytes = call.message.bytes();
        let shares = [of_link.try_take(bytes)?, of_all.try_take(bytes)?];
        self.queue.try_send(Queued { call, reply, shares }).ok()?;
        Some(replied)
    }
}

/// The two ends of a link.
pub(super) struct Route {
    pub(super) identity: Identity,
    /// The address of this process, sent to the peer.
    pub(super) advertised: String,
    pub(super) server: ServerId,
    pub(super) lane: Lane,
    pub(super) addresses: Arc<AddressBook>,
    pub(super) clocks: Arc<Clocks>,
    pub(super) metrics: Arc<Metrics>,
}

/// The task behind a link.
struct Caller {
    route: Route,
    calls: mpsc::Receiver<Queued>,
    next_call: u64,
    /// Why the last attempt failed, so that a reason is logged only once.
    refused: Option<String>,
}

/// Both directions of an open stream.
struct Stream {
    outgoing: mpsc::Sender<v1::PeerMessage>,
    incoming: Streaming<v1::PeerMessage>,
    /// What the peer understands.
    level: u32,
}

/// Calls that are sent and not answered, by number.
#[derive(Default)]
struct Pending {
    calls: Mutex<BTreeMap<u64, (Instant, oneshot::Sender<Message>)>>,
    /// A call was added while there were none.
    added: Notify,
}

impl Caller {
    async fn run(&mut self) {
        let mut backoff = BACKOFF_LEAST;
        loop {
            match tokio::time::timeout(OPEN_DEADLINE, self.connect()).await {
                Ok(Ok(stream)) => {
                    self.refused = None;
                    backoff = BACKOFF_LEAST;
                    self.serve(stream).await;
                }
                Ok(Err(reason)) => self.note_refusal(reason),
                Err(_) => self.note_refusal("no answer within the deadline".to_owned()),
            }
            self.pause(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MOST);
        }
    }

    fn note_refusal(&mut self, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            tracing::info!(server = %self.route.server, lane = ?self.route.lane, reason, "cannot open the link to a peer; retrying");
            self.refused = Some(reason);
        }
    }

    /// Fails calls for a while.
    async fn pause(&mut self, pause: Duration) {
        let over = tokio::time::sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                // Dropped, so the caller notices at once.
                call = self.calls.recv() => if call.is_none() { (&mut over).await; return },
            }
        }
    }

    async fn connect(&mut self) -> Result<Stream, String> {
        let Route { identity, advertised, server, lane, addresses, clocks, .. } = &self.route;
        let address = addresses.get(*server).ok_or("its address is not known")?;
        let channel = terrane_env::net::channel(&address).map_err(|error| error.to_string())?;
        let mut client = v1::peer_client::PeerClient::new(channel)
            .max_decoding_message_size(terrane_proto::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(terrane_proto::MESSAGE_BYTES_MAX);
        let (outgoing, messages) = mpsc::channel(MESSAGES_AHEAD_MAX);
        let hello = hello::ours(Some(identity.cluster), *server, identity.server, identity.boot);
        let hello =
            v1::PeerHello { hello: Some(hello), lane: lane.wire(), address: advertised.clone(), reads_applied: true };
        let first = v1::PeerMessage { body: Some(v1::peer_message::Body::Hello(hello)) };
        let asked = elapsed_ms();
        outgoing.try_send(first).map_err(|_| "the stream closed early")?;
        let opened = client.link(ReceiverStream::new(messages)).await.map_err(|status| status.message().to_owned())?;
        let mut incoming = opened.into_inner();
        let level = match incoming
            .message()
            .await
            .map_err(|status| status.message().to_owned())?
            .and_then(|message| message.body)
        {
            Some(v1::peer_message::Body::Accepted(reply)) => {
                self.check(&reply)?;
                // A server of an older build does not send its time.
                if reply.cluster_time_ms > 0 {
                    clocks.note(*server, asked, reply.cluster_time_ms);
                }
                reply.feature_level
            }
            Some(v1::peer_message::Body::Refused(detail)) => return Err(detail.message),
            _ => return Err("the peer did not answer the hello".to_owned()),
        };
        Ok(Stream { outgoing, incoming, level })
    }

    /// The answering side checks our hello; this checks that the answering server is the intended one.
    fn check(&self, reply: &v1::HelloReply) -> Result<(), String> {
        if reply.cluster_id.as_ref() != self.route.identity.cluster.0 {
            return Err("the address belongs to a server of another cluster".to_owned());
        }
        if reply.server != self.route.server.0 {
            return Err(format!("the address belongs to server {}", reply.server));
        }
        Ok(())
    }

    /// Sends and receives until either direction ends; then all pending calls fail.
    async fn serve(&mut self, stream: Stream) {
        let Stream { outgoing, incoming, level } = stream;
        let pending = Pending::default();
        tokio::select! {
            biased;
            () = receive(incoming, &pending, &self.route) => {}
            () = pending.expire() => {}
            () = send(&mut self.calls, &mut self.next_call, outgoing, &pending, level) => {}
        }
    }
}

/// The feature level of the servers that understand a request.
fn level_of(message: &Message) -> u32 {
    match message {
        Message::Clock => CLOCK_LEVEL,
        Message::Offer(_) | Message::Part(_) | Message::Install { .. } => COPY_LEVEL,
        _ => 0,
    }
}

/// Reads replies. It never waits for the sending direction, or two servers could wait for each other.
async fn receive(mut incoming: Streaming<v1::PeerMessage>, pending: &Pending, route: &Route) {
    let mut unpacker = Unpacker::default();
    loop {
        let message = match incoming.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(status) => {
                tracing::debug!(error = status.message(), "a link to a peer broke");
                return;
            }
        };
        if terrane_env::buggify!("a link to a peer breaks", 64) {
            return;
        }
        let Some(v1::peer_message::Body::Frames(bytes)) = message.body else {
            return;
        };
        match unpacker.feed(bytes) {
            Ok(frames) => pending.complete(frames),
            Err(error) => {
                route.metrics.unreadable_messages.inc();
                tracing::warn!(peer = %route.server, %error, "a peer sent an unreadable message; reopening the link");
                return;
            }
        }
    }
}

async fn send(
    calls: &mut mpsc::Receiver<Queued>,
    next_call: &mut u64,
    outgoing: mpsc::Sender<v1::PeerMessage>,
    pending: &Pending,
    level: u32,
) {
    let mut batch = Vec::with_capacity(BATCH_CALLS_MAX);
    loop {
        let calls_max = terrane_env::limit!("calls of a peer sent at once", BATCH_CALLS_MAX, 1..=4);
        if calls.recv_many(&mut batch, calls_max).await == 0 {
            return;
        }
        let mut packer = Packer::new(level >= LEVEL_OF_CHECKSUMS);
        let mut waited = Vec::with_capacity(batch.len());
        if terrane_env::buggify!("calls of different groups change places") {
            // Those of one group keep their order.
            batch.sort_by_key(|queued| std::cmp::Reverse(queued.call.group));
        }
        for Queued { call, reply, shares } in batch.drain(..) {
            waited.push(shares);
            let Call { group, replica, message, deadline } = call;
            // The caller no longer waits.
            if reply.is_closed() || terrane_env::buggify!("a call of a peer is lost", 16) {
                continue;
            }
            // An older build would close the link because of it. The caller notices at once that there is no answer.
            if level < level_of(&message) {
                continue;
            }
            let number = *next_call;
            *next_call += 1;
            pending.add(number, deadline, reply);
            let frame = Frame { call: number, group, replica, message };
            packer.push(&frame);
            if terrane_env::buggify!("a call of a peer is sent twice") {
                packer.push(&frame);
            }
        }
        for frames in packer.finish() {
            let message = v1::PeerMessage { body: Some(v1::peer_message::Body::Frames(frames)) };
            if outgoing.send(message).await.is_err() {
                return;
            }
        }
        drop(waited);
    }
}

impl Pending {
    fn add(&self, number: u64, deadline: Instant, reply: oneshot::Sender<Message>) {
        let mut calls = self.calls.lock();
        let first = calls.is_empty();
        calls.insert(number, (deadline, reply));
        drop(calls);
        if first {
            self.added.notify_one();
        }
    }

    fn complete(&self, frames: Vec<Frame>) {
        let mut calls = self.calls.lock();
        for frame in frames {
            // A call that is gone is past its deadline.
            if let Some((_, reply)) = calls.remove(&frame.call)
                && !terrane_env::buggify!("an answer of a peer is lost", 16)
            {
                reply.send(frame.message).ok();
            }
        }
    }

    /// Drops calls at their deadline. Never returns.
    async fn expire(&self) {
        loop {
            let earliest = self.calls.lock().values().map(|(deadline, _)| *deadline).min();
            match earliest {
                None => self.added.notified().await,
                Some(deadline) => {
                    tokio::time::sleep_until(deadline).await;
                    let now = Instant::now();
                    self.calls.lock().retain(|_, (deadline, _)| *deadline > now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use openraft::raft::AppendEntriesRequest;
    use terrane_types::ClusterId;

    use super::*;
    use crate::types::{Entry, Packed, Vote, log_id};

    fn append(bytes: usize) -> Call {
        let payload = openraft::EntryPayload::Normal(Packed(vec![0; bytes].into()));
        let request = AppendEntriesRequest {
            vote: Vote::new(1, ReplicaId(1)),
            prev_log_id: None,
            entries: vec![Entry { log_id: log_id(1, 0), payload }],
            leader_commit: None,
        };
        let deadline = Instant::now() + OPEN_DEADLINE;
        Call { group: GroupId(1), replica: ReplicaId(2), message: Message::Append(request, None), deadline }
    }

    /// Runs on one thread, so that nothing is sent in between.
    #[tokio::test]
    async fn queued_calls_are_limited_in_bytes_for_each_peer() {
        let identity = Identity { cluster: ClusterId([1; 16]), server: ServerId(1), boot: 1 };
        let of_all = Budget::new("peer_calls", Unit::Bytes, 3 * QUEUED_BYTES_MAX);
        let link = |server| {
            let route = Route {
                identity,
                advertised: String::new(),
                server: ServerId(server),
                lane: Lane::Appends,
                addresses: Arc::default(),
                clocks: Clocks::new(ServerId(1), terrane_env::time::WallClock::default()),
                metrics: Arc::default(),
            };
            Link::open(route, of_all.clone())
        };
        let (stalled, other) = (link(2), link(3));
        let large = usize::try_from(QUEUED_BYTES_MAX / 4 * 3).unwrap();
        let first = stalled.call(append(large));
        assert!(first.is_some());
        assert!(stalled.call(append(large)).is_none(), "the limit of one peer");
        assert!(other.call(append(large)).is_some(), "another peer is not affected");
        stalled.close();
        other.close();
        drop((stalled, other));
        while of_all.used() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
