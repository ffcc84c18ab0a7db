//! An open file of any kind of disk.
//!
//! One type for all disks, so that callers need no generics: production builds do not contain the memory variant, and the
//! dispatch costs nothing.

use std::io;

use super::os;
#[cfg(any(test, feature = "memory-disk"))]
use crate::memory_disk::MemoryFile;

/// An open file, read and written at positions. Shared use is safe: there is no cursor.
#[derive(Debug)]
pub struct File(Inner);

#[derive(Debug)]
enum Inner {
    Os(os::File),
    #[cfg(any(test, feature = "memory-disk"))]
    Memory(MemoryFile),
}

impl From<os::File> for File {
    fn from(file: os::File) -> File {
        File(Inner::Os(file))
    }
}

#[cfg(any(test, feature = "memory-disk"))]
impl From<MemoryFile> for File {
    fn from(file: MemoryFile) -> File {
        File(Inner::Memory(file))
    }
}

impl File {
    /// Writes all bytes at `offset`, extending the file where needed. After an error any part of them may be in the file.
    pub async fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.write_all_at(bytes, offset).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.write_all_at(bytes, offset),
        }
    }

    /// Fills the buffer from `offset`; fails with `UnexpectedEof` if the file is shorter.
    pub async fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.read_exact_at(buffer, offset).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.read_exact_at(buffer, offset),
        }
    }

    /// Like [`File::read_exact_at`] without awaiting, for code that may block: because it has its own thread, or because
    /// the bytes are known to be cached. In the simulation it takes no simulated time.
    pub fn read_exact_at_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.read_exact_at_now(buffer, offset),
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.read_exact_at(buffer, offset),
        }
    }

    /// The file's length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a file's length is queried from the disk, which can fail")]
    pub async fn len(&self) -> io::Result<u64> {
        match &self.0 {
            Inner::Os(file) => file.len().await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.len(),
        }
    }

    /// Truncates the file, or extends it with zeros.
    pub async fn set_len(&self, length: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.set_len(length).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.set_len(length),
        }
    }

    /// Makes the content durable, and the length as far as reading it back needs it.
    pub async fn sync_data(&self) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.sync_data().await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.sync(),
        }
    }

    /// Makes content and attributes durable. The name needs [`sync_dir`](super::sync_dir).
    pub async fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.sync_all().await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.sync(),
        }
    }

    /// Reserves space up to `length` and extends the file with zeros; never shortens it. Later writes inside that range
    /// neither run out of space nor change the length, so their sync has no metadata to write.
    pub async fn allocate(&self, length: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.allocate(length).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.allocate(length),
        }
    }
}
