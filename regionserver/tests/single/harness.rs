//! One region server in this process, a master that only hands out ids, and a client that speaks the wire directly.

use std::collections::BTreeMap;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use terrane_env::net;
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::v1::master_server::{Master, MasterServer};
use terrane_proto::v1::region_server_client::RegionServerClient;
use terrane_proto::{error, hello, v1};
use terrane_regionserver::{BackendKind, RegionServer, ServerConfig, StartError};
use terrane_types::cell::{CellRef, LATEST, pack};
use terrane_types::{
    ClusterId, Error, FamilyName, FamilySchema, GroupId, PackedRows, RegionDescriptor, ServerId, TableId, TableName,
    TableSchema,
};
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

pub const CLUSTER: ClusterId = ClusterId([7; 16]);
pub const TABLE: TableId = TableId(5);
pub const GROUP: GroupId = GroupId(1);
/// Long enough for a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Hands out ids and keeps the last report.
struct IdMaster {
    next_region: AtomicU64,
    /// What it says of recovered groups.
    recovered: Arc<Mutex<Vec<v1::RecoveredGroup>>>,
    /// The master that leads instead of this one.
    leader: Arc<Mutex<Option<String>>>,
    reports: watch::Sender<v1::ReportRequest>,
}

impl IdMaster {
    fn ids(&self, wanted: u32) -> (u64, u32) {
        (self.next_region.fetch_add(u64::from(wanted), Ordering::Relaxed), wanted)
    }
}

#[tonic::async_trait]
impl Master for IdMaster {
    type ScanMetaStream = futures::stream::Empty<Result<v1::ScanBlock, Status>>;

    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterReply>, Status> {
        let request = request.into_inner();
        let here = hello::Identity { cluster: CLUSTER, server: ServerId(0), boot: 1 };
        hello::check_cluster(request.hello.as_ref(), here, true).map_err(|refused| error::status(&refused))?;
        let (region_id_first, region_id_count) = self.ids(request.region_ids_wanted);
        Ok(Response::new(v1::RegisterReply {
            cluster_id: Bytes::copy_from_slice(&CLUSTER.0),
            server: 1,
            cluster_time_ms: 0,
            servers: vec![v1::ServerAddress { server: 1, address: request.address }],
            region_id_first,
            region_id_count,
            report_every_ms: 20,
            page_keys: vec![v1::PageKey { id: 1, secret: Bytes::from_static(&[1; 32]) }],
            masters: Vec::new(),
            recovered: self.recovered.lock().unwrap().clone(),
            ..Default::default()
        }))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        let (region_id_first, region_id_count) = self.ids(request.region_ids_wanted);
        self.reports.send_replace(request);
        let leader = self.leader.lock().unwrap().clone();
        let (is_follower, masters) = (leader.is_some(), leader.into_iter().collect());
        let reply = v1::ReportReply { region_id_first, region_id_count, is_follower, masters, ..Default::default() };
        Ok(Response::new(reply))
    }

    terrane_proto::unserved! { Status::unimplemented("this master only hands out ids") =>
        scan_meta(ScanCall) -> Self::ScanMetaStream;
        identify(Hello) -> v1::HelloReply;
        create_namespace(NamespaceRequest) -> v1::Empty;
        drop_namespace(NamespaceRequest) -> v1::Empty;
        list_namespaces(ClusterRequest) -> v1::ListNamespacesReply;
        create_table(CreateTableRequest) -> v1::TableReply;
        alter_table(AlterTableRequest) -> v1::TableReply;
        drop_table(DropTableRequest) -> v1::Empty;
        truncate_table(TruncateTableRequest) -> v1::TableReply;
        list_tables(ListTablesRequest) -> v1::ListTablesReply;
        describe_table(DescribeTableRequest) -> v1::TableReply;
        locate(LocateRequest) -> v1::LocateReply;
        list_servers(ClusterRequest) -> v1::ListServersReply;
        list_groups(ClusterRequest) -> v1::ListGroupsReply;
        list_regions(ListRegionsRequest) -> v1::ListRegionsReply;
        status(ClusterRequest) -> v1::StatusReply;
        split_region(SplitRegionRequest) -> v1::SplitRegionReply;
        merge_regions(MergeRegionsRequest) -> v1::MergeRegionsReply;
        begin_move(BeginMoveRequest) -> v1::BeginMoveReply;
        follow_move(FollowMoveRequest) -> v1::FollowMoveReply;
        load_history(LoadHistoryRequest) -> v1::LoadHistoryReply;
        list_events(ListEventsRequest) -> v1::ListEventsReply;
        list_failovers(ClusterRequest) -> v1::ListFailoversReply;
        list_procedures(ListProceduresRequest) -> v1::ListProceduresReply;
        cancel_procedure(CancelProcedureRequest) -> v1::Empty;
        change_server(ChangeServerRequest) -> v1::ChangeServerReply;
        balance(BalanceRequest) -> v1::BalanceReply;
        set_replication(SetReplicationRequest) -> v1::SetReplicationReply;
        set_replace_after(SetReplaceAfterRequest) -> v1::SetReplaceAfterReply;
        set_masters(SetMastersRequest) -> v1::SetMastersReply;
        recover_group(RecoverGroupRequest) -> v1::RecoverGroupReply;
        restart_check(RestartCheckRequest) -> v1::RestartCheckReply;
        check_cluster(ClusterRequest) -> v1::CheckClusterReply;
    }
}

/// A master that runs.
pub struct RunningMaster {
    pub address: String,
    /// What it says of recovered groups to a server that registers.
    pub recovered: Arc<Mutex<Vec<v1::RecoveredGroup>>>,
    /// The master that leads instead of this one, if it does not lead.
    pub leader: Arc<Mutex<Option<String>>>,
    reports: watch::Receiver<v1::ReportRequest>,
}

impl RunningMaster {
    pub async fn start() -> RunningMaster {
        let (sender, reports) = watch::channel(v1::ReportRequest::default());
        let listener = net::listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (recovered, leader) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<_>>::default());
        let service = IdMaster {
            next_region: AtomicU64::new(1000),
            recovered: recovered.clone(),
            leader: leader.clone(),
            reports: sender,
        };
        let intake = net::Intake::new(net::IntakeLimits::default());
        let router = net::server(&intake).add_service(MasterServer::new(service));
        tokio::spawn(router.serve_with_incoming(listener.incoming(&intake)));
        RunningMaster { address, recovered, leader, reports }
    }

    pub async fn report(&mut self, wanted: impl Fn(&v1::ReportRequest) -> bool) -> v1::ReportRequest {
        let found = tokio::time::timeout(PATIENCE, self.reports.wait_for(wanted)).await;
        let found = found.map(|report| report.unwrap().clone());
        match found {
            Ok(report) => report,
            Err(_) => panic!("no such report; the last one: {:?}", self.reports.borrow()),
        }
    }
}

/// The master, the directory, and the server while it runs.
pub struct Bench {
    pub directory: tempfile::TempDir,
    pub master: RunningMaster,
    pub server: Option<RegionServer>,
    /// The configuration of servers, except for paths and addresses.
    pub settings: ServerConfig,
}

impl Bench {
    pub async fn start() -> Bench {
        let mut bench = Bench::without_server().await;
        bench.start_server().await.unwrap();
        bench
    }

    /// With a table, and a client of its region.
    pub async fn with_table(adjust: impl FnOnce(&mut TableSchema)) -> (Bench, RegionDescriptor, Client) {
        let mut bench = Bench::start().await;
        let region = bench.create_table(adjust).await;
        let client = bench.client().await;
        (bench, region, client)
    }

    pub async fn without_server() -> Bench {
        let master = RunningMaster::start().await;
        let settings = ServerConfig { engine: BackendKind::Memory, segment_bytes: 1 << 20, ..ServerConfig::default() };
        Bench { directory: tempfile::tempdir().unwrap(), master, server: None, settings }
    }

    pub fn config(&self) -> ServerConfig {
        ServerConfig {
            data_dir: self.directory.path().to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            masters: vec![self.master.address.clone()],
            ..self.settings.clone()
        }
    }

    pub async fn start_server(&mut self) -> Result<(), StartError> {
        self.server = Some(RegionServer::start(self.config()).await?);
        Ok(())
    }

    pub async fn stop_server(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown(|_| {}).await;
        }
    }

    /// Restarts the server for its `boot`th time, and returns its first report as leader.
    pub async fn restart(&mut self, boot: u64) -> v1::ReportRequest {
        self.stop_server().await;
        self.start_server().await.unwrap();
        self.report(|report| report.boot == boot && leads(report)).await
    }

    pub fn address(&self) -> String {
        self.server.as_ref().unwrap().address().to_string()
    }

    pub fn channel(&self) -> Channel {
        net::channel(&self.address()).unwrap()
    }

    pub fn admin(&self) -> RegionServerClient<Channel> {
        RegionServerClient::new(self.channel())
    }

    /// Waits for a report that satisfies a condition.
    pub async fn report(&mut self, wanted: impl Fn(&v1::ReportRequest) -> bool) -> v1::ReportRequest {
        self.master.report(wanted).await
    }

    /// Creates the group, waits until this server leads it, and creates the table with one region.
    pub async fn create_table(&mut self, adjust: impl FnOnce(&mut TableSchema)) -> RegionDescriptor {
        let member = v1::GroupMember { replica: 1, server: 1, address: self.address() };
        let request = v1::CreateGroupRequest {
            hello: our_hello(),
            group: GROUP.0,
            replica: 1,
            members: vec![member],
            lead: true,
        };
        self.admin().create_group(request.clone()).await.unwrap();
        self.admin().create_group(request).await.unwrap();
        self.report(leads).await;
        let schema = schema(adjust);
        let region = v1::RegionDescriptor {
            region: 100,
            table: TABLE.0,
            epoch: 1,
            group: GROUP.0,
            schema_version: 1,
            ..Default::default()
        };
        self.change_tables(Some(&schema), vec![region.clone()], 0).await;
        region.try_into().unwrap()
    }

    pub async fn change_tables(&self, schema: Option<&TableSchema>, create: Vec<v1::RegionDescriptor>, drop: u64) {
        let schema = schema.map(v1::TableSchema::from);
        let request = v1::ChangeTablesRequest { hello: our_hello(), group: GROUP.0, schema, create, drop };
        self.admin().change_tables(request).await.unwrap();
    }

    /// Splits the first region of the table.
    pub async fn split(&self, at: impl Into<Bytes>) -> Result<Vec<v1::RegionDescriptor>, Status> {
        let order = v1::SplitRequest { hello: our_hello(), region: 100, epoch: 1, at: at.into() };
        Ok(self.admin().split(order).await?.into_inner().daughters)
    }

    pub async fn flush(&self) {
        let request = v1::MaintainTableRequest { hello: our_hello(), table: TABLE.0 };
        let mut progress = self.admin().flush_table(request).await.unwrap().into_inner();
        while progress.message().await.unwrap().is_some() {}
    }

    pub async fn client(&self) -> Client {
        Client::connect(DataClient::new(self.channel())).await
    }
}

pub fn schema(adjust: impl FnOnce(&mut TableSchema)) -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    schema.table = TABLE;
    schema.add_family(FamilySchema::new(FamilyName::new("f").unwrap())).unwrap();
    adjust(&mut schema);
    schema
}

pub fn leads(report: &v1::ReportRequest) -> bool {
    report.groups.iter().any(|group| group.group == GROUP.0 && group.leader == 1 && group.applied > 0)
}

pub fn our_hello() -> Option<v1::Hello> {
    Some(hello::ours(Some(CLUSTER), ServerId(0), ServerId(0), 1))
}

pub fn header(region: &RegionDescriptor) -> Option<v1::RequestHeader> {
    Some(v1::RequestHeader {
        format: 1,
        table: region.table.0,
        region: region.region.0,
        epoch: region.epoch.0,
        schema_version: 0,
        ..Default::default()
    })
}

pub fn packed(qualifier: &[u8], value: &[u8]) -> Bytes {
    let mut cells = Vec::new();
    pack(&mut cells, CellRef::put(b"f", qualifier, LATEST, value));
    cells.into()
}

pub fn put(row: &[u8], value: &[u8]) -> v1::RowMutation {
    v1::RowMutation { row: Bytes::copy_from_slice(row), cells: packed(b"q", value), ..Default::default() }
}

/// A row of many columns, about 5 KiB.
pub fn wide(row: impl Into<Bytes>) -> v1::RowMutation {
    let cells: Vec<u8> = (0..50u8).flat_map(|number| packed(&[number], &[b'x'; 100]).to_vec()).collect();
    v1::RowMutation { row: row.into(), cells: cells.into(), ..Default::default() }
}

/// All columns, filtered.
pub fn filter(text: &str) -> Option<v1::Projection> {
    Some(v1::Projection { filter: text.to_owned(), ..Default::default() })
}

/// The number of cells in shown rows.
pub fn cells_in(rows: &[String]) -> usize {
    rows.iter().map(|row| row.split(',').count()).sum()
}

/// Rows of a block as `row=value`, for comparing.
pub fn shown(rows: &Bytes) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let of_row = |row: terrane_types::PackedRow| {
        let values: Vec<String> = row.cells.iter().map(|cell| text(cell.value)).collect();
        format!("{}={}", text(row.row.as_bytes()), values.join(","))
    };
    PackedRows::new(rows.clone()).map(|row| of_row(row.unwrap())).collect()
}

/// One session.
pub struct Client {
    requests: mpsc::Sender<v1::SessionRequest>,
    replies: Streaming<v1::SessionReply>,
    next: u64,
    /// A field of the header of every request.
    client_id: Bytes,
    pub lowest_unsettled: u64,
}

impl Client {
    async fn connect(data: DataClient<Channel>) -> Client {
        let (mut client, first) = Client::greet(data, our_hello().unwrap()).await;
        assert!(matches!(first, Some(v1::session_reply::Body::Hello(_))), "{first:?}");
        client.next = 1;
        client
    }

    /// Opens a session with this hello and returns its first reply.
    pub async fn greet(mut data: DataClient<Channel>, hello: v1::Hello) -> (Client, Option<v1::session_reply::Body>) {
        let (requests, mut receiver) = mpsc::channel(16);
        let outgoing = async_stream::stream! {
            while let Some(request) = receiver.recv().await {
                yield request;
            }
        };
        requests.send(v1::SessionRequest { body: Some(v1::session_request::Body::Hello(hello)) }).await.unwrap();
        let mut replies = data.session(outgoing).await.unwrap().into_inner();
        let first = replies.message().await.unwrap().and_then(|reply| reply.body);
        (Client { requests, replies, next: 1, client_id: Bytes::new(), lowest_unsettled: 0 }, first)
    }

    /// Sends a batch and waits for all of its answers, in the order of the requests.
    pub async fn batch(&mut self, bodies: Vec<(RegionDescriptor, v1::request::Body)>) -> Vec<v1::reply::Body> {
        let first = self.next;
        let count = bodies.len();
        let mut requests = Vec::new();
        for (region, body) in bodies {
            let header = v1::RequestHeader {
                client_id: self.client_id.clone(),
                lowest_unsettled: self.lowest_unsettled,
                ..header(&region).unwrap()
            };
            requests.push(v1::Request { id: self.next, header: Some(header), body: Some(body) });
            self.next += 1;
        }
        let batch = v1::session_request::Body::Batch(v1::RequestBatch { requests });
        self.requests.send(v1::SessionRequest { body: Some(batch) }).await.unwrap();
        let mut answers = BTreeMap::new();
        while answers.len() < count {
            let reply = tokio::time::timeout(PATIENCE, self.replies.message()).await.expect("no answer in time");
            let Some(v1::session_reply::Body::Batch(batch)) = reply.unwrap().unwrap().body else { panic!("no batch") };
            for reply in batch.replies {
                answers.insert(reply.id, reply.body.unwrap());
            }
        }
        assert_eq!(answers.keys().next(), Some(&first));
        answers.into_values().collect()
    }

    async fn one(&mut self, region: &RegionDescriptor, body: v1::request::Body) -> v1::reply::Body {
        self.batch(vec![(region.clone(), body)]).await.remove(0)
    }

    pub async fn put(
        &mut self,
        region: &RegionDescriptor,
        rows: Vec<v1::RowMutation>,
    ) -> Result<v1::MutateReply, Error> {
        match self.one(region, v1::request::Body::Mutate(v1::Mutate { rows, atomic: false })).await {
            v1::reply::Body::Mutate(reply) => Ok(reply),
            other => Err(refusal(other)),
        }
    }

    /// A write as this client.
    pub async fn mutate(
        &mut self,
        region: &RegionDescriptor,
        client: [u8; 16],
        body: v1::Mutate,
    ) -> Result<v1::MutateReply, Error> {
        self.client_id = Bytes::copy_from_slice(&client);
        match self.one(region, v1::request::Body::Mutate(body)).await {
            v1::reply::Body::Mutate(reply) => Ok(reply),
            other => Err(refusal(other)),
        }
    }

    pub async fn get(&mut self, region: &RegionDescriptor, rows: &[&[u8]]) -> Result<Vec<String>, Error> {
        let rows = rows.iter().map(|row| Bytes::copy_from_slice(row)).collect();
        match self.one(region, v1::request::Body::Get(v1::Get { rows, ..Default::default() })).await {
            v1::reply::Body::Get(reply) => Ok(shown(&reply.rows)),
            other => Err(refusal(other)),
        }
    }

    pub async fn seal(&mut self, region: &RegionDescriptor, page: v1::SealPage) -> Result<Bytes, Error> {
        match self.one(region, v1::request::Body::SealPage(Box::new(page))).await {
            v1::reply::Body::SealPage(reply) => Ok(reply.token),
            other => Err(refusal(other)),
        }
    }

    pub async fn open(
        &mut self,
        region: &RegionDescriptor,
        page: v1::OpenPage,
    ) -> Result<Vec<v1::PagePosition>, Error> {
        match self.one(region, v1::request::Body::OpenPage(Box::new(page))).await {
            v1::reply::Body::OpenPage(reply) => Ok(reply.positions),
            other => Err(refusal(other)),
        }
    }

    pub async fn scan(&mut self, region: &RegionDescriptor, scan: v1::Scan) -> Result<v1::ScanBlock, Error> {
        match self.one(region, v1::request::Body::Scan(Box::new(scan))).await {
            v1::reply::Body::Scan(block) => Ok(*block),
            other => Err(refusal(other)),
        }
    }

    /// All blocks of a scan.
    pub async fn blocks(&mut self, region: &RegionDescriptor, scan: v1::Scan) -> Result<Vec<v1::ScanBlock>, Error> {
        let mut scan = scan;
        let mut blocks: Vec<v1::ScanBlock> = Vec::new();
        while blocks.last().is_none_or(|block| !block.done) {
            let block = self.scan(region, scan.clone()).await?;
            scan.resume = block.resume.clone();
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// All rows of a scan, block by block.
    pub async fn scan_all(&mut self, region: &RegionDescriptor, scan: v1::Scan) -> Result<Vec<String>, Error> {
        let blocks = self.blocks(region, scan).await?;
        Ok(blocks.iter().flat_map(|block| shown(&block.rows)).collect())
    }
}

fn refusal(body: v1::reply::Body) -> Error {
    match body {
        v1::reply::Body::Error(detail) => error::from_detail(*detail),
        other => panic!("not the answer asked for: {other:?}"),
    }
}

/// The regions of the table according to the last report, in order of their ranges.
pub fn regions(report: &v1::ReportRequest) -> Vec<RegionDescriptor> {
    let descriptors = report.regions.iter().filter_map(|region| region.descriptor.clone());
    let mut regions: Vec<RegionDescriptor> = descriptors.map(|descriptor| descriptor.try_into().unwrap()).collect();
    regions.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    regions
}
