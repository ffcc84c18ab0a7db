//! A cluster of hosts, and a state machine that keeps a list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use terrane_env::time::WallClock;
use terrane_env::{fs, net};
use terrane_raft::{
    AppliedEntry, BoxFuture, CopiedFile, Durable, Factory, Group, GroupHost, GroupSpec, HostConfig, LogConfig,
    MembersError, Packing, Prepared, Progress, ProposeError, StagedCopy, StateCopy, StateMachine,
};
use terrane_types::versions::FEATURE_LEVEL;
use terrane_types::{ClusterId, GroupId, ReplicaId, ServerId};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A group whose state machine keeps a list, and the host of such groups.
pub type ListGroup = Group<Vec<u8>, Bytes>;
type Host = GroupHost<Vec<u8>, Bytes>;

pub const GROUP: GroupId = GroupId(1);
pub const CLUSTER: ClusterId = ClusterId([5; 16]);
/// Long enough for a starved machine; tests end when their condition holds.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn replica(group: GroupId, server: u64) -> ReplicaId {
    ReplicaId(group.0 * 100 + server)
}

pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The list of one group on one server, with the index of each item. Everything up to `durable` counts as on disk.
#[derive(Default)]
struct List {
    items: Vec<(u64, Vec<u8>)>,
    /// Index of the first entry that is not applied.
    next: u64,
}

/// One list per server and group.
type Lists = BTreeMap<(u64, GroupId), Arc<Mutex<List>>>;

/// What survives a restart of a host.
#[derive(Default)]
struct Disk {
    lists: Mutex<Lists>,
    /// Whether lists can be copied from member to member, and where copies arrive.
    copies: AtomicBool,
    incoming: Mutex<PathBuf>,
    /// Files of copies that were read to be sent.
    files_sent: AtomicU64,
    /// The durable point may not pass this.
    pinned: AtomicU64,
    relieved: AtomicU64,
    /// The servers that lack what operations about files need.
    lacking: Mutex<BTreeSet<u64>>,
    /// What is wrong with the logs of replicas.
    damages: Mutex<BTreeMap<(u64, GroupId), String>>,
}

struct Keeper {
    server: u64,
    group: GroupId,
    list: Arc<Mutex<List>>,
    disk: Arc<Disk>,
    /// Operations whose data has been read.
    read: Arc<Mutex<BTreeSet<Vec<u8>>>>,
    /// The entry that waits for files.
    lacks: Mutex<Option<u64>>,
}

impl StateMachine for Keeper {
    type Proposal = Vec<u8>;
    type Answer = Bytes;

    /// Some operations wait, like ones that are evaluated; their first word says for what.
    fn prepare(&self, packing: &Packing, operation: &Vec<u8>, entry: &mut Vec<u8>) -> Prepared<Bytes> {
        entry.extend_from_slice(operation);
        if *operation == b"refuse" {
            return Prepared::Refused(Bytes::from_static(b"refused"));
        }
        if (operation.starts_with(b"when landed") || operation.starts_with(b"alone")) && !packing.alone {
            return Prepared::WhenLanded;
        }
        if operation.starts_with(b"read") && !self.read.lock().unwrap().remove(operation) {
            let (read, operation) = (self.read.clone(), operation.to_vec());
            return Prepared::NeedsDisk(Box::pin(async move {
                tokio::task::yield_now().await;
                read.lock().unwrap().insert(operation);
            }));
        }
        if *operation == b"never"
            || (operation.starts_with(b"later") && self.read.lock().unwrap().insert(operation.to_vec()))
        {
            return Prepared::Later;
        }
        if operation.starts_with(b"alone") { Prepared::PackedAlone } else { Prepared::Packed }
    }

    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<Bytes>>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for entry in entries {
                while self.lacks_files_of(entry) {
                    *self.lacks.lock().unwrap() = Some(entry.index);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                *self.lacks.lock().unwrap() = None;
                answers.push(self.list.lock().unwrap().apply(entry));
            }
            answers
        })
    }

    fn progress(&self) -> Progress {
        let lacks = self.lacks.lock().unwrap().map(|entry| (entry, "its files".to_owned()));
        Progress { applied: self.list.lock().unwrap().next, steps: 0, waits: lacks.is_some(), lacks }
    }

    fn note_damage(&self, what: &str) {
        self.disk.damages.lock().unwrap().insert((self.server, self.group), what.to_owned());
    }

    fn damage(&self) -> Option<String> {
        self.disk.damages.lock().unwrap().get(&(self.server, self.group)).cloned()
    }

    fn durable(&self) -> Durable {
        let pinned = self.disk.pinned.load(Ordering::SeqCst);
        let applied = self.list.lock().unwrap().next.saturating_sub(1);
        let held_by = (pinned < applied).then(|| "the pinned list".to_owned());
        Durable { index: applied.min(pinned), held_by }
    }

    fn relieve(&self, _: u64) {
        self.disk.relieved.fetch_add(1, Ordering::SeqCst);
    }

    fn can_be_copied(&self) -> bool {
        self.disk.copies.load(Ordering::SeqCst)
    }

    fn copy(&self) -> BoxFuture<'_, Result<Arc<dyn StateCopy>, String>> {
        let items = self.list.lock().unwrap().items.clone();
        Box::pin(async move { Ok(Arc::new(ListCopy { items, disk: self.disk.clone() }) as Arc<dyn StateCopy>) })
    }

    fn incoming_dir(&self) -> Option<PathBuf> {
        Some(self.disk.incoming_dir(self.server, self.group))
    }

    fn incoming(&self, _: u64) -> BoxFuture<'_, Result<PathBuf, String>> {
        let dir = self.incoming_dir();
        Box::pin(async move { dir.ok_or_else(|| "there is no directory".to_owned()) })
    }

    fn stage<'a>(&'a self, dir: &'a Path, _index: u64) -> BoxFuture<'a, Result<Box<dyn StagedCopy>, String>> {
        Box::pin(async move {
            let mut items = Vec::new();
            for name in fs::list(dir).await.unwrap() {
                let bytes = fs::read(&dir.join(name)).await.unwrap();
                items.extend(items_of(&bytes).ok_or("a file cannot be read")?);
            }
            items.sort();
            Ok(Box::new(StagedList { items, list: self.list.clone() }) as Box<dyn StagedCopy>)
        })
    }
}

impl Keeper {
    fn lacks_files_of(&self, entry: &AppliedEntry) -> bool {
        let needs = entry.operations.iter().any(|operation| operation.starts_with(b"files"));
        let is_covered = entry.index < self.list.lock().unwrap().next;
        needs && !is_covered && self.disk.lacking.lock().unwrap().contains(&self.server)
    }
}

/// Items in a file of a copy of a list; the last ones are in file 0, which describes the copy.
const ITEMS_PER_FILE: usize = 8;

struct ListCopy {
    items: Vec<(u64, Vec<u8>)>,
    disk: Arc<Disk>,
}

impl ListCopy {
    fn file(&self, id: u64) -> Vec<u8> {
        let whole = self.items.len() / ITEMS_PER_FILE;
        let chunk = if id == 0 { whole } else { usize::try_from(id).unwrap() - 1 };
        let items = self.items.iter().skip(chunk * ITEMS_PER_FILE).take(ITEMS_PER_FILE);
        items.flat_map(|(index, item)| [&index.to_le_bytes()[..], &item.len().to_le_bytes(), item].concat()).collect()
    }
}

impl StateCopy for ListCopy {
    fn files(&self) -> Vec<CopiedFile> {
        let whole = (self.items.len() / ITEMS_PER_FILE) as u64;
        (0..=whole).map(|id| CopiedFile { id, size: self.file(id).len() as u64 }).collect()
    }

    fn read(&self, id: u64, offset: u64, length: usize) -> BoxFuture<'_, std::io::Result<Bytes>> {
        let (file, offset) = (self.file(id), usize::try_from(offset).unwrap());
        self.disk.files_sent.fetch_add(u64::from(offset == 0), Ordering::SeqCst);
        Box::pin(async move { Ok(Bytes::copy_from_slice(&file[offset..offset + length])) })
    }
}

fn items_of(mut bytes: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut items = Vec::new();
    while let Some((index, rest)) = bytes.split_first_chunk::<8>() {
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (item, rest) = rest.split_at_checked(usize::from_le_bytes(*length))?;
        items.push((u64::from_le_bytes(*index), item.to_vec()));
        bytes = rest;
    }
    Some(items)
}

struct StagedList {
    items: Vec<(u64, Vec<u8>)>,
    list: Arc<Mutex<List>>,
}

impl StagedCopy for StagedList {
    fn install(self: Box<Self>, index: u64) -> BoxFuture<'static, std::io::Result<()>> {
        Box::pin(async move {
            let mut list = self.list.lock().unwrap();
            // The copy may be newer than the entry it was asked for: what it has is not applied again.
            list.next = self.items.last().map_or(0, |(index, _)| index + 1).max(index + 1);
            list.items = self.items;
            Ok(())
        })
    }
}

impl List {
    fn apply(&mut self, entry: &AppliedEntry) -> Vec<Bytes> {
        assert!(entry.index <= self.next, "entry {} where {} was due", entry.index, self.next);
        if entry.index < self.next {
            return Vec::new();
        }
        self.next = entry.index + 1;
        entry.operations.iter().map(|operation| self.push(entry.index, operation)).collect()
    }

    fn push(&mut self, index: u64, operation: &Bytes) -> Bytes {
        self.items.push((index, operation.to_vec()));
        Bytes::from(self.items.len().to_string())
    }
}

struct Keepers {
    server: u64,
    disk: Arc<Disk>,
}

impl Factory for Keepers {
    type Machine = Keeper;

    fn open(&self, spec: &GroupSpec) -> Arc<Keeper> {
        let mut lists = self.disk.lists.lock().unwrap();
        let list = lists.entry((self.server, spec.group)).or_default().clone();
        {
            // Everything that was not durable is gone, as after a crash.
            let mut list = list.lock().unwrap();
            let pinned = self.disk.pinned.load(Ordering::SeqCst);
            list.next = list.next.min(pinned.saturating_add(1));
            let next = list.next;
            list.items.retain(|(index, _)| *index < next);
        }
        let (server, group) = (self.server, spec.group);
        Arc::new(Keeper { server, group, list, disk: self.disk.clone(), read: Arc::default(), lacks: Mutex::default() })
    }
}

struct Running {
    host: Arc<Host>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// The disk of a server at some time.
pub struct Image {
    directory: tempfile::TempDir,
    lists: BTreeMap<GroupId, List>,
}

#[allow(clippy::disallowed_methods, reason = "an operator copies them from outside")]
fn copy_files(from: &Path, to: &Path) {
    for path in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

impl Disk {
    fn incoming_dir(&self, server: u64, group: GroupId) -> PathBuf {
        self.incoming.lock().unwrap().join(format!("incoming-{server}-{group}"))
    }
}

pub struct Cluster {
    directory: tempfile::TempDir,
    log: LogConfig,
    /// How long a replica may apply nothing, if not as by default.
    pub stuck_after: Option<Duration>,
    disk: Arc<Disk>,
    addresses: BTreeMap<u64, String>,
    running: BTreeMap<u64, Running>,
    walls: BTreeMap<u64, WallClock>,
    boots: u64,
    servers: u64,
}

impl Cluster {
    pub async fn start(servers: u64) -> Cluster {
        Cluster::start_with(servers, LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() }).await
    }

    pub async fn start_with(servers: u64, log: LogConfig) -> Cluster {
        let disk = Arc::new(Disk::default());
        disk.pinned.store(u64::MAX, Ordering::SeqCst);
        let directory = tempfile::tempdir().unwrap();
        *disk.incoming.lock().unwrap() = directory.path().to_owned();
        let mut cluster = Cluster {
            directory,
            log,
            stuck_after: None,
            disk,
            addresses: BTreeMap::new(),
            running: BTreeMap::new(),
            walls: BTreeMap::new(),
            boots: 0,
            servers,
        };
        for server in 1..=servers {
            cluster.run(server).await;
        }
        cluster
    }

    /// With [`GROUP`] on all of its servers.
    pub async fn with_group(servers: u64) -> Cluster {
        let mut cluster = Cluster::start(servers).await;
        cluster.create(GROUP).await;
        cluster
    }

    pub async fn run(&mut self, server: u64) {
        self.run_as(server, CLUSTER).await;
    }

    pub async fn run_as(&mut self, server: u64, id: ClusterId) {
        self.boots += 1;
        let mut config =
            HostConfig::new(self.directory.path().join(server.to_string()), id, ServerId(server), self.boots);
        config.log = self.log.clone();
        config.wall = self.wall(server);
        config.stuck_after = self.stuck_after.unwrap_or(config.stuck_after);
        let factory = Arc::new(Keepers { server, disk: self.disk.clone() });
        let host = GroupHost::open(config, factory).await.unwrap();
        host.note_level(FEATURE_LEVEL);
        let listener = net::listen("127.0.0.1:0").await.unwrap();
        self.addresses.insert(server, listener.local_addr().unwrap().to_string());
        let (stop, stopped) = oneshot::channel::<()>();
        let service = host.peer_service();
        let serving = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            let intake = net::Intake::new(net::IntakeLimits::default());
            let router = net::server(&intake).add_service(service);
            router.serve_with_incoming_shutdown(listener.incoming(&intake), stopped).await.unwrap();
        });
        self.running.insert(server, Running { host, stop, serving });
        let addresses: Vec<_> =
            self.addresses.iter().map(|(server, address)| (ServerId(*server), address.clone())).collect();
        for running in self.running.values() {
            running.host.set_addresses(addresses.clone());
        }
    }

    /// Whether a server lacks what operations about files need.
    pub fn set_lacking(&self, server: u64, lacks: bool) {
        let mut lacking = self.disk.lacking.lock().unwrap();
        let _ = if lacks { lacking.insert(server) } else { lacking.remove(&server) };
    }

    /// What is wrong with the log of a replica.
    pub fn damage(&self, server: u64, group: GroupId) -> Option<String> {
        self.disk.damages.lock().unwrap().get(&(server, group)).cloned()
    }

    /// Changes bytes all over the segments of a running server.
    #[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "damage comes from outside")]
    pub fn damage_log(&self, server: u64) {
        let directory = self.directory.path().join(server.to_string());
        for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            for offset in (200..file.metadata().unwrap().len()).step_by(300) {
                std::os::unix::fs::FileExt::write_all_at(&file, b"damaged!", offset).unwrap();
            }
        }
    }

    /// A server's wall clock, which it keeps over restarts.
    pub fn wall(&mut self, server: u64) -> WallClock {
        self.walls.entry(server).or_default().clone()
    }

    pub async fn stop(&mut self, server: u64) {
        let running = self.running.remove(&server).unwrap();
        running.host.shutdown().await;
        running.stop.send(()).ok();
        running.serving.await.unwrap();
    }

    /// The disk of a stopped server as it is now.
    pub fn image(&self, server: u64) -> Image {
        let (directory, lists) = (tempfile::tempdir().unwrap(), self.disk.lists.lock().unwrap());
        copy_files(&self.directory.path().join(server.to_string()), directory.path());
        let lists = lists.iter().filter(|((of, _), _)| *of == server).map(|((_, group), list)| {
            let list = list.lock().unwrap();
            (*group, List { items: list.items.clone(), next: list.next })
        });
        Image { directory, lists: lists.collect() }
    }

    /// Restores the disk of a stopped server.
    #[allow(clippy::disallowed_methods, reason = "an operator restores it from outside")]
    pub fn restore(&self, server: u64, image: Image) {
        let directory = self.directory.path().join(server.to_string());
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::create_dir(&directory).unwrap();
        copy_files(image.directory.path(), &directory);
        let mut lists = self.disk.lists.lock().unwrap();
        lists.retain(|(of, _), _| *of != server);
        lists.extend(image.lists.into_iter().map(|(group, list)| ((server, group), Arc::new(Mutex::new(list)))));
    }

    pub async fn stop_all(&mut self) {
        for server in self.running.keys().copied().collect::<Vec<_>>() {
            self.stop(server).await;
        }
    }

    pub async fn restart_all(&mut self) {
        self.stop_all().await;
        for server in 1..=self.servers {
            self.run(server).await;
        }
    }

    pub async fn create(&mut self, group: GroupId) {
        let servers: Vec<u64> = (1..=self.servers).collect();
        self.create_on(group, &servers).await;
    }

    /// Creates a group with members on some of the servers.
    pub async fn create_on(&mut self, group: GroupId, servers: &[u64]) {
        let members: BTreeMap<_, _> =
            servers.iter().map(|server| (replica(group, *server), ServerId(*server))).collect();
        for server in servers.iter().filter(|server| self.running.contains_key(server)) {
            let spec = GroupSpec { group, replica: replica(group, *server), members: members.clone() };
            self.running[server].host.create_group(spec, *server == servers[0]).await.unwrap();
        }
    }

    pub fn host(&self, server: u64) -> Arc<Host> {
        self.running[&server].host.clone()
    }

    pub fn group(&self, server: u64, group: GroupId) -> ListGroup {
        self.host(server).group(group).unwrap()
    }

    /// The server that leads `group`.
    pub async fn leader(&self, group: GroupId) -> u64 {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            for (&server, running) in &self.running {
                if running.host.group(group).is_some_and(|group| group.status().is_leader) {
                    return server;
                }
            }
            assert!(tokio::time::Instant::now() < deadline, "no leader in time");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// A server of the first three that does not lead [`GROUP`].
    pub async fn follower(&self) -> u64 {
        let leader = self.leader(GROUP).await;
        (1..=3).find(|server| *server != leader).unwrap()
    }

    /// Orders a leader to hand over to a server until it accepts the order: one whose member has not answered for a moment, as
    /// on a busy machine, refuses.
    pub async fn order_handover(&self, group: GroupId, from: u64, to: u64) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while let Err(refused) = self.group(from, group).transfer_leader(replica(group, to)).await {
            assert!(matches!(refused, MembersError::Later { .. }), "{refused}");
            assert!(tokio::time::Instant::now() < deadline, "{refused}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Orders the leader to hand over to a server, until that one leads.
    pub async fn hand_over(&self, group: GroupId, to: u64) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.group(to, group).status().is_leader {
            assert!(tokio::time::Instant::now() < deadline, "server {to} does not take over");
            let leader = self.leader(group).await;
            self.group(leader, group).transfer_leader(replica(group, to)).await.ok();
            self.group(to, group).wait_for(|status| status.is_leader, Duration::from_millis(500)).await;
        }
    }

    /// Proposes at the current leader until the proposal is acknowledged.
    pub async fn propose(&self, group: GroupId, operation: &[u8]) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let leader = self.leader(group).await;
            match self.group(leader, group).propose(operation.to_vec()).await {
                Ok(_) => return,
                Err(ProposeError::Uncertain) => panic!("no outcome should be uncertain here"),
                Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Proposes to [`GROUP`] what all members are to have.
    pub async fn write(&self, expected: &mut Vec<Vec<u8>>, operation: impl Into<Vec<u8>>) {
        let operation = operation.into();
        self.propose(GROUP, &operation).await;
        expected.push(operation);
    }

    pub fn list(&self, server: u64, group: GroupId) -> Vec<Vec<u8>> {
        let lists = self.disk.lists.lock().unwrap();
        let list = lists[&(server, group)].lock().unwrap();
        list.items.iter().map(|(_, item)| item.clone()).collect()
    }

    pub async fn all_have(&self, group: GroupId, expected: &[Vec<u8>]) {
        for &server in self.running.keys() {
            eventually(&format!("server {server} has the list"), || self.list(server, group) == expected).await;
        }
    }

    /// What a server that removes a replica also does: its state machine's data goes.
    pub fn forget(&self, server: u64, group: GroupId) {
        self.disk.lists.lock().unwrap().remove(&(server, group));
    }

    pub async fn all_of_have(&self, servers: &[u64], group: GroupId, expected: &[Vec<u8>]) {
        for &server in servers {
            eventually(&format!("server {server} has the list"), || self.list(server, group) == expected).await;
        }
    }

    pub fn pin_durable(&self, index: u64) {
        self.disk.pinned.store(index, Ordering::SeqCst);
    }

    pub fn unpin_durable(&self) {
        self.pin_durable(u64::MAX);
    }

    /// From now on members that lack entries get copies.
    pub fn allow_copies(&self) {
        self.disk.copies.store(true, Ordering::SeqCst);
    }

    /// Where copies arrive.
    pub fn incoming_dir(&self, server: u64, group: GroupId) -> PathBuf {
        self.disk.incoming_dir(server, group)
    }

    pub fn files_sent(&self) -> u64 {
        self.disk.files_sent.load(Ordering::SeqCst)
    }

    pub fn relieved(&self) -> u64 {
        self.disk.relieved.load(Ordering::SeqCst)
    }
}
