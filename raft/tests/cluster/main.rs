//! Three hosts in one process, over loopback ports and real files, with a state machine that keeps a list.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

mod abstain;
mod applying;
mod clock;
mod copies;
mod members;
mod staleness;
mod support;

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use terrane_raft::{GroupSpec, LogConfig, ProposeError};
use terrane_types::{ClusterId, GroupId, ReplicaId, ServerId};

use support::{Cluster, GROUP, PATIENCE, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_reach_all_members_and_survive_a_restart_of_all() {
    let mut cluster = Cluster::with_group(3).await;
    let leader = cluster.leader(GROUP).await;
    for n in 0..50u64 {
        let reply = cluster.group(leader, GROUP).propose(n.to_le_bytes().to_vec()).await.unwrap();
        assert_eq!(reply, Bytes::from((n + 1).to_string()));
    }
    let expected: Vec<Vec<u8>> = (0..50u64).map(|n| n.to_le_bytes().to_vec()).collect();
    cluster.all_have(GROUP, &expected).await;

    cluster.restart_all().await;
    let leader = cluster.leader(GROUP).await;
    cluster.group(leader, GROUP).read_barrier().await.unwrap();
    assert_eq!(cluster.list(leader, GROUP), expected);
    cluster.all_have(GROUP, &expected).await;
    cluster.propose(GROUP, b"after").await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_group_has_a_leader_at_once() {
    let mut cluster = Cluster::with_group(3).await;
    cluster.leader(GROUP).await;
    // The fastest of several tries counts: a busy machine makes tries slow, never fast.
    let mut fastest = Duration::MAX;
    for number in 2..10 {
        let began = tokio::time::Instant::now();
        cluster.create(GroupId(number)).await;
        cluster.leader(GroupId(number)).await;
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < Duration::from_millis(280), "an election timeout was waited out: {fastest:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_goes_another_takes_over_with_everything_acknowledged() {
    let mut cluster = Cluster::with_group(3).await;
    let first = cluster.leader(GROUP).await;
    let mut expected = Vec::new();
    for n in 0..20u8 {
        cluster.group(first, GROUP).propose(vec![n]).await.unwrap();
        expected.push(vec![n]);
    }
    cluster.stop(first).await;
    let second = cluster.leader(GROUP).await;
    assert_ne!(first, second);
    cluster.group(second, GROUP).read_barrier().await.unwrap();
    assert_eq!(cluster.list(second, GROUP), expected);
    cluster.write(&mut expected, b"second").await;

    cluster.run(first).await;
    cluster.all_have(GROUP, &expected).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_proposals_share_entries_and_keep_their_order() {
    let mut cluster = Cluster::with_group(3).await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.group(leader, GROUP);
    let before = group.status().last_index;
    let proposals = (0..2_000u32).map(|n| group.propose(n.to_le_bytes().to_vec()));
    for outcome in join_all(proposals).await {
        outcome.unwrap();
    }
    let entries = group.status().last_index - before;
    assert!(entries < 200, "2,000 operations took {entries} entries");
    let expected: Vec<Vec<u8>> = (0..2_000u32).map(|n| n.to_le_bytes().to_vec()).collect();
    cluster.all_have(GROUP, &expected).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_refuse_and_name_the_leader() {
    let mut cluster = Cluster::with_group(3).await;
    let (leader, follower) = (cluster.leader(GROUP).await, cluster.follower().await);
    let group = cluster.group(follower, GROUP);
    let knows =
        |status: &terrane_raft::GroupStatus| status.leader.is_some_and(|(_, server)| server == ServerId(leader));
    group.wait_for(knows, PATIENCE).await.unwrap();
    let refused = group.propose(vec![1]).await.unwrap_err();
    assert!(matches!(refused, ProposeError::NotLeader { leader: Some((_, server)), .. } if server == ServerId(leader)));
    let refused = group.read_barrier().await.unwrap_err();
    assert!(matches!(refused, ProposeError::NotLeader { leader: Some((_, server)), .. } if server == ServerId(leader)));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_when_asked() {
    let mut cluster = Cluster::with_group(3).await;
    let first = cluster.leader(GROUP).await;
    let target = (1..=3).find(|server| *server != first).unwrap();
    cluster.propose(GROUP, b"before").await;
    cluster.order_handover(GROUP, first, target).await;
    cluster.group(target, GROUP).wait_for(|status| status.is_leader, PATIENCE).await.expect("the target leads");
    // The old leader answers no read from what it had.
    assert!(cluster.group(first, GROUP).read_barrier().await.is_err());
    cluster.group(target, GROUP).read_barrier().await.unwrap();
    assert_eq!(cluster.list(target, GROUP), vec![b"before".to_vec()]);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_larger_than_a_frame_part_and_an_entry_travels_whole() {
    let mut cluster = Cluster::with_group(3).await;
    let large = vec![7u8; 3 << 20];
    cluster.propose(GROUP, &large).await;
    cluster.propose(GROUP, b"small").await;
    cluster.all_have(GROUP, &[large, b"small".to_vec()]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_soon_answers_neither_reads_nor_writes() {
    let mut cluster = Cluster::with_group(3).await;
    cluster.propose(GROUP, b"x").await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.group(leader, GROUP);
    for other in (1..=3).filter(|server| *server != leader) {
        cluster.stop(other).await;
    }
    let stopped = tokio::time::Instant::now();
    while group.read_barrier().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The lease, and the quorum round that no member answered.
    assert!(stopped.elapsed() < Duration::from_secs(5), "reads continued without a quorum");
    assert!(group.read_barrier().await.is_err());
    // Refused once the lease is over, and distinguished from a lost proposal: it had no effect.
    let refused = tokio::time::timeout(PATIENCE, group.propose(b"y".to_vec())).await.unwrap();
    assert!(matches!(refused, Err(ProposeError::NotLeader { .. })), "{refused:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_prepare_answers_is_not_proposed() {
    let mut cluster = Cluster::with_group(1).await;
    cluster.propose(GROUP, b"x").await;
    let group = cluster.group(1, GROUP);
    let before = group.status().last_index;
    assert_eq!(group.propose(b"refuse".to_vec()).await.unwrap(), Bytes::from_static(b"refused"));
    assert_eq!(group.status().last_index, before);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_waits_for_time_lets_others_pass_and_does_not_wait_forever() {
    let mut cluster = Cluster::with_group(1).await;
    cluster.propose(GROUP, b"x").await;
    let group = cluster.group(1, GROUP);
    let (sender, mut answers) = tokio::sync::mpsc::channel(8);
    for operation in ["never", "later", "plain"] {
        let sender = sender.clone();
        let answered = move |outcome| sender.try_send((operation, outcome)).unwrap();
        group.submit(operation.as_bytes().to_vec(), answered);
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        let (operation, outcome) = tokio::time::timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
        assert_eq!(operation == "never", matches!(outcome, Err(terrane_raft::ProposeError::Busy)), "{outcome:?}");
        order.push(operation);
    }
    assert_eq!(order[0], "plain", "it passed both: {order:?}");
    cluster.all_have(GROUP, &[b"x".to_vec(), b"plain".to_vec(), b"later".to_vec()]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_that_wait_keep_their_place() {
    let mut cluster = Cluster::with_group(3).await;
    cluster.propose(GROUP, b"x").await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.group(leader, GROUP);
    let mut expected = vec![b"x".to_vec()];
    let (sender, mut answers) = tokio::sync::mpsc::channel(2_000);
    for n in 0..1_000 {
        let what = ["plain", "plain", "plain", "when landed", "plain", "read", "alone"][n % 7];
        let operation = format!("{what} {n}").into_bytes();
        expected.push(operation.clone());
        let sender = sender.clone();
        group.submit(operation, move |outcome| sender.try_send((n, outcome)).unwrap());
    }
    for _ in 0..1_000 {
        let (n, outcome) = tokio::time::timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
        assert_eq!(outcome.unwrap(), Bytes::from((n + 2).to_string()), "operation {n} is not in its place");
    }
    cluster.all_have(GROUP, &expected).await;
    cluster.stop_all().await;
}

/// Segments of the smallest size, so that little data fills several.
fn small_log(limit_bytes: u64) -> LogConfig {
    LogConfig { segment_bytes: 16 << 10, cache_bytes: 8 << 10, limit_bytes, purge_budget_bytes: 64 << 10 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_are_removed_once_all_members_have_them_and_files_cover_them() {
    let mut cluster = Cluster::start_with(3, small_log(64 << 20)).await;
    cluster.create(GROUP).await;
    cluster.pin_durable(0);
    let mut expected = Vec::new();
    for n in 0..300u32 {
        cluster.write(&mut expected, [n.to_le_bytes().to_vec(), vec![0; 1000]].concat()).await;
    }
    let leader = cluster.leader(GROUP).await;
    assert!(cluster.host(leader).log_status().segments > 10, "nothing may be removed while the files cover nothing");
    cluster.unpin_durable();
    for server in 1..=3 {
        let host = cluster.host(server);
        eventually("segments are removed", || host.log_status().segments <= 3).await;
    }
    // Purged entries are not needed to continue.
    cluster.all_have(GROUP, &expected).await;
    cluster.restart_all().await;
    cluster.write(&mut expected, b"after").await;
    cluster.all_have(GROUP, &expected).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_left_memory_are_read_back_for_a_member_that_was_away() {
    let mut cluster = Cluster::start_with(3, small_log(64 << 20)).await;
    cluster.create(GROUP).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let mut expected = Vec::new();
    for n in 0..200u32 {
        cluster.write(&mut expected, [n.to_le_bytes().to_vec(), vec![1; 500]].concat()).await;
    }
    cluster.run(away).await;
    cluster.all_have(GROUP, &expected).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_refuses_writes_names_the_member_and_recovers() {
    let mut cluster = Cluster::start_with(3, small_log(256 << 10)).await;
    cluster.create(GROUP).await;
    cluster.propose(GROUP, b"first").await;
    let leader = cluster.leader(GROUP).await;
    let away = (1..=3).find(|server| *server != leader).unwrap();
    cluster.stop(away).await;
    let group = cluster.group(leader, GROUP);
    let refused = loop {
        match group.propose(vec![9; 4000]).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, ProposeError::LogFull { .. }), "{refused:?}");
    let host = cluster.host(leader);
    let named = format!("server {away}");
    eventually("the member is named", || host.log_status().held_by.is_some_and(|by| by.contains(&named))).await;
    assert!(host.log_status().full);
    group.read_barrier().await.expect("reads still work");

    cluster.run(away).await;
    eventually("there is room again", || !host.log_status().full).await;
    cluster.propose(GROUP, b"last").await;
    let list = cluster.list(leader, GROUP);
    cluster.all_have(GROUP, &list).await;
    cluster.stop_all().await;
}

/// Proposes at the current leader, which may change on a starved machine.
async fn propose_once(cluster: &Cluster, operation: &[u8]) -> Result<Bytes, ProposeError> {
    loop {
        let leader = cluster.leader(GROUP).await;
        match cluster.group(leader, GROUP).propose(operation.to_vec()).await {
            Err(ProposeError::NotLeader { .. } | ProposeError::Busy) => {}
            outcome => return outcome,
        }
    }
}

/// Proposes until the group is refused.
async fn fill(cluster: &Cluster) -> String {
    loop {
        match tokio::time::timeout(Duration::from_secs(2), propose_once(cluster, &[9; 4000])).await {
            Ok(Err(ProposeError::LogFull { held_by })) => return held_by,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => panic!("{error:?}"),
            // The leader's log took it, and the log of the other member refuses it until there is room.
            Err(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_a_member_holds_back_is_refused_and_all_others_continue() {
    const FREE: GroupId = GroupId(2);
    let mut cluster = Cluster::start_with(3, small_log(256 << 10)).await;
    cluster.create(GROUP).await;
    let leader = cluster.leader(GROUP).await;
    let away = (1..=3).find(|server| *server != leader).unwrap();
    let others: Vec<u64> = (1..=3).filter(|server| *server != away).collect();
    cluster.create_on(FREE, &others).await;
    cluster.propose(FREE, b"first").await;
    cluster.stop(away).await;
    let held_by = fill(&cluster).await;
    assert!(held_by.contains(&format!("server {away}")), "{held_by}");
    // Many times the log's limit.
    for n in 0..200u32 {
        cluster.propose(FREE, &[n.to_le_bytes().to_vec(), vec![1; 8000]].concat()).await;
    }
    // The log copies and purges beside the writes, so it may exceed its limit and refuse the other group for a moment.
    for server in others {
        let host = cluster.host(server);
        eventually("the log is short, and the other group is not refused", || {
            let log = host.log_status();
            let other = log.refusing.iter().any(|(group, _)| *group != GROUP);
            !other && log.bytes < 320 << 10 && log.held_bytes > 0
        })
        .await;
    }
    let refused = propose_once(&cluster, &[1]).await;
    assert!(matches!(refused, Err(ProposeError::LogFull { .. })), "{refused:?}");
    // The copied entries bring the member up to date, and are then removed.
    cluster.run(away).await;
    for server in 1..=3 {
        let host = cluster.host(server);
        eventually("there is room again", || !host.log_status().full && host.log_status().held_bytes == 0).await;
    }
    cluster.propose(GROUP, b"last").await;
    let list = cluster.list(cluster.leader(GROUP).await, GROUP);
    cluster.all_have(GROUP, &list).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_entries_survive_a_restart_of_all_and_bring_a_member_up_to_date() {
    let mut cluster = Cluster::start_with(3, small_log(256 << 10)).await;
    cluster.create(GROUP).await;
    let leader = cluster.leader(GROUP).await;
    let away = (1..=3).find(|server| *server != leader).unwrap();
    cluster.stop(away).await;
    fill(&cluster).await;
    eventually("entries are held", || cluster.host(leader).log_status().held_bytes > 0).await;
    let list = cluster.list(leader, GROUP);
    cluster.restart_all().await;
    cluster.all_have(GROUP, &list).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_cannot_read_its_log_reports_it_and_the_others_continue() {
    let mut cluster = Cluster::start_with(3, small_log(64 << 20)).await;
    cluster.create(GROUP).await;
    // The server continues while one of its groups works.
    cluster.create_on(GroupId(2), &[1]).await;
    cluster.create_on(GroupId(3), &[2]).await;
    cluster.create_on(GroupId(4), &[3]).await;
    let leader = cluster.leader(GROUP).await;
    let away = (1..=3).find(|server| *server != leader).unwrap();
    cluster.stop(away).await;
    for n in 0..100u32 {
        cluster.propose(GROUP, &[n.to_le_bytes().to_vec(), vec![1; 1000]].concat()).await;
    }
    assert_eq!(cluster.group(leader, GROUP).status().failed, None);
    cluster.damage_log(leader);
    cluster.run(away).await;
    let group = cluster.group(leader, GROUP);
    eventually("it says why", || group.status().failed.is_some_and(|why| why.contains("is damaged at offset"))).await;
    let damage = || cluster.damage(leader, GROUP);
    eventually("it is to be replaced", || damage().is_some_and(|what| what.contains("is damaged at offset"))).await;
    eventually("another one leads", || {
        (1..=3).any(|server| server != leader && cluster.group(server, GROUP).status().is_leader)
    })
    .await;
    let next = (1..=3).find(|server| *server != leader && cluster.group(*server, GROUP).status().is_leader).unwrap();
    cluster.group(next, GROUP).propose(b"after".to_vec()).await.unwrap();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_machine_that_holds_back_a_full_log_is_named() {
    let mut cluster = Cluster::start_with(1, small_log(256 << 10)).await;
    cluster.pin_durable(0);
    cluster.create(GROUP).await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.group(leader, GROUP);
    while !matches!(group.propose(vec![9; 4000]).await, Err(ProposeError::LogFull { .. })) {}
    let host = cluster.host(leader);
    eventually("it is named", || host.log_status().held_by.as_deref() == Some("the pinned list")).await;
    assert!(cluster.relieved() > 0, "the state machine was asked to flush");
    cluster.unpin_durable();
    eventually("there is room again", || !host.log_status().full).await;
    group.propose(vec![1]).await.unwrap();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_names_the_leader_while_the_log_is_full() {
    let mut cluster = Cluster::start_with(3, small_log(256 << 10)).await;
    cluster.pin_durable(0);
    cluster.create(GROUP).await;
    let leader = cluster.leader(GROUP).await;
    fill(&cluster).await;
    let follower = (1..=3).find(|server| *server != leader).unwrap();
    let refused = cluster.group(follower, GROUP).propose(vec![1]).await.unwrap_err();
    let ProposeError::NotLeader { leader: Some((_, named)), .. } = refused else { panic!("{refused:?}") };
    assert_eq!(named.0, leader);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_cluster_is_refused() {
    let mut cluster = Cluster::start(3).await;
    cluster.stop(3).await;
    cluster.run_as(3, ClusterId([9; 16])).await;
    cluster.create(GROUP).await;
    let leader = cluster.leader(GROUP).await;
    assert_ne!(leader, 3);
    cluster.propose(GROUP, b"x").await;
    // The stranger has a replica with that id, and the others keep trying to reach it: it must receive nothing.
    let stranger = cluster.group(3, GROUP);
    assert!(stranger.wait_for(|status| status.leader.is_some(), Duration::from_secs(1)).await.is_none());
    assert!(cluster.list(3, GROUP).is_empty());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creating_a_group_twice_creates_it_once() {
    let mut cluster = Cluster::with_group(1).await;
    cluster.create(GROUP).await;
    let leader = cluster.leader(GROUP).await;
    cluster.group(leader, GROUP).propose(b"x".to_vec()).await.unwrap();
    let members = [(ReplicaId(77), ServerId(1))].into();
    let other = GroupSpec { group: GROUP, replica: ReplicaId(77), members };
    assert!(cluster.host(1).create_group(other, false).await.is_err());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_its_caller_gives_up_is_completed() {
    let mut cluster = Cluster::start(1).await;
    for number in 1..=20 {
        let members = [(ReplicaId(number), ServerId(1))].into();
        let spec = GroupSpec { group: GroupId(number), replica: ReplicaId(number), members };
        let host = cluster.host(1);
        // The caller goes away at some point between the record in the log and the start of the replica.
        let given_up = Duration::from_micros(number * 100);
        tokio::time::timeout(given_up, host.create_group(spec.clone(), true)).await.ok();
        host.create_group(spec, true).await.unwrap();
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_leads_at_once_after_a_restart() {
    let mut cluster = Cluster::with_group(1).await;
    cluster.propose(GROUP, b"x").await;
    // The fastest of several tries counts: a busy machine makes tries slow, never fast.
    let mut fastest = Duration::MAX;
    for _ in 0..8 {
        cluster.stop(1).await;
        let began = tokio::time::Instant::now();
        cluster.run(1).await;
        let leader = cluster.leader(GROUP).await;
        cluster.group(leader, GROUP).read_barrier().await.unwrap();
        fastest = fastest.min(began.elapsed());
        assert_eq!(cluster.list(leader, GROUP), vec![b"x".to_vec()]);
    }
    assert!(fastest < Duration::from_millis(280), "an election timeout was waited out: {fastest:?}");
    cluster.stop_all().await;
}
