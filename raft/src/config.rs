//! What a host is told when it opens, and what a group is made of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use terrane_env::time::WallClock;
use terrane_types::{ClusterId, GroupId, ReplicaId, ServerId};

use crate::AddressBook;

/// How a [`crate::GroupHost`] is opened.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Directory of the shared log; made when absent.
    pub dir: PathBuf,
    /// The cluster; peers of another one are refused.
    pub cluster: ClusterId,
    /// This process's server id.
    pub server: ServerId,
    /// How often this process started on its data directory; told to peers.
    pub boot: u64,
    /// This server's wall clock.
    pub wall: WallClock,
    /// Sizes of the shared log.
    pub log: LogConfig,
    /// A leader's sign of life.
    pub heartbeat_ms: u64,
    /// Least silence after which a follower stands for election.
    pub election_min_ms: u64,
    /// Most silence before that; also how long a follower that heard of a leader votes for no other.
    pub election_max_ms: u64,
    /// Where this process is reached, told to peers in the hello of each link; empty: not told.
    pub advertised: String,
    /// Where servers are reached; peers that say so themselves are entered here.
    pub addresses: Arc<AddressBook>,
}

impl HostConfig {
    /// The defaults for a host over `dir`.
    pub fn new(dir: impl Into<PathBuf>, cluster: ClusterId, server: ServerId, boot: u64) -> HostConfig {
        HostConfig {
            dir: dir.into(),
            cluster,
            server,
            boot,
            wall: WallClock::default(),
            log: LogConfig::default(),
            heartbeat_ms: 100,
            election_min_ms: 300,
            election_max_ms: 600,
            advertised: String::new(),
            addresses: Arc::default(),
        }
    }
}

/// Sizes of the shared log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Size of one segment file, allocated ahead.
    pub segment_bytes: u64,
    /// Recent entries kept in memory, over all groups of the process.
    pub cache_bytes: u64,
    /// At this size of all segments together writes are answered `LogFull`.
    pub limit_bytes: u64,
    /// Above this size state machines that hold the log back are asked to flush.
    pub purge_budget_bytes: u64,
}

impl LogConfig {
    /// A segment is at most this part of the log's limit, so that purging can keep the log below it.
    pub const SEGMENTS_PER_LIMIT: u64 = 8;
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
    /// The member that lives on this server.
    pub replica: ReplicaId,
    /// All members and the servers they live on.
    pub members: BTreeMap<ReplicaId, ServerId>,
}
