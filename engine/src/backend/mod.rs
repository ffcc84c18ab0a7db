//! Backends: where flushed cells go. Everything else (memtables, manifest, points, reads, splits) is common.

pub(crate) mod memory;
#[cfg(feature = "sled")]
pub(crate) mod sled;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use terrane_types::{FamilyName, GroupId, Invalid, TableId};

use crate::Error;
use crate::cell::StoredCell;
use crate::file::StoreFile;
use crate::manifest::{Contents, RegionRecord};
use crate::source::Bounds;

/// Which engine keeps the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// Cells stay in memory; each flush writes one sorted, checksummed file that is read back at start.
    Memory,
    /// Cells go to sled trees. The default where it is built in.
    #[cfg(feature = "sled")]
    Sled,
}

impl Default for BackendKind {
    fn default() -> Self {
        #[cfg(feature = "sled")]
        return Self::Sled;
        #[cfg(not(feature = "sled"))]
        Self::Memory
    }
}

impl BackendKind {
    /// The names there are, as the command line takes them.
    pub const NAMES: &[&str] = &[
        "memory",
        #[cfg(feature = "sled")]
        "sled",
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
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
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "sled")]
            "sled" => Ok(Self::Sled),
            _ => Err(Invalid::new(format!("there is no engine {name:?}; there are: {}", Self::NAMES.join(", ")))),
        }
    }
}

/// What a flush hands over: the cells of each family, collected and in store order.
pub(crate) struct FlushCells {
    pub(crate) group: GroupId,
    pub(crate) table: TableId,
    pub(crate) families: BTreeMap<FamilyName, Vec<StoredCell>>,
}

impl FlushCells {
    pub(crate) fn is_empty(&self) -> bool {
        self.families.values().all(Vec::is_empty)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.families.values().flatten().map(StoredCell::memory_bytes).sum()
    }
}

/// The backend of one engine.
pub(crate) enum Backend {
    Memory(memory::MemoryBackend),
    #[cfg(feature = "sled")]
    Sled(sled::SledBackend),
}

impl Backend {
    pub(crate) async fn open(
        kind: BackendKind,
        dir: &Path,
        cache_bytes: u64,
        contents: &Contents,
    ) -> Result<Self, Error> {
        match kind {
            BackendKind::Memory => {
                // Memory holds all cells anyway: there is nothing to cache.
                let _ = cache_bytes;
                Ok(Self::Memory(memory::MemoryBackend::open(dir, &contents.files()).await?))
            }
            #[cfg(feature = "sled")]
            BackendKind::Sled => Ok(Self::Sled(sled::SledBackend::open(dir, cache_bytes, contents).await?)),
        }
    }

    /// Whether each flush makes a file of its own, which a later flush may write anew together with the others.
    pub(crate) fn has_files(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Writes cells; they are synced when this returns.
    pub(crate) async fn write(&self, cells: FlushCells) -> Result<StoreFile, Error> {
        match self {
            Self::Memory(memory) => memory.write(cells).await,
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.write(cells).await,
        }
    }

    /// The files that a manifest record names.
    pub(crate) fn files_of(&self, region: &RegionRecord) -> Result<Vec<StoreFile>, Error> {
        match self {
            Self::Memory(memory) => memory.files_of(region),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.files_of(region),
        }
    }

    /// The file is named by the manifest now, or never will be: from here on it goes when nobody names it.
    pub(crate) fn settled(&self, id: u64) {
        match self {
            Self::Memory(memory) => memory.settled(id),
            #[cfg(feature = "sled")]
            Self::Sled(_) => {}
        }
    }

    /// The files that stay although the manifest may not name them yet. To be asked before the manifest is: a file is
    /// spared until it is named, so no file is missed by both looks.
    pub(crate) fn spared(&self) -> memory::Spared {
        match self {
            Self::Memory(memory) => memory.spared(),
            #[cfg(feature = "sled")]
            Self::Sled(_) => memory::Spared::default(),
        }
    }

    /// Removes files that no region names any more and that are not spared.
    pub(crate) async fn retain(&self, named: BTreeSet<u64>, spared: memory::Spared) -> Result<(), Error> {
        match self {
            Self::Memory(memory) => memory.retain(&named, &spared).await,
            #[cfg(feature = "sled")]
            Self::Sled(_) => Ok(()),
        }
    }

    /// Removes a region's cells from above a sequence number, where a flush that was never recorded can have left some.
    pub(crate) async fn remove_above(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: Bounds,
        sequence: u64,
    ) -> Result<(), Error> {
        match self {
            // Its unrecorded files went at the start.
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.remove(group, table, families, bounds, Some(sequence)).await,
        }
    }

    /// Removes the cells of a dropped region, where they do not lie in files of their own.
    pub(crate) async fn drop_range(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: Bounds,
    ) -> Result<(), Error> {
        match self {
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.remove(group, table, families, bounds, None).await,
        }
    }
}
