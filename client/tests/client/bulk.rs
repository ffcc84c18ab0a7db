//! Bulk loads against a fake cluster: what reaches which region, and what happens when answers are lost.

use bytes::Bytes;
use terrane_client::{BulkOptions, Error, Put};
use terrane_types::Error as Wire;

use crate::fake::{Fake, Fault, name};

const ROWS: usize = 40;

async fn load(fake: &Fake, options: BulkOptions) -> Result<terrane_client::BulkSummary, Error> {
    let table = fake.client().await.table("t").await.expect("it exists");
    let mut loader = table.bulk_load(options);
    for row in 0..ROWS {
        loader.put(Put::new(name(row * 7 % ROWS)).set("f", "q", "v")).await?;
    }
    loader.finish().await
}

/// All rows were loaded, each once.
fn assert_loaded_once(fake: &Fake) {
    let mut log = fake.world.lock().loads.log.clone();
    log.sort();
    assert_eq!(log, (0..ROWS).map(name).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_rows_of_each_region_come_sorted_and_all_cells_have_one_time() {
    let fake = Fake::start(&["r0010", "r0020", "r0030"]).await;
    let summary = load(&fake, BulkOptions::default()).await.expect("nothing fails");
    assert_loaded_once(&fake);
    assert_eq!((summary.rows, summary.cells, summary.runs, summary.regions), (40, 40, 4, 4));
    let world = fake.world.lock();
    assert_eq!(world.loads.times.len(), 1, "{:?}", world.loads.times);
    assert!(world.loads.times.contains(&i64::try_from(summary.timestamp_ms).expect("a time")));
}

#[tokio::test]
async fn a_load_can_be_given_the_time_of_an_earlier_attempt() {
    let fake = Fake::start(&[]).await;
    let summary = load(&fake, BulkOptions::default().timestamp_ms(77)).await.expect("nothing fails");
    assert_eq!((summary.timestamp_ms, fake.world.lock().loads.times.clone()), (77, [77].into()));
}

#[tokio::test]
async fn more_rows_than_the_memory_holds_come_in_several_runs() {
    let fake = Fake::start(&["r0020"]).await;
    let summary = load(&fake, BulkOptions::default().memory_bytes(2_000)).await.expect("nothing fails");
    assert_loaded_once(&fake);
    assert!(summary.runs > 2 && summary.regions == 2, "{summary:?}");
    assert_eq!(fake.world.lock().loads.times.len(), 1);
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_known_to_the_pieces_that_its_run_is_cut_into() {
    let fake = Fake::start(&[]).await;
    fake.world.lock().loads.lose_answer_and_split = Some(Bytes::from_static(b"r0015"));
    load(&fake, BulkOptions::default()).await.expect("it is loaded");
    assert_loaded_once(&fake);
    let commits = fake.world.lock().loads.commits.clone();
    let [whole, left, right] = &commits[..] else { panic!("{commits:?}") };
    assert_eq!((left[0], right[0], left.len(), right.len()), (whole[0], whole[0], 2, 2), "{commits:?}");
    assert_ne!(left[1], right[1]);
}

#[tokio::test]
async fn a_leader_that_has_lost_a_run_gets_it_again() {
    let fake = Fake::start(&["r0020"]).await;
    fake.world.lock().loads.forget_runs = true;
    fake.world.lock().loads.pending = 3;
    let summary = load(&fake, BulkOptions::default().runs_in_flight(1)).await.expect("it is sent again");
    assert_loaded_once(&fake);
    assert_eq!(summary.runs, 2);
    assert!(fake.world.lock().loads.begun > 2);
}

#[tokio::test]
async fn streams_that_break_and_other_leaders_change_nothing() {
    let fake = Fake::start(&["r0020"]).await;
    for fault in [Fault::BreakAfter, Fault::BreakBefore, Fault::BreakAfter] {
        fake.fault(fault);
    }
    fake.fail_over(1, 2);
    load(&fake, BulkOptions::default()).await.expect("it goes on");
    assert_loaded_once(&fake);
    assert_eq!(fake.world.lock().loads.times.len(), 1);
}

#[tokio::test]
async fn a_refusal_ends_the_load_and_says_why() {
    let fake = Fake::start(&[]).await;
    fake.fault(Fault::Refuse(Wire::ReadOnly { what: "table t".to_owned() }));
    let refused = load(&fake, BulkOptions::default()).await.expect_err("it is read-only");
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    assert!(fake.world.lock().loads.log.is_empty());
}
