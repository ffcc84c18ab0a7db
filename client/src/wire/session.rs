//! One long-lived stream to one region server, shared by all callers: requests go out in batches, replies come back in any
//! order and are matched by id.
//!
//! No task is spawned per request. Callers queue requests; the outgoing half of the stream takes everything in the queue
//! whenever the connection accepts more, so batches form by themselves and grow with the load. One task per session reads
//! replies.
//!
//! Invariants:
//! - nothing but the hello is sent before the server has accepted it: a process of another cluster never reads a request;
//! - a request is answered exactly once: by its reply, or, when the stream breaks, as *not sent* if it was still in the queue,
//!   and as *lost* once it was handed to the connection;
//! - at most [`IN_FLIGHT_MAX`] requests are queued or sent; further callers wait;
//! - a caller that leaves (its time is over, or its future is dropped) frees its slot at once if its request was not sent, and
//!   otherwise when the reply arrives.
//!
//! A broken session stays broken; the next caller opens a new one. A session also breaks when the server shows no sign of life
//! while an answer is expected: [`crate::wire::liveness`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use terrane_proto::v1;
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::v1::{reply, request, session_reply, session_request};
use terrane_proto::{MESSAGE_BYTES_MAX, error};
use terrane_types::Error as Wire;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;

use crate::wire::failure::Failure;
use crate::wire::hello;
use crate::wire::in_flight::IN_FLIGHT_MAX;
use crate::wire::in_flight::{Answered, Phase, ReplyReceiver, State};
use crate::wire::liveness::{self, Activity, Expecting, PingTimeout};
use crate::wire::message::Header;
use crate::wire::message::Reply;
use crate::wire::message::Request;
use crate::wire::peer::Peer;

/// How long a server may take to accept a connection and answer the hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// How long calls wait for that. After this they go elsewhere, and the attempt continues.
const OPENING_WAIT: Duration = Duration::from_millis(400);

/// A stream to a server. Dropping the last reference ends it.
pub(crate) struct Session {
    shared: Arc<Shared>,
    peer: Peer,
    address: String,
    channel: Channel,
    reader: AbortHandle,
    clock_in_doubt: AtomicBool,
    ping_timeout: Arc<PingTimeout>,
    opened: Instant,
    on_trial: bool,
}

/// Whether a session can take requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes requests, or will very soon.
    Ready,
    /// The server has not accepted it, and may not do so soon.
    Away,
    /// It ended.
    Broken {
        /// The server could not be reached, or has stopped answering: a new session may fail too.
        doubtful: bool,
        since: Instant,
    },
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
        self.shared.fail_all(&Failure::Lost("the client was closed".to_owned()), false);
    }
}

impl Session {
    /// Starts to open a session; callers may wait for permits at once. A session `on_trial` goes to a server that was away: no
    /// call uses it until it is accepted. Must be called within a runtime.
    pub(crate) fn open(
        address: &str,
        peer: Peer,
        ping_timeout: Arc<PingTimeout>,
        on_trial: bool,
    ) -> Result<Arc<Self>, Failure> {
        let channel = terrane_env::net::channel(address).map_err(|error| Failure::NotSent(error.to_string()))?;
        let shared = Arc::new(Shared::new());
        let running = run(Arc::clone(&shared), channel.clone(), address.to_owned(), peer, Arc::clone(&ping_timeout));
        let reader = tokio::spawn(running).abort_handle();
        Ok(Arc::new(Self {
            shared,
            peer,
            address: address.to_owned(),
            channel,
            reader,
            clock_in_doubt: AtomicBool::new(false),
            ping_timeout,
            opened: Instant::now(),
            on_trial,
        }))
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Which server it belongs to.
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The connection, for calls that open a stream of their own.
    pub(super) fn data_client(&self) -> DataClient<Channel> {
        data_client(self.channel.clone())
    }

    /// The ping timeout learnt for this server, for the next session with it.
    pub(crate) fn ping_timeout(&self) -> Arc<PingTimeout> {
        Arc::clone(&self.ping_timeout)
    }

    pub(crate) fn standing(&self) -> Standing {
        match &self.shared.state.lock().phase {
            Phase::Open => Standing::Ready,
            Phase::Opening if self.on_trial || self.opened.elapsed() >= OPENING_WAIT => Standing::Away,
            Phase::Opening => Standing::Ready,
            Phase::Broken { doubtful, since, .. } => Standing::Broken { doubtful: *doubtful, since: *since },
        }
    }

    /// Returns when the session has ended.
    pub(crate) async fn ended(&self) {
        let ended = self.shared.ended.notified();
        let mut ended = std::pin::pin!(ended);
        // Registered before the check: an end in between wakes us.
        ended.as_mut().enable();
        if !self.shared.is_broken() {
            ended.await;
        }
    }

    /// Another stream expects answers of the server until this is dropped. The stream reports what arrives with [`record_message`].
    ///
    /// [`record_message`]: Session::record_message
    pub(crate) fn awaits(&self) -> Expecting<'_> {
        self.shared.activity.awaits()
    }

    /// A message of the server arrived on another stream.
    pub(crate) fn record_message(&self) {
        self.shared.activity.record_message();
    }

    /// Cluster time on the server, in milliseconds since 1970: the time in its hello plus what has passed since it arrived. Never
    /// ahead of the server's clock. `None` until the server has answered the hello.
    pub(crate) fn cluster_time_ms(&self) -> Option<u64> {
        self.shared.clock.lock().map(|(time, at)| time + u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The server found an operation too old, which it cannot be: its clock may have been set since the hello.
    pub(crate) fn doubt_clock(&self) {
        self.clock_in_doubt.store(true, Ordering::Relaxed);
    }

    pub(crate) fn clock_is_in_doubt(&self) -> bool {
        self.clock_in_doubt.load(Ordering::Relaxed)
    }

    /// If the clock is in doubt, gets the server's time again, over a new session.
    pub(crate) async fn refresh_clock(&self, until: Instant) -> Result<(), Failure> {
        if !self.clock_in_doubt.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let other = Self::open(&self.address, self.peer, self.ping_timeout(), false)?;
        let _permit = other.permit(until).await?;
        let clock = *other.shared.clock.lock();
        if clock.is_some() {
            *self.shared.clock.lock() = clock;
        }
        Ok(())
    }

    /// Waits until one more request may be queued. While the hello is unanswered it waits only briefly: another member may be
    /// up.
    pub(crate) async fn permit(&self, until: Instant) -> Result<Permit<'_>, Failure> {
        if let Ok(permit) = self.shared.permits.try_acquire() {
            return Ok(Permit(permit));
        }
        let acquired = self.shared.permits.acquire();
        let mut acquired = std::pin::pin!(acquired);
        let mut limit = until.min(self.opened + OPENING_WAIT);
        loop {
            match timeout_at(limit, acquired.as_mut()).await {
                Ok(Ok(permit)) => return Ok(Permit(permit)),
                Ok(Err(_closed)) => return Err(self.shared.broken_reason()),
                Err(_) if self.cluster_time_ms().is_none() => {
                    return Err(Failure::NotSent(format!("{} did not answer the hello in time", self.address)));
                }
                Err(_) if limit < until => limit = until,
                Err(_) => return Err(Failure::NotSent(format!("too many requests are waiting for {}", self.address))),
            }
        }
    }

    /// Sends one request and waits for its reply until `until`.
    pub(crate) async fn call(
        &self,
        permit: Permit<'_>,
        header: Header,
        request: Request,
        until: Instant,
    ) -> Result<Answered, Failure> {
        let (id, receiver) = self.shared.enqueue(permit.0, header.into_wire(), request.0)?;
        let mut waiting = Waiting { shared: &self.shared, id, done: false };
        match timeout_at(until, receiver).await {
            Ok(answer) => {
                waiting.done = true;
                answer.unwrap_or_else(|_| Err(Failure::Lost("the session was dropped".to_owned())))
            }
            Err(_) => Err(waiting.give_up(&self.address)),
        }
    }
}

/// The right to queue one request.
pub(crate) struct Permit<'a>(SemaphorePermit<'a>);

/// A caller that waits for its reply. Dropping it takes the request back if possible.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
    done: bool,
}

impl Waiting<'_> {
    /// The caller has run out of time.
    fn give_up(mut self, address: &str) -> Failure {
        self.done = true;
        if self.shared.take_back(self.id) {
            return Failure::NotSent(format!("{address} accepted no requests in time"));
        }
        Failure::Lost(format!("{address} did not answer in time"))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.shared.take_back(self.id);
        }
    }
}

fn data_client(channel: Channel) -> DataClient<Channel> {
    DataClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX)
}

struct Shared {
    state: Mutex<State>,
    /// Woken when there is something to send.
    outgoing: AtomicWaker,
    /// One per free slot; none before the hello is answered. Closed when the session breaks.
    permits: Semaphore,
    /// The cluster time in the server's hello, and when it arrived.
    clock: Mutex<Option<(u64, Instant)>>,
    activity: Activity,
    /// Notified when the session breaks.
    ended: Notify,
}

impl Shared {
    fn new() -> Self {
        Self {
            state: Mutex::new(State::new()),
            outgoing: AtomicWaker::new(),
            permits: Semaphore::new(0),
            clock: Mutex::new(None),
            activity: Activity::default(),
            ended: Notify::new(),
        }
    }

    fn enqueue(
        &self,
        permit: SemaphorePermit<'_>,
        header: v1::RequestHeader,
        body: request::Body,
    ) -> Result<(u64, ReplyReceiver), Failure> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if let Phase::Broken { why, .. } = &state.phase {
            return Err(not_sent(why));
        }
        // Added again when the request leaves the table, which may be after its caller has left.
        permit.forget();
        let id = state.take_slot(sender);
        let was_empty = state.queue.is_empty();
        state.queue.push_back(v1::Request { id, header: Some(header), body: Some(body) });
        let wake = was_empty && matches!(state.phase, Phase::Open);
        drop(state);
        self.activity.wake_watch();
        if wake {
            self.outgoing.wake();
        }
        Ok((id, receiver))
    }

    /// The caller no longer waits for this request. A request in the queue is removed: it was not sent and will not be (true).
    /// A sent one keeps its slot until the reply arrives, so that its id is not reused meanwhile.
    fn take_back(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        if state.slot(id).is_none_or(|(_, slot)| slot.sent) || state.release(id).is_none() {
            return false;
        }
        state.take_back();
        drop(state);
        self.permits.add_permits(1);
        true
    }

    fn broken_reason(&self) -> Failure {
        match &self.state.lock().phase {
            Phase::Broken { why, .. } => not_sent(why),
            Phase::Opening | Phase::Open => Failure::NotSent("the session is closing".to_owned()),
        }
    }

    fn accepted(&self, reply: &v1::HelloReply) {
        // A server that does not send its time is assumed to have ours.
        let time = Some(reply.cluster_time_ms).filter(|time| *time > 0).unwrap_or_else(terrane_env::time::wall_ms);
        *self.clock.lock() = Some((time, Instant::now()));
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Opening) {
            state.phase = Phase::Open;
            self.permits.add_permits(IN_FLIGHT_MAX);
        }
    }

    /// The next message to send.
    fn next_batch(&self) -> Option<v1::RequestBatch> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Open) { state.next_batch() } else { None }
    }

    fn complete(&self, batch: v1::ReplyBatch) {
        let mut done = Vec::with_capacity(batch.replies.len());
        let mut state = self.state.lock();
        for reply in batch.replies {
            if let Some(sender) = state.release(reply.id) {
                done.push((sender, reply));
            }
        }
        drop(state);
        self.permits.add_permits(done.len());
        for (sender, v1::Reply { body, schema_version, .. }) in done {
            let result = match body {
                Some(reply::Body::Error(detail)) => Err(Failure::Refused(error::from_detail(*detail))),
                Some(body) => Ok(Answered { reply: Reply(body), schema_version }),
                None => Err(Failure::Refused(Wire::Internal { message: "the server sent an empty reply".to_owned() })),
            };
            // The caller may have run out of time and left.
            let _ = sender.send(result);
        }
    }

    /// Ends the session: fails all waiting requests, and refuses new ones.
    fn fail_all(&self, why: &Failure, doubtful: bool) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Broken { .. }) {
            return;
        }
        state.phase = Phase::Broken { why: why.clone(), doubtful, since: Instant::now() };
        state.queue.clear();
        let slots = std::mem::take(&mut state.slots);
        drop(state);
        self.permits.close();
        self.outgoing.wake();
        self.ended.notify_waiters();
        for slot in slots {
            if let Some(sender) = slot.reply {
                let failure = if slot.sent { why.clone() } else { not_sent(why) };
                let _ = sender.send(Err(failure));
            }
        }
    }

    fn is_broken(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Broken { .. })
    }

    /// Whether any request is queued or sent.
    fn waits(&self) -> bool {
        self.state.lock().waits()
    }
}

/// What broke a session, for a caller whose request was not sent.
fn not_sent(why: &Failure) -> Failure {
    match why {
        Failure::Lost(cause) => Failure::NotSent(cause.clone()),
        other => other.clone(),
    }
}

/// The outgoing half: first the hello, then the queue. The connection polls it when it accepts more.
struct Outgoing {
    hello: Option<v1::Hello>,
    shared: Arc<Shared>,
}

impl Stream for Outgoing {
    type Item = v1::SessionRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<v1::SessionRequest>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(v1::SessionRequest { body: Some(session_request::Body::Hello(hello)) }));
        }
        // Registered before the check: a request queued in between wakes us.
        self.shared.outgoing.register(context.waker());
        if let Some(batch) = self.shared.next_batch() {
            return Poll::Ready(Some(v1::SessionRequest { body: Some(session_request::Body::Batch(batch)) }));
        }
        if self.shared.is_broken() { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// Opens the stream and reads it to its end.
async fn run(shared: Arc<Shared>, channel: Channel, address: String, peer: Peer, ping_timeout: Arc<PingTimeout>) {
    let (why, doubtful) = match tokio::time::timeout(HELLO_TIMEOUT, open(&shared, &channel, &address, peer)).await {
        Ok(Ok((hello, replies))) => {
            ping_timeout.accepted(Instant::now());
            shared.accepted(&hello);
            tokio::select! {
                biased;
                why = read(&shared, replies, &address) => (why, false),
                () = liveness::watch(&shared.activity, &ping_timeout, channel, || shared.waits()) => {
                    (Failure::Lost(format!("{address} is silent and does not answer pings")), true)
                }
            }
        }
        Ok(Err(why)) => {
            let doubtful = matches!(why, Failure::NotSent(_));
            (why, doubtful)
        }
        Err(_) => (Failure::NotSent(format!("{address} did not answer within {} s", HELLO_TIMEOUT.as_secs())), true),
    };
    tracing::debug!(%address, server = %peer.server, ?why, "session ended");
    shared.fail_all(&why, doubtful);
}

async fn open(
    shared: &Arc<Shared>,
    channel: &Channel,
    address: &str,
    peer: Peer,
) -> Result<(v1::HelloReply, tonic::Streaming<v1::SessionReply>), Failure> {
    let outgoing = Outgoing { hello: Some(peer.hello()), shared: Arc::clone(shared) };
    let opened = data_client(channel.clone()).session(outgoing).await;
    let mut replies = opened.map_err(|status| hello::refused(&status, address))?.into_inner();
    let first = replies.message().await.map_err(|status| hello::refused(&status, address))?;
    Ok((hello::accepted(first, address, peer)?, replies))
}

async fn read(shared: &Shared, mut replies: tonic::Streaming<v1::SessionReply>, address: &str) -> Failure {
    loop {
        let message = replies.message().await;
        shared.activity.record_message();
        match message {
            Ok(Some(v1::SessionReply { body: Some(session_reply::Body::Batch(batch)) })) => shared.complete(batch),
            Ok(Some(v1::SessionReply { body: Some(session_reply::Body::Refused(detail)) })) => {
                return Failure::Lost(format!("{address} ended the session: {}", error::from_detail(detail)));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Failure::Lost(format!("{address} closed the session")),
            Err(status) => return Failure::Lost(format!("the session with {address} broke: {}", status.message())),
        }
    }
}
