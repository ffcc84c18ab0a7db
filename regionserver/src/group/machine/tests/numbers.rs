//! Operation numbers: what a replay restores of the windows, and what holds the log back for them.

use super::*;

#[tokio::test]
async fn settled_numbers_are_replayed_and_hold_back_the_log() {
    let mut replica = Replica::new().await;
    for number in 1..=4 {
        replica.mutate(1, 1, number, "a", None).await;
    }
    replica.machine.record().await.unwrap();
    replica.machine.flush(RegionId(1)).await.unwrap();
    let under_way = crate::window::UnderWay::new(5, vec![(1, 1)]).unwrap();
    let settle = crate::operation::Settle { region: RegionId(1), client: [4; 16], under_way };
    assert!(matches!(replica.apply(encoded(|out| settle.encode(out))).await, Reply::Applied { .. }));
    assert_eq!(replica.machine.durable().index, 5, "it is in the log alone");
    let before = replica.windows();
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.windows(), before);
    let known = Window::decode(before[0].1.clone()).unwrap();
    assert_eq!(known.look_up(&[4; 16], 2, 900), crate::window::Known::TooOld);
}

/// A condition that holds for rows without the column.
fn absent() -> Option<RowRequest> {
    let test = terrane_types::ColumnTest::new(FamilyName::new("f").unwrap(), "q", terrane_types::Test::Absent);
    Some(RowRequest { condition: Some(terrane_types::Condition::Column(test)), ..RowRequest::default() })
}

#[tokio::test]
async fn a_replay_restores_the_same_windows_and_the_same_answers() {
    let mut replica = Replica::new().await;
    assert_eq!(replica.mutate(1, 1, 1, "a", absent()).await, Reply::Applied { stamp: 1002 });
    let failed = replica.mutate(1, 1, 2, "a", absent()).await;
    assert!(matches!(&failed, Reply::Rows { results, .. } if results.len() == 1), "{failed:?}");
    replica.machine.flush(RegionId(1)).await.unwrap();
    replica.mutate(1, 1, 3, "m", None).await;
    replica.split(1, 1, "c", 2, 3).await;
    replica.mutate(2, 2, 5, "b", None).await;
    let before = replica.windows();
    assert_eq!(before.len(), 2);
    let mut replica = replica.crash_and_replay().await;
    assert_eq!(replica.windows(), before);
    // A retry of a refused row is refused again, with the first result, in whichever daughter it reaches.
    let (Reply::Rows { results: first, .. }, Reply::Rows { results: again, .. }) =
        (failed, replica.mutate(2, 2, 2, "a", absent()).await)
    else {
        panic!("nothing to tell")
    };
    assert_eq!(first, again);
    assert_eq!(RowResult::decode(again[0].1.clone()).unwrap().stamp, 1003);
    assert_eq!(replica.shown(), "r2[a b] r3[m]");
}

#[tokio::test]
async fn a_number_without_cells_holds_back_the_log_until_it_is_on_disk() {
    let mut replica = Replica::new().await;
    replica.mutate(1, 1, 1, "a", absent()).await;
    replica.machine.record().await.unwrap();
    replica.machine.flush(RegionId(1)).await.unwrap();
    assert_eq!(replica.machine.durable().index, 2);
    replica.mutate(1, 1, 2, "a", absent()).await;
    assert_eq!(replica.machine.durable().index, 2, "the refusal is in the log alone");
    replica.machine.flush(RegionId(1)).await.unwrap();
    assert_eq!(replica.machine.durable().index, 3);
    let replica = replica.crash_and_replay().await;
    assert!(!replica.windows()[0].1.is_empty());
}
