//! The layer that [`super::server`] puts around all services of a port; every call passes it on its way in and out.
//!
//! tonic reserves memory for a whole message as soon as it has read the five bytes that announce its length, so 5 bytes
//! could cost a server 40 MiB. The gate passes a message on only when it has arrived in full. Until then its bytes count
//! against the server's budget of bodies, and a sender that is too slow is refused (`unfinished`).
//! Messages that arrive in one piece, as nearly all do, pass unchanged.
//!
//! Answers are counted while the transport holds them: each piece of a body carries its share until it is sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::TryFutureExt as _;
use futures::future::{Either, MapOk, Ready, ready};
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::connection::{Call, ConnectInfo, Connection};
use super::intake::Intake;
use super::unfinished::{Ended, Unfinished};
use crate::budget::Share;

/// Smaller pieces of a message are copied together, so that the memory held equals the bytes counted: a piece of a few bytes
/// would keep a whole buffer of the transport alive.
const KEPT_WHOLE_BYTES: usize = 64 << 10;
/// Smaller pieces of an answer are not counted: the transport holds few of them per call.
const COUNTED_BYTES_MIN: usize = 1 << 10;
/// The header of a message: a compression flag and its length.
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
        let connection = request.extensions().get::<ConnectInfo>().and_then(|info| info.connection.clone());
        let Some(call) = self.intake.call(connection.as_ref()) else {
            let refused = Status::resource_exhausted("the server has reached its limit of concurrent calls; try again");
            let response = refused.into_http::<Body>();
            return Either::Left(ready(Ok(response.map(|body| Counted {
                body,
                call: None,
                connection: None,
                intake: None,
            }))));
        };
        let request = request.map(|body| Body::new(Gathered::new(body, &self.intake)));
        let intake = self.intake.clone();
        let answer: Answer = Box::new(move |response| {
            response.map(|body| Counted { body, call: Some(call), connection, intake: Some(intake) })
        });
        Either::Right(self.service.call(request).map_ok(answer))
    }
}

/// A body that passes messages on when they have arrived in full.
struct Gathered {
    body: Body,
    framing: Framing,
    /// Pieces of complete messages.
    ready: VecDeque<Bytes>,
    /// Pieces of the unfinished message; the small ones at its end are in `tail`.
    held: VecDeque<Bytes>,
    tail: BytesMut,
    /// The first message begins with the call.
    unfinished: Unfinished,
    failed: bool,
}

impl Gathered {
    fn new(body: Body, intake: &Arc<Intake>) -> Gathered {
        let mut unfinished = Unfinished::new(intake, None);
        unfinished.begin();
        Gathered {
            body,
            framing: Framing::new(intake.message_bytes()),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            tail: BytesMut::new(),
            unfinished,
            failed: false,
        }
    }

    /// Takes data that has arrived.
    fn take(&mut self, mut data: Bytes) -> Result<(), Status> {
        let complete = self.framing.feed(&data);
        if complete > 0 {
            self.release();
            self.ready.push_back(data.split_to(complete));
        }
        if data.is_empty() { Ok(()) } else { self.hold(data) }
    }

    /// Passes on everything held.
    fn release(&mut self) {
        self.ready.append(&mut self.held);
        if !self.tail.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.tail).freeze());
        }
        self.unfinished.complete();
    }

    fn hold(&mut self, data: Bytes) -> Result<(), Status> {
        let received = self.unfinished.received() + data.len() as u64;
        if !self.unfinished.count(received) {
            return Err(Status::resource_exhausted("the server holds too many unfinished messages; try again"));
        }
        self.unfinished.has_received(received);
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
}

fn refused(ended: Ended) -> Status {
    match ended {
        Ended::TooSlow => Status::deadline_exceeded(ended.to_string()),
        Ended::GaveWay => Status::resource_exhausted(ended.to_string()),
    }
}

impl HttpBody for Gathered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            if let Some(data) = this.ready.pop_front() {
                this.unfinished.pauses();
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if this.failed {
                return Poll::Ready(None);
            }
            let waits = this.unfinished.must_wait();
            let polled = if waits { Poll::Pending } else { Pin::new(&mut this.body).poll_frame(cx) };
            let outcome = match polled {
                Poll::Pending => match this.unfinished.poll_patience(cx, waits) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(ended) => Err(refused(ended)),
                },
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.take(data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(Some(Err(status))) => Err(status),
                Poll::Ready(None) if !this.unfinished.is_counted() => return Poll::Ready(None),
                // The message will never be complete; its reader sees that from what has arrived.
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

/// Tracks where the messages of a body begin and end.
struct Framing {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that have arrived.
    have: usize,
    /// Bytes of the message that have not arrived; valid only once the header is complete.
    missing: usize,
    message_bytes: usize,
    /// A header announced a message longer than allowed: the reader refuses it by its header.
    too_long: bool,
}

impl Framing {
    fn new(message_bytes: usize) -> Framing {
        Framing { header: [0; HEADER_BYTES], have: 0, missing: 0, message_bytes, too_long: false }
    }

    /// Advances over `data` and returns how many of its bytes belong to complete messages.
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

/// The body of an answer, whose pieces are counted until they are sent.
#[derive(Debug)]
pub struct Counted {
    body: Body,
    call: Option<Call>,
    connection: Option<Arc<Connection>>,
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
            if let Some(connection) = &this.connection {
                connection.will_send(bytes);
            }
            Bytes::from_owner(Unsent { share: intake.count_answer(bytes), data, connection: this.connection.clone() })
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
    connection: Option<Arc<Connection>>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.has_sent(self.share.amount());
        }
    }
}

#[cfg(test)]
mod tests;
