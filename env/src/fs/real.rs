//! Files of the operating system. The functions block: `task.rs` says where to call them from.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use super::{LockError, Node};

/// Name of the file that carries a data directory's lock.
const LOCK_NAME: &str = "LOCK";

/// An open file, read and written at positions. Shared use is safe: there is no cursor.
#[derive(Debug)]
pub struct File {
    file: fs::File,
}

impl File {
    /// Opens for reading and writing; creates the file if it does not exist.
    pub async fn open_rw(path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(File { file })
    }

    /// Creates a file for reading and writing; fails if it exists.
    pub async fn create_new(path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(File { file })
    }

    /// Opens for reading.
    pub async fn open_read(path: &Path) -> io::Result<File> {
        Ok(File { file: fs::File::open(path)? })
    }

    /// Like `open_read`, for callers outside async code.
    pub fn open_read_now(path: &Path) -> io::Result<File> {
        Ok(File { file: fs::File::open(path)? })
    }

    /// Writes all bytes at `offset`, extending the file where needed.
    pub async fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Fills the buffer from `offset`; fails with `UnexpectedEof` if the file is shorter.
    pub async fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Like `read_exact_at`, for callers outside async code.
    pub fn read_exact_at_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// The file's length in bytes.
    pub async fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Truncates the file, or extends it with zeros.
    pub async fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    /// Makes the content durable, and the length as far as reading it back needs it.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Makes content and attributes durable. The name needs [`sync_dir`].
    pub async fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Reserves space up to `length` and extends the file with zeros; never shortens it. Later writes inside that range
    /// neither run out of space nor change the length, so their sync has no metadata to write.
    pub async fn allocate(&self, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            // Without support for reservation the length still has to change: readers rely on it.
            Err(rustix::io::Errno::OPNOTSUPP) if self.len().await? < length => self.set_len(length).await,
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The whole content of a file.
pub async fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Creates a directory and its missing parents. Their names need [`sync_dir`] on the parents to be durable.
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Makes the names in a directory durable.
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Renames atomically within a file system, replacing the target.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Gives the file `from` the second name `to`, which must not exist, on the same file system.
pub async fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)
}

/// The length of the named file.
pub async fn file_len(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.len())
}

/// Removes a file's name.
pub async fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Removes a directory and everything in it.
pub async fn remove_dir_all(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)
}

/// The names in a directory, sorted. Names that are not UTF-8 (none of ours are) contain replacement characters.
pub async fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Whether the name exists.
pub async fn exists(path: &Path) -> io::Result<bool> {
    fs::exists(path)
}

/// What the name leads to.
pub async fn node(path: &Path) -> io::Result<Node> {
    Ok(node_of(&fs::metadata(path)?))
}

fn node_of(found: &fs::Metadata) -> Node {
    Node { device: found.dev(), number: found.ino() }
}

/// Bytes that this process may still write on the file system of `path`.
pub async fn free_space(path: &Path) -> io::Result<u64> {
    let status = rustix::fs::statvfs(path)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// The capacity in bytes of the file system of `path`.
pub async fn total_space(path: &Path) -> io::Result<u64> {
    let status = rustix::fs::statvfs(path)?;
    Ok(status.f_blocks.saturating_mul(status.f_frsize))
}

/// The lock on a data directory, held until dropped. The system releases it when the process ends in any way.
#[derive(Debug)]
pub struct DirLock {
    /// Open while the lock is held: closing the file releases it.
    file: fs::File,
    directory: PathBuf,
}

impl DirLock {
    /// Locks `directory`, which must exist. The error names the holder of the lock.
    pub async fn acquire(directory: &Path) -> Result<DirLock, LockError> {
        let io = |source| LockError::Io { directory: directory.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(LOCK_NAME))
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { directory: directory.to_owned(), holder: read_holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        if let Err(error) = write_holder(&mut file) {
            // A full disk must not prevent a start.
            tracing::debug!(%error, "the lock does not name its holder");
        }
        Ok(DirLock { file, directory: directory.to_owned() })
    }

    /// The lock's file. Its node is that of the open file, so that a deletion of the name at this moment is noticed.
    pub(super) fn lock_file(&self) -> io::Result<Option<(PathBuf, Node)>> {
        Ok(Some((self.directory.join(LOCK_NAME), node_of(&self.file.metadata()?))))
    }

    /// The locked directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Only for the error message of the second process; the lock does not depend on the content.
fn write_holder(file: &mut fs::File) -> io::Result<()> {
    // In place: on a full disk, truncating first could lose the space to another writer.
    let line = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(line.as_bytes())?;
    file.set_len(line.len() as u64)
}

fn read_holder(file: &mut fs::File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
