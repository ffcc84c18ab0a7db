//! Files of turmoil's simulated disk, which forgets at a crash what was not synced. Every host has a disk of its own.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use turmoil::fs::shim::std::fs as direct;
use turmoil::fs::shim::tokio::fs;

use super::LockError;
use crate::sim;

/// An open file, read and written at positions.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    /// A second handle of the same file, for reads that cannot wait: the one above keeps its own to itself.
    direct: direct::File,
}

impl File {
    fn new(direct: direct::File) -> io::Result<File> {
        let file = fs::File::from_std(direct.try_clone()?);
        Ok(File { file, direct })
    }

    /// Opens for reading and writing, making the file when it is not there.
    pub async fn open_rw(path: &Path) -> io::Result<File> {
        File::new(direct::OpenOptions::new().read(true).write(true).create(true).open(path)?)
    }

    /// Makes a file for reading and writing; one that is there already is refused.
    pub async fn create_new(path: &Path) -> io::Result<File> {
        File::new(direct::OpenOptions::new().read(true).write(true).create_new(true).open(path)?)
    }

    /// Opens for reading.
    pub async fn open_read(path: &Path) -> io::Result<File> {
        File::new(direct::File::open(path)?)
    }

    /// As `open_read`, but at once: no latency of the simulated disk applies.
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

    /// Fills the buffer from `offset`; a file that ends before is `UnexpectedEof`.
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

    /// As `read_exact_at`, but at once: no latency of the simulated disk applies.
    pub fn read_exact_at_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.direct.read_exact_at(buffer, offset)
    }

    /// The file's length in bytes.
    pub async fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata().await?.len())
    }

    /// Cuts the file, or extends it with zeros.
    pub async fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length).await
    }

    /// Makes the content durable, after as long as this run's disk takes.
    pub async fn sync_data(&self) -> io::Result<()> {
        // Before, not after: a crash during the wait must find the content not yet durable.
        tokio::time::sleep(sim::sync_pause()).await;
        self.file.sync_data().await
    }

    /// Makes content and attributes durable, after as long as this run's disk takes.
    pub async fn sync_all(&self) -> io::Result<()> {
        tokio::time::sleep(sim::sync_pause()).await;
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

/// Makes a directory and those above it. Their names need [`sync_dir`] on the parents to be durable.
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).await
}

/// Makes the names in a directory durable, after as long as this run's disk takes.
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    tokio::time::sleep(sim::sync_pause()).await;
    fs::sync_dir(path).await
}

/// Renames, replacing the target at once.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).await
}

/// Gives the file `from` the second name `to`, which must be free.
pub async fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    // The simulated disk reports every refusal as `Other`; callers tell these two apart as they do on a real one.
    if direct::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if direct::symlink_metadata(from).is_err() {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::hard_link(from, to).await
}

/// The length of the file that has this name.
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

/// Whether something has this name.
pub async fn exists(path: &Path) -> io::Result<bool> {
    fs::try_exists(path).await
}

/// What this run's disk says it has left.
pub async fn free_space(_path: &Path) -> io::Result<u64> {
    Ok(sim::disk().free_bytes)
}

/// What this run's disk holds in all: as much as a disk has left at first.
pub async fn total_space(_path: &Path) -> io::Result<u64> {
    Ok(sim::Disk::INSTANT.free_bytes)
}

/// The right to use a data directory. A simulated host has one process and a disk of its own, so it is always granted.
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

    /// The directory that is locked.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
