//! The client for programs without async code: scripts, tools, tests. Each call blocks the calling thread until it is done;
//! several threads may share a client.
//!
//! It is the async client on its own small runtime, so it makes the same guarantees: see [`crate::Table`] for durability,
//! retry safety and errors. Use [`Client::wait`] for calls that are not wrapped here. Do not use this module from async code:
//! blocking there panics.
//!
//! ```no_run
//! use terrane_client::blocking::Client;
//! use terrane_client::{Put, Scan};
//!
//! # fn main() -> Result<(), terrane_client::Error> {
//! let client = Client::connect("127.0.0.1:7600")?;
//! let users = client.table("users")?;
//! users.put(Put::new("user-17").set("info", "name", "Ada"))?;
//! println!("{} visits", users.increment("user-17", "info", "visits", 1)?);
//! for row in users.scan(Scan::prefix("user-"))? {
//!     println!("{:?}", row?);
//! }
//! let tables = client.wait(client.inner().admin().list_tables())?;
//! # Ok(()) }
//! ```

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use terrane_types::KeyRange;
use tokio::runtime::Runtime;

use crate::api::admin::spec::TableSpec;
use crate::api::client::ClientBuilder;
use crate::error::{Error, RowError};
use crate::read::get::Get;
use crate::read::row_data::RowData;
use crate::read::row_stream::RowStream;
use crate::read::scan::Scan;
use crate::write::batch_writer::{FlushError, WriterOptions};
use crate::write::condition::Condition;
use crate::write::operations::{Delete, Put};
use crate::write::outcome::{AtomicOutcome, MutationOutcome};
use crate::write::row_mutation::RowMutation;

/// A connection to one cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    waiter: Arc<Waiter>,
}

/// The runtime on which a client's sessions live.
#[derive(Debug)]
struct Waiter {
    /// Taken when the last handle is dropped.
    runtime: Option<Runtime>,
}

impl Waiter {
    #[allow(clippy::disallowed_methods, reason = "a program without async code has no runtime to be given")]
    fn new() -> Result<Self, Error> {
        let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = built.map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?;
        Ok(Self { runtime: Some(runtime) })
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().expect("the runtime lives until the last handle is dropped").block_on(future)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // In the background: a handle may be dropped anywhere, also in async code, where waiting would panic.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Client {
    /// Connects to a cluster: see [`crate::Client::connect`].
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    pub fn connect(to: &str) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let client = waiter.wait(crate::Client::connect(to))?;
        Ok(Self { client, waiter: Arc::new(waiter) })
    }

    /// Connects with settings.
    ///
    /// # Errors
    /// As for [`ClientBuilder::build`].
    pub fn build(builder: ClientBuilder) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let client = waiter.wait(builder.build())?;
        Ok(Self { client, waiter: Arc::new(waiter) })
    }

    /// Opens a table: see [`crate::Client::table`].
    ///
    /// # Errors
    /// As for [`crate::Client::table`].
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        let table = self.wait(self.client.table(name))?;
        Ok(Table { table, waiter: Arc::clone(&self.waiter) })
    }

    /// Opens a table, and creates it first if it does not exist: see [`crate::Client::open_or_create`].
    ///
    /// # Errors
    /// As for [`crate::Client::open_or_create`].
    pub fn open_or_create(&self, spec: TableSpec) -> Result<Table, Error> {
        let table = self.wait(self.client.open_or_create(spec))?;
        Ok(Table { table, waiter: Arc::clone(&self.waiter) })
    }

    /// The same, and refuses a table that differs from its specification: see [`crate::Client::open_or_create_exact`].
    ///
    /// # Errors
    /// As for [`crate::Client::open_or_create_exact`].
    pub fn open_or_create_exact(&self, spec: TableSpec) -> Result<Table, Error> {
        let table = self.wait(self.client.open_or_create_exact(spec))?;
        Ok(Table { table, waiter: Arc::clone(&self.waiter) })
    }

    /// The underlying async client, for calls that are not wrapped here.
    #[must_use]
    pub const fn inner(&self) -> &crate::Client {
        &self.client
    }

    /// Blocks on any future of the async client: `client.wait(table.inner().exists("row").into_future())`.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.waiter.wait(future)
    }

    /// Waits for the calls of other threads and ends the sessions: see [`crate::Client::close`].
    pub fn close(&self) {
        self.wait(self.client.close());
    }
}

/// An open table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Table {
    table: crate::Table,
    waiter: Arc<Waiter>,
}

impl Table {
    /// The underlying async table, for calls that are not wrapped here.
    #[must_use]
    pub const fn inner(&self) -> &crate::Table {
        &self.table
    }

    /// Writes cells of one row: see [`crate::Table::put`].
    ///
    /// # Errors
    /// As for [`crate::Table::put`].
    pub fn put(&self, put: Put) -> Result<(), Error> {
        self.waiter.wait(self.table.put(put))
    }

    /// Deletes cells of one row, or the row: see [`crate::Table::delete`].
    ///
    /// # Errors
    /// As for [`crate::Table::delete`].
    pub fn delete(&self, delete: Delete) -> Result<(), Error> {
        self.waiter.wait(self.table.delete(delete))
    }

    /// Applies a mixture of changes to one row: see [`crate::Table::mutate`].
    ///
    /// # Errors
    /// As for [`crate::Table::mutate`].
    pub fn mutate(&self, mutation: impl Into<RowMutation>) -> Result<MutationOutcome, Error> {
        self.waiter.wait(self.table.mutate(mutation))
    }

    /// Adds to a counter and returns its new value: see [`crate::Table::increment`].
    ///
    /// # Errors
    /// As for [`crate::Table::increment`].
    pub fn increment(
        &self,
        row: impl AsRef<[u8]>,
        family: &str,
        qualifier: impl AsRef<[u8]>,
        by: i64,
    ) -> Result<i64, Error> {
        self.waiter.wait(self.table.increment(row, family, qualifier, by))
    }

    /// Appends to a value and returns the new value: see [`crate::Table::append`].
    ///
    /// # Errors
    /// As for [`crate::Table::append`].
    pub fn append(
        &self,
        row: impl AsRef<[u8]>,
        family: &str,
        qualifier: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Bytes, Error> {
        self.waiter.wait(self.table.append(row, family, qualifier, value))
    }

    /// Mutates a row if a condition holds; returns whether it did: see [`crate::Table::check_and_mutate`].
    ///
    /// # Errors
    /// As for [`crate::Table::check_and_mutate`].
    pub fn check_and_mutate(
        &self,
        condition: impl Into<Condition>,
        mutation: impl Into<RowMutation>,
    ) -> Result<bool, Error> {
        self.waiter.wait(self.table.check_and_mutate(condition, mutation))
    }

    /// Mutates many rows independently: see [`crate::Table::mutate_many`].
    ///
    /// # Errors
    /// As for [`crate::Table::mutate_many`].
    pub fn mutate_many(&self, mutations: Vec<RowMutation>) -> Result<Vec<Result<MutationOutcome, RowError>>, Error> {
        self.waiter.wait(self.table.mutate_many(mutations))
    }

    /// Mutates several rows atomically: see [`crate::Table::atomic`].
    ///
    /// # Errors
    /// As for [`crate::Table::atomic`].
    pub fn atomic(&self, mutations: Vec<RowMutation>) -> Result<AtomicOutcome, Error> {
        self.waiter.wait(self.table.atomic(mutations))
    }

    /// A writer that sends rows in batches: see [`crate::BatchWriter`].
    #[must_use]
    pub fn writer(&self, options: WriterOptions) -> BatchWriter {
        let writer = self.waiter.wait(async { self.table.writer(options) });
        BatchWriter { writer, waiter: Arc::clone(&self.waiter) }
    }

    /// Reads one row: see [`crate::Table::get`].
    ///
    /// # Errors
    /// As for [`crate::Table::get`].
    pub fn get(&self, get: impl Into<Get>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.get(get).into_future())
    }

    /// Reads many rows: see [`crate::Table::get_many`].
    ///
    /// # Errors
    /// As for [`crate::Table::get_many`].
    pub fn get_many<G: Into<Get>>(&self, gets: impl IntoIterator<Item = G>) -> Result<Vec<Option<RowData>>, Error> {
        self.waiter.wait(self.table.get_many(gets).into_future())
    }

    /// Whether a row exists: see [`crate::Table::exists`].
    ///
    /// # Errors
    /// As for [`crate::Table::exists`].
    pub fn exists(&self, get: impl Into<Get>) -> Result<bool, Error> {
        self.waiter.wait(self.table.exists(get).into_future())
    }

    /// Reads the rows of a range: see [`crate::Table::scan`]. Long scans are read ahead while the program handles rows.
    ///
    /// # Errors
    /// As for [`crate::Table::scan`]; later errors come from the iterator.
    pub fn scan(&self, scan: impl Into<Scan>) -> Result<Rows, Error> {
        let stream = self.waiter.wait(self.table.scan(scan).into_future())?;
        Ok(Rows { stream, waiter: Arc::clone(&self.waiter) })
    }

    /// The first row of a range: see [`crate::Table::first`].
    ///
    /// # Errors
    /// As for [`crate::Table::first`].
    pub fn first(&self, range: impl Into<KeyRange>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.first(range).into_future())
    }

    /// The last row of a range: see [`crate::Table::last`].
    ///
    /// # Errors
    /// As for [`crate::Table::last`].
    pub fn last(&self, range: impl Into<KeyRange>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.last(range).into_future())
    }

    /// The number of rows: see [`crate::Table::count`].
    ///
    /// # Errors
    /// As for [`crate::Table::count`].
    pub fn count(&self, rows: impl Into<Scan>) -> Result<u64, Error> {
        self.waiter.wait(self.table.count(rows).into_future())
    }
}

/// The rows of a scan, one after another.
pub struct Rows {
    stream: RowStream,
    waiter: Arc<Waiter>,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rows")
    }
}

impl Iterator for Rows {
    type Item = Result<RowData, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.waiter.wait(self.stream.next())
    }
}

/// Writes many rows in batches; see [`crate::BatchWriter`].
#[derive(Clone, Debug)]
pub struct BatchWriter {
    writer: crate::BatchWriter,
    waiter: Arc<Waiter>,
}

impl BatchWriter {
    /// Accepts a mutation: see [`crate::BatchWriter::mutate`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::mutate`].
    pub fn mutate(&self, mutation: impl Into<RowMutation>) -> Result<(), Error> {
        self.waiter.wait(self.writer.mutate(mutation))
    }

    /// Accepts a put: see [`crate::BatchWriter::put`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::put`].
    pub fn put(&self, put: Put) -> Result<(), Error> {
        self.mutate(put)
    }

    /// Waits until every mutation given so far is answered: see [`crate::BatchWriter::flush`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::flush`].
    pub fn flush(&self) -> Result<(), FlushError> {
        self.waiter.wait(self.writer.flush())
    }

    /// Flushes, and closes the writer and its clones: see [`crate::BatchWriter::close`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::close`].
    pub fn close(self) -> Result<(), FlushError> {
        self.waiter.wait(self.writer.close())
    }
}
