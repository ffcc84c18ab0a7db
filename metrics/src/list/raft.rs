//! Metrics of consensus: the groups' proposals and the shared log.

use super::descriptions;
use crate::Description;
use crate::Kind::{Counter, Gauge, Histogram};
use crate::Unit::{Bytes, None, Seconds};

descriptions! {
    QUEUE = Description::new(Histogram, "terrane_raft_queue_seconds", Seconds,
        "Time of a proposal between its arrival at the group and its place in a log entry (stage queue)",
        "It grows when entries take long to commit: look at the log syncs of all members, and whether one group takes most of the load (`terrane status`).");
    COMMIT = Description::new(Histogram, "terrane_raft_commit_seconds", Seconds,
        "Time of a log entry on the leader from its packing until a quorum has synced it and it is about to be applied",
        "Longer than the log syncs: the network between members or a slow follower. Compare `terrane_raft_log_sync_seconds` of all servers.");
    LOG_SYNC = Description::new(Histogram, "terrane_raft_log_sync_seconds", Seconds,
        "Time of one write and sync of the shared log (stage log sync)",
        "This is the disk. Above 10 ms on a local SSD, look for another program on the disk, a full disk, or a failing one; above 1 s the server hands its leaderships over.");
    APPLY = Description::new(Histogram, "terrane_raft_apply_seconds", Seconds,
        "Time in which the state machine applies a batch of committed entries (stage apply)",
        "It grows with the size of batches, or when flushes hold memory back: compare `terrane_server_write_pressure_ratio`.");
    LEADERSHIPS = Description::new(Counter, "terrane_raft_leaderships", None,
        "Times that a replica of this process began to lead a group",
        "Elections without a restart or a drain: a server stalls, or the network between members fails. The logs say which leader was lost.");
    UNREADABLE_MESSAGES = Description::new(Counter, "terrane_raft_unreadable_messages", None,
        "Messages of other servers that could not be read, as a rule because their checksum did not match",
        "Above 0, bytes change on the way between two servers: the log names the peer. The link is opened again and nothing is lost, but look at the memory and the network cards of both.");
    GROUPS = Description::new(Gauge, "terrane_raft_groups", None,
        "Log groups with a replica in this process", "It changes when replicas are placed or replaced.");
    GROUPS_WITHOUT_LEADER = Description::new(Gauge, "terrane_raft_groups_without_leader", None,
        "Log groups for which this process knows no leader",
        "On one server only: it is cut off. On several: a quorum is down, as `terrane_master_groups_without_leader` says.");
    FAILED_REPLICAS = Description::new(Gauge, "terrane_raft_failed_replicas", None,
        "Replicas that have failed and stopped in this process",
        "Above 0: a person must look. `terrane status` says which replica and why; restart the process, and if the replica fails again, replace the server.");
    STUCK_REPLICAS = Description::new(Gauge, "terrane_raft_stuck_replicas", None,
        "Replicas that have applied nothing for 10 s although entries are committed",
        "Above 0: `terrane status` says which replica and what it waits for. One that lacks files gets a copy of its group; otherwise look at the server's disk.");
    APPLY_LAG = Description::new(Gauge, "terrane_raft_unapplied_entries", None,
        "Committed log entries that are not applied here yet, over all groups",
        "It returns to 0 within a second. If it grows, the server cannot keep up: look at its processor time and its disk.");
    LOG_ENTRIES = Description::new(Counter, "terrane_raft_log_entries", None,
        "Entries written to the shared log, of all groups", "It follows the writes of the cluster.");
    LOG_WRITTEN = Description::new(Counter, "terrane_raft_log_written_bytes", Bytes,
        "Bytes written to the shared log", "It follows the writes of the cluster; compare the disk's limit.");
    LOG_SEGMENTS = Description::new(Gauge, "terrane_raft_log_segments", None,
        "Segment files of the shared log",
        "Steady growth: an absent member or an unflushed region holds the log back, and `terrane status` names it.");
    CLOCK_ERROR = Description::new(Gauge, "terrane_raft_clock_error_seconds", Seconds,
        "How far the wall clock of this process is from the clocks of its peers; below 0 it is behind, and within what messages take it counts as 0",
        "Beyond half a second a server leads nothing. Correct the clock and see that NTP runs.");
}
