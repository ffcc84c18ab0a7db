//! Servers whose clocks are wrong.

use terrane_env::time::wall_ms;

use crate::support::{Cluster, GROUP, eventually, replica};

const DAY_MS: i64 = 86_400_000;
/// Far longer than the tests take, far less than the clocks are wrong.
const HOUR_MS: u64 = 3_600_000;

fn assert_is_now(what: &str, time_ms: u64) {
    assert!(time_ms.abs_diff(wall_ms()) < HOUR_MS, "{what} is {} ms off", time_ms.abs_diff(wall_ms()));
}

/// Sets the leader's clock wrong and checks its leadership, the stamps and the time of reads.
async fn a_leader_with_a_wrong_clock(skew_ms: i64) {
    let mut cluster = Cluster::with_group(3).await;
    cluster.propose(GROUP, b"before").await;
    // A member that has applied nothing knows no stamp.
    cluster.all_have(GROUP, &[b"before".to_vec()]).await;
    let first = cluster.leader(GROUP).await;
    let second = (1..=3).find(|server| *server != first).unwrap();
    // All three clocks are known before one is set wrong.
    let knows = |cluster: &Cluster, server| cluster.host(server).clock_trouble().is_none();
    assert!(knows(&cluster, first));
    cluster.group(first, GROUP).read_barrier().await.unwrap();

    let wrong = cluster.wall(first);
    wrong.set_skew_ms(skew_ms);
    for n in 0..20u8 {
        cluster.propose(GROUP, &[n]).await;
        assert_is_now("the stamp", cluster.group(second, GROUP).status().last_stamp);
        assert_is_now("the time of reads", cluster.group(first, GROUP).time_ms(0));
    }
    eventually("its clock is known to be wrong", || cluster.host(first).clock_trouble().is_some()).await;
    eventually("another server leads", || !cluster.group(first, GROUP).status().is_leader).await;
    cluster.propose(GROUP, b"at another").await;
    assert_ne!(cluster.leader(GROUP).await, first);
    for server in (1..=3).filter(|server| *server != first) {
        assert_eq!(cluster.host(server).clock_trouble(), None, "a right clock does not count as wrong");
    }

    // It is not elected again, not even by a handover.
    let leader = cluster.leader(GROUP).await;
    cluster.group(leader, GROUP).transfer_leader(replica(GROUP, first)).await.ok();
    cluster.propose(GROUP, b"refused").await;
    assert_ne!(cluster.leader(GROUP).await, first);
    assert_is_now("the stamp", cluster.group(first, GROUP).status().last_stamp);

    // Once corrected, it may lead, and the group continues as before.
    wrong.set_skew_ms(0);
    eventually("its clock is right again", || cluster.host(first).clock_trouble().is_none()).await;
    cluster.hand_over(GROUP, first).await;
    let before = wall_ms();
    cluster.propose(GROUP, b"again").await;
    let stamp = cluster.group(first, GROUP).status().last_stamp;
    assert!(stamp + 1_000 >= before && stamp <= wall_ms() + 1_000, "stamps are of the present again");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_clock_jumps_a_day_ahead_stamps_the_present_and_no_longer_leads() {
    a_leader_with_a_wrong_clock(DAY_MS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_clock_falls_a_day_behind_stamps_the_present_and_no_longer_leads() {
    a_leader_with_a_wrong_clock(-DAY_MS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_with_a_wrong_clock_leads_nothing() {
    let mut cluster = Cluster::start(3).await;
    cluster.wall(1).set_skew_ms(DAY_MS);
    // Server 1 begins the first election before it knows any other clock.
    cluster.create(GROUP).await;
    cluster.propose(GROUP, b"first").await;
    eventually("server 1 leads nothing", || !cluster.group(1, GROUP).status().is_leader).await;
    cluster.propose(GROUP, b"second").await;
    assert_ne!(cluster.leader(GROUP).await, 1);
    cluster.restart_all().await;
    cluster.propose(GROUP, b"third").await;
    eventually("server 1 leads nothing", || !cluster.group(1, GROUP).status().is_leader).await;
    for server in 1..=3 {
        assert_is_now("the stamp", cluster.group(server, GROUP).status().last_stamp.max(wall_ms() - HOUR_MS / 2));
        assert_is_now("the server's time", cluster.host(server).time_ms());
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_alone_does_not_stamp_a_jump_of_its_clock() {
    let mut cluster = Cluster::with_group(1).await;
    cluster.propose(GROUP, b"before").await;
    cluster.wall(1).set_skew_ms(DAY_MS);
    cluster.propose(GROUP, b"after").await;
    assert_is_now("the stamp", cluster.group(1, GROUP).status().last_stamp);
    assert!(cluster.host(1).clock_trouble().is_some_and(|trouble| trouble.contains("was set")));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_promises_no_time_that_only_stamps_have_reached() {
    let mut cluster = Cluster::start(3).await;
    // All clocks were ahead once, so the stamps are.
    (1..=3).for_each(|server| cluster.wall(server).set_skew_ms(DAY_MS));
    cluster.create(GROUP).await;
    cluster.propose(GROUP, b"ahead").await;
    (1..=3).for_each(|server| cluster.wall(server).set_skew_ms(0));
    let ahead = wall_ms() + HOUR_MS;
    for n in 0..10u8 {
        cluster.propose(GROUP, &[n]).await;
    }
    for server in 1..=3 {
        let group = cluster.group(server, GROUP);
        assert!(group.status().last_stamp > ahead, "stamps never go back");
        let as_of = group.stale_point().map_or(0, |point| point.as_of_ms);
        assert!(as_of <= wall_ms(), "server {server} promises {} ms of the future", as_of - wall_ms());
    }
    // The promised time is the present, and advances.
    let now = wall_ms();
    let follower = if cluster.leader(GROUP).await == 1 { 2 } else { 1 };
    let group = cluster.group(follower, GROUP);
    let as_of = || group.stale_point().map_or(0, |point| point.as_of_ms);
    eventually("the follower is complete up to now", || as_of() > now && as_of() <= wall_ms()).await;
    drop(group);
    cluster.stop_all().await;
}
