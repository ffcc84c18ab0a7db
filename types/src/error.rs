//! The errors that servers return and clients act on.
//!
//! Each variant stands for something the caller can *do*: go to another server, wait, give up, or accept that the
//! outcome is unknown. Variants that redirect carry the redirect. `proto` alone maps each one to a field of its
//! `ErrorDetail`.

use std::time::Duration;

use crate::ids::{ClusterId, GroupId, RegionId, ServerId, TableId};
use crate::invalid::Invalid;
use crate::schema::RegionDescriptor;

/// Why a server did not carry out a request.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request named a region or epoch that no longer exists: refresh locations from `current` and retry there.
    #[error("region {region} has changed; {} now cover its range", describe_regions(current))]
    StaleEpoch {
        /// The region the request named.
        region: RegionId,
        /// The regions that cover its range now, as far as this server knows; empty: ask the master.
        current: Vec<RegionDescriptor>,
    },
    /// This server does not lead the group: go to the leader; without one, ask the other members.
    #[error("group {group} is not led here in term {term}; {}", describe_leader(*leader, address.as_deref()))]
    NotLeader {
        /// The group.
        group: GroupId,
        /// The term in which this holds; it never overwrites knowledge of a later term.
        term: u64,
        /// The leader, if known.
        leader: Option<ServerId>,
        /// The leader's address, if known.
        address: Option<String>,
        /// All members with their addresses.
        members: Vec<(ServerId, String)>,
    },
    /// The region is between two groups: nothing was applied, wait and retry.
    #[error("region {region} is moving; retry in {} ms", retry_after.as_millis())]
    Moving {
        /// The region.
        region: RegionId,
        /// How long to wait.
        retry_after: Duration,
    },
    /// A queue is full: nothing was applied, wait and retry.
    #[error("the server is busy; retry in {} ms", retry_after.as_millis())]
    Busy {
        /// How long to wait.
        retry_after: Duration,
    },
    /// The log is at its limit: reads continue, writes wait until `held_by` catches up.
    #[error("the log is full, held back by {held_by}; bring it back or raise the log limit")]
    LogFull {
        /// The member or region that keeps the log from being purged.
        held_by: String,
        /// How long to wait.
        retry_after: Duration,
    },
    /// The request was sent, but its outcome is unknown: the caller decides.
    #[error("the outcome is unknown: the write may or may not have been applied")]
    Uncertain {
        /// This request applied nothing, because the region no longer has a record of the operation. Whether an earlier
        /// try was applied is unknown.
        not_tried: bool,
    },
    /// An earlier try was applied; its result is no longer kept.
    #[error("an earlier try of this operation was applied; its result is no longer kept")]
    AlreadyApplied,
    /// The snapshot's cells have been collected: start again at a later one.
    #[error("the snapshot is too old; the oldest readable one is {oldest}")]
    SnapshotTooOld {
        /// The oldest sequence number that can still be read.
        oldest: u64,
    },
    /// A file is damaged and is not served: an operator has to act.
    #[error("damage in {file} at byte {offset}")]
    Corruption {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
    },
    /// The request requires an older schema of the table, or it deletes a whole row and the table was altered
    /// meanwhile. Nothing was done: describe the table again and rebuild the request.
    #[error("table {table} has schema version {version} by now; look at it again")]
    SchemaChanged {
        /// The table.
        table: TableId,
        /// The current version.
        version: u64,
    },
    /// A named object does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// The object with its kind: `table t`.
        what: String,
    },
    /// The request breaks a rule; the same request is always refused.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A required feature that this build does not have.
    #[error("{feature} is not supported by this server")]
    Unsupported {
        /// The feature.
        feature: String,
    },
    /// The other end belongs to another cluster or, if both cluster ids are the same, is another server: nothing was done.
    #[error("{}", wrong_place(*expected, *actual, *server))]
    WrongCluster {
        /// The cluster the caller named.
        expected: ClusterId,
        /// The cluster that answered.
        actual: ClusterId,
        /// The server that answered.
        server: ServerId,
    },
    /// The deadline passed. A region server answers this only for a request that it has not started: nothing was
    /// applied. A master answers it when a region server did not answer the master in time: the change may still be
    /// made.
    #[error("the deadline passed before an answer came")]
    DeadlineExceeded,
    /// The object to create exists already.
    #[error("{what} exists already")]
    AlreadyExists {
        /// The object with its kind: `table t`.
        what: String,
    },
    /// No server can answer at the moment: wait and retry.
    #[error("{message}")]
    Unavailable {
        /// The reason, and what is awaited.
        message: String,
        /// How long to wait.
        retry_after: Duration,
    },
    /// The master has accepted a change and continues with it after its caller's deadline. The same request, repeated, waits
    /// for it.
    #[error("{message}")]
    InProgress {
        /// Which change, and what it waits for.
        message: String,
        /// How long to wait.
        retry_after: Duration,
    },
    /// The table takes no writes.
    #[error("{what} is read-only")]
    ReadOnly {
        /// The object with its kind: `table t`.
        what: String,
    },
    /// The table is disabled: it takes neither reads nor writes.
    #[error("{what} is disabled")]
    Disabled {
        /// The object with its kind: `table t`.
        what: String,
    },
    /// A defect of the server; its log has the details.
    #[error("internal error: {message}")]
    Internal {
        /// What is known about the defect.
        message: String,
    },
}

/// Which of the two differs: the cluster, or the server within it.
fn wrong_place(expected: ClusterId, actual: ClusterId, server: ServerId) -> String {
    if expected == actual {
        return format!(
            "server {server} of this cluster answers there, not the server that was called; check the addresses"
        );
    }
    format!("server {server} belongs to cluster {actual}, not to {expected}; check the addresses")
}

fn describe_regions(current: &[RegionDescriptor]) -> String {
    if current.is_empty() {
        return "others".to_owned();
    }
    let regions: Vec<String> =
        current.iter().map(|descriptor| format!("region {} (epoch {})", descriptor.region, descriptor.epoch)).collect();
    regions.join(" and ")
}

fn describe_leader(leader: Option<ServerId>, address: Option<&str>) -> String {
    match (leader, address) {
        (Some(server), Some(address)) => format!("server {server} at {address} leads it"),
        (Some(server), None) => format!("server {server} leads it"),
        (None, _) => "its leader is not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{RegionEpoch, TableId};
    use crate::range::KeyRange;

    #[test]
    fn a_wrong_place_is_named_by_what_differs() {
        let (one, two) = (ClusterId([1; 16]), ClusterId([2; 16]));
        let other = Error::WrongCluster { expected: one, actual: two, server: ServerId(3) }.to_string();
        assert!(other.contains(&format!("server 3 belongs to cluster {two}, not to {one}")), "{other}");
        let same = Error::WrongCluster { expected: one, actual: one, server: ServerId(3) }.to_string();
        assert!(same.starts_with("server 3 of this cluster answers there, not the server that was called"), "{same}");
    }

    #[test]
    fn stale_epoch_names_what_covers_the_range_now() {
        let daughter = |region: u64| RegionDescriptor {
            region: RegionId(region),
            table: TableId(1),
            range: KeyRange::all(),
            epoch: RegionEpoch(2),
            group: GroupId(1),
            schema_version: 1,
        };
        let error = Error::StaleEpoch { region: RegionId(1), current: vec![daughter(1), daughter(2)] };
        assert_eq!(
            error.to_string(),
            "region 1 has changed; region 1 (epoch 2) and region 2 (epoch 2) now cover its range"
        );
    }

    #[test]
    fn invalid_input_keeps_its_sentence() {
        let error = Error::from(Invalid::new("the row is empty; rows have 1 to 32767 bytes"));
        assert_eq!(error.to_string(), "the row is empty; rows have 1 to 32767 bytes");
    }
}
