//! The errors of this crate, arranged by what the caller can do about them.

use terrane_types::{GroupId, ReplicaId, ServerId};

/// Why a host did not open. A retry helps with none of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log is damaged in a part that is known to be synced. Serving would lose acknowledged entries.
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
    /// The directory has a file that this build cannot read.
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
        /// Which one and why.
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
        /// The error of the consensus library.
        what: String,
    },
}

/// Why a group was not created or a leadership not handed over.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This server has the group already, with other members or another replica. Use a new group id.
    #[error("group {group} exists on this server with other members")]
    Exists {
        /// The group.
        group: GroupId,
    },
    /// The request cannot be carried out as given.
    #[error("{what}")]
    Invalid {
        /// A full sentence.
        what: String,
    },
    /// The host is shutting down.
    #[error("this host is shutting down")]
    Stopped,
}

/// Why the members of a group were not changed. The members are as they were, or, after [`MembersError::Later`], may be
/// changing; repeating the step at the leader is safe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// Another replica leads. Repeat the step there.
    #[error("this replica does not lead the group")]
    NotLeader,
    /// The step is impossible as things are. Repeating it does not help.
    #[error("{what}")]
    Refused {
        /// A sentence without its full stop.
        what: String,
    },
    /// Not yet: repeat the step.
    #[error("{what}")]
    Later {
        /// A sentence without its full stop.
        what: String,
    },
    /// The host is shutting down, or the replica was removed.
    #[error("this replica is shutting down")]
    Stopped,
}

/// Why a proposal or a read barrier did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// Nothing was done. Retry at the leader; if none is named, ask the other members or wait for an election.
    #[error("this replica does not lead the group in term {term}")]
    NotLeader {
        /// The newest term known here.
        term: u64,
        /// The leader of that term, if known.
        leader: Option<(ReplicaId, ServerId)>,
    },
    /// Too much is queued; nothing was done. Retry shortly.
    #[error("the group's queue is full")]
    Busy,
    /// The log has reached its limit; nothing was done. Reads still work.
    #[error("the log has reached its limit; it is held back by {held_by}")]
    LogFull {
        /// The member or region that prevents purging.
        held_by: String,
    },
    /// The operation is larger than any entry may be; nothing was done.
    #[error("the operation is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// This replica does not know yet as of when its state is complete. Ask another one, or retry shortly.
    #[error("this replica does not know yet as of when its state is complete")]
    NotReady,
    /// The operation may or may not take effect.
    #[error("the outcome of the operation is unknown")]
    Uncertain,
    /// The host is shutting down; nothing was done.
    #[error("this host is shutting down")]
    Stopped,
}
