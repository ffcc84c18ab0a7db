//! The directory of an engine's files: who may use a number, and which files may go.
//!
//! A file goes when the manifest does not name it, nobody is about to have it named, and no reader holds it. Readers
//! count because a file's descriptor may be closed and opened again by name while they read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use terrane_env::fs::Disk;

use crate::Error;

/// Held by whoever may still read a file.
#[derive(Debug)]
pub(crate) struct Claim(());

/// Files that must not be removed for not being named: those that no record names yet, and all that are made later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spared {
    unrecorded: BTreeSet<u64>,
    from: u64,
}

impl Spared {
    fn contains(&self, id: u64) -> bool {
        id >= self.from || self.unrecorded.contains(&id)
    }
}

/// One directory of numbered files.
pub(crate) struct Files {
    disk: Disk,
    dir: PathBuf,
    suffix: &'static str,
    next: AtomicU64,
    /// Files that no manifest record names yet, and may name soon.
    unrecorded: Mutex<BTreeSet<u64>>,
    /// Those of the unrecorded ones whose record failed and may be on disk all the same.
    in_doubt: Mutex<BTreeSet<u64>>,
    claims: Mutex<BTreeMap<u64, Weak<Claim>>>,
}

impl Files {
    /// Opens the directory, and removes the files that the manifest does not name: they are of flushes and compactions that
    /// were never recorded.
    pub(crate) async fn open(
        disk: &Disk,
        parent: &Path,
        name: &str,
        suffix: &'static str,
        named: &BTreeSet<u64>,
    ) -> Result<Self, Error> {
        let dir = parent.join(name);
        disk.create_dir_all(&dir).await.map_err(Error::io("make the directory of files"))?;
        // Its name too has to survive a power cut, or the files in it do not.
        disk.sync_dir(parent).await.map_err(Error::io("sync the engine's directory"))?;
        let next = named.iter().next_back().map_or(1, |last| last + 1);
        let files = Self {
            disk: disk.clone(),
            dir,
            suffix,
            next: AtomicU64::new(next),
            unrecorded: Mutex::default(),
            in_doubt: Mutex::default(),
            claims: Mutex::default(),
        };
        // Nobody works yet, so nothing is spared, whatever its number.
        files.retain(named, &Spared { unrecorded: BTreeSet::new(), from: u64::MAX }).await?;
        // Their numbers are given out again: a name must not be removed and made anew in one go.
        files.sync().await?;
        Ok(files)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn path_of(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:016}{}", self.suffix))
    }

    /// A number for a new file, which is spared until [`Files::settled`].
    pub(crate) fn begin(&self) -> u64 {
        // Under the lock, so that `spared` sees every file either as unrecorded or as one to come.
        let mut unrecorded = self.unrecorded.lock();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        unrecorded.insert(id);
        id
    }

    /// The file is named by the manifest now, or never will be.
    pub(crate) fn settled(&self, id: u64) {
        self.unrecorded.lock().remove(&id);
    }

    /// The record that was to name these files failed: they are settled once it is known not to be on disk.
    pub(crate) fn in_doubt(&self, ids: impl Iterator<Item = u64>) {
        self.in_doubt.lock().extend(ids);
    }

    /// Settles all that was in doubt.
    pub(crate) fn doubt_is_over(&self) {
        let over = std::mem::take(&mut *self.in_doubt.lock());
        over.into_iter().for_each(|id| self.settled(id));
    }

    /// What whoever reads a file holds.
    pub(crate) fn claim(&self, id: u64) -> Arc<Claim> {
        let mut claims = self.claims.lock();
        if let Some(claim) = claims.get(&id).and_then(Weak::upgrade) {
            return claim;
        }
        let claim = Arc::new(Claim(()));
        claims.insert(id, Arc::downgrade(&claim));
        claim
    }

    /// Makes the names of new files durable.
    pub(crate) async fn sync(&self) -> Result<(), Error> {
        self.disk.sync_dir(&self.dir).await.map_err(Error::io("sync the directory of files"))
    }

    /// The files that stay although the manifest may not name them yet, as of now.
    pub(crate) fn spared(&self) -> Spared {
        let unrecorded = self.unrecorded.lock();
        Spared { unrecorded: unrecorded.clone(), from: self.next.load(Ordering::Relaxed) }
    }

    /// Removes the files that are neither named nor spared nor read by anybody. Those that are still read go another time.
    pub(crate) async fn retain(&self, named: &BTreeSet<u64>, spared: &Spared) -> Result<(), Error> {
        let names = self.disk.list(&self.dir).await.map_err(Error::io("list the files"))?;
        for name in names {
            let id = name.strip_suffix(self.suffix).and_then(|id| id.parse::<u64>().ok());
            if id.is_some_and(|id| named.contains(&id) || spared.contains(id) || self.is_claimed(id)) {
                continue;
            }
            match self.disk.remove_file(&self.dir.join(&name)).await {
                // Another flush that cleans up was faster.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::io(format!("remove {name}")))?,
            }
        }
        self.claims.lock().retain(|_, claim| claim.strong_count() > 0);
        Ok(())
    }

    fn is_claimed(&self, id: u64) -> bool {
        self.claims.lock().get(&id).is_some_and(|claim| claim.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn make(files: &Files) -> u64 {
        let id = files.begin();
        files.disk.create_new(&files.path_of(id)).await.unwrap();
        id
    }

    async fn open(dir: &Path, named: &[u64]) -> Files {
        Files::open(&Disk::os(), dir, "files", ".x", &named.iter().copied().collect()).await.unwrap()
    }

    async fn names(files: &Files) -> Vec<String> {
        files.disk.list(files.dir()).await.unwrap()
    }

    /// Another region's flush looked at the manifest before this file was recorded, and removes files only now.
    #[tokio::test]
    async fn a_file_recorded_between_look_and_removal_stays() {
        let directory = tempfile::tempdir().unwrap();
        let files = open(directory.path(), &[]).await;
        let begun = make(&files).await;
        let spared = files.spared();
        let named_then = BTreeSet::new();
        let later = make(&files).await;
        files.settled(begun);
        files.settled(later);
        files.retain(&named_then, &spared).await.unwrap();
        assert_eq!(names(&files).await.len(), 2);
        files.retain(&BTreeSet::from([later]), &files.spared()).await.unwrap();
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
    async fn a_file_that_is_read_stays_until_nobody_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let files = open(directory.path(), &[]).await;
        let id = make(&files).await;
        let (reader, another) = (files.claim(id), files.claim(id));
        files.settled(id);
        drop(reader);
        files.retain(&BTreeSet::new(), &files.spared()).await.unwrap();
        assert_eq!(names(&files).await.len(), 1);
        drop(another);
        files.retain(&BTreeSet::new(), &files.spared()).await.unwrap();
        assert!(names(&files).await.is_empty());
    }
}
