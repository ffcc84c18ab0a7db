//! What faults of the rooms below mean to a caller: one place turns the engine's and the log's errors into the
//! vocabulary that clients act on.

use std::time::Duration;

use terrane_raft::ProposeError;
use terrane_types::{Error, Invalid, ServerId};

use crate::addresses::Addresses;
use crate::proposal::Group;

/// How long a caller waits when a queue of a group is full.
const BUSY_RETRY: Duration = Duration::from_millis(10);
/// How long it waits when the log is full: until a member is back or a flush is done.
const LOG_FULL_RETRY: Duration = Duration::from_millis(250);
/// How long it waits for a server that is stopping, or for a read that found no quorum.
const UNAVAILABLE_RETRY: Duration = Duration::from_millis(100);
/// How long it waits for what comes with the next report to the master.
const REPORT_RETRY: Duration = Duration::from_secs(1);

/// A refused or unfinished proposal, as the client hears it.
#[must_use]
pub fn propose_error(error: ProposeError, group: &Group, addresses: &Addresses) -> Error {
    match error {
        ProposeError::NotLeader { term, leader } => {
            not_leader(group, term, leader.map(|(_, server)| server), addresses)
        }
        ProposeError::Busy => Error::Busy { retry_after: BUSY_RETRY },
        ProposeError::LogFull { held_by } => Error::LogFull { held_by, retry_after: LOG_FULL_RETRY },
        ProposeError::TooLarge { limit } => Error::Invalid(Invalid::new(format!(
            "the write takes more than {limit} bytes in the log: send fewer rows at once"
        ))),
        ProposeError::Uncertain => Error::Uncertain { not_tried: false },
        ProposeError::Stopped => stopping(),
        other => Error::Internal { message: other.to_string() },
    }
}

/// A read that did not get its read point. Nothing was changed, so an unknown outcome is only a reason to try again.
#[must_use]
pub fn barrier_error(error: ProposeError, group: &Group, addresses: &Addresses) -> Error {
    match error {
        ProposeError::Uncertain => {
            Error::Unavailable { message: "no quorum answered in time".to_owned(), retry_after: UNAVAILABLE_RETRY }
        }
        ProposeError::NotReady => Error::Unavailable {
            message: "this server has just started and knows nothing recent of the region; ask another one".to_owned(),
            retry_after: UNAVAILABLE_RETRY,
        },
        other => propose_error(other, group, addresses),
    }
}

/// Page tokens before any master told a key.
#[must_use]
pub fn no_page_key() -> Error {
    let message = "no key for page tokens has come from the master yet".to_owned();
    Error::Unavailable { message, retry_after: REPORT_RETRY }
}

/// Where to go instead.
#[must_use]
pub fn not_leader(group: &Group, term: u64, leader: Option<ServerId>, addresses: &Addresses) -> Error {
    let members = group.status().members;
    let with_address = |server: ServerId| addresses.get(server).map(|address| (server, address));
    Error::NotLeader {
        group: group.id(),
        term,
        leader,
        address: leader.and_then(|server| addresses.get(server)),
        members: members.into_values().filter_map(with_address).collect(),
    }
}

/// This server is going away; another one will lead.
#[must_use]
pub fn stopping() -> Error {
    Error::Unavailable { message: "this server is stopping".to_owned(), retry_after: UNAVAILABLE_RETRY }
}

/// A fault of the engine.
#[must_use]
pub fn engine_error(error: terrane_engine::Error) -> Error {
    match error {
        terrane_engine::Error::Corruption { file, offset, .. } => {
            Error::Corruption { file: file.display().to_string(), offset }
        }
        terrane_engine::Error::RowTooLarge { bytes_max } => {
            let what =
                format!("the row takes more than {bytes_max} bytes: ask for fewer columns or versions, or scan it");
            Error::Invalid(Invalid { what })
        }
        other => Error::Internal { message: other.to_string() },
    }
}
