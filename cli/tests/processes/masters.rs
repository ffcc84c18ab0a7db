//! Three masters and three servers as separate processes: masters are killed while clients read and write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrane_client::{Get, Put, Table};

use crate::harness::{
    COMMAND_MAX, Client, Cluster, Process, Role, errors_of, eventually, free_ports, local, started, terrane, text_of,
    words,
};

/// The master that leads, among those that run.
fn leader(cluster: &Cluster) -> usize {
    eventually(COMMAND_MAX, "a leading master", || {
        let leader = cluster.leading_master().map_err(|error| format!("{error:#}"))?;
        if cluster.masters[leader].process.is_some() { Ok(leader) } else { Err(format!("master {leader} is killed")) }
    })
}

/// Writes rows until told to stop; returns how many. No write may fail.
async fn write(table: Table, stop: Arc<AtomicBool>) -> usize {
    let mut rows = 0;
    while !stop.load(Ordering::Relaxed) {
        let row = format!("row-{rows:06}");
        table.put(Put::new(row.clone()).set("f", "q", "v")).await.unwrap_or_else(|error| panic!("put {row}: {error}"));
        rows += 1;
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn leading_masters_are_killed_while_a_client_writes_and_tables_are_created() {
    let mut cluster = Cluster::start_of(3, 3);
    cluster.client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "row-0001"]);
    let client = terrane_client::Client::connect(&cluster.client.masters).await.expect("a client");
    let table = client.table("t").await.expect("the table");
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(table.clone(), Arc::clone(&stop)));
    for round in 0..3 {
        let leader = leader(&cluster);
        cluster.masters[leader].kill();
        // A new client, during the election.
        cluster.client.succeed(&["scan", "t", "--limit", "1"]);
        cluster.client.succeed(&["table", "create", &format!("t{round}"), "--family", "f"]);
        cluster.start_all();
    }
    stop.store(true, Ordering::Relaxed);
    let rows = writing.await.expect("every put succeeds");
    assert_eq!(cluster.client.json(&["count", "t"])["count"], rows);
    assert_eq!(cluster.client.json_lines(&["table", "list"]).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_masters_finds_data_and_changes_nothing() {
    let mut cluster = Cluster::start_of(3, 3);
    cluster.client.succeed(&["table", "create", "t", "--family", "f"]);
    cluster.client.succeed(&["put", "t", "a", "f:q", "1"]);
    let leader = leader(&cluster);
    for other in (0..3).filter(|index| *index != leader) {
        cluster.masters[other].kill();
    }
    let client = terrane_client::Client::connect(&cluster.client.masters).await.expect("a new client");
    let row = client.table("t").await.expect("the table").get(Get::new("a")).await.expect("an answer");
    assert!(row.is_some());
    eventually(COMMAND_MAX, "the leader's resignation", || {
        let status = cluster.client.json(&["status"]);
        if status["masters"].to_string().contains("leader") { Err(status.to_string()) } else { Ok(()) }
    });
    let refused = cluster.client.fail(&["table", "create", "u", "--family", "f", "--timeout", "3s"], 1);
    assert!(refused.contains("does not lead"), "{refused}");
    cluster.start_all();
    cluster.client.succeed(&["table", "create", "u", "--family", "f"]);
}

#[test]
fn a_catalog_is_rebuilt_as_the_handbook_says_when_all_masters_are_lost() {
    let mut cluster = Cluster::start_of(3, 3);
    cluster.client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "m"]);
    cluster.client.succeed(&["put", "t", "a", "f:q", "1"]);
    cluster.client.succeed(&["put", "t", "z", "f:q", "2"]);
    cluster.masters.iter_mut().for_each(Role::kill);
    let out = cluster.data.path().join("rebuilt");
    let (servers, out) = (cluster.addresses.join(","), out.display().to_string());
    let peers = cluster.client.masters.clone();
    let rebuild =
        |servers: &str| terrane(&["tool", "rebuild-catalog", "--servers", servers, "--peers", &peers, "--out", &out]);
    let silent = errors_of(&rebuild("127.0.0.1:1"));
    assert!(silent.contains("the server at 127.0.0.1:1 does not answer"), "{silent}");
    let rebuilt = text_of(&rebuild(&servers), 0);
    assert!(rebuilt.contains("1 tables, 2 regions,") && rebuilt.contains(" 3 servers"), "{rebuilt}");
    for (index, address) in cluster.master_addresses.iter().enumerate() {
        let made = format!("{out}/{}", address.replace(':', "_"));
        assert!(rebuilt.contains(&format!("start the master at {address} with --data {made}")), "{rebuilt}");
        let lost = cluster.data.path().join(format!("master-{index}"));
        std::fs::remove_dir_all(&lost).expect("it is there");
        std::fs::rename(made, lost).expect("it was made");
    }
    cluster.start_all();
    let check = cluster.client.succeed(&["admin", "check"]);
    assert!(check.contains("no findings: 1 tables, 2 regions"), "{check}");
    assert_eq!(cluster.client.json(&["count", "t"])["count"], 2);
    cluster.client.succeed(&["table", "create", "u", "--family", "f"]);
    cluster.client.succeed(&["put", "u", "a", "f:q", "1"]);
}

/// A master that waits to be added, and its address.
struct Waiting {
    directory: std::path::PathBuf,
    address: String,
    console: String,
}

impl Waiting {
    fn all(directory: &std::path::Path, ports: &[u16]) -> Vec<Waiting> {
        let (listen, consoles) = ports.split_at(ports.len() / 2);
        let waiting = |(index, (port, console)): (usize, (&u16, &u16))| Waiting {
            directory: directory.join(format!("master-{index}")),
            address: local(*port),
            console: local(*console),
        };
        listen.iter().zip(consoles).enumerate().map(waiting).collect()
    }

    fn start(&self, rest: &str) -> Process {
        let data = self.directory.display();
        let line = format!("master --data {data} --listen {} --console {} {rest}", self.address, self.console);
        started(&words(&line))
    }
}

/// Starts the processes that wait, and changes the masters to this list, without asking.
fn set_masters(client: &Client, list: &[&Waiting], new: &[&Waiting], join: &str) -> Vec<Process> {
    let list: Vec<&str> = list.iter().map(|master| master.address.as_str()).collect();
    let list = list.join(",");
    std::thread::scope(|scope| {
        let started: Vec<_> =
            new.iter().map(|waiting| scope.spawn(|| waiting.start(&format!("--join {join}")))).collect();
        eventually(COMMAND_MAX, "processes that wait", || {
            let output = client.run(&["admin", "set-masters", &list]);
            if output.status.success() { Ok(()) } else { Err(errors_of(&output)) }
        });
        client.succeed(&["admin", "set-masters", &list, "--yes"]);
        started.into_iter().map(|started| started.join().expect("it is ready")).collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_master_becomes_three_one_is_replaced_and_one_is_left_while_a_client_writes() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports: [u16; 10] = free_ports();
    let masters = Waiting::all(directory.path(), &ports[..8]);
    let first = masters[0].start("--replication 1");
    let client = Client { masters: masters[0].address.clone() };
    let line = format!(
        "server --data {} --listen {} --console {} --masters {}",
        directory.path().join("server").display(),
        local(ports[8]),
        local(ports[9]),
        client.masters
    );
    let _server = started(&words(&line));
    client.wait_until_well();
    client.succeed(&["table", "create", "t", "--family", "f"]);
    let writer = terrane_client::Client::connect(&client.masters).await.expect("a client");
    let table = writer.table("t").await.expect("the table");
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(table, Arc::clone(&stop)));

    let [a, b, c, d] = &masters[..] else { panic!("four") };
    let _added = set_masters(&client, &[a, b, c], &[b, c], &a.address);
    assert_eq!(client.json_lines(&["admin", "masters"]).len(), 3);
    // The one that leads, and that the server and the client were told.
    let client = Client { masters: c.address.clone() };
    let _new = set_masters(&client, &[b, c, d], &[d], &format!("{},{}", a.address, b.address));
    let ended = first.ended(COMMAND_MAX).expect("it ends");
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("this master was removed from the cluster"), "{ended:?}");
    client.succeed(&["table", "create", "u", "--family", "f"]);
    set_masters(&client, &[c], &[], "");
    eventually(COMMAND_MAX, "one master", || {
        let masters = client.json_lines(&["admin", "masters"]);
        if masters.len() == 1 && masters[0]["state"] == "leader" { Ok(()) } else { Err(format!("{masters:?}")) }
    });
    client.wait_until_well();
    client.succeed(&["table", "create", "v", "--family", "f"]);
    stop.store(true, Ordering::Relaxed);
    let rows = writing.await.expect("every put succeeds");
    assert_eq!(client.json(&["count", "t"])["count"], rows);
    let even = client.fail(&["admin", "set-masters", &format!("{},{}", c.address, b.address)], 1);
    assert!(even.contains("an even number tolerates no more failures"), "{even}");
}

#[test]
fn lists_that_cannot_work_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().display().to_string();
    let start = |peers: &str| terrane(&["master", "--data", &data, "--listen", "127.0.0.1:9", "--peers", peers]);
    let even = errors_of(&start("127.0.0.1:9,127.0.0.1:10"));
    assert!(even.contains("names 2 masters; use 1, 3 or 5: an even number tolerates no more failures"), "{even}");
    let without = errors_of(&start("127.0.0.1:10,127.0.0.1:11,127.0.0.1:12"));
    assert!(without.contains("does not name this master"), "{without}");
    let dev = errors_of(&terrane(&["dev", "--data", &data, "--masters", "2"]));
    assert!(dev.contains("--masters must be 1, 3 or 5, not 2"), "{dev}");
}
