//! The client against a fake cluster: routing, redirects, broken sessions, other clusters, deadlines.

use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::join_all;
use terrane_client::{
    Client, Delete, Desc, Error, Get, KeyDeclaration, KeyRange, KeyedTable, Put, RowKey, RowMutation, Scan,
    WriterOptions,
};
use terrane_types::{Error as Wire, RegionEpoch, RegionId, ServerId};

use crate::fake::{Fake, Fault, name, put};

#[tokio::test]
async fn a_put_is_read_and_a_delete_is_not() {
    let (_cluster, table) = Fake::with_table(&["m"]).await;
    table.put(Put::new("zebra").set("f", "stripes", "9").set("g", "x", "y")).await.unwrap();
    let row = table.get(Get::new("zebra")).await.unwrap().expect("just put");
    assert_eq!((row.value("f", "stripes"), row.value("g", "x")), (Some(&b"9"[..]), Some(&b"y"[..])));
    table.delete(Delete::new("zebra").column("f", "stripes")).await.unwrap();
    assert_eq!(table.get(Get::new("zebra")).await.unwrap().expect("a cell is left").cells().count(), 1);
    table.delete(Delete::new("zebra")).await.unwrap();
    assert_eq!(table.get(Get::new("zebra")).await.unwrap(), None);
}

#[tokio::test]
async fn a_warm_client_calls_no_master_and_opens_one_session_per_server() {
    let (_cluster, client, table) = Fake::connected(&["g", "p"]).await;
    let rows: Vec<String> = (0..300).map(|i| format!("{}{i}", ["a", "h", "q"][i % 3])).collect();
    table.put(put(&rows[0])).await.unwrap();
    let warm = client.counters();
    let writes = join_all(rows.iter().map(|row| table.put(put(row)))).await;
    assert!(writes.into_iter().all(|write| write.is_ok()));
    let reads = join_all(rows.iter().map(|row| table.get(Get::new(row)).into_future())).await;
    assert!(reads.into_iter().zip(&rows).all(|(read, row)| read.unwrap().expect("put").row()[..] == *row.as_bytes()));
    let now = client.counters();
    assert_eq!((warm.master_lookups, now.master_lookups), (1, 1));
    assert_eq!((now.sessions_opened, now.retries), (3, 0));
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_sent_again_and_applied_once() {
    let (cluster, table) = Fake::with_table(&[]).await;
    cluster.fault(Fault::BreakAfter);
    table.put(put("a")).await.expect("the client tries again");
    assert_eq!(cluster.world.lock().applied, 1, "applied once");
}

#[tokio::test]
async fn all_requests_of_a_broken_session_succeed_in_the_end() {
    let (cluster, client, table) = Fake::warm().await;
    for round in 0..3 {
        cluster.fault(Fault::BreakBefore);
        let rows: Vec<_> = (0..200).map(|i| format!("{round}-{i}")).collect();
        let done = join_all(rows.iter().map(|row| table.put(put(row)))).await;
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    }
    assert_eq!(cluster.world.lock().rows.len(), 601);
    assert_eq!(
        client.counters().sessions_opened,
        1 + 3 + 1,
        "one again after each break, and one to a member that named the leader"
    );
}

#[tokio::test]
async fn a_failover_is_followed_without_a_master_and_for_all_regions_of_the_group() {
    // Regions 1 and 4 are of group 1.
    let (cluster, client, table) = Fake::connected(&["b", "c", "d"]).await;
    table.put(put("a")).await.unwrap();
    table.put(put("z")).await.unwrap();
    cluster.fail_over(1, 2);
    let before = client.counters();
    table.put(put("a")).await.unwrap();
    assert_eq!(client.counters().redirects, before.redirects + 1);
    table.put(put("z")).await.unwrap();
    let after = client.counters();
    assert_eq!(after.redirects, before.redirects + 1, "one redirect corrects both regions");
    assert_eq!(after.master_lookups, before.master_lookups);
}

/// A server that has just restarted may not have applied yet that a region was created.
#[tokio::test]
async fn without_a_master_a_region_that_a_server_denied_is_tried_again_where_it_was() {
    let (mut cluster, table) = Fake::with_table(&["m"]).await;
    table.put(put("a")).await.unwrap();
    cluster.stop_master().await;
    cluster.fault(Fault::Refuse(Wire::StaleEpoch { region: RegionId(1), current: Vec::new() }));
    assert!(table.get(Get::new("a")).await.expect("another member answers, or names the leader").is_some());
    cluster.fault(Fault::Refuse(Wire::NotFound { what: "region 1".to_owned() }));
    table.put(put("a")).await.expect("and again");
    cluster.fault(Fault::Refuse(Wire::StaleEpoch { region: RegionId(1), current: Vec::new() }));
    let rows = table
        .scan(Scan::all().reverse())
        .await
        .expect("a scan")
        .into_stream()
        .try_collect::<Vec<_>>()
        .await
        .expect("rows");
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn a_master_that_takes_long_still_says_where_a_denied_region_went_to_many_calls() {
    let (cluster, client, table) = Fake::connected(&[]).await;
    table.put(put("a")).await.unwrap();
    {
        let mut world = cluster.world.lock();
        let moved = &mut world.regions[0];
        (moved.region, moved.epoch) = (RegionId(9), RegionEpoch(moved.epoch.0 + 1));
        world.locate_takes = Duration::from_millis(1_000);
    }
    let before = client.counters().master_lookups;
    let found = join_all((0..64).map(|_| table.get(Get::new("a")).into_future())).await;
    assert!(found.into_iter().all(|row| row.expect("found at the second look-up").is_some()));
    assert_eq!(client.counters().master_lookups, before + 2, "calls wait for each other's look-ups");
}

#[tokio::test]
async fn without_a_master_a_batch_over_many_denied_regions_needs_one_look_up() {
    let splits = ["b", "c", "d", "e", "f", "g", "h"];
    let (mut cluster, client, table) = Fake::connected(&splits).await;
    for row in splits {
        table.put(put(row)).await.unwrap();
    }
    cluster.stop_master().await;
    for region in 2..=8 {
        cluster.fault(Fault::Refuse(Wire::StaleEpoch { region: RegionId(region), current: Vec::new() }));
    }
    let before = client.counters().master_lookups;
    let rows = join_all(splits.iter().map(|row| table.get(Get::new(*row)).into_future())).await;
    assert!(rows.into_iter().all(|row| row.expect("it is where it was").is_some()));
    assert!(client.counters().master_lookups <= before + 2, "{:?}", client.counters());
}

#[tokio::test]
async fn without_a_hint_the_other_members_are_tried() {
    let (cluster, client, table) = Fake::connected(&[]).await;
    table.put(put("a")).await.unwrap();
    cluster.world.lock().hints = false;
    cluster.fail_over(1, 3);
    table.put(put("b")).await.unwrap();
    assert_eq!(client.counters().master_lookups, 1);
    let requests = cluster.world.lock().requests;
    table.put(put("c")).await.unwrap();
    assert_eq!(cluster.world.lock().requests, requests + 1, "the member that answered comes first from then on");
}

#[tokio::test]
async fn a_dead_leader_is_left_for_the_live_members() {
    let (mut cluster, table) = Fake::with_table(&[]).await;
    table.put(put("a")).await.unwrap();
    cluster.fail_over(1, 2);
    cluster.kill(ServerId(1)).await;
    table.put(put("b")).await.unwrap();
    assert!(table.get(Get::new("b")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_server_at_a_new_address_is_found() {
    let (mut cluster, table) = Fake::with_table(&[]).await;
    table.put(put("a")).await.unwrap();
    cluster.kill(ServerId(1)).await;
    cluster.start_server(ServerId(1)).await;
    table.put(put("b")).await.unwrap();
    assert_eq!(cluster.world.lock().rows.len(), 2);
}

#[tokio::test]
async fn a_server_of_another_cluster_is_not_written_to() {
    let (mut cluster, table) = Fake::with_table(&[]).await;
    table.put(put("a")).await.unwrap();
    let foreign = cluster.replace_by_foreigner(ServerId(1)).await;
    let refused = table.put(put("b")).await.expect_err("another cluster");
    match refused {
        Error::WrongCluster { expected, actual, .. } => assert_eq!((expected.0, actual.0), ([7; 16], [9; 16])),
        other => panic!("{other:?}"),
    }
    let foreign = foreign.lock();
    assert_eq!((foreign.applied, foreign.requests), (0, 0));
}

#[tokio::test]
async fn a_master_of_another_cluster_is_recognised() {
    let cluster = Fake::start(&[]).await;
    let client = cluster.client().await;
    cluster.world.lock().cluster.0 = [9; 16];
    let refused = client.table("t").await.expect_err("another cluster");
    assert!(matches!(refused, Error::WrongCluster { .. }), "{refused:?}");
    let named = cluster.builder().cluster(crate::fake::CLUSTER).build().await.expect_err("another cluster");
    assert!(matches!(named, Error::WrongCluster { .. }), "{named:?}");
}

#[tokio::test]
async fn a_busy_server_is_waited_for_and_named_in_the_timeout() {
    let (cluster, table) = Fake::with_table(&[]).await;
    let busy = || Fault::Refuse(Wire::Busy { retry_after: Duration::from_millis(5) });
    (0..5).for_each(|_| cluster.fault(busy()));
    table.put(put("a")).await.expect("busy five times, then served");
    let full = || Fault::Refuse(Wire::LogFull { held_by: "server 3".into(), retry_after: Duration::from_millis(20) });
    (0..1000).for_each(|_| cluster.fault(full()));
    let error = table.with_timeout(Duration::from_millis(300)).put(put("b")).await.expect_err("never done");
    assert!(error.is_timeout() && !error.is_uncertain() && error.is_retry_safe(), "{error:?}");
    let source = std::error::Error::source(&error).expect("the last obstacle").to_string();
    assert!(source.contains("server 3"), "{source}");
    assert!(!cluster.world.lock().rows.contains_key(&b"b"[..]));
}

#[tokio::test]
async fn a_server_that_never_answers_ends_in_an_uncertain_timeout() {
    let (cluster, _, table) = Fake::warm().await;
    (0..20).for_each(|_| cluster.fault(Fault::Silence));
    let error = table.with_timeout(Duration::from_millis(200)).put(put("a")).await.expect_err("no server answers");
    assert!(error.is_timeout() && error.is_uncertain(), "{error:?}");
}

#[tokio::test]
async fn a_write_that_no_server_starts_in_time_is_certainly_not_applied() {
    let (cluster, table) = Fake::with_table(&[]).await;
    (0..1000).for_each(|_| cluster.fault(Fault::Refuse(Wire::DeadlineExceeded)));
    let error = table.with_timeout(Duration::from_millis(200)).put(put("a")).await.expect_err("never started");
    assert!(error.is_timeout() && !error.is_uncertain() && error.is_retry_safe(), "{error:?}");
    assert_eq!(cluster.world.lock().applied, 0);
}

#[tokio::test]
async fn a_wrong_request_is_refused_before_it_is_sent() {
    let (cluster, table) = Fake::with_table(&[]).await;
    let unknown = table.put(Put::new("a").set("nope", "q", "v")).await.expect_err("no such family");
    assert!(unknown.is_invalid() && unknown.to_string().contains("no family nope; it has f, g"), "{unknown}");
    assert!(table.put(put("")).await.is_err_and(|error| error.is_invalid()));
    assert!(table.put(put([b'x'; 32_768])).await.is_err_and(|error| error.is_invalid()));
    assert!(table.get(Get::new("")).await.is_err_and(|error| error.is_invalid()));
    assert!(table.get(Get::new("a").family("nope")).await.is_err_and(|error| error.is_invalid()));
    assert!(table.scan(Scan::all().column("nope", "q")).await.is_err_and(|error| error.is_invalid()));
    let many = vec![put("good").into(), Put::new("bad").set("nope", "q", "v").into()];
    assert!(table.mutate_many(many).await.is_err_and(|error| error.is_invalid()));
    let world = cluster.world.lock();
    assert_eq!((world.requests, world.applied), (0, 0));
}

#[tokio::test]
async fn a_family_added_meanwhile_is_learnt() {
    let (cluster, table) = Fake::with_table(&[]).await;
    cluster.add_family("h");
    table.put(Put::new("a").set("h", "q", "v")).await.expect("the schema was refreshed");
    assert_eq!(table.schema().version, 2);
}

#[tokio::test]
async fn a_family_added_right_after_a_refusal_is_known() {
    let (cluster, table) = Fake::with_table(&[]).await;
    for family in ["h", "i", "j"] {
        let missing = || Put::new("a").set(family, "q", "v");
        assert!(table.put(missing()).await.expect_err("not yet").is_invalid());
        cluster.add_family(family);
        table.put(missing()).await.expect("the schema was refreshed");
    }
}

#[tokio::test]
async fn a_whole_row_is_deleted_with_a_family_added_meanwhile() {
    let (mut cluster, _, table) = Fake::warm().await;
    cluster.add_family("h");
    let newer = cluster.table().await;
    newer.put(Put::new("a").set("f", "q", "v").set("h", "q", "v")).await.unwrap();
    table.delete(Delete::new("a")).await.unwrap();
    assert_eq!(newer.get(Get::new("a")).await.unwrap(), None);
    assert_eq!(table.schema().version, 1, "no refresh of the schema was needed");

    // The same again without a master.
    cluster.add_family("i");
    newer.put(Put::new("b").set("f", "q", "v").set("h", "q", "v")).await.unwrap();
    cluster.stop_master().await;
    table.delete(Delete::new("b")).await.expect("a row is deleted without a master too");
    assert_eq!(newer.get(Get::new("b")).await.unwrap(), None);
}

#[tokio::test]
async fn a_mutation_with_a_delete_of_the_whole_row_replaces_the_row() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    table.put(Put::new("a").set("f", "old", "v").set("f", "q", "v")).await.unwrap();
    let replaced = RowMutation::new("a").set("f", "q", "new").delete(Delete::new("a"));
    table.mutate(replaced).await.unwrap();
    let row = table.get(Get::new("a")).await.unwrap().expect("the cell set together with the delete");
    let cells: Vec<_> = row.cells().map(|cell| (cell.qualifier, cell.value)).collect();
    assert_eq!(cells, [(&b"q"[..], &b"new"[..])]);
}

#[tokio::test]
async fn after_a_split_each_row_goes_to_its_daughter() {
    let (cluster, client, table) = Fake::connected(&[]).await;
    table.put(put("a")).await.unwrap();
    cluster.world.lock().split(b"m");
    let rows: Vec<RowMutation> = ["b", "n", "c", "o"].map(|row| put(row).into()).to_vec();
    assert!(table.mutate_many(rows).await.unwrap().iter().all(Result::is_ok));
    assert_eq!(cluster.world.lock().rows.len(), 5);
    let counters = client.counters();
    assert_eq!((counters.redirects > 0, counters.master_lookups), (true, 1), "the refusal carried the map");
}

#[tokio::test]
async fn a_missing_table_is_not_found() {
    let cluster = Fake::start(&[]).await;
    let client = cluster.client().await;
    assert!(client.table("nope").await.is_err_and(|error| error.is_not_found()));
}

#[tokio::test]
async fn the_meta_table_takes_no_writes() {
    let cluster = Fake::start(&[]).await;
    let meta = cluster.client().await.table("meta").await.unwrap();
    let refused = meta.put(Put::new("a").set("info", "state", "x")).await.expect_err("read-only");
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
}

#[tokio::test]
async fn masters_that_do_not_answer_are_skipped() {
    let cluster = Fake::start(&[]).await;
    let masters = format!("127.0.0.1:1,{}", cluster.masters);
    let client = Client::connect(&masters).await.expect("the second answers");
    client.table("t").await.expect("and is called again").put(put("a")).await.unwrap();
    let began = tokio::time::Instant::now();
    let unreachable = Client::builder()
        .masters("127.0.0.1:1")
        .connect_timeout(Duration::from_millis(300))
        .build()
        .await
        .expect_err("none");
    assert!(matches!(&unreachable, Error::Unreachable { masters, .. } if masters == "127.0.0.1:1"), "{unreachable:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn many_rows_are_read_in_the_order_requested() {
    let (cluster, table) = Fake::filled(&["r0003", "r0006"], 9).await;
    let wanted = [8, 2, 99, 5, 2];
    let read = table.get_many(wanted.map(|number| Get::new(name(number))).to_vec()).await.unwrap();
    let shown: Vec<Option<String>> = read.iter().map(|row| row.as_ref().map(|row| row.row().to_string())).collect();
    let expected = [Some("r0008"), Some("r0002"), None, Some("r0005"), Some("r0002")];
    assert_eq!(shown, expected.map(|row| row.map(str::to_owned)));
    assert_eq!(cluster.world.lock().requests, 3, "one request per region");
}

#[tokio::test]
async fn a_writer_sends_batches_and_names_the_rows_that_failed() {
    let (cluster, table) = Fake::with_table(&["m"]).await;
    let writer = table.writer(WriterOptions::default().batch_rows(50).batches_in_flight(3));
    for number in 0..500 {
        writer.put(put(format!("{}{number}", if number % 2 == 0 { "a" } else { "z" }))).await.unwrap();
    }
    writer.put(put("poisoned")).await.unwrap();
    let failed = writer.flush().await.expect_err("one row was poisoned");
    assert_eq!(failed.rows.len(), 1);
    assert_eq!(&failed.rows[0].row[..], b"poisoned");
    assert!(matches!(failed.rows[0].error, Error::ReadOnly { .. }));
    assert_eq!(writer.written(), 500);
    writer.close().await.expect("the failed row was reported already");
    let world = cluster.world.lock();
    assert_eq!((world.applied, world.rows_in_request_max), (500, 25), "batches were split by region");
}

#[tokio::test]
async fn a_writer_keeps_the_order_of_one_row() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    let writer = table.writer(WriterOptions::default().batch_rows(2).batches_in_flight(8));
    for number in 0..50u32 {
        writer.put(Put::new("same").set("f", "q", number.to_string())).await.unwrap();
        writer.put(put(format!("other{number}"))).await.unwrap();
    }
    writer.close().await.unwrap();
    let row = table.get(Get::new("same")).await.unwrap().expect("written");
    assert_eq!(row.value("f", "q"), Some(&b"49"[..]));
}

#[tokio::test]
async fn first_and_last_of_a_range_cross_regions() {
    let (_cluster, table) = Fake::filled(&["r0004", "r0007"], 9).await;
    let row = |found: Option<terrane_client::RowData>| found.map(|row| row.row().to_string());
    assert_eq!(row(table.first(KeyRange::all()).await.unwrap()).as_deref(), Some("r0000"));
    assert_eq!(row(table.last(KeyRange::all()).await.unwrap()).as_deref(), Some("r0008"));
    let upper = KeyRange::new("r0006a", "r0007").unwrap();
    assert_eq!(row(table.first(upper.clone()).await.unwrap()), None);
    assert_eq!(row(table.last(upper).await.unwrap()), None);
    assert_eq!(row(table.last(KeyRange::new("", "r0007").unwrap()).await.unwrap()).as_deref(), Some("r0006"));
}

#[tokio::test]
async fn a_server_that_accepts_no_connection_leaves_no_doubt() {
    let cluster = Fake::start(&[]).await;
    // The kernel accepts connections to it, and no process serves them.
    let deaf = terrane_env::net::listen("127.0.0.1:0").await.unwrap();
    let address = deaf.local_addr().unwrap().to_string();
    cluster.world.lock().addresses.insert(ServerId(1), address);
    let table = cluster.table().await;
    let error = table.with_timeout(Duration::from_millis(200)).put(put("a")).await.expect_err("no server accepts it");
    assert!(error.is_timeout() && !error.is_uncertain(), "{error:?}");
    assert_eq!(cluster.world.lock().applied, 0);
}

#[tokio::test]
async fn a_writer_blocks_its_caller_while_servers_do_not_answer() {
    let (cluster, _, table) = Fake::warm().await;
    (0..20).for_each(|_| cluster.fault(Fault::Silence));
    let writer = table.writer(WriterOptions::default().batch_rows(10).memory_bytes(10_000));
    let mut taken = 0;
    let filling = async {
        for number in 0.. {
            writer.put(put(format!("{number}"))).await.unwrap();
            taken += 1;
        }
    };
    tokio::time::timeout(Duration::from_millis(300), filling).await.expect_err("it waits for an answer");
    assert!((10..40).contains(&taken), "{taken} rows of some 280 bytes were accepted");
}

#[derive(Debug, PartialEq, RowKey)]
struct Reading {
    station: u32,
    time: Desc<i64>,
}

#[tokio::test]
async fn a_typed_table_reads_back_what_was_put_newest_first() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    let readings: KeyedTable<Reading> = KeyedTable::new(table).unwrap();
    for (station, time) in [(1, 10), (1, 30), (1, 20), (2, 5)] {
        let key = Reading { station, time: Desc(time) };
        readings.put(&key, |row| row.set("f", "q", time.to_string())).await.unwrap();
    }
    let mut rows = readings.scan(1).await.unwrap();
    let mut times = Vec::new();
    while let Some(row) = rows.next().await {
        times.push(row.unwrap().key.time.0);
    }
    assert_eq!(times, [30, 20, 10]);
    let key = Reading { station: 2, time: Desc(5) };
    let row = readings.get(&key).await.unwrap().expect("just put");
    assert_eq!((row.key, row.data.value("f", "q")), (Reading { station: 2, time: Desc(5) }, Some(&b"5"[..])));
    readings.delete(&key, |delete| delete).await.unwrap();
    assert_eq!(readings.get(&key).await.unwrap(), None);
}

#[tokio::test]
async fn a_typed_table_checks_the_declared_key() {
    let cluster = Fake::start(&[]).await;
    cluster.world.lock().schema.key = Some(KeyDeclaration::parse("station:u64, time:desc i64").unwrap());
    let table = cluster.table().await;
    let refused = KeyedTable::<Reading>::new(table).expect_err("u32 is not u64");
    let sentence = refused.to_string();
    assert!(refused.is_invalid() && sentence.contains("station:u64") && sentence.contains("station:u32"), "{sentence}");
}
