//! What masters tell administrators, as plain data: the same from the master to the client, `--json` and the pages.

use crate::named::named;
use crate::{GroupId, Place, ServerId};

/// A change of a table, a group, a server or the masters that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EndedProcedure {
    /// Its id while it ran. Only drains of one server share theirs, and changes of the masters.
    pub id: String,
    /// `create table`, `replace replica`, `drain server` and so on.
    pub kind: String,
    /// What it worked on.
    pub subject: String,
    /// The address of the master that drove it.
    pub owner: String,
    /// Why it was begun; empty: by an administrator's call.
    pub reason: String,
    /// Whether it did not reach its aim.
    pub failed: bool,
    /// `done`, or what happened instead.
    pub outcome: String,
    /// When it began, or since when its owner knew it, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// What it changed.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub places: Vec<Place>,
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
