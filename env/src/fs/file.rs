//! An open file, of whichever disk it lies on.
//!
//! One type for all disks, so that nothing above has to be generic over them: in production builds the memory variant does
//! not exist, and the choice costs nothing.

use std::io;
use std::path::Path;

use super::Disk;
#[cfg(any(test, feature = "memory-disk"))]
use super::memory::MemoryFile;
use super::os;

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
    /// Opens for reading and writing, making the file when it is not there. On the system's disk, as [`Disk::open_rw`].
    pub async fn open_rw(path: &Path) -> io::Result<File> {
        Disk::os().open_rw(path).await
    }

    /// Makes a file for reading and writing; one that is there already is refused. On the system's disk, as
    /// [`Disk::create_new`].
    pub async fn create_new(path: &Path) -> io::Result<File> {
        Disk::os().create_new(path).await
    }

    /// Opens for reading. On the system's disk, as [`Disk::open_read`].
    pub async fn open_read(path: &Path) -> io::Result<File> {
        Disk::os().open_read(path).await
    }

    /// Writes all bytes at `offset`, extending the file where needed. After an error any part of them may be in the file.
    pub async fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.write_all_at(bytes, offset).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.write_all_at(bytes, offset),
        }
    }

    /// Fills the buffer from `offset`; a file that ends before is `UnexpectedEof`.
    pub async fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.read_exact_at(buffer, offset).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.read_exact_at(buffer, offset),
        }
    }

    /// As [`File::read_exact_at`], without awaiting, for code that may block where it is: on a thread of its own, or sure
    /// that the bytes are cached. In the simulation it takes no simulated time.
    pub fn read_exact_at_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.read_exact_at_now(buffer, offset),
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.read_exact_at(buffer, offset),
        }
    }

    /// The file's length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a file's length is asked of the disk and can fail")]
    pub async fn len(&self) -> io::Result<u64> {
        match &self.0 {
            Inner::Os(file) => file.len().await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.len(),
        }
    }

    /// Cuts the file, or extends it with zeros.
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

    /// Makes content and attributes durable. The name needs [`Disk::sync_dir`].
    pub async fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.sync_all().await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.sync(),
        }
    }

    /// Reserves space up to `length`, extending the file with zeros; never shortens it. Later writes inside it neither
    /// run out of space nor change the length, so that their sync has no metadata to write.
    pub async fn allocate(&self, length: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Os(file) => file.allocate(length).await,
            #[cfg(any(test, feature = "memory-disk"))]
            Inner::Memory(file) => file.allocate(length),
        }
    }
}
