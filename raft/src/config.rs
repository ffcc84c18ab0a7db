//! The configuration of a host and its log, and the description of a group.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use terrane_env::fs::Presence;
use terrane_env::time::WallClock;
use terrane_types::versions::Levels;
use terrane_types::{ClusterId, GroupId, ReplicaId, ServerId};

use crate::{AddressBook, Metrics};

/// How a [`crate::GroupHost`] is opened.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Directory of the shared log; created if absent.
    pub dir: PathBuf,
    /// The data directory that the log is in, as it was when it was locked. The process ends when it is deleted or replaced;
    /// `None`: nothing looks.
    pub presence: Option<Presence>,
    /// The cluster; peers of another cluster are refused.
    pub cluster: ClusterId,
    /// This process's server id.
    pub server: ServerId,
    /// The number of starts of this process on its data directory; sent to peers.
    pub boot: u64,
    /// The feature levels that this process works at.
    pub levels: Levels,
    /// This server's wall clock.
    pub wall: WallClock,
    /// Sizes of the shared log.
    pub log: LogConfig,
    /// The interval of a leader's heartbeats.
    pub heartbeat_ms: u64,
    /// The shortest silence of the leader after which a follower stands for election.
    pub election_min_ms: u64,
    /// The longest silence before that; also how long a follower that heard its leader votes for no other.
    pub election_max_ms: u64,
    /// How long a replica may apply nothing although entries are committed before it counts as stuck: it says so, leads nothing
    /// if another member can, and asks for a copy of its group if it lacks something.
    pub stuck_after: Duration,
    /// The address of this process, sent to peers in the hello of each link; empty: not sent.
    pub advertised: String,
    /// The addresses of servers; addresses that peers announce are added.
    pub addresses: Arc<AddressBook>,
    /// The groups that were recovered after they had lost their majority, each with the newest term that a master knows
    /// ([`Host::note_recovered`](crate::Host::note_recovered)).
    pub recovered: BTreeMap<GroupId, u64>,
    /// What the host counts.
    pub metrics: Arc<Metrics>,
}

impl HostConfig {
    /// The defaults for a host over `dir`.
    pub fn new(dir: impl Into<PathBuf>, cluster: ClusterId, server: ServerId, boot: u64) -> HostConfig {
        HostConfig {
            dir: dir.into(),
            presence: None,
            cluster,
            server,
            boot,
            levels: Levels::BUILD,
            wall: WallClock::default(),
            log: LogConfig::default(),
            heartbeat_ms: 100,
            election_min_ms: 300,
            election_max_ms: 600,
            stuck_after: Duration::from_secs(10),
            advertised: String::new(),
            addresses: Arc::default(),
            recovered: BTreeMap::new(),
            metrics: Arc::default(),
        }
    }
}

/// Sizes of the shared log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Size of one segment file, allocated ahead.
    pub segment_bytes: u64,
    /// Recent entries kept in memory, for all groups of the process together.
    pub cache_bytes: u64,
    /// At this size of the log, writes of the groups that hold it back are answered `LogFull`.
    pub limit_bytes: u64,
    /// Above this size, state machines that hold the log back are asked to flush.
    pub purge_budget_bytes: u64,
}

impl LogConfig {
    /// A segment is at most this fraction of the log's limit, so that purging can keep the log below it.
    pub const SEGMENTS_PER_LIMIT: u64 = 8;
    /// The least limit: that many of the smallest segments.
    pub const LIMIT_BYTES_MIN: u64 = 32 << 10;
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            limit_bytes: 8 << 30,
            purge_budget_bytes: 256 << 20,
        }
    }
}

/// A group and the local replica of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// The group.
    pub group: GroupId,
    /// The member on this server.
    pub replica: ReplicaId,
    /// All members and their servers.
    pub members: BTreeMap<ReplicaId, ServerId>,
}
