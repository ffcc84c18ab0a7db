//! What can go wrong, arranged by what the caller can do about it.

use terrane_types::{GroupId, ReplicaId, ServerId};

/// Why a host did not open. None of these is mended by trying again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log is damaged below what is known to be synced. Serving would forget acknowledged entries.
    #[error(
        "the log {file} is damaged at offset {offset} ({what}); it holds acknowledged entries, so this server must not serve; keep the other servers running, and run `terrane tool check` on the directory"
    )]
    Damage {
        /// The segment.
        file: String,
        /// Where in it.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// The directory holds something that this build cannot read.
    #[error("the log {file} cannot be read by this build: {what}")]
    Unsupported {
        /// The file.
        file: String,
        /// What was found.
        what: String,
    },
    /// A setting is impossible.
    #[error("the log settings cannot work: {what}")]
    Settings {
        /// What and why.
        what: String,
    },
    /// The directory could not be read or written.
    #[error("cannot open the log directory {dir}: {source}")]
    Io {
        /// The directory.
        dir: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A recorded group did not start.
    #[error("group {group} did not start: {what}")]
    Group {
        /// The group.
        group: GroupId,
        /// What the consensus library said.
        what: String,
    },
}

/// Why a group was not made or a leader not moved.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The group is here already, with other members or another replica. Use a new group id.
    #[error("group {group} is already here with other members")]
    Exists {
        /// The group.
        group: GroupId,
    },
    /// The order is not possible as given.
    #[error("{what}")]
    Invalid {
        /// A full sentence.
        what: String,
    },
    /// The host is shutting down.
    #[error("this host is shutting down")]
    Stopped,
}

/// Why a proposal or a read barrier did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// Nothing was done here; go to the leader (none named: ask the members, or wait for an election).
    #[error("this replica does not lead the group in term {term}")]
    NotLeader {
        /// The newest term known here.
        term: u64,
        /// The leader of that term where it is known.
        leader: Option<(ReplicaId, ServerId)>,
    },
    /// Too much is queued; nothing was done. Try again shortly.
    #[error("the group's queue is full")]
    Busy,
    /// The log reached its limit; nothing was done. Reads go on.
    #[error("the log reached its limit; it is held back by {held_by}")]
    LogFull {
        /// The member or region that keeps the log from being purged.
        held_by: String,
    },
    /// The operation is larger than any entry may be; nothing was done.
    #[error("the operation is larger than {limit} bytes")]
    TooLarge {
        /// The most bytes.
        limit: usize,
    },
    /// This replica has started and has not caught up with anything yet. Ask another one, or again shortly.
    #[error("this replica has applied nothing since it started")]
    NotReady,
    /// The operation may or may not take effect.
    #[error("the outcome of the operation is not known")]
    Uncertain,
    /// The host is shutting down; nothing was done.
    #[error("this host is shutting down")]
    Stopped,
}
