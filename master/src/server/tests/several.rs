//! Three masters in one process, and fake region servers.

use std::future::Future;

use terrane_proto::OUTDATED;
use terrane_types::IssueKind;

use super::*;

struct Masters {
    addresses: Vec<String>,
    /// `None`: killed.
    running: Vec<Option<Master>>,
    directories: tempfile::TempDir,
    ordered: Arc<Ordered>,
    stop: CancellationToken,
}

/// Addresses of ports that are free now, sorted.
pub(super) async fn free_addresses(count: usize) -> Vec<String> {
    let mut listeners = Vec::new();
    for _ in 0..count {
        listeners.push(terrane_env::net::listen("127.0.0.1:0").await.unwrap());
    }
    let mut addresses: Vec<String> = listeners.iter().map(|bound| bound.local_addr().unwrap().to_string()).collect();
    addresses.sort();
    addresses
}

fn config(directories: &tempfile::TempDir, addresses: &[String], index: usize) -> MasterConfig {
    MasterConfig {
        data_dir: directories.path().join(index.to_string()),
        listen: addresses[index].clone(),
        peers: addresses.to_vec(),
        ..MasterConfig::default()
    }
}

impl Masters {
    async fn found() -> Self {
        let (directories, addresses) = (tempfile::tempdir().unwrap(), free_addresses(3).await);
        let starts = (0..3).map(|index| Master::start(config(&directories, &addresses, index)));
        let started = futures::future::try_join_all(starts).await.unwrap();
        let running = started.into_iter().map(Some).collect();
        let (ordered, stop) = (Arc::default(), CancellationToken::new());
        Self { addresses, running, directories, ordered, stop }
    }

    async fn restart(&mut self, index: usize) {
        let config = config(&self.directories, &self.addresses, index);
        self.running[index] = Some(Master::start(config).await.unwrap());
    }

    /// Without handing over, and without an answer to anyone.
    async fn kill(&mut self, index: usize) {
        let master = self.running[index].take().unwrap();
        master.stop.cancel();
        master.stop_calls.cancel();
        master.host.shutdown().await;
        let Some(Running { serving, mut background, lock }) = master.running.lock().take() else { return };
        serving.abort();
        background.shutdown().await;
        drop(lock);
    }

    fn leaders(&self) -> Vec<usize> {
        (0..3).filter(|index| self.running[*index].as_ref().is_some_and(Master::leads)).collect()
    }

    async fn leader(&self) -> usize {
        eventually("an election", async || self.leaders().first().copied()).await
    }

    fn follower(&self) -> usize {
        (0..3).find(|index| self.running[*index].as_ref().is_some_and(|master| !master.leads())).expect("one follows")
    }

    fn hello(&self, own: u64) -> Option<v1::Hello> {
        let cluster = self.running.iter().flatten().next().expect("one runs").cluster_id();
        Some(hello::ours(Some(cluster), ServerId(0), ServerId(own), 1))
    }

    fn client(&self, index: usize) -> MasterClient<Channel> {
        MasterClient::new(terrane_env::net::channel(&self.addresses[index]).unwrap())
    }

    /// Asks the masters that run, until one does not refuse.
    async fn at_leader<T, R>(&self, call: impl Fn(MasterClient<Channel>) -> R) -> T
    where
        R: Future<Output = Result<Response<T>, Status>>,
    {
        eventually("a leader's answer", async || {
            for index in (0..3).filter(|index| self.running[*index].is_some()) {
                if let Ok(answer) = call(self.client(index)).await {
                    return Some(answer.into_inner());
                }
            }
            None
        })
        .await
    }

    async fn add_servers(&self) {
        for server in 1..=3 {
            let address = serve_fake(server, &self.ordered, &self.stop).await;
            let request = registration(address);
            let reply = self
                .at_leader(|mut client| {
                    let request = request.clone();
                    async move { client.register(request).await }
                })
                .await;
            assert_eq!((reply.server, reply.masters.len()), (server, 3));
            eventually("a live server", async || {
                self.report(server).await;
                let request = v1::ClusterRequest { hello: self.hello(0) };
                let listed = self.at_leader(|mut client| {
                    let request = request.clone();
                    async move { client.list_servers(request).await }
                });
                let servers = listed.await.servers;
                servers.iter().any(|known| known.server == server && known.state == "live").then_some(())
            })
            .await;
        }
    }

    async fn report(&self, server: u64) {
        for index in (0..3).filter(|index| self.running[*index].is_some()) {
            let request =
                v1::ReportRequest { hello: self.hello(server), server, boot: 1, ..v1::ReportRequest::default() };
            self.client(index).report(request).await.unwrap();
        }
    }

    fn create(&self, name: &str, request: u8) -> v1::CreateTableRequest {
        let families = vec![v1::FamilySchema { name: "f".into(), ..v1::FamilySchema::default() }];
        let schema = v1::TableSchema { name: name.into(), families, ..v1::TableSchema::default() };
        let request_id = Bytes::copy_from_slice(&[request; 16]);
        v1::CreateTableRequest { hello: self.hello(0), schema: Some(schema), request_id, ..Default::default() }
    }

    async fn created(&self, name: &str, request: u8) -> v1::TableReply {
        let create = self.create(name, request);
        self.at_leader(|mut client| {
            let create = create.clone();
            async move { client.create_table(create).await }
        })
        .await
    }

    async fn describe(&self, index: usize, name: &str) -> Result<Response<v1::TableReply>, Error> {
        let request = v1::DescribeTableRequest { hello: self.hello(0), name: name.into() };
        self.client(index).describe_table(request).await.map_err(|status| error::from_status(&status))
    }

    async fn status(&self, index: usize) -> v1::StatusReply {
        let request = v1::ClusterRequest { hello: self.hello(0) };
        self.client(index).status(request).await.unwrap().into_inner()
    }

    fn set_mood(&self, mood: &Mood) {
        *self.ordered.mood.lock() = (1..=3).map(|server| (server, mood.clone())).collect();
    }

    async fn end(self) {
        self.stop.cancel();
        futures::future::join_all(self.running.iter().flatten().map(Master::shutdown)).await;
    }
}

fn redirected(error: &Error) -> Option<&str> {
    match error {
        Error::NotLeader { group: GroupId::MASTER, address, .. } => address.as_deref(),
        other => panic!("not a redirect: {other}"),
    }
}

#[tokio::test]
async fn three_masters_found_one_cluster_and_one_of_them_leads() {
    let masters = Masters::found().await;
    masters.leader().await;
    let ids: BTreeSet<ClusterId> = masters.running.iter().flatten().map(Master::cluster_id).collect();
    assert_eq!((ids.len(), ids.first().unwrap().is_nil()), (1, false));
    for index in 0..3 {
        eventually("a status with one leader", async || {
            let mut states: Vec<String> =
                masters.status(index).await.masters.into_iter().map(|master| master.state).collect();
            states.sort();
            (states == ["follower", "follower", "leader"]).then_some(())
        })
        .await;
        assert_eq!(masters.running[index].as_ref().unwrap().ready(), Ok(()));
    }
    masters.end().await;
}

#[tokio::test]
async fn any_master_looks_up_what_was_just_changed_and_redirects_changes() {
    let masters = Masters::found().await;
    masters.add_servers().await;
    masters.leader().await;
    let follower = masters.follower();
    let refused = refusal(masters.client(follower).create_table(masters.create("t", 1))).await;
    assert!(redirected(&refused).is_some_and(|leader| masters.addresses.iter().any(|known| known == leader)));
    masters.created("t", 1).await;
    for index in 0..3 {
        let table = masters.describe(index, "t").await.unwrap();
        assert!(!table.metadata().contains_key(OUTDATED));
        assert_eq!(table.into_inner().state, "enabled");
        assert!(matches!(masters.describe(index, "u").await, Err(Error::NotFound { .. })));
    }
    masters.end().await;
}

#[tokio::test]
async fn the_next_leader_completes_what_the_killed_one_began() {
    let mut masters = Masters::found().await;
    let leader = masters.leader().await;
    masters.add_servers().await;
    masters.created("first", 1).await;
    masters.set_mood(&Mood::Away);
    let begun = within(masters.create("t", 2), Duration::from_millis(300));
    let unfinished = refusal(masters.client(leader).create_table(begun)).await;
    assert!(matches!(unfinished, Error::InProgress { .. }), "{unfinished}");

    masters.kill(leader).await;
    let follower = masters.follower();
    // New clients find their data all the time.
    masters.describe(follower, "first").await.unwrap();
    let next = masters.leader().await;
    assert_ne!(next, leader);
    masters.set_mood(&Mood::Willing);
    // The caller repeats its request; the table is created once.
    assert_eq!(masters.created("t", 2).await.state, "enabled");
    masters.created("u", 3).await;
    // Every master knows the servers that report, and a killed one catches up.
    masters.restart(leader).await;
    assert_eq!(masters.describe(leader, "u").await.unwrap().into_inner().state, "enabled");
    // A report holds for a second, and a busy machine may take longer between two calls.
    let tables = eventually("the servers are live", async || {
        for server in 1..=3 {
            masters.report(server).await;
        }
        let shown = masters.status(leader).await;
        shown.servers.iter().all(|server| server.state == "live").then_some((shown.servers.len(), shown.tables))
    })
    .await;
    assert_eq!(tables, (3, 3));
    masters.end().await;
}

#[tokio::test]
async fn a_minority_changes_nothing_and_says_what_it_knows() {
    let mut masters = Masters::found().await;
    let leader = masters.leader().await;
    masters.add_servers().await;
    masters.created("t", 1).await;
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    for index in others {
        masters.kill(index).await;
    }
    // The leader that is left no longer leads.
    eventually("the leader's resignation", async || masters.leaders().is_empty().then_some(())).await;
    let refused = refusal(masters.client(leader).create_table(masters.create("u", 2))).await;
    assert_eq!(redirected(&refused), None);
    let table = masters.describe(leader, "t").await.unwrap();
    assert!(table.metadata().contains_key(OUTDATED));
    let locate = v1::LocateRequest { hello: masters.hello(0), table: 1, ..v1::LocateRequest::default() };
    let located = masters.client(leader).locate(locate).await.unwrap();
    assert!(located.metadata().contains_key(OUTDATED));
    assert_eq!(located.into_inner().regions.len(), 1);
    // Another master may know it.
    assert_eq!(redirected(&masters.describe(leader, "u").await.unwrap_err()), None);
    let list = v1::ListTablesRequest { hello: masters.hello(0), ..v1::ListTablesRequest::default() };
    assert_eq!(redirected(&refusal(masters.client(leader).list_tables(list)).await), None);
    let status = masters.status(leader).await;
    assert!(status.issues.iter().any(|issue| issue.kind == IssueKind::NoLeadingMaster.name()), "{:?}", status.issues);
    masters.end().await;
}

#[tokio::test]
async fn a_leader_that_stops_hands_over() {
    let mut masters = Masters::found().await;
    let leader = masters.leader().await;
    let stopping = masters.running[leader].take().unwrap();
    stopping.shutdown().await;
    assert_ne!(masters.leader().await, leader);
    masters.end().await;
}

#[tokio::test]
async fn the_recorded_masters_count_whatever_a_start_says() {
    let mut masters = Masters::found().await;
    let leader = masters.leader().await;
    let follower = masters.follower();
    masters.kill(follower).await;
    let mut other = config(&masters.directories, &masters.addresses, follower);
    other.peers.pop();
    other.peers.push("127.0.0.1:1".into());
    masters.running[follower] = Some(Master::start(other).await.unwrap());
    assert_eq!(masters.status(follower).await.masters[leader].address, masters.addresses[leader]);
    masters.kill(follower).await;
    let mut none = config(&masters.directories, &masters.addresses, follower);
    none.peers.clear();
    masters.running[follower] = Some(Master::start(none).await.unwrap());
    assert_eq!(masters.status(follower).await.masters[leader].address, masters.addresses[leader]);
    masters.end().await;
}

#[tokio::test]
async fn a_master_that_lost_its_directory_takes_its_place_as_another_replica() {
    let mut masters = Masters::found().await;
    masters.add_servers().await;
    masters.created("t", 1).await;
    let leader = masters.leader().await;
    masters.kill(leader).await;
    let lost = masters.directories.path().join("lost");
    let directory = masters.directories.path().join(leader.to_string());
    fs::rename(&directory, &lost).await.unwrap();
    masters.restart(leader).await;
    eventually("the new replica votes", async || {
        let state = crate::masters::peer_calls::state(&masters.running[leader].as_ref().unwrap().context);
        let numbers: Vec<u64> = state.members;
        let is_replaced = !numbers.contains(&(leader as u64 + 1)) && numbers.len() == 3;
        let votes = masters.running[leader].as_ref().unwrap().context.journal.group_status().voters.len() == 3;
        (is_replaced && votes).then_some(())
    })
    .await;
    assert_eq!(masters.describe(leader, "t").await.unwrap().into_inner().state, "enabled");
    // It counts: without another master there is still a majority.
    let other = (0..3).find(|index| *index != leader).unwrap();
    masters.kill(other).await;
    masters.created("u", 2).await;
    masters.restart(other).await;
    // The lost directory came back: it must not run as a master again.
    masters.kill(leader).await;
    let old = MasterConfig { data_dir: lost, ..config(&masters.directories, &masters.addresses, leader) };
    let refused = Master::start(old).await.err().unwrap();
    assert!(matches!(refused, StartError::Replaced { .. }), "{refused}");
    masters.restart(leader).await;
    assert_eq!(masters.describe(leader, "u").await.unwrap().into_inner().state, "enabled");
    masters.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_masters_begin_with_a_rebuilt_catalog() {
    let (directories, addresses) = (tempfile::tempdir().unwrap(), free_addresses(3).await);
    let mut lost = crate::catalog::Catalog::default();
    for edit in [format!("bootstrap peers={}", addresses.join(",")), "add-server a:1".to_owned()] {
        crate::catalog::scripts::must_apply(&mut lost, &edit);
    }
    let made = crate::masters::rebuild::write(&lost, &addresses, directories.path()).await.unwrap();
    let again = crate::masters::rebuild::write(&lost, &addresses, directories.path()).await;
    assert!(again.is_err_and(|what| what.contains("exists")));
    for (index, (_, directory)) in made.iter().enumerate() {
        terrane_env::fs::rename(directory, &directories.path().join(index.to_string())).await.unwrap();
    }
    let starts = (0..3).map(|index| Master::start(config(&directories, &addresses, index)));
    let running: Vec<Master> = futures::future::try_join_all(starts).await.unwrap();
    assert!(running.iter().all(|master| master.cluster_id() == lost.cluster()));
    for master in &running {
        eventually("the catalog", async || {
            master.context.journal.read(|catalog| (catalog.servers() == lost.servers()).then_some(()))
        })
        .await;
    }
    for master in &running {
        master.shutdown().await;
    }
}
