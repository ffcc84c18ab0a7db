//! Servers with a reason to lead nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use terrane_raft::{Abstention, MembersError, ProposeError, Weight};
use terrane_types::GroupId;

use crate::support::{Cluster, GROUP, PATIENCE, eventually, replica};

fn reason(weight: Weight) -> Option<Abstention> {
    Some(Abstention { reason: "a test says so".to_owned(), weight })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_firm_reason_hands_everything_over_and_leads_nothing_until_it_is_gone() {
    let mut cluster = Cluster::start(3).await;
    let groups = [GROUP, GroupId(2), GroupId(3)];
    for group in groups {
        cluster.create(group).await;
        cluster.propose(group, b"before").await;
    }
    let first = cluster.leader(GROUP).await;
    let abstaining = cluster.host(first);
    abstaining.set_abstains("test", reason(Weight::Firm));
    assert_eq!(abstaining.until_handed_over(PATIENCE).await, vec![], "every group has another leader");
    for group in groups {
        cluster.propose(group, b"after").await;
        assert_ne!(cluster.leader(group).await, first);
    }

    // It refuses a leadership that is handed over, and when the present leader goes the third member follows.
    let second = cluster.leader(GROUP).await;
    cluster.group(second, GROUP).transfer_leader(replica(GROUP, first)).await.ok();
    cluster.propose(GROUP, b"refused").await;
    assert_ne!(cluster.leader(GROUP).await, first);
    // The third can lead only if it lacks nothing that the first one has.
    cluster.all_have(GROUP, &[b"before".to_vec(), b"after".to_vec(), b"refused".to_vec()]).await;
    let second = cluster.leader(GROUP).await;
    cluster.stop(second).await;
    cluster.propose(GROUP, b"another left").await;
    assert_ne!(cluster.leader(GROUP).await, first);

    // Without its reason it leads again.
    abstaining.set_abstains("test", None);
    cluster.hand_over(GROUP, first).await;
    cluster.propose(GROUP, b"again").await;
    drop(abstaining);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_successor_refuses_leads_again() {
    let mut cluster = Cluster::with_group(2).await;
    cluster.propose(GROUP, b"before").await;
    let first = cluster.leader(GROUP).await;
    let second = 3 - first;
    cluster.host(second).set_abstains("test", reason(Weight::Firm));
    // The leader does not know yet how weighty the reason is.
    cluster.order_handover(GROUP, first, second).await;
    cluster.propose(GROUP, b"after").await;
    assert_eq!(cluster.leader(GROUP).await, first);
    let refused = cluster.group(first, GROUP).transfer_leader(replica(GROUP, second)).await;
    assert!(matches!(refused, Err(MembersError::Later { .. })), "it refused a moment ago: {refused:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_can_be_removed_although_its_successor_would_rather_not_lead() {
    let mut cluster = Cluster::with_group(2).await;
    cluster.propose(GROUP, b"before").await;
    let first = cluster.leader(GROUP).await;
    let second = 3 - first;
    cluster.host(second).set_abstains("test", reason(Weight::Soft));
    cluster.hand_over(GROUP, second).await;
    for n in 0..20 {
        cluster.propose(GROUP, &[n]).await;
        assert_eq!(cluster.leader(GROUP).await, second, "it does not hand back");
    }
    cluster.group(second, GROUP).change_voters(None, Some(replica(GROUP, first))).await.unwrap();
    assert_eq!(cluster.group(second, GROUP).status().voters, BTreeSet::from([replica(GROUP, second)]));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_members_would_rather_not_lead_one_of_them_does() {
    let mut cluster = Cluster::with_group(3).await;
    cluster.propose(GROUP, b"before").await;
    for server in 1..=3 {
        cluster.host(server).set_abstains("test", reason(Weight::Soft));
    }
    let first = cluster.leader(GROUP).await;
    cluster.stop(first).await;
    cluster.propose(GROUP, b"after").await;
    assert_ne!(cluster.leader(GROUP).await, first);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leaderships_of_one_server_go_to_several() {
    let mut cluster = Cluster::start(3).await;
    let groups: Vec<_> = (1..=4).map(GroupId).collect();
    for &group in &groups {
        cluster.create(group).await;
        cluster.propose(group, b"before").await;
    }
    // `create` starts every first election at server 1.
    cluster.host(1).set_abstains("test", reason(Weight::Soft));
    eventually("server 1 leads nothing", || groups.iter().all(|group| !cluster.group(1, *group).status().is_leader))
        .await;
    let mut leaders = BTreeSet::new();
    for &group in &groups {
        cluster.propose(group, b"after").await;
        leaders.insert(cluster.leader(group).await);
    }
    assert_eq!(leaders, BTreeSet::from([2, 3]));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn proposals_that_wait_during_a_handover_are_redirected_to_the_new_leader_by_name() {
    let mut cluster = Cluster::with_group(3).await;
    cluster.propose(GROUP, b"before").await;
    let first = cluster.leader(GROUP).await;
    let began = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..32)
        .map(|_| {
            let (group, began) = (cluster.group(first, GROUP), began.clone());
            tokio::spawn(async move {
                let mut acknowledged = 0u64;
                loop {
                    match group.propose(b"write".to_vec()).await {
                        Ok(_) => acknowledged += 1,
                        Err(refused) => return (acknowledged, refused),
                    }
                    if acknowledged == 1 {
                        began.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    eventually("all write", || began.load(Ordering::SeqCst) == 32).await;
    cluster.host(first).set_abstains("test", reason(Weight::Firm));
    let mut acknowledged = 1;
    for writer in writers {
        let (writes, refused) = writer.await.unwrap();
        acknowledged += writes;
        let named = matches!(refused, ProposeError::NotLeader { leader: Some((leader, _)), .. } if leader != replica(GROUP, first));
        assert!(named, "refused with {refused:?}");
    }
    let second = cluster.leader(GROUP).await;
    cluster.group(second, GROUP).read_barrier().await.unwrap();
    assert_eq!(cluster.list(second, GROUP).len() as u64, acknowledged, "nothing is lost and nothing is there twice");
    cluster.stop_all().await;
}
