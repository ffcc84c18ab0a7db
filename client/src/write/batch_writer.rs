//! A writer for many rows: collects mutations, sends them in batches in the background, and applies back-pressure when too many
//! are in flight.
//!
//! Callers check their rows and queue them; one task collects them into batches. A batch is sent when it is full, or when its
//! first row has waited long enough, so rows arrive without a flush. Bounds on the unanswered bytes and on the batches in
//! flight limit the memory.
//!
//! Invariants:
//! - mutations of one row are applied in the order given while none of them fails: a mutation whose row is in flight waits,
//!   with all mutations after it, until that batch is answered;
//! - a failure of a row is reported once: through its receipt, or else by the next flush;
//! - a flush returns when every row given before it is answered.

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

/// Rows queued between the callers and the writer's task.
const QUEUE_ROWS: usize = 1024;
const RUNTIME_GONE: &str = "the writer's runtime was shut down";
/// The memory of a row in addition to its own bytes.
const ROW_OVERHEAD_BYTES: usize = 256;

/// Bounds of a [`BatchWriter`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// A batch is sent when it has this many bytes. 512 KiB by default.
    pub batch_bytes: usize,
    /// A batch is sent when it has this many rows. 4096 by default.
    pub batch_rows: usize,
    /// How long the first row of a batch waits for others before the batch is sent. 5 ms by default; zero sends as soon as
    /// another batch may be in flight.
    pub linger: Duration,
    /// Batches in flight at once. 8 by default.
    pub batches_in_flight: usize,
    /// Bytes accepted and not yet answered; callers wait when there are more. A larger row travels alone. 64 MiB by
    /// default.
    pub memory_bytes: usize,
    /// Failed rows kept for [`BatchWriter::flush`]; when there are more, callers get the first error at once. 10,000 by
    /// default.
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
    linger Duration, "another time for which a batch waits for more rows";
    batches_in_flight usize, "another number of batches in flight at once";
    memory_bytes usize, "another number of bytes not yet answered";
    errors_max usize, "another number of failed rows kept";
}

/// Rows that a writer has not written, or whose outcome is unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub struct FlushError {
    /// The rows that failed, each with its error. Rows with a receipt are not among them.
    pub rows: Vec<RowError>,
    /// The number of rows in flight when the writer's runtime was shut down: their outcome is unknown.
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
            (unknown, true) => write!(f, "the outcome of {unknown} rows is unknown: {RUNTIME_GONE}"),
            (unknown, false) => write!(f, "; the outcome of {unknown} more is unknown: {RUNTIME_GONE}"),
        }
    }
}

/// Writes many rows of one table in batches: what a `BufferedMutator` is in HBase and an `Appender` in other databases. Cheap to
/// clone; clones share the batches.
///
/// A batch is sent when it has [`WriterOptions::batch_rows`] rows or [`WriterOptions::batch_bytes`] bytes, when its first row has
/// waited for [`WriterOptions::linger`], or at a flush. Callers wait while [`WriterOptions::memory_bytes`] are not answered.
///
/// **Durability**: [`BatchWriter::put`] only accepts a row. When [`BatchWriter::flush`] or [`BatchWriter::close`] returns `Ok`, or
/// a [`Receipt`] does, a quorum of servers has the row on disk.
///
/// **What can be lost**: rows that were accepted and not flushed. If the process ends, each of them may be written or not. If the
/// last clone is dropped without [`BatchWriter::close`], its rows are still sent while the runtime lives, but errors are only
/// logged. If the runtime is shut down, [`FlushError::unknown`] counts the rows without an outcome. Nothing that a flush reported
/// as written is lost.
///
/// **Errors** are per row: a row that fails does not affect the others. Its receipt has the error, or else the next flush, with
/// the row's key.
///
/// **Retry safety**: as for [`Table::put`], for each row: the writer itself repeats a row until the timeout of its table handle, and
/// it is applied once.
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

/// What callers and the writer's task share.
struct Shared {
    options: WriterOptions,
    /// A permit per byte that may be accepted.
    memory: Semaphore,
    failed: Mutex<Vec<RowError>>,
    written: AtomicU64,
    /// Rows accepted and not answered.
    unanswered: AtomicU64,
    /// Held while a row is queued, so that every accepted row is in the queue before the flush of a close.
    closed: Mutex<bool>,
}

enum Message {
    Row(Item),
    /// Answered when all rows before it are answered.
    Flush(oneshot::Sender<()>),
}

struct Item {
    row: RowWrite,
    in_flight: RowInFlight,
}

/// What is kept of a row while it is in flight.
struct RowInFlight {
    row: Bytes,
    hash: u64,
    /// The permits it holds.
    bytes: u32,
    receipt: Option<ReceiptSender>,
}

type ReceiptSender = oneshot::Sender<Result<MutationOutcome, Error>>;

/// The outcome of one row of a writer, to await or drop.
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
        // At least one row per batch, and one batch in flight.
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
        let collector = Collector {
            table: table.clone(),
            shared: Arc::clone(&shared),
            queued,
            incoming: VecDeque::new(),
            collected: Vec::new(),
            in_flight: Vec::new(),
            bytes: 0,
            due: None,
            sent: JoinSet::new(),
            busy: HashSet::new(),
            flushes: Vec::new(),
            ended: false,
        };
        terrane_env::task::spawn_named("batch writer", collector.run());
        Self { table, shared, queue }
    }

    /// Accepts a put. Waits while the writer's memory is full.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a put outside the limits, which is not accepted. [`Error::Closed`]. When more than
    /// [`WriterOptions::errors_max`] rows have failed, the first error: [`BatchWriter::flush`] returns them all.
    pub async fn put(&self, put: Put) -> Result<(), Error> {
        self.mutate(put).await
    }

    /// Accepts a delete; a row key alone deletes the whole row. Waits while the writer's memory is full.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`].
    pub async fn delete(&self, delete: impl Into<Delete>) -> Result<(), Error> {
        self.mutate(delete.into()).await
    }

    /// Accepts a mutation. Waits while the writer's memory is full.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`].
    pub async fn mutate(&self, mutation: impl Into<RowMutation>) -> Result<(), Error> {
        self.queue(mutation.into(), None).await
    }

    /// Accepts a mutation and returns a receipt, which resolves to its outcome. Only the receipt reports a failure, not a
    /// flush.
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
        let in_flight = RowInFlight { row: row.row.clone(), hash: hash_of(&row.row), bytes, receipt };
        let ended = self.shared.closed.lock();
        if *ended {
            return Err(closed());
        }
        self.shared.unanswered.fetch_add(1, Ordering::Relaxed);
        slot.send(Message::Row(Item { row, in_flight }));
        drop(ended);
        // Added again when the row is answered.
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

    /// Sends what is collected, and waits until everything given so far is answered.
    ///
    /// # Errors
    /// The rows without a receipt that failed since the last flush, each with its error. All others are written.
    pub async fn flush(&self) -> Result<(), FlushError> {
        let (done, flushed) = oneshot::channel();
        let flushed_all = self.queue.send(Message::Flush(done)).await.is_ok() && flushed.await.is_ok();
        let failed = std::mem::take(&mut *self.shared.failed.lock());
        // Otherwise the task is gone, with the rows it had.
        let unknown = if flushed_all { 0 } else { self.shared.unanswered.swap(0, Ordering::Relaxed) };
        if failed.is_empty() && unknown == 0 { Ok(()) } else { Err(FlushError::new(failed, unknown)) }
    }

    /// Flushes, and closes the writer and its clones: they refuse later rows with [`Error::Closed`].
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

/// The task of a writer.
struct Collector {
    table: Table,
    shared: Arc<Shared>,
    queued: mpsc::Receiver<Message>,
    /// Taken from the queue and not collected yet.
    incoming: VecDeque<Message>,
    collected: Vec<RowWrite>,
    /// What is kept of each collected row.
    in_flight: Vec<RowInFlight>,
    bytes: usize,
    /// When the collected rows are sent, full batch or not; `None` without rows.
    due: Option<Instant>,
    /// Batches in flight; each returns the hashes of its rows.
    sent: JoinSet<Vec<u64>>,
    /// Rows in flight, by hash. Two rows with the same hash wait for each other without need.
    busy: HashSet<u64>,
    /// Flushes that wait until nothing is in flight; no more rows are collected until then.
    flushes: Vec<oneshot::Sender<()>>,
    /// Whether all writers are gone.
    ended: bool,
}

impl Collector {
    async fn run(mut self) {
        loop {
            self.collect();
            let due = self.ended || !self.flushes.is_empty() || self.due.is_some_and(|due| due <= Instant::now());
            let may_send = self.sent.len() < self.shared.options.batches_in_flight;
            if !self.collected.is_empty() && may_send && (due || self.is_full()) {
                self.send();
                continue;
            }
            if self.collected.is_empty() && self.sent.is_empty() {
                if !self.flushes.is_empty() {
                    assert!(self.busy.is_empty(), "a flush would be answered although rows are in flight");
                    for flush in self.flushes.drain(..) {
                        // The caller may have left.
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
            tracing::warn!(rows = failed.len(), %first, "a writer was dropped before a flush reported which rows failed");
        }
    }

    /// Waits for something to do: rows, answers, or a batch that has waited long enough.
    async fn wait(&mut self, may_send: bool) {
        let takes = self.incoming.is_empty() && !self.ended && !self.is_full();
        let lingers = self.due.filter(|_| may_send);
        let mut messages = Vec::new();
        tokio::select! {
            biased;
            Some(answered) = self.sent.join_next(), if !self.sent.is_empty() => {
                let hashes = answered.expect("a batch is not aborted while the writer's task lives, and does not panic");
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

    /// Collects rows up to a full batch, a row that must wait, or a flush.
    fn collect(&mut self) {
        while self.flushes.is_empty() && !self.is_full() {
            match self.incoming.pop_front() {
                Some(Message::Row(item)) if self.busy.contains(&item.in_flight.hash) => {
                    self.incoming.push_front(Message::Row(item));
                    // The rows before it are sent, and not held back for a fuller batch.
                    return;
                }
                Some(Message::Row(item)) => {
                    self.due.get_or_insert_with(|| after(self.shared.options.linger));
                    self.bytes += item.row.size_bytes();
                    self.collected.push(item.row);
                    self.in_flight.push(item.in_flight);
                }
                Some(Message::Flush(done)) => self.flushes.push(done),
                None => return,
            }
        }
    }

    fn is_full(&self) -> bool {
        let options = &self.shared.options;
        self.bytes >= options.batch_bytes || self.collected.len() >= options.batch_rows
    }

    fn send(&mut self) {
        // The next batch will be about as large: its memory is allocated once.
        let capacity = self.collected.len();
        let rows = std::mem::replace(&mut self.collected, Vec::with_capacity(capacity));
        let in_flight = std::mem::replace(&mut self.in_flight, Vec::with_capacity(capacity));
        assert_eq!(rows.len(), in_flight.len(), "the outcome of a row would be reported as that of another one");
        debug_assert!(
            in_flight.iter().all(|row| !self.busy.contains(&row.hash)),
            "two changes of a row are in flight at once: the later one may be applied first"
        );
        self.bytes = 0;
        self.due = None;
        self.busy.extend(in_flight.iter().map(|row| row.hash));
        self.sent.spawn(send_batch(self.table.clone(), Arc::clone(&self.shared), rows, in_flight));
    }
}

/// Sends a batch and reports the outcomes of its rows.
async fn send_batch(table: Table, shared: Arc<Shared>, rows: Vec<RowWrite>, in_flight: Vec<RowInFlight>) -> Vec<u64> {
    let mut sent = table.write_prepared(rows, table.timeout).await;
    let mut failed = Vec::new();
    let (mut written, mut bytes) = (0, 0);
    let mut hashes = Vec::with_capacity(in_flight.len());
    for (index, RowInFlight { row, hash, bytes: permits, receipt }) in in_flight.into_iter().enumerate() {
        hashes.push(hash);
        bytes += permits as usize;
        written += u64::from(!sent.has_failed(index));
        if let Some(receipt) = receipt {
            // The receipt may have been dropped.
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
