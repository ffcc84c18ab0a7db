//! The staging room: files that pass between servers beside the log, for bulk loads and for regions that move.
//!
//! The entry of a load or an adoption names files that the log does not have. The members of a group fetch and verify them
//! before the entry is proposed, and whichever lacks them when it applies the entry fetches them then. Loads and moves differ
//! in what they stage ([`FileSet`]) and how it is verified; everything else is one: where the files are, the way they come
//! ([`transfer`]), the wait of a replica that lacks them ([`wait`]), when they may go ([`retention`]), and the [`sweep`].
//!
//! On disk: `loading/ID/` has the files of a load, and a mark beside it says by which entry of which group a replica here
//! began to apply it, also after a restart; what a group adopted is in its state instead. `arriving/MOVE/SOURCE/` has those of
//! a region. Its verified files are linked into the engine's directory at once, and the links of the former round are used
//! again, so only what is new is read. Copies of regions that leave this server are offered from where the engine has them.
//!
//! Copies of whole groups do not pass through here: their leader sends them over raft's own links, a member does not continue
//! their files after a restart, and they replace what the group's log would bring (`terrane_raft`, `copies`). Both rooms
//! bound their rate by a [`Pace`].
//!
//! # Invariants
//! - A [`StagedFiles`] is verified in full, and the files of a load are marked durably before it exists.
//! - One transfer, verification, claim or removal of a set at a time: each holds its [`Slot`].
//! - Files go by the rule of [`retention`] alone, unless they are damaged or belong to a load that no replica here took in.

pub mod retention;
pub mod sweep;
pub mod transfer;
pub mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_engine::{Engine, RegionContents, RegionCopy, StagedRegion, StoreFileBuilder};
use terrane_env::fs;
use terrane_env::pace::Pace;
use terrane_env::task::run_io;
use terrane_proto::v1;
use terrane_types::{Error, GroupId, Invalid, MoveId, ServerId};
use tokio_util::sync::CancellationToken;

use self::retention::{Claim, Logs, Mark, Usage};
use self::transfer::{
    ALL_BYTES_PER_SECOND, FilePart, Holders, RETRY_PAUSE, TAKE_STEP, Transfer, checksum, io_error, later, read_part,
    remove,
};
use self::wait::Wait;
use crate::edge::error_mapping::engine_error;
use crate::group::proposal::GroupHost;
use crate::moves::peers::{CALL_TIMEOUT, Peers, answer};
use crate::operation::{Adopt, Load, Source, StagingId};

/// What staged files belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileSetId {
    Load(StagingId),
    Move(MoveId),
}

/// The files that an operation names.
#[derive(Clone, Copy, Debug)]
pub enum FileSet<'a> {
    Load(&'a Load),
    Region(&'a Adopt),
}

impl FileSet<'_> {
    fn id(self) -> FileSetId {
        match self {
            Self::Load(load) => FileSetId::Load(load.staging),
            Self::Region(adopt) => FileSetId::Move(adopt.id),
        }
    }

    /// The server that had them first.
    fn source(self) -> ServerId {
        match self {
            Self::Load(load) => load.source,
            Self::Region(adopt) => adopt.source.server,
        }
    }

    /// Their sizes by number.
    fn sizes(self) -> Result<BTreeMap<u64, u64>, Error> {
        Ok(match self {
            Self::Load(load) => load.files.iter().map(|file| (file.number, file.bytes)).collect(),
            Self::Region(adopt) => decoded(&adopt.contents)?.files().iter().map(|file| (file.id, file.size)).collect(),
        })
    }

    fn file_name(self) -> fn(u64) -> String {
        match self {
            Self::Load(_) => StoreFileBuilder::file_name,
            Self::Region(_) => Engine::fetched_name,
        }
    }
}

impl std::fmt::Display for FileSet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Load(load) => write!(f, "files of a load of region {}", load.region),
            Self::Region(adopt) => match RegionContents::decode(&adopt.contents) {
                Some(contents) => write!(f, "files of region {}, which moved here", contents.region()),
                None => write!(f, "files of move {}", adopt.id),
            },
        }
    }
}

/// How far a set of files is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagingProgress {
    /// All of them are here, verified and synced.
    pub is_staged: bool,
    pub bytes: u64,
}

/// Files that are here and verified, for the entry that names them.
pub enum StagedFiles {
    /// The entry needs none: it is refused, or took effect before.
    Unneeded,
    /// The directory of a load's files.
    Load(PathBuf),
    Region(Box<StagedRegion>),
}

/// The staged files of this server.
pub struct Staging {
    engine: Arc<Engine>,
    sets: Mutex<BTreeMap<FileSetId, Arc<Set>>>,
    /// The copies of regions that leave this server, which other groups fetch.
    offered: Mutex<BTreeMap<MoveId, Arc<RegionCopy>>>,
    /// The last entry of each group that took in a load whose files are here.
    last_marked: Mutex<BTreeMap<GroupId, u64>>,
    pace: Pace,
    network: OnceLock<Network>,
    stop: CancellationToken,
}

/// What is known once the server serves. Until then no files can be fetched.
struct Network {
    peers: Arc<Peers>,
    /// Weak: the host's state machines hold this.
    host: Weak<GroupHost>,
}

#[derive(Default)]
struct Set {
    holders: Holders,
    usage: Usage,
    slot: tokio::sync::Mutex<Slot>,
}

/// What is verified of a set. Held while its files change.
#[derive(Default)]
struct Slot {
    /// The files of the load are verified.
    is_verified: bool,
    /// A replica here has begun to apply the load, in this process.
    is_marked: bool,
    /// The last round of the move.
    round: Round,
}

#[derive(Default)]
struct Round {
    source: Source,
    contents: Bytes,
    staged: Option<StagedRegion>,
    /// At which sequence numbers the region was being read where it comes from, as of this round.
    views: Vec<u64>,
}

impl Slot {
    fn has(&self, set: FileSet<'_>) -> bool {
        match set {
            FileSet::Load(_) => self.is_verified,
            FileSet::Region(Adopt { source, contents, .. }) => {
                self.round.source == *source && self.round.contents == *contents && self.round.staged.is_some()
            }
        }
    }

    /// Whether a later round of the same move is here. A request of an earlier one that arrives late must not remove its files.
    fn is_newer(&self, set: FileSet<'_>) -> bool {
        let FileSet::Region(adopt) = set else { return false };
        let index = |encoded: &Bytes| RegionContents::decode(encoded).map(|contents| contents.point().index);
        self.round.source == adopt.source && index(&self.round.contents) > index(&adopt.contents)
    }
}

impl Staging {
    pub fn new(engine: Arc<Engine>, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            engine,
            sets: Mutex::default(),
            offered: Mutex::default(),
            last_marked: Mutex::default(),
            pace: Pace::new(ALL_BYTES_PER_SECOND),
            network: OnceLock::new(),
            stop,
        })
    }

    /// Lets it fetch files from now on.
    pub fn connect(&self, peers: Arc<Peers>, host: &Arc<GroupHost>) {
        let network = Network { peers, host: Arc::downgrade(host) };
        assert!(self.network.set(network).is_ok(), "a server connects its staging room once");
    }

    /// Fetches files from the first of `holders` that has them, for as long as `patience` lasts, and verifies them once all
    /// are here. Every call continues where the last one ended.
    pub async fn stage(
        &self,
        files: FileSet<'_>,
        holders: &[ServerId],
        patience: Duration,
    ) -> Result<StagingProgress, Error> {
        let sizes = files.sizes()?;
        let total: u64 = sizes.values().sum();
        let set = self.used(files.id());
        let mut slot = set.slot.lock().await;
        if slot.has(files) {
            return Ok(StagingProgress { is_staged: true, bytes: total });
        }
        if slot.is_newer(files) {
            return Ok(StagingProgress::default());
        }
        let dir = self.dir(files);
        let disk = fs::Disk::os();
        let transfer = Transfer { disk: &disk, dir: &dir, files: sizes, name: files.file_name(), pace: &self.pace };
        let read =
            |part: FilePart| set.holders.read(holders, part.length, move |server| self.fetch(server, files, part));
        let bytes = transfer.run(read, patience).await?;
        assert!(bytes <= total, "{bytes} bytes are here of {total} of the {files}");
        if bytes < total {
            return Ok(StagingProgress { is_staged: false, bytes });
        }
        if let Err(damage) = self.verify(files, &dir, &mut slot).await? {
            tracing::warn!(%files, error = %damage, "a fetched file is damaged; all are fetched again");
            set.holders.rotate();
            remove(dir).await;
            return Err(damage);
        }
        Ok(StagingProgress { is_staged: true, bytes: total })
    }

    /// Compares files with what was said of them. Those of a region become the engine's. The inner error: a file is damaged.
    async fn verify(&self, files: FileSet<'_>, dir: &Path, slot: &mut Slot) -> Result<Result<(), Error>, Error> {
        match files {
            FileSet::Load(load) => {
                for file in &load.files {
                    let found = checksum(dir.join(StoreFileBuilder::file_name(file.number))).await?;
                    if found != (file.bytes, file.crc) {
                        return Ok(Err(later(format!("file {} of the load arrived damaged", file.number))));
                    }
                }
                slot.is_verified = true;
            }
            FileSet::Region(Adopt { source, contents, .. }) => {
                // Another source has other numbers.
                let former = slot.round.staged.take().filter(|_| slot.round.source == *source);
                let staged = match self.engine.stage_region(decoded(contents)?, dir, former).await {
                    Ok(staged) => Some(staged),
                    Err(error @ terrane_engine::Error::Corruption { .. }) => return Ok(Err(engine_error(error))),
                    Err(error) => return Err(engine_error(error)),
                };
                slot.round = Round { source: *source, contents: contents.clone(), staged, views: Vec::new() };
            }
        }
        Ok(Ok(()))
    }

    /// Whether exactly these files are staged.
    pub async fn has(&self, files: FileSet<'_>) -> bool {
        self.used(files.id()).slot.lock().await.has(files)
    }

    /// Notes at which sequence numbers a region that comes in is being read where it comes from: as of when exactly these contents
    /// were written, or later.
    pub async fn note_views(&self, adopt: &Adopt, views: Vec<u64>) {
        let set = self.used(FileSetId::Move(adopt.id));
        let mut slot = set.slot.lock().await;
        if slot.has(FileSet::Region(adopt)) {
            slot.round.views = views;
        }
    }

    /// The files that a committed entry names, from wherever they are. Waits until they are here; `None` if the server stops
    /// before, or the wait is given up.
    pub async fn take(&self, wait: &Wait<'_>, files: FileSet<'_>) -> Option<StagedFiles> {
        let Wait { group, index, .. } = *wait;
        let mut is_late = false;
        loop {
            let holders = self.holders(group, files);
            match self.stage(files, &holders, TAKE_STEP).await {
                Ok(StagingProgress { is_staged: true, .. }) => match self.claim(Mark { group, index }, files).await {
                    Ok(Some(staged)) => return Some(staged),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%group, index, %error, "a load waits for the disk"),
                },
                Ok(StagingProgress { bytes, .. }) => wait.arrived(bytes),
                Err(error) => {
                    wait.not_found(format!("{files}: {error}"));
                    if !std::mem::replace(&mut is_late, true) {
                        tracing::warn!(%group, index, %error, "the {files} are not here; looking for them");
                    }
                }
            }
            if wait.ends_within(&self.stop, RETRY_PAUSE).await {
                return None;
            }
        }
    }

    /// Hands staged files to the entry that names them; `None` if they are gone again.
    async fn claim(&self, by: Mark, files: FileSet<'_>) -> Result<Option<StagedFiles>, Error> {
        let set = self.used(files.id());
        let mut slot = set.slot.lock().await;
        if !slot.has(files) {
            return Ok(None);
        }
        match files {
            FileSet::Load(load) => {
                slot.is_marked = true;
                self.mark(load.staging, by).await?;
                Ok(Some(StagedFiles::Load(self.dir(files))))
            }
            FileSet::Region(_) => {
                let views = std::mem::take(&mut slot.round.views);
                Ok(slot.round.staged.take().map(|mut staged| {
                    staged.set_views(views);
                    StagedFiles::Region(Box::new(staged))
                }))
            }
        }
    }

    /// Durable before the files of a load count: afterwards nothing would say which entry they belong to.
    async fn mark(&self, staging: StagingId, mark: Mark) -> Result<(), Error> {
        self.note_mark(mark);
        let root = self.engine.loading_root();
        let path = root.join(mark.name(staging));
        let marked = run_io(async move {
            if !fs::exists(&path).await? {
                fs::File::create_new(&path).await?.sync_all().await?;
            }
            // Also of a mark from before a crash, whose name may not be durable.
            fs::sync_dir(&root).await
        });
        marked.await.map_err(io_error)
    }

    fn note_mark(&self, mark: Mark) {
        let mut last_marked = self.last_marked.lock();
        let last = last_marked.entry(mark.group).or_default();
        *last = mark.index.max(*last);
    }

    /// The last entry of a group that took in a load whose files are here; 0: there is none, or none was looked for yet.
    pub fn last_marked(&self, group: GroupId) -> u64 {
        self.last_marked.lock().get(&group).copied().unwrap_or(0)
    }

    /// The directory for a load that is built here.
    pub async fn create(&self, staging: StagingId) -> Result<PathBuf, Error> {
        self.touch(staging);
        let dir = self.root(FileSetId::Load(staging));
        let created = dir.clone();
        run_io(async move { fs::create_dir_durable(&created).await }).await.map_err(io_error)?;
        Ok(dir)
    }

    /// Something was heard of a load.
    pub fn touch(&self, staging: StagingId) {
        self.used(FileSetId::Load(staging));
    }

    /// Makes the names of files durable that were built here.
    pub async fn sync(&self, staging: StagingId) -> Result<(), Error> {
        let dir = self.root(FileSetId::Load(staging));
        run_io(async move { fs::sync_dir(&dir).await }).await.map_err(io_error)?;
        self.set(FileSetId::Load(staging)).slot.lock().await.is_verified = true;
        Ok(())
    }

    /// Removes the files of a load that is not to be applied, or that are to be fetched again.
    pub async fn discard(&self, staging: StagingId) {
        self.discard_if(staging, |_| true).await;
    }

    /// Removes the files of a load that was refused, unless an earlier try of it was applied here.
    pub async fn abandon(&self, staging: StagingId) {
        self.discard_if(staging, |slot| !slot.is_marked).await;
    }

    async fn discard_if(&self, staging: StagingId, goes: impl Fn(&Slot) -> bool) {
        let set = self.set(FileSetId::Load(staging));
        let mut slot = set.slot.lock().await;
        if goes(&slot) {
            slot.is_verified = false;
            remove(self.root(FileSetId::Load(staging))).await;
        }
    }

    /// Offers a copy of a region that leaves this server, in place of the last one; `None`: it is over.
    pub fn offer(&self, id: MoveId, copy: Option<RegionCopy>) {
        let mut offered = self.offered.lock();
        match copy {
            Some(copy) => drop(offered.insert(id, Arc::new(copy))),
            None => drop(offered.remove(&id)),
        }
    }

    /// The copy that was offered last.
    pub fn offered(&self, id: MoveId) -> Option<Arc<RegionCopy>> {
        self.offered.lock().get(&id).cloned()
    }

    /// Reads a part of a file of a load.
    pub async fn read_loaded(&self, staging: StagingId, part: FilePart) -> Result<Bytes, Error> {
        self.touch(staging);
        let dir = self.root(FileSetId::Load(staging));
        read_part(dir.join(StoreFileBuilder::file_name(part.file)), part).await
    }

    /// Reads a part of a file of a move, of a region that leaves or one that came in.
    pub async fn read_moved(&self, id: MoveId, source: Source, part: FilePart) -> Result<Bytes, Error> {
        let is_own = self.network.get().is_some_and(|network| network.peers.source() == source);
        // Held while it is read: its files stay while it lives.
        let copy = self.offered(id).filter(|_| is_own);
        match copy.as_ref().and_then(|copy| copy.path(part.file)) {
            Some(path) => read_part(path.clone(), part).await,
            None => read_part(self.region_dir(id, source).join(Engine::fetched_name(part.file)), part).await,
        }
    }

    /// Reads a part of a file at another server, or of a region that leaves this one.
    async fn fetch(&self, server: ServerId, files: FileSet<'_>, part: FilePart) -> Result<Bytes, Error> {
        let Some(network) = self.network.get() else { return Err(later("this server does not serve yet".to_owned())) };
        let (peers, FilePart { file, offset, length }) = (&network.peers, part);
        let hello = peers.hello(server);
        match files {
            FileSet::Region(Adopt { id, source, .. }) if server == peers.server() => {
                self.read_moved(*id, *source, part).await
            }
            FileSet::Region(Adopt { id, source, .. }) => {
                let (r#move, source, source_boot) = (id.0, source.server.0, source.boot);
                let request = v1::ReadMovedFileRequest { hello, r#move, file, offset, length, source, source_boot };
                let mut client = peers.client(server)?;
                answer(client.read_moved_file(request), CALL_TIMEOUT).await.map(|reply| reply.data)
            }
            FileSet::Load(load) => {
                let staging = Bytes::copy_from_slice(&load.staging.0);
                let request = v1::ReadLoadedFileRequest { hello, staging, file, offset, length };
                let mut client = peers.client(server)?;
                answer(client.read_loaded_file(request), CALL_TIMEOUT).await.map(|reply| reply.data)
            }
        }
    }

    /// The other members of a group, and at last the server that had the files first.
    fn holders(&self, group: GroupId, files: FileSet<'_>) -> Vec<ServerId> {
        let Some(network) = self.network.get() else { return Vec::new() };
        let (own, source) = (network.peers.server(), files.source());
        let group = network.host.upgrade().and_then(|host| host.group(group));
        let members: BTreeSet<ServerId> = group.iter().flat_map(|group| group.status().members.into_values()).collect();
        // A region may come from another group of this server. The files of a load that are gone here are gone.
        let source = (source != own || matches!(files, FileSet::Region(_))).then_some(source);
        members.into_iter().filter(|server| *server != own && Some(*server) != source).chain(source).collect()
    }

    /// Removes the files that no member needs any more, by the logs of the groups here. `moved` says what these know of a move.
    pub async fn sweep(&self, logs: &Logs, moved: impl Fn(MoveId) -> Claim) {
        let found = self.found(moved).await;
        // Those whose files are gone already.
        self.sets
            .lock()
            .retain(|id, set| found.contains_key(id) || Arc::strong_count(set) > 1 || set.usage.is_recent());
        for (id, claim) in found {
            let set = self.set(id);
            if claim.needs_files(&set.usage, logs) {
                continue;
            }
            let Ok(mut slot) = set.slot.try_lock() else { continue };
            if let Claim::Taken(Mark { group, index }) = claim {
                let log = logs.get(&group);
                let may_go = log.is_none_or(|log| log.first > index && log.applied >= index);
                assert!(
                    may_go,
                    "the files of {id:?} go although a member may need them for entry {index} of group {group}: {log:?}"
                );
            }
            *slot = Slot::default();
            // The mark goes last: a directory without one would stay for a while for nothing.
            remove(self.root(id)).await;
            if let (FileSetId::Load(staging), Claim::Taken(mark)) = (id, claim) {
                let path = self.engine.loading_root().join(mark.name(staging));
                if let Err(error) = run_io(async move { fs::remove_file(&path).await }).await {
                    tracing::warn!(%error, "the mark of a load was not removed; trying again later");
                }
            }
        }
    }

    /// The sets that have files or a mark here, and what is known of each.
    async fn found(&self, moved: impl Fn(MoveId) -> Claim) -> BTreeMap<FileSetId, Claim> {
        let (loading, arriving) = (self.engine.loading_root(), self.engine.arriving_root());
        let (loading, arriving) = run_io(async move { (fs::list(&loading).await, fs::list(&arriving).await) }).await;
        let mut found = BTreeMap::new();
        for name in loading.unwrap_or_default() {
            if let Ok(staging) = name.parse() {
                found.entry(FileSetId::Load(staging)).or_insert(Claim::Unknown);
            } else if let Some((staging, mark)) = Mark::parse(&name) {
                self.note_mark(mark);
                found.insert(FileSetId::Load(staging), Claim::Taken(mark));
            }
        }
        for id in arriving.unwrap_or_default().iter().filter_map(|name| name.parse().ok().map(MoveId)) {
            found.insert(FileSetId::Move(id), moved(id));
        }
        found
    }

    fn set(&self, id: FileSetId) -> Arc<Set> {
        self.sets.lock().entry(id).or_default().clone()
    }

    fn used(&self, id: FileSetId) -> Arc<Set> {
        let set = self.set(id);
        set.usage.note();
        set
    }

    /// Everything of a set.
    fn root(&self, id: FileSetId) -> PathBuf {
        match id {
            FileSetId::Load(staging) => self.engine.loading_root().join(staging.to_string()),
            FileSetId::Move(id) => self.engine.arriving_dir(id),
        }
    }

    fn dir(&self, files: FileSet<'_>) -> PathBuf {
        match files {
            FileSet::Load(load) => self.root(FileSetId::Load(load.staging)),
            FileSet::Region(adopt) => self.region_dir(adopt.id, adopt.source),
        }
    }

    /// The files of a move have the numbers of their source.
    fn region_dir(&self, id: MoveId, source: Source) -> PathBuf {
        self.root(FileSetId::Move(id)).join(source.to_string())
    }
}

fn decoded(encoded: &Bytes) -> Result<RegionContents, Error> {
    RegionContents::decode(encoded)
        .ok_or_else(|| Error::Invalid(Invalid::new("this build cannot read what is said of the region")))
}
