//! Files of a simulated host: its [`MemoryDisk`](super::MemoryDisk), with the time that operations take and the faults that
//! the harness has planned.
//!
//! Each operation first waits, then acts at once. A crash during the wait therefore finds nothing done, above all not what a
//! sync was to make durable. An open file belongs to the disk that it was opened on: after a power cut the host has another
//! disk, which the files of the life before do not reach.

use std::io;
use std::path::{Path, PathBuf};

use super::{LockError, Node};
use crate::memory_disk::{MemoryDisk, MemoryFile};
use crate::sim::{Delay, HostDisk, WriteTurn};

/// An open file, read and written at positions.
#[derive(Debug)]
pub struct File {
    file: MemoryFile,
    disk: HostDisk,
}

impl File {
    /// Opens for reading and writing; creates the file if it does not exist.
    pub async fn open_rw(path: &Path) -> io::Result<File> {
        let disk = HostDisk::reached("open_rw", path, Delay::None).await;
        let file = noted(&disk, disk.memory().open_rw(path))?;
        Ok(File { file, disk })
    }

    /// Creates a file for reading and writing; fails if it exists.
    pub async fn create_new(path: &Path) -> io::Result<File> {
        let disk = HostDisk::reached("create", path, Delay::None).await;
        let file = noted(&disk, disk.memory().create_new(path))?;
        Ok(File { file, disk })
    }

    /// Opens for reading.
    pub async fn open_read(path: &Path) -> io::Result<File> {
        let disk = HostDisk::reached("open", path, Delay::None).await;
        Ok(File { file: disk.memory().open_read(path)?, disk })
    }

    /// Like `open_read`, but without the latency of the simulated disk.
    pub fn open_read_now(path: &Path) -> io::Result<File> {
        let disk = HostDisk::current();
        disk.begin("open", &path.to_string_lossy());
        Ok(File { file: disk.memory().open_read(path)?, disk })
    }

    /// Writes all bytes at `offset`, extending the file where needed.
    pub async fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.wait(Delay::Access).await;
        let written = match self.disk.begin_write(self.file.path(), offset) {
            WriteTurn::Happens => self.file.write_all_at(bytes, offset),
            WriteTurn::Lost => {
                self.note_missed(bytes, offset);
                self.extend(bytes, offset)
            }
            WriteTurn::Misdirected { path, offset: elsewhere } => {
                self.note_missed(bytes, offset);
                self.disk.memory().overwrite_durably(path.as_ref(), elsewhere, bytes);
                self.extend(bytes, offset)
            }
        };
        noted(&self.disk, written)
    }

    /// Notes where a write is missing, unless it would have changed nothing.
    fn note_missed(&self, bytes: &[u8], offset: u64) {
        let mut present = vec![0; bytes.len()];
        if self.file.read_exact_at(&mut present, offset).is_err() || present != bytes {
            self.disk.note_missed(self.file.path(), offset);
        }
    }

    /// Makes the file as long as a write that does not reach it: its length is the file system's, not the device's.
    fn extend(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.allocate(offset + bytes.len() as u64)
    }

    /// Fills the buffer from `offset`; fails with `UnexpectedEof` if the file is shorter.
    pub async fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reached("read", Delay::Access).await.read_exact_at(buffer, offset)
    }

    /// Like `read_exact_at`, but without the latency of the simulated disk.
    pub fn read_exact_at_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.begin("read", self.file.path());
        self.file.read_exact_at(buffer, offset)
    }

    /// The file's length in bytes.
    pub async fn len(&self) -> io::Result<u64> {
        self.reached("len", Delay::Access).await.len()
    }

    /// Truncates the file, or extends it with zeros.
    pub async fn set_len(&self, length: u64) -> io::Result<()> {
        noted(&self.disk, self.reached("set_len", Delay::Access).await.set_len(length))
    }

    /// Makes the content durable, after the sync time of the host's disk.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.reached("sync", Delay::Sync).await.sync()
    }

    /// Makes content and attributes durable, after the sync time of the host's disk.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.reached("sync", Delay::Sync).await.sync()
    }

    /// Extends the file with zeros up to `length`; never shortens it.
    pub async fn allocate(&self, length: u64) -> io::Result<()> {
        noted(&self.disk, self.reached("allocate", Delay::Access).await.allocate(length))
    }

    async fn reached(&self, verb: &'static str, delay: Delay) -> &MemoryFile {
        self.disk.wait(delay).await;
        self.disk.begin(verb, self.file.path());
        &self.file
    }
}

impl HostDisk {
    /// The disk of the calling host, when it gets to an operation.
    async fn reached(verb: &'static str, path: &Path, delay: Delay) -> HostDisk {
        let disk = HostDisk::current();
        disk.wait(delay).await;
        disk.begin(verb, &path.to_string_lossy());
        disk
    }
}

/// Counts a refusal for lack of space.
fn noted<T>(disk: &HostDisk, result: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &result
        && error.kind() == io::ErrorKind::StorageFull
    {
        disk.note_full();
    }
    result
}

async fn act<T>(
    verb: &'static str,
    path: &Path,
    delay: Delay,
    operation: impl FnOnce(&MemoryDisk) -> io::Result<T>,
) -> io::Result<T> {
    let disk = HostDisk::reached(verb, path, delay).await;
    operation(disk.memory())
}

/// The whole content of a file.
pub async fn read(path: &Path) -> io::Result<Vec<u8>> {
    act("read", path, Delay::Access, |disk| disk.read(path)).await
}

/// Creates a directory and its missing parents. Their names need [`sync_dir`] on the parents to be durable.
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    act("create_dir_all", path, Delay::None, |disk| disk.create_dir_all(path)).await
}

/// Makes the names in a directory durable, after the sync time of the host's disk.
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    act("sync_dir", path, Delay::Sync, |disk| disk.sync_dir(path)).await
}

/// Renames atomically, replacing the target.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    act("rename", from, Delay::None, |disk| disk.rename(from, to)).await
}

/// Gives the file `from` the second name `to`, which must be free.
pub async fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    act("link", from, Delay::None, |disk| disk.hard_link(from, to)).await
}

/// The length of the named file.
pub async fn file_len(path: &Path) -> io::Result<u64> {
    act("file_len", path, Delay::Access, |disk| disk.file_len(path)).await
}

/// Removes a file's name.
pub async fn remove_file(path: &Path) -> io::Result<()> {
    act("remove", path, Delay::None, |disk| disk.remove_file(path)).await
}

/// Removes a directory and everything in it.
pub async fn remove_dir_all(path: &Path) -> io::Result<()> {
    act("remove_dir_all", path, Delay::None, |disk| disk.remove_dir_all(path)).await
}

/// The names in a directory, sorted.
pub async fn list(path: &Path) -> io::Result<Vec<String>> {
    act("list", path, Delay::None, |disk| disk.list(path)).await
}

/// Whether the name exists.
pub async fn exists(path: &Path) -> io::Result<bool> {
    act("exists", path, Delay::None, |disk| disk.exists(path)).await
}

/// What the name leads to.
pub async fn node(path: &Path) -> io::Result<Node> {
    act("node", path, Delay::None, |disk| disk.node(path)).await
}

/// Bytes that the host may still write.
pub async fn free_space(path: &Path) -> io::Result<u64> {
    act("free_space", path, Delay::None, |disk| disk.free_space(path)).await
}

/// The capacity of the host's disk.
pub async fn total_space(_path: &Path) -> io::Result<u64> {
    Ok(HostDisk::current().total_space())
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

    /// A lock of the simulation has no file.
    pub(super) fn lock_file(&self) -> io::Result<Option<(PathBuf, Node)>> {
        Ok(None)
    }

    /// The locked directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
