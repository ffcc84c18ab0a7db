//! The files of bulk loads on this server: those it built, and those it fetched from other members.
//!
//! Each load has a directory under its staging id. When a replica begins to apply the load, a mark beside the directory says
//! by which entry of which group, also after a restart: the files stay until that group's log no longer has the entry,
//! because another member may have to fetch them. A directory without a mark goes when nothing was heard of it for a while,
//! and every entry that was in the logs by then is applied: one of them may be the load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_engine::{Engine, IngestFile, StoreFileBuilder};
use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_types::{Error, GroupId, ServerId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bringing::Awaited;
use crate::fetching::{Fetching, Holders, RETRY_PAUSE, TAKE_STEP, io_error, later, read_part};
use crate::group::proposal::GroupHost;
use crate::moves::peers::Peers;
use crate::operation::{Load, LoadedFile, StagingId};

/// Files of a load that was not applied here go when nothing is heard of them for so long.
const IDLE_MAX: Duration = Duration::from_secs(600);
fn idle_max() -> Duration {
    let seconds = terrane_env::limit!("seconds that unused files of loads stay", IDLE_MAX.as_secs(), 20..=30);
    Duration::from_secs(seconds)
}

/// Bytes that are read at once for a checksum.
const READ_BYTES: u64 = 1 << 20;

/// How far the files of a load are here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// All of them are here, verified and synced.
    pub staged: bool,
    pub bytes: u64,
}

/// The directory of a load whose files are here and verified.
pub struct LoadDir(PathBuf);

impl LoadDir {
    /// One of its files, for the engine.
    pub fn file(&self, file: &LoadedFile) -> IngestFile {
        let path = self.0.join(StoreFileBuilder::file_name(file.number));
        IngestFile { family: file.family.clone(), path }
    }
}

/// The files of loads on this server.
pub struct LoadFiles {
    root: PathBuf,
    known: Mutex<BTreeMap<StagingId, Arc<Known>>>,
    /// The last entry of each group whose files are here.
    last_marked: Mutex<BTreeMap<GroupId, u64>>,
    network: OnceLock<Network>,
    stop: CancellationToken,
}

/// What is known once the server serves. Until then no files can be fetched.
struct Network {
    peers: Arc<Peers>,
    /// Weak: the host's state machines hold this.
    host: Weak<GroupHost>,
}

struct Known {
    holders: Holders,
    /// Whether the files are verified. Held while they are fetched.
    verified: tokio::sync::Mutex<bool>,
    touched: Mutex<Instant>,
    /// A replica here has begun to apply the load, in this process.
    is_marked: AtomicBool,
    /// The last entries of the logs here when the load was first found idle. Any of them may need its files.
    idle_at: Mutex<Option<BTreeMap<GroupId, u64>>>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            holders: Holders::default(),
            verified: tokio::sync::Mutex::default(),
            touched: Mutex::new(Instant::now()),
            is_marked: AtomicBool::new(false),
            idle_at: Mutex::default(),
        }
    }
}

/// How far a group's log and replica are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The first entry that the log has.
    pub first: u64,
    pub last: u64,
    pub applied: u64,
}

impl Known {
    /// Whether nothing was heard of the load for a while, and no log here has an entry from that time that is not applied.
    fn is_idle(&self, logs: &BTreeMap<GroupId, LogRange>) -> bool {
        let mut idle_at = self.idle_at.lock();
        if self.touched.lock().elapsed() < idle_max() {
            *idle_at = None;
            return false;
        }
        let last = idle_at.get_or_insert_with(|| logs.iter().map(|(group, log)| (*group, log.last)).collect());
        last.iter().all(|(group, last)| logs.get(group).is_none_or(|log| log.applied >= *last))
    }
}

/// By which entry a load was applied here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    group: GroupId,
    index: u64,
}

impl LoadFiles {
    pub fn new(engine: &Engine, stop: CancellationToken) -> Arc<Self> {
        let root = engine.loading_root();
        Arc::new(Self { root, known: Mutex::default(), last_marked: Mutex::default(), network: OnceLock::new(), stop })
    }

    /// Lets it fetch files from now on.
    pub fn connect(&self, peers: Arc<Peers>, host: &Arc<GroupHost>) {
        let network = Network { peers, host: Arc::downgrade(host) };
        assert!(self.network.set(network).is_ok(), "a server connects its files of loads once");
    }

    /// The directory for a load that is built here.
    pub async fn create(&self, staging: StagingId) -> Result<PathBuf, Error> {
        self.touch(staging);
        let dir = self.dir(staging);
        let created = dir.clone();
        run_io(async move { fs::create_dir_durable(&created).await }).await.map_err(io_error)?;
        Ok(dir)
    }

    /// Something was heard of a load.
    pub fn touch(&self, staging: StagingId) {
        *self.known(staging).touched.lock() = Instant::now();
    }

    /// The length and checksum of a file that was built here.
    pub async fn measure(&self, staging: StagingId, number: u64) -> Result<(u64, u32), Error> {
        checksum(&self.dir(staging).join(StoreFileBuilder::file_name(number))).await
    }

    /// Makes the names of files durable that were built here.
    pub async fn sync(&self, staging: StagingId) -> Result<(), Error> {
        let dir = self.dir(staging);
        run_io(async move { fs::sync_dir(&dir).await }).await.map_err(io_error)?;
        *self.known(staging).verified.lock().await = true;
        Ok(())
    }

    /// Fetches the files of a load from the first of `holders` that has them, for as long as `patience` lasts, and verifies
    /// them once all are here. Every call goes on where the last one ended.
    pub async fn stage(&self, load: &Load, holders: &[ServerId], patience: Duration) -> Result<Staged, Error> {
        let known = self.known(load.staging);
        let total = load.file_bytes();
        let mut verified = known.verified.lock().await;
        if *verified {
            return Ok(Staged { staged: true, bytes: total });
        }
        let dir = self.dir(load.staging);
        let files = load.files.iter().map(|file| (file.number, file.bytes)).collect();
        let fetching = Fetching { dir: &dir, files, name: StoreFileBuilder::file_name };
        let read = |file, offset, length| {
            let read = move |server| self.read_from(server, load.staging, file, offset, length);
            known.holders.read(holders, length, read)
        };
        let bytes = fetching.run(read, patience).await?;
        if bytes < total {
            return Ok(Staged { staged: false, bytes });
        }
        for file in &load.files {
            let found = checksum(&dir.join(StoreFileBuilder::file_name(file.number))).await?;
            if found != (file.bytes, file.crc) {
                tracing::warn!(staging = %load.staging, file = file.number, "a fetched file of a load is damaged; all are fetched again");
                known.holders.turn();
                remove(&dir).await;
                return Err(later(format!("file {} of the load arrived damaged", file.number)));
            }
        }
        *verified = true;
        Ok(Staged { staged: true, bytes: total })
    }

    /// The files of a load that its group has committed, from wherever they are. Waits until they are here; `None` if the
    /// server stops before, or the wait is given up. From now on they stay until the log no longer has the entry.
    pub async fn take(&self, awaited: &Awaited<'_>, load: &Load) -> Option<LoadDir> {
        let Awaited { group, index, .. } = *awaited;
        let mut is_late = false;
        loop {
            let holders = self.holders(group, load.source);
            match self.stage(load, &holders, TAKE_STEP).await {
                Ok(Staged { staged: true, .. }) => match self.mark(load.staging, Mark { group, index }).await {
                    Ok(()) => return Some(LoadDir(self.dir(load.staging))),
                    Err(error) => tracing::warn!(%group, index, %error, "a load waits for the disk"),
                },
                Ok(Staged { bytes, .. }) => awaited.arrived(bytes),
                Err(error) => {
                    awaited.not_found(format!("files of a load of region {}: {error}", load.region));
                    if !std::mem::replace(&mut is_late, true) {
                        let region = load.region;
                        tracing::warn!(%group, %region, %error, "the files of a load are not here; looking for them");
                    }
                }
            }
            if awaited.ends_within(&self.stop, RETRY_PAUSE).await {
                return None;
            }
        }
    }

    /// The last entry of a group whose files are here; 0: there are none, or none was looked for yet.
    pub fn last_marked(&self, group: GroupId) -> u64 {
        self.last_marked.lock().get(&group).copied().unwrap_or(0)
    }

    /// Reads a part of a file.
    pub async fn read(&self, staging: StagingId, file: u64, offset: u64, length: usize) -> Result<Bytes, Error> {
        self.touch(staging);
        read_part(self.dir(staging).join(StoreFileBuilder::file_name(file)), offset, length).await
    }

    /// Removes the files of a load that is not to be applied, or that are to be fetched again.
    pub async fn discard(&self, staging: StagingId) {
        let known = self.known(staging);
        let mut verified = known.verified.lock().await;
        *verified = false;
        remove(&self.dir(staging)).await;
    }

    /// Removes the files of a load that was refused, unless an earlier try of it was applied here.
    pub async fn abandon(&self, staging: StagingId) {
        if !self.known(staging).is_marked.load(Ordering::Acquire) {
            self.discard(staging).await;
        }
    }

    /// Removes the files that no member needs any more, by the logs of the groups here.
    pub async fn sweep(&self, logs: &BTreeMap<GroupId, LogRange>) {
        let root = self.root.clone();
        let names = run_io(async move { fs::list(&root).await }).await.unwrap_or_default();
        let (mut dirs, mut marks) = (BTreeSet::new(), BTreeMap::new());
        for name in names {
            if let Ok(staging) = name.parse::<StagingId>() {
                dirs.insert(staging);
            } else if let Some((staging, mark)) = parse_mark(&name) {
                marks.insert(staging, mark);
            }
        }
        marks.values().for_each(|mark| self.note_mark(*mark));
        let all: BTreeSet<StagingId> = dirs.iter().chain(marks.keys()).copied().collect();
        // Those whose files are gone already.
        self.known.lock().retain(|staging, known| {
            all.contains(staging) || Arc::strong_count(known) > 1 || known.touched.lock().elapsed() < idle_max()
        });
        for staging in all {
            let known = self.known(staging);
            let is_needed = match marks.get(&staging) {
                Some(mark) => logs.get(&mark.group).is_some_and(|log| log.first <= mark.index),
                None => !known.is_idle(logs),
            };
            if is_needed {
                continue;
            }
            let Ok(mut verified) = known.verified.try_lock() else { continue };
            *verified = false;
            // The mark goes last: a directory without one would stay for a while for nothing.
            remove(&self.dir(staging)).await;
            if let Some(mark) = marks.get(&staging) {
                let path = self.mark_path(staging, *mark);
                if let Err(error) = run_io(async move { fs::remove_file(&path).await }).await {
                    tracing::warn!(%error, "the mark of a load was not removed; trying again later");
                    continue;
                }
            }
            self.known.lock().remove(&staging);
        }
    }

    fn known(&self, staging: StagingId) -> Arc<Known> {
        self.known.lock().entry(staging).or_default().clone()
    }

    fn dir(&self, staging: StagingId) -> PathBuf {
        self.root.join(staging.to_string())
    }

    fn mark_path(&self, staging: StagingId, mark: Mark) -> PathBuf {
        self.root.join(format!("{staging}.{}.{}", mark.group, mark.index))
    }

    fn note_mark(&self, mark: Mark) {
        let mut last_marked = self.last_marked.lock();
        let last = last_marked.entry(mark.group).or_default();
        *last = mark.index.max(*last);
    }

    /// Durable before the files count: afterwards nothing would say which entry they belong to.
    async fn mark(&self, staging: StagingId, mark: Mark) -> Result<(), Error> {
        let path = self.mark_path(staging, mark);
        self.note_mark(mark);
        self.known(staging).is_marked.store(true, Ordering::Release);
        let root = self.root.clone();
        let marked = run_io(async move {
            if !fs::exists(&path).await? {
                fs::File::create_new(&path).await?.sync_all().await?;
            }
            // Also of a mark from before a crash, whose name may not be durable.
            fs::sync_dir(&root).await
        });
        marked.await.map_err(io_error)
    }

    /// The other members of a group, and the server that built the files.
    fn holders(&self, group: GroupId, source: ServerId) -> Vec<ServerId> {
        let Some(network) = self.network.get() else { return Vec::new() };
        let group = network.host.upgrade().and_then(|host| host.group(group));
        let mut holders: BTreeSet<ServerId> =
            group.iter().flat_map(|group| group.status().members.into_values()).collect();
        holders.insert(source);
        holders.remove(&network.peers.server());
        holders.into_iter().collect()
    }

    async fn read_from(
        &self,
        server: ServerId,
        staging: StagingId,
        file: u64,
        offset: u64,
        length: u32,
    ) -> Result<Bytes, Error> {
        let Some(network) = self.network.get() else { return Err(later("this server does not serve yet".to_owned())) };
        network.peers.read_loaded(server, staging, file, offset, length).await
    }
}

fn parse_mark(name: &str) -> Option<(StagingId, Mark)> {
    let mut parts = name.split('.');
    let (staging, group, index) = (parts.next()?, parts.next()?, parts.next()?);
    let mark = Mark { group: GroupId(group.parse().ok()?), index: index.parse().ok()? };
    if parts.next().is_some() { None } else { Some((staging.parse().ok()?, mark)) }
}

/// The length of a file and the checksum of its bytes.
async fn checksum(path: &Path) -> Result<(u64, u32), Error> {
    let path = path.to_path_buf();
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

async fn remove(dir: &Path) {
    let dir = dir.to_path_buf();
    let removed = run_io(async move { if fs::exists(&dir).await? { fs::remove_dir_all(&dir).await } else { Ok(()) } });
    if let Err(error) = removed.await {
        tracing::warn!(%error, "the files of a load were not removed; trying again later");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_which_entry_a_load_belongs_to() {
        let staging = StagingId([0xab; 16]);
        let mark = Mark { group: GroupId(7), index: 99 };
        assert_eq!(parse_mark(&format!("{staging}.7.99")), Some((staging, mark)));
        for other in [format!("{staging}"), format!("{staging}.7"), format!("{staging}.7.99.tmp"), "x.7.99".to_owned()]
        {
            assert_eq!(parse_mark(&other), None, "{other}");
        }
    }
}
