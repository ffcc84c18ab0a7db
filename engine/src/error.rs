//! What can go wrong in the engine, arranged by what the caller can do.

use std::io;
use std::path::PathBuf;

use terrane_types::RegionId;

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory was made with another engine. Start with that one, or on another directory.
    #[error("{dir} was made with --engine {made_with} and cannot be opened with --engine {asked}", dir = dir.display())]
    WrongEngine {
        /// The directory.
        dir: PathBuf,
        /// The engine it was made with.
        made_with: String,
        /// The engine asked for.
        asked: String,
    },
    /// Bytes that were synced do not have their checksum. They are not served; restore the file.
    #[error("{file} is damaged at offset {offset}: {what}", file = file.display())]
    Corruption {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What does not hold.
        what: String,
    },
    /// A file was written by a newer build. Start that build again; this one leaves the file as it is.
    #[error("{file} has format {found}; this build reads formats up to {known}", file = file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this build reads.
        known: u32,
    },
    /// The region was split or dropped. Ask its daughters, or look it up anew.
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
    /// The two regions cannot become one.
    #[error("regions {left} and {right} cannot be merged: {why}")]
    NotMerged {
        /// The one with the lower rows.
        left: RegionId,
        /// The other.
        right: RegionId,
        /// What is in the way.
        why: &'static str,
    },
    /// The boundary is outside of the region.
    #[error("region {region} cannot be split there: the boundary is not inside of its range")]
    BadBoundary {
        /// The region.
        region: RegionId,
    },
    /// The read needs the disk and was told not to wait for it. Read again where waiting is allowed.
    #[error("the read needs the disk")]
    NeedsDisk,
    /// More of the row is visible than was asked for at most. Ask for fewer columns or versions, or scan the row.
    #[error("the row takes more than {bytes_max} bytes")]
    RowTooLarge {
        /// The limit that was asked for.
        bytes_max: usize,
    },
    /// A file made elsewhere cannot be taken in. Make it anew, or give it to the region that it is for.
    #[error("{file} cannot be taken in: {why}", file = file.display())]
    NotIngested {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The disk refused.
    #[error("{doing}: {cause}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed. Told at once and not as a source: what is shown of a flush that failed is one line.
        cause: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |cause| Self::Io { doing, cause }
    }

    pub(crate) fn damage(file: impl Into<PathBuf>, offset: u64, what: impl Into<String>) -> Self {
        Self::Corruption { file: file.into(), offset, what: what.into() }
    }
}

/// A read at a sequence number whose versions may have been collected: read anew at a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot is too old; the oldest readable one is {oldest}")]
pub struct SnapshotTooOld {
    /// The oldest sequence number that can be read.
    pub oldest: u64,
}
