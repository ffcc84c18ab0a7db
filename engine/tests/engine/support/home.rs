//! Where the engine of a world is, and its settings.

use std::path::{Path, PathBuf};

use terrane_env::fs::{Disk, MemoryDisk};

/// Where an engine's directory is.
pub enum Home {
    Temporary(tempfile::TempDir),
    Memory(MemoryDisk, PathBuf),
}

impl Home {
    /// A directory on a disk in memory. The engine creates and syncs what is in it, but not its own name.
    pub async fn in_memory(memory: &MemoryDisk) -> Self {
        let (disk, dir) = (Disk::from(memory), PathBuf::from("/data"));
        disk.create_dir_all(&dir).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
        Self::Memory(memory.clone(), dir)
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Temporary(dir) => dir.path(),
            Self::Memory(_, dir) => dir,
        }
    }

    pub fn disk(&self) -> Disk {
        match self {
            Self::Temporary(_) => Disk::os(),
            Self::Memory(memory, _) => Disk::from(memory),
        }
    }

    pub fn memory(&self) -> &MemoryDisk {
        match self {
            Self::Temporary(dir) => panic!("{} is not on a disk in memory", dir.path().display()),
            Self::Memory(memory, _) => memory,
        }
    }
}

/// The settings of a world, in addition to its backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The storage attributes of families change from one log entry to the next, which no reader may notice.
    pub varied_storage: bool,
    /// The sizes at which regions split and are flushed, for levels in small stores.
    pub sizes: Option<(u64, u64)>,
    /// The block cache keeps next to nothing, and two files may be open.
    pub cramped: bool,
    /// How long regions keep versions that are no longer visible, in stamps; 0: not at all.
    pub history: u64,
}
