//! Log groups: Raft groups that share one log per server process, and everything that drives them.
//!
//! A [`GroupHost`] holds the replicas of a server process. It owns the shared log (one directory, one writer, one sync for
//! everything that all groups have queued), the peer links to the other servers, and one proposer per group, which packs
//! queued proposals into entries. It does not interpret operations: each group replica has a [`StateMachine`], which applies
//! the committed entries in log order.
//!
//! Invariants:
//! - Nothing is acknowledged, to a caller or to a peer, before it is synced on the servers that the acknowledgement counts.
//! - A failed write or sync of the log ends the process.
//! - An entry takes effect only if the term it was packed in is the term of its log id and its predecessor by ordinal was
//!   applied. Otherwise it has no effect on any replica, and its operations are packed again.
//! - This is the only crate that names openraft. Entries, votes, memberships and peer frames have layouts of our own
//!   (`docs/formats/log.md`, `docs/formats/peer.md`), so the consensus crate can be replaced under existing data.
//!
//! Left out on purpose: the state of a replica (the state machine's) and the placement of groups (the master's).

mod codec;
mod config;
mod copies;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod leadership;
mod log;
mod members;
mod metrics;
mod peer;
mod proposals;
mod reads;
mod retention;
mod runtime;
#[cfg(test)]
mod script;
mod status;
mod time;
mod types;

/// The formats of a log and of what its peers send each other.
pub const FORMATS: &[terrane_types::versions::FormatVersions] =
    &[log::SEGMENT_VERSIONS, log::HELD_VERSIONS, proposals::entry::VERSIONS, peer::frame::VERSIONS];

pub use config::{GroupSpec, HostConfig, LogConfig};
pub use error::{Error, MembersError, OpenError, ProposeError};
pub use groups::group::Group;
pub use groups::group_host::GroupHost;
pub use groups::host::Host;
pub use leadership::abstention::{Abstention, Weight};
pub use leadership::stall::SLOW_SYNCS;
#[cfg(feature = "interleave")]
pub use log::interleavings;
pub use log::{LoggedGroup, check_log};
pub use members::MemberProgress;
pub use members::lineage::{RECOVERY_TERMS, is_lost};
pub use members::recovery::{Inspection, Recovery};
pub use metrics::{Metrics, Timing};
pub use peer::addresses::AddressBook;
pub use peer::service::PeerService;
pub use proposals::state_machine::{
    AppliedEntry, BoxFuture, CopiedFile, Durable, Factory, Packing, Prepared, Progress, Proposal, StagedCopy,
    StateCopy, StateMachine,
};
pub use status::{GroupStatus, LogStatus, ReadPoint, StalePoint};
pub use types::scope;
