//! A writer for many rows: gathers mutations, sends them in batches by itself, and holds its callers back when too much is
//! under way.
//!
//! Callers check their rows and queue them; one task gathers what is queued into batches. A batch goes out when it is full,
//! or when its first row has lingered long enough, so nobody has to flush for rows to get there. Bounds keep memory in
//! hand: of the bytes taken over and not yet answered, and of the batches under way.
//!
//! Invariants:
//! - mutations of one row are applied in the order given, as long as none of them fails: one whose row is under way
//!   waits, and all behind it, until the batch with it is answered;
//! - a row that fails is told: to the holder of its receipt, or else to the next flush;
//! - a flush answers when every row given before it is answered.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::api::table::Table;
use crate::deadline::after;
use crate::error::{Error, RowError};
use crate::wire::mutate::RowWrite;
use crate::write::operations::{Delete, Put};
use crate::write::outcome::MutationOutcome;
use crate::write::row_mutation::RowMutation;

/// Rows queued between the callers and the task that gathers them.
const QUEUE_ROWS: usize = 1024;
const RUNTIME_GONE: &str = "the writer's runtime was shut down";
/// What a row takes besides its own bytes.
const ROW_OVERHEAD_BYTES: usize = 256;

/// Bounds of a [`BatchWriter`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Bytes after which a batch is sent. 512 KiB if not set.
    pub batch_bytes: usize,
    /// Rows after which a batch is sent. 4096 if not set.
    pub batch_rows: usize,
    /// How long the first row of a batch waits for others, before the batch is sent as it is. 5 ms if not set; zero
    /// sends whenever another batch may go.
    pub linger: Duration,
    /// Batches under way at once. 8 if not set.
    pub batches_in_flight: usize,
    /// Bytes taken over and not yet answered; callers wait when there are more. A single larger row travels alone. 64 MiB
    /// if not set.
    pub memory_bytes: usize,
    /// Failed rows remembered until [`BatchWriter::flush`]; callers are told at once when there are more. 10,000 if
    /// not set.
    pub errors_max: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            batch_bytes: 512 << 10,
            batch_rows: 4096,
            linger: Duration::from_millis(5),
            batches_in_flight: 8,
            memory_bytes: 64 << 20,
            errors_max: 10_000,
        }
    }
}

macro_rules! with {
    ($($field:ident $kind:ty, $words:literal;)*) => {
        impl WriterOptions {
            $(
                #[doc = concat!("The same bounds with ", $words, ".")]
                #[must_use]
                pub const fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

with! {
    batch_bytes usize, "another number of bytes in a batch";
    batch_rows usize, "another number of rows in a batch";
    linger Duration, "another time that a batch waits to be full";
    batches_in_flight usize, "another number of batches under way at once";
    memory_bytes usize, "another number of bytes not yet answered";
    errors_max usize, "another number of failed rows remembered";
}

/// Rows that were given to a writer and not written, or whose outcome is not known.
#[derive(Clone, Debug, thiserror::Error)]
pub struct FlushError {
    /// The rows that failed, each with its reason. Those with a receipt are told by it, and not here.
    pub rows: Vec<RowError>,
    /// How many rows were under way when the writer's runtime was shut down: written or not, nobody knows.
    pub unknown: u64,
    #[source]
    first: Option<Error>,
}

impl FlushError {
    fn new(rows: Vec<RowError>, unknown: u64) -> Self {
        let first = rows.first().map(|row| row.error.clone());
        Self { rows, unknown, first }
    }
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = self.rows.first() {
            write!(f, "{} rows were not written; the first: {first}", self.rows.len())?;
        }
        match (self.unknown, self.rows.is_empty()) {
            (0, _) => Ok(()),
            (unknown, true) => write!(f, "the outcome of {unknown} rows is not known: {RUNTIME_GONE}"),
            (unknown, false) => write!(f, "; the outcome of {unknown} more is not known: {RUNTIME_GONE}"),
        }
    }
}

/// Writes many rows of one table in batches. Cheap to clone; clones share the batches.
///
/// **Durability**: [`BatchWriter::put`] only takes a row over. When [`BatchWriter::flush`] or [`BatchWriter::close`]
/// returns `Ok`, or a [`Receipt`] says so, a quorum of servers has the row on disk. What a writer holds when its last
/// clone is dropped is still sent, as long as the runtime lives, and errors are only logged: close it.
/// **Retry safety**: as for [`Table::put`], for each row by itself.
///
/// ```no_run
/// # async fn run(table: terrane_client::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use terrane_client::{Put, WriterOptions};
/// let writer = table.writer(WriterOptions::default());
/// for i in 0..100_000u64 {
///     writer.put(Put::new(i.to_be_bytes()).set("f", "q", "value")).await?;
/// }
/// let receipt = writer.submit(Put::new("last").set("f", "q", "value")).await?;
/// println!("written at {}", receipt.await?.stamp_ms);
/// writer.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct BatchWriter {
    table: Table,
    shared: Arc<Shared>,
    queue: mpsc::Sender<Message>,
}

/// What callers and the gathering task share.
struct Shared {
    options: WriterOptions,
    /// A permit per byte that may be taken over.
    memory: Semaphore,
    failed: Mutex<Vec<RowError>>,
    written: AtomicU64,
    /// Rows taken over and not answered.
    unanswered: AtomicU64,
    /// Held while a row is queued, so that every row taken over stands in the queue before the flush of a close.
    closed: Mutex<bool>,
}

#[expect(clippy::large_enum_variant, reason = "almost every message is a row")]
enum Message {
    Row(Item),
    /// Answered when all rows before it are.
    Flush(oneshot::Sender<()>),
}

struct Item {
    row: RowWrite,
    keeps: Keeps,
}

/// What is kept of a row while it is under way.
struct Keeps {
    row: Bytes,
    hash: u64,
    /// Permits it holds.
    bytes: u32,
    receipt: Option<ReceiptSender>,
}

type ReceiptSender = oneshot::Sender<Result<MutationOutcome, Error>>;

/// The answer to one row of a writer, to be awaited or dropped.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Result<MutationOutcome, Error>>);

impl Future for Receipt {
    type Output = Result<MutationOutcome, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let gone = || Err(Error::Uncertain { cause: RUNTIME_GONE.to_owned() });
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or_else(|_| gone()))
    }
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter")
            .field("table", &self.table)
            .field("options", &self.shared.options)
            .field("bytes_free", &self.shared.memory.available_permits())
            .finish()
    }
}

impl BatchWriter {
    pub(crate) fn new(table: Table, options: WriterOptions) -> Self {
        let (queue, queued) = mpsc::channel(QUEUE_ROWS);
        let WriterOptions { batch_bytes, batch_rows, batches_in_flight, .. } = options;
        // A batch holds something, and some batch may go.
        let options = options.batch_bytes(batch_bytes.max(1)).batch_rows(batch_rows.max(1));
        let options = options.batches_in_flight(batches_in_flight.max(1));
        let shared = Arc::new(Shared {
            options,
            memory: Semaphore::new(options.memory_bytes.clamp(1, Semaphore::MAX_PERMITS)),
            failed: Mutex::default(),
            written: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            closed: Mutex::new(false),
        });
        let gatherer = Gatherer {
            table: table.clone(),
            shared: Arc::clone(&shared),
            queued,
            incoming: VecDeque::new(),
            gathered: Vec::new(),
            keeps: Vec::new(),
            bytes: 0,
            due: None,
            sent: JoinSet::new(),
            busy: HashSet::new(),
            flushes: Vec::new(),
            ended: false,
        };
        terrane_env::task::spawn_named("batch writer", gatherer.run());
        Self { table, shared, queue }
    }

    /// Takes a put over. Waits while the writer holds as much as it may.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a put outside the limits, which is then not taken. [`Error::Closed`]. When very many rows
    /// have failed, their first error: [`BatchWriter::flush`] names them all.
    pub async fn put(&self, put: Put) -> Result<(), Error> {
        self.mutate(put).await
    }

    /// Takes a delete over. Waits while the writer holds as much as it may.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`].
    pub async fn delete(&self, delete: Delete) -> Result<(), Error> {
        self.mutate(delete).await
    }

    /// Takes a mutation over. Waits while the writer holds as much as it may.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`].
    pub async fn mutate(&self, mutation: impl Into<RowMutation>) -> Result<(), Error> {
        self.queue(mutation.into(), None).await
    }

    /// Takes a mutation over and answers a receipt, which tells what became of it. A failure is told by the receipt alone,
    /// and not by a flush.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`].
    pub async fn submit(&self, mutation: impl Into<RowMutation>) -> Result<Receipt, Error> {
        let (sender, receiver) = oneshot::channel();
        self.queue(mutation.into(), Some(sender)).await?;
        Ok(Receipt(receiver))
    }

    async fn queue(&self, mutation: RowMutation, receipt: Option<ReceiptSender>) -> Result<(), Error> {
        let row = self.table.prepare(mutation).await?;
        if receipt.is_none() {
            self.too_many_failed()?;
        }
        let most = u32::try_from(self.shared.options.memory_bytes.max(1)).unwrap_or(u32::MAX);
        let size = row.size_bytes() + ROW_OVERHEAD_BYTES;
        let bytes = u32::try_from(size).unwrap_or(u32::MAX).min(most);
        let permits = self.shared.memory.acquire_many(bytes).await.map_err(|_| closed())?;
        let slot = self.queue.reserve().await.map_err(|_| closed())?;
        let keeps = Keeps { row: row.row.clone(), hash: hash_of(&row.row), bytes, receipt };
        let ended = self.shared.closed.lock();
        if *ended {
            return Err(closed());
        }
        self.shared.unanswered.fetch_add(1, Ordering::Relaxed);
        slot.send(Message::Row(Item { row, keeps }));
        drop(ended);
        // Given back when the row is answered.
        permits.forget();
        Ok(())
    }

    fn too_many_failed(&self) -> Result<(), Error> {
        let failed = self.shared.failed.lock();
        match failed.first().filter(|_| failed.len() >= self.shared.options.errors_max) {
            Some(row) => Err(row.error.clone()),
            None => Ok(()),
        }
    }

    /// Sends what was gathered and waits until everything given so far is answered.
    ///
    /// # Errors
    /// The rows without a receipt that failed since the last flush, each with its reason. The others are written.
    pub async fn flush(&self) -> Result<(), FlushError> {
        let (done, flushed) = oneshot::channel();
        let told = self.queue.send(Message::Flush(done)).await.is_ok() && flushed.await.is_ok();
        let failed = std::mem::take(&mut *self.shared.failed.lock());
        // The task is gone, and what it had with it.
        let unknown = if told { 0 } else { self.shared.unanswered.swap(0, Ordering::Relaxed) };
        if failed.is_empty() && unknown == 0 { Ok(()) } else { Err(FlushError::new(failed, unknown)) }
    }

    /// Flushes and ends the writer and its clones: rows given to them later are refused with [`Error::Closed`].
    ///
    /// # Errors
    /// As for [`BatchWriter::flush`].
    pub async fn close(self) -> Result<(), FlushError> {
        *self.shared.closed.lock() = true;
        self.flush().await
    }

    /// Rows acknowledged so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }
}

fn closed() -> Error {
    Error::Closed { what: "the writer".to_owned() }
}

/// The task behind a writer.
struct Gatherer {
    table: Table,
    shared: Arc<Shared>,
    queued: mpsc::Receiver<Message>,
    /// Taken from the queue and not looked at yet.
    incoming: VecDeque<Message>,
    gathered: Vec<RowWrite>,
    /// Of each gathered row.
    keeps: Vec<Keeps>,
    bytes: usize,
    /// When what is gathered goes out, full or not; `None` when nothing is.
    due: Option<Instant>,
    /// Batches under way; each answers the hashes of its rows.
    sent: JoinSet<Vec<u64>>,
    /// Rows under way, by hash. Two rows that share one wait for each other without need.
    busy: HashSet<u64>,
    /// Callers that wait until nothing is under way; nothing more is taken in until then.
    flushes: Vec<oneshot::Sender<()>>,
    /// Whether all writers are gone.
    ended: bool,
}

impl Gatherer {
    async fn run(mut self) {
        loop {
            self.gather();
            let due = self.ended || !self.flushes.is_empty() || self.due.is_some_and(|due| due <= Instant::now());
            let may_send = self.sent.len() < self.shared.options.batches_in_flight;
            if !self.gathered.is_empty() && may_send && (due || self.is_full()) {
                self.send();
                continue;
            }
            if self.gathered.is_empty() && self.sent.is_empty() {
                if !self.flushes.is_empty() {
                    for flush in self.flushes.drain(..) {
                        // A caller that has gone wants no answer.
                        let _ = flush.send(());
                    }
                    continue;
                }
                if self.ended && self.incoming.is_empty() {
                    break;
                }
            }
            self.wait(may_send).await;
        }
        let failed = self.shared.failed.lock();
        if let Some(first) = failed.first() {
            tracing::warn!(rows = failed.len(), %first, "a writer was dropped before it told which rows failed");
        }
    }

    /// Waits until there is something new to do: rows, answers, or a batch that has lingered long enough.
    async fn wait(&mut self, may_send: bool) {
        let takes = self.incoming.is_empty() && !self.ended && !self.is_full();
        let lingers = self.due.filter(|_| may_send);
        let mut messages = Vec::new();
        tokio::select! {
            biased;
            Some(answered) = self.sent.join_next(), if !self.sent.is_empty() => {
                let hashes = answered.expect("batches are not aborted while the writer's task lives, and do not panic");
                hashes.iter().for_each(|hash| {
                    self.busy.remove(hash);
                });
            }
            count = self.queued.recv_many(&mut messages, QUEUE_ROWS), if takes => {
                self.ended = count == 0;
                self.incoming.extend(messages);
            }
            () = sleep_until(lingers.unwrap_or_else(Instant::now)), if lingers.is_some() => {}
        }
    }

    /// Takes in rows up to a full batch, one that has to wait for its row, or a flush.
    fn gather(&mut self) {
        while self.flushes.is_empty() && !self.is_full() {
            match self.incoming.pop_front() {
                Some(Message::Row(item)) if self.busy.contains(&item.keeps.hash) => {
                    self.incoming.push_front(Message::Row(item));
                    // What it waits for must not wait for others.
                    return;
                }
                Some(Message::Row(item)) => {
                    self.due.get_or_insert_with(|| after(self.shared.options.linger));
                    self.bytes += item.row.size_bytes();
                    self.gathered.push(item.row);
                    self.keeps.push(item.keeps);
                }
                Some(Message::Flush(done)) => self.flushes.push(done),
                None => return,
            }
        }
    }

    fn is_full(&self) -> bool {
        let options = &self.shared.options;
        self.bytes >= options.batch_bytes || self.gathered.len() >= options.batch_rows
    }

    fn send(&mut self) {
        // The next batch will be about as large: its memory is taken once.
        let room = self.gathered.len();
        let rows = std::mem::replace(&mut self.gathered, Vec::with_capacity(room));
        let keeps = std::mem::replace(&mut self.keeps, Vec::with_capacity(room));
        self.bytes = 0;
        self.due = None;
        self.busy.extend(keeps.iter().map(|row| row.hash));
        self.sent.spawn(send_batch(self.table.clone(), Arc::clone(&self.shared), rows, keeps));
    }
}

/// Sends a batch and tells what became of its rows.
async fn send_batch(table: Table, shared: Arc<Shared>, rows: Vec<RowWrite>, keeps: Vec<Keeps>) -> Vec<u64> {
    let mut sent = table.write_prepared(rows, table.timeout).await;
    let mut failed = Vec::new();
    let (mut written, mut bytes) = (0, 0);
    let mut hashes = Vec::with_capacity(keeps.len());
    for (index, Keeps { row, hash, bytes: permits, receipt }) in keeps.into_iter().enumerate() {
        hashes.push(hash);
        bytes += permits as usize;
        written += u64::from(!sent.has_failed(index));
        if let Some(receipt) = receipt {
            // A holder who dropped the receipt does not want to know.
            let _ = receipt.send(sent.take(index));
        } else if sent.has_failed(index)
            && let Err(error) = sent.take(index)
        {
            failed.push(RowError { row, error });
        }
    }
    shared.written.fetch_add(written, Ordering::Relaxed);
    if !failed.is_empty() {
        shared.failed.lock().extend(failed);
    }
    shared.unanswered.fetch_sub(hashes.len() as u64, Ordering::Relaxed);
    shared.memory.add_permits(bytes);
    hashes
}

fn hash_of(row: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.hash(&mut hasher);
    hasher.finish()
}
