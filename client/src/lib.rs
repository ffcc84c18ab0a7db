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
//! wrong or its time is over. Writes are applied exactly once, however often they have to be sent.
//!
//! Inside, what decides is apart from what waits and sends: the location cache (`locator`), the retry policy and
//! the position of a scan are plain values, tested without a runtime.

#![warn(missing_docs)]

mod admin;
mod base64url;
pub mod blocking;
mod budget;
mod client;
mod condition;
mod counters;
mod counts;
mod cursor;
mod deadline;
mod error;
mod freshness;
mod gather;
mod gets;
mod hedge;
mod keyed;
mod locator;
mod maintenance;
mod masters;
mod merge;
mod mutation;
mod numbers;
mod observe;
mod operations;
mod outcome;
mod page;
mod reading;
mod requests;
mod retry;
mod route;
mod scan;
mod scans;
mod scatter;
mod selection;
mod session;
mod submit;
mod table;
mod typed;
mod typed_reads;
mod url;
mod values;
mod write_requests;
mod writer;
mod writes;

pub use admin::{Admin, ClusterStatus, GroupInfo, RegionInfo, ServerInfo, TableChange, TableInfo, TableSpec};
pub use budget::RetryBudget;
pub use client::{CONNECT_TIMEOUT_DEFAULT, Client, ClientBuilder, TIMEOUT_DEFAULT};
pub use condition::{Column, Comparable, Condition, Raw, column};
pub use counters::Counters;
pub use counts::{Aggregate, AggregateRequest, CountRequest, Number};
pub use error::{Error, RowError};
pub use gets::{ExistsManyRequest, ExistsRequest, GetManyRequest, GetRequest};
pub use keyed::{KeyedTable, TypedRow};
pub use maintenance::Maintained;
pub use mutation::RowMutation;
pub use observe::{CallFinished, CallKind, CallOutcome, CallStarted, Metrics};
pub use operations::{Append, Cell, Delete, Increment, Put};
pub use outcome::{AtomicOutcome, MutationOutcome};
pub use page::{PAGE_ROWS_DEFAULT, Page, PageRequest, PageToken};
pub use reading::{AsOf, Consistency, Get, LatestPer, RowData, Scan};
pub use requests::WithAsOf;
pub use scan::RowStream;
pub use scans::{EndRequest, LatestRequest, ScanRequest};
pub use table::Table;
pub use typed::TypedTable;
pub use typed_reads::{FromRow, TypedEnd, TypedGet, TypedPage, TypedPageRequest, TypedRows, TypedScan};
#[cfg(feature = "json")]
pub use values::Json;
#[cfg(feature = "postcard")]
pub use values::Postcard;
pub use write_requests::{AtomicRequest, WriteManyRequest, WriteRequest};
pub use writer::{BatchWriter, FlushError, Receipt, WriterOptions};

pub use terrane_types::{
    Bloom, Bucket, CellKind, CellRef, ClusterId, ColumnValue, Compression, Desc, FamilyName, FamilySchema,
    FamilyStorage, Filter, IntoSpan, Invalid, KeyDeclaration, KeyRange, KeySpan, LATEST, NamespaceName,
    RegionDescriptor, RegionId, Returns, Row, RowKey, ServerId, TableId, TableName, TableRow, TableSchema, Tail,
    ValueType, escape, unescape,
};
