//! The cluster: overview, servers, regions and log groups.

use serde::{Deserialize, Serialize};
use terrane_types::Issue;
use terrane_types::admin::cluster::RegionLoad;
use terrane_types::admin::past::{EventInfo, LoadMinute};

use super::heat::Advice;
use super::key::Key;

/// The state of the cluster at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// The cluster's name or id, as `terrane status` shows it.
    pub cluster: String,
    /// The process that answers, as `server 2 at 127.0.0.1:7700`.
    pub seen_from: String,
    /// The version of the build that answers.
    pub version: String,
    /// When this was true.
    pub time_ms: u64,
    /// The masters, the leader marked.
    pub masters: Vec<Master>,
    /// The region servers, by id.
    pub servers: Vec<Server>,
    /// How many tables there are.
    pub tables: u64,
    /// How many regions there are.
    pub regions: u64,
    /// How many log groups there are.
    pub groups: u64,
    /// How many bytes the regions hold, each counted once, whatever the number of replicas.
    pub bytes: u64,
    /// The load of the whole cluster now.
    pub load: RegionLoad,
    /// The load of the last hour or more, a point per minute, oldest first; minutes that are not known are missing.
    pub history: Vec<LoadMinute>,
    /// What is wrong, worst first, with what and what to do as sentences, a command in them between backquotes; empty when
    /// all is well.
    pub problems: Vec<Issue>,
}

/// A master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Master {
    /// Its address.
    pub address: String,
    /// Whether it leads.
    pub leader: bool,
    /// Whether it answers; `None` if this process cannot tell.
    pub reachable: Option<bool>,
}

/// A region server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The address of its console, to link to it.
    pub console: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// `live`, `draining`, `silent`, `dead` and the like, as `terrane status` says it.
    pub state: String,
    /// Whether `state` needs no attention.
    pub healthy: bool,
    /// How many groups it leads.
    pub leaders: u64,
    /// How many replicas it holds.
    pub replicas: u64,
    /// How many regions it hosts.
    pub regions: u64,
    /// How many bytes its store files and its log have.
    pub bytes: Option<u64>,
    /// The free bytes of its data disk.
    pub disk_free_bytes: Option<u64>,
    /// The load of the regions that it hosts.
    pub load: RegionLoad,
}

/// Which regions to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegionSelection {
    /// Only those of this table.
    pub table: Option<String>,
    /// Only those that this server hosts.
    pub server: Option<u64>,
    /// Only those of this log group.
    pub group: Option<u64>,
}

/// A region in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Its id.
    pub id: u64,
    /// Its table.
    pub table: String,
    /// Its first key.
    pub start: Key,
    /// The key behind its last.
    pub end: Key,
    /// Its epoch.
    pub epoch: u64,
    /// Its log group.
    pub group: u64,
    /// The server that hosts it, if one does.
    pub leader: Option<u64>,
    /// The address of that server.
    pub leader_address: Option<String>,
    /// `open`, `splitting`, `moving` and the like, as `terrane admin regions` says it.
    pub state: String,
    /// Whether `state` needs no attention.
    pub healthy: bool,
    /// How many bytes it holds.
    pub bytes: u64,
    /// Its load.
    pub load: RegionLoad,
}

/// A region on its page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegionDetail {
    /// What the list shows of it.
    pub region: Region,
    /// The members of its group.
    pub members: Vec<Member>,
    /// Names and values worth showing beside (memtable size, store files, levels, compaction debt, durable point), in the
    /// order in which to show them, for people.
    pub facts: Vec<(String, String)>,
    /// The load of the last hour or more, oldest first.
    pub history: Vec<LoadMinute>,
    /// What happened to it, newest first.
    pub events: Vec<EventInfo>,
    /// What to do about it, if anything.
    pub advice: Vec<Advice>,
}

/// A member of a log group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The id of the replica.
    pub replica: u64,
    /// The server that it is on.
    pub server: u64,
    /// The address of that server.
    pub address: String,
    /// `leader`, `follower` or `learner`.
    pub role: String,
    /// Whether it answers and follows.
    pub healthy: bool,
    /// How many entries it is behind the leader.
    pub behind: Option<u64>,
}

/// A log group in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its id.
    pub id: u64,
    /// Its term.
    pub term: Option<u64>,
    /// The server that leads it, if one does.
    pub leader: Option<u64>,
    /// The address of that server.
    pub leader_address: Option<String>,
    /// Its members.
    pub members: Vec<Member>,
    /// How many regions it orders.
    pub regions: u64,
    /// The bytes of those regions.
    pub bytes: u64,
    /// `ok`, `no leader`, `under-replicated` and the like.
    pub state: String,
    /// Whether `state` needs no attention.
    pub healthy: bool,
    /// The load of its regions.
    pub load: RegionLoad,
}

/// A log group on its page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupDetail {
    /// What the list shows of it.
    pub group: Group,
    /// Names and values worth showing beside (commit index, applied index, log bytes kept), in the order in which to show
    /// them, for people.
    pub facts: Vec<(String, String)>,
    /// Its regions.
    pub regions: Vec<Region>,
    /// What happened to it, newest first.
    pub events: Vec<EventInfo>,
}
