//! Files: positioned reads and writes, the calls that make them durable, and the lock on a data directory.
//!
//! Durability has three parts, and callers must request each: a file's bytes ([`File::sync_data`]), its length and other
//! attributes ([`File::sync_all`]), and its *name* ([`sync_dir`] on the directory, after a create, rename or remove). The
//! simulated disk loses whatever was not requested. [`write_durable`] does all three for a small file.
//!
//! Invariants: no function follows a name out of the path it was given; [`list`] is sorted, so that no caller depends on
//! the order of a directory.
//!
//! The free functions, and the functions of [`File`] that open files, use the system's disk. A [`Disk`] offers the same as
//! a value, for code that receives its disk: an engine whose tests pass a `MemoryDisk` (feature `memory-disk`).
//!
//! A failed sync leaves the state of the file unknown (the kernel may have dropped the dirty pages). Never sync again and
//! continue: end the process or abandon the file.

use std::io;
use std::path::{Path, PathBuf};

mod disk;
mod file;
mod occupied;
mod presence;
#[cfg(not(feature = "sim"))]
mod real;
#[cfg(feature = "sim")]
mod simulated;
mod stream;

#[cfg(any(test, feature = "memory-disk"))]
pub use crate::memory_disk::{Crashed, Fault, Lie, MemoryDisk, Tear};
pub use crate::node::Node;
pub use disk::{Disk, UNFINISHED};
pub use file::File;
pub use occupied::{Occupant, Occupied, check_occupant};
pub use os::{
    DirLock, create_dir_all, exists, file_len, free_space, hard_link, list, read, remove_dir_all, remove_file, rename,
    sync_dir, total_space,
};
pub use presence::{DirectoryLost, Presence};
#[cfg(not(feature = "sim"))]
use real as os;
#[cfg(feature = "sim")]
use simulated as os;
pub use stream::{Stream, is_stream};

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process uses the directory.
    #[error(
        "{} is in use by another process{}; stop it, or choose another data directory",
        .directory.display(),
        .holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Held {
        /// The directory.
        directory: PathBuf,
        /// The process id recorded by the holder.
        holder: Option<u32>,
    },
    /// The lock file could not be created or opened.
    #[error("cannot lock {}: {source}", .directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// [`Disk::write_durable`] on the system's disk.
pub async fn write_durable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    Disk::os().write_durable(path, bytes).await
}

/// [`Disk::create_dir_durable`] on the system's disk.
pub async fn create_dir_durable(path: &Path) -> io::Result<()> {
    Disk::os().create_dir_durable(path).await
}

/// Removes a directory and everything in it, if it is there, durably: a power cut does not bring it back. After an error the
/// caller tries again.
pub async fn remove_dir_durable(path: &Path) -> io::Result<()> {
    if exists(path).await? {
        remove_dir_all(path).await?;
    }
    match path.parent() {
        // Also if an earlier try removed it, and failed here.
        Some(parent) if exists(parent).await? => sync_dir(parent).await,
        _ => Ok(()),
    }
}

/// Like [`write_durable`], for a file that every start rewrites: on a full disk it overwrites the file in place, which needs
/// no space.
///
/// The content must fit a sector (512 bytes), so that a crash still leaves either the old content or the new one.
pub async fn write_stamp(path: &Path, bytes: &[u8]) -> io::Result<()> {
    assert!(bytes.len() <= SECTOR_BYTES, "a file written in place has {} bytes, more than a sector", bytes.len());
    let full = match write_durable(path, bytes).await {
        Err(error) if error.kind() == io::ErrorKind::StorageFull && exists(path).await? => error,
        written => return written,
    };
    tracing::warn!(%full, "the disk has no space for a new {}; overwriting it in place", path.display());
    let unfinished = disk::unfinished_name(path)?;
    if exists(&unfinished).await? {
        remove_file(&unfinished).await?;
    }
    let file = File::open_rw(path).await?;
    file.write_all_at(bytes, 0).await?;
    file.set_len(bytes.len() as u64).await?;
    file.sync_all().await
}

/// The unit that disks write atomically.
const SECTOR_BYTES: usize = 512;

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn write_durable_replaces_a_file_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("STAMP");
        write_durable(&path, b"a longer first content").await.unwrap();
        write_durable(&path, b"second").await.unwrap();
        assert_eq!(read(&path).await.unwrap(), b"second");
        assert_eq!(list(directory.path()).await.unwrap(), ["STAMP"]);
    }

    #[tokio::test]
    async fn write_durable_is_not_confused_by_an_unfinished_predecessor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("STAMP");
        std::fs::write(disk::unfinished_name(&path).unwrap(), b"half of something much longer").unwrap();
        write_durable(&path, b"whole").await.unwrap();
        assert_eq!(read(&path).await.unwrap(), b"whole");
    }

    #[tokio::test]
    async fn write_durable_needs_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_durable(&directory.path().join("missing/STAMP"), b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn list_is_sorted() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["c", "a", "d", "b"] {
            File::create_new(&directory.path().join(name)).await.unwrap();
        }
        assert_eq!(list(directory.path()).await.unwrap(), ["a", "b", "c", "d"]);
    }

    #[tokio::test]
    async fn a_file_reads_back_what_was_written_where() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = File::open_rw(&path).await.unwrap();
        file.write_all_at(b"world", 6).await.unwrap();
        file.write_all_at(b"hello ", 0).await.unwrap();
        file.sync_data().await.unwrap();
        let mut buffer = [0; 8];
        File::open_read(&path).await.unwrap().read_exact_at(&mut buffer, 3).await.unwrap();
        assert_eq!(&buffer, b"lo world");
        let beyond = file.read_exact_at(&mut buffer, 4).await.unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn create_new_refuses_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        File::create_new(&path).await.unwrap();
        let again = File::create_new(&path).await.err().unwrap();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    #[tokio::test]
    async fn allocate_extends_with_zeros_and_never_shortens() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::open_rw(&directory.path().join("f")).await.unwrap();
        file.write_all_at(b"abc", 0).await.unwrap();
        file.allocate(10_000).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 10_000);
        file.allocate(10).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 10_000);
        let mut buffer = [1; 4];
        file.read_exact_at(&mut buffer, 2).await.unwrap();
        assert_eq!(&buffer, b"c\0\0\0");
    }

    #[tokio::test]
    async fn a_directory_is_locked_once_and_free_after_the_drop() {
        let directory = tempfile::tempdir().unwrap();
        let first = DirLock::acquire(directory.path()).await.unwrap();
        let second = DirLock::acquire(directory.path()).await.unwrap_err();
        assert!(matches!(second, LockError::Held { holder: Some(pid), .. } if pid == std::process::id()));
        assert!(second.to_string().contains("in use by another process"));
        drop(first);
        DirLock::acquire(directory.path()).await.unwrap();
    }

    #[tokio::test]
    async fn free_space_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let free = free_space(directory.path()).await.unwrap();
        assert!(free > 0 && total_space(directory.path()).await.unwrap() >= free);
    }
}
