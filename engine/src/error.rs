//! The engine's errors, arranged by what the caller can do.

use std::io;
use std::path::PathBuf;

use terrane_types::{GroupId, RegionId};

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory was created with another engine. Start with that one, or on another directory.
    #[error("{dir} was created with --engine {made_with} and cannot be opened with --engine {asked}", dir = dir.display())]
    WrongEngine {
        /// The directory.
        dir: PathBuf,
        /// The engine that created it.
        made_with: String,
        /// The requested engine.
        asked: String,
    },
    /// Bytes that were synced fail their checksum. They are not served; restore the file.
    #[error("{file} is damaged at offset {offset}: {what}", file = file.display())]
    Corruption {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A newer build wrote the file. Start that build again; this one leaves the file unchanged.
    #[error("{file} has format {found}; this build reads formats up to {known}", file = file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this build reads.
        known: u32,
    },
    /// The region was split or dropped. Use its daughters, or look it up again.
    #[error("region {region} is retired: it was split or dropped")]
    Retired {
        /// The region.
        region: RegionId,
    },
    /// The split cannot be done now: the region itself comes from a split that is not recorded yet. Finish that first.
    #[error("region {region} came from a split that is not recorded yet; finish that split first")]
    SplitPending {
        /// The region.
        region: RegionId,
    },
    /// The two regions cannot be merged.
    #[error("regions {left} and {right} cannot be merged: {why}")]
    NotMerged {
        /// The one with the lower rows.
        left: RegionId,
        /// The other.
        right: RegionId,
        /// The reason.
        why: &'static str,
    },
    /// The boundary is outside of the region.
    #[error("region {region} cannot be split there: the boundary is not inside its range")]
    BadBoundary {
        /// The region.
        region: RegionId,
    },
    /// The read needs the disk and must not wait for it. Repeat it where waiting is allowed.
    #[error("the read needs the disk")]
    NeedsDisk,
    /// More of the row is visible than the limit allows. Request fewer columns or versions, or scan the row.
    #[error("the row has more than {bytes_max} bytes")]
    RowTooLarge {
        /// The requested limit.
        bytes_max: usize,
    },
    /// The file cannot be ingested. Write it again, or give it to the region that it is for.
    #[error("{file} cannot be ingested: {why}", file = file.display())]
    NotIngested {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The group cannot be copied, or the copy cannot be installed.
    #[error("group {group} cannot be copied here: {why}")]
    NotCopied {
        /// The group.
        group: GroupId,
        /// The reason.
        why: String,
    },
    /// The disk reported an error.
    #[error("{doing}: {cause}")]
    Io {
        /// What was attempted.
        doing: String,
        /// Why it failed. Part of the message and not a source: the report of a failed flush is one line.
        cause: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |cause| Self::Io { doing, cause }
    }

    /// Whether the disk has no space left: trying again succeeds once there is some.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { cause, .. } if cause.kind() == io::ErrorKind::StorageFull)
    }

    pub(crate) fn damage(file: impl Into<PathBuf>, offset: u64, what: impl Into<String>) -> Self {
        Self::Corruption { file: file.into(), offset, what: what.into() }
    }
}

/// The snapshot's versions may have been collected: read again at a later sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot is too old; the oldest readable one is {oldest}")]
pub struct SnapshotTooOld {
    /// The oldest sequence number that can be read.
    pub oldest: u64,
}
