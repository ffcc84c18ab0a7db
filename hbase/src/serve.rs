//! A port for HBase's clients: connections in, calls to a [`Front`], answers out in the order in which they are ready.
//!
//! One task reads a connection, one writes it, and each call runs in a task of its own. What arrives is counted against one
//! budget of the port while it is incomplete; a call holds a permit until its answer has been written, so a client that does
//! not read its answers is soon not read from.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use prost::Message;
use terrane_env::net::Listener;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Event, Opened};
use crate::discovery::Discovery;
use crate::exception::Exception;
use crate::frame::{Call, NO_CALL, encode_answer, encode_exception};

/// Most connections of a port.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Most calls of one connection whose answers have not left.
pub const CALLS_MAX: usize = 256;
/// Most KiB of calls of a port that have not arrived whole.
const RECEIVING_KIB_MAX: u32 = 256 << 10;
/// How much of a call a connection receives without counting it.
const FREE_BYTES: usize = 64 << 10;
/// How long a connection waits for room for its call.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// How long a connection may take to send its header.
const HEADER_WAIT: Duration = Duration::from_secs(10);
/// How long a write of answers may take.
const WRITE_WAIT: Duration = Duration::from_secs(60);

/// An answer: its message, encoded, and its cells.
#[derive(Debug, Default)]
pub struct Answer {
    message: Vec<u8>,
    cells: Vec<u8>,
}

impl Answer {
    /// An answer of a message alone.
    #[must_use]
    pub fn of(message: &impl Message) -> Self {
        Self { message: message.encode_to_vec(), cells: Vec::new() }
    }

    /// An answer whose message refers to cells.
    #[must_use]
    pub fn with_cells(message: &impl Message, cells: Vec<u8>) -> Self {
        Self { message: message.encode_to_vec(), cells }
    }
}

/// What a call becomes.
pub type Outcome = Result<Answer, Exception>;

/// What is behind a port.
pub trait Front: Send + Sync + 'static {
    /// What this process knows about the cluster.
    fn discovery(&self) -> Discovery;

    /// Begins a connection.
    ///
    /// # Errors
    /// If the service is not served here.
    fn open(&self, opened: Opened, peer: SocketAddr) -> Result<Arc<dyn Calls>, Exception>;
}

/// A connection's calls.
pub trait Calls: Send + Sync + 'static {
    /// Carries a call out.
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome>;
}

/// Serves a port until it is told to stop.
pub async fn serve(listener: Listener, front: Arc<dyn Front>, stop: CancellationToken) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let room = Arc::new(Semaphore::new(RECEIVING_KIB_MAX as usize));
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        // Over the limit the connection is closed at once: the client backs off and comes back.
        let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
        let (front, room, stop) = (front.clone(), room.clone(), stop.clone());
        terrane_env::task::spawn_named("hbase connection", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = connection(stream, peer, front, room) => {}
            }
            drop(permit);
        });
    }
}

/// An answer on its way out, with what its call occupies.
type Outgoing = (Bytes, Option<OwnedSemaphorePermit>);

async fn connection(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
    peer: SocketAddr,
    front: Arc<dyn Front>,
    room: Arc<Semaphore>,
) {
    let (mut reads, mut writes) = tokio::io::split(stream);
    let (answers, mut queue) = mpsc::channel::<Outgoing>(CALLS_MAX + 1);
    let writer = async move {
        while let Some((bytes, permit)) = queue.recv().await {
            let written = tokio::time::timeout(WRITE_WAIT, writes.write_all(&bytes)).await;
            drop(permit);
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
        }
        writes.shutdown().await.ok();
    };
    let reader = async move {
        let mut link = Link { front, peer, calls: None, answers, units: Arc::new(Semaphore::new(CALLS_MAX)) };
        let (mut connection, mut received) = (Connection::default(), BytesMut::new());
        let mut held: Option<OwnedSemaphorePermit> = None;
        loop {
            while let Some(event) = connection.receive(&mut received) {
                if !link.take(event).await {
                    return;
                }
            }
            if received.len() <= FREE_BYTES {
                held = None;
            } else if !hold(&room, &mut held, received.len()).await {
                return;
            }
            received.reserve(8 << 10);
            let read = async {
                if connection.is_open() {
                    return reads.read_buf(&mut received).await.ok();
                }
                tokio::time::timeout(HEADER_WAIT, reads.read_buf(&mut received)).await.ok()?.ok()
            };
            match read.await {
                None | Some(0) => return,
                Some(_) => {}
            }
        }
    };
    let mut writer = std::pin::pin!(writer);
    // The writer ends when every answer of the reader's calls has left, or when the client takes none any more.
    tokio::select! {
        biased;
        () = reader => writer.await,
        () = &mut writer => {}
    }
}

/// Counts the bytes of an incomplete call; whether there was room in time.
async fn hold(room: &Arc<Semaphore>, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
    let wanted = u32::try_from(bytes >> 10).unwrap_or(RECEIVING_KIB_MAX);
    let more =
        wanted.saturating_sub(held.as_ref().map_or(0, |permit| u32::try_from(permit.num_permits()).unwrap_or(0)));
    if more == 0 {
        return true;
    }
    match tokio::time::timeout(ROOM_WAIT, room.clone().acquire_many_owned(more)).await {
        Ok(Ok(permit)) => {
            match held {
                Some(held) => held.merge(permit),
                None => *held = Some(permit),
            }
            true
        }
        _ => false,
    }
}

/// One connection's way to its calls and back.
struct Link {
    front: Arc<dyn Front>,
    peer: SocketAddr,
    calls: Option<Arc<dyn Calls>>,
    answers: mpsc::Sender<Outgoing>,
    units: Arc<Semaphore>,
}

impl Link {
    /// Whether the connection continues.
    async fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Registry => {
                let frame = match self.front.discovery().registry() {
                    Ok(answer) => encode_answer(NO_CALL, &answer.encode_to_vec(), &[]),
                    Err(exception) => encode_exception(NO_CALL, &exception),
                };
                self.send(frame).await;
                false
            }
            Event::Send(bytes) => self.send(bytes).await,
            Event::Refused(bytes) => {
                self.send(bytes).await;
                false
            }
            Event::Opened(opened) => match self.front.open(opened, self.peer) {
                Ok(calls) => {
                    self.calls = Some(calls);
                    true
                }
                Err(exception) => {
                    self.send(encode_exception(NO_CALL, &exception)).await;
                    false
                }
            },
            Event::Malformed(malformed) => self.send(encode_exception(malformed.call, &malformed.exception)).await,
            Event::Call(call) => self.start(call).await,
        }
    }

    async fn send(&self, bytes: Bytes) -> bool {
        self.answers.send((bytes, None)).await.is_ok()
    }

    async fn start(&self, call: Call) -> bool {
        let Some(calls) = self.calls.clone() else { return false };
        let Ok(permit) = self.units.clone().acquire_owned().await else { return false };
        if self.answers.is_closed() {
            return false;
        }
        let answers = self.answers.clone();
        terrane_env::task::spawn_named("hbase call", async move {
            let id = call.id;
            let outcome = calls.carry_out(call).await;
            let frame = match outcome {
                Ok(Answer { message, cells }) => encode_answer(id, &message, &cells),
                Err(exception) => encode_exception(id, &exception),
            };
            answers.send((frame, Some(permit))).await.ok();
        });
        true
    }
}

#[cfg(test)]
mod tests;
