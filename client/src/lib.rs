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
//! A client looks up at a master where the regions of a table are, caches this, and then calls the servers that host them
//! directly. It follows splits, moves and failovers: a caller gets an [`Error`] only when the request is wrong or its time is
//! over. Create one [`Client`] per cluster and process, and clone it: clones share one connection per server, with any number
//! of calls in flight.
//!
//! # Writing
//!
//! Calls are requests that accept further settings and start when they are awaited:
//!
//! ```no_run
//! use std::time::Duration;
//! use terrane_client::{Increment, Put, Returns, RowMutation, column};
//!
//! # async fn run(jobs: terrane_client::Table) -> Result<(), terrane_client::Error> {
//! // Atomic per row: puts, deletes, increments and appends, in any mixture.
//! let visits: i64 = jobs.increment("page-9", "stats", "visits", 1).await?;
//! jobs.mutate(Increment::new("page-9").by("stats", "hits", 1).by("stats", "bytes", 5_120)).await?;
//!
//! // Conditional: the server evaluates the condition in the order of the row's writes.
//! let take = Put::new("job-17").set("job", "owner", "worker-3");
//! let mine = jobs.check_and_put(column("job", "owner").is_absent(), take).await?;
//!
//! // The same call can return the row as it was before or is after. Each call may have its own timeout.
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
//! For many rows: [`Table::put_many`] and [`Table::mutate_many`] write independent rows and return an outcome for each, [`Table::atomic`] writes rows
//! that share the table's atomic key prefix atomically, and [`Table::writer`] batches rows in the background
//! ([`BatchWriter`] says what can be lost).
//!
//! **Exactly once.** Every row mutation has an operation number under which servers apply it once, even if its answer is lost,
//! the leader changes, or the region splits in the middle of a batch. So the client retries, and the caller gets the first
//! answer. If the time runs out before that, [`Error::is_uncertain`] says whether a write may have been applied; calling again
//! is a new operation.
//!
//! # Reading
//!
//! [`Table::get`] and [`Table::get_many`]; [`Table::scan`], a stream with back-pressure, or a `Vec` by
//! [`ScanRequest::collect`]; [`Table::first`], [`Table::last`] and
//! their neighbours in one call; [`Table::latest`] of each key prefix; [`Table::count`] and [`Table::aggregate`] on the servers;
//! [`Table::page`] with tokens that are safe to show. Reads see every write acknowledged before them, unless they ask for less
//! ([`Consistency`]).
//!
//! # Behaviour
//!
//! - Every call has a timeout, 30 seconds by default; [`Error::Timeout`] contains the last obstacle.
//! - Dropping a future gives its call up: a request that was not sent will not be sent.
//! - Retries wait with jitter and are paid for from a budget ([`RetryBudget`]), so that they do not overload a struggling
//!   cluster. When it is spent, calls fail.
//! - [`ClientBuilder::metrics`] takes a hook for every call, [`Client::counters`] returns totals, and calls are `tracing` spans
//!   at debug level.
//! - Traced calls carry their trace to the servers and through the log to every replica ([`trace`]).
//! - [`ClientBuilder::hedge_reads`] sends a stale read to a second member when the first is slow.
//! - [`Client::close`] waits for the calls in flight. [`blocking`] is for programs without async code.
//! - [`ClientBuilder::from_url`] configures everything with one string.
//!
//! # Inside
//!
//! `api` has the handles, `read`, `write` and `typed` the calls. `route` finds servers and contains the one retry loop. `wire`
//! speaks the protocol, and alone names its types. Decisions are separate from waiting and sending: the location cache, the
//! retry decision and the position of a scan are plain values, tested by golden scripts without a runtime.

#![warn(missing_docs)]

mod api;
mod bulk;
mod consistency;
mod deadline;
mod error;
mod read;
mod route;
mod typed;
mod wire;
mod write;

pub use api::blocking;

pub mod trace {
    //! Distributed traces: which calls belong to one, and where the spans of calls go.
    //!
    //! A call belongs to a trace if it runs inside [`traced`], or if the client's [`Tracer`]
    //! ([`ClientBuilder::tracer`](crate::ClientBuilder::tracer)) begins one for it. Its requests carry the trace to the servers, and writes
    //! carry it through the log to every replica. Servers export their spans over OTLP if they are started with
    //! `--otlp-endpoint`; a program passes the spans of its calls to its own exporter through a [`SpanSink`].

    pub use terrane_env::trace::{
        BadTrace, Span, SpanId, SpanKind, SpanSink, SpanValue, TraceContext, TraceId, Tracer,
    };

    pub use crate::route::trace_scope::{traced, traced_blocking};
}

pub use api::admin::Admin;
pub use api::admin::diagnostics::{HotRows, LogFilter, SlowThreshold};
pub use api::admin::fleet::{BalanceMode, MoveState, ServerChange};
pub use api::admin::hot::{HotRegion, HotRow};
pub use api::admin::maintenance::Maintained;
pub use api::admin::past::LoadQuery;
pub use api::admin::slow::{SlowRequest, SlowRequests, SlowStage, SlowThresholdChange};
pub use api::admin::spec::{TableChange, TableSpec};
/// The version of this build, and the protocol versions that it speaks.
pub use terrane_proto::PROTOCOL_VERSIONS;
pub use terrane_proto::versions::BUILD;

pub use api::client::{CONNECT_TIMEOUT_DEFAULT, Client, ClientBuilder, TIMEOUT_DEFAULT};
pub use api::table::Table;
pub use bulk::loader::BulkLoader;
pub use bulk::options::{BulkOptions, BulkSummary};
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
pub use typed::writer::TypedWriter;
pub use write::batch_writer::{BatchWriter, FlushError, Receipt, WriterOptions};
pub use write::cell::Cell;
pub use write::condition::{Column, Comparable, Condition, Raw, column};
pub use write::operations::{Append, Delete, Increment, Put};
pub use write::outcome::{AtomicOutcome, MutationOutcome};
pub use write::requests::{AtomicRequest, WriteManyRequest, WriteRequest};
pub use write::row_mutation::RowMutation;

pub use terrane_filter::{Filter, FilterError, FilterTemplate, IntoFilter};
pub use terrane_types::{
    Bloom, Bucket, CellKind, CellRef, CellValue, ClusterId, ColumnValue, Compression, Desc, Endpoint, FamilyName,
    FamilySchema, FamilyStorage, GroupId, IntoPrefix, IntoSpan, Invalid, Issue, IssueKind, KeyDeclaration, KeyRange,
    KeySpan, LATEST, NamespaceName, Place, RegionDescriptor, RegionId, Returns, ServerId, Severity, TableId, TableName,
    TableRow, TableSchema, Tail, Time, ValueType, escape, unescape,
};

pub use terrane_types::admin::cluster::{
    ClusterStatus, GroupInfo, MasterInfo, ProcessVersions, RegionInfo, RegionLoad, RepairProgress, ResourceUsage,
    ServerInfo, TableInfo,
};
pub use terrane_types::admin::fleet::{
    BalancePlan, BalanceShare, BalanceStep, CheckFinding, ClusterCheck, GroupRecovery, GroupSurvivor, LostMember,
    MastersChange, MoveBegun, RestartVerdict, ServerChanged,
};
pub use terrane_types::admin::past::{
    ClusterLoad, EventInfo, EventKind, EventList, Failover, FailoverList, LoadMeasure, LoadMinute, LoadRow, TableLoad,
};
pub use terrane_types::admin::procedures::{EndedProcedure, ProcedureInfo, ProcedureKind, ProcedureState};
pub use terrane_types::states::{DrainState, GroupState, MasterState, RegionState, ServerState, TableState};

/// The derives refer to this path.
#[doc(hidden)]
pub use terrane_types as types;

// The derives below have the same names and refer to this crate, so that programs need not depend on `terrane-types`. Explicit
// re-exports take precedence over a glob, each in its own namespace.
mod derived {
    pub use terrane_types::{Row, RowKey};
}
pub use derived::*;
/// Makes a struct a row of a [`TypedTable`]. On the struct, `#[row(family = "f")]` names the family of its columns and
/// `#[row(key = Key)]` the type of its key. On a field, `#[row(key)]` marks the whole key and `#[row(part)]` a part of it, by
/// name. Every other field is a column; its qualifier is the field's name, unless `#[row(family = "g", qualifier = "q")]` sets
/// another. An `Option` is a column that may be absent. Values are numbers (big-endian), `String`, `Vec<u8>`, `Bytes`, `bool`,
/// `Uuid`, [`Time`], and any serde type in `Json` or `Postcard` (features). A key that is a field must be `Clone`.
/// `terrane_types::table_row` has examples.
pub use terrane_types::ClientRow as Row;
/// Makes a struct a key: its fields, in order, are the parts of the row's bytes, which sort as the parts do. A part is `u32`,
/// `u64`, `i32`, `i64`, `f64`, [`Time`], `bool`, `Uuid`, `String`, `Vec<u8>`, `[u8; N]` or [`Tail`] (the rest of the key,
/// unencoded); in [`Desc`] it sorts from high to low. A salted key starts with a [`Bucket<N>`](Bucket), a field without content
/// (`Key { bucket: Bucket, .. }`): the bucket is computed from the other parts. The derive adds `prefix()`, with a method for
/// each part in turn, to build ranges.
pub use terrane_types::ClientRowKey as RowKey;

/// Compiles the examples of the README and of the guides for the client.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/client.md")]
    struct Guide;
    #[doc = include_str!("../../docs/reading.md")]
    struct Reading;
}
