//! Members that lack entries which the log no longer has.

use terrane_env::fs;
use terrane_raft::LogConfig;

use crate::support::{Cluster, GROUP, eventually};

/// A log so small that a member that is away soon lacks entries.
const SMALL: LogConfig =
    LogConfig { segment_bytes: 1 << 20, cache_bytes: 1 << 20, limit_bytes: 8 << 20, purge_budget_bytes: 2 << 20 };
/// The size of an operation.
const LARGE: usize = 256 << 10;

fn operation(number: usize) -> Vec<u8> {
    [format!("{number:04}").into_bytes(), vec![7; LARGE]].concat()
}

/// Writes more than the log holds; returns all operations.
async fn outgrow(cluster: &Cluster, from: usize) -> Vec<Vec<u8>> {
    let operations: Vec<_> = (from..from + 48).map(operation).collect();
    for operation in &operations {
        cluster.propose(GROUP, operation).await;
    }
    operations
}

/// A cluster whose members all have one operation, and that operation.
async fn with_one_entry(log: LogConfig) -> (Cluster, Vec<Vec<u8>>) {
    let mut cluster = Cluster::start_with(3, log).await;
    cluster.allow_copies();
    cluster.create(GROUP).await;
    cluster.propose(GROUP, b"first").await;
    let expected = vec![b"first".to_vec()];
    cluster.all_have(GROUP, &expected).await;
    (cluster, expected)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_continue_without_a_member_and_it_gets_a_copy_when_it_is_back() {
    let (mut cluster, mut expected) = with_one_entry(SMALL).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    expected.extend(outgrow(&cluster, 0).await);
    cluster.run(away).await;
    cluster.all_have(GROUP, &expected).await;
    assert!(cluster.files_sent() > 0, "the log had everything, so nothing was shown");
    // It follows from the log again, and a restart begins from the copy.
    cluster.write(&mut expected, b"after").await;
    cluster.all_have(GROUP, &expected).await;
    cluster.restart_all().await;
    cluster.write(&mut expected, b"restarted").await;
    cluster.all_have(GROUP, &expected).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_gets_a_copy_while_writes_continue() {
    let (mut cluster, mut expected) = with_one_entry(SMALL).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    expected.extend(outgrow(&cluster, 0).await);
    cluster.run(away).await;
    expected.extend(outgrow(&cluster, 100).await);
    cluster.all_have(GROUP, &expected).await;
    let status = cluster.group(away, GROUP).status();
    eventually("it has applied everything", || {
        let leader = (1..=3).map(|server| cluster.group(server, GROUP).status()).find(|status| status.is_leader);
        leader.is_some_and(|leader| cluster.group(away, GROUP).status().applied == leader.applied)
    })
    .await;
    assert!(status.failed.is_none());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_former_process_received_of_a_copy_goes_when_the_log_is_enough() {
    let (mut cluster, mut expected) =
        with_one_entry(LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() }).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let left = cluster.incoming_dir(away, GROUP);
    fs::create_dir_all(&left.join("7")).await.unwrap();
    fs::write_durable(&left.join("7").join("0000000000000001"), b"a part of a copy").await.unwrap();
    cluster.run(away).await;
    assert!(cluster.group(away, GROUP).may_receive_files());
    cluster.write(&mut expected, b"second").await;
    cluster.all_have(GROUP, &expected).await;
    eventually("what was received is removed", || !cluster.group(away, GROUP).may_receive_files()).await;
    assert!(!fs::exists(&left).await.unwrap());
    cluster.stop_all().await;
}

/// Its leader does not end, as it would if openraft heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_disk_is_older_than_what_it_acknowledged_gets_a_copy() {
    let (mut cluster, mut expected) =
        with_one_entry(LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() }).await;
    let leader = cluster.leader(GROUP).await;
    let term = cluster.group(leader, GROUP).status().term;
    let older = (1..=3).find(|server| *server != leader).unwrap();
    cluster.stop(older).await;
    let image = cluster.image(older);
    cluster.run(older).await;
    for number in 0..50 {
        cluster.write(&mut expected, operation(number)).await;
    }
    cluster.all_have(GROUP, &expected).await;
    cluster.stop(older).await;
    cluster.restore(older, image);
    cluster.run(older).await;
    cluster.all_have(GROUP, &expected).await;
    cluster.write(&mut expected, b"after").await;
    cluster.all_have(GROUP, &expected).await;
    let status = cluster.group(leader, GROUP).status();
    assert!(status.is_leader && status.term == term, "the leader ended, so nothing was shown: {status:?}");
    assert!(cluster.files_sent() > 0, "the log was enough, so nothing was shown");
    cluster.stop_all().await;
}
