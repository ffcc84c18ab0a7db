//! A directory of numbered files: which numbers are taken, and which files may be removed.
//!
//! A file is removed when the manifest does not name it, nothing is about to have it named, and no reader holds it. Readers
//! count because a file's descriptor may be closed and opened again by name while they read.
//!
//! [`Ledger`] decides; [`FileDirectory`] carries out.

mod ledger;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::fs::Disk;
use terrane_env::sync::Mutex;
use terrane_env::task;

use self::ledger::Ledger;
pub(crate) use self::ledger::{Claim, Protected};
use crate::Error;

/// One directory of numbered files.
pub(crate) struct FileDirectory {
    disk: Disk,
    dir: PathBuf,
    suffix: &'static str,
    ledger: Mutex<Ledger>,
}

impl FileDirectory {
    /// Opens the directory, and removes the files that the manifest does not name: they are from flushes and compactions that
    /// were never recorded.
    pub(crate) async fn open(
        disk: &Disk,
        parent: &Path,
        name: &str,
        suffix: &'static str,
        named: &BTreeSet<u64>,
    ) -> Result<Self, Error> {
        let dir = parent.join(name);
        disk.create_dir_all(&dir).await.map_err(Error::io("create the directory of files"))?;
        // Its name too has to survive a power cut, or the files in it do not.
        disk.sync_dir(parent).await.map_err(Error::io("sync the engine's directory"))?;
        let files = Self { disk: disk.clone(), dir, suffix, ledger: Mutex::new(Ledger::new(named)) };
        // Nothing runs yet, so nothing is protected, whatever its number.
        files.retain(named, &Protected::nothing()).await?;
        // Their numbers are given out again: a name must not be removed and created again within one sync.
        files.sync().await?;
        Ok(files)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn path_of(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:016}{}", self.suffix))
    }

    /// A number for a new file, which is protected until [`FileDirectory::release`].
    pub(crate) fn allocate(&self) -> u64 {
        self.ledger.lock().allocate()
    }

    /// Gives a file from elsewhere on the same file system a second name here. Its bytes must be synced; the name is not
    /// durable before [`FileDirectory::sync`].
    pub(crate) async fn link(&self, from: &Path, id: u64) -> Result<(), Error> {
        let (disk, from, to) = (self.disk.clone(), from.to_owned(), self.path_of(id));
        let linked = task::run_io(async move {
            let linked = disk.hard_link(&from, &to).await;
            linked.map_err(Error::io(format!("link {}", from.display())))
        });
        linked.await
    }

    /// The manifest names the file now, or never will.
    pub(crate) fn release(&self, id: u64) {
        self.ledger.lock().release(id);
    }

    /// The record that was to name these files failed: they are released once it is known not to be on disk.
    pub(crate) fn in_doubt(&self, ids: impl Iterator<Item = u64>) {
        self.ledger.lock().in_doubt(ids);
    }

    /// Releases everything that was in doubt.
    pub(crate) fn resolve_doubt(&self) {
        self.ledger.lock().resolve_doubt();
    }

    /// A claim for a reader of the file.
    pub(crate) fn claim(&self, id: u64) -> Arc<Claim> {
        self.ledger.lock().claim(id)
    }

    /// Makes the names of new files durable.
    pub(crate) async fn sync(&self) -> Result<(), Error> {
        if terrane_env::planted!("the names of store files are not synced") {
            return Ok(());
        }
        self.disk.sync_dir(&self.dir).await.map_err(Error::io("sync the directory of files"))
    }

    /// The files that stay although the manifest may not name them yet, as of now.
    pub(crate) fn protected(&self) -> Protected {
        self.ledger.lock().protected()
    }

    /// The files that are neither named nor protected nor claimed, with their lengths.
    pub(crate) async fn unnamed(
        &self,
        named: &BTreeSet<u64>,
        protected: &Protected,
    ) -> Result<Vec<(PathBuf, u64)>, Error> {
        let mut unnamed = Vec::new();
        for name in self.disk.list(&self.dir).await.map_err(Error::io("list the files"))? {
            let id = name.strip_suffix(self.suffix).and_then(|id| id.parse::<u64>().ok());
            if id.is_some_and(|id| self.ledger.lock().keeps(id, named, protected)) {
                continue;
            }
            let path = self.dir.join(&name);
            match self.disk.file_len(&path).await {
                Ok(length) => unnamed.push((path, length)),
                // A clean-up was faster.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(format!("stat {name}"))(error)),
            }
        }
        Ok(unnamed)
    }

    /// Removes the files that are neither named nor protected nor claimed. Those that are still read go another time.
    pub(crate) async fn retain(&self, named: &BTreeSet<u64>, protected: &Protected) -> Result<(), Error> {
        let nothing = terrane_env::planted!("a clean-up removes files of a running flush").then(Protected::nothing);
        let protected = nothing.as_ref().unwrap_or(protected);
        let names = self.disk.list(&self.dir).await.map_err(Error::io("list the files"))?;
        for name in names {
            let id = name.strip_suffix(self.suffix).and_then(|id| id.parse::<u64>().ok());
            if id.is_some_and(|id| self.ledger.lock().keeps(id, named, protected)) {
                continue;
            }
            match self.disk.remove_file(&self.dir.join(&name)).await {
                // Another clean-up was faster.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::io(format!("remove {name}")))?,
            }
        }
        self.ledger.lock().drop_ended_claims();
        Ok(())
    }
}

#[cfg(test)]
mod script_tests;

#[cfg(test)]
mod tests {
    use super::*;

    async fn make(files: &FileDirectory) -> u64 {
        let id = files.allocate();
        files.disk.create_new(&files.path_of(id)).await.unwrap();
        id
    }

    async fn open(dir: &Path, named: &[u64]) -> FileDirectory {
        FileDirectory::open(&Disk::os(), dir, "files", ".x", &named.iter().copied().collect()).await.unwrap()
    }

    async fn names(files: &FileDirectory) -> Vec<String> {
        files.disk.list(files.dir()).await.unwrap()
    }

    /// Another region's flush looked at the manifest before this file was recorded, and removes files only now.
    #[tokio::test]
    async fn a_file_recorded_between_look_and_removal_stays() {
        let directory = tempfile::tempdir().unwrap();
        let files = open(directory.path(), &[]).await;
        let begun = make(&files).await;
        let protected = files.protected();
        let named_then = BTreeSet::new();
        let later = make(&files).await;
        files.release(begun);
        files.release(later);
        files.retain(&named_then, &protected).await.unwrap();
        assert_eq!(names(&files).await.len(), 2);
        files.retain(&BTreeSet::from([later]), &files.protected()).await.unwrap();
        assert_eq!(names(&files).await, [format!("{later:016}.x")]);
    }

    /// A crash came between a flush's file and its record: the next flush takes the same number.
    #[tokio::test]
    async fn files_that_were_never_recorded_are_gone_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let files = open(directory.path(), &[]).await;
        let (recorded, lost) = (make(&files).await, make(&files).await);
        drop(files);
        let reopened = open(directory.path(), &[recorded]).await;
        assert_eq!(make(&reopened).await, lost);
    }

    #[tokio::test]
    async fn a_file_stays_until_its_last_reader_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let files = open(directory.path(), &[]).await;
        let id = make(&files).await;
        let (reader, another) = (files.claim(id), files.claim(id));
        files.release(id);
        drop(reader);
        files.retain(&BTreeSet::new(), &files.protected()).await.unwrap();
        assert_eq!(names(&files).await.len(), 1);
        drop(another);
        files.retain(&BTreeSet::new(), &files.protected()).await.unwrap();
        assert!(names(&files).await.is_empty());
    }
}
