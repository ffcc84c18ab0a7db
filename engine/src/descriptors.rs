//! The open store files: the most recently used ones, up to a limit.
//!
//! Only reads that miss the block cache come here. A file that is closed while a read still uses it stays open until
//! that read is done, since both share it. Where the process may not have as many files open as configured, the system
//! says so on opening, and the limit is halved.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use terrane_env::fs::{Disk, File};
use terrane_env::sync::Mutex;

/// The most open files, unless the process may have fewer.
pub(crate) const OPEN_FILES_MAX: usize = 512;

/// The errors of `open` when the process, or the system, has too many files open.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// The open files of one server.
#[derive(Debug)]
pub(crate) struct Descriptors {
    disk: Disk,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    limit: usize,
    /// Counts uses: a higher number is a later use.
    clock: u64,
    files: BTreeMap<u64, (Arc<File>, u64)>,
    /// The ids by their last use.
    by_use: BTreeMap<u64, u64>,
}

impl Descriptors {
    pub(crate) fn new(disk: Disk, limit: usize) -> Self {
        let open = Open { limit: limit.max(1), clock: 0, files: BTreeMap::new(), by_use: BTreeMap::new() };
        Self { disk, open: Mutex::new(open) }
    }

    /// The file with this id, opened if necessary. Blocks.
    pub(crate) fn get(&self, id: u64, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = self.open.lock().used(id) {
            return Ok(file);
        }
        // Opened without the lock: other reads continue. If two open the same file at a time, one descriptor is closed
        // again.
        let file = loop {
            match self.disk.open_read_now(path) {
                Ok(file) => break Arc::new(file),
                Err(error) if too_many(&error) && self.open.lock().shrink() => {}
                Err(error) => return Err(error),
            }
        };
        let closed = self.open.lock().insert(id, Arc::clone(&file));
        drop(closed);
        Ok(file)
    }

    /// Closes the file with this id, which will not be requested again.
    pub(crate) fn close(&self, id: u64) {
        let closed = self.open.lock().remove(id);
        drop(closed);
    }

    /// How many files are open.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open.lock().files.len()
    }

    /// How many may be open.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.open.lock().limit
    }
}

impl Open {
    fn used(&mut self, id: u64) -> Option<Arc<File>> {
        let (file, last) = self.files.get_mut(&id)?;
        self.by_use.remove(last);
        self.clock += 1;
        *last = self.clock;
        self.by_use.insert(self.clock, id);
        Some(Arc::clone(file))
    }

    /// Returns the files that had to go for it.
    fn insert(&mut self, id: u64, file: Arc<File>) -> Vec<Arc<File>> {
        let mut closed: Vec<_> = self.remove(id).into_iter().collect();
        closed.extend(self.close_down_to(self.limit - 1));
        self.clock += 1;
        self.files.insert(id, (file, self.clock));
        self.by_use.insert(self.clock, id);
        closed
    }

    fn remove(&mut self, id: u64) -> Option<Arc<File>> {
        let (file, last) = self.files.remove(&id)?;
        self.by_use.remove(&last);
        Some(file)
    }

    fn close_down_to(&mut self, count: usize) -> Vec<Arc<File>> {
        let mut closed = Vec::new();
        while self.files.len() > count {
            let Some((_, id)) = self.by_use.pop_first() else { break };
            closed.extend(self.files.remove(&id).map(|(file, _)| file));
        }
        closed
    }

    /// Lowers the limit to half of what is open, and closes the others; `false` when there is nothing left to close.
    fn shrink(&mut self) -> bool {
        if self.files.is_empty() {
            return false;
        }
        self.limit = (self.files.len() / 2).max(1);
        let count = if self.files.len() == 1 { 0 } else { self.limit };
        drop(self.close_down_to(count));
        true
    }
}

fn too_many(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use terrane_env::fs::MemoryDisk;

    use super::*;

    async fn disk_with_files(count: u64) -> (MemoryDisk, Disk) {
        let memory = MemoryDisk::default();
        let disk = Disk::from(&memory);
        disk.create_dir_all(Path::new("/d")).await.unwrap();
        for id in 0..count {
            disk.create_new(&path(id)).await.unwrap().write_all_at(&id.to_le_bytes(), 0).await.unwrap();
        }
        (memory, disk)
    }

    fn path(id: u64) -> PathBuf {
        PathBuf::from(format!("/d/{id}"))
    }

    fn read(descriptors: &Descriptors, id: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        descriptors.get(id, &path(id))?.read_exact_at_now(&mut bytes, 0)?;
        Ok(u64::from_le_bytes(bytes))
    }

    #[tokio::test]
    async fn the_files_used_last_stay_open_up_to_the_limit() {
        let (_memory, disk) = disk_with_files(10).await;
        let descriptors = Descriptors::new(disk.clone(), 4);
        for id in 0..10 {
            assert_eq!(read(&descriptors, id).unwrap(), id);
            assert_eq!(read(&descriptors, 0).unwrap(), 0);
            assert!(descriptors.len() <= 4);
        }
        for id in [0, 9, 8, 7] {
            disk.remove_file(&path(id)).await.unwrap();
            assert_eq!(read(&descriptors, id).unwrap(), id, "it is still open");
        }
        disk.remove_file(&path(1)).await.unwrap();
        assert_eq!(read(&descriptors, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        descriptors.close(0);
        assert!(read(&descriptors, 0).is_err());
    }

    #[tokio::test]
    async fn with_too_many_files_open_the_limit_is_halved_and_reads_go_on() {
        let (memory, disk) = disk_with_files(40).await;
        let descriptors = Descriptors::new(disk, 512);
        memory.set_open_files_max(Some(16));
        for id in (0..40).chain(0..40) {
            assert_eq!(read(&descriptors, id).unwrap(), id);
        }
        assert_eq!(descriptors.limit(), 8);
        memory.set_open_files_max(Some(1));
        for id in 0..40 {
            assert_eq!(read(&descriptors, id).unwrap(), id);
        }
        memory.set_open_files_max(Some(0));
        assert!(read(&descriptors, 40).is_err());
    }
}
