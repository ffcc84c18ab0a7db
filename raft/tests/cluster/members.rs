//! Members join, are replaced and leave, while the group serves.

use std::collections::BTreeMap;

use terrane_raft::{GroupSpec, LogConfig, MembersError, ProposeError, RECOVERY_TERMS, Recovery};
use terrane_types::{ReplicaId, ServerId};

use crate::support::{Cluster, GROUP, eventually, replica};

const SMALL: LogConfig =
    LogConfig { segment_bytes: 64 << 10, cache_bytes: 64 << 10, limit_bytes: 4 << 20, purge_budget_bytes: 256 << 10 };

/// A new replica on a server, under an id that it never had.
async fn join(cluster: &Cluster, server: u64, id: ReplicaId) {
    let leader = cluster.leader(GROUP).await;
    let mut members: BTreeMap<_, _> = cluster.group(leader, GROUP).status().members;
    members.insert(id, ServerId(server));
    let spec = GroupSpec { group: GROUP, replica: id, members };
    cluster.host(server).join_group(spec.clone()).await.unwrap();
    // A repetition changes nothing.
    cluster.host(server).join_group(spec).await.unwrap();
}

/// Repeats a step at the leader until it is made.
async fn until_made<F: Future<Output = Result<(), MembersError>>>(
    cluster: &Cluster,
    step: impl Fn(terrane_raft::Group<Vec<u8>, bytes::Bytes>) -> F,
) {
    loop {
        let leader = cluster.leader(GROUP).await;
        match step(cluster.group(leader, GROUP)).await {
            Ok(()) => return,
            Err(MembersError::NotLeader | MembersError::Later { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn add(cluster: &Cluster, server: u64, id: ReplicaId) {
    join(cluster, server, id).await;
    until_made(cluster, |group| async move { group.add_learner(id, ServerId(server)).await }).await;
}

async fn change(cluster: &Cluster, promote: Option<ReplicaId>, remove: Option<ReplicaId>) {
    until_made(cluster, |group| async move { group.change_voters(promote, remove).await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_grows_to_three_and_then_needs_a_quorum() {
    let mut cluster = Cluster::start(3).await;
    cluster.create_on(GROUP, &[1]).await;
    let mut expected = Vec::new();
    cluster.write(&mut expected, "alone").await;
    for server in [2, 3] {
        let id = replica(GROUP, server);
        add(&cluster, server, id).await;
        let status = cluster.group(1, GROUP).status();
        assert!(status.members.contains_key(&id) && !status.voters.contains(&id), "{status:?}");
        change(&cluster, Some(id), None).await;
        change(&cluster, Some(id), None).await;
        cluster.write(&mut expected, format!("with server {server}")).await;
    }
    cluster.all_have(GROUP, &expected).await;
    cluster.restart_all().await;
    cluster.write(&mut expected, "restarted").await;
    cluster.all_have(GROUP, &expected).await;
    // It no longer reads or writes alone, although it was created as a group of one.
    let leader = cluster.leader(GROUP).await;
    for other in (1..=3).filter(|server| *server != leader) {
        cluster.stop(other).await;
    }
    let group = cluster.group(leader, GROUP);
    let mut answer = group.read_barrier().await;
    while answer.is_ok() {
        // Under the last lease.
        tokio::task::yield_now().await;
        answer = group.read_barrier().await;
    }
    assert!(matches!(answer, Err(ProposeError::NotLeader { .. } | ProposeError::Busy)), "{answer:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_gone_is_replaced_and_its_replica_removed_when_it_is_back() {
    let mut cluster = Cluster::start_with(4, SMALL).await;
    cluster.allow_copies();
    cluster.create_on(GROUP, &[1, 2, 3]).await;
    let mut expected = Vec::new();
    cluster.write(&mut expected, "three").await;
    let gone = cluster.follower().await;
    cluster.stop(gone).await;
    for n in 0..40 {
        cluster.write(&mut expected, format!("{n}").repeat(8 << 10)).await;
    }
    let (old, new) = (replica(GROUP, gone), replica(GROUP, 4));
    add(&cluster, 4, new).await;
    change(&cluster, Some(new), Some(old)).await;
    let leader = cluster.leader(GROUP).await;
    let status = cluster.group(leader, GROUP).status();
    assert!(status.voters.contains(&new) && !status.members.contains_key(&old), "{status:?}");
    cluster.all_have(GROUP, &expected).await;
    // The new member counts: with it and one of the others there is a quorum.
    let other = (1..=3).find(|server| *server != gone && *server != leader).unwrap();
    cluster.stop(other).await;
    cluster.write(&mut expected, "without the other").await;
    cluster.run(other).await;

    // The old one is back, and knows nothing of this until it is removed.
    cluster.run(gone).await;
    let left = cluster.host(gone);
    left.remove_group(GROUP, ReplicaId(old.0 + 1)).await.unwrap();
    assert!(left.group(GROUP).is_some(), "another replica was to be removed");
    left.remove_group(GROUP, old).await.unwrap();
    left.remove_group(GROUP, old).await.unwrap();
    assert!(left.group(GROUP).is_none());
    cluster.forget(gone, GROUP);
    drop(left);
    cluster.stop(gone).await;
    cluster.run(gone).await;
    assert!(cluster.host(gone).group(GROUP).is_none(), "its removal is durable");

    // It joins again under a new id, in place of the other.
    let again = ReplicaId(old.0 + 50);
    add(&cluster, gone, again).await;
    let leader = cluster.leader(GROUP).await;
    let leaves = [4, other].into_iter().find(|server| *server != leader).unwrap();
    let leaving = cluster.group(leaves, GROUP).status().replica;
    change(&cluster, Some(again), Some(leaving)).await;
    cluster.host(leaves).remove_group(GROUP, leaving).await.unwrap();
    cluster.forget(leaves, GROUP);
    cluster.write(&mut expected, "again").await;
    eventually("it has everything", || cluster.list(gone, GROUP) == expected).await;
    cluster.stop_all().await;
}

/// A leader needs the clocks of a majority before it writes. After a restart it knows none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_that_is_away_counts_for_no_majority_of_clocks() {
    let mut cluster = Cluster::start(4).await;
    cluster.create_on(GROUP, &[1, 2, 3]).await;
    let mut expected = Vec::new();
    cluster.write(&mut expected, "three").await;
    add(&cluster, 4, replica(GROUP, 4)).await;
    cluster.write(&mut expected, "with a learner").await;
    cluster.all_have(GROUP, &expected).await;
    cluster.stop_all().await;
    for server in [1, 2] {
        cluster.run(server).await;
    }
    cluster.write(&mut expected, "one voter and the learner are away").await;
    cluster.all_of_have(&[1, 2], GROUP, &expected).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_changes_are_refused_and_change_nothing() {
    let mut cluster = Cluster::start(4).await;
    cluster.create_on(GROUP, &[1, 2, 3]).await;
    cluster.propose(GROUP, b"first").await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.group(leader, GROUP);
    let before = group.status().voters;
    let refused = |outcome: Result<(), MembersError>| match outcome {
        Err(MembersError::Refused { what }) => what,
        other => panic!("{other:?}"),
    };
    let unknown = ReplicaId(77);
    assert!(refused(group.change_voters(Some(unknown), None).await).contains("not a member"));
    assert!(refused(group.add_learner(unknown, ServerId(leader)).await).contains("already"));
    // The leader does not remove itself.
    let outcome = group.change_voters(None, Some(replica(GROUP, leader))).await;
    assert!(matches!(outcome, Err(MembersError::Later { .. })), "{outcome:?}");
    // A learner that was never created cannot catch up.
    group.add_learner(unknown, ServerId(4)).await.unwrap();
    let outcome = group.change_voters(Some(unknown), None).await;
    assert!(matches!(outcome, Err(MembersError::Later { .. })), "{outcome:?}");
    assert_eq!(group.status().voters, before);
    group.change_voters(None, Some(unknown)).await.unwrap();
    assert!(!group.status().members.contains_key(&unknown));
    // Followers name no leader here; they just do not do it.
    let follower = (1..=3).find(|server| *server != leader).unwrap();
    let outcome = cluster.group(follower, GROUP).change_voters(None, Some(replica(GROUP, leader))).await;
    assert_eq!(outcome, Err(MembersError::NotLeader));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_majority_is_lost_is_recovered_from_one_survivor_and_grows_again() {
    let mut cluster = Cluster::start(5).await;
    cluster.create_on(GROUP, &[1, 2, 3]).await;
    let mut expected = Vec::new();
    for n in 0..20 {
        cluster.write(&mut expected, format!("before {n}")).await;
    }
    let leader = cluster.leader(GROUP).await;
    let members = (1..=3).map(|server| replica(GROUP, server)).collect();
    let order = Recovery { above_term: 1 << 20, members };
    let refused = cluster.group(leader, GROUP).recover_alone(&order).await;
    assert!(matches!(refused, Err(MembersError::Refused { .. })), "it has a leader: {refused:?}");
    cluster.all_of_have(&[1, 2, 3], GROUP, &expected).await;
    let survivor = 3;
    cluster.stop(1).await;
    cluster.stop(2).await;
    let group = cluster.group(survivor, GROUP);
    // Refused for as long as the leader may still be there.
    eventually("the leader is gone", || !group.inspect().has_leader).await;
    let late = Recovery { members: order.members.iter().copied().skip(1).collect(), ..order.clone() };
    let refused = group.recover_alone(&late).await;
    assert!(matches!(refused, Err(MembersError::Refused { .. })), "it knows another voter: {refused:?}");
    let last = group.inspect().last;
    group.recover_alone(&order).await.unwrap();
    group.recover_alone(&order).await.unwrap();
    let status = group.status();
    assert!(status.term > 1 << 20 && status.last_index > last.1, "{status:?}");
    cluster.write(&mut expected, "alone").await;
    cluster.all_of_have(&[3], GROUP, &expected).await;
    cluster.stop(survivor).await;
    cluster.run(survivor).await;
    cluster.write(&mut expected, "restarted").await;
    for server in [4, 5] {
        let id = replica(GROUP, server);
        add(&cluster, server, id).await;
        change(&cluster, Some(id), None).await;
    }
    cluster.write(&mut expected, "three again").await;
    cluster.all_of_have(&[3, 4, 5], GROUP, &expected).await;
    cluster.stop_all().await;
}

/// A majority of the old configuration is back: it elects a leader of its own, and asks the survivor, which was a member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_return_after_their_group_was_recovered_do_not_depose_it() {
    let mut cluster = Cluster::start(3).await;
    cluster.create_on(GROUP, &[1, 2, 3]).await;
    let mut expected = Vec::new();
    cluster.write(&mut expected, "before").await;
    cluster.all_of_have(&[1, 2, 3], GROUP, &expected).await;
    cluster.stop(1).await;
    cluster.stop(2).await;
    let group = cluster.group(3, GROUP);
    eventually("the leader is gone", || !group.inspect().has_leader).await;
    let members = (1..=3).map(|server| replica(GROUP, server)).collect();
    group.recover_alone(&Recovery { above_term: RECOVERY_TERMS, members }).await.unwrap();
    cluster.write(&mut expected, "alone").await;
    let term = group.status().term;
    cluster.run(1).await;
    cluster.run(2).await;
    // By then they have asked all members of the old configuration for their votes.
    let lost = [cluster.group(1, GROUP), cluster.group(2, GROUP)];
    eventually("the lost members elect a leader", || lost.iter().any(|group| group.status().is_leader)).await;
    assert!(lost.iter().all(|group| group.status().term < RECOVERY_TERMS), "they have not learned the group's term");
    let status = group.status();
    assert!(status.is_leader && status.term == term, "{status:?}");
    let outcome = group.propose(b"both there".to_vec()).await;
    assert!(outcome.is_ok(), "{outcome:?}");

    // Their leader is told, and the other one is not: by its own account it still has a majority.
    let told = if lost[0].status().is_leader { 1 } else { 2 };
    let former = cluster.group(told, GROUP);
    cluster.host(told).note_recovered(GROUP, term);
    let status = former.status();
    assert!(!status.is_leader && status.leader.is_none(), "{status:?}");
    let refused = former.strict_read_barrier().await;
    assert!(matches!(refused, Err(ProposeError::NotLeader { leader: None, .. })), "{refused:?}");
    let refused = former.propose(b"too late".to_vec()).await;
    assert!(matches!(refused, Err(ProposeError::NotLeader { leader: None, .. })), "{refused:?}");
    cluster.host(3).note_recovered(GROUP, term);
    assert!(group.status().is_leader, "the survivor is not meant");
    cluster.stop_all().await;
}
