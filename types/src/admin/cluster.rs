//! Tables, servers, groups, regions and masters, as a master describes them.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::states::{DrainState, GroupState, MasterState, RegionState, ServerState, TableState};
use crate::{ClusterId, Endpoint, GroupId, Issue, IssueKind, RegionDescriptor, ServerId, TableSchema};

#[cfg(feature = "serde")]
use super::json;

/// A table, as the master describes it.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// Its schema.
    pub schema: TableSchema,
    /// Whether it is in use, or the change in progress.
    pub state: TableState,
    /// The number of its regions.
    pub regions: u32,
    /// Its approximate size in bytes.
    pub bytes: u64,
}

/// A region server, as the master describes it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ServerInfo {
    /// Its id.
    pub server: ServerId,
    /// The address for clients and peers.
    pub address: String,
    /// Whether it reports and answers.
    pub state: ServerState,
    /// Groups it leads.
    pub leaders: u32,
    /// Replicas it hosts.
    pub replicas: u32,
    /// Regions it hosts: those of the groups it leads.
    pub regions: u32,
    /// Its zone label; empty: none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub zone: String,
    /// How far its drain is; `None`: it is not drained.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub drain: Option<DrainState>,
    /// When its replicas are replaced, if it is not live and has any.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "replaced_in_seconds",
            serialize_with = "json::seconds_left",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub replaced_in: Option<Duration>,
    /// Bytes in its memtables.
    pub memtable_bytes: u64,
    /// Bytes in its log.
    pub log_bytes: u64,
    /// Bytes of its store files; `None`: its build does not say, or it has not reported to this master.
    pub store_bytes: Option<u64>,
    /// Free bytes of the disk of its data directory; `None`: likewise.
    pub disk_free_bytes: Option<u64>,
    /// The address of its console.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub console: String,
    /// The storage engine of its data directory.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub engine: String,
    /// The limit of its log in bytes.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub log_limit: u64,
    /// What keeps its log from being truncated; empty: nothing.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub log_held_by: String,
    /// How long ago it last reported.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub since_report: Duration,
    /// Its health issues.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub issues: Vec<Issue>,
    /// Its limited resources and their use.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub resources: Vec<ResourceUsage>,
    /// Its versions; `None`: it has not reported them to this master.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub versions: Option<ProcessVersions>,
}

/// What a process says of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProcessVersions {
    /// The version of its build; empty: a build that does not say it.
    pub build: String,
    /// The highest feature level of a cluster that it can work in, which is the level of its build.
    pub level: u32,
    /// The lowest.
    pub oldest_level: u32,
    /// The protocol versions that it speaks.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::versions"))]
    pub protocol: RangeInclusive<u32>,
    /// The versions of each format that it reads, by name.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::formats"))]
    pub formats: BTreeMap<String, RangeInclusive<u32>>,
}

/// A limited resource of a server: memory, streams, queues. `docs/design/bounds.md` explains each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ResourceUsage {
    /// Its name, as in the metric `terrane_server_resource_used`.
    pub name: String,
    /// Whether the numbers are bytes; otherwise they are counts.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub is_bytes: bool,
    /// The amount in use.
    pub used: u64,
    /// The highest use since the server started.
    pub peak: u64,
    /// The limit.
    pub limit: u64,
    /// Requests refused for lack of it since the server started.
    pub refused: u64,
}

/// A log group, as the master describes it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GroupInfo {
    /// Its id.
    pub group: GroupId,
    /// The server that leads it, if one does.
    pub leader: Option<ServerId>,
    /// The term of that leader.
    pub term: u64,
    /// The servers and addresses of its members.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::addresses"))]
    pub members: Vec<(ServerId, String)>,
    /// The replica ids of its members.
    pub replicas: Vec<u64>,
    /// The number of its regions.
    pub regions: u32,
    /// The log index up to which it has applied.
    pub applied: u64,
    /// Its state.
    pub state: GroupState,
    /// The regions whose replicas were compared and found equal, as its leader knows.
    pub compared_regions: u32,
    /// When the longest ago of these was, in milliseconds since 1970; 0: none.
    pub compared_ms: u64,
}

/// A region, as the master describes it.
#[derive(Clone, Debug)]
pub struct RegionInfo {
    /// Its id, range, epoch and group.
    pub descriptor: RegionDescriptor,
    /// The name of its table.
    pub table: String,
    /// The address of the server that serves it; empty: unknown.
    pub leader: String,
    /// Its approximate size in bytes.
    pub bytes: u64,
    /// Whether it serves, or the change in progress.
    pub state: RegionState,
    /// The addresses of all servers with a replica of it.
    pub servers: Vec<String>,
    /// What is requested of it.
    pub load: RegionLoad,
}

/// The load of a region, or of several, per second, averaged over the last few seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RegionLoad {
    /// Rows read.
    #[cfg_attr(feature = "serde", serde(rename = "reads_per_second"))]
    pub rows_read: u64,
    /// Rows written.
    #[cfg_attr(feature = "serde", serde(rename = "writes_per_second"))]
    pub rows_written: u64,
    /// Bytes of the rows read and written.
    #[cfg_attr(feature = "serde", serde(rename = "bytes_per_second"))]
    pub bytes: u64,
}

impl Sum for RegionLoad {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), |sum, load| Self {
            rows_read: sum.rows_read + load.rows_read,
            rows_written: sum.rows_written + load.rows_written,
            bytes: sum.bytes + load.bytes,
        })
    }
}

/// A summary of the whole cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterStatus {
    /// Its id.
    pub cluster: ClusterId,
    /// The number of replicas of each group.
    pub replication: u32,
    /// Its servers.
    pub servers: Vec<ServerInfo>,
    /// The number of tables.
    pub tables: u32,
    /// The number of regions.
    pub regions: u32,
    /// The number of groups.
    pub groups: u32,
    /// Groups without a leader: their regions can be neither read (except stale) nor written.
    pub groups_without_leader: u32,
    /// Health issues; `docs/metrics.md` lists their kinds. [`ClusterStatus::health_issues`] adds what the cluster waits for.
    pub issues: Vec<Issue>,
    /// What the cluster waits for before tables can be created; empty: nothing.
    pub waiting_for: String,
    /// The log index up to which the catalog has applied.
    pub catalog_index: u64,
    /// The masters.
    pub masters: Vec<MasterInfo>,
    /// The feature level of the cluster; 0: the masters do not know levels.
    pub feature_level: u32,
    /// The processes that hold back the next level, a clause each; empty: none runs a newer build.
    pub level_waits_for: Vec<String>,
    /// How long a server may be away before its replicas are replaced.
    pub replace_after: Duration,
    /// Whether an administrator has set that while the cluster runs; otherwise it is what the leading master was started with.
    pub replace_after_is_set: bool,
    /// How far the repair of groups is; `None`: every group has all its copies.
    pub repair: Option<RepairProgress>,
}

/// How far the repair is of groups that lack copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RepairProgress {
    /// The groups that have all their copies.
    pub whole: u32,
    /// All groups.
    pub groups: u32,
    /// How long ago the first of the others lacked one, or since when the leading master leads.
    #[cfg_attr(feature = "serde", serde(rename = "since_seconds", serialize_with = "json::seconds"))]
    pub since: Duration,
    /// How long the rest takes at the rate so far; `None`: not known yet, or it waits.
    #[cfg_attr(feature = "serde", serde(rename = "left_seconds", serialize_with = "json::seconds_left"))]
    pub left: Option<Duration>,
    /// The size of the copies that are being made.
    pub bytes: u64,
    /// What is made of these.
    pub copied_bytes: u64,
    /// What it waits for; empty: it makes progress.
    pub waits_for: String,
}

impl ClusterStatus {
    /// All health issues: what new tables and procedures wait for, then the issues of servers, groups and regions.
    #[must_use]
    pub fn health_issues(&self) -> Vec<Issue> {
        let waiting = Some(&self.waiting_for).filter(|waiting| !waiting.is_empty());
        let waiting = waiting.map(|what| IssueKind::Waiting.issue(what.as_str()));
        waiting.into_iter().chain(self.issues.iter().cloned()).collect()
    }
}

/// A master, as the master that answered sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MasterInfo {
    /// Its address.
    pub address: String,
    /// Whether it leads, follows or does not answer.
    pub state: MasterState,
    /// The newest term it knows.
    pub term: u64,
    /// The log index up to which its catalog has applied.
    pub applied: u64,
    /// The committed entries that it has not applied yet.
    pub lag: u64,
    /// Where it serves clients of other protocols; none: nowhere, or it does not answer.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub endpoints: Vec<Endpoint>,
    /// Its versions; `None`: it does not answer, or does not say.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub versions: Option<ProcessVersions>,
    /// How much of its limited resources is in use; none: it does not answer, or does not say.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub resources: Vec<ResourceUsage>,
}
