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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SlowRequest {
    /// When it was answered, in milliseconds since 1970 on the clock of its server.
    pub at_ms: u64,
    /// The address of the server that answered it.
    pub server: String,
    /// `get`, `scan` (one block of it), `write` or `bulk`.
    pub operation: String,
    /// The table.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub table: TableId,
    /// Its name; empty if the server has no region of it any more.
    #[cfg_attr(feature = "serde", serde(rename = "table"))]
    pub table_name: String,
    /// The region that the request named.
    pub region: RegionId,
    /// The first row it named; of a longer key, the first 256 bytes.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::row"))]
    pub first: Bytes,
    /// The last row it named, or the first row after its range (empty: unbounded).
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::row"))]
    pub last: Bytes,
    /// Whether it named a range.
    pub is_range: bool,
    /// How many rows it named; 0 for a range.
    pub rows: u64,
    /// How long it took on the server.
    #[cfg_attr(feature = "serde", serde(rename = "took_ms", serialize_with = "json::ms"))]
    pub took: Duration,
    /// Where that time went, in order.
    #[cfg_attr(feature = "serde", serde(rename = "stages_ms", serialize_with = "json::stages"))]
    pub stages: Vec<SlowStage>,
    /// Why it failed; empty: it did not.
    pub failure: String,
    /// The trace that it belongs to; `None`: none was recorded.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::trace"))]
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

/// How `terrane --json` shows what is kept in another form.
#[cfg(feature = "serde")]
mod json {
    use std::collections::BTreeMap;

    use serde::{Serialize as _, Serializer};
    use terrane_types::escape;

    use super::{Bytes, Duration, SlowStage, TraceId};

    pub(super) fn row<S: Serializer>(row: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&escape(row))
    }

    pub(super) fn ms<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64() * 1_000.0)
    }

    /// By name.
    pub(super) fn stages<S: Serializer>(stages: &[SlowStage], to: S) -> Result<S::Ok, S::Error> {
        let by_name = stages.iter().map(|stage| (stage.name.as_str(), stage.took.as_secs_f64() * 1_000.0));
        by_name.collect::<BTreeMap<_, _>>().serialize(to)
    }

    pub(super) fn trace<S: Serializer>(trace: &Option<TraceId>, to: S) -> Result<S::Ok, S::Error> {
        trace.map(|trace| trace.to_string()).serialize(to)
    }
}

/// What to do about the time above which a region server keeps requests as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowThresholdChange {
    /// Nothing: it is only asked for.
    Keep,
    /// It is this from now on, until the process ends. At zero it stays as it is.
    Set(Duration),
    /// It is again what the process was started with.
    Reset,
}
