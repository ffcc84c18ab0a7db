//! The files of the log that are open for reading, and reading entries back from them.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_env::fs;
use terrane_env::sync::{Mutex, is_planted};

use super::held_list::HeldList;
use super::names;
use super::place::Place;

/// The directory of the log, its disk, its files that are open for reading, and the list of held files.
pub(crate) struct Files {
    disk: fs::Disk,
    directory: PathBuf,
    open: Mutex<BTreeMap<u64, Arc<fs::File>>>,
    pub(crate) held: Mutex<HeldList>,
}

/// Files that stay open for reading.
const OPEN_MAX: usize = 64;
/// How long a read that fails is tried again, and the pauses between two tries: the first one, doubled until the longest.
const READ_FOR: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl Files {
    pub(crate) fn new(disk: fs::Disk, directory: PathBuf) -> Files {
        Files { disk, directory, open: Mutex::default(), held: Mutex::default() }
    }

    pub(crate) fn disk(&self) -> &fs::Disk {
        &self.disk
    }

    pub(crate) fn directory(&self) -> &PathBuf {
        &self.directory
    }

    pub(crate) fn path(&self, segment: u64) -> PathBuf {
        self.directory.join(names::file_name(segment))
    }

    /// The bytes at `place`. A read that fails is repeated for some seconds: after an error openraft stops the replica until
    /// the process is restarted, and a disk that fails to read a few times often succeeds later.
    pub(crate) async fn read(&self, place: Place) -> io::Result<Bytes> {
        let mut paused = Duration::ZERO;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.read_once(place).await {
                Err(error) if may_pass(&error) && paused < READ_FOR => {
                    tracing::warn!(%error, segment = place.segment, "the log cannot be read; trying again");
                    tokio::time::sleep(pause).await;
                    paused += pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                done => return done,
            }
        }
    }

    async fn read_once(&self, place: Place) -> io::Result<Bytes> {
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
        let file = Arc::new(self.disk.open_read(&self.path(segment)).await?);
        {
            let mut open = self.open.lock();
            while open.len() >= OPEN_MAX {
                // A reader keeps its handle until it is done.
                open.pop_first();
            }
            open.insert(segment, file.clone());
        }
        // It may have been removed and forgotten after it was opened here: a handle that is kept would keep its space, too.
        if !is_planted("a removed segment stays open") && !self.disk.exists(&self.path(segment)).await? {
            self.forget(segment);
        }
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

    /// Whether a handle of the file is kept.
    #[cfg(feature = "interleave")]
    pub(super) fn is_open(&self, segment: u64) -> bool {
        self.open.lock().contains_key(&segment)
    }

    pub(crate) fn damaged(&self, place: Place, what: &str) -> io::Error {
        let path = self.path(place.segment);
        let text = format!("the log {} is damaged at offset {} ({what})", path.display(), place.offset);
        io::Error::new(io::ErrorKind::InvalidData, text)
    }
}

/// Whether a read may succeed if it is repeated: not of a file that was removed or is too short.
fn may_pass(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_read_of_a_file_that_is_gone_is_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(fs::Disk::os(), directory.path().to_owned());
        let before = tokio::time::Instant::now();
        let error = files.read(Place { segment: 1, offset: 0, length: 8 }).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_fails_is_repeated_for_some_seconds() {
        let memory = fs::MemoryDisk::new();
        let files = Files::new(fs::Disk::from(&memory), "/log".into());
        files.disk().create_dir_all(Path::new("/log")).await.unwrap();
        files.disk().create_new(&files.path(1)).await.unwrap().write_all_at(b"entries!", 0).await.unwrap();
        let place = Place { segment: 1, offset: 0, length: 8 };
        files.open(1).await.unwrap();
        let fail = |times| (0..times).for_each(|at| memory.fail_at(memory.operations() + at, fs::Fault::Error));

        fail(12);
        assert_eq!(&files.read(place).await.unwrap()[..], b"entries!");
        fail(1_000);
        let before = tokio::time::Instant::now();
        assert!(files.read(place).await.is_err());
        assert!(before.elapsed() < READ_FOR + LONGEST_PAUSE, "{:?}", before.elapsed());
    }
}
