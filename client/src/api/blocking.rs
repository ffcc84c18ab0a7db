//! The client for programs without async code: scripts, tools, tests. Each call blocks the calling thread until it is done;
//! several threads may share a client.
//!
//! It is the async client on its own small runtime, so it makes the same guarantees: see [`crate::Table`] for durability,
//! retry safety and errors. Every call of [`Table`] and [`Admin`] exists as a method of the same name; settings that the async
//! requests take (`.when(..)`, `.consistency(..)`, `.timeout(..)`) are set on the [`Get`], [`Scan`] or mutation, or on the async
//! request: [`Client::wait`] waits for any future, and [`Client::iter`] reads any stream. Do not use this module from async
//! code: blocking there panics.
//!
//! ```no_run
//! use terrane_client::blocking::Client;
//! use terrane_client::{Consistency, Put, Scan};
//!
//! # fn main() -> Result<(), terrane_client::Error> {
//! let client = Client::connect("127.0.0.1:7600")?;
//! let users = client.table("users")?;
//! users.put(Put::new("user-17").set("info", "name", "Ada"))?;
//! println!("{} visits", users.increment("user-17", "info", "visits", 1)?);
//! for row in users.scan(Scan::prefix("user-").limit(10))? {
//!     println!("{}", row?);
//! }
//! for table in client.admin().list_tables()? {
//!     println!("{}", table.schema.name);
//! }
//! // Whatever has no method here, such as the settings of one request, or a typed table.
//! let near = client.wait(users.inner().get("user-17").consistency(Consistency::Stale))?;
//! # Ok(()) }
//! ```

mod admin;
mod writer;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use terrane_types::{KeyRange, TableName, ValueType};
use tokio::runtime::Runtime;

pub use self::admin::Admin;
pub use self::writer::BatchWriter;
use crate::api::admin::spec::TableSpec;
use crate::api::client::ClientBuilder;
use crate::error::{Error, RowError};
use crate::read::count::Aggregate;
use crate::read::get::Get;
use crate::read::page::Page;
use crate::read::row_data::RowData;
use crate::read::row_stream::RowStream;
use crate::read::scan::{LatestPer, Scan};
use crate::write::batch_writer::WriterOptions;
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

    fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        let runtime = self.runtime.as_ref().expect("the runtime lives until the last handle is dropped");
        runtime.block_on(future.into_future())
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

    /// The calls of administrators.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(self.client.admin(), Arc::clone(&self.waiter))
    }

    /// Blocks on any request or future of the async client: `client.wait(table.inner().put(put).when("not exists(f:q)"))`, or
    /// `client.wait(typed_table.get(&key))`.
    pub fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        self.waiter.wait(future)
    }

    /// Iterates over any stream of the async client: `for row in client.iter(typed_table.scan(7).stream())`.
    pub fn iter<S: Stream + Unpin>(&self, stream: S) -> Iter<S> {
        Iter { stream, waiter: Arc::clone(&self.waiter) }
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

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> TableName {
        self.table.name()
    }

    /// The same table with another timeout for each call made through this handle.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.table = self.table.with_timeout(timeout);
        self
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
    pub fn delete(&self, delete: impl Into<Delete>) -> Result<(), Error> {
        self.waiter.wait(self.table.delete(delete))
    }

    /// Writes many rows independently: see [`crate::Table::put_many`].
    ///
    /// # Errors
    /// As for [`crate::Table::put_many`].
    pub fn put_many(
        &self,
        puts: impl IntoIterator<Item = Put>,
    ) -> Result<Vec<Result<MutationOutcome, RowError>>, Error> {
        self.waiter.wait(self.table.put_many(puts))
    }

    /// Deletes from many rows independently: see [`crate::Table::delete_many`].
    ///
    /// # Errors
    /// As for [`crate::Table::delete_many`].
    pub fn delete_many<D: Into<Delete>>(
        &self,
        deletes: impl IntoIterator<Item = D>,
    ) -> Result<Vec<Result<MutationOutcome, RowError>>, Error> {
        self.waiter.wait(self.table.delete_many(deletes))
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

    /// Puts if a condition holds; returns whether it did: see [`crate::Table::check_and_put`].
    ///
    /// # Errors
    /// As for [`crate::Table::check_and_put`].
    pub fn check_and_put(&self, condition: impl Into<Condition>, put: Put) -> Result<bool, Error> {
        self.waiter.wait(self.table.check_and_put(condition, put))
    }

    /// Deletes if a condition holds; returns whether it did: see [`crate::Table::check_and_delete`].
    ///
    /// # Errors
    /// As for [`crate::Table::check_and_delete`].
    pub fn check_and_delete(&self, condition: impl Into<Condition>, delete: impl Into<Delete>) -> Result<bool, Error> {
        self.waiter.wait(self.table.check_and_delete(condition, delete))
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
        BatchWriter::new(writer, Arc::clone(&self.waiter))
    }

    /// Reads one row: see [`crate::Table::get`].
    ///
    /// # Errors
    /// As for [`crate::Table::get`].
    pub fn get(&self, get: impl Into<Get>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.get(get))
    }

    /// Reads many rows: see [`crate::Table::get_many`].
    ///
    /// # Errors
    /// As for [`crate::Table::get_many`].
    pub fn get_many<G: Into<Get>>(&self, gets: impl IntoIterator<Item = G>) -> Result<Vec<Option<RowData>>, Error> {
        self.waiter.wait(self.table.get_many(gets))
    }

    /// Whether a row exists: see [`crate::Table::exists`].
    ///
    /// # Errors
    /// As for [`crate::Table::exists`].
    pub fn exists(&self, get: impl Into<Get>) -> Result<bool, Error> {
        self.waiter.wait(self.table.exists(get))
    }

    /// Whether each of many rows exists: see [`crate::Table::exists_many`].
    ///
    /// # Errors
    /// As for [`crate::Table::exists_many`].
    pub fn exists_many<G: Into<Get>>(&self, gets: impl IntoIterator<Item = G>) -> Result<Vec<bool>, Error> {
        self.waiter.wait(self.table.exists_many(gets))
    }

    /// Reads the rows of a range: see [`crate::Table::scan`]. Long scans are read ahead while the program handles rows.
    ///
    /// # Errors
    /// As for [`crate::Table::scan`]; later errors come from the iterator.
    pub fn scan(&self, scan: impl Into<Scan>) -> Result<Rows, Error> {
        let stream = self.waiter.wait(self.table.scan(scan))?;
        Ok(Rows { stream, waiter: Arc::clone(&self.waiter) })
    }

    /// The first row of a range: see [`crate::Table::first`].
    ///
    /// # Errors
    /// As for [`crate::Table::first`].
    pub fn first(&self, range: impl Into<KeyRange>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.first(range))
    }

    /// The last row of a range: see [`crate::Table::last`].
    ///
    /// # Errors
    /// As for [`crate::Table::last`].
    pub fn last(&self, range: impl Into<KeyRange>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.last(range))
    }

    /// The row with this key, else the last before it: see [`crate::Table::floor`].
    ///
    /// # Errors
    /// As for [`crate::Table::floor`].
    pub fn floor(&self, row: impl AsRef<[u8]>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.floor(row))
    }

    /// The row with this key, else the first after it: see [`crate::Table::ceiling`].
    ///
    /// # Errors
    /// As for [`crate::Table::ceiling`].
    pub fn ceiling(&self, row: impl AsRef<[u8]>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.ceiling(row))
    }

    /// The last row before this key: see [`crate::Table::lower`].
    ///
    /// # Errors
    /// As for [`crate::Table::lower`].
    pub fn lower(&self, row: impl AsRef<[u8]>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.lower(row))
    }

    /// The first row after this key: see [`crate::Table::higher`].
    ///
    /// # Errors
    /// As for [`crate::Table::higher`].
    pub fn higher(&self, row: impl AsRef<[u8]>) -> Result<Option<RowData>, Error> {
        self.waiter.wait(self.table.higher(row))
    }

    /// The first row of each prefix that rows share: see [`crate::Table::latest`]. For several rows of each, or a part of the
    /// table, scan: `table.scan(Scan::prefix("a").latest(LatestPer::parts(1), 3))`.
    ///
    /// # Errors
    /// As for [`crate::Table::latest`]; later errors come from the iterator.
    pub fn latest(&self, per: LatestPer) -> Result<Rows, Error> {
        self.scan(Scan::all().latest(per, 1))
    }

    /// Reads one page: see [`crate::Table::page`]. Limit and token are those of the scan:
    /// `table.page(Scan::prefix("user-").limit(10).after(token))`.
    ///
    /// # Errors
    /// As for [`crate::Table::page`].
    pub fn page(&self, scan: impl Into<Scan>) -> Result<Page, Error> {
        self.waiter.wait(self.table.page(scan))
    }

    /// Count, sum, minimum, maximum and average of a column: see [`crate::Table::aggregate`].
    ///
    /// # Errors
    /// As for [`crate::Table::aggregate`].
    pub fn aggregate(
        &self,
        range: impl Into<KeyRange>,
        family: &str,
        qualifier: impl AsRef<[u8]>,
        read_as: ValueType,
    ) -> Result<Aggregate, Error> {
        self.waiter.wait(self.table.aggregate(family, qualifier, read_as).range(range))
    }

    /// The number of rows: see [`crate::Table::count`]. A scan may have a filter: `table.count(Scan::all().filter("f:q = 'v'"))`.
    ///
    /// # Errors
    /// As for [`crate::Table::count`].
    pub fn count(&self, rows: impl Into<Scan>) -> Result<u64, Error> {
        self.waiter.wait(self.table.count(rows))
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

/// The items of a stream, one after another. Created by [`Client::iter`].
pub struct Iter<S> {
    stream: S,
    waiter: Arc<Waiter>,
}

impl<S> std::fmt::Debug for Iter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Iter")
    }
}

impl<S: Stream + Unpin> Iterator for Iter<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        self.waiter.wait(Pin::new(&mut self.stream).next())
    }
}
