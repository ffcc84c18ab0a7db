//! A port for HBase's clients: connections in, calls to a [`Front`], answers out in the order in which they are ready.
//!
//! One task reads a connection and one writes it (`answers`). A small call that asks the data path one thing is begun where it
//! is read and answered where it is written; calls that arrive together are begun together. Every other call runs in a task of
//! its own. Cell blocks are decompressed and compressed here; what is behind the port sees plain ones.
//!
//! What clients may hold is limited by the rule of all ports (`env::net`, `limits`): connections, calls that have not arrived
//! whole, calls that are not answered, and answers that are not read. A call holds a permit of its connection until its answer
//! has been written, and a connection whose answers are unread gets no further calls, so a client that does not read is soon
//! not read from.

mod answers;
mod limits;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use futures::future::BoxFuture;
use prost::Message as _;
use terrane_env::budget::{Budget, Share};
use terrane_env::net::{IDLE_MAX, Listener, Unfinished};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use self::answers::{Outgoing, Ticket};
use self::answers::{Sent, write_answers};
pub use self::limits::{Client, Limits};
pub use crate::answer::{Answer, Outcome};
use crate::compression::Compression;
use crate::connection::{Connection, Event, Opened};
use crate::discovery::Discovery;
use crate::exception::{CALL_QUEUE_TOO_BIG, Exception};
use crate::frame::{Call, NO_CALL};
use crate::limits::{BLOCK_BYTES_MAX, CALLS_MAX};

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
/// How often connections without calls are looked for.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is behind a port.
pub trait Front: Send + Sync + 'static {
    /// What this process knows about the cluster.
    fn discovery(&self) -> Discovery;

    /// The same, after asking others for what this process does not know.
    fn discover(&self) -> BoxFuture<'_, Discovery> {
        Box::pin(std::future::ready(self.discovery()))
    }

    /// What clients may hold.
    fn limits(&self) -> &Limits;

    /// Returns when the connections of now are to be closed, so that their clients look where to connect again.
    fn connections_end(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// If the service is not served here.
    fn open(&self, opened: Opened, client: &Client) -> Result<Arc<dyn Calls>, Exception>;
}

/// A connection's calls.
pub trait Calls: Send + Sync + 'static {
    /// Carries a call out, in a task of its own.
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome>;

    /// Begins a call that needs no task of its own. What it asks for starts with [`Calls::start`].
    fn begin(&self, call: Call, ticket: Ticket) -> CallStart {
        CallStart::NeedsTask(call, ticket)
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
pub enum CallStart {
    /// Its answer comes out of [`Calls::poll_answers`].
    Started,
    /// It is answered.
    Answered(Outgoing),
    /// It needs a task of its own.
    NeedsTask(Call, Ticket),
}

/// Serves a port until it is told to stop.
pub async fn serve(listener: Listener, front: Arc<dyn Front>, stop: CancellationToken) {
    let intake = front.limits().intake.clone();
    let mut looks = tokio::time::interval(IDLE_LOOK_EVERY);
    loop {
        let (stream, accepted, address) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = looks.tick() => {
                intake.close_idle(IDLE_MAX);
                continue;
            }
            accepted = listener.accept_admitted(&intake) => accepted,
        };
        let client = Client { address, connection: accepted.clone(), intake: intake.clone() };
        let (front, stop, ends) = (front.clone(), stop.clone(), front.clone());
        terrane_env::task::spawn_named("hbase connection", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = ends.connections_end() => {}
                // It gives way to others.
                () = accepted.closed() => {}
                () = connection(stream, client, front) => {}
            }
        });
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Send + 'static, client: Client, front: Arc<dyn Front>) {
    let (mut reads, writes) = tokio::io::split(stream);
    let (answers, queue) = mpsc::channel(CALLS_MAX + 1);
    let gone = answers.clone();
    let writing = write_answers(writes, queue, client.connection.clone());
    let writer = AbortOnDropHandle::new(terrane_env::task::spawn_named("hbase answers", writing));
    let reader = async move {
        let units = Arc::new(Semaphore::new(CALLS_MAX));
        let decompressed = front.limits().decompressed.clone();
        let mut arrives = Unfinished::new(&client.intake, Some(&client.connection));
        let mut link = Link { front, client, calls: None, compression: None, decompressed, answers, units };
        let (mut connection, mut received) = (Connection::default(), BytesMut::new());
        // All that comes before the first call is one message.
        arrives.begin();
        let mut room_to_read = READ_BYTES_MIN;
        loop {
            let before = received.len();
            while let Some(event) = connection.receive(&mut received) {
                if !link.take(event).await {
                    return;
                }
            }
            link.begin().await;
            if connection.is_open() && received.len() < before {
                arrives.complete();
            }
            if !received.is_empty() && !may_continue(&mut arrives, received.len()).await {
                return;
            }
            received.reserve(room_to_read);
            let offered = received.capacity() - received.len();
            match read(&mut reads, &mut received, &mut arrives).await {
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

/// Counts the bytes of a message that has not arrived whole; whether there was room in time.
pub(crate) async fn may_continue(arrives: &mut Unfinished, bytes: usize) -> bool {
    arrives.has_received(bytes as u64);
    bytes <= FREE_BYTES || (arrives.counted(bytes as u64).await.is_ok() && arrives.may_be_read().await.is_ok())
}

/// Reads more, as long as the message that arrives may take.
pub(crate) async fn read(
    reads: &mut (impl AsyncRead + Unpin),
    received: &mut BytesMut,
    arrives: &mut Unfinished,
) -> Option<usize> {
    let mut reading = pin!(reads.read_buf(received));
    poll_fn(|context| match reading.as_mut().poll(context) {
        Poll::Ready(read) => Poll::Ready(read.ok()),
        Poll::Pending => arrives.poll_patience(context, false).map(|_ended| None),
    })
    .await
}

/// One connection's way to its calls and back.
struct Link {
    front: Arc<dyn Front>,
    client: Client,
    calls: Option<Arc<dyn Calls>>,
    compression: Option<Compression>,
    decompressed: Arc<Budget>,
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
                match self.front.open(opened, &self.client) {
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

    /// Waits until the client has read enough of its answers to get another one.
    async fn until_read(&self) {
        let Client { intake, connection, .. } = &self.client;
        if !intake.has_read(connection) {
            // Calls that were begun have to be started: their answers are among those to be read.
            self.begin().await;
            intake.until_read(connection).await;
        }
    }

    async fn start(&self, call: Call) -> bool {
        let Some(calls) = self.calls.clone() else { return false };
        self.until_read().await;
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
        let bytes = call.parameter.len() + call.cells.len();
        let Some(admitted) = self.client.intake.request(&self.client.connection, bytes as u64) else {
            let text = "the server has as many calls as it has room for; send the request again later";
            return self.send(Outgoing::refusal(call.id, &Exception::new(CALL_QUEUE_TOO_BIG, text))).await;
        };
        let ticket = Ticket::new(call.id, permit, admitted, self.answers.clone());
        let is_small = bytes <= BEGUN_BYTES_MAX;
        let begun = match self.compression {
            None if is_small => calls.begin(call, ticket),
            _ => CallStart::NeedsTask(call, ticket),
        };
        let (call, ticket) = match begun {
            CallStart::Started => return true,
            CallStart::Answered(frame) => return self.send(frame).await,
            CallStart::NeedsTask(call, ticket) => (call, ticket),
        };
        let compressed = self.compression.map(|compression| (compression, self.decompressed.clone()));
        let Client { intake, connection, .. } = self.client.clone();
        terrane_env::task::spawn_named("hbase call", async move {
            // Calls that came together would fill the memory with answers together.
            intake.until_read(&connection).await;
            if connection.is_closed() {
                return;
            }
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
    room: Arc<Budget>,
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
        let (cells, share) = decompressed.await?;
        (call.cells, held) = (cells.into(), share);
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
fn grow(room: &Arc<Budget>, held: &mut Option<Share>, more: usize) -> Result<(), Exception> {
    let grown = match held {
        Some(held) => held.grow(more as u64),
        None => {
            *held = room.try_take(more as u64);
            held.is_some()
        }
    };
    let text = "the server decompresses as many cells as it has room for; send the request again later";
    if grown { Ok(()) } else { Err(Exception::new(CALL_QUEUE_TOO_BIG, text)) }
}

#[cfg(test)]
mod tests;
