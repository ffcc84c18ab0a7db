//! What replicas are compared by.

use std::time::Duration;

use super::*;
use crate::metrics::Metrics;
use crate::operation::{Compare, ComparisonId};
use crate::region::comparison::{Digested, READ_WITHIN};
use crate::replicas::Replicas;
use crate::replicas::comparing::digesting::Digesting;

const ID: ComparisonId = ComparisonId([9; 16]);
const REGION: RegionId = RegionId(1);

fn compare() -> Vec<u8> {
    encoded(|out| Compare { region: REGION, id: ID }.encode(out))
}

/// What a replica says once it has read.
async fn digested(replica: &Replica) -> Digested {
    let replicas = Arc::new(Replicas::default());
    replicas.insert_machine(replica.machine.clone());
    let digesting = Arc::new(Digesting::new(replicas, Metrics::registered().0, Default::default()));
    loop {
        match digesting.ask(GROUP, REGION, ID) {
            Digested::UnderWay => tokio::time::sleep(Duration::from_millis(1)).await,
            other => return other,
        }
    }
}

/// Two replicas with the same rows, some of which are overwritten after the comparison began.
async fn two() -> [Replica; 2] {
    let mut replicas = [Replica::new().await, Replica::new().await];
    for replica in &mut replicas {
        for row in ["a", "b", "m"] {
            replica.put_at(1, 1, row, 7).await;
        }
    }
    replicas
}

#[tokio::test]
async fn a_digest_is_of_the_entry_whatever_was_flushed_and_written_since() {
    let [mut one, mut other] = two().await;
    one.machine.flush(REGION).await.unwrap();
    for replica in [&mut one, &mut other] {
        assert!(matches!(replica.apply(compare()).await, Reply::Applied { .. }));
    }
    // One writes more, overwrites what the other still has, and flushes without it.
    for timestamp in 8..12 {
        one.put_at(1, 1, "a", timestamp).await;
        one.put_at(1, 1, "z", timestamp).await;
    }
    one.machine.flush(REGION).await.unwrap();
    let Digested::Ready(digest) = digested(&one).await else { panic!("it is read") };
    assert_eq!(digest.rows, 3);
    assert_eq!(digested(&other).await, Digested::Ready(digest));
    // All replicas agree: it is noted when.
    one.machine.end_comparison(REGION, ID, (digest, false), 77);
    assert_eq!(one.machine.hosted()[0].comparison.compared_ms(), 77);
}

#[tokio::test]
async fn a_replica_that_differs_for_sure_is_damaged() {
    let [mut one, mut other] = two().await;
    one.put_at(1, 1, "b", 7).await;
    other.put_at(1, 1, "q", 7).await;
    for replica in [&mut one, &mut other] {
        replica.apply(compare()).await;
    }
    let (Digested::Ready(own), Digested::Ready(others)) = (digested(&one).await, digested(&other).await) else {
        panic!("they are read")
    };
    assert_ne!(own, others);
    one.machine.end_comparison(REGION, ID, (others, false), 77);
    assert!(!one.machine.is_damaged(), "it may not repeat");
    one.machine.end_comparison(REGION, ComparisonId([8; 16]), (others, true), 77);
    assert!(!one.machine.is_damaged(), "another comparison");
    one.machine.end_comparison(REGION, ID, (own, true), 77);
    assert!(!one.machine.is_damaged());
    one.machine.end_comparison(REGION, ID, (others, true), 77);
    let what = one.machine.damage().unwrap();
    assert!(what.contains("differs from the other replicas in region 1"), "{what}");
}

#[tokio::test]
async fn what_is_no_digest_of_the_entry_is_not_compared() {
    let [mut split, mut late] = two().await;
    assert_eq!(digested(&split).await, Digested::Unknown, "the entry is not applied yet");
    for replica in [&mut split, &mut late] {
        replica.apply(compare()).await;
    }
    // Before it was read, the region was split.
    let hosted = split.machine.hosted()[0].clone();
    split.split(1, 1, "c", 2, 3).await;
    let (_, pin) = hosted.comparison.ask(ID, 0);
    assert!(split.machine.outdated(&hosted, &pin.unwrap()).is_some());
    assert_eq!(digested(&split).await, Digested::Unknown);
    // Log time has come to where cells may have been collected that were judged visible.
    let (hosted, index) = (late.machine.hosted()[0].clone(), late.log.len() as u64 + 1);
    let (_, pin) = hosted.comparison.ask(ID, 0);
    let pin = pin.unwrap();
    assert_eq!(late.machine.outdated(&hosted, &pin), None);
    let stamp = 2_000 + u64::try_from(READ_WITHIN.as_millis()).unwrap();
    let entry = AppliedEntry { index, stamp, ..late.log.last().unwrap().clone() };
    late.machine.apply(&[entry]).await;
    assert_eq!(late.machine.outdated(&hosted, &pin), Some("it took too long"));
}

#[tokio::test]
async fn a_restart_forgets_what_was_pinned() {
    let [mut one, _] = two().await;
    one.apply(compare()).await;
    one.put(1, 1, "z").await;
    one.machine.flush(REGION).await.unwrap();
    let one = one.crash_and_replay().await;
    assert_eq!(digested(&one).await, Digested::Unknown, "the region is ahead of the entry");
}

#[tokio::test]
async fn a_replica_whose_other_region_is_ahead_judges_by_the_same_time() {
    let mut one = Replica::new().await;
    one.put(1, 1, "a").await;
    one.split(1, 1, "m", 2, 3).await;
    for region in [2, 3] {
        one.machine.flush(RegionId(region)).await.unwrap();
    }
    one.machine.record().await.unwrap();
    one.put(2, 2, "b").await;
    one.apply(encoded(|out| Compare { region: RegionId(2), id: ID }.encode(out))).await;
    let pinned = |replica: &Replica| {
        let hosted = replica.machine.hosted_region(RegionId(2)).unwrap();
        hosted.comparison.ask(ID, 0).1.map(|pin| (pin.now_ms, pin.schema_version, pin.snapshot.sequence()))
    };
    let before = pinned(&one);
    assert!(before.is_some());
    one.put(3, 2, "z").await;
    one.machine.flush(RegionId(3)).await.unwrap();
    let again = one.crash_and_replay().await;
    assert_eq!(pinned(&again), before);
}
