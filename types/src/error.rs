//! The vocabulary of refusals: what servers answer and clients act on.
//!
//! Variants are arranged by what the caller can *do*: go elsewhere, wait, give up, or accept that the outcome is
//! unknown. Those that redirect carry the redirect. `proto` maps each one to one field of its `ErrorDetail`; no other
//! place translates.

use std::time::Duration;

use crate::ids::{ClusterId, GroupId, RegionId, ServerId, TableId};
use crate::invalid::Invalid;
use crate::schema::RegionDescriptor;

/// What a server answers when it does not do what was asked.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request named a region or epoch that is no longer: refresh locations from `current` and retry there.
    #[error("region {region} has changed; {} now cover its range", describe_regions(current))]
    StaleEpoch {
        /// The region the request named.
        region: RegionId,
        /// What covers its range now, as far as this server knows; empty: ask the master.
        current: Vec<RegionDescriptor>,
    },
    /// This server does not lead the group: go to the leader; without one, ask the other members.
    #[error("group {group} is not led here in term {term}; {}", describe_leader(*leader, address.as_deref()))]
    NotLeader {
        /// The group.
        group: GroupId,
        /// The term of which this is said; older ones never overwrite newer.
        term: u64,
        /// Who leads, where known.
        leader: Option<ServerId>,
        /// Where the leader listens, where known.
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
    /// The log is at its limit: reads go on, writes wait until `held_by` catches up.
    #[error("the log is full, held back by {held_by}; bring it back or raise the log limit")]
    LogFull {
        /// The member or region that keeps the log from being purged.
        held_by: String,
        /// How long to wait.
        retry_after: Duration,
    },
    /// Sent, outcome unknown: the caller decides.
    #[error("the outcome is unknown: the write may or may not have been applied")]
    Uncertain {
        /// The request applied nothing: the operation is older than what the region remembers. Whether an earlier try
        /// of it was applied is not known.
        not_tried: bool,
    },
    /// Applied by an earlier try whose result is no longer kept.
    #[error("an earlier try of this operation was applied; its result is no longer kept")]
    AlreadyApplied,
    /// The snapshot's cells have been collected: start anew at a later one.
    #[error("the snapshot is too old; the oldest readable one is {oldest}")]
    SnapshotTooOld {
        /// The oldest sequence number that can still be read.
        oldest: u64,
    },
    /// A file is damaged: it is never served; an operator must look.
    #[error("damage in {file} at byte {offset}")]
    Corruption {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
    },
    /// The request was made for an older schema of the table, and says that it holds under no other, or it deletes a
    /// whole row and the table was altered meanwhile: nothing was done, make the request anew (by the table's
    /// description, if it depends on that).
    #[error("table {table} has schema version {version} by now; look at it again")]
    SchemaChanged {
        /// The table.
        table: TableId,
        /// The version that holds here.
        version: u64,
    },
    /// What was named does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// What was named, with its kind: `table t`.
        what: String,
    },
    /// The request breaks a rule; the same request will be refused again.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A required feature that this build does not have.
    #[error("{feature} is not supported by this server")]
    Unsupported {
        /// The feature.
        feature: String,
    },
    /// The other end belongs to another cluster: nothing was done.
    #[error("server {server} belongs to cluster {actual}, not to {expected}; check the addresses")]
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
    /// What was to be made is there already.
    #[error("{what} exists already")]
    AlreadyExists {
        /// What, with its kind: `table t`.
        what: String,
    },
    /// Nobody can answer at the moment: wait and retry.
    #[error("{message}")]
    Unavailable {
        /// Why, and for whom is waited.
        message: String,
        /// How long to wait.
        retry_after: Duration,
    },
    /// The table takes no writes.
    #[error("{what} is read-only")]
    ReadOnly {
        /// What, with its kind: `table t`.
        what: String,
    },
    /// A mistake of the server's own; its log has the details.
    #[error("internal error: {message}")]
    Internal {
        /// What is known about it.
        message: String,
    },
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
