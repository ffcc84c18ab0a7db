//! Files of turmoil's simulated disk, which loses at a crash whatever was not synced. Every host has its own disk.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use turmoil::fs::shim::std::fs as direct;
use turmoil::fs::shim::tokio::fs;

use super::LockError;
use crate::{delay, sim};

/// An open file, read and written at positions.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    /// A second handle of the same file, for reads that cannot wait: the handle above does not give out its own.
    direct: direct::File,
}

impl File {
    fn new(direct: direct::File) -> io::Result<File> {
        let file = fs::File::from_std(direct.try_clone()?);
        Ok(File { file, direct })
    }

    /// Opens for reading and writing; creates the file if it does not exist.
    pub async fn open_rw(path: &Path) -> io::Result<File> {
        File::new(direct::OpenOptions::new().read(true).write(true).create(true).open(path)?)
    }

    /// Creates a file for reading and writing; fails if it exists.
    pub async fn create_new(path: &Path) -> io::Result<File> {
        File::new(direct::OpenOptions::new().read(true).write(true).create_new(true).open(path)?)
    }

    /// Opens for reading.
    pub async fn open_read(path: &Path) -> io::Result<File> {
        File::new(direct::File::open(path)?)
    }

    /// Like `open_read`, but without the latency of the simulated disk.
    pub fn open_read_now(path: &Path) -> io::Result<File> {
        File::new(direct::File::open(path)?)
    }

    /// Writes all bytes at `offset`, extending the file where needed.
    pub async fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.file.write_at(bytes, offset).await?;
            bytes = &bytes[written..];
            offset += written as u64;
        }
        Ok(())
    }

    /// Fills the buffer from `offset`; fails with `UnexpectedEof` if the file is shorter.
    pub async fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            let read = self.file.read_at(buffer, offset).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = &mut buffer[read..];
            offset += read as u64;
        }
        Ok(())
    }

    /// Like `read_exact_at`, but without the latency of the simulated disk.
    pub fn read_exact_at_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.direct.read_exact_at(buffer, offset)
    }

    /// The file's length in bytes.
    pub async fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata().await?.len())
    }

    /// Truncates the file, or extends it with zeros.
    pub async fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length).await
    }

    /// Makes the content durable, after the sync time of this run's disk.
    pub async fn sync_data(&self) -> io::Result<()> {
        // Wait before the sync, not after: a crash during the wait must find the content not yet durable.
        tokio::time::sleep(delay::sync_pause()).await;
        self.file.sync_data().await
    }

    /// Makes content and attributes durable, after the sync time of this run's disk.
    pub async fn sync_all(&self) -> io::Result<()> {
        tokio::time::sleep(delay::sync_pause()).await;
        self.file.sync_all().await
    }

    /// Extends the file with zeros up to `length`; never shortens it. The simulated disk has no blocks to reserve.
    pub async fn allocate(&self, length: u64) -> io::Result<()> {
        if self.len().await? < length { self.set_len(length).await } else { Ok(()) }
    }
}

/// The whole content of a file.
pub async fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).await
}

/// Creates a directory and its missing parents. Their names need [`sync_dir`] on the parents to be durable.
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).await
}

/// Makes the names in a directory durable, after the sync time of this run's disk.
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    tokio::time::sleep(delay::sync_pause()).await;
    fs::sync_dir(path).await
}

/// Renames atomically, replacing the target.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).await
}

/// Gives the file `from` the second name `to`, which must be free.
pub async fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    // The simulated disk reports every failure as `Other`; callers distinguish these two, as on a real disk.
    if direct::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if direct::symlink_metadata(from).is_err() {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::hard_link(from, to).await
}

/// The length of the named file.
pub async fn file_len(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path).await?.len())
}

/// Removes a file's name.
pub async fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path).await
}

/// Removes a directory and everything in it.
pub async fn remove_dir_all(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).await
}

/// The names in a directory, sorted.
pub async fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in direct::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Whether the name exists.
pub async fn exists(path: &Path) -> io::Result<bool> {
    fs::try_exists(path).await
}

/// The free bytes that this run's disk reports.
pub async fn free_space(_path: &Path) -> io::Result<u64> {
    Ok(sim::disk().free_bytes)
}

/// The capacity of this run's disk: the free bytes of a fresh one.
pub async fn total_space(_path: &Path) -> io::Result<u64> {
    Ok(sim::Disk::INSTANT.free_bytes)
}

/// The lock on a data directory. A simulated host has one process and its own disk, so the lock is always granted.
#[derive(Debug)]
pub struct DirLock {
    directory: PathBuf,
}

impl DirLock {
    /// Locks `directory`, which must exist.
    pub async fn acquire(directory: &Path) -> Result<DirLock, LockError> {
        let directory = directory.to_owned();
        match exists(&directory).await {
            Ok(true) => Ok(DirLock { directory }),
            Ok(false) => Err(LockError::Io { directory, source: io::ErrorKind::NotFound.into() }),
            Err(source) => Err(LockError::Io { directory, source }),
        }
    }

    /// The locked directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
