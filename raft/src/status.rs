//! The status of groups and of the log, and the points at which reads are answered.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{GroupId, Issue, ReplicaId, ServerId};

/// The status of a group as its local replica sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// The group.
    pub group: GroupId,
    /// The local replica.
    pub replica: ReplicaId,
    /// The newest term known here.
    pub term: u64,
    /// The leader of that term, if known.
    pub leader: Option<(ReplicaId, ServerId)>,
    /// Whether the local replica leads and has applied the first entry of its term, so that it accepts writes and reads.
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
    /// The members that vote; the others are learners.
    pub voters: BTreeSet<ReplicaId>,
    /// Members that lack entries which the log no longer has, and to which copies of the group have been failing for a while:
    /// why.
    pub copies_failing: Vec<(ReplicaId, String)>,
    /// Why the local replica applies nothing although more is committed, if that has been so for a while: a sentence without
    /// its full stop.
    pub stuck: Option<String>,
    /// Why the local replica failed, if it did: it does nothing more until the process is restarted.
    pub failed: Option<String>,
}

/// The status of the shared log of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Bytes of all segments and held files, the unused rest of the last segment not counted.
    pub bytes: u64,
    /// The limit of these bytes.
    pub limit: u64,
    /// Whether the writes of at least one group are refused now.
    pub full: bool,
    /// Those groups, each with what prevents purging.
    pub refusing: Vec<(GroupId, String)>,
    /// What prevents most of the log from being purged, when it is over its budget.
    pub held_by: Option<String>,
    /// What is wrong with it.
    pub trouble: Option<Issue>,
    /// Files of entries that were copied out of old segments because a group still needs them.
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

/// The point at which a read of what is applied here is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalePoint {
    /// Everything up to this index, at least, is applied.
    pub index: u64,
    /// Stamp of the last applied entry.
    pub stamp: u64,
    /// Everything acknowledged before this time (milliseconds, by the median of the members' clocks) is applied.
    pub as_of_ms: u64,
}

/// A point at which a linearizable read may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPoint {
    /// The leader's term.
    pub term: u64,
    /// Everything up to this index is applied.
    pub index: u64,
    /// Stamp of the last applied entry.
    pub stamp: u64,
}
