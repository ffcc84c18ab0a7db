//! What the leading master has seen since it began to lead: loads, events and failovers.

use bytes::Bytes;

use crate::named::named;
use crate::{GroupId, Place, RegionId, ServerId};

/// What a load history counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum LoadMeasure {
    /// Rows read.
    Reads,
    /// Rows written.
    #[default]
    Writes,
    /// Bytes of the rows read and written.
    Bytes,
}

/// The load of a table by time and key. A range that was split or merged keeps its history: halves of it, or the sum.
#[derive(Clone, Debug)]
pub struct TableLoad {
    /// Since when the master has watched; `None`: it has no history of the table yet.
    pub known_from_ms: Option<u64>,
    /// The start of the first column.
    pub from_ms: u64,
    /// The duration of a column.
    pub step_ms: u64,
    /// The columns of each row.
    pub columns: u32,
    /// The master's time. The last column may reach beyond it: its last minute is not over.
    pub now_ms: u64,
    /// Key ranges in order.
    pub rows: Vec<LoadRow>,
}

/// The load of a key range: of one region, or of several neighbours.
#[derive(Clone, Debug)]
pub struct LoadRow {
    /// The first key.
    pub start: Bytes,
    /// The key behind the last; empty: the end of the table.
    pub end: Bytes,
    /// The region that has the first key now.
    pub region: Option<RegionId>,
    /// The count of each column, for all of its time.
    pub counts: Vec<u64>,
}

/// The load of the whole cluster per minute.
#[derive(Clone, Debug)]
pub struct ClusterLoad {
    /// Since when the master has watched; `None`: it has not begun.
    pub known_from_ms: Option<u64>,
    /// The finished minutes of the last 24 hours that the master has watched, oldest first.
    pub minutes: Vec<LoadMinute>,
}

/// The latest events.
#[derive(Clone, Debug)]
pub struct EventList {
    /// Since when the master has watched.
    pub known_from_ms: Option<u64>,
    /// Newest first.
    pub events: Vec<EventInfo>,
}

/// The latest failovers.
#[derive(Clone, Debug)]
pub struct FailoverList {
    /// Since when the master has watched.
    pub known_from_ms: Option<u64>,
    /// Those that last, then the newest first.
    pub failovers: Vec<Failover>,
}

/// A group that lost its leader because a server died.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Failover {
    /// When the former leader was last heard of, in milliseconds since 1970.
    pub time_ms: u64,
    /// The group.
    pub group: GroupId,
    /// Its regions.
    pub regions: u32,
    /// The server that led.
    #[cfg_attr(feature = "serde", serde(rename = "from_server"))]
    pub from: ServerId,
    /// The server that led next; `None`: there is none yet.
    #[cfg_attr(feature = "serde", serde(rename = "to_server"))]
    pub to: Option<ServerId>,
    /// Why, as text: `server 2 no longer answered`.
    pub reason: String,
    /// From the last report of the former leader to the first of the next, in milliseconds: at most two report intervals
    /// longer than the group was without a leader. `None` while it lasts.
    pub blackout_ms: Option<u64>,
}

/// What was read and written within one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LoadMinute {
    /// When it began, in milliseconds since 1970.
    pub minute_ms: u64,
    /// Rows read in it.
    pub reads: u64,
    /// Rows written in it.
    pub writes: u64,
    /// Bytes of both.
    pub bytes: u64,
}

named! {
    /// The kinds of events.
    EventKind, else Other {
        /// A region became two.
        Split = "split",
        /// Two regions became one.
        Merge = "merge",
        /// A region moved to another group.
        Move = "move",
        /// A group elected a leader after it lost one, or without a known reason.
        Election = "election",
        /// A leadership was handed over by order.
        Handover = "handover",
        /// A server stopped answering and its groups elected others.
        Failover = "failover",
        /// A server joined, left, returned or changed state.
        Server = "server",
        /// The drain of a server began, progressed or ended.
        Drain = "drain",
        /// The master changed.
        Master = "master",
        /// The members of a group changed.
        Replication = "replication",
        /// A table was created, altered, truncated or dropped.
        Table = "table",
        /// A setting was changed.
        Setting = "setting",
        /// Something else worth knowing.
        Other = "other",
    }
}

/// Something that happened in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EventInfo {
    /// Its place in the order in which the master saw events.
    pub number: u64,
    /// When the master saw it, in milliseconds since 1970.
    pub time_ms: u64,
    /// What kind of event it is.
    pub kind: EventKind,
    /// What happened.
    pub what: String,
    /// Why; empty: not known.
    pub reason: String,
    /// What it happened to.
    pub places: Vec<Place>,
}
