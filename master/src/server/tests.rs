//! A whole master with its real log and files, and fake region servers.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{error, hello};
use terrane_types::{Error, PackedRows};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use self::fake::{Mood, Ordered, registration, serve_fake};
use super::*;

mod callbacks;
mod fake;
mod master_sets;
mod moves;
mod namespaces;
mod requests;
mod several;

/// How long anything may take that needs an election.
const WITHIN: Duration = Duration::from_secs(20);

/// A master, fake servers and a client.
struct Cluster {
    directory: tempfile::TempDir,
    master: Master,
    client: MasterClient<Channel>,
    ordered: Arc<Ordered>,
    stop: CancellationToken,
}

async fn start(dir: &Path, change: impl FnOnce(&mut MasterConfig)) -> Result<Master, StartError> {
    let mut config =
        MasterConfig { data_dir: dir.to_owned(), listen: "127.0.0.1:0".to_owned(), ..MasterConfig::default() };
    change(&mut config);
    Master::start(config).await
}

fn client(master: &Master) -> MasterClient<Channel> {
    MasterClient::new(terrane_env::net::channel(master.address()).unwrap())
}

impl Cluster {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let master = start(directory.path(), |_| {}).await.unwrap();
        let client = client(&master);
        Self { directory, master, client, ordered: Arc::default(), stop: CancellationToken::new() }
    }

    async fn with_servers() -> Self {
        let mut cluster = Self::new().await;
        cluster.add_servers().await;
        cluster
    }

    async fn add_servers(&mut self) {
        for server in 1..=3 {
            self.add_server(server).await;
        }
    }

    /// Restarts the master on the same directory, with the same servers.
    async fn restarted(self) -> Self {
        self.master.shutdown().await;
        let master = start(self.directory.path(), |_| {}).await.unwrap();
        Self { client: client(&master), master, ..self }
    }

    fn hello(&self, own: u64) -> Option<v1::Hello> {
        Some(hello::ours(Some(self.master.cluster_id()), ServerId(0), ServerId(own), 1))
    }

    /// Starts and registers another fake server.
    async fn add_server(&mut self, server: u64) {
        let address = serve_fake(server, &self.ordered, &self.stop).await;
        let request = registration(address);
        let reply = self.client.register(request).await.unwrap().into_inner();
        assert_eq!((reply.server, reply.region_id_count), (server, 10));
        self.until(server, "live").await;
    }

    /// Reports for a server until it is in this state; returns the last answer.
    async fn until(&mut self, server: u64, state: &str) -> v1::ReportReply {
        let what = format!("server {server}'s state {state}");
        eventually(&what, async || {
            let reply = self.report(server, 0, Vec::new()).await;
            let known = self.servers().await.into_iter().find(|known| known.server == server);
            (known.expect("it is registered").state == state).then_some(reply)
        })
        .await
    }

    fn create(&self, name: &str, split_at: &[&'static str]) -> v1::CreateTableRequest {
        let families = vec![v1::FamilySchema { name: "f".into(), ..v1::FamilySchema::default() }];
        let schema = v1::TableSchema { name: name.into(), families, ..v1::TableSchema::default() };
        let split_at = split_at.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        v1::CreateTableRequest { hello: self.hello(0), schema: Some(schema), split_at, ..Default::default() }
    }

    async fn create_table(&mut self, name: &str, split_at: &[&'static str]) -> v1::TableReply {
        let request = self.create(name, split_at);
        self.client.create_table(request).await.unwrap().into_inner()
    }

    async fn describe(&mut self, name: &str) -> Result<v1::TableReply, Error> {
        let request = v1::DescribeTableRequest { hello: self.hello(0), name: name.into() };
        self.client
            .describe_table(request)
            .await
            .map(Response::into_inner)
            .map_err(|status| error::from_status(&status))
    }

    fn asked(&self) -> v1::ClusterRequest {
        v1::ClusterRequest { hello: self.hello(0) }
    }

    async fn status(&mut self) -> v1::StatusReply {
        self.client.status(self.asked()).await.unwrap().into_inner()
    }

    async fn servers(&mut self) -> Vec<v1::ServerInfo> {
        self.client.list_servers(self.asked()).await.unwrap().into_inner().servers
    }

    async fn groups(&mut self) -> Vec<v1::GroupInfo> {
        self.client.list_groups(self.asked()).await.unwrap().into_inner().groups
    }

    /// The regions of all tables.
    async fn regions(&mut self) -> Vec<v1::RegionDescriptor> {
        let infos = self.region_infos().await;
        infos.into_iter().map(|info| info.descriptor.unwrap()).collect()
    }

    async fn region_infos(&mut self) -> Vec<v1::RegionInfo> {
        let request = v1::ListRegionsRequest { hello: self.hello(0), table: String::new() };
        self.client.list_regions(request).await.unwrap().into_inner().regions
    }

    async fn locate(&mut self, key: &'static str) -> v1::LocateReply {
        let key = Bytes::from_static(key.as_bytes());
        let request = v1::LocateRequest { hello: self.hello(0), table: 1, key, ..v1::LocateRequest::default() };
        self.client.locate(request).await.unwrap().into_inner()
    }

    async fn report(&mut self, server: u64, term: u64, regions: Vec<v1::RegionDescriptor>) -> v1::ReportReply {
        let groups: BTreeSet<u64> = regions.iter().map(|region| region.group).collect();
        let group = |group| v1::GroupReport { group, term, leader: server, ..v1::GroupReport::default() };
        let groups = groups.into_iter().map(group).collect();
        let clock_ms = terrane_env::time::wall_ms();
        let request = v1::ReportRequest { groups, regions: opened(regions, term), clock_ms, ..self.report_of(server) };
        self.client.report(request).await.unwrap().into_inner()
    }

    /// A report that says nothing.
    fn report_of(&self, server: u64) -> v1::ReportRequest {
        v1::ReportRequest { hello: self.hello(server), server, boot: 1, ..v1::ReportRequest::default() }
    }

    fn set_mood(&self, mood: &Mood) {
        *self.ordered.mood.lock() = (1..=3).map(|server| (server, mood.clone())).collect();
    }

    async fn end(self) {
        self.stop.cancel();
        self.master.shutdown().await;
    }
}

fn opened(regions: impl IntoIterator<Item = v1::RegionDescriptor>, group_term: u64) -> Vec<v1::RegionReport> {
    let (bytes, state) = (7, "open".to_owned());
    let open = v1::RegionReport { bytes, state, group_term, ..v1::RegionReport::default() };
    regions.into_iter().map(|region| v1::RegionReport { descriptor: Some(region), ..open.clone() }).collect()
}

/// What `look` finds; fails after a time that any election takes.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WITHIN, found).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

async fn refusal<T: std::fmt::Debug>(call: impl Future<Output = Result<Response<T>, Status>>) -> Error {
    error::from_status(&call.await.unwrap_err())
}

fn within<T>(request: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(request);
    request.set_timeout(timeout);
    request
}

#[tokio::test]
async fn a_cluster_keeps_its_id_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path(), |_| {}).await.unwrap();
    assert_eq!(first.ready(), Ok(()));
    let cluster = first.cluster_id();
    first.shutdown().await;
    let second = start(dir.path(), |_| {}).await.unwrap();
    assert_eq!(second.cluster_id(), cluster);
    second.shutdown().await;
}

#[tokio::test]
async fn a_second_process_on_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path(), |_| {}).await.unwrap();
    let refused = start(dir.path(), |_| {}).await.err().unwrap();
    assert!(matches!(refused, StartError::Lock(_)), "{refused}");
    first.shutdown().await;
}

#[tokio::test]
async fn another_list_of_peers_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), |config| config.peers = vec!["127.0.0.1:7600".into()]).await.unwrap().shutdown().await;
    let master = start(dir.path(), |config| config.peers = vec!["127.0.0.1:9999".into()]).await.unwrap();
    assert_eq!(master.context.journal.peers().addresses(), [master.address()]);
    master.shutdown().await;
}

#[tokio::test]
async fn a_damaged_checkpoint_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), |_| {}).await.unwrap().shutdown().await;
    let path = crate::catalog::checkpoint::path_in(&dir.path().join("catalog"));
    let mut bytes = fs::read(&path).await.unwrap();
    bytes[20] ^= 1;
    fs::write_durable(&path, &bytes).await.unwrap();
    let refused = start(dir.path(), |_| {}).await.err().unwrap();
    assert!(matches!(refused, StartError::Checkpoint(_)) && refused.to_string().contains("checkpoint"), "{refused}");
}

#[tokio::test]
async fn a_create_without_servers_says_what_it_waits_for() {
    let mut cluster = Cluster::new().await;
    cluster.add_server(1).await;
    let request = within(cluster.create("t", &[]), Duration::from_millis(400));
    let refused = refusal(cluster.client.create_table(request)).await;
    assert!(refused.to_string().contains("2 more region servers: 1 of 3"), "{refused}");
    assert!(cluster.status().await.waiting_for.contains("2 more region servers"));
    assert!(matches!(cluster.describe("t").await, Err(Error::NotFound { .. })));
    cluster.end().await;
}

#[tokio::test]
async fn a_waiting_create_continues_when_servers_join() {
    let mut cluster = Cluster::new().await;
    let (mut other, request) = (cluster.client.clone(), cluster.create("t", &[]));
    let waiting = tokio::spawn(async move { other.create_table(request).await });
    cluster.add_servers().await;
    assert_eq!(waiting.await.unwrap().unwrap().into_inner().state, "enabled");
    cluster.end().await;
}

#[tokio::test]
async fn groups_are_spread_and_members_get_orders() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &["c", "f", "i", "l", "o", "r", "u", "x", "y", "z", "zz"]).await;
    let groups = cluster.ordered.groups.lock().clone();
    let led = |server| groups.iter().filter(|(to, order)| *to == server && order.lead).count();
    assert_eq!((led(1), led(2), led(3)), (4, 4, 4));
    assert!(groups.iter().all(|(_, order)| order.members.len() == 3));
    // Twelve regions in twelve groups: one region and one order each, to the planned leader.
    let tables = cluster.ordered.tables.lock().clone();
    assert_eq!(tables.len(), 12);
    assert!(tables.iter().all(|(_, order)| order.create.len() == 1));
    assert_eq!(tables.iter().map(|(_, order)| order.group).collect::<BTreeSet<_>>().len(), 12);
    cluster.end().await;
}

#[tokio::test]
async fn a_created_table_can_be_located_at_once() {
    let mut cluster = Cluster::with_servers().await;
    let namespace = v1::NamespaceRequest { hello: cluster.hello(0), name: "ns".into(), ..Default::default() };
    cluster.client.create_namespace(namespace).await.unwrap();
    let created = cluster.create_table("ns:t", &["h", "p"]).await;
    assert_eq!((created.regions, created.state.as_str()), (3, "enabled"));
    let located = cluster.locate("m").await;
    assert_eq!(located.regions.iter().map(|region| &region.start[..]).collect::<Vec<_>>(), [b"h", b"p"]);
    assert!(located.groups.iter().all(|group| group.leader != 0 && group.members.len() == 3));
    let request = cluster.create("ns:t", &[]);
    assert!(matches!(refusal(cluster.client.create_table(request)).await, Error::AlreadyExists { .. }));
    cluster.end().await;
}

#[tokio::test]
async fn invalid_tables_are_refused_with_a_message() {
    let mut cluster = Cluster::with_servers().await;
    for (name, split_at, says) in
        [("meta", &[][..], "reserved"), ("t", &["b", "a"], "b comes before a"), ("a b", &[], "table")]
    {
        let request = cluster.create(name, split_at);
        let refused = refusal(cluster.client.create_table(request)).await;
        assert!(matches!(refused, Error::Invalid(_)) && refused.to_string().contains(says), "{refused}");
    }
    cluster.end().await;
}

#[tokio::test]
async fn an_alter_reaches_every_group_and_a_drop_leaves_nothing() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &["m"]).await;
    cluster.ordered.tables.lock().clear();
    let set = [("region_size".to_owned(), "1MiB".to_owned())].into_iter().collect();
    let (hello, name) = (cluster.hello(0), "t".to_owned());
    let request = v1::AlterTableRequest { hello: hello.clone(), name, set, ..v1::AlterTableRequest::default() };
    let schema = cluster.client.alter_table(request.clone()).await.unwrap().into_inner().schema.unwrap();
    assert_eq!((schema.version, schema.region_size), (2, 1 << 20));
    let orders: Vec<_> =
        cluster.ordered.tables.lock().drain(..).map(|(_, order)| order.schema.unwrap().version).collect();
    assert_eq!(orders, [2, 2]);
    assert!(cluster.regions().await.iter().all(|region| region.schema_version == 2));

    // How cells are stored is altered online as well.
    let attributes = [("compression".to_owned(), "zstd".to_owned()), ("bloom".to_owned(), "rowcol".to_owned())];
    let families = vec![v1::FamilyChange { name: "f".into(), add: false, attributes: attributes.into() }];
    let stored = v1::AlterTableRequest { set: Default::default(), families, ..request.clone() };
    let schema = cluster.client.alter_table(stored).await.unwrap().into_inner().schema.unwrap();
    assert_eq!((schema.version, schema.region_size), (3, 1 << 20));
    let family = &schema.families[0];
    assert_eq!((family.compression(), family.bloom()), (v1::Compression::Zstd, v1::Bloom::Rowcol));
    assert_eq!((family.versions, family.block_size), (1, 16 << 10), "the rest is as it was");
    let orders: Vec<_> = cluster.ordered.tables.lock().drain(..).map(|(_, order)| order.schema.unwrap()).collect();
    assert!(orders.len() == 2 && orders.iter().all(|order| *order == schema), "{orders:?}");

    for (name, value) in [("split_policy", "load"), ("bloom_prefix", "1")] {
        let set = [(name.to_owned(), value.to_owned())].into_iter().collect();
        let refused = refusal(cluster.client.alter_table(v1::AlterTableRequest { set, ..request.clone() })).await;
        assert!(refused.to_string().contains(name), "{refused}");
    }

    cluster.client.drop_table(v1::DropTableRequest { hello, name: "t".into(), ..Default::default() }).await.unwrap();
    assert_eq!(cluster.ordered.tables.lock().iter().map(|(_, order)| order.drop).collect::<Vec<_>>(), [1, 1]);
    assert!(cluster.regions().await.is_empty());
    // A replica that missed the drop learns of it when it reports.
    let late = v1::RegionDescriptor { region: 31, table: 1, epoch: 1, group: 1, ..v1::RegionDescriptor::default() };
    assert_eq!(cluster.report(1, 1, vec![late]).await.dropped_tables, [1]);
    cluster.end().await;
}

#[tokio::test]
async fn a_restarted_master_completes_what_it_started() {
    let mut cluster = Cluster::with_servers().await;
    cluster.set_mood(&Mood::Away);
    let request = within(cluster.create("t", &["m"]), Duration::from_millis(500));
    let refused = refusal(cluster.client.create_table(request)).await;
    assert!(matches!(refused, Error::InProgress { .. }), "{refused:?}");
    assert!(refused.to_string().contains("table t is still creating, waiting for group"), "{refused}");

    let mut cluster = cluster.restarted().await;
    assert_eq!(cluster.describe("t").await.unwrap().state, "creating");
    cluster.set_mood(&Mood::Willing);
    eventually("the create", async || (cluster.describe("t").await.unwrap().state == "enabled").then_some(())).await;
    assert_eq!(cluster.regions().await.len(), 2);
    cluster.end().await;
}

/// Copies all files as a killed process would leave them.
async fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).await.unwrap();
    for name in fs::list(from).await.unwrap() {
        match fs::read(&from.join(&name)).await {
            Ok(bytes) => fs::write_durable(&to.join(&name), &bytes).await.unwrap(),
            Err(_) => Box::pin(copy_dir(&from.join(&name), &to.join(&name))).await,
        }
    }
}

#[tokio::test]
async fn a_killed_master_recovers_from_its_log() {
    let copy = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("u", &[]).await;
    // Later entries are only in the log; earlier ones must not be applied twice.
    cluster.master.machine.write_checkpoint().await;
    cluster.create_table("t", &["h", "p"]).await;
    let (regions, index) = (cluster.regions().await, cluster.status().await.catalog_index);
    copy_dir(cluster.directory.path(), copy.path()).await;

    let master = start(copy.path(), |_| {}).await.unwrap();
    let mut cluster = Cluster { client: client(&master), master, ..cluster };
    assert_eq!(cluster.regions().await, regions);
    assert!(cluster.status().await.catalog_index >= index);
    assert_eq!(cluster.describe("t").await.unwrap().state, "enabled");
    // An id that was handed out is not handed out again.
    cluster.add_server(4).await;
    cluster.end().await;
}

#[tokio::test]
async fn a_create_that_servers_refuse_is_undone() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("other", &[]).await;
    cluster.set_mood(&Mood::Refusing);
    let (mut other, request) = (cluster.client.clone(), cluster.create("t", &[]));
    let creating = tokio::spawn(async move { refusal(other.create_table(request)).await });
    // The drop that undoes it must succeed.
    let is_dropped = |reply: &v1::TableReply| reply.state == "dropping";
    eventually("undoing the create", async || cluster.describe("t").await.ok().filter(is_dropped)).await;
    cluster.set_mood(&Mood::Willing);
    assert_eq!(creating.await.unwrap(), Error::Unsupported { feature: "this schema".into() });
    assert!(matches!(cluster.describe("t").await, Err(Error::NotFound { .. })));
    cluster.end().await;
}

#[tokio::test]
async fn orders_follow_the_leader() {
    let mut cluster = Cluster::with_servers().await;
    let moods = [(1, Mood::Follows(3)), (2, Mood::Follows(3)), (3, Mood::Willing)];
    *cluster.ordered.mood.lock() = moods.into_iter().collect();
    cluster.create_table("t", &["h", "p"]).await;
    assert!(cluster.ordered.tables.lock().iter().all(|(server, _)| *server == 3));
    let located = cluster.locate("").await;
    assert!(located.groups.iter().all(|group| group.leader == 3));
    cluster.end().await;
}

#[tokio::test]
async fn reported_splits_change_the_map_and_outdated_reports_do_not() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &[]).await;
    let parent = cluster.regions().await[0].clone();
    let daughter = |region, start: &'static str, end: &'static str| v1::RegionDescriptor {
        region,
        start: Bytes::from_static(start.as_bytes()),
        end: Bytes::from_static(end.as_bytes()),
        epoch: 2,
        ..parent.clone()
    };
    cluster.report(2, 5, vec![daughter(1, "", "k"), daughter(2, "k", "")]).await;
    cluster.report(1, 4, vec![parent.clone()]).await;
    let regions = cluster.region_infos().await;
    let shown: Vec<_> = regions.iter().map(|info| (info.descriptor.as_ref().unwrap().region, info.bytes)).collect();
    assert_eq!(shown, [(1, 7), (2, 7)]);
    let index = cluster.status().await.catalog_index;
    cluster.report(2, 5, vec![daughter(1, "", "k"), daughter(2, "k", "")]).await;
    assert_eq!(cluster.status().await.catalog_index, index, "a report without news records nothing");
    assert_eq!(cluster.locate("z").await.groups[0].leader, 2);
    cluster.end().await;
}

#[tokio::test]
async fn a_requested_split_is_in_the_map_when_the_call_returns() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &[]).await;
    let region = cluster.regions().await[0].region;
    let request = v1::SplitRegionRequest { hello: cluster.hello(0), region, at: Bytes::new() };
    cluster.client.split_region(request.clone()).await.unwrap();
    let regions: Vec<_> = cluster.regions().await.iter().map(|region| region.region).collect();
    assert_eq!(regions, [500, 501]);
    assert!(matches!(refusal(cluster.client.split_region(request)).await, Error::NotFound { .. }));
    let merge = |region, other| v1::MergeRegionsRequest { hello: cluster.hello(0), region, other };
    let (twice, unknown, both) = (merge(500, 500), merge(500, 7), merge(501, 500));
    assert!(matches!(refusal(cluster.client.merge_regions(twice)).await, Error::Invalid { .. }));
    assert!(matches!(refusal(cluster.client.merge_regions(unknown)).await, Error::NotFound { .. }));
    cluster.client.merge_regions(both.clone()).await.unwrap();
    let regions: Vec<_> = cluster.regions().await.iter().map(|region| region.region).collect();
    assert_eq!(regions, [600]);
    assert!(matches!(refusal(cluster.client.merge_regions(both)).await, Error::NotFound { .. }));
    cluster.end().await;
}

#[tokio::test]
async fn the_meta_table_is_scanned_like_a_table() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &["a\u{1}", "k"]).await;
    let scan = v1::Scan { reverse: true, limit: 1, offset: 1, ..v1::Scan::default() };
    let call = v1::ScanCall { hello: cluster.hello(0), header: None, body: Some(scan) };
    let mut blocks = cluster.client.scan_meta(call).await.unwrap().into_inner();
    let block = blocks.message().await.unwrap().unwrap();
    assert!(block.done && block.row_count == 1);
    let row = PackedRows::new(block.rows).next().unwrap().unwrap();
    let region = cluster.regions().await[1].region;
    assert_eq!(row.row.as_bytes(), format!("t,a\\x01,{region}").as_bytes());
    let cells: Vec<_> = row.cells.iter().map(|cell| cell.qualifier.to_vec()).collect();
    assert_eq!(cells.concat(), b"epochgroupleaderregionserversstartstoptable");
    let projection = Some(v1::Projection { filter: "exists(info:table)".into(), ..v1::Projection::default() });
    let filtered = Some(v1::Scan { projection, ..v1::Scan::default() });
    let call = v1::ScanCall { hello: cluster.hello(0), header: None, body: filtered };
    assert!(
        matches!(refusal(cluster.client.scan_meta(call)).await, Error::Invalid(_)),
        "filters are not evaluated here"
    );
    assert_eq!(cluster.describe("meta").await.unwrap().schema.unwrap().table, 0);
    cluster.end().await;
}

#[tokio::test]
async fn callers_of_another_cluster_are_refused() {
    let mut cluster = Cluster::new().await;
    let stranger = Some(hello::ours(Some(ClusterId([9; 16])), ServerId(0), ServerId(1), 1));
    let request = v1::ClusterRequest { hello: stranger.clone() };
    assert!(matches!(refusal(cluster.client.status(request)).await, Error::WrongCluster { .. }));
    let request = v1::RegisterRequest { hello: stranger, address: "127.0.0.1:1".into(), ..Default::default() };
    assert!(matches!(refusal(cluster.client.register(request)).await, Error::WrongCluster { .. }));
    let request = v1::ClusterRequest { hello: None };
    assert!(matches!(refusal(cluster.client.status(request)).await, Error::Invalid(_)));
    // A client that does not know the cluster yet calls `identify` first.
    let known = cluster.client.identify(hello::ours(None, ServerId(0), ServerId(0), 1)).await.unwrap().into_inner();
    assert_eq!(known.cluster_id, cluster.master.cluster_id().0[..]);
    // A server that this catalog does not know.
    let request = cluster.report_of(9);
    assert!(matches!(refusal(cluster.client.report(request)).await, Error::NotFound { .. }));
    cluster.end().await;
}

#[tokio::test]
async fn what_a_server_does_not_say_of_its_disk_is_not_known() {
    let mut cluster = Cluster::with_servers().await;
    cluster.report(1, 1, Vec::new()).await;
    let (store_bytes, disk_free_bytes) = (Some(5), Some(0));
    let report = v1::ReportRequest { store_bytes, disk_free_bytes, ..cluster.report_of(2) };
    cluster.client.report(report).await.unwrap();
    let listed = cluster.servers().await;
    let said = |at: usize| (listed[at].store_bytes, listed[at].disk_free_bytes);
    assert_eq!((said(0), said(1)), ((None, None), (store_bytes, disk_free_bytes)));
    cluster.end().await;
}

#[tokio::test]
async fn servers_get_one_page_key_which_survives_a_restart() {
    let mut cluster = Cluster::with_servers().await;
    let keys = cluster.report(1, 1, Vec::new()).await.page_keys;
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].id, keys[0].secret.len()), (1, 32));
    assert_eq!(cluster.report(2, 1, Vec::new()).await.page_keys, keys, "every server has the same");
    let mut cluster = cluster.restarted().await;
    assert_eq!(cluster.report(3, 1, Vec::new()).await.page_keys, keys);
    cluster.end().await;
}
