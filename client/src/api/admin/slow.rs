//! Slow requests, as region servers tell them.

use std::time::Duration;

use bytes::Bytes;
use terrane_env::trace::TraceId;
use terrane_types::{RegionId, TableId};

/// The slow requests of all region servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowRequests {
    /// The newest first.
    pub requests: Vec<SlowRequest>,
    /// How many there were since the servers started.
    pub total: u64,
    /// The time above which a request is kept: the least of the servers that answered. `None`: no server keeps any.
    pub threshold: Option<Duration>,
    /// Servers that did not answer, a sentence each.
    pub failures: Vec<String>,
}

/// A request that took longer than the setting `slow-request` of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowRequest {
    /// The address of the server that answered it.
    pub server: String,
    /// When it was answered, in milliseconds since 1970 on that server's clock.
    pub at_ms: u64,
    /// `get`, `scan` (one block of it), `write` or `bulk`.
    pub operation: String,
    /// The table.
    pub table: TableId,
    /// Its name; empty if the server has no region of it any more.
    pub table_name: String,
    /// The region that the request named.
    pub region: RegionId,
    /// The first row it named; of a longer key, the first 256 bytes.
    pub first: Bytes,
    /// The last row it named, or the first row after its range (empty: unbounded).
    pub last: Bytes,
    /// Whether it named a range.
    pub is_range: bool,
    /// How many rows it named; 0 for a range.
    pub rows: u64,
    /// How long it took on the server.
    pub took: Duration,
    /// Where that time went, in order.
    pub stages: Vec<SlowStage>,
    /// Why it failed; empty: it did not.
    pub failure: String,
    /// The trace that it belongs to; `None`: none was recorded.
    pub trace: Option<TraceId>,
}

/// A stage of a slow request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowStage {
    /// `edge`, `read_point`, `read`, `queue`, `commit` or `apply`, as `docs/metrics.md` describes them.
    pub name: String,
    /// How long it took.
    pub took: Duration,
}
