//! Translates errors of the engine and the log into the errors that clients act on.

use std::time::Duration;

use terrane_raft::{GroupStatus, ProposeError};
use terrane_types::{Error, Invalid, ServerId};

use crate::group::proposal::Group;
use crate::masters::addresses::Addresses;

/// How long a caller waits when a group's queue is full.
const BUSY_RETRY: Duration = Duration::from_millis(10);
/// How long a caller waits when the log is full: until a member returns or a flush ends.
const LOG_FULL_RETRY: Duration = Duration::from_millis(250);
/// How long a caller waits when the server is stopping, or when a read found no quorum.
const UNAVAILABLE_RETRY: Duration = Duration::from_millis(100);
/// How long a caller waits for something that arrives with the next report to the master.
const REPORT_RETRY: Duration = Duration::from_secs(1);

/// Maps a refused or unfinished proposal to the client's error.
#[must_use]
pub fn propose_error(error: ProposeError, group: &Group, addresses: &Addresses) -> Error {
    match error {
        ProposeError::NotLeader { term, leader } => {
            not_leader(group, term, leader.map(|(_, server)| server), addresses)
        }
        other => removed_error(other),
    }
}

/// The same for a group that has left this server since: only what was certainly not logged is answered as not applied.
#[must_use]
pub fn removed_error(error: ProposeError) -> Error {
    match error {
        // The caller looks for the group elsewhere.
        ProposeError::NotLeader { .. } | ProposeError::Stopped => stopping(),
        ProposeError::Busy => Error::Busy { retry_after: BUSY_RETRY },
        ProposeError::LogFull { held_by } => Error::LogFull { held_by, retry_after: LOG_FULL_RETRY },
        ProposeError::TooLarge { limit } => Error::Invalid(Invalid::new(format!(
            "the write takes more than {limit} bytes in the log; send fewer rows per request"
        ))),
        ProposeError::Uncertain => Error::Uncertain { not_tried: false },
        other => Error::Internal { message: other.to_string() },
    }
}

/// Maps the error of a read that got no read point. It changed nothing, so an unknown outcome only means to retry.
#[must_use]
pub fn barrier_error(error: ProposeError, group: &Group, addresses: &Addresses) -> Error {
    match error {
        ProposeError::Uncertain => {
            Error::Unavailable { message: "no quorum answered in time".to_owned(), retry_after: UNAVAILABLE_RETRY }
        }
        ProposeError::NotReady => Error::Unavailable {
            message: "this server has just started and is not up to date with the region; read from another replica"
                .to_owned(),
            retry_after: UNAVAILABLE_RETRY,
        },
        other => propose_error(other, group, addresses),
    }
}

/// No master has sent a key for page tokens yet.
#[must_use]
pub fn no_page_key() -> Error {
    let message = "no key for page tokens has arrived from the master yet".to_owned();
    Error::Unavailable { message, retry_after: REPORT_RETRY }
}

/// Redirects the caller to the leader and the other members.
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

/// Admits what only a group's leader can do.
///
/// # Errors
/// As [`not_led`].
pub fn require_leader(group: &Group, addresses: &Addresses) -> Result<(), Error> {
    let status = group.status();
    if status.is_leader { Ok(()) } else { Err(not_led(group, &status, addresses)) }
}

/// Why this server does not carry out what only a leader can: another member leads, or none does, or this server is about to.
#[must_use]
pub fn not_led(group: &Group, status: &GroupStatus, addresses: &Addresses) -> Error {
    let leader = status.leader.map(|(_, server)| server);
    not_leading_yet(status).unwrap_or_else(|| not_leader(group, status.term, leader, addresses))
}

/// The error of a server that has won an election and does not know yet what earlier leaders have committed: a redirect would
/// name the server itself, and hide what is waited for.
fn not_leading_yet(status: &GroupStatus) -> Option<Error> {
    let GroupStatus { group, term, replica, .. } = status;
    let is_elected = status.leader.is_some_and(|(leader, _)| leader == *replica);
    let message = format!(
        "this server was elected to lead group {group} in term {term}, and no quorum has synced its first entry yet"
    );
    is_elected.then_some(Error::Unavailable { message, retry_after: UNAVAILABLE_RETRY })
}

/// This server is stopping; another one will lead.
#[must_use]
pub fn stopping() -> Error {
    Error::Unavailable { message: "this server is stopping".to_owned(), retry_after: UNAVAILABLE_RETRY }
}

/// Maps an engine error.
#[must_use]
pub fn engine_error(error: terrane_engine::Error) -> Error {
    match error {
        terrane_engine::Error::Corruption { file, offset, .. } => {
            Error::Corruption { file: file.display().to_string(), offset }
        }
        terrane_engine::Error::RowTooLarge { bytes_max } => {
            let what =
                format!("the row takes more than {bytes_max} bytes; request fewer columns or versions, or scan it");
            Error::Invalid(Invalid { what })
        }
        // Nothing was done, and another try may reach another disk, or the same one after it has recovered.
        error @ terrane_engine::Error::Io { .. } => {
            Error::Unavailable { message: error.to_string(), retry_after: UNAVAILABLE_RETRY }
        }
        other => Error::Internal { message: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::{GroupId, ReplicaId};

    use super::*;

    #[test]
    fn a_proposal_that_may_be_logged_stays_uncertain_when_its_replica_is_removed() {
        assert_eq!(removed_error(ProposeError::Uncertain), Error::Uncertain { not_tried: false });
        let refused = removed_error(ProposeError::NotLeader { term: 3, leader: None });
        assert_eq!(refused, stopping(), "it was never logged");
    }

    #[test]
    fn an_elected_leader_without_a_quorum_does_not_redirect_to_itself() {
        let elected = |leader: u64| GroupStatus {
            group: GroupId(3),
            replica: ReplicaId(16),
            term: 3,
            leader: Some((ReplicaId(leader), ServerId(leader))),
            ..GroupStatus::default()
        };
        let error = not_leading_yet(&elected(16)).expect("it says what it waits for");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("group 3 in term 3"), "{error}");
        assert_eq!(not_leading_yet(&elected(15)), None, "a follower redirects");
        assert_eq!(not_leading_yet(&GroupStatus { leader: None, ..elected(15) }), None);
    }
}
