//! Regions that come in: fetching their files, and keeping them until no member of the group needs them any more.
//!
//! Each source of a move has a directory, whose files have its numbers ([`Fetching`] fills it). Verified files are linked into the
//! engine's directory at once; the links of the former round are used again, so only what is new is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use terrane_engine::{Engine, RegionContents, StagedRegion};
use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_types::{Error, GroupId, Invalid, MoveId, ServerId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::peers::Peers;
use crate::bringing::Awaited;
use crate::edge::error_mapping::engine_error;
use crate::fetching::{Fetching, Holders, RETRY_PAUSE, TAKE_STEP, later, read_part};
use crate::group::proposal::GroupHost;
use crate::operation::{Adopt, Source};

/// Files of a move of which nothing is heard for so long are removed, unless the region was adopted.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// How far the files of a move are here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staging {
    /// All of them are verified and in the engine's directory.
    pub staged: bool,
    pub bytes: u64,
}

/// The moves to groups of this server.
pub struct Arrivals {
    engine: Arc<Engine>,
    moves: Mutex<BTreeMap<MoveId, Arc<Arrival>>>,
    network: OnceLock<Network>,
    stop: CancellationToken,
}

/// What is known once the server serves. Until then no files can be fetched.
struct Network {
    peers: Arc<Peers>,
    /// Weak: the host's state machines hold this.
    host: Weak<GroupHost>,
    /// What is sent from this server itself.
    local: Weak<dyn LocalFiles>,
}

/// The files of regions that leave this server, for its own groups.
pub trait LocalFiles: Send + Sync {
    fn read_local(
        &self,
        of: (MoveId, Source),
        file: u64,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'_, Result<Bytes, Error>>;
}

struct Arrival {
    holders: Holders,
    slot: tokio::sync::Mutex<Slot>,
    touched: Mutex<Instant>,
}

impl Default for Arrival {
    fn default() -> Self {
        Self { holders: Holders::default(), slot: tokio::sync::Mutex::default(), touched: Mutex::new(Instant::now()) }
    }
}

/// Held while files are fetched: one round of a move at a time.
#[derive(Default)]
struct Slot {
    source: Source,
    contents: Bytes,
    staged: Option<StagedRegion>,
    /// At which sequence numbers the region was being read where it comes from, as of the last round.
    views: Vec<u64>,
}

impl Slot {
    fn has(&self, source: Source, contents: &Bytes) -> bool {
        self.source == source && self.contents == *contents && self.staged.is_some()
    }
}

impl Arrivals {
    pub fn new(engine: Arc<Engine>, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { engine, moves: Mutex::default(), network: OnceLock::new(), stop })
    }

    /// Lets it fetch files from now on.
    pub fn connect<L: LocalFiles + 'static>(&self, peers: Arc<Peers>, host: &Arc<GroupHost>, local: &Arc<L>) {
        let local: Weak<L> = Arc::downgrade(local);
        let network = Network { peers, host: Arc::downgrade(host), local };
        assert!(self.network.set(network).is_ok(), "a server connects its arrivals once");
    }

    /// Fetches the files of a region from the first of `holders` that has them, for as long as `patience` lasts, and stages
    /// them once all are here. Every call goes on where the last one ended.
    pub async fn stage(
        &self,
        (id, source): (MoveId, Source),
        encoded: &Bytes,
        holders: &[ServerId],
        patience: Duration,
    ) -> Result<Staging, Error> {
        let contents = RegionContents::decode(encoded)
            .ok_or_else(|| Error::Invalid(Invalid::new("this build cannot read what is said of the region")))?;
        let arrival = self.arrival(id);
        let mut slot = arrival.slot.lock().await;
        let total = contents.files().iter().map(|file| file.size).sum();
        if slot.has(source, encoded) {
            return Ok(Staging { staged: true, bytes: total });
        }
        // A request of an earlier round that arrives late must not remove the files of this one.
        let is_outdated = slot.source == source
            && RegionContents::decode(&slot.contents).is_some_and(|newer| newer.point().index > contents.point().index);
        if is_outdated {
            return Ok(Staging::default());
        }
        let dir = self.dir(id, source);
        let files = contents.files().into_iter().map(|file| (file.id, file.size)).collect();
        let fetching = Fetching { dir: &dir, files, name: Engine::fetched_name };
        let read = |file, offset, length| {
            let read = move |server| self.read_from(server, (id, source), file, offset, length);
            arrival.holders.read(holders, length, read)
        };
        let bytes = fetching.run(read, patience).await?;
        if bytes < total {
            return Ok(Staging { staged: false, bytes });
        }
        // Another source has other numbers.
        let former = slot.staged.take().filter(|_| slot.source == source);
        match self.engine.stage_region(contents, &dir, former).await {
            Ok(staged) => *slot = Slot { source, contents: encoded.clone(), staged: Some(staged), views: Vec::new() },
            Err(error) => {
                if matches!(error, terrane_engine::Error::Corruption { .. }) {
                    tracing::warn!(r#move = %id, %error, "a fetched file is damaged; all are fetched again");
                    arrival.holders.turn();
                    remove(&dir).await;
                }
                return Err(engine_error(error));
            }
        }
        Ok(Staging { staged: true, bytes: total })
    }

    /// Notes at which sequence numbers a region that comes in is being read where it comes from: as of when exactly these contents
    /// were written, or later.
    pub async fn note_views(&self, id: MoveId, source: Source, encoded: &Bytes, views: Vec<u64>) {
        let arrival = self.arrival(id);
        let mut slot = arrival.slot.lock().await;
        if slot.has(source, encoded) {
            slot.views = views;
        }
    }

    /// Whether exactly these contents are staged.
    pub async fn has(&self, id: MoveId, source: Source, encoded: &Bytes) -> bool {
        self.arrival(id).slot.lock().await.has(source, encoded)
    }

    fn dir(&self, id: MoveId, source: Source) -> PathBuf {
        self.engine.arriving_dir(id).join(source.to_string())
    }

    /// The files of a region that its group has adopted, from wherever they are. Waits until they are here; `None` if the
    /// server stops before, or the wait is given up.
    pub async fn take(&self, awaited: &Awaited<'_>, adopt: &Adopt, contents: &RegionContents) -> Option<StagedRegion> {
        let group = awaited.group;
        let mut is_late = false;
        loop {
            let holders = self.holders(group, adopt.source.server);
            let of = (adopt.id, adopt.source);
            match self.stage(of, &adopt.contents, &holders, TAKE_STEP).await {
                Ok(Staging { staged: true, .. }) => {
                    let arrival = self.arrival(adopt.id);
                    let mut slot = arrival.slot.lock().await;
                    if slot.has(adopt.source, &adopt.contents) {
                        let views = std::mem::take(&mut slot.views);
                        return slot.staged.take().map(|mut staged| {
                            staged.set_views(views);
                            staged
                        });
                    }
                }
                Ok(Staging { bytes, .. }) => awaited.arrived(bytes),
                Err(error) => {
                    let region = contents.region();
                    awaited.not_found(format!("files of region {region}, which moved here: {error}"));
                    if !std::mem::replace(&mut is_late, true) {
                        tracing::warn!(%group, %region, %error, "the files of an adopted region are not here; looking for them");
                    }
                }
            }
            if awaited.ends_within(&self.stop, RETRY_PAUSE).await {
                return None;
            }
        }
    }

    /// Reads a part of a file that was fetched here.
    pub async fn read(
        &self,
        (id, source): (MoveId, Source),
        file: u64,
        offset: u64,
        length: usize,
    ) -> Result<Bytes, Error> {
        let path = self.dir(id, source).join(Engine::fetched_name(file));
        read_part(path, offset, length).await
    }

    /// Removes the files of moves that no member needs any more. `needs` says whether a group here may need them: `None` if no
    /// group knows of the move.
    pub async fn sweep(&self, needs: impl Fn(MoveId) -> Option<bool>) {
        let all = self.engine.arriving_root();
        let listed = run_io({
            let all = all.clone();
            async move { fs::list(&all).await }
        });
        for name in listed.await.unwrap_or_default() {
            let Some(id) = name.parse().ok().map(MoveId) else { continue };
            let arrival = self.moves.lock().entry(id).or_default().clone();
            let idle_max = terrane_env::limit!("seconds that unused files of moves stay", IDLE_MAX.as_secs(), 20..=30);
            let is_idle = arrival.touched.lock().elapsed() >= Duration::from_secs(idle_max);
            if needs(id).unwrap_or(!is_idle) {
                continue;
            }
            if let Ok(mut slot) = arrival.slot.try_lock() {
                *slot = Slot::default();
                remove(&all.join(&name)).await;
                self.moves.lock().remove(&id);
            }
        }
    }

    fn arrival(&self, id: MoveId) -> Arc<Arrival> {
        let arrival = self.moves.lock().entry(id).or_default().clone();
        *arrival.touched.lock() = Instant::now();
        arrival
    }

    /// The other members of a group, and the server that a region comes from.
    fn holders(&self, group: GroupId, source: ServerId) -> Vec<ServerId> {
        let Some(network) = self.network.get() else { return Vec::new() };
        let group = network.host.upgrade().and_then(|host| host.group(group));
        let members: BTreeSet<ServerId> = group.iter().flat_map(|group| group.status().members.into_values()).collect();
        let others = members.into_iter().chain([source]);
        others.filter(|server| *server != network.peers.server() || *server == source).collect()
    }

    async fn read_from(
        &self,
        server: ServerId,
        of: (MoveId, Source),
        file: u64,
        offset: u64,
        length: u32,
    ) -> Result<Bytes, Error> {
        let Some(network) = self.network.get() else { return Err(later("this server does not serve yet".to_owned())) };
        match network.local.upgrade().filter(|_| server == network.peers.server()) {
            Some(local) => local.read_local(of, file, offset, length as usize).await,
            None => network.peers.read(server, of, file, offset, length).await,
        }
    }
}

async fn remove(dir: &Path) {
    let dir = dir.to_path_buf();
    let removed = run_io(async move { fs::remove_dir_all(&dir).await }).await;
    if let Err(error) = removed {
        tracing::warn!(%error, "the files of a move that is over were not removed; trying again later");
    }
}
