//! A disk as a value, which code receives instead of using the system's disk directly.
//!
//! The free functions of [`crate::fs`] always use the system's disk (in the simulation, the simulated host's). Code whose
//! crash safety is tested step by step takes a [`Disk`] instead. Its tests pass a `MemoryDisk` (feature `memory-disk`),
//! which can lose, tear and refuse any operation, in an otherwise ordinary build.

use std::io;
use std::path::{Path, PathBuf};

use super::os;
use super::{File, Node};
#[cfg(any(test, feature = "memory-disk"))]
use crate::memory_disk::MemoryDisk;

/// Suffix of the name under which [`Disk::write_durable`] prepares a file. A leftover file was never completed.
pub const UNFINISHED: &str = "unfinished";

/// A disk. Cheap to clone; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Inner);

#[derive(Clone, Debug, Default)]
enum Inner {
    #[default]
    Os,
    #[cfg(any(test, feature = "memory-disk"))]
    Memory(MemoryDisk),
}

#[cfg(any(test, feature = "memory-disk"))]
impl From<&MemoryDisk> for Disk {
    fn from(disk: &MemoryDisk) -> Disk {
        Disk(Inner::Memory(disk.clone()))
    }
}

impl Disk {
    /// The system's disk; in the simulation, that of the calling host.
    pub fn os() -> Disk {
        Disk(Inner::Os)
    }

    /// Creates a file for reading and writing; fails if it exists.
    pub async fn create_new(&self, path: &Path) -> io::Result<File> {
        match &self.0 {
            Inner::Os => os::File::create_new(path).await.map(File::from),
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.create_new(path).map(File::from),
        }
    }

    /// Opens for reading and writing; creates the file if it does not exist.
    pub async fn open_rw(&self, path: &Path) -> io::Result<File> {
        match &self.0 {
            Inner::Os => os::File::open_rw(path).await.map(File::from),
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.open_rw(path).map(File::from),
        }
    }

    /// Opens for reading.
    pub async fn open_read(&self, path: &Path) -> io::Result<File> {
        match &self.0 {
            Inner::Os => os::File::open_read(path).await.map(File::from),
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.open_read(path).map(File::from),
        }
    }

    /// Like [`Disk::open_read`] without awaiting, for code that may block. In the simulation it takes no simulated time.
    pub fn open_read_now(&self, path: &Path) -> io::Result<File> {
        match &self.0 {
            Inner::Os => os::File::open_read_now(path).map(File::from),
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.open_read(path).map(File::from),
        }
    }

    /// The whole content of a file.
    pub async fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match &self.0 {
            Inner::Os => os::read(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.read(path),
        }
    }

    /// The length of the named file.
    pub async fn file_len(&self, path: &Path) -> io::Result<u64> {
        match &self.0 {
            Inner::Os => os::file_len(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.file_len(path),
        }
    }

    /// The names in a directory, sorted. Names that are not UTF-8 (none of ours are) contain replacement characters.
    pub async fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        match &self.0 {
            Inner::Os => os::list(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.list(path),
        }
    }

    /// Whether the name exists.
    pub async fn exists(&self, path: &Path) -> io::Result<bool> {
        match &self.0 {
            Inner::Os => os::exists(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.exists(path),
        }
    }

    /// What the name leads to. Names of the same file or directory have equal nodes.
    pub async fn node(&self, path: &Path) -> io::Result<Node> {
        match &self.0 {
            Inner::Os => os::node(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.node(path),
        }
    }

    /// Creates a directory and its missing parents. Their names need [`Disk::sync_dir`] on the parents to be durable.
    pub async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        match &self.0 {
            Inner::Os => os::create_dir_all(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.create_dir_all(path),
        }
    }

    /// Creates a directory and its missing parents, all durably: after a power cut they are there, with whatever was made
    /// durable in them. After an error it may be repeated.
    pub async fn create_dir_durable(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut there = path;
        while !self.exists(there).await? && parent(there) != there {
            missing.push(there);
            there = parent(there);
        }
        // An earlier call may have created this level and then failed, or its process may have died, before the name was
        // durable. The levels above it are durable: each is synced before the next one is created.
        match self.sync_dir(parent(there)).await {
            // It could read the parent if it had created this.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
        for level in missing.into_iter().rev() {
            self.create_dir_all(level).await?;
            self.sync_dir(parent(level)).await?;
        }
        Ok(())
    }

    /// Makes the names in a directory durable: those created, renamed, linked and removed since the last call.
    pub async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match &self.0 {
            Inner::Os => os::sync_dir(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.sync_dir(path),
        }
    }

    /// Renames atomically within a file system, replacing the target.
    pub async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match &self.0 {
            Inner::Os => os::rename(from, to).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.rename(from, to),
        }
    }

    /// Gives the file `from` the second name `to`, which must not exist, on the same file system. Both names share the
    /// content, which is freed with the last name.
    pub async fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match &self.0 {
            Inner::Os => os::hard_link(from, to).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.hard_link(from, to),
        }
    }

    /// Removes a file's name. Open files keep the content until they are dropped.
    pub async fn remove_file(&self, path: &Path) -> io::Result<()> {
        match &self.0 {
            Inner::Os => os::remove_file(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.remove_file(path),
        }
    }

    /// Removes a directory and everything in it.
    pub async fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        match &self.0 {
            Inner::Os => os::remove_dir_all(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.remove_dir_all(path),
        }
    }

    /// Bytes that this process may still write on the file system of `path`.
    pub async fn free_space(&self, path: &Path) -> io::Result<u64> {
        match &self.0 {
            Inner::Os => os::free_space(path).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(disk) => disk.free_space(path),
        }
    }

    /// Replaces the content of `path` with `bytes`, durably and atomically: after a crash at any moment it holds either its
    /// old content or the new one.
    ///
    /// For small files. The directory must exist.
    pub async fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let unfinished = unfinished_name(path)?;
        let file = self.open_rw(&unfinished).await?;
        file.set_len(0).await?;
        file.write_all_at(bytes, 0).await?;
        // Sync the content before the rename, or a crash could leave an empty file under the final name.
        file.sync_all().await?;
        drop(file);
        self.rename(&unfinished, path).await?;
        self.sync_dir(parent(path)).await
    }
}

/// Opening files of the system's disk.
impl File {
    /// [`Disk::open_rw`] on the system's disk.
    pub async fn open_rw(path: &Path) -> io::Result<File> {
        Disk::os().open_rw(path).await
    }

    /// [`Disk::create_new`] on the system's disk.
    pub async fn create_new(path: &Path) -> io::Result<File> {
        Disk::os().create_new(path).await
    }

    /// [`Disk::open_read`] on the system's disk.
    pub async fn open_read(path: &Path) -> io::Result<File> {
        Disk::os().open_read(path).await
    }
}

pub(super) fn unfinished_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{} does not name a file", path.display()))
    })?;
    let mut name = name.to_owned();
    name.push(".");
    name.push(UNFINISHED);
    Ok(path.with_file_name(name))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        // The root is its own parent.
        None if path.has_root() => path,
        _ => Path::new("."),
    }
}
