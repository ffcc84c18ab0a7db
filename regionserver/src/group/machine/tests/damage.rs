//! A log with an entry that cannot be read.

use super::*;

#[tokio::test]
async fn an_entry_that_cannot_be_read_damages_the_replica_and_none_of_it_takes_effect() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    let before = replica.machine.hosted()[0].engine.sequence();
    assert!(!replica.machine.is_damaged());

    let index = replica.log.len() as u64 + 1;
    let mut operations = vec![replica.log.last().unwrap().operations[0].clone()];
    operations.push(Bytes::from_static(&[0xee, 0xee]));
    let damaged = AppliedEntry { term: 1, index, stamp: 2_000, operations };
    let after = AppliedEntry { index: index + 1, ..replica.log.last().unwrap().clone() };
    let good = AppliedEntry { index, ..after.clone() };
    assert_eq!(replica.machine.apply(&[damaged.clone(), after]).await, Vec::<Vec<Reply>>::new());
    assert!(replica.machine.is_damaged());
    let what = replica.machine.damage().unwrap();
    assert!(what.contains(&format!("entry {index} of its log cannot be read")), "{what}");
    assert_eq!(replica.machine.hosted()[0].engine.sequence(), before, "an operation before the bad one took effect");

    // A restart finds it again, and a replica that has another entry there does not.
    let mut again = replica.crash_and_replay().await;
    assert!(!again.machine.is_damaged(), "it stopped before it");
    assert!(again.machine.apply(std::slice::from_ref(&damaged)).await.is_empty());
    assert!(again.machine.is_damaged());
    again = again.crash_and_replay().await;
    assert_eq!(again.machine.apply(std::slice::from_ref(&good)).await.len(), 1);
}
