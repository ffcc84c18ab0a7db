//! Whether a data directory is still the one that this process opened.
//!
//! A file keeps its content for as long as it is open, whatever becomes of its name. A process whose directory was deleted
//! therefore writes and syncs on without an error, into files that vanish with it. So the names are looked at again every
//! few seconds: each must lead to the same file or directory (device and number) as when the process locked the directory.
//!
//! Only what is certain counts as gone: a name that does not exist, or that leads to something else. A disk that fails to
//! answer is for those who read and write to notice.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{DirLock, Disk, Node};

/// How often a process looks at its data directory.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A data directory and what its most important names led to when it was opened.
#[derive(Clone, Debug)]
pub struct Presence {
    disk: Disk,
    directory: PathBuf,
    known: Vec<(PathBuf, Node)>,
}

/// The data directory is not the one that was opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "the data directory {} was deleted, moved or replaced while this process uses it: {}. What this process writes would \
     be lost with it. Start it again, with the directory back in its place or with an empty one that the other replicas fill",
    .directory.display(),
    .what
)]
pub struct DirectoryLost {
    directory: PathBuf,
    what: String,
}

impl DirLock {
    /// The directory with its lock file, to notice when it is deleted or replaced.
    pub async fn presence(&self) -> io::Result<Presence> {
        let mut presence = Presence::of(Disk::os(), self.directory()).await?;
        if let Some((path, node)) = self.lock_file()? {
            presence.add_known(path, node);
        }
        Ok(presence)
    }
}

impl Presence {
    /// Watches a directory of `disk`. [`DirLock::presence`](super::DirLock::presence) watches the lock file as well.
    pub async fn of(disk: Disk, directory: &Path) -> io::Result<Presence> {
        let mut presence = Presence { disk, directory: directory.to_owned(), known: Vec::new() };
        presence.add(directory).await?;
        Ok(presence)
    }

    /// Watches another file or directory, as what it is now.
    pub async fn add(&mut self, path: &Path) -> io::Result<()> {
        let node = self.disk.node(path).await?;
        self.add_known(path.to_owned(), node);
        Ok(())
    }

    fn add_known(&mut self, path: PathBuf, node: Node) {
        self.known.push((path, node));
    }

    /// Looks once, also at a file that must exist, whichever it is: the one that `newest` names.
    pub async fn check(&self, newest: impl Fn() -> Option<PathBuf>) -> Result<(), DirectoryLost> {
        for (path, node) in &self.known {
            match self.disk.node(path).await {
                Ok(now) if now == *node => {}
                Ok(_) => return Err(self.gone(format!("{} is another one now", path.display()))),
                Err(error) if is_absent(&error) => {
                    return Err(self.gone(format!("{} does not exist any more", path.display())));
                }
                Err(error) => tracing::debug!(%error, "cannot look at {}", path.display()),
            }
        }
        if let Some(path) = newest()
            && let Err(error) = self.disk.node(&path).await
            && is_absent(&error)
            // It may have been replaced by a newer one, and removed, since it was named.
            && newest().as_ref() == Some(&path)
        {
            return Err(self.gone(format!("{} does not exist any more", path.display())));
        }
        Ok(())
    }

    /// Looks every few seconds. Returns once the directory is gone: then the process must end at once and acknowledge nothing more.
    pub async fn until_gone(self, newest: impl Fn() -> Option<PathBuf> + Clone + Send + 'static) -> DirectoryLost {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (presence, newest) = (self.clone(), newest.clone());
            if let Err(gone) = crate::task::run_io(async move { presence.check(newest).await }).await {
                return gone;
            }
        }
    }

    fn gone(&self, what: String) -> DirectoryLost {
        DirectoryLost { directory: self.directory.clone(), what }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::super::MemoryDisk;
    use super::*;

    const DATA: &str = "/data";
    const SEGMENT: &str = "/data/log/1";

    /// A directory as a server has it, with the newest segment of its log.
    async fn watched() -> (Disk, Presence) {
        let disk = Disk::from(&MemoryDisk::new());
        disk.create_dir_all(Path::new("/data/log")).await.unwrap();
        for name in ["/data/LOCK", SEGMENT] {
            disk.create_new(Path::new(name)).await.unwrap();
        }
        let mut presence = Presence::of(disk.clone(), Path::new(DATA)).await.unwrap();
        for name in ["/data/LOCK", "/data/log"] {
            presence.add(Path::new(name)).await.unwrap();
        }
        (disk, presence)
    }

    fn newest() -> Option<PathBuf> {
        Some(PathBuf::from(SEGMENT))
    }

    async fn expect_gone(presence: &Presence, words: &str) {
        let gone = presence.check(newest).await.unwrap_err().to_string();
        assert!(
            gone.starts_with("the data directory /data was deleted, moved or replaced") && gone.contains(words),
            "{gone}"
        );
    }

    #[tokio::test]
    async fn a_directory_in_use_is_present_whatever_is_written_in_it() {
        let (disk, presence) = watched().await;
        let file = disk.open_rw(Path::new("/data/LOCK")).await.unwrap();
        file.write_all_at(b"7\n", 0).await.unwrap();
        disk.write_durable(Path::new("/data/server"), b"identity").await.unwrap();
        disk.create_new(Path::new("/data/log/2")).await.unwrap();
        presence.check(newest).await.unwrap();
    }

    #[tokio::test]
    async fn a_deleted_directory_is_noticed() {
        let (disk, presence) = watched().await;
        disk.remove_dir_all(Path::new(DATA)).await.unwrap();
        expect_gone(&presence, "/data does not exist any more").await;
    }

    #[tokio::test]
    async fn a_directory_with_the_same_names_is_another_one() {
        let (disk, presence) = watched().await;
        disk.rename(Path::new(DATA), Path::new("/moved")).await.unwrap();
        expect_gone(&presence, "/data does not exist any more").await;
        disk.create_dir_all(Path::new("/data/log")).await.unwrap();
        for name in ["/data/LOCK", SEGMENT] {
            disk.create_new(Path::new(name)).await.unwrap();
        }
        expect_gone(&presence, "/data is another one now").await;
    }

    #[tokio::test]
    async fn deleted_content_is_noticed() {
        let (disk, presence) = watched().await;
        disk.remove_file(Path::new(SEGMENT)).await.unwrap();
        expect_gone(&presence, "/data/log/1 does not exist any more").await;
        disk.remove_dir_all(Path::new("/data/log")).await.unwrap();
        disk.create_dir_all(Path::new("/data/log")).await.unwrap();
        expect_gone(&presence, "/data/log is another one now").await;
    }

    #[tokio::test]
    async fn a_segment_that_was_replaced_meanwhile_is_not_missed() {
        let (_, presence) = watched().await;
        let asked = std::cell::Cell::new(2);
        let newest = || {
            asked.set(asked.get() + 1);
            Some(PathBuf::from(format!("/data/log/{}", asked.get())))
        };
        presence.check(newest).await.unwrap();
    }

    #[tokio::test]
    async fn a_disk_that_fails_to_answer_has_lost_nothing() {
        let memory = MemoryDisk::new();
        let disk = Disk::from(&memory);
        disk.create_dir_all(Path::new(DATA)).await.unwrap();
        let presence = Presence::of(disk, Path::new(DATA)).await.unwrap();
        memory.fail_at(memory.operations(), super::super::Fault::Error);
        presence.check(|| None).await.unwrap();
    }
}
