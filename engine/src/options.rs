//! How an engine is opened, and with which backend.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use terrane_env::fs::Disk;
use terrane_types::Invalid;

use crate::descriptors::OPEN_FILES_MAX;

/// What stores flushed cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// Cells go to store files in levels, which are compacted: the default.
    #[default]
    Lsm,
    /// Cells stay in memory; each flush writes one sorted, checksummed file that is read back at startup.
    Memory,
    /// Cells go to sled trees.
    #[cfg(feature = "sled")]
    Sled,
}

impl BackendKind {
    /// The valid names, as the command line takes them.
    pub const NAMES: &[&str] = &[
        "lsm",
        "memory",
        #[cfg(feature = "sled")]
        "sled",
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lsm => "lsm",
            Self::Memory => "memory",
            #[cfg(feature = "sled")]
            Self::Sled => "sled",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        match name {
            "lsm" => Ok(Self::Lsm),
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "sled")]
            "sled" => Ok(Self::Sled),
            _ => Err(Invalid::new(format!("unknown engine {name:?}; known engines: {}", Self::NAMES.join(", ")))),
        }
    }
}

/// How an engine is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its directory; created when absent.
    pub dir: PathBuf,
    /// What stores the cells.
    pub backend: BackendKind,
    /// Memory for blocks read from files.
    pub cache_bytes: u64,
    /// Files open at once.
    pub open_files: usize,
    /// Bytes per second that compactions may read and write while writers are under no pressure; the rest of the disk is
    /// left to reads.
    pub compaction_bytes_per_second: u64,
    /// The disk that holds the directory.
    pub disk: Disk,
}

impl Options {
    /// The default number of files open at once.
    pub const OPEN_FILES_DEFAULT: usize = OPEN_FILES_MAX;

    /// The default rate of compactions: a quarter or less of what today's disks deliver.
    pub const COMPACTION_BYTES_PER_SECOND_DEFAULT: u64 = 128 << 20;

    /// Options for a directory on the system's disk.
    #[must_use]
    pub fn new(dir: PathBuf, backend: BackendKind, cache_bytes: u64) -> Self {
        Self {
            dir,
            backend,
            cache_bytes,
            open_files: Self::OPEN_FILES_DEFAULT,
            compaction_bytes_per_second: Self::COMPACTION_BYTES_PER_SECOND_DEFAULT,
            disk: Disk::os(),
        }
    }
}
