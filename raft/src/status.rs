//! What groups and the log tell about themselves.

use std::collections::BTreeMap;

use terrane_types::{GroupId, ReplicaId, ServerId};

/// A group as its local replica knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The group.
    pub group: GroupId,
    /// The local replica.
    pub replica: ReplicaId,
    /// The newest term known here.
    pub term: u64,
    /// The leader of that term where it is known.
    pub leader: Option<(ReplicaId, ServerId)>,
    /// Whether the local replica leads and has applied the first entry of its term, so that it takes writes and reads.
    pub is_leader: bool,
    /// Last index in the local log.
    pub last_index: u64,
    /// Last index known to be committed.
    pub committed: u64,
    /// Last index applied by the state machine.
    pub applied: u64,
    /// Stamp of the last applied entry: the group's log time.
    pub last_stamp: u64,
    /// All members and their servers.
    pub members: BTreeMap<ReplicaId, ServerId>,
    /// Members that are so far behind that the log no longer holds what they lack.
    pub snapshot_wanted_by: Vec<ReplicaId>,
    /// Why the local replica stopped for good, if it did: it takes part in nothing until the process is started again.
    pub failed: Option<String>,
}

/// The shared log of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Bytes of all segments and held files, the unused rest of the last segment not counted.
    pub bytes: u64,
    /// What it may come to.
    pub limit: u64,
    /// Whether some group's writes are refused now.
    pub full: bool,
    /// Those groups, each with who is in the way.
    pub refusing: Vec<(GroupId, String)>,
    /// Who keeps most of the log from being purged, when it is over its budget.
    pub held_by: Option<String>,
    /// What is wrong with it, for people.
    pub trouble: Option<String>,
    /// Files of entries that were copied out of old segments because a group still needs them, and their bytes.
    pub held_files: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Segment files.
    pub segments: u64,
    /// Batches written and synced since the start.
    pub syncs: u64,
    /// Log entries written since the start.
    pub entries: u64,
    /// Bytes written since the start.
    pub written: u64,
}

/// A point that a read of whatever is applied here is answered at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalePoint {
    /// At least everything up to here is applied.
    pub index: u64,
    /// Stamp of the last applied entry.
    pub stamp: u64,
    /// Everything acknowledged before this time (milliseconds, by the median of the members' clocks) is applied.
    pub as_of_ms: u64,
}

/// A point that a linearizable read may be answered at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPoint {
    /// The leader's term.
    pub term: u64,
    /// Everything up to here is applied.
    pub index: u64,
    /// Stamp of the last applied entry.
    pub stamp: u64,
}
