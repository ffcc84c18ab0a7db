//! The Rust client of Terrane: rows of sparse columns in sorted, sharded, replicated tables.
//!
//! ```no_run
//! use terrane_client::{Client, Get, Put, Scan, TableSpec};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("127.0.0.1:7600").await?;
//! client.admin().create_table(TableSpec::new("users")?.family("info", &[])?).await?;
//!
//! let users = client.table("users").await?;
//! users.put(Put::new("user-17").set("info", "name", "Ada")).await?;
//! if let Some(row) = users.get(Get::new("user-17")).await? {
//!     println!("{:?}", row.value("info", "name"));
//! }
//!
//! let mut newest = users.scan(Scan::prefix("user-").reverse().limit(10)).await?;
//! while let Some(row) = newest.next().await {
//!     println!("{:?}", row?);
//! }
//! # Ok(()) }
//! ```
//!
//! A client asks a master where the regions of a table are, remembers it, and from then on talks straight to the servers
//! that host them. It follows splits, moves and failovers by itself; callers see an [`Error`] only when the request is
//! wrong or its time is over. Make one [`Client`] per cluster and process, and clone it: clones share one connection per
//! server, over which any number of calls are under way at once.
//!
//! # Writing
//!
//! Calls are requests that take more settings and begin when they are awaited:
//!
//! ```no_run
//! use std::time::Duration;
//! use terrane_client::{Increment, Put, Returns, RowMutation, column};
//!
//! # async fn run(jobs: terrane_client::Table) -> Result<(), terrane_client::Error> {
//! // All or nothing of a row: puts, deletes, increments and appends, in any mixture.
//! let visits: i64 = jobs.increment("page-9", "stats", "visits", 1).await?;
//! jobs.mutate(Increment::new("page-9").by("stats", "hits", 1).by("stats", "bytes", 5_120)).await?;
//!
//! // Only if: evaluated on the server, in the order of the row's writes.
//! let take = Put::new("job-17").set("job", "owner", "worker-3");
//! let mine = jobs.check_and_put(column("job", "owner").is_absent(), take).await?;
//!
//! // The row as it was, or is then, with the same call; each call may have a deadline of its own.
//! let outcome = jobs
//!     .mutate(RowMutation::new("job-17").set("job", "state", "done").increment("job", "runs", 1))
//!     .when(column("job", "runs").as_i64().less_than(5).or(column("job", "runs").is_absent()))
//!     .returning(Returns::New)
//!     .timeout(Duration::from_secs(2))
//!     .await?;
//! println!("{} {:?}", outcome.held, outcome.row);
//! # Ok(()) }
//! ```
//!
//! Many rows: [`Table::mutate_many`] answers each by itself, [`Table::atomic`] writes rows that share the table's atomic key
//! prefix as one, and [`Table::writer`] takes rows over and sends them in batches by itself.
//!
//! **Exactly once.** Every row mutation has an operation number under which servers apply it once, whatever happens to
//! its answer: a lost reply, a change of leader, a split in the middle of a batch. So the client tries again by itself, and
//! the caller gets the first answer. When its time runs out in the middle, [`Error::is_uncertain`] says that a write may
//! have been applied; making the call again is a new operation.
//!
//! # Reading
//!
//! [`Table::get`] and [`Table::get_many`], [`Table::scan`] as a stream with back-pressure, [`Table::first`], [`Table::last`]
//! and their neighbours in one call, [`Table::latest`] of each key prefix, [`Table::count`] and [`Table::aggregate`] on the
//! servers, [`Table::page`] with tokens that may be shown to anybody. Reads see every write that was acknowledged before
//! them, unless they ask for less ([`Consistency`]).
//!
//! # Manners
//!
//! - Every call has a deadline, 30 seconds if not set; what stood in the way last is found in [`Error::Timeout`].
//! - Dropping a future gives its call up. What was not sent is not sent.
//! - Retries wait with jitter and are paid for from a budget ([`RetryBudget`]), so that a struggling cluster is not pushed
//!   over; then errors come back.
//! - [`ClientBuilder::metrics`] takes a hook for every call, [`Client::counters`] shows sums, and calls are `tracing` spans at
//!   the level of debugging.
//! - [`ClientBuilder::hedge_reads`] asks a second member where a follower is slow.
//! - [`Client::close`] waits for the calls under way. [`blocking`] is for programs without async code.
//! - One string configures it all: [`ClientBuilder::from_url`].
//!
//! Inside, what decides is apart from what waits and sends: the location cache (`locator`), the retry policy and
//! the position of a scan are plain values, tested without a runtime.

#![warn(missing_docs)]

mod api;
mod consistency;
mod deadline;
mod error;
mod read;
mod route;
mod typed;
mod wire;
mod write;

pub use api::blocking;

pub use api::admin::Admin;
pub use api::admin::info::{ClusterStatus, GroupInfo, RegionInfo, ResourceUsage, ServerInfo, TableInfo};
pub use api::admin::maintenance::Maintained;
pub use api::admin::spec::{TableChange, TableSpec};
pub use api::client::{CONNECT_TIMEOUT_DEFAULT, Client, ClientBuilder, TIMEOUT_DEFAULT};
pub use api::table::Table;
pub use consistency::{AsOf, Consistency};
pub use error::{Error, RowError};
pub use read::count::{Aggregate, AggregateRequest, CountRequest, Number};
pub use read::get::Get;
pub use read::get_requests::{ExistsManyRequest, ExistsRequest, GetManyRequest, GetRequest};
pub use read::page::{PAGE_ROWS_DEFAULT, Page, PageRequest};
pub use read::page_token::PageToken;
pub use read::request::WithAsOf;
pub use read::row_data::RowData;
pub use read::row_stream::RowStream;
pub use read::scan::{LatestPer, Scan};
pub use read::scan_requests::{EndRequest, LatestRequest, ScanRequest};
pub use route::budget::RetryBudget;
pub use route::counters::Counters;
pub use route::observe::{CallFinished, CallKind, CallOutcome, CallStarted, Metrics};
pub use typed::keyed::KeyedTable;
pub use typed::reads::{FromRow, TypedCount, TypedEnd, TypedGet, TypedPage, TypedPageRequest, TypedRows, TypedScan};
pub use typed::table::TypedTable;
pub use typed::typed_row::TypedRow;
#[cfg(feature = "json")]
pub use typed::values::Json;
#[cfg(feature = "postcard")]
pub use typed::values::Postcard;
pub use write::batch_writer::{BatchWriter, FlushError, Receipt, WriterOptions};
pub use write::cell::Cell;
pub use write::condition::{Column, Comparable, Condition, Raw, column};
pub use write::operations::{Append, Delete, Increment, Put};
pub use write::outcome::{AtomicOutcome, MutationOutcome};
pub use write::requests::{AtomicRequest, WriteManyRequest, WriteRequest};
pub use write::row_mutation::RowMutation;

pub use terrane_filter::Filter;
pub use terrane_types::{
    Bloom, Bucket, CellKind, CellRef, ClusterId, ColumnValue, Compression, Desc, FamilyName, FamilySchema,
    FamilyStorage, IntoSpan, Invalid, KeyDeclaration, KeyRange, KeySpan, LATEST, NamespaceName, RegionDescriptor,
    RegionId, Returns, ServerId, TableId, TableName, TableRow, TableSchema, Tail, ValueType, escape, unescape,
};

/// Where the derives find what they name.
#[doc(hidden)]
pub use terrane_types as types;

// The derives of these names are others, which name the client: programs need not depend on the crate of types. Names given
// one by one outrank those of a star, each in its own namespace.
mod derived {
    pub use terrane_types::{Row, RowKey};
}
pub use derived::*;
/// Makes a struct a row of a [`TypedTable`]. Of the struct: `#[row(family = "f")]` is where its columns are,
/// `#[row(key = Key)]` names the type of its key. Of fields: `#[row(key)]` is the whole key, `#[row(part)]` a part of it by
/// name; every other field is a column with the field's name as its qualifier, or what
/// `#[row(family = "g", qualifier = "q")]` says. An `Option` is a column that may be absent. Values are numbers (big-endian),
/// `String`, `Vec<u8>`, `Bytes`, `bool`, `Uuid`, and what serde knows in `Json` or `Postcard` (features).
/// A key that is held whole must be `Clone`. `terrane_types::table_row` has examples of all of it.
pub use terrane_types::ClientRow as Row;
/// Makes a struct a key: its fields, in their order, are parts of the row's bytes, which sort as the parts do. Parts are
/// `u32`, `u64`, `i32`, `i64`, `f64`, `bool`, `Uuid`, `String`, `Vec<u8>`, `[u8; N]`, [`Tail`] (the rest of the key, as it is),
/// each within [`Desc`] where it shall sort from high to low, and [`Bucket<N>`](Bucket) as the first where keys are salted: a
/// value without content, `Key { bucket: Bucket, .. }`, since the bucket is computed from the other parts. The derive gives
/// the key `prefix()`, with a method for each part in turn, for ranges.
pub use terrane_types::ClientRowKey as RowKey;

/// Compiles what the README and the guide show.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/client.md")]
    struct Guide;
}
