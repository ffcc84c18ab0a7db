//! Reads at any member, and reads by a quorum round whatever the lease says.

use std::time::Duration;

use terrane_env::time::wall_ms;
use terrane_raft::ProposeError;

use crate::support::{Cluster, GROUP, ListGroup, eventually};

fn follower_of(leader: u64) -> u64 {
    if leader == 1 { 2 } else { 1 }
}

fn as_of(group: &ListGroup) -> u64 {
    group.stale_point().map_or(0, |point| point.as_of_ms)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_reports_up_to_when_it_is_complete_and_that_time_advances_without_entries() {
    let mut cluster = Cluster::with_group(3).await;
    let leader = cluster.leader(GROUP).await;
    let follower = cluster.group(follower_of(leader), GROUP);
    let mut written = Vec::new();
    for n in 0..20u8 {
        cluster.propose(GROUP, &[n]).await;
        written.push(vec![n]);
        // It shows everything that its time promises.
        let before = as_of(&follower);
        assert!(before <= wall_ms() + 1, "the bound is in the past");
    }
    let acknowledged = wall_ms();
    eventually("the follower is complete up to the last acknowledgement", || as_of(&follower) > acknowledged).await;
    assert_eq!(cluster.list(follower_of(leader), GROUP), written, "so it shows everything");
    // Some time later it is the same, and nothing was written for it.
    let index = follower.stale_point().unwrap().index;
    let later = wall_ms();
    eventually("the bound of an idle group goes on", || as_of(&follower) > later).await;
    assert_eq!(follower.stale_point().unwrap().index, index);
    // The leader answers for the moment of its last heartbeat, without a round.
    let now = wall_ms();
    eventually("the leader has asked the others since", || as_of(&cluster.group(leader, GROUP)) >= now).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_cut_off_answers_and_reports_since_when() {
    let mut cluster = Cluster::with_group(3).await;
    let leader = cluster.leader(GROUP).await;
    cluster.propose(GROUP, b"seen").await;
    let last = follower_of(leader);
    cluster.all_have(GROUP, &[b"seen".to_vec()]).await;
    for server in (1..=3).filter(|server| *server != last) {
        cluster.stop(server).await;
    }
    let alone = wall_ms();
    let group = cluster.group(last, GROUP);
    group.read_barrier().await.unwrap_err();
    let point = group.stale_point().unwrap();
    assert!(point.as_of_ms > 0 && point.as_of_ms <= alone, "{point:?}, alone since {alone}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(group.stale_point().unwrap(), point, "nothing makes it newer");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_has_applied_nothing_since_it_started_refuses() {
    let mut cluster = Cluster::with_group(3).await;
    cluster.propose(GROUP, b"seen").await;
    cluster.stop_all().await;
    cluster.run(1).await;
    let group = cluster.group(1, GROUP);
    assert_eq!(group.stale_point(), Err(ProposeError::NotReady));
    cluster.run(2).await;
    eventually("a quorum brings it up to date", || group.stale_point().is_ok()).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_leader_answers_a_strict_read() {
    let mut cluster = Cluster::with_group(3).await;
    let leader = cluster.leader(GROUP).await;
    cluster.propose(GROUP, b"seen").await;
    let point = cluster.group(leader, GROUP).strict_read_barrier().await.unwrap();
    assert!(point.index > 0);
    let refused = cluster.group(follower_of(leader), GROUP).strict_read_barrier().await.unwrap_err();
    assert!(matches!(refused, ProposeError::NotLeader { .. }), "{refused:?}");
    cluster.stop_all().await;
}
