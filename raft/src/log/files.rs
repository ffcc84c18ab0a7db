//! The files of the log that are open for reading, and reading entries back from them.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_env::fs;

use super::held_list::HeldList;
use super::names;
use super::place::Place;

/// The directory of the log, its files that are open for reading, and the list of held files.
pub(crate) struct Files {
    directory: PathBuf,
    open: Mutex<BTreeMap<u64, Arc<fs::File>>>,
    pub(crate) held: Mutex<HeldList>,
}

/// Files that stay open for reading.
const OPEN_MAX: usize = 64;

impl Files {
    pub(crate) fn new(directory: PathBuf) -> Files {
        Files { directory, open: Mutex::default(), held: Mutex::default() }
    }

    pub(crate) fn directory(&self) -> &PathBuf {
        &self.directory
    }

    pub(crate) fn path(&self, segment: u64) -> PathBuf {
        self.directory.join(names::file_name(segment))
    }

    /// The bytes at `place`.
    pub(crate) async fn read(&self, place: Place) -> io::Result<Bytes> {
        let file = self.open(place.segment).await?;
        let mut bytes = vec![0; place.length as usize];
        file.read_exact_at(&mut bytes, place.offset).await?;
        Ok(bytes.into())
    }

    async fn open(&self, segment: u64) -> io::Result<Arc<fs::File>> {
        if let Some(file) = self.open.lock().get(&segment) {
            return Ok(file.clone());
        }
        // Two readers may both open it; the second handle replaces the first, which lives until its reader is done.
        let file = Arc::new(fs::File::open_read(&self.path(segment)).await?);
        let mut open = self.open.lock();
        while open.len() >= OPEN_MAX {
            // A reader keeps its handle until it is done.
            open.pop_first();
        }
        open.insert(segment, file.clone());
        Ok(file)
    }

    /// Bytes of a file from `offset` on.
    pub(crate) async fn read_span(&self, segment: u64, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        self.open(segment).await?.read_exact_at(&mut bytes, offset).await?;
        Ok(bytes.into())
    }

    /// Closes a file that was removed.
    pub(crate) fn forget(&self, segment: u64) {
        self.open.lock().remove(&segment);
    }

    pub(crate) fn damaged(&self, place: Place, what: &str) -> io::Error {
        let path = self.path(place.segment);
        let text = format!("the log {} is damaged at offset {} ({what})", path.display(), place.offset);
        io::Error::new(io::ErrorKind::InvalidData, text)
    }
}
