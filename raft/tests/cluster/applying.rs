//! Members that have an entry and cannot apply it.

use std::time::Duration;

use terrane_raft::MembersError;
use terrane_types::GroupId;

use crate::support::{Cluster, GROUP, eventually, replica};

const OTHER: GroupId = GroupId(2);

async fn started(stuck_after: Option<Duration>) -> Cluster {
    let mut cluster = Cluster::start(3).await;
    cluster.stuck_after = stuck_after;
    cluster.restart_all().await;
    cluster.allow_copies();
    cluster.create(GROUP).await;
    cluster.propose(GROUP, b"first").await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_lacks_what_an_entry_needs_says_so_and_gets_a_copy() {
    let mut cluster = started(Some(Duration::from_millis(300))).await;
    let behind = cluster.follower().await;
    cluster.set_lacking(behind, true);
    cluster.propose(GROUP, b"files").await;
    cluster.propose(GROUP, b"after").await;
    eventually("it is stuck", || {
        let why = cluster.group(behind, GROUP).status().stuck;
        why.is_some_and(|why| why.contains("its files") && why.contains("asks for a copy"))
    })
    .await;
    cluster.all_have(GROUP, &[b"first".to_vec(), b"files".to_vec(), b"after".to_vec()]).await;
    assert!(cluster.files_sent() > 0);
    // Its log goes on after the copy, and so does applying.
    cluster.propose(GROUP, b"last").await;
    let expected = [b"first".to_vec(), b"files".to_vec(), b"after".to_vec(), b"last".to_vec()];
    cluster.all_have(GROUP, &expected).await;
    eventually("it gets on", || cluster.group(behind, GROUP).status().stuck.is_none()).await;
    cluster.restart_all().await;
    cluster.propose(GROUP, b"restarted").await;
    cluster.all_have(GROUP, &[&expected[..], &[b"restarted".to_vec()]].concat()).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_kept_for_what_a_member_has_not_applied_and_no_leadership_goes_there() {
    let mut cluster = started(None).await;
    cluster.create(OTHER).await;
    cluster.propose(OTHER, b"first").await;
    let behind = cluster.follower().await;
    cluster.set_lacking(behind, true);
    cluster.propose(GROUP, b"files").await;
    cluster.propose(OTHER, b"other").await;
    let leader = cluster.leader(GROUP).await;
    let at = cluster.group(leader, GROUP).status().last_index;
    for _ in 0..4 {
        cluster.propose(GROUP, b"after").await;
        cluster.propose(OTHER, b"other").await;
    }
    eventually("it has the log", || {
        let members = cluster.group(leader, GROUP).members();
        let member = members.iter().find(|member| member.replica == replica(GROUP, behind));
        member.is_some_and(|member| member.matched > at && member.applied < at)
    })
    .await;
    eventually("another group has purged as much", || {
        (1..=3).all(|server| cluster.group(server, OTHER).first_index() > at)
    })
    .await;
    for server in 1..=3 {
        assert!(cluster.group(server, GROUP).first_index() <= at, "server {server} has purged what is not applied");
    }
    let refused = cluster.group(leader, GROUP).transfer_leader(replica(GROUP, behind)).await;
    assert!(matches!(&refused, Err(MembersError::Later { what }) if what.contains("has not applied")), "{refused:?}");
    cluster.set_lacking(behind, false);
    eventually("the log is purged", || cluster.group(leader, GROUP).first_index() > at).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_apply_hands_over_to_one_that_can() {
    let mut cluster = started(Some(Duration::from_millis(300))).await;
    let leader = cluster.leader(GROUP).await;
    cluster.set_lacking(leader, true);
    let group = cluster.group(leader, GROUP);
    let proposed = tokio::spawn(async move { group.propose(b"files".to_vec()).await });
    eventually("another one leads", || {
        (1..=3).any(|server| server != leader && cluster.group(server, GROUP).status().is_leader)
    })
    .await;
    cluster.propose(GROUP, b"after").await;
    cluster.all_have(GROUP, &[b"first".to_vec(), b"files".to_vec(), b"after".to_vec()]).await;
    drop(proposed.await);
    cluster.stop_all().await;
}
