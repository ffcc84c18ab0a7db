//! The segment files of the log: their names, and reading entries back.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_env::fs;

use super::held::{self, Held};

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// The directory of the log, the files in it that are open for reading, and the held files there are.
pub(crate) struct Files {
    directory: PathBuf,
    open: Mutex<BTreeMap<u64, Arc<fs::File>>>,
    pub(crate) held: Mutex<Held>,
}

/// Set in the number of a held file, wherever a number may be that of a segment or of a held file.
pub(crate) const HELD: u64 = 1 << 63;

/// Files that stay open for reading.
const OPEN_MAX: usize = 64;

/// Ending of segment names.
const ENDING: &str = ".log";

/// The name of segment `number`: numbers of one length, so that names sort as they do.
pub(crate) fn name(number: u64) -> String {
    format!("{number:08}{ENDING}")
}

/// The number of the segment called `name`; `None` for names that are not a segment's.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING)?;
    let number: u64 = digits.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

impl Files {
    pub(crate) fn new(directory: PathBuf) -> Files {
        Files { directory, open: Mutex::default(), held: Mutex::default() }
    }

    pub(crate) fn directory(&self) -> &PathBuf {
        &self.directory
    }

    pub(crate) fn path(&self, segment: u64) -> PathBuf {
        let name = if segment & HELD == 0 { name(segment) } else { held::name(segment) };
        self.directory.join(name)
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
        // Two readers may both open it; the second handle replaces the first, which lives as long as its reader.
        let file = Arc::new(fs::File::open_read(&self.path(segment)).await?);
        let mut open = self.open.lock();
        while open.len() >= OPEN_MAX {
            // Whoever reads it keeps it until it is done.
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

    /// A file that was removed.
    pub(crate) fn forget(&self, segment: u64) {
        self.open.lock().remove(&segment);
    }

    pub(crate) fn damaged(&self, place: Place, what: &str) -> io::Error {
        let path = self.path(place.segment);
        let text = format!("the log {} is damaged at offset {} ({what})", path.display(), place.offset);
        io::Error::new(io::ErrorKind::InvalidData, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_not_taken_for_segments() {
        for n in [0, 1, 99_999_999, 100_000_000] {
            assert_eq!(number(&name(n)), Some(n));
        }
        for other in ["1.log", "x.log", "00000001.tmp", "+0000001.log", ""] {
            assert_eq!(number(other), None);
        }
    }
}
