//! Region servers as separate processes without a running master: they restart without it and serve acknowledged data.

use std::time::Duration;

use terrane_client::{Client, Get, Put, Table};

use crate::harness::{COMMAND_MAX, Cluster, eventually, free_ports, local, write_file};

const ROWS: [&str; 4] = ["a", "f", "m", "t"];

/// A client that has looked up everything before the master is killed.
async fn warm(cluster: &Cluster) -> Table {
    cluster.client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "c", "h", "q"]);
    let client =
        Client::builder().masters(&cluster.client.masters).timeout(COMMAND_MAX).build().await.expect("a client");
    let table = client.table("t").await.expect("the table");
    put_all(&table, "first").await;
    table
}

async fn put_all(table: &Table, value: &str) {
    for row in ROWS {
        table
            .put(Put::new(row).set("f", "q", value))
            .await
            .unwrap_or_else(|error| panic!("put {row} {value}: {error}"));
    }
}

async fn assert_all(table: &Table, value: &str) {
    for row in ROWS {
        let found = table.get(Get::new(row)).await.unwrap_or_else(|error| panic!("get {row} {value}: {error}"));
        let found = found.expect("the row is there");
        assert_eq!(found.value("f", "q").map(|bytes| bytes.to_vec()), Some(value.as_bytes().to_vec()), "{row}");
    }
}

/// Changes the port of a stopped server.
fn move_server(cluster: &mut Cluster, index: usize) {
    let [port] = free_ports();
    let arguments = &mut cluster.servers[index].arguments;
    let at = arguments.iter().position(|argument| argument == "--listen").expect("a server listens") + 1;
    arguments[at] = local(port);
}

#[tokio::test]
async fn servers_that_restart_without_a_master_serve_a_client_that_knows_the_map() {
    let mut cluster = Cluster::start("lsm", &[]);
    let table = warm(&cluster).await;
    cluster.kill_master();
    cluster.kill_server(0);
    cluster.kill_server(1);
    cluster.start_server(0);
    cluster.start_server(1);
    assert_all(&table, "first").await;
    put_all(&table, "second").await;

    // All at once, and one at another address, which its peers learn from the server itself.
    for index in 0..3 {
        cluster.kill_server(index);
    }
    move_server(&mut cluster, 2);
    for index in 0..3 {
        cluster.start_server(index);
    }
    assert_all(&table, "second").await;
    // Now there is no quorum without the server that moved.
    cluster.kill_server(0);
    put_all(&table, "third").await;
    assert_all(&table, "third").await;
    cluster.start_server(0);

    // The restarted master finds all servers and gives them region ids for splits.
    cluster.start_master();
    cluster.client.wait_until_well();
    let region = cluster.client.json_lines(&["admin", "regions", "t"])[0]["region"].to_string();
    cluster.client.succeed(&["admin", "split", &region, "--at", "b"]);
    assert_eq!(cluster.client.regions("t"), 5);
    assert_all(&table, "third").await;
}

#[tokio::test]
async fn a_server_exits_with_the_reason_when_a_master_of_another_cluster_responds() {
    let mut cluster = Cluster::start("lsm", &[]);
    let _table = warm(&cluster).await;
    cluster.kill_master();
    cluster.kill_server(0);
    cluster.start_server(0);
    std::fs::remove_dir_all(cluster.data.path().join("master-0")).expect("removed");
    cluster.start_master();
    let directory = cluster.server_directory(0).display().to_string();
    let server = cluster.servers[0].process.as_ref().expect("it was started");
    eventually(COMMAND_MAX, "the server says why it ends", || {
        let errors = server.messages();
        let says =
            errors.contains("cannot continue") && errors.contains(&directory) && errors.contains("belongs to cluster");
        if says { Ok(()) } else { Err(errors) }
    });
}

#[tokio::test]
async fn damaged_addresses_are_learnt_again() {
    let mut cluster = Cluster::start("lsm", &[]);
    let table = warm(&cluster).await;
    cluster.kill_master();
    cluster.kill_server(0);
    write_file(&cluster.server_directory(0).join("addresses"), b"terrane addresses 1\nserver 2 127.0.");
    cluster.start_server(0);
    cluster.kill_server(1);
    assert_all(&table, "first").await;
    // The other servers must have found each other.
    tokio::time::timeout(Duration::from_secs(90), put_all(&table, "second")).await.expect("a quorum");
}
