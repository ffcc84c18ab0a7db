//! A port for HBase's clients: connections in, calls to a [`Front`], answers out in the order in which they are ready.
//!
//! One task reads a connection and one writes it (`answers`). A small call that asks the data path one thing is begun where it
//! is read and answered where it is written; calls that arrive together are begun together. Every other call runs in a task of
//! its own. What arrives is counted against one budget of the port while it is incomplete; a call holds a permit until its
//! answer has been written, so a client that does not read its answers is soon not read from. Cell blocks are decompressed and
//! compressed here; what is behind the port sees plain ones.

mod answers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::BytesMut;
use futures::future::BoxFuture;
use prost::Message as _;
use terrane_env::net::Listener;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use self::answers::{Outgoing, Ticket};
use self::answers::{Sent, write_answers};
pub use crate::answer::{Answer, Outcome};
use crate::compression::{BLOCK_BYTES_MAX, Compression};
use crate::connection::{Connection, Event, Opened};
use crate::discovery::Discovery;
use crate::exception::{CALL_QUEUE_TOO_BIG, Exception};
use crate::frame::{Call, NO_CALL};

/// Most connections of a port.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Most calls of one connection whose answers have not left.
pub const CALLS_MAX: usize = 256;
/// Most KiB of calls of a port that have not arrived whole.
const RECEIVING_KIB_MAX: u32 = 256 << 10;
/// Most KiB of cell blocks of a port that are decompressed and whose calls run.
const DECOMPRESSED_KIB_MAX: u32 = 256 << 10;
/// Largest cell block that is decompressed or compressed on a thread of the runtime. It takes well below a millisecond,
/// unless it is made to expand.
const IN_PLACE_BYTES_MAX: usize = 32 << 10;
/// How much of a call a connection receives without counting it.
const FREE_BYTES: usize = 64 << 10;
/// Bytes that a connection makes room for before it reads: the least, which an idle connection keeps, and the most.
const READ_BYTES_MIN: usize = 4 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// Largest call that is begun in the task that reads the connection: the calls behind it wait meanwhile.
const BEGUN_BYTES_MAX: usize = 64 << 10;
/// How long a connection waits for room for its call.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// How long a connection may take to send its header.
const HEADER_WAIT: Duration = Duration::from_secs(10);

/// What is behind a port.
pub trait Front: Send + Sync + 'static {
    /// What this process knows about the cluster.
    fn discovery(&self) -> Discovery;

    /// The same, after asking others for what this process does not know.
    fn discover(&self) -> BoxFuture<'_, Discovery> {
        Box::pin(std::future::ready(self.discovery()))
    }

    /// Returns when the connections of now are to be closed, so that their clients look where to connect again.
    fn connections_end(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// If the service is not served here.
    fn open(&self, opened: Opened, peer: SocketAddr) -> Result<Arc<dyn Calls>, Exception>;
}

/// A connection's calls.
pub trait Calls: Send + Sync + 'static {
    /// Carries a call out, in a task of its own.
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome>;

    /// Begins a call that needs no task of its own. What it asks for starts with [`Calls::start`].
    fn begin(&self, call: Call, ticket: Ticket) -> Begun {
        Begun::NeedsTask(call, ticket)
    }

    /// Starts what was begun. Waits while as much is under way as may be.
    fn start(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Takes the answers of calls that were begun, as many as are ready; the task that polls is woken when more are.
    fn poll_answers(self: Arc<Self>, _context: &mut Context<'_>, _ready: &mut Vec<Outgoing>) {}

    /// The client takes no answers any more.
    fn close(&self) {}
}

/// What became of a call that was to begin.
pub enum Begun {
    /// Its answer comes out of [`Calls::poll_answers`].
    Started,
    /// It is answered.
    Answered(Outgoing),
    /// It needs a task of its own.
    NeedsTask(Call, Ticket),
}

/// Serves a port until it is told to stop.
pub async fn serve(listener: Listener, front: Arc<dyn Front>, stop: CancellationToken) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let room = Room::default();
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        // Over the limit the connection is closed at once: the client backs off and comes back.
        let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
        let (front, room, stop, ends) = (front.clone(), room.clone(), stop.clone(), front.clone());
        terrane_env::task::spawn_named("hbase connection", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = ends.connections_end() => {}
                () = connection(stream, peer, front, room) => {}
            }
            drop(permit);
        });
    }
}

/// What the calls of a port may occupy together.
#[derive(Clone)]
struct Room {
    /// KiB of calls that have not arrived whole.
    receiving: Arc<Semaphore>,
    /// KiB of decompressed cell blocks.
    decompressed: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        let kib = |most: u32| Arc::new(Semaphore::new(most as usize));
        Self { receiving: kib(RECEIVING_KIB_MAX), decompressed: kib(DECOMPRESSED_KIB_MAX) }
    }
}

async fn connection(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
    peer: SocketAddr,
    front: Arc<dyn Front>,
    room: Room,
) {
    let (mut reads, writes) = tokio::io::split(stream);
    let (answers, queue) = mpsc::channel(CALLS_MAX + 1);
    let gone = answers.clone();
    let writer = terrane_env::task::spawn_named("hbase answers", write_answers(writes, queue));
    let writer = AbortOnDropHandle::new(writer);
    let reader = async move {
        let receiving = room.receiving.clone();
        let units = Arc::new(Semaphore::new(CALLS_MAX));
        let mut link = Link { front, peer, calls: None, compression: None, room, answers, units };
        let (mut connection, mut received) = (Connection::default(), BytesMut::new());
        let mut held: Option<OwnedSemaphorePermit> = None;
        let mut room_to_read = READ_BYTES_MIN;
        loop {
            while let Some(event) = connection.receive(&mut received) {
                if !link.take(event).await {
                    return;
                }
            }
            link.begin().await;
            if received.len() <= FREE_BYTES {
                held = None;
            } else if !hold(&receiving, &mut held, received.len()).await {
                return;
            }
            received.reserve(room_to_read);
            let offered = received.capacity() - received.len();
            let read = async {
                if connection.is_open() {
                    return reads.read_buf(&mut received).await.ok();
                }
                tokio::time::timeout(HEADER_WAIT, reads.read_buf(&mut received)).await.ok()?.ok()
            };
            match read.await {
                None | Some(0) => return,
                // A client that fills the buffer sends more than that at a time.
                Some(bytes) if bytes == offered => room_to_read = (room_to_read * 4).min(READ_BYTES_MAX),
                Some(bytes) if bytes < room_to_read / 4 => room_to_read = READ_BYTES_MIN,
                Some(_) => {}
            }
        }
    };
    tokio::select! {
        biased;
        () = reader => {}
        // The client takes no answers any more.
        () = gone.closed() => {}
    }
    drop(gone);
    // The writer ends when every answer of the reader's calls has left. A panic of it has been reported.
    writer.await.ok();
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
    compression: Option<Compression>,
    room: Room,
    answers: mpsc::Sender<Sent>,
    units: Arc<Semaphore>,
}

impl Link {
    /// Whether the connection continues.
    async fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Registry => {
                let frame = match self.front.discovery().registry() {
                    Ok(answer) => Outgoing::message(&answer.encode_to_vec()),
                    Err(exception) => Outgoing::refusal(NO_CALL, &exception),
                };
                self.send(frame).await;
                false
            }
            Event::Send(bytes) => self.send(Outgoing::bytes(bytes)).await,
            Event::Refused(bytes) => {
                self.send(Outgoing::bytes(bytes)).await;
                false
            }
            Event::Opened(opened) => {
                self.compression = opened.compression;
                match self.front.open(opened, self.peer) {
                    Ok(calls) => {
                        self.calls = Some(calls.clone());
                        self.answers.send(Sent::Opened(calls)).await.is_ok()
                    }
                    Err(exception) => {
                        self.send(Outgoing::refusal(NO_CALL, &exception)).await;
                        false
                    }
                }
            }
            Event::Malformed(malformed) => self.send(Outgoing::refusal(malformed.call, &malformed.exception)).await,
            Event::Call(call) => self.start(call).await,
        }
    }

    async fn send(&self, frame: Outgoing) -> bool {
        self.answers.send(Sent::Frame(frame)).await.is_ok()
    }

    /// Starts what the calls so far ask for.
    async fn begin(&self) {
        if let Some(calls) = &self.calls {
            calls.start().await;
        }
    }

    async fn start(&self, call: Call) -> bool {
        let Some(calls) = self.calls.clone() else { return false };
        let permit = match self.units.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                // Calls that were begun hold some, and must be started to be answered.
                self.begin().await;
                let Ok(permit) = self.units.clone().acquire_owned().await else { return false };
                permit
            }
        };
        if self.answers.is_closed() {
            return false;
        }
        let ticket = Ticket::new(call.id, permit, self.answers.clone());
        let is_small = call.parameter.len() + call.cells.len() <= BEGUN_BYTES_MAX;
        let begun = match self.compression {
            None if is_small => calls.begin(call, ticket),
            _ => Begun::NeedsTask(call, ticket),
        };
        let (call, ticket) = match begun {
            Begun::Started => return true,
            Begun::Answered(frame) => return self.send(frame).await,
            Begun::NeedsTask(call, ticket) => (call, ticket),
        };
        let compressed = self.compression.map(|compression| (compression, self.room.decompressed.clone()));
        terrane_env::task::spawn_named("hbase call", async move {
            let outcome = match compressed {
                None => calls.carry_out(call).await,
                Some((compression, room)) => carry_out_compressed(calls, call, compression, room).await,
            };
            ticket.send(outcome).await;
        });
        true
    }
}

/// Carries a call of a connection with compressed cell blocks out.
async fn carry_out_compressed(
    calls: Arc<dyn Calls>,
    mut call: Call,
    compression: Compression,
    room: Arc<Semaphore>,
) -> Outcome {
    // Held until the answer is there.
    let mut held = None;
    if !call.cells.is_empty() {
        let cells = std::mem::take(&mut call.cells);
        let decompressed = in_place_or_apart(cells.len(), move || {
            let mut held = None;
            let cells = compression.decompress(&cells, BLOCK_BYTES_MAX, |more| grow(&room, &mut held, more))?;
            Ok((cells, held))
        });
        let (cells, permit) = decompressed.await?;
        (call.cells, held) = (cells.into(), permit);
    }
    let mut answer = calls.carry_out(call).await?;
    drop(held);
    if !answer.cells.is_empty() {
        let cells = std::mem::take(&mut answer.cells);
        answer.cells = in_place_or_apart(cells.len(), move || compression.compress(&cells)).await;
    }
    Ok(answer)
}

/// Runs a step over a cell block of so many bytes, a large one off the threads of the runtime.
async fn in_place_or_apart<T: Send + 'static>(bytes: usize, step: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= IN_PLACE_BYTES_MAX { step() } else { terrane_env::task::run_read(step).await }
}

/// Counts more decompressed bytes, if there is room: a call that waited for more while it holds some could wait for itself.
fn grow(room: &Arc<Semaphore>, held: &mut Option<Decompressed>, more: usize) -> Result<(), Exception> {
    let held = held.get_or_insert_default();
    held.bytes += more;
    let wanted = held.bytes.div_ceil(1 << 10) - held.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let full = || {
        let text = "the server decompresses as many cells as it has room for; send the request again later";
        Exception::new(CALL_QUEUE_TOO_BIG, text)
    };
    let permits = u32::try_from(wanted).map_err(|_| full())?;
    let permit = room.clone().try_acquire_many_owned(permits).map_err(|_| full())?;
    match &mut held.permit {
        Some(held) => held.merge(permit),
        None => held.permit = Some(permit),
    }
    Ok(())
}

/// What the decompressed cells of a call occupy.
#[derive(Default)]
struct Decompressed {
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests;
