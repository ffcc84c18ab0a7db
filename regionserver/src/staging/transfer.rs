//! The transfer of files from other servers into a directory.
//!
//! The room pulls: it asks one of the servers that have a file for part after part. Several servers have the files. The one
//! that answered last is asked first, so that one that is down costs one wait and not one per part; and after files that
//! arrived damaged another one is ([`Holders`]).
//!
//! # Invariants
//! - A file is written under another name until it is whole and synced, so what is there under its own name is whole, also
//!   after a crash. Its name is durable before it counts as fetched.
//! - A transfer that is repeated continues where the last one ended, but for a file that was not renamed although all of its
//!   bytes are there: its sync may have failed, so it is fetched again.
//! - Each transfer has a rate, and all of a server share one, which leave room for requests; and some space stays free on the
//!   disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use terrane_env::fs::{self, Disk};
use terrane_env::pace::Pace;
use terrane_env::task::run_io;
use terrane_types::limits::BATCH_BYTES_MAX;
use terrane_types::{Error, ServerId};
use tokio::time::Instant;

/// Bytes that one call fetches.
const PART_BYTES: u32 = 1 << 20;
/// Bytes that one transfer fetches per second, so that requests have room...
const BYTES_PER_SECOND: u64 = 128 << 20;
/// ...and all transfers of a server together.
pub const ALL_BYTES_PER_SECOND: u64 = 4 * BYTES_PER_SECOND;
/// Bytes that are read at once for a checksum.
const READ_BYTES: u64 = 1 << 20;
/// What stays free on the disk.
pub const FREE_BYTES_MIN: u64 = 256 << 20;
/// The pause before files are looked for again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long files of a committed entry are fetched before it is looked whether they are still needed.
pub const TAKE_STEP: Duration = Duration::from_secs(1);
/// Marks a file that is not whole.
const UNFINISHED: &str = ".part";

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub struct FilePart {
    pub file: u64,
    pub offset: u64,
    pub length: u32,
}

/// Which of the servers that have the files is asked first.
#[derive(Debug, Default)]
pub struct Holders(AtomicUsize);

impl Holders {
    /// Reads a part of this length from the first of the servers that has it.
    pub async fn read<F>(&self, servers: &[ServerId], length: u32, read: impl Fn(ServerId) -> F) -> Result<Bytes, Error>
    where
        F: Future<Output = Result<Bytes, Error>>,
    {
        let first = self.0.load(Ordering::Relaxed);
        let mut last = None;
        for turn in 0..servers.len() {
            let server = servers[first.wrapping_add(turn) % servers.len()];
            match read(server).await {
                Ok(part) if part.len() == length as usize => {
                    self.0.store(first.wrapping_add(turn), Ordering::Relaxed);
                    return Ok(part);
                }
                Ok(_) => last = Some(later(format!("server {server} has another file of that number"))),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| later("no server that may have the files is known".to_owned())))
    }

    /// What was fetched is damaged: the next server is asked first.
    pub fn rotate(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The files that a directory is to have, and no others.
pub struct Transfer<'a> {
    pub disk: &'a Disk,
    pub dir: &'a Path,
    /// Their sizes by number.
    pub files: BTreeMap<u64, u64>,
    /// The name of the file with a number.
    pub name: fn(u64) -> String,
    /// Of all transfers.
    pub pace: &'a Pace,
}

impl Transfer<'_> {
    /// Fetches what is missing, for as long as `patience` lasts; returns the bytes that are here.
    pub async fn run<R, F>(&self, read: R, patience: Duration) -> Result<u64, Error>
    where
        R: Fn(FilePart) -> F + Send + Sync,
        F: Future<Output = Result<Bytes, Error>> + Send,
    {
        let (whole, mut bytes) = self.whole_files().await?;
        let began = Instant::now();
        let mut fetched = 0u64;
        for (file, size) in self.files.iter().filter(|(file, _)| !whole.contains(file)) {
            let here = self.fetch_file((*file, *size), &read, (began, patience), &mut fetched).await?;
            bytes += here;
            if here < *size {
                break;
            }
        }
        // Also when nothing was fetched: the last call may have failed, or been given up, between a rename and this.
        let (disk, dir) = (self.disk.clone(), self.dir.to_path_buf());
        run_io(async move { disk.sync_dir(&dir).await }).await.map_err(io_error)?;
        Ok(bytes)
    }

    /// The whole files among those that are here, and their bytes. What does not belong there is removed.
    async fn whole_files(&self) -> Result<(BTreeSet<u64>, u64), Error> {
        let missing: u64 = self.files.values().sum();
        let names: BTreeMap<String, (u64, u64)> =
            self.files.iter().map(|(file, size)| ((self.name)(*file), (*file, *size))).collect();
        let (disk, dir) = (self.disk.clone(), self.dir.to_path_buf());
        run_io(async move {
            disk.create_dir_durable(&dir).await?;
            let mut whole = BTreeSet::new();
            let mut bytes = 0;
            for name in disk.list(&dir).await? {
                match names.get(name.strip_suffix(UNFINISHED).unwrap_or(&name)) {
                    Some((id, size)) if !name.ends_with(UNFINISHED) => {
                        let here = disk.file_len(&dir.join(&name)).await?;
                        if here != *size {
                            let what = format!("the fetched file {name} has {here} bytes, not {size}");
                            return Err(std::io::Error::other(what));
                        }
                        whole.insert(*id);
                        bytes += size;
                    }
                    Some(_) => {}
                    None => disk.remove_file(&dir.join(&name)).await?,
                }
            }
            let free = disk.free_space(&dir).await?;
            if free < missing.saturating_sub(bytes).saturating_add(FREE_BYTES_MIN) {
                return Err(std::io::Error::other(format!(
                    "the files take {} MiB, and {} MiB are free",
                    (missing - bytes) >> 20,
                    free >> 20
                )));
            }
            Ok((whole, bytes))
        })
        .await
        .map_err(io_error)
    }

    /// Fetches a file from where the last call ended; returns how many of its bytes are here.
    async fn fetch_file<R, F>(
        &self,
        (file, size): (u64, u64),
        read: &R,
        (began, patience): (Instant, Duration),
        fetched: &mut u64,
    ) -> Result<u64, Error>
    where
        R: Fn(FilePart) -> F + Send + Sync,
        F: Future<Output = Result<Bytes, Error>> + Send,
    {
        let name = (self.name)(file);
        let whole = self.dir.join(&name);
        let unfinished = self.dir.join(format!("{name}{UNFINISHED}"));
        let (disk, opened) = (self.disk.clone(), unfinished.clone());
        let (handle, mut offset) = run_io(async move {
            if disk.exists(&opened).await? {
                let offset = disk.file_len(&opened).await?;
                if offset < size {
                    return Ok((disk.open_rw(&opened).await?, offset));
                }
                // Its sync may have failed. Its bytes can be read, and no later sync would write them.
                disk.remove_file(&opened).await?;
            }
            Ok((disk.create_new(&opened).await?, 0))
        })
        .await
        .map_err(io_error)?;
        let handle = Arc::new(handle);
        while offset < size {
            if began.elapsed() >= patience {
                return Ok(offset);
            }
            let length = u32::try_from(size - offset).unwrap_or(PART_BYTES).min(PART_BYTES);
            self.pace.wait(u64::from(length)).await;
            let part = read(FilePart { file, offset, length }).await?;
            let (to, at, count) = (handle.clone(), offset, part.len() as u64);
            run_io(async move { to.write_all_at(&part, at).await }).await.map_err(io_error)?;
            offset += count;
            *fetched += count;
            let due = began + Duration::from_nanos(fetched.saturating_mul(1_000_000_000) / BYTES_PER_SECOND);
            tokio::time::sleep_until(due).await;
        }
        assert_eq!(offset, size, "file {name} would get its name with {offset} of its {size} bytes");
        let disk = self.disk.clone();
        run_io(async move {
            handle.sync_all().await?;
            disk.rename(&unfinished, &whole).await
        })
        .await
        .map_err(io_error)?;
        Ok(size)
    }
}

/// Reads a part of a file, up to what one message may hold.
pub async fn read_part(path: PathBuf, part: FilePart) -> Result<Bytes, Error> {
    let read = run_io(async move {
        let mut bytes = vec![0; (part.length as usize).min(BATCH_BYTES_MAX)];
        fs::File::open_read(&path).await?.read_exact_at(&mut bytes, part.offset).await?;
        Ok(Bytes::from(bytes))
    });
    read.await.map_err(io_error)
}

/// The length of a file and the checksum of its bytes.
pub async fn checksum(path: PathBuf) -> Result<(u64, u32), Error> {
    let read = run_io(async move {
        let file = fs::File::open_read(&path).await?;
        let bytes = file.len().await?;
        let (mut crc, mut at) = (0, 0);
        let mut buffer = vec![0; usize::try_from(READ_BYTES.min(bytes)).unwrap_or(0)];
        while at < bytes {
            let length = usize::try_from(READ_BYTES.min(bytes - at)).unwrap_or(0);
            let part = &mut buffer[..length];
            file.read_exact_at(part, at).await?;
            crc = crc32c::crc32c_append(crc, part);
            at += length as u64;
        }
        Ok((bytes, crc))
    });
    read.await.map_err(io_error)
}

/// Removes a directory of files, if it is there.
pub async fn remove(dir: PathBuf) {
    let removed = run_io(async move { if fs::exists(&dir).await? { fs::remove_dir_all(&dir).await } else { Ok(()) } });
    if let Err(error) = removed.await {
        tracing::warn!(%error, "staged files were not removed; trying again later");
    }
}

pub fn io_error(error: std::io::Error) -> Error {
    later(error.to_string())
}

pub fn later(message: String) -> Error {
    Error::Unavailable { message, retry_after: RETRY_PAUSE }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use terrane_env::fs::{Fault, MemoryDisk, Tear};

    use super::*;

    /// Asks for a part of four bytes; returns which servers were asked. Those of `down` do not answer, `short` answers with less.
    async fn asked(holders: &Holders, servers: &[u64], down: &[u64], short: u64) -> (Vec<u64>, bool) {
        let asked = Mutex::new(Vec::new());
        let servers: Vec<ServerId> = servers.iter().copied().map(ServerId).collect();
        let read = async |server: ServerId| {
            asked.lock().push(server.0);
            match server.0 {
                server if down.contains(&server) => Err(later("it is down".to_owned())),
                server if server == short => Ok(Bytes::from_static(b"abc")),
                _ => Ok(Bytes::from_static(b"abcd")),
            }
        };
        let answered = holders.read(&servers, 4, read).await.is_ok();
        (asked.into_inner(), answered)
    }

    #[tokio::test]
    async fn the_server_that_answered_last_is_asked_first() {
        let holders = Holders::default();
        assert_eq!(asked(&holders, &[1, 2, 3], &[1], 2).await, (vec![1, 2, 3], true));
        assert_eq!(asked(&holders, &[1, 2, 3], &[1], 2).await, (vec![3], true));
        assert_eq!(asked(&holders, &[1, 2, 3], &[3], 0).await, (vec![3, 1], true));
        assert_eq!(asked(&holders, &[1, 2, 3], &[1, 2, 3], 0).await, (vec![1, 2, 3], false));
        assert_eq!(asked(&holders, &[], &[], 0).await, (vec![], false));
    }

    #[tokio::test]
    async fn after_damaged_files_another_server_is_asked_first() {
        let holders = Holders::default();
        assert_eq!(asked(&holders, &[1, 2], &[], 0).await.0, [1]);
        holders.rotate();
        assert_eq!(asked(&holders, &[1, 2], &[], 0).await.0, [2]);
        holders.rotate();
        assert_eq!(asked(&holders, &[1, 2], &[], 0).await.0, [1]);
    }

    /// Transfers two files of which each part is there at once; returns the bytes that are here.
    async fn transferred(disk: &MemoryDisk) -> Result<u64, Error> {
        let disk = Disk::from(disk);
        let transfer = Transfer {
            disk: &disk,
            dir: Path::new("/loading/1"),
            files: [(1, 4), (2, 4)].into(),
            name: |number| format!("{number}.store"),
            pace: &Pace::new(ALL_BYTES_PER_SECOND),
        };
        let read = async |_: FilePart| Ok(Bytes::from_static(b"abcd"));
        transfer.run(read, Duration::from_secs(1)).await
    }

    #[tokio::test]
    async fn files_that_count_as_fetched_are_there_after_a_power_cut_whatever_failed_before() {
        for operation in 0.. {
            let disk = MemoryDisk::new();
            // The engine makes it when it opens.
            Disk::from(&disk).create_dir_durable(Path::new("/loading")).await.unwrap();
            let planned = disk.operations() + operation;
            disk.fail_at(planned, Fault::Error);
            let failed = transferred(&disk).await.is_err();
            if disk.operations() <= planned {
                assert!(operation > 8 && !failed, "a transfer does several things with the disk");
                return;
            }
            // The server lives on, and is asked again.
            assert_eq!(transferred(&disk).await.unwrap(), 8);
            let disk = Disk::from(&disk.crash(Tear::Lost));
            let names = disk.list(Path::new("/loading/1")).await.unwrap_or_default();
            assert_eq!(names, ["1.store", "2.store"], "operation {operation} failed");
        }
    }
}
