//! Writes against a fake cluster: conditions, counters, batches, exactly-once, and the client's behaviour under load.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use terrane_client::{
    CallFinished, CallKind, CallOutcome, Consistency, Delete, Error, Get, Increment, KeyDeclaration, Metrics, Put,
    RetryBudget, Returns, RowMutation, Table, WriterOptions, column,
};
use terrane_types::{Error as Wire, Invalid};

use crate::fake::{Fake, Fault, put};

fn busy() -> Fault {
    Fault::Refuse(Wire::Busy { retry_after: Duration::from_millis(1) })
}

#[tokio::test]
async fn counters_and_appends_return_the_new_value() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    assert_eq!(table.increment("page", "f", "visits", 2).await.unwrap(), 2);
    assert_eq!(table.increment("page", "f", "visits", -5).await.unwrap(), -3);
    assert_eq!(table.append("page", "f", "log", "one,").await.unwrap(), "one,");
    assert_eq!(table.append("page", "f", "log", "two").await.unwrap(), "one,two");
    let refused = table.increment("page", "f", "log", 1).await.expect_err("not a counter");
    assert!(refused.is_invalid() && refused.to_string().contains("f:log"), "{refused}");
    let many = Increment::new("page").by("f", "visits", 1).by("g", "bytes", 10);
    let outcome = table.mutate(many).returning(Returns::Old).await.unwrap();
    let old = outcome.row.expect("visits existed");
    assert_eq!(old.value("f", "visits"), Some(&(-3i64).to_be_bytes()[..]));
    assert_eq!(old.value("g", "bytes"), None);
}

#[tokio::test]
async fn a_condition_that_does_not_hold_returns_what_it_found() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    let free = || column("f", "owner").is_absent();
    assert!(table.check_and_put(free(), Put::new("job").set("f", "owner", "ann")).await.unwrap());
    assert!(!table.check_and_put(free(), Put::new("job").set("f", "owner", "ben")).await.unwrap());
    let outcome = table.put(Put::new("job").set("f", "owner", "ben")).when(free()).return_found().await.unwrap();
    assert!(!outcome.held);
    assert_eq!(outcome.row.unwrap().value("f", "owner"), Some(&b"ann"[..]));
    let mine = column("f", "owner").equals("ann").and(column("f", "tries").as_i64().less_than(1).or(free()));
    assert!(!table.check_and_delete(mine, Delete::new("job")).await.unwrap());
    assert!(table.check_and_delete(column("f", "owner").one_of(["ann", "ben"]), Delete::new("job")).await.unwrap());
    assert_eq!(table.get(Get::new("job")).await.unwrap(), None);
}

#[tokio::test]
async fn an_increment_whose_answers_are_lost_counts_once() {
    let (cluster, table) = Fake::with_table(&[]).await;
    for round in 1..=5 {
        (0..round).for_each(|_| cluster.fault(Fault::BreakAfter));
        assert_eq!(table.increment("r", "f", "n", 1).await.unwrap(), round, "the first answer");
    }
    let world = cluster.world.lock();
    assert_eq!(world.applied, 5);
    // Each try of an operation has the number of the first try, and no later time: the clocks of servers differ.
    let mut tries = std::collections::BTreeMap::new();
    for (operation, first_try_ms, _) in &world.window.seen {
        tries.entry(operation).or_insert_with(Vec::new).push(*first_try_ms);
    }
    assert!(tries.len() == 5 && tries.values().all(|times| times.len() > 1), "{tries:?}");
    assert!(tries.values().all(|times| times.iter().is_sorted_by(|one, next| one >= next)), "{tries:?}");
}

#[tokio::test]
async fn a_batch_keeps_its_numbers_over_a_split_and_a_lost_answer() {
    let (cluster, table) = Fake::with_table(&[]).await;
    table.put(put("a")).await.unwrap();
    cluster.world.lock().window.seen.clear();
    cluster.fault(Fault::BreakAfter);
    // Not in row order, and one row twice.
    let rows = ["n", "b", "x", "c", "n"].map(|row| RowMutation::new(row).increment("f", "n", 1)).to_vec();
    let batch = table.mutate_many(rows);
    let (outcomes, ()) = tokio::join!(batch, async { cluster.world.lock().split(b"m") });
    assert!(outcomes.unwrap().iter().all(|outcome| outcome.as_ref().is_ok_and(|outcome| outcome.held)));
    assert_eq!(table.increment("n", "f", "n", 0).await.unwrap(), 2);
    assert_eq!(table.increment("b", "f", "n", 0).await.unwrap(), 1);
    let world = cluster.world.lock();
    let numbers = |row: &str| {
        let mut numbers: Vec<u64> =
            world.window.seen.iter().filter(|(_, _, seen)| seen == row).map(|(number, _, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let first = numbers("b")[0];
    assert_eq!((numbers("c"), numbers("x")), (vec![first + 1], vec![first + 4]), "numbers follow the rows");
    assert_eq!(numbers("n")[..2], [first + 2, first + 3]);
}

#[tokio::test]
async fn results_come_in_order_and_one_bad_row_does_not_affect_the_others() {
    let (_cluster, table) = Fake::with_table(&["m"]).await;
    let rows =
        ["z", "poison", "a", "q"].map(|row| RowMutation::new(row).increment("f", "n", 7).returning(Returns::New));
    let outcomes = table.mutate_many(rows.to_vec()).await.unwrap();
    let shown: Vec<Option<i64>> = outcomes
        .iter()
        .map(|outcome| {
            let row = outcome.as_ref().ok()?.row.as_ref()?;
            Some(i64::from_be_bytes(row.value("f", "n")?.try_into().ok()?))
        })
        .collect();
    assert_eq!(shown, [Some(7), None, Some(7), Some(7)]);
    let failed = outcomes[1].as_ref().unwrap_err();
    assert_eq!((&failed.row[..], matches!(failed.error, Error::ReadOnly { .. })), (&b"poison"[..], true));
}

#[tokio::test]
async fn a_forgotten_operation_gets_a_new_number_unless_it_may_have_been_applied() {
    let (cluster, table) = Fake::with_table(&[]).await;
    // The server's clock was set forward after the hello, and it has dropped the records of operations before that.
    table.get(Get::new("a")).await.unwrap();
    let ahead = terrane_env::time::wall_ms() + 3_600_000;
    cluster.world.lock().window.floor_ms = ahead;
    cluster.world.lock().cluster_time_ms = ahead + 1_000;
    assert_eq!(table.increment("a", "f", "n", 1).await.expect("tried again with the server's time"), 1);
    {
        let world = cluster.world.lock();
        let numbers: Vec<u64> = world.window.seen.iter().map(|(number, _, _)| *number).collect();
        assert!(numbers.len() == 2 && numbers[0] != numbers[1], "{numbers:?}");
    }
    cluster.fault(Fault::BreakBefore);
    cluster.fault(Fault::Refuse(Wire::Uncertain { not_tried: true }));
    let refused = table.put(put("b")).await.expect_err("the first try may have been applied");
    assert!(matches!(refused, Error::Uncertain { .. }) && !refused.is_retry_safe(), "{refused:?}");
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_leaves_doubt_unless_the_row_itself_was_refused() {
    let (cluster, table) = Fake::with_table(&[]).await;
    let lost_then_refused = || {
        cluster.fault(Fault::BreakAfter);
        cluster.fault(Fault::Refuse(Wire::Invalid(Invalid::new("no such family by now"))));
    };
    lost_then_refused();
    let refused = table.put(put("a")).await.expect_err("refused");
    assert!(refused.is_uncertain() && refused.to_string().contains("no such family"), "{refused}");
    // The next server to answer knows the leader.
    table.put(put("warm")).await.unwrap();
    lost_then_refused();
    let refused = table.mutate_many(vec![put("a").into()]).await.unwrap().remove(0).expect_err("refused");
    assert!(refused.error.is_uncertain(), "{refused}");
    assert_eq!(cluster.world.lock().applied, 3, "both were applied");

    // "v" is not a counter in any try.
    table.put(put("a")).await.unwrap();
    cluster.fault(Fault::BreakAfter);
    assert!(table.increment("a", "f", "q", 1).await.expect_err("not a counter").is_invalid());
    table.put(put("a")).await.unwrap();
    cluster.fault(Fault::BreakAfter);
    let increment = RowMutation::new("a").increment("f", "q", 1);
    let refused = table.mutate_many(vec![increment]).await.unwrap().remove(0).expect_err("not a counter");
    assert!(refused.error.is_invalid(), "{refused}");
}

#[tokio::test]
async fn a_lost_result_is_an_error_only_if_it_was_requested() {
    let (cluster, table) = Fake::with_table(&[]).await;
    cluster.world.lock().window.forget_results = true;
    cluster.fault(Fault::BreakAfter);
    table.put(put("a")).await.expect("applied, and no result requested");
    cluster.fault(Fault::BreakAfter);
    let lost = table.append("a", "f", "q", "x").await.expect_err("the value was requested");
    assert!(matches!(lost, Error::ResultLost) && !lost.is_retry_safe(), "{lost:?}");
    assert_eq!(cluster.world.lock().applied, 2);
    cluster.fault(Fault::BreakAfter);
    assert!(table.mutate_many(vec![put("b").into(), put("c").into()]).await.unwrap().iter().all(Result::is_ok));
}

#[tokio::test]
async fn settled_operations_are_dropped_and_a_dropped_call_settles_too() {
    let (cluster, table) = Fake::with_table(&[]).await;
    table.put(put("a")).await.unwrap();
    cluster.fault(Fault::Silence);
    // Polled until it is sent, then dropped.
    tokio::time::timeout(Duration::from_millis(100), table.put(put("dropped"))).await.expect_err("never answered");
    (0..200).for_each(|_| drop(table.put(put("never awaited"))));
    let writes = join_all((0..50).map(|number| table.put(put(format!("r{number}"))))).await;
    assert!(writes.iter().all(Result::is_ok));
    table.put(put("last")).await.unwrap();
    let world = cluster.world.lock();
    let last = world.window.seen.last().unwrap().0;
    assert_eq!(last, 53, "what is not awaited has no number");
    assert_eq!(world.settled().values().copied().collect::<Vec<_>>(), [53]);
}

impl crate::fake::World {
    fn settled(&self) -> &std::collections::BTreeMap<Bytes, u64> {
        &self.window.settled
    }
}

async fn accounts(cluster: &Fake) -> Table {
    {
        let schema = &mut cluster.world.lock().schema;
        schema.key = Some(KeyDeclaration::parse("owner:text, account:text").unwrap());
        schema.atomic = 1;
    }
    cluster.table().await
}

#[tokio::test]
async fn an_atomic_batch_is_applied_whole_or_not_at_all() {
    let cluster = Fake::start(&[]).await;
    let accounts = accounts(&cluster).await;
    let (current, savings) = ("ann\0\x01current\0\x01", "ann\0\x01savings\0\x01");
    accounts.increment(current, "f", "cents", 600).await.unwrap();
    let transfer = || {
        accounts.atomic(vec![
            RowMutation::new(current).increment("f", "cents", -500).when(column("f", "cents").as_i64().at_least(500)),
            RowMutation::new(savings).increment("f", "cents", 500).returning(Returns::New),
        ])
    };
    cluster.fault(Fault::BreakAfter);
    let first = transfer().await.unwrap();
    assert!(first.held && first.rows.len() == 2 && first.rows[1].row.is_some());
    let second = transfer().await.unwrap();
    assert!(!second.held && second.rows.iter().all(|row| !row.held));
    assert_eq!(accounts.increment(current, "f", "cents", 0).await.unwrap(), 100);
    assert_eq!(accounts.increment(savings, "f", "cents", 0).await.unwrap(), 500);
    assert!(accounts.atomic(Vec::new()).await.unwrap().held);
}

#[tokio::test]
async fn rows_that_do_not_share_the_atomic_prefix_are_refused_before_they_are_sent() {
    let (cluster, plain) = Fake::with_table(&[]).await;
    let refused = plain.atomic(vec![put("a").into(), put("b").into()]).await.expect_err("declares none");
    assert!(refused.to_string().contains("declares no atomic key prefix"), "{refused}");
    let accounts = accounts(&cluster).await;
    let rows =
        ["ann\0\x01a\0\x01", "ben\0\x01a\0\x01", "ann\0\x01b\0\x01", "cid\0\x01a\0\x01"].map(|row| put(row).into());
    let refused = accounts.atomic(rows.to_vec()).await.expect_err("three owners");
    let sentence = refused.to_string();
    assert!(refused.is_invalid() && sentence.contains("ben") && sentence.contains("cid"), "{sentence}");
    assert!(!sentence.contains("ann\\x00\\x01b"), "{sentence}");
    let twice = ["ann\0\x01a\0\x01", "ann\0\x01a\0\x01"].map(|row| put(row).into());
    assert!(accounts.atomic(twice.to_vec()).await.expect_err("one row twice").to_string().contains("twice"));
    let refused =
        accounts.atomic(vec![put("no key").into(), put("ann\0\x01a\0\x01").into()]).await.expect_err("not a key");
    assert!(refused.to_string().contains("not keys of table t"), "{refused}");
    assert_eq!(cluster.world.lock().requests, 0);
}

#[tokio::test]
async fn when_the_retry_budget_is_spent_calls_fail() {
    let cluster = Fake::start(&[]).await;
    let stopping = || {
        let (message, retry_after) = ("stopping".to_owned(), Duration::from_millis(1));
        Fault::Refuse(Wire::Unavailable { message, retry_after })
    };
    let budget = RetryBudget::default().percent(0).per_second(0).saved_max(5);
    let client = cluster.builder().retry_budget(budget).build().await.unwrap();
    let table = client.table("t").await.unwrap();
    (0..4).for_each(|_| cluster.fault(stopping()));
    table.put(put("a")).await.expect("four retries are left");
    (0..100).for_each(|_| cluster.fault(stopping()));
    let refused = table.put(put("b")).await.expect_err("one retry is left");
    assert!(matches!(refused, Error::RetriesSpent { uncertain: false, .. }) && refused.is_retry_safe(), "{refused:?}");
    let batch = table.mutate_many(vec![put("c").into()]).await.unwrap();
    assert!(matches!(batch[0].as_ref().unwrap_err().error, Error::RetriesSpent { .. }));
    cluster.world.lock().faults.clear();
    cluster.world.lock().split(b"m");
    table.put(put("z")).await.expect("redirects are free");
}

#[tokio::test]
async fn callers_queue_for_a_server_that_accepts_few_requests_at_a_time() {
    let cluster = Fake::start(&[]).await;
    cluster.world.lock().takes_at_once = 100;
    let budget = RetryBudget::default().percent(0).per_second(0).saved_max(0);
    let client = cluster.builder().retry_budget(budget).build().await.unwrap();
    let table = client.table("t").await.unwrap();
    let calls = join_all((0..3000).map(|number| table.put(put(format!("{number}"))))).await;
    assert!(calls.iter().all(Result::is_ok), "{:?}", calls.iter().find(|call| call.is_err()));
    assert_eq!(cluster.world.lock().applied, 3000);
}

#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Metrics for Seen {
    fn finished(&self, call: &CallFinished<'_>) {
        let outcome = match call.outcome {
            CallOutcome::Done => "done",
            CallOutcome::Failed(_) => "failed",
            _ => "dropped",
        };
        let line = format!("{} {} {} {} {outcome}", call.kind.name(), call.table, call.rows, call.retries);
        self.0.lock().push(line);
    }
}

#[tokio::test]
async fn the_metrics_hook_sees_every_call() {
    let cluster = Fake::start(&[]).await;
    let seen = Arc::new(Seen::default());
    let client = cluster.builder().metrics(seen.clone()).build().await.unwrap();
    let table = client.table("t").await.unwrap();
    // The first call finds no map, which counts as a failed try.
    table.put(put("a")).await.unwrap();
    cluster.fault(busy());
    table.put(put("a")).await.unwrap();
    table.get(Get::new("a")).await.unwrap();
    table.mutate_many(vec![put("a").into(), put("b").into()]).await.unwrap();
    table.put(put("poison")).await.expect_err("poisoned");
    cluster.fault(Fault::Silence);
    tokio::time::timeout(Duration::from_millis(50), table.put(put("a"))).await.expect_err("never answered");
    let expected = [
        "write t 1 1 done",
        "write t 1 1 done",
        "read t 1 0 done",
        "write_many t 2 0 done",
        "write t 1 1 failed",
        "write t 1 0 dropped",
    ];
    assert_eq!(*seen.0.lock(), expected);
    assert_eq!(CallKind::WriteAtomic.name(), "write_atomic");
}

#[tokio::test]
async fn a_closed_client_has_finished_its_calls_and_accepts_no_more() {
    let (cluster, client, table) = Fake::warm().await;
    (0..3).for_each(|_| cluster.fault(busy()));
    let mut last = Box::pin(table.put(put("a")));
    // Started before the client is closed.
    assert!(futures::poll!(last.as_mut()).is_pending());
    let (written, ()) = tokio::join!(last, client.close());
    written.expect("calls in flight are finished");
    let refused = table.put(put("b")).await.expect_err("closed");
    assert!(matches!(refused, Error::Closed { .. }), "{refused:?}");
    let batch = table.mutate_many(vec![put("b").into()]).await.unwrap();
    assert!(matches!(batch[0].as_ref().unwrap_err().error, Error::Closed { .. }));
    client.close().await;
}

#[tokio::test]
async fn a_writer_sends_in_the_background_and_reports_each_row() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    let writer = table.writer(WriterOptions::default().linger(Duration::from_millis(1)));
    let good = writer.submit(RowMutation::new("a").increment("f", "n", 4).returning(Returns::New)).await.unwrap();
    let bad = writer.submit(put("poison")).await.unwrap();
    let value = good.await.expect("sent without a flush").row.unwrap();
    assert_eq!(value.value("f", "n"), Some(&4i64.to_be_bytes()[..]));
    assert!(matches!(bad.await, Err(Error::ReadOnly { .. })));
    writer.flush().await.expect("the receipt reported the failure");
    writer.put(put("poisoned too")).await.unwrap();
    let other = writer.clone();
    let failed = writer.close().await.expect_err("the flush reports it");
    assert_eq!(failed.rows.len(), 1);
    assert!(matches!(other.put(put("b")).await, Err(Error::Closed { .. })));
    assert_eq!(other.written(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_accepted_while_the_writer_closes_is_written_when_it_has_closed() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    for round in 0..50 {
        let writer = table.writer(WriterOptions::default().linger(Duration::ZERO));
        let putting = [0, 1].map(|who| {
            let writer = writer.clone();
            tokio::spawn(async move {
                let mut taken = 0u64;
                while writer.put(put(format!("{round}-{who}-{taken}"))).await.is_ok() {
                    taken += 1;
                }
                taken
            })
        });
        let counted = writer.clone();
        while counted.written() < 10 {
            tokio::task::yield_now().await;
        }
        writer.close().await.unwrap();
        let written = counted.written();
        let taken: Vec<_> = join_all(putting).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(taken.iter().sum::<u64>(), written, "round {round}");
    }
}

#[test]
fn rows_of_a_writer_whose_runtime_is_shut_down_are_reported_as_unknown() {
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (own, others) = (build(), build());
    let (_cluster, table) = others.block_on(Fake::with_table(&[]));
    let writer = own.block_on(async {
        let writer = table.writer(WriterOptions::default().linger(Duration::MAX));
        for row in 0..20 {
            writer.put(put(row.to_string())).await.unwrap();
        }
        writer
    });
    own.shutdown_timeout(Duration::from_secs(5));
    let failed = others.block_on(writer.flush()).expect_err("their outcome is unknown");
    assert!(failed.unknown == 20 && failed.rows.is_empty(), "{failed:?}");
    assert!(failed.to_string().contains("20 rows") && failed.to_string().contains("runtime"), "{failed}");
    assert!(others.block_on(writer.put(put("more"))).is_err());
}

#[tokio::test]
async fn bounds_of_zero_are_raised_to_the_minimum() {
    let (cluster, table) = Fake::with_table(&[]).await;
    let table = table.with_timeout(Duration::MAX);
    let none = WriterOptions::default().batch_bytes(0).batch_rows(0).batches_in_flight(0).memory_bytes(0);
    let writer = table.writer(none.linger(Duration::MAX));
    for row in 0..20 {
        writer.put(put(row.to_string())).await.unwrap();
    }
    writer.close().await.unwrap();
    assert_eq!(cluster.world.lock().rows.len(), 20);
    assert!(table.get("7").timeout(Duration::MAX).await.unwrap().is_some());
}

#[tokio::test]
async fn the_rows_of_a_dropped_writer_are_sent() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    let writer = table.writer(WriterOptions::default().linger(Duration::from_secs(3600)));
    let receipt = writer.submit(put("a")).await.unwrap();
    drop(writer);
    receipt.await.expect("sent at once when no row can be added");
}

#[tokio::test]
async fn a_write_is_a_future_that_can_be_spawned() {
    fn spawnable<T: Future + Send + 'static>(future: T) -> T {
        future
    }
    let (cluster, table) = Fake::with_table(&[]).await;
    let write = spawnable(table.put(put("a")).timeout(Duration::from_secs(3)));
    tokio::spawn(write).await.unwrap().unwrap();
    let late = table.put(put("b")).timeout(Duration::from_millis(1));
    (0..1000).for_each(|_| cluster.fault(Fault::Refuse(Wire::Busy { retry_after: Duration::from_millis(50) })));
    assert!(late.await.is_err_and(|error| error.is_timeout()));
    assert!(format!("{:?}", table.put(put("c"))).contains("Write"));
}

#[tokio::test]
async fn a_slow_stale_read_is_hedged_to_another_member() {
    let cluster = Fake::start(&[]).await;
    let client = cluster.builder().hedge_reads(true).build().await.unwrap();
    let table = client.table("t").await.unwrap();
    table.put(put("a")).await.unwrap();
    cluster.fault(Fault::Silence);
    let read = table.get("a").consistency(Consistency::Stale).timeout(Duration::from_secs(4));
    let row = read.await.expect("the second member answers, before the first is given up").expect("just put");
    assert_eq!(row.value("f", "q"), Some(&b"v"[..]));
    assert_eq!((client.counters().hedged_reads, client.counters().retries), (1, 0));
    table.get("a").await.unwrap();
    assert_eq!(client.counters().hedged_reads, 1, "reads of the leader are not hedged");
}
