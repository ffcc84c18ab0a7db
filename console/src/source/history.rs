//! What happened: events, procedures, slow requests and failovers.

use serde::{Deserialize, Serialize};
use terrane_types::Place;
use terrane_types::admin::past::{EventKind, Failover};

use super::key::Key;

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Only those of this kind.
    pub kind: Option<EventKind>,
    /// Only those before this time, to page backwards.
    pub before_ms: Option<u64>,
    /// The most events to answer.
    pub limit: usize,
}

/// A multi-step change that the master drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Procedure {
    /// Its id, as `terrane admin procedures` shows it: `move-7`. A later procedure of the same kind for the same subject has it, too.
    pub id: String,
    /// What it does, in a few words: `move region 7 from group 2 to group 5`.
    pub what: String,
    /// The step it is at, or its outcome: `waiting for the copy`, `done`, `failed: …`.
    pub state: String,
    /// Whether it has ended.
    pub done: bool,
    /// Whether it failed, or stands still for longer than it should.
    pub failed: bool,
    /// When it started.
    pub started_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// Why it was started; empty if it is not known.
    pub reason: String,
    /// What it changes.
    pub places: Vec<Place>,
}

/// Which slow requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowQuery {
    /// Only those of this table.
    pub table: Option<String>,
    /// Slowest first rather than newest first.
    pub slowest_first: bool,
    /// The most requests to answer.
    pub limit: usize,
}

/// Slow requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRequests {
    /// From which duration on a request counts as slow.
    pub threshold_us: u64,
    /// How many were slow since the processes started, of which the latest are kept.
    pub total: u64,
    /// The requests.
    pub requests: Vec<SlowRequest>,
}

/// A slow request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRequest {
    /// When it began.
    pub time_ms: u64,
    /// The table.
    pub table: String,
    /// `get`, `scan`, `put`, `increment` and the like.
    pub operation: String,
    /// The region that it went to.
    pub region: Option<u64>,
    /// The server that answered.
    pub server: Option<u64>,
    /// Its first key; the key itself, for a single row.
    pub start: Key,
    /// The key behind its last; `None` for a single row.
    pub end: Option<Key>,
    /// How many rows it read or wrote.
    pub rows: Option<u64>,
    /// How many bytes it read or wrote.
    pub bytes: Option<u64>,
    /// How long it took.
    pub duration_us: u64,
    /// How long each stage took, in the order of the stages; they need not add up to the whole.
    pub stages: Vec<Stage>,
    /// What made it slow, as a sentence.
    pub cause: String,
    /// The trace id, if the request had one.
    pub trace: Option<String>,
}

/// The stages of requests, as the page's legend names them, each with its colour.
pub const STAGES: [&str; 6] = ["edge", "queue", "commit", "apply", "read point", "read"];

/// A stage of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// One of [`STAGES`]; the page shows another as `other`.
    pub name: String,
    /// How long it took.
    pub duration_us: u64,
}

/// The failovers of the recent past.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failovers {
    /// The time from which on they are known.
    pub known_from_ms: Option<u64>,
    /// The failovers, newest first.
    pub failovers: Vec<Failover>,
    /// How many blackouts lasted how long, shortest first.
    pub histogram: Vec<Bucket>,
    /// The median blackout.
    pub p50_ms: Option<u64>,
    /// The blackout that 99 of 100 stay below.
    pub p99_ms: Option<u64>,
    /// The longest blackout.
    pub max_ms: Option<u64>,
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The upper bound, exclusive; `None` for the last bucket, which has none.
    pub up_to_ms: Option<u64>,
    /// How many blackouts are in it.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use terrane_types::IssueKind;

    use super::*;

    #[test]
    fn kinds_have_the_names_of_their_json() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        for kind in IssueKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
