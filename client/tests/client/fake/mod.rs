//! A small fake cluster: real gRPC services over real sockets, rows in a map, and faults on demand.
//!
//! Region servers check cluster, leadership, region and epoch as the real ones do and refuse with the same errors; the
//! rows themselves are shared by all servers, as if replication were perfect.

mod blocks;
mod data;
mod loads;
mod master;
mod mutations;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_client::{Client, ClientBuilder, FamilyName, FamilySchema, KeyRange, Put, Table, TableName, TableSchema};
use terrane_proto::v1;
use terrane_proto::v1::data_server::DataServer;
use terrane_proto::v1::master_server::MasterServer;
use terrane_types::{ClusterId, Error, GroupId, RegionDescriptor, RegionEpoch, RegionId, ServerId, TableId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub const CLUSTER: ClusterId = ClusterId([7; 16]);
pub const TABLE: TableId = TableId(5);

/// What happens to the next data requests, one entry each, before they are processed.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Refused with this error.
    Refuse(Error),
    /// Applied; then the stream breaks instead of an answer.
    BreakAfter,
    /// The stream breaks; nothing is applied.
    BreakBefore,
    /// Never answered.
    Silence,
    /// Answered once the server has answered this many pings.
    AfterPings(u64),
}

/// The state that all servers share.
pub struct World {
    pub cluster: ClusterId,
    pub schema: TableSchema,
    pub regions: Vec<RegionDescriptor>,
    /// The actual term and leader of each group.
    pub groups: BTreeMap<GroupId, (u64, ServerId)>,
    /// The leaders that the master believes in, where it is outdated.
    pub master_believes: BTreeMap<GroupId, (u64, ServerId)>,
    pub addresses: BTreeMap<ServerId, String>,
    pub rows: BTreeMap<Bytes, Row>,
    pub faults: VecDeque<Fault>,
    /// Whether redirects name the new leader.
    pub hints: bool,
    /// Row mutations applied so far.
    pub applied: u64,
    /// Row mutations in the order applied.
    pub log: Vec<Bytes>,
    /// The records of operations.
    pub window: mutations::Window,
    /// The time in hellos; 0: not sent.
    pub cluster_time_ms: u64,
    pub requests: u64,
    pub locates: u64,
    /// How long a look-up takes.
    pub locate_takes: Duration,
    /// Rows in a block.
    pub block_rows: usize,
    /// Splits to make after this many more scan blocks.
    pub split_after_blocks: Option<(u64, Bytes)>,
    pub rows_in_request_max: usize,
    /// The servers that answered reads, in order, and the requested consistency.
    pub reads: Vec<(ServerId, v1::Consistency)>,
    /// The projection of the last get or scan.
    pub projection: v1::Projection,
    /// The last scan.
    pub scan: v1::Scan,
    /// The page tokens so far: a token is an index.
    pub sealed: Vec<v1::SealPage>,
    /// Servers that accept everything and answer nothing, as if their processes were stopped.
    pub hung: watch::Sender<BTreeSet<ServerId>>,
    /// Hangs the server of group 1 after this many more scan blocks, and makes this one its leader.
    pub hang_after_blocks: Option<(u64, ServerId)>,
    /// Requests of one message that are accepted; the others are refused as too many.
    pub takes_at_once: usize,
    /// Bulk loads.
    pub loads: loads::Loads,
    /// Pings answered.
    pub pings: watch::Sender<u64>,
}

/// (family, qualifier) → (timestamp, value); one version is kept.
pub type Row = BTreeMap<(Bytes, Bytes), (i64, Bytes)>;

pub type Shared = Arc<Mutex<World>>;

/// A running cluster; dropping it stops the cluster.
pub struct Fake {
    pub world: Shared,
    pub masters: String,
    servers: BTreeMap<ServerId, Running>,
    master: Running,
}

struct Running {
    /// Dropped or sent: streams break and connections close.
    stop: Option<watch::Sender<bool>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.task.abort();
    }
}

impl Fake {
    /// A cluster of three servers and a table `t` with families `f` and `g`, split at these rows. Region i is in group
    /// i mod 3 + 1, which server i mod 3 + 1 leads.
    pub async fn start(split_at: &[&str]) -> Fake {
        let mut schema = TableSchema::new(TableName::new("t").expect("a name"));
        schema.table = TABLE;
        for family in ["f", "g"] {
            schema.add_family(FamilySchema::new(FamilyName::new(family).expect("a name"))).expect("two families");
        }
        let world = Arc::new(Mutex::new(World {
            cluster: CLUSTER,
            schema,
            regions: regions(split_at),
            groups: (1..=3).map(|id| (GroupId(id), (1, ServerId(id)))).collect(),
            master_believes: BTreeMap::new(),
            addresses: BTreeMap::new(),
            rows: BTreeMap::new(),
            faults: VecDeque::new(),
            hints: true,
            applied: 0,
            log: Vec::new(),
            window: mutations::Window::default(),
            cluster_time_ms: 0,
            requests: 0,
            locates: 0,
            locate_takes: Duration::ZERO,
            block_rows: 3,
            split_after_blocks: None,
            rows_in_request_max: 0,
            reads: Vec::new(),
            projection: v1::Projection::default(),
            scan: v1::Scan::default(),
            sealed: Vec::new(),
            hung: watch::Sender::default(),
            hang_after_blocks: None,
            takes_at_once: usize::MAX,
            loads: loads::Loads::default(),
            pings: watch::Sender::default(),
        }));
        let (address, master) = serve_master(&world).await;
        let mut fake = Fake { world, masters: address, servers: BTreeMap::new(), master };
        for id in 1..=3 {
            fake.start_server(ServerId(id)).await;
        }
        fake
    }

    /// A cluster as [`start`](Self::start) makes it, a client of it, and the table as this client has it.
    pub async fn connected(split_at: &[&str]) -> (Fake, Client, Table) {
        let cluster = Fake::start(split_at).await;
        let client = cluster.client().await;
        let table = client.table("t").await.expect("the table is there");
        (cluster, client, table)
    }

    /// As [`connected`](Self::connected), where the test needs no more of the client than its table.
    pub async fn with_table(split_at: &[&str]) -> (Fake, Table) {
        let (cluster, _, table) = Fake::connected(split_at).await;
        (cluster, table)
    }

    /// As [`with_table`](Self::with_table), with this many rows.
    pub async fn filled(split_at: &[&str], count: usize) -> (Fake, Table) {
        let (cluster, table) = Fake::with_table(split_at).await;
        cluster.fill(count);
        (cluster, table)
    }

    /// A cluster of one region, whose leader the client has a session with.
    pub async fn warm() -> (Fake, Client, Table) {
        let (cluster, client, table) = Fake::connected(&[]).await;
        table.put(put("warm")).await.expect("the cluster works");
        (cluster, client, table)
    }

    pub async fn start_server(&mut self, id: ServerId) {
        let (address, running) = serve_data(&self.world, id, "127.0.0.1:0").await;
        self.world.lock().addresses.insert(id, address);
        self.servers.insert(id, running);
    }

    /// Kills a server: its connections close at once.
    pub async fn kill(&mut self, id: ServerId) {
        if let Some(mut running) = self.servers.remove(&id) {
            drop(running.stop.take());
            (&mut running.task).await.expect("the server ends by itself");
        }
    }

    /// Replaces a server by one of another cluster at the same address.
    pub async fn replace_by_foreigner(&mut self, id: ServerId) -> Shared {
        self.kill(id).await;
        let address = self.world.lock().addresses[&id].clone();
        let foreign = Fake::start(&[]).await;
        let world = Arc::clone(&foreign.world);
        world.lock().cluster = ClusterId([9; 16]);
        drop(foreign);
        let (_, running) = serve_data(&world, id, &address).await;
        self.servers.insert(id, running);
        world
    }

    pub async fn stop_master(&mut self) {
        drop(self.master.stop.take());
        (&mut self.master.task).await.expect("the master ends by itself");
    }

    /// Adds a family, as an alter by another client does.
    pub fn add_family(&self, name: &str) {
        let mut world = self.world.lock();
        world.schema.version += 1;
        let version = world.schema.version;
        world.regions.iter_mut().for_each(|region| region.schema_version = version);
        world.schema.add_family(FamilySchema::new(FamilyName::new(name).expect("a name"))).expect("a new family");
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder().masters(&self.masters).timeout(Duration::from_secs(10))
    }

    pub async fn client(&self) -> Client {
        self.builder().build().await.expect("the fake master answers")
    }

    /// The table of a new client.
    pub async fn table(&self) -> Table {
        self.client().await.table("t").await.expect("the table is there")
    }

    pub fn fault(&self, fault: Fault) {
        self.world.lock().faults.push_back(fault);
    }

    /// Moves the leadership of a group without telling the master.
    pub fn fail_over(&self, group: u64, to: u64) {
        let mut world = self.world.lock();
        let (term, leader) = world.groups[&GroupId(group)];
        world.master_believes.insert(GroupId(group), (term, leader));
        world.groups.insert(GroupId(group), (term + 1, ServerId(to)));
    }

    /// Stops a server as SIGSTOP does: its connections stay, and nothing is answered.
    pub fn hang(&self, id: ServerId) {
        self.world.lock().hung.send_modify(|hung| {
            hung.insert(id);
        });
    }

    /// Lets the server continue.
    pub fn resume(&self, id: ServerId) {
        self.world.lock().hung.send_modify(|hung| {
            hung.remove(&id);
        });
    }

    /// Replaces a row by one column `f:NAME`.
    pub fn put(&self, number: usize, column: &str, value: Vec<u8>) {
        let row = [(("f".into(), Bytes::copy_from_slice(column.as_bytes())), (1, value.into()))].into();
        self.world.lock().rows.insert(name(number), row);
    }

    /// Fills the table with `count` rows `r0000`, `r0001`...
    pub fn fill(&self, count: usize) {
        let mut world = self.world.lock();
        for number in 0..count {
            let mut row = Row::new();
            row.insert(("f".into(), "q".into()), (1, number.to_string().into()));
            world.rows.insert(name(number), row);
        }
    }
}

/// A put of one cell.
pub fn put(row: impl AsRef<[u8]>) -> Put {
    Put::new(row).set("f", "q", "v")
}

pub fn name(number: usize) -> Bytes {
    format!("r{number:04}").into()
}

fn regions(split_at: &[&str]) -> Vec<RegionDescriptor> {
    let mut bounds = vec![Bytes::new()];
    bounds.extend(split_at.iter().map(|row| Bytes::copy_from_slice(row.as_bytes())));
    let ends = bounds[1..].iter().cloned().chain([Bytes::new()]);
    let ranges = bounds.iter().cloned().zip(ends);
    ranges
        .enumerate()
        .map(|(index, (start, end))| RegionDescriptor {
            region: RegionId(index as u64 + 1),
            table: TABLE,
            range: KeyRange { start, end },
            epoch: RegionEpoch(1),
            group: GroupId(index as u64 % 3 + 1),
            schema_version: 1,
        })
        .collect()
}

impl World {
    /// Splits the region that holds `at`, in place.
    pub fn split(&mut self, at: &[u8]) {
        let index = self.regions.iter().position(|region| region.range.contains(at)).expect("some region has it");
        let parent = self.regions.remove(index);
        let (left, right) = parent.range.split(at).expect("inside");
        let epoch = RegionEpoch(parent.epoch.0 + 1);
        let id = self.regions.iter().map(|region| region.region.0).max().unwrap_or(0).max(parent.region.0) + 1;
        let daughter = |region, range| RegionDescriptor { region: RegionId(region), range, epoch, ..parent.clone() };
        self.regions.insert(index, daughter(parent.region.0, left));
        self.regions.insert(index + 1, daughter(id, right));
    }

    /// One more scan block is sent.
    fn sends_block(&mut self) {
        let Some((blocks, next)) = self.hang_after_blocks.take() else { return };
        if blocks > 0 {
            self.hang_after_blocks = Some((blocks - 1, next));
            return;
        }
        let (term, leader) = self.groups[&GroupId(1)];
        self.hung.send_modify(|hung| {
            hung.insert(leader);
        });
        self.groups.insert(GroupId(1), (term + 1, next));
    }

    fn members(&self) -> Vec<(ServerId, String)> {
        self.addresses.iter().map(|(id, address)| (*id, address.clone())).collect()
    }
}

async fn serve_data(world: &Shared, id: ServerId, address: &str) -> (String, Running) {
    let (stop, stopped) = watch::channel(false);
    let service = DataServer::new(data::FakeData { world: Arc::clone(world), id, stopped: stopped.clone() })
        .max_decoding_message_size(terrane_proto::MESSAGE_BYTES_MAX);
    serve(address, stop, stopped, |server| server.add_service(service)).await
}

async fn serve_master(world: &Shared) -> (String, Running) {
    let (stop, stopped) = watch::channel(false);
    let service = MasterServer::new(master::FakeMaster { world: Arc::clone(world) });
    serve("127.0.0.1:0", stop, stopped, |server| server.add_service(service)).await
}

async fn serve(
    address: &str,
    stop: watch::Sender<bool>,
    mut stopped: watch::Receiver<bool>,
    add: impl FnOnce(&mut terrane_env::net::Server) -> terrane_env::net::Router,
) -> (String, Running) {
    let listener = terrane_env::net::listen(address).await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let intake = terrane_env::net::Intake::new(terrane_env::net::IntakeLimits::default());
    let router = add(&mut terrane_env::net::server(&intake));
    let serving = async move {
        let signal = async {
            // An error means that the sender is gone, which stops the server as well.
            let _ = stopped.changed().await;
        };
        router.serve_with_incoming_shutdown(listener.incoming(&intake), signal).await.expect("the server serves");
    };
    (address, Running { stop: Some(stop), task: tokio::spawn(serving) })
}
