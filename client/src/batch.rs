//! A writer for many rows: gathers mutations, sends them in batches while more are given, and holds its caller back when
//! too much is under way.
//!
//! Bounds keep memory in hand: bytes gathered but not yet sent, and batches and bytes sent but not yet answered. Batches are cut
//! between rows and sent concurrently. A mutation of a row that is under way waits until the batch with it is answered,
//! so one writer's mutations of one row are applied in the order given, as long as none of them fails.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use terrane_proto::v1;
use tokio::task::JoinSet;

use crate::error::{Error, RowError};
use crate::operations::{Delete, Put, RowMutation};
use crate::table::Table;

/// Bounds of a [`BatchWriter`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Bytes after which a batch is sent.
    pub batch_bytes: usize,
    /// Rows after which a batch is sent.
    pub batch_rows: usize,
    /// Batches under way at once; the caller waits for one of them before another is sent.
    pub batches_in_flight: usize,
    /// Bytes under way at once; a single larger batch travels alone.
    pub bytes_in_flight: usize,
    /// Failed rows remembered until [`BatchWriter::flush`]; the caller is told at once when there are more.
    pub errors_max: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            batch_bytes: 512 << 10,
            batch_rows: 4096,
            batches_in_flight: 8,
            bytes_in_flight: 32 << 20,
            errors_max: 10_000,
        }
    }
}

impl WriterOptions {
    /// The same bounds with another number of rows in a batch.
    #[must_use]
    pub const fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows;
        self
    }

    /// The same bounds with another number of bytes in a batch.
    #[must_use]
    pub const fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// The same bounds with another number of batches under way at once.
    #[must_use]
    pub const fn batches_in_flight(mut self, batches: usize) -> Self {
        self.batches_in_flight = batches;
        self
    }
}

/// Rows that were given to a writer and not written, or whose outcome is not known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} rows were not written; the first: {}", rows.len(), rows.first().map(ToString::to_string).unwrap_or_default())]
pub struct FlushError {
    /// The rows that failed, each with its reason.
    pub rows: Vec<RowError>,
    #[source]
    first: Option<Error>,
}

impl FlushError {
    fn new(rows: Vec<RowError>) -> Self {
        let first = rows.first().map(|row| row.error.clone());
        Self { rows, first }
    }
}

/// Writes many rows of one table in batches.
///
/// **Durability**: [`BatchWriter::put`] only takes a row over. When [`BatchWriter::flush`] or [`BatchWriter::close`]
/// returns `Ok`, a quorum of servers has every row given before on disk. What a writer holds when it is dropped may or
/// may not be written: close it.
/// **Retry safety**: as for [`Table::put`], for each row by itself.
///
/// ```no_run
/// # async fn run(table: terrane_client::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use terrane_client::{Put, WriterOptions};
/// let mut writer = table.writer(WriterOptions::default());
/// for i in 0..100_000u64 {
///     writer.put(Put::new(i.to_be_bytes()).set("f", "q", "value")).await?;
/// }
/// writer.close().await?;
/// # Ok(()) }
/// ```
pub struct BatchWriter {
    table: Table,
    options: WriterOptions,
    gathered: Batch,
    /// Batches under way; each answers its number and the rows that failed.
    sent: JoinSet<(u64, Vec<RowError>)>,
    /// Which rows are under way, by hash: the number of the batch that has the row.
    busy: BTreeMap<u64, u64>,
    under_way: BTreeMap<u64, UnderWay>,
    bytes_under_way: usize,
    batches: u64,
    failed: Vec<RowError>,
    written: u64,
}

/// What is remembered of a batch until it is answered.
struct UnderWay {
    hashes: Vec<u64>,
    bytes: usize,
}

#[derive(Default)]
struct Batch {
    rows: Vec<v1::RowMutation>,
    hashes: Vec<u64>,
    bytes: usize,
}

impl std::fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchWriter")
            .field("table", &self.table)
            .field("gathered", &self.gathered.rows.len())
            .field("batches_under_way", &self.under_way.len())
            .finish()
    }
}

impl BatchWriter {
    pub(crate) fn new(table: Table, options: WriterOptions) -> Self {
        Self {
            table,
            options,
            gathered: Batch::default(),
            sent: JoinSet::new(),
            busy: BTreeMap::new(),
            under_way: BTreeMap::new(),
            bytes_under_way: 0,
            batches: 0,
            failed: Vec::new(),
            written: 0,
        }
    }

    /// Takes a put over. Waits while the writer's buffers are full.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a put outside the limits, which is then not taken. When very many rows have failed, their
    /// first error: [`BatchWriter::flush`] names them all.
    pub async fn put(&mut self, put: Put) -> Result<(), Error> {
        self.mutate(put.into()).await
    }

    /// Takes a delete over. Waits while the writer's buffers are full.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`].
    pub async fn delete(&mut self, delete: Delete) -> Result<(), Error> {
        self.mutate(delete.into()).await
    }

    /// Takes a mutation over. Waits while the writer's buffers are full.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`].
    pub async fn mutate(&mut self, mutation: RowMutation) -> Result<(), Error> {
        let (row, cells) = self.table.prepare(mutation).await?;
        if let Some(row) = self.failed.first().filter(|_| self.failed.len() >= self.options.errors_max) {
            return Err(row.error.clone());
        }
        let hash = hash_of(&row);
        while self.busy.contains_key(&hash) {
            self.await_one().await;
        }
        self.gathered.bytes += row.len() + cells.len();
        self.gathered.rows.push(self.table.wire_mutation(row, cells));
        self.gathered.hashes.push(hash);
        if self.gathered.bytes >= self.options.batch_bytes || self.gathered.rows.len() >= self.options.batch_rows {
            self.send().await;
        }
        Ok(())
    }

    /// Sends what was gathered and waits until everything given so far is written.
    ///
    /// # Errors
    /// The rows that failed since the last flush, each with its reason. The others are written.
    pub async fn flush(&mut self) -> Result<(), FlushError> {
        self.send().await;
        while !self.sent.is_empty() {
            self.await_one().await;
        }
        if self.failed.is_empty() { Ok(()) } else { Err(FlushError::new(std::mem::take(&mut self.failed))) }
    }

    /// Flushes and ends the writer.
    ///
    /// # Errors
    /// As for [`BatchWriter::flush`].
    pub async fn close(mut self) -> Result<(), FlushError> {
        self.flush().await
    }

    /// Rows acknowledged so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    async fn send(&mut self) {
        if self.gathered.rows.is_empty() {
            return;
        }
        while self.is_full() {
            self.await_one().await;
        }
        let batch = std::mem::take(&mut self.gathered);
        self.batches += 1;
        let number = self.batches;
        for hash in &batch.hashes {
            self.busy.insert(*hash, number);
        }
        self.bytes_under_way += batch.bytes;
        self.under_way.insert(number, UnderWay { hashes: batch.hashes, bytes: batch.bytes });
        let table = self.table.clone();
        self.sent.spawn(async move { (number, table.send_many(&batch.rows).await) });
    }

    /// Whether what was gathered has to wait for something under way.
    fn is_full(&self) -> bool {
        let bytes = self.bytes_under_way + self.gathered.bytes;
        let full = self.sent.len() >= self.options.batches_in_flight.max(1) || bytes > self.options.bytes_in_flight;
        full && !self.sent.is_empty()
    }

    /// Waits for any batch and takes its answer in.
    async fn await_one(&mut self) {
        let Some(joined) = self.sent.join_next().await else { return };
        let (number, failed) = joined.expect("batches are not aborted while the writer lives, and do not panic");
        let batch = self.under_way.remove(&number).expect("every batch sent was put there");
        self.bytes_under_way -= batch.bytes;
        self.written += (batch.hashes.len() - failed.len()) as u64;
        for hash in batch.hashes {
            self.busy.remove(&hash);
        }
        self.failed.extend(failed);
    }
}

fn hash_of(row: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.hash(&mut hasher);
    hasher.finish()
}
