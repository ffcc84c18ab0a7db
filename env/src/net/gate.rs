//! What every call passes on its way in and out: the layer that [`super::server`] puts around all services of a port.
//!
//! tonic reserves memory for a whole message as soon as it has read the five bytes that announce its length, so 5 bytes cost
//! a server 40 MiB. The gate hands a message on only when it has arrived in full. Until then its bytes count against the
//! server's budget of bodies, and a sender slower than [`RATE_MIN`] after the first [`GRACE`] is refused. Messages that
//! arrive in one piece, as nearly all do, pass as they are.
//!
//! Answers are counted while the transport holds them: each piece of a body carries its share until it has been sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::TryFutureExt as _;
use futures::future::{Either, MapOk, Ready, ready};
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::ConnectInfo;
use super::intake::{Call, Intake, Line};
use crate::budget::Share;

/// How long a message may take to arrive, however short...
const GRACE: Duration = Duration::from_secs(10);
/// ...and the bytes for each further second.
const RATE_MIN: u64 = 64 << 10;
/// How full bodies may be for one that is under way to go on; the rest is left for messages that begin.
const SOFT_PERCENT: u64 = 75;
/// How long a message may take from the moment it may pass in spite of that: others wait for it.
const PASS_MAX: Duration = Duration::from_secs(10);
/// How often a body that waits for room looks for it.
const ROOM_EVERY: Duration = Duration::from_millis(10);
/// Smaller pieces of a message are copied together, so that what is held is what is counted: a piece of a few bytes would
/// keep a whole buffer of the transport.
const KEPT_WHOLE_BYTES: usize = 64 << 10;
/// Smaller pieces of an answer are not counted: of each call the transport holds few.
const COUNTED_BYTES_MIN: usize = 1 << 10;
/// What announces a message: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// The layer.
#[derive(Clone, Debug)]
pub struct Gate {
    intake: Arc<Intake>,
}

impl Gate {
    pub(super) fn new(intake: &Arc<Intake>) -> Gate {
        Gate { intake: intake.clone() }
    }
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, service: S) -> Gated<S> {
        Gated { service, intake: self.intake.clone() }
    }
}

/// A service behind the gate.
#[derive(Clone, Debug)]
pub struct Gated<S> {
    service: S,
    intake: Arc<Intake>,
}

type Answer = Box<dyn FnOnce(Response<Body>) -> Response<Counted> + Send>;

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Response = Response<Counted>;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response<Counted>, Infallible>>, MapOk<S::Future, Answer>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let line = request.extensions().get::<ConnectInfo>().and_then(|info| info.line.clone());
        let Some(call) = self.intake.call(line.as_ref()) else {
            let refused = Status::resource_exhausted("the server has as many calls under way as it takes; try again");
            let response = refused.into_http::<Body>();
            return Either::Left(ready(Ok(response.map(|body| Counted {
                body,
                call: None,
                line: None,
                intake: None,
            }))));
        };
        let request = request.map(|body| Body::new(Gathered::new(body, self.intake.clone())));
        let intake = self.intake.clone();
        let answer: Answer = Box::new(move |response| {
            response.map(|body| Counted { body, call: Some(call), line, intake: Some(intake) })
        });
        Either::Right(self.service.call(request).map_ok(answer))
    }
}

/// A body that hands messages on when they have arrived in full.
struct Gathered {
    body: Body,
    intake: Arc<Intake>,
    framing: Framing,
    /// Pieces of messages that are complete.
    ready: VecDeque<Bytes>,
    /// Pieces of the message that is not; the small ones at its end are in `tail`.
    held: VecDeque<Bytes>,
    tail: BytesMut,
    share: Option<Share>,
    /// When the message that is under way began, and what has arrived of it. The first begins with the call.
    under_way: Option<(Instant, u64)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Held, since when, by the one message that goes on although bodies are too full.
    pass: Option<(OwnedSemaphorePermit, Instant)>,
    failed: bool,
}

impl Gathered {
    fn new(body: Body, intake: Arc<Intake>) -> Gathered {
        Gathered {
            body,
            framing: Framing::new(intake.message_bytes()),
            intake,
            ready: VecDeque::new(),
            held: VecDeque::new(),
            tail: BytesMut::new(),
            share: None,
            under_way: Some((Instant::now(), 0)),
            timer: None,
            pass: None,
            failed: false,
        }
    }

    /// Takes what has arrived.
    fn take(&mut self, mut data: Bytes) -> Result<(), Status> {
        let complete = self.framing.feed(&data);
        if complete > 0 {
            self.release();
            self.ready.push_back(data.split_to(complete));
        }
        if data.is_empty() { Ok(()) } else { self.hold(data) }
    }

    /// Hands on what is held.
    fn release(&mut self) {
        self.ready.append(&mut self.held);
        if !self.tail.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.tail).freeze());
        }
        (self.share, self.under_way, self.timer, self.pass) = (None, None, None, None);
    }

    fn hold(&mut self, data: Bytes) -> Result<(), Status> {
        let bytes = data.len() as u64;
        let room = match &mut self.share {
            Some(share) => share.grow(bytes),
            None => {
                self.share = self.intake.bodies().try_take(bytes);
                self.share.is_some()
            }
        };
        if !room {
            return Err(Status::resource_exhausted("the server holds too many unfinished messages; try again"));
        }
        let (_, received) = self.under_way.get_or_insert_with(|| (Instant::now(), 0));
        *received += bytes;
        if data.len() < KEPT_WHOLE_BYTES {
            self.tail.extend_from_slice(&data);
        } else {
            if !self.tail.is_empty() {
                self.held.push_back(std::mem::take(&mut self.tail).freeze());
            }
            self.held.push_back(data);
        }
        Ok(())
    }

    /// Whether the message under way has to wait for room. One at a time does not: if all waited, none would ever be
    /// complete and make room.
    fn must_wait(&mut self) -> bool {
        let bodies = self.intake.bodies();
        if self.share.is_none() || bodies.used() <= bodies.limit() / 100 * SOFT_PERCENT {
            return false;
        }
        if self.pass.is_none() {
            self.pass = self.intake.pass().map(|permit| (permit, Instant::now()));
        }
        self.pass.is_none()
    }

    /// Waits until there may be room again, and no longer than the message under way may take.
    fn poll_patience(&mut self, cx: &mut Context<'_>, waits_for_room: bool) -> Poll<Status> {
        let Some((begun, received)) = self.under_way else { return Poll::Pending };
        let due = begun + GRACE + Duration::from_millis(received.saturating_mul(1000) / RATE_MIN);
        let due = self.pass.as_ref().map_or(due, |(_, since)| due.min(*since + PASS_MAX));
        loop {
            let now = Instant::now();
            if now >= due {
                let what = "the message did not arrive in time: senders may take 10 s and 1 s more for each 64 KiB";
                return Poll::Ready(Status::deadline_exceeded(what));
            }
            let next = if waits_for_room { due.min(now + ROOM_EVERY) } else { due };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
            if timer.deadline() != next {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl HttpBody for Gathered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            if let Some(data) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if this.failed {
                return Poll::Ready(None);
            }
            let waits = this.must_wait();
            let polled = if waits { Poll::Pending } else { Pin::new(&mut this.body).poll_frame(cx) };
            let outcome = match polled {
                Poll::Pending => match this.poll_patience(cx, waits) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(late) => Err(late),
                },
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.take(data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(Some(Err(status))) => Err(status),
                Poll::Ready(None) if this.share.is_none() => return Poll::Ready(None),
                // The message will never be complete: what there is of it shows that to the reader.
                Poll::Ready(None) => {
                    this.release();
                    Ok(())
                }
            };
            if let Err(status) = outcome {
                this.failed = true;
                this.release();
                this.ready.clear();
                return Poll::Ready(Some(Err(status)));
            }
        }
    }
}

/// Where in the messages of a body its bytes are.
struct Framing {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are there.
    have: usize,
    /// Bytes of the message that are not there yet; counts only when the header is.
    missing: usize,
    message_bytes: usize,
    /// A message longer than allowed was announced: its reader refuses it by its header.
    too_long: bool,
}

impl Framing {
    fn new(message_bytes: usize) -> Framing {
        Framing { header: [0; HEADER_BYTES], have: 0, missing: 0, message_bytes, too_long: false }
    }

    /// Goes over `data`, and gives how many of its bytes end messages: those up to the end of the last complete one.
    fn feed(&mut self, data: &[u8]) -> usize {
        let (mut at, mut complete) = (0, 0);
        while at < data.len() && !self.too_long {
            if self.have < HEADER_BYTES {
                self.header[self.have] = data[at];
                (self.have, at) = (self.have + 1, at + 1);
                if self.have < HEADER_BYTES {
                    continue;
                }
                let [_, length @ ..] = self.header;
                self.missing = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.too_long = self.missing > self.message_bytes;
            }
            let there = self.missing.min(data.len() - at);
            (self.missing, at) = (self.missing - there, at + there);
            if self.missing == 0 {
                (self.have, complete) = (0, at);
            }
        }
        if self.too_long { data.len() } else { complete }
    }
}

/// The body of an answer, whose pieces are counted until they have been sent.
#[derive(Debug)]
pub struct Counted {
    body: Body,
    call: Option<Call>,
    line: Option<Arc<Line>>,
    intake: Option<Arc<Intake>>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        if frame.is_none() {
            this.call = None;
        }
        let Some(intake) = &this.intake else { return Poll::Ready(frame) };
        let counted = |data: Bytes| {
            if data.len() < COUNTED_BYTES_MIN {
                return data;
            }
            let bytes = data.len() as u64;
            if let Some(line) = &this.line {
                line.will_send(bytes);
            }
            Bytes::from_owner(Unsent { share: intake.answers().take(bytes), data, line: this.line.clone() })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A piece of an answer that the transport holds.
struct Unsent {
    data: Bytes,
    share: Share,
    line: Option<Arc<Line>>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.has_sent(self.share.amount());
        }
    }
}

#[cfg(test)]
mod tests;
