//! Tables, servers, groups and regions as the master describes them.

use std::time::Duration;

use terrane_types::{ClusterId, GroupId, RegionDescriptor, ServerId, TableSchema};

/// A table as the master knows it.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// Its schema.
    pub schema: TableSchema,
    /// `enabled`, or what it is on the way to.
    pub state: String,
    /// How many regions it has.
    pub regions: u32,
    /// About how many bytes it has.
    pub bytes: u64,
}

/// A region server as the master knows it.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Its id.
    pub server: ServerId,
    /// Where clients and peers reach it.
    pub address: String,
    /// Where its console is.
    pub console: String,
    /// `live`, `silent` or `stopped`.
    pub state: String,
    /// Groups it leads.
    pub leaders: u32,
    /// Replicas it has.
    pub replicas: u32,
    /// Regions it hosts: those of the groups it leads.
    pub regions: u32,
    /// The engine of its directory.
    pub engine: String,
    /// Bytes in its log.
    pub log_bytes: u64,
    /// The limit of its log in bytes.
    pub log_limit: u64,
    /// What holds its log back; empty: nothing.
    pub log_held_by: String,
    /// Bytes in its memtables.
    pub memtable_bytes: u64,
    /// How long ago it last reported.
    pub since_report: Duration,
    /// What is wrong with it.
    pub troubles: Vec<String>,
    /// Its limited resources and how full they are.
    pub resources: Vec<ResourceUsage>,
}

/// A limited resource of a server: memory, streams, queues. `docs/design/bounds.md` says what each is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceUsage {
    /// Its name, as in the metric `terrane_server_resource_used`.
    pub name: String,
    /// Whether the numbers are bytes; otherwise they count things.
    pub is_bytes: bool,
    /// What is in use.
    pub used: u64,
    /// The most that was in use at a time since the server started.
    pub peak: u64,
    /// What may be in use.
    pub limit: u64,
    /// Requests that were refused for lack of it since the server started.
    pub refused: u64,
}

/// A log group as the master knows it.
#[derive(Clone, Debug)]
pub struct GroupInfo {
    /// Its id.
    pub group: GroupId,
    /// Who leads it, if anybody does.
    pub leader: Option<ServerId>,
    /// The term of that.
    pub term: u64,
    /// Its members' servers and addresses.
    pub members: Vec<(ServerId, String)>,
    /// The replica ids of its members.
    pub replicas: Vec<u64>,
    /// Regions it has.
    pub regions: u32,
    /// The log index it has applied.
    pub applied: u64,
    /// What state it is in.
    pub state: String,
}

/// A region as the master knows it.
#[derive(Clone, Debug)]
pub struct RegionInfo {
    /// What it is.
    pub descriptor: RegionDescriptor,
    /// The name of its table.
    pub table: String,
    /// The address of the server that hosts it; empty: not known.
    pub leader: String,
    /// About how many bytes it has.
    pub bytes: u64,
    /// `open`, or what it is on the way to.
    pub state: String,
    /// The addresses of all servers that have a replica of it.
    pub servers: Vec<String>,
}

/// The whole cluster at a glance.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Its id.
    pub cluster: ClusterId,
    /// Replicas that each group has.
    pub replication: u32,
    /// Its servers.
    pub servers: Vec<ServerInfo>,
    /// How many tables there are.
    pub tables: u32,
    /// How many regions.
    pub regions: u32,
    /// How many groups.
    pub groups: u32,
    /// Groups that nobody leads at the moment: their regions cannot be read or written.
    pub groups_without_leader: u32,
    /// What is wrong, in sentences.
    pub troubles: Vec<String>,
    /// What the cluster waits for before tables can be made; empty: nothing.
    pub waiting_for: String,
    /// How far the catalog's log is applied.
    pub catalog_index: u64,
}
