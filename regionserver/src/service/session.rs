//! The bidirectional stream: a hello first, then batches both ways until either side ends it or the server stops.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use terrane_proto::hello::Identity;
use terrane_proto::{error, hello, v1};
use terrane_types::limits::SESSION_BATCH_REQUESTS_MAX;
use terrane_types::{Error, Invalid};
use tokio::sync::oneshot;
use tonic::{Status, Streaming};

use super::decode::RequestKey;
use super::{decode, encode};
use crate::edge::{Edge, Outgoing, Session};

/// Answers put into one batch at most, and the bytes after which a batch is sent as it is.
const REPLIES_PER_BATCH_MAX: usize = 1024;
const BATCH_BYTES_WANTED: usize = 1 << 20;

/// How long a client may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one client's stream.
pub fn serve(
    edge: Arc<Edge>,
    identity: Identity,
    mut requests: Streaming<v1::SessionRequest>,
) -> impl Stream<Item = Result<v1::SessionReply, Status>> + Send + 'static {
    async_stream::stream! {
        match greet(&edge, identity, &mut requests).await {
            Ok(reply) => yield Ok(message(v1::session_reply::Body::Hello(reply))),
            Err(refused) => {
                // Nothing else of this stream is read.
                yield Ok(message(v1::session_reply::Body::Refused(error::detail(&refused))));
                return;
            }
        }
        let ended = edge.ended.clone();
        let sessions = edge.sessions.clone();
        let (session, mut answers) = Session::open(edge);
        let (why, reason) = oneshot::channel();
        sessions.spawn(async move {
            // A stream that has gone away needs no reason.
            why.send(read(session, requests, ended).await).ok();
        });
        let mut ready = Vec::new();
        // Ends when the requests ended and every one of them was answered: each holds a sender.
        let replies_max = terrane_env::limit!("answers in a batch", REPLIES_PER_BATCH_MAX, 1..=4);
        while answers.recv_many(&mut ready, replies_max).await > 0 {
            if terrane_env::buggify!("a session breaks before its answers are sent") {
                return;
            }
            let mut waiting = ready.drain(..);
            while let Some(batch) = next_batch(&mut waiting) {
                yield Ok(message(v1::session_reply::Body::Batch(batch)));
            }
        }
        if let Ok(Some(refused)) = reason.await {
            yield Err(refused);
        }
    }
}

fn message(body: v1::session_reply::Body) -> v1::SessionReply {
    v1::SessionReply { body: Some(body) }
}

async fn greet(
    edge: &Edge,
    identity: Identity,
    requests: &mut Streaming<v1::SessionRequest>,
) -> Result<v1::HelloReply, Error> {
    let first = tokio::time::timeout(HELLO_TIMEOUT, requests.message()).await;
    let first = first.map_err(|_| Error::DeadlineExceeded)?;
    match first.map_err(|status| error::from_status(&status))?.and_then(|first| first.body) {
        Some(v1::session_request::Body::Hello(hello)) => {
            // Clients number their writes by this time, so it must not depend on one wrong clock.
            hello::check(&hello, identity, edge.time_ms())
        }
        _ => Err(Error::Invalid(Invalid::new("the first message of a session must be a hello"))),
    }
}

/// Reads requests until the client or the server ends the stream, or a message cannot be read: then it says why.
async fn read(
    session: Session<RequestKey>,
    mut requests: Streaming<v1::SessionRequest>,
    ended: tokio_util::sync::CancellationToken,
) -> Option<Status> {
    loop {
        let next = tokio::select! {
            biased;
            () = ended.cancelled() => return None,
            next = requests.next() => next,
        };
        // Whatever ends the stream, the client opens another one and retries what was not answered.
        let batch = match next {
            Some(Ok(v1::SessionRequest { body: Some(v1::session_request::Body::Batch(batch)) })) => batch,
            Some(Ok(_)) => return Some(error::status(&Invalid::new("a session takes batches after its hello").into())),
            Some(Err(status)) => return Some(status),
            None => return None,
        };
        if terrane_env::buggify!("a session breaks before its requests are read", 32) {
            return None;
        }
        if batch.requests.len() > SESSION_BATCH_REQUESTS_MAX {
            let requests = batch.requests.len();
            let what = format!("a batch of {requests} requests; the limit is {SESSION_BATCH_REQUESTS_MAX}");
            return Some(error::status(&Invalid::new(what).into()));
        }
        session.start(batch.requests.into_iter().map(decode::request).collect()).await;
    }
}

/// The next answers, as many as a message should hold. The others keep their shares of the server's budget until their turn: a
/// client that does not read leaves them waiting here.
fn next_batch(waiting: &mut impl Iterator<Item = Outgoing<RequestKey>>) -> Option<v1::ReplyBatch> {
    let (mut replies, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES_WANTED {
        let Some(outgoing) = waiting.next() else { break };
        let (key, answer, schema_version) = outgoing.take();
        let reply = encode::reply(key, answer, schema_version);
        bytes += encode::reply_bytes(&reply);
        replies.push(reply);
    }
    if terrane_env::planted!("the buffer of a batch is kept") {
        // The compiler may leave out a buffer that nothing uses.
        std::mem::forget(std::hint::black_box(Vec::<u8>::with_capacity(BATCH_BYTES_WANTED)));
    }
    (!replies.is_empty()).then_some(v1::ReplyBatch { replies })
}
