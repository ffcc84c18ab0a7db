//! Builds of two feature levels in one cluster of real processes: a rolling restart under load, and what is refused.
//!
//! `--feature-level` has a process behave as the next build: it says that level, and brings the cluster there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use terrane_client::{Get, Put, Table};

use crate::harness::{COMMAND_MAX, Client, Cluster, Role, eventually, free_ports, server_arguments, start};

const AS_NEXT_BUILD: [&str; 2] = ["--feature-level", "2"];

/// The level of the cluster, and what holds back the next one.
fn level(client: &Client) -> (u64, Vec<String>) {
    let status = client.json(&["status"]);
    let waits = status["level_waits_for"].as_array().expect("a list").iter();
    let level = status["feature_level"].as_u64().expect("a number");
    (level, waits.map(|why| why.as_str().expect("a text").to_owned()).collect())
}

/// Stops a process as a supervisor does, and starts it as the next build.
fn upgrade(role: &mut Role) {
    role.stop().expect("it stops");
    role.arguments.extend(AS_NEXT_BUILD.map(str::to_owned));
    role.start().expect("it starts");
}

/// Why a stopped process does not start as the old build.
fn refused_as_old_build(arguments: &[String]) -> String {
    let kept = arguments.strip_suffix(&AS_NEXT_BUILD.map(str::to_owned)).unwrap_or(arguments);
    let Err(ended) = start(kept) else { panic!("{arguments:?} started") };
    ended.stderr
}

/// A region and the server that it is to move to.
fn region_and_target(cluster: &Cluster) -> (String, String) {
    let region: &Value = &cluster.client.json_lines(&["admin", "regions", "t"])[0];
    let target = cluster.addresses.iter().find(|address| region["leader"] != **address).expect("another server");
    (region["region"].to_string(), target.clone())
}

/// Writes rows and reads them back until told to stop; returns how many. No call may fail.
async fn load(table: Table, stop: Arc<AtomicBool>) -> usize {
    let mut rows = 0;
    while !stop.load(Ordering::Relaxed) {
        let row = format!("row-{rows:06}");
        table.put(Put::new(row.clone()).set("f", "q", "v")).await.unwrap_or_else(|error| panic!("put {row}: {error}"));
        let found = table.get(Get::new(row.clone())).await.unwrap_or_else(|error| panic!("get {row}: {error}"));
        assert!(found.is_some(), "{row} is there");
        rows += 1;
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_build_is_rolled_out_under_load() {
    let mut cluster = Cluster::start_everywhere_with("lsm", &[]);
    cluster.client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "row-0001", "row-0005"]);
    let client = terrane_client::Client::connect(&cluster.client.masters).await.expect("a client");
    let table = client.table("t").await.expect("the table");
    let stop = Arc::new(AtomicBool::new(false));
    let loading = tokio::spawn(load(table, Arc::clone(&stop)));
    assert_eq!(level(&cluster.client), (1, Vec::new()));

    upgrade(&mut cluster.masters[0]);
    for index in 0..3 {
        cluster.client.wait_until_well();
        let (present, waits) = level(&cluster.client);
        assert_eq!((present, waits.len()), (1, 3 - index), "{waits:?}");
        assert!(waits.iter().all(|why| why.contains("has a build of level 1")), "{waits:?}");
        upgrade(&mut cluster.servers[index]);
    }
    cluster.client.wait_until_well();
    eventually(COMMAND_MAX, "the level rises", || match level(&cluster.client) {
        (2, _) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    stop.store(true, Ordering::Relaxed);
    let rows = loading.await.expect("no call fails");
    assert_eq!(cluster.client.json(&["count", "t"])["count"], rows);
    let (region, target) = region_and_target(&cluster);
    cluster.client.succeed(&["admin", "move", &region, "--to", &target]);
    assert_eq!(cluster.client.json(&["count", "t"])["count"], rows);
    old_builds_are_refused(&mut cluster);
}

fn old_builds_are_refused(cluster: &mut Cluster) {
    // One with an empty directory, by the master.
    let [listen, console] = free_ports();
    let fresh = server_arguments(&cluster.data.path().join("fresh"), listen, console, &cluster.client.masters, "lsm");
    let refused = refused_as_old_build(&fresh);
    let says = "refused this server: its build has feature level 1, and the cluster is at level 2";
    assert!(refused.contains(says), "{refused}");
    // Those of the cluster, by their directories.
    let processes: &mut terrane_lab::Cluster = cluster;
    for role in [&mut processes.servers[0], &mut processes.masters[0]] {
        role.stop().expect("it stops");
        let refused = refused_as_old_build(&role.arguments);
        let says = "cannot be used by this build: its build has feature level 1, and the cluster is at level 2";
        assert!(refused.contains(says), "{refused}");
        role.start().expect("it starts");
    }
    cluster.client.wait_until_well();
    assert_eq!(level(&cluster.client), (2, Vec::new()));
}

#[test]
fn a_new_cluster_begins_at_the_level_of_its_masters() {
    let mut cluster = Cluster::start("memory", &[]);
    assert_eq!(level(&cluster.client), (1, Vec::new()));
    let processes = cluster.client.json(&["status"])["processes"].clone();
    let builds = processes.as_array().expect("a list").iter();
    assert!(builds.clone().all(|process| process["level"] == 1 && process["protocol"] == "1"), "{processes}");
    assert_eq!(builds.count(), 4);
    cluster.kill_all();
}
